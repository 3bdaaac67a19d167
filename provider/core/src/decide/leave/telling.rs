//! Which pods of a node that goes are told so, and when.
//!
//! A scheduler that had chosen a node may bind its pod until a moment after the node was closed. Where the machine need not go, no pod is
//! told that was not there when that was decided: a held node is closed first, and looked at again before its pods are told; of one that
//! was free, no GPU pod ever is.

use jiff::Timestamp;

use super::super::Draft;
use super::super::seats::Seat;
use super::{held, unhealthy};
use crate::leaving::{CLOSED_FOR, LeaveFor, Leaving, Stage, TRY_AGAIN_AFTER};
use crate::plan::Evict;
use crate::record::Record;
use crate::snapshot::NodeFacts;

/// Whether a pod is on a node that was not there when it was decided that the node goes.
pub(super) fn has_come(node: &NodeFacts, leaving: &Leaving) -> bool {
    !node.gpu_pods.is_subset(&leaving.pods)
}

/// Which pods of a node are told to go now.
pub(super) fn whom(draft: &Draft<'_>, record: &Record, seat: &Seat<'_>, node: &NodeFacts, leaving: &Leaving) -> Evict {
    match &leaving.why {
        LeaveFor::CapacityEnds { .. } | LeaveFor::Reclaimed { .. } => Evict::All,
        LeaveFor::Held { .. } => {
            let due = node.cordon.is_closed() && settled_at(leaving).is_some_and(|at| at <= draft.now);
            // Nor is one told that came after the others were: it names its node, or heeds no cordon.
            let due = due && !has_come(node, leaving);
            // What works again is not what was announced to go, and of what nobody can tell it may be so.
            if due && held::is_proven(seat) { Evict::Movable } else { Evict::Nobody }
        }
        LeaveFor::BackToSpot { work: true, .. } if !leaving.pods.is_empty() => Evict::Movable,
        LeaveFor::BackToSpot { .. } => Evict::WithoutGpu,
        LeaveFor::Unhealthy { .. } => unhealthy::evict(draft, record),
    }
}

/// When its pods are counted and told again; `None` where they never were.
pub(super) fn again_at(leaving: &Leaving) -> Option<Timestamp> {
    let Stage::Emptying { counted_at, .. } = leaving.stage else { return None };
    let again = Draft::after(counted_at, TRY_AGAIN_AFTER);
    let settled = settled_at(leaving).filter(|at| matches!(leaving.why, LeaveFor::Held { .. }) && *at > counted_at);
    Some(settled.map_or(again, |at| at.min(again)))
}

/// When it has been closed for so long that no pod comes any more; `None` while it is not closed.
fn settled_at(leaving: &Leaving) -> Option<Timestamp> {
    let Stage::Emptying { closed_at, .. } = leaving.stage else { return None };
    Some(Draft::after(closed_at, CLOSED_FOR))
}
