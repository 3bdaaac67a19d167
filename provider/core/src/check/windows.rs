//! The promises about free nodes: none is released before its time, and no more within one window than the pool's share.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{ByGroup, Fatal};
use crate::group::Menu;
use crate::ids::{NodeName, RecordId};
use crate::memory::Memory;
use crate::plan::Action;
use crate::policy::Pool;
use crate::record::{Record, State};
use crate::verdict::{Judged, Reason, Verdict};
use crate::window::{Stabilization, Window};

/// Judges which free nodes the autoscaler may remove from now on.
pub(super) fn windows(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    by_group: &ByGroup<'_>,
    (menu, buffers): (&Menu, Option<bool>),
    faults: &mut Vec<Fatal>,
) {
    let pool_of = |record: &Record| {
        let group = menu.group_or_remembered(&record.group, memory)?;
        let pool = menu.policy.pool(&group.pool)?;
        Some((pool, pool.stabilization.as_ref()?))
    };
    let is_idle = |record: &Record| record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Idle);
    // What was idle when somebody closed it, or when its kubelet went away, keeps its turn.
    let is_released = |record: &Record| is_idle(record) || record.judged.as_ref().is_some_and(was_released);
    let mut by_pool: BTreeMap<&str, (&Pool, &Stabilization, Vec<&Record>)> = BTreeMap::new();
    for record in memory.records.values().filter(|record| is_idle(record)) {
        if before.records.get(&record.id).is_some_and(|known| is_released(known)) {
            continue;
        }
        let Some((pool, rules)) = pool_of(record) else { continue };
        let at = released_at(record);
        let early = at.is_none_or(|at| at < earliest(record, pool, rules));
        // What off-hours leave no room for waits for no window.
        let off = at.is_some_and(|at| is_too_many(pool, at, by_group, memory, menu));
        if early && !off {
            faults.push(Fatal::ReleasedEarly(record.id));
        }
        by_pool.entry(pool.name.as_str()).or_insert((pool, rules, Vec::new())).2.push(record);
    }
    for (pool, rules, new) in by_pool.into_values().filter(|(_, rules, _)| rules.max_removals.0 < 100) {
        let Some(now) = new.iter().filter_map(|record| released_at(record)).max() else { continue };
        let known = |memory: &Memory| memory.windows.get(&pool.name).map(|w| w.nodes.clone()).unwrap_or_default();
        let gone = |id: &RecordId| memory.records.get(id).is_none_or(|record| !record.counts());
        let within = |at: &Timestamp| after((*at).min(now), rules.scale_down) > now;
        let mut earlier = known(before);
        earlier.retain(|(id, at)| within(at) && (gone(id) || memory.records.get(id).is_some_and(|record| is_released(record))));
        let there = counted(pool, by_group, memory, menu);
        let nodes = there + earlier.iter().filter(|(id, _)| gone(id)).count();
        let most = (nodes * usize::from(rules.max_removals.0) / 100).max(1);
        let all = earlier.len() + new.len();
        if all > most {
            faults.push(Fatal::TooManyReleased { pool: pool.name.clone(), nodes: all, most });
        }
        let remembered: BTreeSet<_> = known(memory).into_iter().map(|(id, _)| id).collect();
        let forgotten = new.iter().filter(|record| !remembered.contains(&record.id));
        faults.extend(forgotten.map(|record| Fatal::ReleaseForgotten(record.id)));
    }
    let opened: BTreeSet<&NodeName> =
        actions.iter().filter_map(|action| if let Action::Release { node } = action { Some(node) } else { None }).collect();
    if opened.is_empty() {
        return;
    }
    for record in memory.records.values() {
        let State::Registered { node: Some(node), .. } = &record.state else { continue };
        let warm = record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Warm);
        // The autoscaler keeps the nodes of a buffer by itself.
        let held = |(pool, _): &(&Pool, _)| !pool.warm_floor.as_ref().is_some_and(|floor| floor.is_kept_by_buffers(buffers));
        if warm && opened.contains(node) && pool_of(record).as_ref().is_some_and(held) {
            faults.push(Fatal::OpensKept(node.clone()));
        }
    }
}

fn was_released(judged: &Judged) -> bool {
    match judged.verdict {
        Verdict::Draining => matches!(judged.why, Reason::Closed { released: true, .. }),
        Verdict::Booting => matches!(judged.why, Reason::Away { released: true, .. }),
        _ => false,
    }
}

/// The nodes of a pool that count.
fn counted(pool: &Pool, by_group: &ByGroup<'_>, memory: &Memory, menu: &Menu) -> usize {
    let here = by_group.iter().filter(|(id, _)| menu.group_or_remembered(id, memory).is_some_and(|g| g.pool == pool.name));
    here.flat_map(|(_, records)| records.iter()).filter(|record| record.counts()).count()
}

/// Whether a pool has more nodes than its off-hours allow at that moment.
fn is_too_many(pool: &Pool, at: Timestamp, by_group: &ByGroup<'_>, memory: &Memory, menu: &Menu) -> bool {
    let off = pool.off_hours.as_ref().filter(|off| off.at(at).0).and_then(|off| off.max_nodes);
    off.is_some_and(|most| counted(pool, by_group, memory, menu) > usize::try_from(most).unwrap_or(usize::MAX))
}

fn released_at(record: &Record) -> Option<Timestamp> {
    record.judged.as_ref().map(|judged| judged.since)
}

/// The earliest moment at which a free node may be released, by its own windows.
fn earliest(record: &Record, pool: &Pool, rules: &Stabilization) -> Timestamp {
    let free_since = match record.judged.as_ref().map(|judged| &judged.why) {
        Some(Reason::WindowOver { free_since }) => *free_since,
        _ => return Timestamp::MAX,
    };
    let price = record.purchase().map_or(0, |purchase| purchase.price.0);
    let free_for = match rules.window {
        Window::EqualPay if price > 0 => {
            let seconds = i128::from(pool.waiting.0) * 150 / i128::from(price);
            let least = rules.scale_down.as_secs().min(60);
            SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).clamp(least, rules.scale_down.as_secs()))
        }
        Window::EqualPay | Window::Fixed => rules.scale_down,
    };
    after(free_since, free_for).max(after(free_since.min(record.ordered_at), rules.minimum_life))
}

fn after(at: Timestamp, length: SignedDuration) -> Timestamp {
    at.saturating_add(length).unwrap_or(Timestamp::MAX)
}
