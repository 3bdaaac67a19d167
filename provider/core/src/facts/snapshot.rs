//! Snapshot: the facts of one pass, complete as of a moment. Only the feeds make one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{LaunchKey, NodeGroupId, NodeName, ProviderId, SupplierName};
use crate::base::units::MiB;
use crate::facts::foreign::Foreign;
use crate::facts::images::NodeImages;
use crate::facts::node_status::ShownStatus;
use crate::facts::reading::seen::Seen;
use crate::facts::supply::{LaunchOutcome, Observation};
use crate::policy::rules::demand::Demand;

/// The facts of one pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What calendars, prices and the terms of commitments are read by; all else waits and ages by decision time.
    pub wall: Wall,
    /// What each supplier has; `None` before its first answer.
    pub suppliers: BTreeMap<SupplierName, Option<Arc<Observation>>>,
    /// The cluster's nodes and GPU pods; `None` without a Kubernetes feed.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// How launches ended since the last pass.
    pub outcomes: BTreeMap<LaunchKey, LaunchOutcome>,
    /// Launches asked and not answered.
    pub launching: BTreeSet<LaunchKey>,
    /// Terminations asked and not answered.
    pub terminating: BTreeSet<ProviderId>,
    /// What came of draining nodes since the last pass.
    pub drains: BTreeMap<NodeName, Drained>,
    /// What has been seen of each node's GPUs; a node that nobody reads is absent.
    pub seen: BTreeMap<NodeName, Arc<Seen>>,
    /// Whether the cluster serves `CapacityBuffers` that we may keep, as it was when a pool last asked for one; `None` until that is known.
    pub buffers: Option<bool>,
    /// What is known of each node's images; empty unless a pool asks for images on warm nodes.
    pub images: BTreeMap<NodeName, Arc<NodeImages>>,
    /// What each pool's demand signals say.
    pub demand: Demand,
    /// GPU nodes of the cluster that are not Stoker's; `None` where the policy does not count them, or nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Arc<Foreign>>,
}

/// What one try at draining a node came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// The machine behind the node.
    pub machine: ProviderId,
    /// When its pods were listed: after the node was closed to new ones.
    pub at: Timestamp,
    /// Pods that were told to go, by this try.
    pub evicted: u32,
    /// Pods still on it, those on their way out among them. `DaemonSet` and mirror pods do not count.
    pub left: u32,
    /// Why it could not be emptied further, in words; `None` where all that is left is on its way out.
    pub stuck: Option<Stuck>,
}

/// Why a node could not be emptied further.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stuck {
    /// A pod may not be moved at all, and so nothing was told to go.
    Never(String),
    /// A disruption budget, or the API server, says not now.
    NotNow(String),
}

/// What the Kubernetes feed knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// Nodes that carry our cluster's label, by name.
    pub nodes: BTreeMap<NodeName, Arc<NodeFacts>>,
}

/// What is known of one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its name.
    pub name: NodeName,
    /// Its machine; `None` where the Node does not say.
    pub provider_id: Option<ProviderId>,
    /// The group its label names.
    pub group: Option<NodeGroupId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when its Ready condition is true; `None` while it is not.
    pub ready_since: Option<Timestamp>,
    /// GPU pods bound to it that have not ended and are not being deleted, as `namespace/name`.
    pub gpu_pods: BTreeSet<String>,
    /// The annotation that keeps the autoscaler from removing it.
    pub scale_down_disabled: Hold,
    /// Whether it takes new pods.
    pub cordon: Cordon,
    /// What it leaves to pods; `None` where its kubelet has not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<Allocatable>,
    /// What it shows of the verdict; `None` where that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Arc<ShownStatus>>,
}

/// What a node leaves to pods, as its kubelet says. Its GPUs come and go with their device plugin, and are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocatable {
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory.
    pub memory: MiB,
    /// Disk.
    pub ephemeral: MiB,
    /// Pods.
    pub pods: u32,
}

impl NodeFacts {
    /// The same, with nothing later than `now`: the API server's clock may be ahead. A stamp that is, is kept as it was known first.
    #[must_use]
    pub fn happened_by(mut self, now: Timestamp, known: Option<&Self>) -> Self {
        let clamp = |at: Timestamp, known: Option<Timestamp>| if at > now { known.unwrap_or(now) } else { at };
        self.created_at = clamp(self.created_at, known.map(|known| known.created_at));
        self.ready_since = self.ready_since.map(|at| clamp(at, known.and_then(|known| known.ready_since)));
        let told_at = |facts: &Self| facts.shown.as_ref()?.condition.as_ref()?.told_at;
        if told_at(&self).is_some_and(|at| at > now)
            && let Some(condition) = self.shown.as_mut().and_then(|shown| Arc::make_mut(shown).condition.as_mut())
        {
            condition.told_at = known.and_then(told_at).or(Some(now));
        }
        self
    }

    /// Whether a GPU pod holds it.
    pub fn is_busy(&self) -> bool {
        !self.gpu_pods.is_empty()
    }
}

/// Who set `scale-down-disabled` on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Nobody.
    None,
    /// We did.
    Ours,
    /// Somebody else did; we never touch it.
    Theirs,
    /// Nobody: somebody else wrote down that it may go. We never touch that either, and `minSize` alone keeps what runs there.
    Refused,
}

/// Who closed a node to new pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cordon {
    /// Nobody.
    #[default]
    None,
    /// We did.
    Ours,
    /// Somebody else did; we never touch it.
    Theirs,
    /// Nobody any more: somebody opened it after us, and our mark is left. Whoever closes it next would seem to be us.
    MarkLeft,
}

impl Cordon {
    /// Whether the node takes no new pods.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Ours | Self::Theirs)
    }
}
