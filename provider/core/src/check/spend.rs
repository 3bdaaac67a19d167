//! Recount of budgets from the purchases.
//!
//! Cash is taken as low as it can be: as if commitments paid all that they can for these nodes and
//! for nothing else. So no plan within its budget is stopped, whatever the order in which nodes
//! were covered.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::{Found, Violation};
use crate::base::ids::PoolName;
use crate::base::units::UsdPerHour;
use crate::catalogue::group::Group;
use crate::limits::budget::{LEFT_BELOW, SPOT_ONLY_AT};
use crate::market::offer::{CapacityType, Place};
use crate::policy::rules::commitment::{Commitment, Terms};
use crate::policy::rules::month::MonthBudget;
use crate::policy::{Policy, Pool};
use crate::state::budget::{BudgetOf, MonthSpend, Stage};
use crate::state::record::Purchase;

/// Nodes of a group that are bought or being bought, in one market at one price.
#[derive(Clone, Copy)]
pub(super) struct Bought<'a> {
    /// Of one of them.
    pub purchase: &'a Purchase,
    pub group: &'a Group,
    /// Whether this pass buys them.
    pub now: bool,
    /// So many.
    pub nodes: u32,
}

/// Holds every budget that this pass spends against what is bought. `before` is how budgets stood that were not ample.
/// `months` is what was spent of the month.
pub(super) fn judge(
    policy: &Policy,
    bought: &[Bought<'_>],
    (before, months): (&BTreeMap<BudgetOf, Stage>, &BTreeMap<BudgetOf, Arc<MonthSpend>>),
    found: &mut Found<'_>,
) {
    let lower = |hourly: Option<UsdPerHour>, month: Option<MonthBudget>, of: &BudgetOf| {
        let left = month.zip(months.get(of)).map(|(month, known)| left_of(month, known));
        hourly.into_iter().chain(left).min()
    };
    let kept_from = |of: BudgetOf| match before.get(&of) {
        Some(Stage::SpotOnly | Stage::Spent) => SPOT_ONLY_AT.0 - LEFT_BELOW,
        Some(Stage::Ample | Stage::Near) | None => SPOT_ONLY_AT.0,
    };
    for pool in &policy.pools {
        let of = BudgetOf::Pool(pool.name.clone());
        let Some(limit) = lower(pool.limits.max_usd_per_hour, pool.limits.month, &of) else { continue };
        let own: Vec<Bought<'_>> = bought.iter().filter(|one| one.group.pool == pool.name).copied().collect();
        if let Some(micros) = above(policy, &own, limit) {
            found.pool(&pool.name, Violation::TooMuchSpend { pool: pool.name.clone(), micros, limit: limit.0 });
        } else if let Some(micros) = above_for_spot(policy, &own, limit, kept_from(of)) {
            found.pool(&pool.name, Violation::NotSpot { micros, limit: limit.0 });
        }
    }
    let Some(limit) = lower(policy.max_usd_per_hour, policy.month, &BudgetOf::All) else { return };
    if let Some(micros) = above(policy, bought, limit) {
        found.fleet(Violation::TooMuchSpendOverall { micros, limit: limit.0 });
    } else if let Some(micros) = above_for_spot(policy, bought, limit, kept_from(BudgetOf::All)) {
        found.fleet(Violation::NotSpot { micros, limit: limit.0 });
    }
    guarantees(policy, bought, limit, found);
}

/// No pool that buys takes of the budget of all pools what is kept for others: with what these do not use of it, all is within the limit.
fn guarantees(policy: &Policy, bought: &[Bought<'_>], limit: UsdPerHour, found: &mut Found<'_>) {
    let kept = |pool: &Pool| i128::from(pool.limits.guaranteed.0);
    if policy.pools.iter().all(|pool| kept(pool) == 0) {
        return;
    }
    let of = |name: &PoolName, now: bool| {
        let own: Vec<Bought<'_>> = bought.iter().filter(|one| one.group.pool == *name && (one.now || !now)).copied().collect();
        least_cash(policy, &own)
    };
    let spend = least_cash(policy, bought);
    for pool in policy.pools.iter().filter(|pool| of(&pool.name, true) > 0) {
        let others = policy.pools.iter().filter(|other| other.name != pool.name);
        let unused: i128 = others.map(|other| (kept(other) - of(&other.name, false)).max(0)).sum();
        if unused > 0 && spend + unused > i128::from(limit.0) {
            let (pool, kept) = (pool.name.clone(), unused);
            found.pool(&pool.clone(), Violation::TakesGuaranteed { pool, micros: spend, kept, limit: limit.0 });
        }
    }
}

/// What a monthly budget leaves per hour: what is left of it over the seconds left of the month, or of a day where that is more.
fn left_of(month: MonthBudget, known: &MonthSpend) -> UsdPerHour {
    let day = known.hour.to_zoned(TimeZone::UTC).date();
    let next = day.last_of_month().tomorrow().and_then(|first| first.to_zoned(TimeZone::UTC));
    let seconds = next.map_or(i64::MAX, |next| next.timestamp().duration_since(known.hour).as_secs().max(24 * 3600));
    let left = i128::from(month.limit.0.saturating_sub(known.at_hour.0).max(0));
    let rate = left * i128::from(month.pace.0) * 3600 / (i128::from(seconds) * 1000);
    UsdPerHour(i64::try_from(rate).unwrap_or(i64::MAX))
}

/// The spend, where it is above the limit and this pass adds to it. A limit that was lowered below what is spent binds growth only, and
/// what commitments pay for is no growth.
fn above(policy: &Policy, bought: &[Bought<'_>], limit: UsdPerHour) -> Option<i128> {
    let new: Vec<Bought<'_>> = bought.iter().filter(|one| one.now).copied().collect();
    let spend = least_cash(policy, bought);
    (spend > i128::from(limit.0) && least_cash(policy, &new) > 0).then_some(spend)
}

/// The spend without the spot that this pass buys, where it was past the share (in percent) that is kept for spot before the last other node was bought
/// for a pool that may buy spot.
fn above_for_spot(policy: &Policy, bought: &[Bought<'_>], limit: UsdPerHour, kept_from: u8) -> Option<i128> {
    let spot = |one: &Bought<'_>| one.purchase.market.capacity_type == CapacityType::Spot;
    let may = |one: &Bought<'_>| {
        let pool = policy.pools.iter().find(|pool| pool.name == one.group.pool);
        let share = pool.and_then(|pool| pool.spot.as_ref()).map_or(0, |rules| rules.max_share.0);
        share > 0 && pool.is_some_and(|pool| pool.prefer.contains(&CapacityType::Spot))
    };
    let other = |one: &Bought<'_>| one.now && !spot(one) && may(one);
    let others: Vec<Bought<'_>> = bought.iter().filter(|one| other(one)).copied().collect();
    // The last one bought may have stepped over.
    let last = others.iter().map(|one| i128::from(one.purchase.price.0)).max()?;
    let before: Vec<Bought<'_>> = bought.iter().filter(|one| !one.now || other(one)).copied().collect();
    let spend = least_cash(policy, &before) - last;
    let past = 100 * spend >= i128::from(limit.0) * i128::from(kept_from);
    (past && least_cash(policy, &others) > 0).then_some(spend)
}

/// The least that these nodes can cost beside the commitments, in micro-dollars per hour.
fn least_cash(policy: &Policy, nodes: &[Bought<'_>]) -> i128 {
    let prices: i128 = nodes.iter().map(|some| i128::from(some.purchase.price.0) * i128::from(some.nodes)).sum();
    prices - policy.commitments.iter().map(|commitment| most_paid(commitment, nodes)).sum::<i128>()
}

/// The most that a commitment can pay of these nodes, in micro-dollars per hour: a bound, as if nothing else shared it.
fn most_paid(commitment: &Commitment, nodes: &[Bought<'_>]) -> i128 {
    let of = |capacity: CapacityType, fits: &dyn Fn(&Place, &Group) -> bool, most: u32| {
        let fits = |one: &&Bought<'_>| {
            let market = &one.purchase.market;
            market.capacity_type == capacity && fits(&market.place, one.group)
        };
        let mut prices: Vec<(i64, u32)> = nodes.iter().filter(fits).map(|some| (some.purchase.price.0, some.nodes)).collect();
        prices.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = most;
        let paid = prices.into_iter().map(|(price, nodes)| {
            let nodes = nodes.min(left);
            left -= nodes;
            i128::from(price) * i128::from(nodes)
        });
        paid.sum::<i128>()
    };
    match &commitment.terms {
        Terms::Nodes(n) => {
            let fits = |place: &Place, _: &Group| place.instance_type == n.instance_type && place.region == n.region;
            of(CapacityType::OnDemand, &fits, n.nodes)
        }
        Terms::Gpus(g) => {
            // A node has at least one GPU, so there are no more nodes than GPUs.
            let fits = |place: &Place, Group { spec, .. }: &Group| {
                place.region == g.region && spec.gpu_model == g.model && [None, Some(spec.gpu_memory)].contains(&g.memory)
            };
            of(CapacityType::OnDemand, &fits, g.gpus)
        }
        Terms::Spend(plan) => {
            let most = plan.discounts.iter().map(|(_, off)| off.0).max().unwrap_or(0).min(999);
            i128::from(plan.rate.0) * 1000 / i128::from(1000 - most)
        }
        Terms::Capacity(kept) => of(CapacityType::Reserved, &|place, _| *place == kept.place, kept.nodes),
    }
}
