//! The promises about beginning to let a node go: that its reason stands, was told in time, and that not too many go for it.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::Fatal;
use super::leaving::pool_of;
use crate::group::Menu;
use crate::health::UnhealthyAction;
use crate::ids::PoolName;
use crate::leaving::{LeaveFor, Leaving};
use crate::memory::Memory;
use crate::policy::Pool;
use crate::reading::Interruption;
use crate::record::{Record, State};
use crate::snapshot::Snapshot;
use crate::supply::InstanceState;
use crate::verdict::Verdict;

/// Judges what this pass begins to let go because it is taken back, unhealthy or held.
pub(super) fn reasons(before: &Memory, memory: &Memory, snapshot: &Snapshot, menu: &Menu, faults: &mut Vec<Fatal>) {
    let mut replaced: BTreeMap<&PoolName, Vec<&Leaving>> = BTreeMap::new();
    for (id, leaving) in memory.leaving.iter().filter(|(_, leaving)| leaving.is_open()) {
        let same = |known: &std::sync::Arc<Leaving>| known.is_open() && alike(&known.why, &leaving.why);
        if before.leaving.get(id).is_some_and(same) {
            continue;
        }
        let Some(record) = memory.records.get(id) else { continue };
        let pool = pool_of(record, menu, memory).and_then(|name| menu.policy.pool(name));
        let stands = match &leaving.why {
            LeaveFor::BackToSpot { .. } | LeaveFor::CapacityEnds { .. } => true,
            LeaveFor::Reclaimed { .. } => is_taken_back(record, snapshot),
            LeaveFor::Unhealthy { .. } => {
                if let Some(pool) = pool {
                    replaced.entry(&pool.name).or_default().push(leaving);
                }
                pool.is_some_and(|pool| is_due(record, leaving, pool))
            }
            LeaveFor::Held { announced, at } => {
                let told = before.announced.get(id).is_some_and(|told| (told.since, told.at) == (*announced, *at));
                let off = pool.and_then(|pool| pool.off_hours.as_ref());
                let grace = off.and_then(|off| off.evict_held_after);
                let waited = grace.is_some() && *at <= leaving.since;
                told && waited && verdict(record) == Some(Verdict::Held) && off.is_some_and(|off| off.at(leaving.since).0)
            }
        };
        if let (false, Some(machine)) = (stands, record.instance()) {
            faults.push(Fatal::NoReason(machine.clone()));
        }
    }
    for (name, begun) in replaced {
        let Some((pool, first)) = menu.policy.pool(name).zip(begun.first()) else { continue };
        let hour = SignedDuration::from_hours(1);
        let lately = before.replaced.get(name).map(|known| known.at.as_slice()).unwrap_or_default();
        let lately = lately.iter().filter(|at| first.since.duration_since(**at) < hour).count();
        let of_pool = |record: &&std::sync::Arc<Record>| {
            matches!(record.state, State::Registered { .. }) && pool_of(record, menu, memory) == Some(name)
        };
        let nodes: Vec<_> = memory.records.values().filter(of_pool).collect();
        let sick = |record: &&&std::sync::Arc<Record>| {
            let going = memory.leaving.get(&record.id).filter(|leaving| leaving.is_open());
            verdict(record) == Some(Verdict::Unhealthy)
                || going.is_some_and(|leaving| matches!(leaving.why, LeaveFor::Unhealthy { .. }))
        };
        let unhealthy = nodes.iter().filter(sick).count();
        let all = lately + begun.len();
        // A fifth of the nodes at once, rounded up.
        if u32::try_from(all).is_ok_and(|all| all > pool.unhealthy.max_replacements) || 5 * unhealthy > nodes.len() + 4 {
            faults.push(Fatal::ReplacesTooMany { pool: name.clone(), nodes: all, unhealthy });
        }
    }
}

const fn alike(a: &LeaveFor, b: &LeaveFor) -> bool {
    matches!(
        (a, b),
        (LeaveFor::BackToSpot { .. }, LeaveFor::BackToSpot { .. })
            | (LeaveFor::CapacityEnds { .. }, LeaveFor::CapacityEnds { .. })
            | (LeaveFor::Reclaimed { .. }, LeaveFor::Reclaimed { .. })
            | (LeaveFor::Unhealthy { .. }, LeaveFor::Unhealthy { .. })
            | (LeaveFor::Held { .. }, LeaveFor::Held { .. })
    )
}

fn verdict(record: &Record) -> Option<Verdict> {
    record.judged.as_ref().map(|judged| judged.verdict)
}

/// Whether the supplier or the probe says that the cloud takes a record's machine back.
fn is_taken_back(record: &Record, snapshot: &Snapshot) -> bool {
    let State::Registered { instance, node, .. } = &record.state else { return false };
    let listed = snapshot.suppliers.values().flatten().filter_map(|inventory| inventory.instances.get(instance));
    let by_supplier = listed.into_iter().any(|made| matches!(made.state, InstanceState::Reclaiming { .. }));
    let notice = node.as_ref().and_then(|node| snapshot.seen.get(node)?.notice);
    by_supplier || notice.is_some_and(|notice| notice.kind == Interruption::Reclaim)
}

/// Whether a node has been unhealthy for long enough, and its pool replaces such nodes.
fn is_due(record: &Record, leaving: &Leaving, pool: &Pool) -> bool {
    let long = |since| leaving.since.duration_since(since) >= pool.unhealthy.after;
    let judged = record.judged.as_ref();
    let unhealthy = judged.is_some_and(|judged| judged.verdict == Verdict::Unhealthy && long(judged.since));
    unhealthy && pool.unhealthy.action != UnhealthyAction::Cordon
}
