//! Monthly budgets: what was spent of the month, and the hourly rate that this leaves.
//!
//! The rate is what is left of the month's budget, spread evenly over the hours that are left, times
//! the budget's pace. It is worked out once an hour, so that limits do not move in between. Pools
//! are held to it as to an hourly budget: purchases are restricted, and running nodes stay.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::units::{UsdMicros, UsdPerHour};
use crate::policy::rules::month::MonthBudget;
use crate::state::budget::MonthSpend;

/// What is left is spread over at least so much time: the last hours of a month would otherwise buy nodes that the next month pays for.
pub const LEAST_LEFT: SignedDuration = SignedDuration::from_hours(24);

/// How a monthly budget stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Month {
    /// The budget.
    pub limit: UsdMicros,
    /// Cash spent of it when the hour began.
    pub spent: UsdMicros,
    /// The rate that this leaves.
    pub rate: UsdPerHour,
}

impl fmt::Display for Month {
    /// `$13600.00 of $20000.00 spent this month`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} spent this month", self.spent, self.limit)
    }
}

/// The calendar month of UTC that a moment is in, from its first moment to the next month's.
fn month_of(at: Timestamp) -> (Timestamp, Timestamp) {
    let first = at.to_zoned(TimeZone::UTC).date().first_of_month();
    let next = first.last_of_month().tomorrow();
    let moment = |date: Date| date.to_zoned(TimeZone::UTC).as_ref().map(Zoned::timestamp).ok();
    (moment(first).unwrap_or(Timestamp::MIN), next.ok().and_then(moment).unwrap_or(Timestamp::MAX))
}

/// The hour that a moment is in, by its beginning.
fn hour_of(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().div_euclid(3600) * 3600).unwrap_or(Timestamp::MIN)
}

impl Month {
    /// How a budget stands where so much was spent of the month when that hour began.
    pub(crate) fn of(budget: MonthBudget, spent: UsdMicros, hour: Timestamp) -> Self {
        let (_, end) = month_of(hour);
        let seconds = end.duration_since(hour).max(LEAST_LEFT).as_secs();
        let left = i128::from(budget.limit.0) - i128::from(spent.0);
        let rate = left.max(0) * i128::from(budget.pace.0) * 3600 / (i128::from(seconds) * 1000);
        Self { limit: budget.limit, spent, rate: UsdPerHour(i64::try_from(rate).unwrap_or(i64::MAX)) }
    }

    /// How it stands by what is remembered; as [`MonthSpend::first`] says where that is nothing yet.
    pub(crate) fn now(budget: MonthBudget, known: Option<&MonthSpend>, wall: Wall) -> Self {
        let first = || MonthSpend::first(budget, wall);
        let known = known.cloned().unwrap_or_else(first);
        Self::of(budget, known.at_hour, known.hour)
    }
}

impl MonthSpend {
    /// What is assumed where a month has begun and nobody has counted: that it was spent evenly so far.
    pub(crate) fn first(budget: MonthBudget, wall: Wall) -> Self {
        let (start, end) = month_of(wall.0);
        let (gone, all) = (wall.0.duration_since(start).as_secs(), end.duration_since(start).as_secs());
        let even = |seconds: i64| i128::from(budget.limit.0) * i128::from(seconds) / i128::from(all.max(1));
        let spent = |seconds| UsdMicros(i64::try_from(even(seconds)).unwrap_or(i64::MAX));
        let hour = hour_of(wall.0);
        let at_hour = spent(hour.duration_since(start).as_secs().max(0));
        Self { hour, at_hour, since: wall.0, spent: spent(gone), rate: UsdPerHour::ZERO }
    }

    /// What was spent of the month that the wall shows, at the rate of the last pass.
    fn spent_at(&self, wall: Wall) -> UsdMicros {
        let (start, _) = month_of(wall.0);
        let (from, before) = if self.since < start { (start, UsdMicros(0)) } else { (self.since, self.spent) };
        // A wall that was set back counts nothing twice.
        before.plus(self.rate.over_seconds(wall.0.duration_since(from).as_secs().max(0)))
    }

    /// The same once the wall shows that time, where another hour has begun; `None` within the same hour.
    pub(crate) fn turned(&self, wall: Wall) -> Option<Self> {
        let (hour, spent) = (hour_of(wall.0), self.spent_at(wall));
        (hour != self.hour).then_some(Self { hour, at_hour: spent, since: wall.0, spent, rate: self.rate })
    }

    /// The same from now on at another rate; `None` where it is the same rate.
    pub(crate) fn at_rate(&self, rate: UsdPerHour, wall: Wall) -> Option<Self> {
        (rate != self.rate).then(|| Self { since: wall.0, spent: self.spent_at(wall), rate, ..self.clone() })
    }
}

/// When the next hour begins, and rates are worked out anew.
pub(crate) fn next_hour(wall: Wall) -> Timestamp {
    hour_of(wall.0).saturating_add(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Milli;

    fn wall(text: &str) -> Wall {
        Wall(text.parse().unwrap())
    }

    fn budget(dollars: i64, pace: u32) -> MonthBudget {
        MonthBudget { limit: UsdMicros(dollars * 1_000_000), pace: Milli(pace) }
    }

    /// $7,200 in the 720 hours of November are $10 an hour. At noon of the 16th 372 hours are gone.
    #[test]
    fn what_is_left_is_spread_over_the_hours_left() {
        let at =
            |text: &str, spent: i64, pace: u32| Month::of(budget(7_200, pace), UsdMicros(spent * 1_000_000), wall(text).0).rate;
        assert_eq!(at("2026-11-01T00:00:00Z", 0, 1000), UsdPerHour(10_000_000));
        // $3,600 left over 348 hours: $10.344827; at twice the pace $20.689655.
        assert_eq!(at("2026-11-16T12:00:00Z", 3_600, 1000), UsdPerHour(10_344_827));
        assert_eq!(at("2026-11-16T12:00:00Z", 3_600, 2000), UsdPerHour(20_689_655));
        // Overspent: nothing.
        assert_eq!(at("2026-11-16T12:00:00Z", 7_300, 2000), UsdPerHour::ZERO);
        // In the month's last hour $240 are spread over a day, and not over the hour.
        assert_eq!(at("2026-11-30T23:00:00Z", 6_960, 1000), UsdPerHour(10_000_000));
    }

    #[test]
    fn a_month_that_nobody_counted_was_spent_evenly() {
        // 100 hours and a half of 720.
        let first = MonthSpend::first(budget(7_200, 1000), wall("2026-11-05T04:30:00Z"));
        assert_eq!((first.at_hour, first.spent), (UsdMicros(1_000_000_000), UsdMicros(1_005_000_000)));
        assert_eq!(Month::now(budget(7_200, 1000), Some(&first), wall("2026-11-05T04:30:00Z")).rate, UsdPerHour(10_000_000));
    }

    /// $6 an hour from 22:30 on the last of the month to 01:15 on the first of the next: $9 for the old month's hour and a half is
    /// forgotten, and the hour and a quarter of the new one is $7.50.
    #[test]
    fn a_new_month_begins_with_nothing_spent() {
        let (before, after) = (wall("2026-11-30T22:30:00Z"), wall("2026-12-01T01:15:00Z"));
        let known = MonthSpend {
            hour: hour_of(before.0),
            at_hour: UsdMicros(0),
            since: before.0,
            spent: UsdMicros(50_000_000),
            rate: UsdPerHour(6_000_000),
        };
        let within = known.spent_at(wall("2026-11-30T23:00:00Z"));
        assert_eq!(within, UsdMicros(53_000_000));
        let turned = known.turned(after).unwrap();
        assert_eq!((turned.at_hour, turned.spent, turned.hour), (UsdMicros(7_500_000), UsdMicros(7_500_000), hour_of(after.0)));
        assert_eq!(turned.turned(wall("2026-12-01T01:59:59Z")), None);
        // A wall that is set back takes nothing away and adds nothing.
        assert_eq!(turned.at_rate(UsdPerHour::ZERO, wall("2026-12-01T01:00:00Z")).unwrap().spent, UsdMicros(7_500_000));
    }
}
