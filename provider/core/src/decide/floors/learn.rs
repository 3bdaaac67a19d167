//! Learning for floors: arrivals, boot times, and the demand of signals.

use super::super::pass::{Changes, Pass};
use super::update;
use crate::base::index::InOrder;
use crate::base::units::UsdPerHour;
use crate::choose::parts::price_parts;
use crate::policy::Pool;
use crate::policy::rules::demand::Need;
use crate::policy::rules::warm_floor::{FloorMemory, Quantile, Share, WarmFloor};
use crate::state::node_verdict::Verdict;
use crate::state::record::{PodsSeen, Record, State};

/// What came to a pool since the last pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Came {
    /// Nodes that pods took from the free ones.
    taken: u32,
    /// Nodes that were ordered for pods, by the order's number. Empty where a floor is asked for through buffers: its nodes are ordered in the
    /// same way, so what a pod takes would count once more when it is bought again, and the floor would grow by its own orders.
    ordered: Vec<u64>,
    /// How long boots took, in seconds.
    boots: Vec<jiff::SignedDuration>,
}

/// What came to the pools that take a quantile of it, by the pool's place in the policy.
pub(super) fn arrivals(pass: &Pass<'_>, changes: &Changes<'_>) -> Vec<Came> {
    let pools = &pass.catalogue.policy.pools;
    let learns = |pool: &Pool| pool.warm_floor.as_ref().is_some_and(|floor| floor.quantile.is_some());
    let mut came = vec![Came::default(); pools.len()];
    if !pools.iter().any(learns) {
        return came;
    }
    // Both are in the order of their numbers.
    let mut before = InOrder::of(&pass.before.records);
    for (record, entry) in changes.indexed() {
        let was = before.next(&record.id);
        let Some((at, pool)) = entry.pool() else { continue };
        let Some(came) = came.get_mut(at).filter(|_| learns(pool)) else { continue };
        let told = pool.warm_floor.as_ref().is_none_or(|floor| floor.raises_min_size(pass.snapshot.buffers));
        if let (Some(order), false, true) = (record.order, record.floor, told) {
            came.ordered.push(order.0);
        }
        let Some(was) = was else { continue };
        let verdict = |record: &Record| record.judged.as_ref().map(|judged| judged.verdict);
        let first = was.pods == PodsSeen::NotYet;
        let taken = verdict(record) == Some(Verdict::Busy) && verdict(was).is_some_and(Verdict::is_free);
        let arrived = match (told, first) {
            // The first pod of a node that was ordered for pods is the one that it was ordered for.
            (true, _) => taken && (record.floor || !first),
            // It may come before the node was ever seen free.
            (false, true) => record.pods == PodsSeen::Seen,
            (false, false) => taken,
        };
        came.taken = came.taken.saturating_add(u32::from(arrived));
        if let State::Registered { ready_at: Some(ready), launched_at, .. } = &record.state
            && !matches!(was.state, State::Registered { ready_at: Some(_), .. })
        {
            came.boots.push(ready.duration_since(*launched_at));
        }
    }
    came
}

/// Adds that to what is remembered.
pub(super) fn remember<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, pool: &Pool, floor: &WarmFloor, came: Option<&Came>) {
    let now = pass.now;
    let need = pass.snapshot.demand.get(&pool.name).map_or(Need::Unknown, |demand| demand.need());
    let next_order = changes.memory.next_order;
    let mut due = None;
    update(changes, &pool.name, |known| {
        if floor.signals {
            known.replicas = replicas(known.replicas, need);
        }
        if let (Some(quantile), Some(came)) = (&floor.quantile, came) {
            if learn(known, quantile, came, now) {
                due = Some(*quantile);
            }
            known.orders_from = next_order;
        }
    });
    if let Some(quantile) = due {
        let share =
            quantile.p.map_or_else(|| Share::that_costs_least(pool.waiting, cheapest_gpu(pass, changes, pool)), Share::of);
        update(changes, &pool.name, |known| known.quantile = known.arrivals.quantile(share));
    }
    if floor.quantile.is_some()
        && let Some(at) = changes.memory.floors.get(&pool.name).and_then(|known| known.arrivals.next_at())
    {
        changes.look_again_at(at);
    }
}

/// The replicas that signals ask for. What is not known is not less than what was known last.
fn replicas(before: Option<u32>, need: Need) -> Option<u32> {
    match need {
        Need::Known(replicas) => Some(replicas),
        Need::AtLeast(replicas) => before.max(Some(replicas)),
        Need::Unknown => before,
    }
}

/// Whether a stretch of time is over, so that the quantile may be another.
fn learn(known: &mut FloorMemory, quantile: &Quantile, came: &Came, now: jiff::Timestamp) -> bool {
    for boot in &came.boots {
        known.arrivals.booted(*boot);
    }
    let horizon = quantile.horizon.unwrap_or_else(|| known.arrivals.boot());
    let over = known.arrivals.move_on(now, horizon, quantile.window);
    let ordered = came.ordered.iter().filter(|order| **order >= known.orders_from).count();
    known.arrivals.add(came.taken.saturating_add(u32::try_from(ordered).unwrap_or(u32::MAX)));
    over
}

/// What the pool's cheapest GPU costs that no commitment covers: what idling costs, over time. Without a price, nothing is kept for it.
fn cheapest_gpu(pass: &Pass<'_>, changes: &Changes<'_>, pool: &Pool) -> UsdPerHour {
    let offers = pass.catalogue.pool_groups(&pool.name).flat_map(|group| group.offers.iter().map(move |offer| (group, offer)));
    let prices = offers.filter_map(|(group, offer)| {
        let parts = price_parts(pass.catalogue, &changes.memory, group, offer, pass.wall).ok()?;
        Some(parts.uncovered().per(group.spec.advertised_gpus()))
    });
    prices.min().unwrap_or(UsdPerHour(i64::MAX))
}
