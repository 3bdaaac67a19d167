//! The provider: what the autoscaler asks of a node supplier, as plain data.
//!
//! One method per RPC that the model uses. What a client would cache is cached above this trait, in the model itself, so an
//! implementation passes every call on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use jiff::SignedDuration;
pub use stoker_core::catalogue::template::NodeTemplate as Template;

use super::cluster::PodView;

/// Labels or annotations; shared, because every loop looks at those of every node.
pub type Labels = Arc<BTreeMap<String, String>>;

/// The annotation on a node that does not exist: why the autoscaler made it up.
pub const FAKE_NODE_REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";
/// The value of [`FAKE_NODE_REASON`] on an instance that has not registered.
pub const FAKE_UNREGISTERED: &str = "unregistered";
/// The value of [`FAKE_NODE_REASON`] on an instance that could not be created.
pub const FAKE_CREATE_ERROR: &str = "create-error";

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct CaError {
    /// The gRPC status number, e.g. 14 for unavailable.
    pub code: i32,
    /// In words.
    pub message: String,
}

impl CaError {
    /// The gRPC status number of a method that the server does not have.
    pub const UNIMPLEMENTED: i32 = 12;

    /// An error with that gRPC status number.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Whether the server does not have the method: the one code with a meaning of its own.
    pub const fn is_unimplemented(&self) -> bool {
        self.code == Self::UNIMPLEMENTED
    }
}

/// A node group as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its id.
    pub id: String,
    /// The size that scale-down stops at.
    pub min: i32,
    /// The size that scale-up stops at.
    pub max: i32,
}

/// What crosses the wire of a Node: no taints, capacity, conditions or age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRef {
    /// The Node's name.
    pub name: String,
    /// Its machine.
    pub provider_id: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

impl NodeRef {
    /// The node that the autoscaler makes up for an instance without one: named by the instance's id alone.
    pub fn fake(instance: &str, reason: &str) -> Self {
        Self {
            name: instance.to_owned(),
            provider_id: instance.to_owned(),
            labels: Arc::default(),
            annotations: Arc::new(BTreeMap::from([(FAKE_NODE_REASON.to_owned(), reason.to_owned())])),
        }
    }
}

/// Where an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceState {
    /// Not said. An error beside it is lost.
    Unspecified,
    /// It runs.
    Running,
    /// It is being made; the only state in which an error counts.
    Creating,
    /// It is on its way out and not expected to register.
    Deleting,
}

/// Why an instance could not be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceError {
    /// A short code; an error without one does not count.
    pub code: String,
    /// In words.
    pub message: String,
    /// 1 out of resources, 99 other; the autoscaler's timing does not depend on it.
    pub class: i32,
}

/// An instance of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceInfo {
    /// Its id; equals the Node's provider id once it has registered.
    pub id: String,
    /// Where it stands.
    pub state: InstanceState,
    /// Why it could not be made.
    pub error: Option<InstanceError>,
}

impl InstanceInfo {
    /// The error that counts as a failed creation: only while creating, and only with a code.
    pub fn creation_error(&self) -> Option<&InstanceError> {
        self.error.as_ref().filter(|e| self.state == InstanceState::Creating && !e.code.is_empty())
    }

    /// Whether a Node should appear for it.
    pub fn expected_to_register(&self) -> bool {
        self.state != InstanceState::Deleting
            && !self.error.as_ref().is_some_and(|e| self.state != InstanceState::Unspecified && !e.code.is_empty())
    }
}

/// What a group may set for itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupOptions {
    /// A node without GPUs used at most so much (0 to 1) may go.
    pub utilization_threshold: f64,
    /// A GPU node whose GPUs are used at most so much (0 to 1) may go.
    pub gpu_utilization_threshold: f64,
    /// Whether daemon pods are left out of the use of a node.
    pub ignore_daemon_sets: bool,
    /// How long a Ready node must be unneeded.
    pub unneeded: SignedDuration,
    /// How long a node must be not Ready.
    pub unready: SignedDuration,
    /// How long an instance may take to register.
    pub max_node_provision: SignedDuration,
}

/// One way to grow, as the expander is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpanderOption {
    /// The group.
    pub group: String,
    /// Nodes that would be added.
    pub node_count: i32,
    /// Pods that they would help.
    pub pods: Vec<Arc<PodView>>,
}

impl fmt::Display for ExpanderOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} +{} for {} pods", self.group, self.node_count, self.pods.len())
    }
}

/// A supplier of nodes, as the autoscaler sees it.
///
/// # Errors
/// Every method answers a [`CaError`] where the call failed; what follows from that is the model's business.
pub trait CaClient: Send {
    /// `Refresh`.
    fn refresh(&mut self) -> impl Future<Output = Result<(), CaError>> + Send;
    /// `NodeGroups`.
    fn node_groups(&mut self) -> impl Future<Output = Result<Vec<GroupInfo>, CaError>> + Send;
    /// The same, of a supplier that keeps its list: the same one as long as nothing in it changes.
    fn shared_groups(&mut self) -> impl Future<Output = Result<Arc<[GroupInfo]>, CaError>> + Send {
        async move { self.node_groups().await.map(Into::into) }
    }
    /// The ids of machines that may be of another group than before the last `Refresh`, of a supplier that keeps track: all other
    /// nodes that were of a group still are.
    fn regrouped(&mut self) -> impl Future<Output = Option<BTreeSet<String>>> + Send {
        async { None }
    }
    /// `NodeGroupForNode`; `None` where the node is not the supplier's.
    fn node_group_for_node(&mut self, node: &NodeRef) -> impl Future<Output = Result<Option<String>, CaError>> + Send;
    /// `NodeGroupTargetSize`.
    fn target_size(&mut self, group: &str) -> impl Future<Output = Result<i32, CaError>> + Send;
    /// `NodeGroupTargetSize` of each listed group, of a supplier that can tell them at once and whose sizes change by calls alone.
    fn target_sizes(&mut self, _groups: &[GroupInfo]) -> impl Future<Output = Option<Vec<i32>>> + Send {
        async { None }
    }
    /// `NodeGroupIncreaseSize`; `delta` is positive.
    fn increase_size(&mut self, group: &str, delta: i32) -> impl Future<Output = Result<(), CaError>> + Send;
    /// `NodeGroupDecreaseTargetSize`; `delta` is negative.
    fn decrease_target_size(&mut self, group: &str, delta: i32) -> impl Future<Output = Result<(), CaError>> + Send;
    /// `NodeGroupDeleteNodes`.
    fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> impl Future<Output = Result<(), CaError>> + Send;
    /// `NodeGroupNodes`.
    fn nodes(&mut self, group: &str) -> impl Future<Output = Result<Vec<InstanceInfo>, CaError>> + Send;
    /// The same, of a supplier that keeps its lists: the same one as long as nothing in it changes.
    fn shared_nodes(&mut self, group: &str) -> impl Future<Output = Result<Arc<[InstanceInfo]>, CaError>> + Send {
        async move { self.nodes(group).await.map(Into::into) }
    }
    /// `NodeGroupTemplateNodeInfo`.
    fn template(&mut self, group: &str) -> impl Future<Output = Result<Template, CaError>> + Send;
    /// The same, of a supplier that keeps its templates.
    fn shared_template(&mut self, group: &str) -> impl Future<Output = Result<Arc<Template>, CaError>> + Send {
        async move { self.template(group).await.map(Arc::new) }
    }
    /// `NodeGroupGetOptions`; `None` is the empty answer: the flags hold.
    fn get_options(
        &mut self,
        group: &str,
        defaults: &GroupOptions,
    ) -> impl Future<Output = Result<Option<GroupOptions>, CaError>> + Send;
    /// `GPULabel`.
    fn gpu_label(&mut self) -> impl Future<Output = Result<String, CaError>> + Send;
    /// `BestOptions` of the expander: the groups of the reply, in its order. The templates are those of all groups.
    fn best_options(
        &mut self,
        options: &[ExpanderOption],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> impl Future<Output = Result<Vec<String>, CaError>> + Send;
}
