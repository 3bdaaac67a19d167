//! The client's side of the provider: what it remembers between calls, and the transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::by_group::{ByGroup, Slot};
use super::ca_client::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};
use super::cluster::NodeView;
use super::report::{Call, CallRecord};
use super::seen::Seen;

/// A group that is listed.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) slot: Slot,
    pub(super) id: Arc<str>,
    pub(super) min: i32,
    pub(super) max: i32,
}

/// A provider with the memory of the autoscaler's client.
///
/// # Guarantees
/// * Groups are remembered until the next refresh, an empty list too; a failed list is an empty one and is not remembered.
/// * A node's group is remembered until the next refresh; "not ours" and failures are not.
/// * A template lives as long as the listed group object, that is until the next refresh.
/// * The GPU label is remembered for the life of the process once it was answered.
///
/// Without a transcript, what the provider says has not changed is remembered for longer: nobody can tell.
#[derive(Debug)]
pub(super) struct Client<D> {
    pub(super) provider: D,
    /// All groups that were ever heard of.
    names: Vec<Arc<str>>,
    slots: BTreeMap<Arc<str>, Slot>,
    groups: Option<Arc<[Listed]>>,
    /// The last list as the provider made it, and as it is kept.
    list: (Arc<[GroupInfo]>, Arc<[Listed]>),
    /// By the node's name: its machine, and its group.
    group_of: BTreeMap<String, (String, Slot)>,
    templates: ByGroup<Arc<Template>>,
    /// Target sizes, until something is asked for that changes them.
    sizes: Option<ByGroup<i32>>,
    gpu_label: Option<Arc<str>>,
    /// Whether no transcript is kept.
    pub(super) quiet: bool,
    pub(super) calls: Vec<CallRecord>,
}

impl<D: CaClient> Client<D> {
    pub(super) fn new(provider: D) -> Self {
        Self {
            provider,
            names: Vec::new(),
            slots: BTreeMap::new(),
            groups: None,
            list: (Arc::default(), Arc::default()),
            group_of: BTreeMap::new(),
            templates: ByGroup::default(),
            sizes: None,
            gpu_label: None,
            quiet: false,
            calls: Vec::new(),
        }
    }

    /// Forgets all; a new process.
    pub(super) fn forget(&mut self) {
        self.forget_groups();
        self.gpu_label = None;
    }

    fn forget_groups(&mut self) {
        self.groups = None;
        self.group_of.clear();
        self.templates.clear();
        self.sizes = None;
    }

    fn log<T>(&mut self, call: impl FnOnce() -> Call, result: Result<T, CaError>) -> Result<T, CaError> {
        if !self.quiet {
            self.calls.push(CallRecord { call: call(), error: result.as_ref().err().cloned() });
        }
        result
    }

    /// The place of a group in every table.
    fn slot(&mut self, id: &str) -> Slot {
        if let Some(slot) = self.slots.get(id) {
            return *slot;
        }
        let (slot, id) = (Slot::new(self.names.len()), Arc::<str>::from(id));
        self.names.push(Arc::clone(&id));
        self.slots.insert(id, slot);
        slot
    }

    /// What a group is called.
    pub(super) fn name(&self, group: Slot) -> Arc<str> {
        self.names.get(group.at()).map(Arc::clone).unwrap_or_default()
    }

    pub(super) async fn refresh(&mut self) -> Result<(), CaError> {
        self.forget_groups();
        let result = self.provider.refresh().await;
        self.log(|| Call::Refresh, result)
    }

    /// The machines whose nodes have to be asked about anew after a refresh; `None` for all.
    pub(super) async fn regrouped(&mut self) -> Option<BTreeSet<String>> {
        let regrouped = self.provider.regrouped().await;
        regrouped.filter(|_| self.quiet)
    }

    pub(super) async fn node_groups(&mut self) -> Arc<[Listed]> {
        if let Some(groups) = &self.groups {
            return Arc::clone(groups);
        }
        let result = self.provider.shared_groups().await;
        let Ok(groups) = self.log(|| Call::NodeGroups, result) else { return Arc::default() };
        if !Arc::ptr_eq(&groups, &self.list.0) {
            let listed = groups.iter().map(|group| {
                let slot = self.slot(&group.id);
                Listed { slot, id: self.name(slot), min: group.min, max: group.max }
            });
            self.list = (Arc::clone(&groups), listed.collect());
        }
        self.groups = Some(Arc::clone(&self.list.1));
        Arc::clone(&self.list.1)
    }

    /// The listed group.
    pub(super) async fn group(&mut self, group: Slot) -> Option<Listed> {
        self.node_groups().await.iter().find(|g| g.slot == group).cloned()
    }

    pub(super) async fn group_of(&mut self, node: &NodeRef) -> Result<Option<Slot>, CaError> {
        if let Some(group) = self.remembered_group_of(&node.name, &node.provider_id) {
            return Ok(Some(group));
        }
        let result = self.provider.node_group_for_node(node).await;
        let group = self.log(|| Call::NodeGroupForNode(node.name.clone()), result)?.filter(|id| !id.is_empty());
        Ok(group.map(|id| {
            let slot = self.slot(&id);
            self.group_of.insert(node.name.clone(), (node.provider_id.clone(), slot));
            slot
        }))
    }

    /// The group of a node, where it is remembered.
    pub(super) fn remembered_group_of(&self, name: &str, provider_id: &str) -> Option<Slot> {
        self.group_of.get(name).filter(|(of, _)| of == provider_id).map(|(_, group)| *group)
    }

    /// The group of a node of the cluster, as [`Self::known_group_of`].
    pub(super) async fn known_group_of_view(&mut self, node: &NodeView) -> Option<Slot> {
        match self.remembered_group_of(&node.name, &node.provider_id) {
            Some(group) => Some(group),
            None => self.known_group_of(&node.to_ref()).await,
        }
    }

    /// The same after the refresh of this loop.
    pub(super) async fn known_group_of_seen(&mut self, seen: &Seen) -> Option<Slot> {
        if let Some(group) = seen.group.get() {
            return Some(*group);
        }
        let group = self.known_group_of_view(&seen.view).await?;
        Some(*seen.group.get_or_init(|| group))
    }

    /// The group of a node, where both an error and "not ours" mean that the node is passed over.
    pub(super) async fn known_group_of(&mut self, node: &NodeRef) -> Option<Slot> {
        self.group_of(node).await.ok().flatten()
    }

    pub(super) async fn target_size(&mut self, group: Slot) -> Result<i32, CaError> {
        if self.quiet && self.sizes.is_none() {
            let groups = Arc::clone(&self.list.1);
            let sizes = self.provider.target_sizes(&self.list.0).await;
            self.sizes = Some(groups.iter().map(|group| group.slot).zip(sizes.into_iter().flatten()).collect());
        }
        if let Some(size) = self.sizes.as_ref().and_then(|sizes| sizes.get(group)) {
            return Ok(*size);
        }
        let id = self.name(group);
        let result = self.provider.target_size(&id).await;
        self.log(|| Call::TargetSize(id.to_string()), result)
    }

    pub(super) async fn increase_size(&mut self, group: Slot, delta: i32) -> Result<(), CaError> {
        let id = self.name(group);
        self.sizes = None;
        let result = self.provider.increase_size(&id, delta).await;
        self.log(|| Call::IncreaseSize(id.to_string(), delta), result)
    }

    pub(super) async fn decrease_target_size(&mut self, group: Slot, delta: i32) -> Result<(), CaError> {
        let id = self.name(group);
        self.sizes = None;
        let result = self.provider.decrease_target_size(&id, delta).await;
        self.log(|| Call::DecreaseTargetSize(id.to_string(), delta), result)
    }

    pub(super) async fn delete_nodes(&mut self, group: Slot, nodes: &[NodeRef]) -> Result<(), CaError> {
        let id = self.name(group);
        self.sizes = None;
        let result = self.provider.delete_nodes(&id, nodes).await;
        let ids = || nodes.iter().map(|node| node.provider_id.clone()).collect();
        self.log(|| Call::DeleteNodes(id.to_string(), ids()), result)
    }

    pub(super) async fn nodes(&mut self, group: Slot) -> Result<Arc<[InstanceInfo]>, CaError> {
        let id = self.name(group);
        let result = self.provider.shared_nodes(&id).await;
        self.log(|| Call::Nodes(id.to_string()), result)
    }

    pub(super) async fn template(&mut self, group: Slot) -> Result<Arc<Template>, CaError> {
        if let Some(template) = self.templates.get(group) {
            return Ok(Arc::clone(template));
        }
        let id = self.name(group);
        let result = self.provider.shared_template(&id).await;
        let template = self.log(|| Call::TemplateNodeInfo(id.to_string()), result)?;
        self.templates.insert(group, Arc::clone(&template));
        Ok(template)
    }

    /// The group's own options: `None` where it has none, by an empty answer or by a server without the method.
    pub(super) async fn own_options(&mut self, group: Slot, defaults: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        let id = self.name(group);
        let result = self.provider.get_options(&id, defaults).await;
        match self.log(|| Call::GetOptions(id.to_string()), result) {
            Err(error) if error.is_unimplemented() => Ok(None),
            other => other,
        }
    }

    /// The options that hold for the group.
    pub(super) async fn options(&mut self, group: Slot, defaults: &GroupOptions) -> Result<GroupOptions, CaError> {
        Ok(self.own_options(group, defaults).await?.unwrap_or(*defaults))
    }

    /// The GPU label; empty where there is none or it could not be had.
    pub(super) async fn gpu_label(&mut self) -> Arc<str> {
        if let Some(label) = &self.gpu_label {
            return Arc::clone(label);
        }
        let result = self.provider.gpu_label().await;
        match self.log(|| Call::GpuLabel, result) {
            Ok(label) => {
                let label: Arc<str> = label.into();
                self.gpu_label = Some(Arc::clone(&label));
                label
            }
            Err(_) => Arc::default(),
        }
    }

    pub(super) async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        let result = self.provider.best_options(options, templates).await;
        self.log(|| Call::BestOptions(options.iter().map(|o| o.group.clone()).collect()), result)
    }
}
