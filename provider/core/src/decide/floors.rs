//! Warm floors: how many free and proven nodes each pool wants, and growth where the autoscaler
//! does not ask for them.
//!
//! Floor nodes are bought through the autoscaler, by a `minSize` above the target
//! ([`super::minimums`]). The autoscaler only tracks nodes that it asked for: releases from 1.36 on
//! ignore others until they are Ready, and buy for their pods again. So growth without an order is
//! the exception. While it boots, every group that could serve the same pods is closed.

mod count;
mod learn;

use std::sync::Arc;

use super::{Draft, is_fresh};
use crate::base::ids::{NodeGroupId, PoolName};
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::decide::orders;
use crate::limits::usage::Usage;
use crate::plan::Note;
use crate::policy::Pool;
use crate::policy::rules::warm_floor::{Basis, FloorMemory, Wanted, WarmFloor};

pub(super) use count::{Count, count, doubted_until};

/// Why nothing is grown for a floor where nobody can tell which nodes are warm.
pub(super) const BLIND: &str = "no cluster is watched, so it is unknown which nodes are warm";
/// Why nothing is grown for a floor before the first call of an autoscaler: nobody would ever take the nodes away.
pub(super) const UNCALLED: &str = "no autoscaler has called yet, and Stoker buys nothing before one does";

/// Takes in what floors are reckoned from, before anything is decided by what they want.
pub(super) fn learn(draft: &mut Draft<'_>) {
    let policy = Arc::clone(&draft.catalogue.policy);
    draft.memory.floors.retain(|name, _| policy.pool(name).is_some_and(|pool| pool.warm_floor.is_some()));
    if policy.pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return;
    }
    let arrivals = learn::arrivals(draft);
    for (at, pool) in policy.pools.iter().enumerate() {
        if let Some(floor) = &pool.warm_floor {
            learn::remember(draft, pool, floor, arrivals.get(at));
        }
    }
}

/// Works out what each pool wants, and grows groups for which the autoscaler has not asked in time.
pub(super) fn look(draft: &mut Draft<'_>) {
    let policy = Arc::clone(&draft.catalogue.policy);
    draft.floors = vec![None; policy.pools.len()];
    for pool in &policy.pools {
        if let Some(at) = pool.off_hours.as_ref().and_then(|off| off.at(draft.wall.0).1) {
            draft.look_again_on_wall(at);
        }
    }
    if policy.pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return;
    }
    let counts = count(draft);
    for (at, pool) in policy.pools.iter().enumerate() {
        let (Some(floor), Some(count)) = (&pool.warm_floor, counts.get(at)) else { continue };
        let wanted = wants(draft, pool, floor, count);
        if let Some(at) = wanted.changes_at {
            draft.look_again_on_wall(at);
        }
        if let Some(at) = count.changes_at() {
            draft.look_again_at(at);
        }
        grow(draft, &pool.name, &wanted, count);
        if let Some(place) = draft.floors.get_mut(at) {
            *place = Some(wanted);
        }
    }
}

/// What a pool's floor wants, by what was learnt for it.
fn wants(draft: &Draft<'_>, pool: &Pool, floor: &WarmFloor, count: &Count<'_>) -> Wanted {
    let known = draft.memory.floors.get(&pool.name);
    let quantile = known.and_then(|known| known.quantile);
    let signals = known.and_then(|known| known.replicas).map(|replicas| count.nodes_for(replicas, draft.catalogue, pool));
    let off_hours = pool.off_hours.as_ref();
    floor.wanted(&Basis { at_work: count.at_work, quantile, signals, off_hours, wall: draft.wall })
}

/// How many warm nodes each pool wants, by its place in the policy, where [`look`] has not worked that out yet.
pub(super) fn wanted_now(draft: &Draft<'_>) -> Vec<u32> {
    let pools = &draft.catalogue.policy.pools;
    if pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return vec![0; pools.len()];
    }
    let wanted =
        |(pool, count): (&Pool, Count<'_>)| pool.warm_floor.as_ref().map_or(0, |floor| wants(draft, pool, floor, &count).nodes);
    pools.iter().zip(count(draft)).map(wanted).collect()
}

/// Grows the groups that were raised for a floor, where the autoscaler has been shown that for long enough and has not asked.
fn grow(draft: &mut Draft<'_>, pool: &PoolName, wanted: &Wanted, count: &Count<'_>) {
    let Some(known) = draft.memory.floors.get(pool).cloned() else { return };
    let due = known.unasked.is_some_and(|unasked| unasked.is_over(draft.now));
    // Nobody would ever take away what no autoscaler knows of.
    if !due || draft.memory.session.is_none() || draft.snapshot.cluster.is_none() {
        return;
    }
    let mut left = count.missing(wanted.nodes);
    for (id, raised) in &known.raised {
        let Some(group) = draft.catalogue.groups.get(id) else { continue };
        let nodes = (*raised).min(left).min(room(draft, group));
        if nodes > 0 {
            left -= nodes;
            order(draft, id, nodes);
            draft.notes.push(Note::FloorGrown { group: id.clone(), nodes });
        }
    }
}

/// How many nodes of a group may be bought now.
fn room(draft: &Draft<'_>, group: &Group) -> u32 {
    let (snapshot, now) = (draft.snapshot, draft.now);
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let scales =
        Scales { catalogue: draft.catalogue, memory: &draft.memory, usage: draft.usage(), fresh: &fresh, times: draft.times() };
    group.offers.iter().filter_map(|offer| scales.weigh(group, offer).ok()).map(|open| open.room).max().unwrap_or(0)
}

/// Files an order of our own. No session is credited with it, so all that could serve the same pods is closed until it is Ready.
fn order(draft: &mut Draft<'_>, group: &NodeGroupId, nodes: u32) {
    let (_, ids) = orders::file(&mut draft.memory, draft.catalogue, group, nodes, (None, true), draft.now);
    for id in ids {
        if let Some(record) = draft.memory.records.get(&id).map(|record| record.as_ref().clone()) {
            draft.add_record(record);
        }
    }
}

/// How many warm nodes a pool wants now.
pub(super) fn wanted(draft: &Draft<'_>, pool: &PoolName) -> u32 {
    let at = draft.catalogue.policy.pools.iter().position(|of| of.name == *pool);
    at.and_then(|at| draft.floors.get(at)?.as_ref()).map_or(0, |wanted| wanted.nodes)
}

/// Nodes that off-hours leave no room for: so many free ones of the pool need not be kept by any window.
pub(super) fn surplus(usage: &Usage, pool: &PoolName) -> u32 {
    let held = usage.nodes.get(pool).copied().unwrap_or(0);
    usage.off_hours.get(pool).map_or(0, |most| held.saturating_sub(*most))
}

/// Changes what is remembered of a pool's floor, where that differs.
pub(super) fn update(draft: &mut Draft<'_>, pool: &PoolName, change: impl FnOnce(&mut FloorMemory)) {
    let fresh = || FloorMemory { orders_from: draft.memory.next_order, ..FloorMemory::default() };
    let before = draft.memory.floors.get(pool).cloned();
    let mut after = before.as_deref().cloned().unwrap_or_else(fresh);
    change(&mut after);
    if before.as_deref() != Some(&after) {
        draft.memory.floors.insert(pool.clone(), Arc::new(after));
    }
}
