//! Replacement of unhealthy nodes by the pool's rule: drained or waited for, then ended. The
//! autoscaler or a floor asks for the next.
//!
//! A bad driver or a faulty probe makes many nodes unhealthy at once, and must not cost the fleet.
//! A pool replaces a limited number within an hour, and none while more than a fifth of its nodes
//! are unhealthy. Other unhealthy nodes stay cordoned.

use std::sync::Arc;

use super::super::pass::{Changes, Pass, after};
use super::begin;
use crate::base::ids::RecordId;
use crate::facts::snapshot::Cordon;
use crate::plan::{Evict, Note};
use crate::policy::Pool;
use crate::policy::rules::health::{REPLACED_WITHIN, UnhealthyAction, at_once};
use crate::state::cordon::{CordonReason, Replacements};
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::node_verdict::{Judged, Reason, Verdict};
use crate::state::record::Record;

/// A node that is due to be replaced. The order of the fields is the order in which they are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// Without pods first: nothing is lost.
    busy: bool,
    since: jiff::Timestamp,
    id: RecordId,
}

/// What counts of a pool.
#[derive(Default)]
struct Tally {
    nodes: u32,
    unhealthy: u32,
    due: Vec<(Due, Reason)>,
}

/// Begins to replace those that are due, as far as their pools allow.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let well = !changes.memory.cordons.values().any(|cordoned| cordoned.why == CordonReason::Unhealthy);
    if well && changes.memory.replaced.is_empty() {
        return;
    }
    let pools = &pass.catalogue.policy.pools;
    let mut tallies: Vec<Tally> = pools.iter().map(|_| Tally::default()).collect();
    let mut later = Vec::new();
    for (record, entry) in changes.indexed() {
        if !entry.phase.is_registered() {
            continue;
        }
        let Some((at, pool)) = entry.pool() else { continue };
        let Some(tally) = tallies.get_mut(at) else { continue };
        tally.nodes += 1;
        let disruption = changes.memory.disruptions.get(&entry.id);
        let judged = record.judged.as_ref().filter(|_| entry.verdict == Some(Verdict::Unhealthy));
        // One that is waited for again, or of which nobody can tell, has not become well.
        let cordoned = changes.memory.cordons.get(&entry.id).filter(|cordoned| cordoned.why == CordonReason::Unhealthy);
        let broken = judged.is_some() || cordoned.is_some() || disruption.is_some_and(|disruption| is_replaced(disruption));
        tally.unhealthy += u32::from(broken);
        let (Some(Judged { since, why, .. }), Some(node), None) = (judged, entry.node(), disruption) else { continue };
        let busy = node.is_busy();
        if !cordoned.is_some_and(|cordoned| cordoned.is_closed()) || node.cordon != Cordon::Ours || mode(pool, busy).is_none() {
            continue;
        }
        // With which nothing is wrong any more is trusted again before long.
        if changes.memory.probe_history.get(&record.id).is_some_and(|known| known.clean_since.is_some()) {
            continue;
        }
        let due = after(*since, pool.unhealthy.after);
        if due > pass.now {
            later.push(due);
        } else {
            tally.due.push((Due { busy, since: *since, id: record.id }, why.clone()));
        }
    }
    for at in later {
        changes.look_again_at(at);
    }
    for (pool, tally) in pools.iter().zip(tallies) {
        replace(pass, changes, pool, tally);
    }
    let pools: Vec<_> = pools.iter().map(|pool| &pool.name).collect();
    changes
        .memory
        .replaced
        .retain(|pool, lately| pools.contains(&pool) && (!lately.at.is_empty() || lately.stopped_since.is_some()));
}

fn replace<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, pool: &Pool, tally: Tally) {
    let Tally { nodes, unhealthy, mut due } = tally;
    let known = changes.memory.replaced.get(&pool.name);
    let mut lately = known.map(|known| Replacements::clone(known)).unwrap_or_default();
    lately.at.retain(|at| after(*at, REPLACED_WITHIN) > pass.now);
    due.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut due = due.into_iter().peekable();
    if unhealthy <= at_once(nodes) {
        let most = usize::try_from(pool.unhealthy.max_replacements).unwrap_or(usize::MAX);
        while lately.at.len() < most
            && let Some((Due { id, .. }, why)) = due.next()
        {
            begin(pass, changes, id, DrainReason::Unhealthy { why });
            lately.at.push(pass.now);
        }
    }
    match due.peek() {
        None => lately.stopped_since = None,
        Some(_) if lately.stopped_since.is_none() => {
            lately.stopped_since = Some(pass.now);
            let replaced = u32::try_from(lately.at.len()).unwrap_or(u32::MAX);
            changes.notes.push(Note::ReplacementsStopped { pool: pool.name.clone(), unhealthy, nodes, replaced });
        }
        Some(_) => {}
    }
    if let Some(oldest) = lately.at.first() {
        changes.look_again_at(after(*oldest, REPLACED_WITHIN));
    }
    if known_differs(changes, pool, &lately) {
        changes.memory.replaced.insert(pool.name.clone(), Arc::new(lately));
    }
}

fn known_differs(changes: &Changes<'_>, pool: &Pool, lately: &Replacements) -> bool {
    changes.memory.replaced.get(&pool.name).map_or(*lately != Replacements::default(), |known| **known != *lately)
}

const fn is_replaced(disruption: &Disruption) -> bool {
    disruption.is_open() && matches!(disruption.why, DrainReason::Unhealthy { .. })
}

/// Which pods of an unhealthy node are told to go; `None` where it is only kept closed.
const fn mode(pool: &Pool, busy: bool) -> Option<Evict> {
    match (pool.unhealthy.action, busy) {
        (UnhealthyAction::Cordon, _) | (UnhealthyAction::Wait, true) => None,
        (UnhealthyAction::Wait, false) => Some(Evict::WithoutGpu),
        (UnhealthyAction::Drain, _) => Some(Evict::Movable),
    }
}

fn mode_of(pass: &Pass<'_>, changes: &Changes<'_>, record: &Record) -> Option<Evict> {
    let (_, pool) = changes.entry(record)?.pool()?;
    let busy = record.instance().and_then(|machine| pass.node(machine)).is_some_and(|node| node.is_busy());
    mode(pool, busy)
}

/// Which pods of one that is being replaced are told to go.
pub(super) fn evict(pass: &Pass<'_>, changes: &Changes<'_>, record: &Record) -> Evict {
    mode_of(pass, changes, record).unwrap_or(Evict::Nobody)
}

/// Those that are to be waited for again, because a pod had come before they were closed or the policy says so now, are kept closed.
pub(super) fn take_back<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let waits = |(id, disruption): &(&RecordId, &Arc<Disruption>)| {
        is_replaced(disruption)
            && changes.memory.records.get(*id).is_some_and(|record| mode_of(pass, changes, record).is_none())
    };
    let back: Vec<RecordId> = changes.memory.disruptions.iter().filter(waits).map(|(id, _)| *id).collect();
    for id in back {
        changes.memory.disruptions.remove(&id);
    }
}
