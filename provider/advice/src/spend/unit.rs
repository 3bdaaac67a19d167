//! Unit cost: what one request, or a million tokens, costs.

use serde::Serialize;
use stoker_core::base::units::UsdMicros;

/// What so many of something cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitCost {
    /// How many there were, rounded down.
    pub counted: u64,
    /// For so many is the price: one, a thousand or a million.
    pub per: u32,
    /// What that many cost, in micro-dollars.
    pub price: UsdMicros,
}

/// A price below a cent is told for more of them.
const LEAST: u128 = 10_000;

impl UnitCost {
    /// What each of `millionths` millionths cost: `cost` was spent in `of` seconds and they were counted in `known`. Neither need be the
    /// same time: the cost of an hour is divided by the count of an hour. `None` where nothing was counted.
    pub fn of(cost: UsdMicros, (known, of): (i64, i64), millionths: u128) -> Option<Self> {
        let (cost, known, of) = (u128::try_from(cost.0).ok()?, u128::try_from(known).ok()?, u128::try_from(of).ok()?);
        // Each count is far below 2^64, and so is the cost: divided in turn, nothing overflows.
        let known_cost = (cost * known).checked_div(of)?;
        let price = |per: u32| (known_cost * u128::from(per)).checked_mul(1_000_000)?.checked_div(millionths);
        let per = [1, 1_000].into_iter().find(|per| price(*per).is_some_and(|price| price >= LEAST)).unwrap_or(1_000_000);
        let price = i64::try_from(price(per)?).ok()?;
        Some(Self { counted: u64::try_from(millionths / 1_000_000).unwrap_or(u64::MAX), per, price: UsdMicros(price) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// $100 in ten hours, of which the rate is known for nine: $90. At 50 a second these are 1,620,000, $0.055555 a thousand.
    #[test]
    fn the_cost_of_the_known_time_is_divided_by_what_was_counted() {
        let hours = 3_600;
        let of = |cost: i64, rate: u128| UnitCost::of(UsdMicros(cost), (9 * hours, 10 * hours), rate * 9 * 3_600 * 1_000_000);
        let price = |counted, per, price| Some(UnitCost { counted, per, price: UsdMicros(price) });
        assert_eq!(of(100_000_000, 50), price(1_620_000, 1_000, 55_555));
        // One a second: $90 / 32,400 are less than a cent, and $2.777777 a thousand.
        assert_eq!(of(100_000_000, 1), price(32_400, 1_000, 2_777_777));
        // A hundred thousand tokens a second: $0.027777 a million.
        assert_eq!(of(100_000_000, 100_000), price(3_240_000_000, 1_000_000, 27_777));
        // One in ten seconds: $90 / 3,240.
        assert_eq!(UnitCost::of(UsdMicros(100_000_000), (9 * hours, 10 * hours), 3_240_000_000), price(3_240, 1, 27_777));
        assert_eq!(of(100_000_000, 0), None);
        // $12.81 in 3,422 seconds, and two requests a second for a month: $0.003743 a second, and $1.871712 a thousand.
        let month = UnitCost::of(UsdMicros(12_810_000), (2_462_400, 3_422), 4_924_800_000_000);
        assert_eq!(month, price(4_924_800, 1_000, 1_871_712));
        assert_eq!(UnitCost::of(UsdMicros(1), (0, 0), 1), None);
    }

    #[test]
    fn extremes_are_no_panic() {
        let _ = UnitCost::of(UsdMicros(i64::MAX), (i64::MAX, i64::MAX), u128::MAX);
        let _ = UnitCost::of(UsdMicros(i64::MIN), (-1, -1), 1);
    }
}
