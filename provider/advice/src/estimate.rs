//! What a run, a reservation or a move of data costs, worked out from rates alone.

use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};

/// Hours of a year.
pub const YEAR: i64 = 8_760;
/// Hours of a month, as clouds bill commitments by it.
pub const MONTH: i64 = 730;

const SECONDS: i64 = 3_600;
/// A share of all, in thousandths.
const ALL: i64 = 1_000;

/// What `nodes` cost at a rate for so many hours of work, where a share of the time is lost to what must be done again: reclaims of spot
/// capacity take the work since a checkpoint. A fifth lost makes an hour of work cost 1 / 0.8 of the rate. `None` where all is lost.
pub fn run(rate: UsdPerHour, nodes: u32, hours: u32, lost: Milli) -> Option<UsdMicros> {
    let kept = ALL.checked_sub(i64::from(lost.0)).filter(|kept| *kept > 0)?;
    let worked = i128::from(rate.times(nodes).over_seconds(i64::from(hours) * SECONDS).0);
    let kept = i128::from(kept);
    let paid = (worked * i128::from(ALL) + kept / 2) / kept;
    Some(UsdMicros(i64::try_from(paid).unwrap_or(i64::MAX)))
}

/// A reserved rate beside on-demand, over a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// What the year costs reserved, used or not.
    pub reserved: UsdMicros,
    /// What its hours of use cost on demand.
    pub on_demand: UsdMicros,
    /// What reserving saves; below zero where it costs more.
    pub saved: UsdMicros,
    /// By how much the reserved rate is below the other, in thousandths; below zero where it is above.
    pub discount_permille: i64,
    /// The share of the hours from which on reserving costs less, in thousandths; above 1,000 where it never does.
    pub break_even_permille: i64,
}

impl Reservation {
    /// Of `nodes` that are used for a share of the hours. `None` where on-demand costs nothing.
    pub fn of(reserved: UsdPerHour, on_demand: UsdPerHour, nodes: u32, used: Milli) -> Option<Self> {
        let year = |rate: UsdPerHour| rate.times(nodes).over_seconds(YEAR * SECONDS);
        let break_even_permille = share(reserved.0, on_demand.0)?;
        let all = i128::from(year(on_demand).0);
        let in_use = UsdMicros(i64::try_from((all * i128::from(used.0) + 500) / i128::from(ALL)).unwrap_or(i64::MAX));
        let reserved = year(reserved);
        Some(Self {
            reserved,
            on_demand: in_use,
            saved: UsdMicros(in_use.0.saturating_sub(reserved.0)),
            discount_permille: ALL - break_even_permille,
            break_even_permille,
        })
    }
}

/// A share in thousandths, rounded to nearest.
fn share(part: i64, of: i64) -> Option<i64> {
    let of = i128::from(of);
    (of > 0).then(|| i64::try_from((i128::from(part) * i128::from(ALL) + of / 2) / of).unwrap_or(i64::MAX))
}

/// Data that is moved to where nodes cost less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// What the nodes cost a month here.
    pub here: UsdMicros,
    /// What they cost there.
    pub there: UsdMicros,
    /// What the copy costs once.
    pub copy: UsdMicros,
    /// What data that is copied anew each month costs.
    pub sync: UsdMicros,
    /// What is saved a month, after that; below zero where nothing is.
    pub saved: UsdMicros,
    /// After how many thousandths of a day the copy has paid for itself; `None` where it never does.
    pub pays_back_millidays: Option<i64>,
}

impl Move {
    /// Of `nodes` that work so many hours a month, at a rate here and there.
    pub fn of([here, there]: [UsdPerHour; 2], nodes: u32, hours: u32, [copy, sync]: [UsdMicros; 2]) -> Self {
        let month = |rate: UsdPerHour| rate.times(nodes).over_seconds(i64::from(hours) * SECONDS);
        let (here, there) = (month(here), month(there));
        let saved = UsdMicros(here.0.saturating_sub(there.0).saturating_sub(sync.0));
        let days = |saved: i64| {
            let millidays = i128::from(copy.0) * i128::from(MONTH) * 1_000 / 24;
            i64::try_from((millidays + i128::from(saved) / 2) / i128::from(saved)).unwrap_or(i64::MAX)
        };
        Self { here, there, copy, sync, saved, pays_back_millidays: (saved.0 > 0).then(|| days(saved.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> UsdPerHour {
        UsdPerHour::parse_usd(text).unwrap()
    }

    fn dollars(amount: UsdMicros) -> i64 {
        (amount.0 + 500_000).div_euclid(1_000_000)
    }

    #[test]
    fn a_weekend_on_eight_gpus_costs_its_hours() {
        let weekend = |rate| dollars(run(usd(rate), 1, 48, Milli(0)).unwrap());
        assert_eq!((weekend("32.77"), weekend("9.00")), (1_573, 432));
        assert_eq!(dollars(run(usd("24"), 1, 8_760, Milli(0)).unwrap()), 210_240);
    }

    /// An article adds a fifth of the price where a fifth of the time is lost, and so says $0.72.
    #[test]
    fn an_hour_of_work_costs_what_is_lost_too() {
        assert_eq!(run(usd("0.60"), 1, 1, Milli(200)), Some(UsdMicros(750_000)));
        assert_eq!(run(usd("0.60"), 1, 1, Milli(1_000)), None);
        assert_eq!(run(usd("0.60"), 1, 1, Milli(2_000)), None);
    }

    /// A recommendation engine, in months of 720 hours. 12 A100 × $4.00 × 720 h are $34,560, and not the $28,800 of an article (which is
    /// ten). Afterwards 8 spot × $0.80 and 4 on demand × $2.60: $4,608 + $7,488 = $12,096, so that 65.0 % are saved, and not 58 %.
    #[test]
    fn a_recommendation_engine_goes_to_spot_for_two_thirds() {
        let month = |rate, gpus| run(usd(rate), gpus, 720, Milli(0)).unwrap();
        let (before, spot, rest) = (month("4.00", 12), month("0.80", 8), month("2.60", 4));
        assert_eq!((dollars(before), dollars(spot), dollars(rest)), (34_560, 4_608, 7_488));
        let after = spot.plus(rest);
        assert_eq!((dollars(after), dollars(month("4.00", 10))), (12_096, 28_800));
        assert_eq!((before.0 - after.0) * 1_000 / before.0, 650);
        assert_eq!((28_800_000_000 - after.0) * 1_000 / 28_800_000_000, 580, "what the article's own figures save");
    }

    /// Fifty tenants with an A100 each at $0.66 an hour: 50 × $0.66 × 720 h = $23,760 a month. Seven MIG instances of each of 8 are 56, for
    /// 8 × $0.66 × 720 h = $3,801.60: 84 % saved, with six instances to spare.
    #[test]
    fn fifty_tenants_share_eight_gpus() {
        let month = |gpus| run(usd("0.66"), gpus, 720, Milli(0)).unwrap();
        let (alone, shared) = (month(50), month(50_u32.div_ceil(7)));
        assert_eq!((alone, shared), (UsdMicros(23_760_000_000), UsdMicros(3_801_600_000)));
        assert_eq!(((alone.0 - shared.0) * 1_000 / alone.0, 8 * 7 - 50), (840, 6));
    }

    #[test]
    fn a_reservation_is_weighed_against_the_hours_of_use() {
        let of = |rate, nodes, used| Reservation::of(usd(rate), usd("3.06"), nodes, Milli(used)).unwrap();
        let one = of("1.82", 1, 1_000);
        assert_eq!((dollars(one.on_demand), dollars(one.reserved), dollars(one.saved)), (26_806, 15_943, 10_862));
        assert_eq!((one.discount_permille, one.break_even_permille), (405, 595));
        assert_eq!((of("1.31", 1, 1_000).discount_permille, dollars(of("1.82", 10, 1_000).saved)), (572, 108_624));
        let half = of("1.82", 1, 500);
        assert_eq!((dollars(half.on_demand), dollars(half.saved)), (13_403, -2_540), "half used, it costs more");
        let dearer = of("4.00", 1, 1_000);
        assert!(dearer.discount_permille < 0 && dearer.break_even_permille > 1_000, "{dearer:?}");
        assert_eq!(Reservation::of(usd("1"), usd("0"), 1, Milli(1_000)), None);
    }

    /// 10 TB at $0.05 a GB, for ten H100 in use around the clock.
    #[test]
    fn moved_data_pays_back_by_what_nodes_save() {
        let once = [UsdMicros(500_000_000), UsdMicros(0)];
        let of = |hours, copies| Move::of([usd("4.09"), usd("2.60")], 10, hours, copies);
        let moved = of(720, once);
        assert_eq!((dollars(moved.here), dollars(moved.there), dollars(moved.saved)), (29_448, 18_720, 10_728));
        assert_eq!(moved.pays_back_millidays, Some(1_418));
        let synced = of(720, [UsdMicros(500_000_000), UsdMicros(10_728_000_000)]);
        assert_eq!((synced.saved, synced.pays_back_millidays), (UsdMicros(0), None), "what is copied anew eats all of it");
        assert_eq!(Move::of([usd("1"), usd("2")], 1, 730, once).pays_back_millidays, None);
    }
}
