//! The client's side of the door: what it remembers between calls, and the transcript.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ca_client::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};
use super::cluster::NodeView;
use super::report::{Call, CallRecord};

/// A door with the memory of the autoscaler's client.
///
/// # Guarantees
/// * Groups are remembered until the next refresh, an empty list too; a failed list is an empty one and is not remembered.
/// * A node's group is remembered until the next refresh; "not ours" and failures are not.
/// * A template lives as long as the listed group object, that is until the next refresh.
/// * The GPU label is remembered for the life of the process once it was answered.
#[derive(Debug)]
pub(super) struct Client<D> {
    pub(super) door: D,
    groups: Option<Arc<[GroupInfo]>>,
    /// By the node's name: its machine, and its group.
    group_of: BTreeMap<String, (String, Arc<str>)>,
    templates: BTreeMap<String, Arc<Template>>,
    gpu_label: Option<Arc<str>>,
    /// Whether no transcript is kept.
    pub(super) quiet: bool,
    pub(super) calls: Vec<CallRecord>,
}

impl<D: CaClient> Client<D> {
    pub(super) const fn new(door: D) -> Self {
        Self {
            door,
            groups: None,
            group_of: BTreeMap::new(),
            templates: BTreeMap::new(),
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
    }

    fn log<T>(&mut self, call: impl FnOnce() -> Call, result: Result<T, CaError>) -> Result<T, CaError> {
        if !self.quiet {
            self.calls.push(CallRecord { call: call(), error: result.as_ref().err().cloned() });
        }
        result
    }

    pub(super) async fn refresh(&mut self) -> Result<(), CaError> {
        self.forget_groups();
        let result = self.door.refresh().await;
        self.log(|| Call::Refresh, result)
    }

    pub(super) async fn node_groups(&mut self) -> Arc<[GroupInfo]> {
        if let Some(groups) = &self.groups {
            return Arc::clone(groups);
        }
        let result = self.door.node_groups().await;
        match self.log(|| Call::NodeGroups, result) {
            Ok(groups) => {
                let groups: Arc<[GroupInfo]> = groups.into();
                self.groups = Some(Arc::clone(&groups));
                groups
            }
            Err(_) => Arc::default(),
        }
    }

    /// The listed group of that id.
    pub(super) async fn group(&mut self, id: &str) -> Option<GroupInfo> {
        self.node_groups().await.iter().find(|g| g.id == id).cloned()
    }

    pub(super) async fn group_of(&mut self, node: &NodeRef) -> Result<Option<Arc<str>>, CaError> {
        if let Some(group) = self.remembered_group_of(&node.name, &node.provider_id) {
            return Ok(Some(group));
        }
        let result = self.door.node_group_for_node(node).await;
        let group = self.log(|| Call::NodeGroupForNode(node.name.clone()), result)?.filter(|id| !id.is_empty());
        Ok(group.map(|id| {
            let id: Arc<str> = id.into();
            self.group_of.insert(node.name.clone(), (node.provider_id.clone(), Arc::clone(&id)));
            id
        }))
    }

    /// The group of a node, where it is remembered.
    pub(super) fn remembered_group_of(&self, name: &str, provider_id: &str) -> Option<Arc<str>> {
        self.group_of.get(name).filter(|(of, _)| of == provider_id).map(|(_, group)| Arc::clone(group))
    }

    /// The group of a node of the cluster, as [`Self::known_group_of`].
    pub(super) async fn known_group_of_view(&mut self, node: &NodeView) -> Option<Arc<str>> {
        match self.remembered_group_of(&node.name, &node.provider_id) {
            Some(group) => Some(group),
            None => self.known_group_of(&node.to_ref()).await,
        }
    }

    /// The group of a node, where both an error and "not ours" mean that the node is passed over.
    pub(super) async fn known_group_of(&mut self, node: &NodeRef) -> Option<Arc<str>> {
        self.group_of(node).await.ok().flatten()
    }

    pub(super) async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        let result = self.door.target_size(group).await;
        self.log(|| Call::TargetSize(group.to_owned()), result)
    }

    pub(super) async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let result = self.door.increase_size(group, delta).await;
        self.log(|| Call::IncreaseSize(group.to_owned(), delta), result)
    }

    pub(super) async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let result = self.door.decrease_target_size(group, delta).await;
        self.log(|| Call::DecreaseTargetSize(group.to_owned(), delta), result)
    }

    pub(super) async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        let result = self.door.delete_nodes(group, nodes).await;
        let ids = || nodes.iter().map(|node| node.provider_id.clone()).collect();
        self.log(|| Call::DeleteNodes(group.to_owned(), ids()), result)
    }

    pub(super) async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        let result = self.door.nodes(group).await;
        self.log(|| Call::Nodes(group.to_owned()), result)
    }

    pub(super) async fn template(&mut self, group: &str) -> Result<Arc<Template>, CaError> {
        if let Some(template) = self.templates.get(group) {
            return Ok(Arc::clone(template));
        }
        let result = self.door.shared_template(group).await;
        let template = self.log(|| Call::TemplateNodeInfo(group.to_owned()), result)?;
        self.templates.insert(group.to_owned(), Arc::clone(&template));
        Ok(template)
    }

    /// The group's own options: `None` where it has none, by an empty answer or by a server without the method.
    pub(super) async fn own_options(&mut self, group: &str, defaults: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        let result = self.door.get_options(group, defaults).await;
        match self.log(|| Call::GetOptions(group.to_owned()), result) {
            Err(error) if error.is_unimplemented() => Ok(None),
            other => other,
        }
    }

    /// The options that hold for the group.
    pub(super) async fn options(&mut self, group: &str, defaults: &GroupOptions) -> Result<GroupOptions, CaError> {
        Ok(self.own_options(group, defaults).await?.unwrap_or(*defaults))
    }

    /// The GPU label; empty where there is none or it could not be had.
    pub(super) async fn gpu_label(&mut self) -> Arc<str> {
        if let Some(label) = &self.gpu_label {
            return Arc::clone(label);
        }
        let result = self.door.gpu_label().await;
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
        let result = self.door.best_options(options, templates).await;
        self.log(|| Call::BestOptions(options.iter().map(|o| o.group.clone()).collect()), result)
    }
}
