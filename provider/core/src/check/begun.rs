//! The promises about beginning to let a node go: somebody says that the cloud takes it, not too many go on the word of probes alone,
//! not too many are replaced, and outdated ones one at a time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::disruption::pool_of;
use super::{Found, Violation};
use crate::base::ids::{PoolName, ProviderId};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::reading::Interruption;
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::InstanceState;
use crate::market::offer::CapacityType;
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
    let mut by_probes: BTreeMap<&PoolName, Vec<(&Record, &ProviderId, Timestamp)>> = BTreeMap::new();
    let mut unfounded = |record: &Record, violation: Violation| {
        let drains = |action: &Action| matches!(action, Action::Drain { record: id, .. } if *id == record.id);
        match actions.iter().position(drains) {
            Some(at) => found.action(at, Some(record.id), memory, violation),
            None => found.group(&record.group, memory, violation),
        }
    };
    for (id, disruption) in memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()) {
        if is_under_way(before.disruptions.get(id).map(AsRef::as_ref), disruption) {
            continue;
        }
        let Some(record) = memory.records.get(id) else { continue };
        match &disruption.why {
            // Of a move and of a held node only pods are told that may go; the commitment says when its capacity ends.
            DrainReason::BackToSpot { .. } | DrainReason::CapacityEnds { .. } | DrainReason::Held { .. } => {}
            DrainReason::Reclaimed { .. } => {
                let Some(machine) = record.instance().filter(|machine| !is_listed_reclaimed(machine, snapshot)) else {
                    continue;
                };
                let is_spot = record.purchase().is_some_and(|bought| bought.market.capacity_type == CapacityType::Spot);
                match pool_of(record, catalogue, memory) {
                    _ if !is_announced(record, snapshot) => unfounded(record, Violation::NoReclaim(machine.clone())),
                    Some(pool) if is_spot => by_probes.entry(pool).or_default().push((record, machine, disruption.since)),
                    _ => unfounded(record, Violation::UnconfirmedReclaim(machine.clone())),
                }
            }
            DrainReason::Outdated { .. } => {
                if let Some(machine) = record.instance()
                    && !is_replaceable(record, disruption, (before, memory), snapshot, catalogue)
                {
                    unfounded(record, Violation::NotOutdated(machine.clone()));
                }
                let open =
                    |disruption: &Disruption| disruption.is_open() && matches!(disruption.why, DrainReason::Outdated { .. });
                let pool = pool_of(record, catalogue, memory);
                let of_pool = |id| memory.records.get(id).is_some_and(|record| pool_of(record, catalogue, memory) == pool);
                let nodes = memory.disruptions.iter().filter(|(id, disruption)| open(disruption) && of_pool(*id)).count();
                if let Some(pool) = pool.filter(|_| nodes > 1) {
                    unfounded(record, Violation::ReplacesTogether { pool: pool.clone(), nodes });
                }
            }
            DrainReason::Unhealthy { .. } => {
                if let Some(pool) = pool_of(record, catalogue, memory) {
                    replaced.entry(pool).or_default().push(disruption);
                }
            }
        }
    }
    for (pool, begun) in by_probes {
        let Some((_, _, now)) = begun.first() else { continue };
        let room = room_for_probes(pool, *now, before, snapshot, catalogue);
        for (record, machine, _) in begun.into_iter().skip(room) {
            unfounded(record, Violation::UnconfirmedReclaim(machine.clone()));
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

/// Whether a node is outdated, by its supplier, by its age or because its pool makes such nodes in another group now, and its pool
/// replaces it.
fn is_replaceable(
    record: &Record,
    begun: &Disruption,
    (before, memory): (&Memory, &Memory),
    snapshot: &Snapshot,
    catalogue: &Catalogue,
) -> bool {
    let Some(group) = catalogue.group_or_remembered(&record.group, memory) else { return false };
    let Some(pool) = catalogue.policy.pool(&group.pool) else { return false };
    let listed = snapshot.suppliers.get(&group.supplier).and_then(Option::as_ref);
    let told = record.instance().zip(listed).is_some_and(|(machine, listed)| {
        // Where its supplier cannot tell at the moment, what it said before holds.
        listed.outdated.get(machine).is_some_and(|why| why.is_some() || before.outdated.contains_key(&record.id))
    });
    let changed = || {
        let here = |other: &Group| other.pool == group.pool && other.place == group.place;
        !catalogue.groups.contains_key(&group.id) && catalogue.groups.values().any(|other| here(other))
    };
    let rules = &pool.outdated;
    let expired = rules.max_node_life.is_some_and(|life| begun.since.duration_since(record.ordered_at) >= life);
    let since = before.outdated.get(&record.id).map_or(begun.since, |known| known.since);
    let is_overdue = rules.deadline.is_some_and(|deadline| begun.since.duration_since(since) >= deadline);
    let takes_busy = is_overdue || rules.maintenance.iter().any(|slot| slot.at(snapshot.wall.0).0);
    !rules.paused && (told || expired || changed()) && (begun.pods.is_empty() || takes_busy)
}

/// How many more drains of a pool may rest on the word of probes alone: a fifth of its nodes, or three, within five minutes.
fn room_for_probes(pool: &PoolName, now: Timestamp, before: &Memory, snapshot: &Snapshot, catalogue: &Catalogue) -> usize {
    let confirmed = |record: &Record| record.instance().is_some_and(|machine| is_listed_reclaimed(machine, snapshot));
    let known = before.probe_reclaims.get(pool);
    let begun = known.into_iter().flat_map(|known| &known.begun).filter(|(id, at)| {
        let record = before.records.get(*id);
        now.duration_since(**at) < SignedDuration::from_mins(5) && !record.is_some_and(|record| confirmed(record))
    });
    let nodes = before
        .records
        .values()
        .filter(|record| matches!(record.state, State::Registered { .. }) && pool_of(record, catalogue, before) == Some(pool));
    nodes.count().div_ceil(5).max(3).saturating_sub(begun.count())
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
            | (DrainReason::Outdated { .. }, DrainReason::Outdated { .. })
    )
}

/// Whether the supplier says that the cloud takes a machine back.
pub(super) fn is_listed_reclaimed(machine: &ProviderId, snapshot: &Snapshot) -> bool {
    let mut listed = snapshot.suppliers.values().flatten().filter_map(|inventory| inventory.instances.get(machine));
    listed.any(|made| matches!(made.state, InstanceState::Reclaiming { .. }))
}

/// Whether the probe says that the cloud takes a record's machine back.
fn is_announced(record: &Record, snapshot: &Snapshot) -> bool {
    let State::Registered { node: Some(node), .. } = &record.state else { return false };
    let notice = snapshot.seen.get(node).and_then(|seen| seen.notice);
    notice.is_some_and(|notice| notice.kind == Interruption::Reclaim)
}
