//! Probe history of nodes: the past that a verdict needs.
//!
//! [`Seen`](crate::facts::reading::seen::Seen) starts again with every start of the service. A
//! conclusion must not: a window that a node has waited through stays so after a restart. So the
//! moments that matter are kept in the journalled memory. A gap without readings never counts as
//! quiet, unless it was too short to matter.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::fnv::fnv1a;

/// The longest gap in what is seen of a node across which its quiet goes on: a restart of this service, or of a probe, with the wait of
/// the probe between two tries (30 s at most), its first rounds (15 s) and a minute of start-up. Only windows rest on it: whether the
/// node is quiet *now* is always proven.
pub const BRIDGED: SignedDuration = SignedDuration::from_mins(3);

/// How often it is noted that this service is watching: a longer gap between two notes is one in which it did not run.
pub const NOTED_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// How long a node without pods must have been quiet before it is free again: work that comes in steps leaves a GPU alone for seconds
/// between them.
pub const QUIET_FOR: SignedDuration = SignedDuration::from_secs(60);

/// How long after it was first Ready a node may take to pass its gates and to be heard: an operator that installs its driver takes minutes.
pub const START_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How long a fault must last that one look may be wrong about: a GPU that was not listed, a gate that fails while a driver is reloaded.
pub const FAULT_LASTS: SignedDuration = SignedDuration::from_secs(30);

/// How long nothing must have been wrong with an unhealthy node before it is trusted again.
pub const CLEAN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// How long none of a pool's probes must have been heard before its pods are the evidence: longer than a roll-out of the probe takes.
pub const LAPSED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Within how long of the last the other probes must have fallen silent for it to have one cause.
pub const LAPSED_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How long probes must have been heard again before they are believed to be back: one that crashes at once is heard for a moment.
pub const BACK_FOR: SignedDuration = SignedDuration::from_mins(1);

/// How one node was watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeHistory {
    /// Whether a reading has ever come.
    pub heard: bool,
    /// Whether it was once Ready, with its gates passed and its GPUs quiet or at work.
    pub started: bool,
    /// Since when every GPU has been proven quiet, but for gaps of at most [`BRIDGED`]; `None` while one is at work or nothing is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<Timestamp>,
    /// Since when no GPU pod is bound to it; `None` while one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_pods_since: Option<Timestamp>,
    /// The pods that hold its GPUs while those are quiet, or were when that could last be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holding: Option<Holding>,
    /// Since when it cannot be told whether its GPUs are at work; `None` while it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclear_since: Option<Timestamp>,
    /// While it cannot be told: since when its GPUs had been quiet when it was last told; `None` where one was at work, or nothing was ever told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was_quiet_since: Option<Timestamp>,
    /// Whether its pods are the evidence: its probe is silent with all others of its pool, or it is broken and drained for a reclaim.
    pub by_pods: bool,
    /// Since when no reading comes; `None` while they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Since when something is wrong with it that one look may be wrong about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_since: Option<Timestamp>,
    /// Since when nothing is wrong with it any more, while it still counts as unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_since: Option<Timestamp>,
}

/// Pods that hold quiet GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holding {
    /// Which, as a fingerprint of their names: another pod has a right to a time of its own.
    pub pods: u64,
    /// Since when just these do.
    pub since: Timestamp,
}

impl Holding {
    /// The fingerprint of pods, the same in every process.
    pub fn fingerprint<'a>(pods: impl IntoIterator<Item = &'a String>) -> u64 {
        fnv1a(pods.into_iter().flat_map(|pod| pod.bytes().chain([0])))
    }
}

impl ProbeHistory {
    /// Whether nothing tells, at this moment, what it does. Its verdict may stand for a while.
    pub const fn is_untold(&self) -> bool {
        self.unclear_since.is_some() && !self.by_pods
    }

    /// Since when nothing holds it: no pod, and no GPU at work. `None` while something does, or may.
    pub fn free_since(&self) -> Option<Timestamp> {
        self.no_pods_since.zip(self.quiet_since).map(|(pods, quiet)| pods.max(quiet))
    }

    /// Since when just its pods have held it and done nothing.
    pub fn held_since(&self) -> Option<Timestamp> {
        self.holding.zip(self.quiet_since).map(|(holding, quiet)| holding.since.max(quiet))
    }
}
