//! Evictions: which pods of a node are evicted, and when.
//!
//! A scheduler that chose a node may bind its pod until a moment after the cordon. Where the
//! machine need not go, no pod is evicted that arrived after the decision. A held node is cordoned
//! first, and looked at again before its pods are evicted. A node that was free never has a GPU pod
//! evicted.

use jiff::Timestamp;

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use super::{held, unhealthy};
use crate::facts::snapshot::NodeFacts;
use crate::plan::Evict;
use crate::state::disruption::{CLOSED_FOR, Disruption, DrainReason, Stage, TRY_AGAIN_AFTER};
use crate::state::record::Record;

/// Whether a pod is on a node that was not there when it was decided that the node goes.
pub(super) fn has_come(node: &NodeFacts, disruption: &Disruption) -> bool {
    !node.gpu_pods.is_subset(&disruption.pods)
}

/// Which pods of a node are told to go now.
pub(super) fn whom(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    record: &Record,
    entry: &IndexEntry<'_>,
    node: &NodeFacts,
    disruption: &Disruption,
) -> Evict {
    match &disruption.why {
        DrainReason::CapacityEnds { .. } | DrainReason::Reclaimed { .. } => Evict::All,
        DrainReason::Held { .. } => {
            let due = node.cordon.is_closed() && settled_at(disruption).is_some_and(|at| at <= pass.now);
            // Nor is one told that came after the others were: it names its node, or heeds no cordon.
            let due = due && !has_come(node, disruption);
            // What works again is not what was announced to go, and of what nobody can tell it may be so.
            if due && held::is_proven(entry) { Evict::Movable } else { Evict::Nobody }
        }
        DrainReason::BackToSpot { work: true, .. } | DrainReason::Outdated { .. } if !disruption.pods.is_empty() => {
            Evict::Movable
        }
        DrainReason::BackToSpot { .. } | DrainReason::Outdated { .. } => Evict::WithoutGpu,
        DrainReason::Unhealthy { .. } => unhealthy::evict(pass, changes, record),
    }
}

/// When its pods are counted and told again; `None` where they never were.
pub(super) fn again_at(disruption: &Disruption) -> Option<Timestamp> {
    let Stage::Emptying { counted_at, .. } = disruption.stage else { return None };
    let again = after(counted_at, TRY_AGAIN_AFTER);
    let settled = settled_at(disruption).filter(|at| matches!(disruption.why, DrainReason::Held { .. }) && *at > counted_at);
    Some(settled.map_or(again, |at| at.min(again)))
}

/// When it has been closed for so long that no pod comes any more; `None` while it is not closed.
fn settled_at(disruption: &Disruption) -> Option<Timestamp> {
    let Stage::Emptying { closed_at, .. } = disruption.stage else { return None };
    Some(after(closed_at, CLOSED_FOR))
}
