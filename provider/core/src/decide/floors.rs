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

use super::is_fresh;
use super::pass::{Changes, Pass};
use crate::base::ids::{NodeGroupId, PoolName};
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::decide::orders;
use crate::limits::usage::Usage;
use crate::plan::Note;
use crate::policy::Pool;
use crate::policy::rules::warm_floor::{Basis, ByType, FloorMemory, Places, Wanted, WarmFloor};

pub(super) use count::{Count, Filled, count, doubted_until};

/// Why nothing is grown for a floor where nobody can tell which nodes are warm.
pub(super) const BLIND: &str = "no cluster is watched, so it is unknown which nodes are warm";
/// Why nothing is grown for a floor before the first call of an autoscaler: nobody would ever take the nodes away.
pub(super) const UNCALLED: &str = "no autoscaler has called yet, and Stoker buys nothing before one does";

/// Takes in what floors are reckoned from, before anything is decided by what they want.
pub(super) fn learn<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let policy = Arc::clone(&pass.catalogue.policy);
    changes.memory.floors.retain(|name, _| policy.pool(name).is_some_and(|pool| pool.warm_floor.is_some()));
    if policy.pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return;
    }
    let arrivals = learn::arrivals(pass, changes);
    for (at, pool) in policy.pools.iter().enumerate() {
        if let Some(floor) = &pool.warm_floor {
            learn::remember(pass, changes, pool, floor, arrivals.get(at));
        }
    }
}

/// Works out what each pool wants, and grows groups for which the autoscaler has not asked in time.
pub(super) fn look<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let policy = Arc::clone(&pass.catalogue.policy);
    changes.floors = vec![None; policy.pools.len()];
    if policy.pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return;
    }
    let counts = count(pass, changes);
    for (at, pool) in policy.pools.iter().enumerate() {
        let (Some(floor), Some(count)) = (&pool.warm_floor, counts.get(at)) else { continue };
        let wanted = wants(pass, changes, pool, floor, count);
        if let Some(at) = wanted.changes_at {
            changes.look_again_on_wall(pass, at);
        }
        if let Some(at) = count.changes_at() {
            changes.look_again_at(at);
        }
        grow(pass, changes, &pool.name, &wanted, count);
        if let Some(place) = changes.floors.get_mut(at) {
            *place = Some(wanted);
        }
    }
}

/// What a pool's floor wants, by what was learnt for it.
fn wants(pass: &Pass<'_>, changes: &Changes<'_>, pool: &Pool, floor: &WarmFloor, count: &Count<'_>) -> Wanted {
    let known = changes.memory.floors.get(&pool.name);
    let none = ByType::new();
    let quantile = known.map_or(&none, |known| &known.by_type);
    let signals = known.and_then(|known| known.replicas).map(|replicas| count.nodes_for(replicas, pass.catalogue, pool));
    let off_hours = pool.off_hours.as_ref();
    let wanted = floor.wanted(&Basis { at_work: count.at_work, quantile, signals, off_hours, wall: pass.wall });
    // A buffer asks for room of one size.
    if floor.is_kept_by_buffers(pass.snapshot.buffers) { wanted.of_any_type() } else { wanted }
}

/// What each pool's floor wants, by its place in the policy, where [`look`] has not worked that out yet.
pub(super) fn wanted_now(pass: &Pass<'_>, changes: &Changes<'_>) -> Vec<Places> {
    let pools = &pass.catalogue.policy.pools;
    if pools.iter().all(|pool| pool.warm_floor.is_none()) {
        return vec![Places::default(); pools.len()];
    }
    let wanted = |(pool, count): (&Pool, Count<'_>)| {
        pool.warm_floor.as_ref().map(|floor| wants(pass, changes, pool, floor, &count).places()).unwrap_or_default()
    };
    pools.iter().zip(count(pass, changes)).map(wanted).collect()
}

/// Grows the groups that were raised for a floor, where the autoscaler has been shown that for long enough and has not asked.
fn grow<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, pool: &PoolName, wanted: &Wanted, count: &Count<'_>) {
    let Some(known) = changes.memory.floors.get(pool).cloned() else { return };
    let due = known.unasked.is_some_and(|unasked| unasked.is_over(pass.now));
    // Nobody would ever take away what no autoscaler knows of.
    if !due || changes.memory.session.is_none() || pass.snapshot.cluster.is_none() {
        return;
    }
    let mut left = count.fill(wanted).missing;
    for (id, raised) in &known.raised {
        let Some(group) = pass.catalogue.groups.get(id) else { continue };
        let nodes = left.fill(&group.place.instance_type, (*raised).min(room(pass, changes, group)));
        if nodes > 0 {
            order(pass, changes, id, nodes);
            changes.notes.push(Note::FloorGrown { group: id.clone(), nodes });
        }
    }
}

/// How many nodes of a group may be bought now.
fn room(pass: &Pass<'_>, changes: &Changes<'_>, group: &Group) -> u32 {
    let (snapshot, now) = (pass.snapshot, pass.now);
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let scales = Scales {
        catalogue: pass.catalogue,
        memory: &changes.memory,
        usage: changes.usage(pass),
        fresh: &fresh,
        times: pass.times(),
    };
    group.offers.iter().filter_map(|offer| scales.weigh(group, offer).ok()).map(|open| open.room).max().unwrap_or(0)
}

/// Files an order of our own. No session is credited with it, so all that could serve the same pods is closed until it is Ready.
fn order<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, group: &NodeGroupId, nodes: u32) {
    let (_, ids) = orders::file(&mut changes.memory, pass.catalogue, group, nodes, (None, true), pass.now);
    for id in ids {
        if let Some(record) = changes.memory.records.get(&id).map(|record| record.as_ref().clone()) {
            changes.add_record(pass, record);
        }
    }
}

/// What a pool's floor wants now; `None` where it has none.
pub(super) fn wanted<'c>(pass: &Pass<'_>, changes: &'c Changes<'_>, pool: &PoolName) -> Option<&'c Wanted> {
    let at = pass.catalogue.policy.pools.iter().position(|of| of.name == *pool);
    at.and_then(|at| changes.floors.get(at)?.as_ref())
}

/// Nodes that off-hours leave no room for: so many free ones of the pool need not be kept by any window.
pub(super) fn surplus(usage: &Usage, pool: &PoolName) -> u32 {
    let held = usage.nodes.get(pool).copied().unwrap_or(0);
    usage.off_hours.get(pool).map_or(0, |most| held.saturating_sub(*most))
}

/// Changes what is remembered of a pool's floor, where that differs.
pub(super) fn update(changes: &mut Changes<'_>, pool: &PoolName, change: impl FnOnce(&mut FloorMemory)) {
    let fresh = || FloorMemory { orders_from: changes.memory.next_order, ..FloorMemory::default() };
    let before = changes.memory.floors.get(pool).cloned();
    let mut after = before.as_deref().cloned().unwrap_or_else(fresh);
    change(&mut after);
    if before.as_deref() != Some(&after) {
        changes.memory.floors.insert(pool.clone(), Arc::new(after));
    }
}
