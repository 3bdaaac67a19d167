//! What a new node of each group would be: a copy of a real one, else what the door says.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::ca_client::{CaClient, NodeRef, Template};
use super::client::Client;
use super::cluster::{NodeView, PodView, Requests, STARTUP_TAINT_PREFIXES, TO_BE_DELETED_TAINT};
use super::fit::SimNode;
use super::report::LoopError;
use super::settings::Generation;
use super::time::after;

/// How long a node must have been Ready to serve as a template.
const STABLE: SignedDuration = SignedDuration::from_mins(1);

/// A node as this loop counts it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) view: Arc<NodeView>,
    /// Whether it counts as Ready: its condition, less starting taints and GPUs that are labelled and not there yet.
    pub(super) ready: bool,
}

impl Seen {
    pub(super) fn new(view: Arc<NodeView>, gpu_label: &str) -> Self {
        let starting = view.taints.iter().any(|t| STARTUP_TAINT_PREFIXES.iter().any(|prefix| t.key.starts_with(prefix)));
        let gpus_missing = !gpu_label.is_empty() && view.labels.contains_key(gpu_label) && view.allocatable.gpus == 0;
        Self { ready: view.ready() && !starting && !gpus_missing, view }
    }

    fn is_good_example(&self, now: Timestamp) -> bool {
        let stable = self.view.ready_since.is_some_and(|since| after(since, STABLE) <= now);
        self.ready && stable && !self.view.unschedulable && self.view.to_be_deleted_since().is_none()
    }
}

/// The template of a group.
#[derive(Debug, Clone)]
pub(super) struct GroupTemplate {
    pub(super) template: Arc<Template>,
    /// What the daemon pods of a node of this group ask for.
    daemons: Requests,
    /// Whether a real node stands behind it.
    real: bool,
}

impl GroupTemplate {
    /// A new node of this group.
    pub(super) fn node(&self, name: &str) -> SimNode {
        SimNode {
            node: NodeRef {
                name: name.to_owned(),
                provider_id: String::new(),
                labels: Arc::new(self.template.labels.clone()),
                annotations: Arc::default(),
            },
            taints: self.template.taints.clone(),
            open: true,
            allocatable: self.template.allocatable,
            slices: self.template.slices.clone(),
            pods: Vec::new(),
            used: self.daemons.clone(),
        }
    }

    /// A copy of a real node, without what is only that node's or only for a while.
    fn from_node(node: &NodeView, pods: &[Arc<PodView>]) -> Self {
        let mut labels = BTreeMap::clone(&node.labels);
        labels.remove("kubernetes.io/hostname");
        let passing = |key: &str| {
            key == TO_BE_DELETED_TAINT
                || key.starts_with("node.kubernetes.io/")
                || STARTUP_TAINT_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        };
        let taints = node.taints.iter().filter(|t| !passing(&t.key)).cloned().collect();
        let daemons = pods
            .iter()
            .filter(|p| p.daemon && p.node.as_ref() == Some(&node.name))
            .fold(Requests::default(), |sum, pod| sum.plus(&pod.requests));
        let template =
            Template { labels, taints, capacity: node.capacity, allocatable: node.allocatable, slices: node.slices.clone() };
        Self { template: Arc::new(template), daemons, real: true }
    }
}

/// The templates of all groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates {
    /// Those made from real nodes, kept while the group is listed.
    remembered: BTreeMap<String, GroupTemplate>,
    current: BTreeMap<String, GroupTemplate>,
}

impl Templates {
    pub(super) fn get(&self, group: &str) -> Option<&GroupTemplate> {
        self.current.get(group)
    }

    /// Those of all groups, as the expander is shown them.
    pub(super) fn all(&self) -> BTreeMap<String, Arc<Template>> {
        self.current.iter().map(|(id, t)| (id.clone(), Arc::clone(&t.template))).collect()
    }

    /// When a node becomes an example where its group has none yet.
    pub(super) fn next_example<'a>(&'a self, nodes: &'a [(Arc<NodeView>, Arc<str>)]) -> impl Iterator<Item = Timestamp> + 'a {
        nodes
            .iter()
            .filter(|(_, group)| self.current.get(group.as_ref()).is_none_or(|t| !t.real))
            .filter_map(|(node, _)| node.ready_since.map(|since| after(since, STABLE)))
    }

    /// Works them out anew: from a good node of the group, else from memory, else from the door, else from any node.
    pub(super) async fn recompute<D: CaClient>(
        &mut self,
        client: &mut Client<D>,
        generation: Generation,
        nodes: &[Seen],
        pods: &[Arc<PodView>],
        now: Timestamp,
    ) -> Result<(), LoopError> {
        let (good, bad): (Vec<&Seen>, Vec<&Seen>) = nodes.iter().partition(|seen| seen.is_good_example(now));
        let mut current = BTreeMap::new();
        for seen in good {
            if let Some(group) = client.known_group_of_view(&seen.view).await {
                current.entry(group.to_string()).or_insert_with(|| GroupTemplate::from_node(&seen.view, pods));
            }
        }
        self.remembered.extend(current.clone());
        let listed = client.node_groups().await;
        for group in listed.iter() {
            if current.contains_key(&group.id) {
                continue;
            }
            if let Some(template) = self.remembered.get(&group.id) {
                current.insert(group.id.clone(), template.clone());
                continue;
            }
            match client.template(&group.id).await {
                Ok(template) => {
                    current.insert(group.id.clone(), GroupTemplate { template, daemons: Requests::default(), real: false });
                }
                Err(source) if generation.template_error_ends_loop() && !source.is_unimplemented() => {
                    return Err(LoopError::Template { group: group.id.clone(), source });
                }
                Err(_) => {}
            }
        }
        self.remembered.retain(|id, _| listed.iter().any(|g| g.id == *id));
        let disruption = |seen: &&Seen| seen.view.to_be_deleted_since().is_some();
        for seen in bad.into_iter().filter(|seen| !(generation.leaving_node_is_no_template() && disruption(seen))) {
            if let Some(group) = client.known_group_of_view(&seen.view).await {
                current
                    .entry(group.to_string())
                    .or_insert_with(|| GroupTemplate { real: false, ..GroupTemplate::from_node(&seen.view, pods) });
            }
        }
        self.current = current;
        Ok(())
    }
}
