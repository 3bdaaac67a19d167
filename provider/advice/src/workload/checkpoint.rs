//! How often to write checkpoints on spot: Young's and Daly's first-order optimum, √(2 × cost of a checkpoint × mean time between
//! failures), which is where writing and doing again cost alike. The failures are the markets' reclaims, as they were measured.

use super::Inputs;
use super::observed::{Workload, month};
use jiff::SignedDuration;
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::{Percent, Ppm, UsdMicros};
use stoker_core::market::hazard::{Hazard, Prior};
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::rules::spot::Saving;
use stoker_core::state::spot_history::Risk;

/// Milliseconds of an hour.
const HOUR_MS: u128 = 3_600_000;
/// What hazards are counted in: reclaims per 10⁹ node-hours.
const NODE_HOURS: u128 = 1_000_000_000;

/// An interval between checkpoints beside the best one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The interval now.
    pub every: SignedDuration,
    /// Share of the time that goes into writing, now.
    pub overhead: Percent,
    /// What writing one takes: the two above multiplied.
    pub cost: SignedDuration,
    /// How often a node is reclaimed.
    pub hazard: Hazard,
    /// The mean time between two reclaims of a node.
    pub between: SignedDuration,
    /// The best interval.
    pub best: SignedDuration,
    /// Share of the time that writing and doing again take, now.
    pub wasted: Ppm,
    /// The same at the best interval.
    pub least: Ppm,
    /// What its spot nodes cost a month.
    pub spot_per_month: UsdMicros,
    /// What the present interval costs more a month than the best one.
    pub saved: UsdMicros,
}

/// The best interval for checkpoints that take this share of the time at this interval; `None` where they take no time, or nothing is ever
/// reclaimed: then there is no best one.
pub fn interval(every: SignedDuration, overhead: Percent, hazard: Hazard, spot_per_month: UsdMicros) -> Option<Interval> {
    let every_ms = u128::try_from(every.as_millis()).ok()?;
    let cost_ms = every_ms * u128::from(overhead.0) / 100;
    let between_ms = (HOUR_MS * NODE_HOURS).checked_div(u128::from(hazard.0))?;
    let best_ms = (2 * cost_ms * between_ms).isqrt();
    if best_ms == 0 {
        return None;
    }
    // Writing takes C ÷ T of the time, and a reclaim takes half an interval: λ × T ÷ 2.
    let wasted = |interval: u128| {
        let writing = cost_ms * 1_000_000_000 / interval.max(1);
        let again = u128::from(hazard.0) * interval * 1_000_000_000 / (2 * HOUR_MS * NODE_HOURS);
        Ppm(u32::try_from((writing + again + 500) / 1_000).unwrap_or(u32::MAX))
    };
    let length = |ms: u128| SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    let (now, least) = (wasted(every_ms), wasted(best_ms));
    let share = u128::from(now.0.saturating_sub(least.0));
    let saved = u128::from(spot_per_month.0.unsigned_abs()) * share / 1_000_000;
    Some(Interval {
        every,
        overhead,
        cost: length(cost_ms),
        hazard,
        between: length(between_ms),
        best: length(best_ms),
        wasted: now,
        least,
        spot_per_month,
        saved: UsdMicros(i64::try_from(saved).unwrap_or(i64::MAX)),
    })
}

/// The best interval of a workload that ran on spot in a pool with checkpoints, over the markets that it ran in.
pub(super) fn advised(workload: &Workload, pool: &PoolName, hours: usize, inputs: &Inputs<'_>) -> Option<Interval> {
    let rules = inputs.catalogue.policy.pool(pool)?.spot.as_ref()?;
    let Saving::Checkpoints { every, overhead } = rules.saving else { return None };
    let (mut weighed, mut seconds) = (0_u128, 0_u128);
    for (place, held) in &workload.spot {
        let risk = Risk::estimate(Prior::of(inputs.book.reclaims(place)), inputs.memory.spot.get(place).map(AsRef::as_ref));
        weighed += u128::from(risk.hazard.0) * u128::from(*held);
        seconds += u128::from(*held);
    }
    let hazard = Hazard(u64::try_from(weighed.checked_div(seconds)?).ok()?);
    let (_, cost) = workload.bought.get(&CapacityType::Spot)?;
    let spot_per_month = UsdMicros(i64::try_from(month(*cost, hours)).unwrap_or(i64::MAX));
    interval(every, overhead, hazard, spot_per_month)
}
