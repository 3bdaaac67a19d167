//! The promises about beginning to let a node go: somebody says that the cloud takes it, and not too many are replaced.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::disruption::pool_of;
use super::{Found, Violation};
use crate::base::ids::PoolName;
use crate::catalogue::Catalogue;
use crate::facts::reading::Interruption;
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::InstanceState;
use crate::plan::Action;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// Judges what this pass begins to let go because it is taken back or unhealthy.
pub(super) fn reasons(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    let mut replaced: BTreeMap<&PoolName, Vec<&Disruption>> = BTreeMap::new();
    for (id, disruption) in memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()) {
        if is_under_way(before.disruptions.get(id).map(AsRef::as_ref), disruption) {
            continue;
        }
        let Some(record) = memory.records.get(id) else { continue };
        match &disruption.why {
            // Of a move and of a held node only pods are told that may go; the commitment says when its capacity ends.
            DrainReason::BackToSpot { .. } | DrainReason::CapacityEnds { .. } | DrainReason::Held { .. } => {}
            DrainReason::Reclaimed { .. } => {
                let Some(machine) = record.instance().filter(|_| !is_taken_back(record, snapshot)) else { continue };
                let no_reclaim = Violation::NoReclaim(machine.clone());
                match actions.iter().position(|action| matches!(action, Action::Drain { record, .. } if record == id)) {
                    Some(at) => found.action(at, Some(*id), memory, no_reclaim),
                    None => found.group(&record.group, memory, no_reclaim),
                }
            }
            DrainReason::Unhealthy { .. } => {
                if let Some(pool) = pool_of(record, catalogue, memory) {
                    replaced.entry(pool).or_default().push(disruption);
                }
            }
        }
    }
    for (name, begun) in replaced {
        let Some((pool, first)) = catalogue.policy.pool(name).zip(begun.first()) else { continue };
        let hour = SignedDuration::from_hours(1);
        let lately = before.replaced.get(name).map(|known| known.at.as_slice()).unwrap_or_default();
        let lately = lately.iter().filter(|at| first.since.duration_since(**at) < hour).count();
        let (nodes, limit) = (lately + begun.len(), pool.unhealthy.max_replacements);
        if u32::try_from(nodes).is_ok_and(|nodes| nodes > limit) {
            found.pool(name, Violation::ReplacesTooMany { pool: name.clone(), nodes, limit });
        }
    }
}

/// Whether a node was being let go before this pass, for the same reason.
pub(super) fn is_under_way(before: Option<&Disruption>, now: &Disruption) -> bool {
    before.is_some_and(|before| before.is_open() && alike(&before.why, &now.why))
}

const fn alike(a: &DrainReason, b: &DrainReason) -> bool {
    matches!(
        (a, b),
        (DrainReason::BackToSpot { .. }, DrainReason::BackToSpot { .. })
            | (DrainReason::CapacityEnds { .. }, DrainReason::CapacityEnds { .. })
            | (DrainReason::Reclaimed { .. }, DrainReason::Reclaimed { .. })
            | (DrainReason::Unhealthy { .. }, DrainReason::Unhealthy { .. })
            | (DrainReason::Held { .. }, DrainReason::Held { .. })
    )
}

/// Whether the supplier or the probe says that the cloud takes a record's machine back.
pub(super) fn is_taken_back(record: &Record, snapshot: &Snapshot) -> bool {
    let State::Registered { instance, node, .. } = &record.state else { return false };
    let listed = snapshot.suppliers.values().flatten().filter_map(|inventory| inventory.instances.get(instance));
    let by_supplier = listed.into_iter().any(|made| matches!(made.state, InstanceState::Reclaiming { .. }));
    let notice = node.as_ref().and_then(|node| snapshot.seen.get(node)?.notice);
    by_supplier || notice.is_some_and(|notice| notice.kind == Interruption::Reclaim)
}
