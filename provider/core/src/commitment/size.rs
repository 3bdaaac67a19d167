//! How much to commit to, from what was used hour by hour. An estimate from the past, with what it loses if the future is smaller.

use serde::{Deserialize, Serialize};

use crate::units::{Milli, Percent, UsdPerHour};

/// Most that is committed to, as a share of the mean use. The benchmark's commitments were capped at 60 to 70 % (`policy-benchmark` §6);
/// at 70 % a flat use may halve before a commitment at the usual one-year discount of 37 % costs more than it saves: half of the use
/// fills 71 % of it, and it breaks even at 63 %.
const CAP_OF_MEAN: u128 = 70;

/// Least history: a week, so that every hour of the day and every day of the week counts alike. A week's quantile came within 0.5 % of
/// hindsight (`policy-benchmark` §6).
const LEAST_HOURS: usize = 7 * 24;

/// The falls in use whose loss is shown.
const FALLS: [Percent; 2] = [Percent(20), Percent(50)];

/// A discount that clouds give for a commitment: the median over the price tables (`pricing-notes` §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MedianDiscount {
    /// The cloud.
    pub cloud: &'static str,
    /// What is committed to, as the policy calls it.
    pub kind: &'static str,
    /// For which GPUs.
    pub what: &'static str,
    /// For how many years.
    pub years: u8,
    /// How far below on-demand, in thousandths.
    pub discount: Milli,
}

const fn median(cloud: &'static str, kind: &'static str, what: &'static str, years: u8, discount: u32) -> MedianDiscount {
    MedianDiscount { cloud, kind, what, years, discount: Milli(discount) }
}

/// Median discounts, for operators who have no offer at hand. AWS savings plans are about as reserved instances; Azure
/// lists none for ND H100 and H200.
pub const MEDIAN_DISCOUNTS: [MedianDiscount; 12] = [
    median("aws", "reserved-instance", "G types and p4d", 1, 370),
    median("aws", "reserved-instance", "G types, p4d and p5", 3, 570),
    median("gcp", "committed-use", "A100", 1, 370),
    median("gcp", "committed-use", "A100", 3, 650),
    median("gcp", "committed-use", "L4", 1, 370),
    median("gcp", "committed-use", "L4", 3, 550),
    median("gcp", "committed-use", "H100", 1, 310),
    median("gcp", "committed-use", "H100", 3, 560),
    median("gcp", "committed-use", "B200", 1, 310),
    median("gcp", "committed-use", "B200", 3, 560),
    median("azure", "savings-plan", "A100 and H100 NVL", 1, 170),
    median("azure", "savings-plan", "A100 and H100 NVL", 3, 380),
];

/// How much to commit to, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Units to commit to: the lesser of the two below.
    pub commit: u64,
    /// What saves most on this history: the newsvendor's quantile.
    pub best_in_hindsight: u64,
    /// 70 % of the mean use, rounded down.
    pub cap: u64,
    /// The use of a commitment at which it costs as much as it saves.
    pub break_even: Milli,
    /// How much of this commitment the history would have used; nought where none is advised.
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
    /// So much per hour, on average; below nought it is a loss.
    pub saved: UsdPerHour,
}

/// Too little history to advise from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{hours} hours of use are known, fewer than the {LEAST_HOURS} of a week: wait until there are as many")]
pub struct TooLittleUse {
    /// Hours known.
    pub hours: usize,
}

/// How much to commit to at `discount` below the on-demand `price` of one unit, from the units used in each hour of the past.
///
/// A unit is a node or a GPU for what is committed by count. For a savings plan it is a micro-dollar of on-demand value at the price of
/// `UsdPerHour(1)`; the plan is then bought for [`Advice::commit`] less the discount.
///
/// Committing to Q units costs (1 − discount) · Q in every hour, and what is used above Q costs the price. That is least at the smallest
/// Q that the use exceeds in at most (1 − discount) of all hours: the newsvendor's quantile. A cap of 70 % of the mean keeps it safe.
///
/// # Errors
/// With less than a week of history.
pub fn advise(hourly: &[u64], price: UsdPerHour, discount: Milli) -> Result<Advice, TooLittleUse> {
    if hourly.len() < LEAST_HOURS {
        return Err(TooLittleUse { hours: hourly.len() });
    }
    let mut sorted = hourly.to_vec();
    sorted.sort_unstable();
    let off = discount.0.min(1000);
    // The quantile's place, counted from one; a discount of nought commits to nothing.
    let place = (sorted.len() as u128 * u128::from(off)).div_ceil(1000);
    let at = usize::try_from(place).unwrap_or(usize::MAX).checked_sub(1);
    let best_in_hindsight = at.and_then(|at| sorted.get(at).copied()).unwrap_or(0);
    let total: u128 = hourly.iter().map(|used| u128::from(*used)).sum();
    let cap = u64::try_from(total * CAP_OF_MEAN / 100 / hourly.len() as u128).unwrap_or(u64::MAX);
    let commit = best_in_hindsight.min(cap);
    let covered: u128 = hourly.iter().map(|used| u128::from((*used).min(commit))).sum();
    let paid_for = u128::from(commit) * hourly.len() as u128;
    let utilization = (covered * 1000).checked_div(paid_for).unwrap_or(0);
    let falls = FALLS.map(|by| Shortfall { by, saved: saved(hourly, commit, price, off, by) });
    Ok(Advice {
        commit,
        best_in_hindsight,
        cap,
        break_even: Milli(1000 - off),
        utilization: Milli(u32::try_from(utilization).unwrap_or(1000)),
        saved: saved(hourly, commit, price, off, Percent(0)),
        if_use_falls: falls.to_vec(),
    })
}

/// What a commitment to `commit` units saves per hour if every hour's use is less by a share; rounded down.
fn saved(hourly: &[u64], commit: u64, price: UsdPerHour, off: u32, fall: Percent) -> UsdPerHour {
    let keeps = i128::from(100_u8.saturating_sub(fall.0));
    // In hundredths of a unit, so that a fallen use need not be rounded.
    let commit = i128::from(commit) * 100;
    let covered: i128 = hourly.iter().map(|used| (i128::from(*used) * keeps).min(commit)).sum();
    let hours = hourly.len() as i128;
    let units = covered * 1000 - commit * i128::from(1000 - off) * hours;
    // 1,000 for the discount and 100 for the units.
    let rate = units.saturating_mul(i128::from(price.0)).div_euclid(hours.max(1) * 100_000);
    UsdPerHour(i64::try_from(rate).unwrap_or(if rate < 0 { i64::MIN } else { i64::MAX }))
}
