//! The facts while they are gathered: two lists, joined as they change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::runtime::watcher::Event;
use stoker_core::base::ids::{NodeGroupId, NodeName, ProviderId};
use stoker_core::facts::snapshot::{ClusterFacts, NodeFacts};
use tracing::warn;

use super::super::thin::{NodeRow, PodRow};
use crate::clock::Clock;

/// Nodes of this cluster, and the GPU pods of every node.
///
/// A change of one object touches the facts of one node; only a new list goes over all.
#[derive(Debug)]
pub(super) struct Table {
    clock: Clock,
    nodes: BTreeMap<NodeName, Arc<NodeFacts>>,
    pods: Pods,
    nodes_listed: bool,
    pods_listed: bool,
    /// Whether what a Node bears of our verdict changed, and nothing else.
    bears: bool,
    listing_nodes: BTreeMap<NodeName, NodeFacts>,
    listing_pods: Pods,
}

/// GPU pods by key (`namespace/name`) and by node, of every node in the cluster: a pod may be seen before its node.
#[derive(Debug, Default)]
struct Pods {
    nodes: HashMap<Arc<str>, NodeName>,
    by_node: HashMap<NodeName, BTreeSet<Arc<str>>>,
    /// Whether a node got its first pod or lost its last since this was last asked.
    changed: bool,
}

impl Table {
    /// A table of nothing yet. By `clock` nothing that the API server tells happened in the future.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            nodes: BTreeMap::new(),
            pods: Pods::default(),
            nodes_listed: false,
            pods_listed: false,
            bears: false,
            listing_nodes: BTreeMap::new(),
            listing_pods: Pods::default(),
        }
    }

    /// Applies an event of the nodes; tells whether the facts changed, but for what a Node bears of our verdict: nothing waits for that,
    /// and it is mostly ourselves who wrote it.
    pub(super) fn node(&mut self, event: Event<NodeRow>) -> bool {
        match event {
            Event::Init => self.listing_nodes.clear(),
            Event::InitApply(row) => {
                if let Some(facts) = self.read(row) {
                    self.listing_nodes.insert(facts.name.clone(), facts);
                }
            }
            Event::InitDone => return self.swap_nodes(),
            Event::Apply(row) => {
                let Some(mut facts) = self.read(row) else { return false };
                let same = self.nodes.get(&facts.name).filter(|old| same_but_for_pods(old, &facts));
                let same_shown = same.map(|old| old.shown == facts.shown);
                if same_shown == Some(true) {
                    return false;
                }
                facts.gpu_pods = self.pods.of(&facts.name);
                self.nodes.insert(facts.name.clone(), Arc::new(facts));
                self.bears |= same_shown.is_some();
                return same_shown.is_none();
            }
            Event::Delete(row) => {
                let name = row.meta.name.and_then(|name| NodeName::new(name).ok());
                return name.is_some_and(|name| self.nodes.remove(&name).is_some());
            }
        }
        false
    }

    /// Applies an event of the pods; tells whether the facts changed.
    pub(super) fn pod(&mut self, event: Event<PodRow>) -> bool {
        let (row, bound) = match event {
            Event::Init => {
                self.listing_pods = Pods::default();
                return false;
            }
            Event::InitApply(row) => {
                if let Some((key, node)) = key_and_node(&row)
                    && let Some(node) = node
                {
                    self.listing_pods.bind(&key, node);
                }
                return false;
            }
            Event::InitDone => return self.swap_pods(),
            Event::Apply(row) => (row, true),
            Event::Delete(row) => (row, false),
        };
        let Some((key, node)) = key_and_node(&row) else { return false };
        let node = node.filter(|_| bound);
        let before = self.pods.nodes.get(key.as_str()).cloned();
        if before == node {
            return false;
        }
        let mut changed = false;
        if let Some(before) = before {
            self.pods.unbind(&key);
            changed |= self.touch(&before, |pods| pods.remove(&key));
        }
        if let Some(node) = node {
            self.pods.bind(&key, node.clone());
            changed |= self.touch(&node, |pods| pods.insert(key));
        }
        changed
    }

    /// Whether a node may be one of ours: it is not known before the nodes were listed.
    pub(super) fn may_have(&self, node: &NodeName) -> bool {
        !self.nodes_listed || self.nodes.contains_key(node)
    }

    /// Whether what Nodes bear of our verdicts changed since this was last asked.
    pub(super) fn take_bears(&mut self) -> bool {
        std::mem::take(&mut self.bears)
    }

    /// Whether other nodes are held by GPU pods than when it was last asked which.
    pub(super) const fn occupied_changed(&self) -> bool {
        self.pods.changed
    }

    /// The nodes that GPU pods hold, whosever they are, where they changed since this was last asked.
    pub(super) fn take_occupied(&mut self) -> Option<BTreeSet<NodeName>> {
        std::mem::take(&mut self.pods.changed).then(|| self.pods.by_node.keys().cloned().collect())
    }

    /// Whether both lists were complete once.
    pub(super) const fn complete(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// The facts; `None` until both lists were complete once. Costs a pointer a node.
    pub(super) fn facts(&self) -> Option<ClusterFacts> {
        self.complete().then(|| ClusterFacts { nodes: self.nodes.clone() })
    }

    fn touch(&mut self, node: &NodeName, change: impl FnOnce(&mut BTreeSet<String>) -> bool) -> bool {
        self.nodes.get_mut(node).is_some_and(|facts| change(&mut Arc::make_mut(facts).gpu_pods))
    }

    fn swap_nodes(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.nodes_listed, true);
        let listing = std::mem::take(&mut self.listing_nodes);
        let listed = listing
            .into_iter()
            .map(|(name, mut facts)| {
                facts.gpu_pods = self.pods.of(&name);
                // What did not change stays the same allocation, here and in what was published.
                let facts = self.nodes.get(&name).filter(|old| ***old == facts).cloned().unwrap_or_else(|| Arc::new(facts));
                (name, facts)
            })
            .collect();
        let changed = first || listed != self.nodes;
        self.nodes = listed;
        changed
    }

    fn swap_pods(&mut self) -> bool {
        let mut changed = !std::mem::replace(&mut self.pods_listed, true);
        self.pods = std::mem::take(&mut self.listing_pods);
        self.pods.changed = true;
        self.pods.shrink();
        for facts in self.nodes.values_mut() {
            let pods = self.pods.of(&facts.name);
            if facts.gpu_pods != pods {
                Arc::make_mut(facts).gpu_pods = pods;
                changed = true;
            }
        }
        changed
    }

    /// The facts of a row, still without pods; `None`, with a warning, where it cannot be a Node of ours.
    fn read(&mut self, row: NodeRow) -> Option<NodeFacts> {
        let name = row.meta.name.unwrap_or_default();
        let Ok(id) = NodeName::new(&name) else {
            warn!(node = name, "a Node without a usable name is ignored");
            return None;
        };
        let Some(created_at) = row.created_at else {
            warn!(node = name, "a Node without a creation time is ignored");
            return None;
        };
        let provider_id = row.provider_id.and_then(|text| {
            ProviderId::new(text).inspect_err(|error| warn!(node = name, %error, "a Node's providerID is not usable")).ok()
        });
        let group = row.group.and_then(|text| {
            let usable = NodeGroupId::new(text);
            usable.inspect_err(|error| warn!(node = name, %error, "a Node's group label is not usable")).ok()
        });
        let facts = NodeFacts {
            name: id,
            provider_id,
            group,
            created_at,
            ready_since: row.ready_since,
            gpu_pods: BTreeSet::new(),
            scale_down_disabled: row.hold,
            cordon: row.cordon,
            allocatable: row.allocatable,
            shown: row.shown.map(Arc::new),
        };
        let known = self.nodes.get(&facts.name).map(AsRef::as_ref);
        Some(facts.happened_by(self.clock.now(), known))
    }
}

/// Whether they differ in their pods at most, or in what they bear.
fn same_but_for_pods(a: &NodeFacts, b: &NodeFacts) -> bool {
    // Destructured so that a new fact cannot be forgotten here.
    let NodeFacts {
        name,
        provider_id,
        group,
        created_at,
        ready_since,
        gpu_pods: _,
        scale_down_disabled,
        cordon,
        allocatable,
        shown: _,
    } = a;
    (name, provider_id, group, created_at, ready_since, scale_down_disabled, cordon, allocatable)
        == (&b.name, &b.provider_id, &b.group, &b.created_at, &b.ready_since, &b.scale_down_disabled, &b.cordon, &b.allocatable)
}

/// The key of a pod, and the node that it holds.
fn key_and_node(row: &PodRow) -> Option<(String, Option<NodeName>)> {
    let key = row.key()?;
    let node = row.holds.as_ref().and_then(|name| {
        NodeName::new(name).inspect_err(|error| warn!(pod = key, %error, "a Pod's node name is not usable")).ok()
    });
    Some((key, node))
}

impl Pods {
    fn bind(&mut self, key: &str, node: NodeName) {
        let key: Arc<str> = Arc::from(key);
        // The name that is stored already, so that all pods of a node share it.
        let node = self.by_node.get_key_value(&node).map_or(node, |(known, _)| known.clone());
        if let Some(before) = self.nodes.insert(Arc::clone(&key), node.clone())
            && before != node
        {
            self.leave(&key, &before);
        }
        let keys = self.by_node.entry(node).or_default();
        self.changed |= keys.is_empty();
        keys.insert(key);
    }

    fn unbind(&mut self, key: &str) {
        if let Some(node) = self.nodes.remove(key) {
            self.leave(key, &node);
        }
    }

    fn leave(&mut self, key: &str, node: &NodeName) {
        if let Some(keys) = self.by_node.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.changed = true;
                self.by_node.remove(node);
            }
        }
    }

    fn of(&self, node: &NodeName) -> BTreeSet<String> {
        self.by_node.get(node).into_iter().flatten().map(ToString::to_string).collect()
    }

    fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.by_node.shrink_to_fit();
    }
}
