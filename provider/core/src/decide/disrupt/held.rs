//! Off-hours: nodes that a pod holds without using them. Announced, then drained after the pool's
//! grace time.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use super::{begin, eviction, named};
use crate::base::engine_clock::Wall;
use crate::base::ids::RecordId;
use crate::base::kinds::Evidence;
use crate::facts::activity::GpuActivity;
use crate::facts::snapshot::{Cordon, Hold};
use crate::plan::Note;
use crate::policy::Pool;
use crate::state::cordon::Announced;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::node_verdict::Verdict;
use crate::state::record::{Record, State};

/// How long a pool leaves held nodes once it was announced that they go, while its off-hours that give them up are on; and when that
/// changes.
fn gives_up(pool: &Pool, wall: Wall) -> (Option<SignedDuration>, Option<Timestamp>) {
    let Some((off_hours, grace)) = pool.off_hours.as_ref().and_then(|off| Some((off, off.evict_held_after?))) else {
        return (None, None);
    };
    let (on, next) = off_hours.at(wall.0);
    (on.then_some(grace), next)
}

/// Whether a record's pool gives up held nodes now.
pub(super) fn is_on(pass: &Pass<'_>, changes: &Changes<'_>, id: RecordId) -> bool {
    let pool = changes.memory.records.get(&id).and_then(|record| changes.entry(record)?.pool());
    pool.is_some_and(|(_, pool)| gives_up(pool, pass.wall).0.is_some())
}

/// Whether it is proven at this moment that the pods on a node do nothing.
pub(super) fn is_proven(entry: &IndexEntry<'_>) -> bool {
    entry.evidence() != Evidence::Probe || matches!(GpuActivity::of(entry.seen()), GpuActivity::Quiet(_))
}

/// Whether a node that goes is at work again, or a pod has come to it, which has a right to a time of its own.
pub(super) fn is_used_again(changes: &Changes<'_>, id: RecordId, disruption: &Disruption) -> bool {
    let Some(entry) = changes.memory.records.get(&id).and_then(|record| changes.entry(record)) else { return false };
    let works = entry.evidence() == Evidence::Probe && entry.is_active();
    works || entry.node().is_some_and(|node| eviction::has_come(node, disruption))
}

/// Announces, takes back what is not held any more, and begins with what was announced long enough ago.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let now = pass.now;
    let pools: Vec<_> = pass.catalogue.policy.pools.iter().map(|pool| gives_up(pool, pass.wall)).collect();
    for (_, next) in &pools {
        if let Some(next) = next {
            changes.look_again_on_wall(pass, *next);
        }
    }
    if changes.memory.announced.is_empty() && pools.iter().all(|(grace, _)| grace.is_none()) {
        return;
    }
    let mut fresh = Vec::new();
    let mut due = Vec::new();
    let mut back = Vec::new();
    for (record, entry) in changes.indexed() {
        let grace = entry.pool().and_then(|(at, _)| pools.get(at)?.0);
        let known = changes.memory.announced.get(&record.id).map(|announced| **announced);
        // Whoever closed a node, or wants it kept, wants it as it is.
        let free = entry.cordon() == Cordon::None && entry.hold().is_some_and(|hold| hold != Hold::Theirs);
        let goes = is_held(record) && free && !changes.memory.disruptions.contains_key(&record.id);
        match (known, grace.filter(|_| goes)) {
            (None, None) => {}
            (None, Some(grace)) => fresh.push((record.id, Announced { since: now, at: after(now, grace) })),
            (Some(announced), Some(_)) => due.push((record.id, announced)),
            (Some(_), None) => back.push((record.id, if grace.is_none() { "the off-hours are over" } else { since(record) })),
        }
    }
    for (id, announced) in fresh {
        let Some((group, node)) = changes.memory.records.get(&id).and_then(|record| named(record)) else { continue };
        changes.notes.push(Note::WillBeEmptied { group, node, at: announced.at });
        changes.memory.announced.insert(id, Arc::new(announced));
        changes.look_again_at(announced.at);
    }
    for (id, Announced { since, at }) in due {
        if at > now {
            changes.look_again_at(at);
            continue;
        }
        changes.memory.announced.remove(&id);
        begin(pass, changes, id, DrainReason::Held { announced: since, at });
    }
    for (id, why) in back {
        changes.memory.announced.remove(&id);
        if let Some((group, node)) = changes.memory.records.get(&id).and_then(|record| named(record)) {
            changes.notes.push(Note::DrainAbandoned { group, node, why: why.to_owned() });
        }
    }
    let records = &changes.memory.records;
    changes.memory.announced.retain(|id, _| records.contains_key(id));
}

fn is_held(record: &Record) -> bool {
    let held = record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Held);
    held && matches!(record.state, State::Registered { .. })
}

/// What has become of a node that is held no more.
fn since(record: &Record) -> &'static str {
    match record.judged.as_ref().map(|judged| judged.verdict) {
        Some(Verdict::Busy) => "a pod works on it again",
        Some(Verdict::Unknown) => "its activity is no longer known",
        _ => "no pod occupies it any more",
    }
}
