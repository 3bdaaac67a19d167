//! What one loop did, and every call it made.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::ca_client::{CaError, InstanceError};
use super::cluster::ClusterError;

/// A call through the provider, with the arguments that tell it from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `Refresh`.
    Refresh,
    /// `NodeGroups`.
    NodeGroups,
    /// `NodeGroupForNode`, by the node's name.
    NodeGroupForNode(String),
    /// `GPULabel`.
    GpuLabel,
    /// `NodeGroupTargetSize`.
    TargetSize(String),
    /// `NodeGroupIncreaseSize` by a positive number.
    IncreaseSize(String, i32),
    /// `NodeGroupDecreaseTargetSize` by a negative number.
    DecreaseTargetSize(String, i32),
    /// `NodeGroupDeleteNodes`, by provider id.
    DeleteNodes(String, Vec<String>),
    /// `NodeGroupNodes`.
    Nodes(String),
    /// `NodeGroupTemplateNodeInfo`.
    TemplateNodeInfo(String),
    /// `NodeGroupGetOptions`.
    GetOptions(String),
    /// `BestOptions`, by the groups offered.
    BestOptions(Vec<String>),
}

impl Call {
    /// The method's name.
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Refresh => "Refresh",
            Self::NodeGroups => "NodeGroups",
            Self::NodeGroupForNode(_) => "NodeGroupForNode",
            Self::GpuLabel => "GPULabel",
            Self::TargetSize(_) => "NodeGroupTargetSize",
            Self::IncreaseSize(..) => "NodeGroupIncreaseSize",
            Self::DecreaseTargetSize(..) => "NodeGroupDecreaseTargetSize",
            Self::DeleteNodes(..) => "NodeGroupDeleteNodes",
            Self::Nodes(_) => "NodeGroupNodes",
            Self::TemplateNodeInfo(_) => "NodeGroupTemplateNodeInfo",
            Self::GetOptions(_) => "NodeGroupGetOptions",
            Self::BestOptions(_) => "BestOptions",
        }
    }

    /// Whether it may change the target size or the instances of a group.
    pub const fn mutates(&self) -> bool {
        matches!(self, Self::IncreaseSize(..) | Self::DecreaseTargetSize(..) | Self::DeleteNodes(..))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method();
        match self {
            Self::Refresh | Self::NodeGroups | Self::GpuLabel => f.write_str(method),
            Self::NodeGroupForNode(what)
            | Self::TargetSize(what)
            | Self::Nodes(what)
            | Self::TemplateNodeInfo(what)
            | Self::GetOptions(what) => write!(f, "{method} {what}"),
            Self::IncreaseSize(group, delta) | Self::DecreaseTargetSize(group, delta) => {
                write!(f, "{method} {group} {delta:+}")
            }
            Self::DeleteNodes(group, nodes) => write!(f, "{method} {group} {}", nodes.join(",")),
            Self::BestOptions(groups) => write!(f, "{method} {}", groups.join(",")),
        }
    }
}

/// A call and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// What was asked.
    pub call: Call,
    /// Why it failed; `None` where it did not.
    pub error: Option<CaError>,
}

/// How a loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Done,
    /// Too many nodes are not Ready; nothing is scaled.
    Unhealthy,
    /// The target size of a group was corrected; the rest waits for the next loop.
    SizeFixed,
    /// Instances that could not be created were deleted; on old releases the rest waits for the next loop.
    CleanedUp,
    /// It failed.
    Failed(LoopError),
}

/// Why a loop ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoopError {
    /// `Refresh` failed.
    #[error("failed to refresh")]
    Refresh(#[source] CaError),
    /// The template of a group failed, on a release where that ends the loop.
    #[error("no template for {group}")]
    Template {
        /// The group.
        group: String,
        /// Why.
        source: CaError,
    },
    /// The target size of a group could not be read.
    #[error("no target size of {group}")]
    TargetSize {
        /// The group.
        group: String,
        /// Why.
        source: CaError,
    },
    /// The instances of a group could not be read.
    #[error("no instances of {group}")]
    Nodes {
        /// The group.
        group: String,
        /// Why.
        source: CaError,
    },
    /// The target size of a group could not be corrected.
    #[error("failed to fix the size of {group}")]
    SizeFix {
        /// The group.
        group: String,
        /// Why.
        source: CaError,
    },
    /// `NodeGroupForNode` named a group that `NodeGroups` did not list. The real one dies here.
    #[error("{group} owns an instance and is not listed")]
    UnlistedGroup {
        /// The group.
        group: String,
    },
    /// Nodes could not be marked for deletion.
    #[error("failed to mark {node} for deletion")]
    Taint {
        /// The node.
        node: String,
        /// Why.
        source: ClusterError,
    },
}

/// Why a group is not considered for a scale-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// Too much of it is missing.
    Unhealthy,
    /// It is left alone until then.
    Backoff(Timestamp),
    /// Its target size could not be read.
    TargetSize,
    /// It is full: target = max.
    AtMax,
    /// It has no template.
    NoTemplate,
    /// A limit of the whole cluster is reached.
    Limit,
    /// No waiting pod fits its template.
    NoPodFits,
}

/// An option as it was weighed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionSeen {
    /// The group.
    pub group: String,
    /// Nodes.
    pub node_count: i32,
    /// Pods that they would help.
    pub pods: Vec<String>,
}

/// How the look at the waiting pods ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScaleUp {
    /// The loop did not get there.
    #[default]
    NotTried,
    /// No pod waits, or all fit what is there or coming.
    NotNeeded,
    /// The pods are too young; so long the scale-down waits too.
    Held {
        /// Until when.
        until: Timestamp,
    },
    /// As many nodes are Ready as the cluster may have.
    MaxNodesTotal,
    /// No group can help.
    NoOptions,
    /// The expander left none of the options.
    FilteredOut,
    /// The resources of the cluster could not be counted; in words.
    Uncountable(String),
    /// A group was asked for more. The options and the choice are in the report.
    Asked,
    /// A group was asked for more and refused.
    Failed,
}

/// Something the loop, or the goroutines beside it, did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Asked a group for more nodes.
    ScaledUp {
        /// The group.
        group: String,
        /// By how many.
        delta: i32,
        /// Whether to reach the group's minimum rather than for pods.
        for_min_size: bool,
    },
    /// A group refused to grow.
    ScaleUpFailed {
        /// The group.
        group: String,
        /// By how many.
        delta: i32,
        /// Why.
        error: CaError,
    },
    /// Instances of a group could not be created.
    CreationFailed {
        /// The group.
        group: String,
        /// How many were new.
        instances: i32,
        /// Why.
        error: InstanceError,
    },
    /// A group is left alone.
    BackedOff {
        /// The group.
        group: String,
        /// Until when.
        until: Timestamp,
    },
    /// A request ran out of time.
    RequestTimedOut {
        /// The group.
        group: String,
        /// By how many the group was to grow.
        increase: i32,
    },
    /// Instances that did not register in time were deleted.
    UnregisteredDeleted {
        /// The group.
        group: String,
        /// Their ids.
        instances: Vec<String>,
        /// Why it failed; `None` where it did not.
        error: Option<CaError>,
    },
    /// Instances that could not be created were deleted.
    FailedDeleted {
        /// The group.
        group: String,
        /// Their ids.
        instances: Vec<String>,
        /// Why it failed; `None` where it did not.
        error: Option<CaError>,
    },
    /// The target size of a group was lowered to what is there.
    SizeFixed {
        /// The group.
        group: String,
        /// By how many; negative.
        delta: i32,
    },
    /// A node was marked for deletion.
    DeletionStarted {
        /// The node.
        node: String,
        /// Its group.
        group: String,
        /// Whether pods have to move.
        drain: bool,
    },
    /// A pod was evicted.
    Evicted {
        /// The pod.
        pod: String,
        /// From where.
        node: String,
    },
    /// The provider took a node's deletion.
    Deleted {
        /// The node.
        node: String,
        /// Its group.
        group: String,
    },
    /// A node's deletion was given up; it is open again.
    DeletionFailed {
        /// The node.
        node: String,
        /// Its group.
        group: String,
        /// Why.
        reason: String,
    },
    /// A mark for deletion from before the start was taken away.
    Untainted {
        /// The node.
        node: String,
    },
}

/// What one loop did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct LoopReport {
    /// When.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// How the look at the waiting pods ended.
    pub scale_up: ScaleUp,
    /// Waiting pods that neither fit what is there nor what is coming.
    pub waiting_pods: usize,
    /// The options weighed.
    pub options: Vec<OptionSeen>,
    /// The groups left out, and why.
    pub skipped: BTreeMap<String, Skip>,
    /// What was done, in order.
    pub actions: Vec<Action>,
    /// Every call, in order; those of the goroutines beside the loop come first.
    pub calls: Vec<CallRecord>,
}

impl LoopReport {
    pub(super) fn new(at: Timestamp) -> Self {
        Self {
            at,
            outcome: Outcome::Done,
            scale_up: ScaleUp::NotTried,
            waiting_pods: 0,
            options: Vec::new(),
            skipped: BTreeMap::new(),
            actions: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// The nodes asked for, by group; of several requests of one group, the sum.
    pub fn asked(&self) -> BTreeMap<&str, i32> {
        let mut asked = BTreeMap::new();
        for action in &self.actions {
            if let Action::ScaledUp { group, delta, .. } = action {
                *asked.entry(group.as_str()).or_default() += delta;
            }
        }
        asked
    }

    /// The nodes whose deletion the provider took.
    pub fn deleted(&self) -> Vec<&str> {
        self.actions
            .iter()
            .filter_map(|action| match action {
                Action::Deleted { node, .. } => Some(node.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The calls as text, one each.
    pub fn transcript(&self) -> Vec<String> {
        self.calls.iter().map(|record| record.call.to_string()).collect()
    }

    /// The calls that may change something.
    pub fn mutations(&self) -> Vec<&Call> {
        self.calls.iter().map(|record| &record.call).filter(|call| call.mutates()).collect()
    }
}
