//! Learning for floors: arrivals, boot times, and the demand of signals.

use std::collections::BTreeMap;

use super::super::pass::{Changes, Pass};
use super::update;
use crate::base::ids::InstanceType;
use crate::base::index::InOrder;
use crate::base::units::UsdPerHour;
use crate::choose::parts::price_parts;
use crate::policy::Pool;
use crate::policy::rules::demand::Need;
use crate::policy::rules::warm_floor::{ByType, FloorMemory, Quantile, Share, WarmFloor};
use crate::state::node_verdict::Verdict;
use crate::state::record::{PodsSeen, Record, State};

/// What came to a pool since the last pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Came<'a> {
    /// The instance type of each node that pods took from the free ones.
    taken: Vec<&'a InstanceType>,
    /// Nodes that were ordered for pods, by the order's number, and their instance types. Empty where a floor is asked for through
    /// buffers: its nodes are ordered in the same way, so what a pod takes would count once more when it is bought again, and the
    /// floor would grow by its own orders.
    ordered: Vec<(u64, &'a InstanceType)>,
    /// How long boots took, in seconds.
    boots: Vec<jiff::SignedDuration>,
}

/// What came to the pools that take a quantile of it, by the pool's place in the policy.
pub(super) fn arrivals<'a>(pass: &Pass<'a>, changes: &Changes<'a>) -> Vec<Came<'a>> {
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
        let (Some((at, pool)), Some(group)) = (entry.pool(), entry.group()) else { continue };
        let instance_type = &group.place.instance_type;
        let Some(came) = came.get_mut(at).filter(|_| learns(pool)) else { continue };
        let by_min_size = pool.warm_floor.as_ref().is_none_or(|floor| floor.raises_min_size(pass.snapshot.buffers));
        if let (Some(order), false, true) = (record.order, record.floor, by_min_size) {
            came.ordered.push((order.0, instance_type));
        }
        let Some(was) = was else { continue };
        let verdict = |record: &Record| record.judged.as_ref().map(|judged| judged.verdict);
        let first = was.pods == PodsSeen::NotYet;
        let taken = verdict(record) == Some(Verdict::Busy) && verdict(was).is_some_and(Verdict::is_free);
        let arrived = match (by_min_size, first) {
            // The first pod of a node that was ordered for pods is the one that it was ordered for.
            (true, _) => taken && (record.floor || !first),
            // It may come before the node was ever seen free.
            (false, true) => record.pods == PodsSeen::Seen,
            (false, false) => taken,
        };
        came.taken.extend(arrived.then_some(instance_type));
        if let State::Registered { ready_at: Some(ready), launched_at, .. } = &record.state
            && !matches!(was.state, State::Registered { ready_at: Some(_), .. })
        {
            came.boots.push(ready.duration_since(*launched_at));
        }
    }
    came
}

/// Adds that to what is remembered.
pub(super) fn remember<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    pool: &Pool,
    floor: &WarmFloor,
    came: Option<&Came<'_>>,
) {
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
        let prices = node_prices(pass, changes, pool);
        // What nobody sells, nothing is kept of.
        let of_gpu = |of: &InstanceType| prices.get(of).map_or(UsdPerHour(i64::MAX), |(node, gpus)| node.per(*gpus));
        let share = |of: &InstanceType| quantile.p.map_or_else(|| Share::that_costs_least(pool.waiting, of_gpu(of)), Share::of);
        let known = changes.memory.floors.get(&pool.name);
        let by_type = known.and_then(|known| known.history.quantile(share)).unwrap_or_default();
        let mut by_type: ByType = by_type.into_iter().filter(|(of, _)| prices.contains_key(of)).collect();
        by_type.sort_by_key(|(of, _)| prices.get(of).map(|(node, _)| *node));
        update(changes, &pool.name, |known| known.by_type = by_type);
    }
    if floor.quantile.is_some()
        && let Some(at) = changes.memory.floors.get(&pool.name).and_then(|known| known.history.next_at())
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
fn learn(known: &mut FloorMemory, quantile: &Quantile, came: &Came<'_>, now: jiff::Timestamp) -> bool {
    for boot in &came.boots {
        known.history.booted(*boot);
    }
    let horizon = quantile.horizon.unwrap_or_else(|| known.history.boot());
    let over = known.history.move_on(now, horizon, quantile.window);
    let ordered = came.ordered.iter().filter(|(order, _)| *order >= known.orders_from).map(|(_, of)| of);
    came.taken.iter().chain(ordered).for_each(|of| known.history.add(of));
    over
}

/// What a node of each instance type of the pool costs where it is cheapest and no commitment covers it, and its GPUs: what idling costs,
/// over time.
fn node_prices<'a>(pass: &Pass<'a>, changes: &Changes<'_>, pool: &Pool) -> BTreeMap<&'a InstanceType, (UsdPerHour, u32)> {
    let mut prices = BTreeMap::new();
    for group in pass.catalogue.pool_groups(&pool.name) {
        for offer in &group.offers {
            let Ok(parts) = price_parts(pass.catalogue, &changes.memory, group, offer, pass.wall) else { continue };
            let price = (parts.uncovered(), group.spec.advertised_gpus());
            let least = prices.entry(&group.place.instance_type).or_insert(price);
            *least = price.min(*least);
        }
    }
    prices
}
