//! Reclaims that only probes announce, and how many of them a pool acts on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::RecordId;
use crate::policy::rules::health::at_once;

/// Over how long the drains of a pool are counted that rest on probes alone, and how long none is begun after one was refused.
pub const COUNTED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// So many drains may rest on probes alone in a pool of any size: a small pool on one spot market loses them together.
const ALWAYS: u32 = 3;

/// How often probes alone may close a spot market: a pod that fakes the notice on each node that follows would keep it closed.
pub const CLOSES_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Most drains that may rest on probes alone within [`COUNTED_FOR`], in a pool of so many nodes: a fifth, and at least three.
pub fn most(nodes: u32) -> usize {
    usize::try_from(at_once(nodes).max(ALWAYS)).unwrap_or(usize::MAX)
}

/// What a pool did about reclaims that only probes announce.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReclaims {
    /// The drains that were begun within [`COUNTED_FOR`], and when.
    pub begun: BTreeMap<RecordId, Timestamp>,
    /// The nodes that were not drained and still announce it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused: BTreeSet<RecordId>,
    /// When a spot node was last refused because there were too many; `None` after [`COUNTED_FOR`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
}

impl ProbeReclaims {
    /// Whether nothing of it matters any more.
    pub fn is_over(&self) -> bool {
        self.begun.is_empty() && self.refused.is_empty() && self.stopped_at.is_none()
    }
}
