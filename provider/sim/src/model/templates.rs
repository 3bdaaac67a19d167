//! What a new node of each group would be: a copy of a real one, else what the provider says.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::by_group::{ByGroup, Slot};
use super::ca_client::{CaClient, NodeRef, Template};
use super::client::Client;
use super::cluster::{NodeView, Requests, STARTUP_TAINT_PREFIXES, TO_BE_DELETED_TAINT};
use super::fit::{Frame, SimNode};
use super::report::LoopError;
use super::seen::{Roster, Seen};
use super::settings::Generation;

/// The template of a group.
#[derive(Debug, Clone)]
pub(super) struct GroupTemplate {
    pub(super) template: Arc<Template>,
    /// A new node of this group.
    frame: Arc<Frame>,
    /// What the daemon pods of a node of this group ask for.
    daemons: Requests,
    /// The node that it is a copy of.
    copied: Option<Arc<NodeView>>,
    /// Whether a real node stands behind it.
    real: bool,
}

impl GroupTemplate {
    fn new(template: Arc<Template>, daemons: Requests, copied: Option<Arc<NodeView>>, real: bool) -> Self {
        let node = NodeRef {
            name: String::new(),
            provider_id: String::new(),
            labels: Arc::new(template.labels.clone()),
            annotations: Arc::default(),
        };
        let (taints, slices) = (template.taints.clone(), template.slices.clone());
        let frame = Arc::new(Frame { node, taints, open: true, allocatable: template.allocatable, slices });
        Self { template, frame, daemons, copied, real }
    }

    /// A new node of this group.
    pub(super) fn node(&self) -> SimNode {
        SimNode::new(Arc::clone(&self.frame), self.daemons.clone())
    }

    /// The same with a name.
    pub(super) fn named_node(&self, name: String) -> SimNode {
        let node = NodeRef { name, ..self.frame.node.clone() };
        SimNode::new(Frame { node, ..Frame::clone(&self.frame) }, self.daemons.clone())
    }

    /// A copy of a real one's node, without what is only that node's or only for a while.
    fn copy(node: &NodeView) -> Template {
        let mut labels = BTreeMap::clone(&node.labels);
        labels.remove("kubernetes.io/hostname");
        let passing = |key: &str| {
            key == TO_BE_DELETED_TAINT
                || key.starts_with("node.kubernetes.io/")
                || STARTUP_TAINT_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        };
        let taints = node.taints.iter().filter(|t| !passing(&t.key)).cloned().collect();
        Template { labels, taints, capacity: node.capacity, allocatable: node.allocatable, slices: node.slices.clone() }
    }
}

/// The templates of all groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates {
    /// Those made from real nodes, kept while the group is listed.
    remembered: ByGroup<Arc<GroupTemplate>>,
    current: ByGroup<Arc<GroupTemplate>>,
}

impl Templates {
    pub(super) fn get(&self, group: Slot) -> Option<&Arc<GroupTemplate>> {
        self.current.get(group)
    }

    /// Those of all groups, as the expander is shown them.
    pub(super) fn all<D: CaClient>(&self, client: &Client<D>) -> BTreeMap<String, Arc<Template>> {
        self.current.iter().map(|(group, t)| (client.name(group).to_string(), Arc::clone(&t.template))).collect()
    }

    /// Whether a real node stands behind that of the group.
    pub(super) fn is_real(&self, group: Slot) -> bool {
        self.get(group).is_some_and(|template| template.real)
    }

    /// Works them out anew: from a good node of the group, else from memory, else from the provider, else from any node.
    pub(super) async fn recompute<D: CaClient>(
        &mut self,
        client: &mut Client<D>,
        generation: Generation,
        roster: &Roster,
        now: Timestamp,
    ) -> Result<(), LoopError> {
        let nodes = || roster.seen.iter().zip(&roster.room.nodes);
        let mut current = ByGroup::default();
        for (seen, node) in nodes().filter(|(seen, _)| seen.is_good_example(now)) {
            if let Some(group) = client.known_group_of_seen(seen).await.filter(|group| !current.has(*group)) {
                let template = self.of_node(group, seen, node, true);
                self.remembered.insert(group, Arc::clone(&template));
                current.insert(group, template);
            }
        }
        let listed = client.node_groups().await;
        for group in listed.iter() {
            if current.has(group.slot) {
                continue;
            }
            if let Some(template) = self.remembered.get(group.slot) {
                current.insert(group.slot, Arc::clone(template));
                continue;
            }
            match client.template(group.slot).await {
                Ok(template) => current.insert(group.slot, self.of_door(group.slot, template)),
                Err(source) if generation.template_error_ends_loop() && !source.is_unimplemented() => {
                    return Err(LoopError::Template { group: group.id.to_string(), source });
                }
                Err(_) => {}
            }
        }
        let kept = listed.iter().filter_map(|group| Some((group.slot, self.remembered.remove(group.slot)?)));
        self.remembered = kept.collect();
        let leaving = |seen: &Seen| generation.leaving_node_is_no_template() && seen.leaving_since.is_some();
        for (seen, node) in nodes().filter(|(seen, _)| !seen.is_good_example(now) && !leaving(seen)) {
            if let Some(group) = client.known_group_of_seen(seen).await.filter(|group| !current.has(*group)) {
                current.insert(group, self.of_node(group, seen, node, false));
            }
        }
        self.current = current;
        Ok(())
    }

    /// That of a node; the one before where it is still the same.
    fn of_node(&self, group: Slot, seen: &Seen, node: &SimNode, real: bool) -> Arc<GroupTemplate> {
        let daemons = node.pods.iter().filter(|p| p.daemon).fold(Requests::default(), |sum, pod| sum.plus(&pod.requests));
        let same = |known: &&Arc<GroupTemplate>| {
            let copied = known.copied.as_ref().is_some_and(|copied| Arc::ptr_eq(copied, &seen.view));
            copied && known.real == real && known.daemons == daemons
        };
        let copied = || {
            let template = Arc::new(GroupTemplate::copy(&seen.view));
            Arc::new(GroupTemplate::new(template, daemons.clone(), Some(Arc::clone(&seen.view)), real))
        };
        self.get(group).filter(same).map_or_else(copied, Arc::clone)
    }

    /// That of the provider; the one before where it is still the same.
    fn of_door(&self, group: Slot, template: Arc<Template>) -> Arc<GroupTemplate> {
        let same = |known: &&Arc<GroupTemplate>| known.copied.is_none() && Arc::ptr_eq(&known.template, &template);
        match self.get(group).filter(same) {
            Some(known) => Arc::clone(known),
            None => Arc::new(GroupTemplate::new(template, Requests::default(), None, false)),
        }
    }
}
