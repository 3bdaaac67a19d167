//! What came at once in the past: how many nodes pods asked for, or took from the free ones, within the time that a boot takes.
//!
//! Time is cut into stretches of a boot, and of each day it is remembered how many stretches had how many arrivals. So a month is a few
//! hundred numbers, however busy it was.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::SHORTEST_WINDOW;
use crate::base::units::{Percent, UsdPerHour};

/// Boots that are remembered, to tell how long one takes.
const BOOTS: usize = 20;

/// How long a boot takes as long as none was seen: operators report 4 to 6 min as the middle.
const USUAL_BOOT: SignedDuration = SignedDuration::from_mins(5);

/// One day.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Arrivals of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrivals {
    /// Oldest first.
    days: Vec<Day>,
    /// What is being counted; `None` before the first pass.
    open: Option<Stretch>,
    /// How long the last boots took, in seconds, oldest first.
    boots: Vec<u32>,
}

/// What was counted of one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Day {
    from: Timestamp,
    /// Seconds that were watched: what nobody saw is not taken for quiet.
    seen: i64,
    /// How many stretches had so many arrivals.
    stretches: BTreeMap<u32, u32>,
}

/// A stretch of time in which arrivals are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stretch {
    from: Timestamp,
    /// The first moment after it.
    until: Timestamp,
    arrived: u32,
}

/// A share of all times, as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    part: u128,
    whole: u128,
}

impl Share {
    /// So many hundredths.
    pub fn of(Percent(hundredths): Percent) -> Self {
        Self { part: u128::from(hundredths), whole: 100 }
    }

    /// The share of times for which it costs least to be prepared. One GPU more that idles costs its price; one too few costs the waiting:
    /// both for as long as a boot, which cancels out. So it is waiting ÷ (waiting + price), by the rule of the newsvendor.
    pub fn that_costs_least(waiting: UsdPerHour, price: UsdPerHour) -> Self {
        let rate = |UsdPerHour(micros): UsdPerHour| u128::from(micros.max(0).unsigned_abs());
        let (waiting, price) = (rate(waiting), rate(price));
        Self { part: waiting, whole: (waiting + price).max(1) }
    }
}

impl Arrivals {
    /// Moves on to `now`: what is over is added to its day, and what is older than `window` is forgotten. Whether anything was added; the next
    /// stretch is as long as `horizon`.
    pub fn move_on(&mut self, now: Timestamp, horizon: SignedDuration, window: SignedDuration) -> bool {
        let horizon = horizon.max(SignedDuration::from_mins(1));
        let begin =
            |from: Timestamp| Stretch { from, until: from.saturating_add(horizon).unwrap_or(Timestamp::MAX), arrived: 0 };
        let Some(open) = self.open else {
            self.open = Some(begin(now));
            return false;
        };
        let length = open.until.duration_since(open.from);
        if now.duration_since(open.until) >= length {
            // Nobody looked for a while: what came then is not known.
            self.open = Some(begin(now));
            return false;
        }
        if now < open.until {
            return false;
        }
        if self.days.last().is_none_or(|day| open.from.duration_since(day.from) >= DAY) {
            self.days.push(Day { from: open.from, seen: 0, stretches: BTreeMap::new() });
        }
        if let Some(day) = self.days.last_mut() {
            day.seen = day.seen.saturating_add(length.as_secs());
            let stretches = day.stretches.entry(open.arrived).or_default();
            *stretches = stretches.saturating_add(1);
        }
        // A day is forgotten when its end is too old: what is left is never less than the window.
        self.days.retain(|day| now.duration_since(day.from) < window + DAY);
        self.open = Some(begin(open.until));
        true
    }

    /// When [`Self::move_on`] has something to add.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.open.map(|open| open.until)
    }

    /// Counts nodes that were asked for or taken now.
    pub fn add(&mut self, nodes: u32) {
        if let Some(open) = &mut self.open {
            open.arrived = open.arrived.saturating_add(nodes);
        }
    }

    /// Notes how long a boot took.
    pub fn booted(&mut self, within: SignedDuration) {
        if let Ok(seconds) = u32::try_from(within.as_secs()) {
            self.boots.push(seconds);
            let old = self.boots.len().saturating_sub(BOOTS);
            self.boots.drain(..old);
        }
    }

    /// What nine of ten of the last boots took, in whole minutes rounded up.
    pub fn boot(&self) -> SignedDuration {
        let mut boots = self.boots.clone();
        boots.sort_unstable();
        let slow = (boots.len() * 9).div_ceil(10).checked_sub(1).and_then(|at| boots.get(at));
        slow.map_or(USUAL_BOOT, |seconds| SignedDuration::from_mins(i64::from(seconds.div_ceil(60)).max(1)))
    }

    /// The fewest nodes that would have been enough for such a share of all times; `None` as long as less than a day was seen.
    pub fn quantile(&self, share: Share) -> Option<u32> {
        let seen: i64 = self.days.iter().map(|day| day.seen).sum();
        if seen < SHORTEST_WINDOW.as_secs() {
            return None;
        }
        let mut all: BTreeMap<u32, u128> = BTreeMap::new();
        for (arrived, stretches) in self.days.iter().flat_map(|day| &day.stretches) {
            *all.entry(*arrived).or_default() += u128::from(*stretches);
        }
        let total: u128 = all.values().sum();
        let mut enough = 0;
        let mut most = None;
        for (arrived, stretches) in all {
            enough += stretches;
            most = Some(arrived);
            if enough * share.whole >= share.part * total {
                break;
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: SignedDuration = SignedDuration::from_hours(14 * 24);
    const HORIZON: SignedDuration = SignedDuration::from_mins(10);

    fn start() -> Timestamp {
        "2026-11-02T00:00:00Z".parse().unwrap()
    }

    /// One stretch after the other with so many arrivals.
    fn after(counts: &[u32]) -> (Arrivals, Timestamp) {
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, WINDOW);
        for count in counts {
            arrivals.add(*count);
            now += HORIZON;
            arrivals.move_on(now, HORIZON, WINDOW);
        }
        (arrivals, now)
    }

    #[test]
    fn what_costs_least_is_waiting_over_waiting_and_idling() {
        let usd = |micros| UsdPerHour(micros);
        // 200 stretches: 140 quiet, 40 with 1, 15 with 2, 5 with 4.
        let counts: Vec<u32> = [(140, 0), (40, 1), (15, 2), (5, 4)].into_iter().flat_map(|(n, of)| vec![of; n]).collect();
        let (arrivals, _) = after(&counts);
        let wanted = |waiting, price| arrivals.quantile(Share::that_costs_least(usd(waiting), usd(price))).unwrap();
        // $2 against $0.80: 2 ÷ 2.8 = 71.4 %; 140 of 200 are 70 %, 180 are 90 %: one node.
        assert_eq!(wanted(2_000_000, 800_000), 1);
        // $2 against $0.90: 69.0 %: none is enough.
        assert_eq!(wanted(2_000_000, 900_000), 0);
        // $10 against $0.80: 92.6 %: 195 of 200 are 97.5 %: two.
        assert_eq!(wanted(10_000_000, 800_000), 2);
        // What costs nothing is kept for the worst that came; what nobody waits for is not kept.
        assert_eq!([wanted(2_000_000, 0), wanted(0, 800_000), wanted(0, 0)], [4, 0, 0]);
        assert_eq!(arrivals.quantile(Share::of(Percent(90))), Some(1));
        assert_eq!(arrivals.quantile(Share::of(Percent(91))), Some(2));
    }

    #[test]
    fn nothing_is_known_before_a_day_was_seen() {
        // 144 stretches of ten minutes are a day.
        assert_eq!(after(&[3; 143]).0.quantile(Share::of(Percent(95))), None);
        assert_eq!(after(&[3; 144]).0.quantile(Share::of(Percent(95))), Some(3));
    }

    #[test]
    fn a_window_of_one_day_is_known_on_the_second_and_on_the_third() {
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, DAY);
        for n in 1..=3 * 144 {
            arrivals.add(3);
            now += HORIZON;
            arrivals.move_on(now, HORIZON, DAY);
            assert_eq!(arrivals.quantile(Share::of(Percent(95))), (n >= 144).then_some(3), "{n}");
        }
    }

    #[test]
    fn what_nobody_saw_is_not_taken_for_quiet() {
        let (mut arrivals, now) = after(&[2; 150]);
        let before = arrivals.clone();
        // Away for a week: the stretch that was open is dropped, and nothing is added for the rest.
        let back = now + SignedDuration::from_hours(7 * 24);
        assert!(!arrivals.move_on(back, HORIZON, WINDOW));
        assert_eq!((&arrivals.days, arrivals.next_at()), (&before.days, Some(back + HORIZON)));
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let day = SignedDuration::from_hours(24);
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, day * 2);
        // A busy day, then three quiet ones.
        for n in 0..4 * 144 {
            arrivals.add(if n < 144 { 5 } else { 0 });
            now += HORIZON;
            arrivals.move_on(now, HORIZON, day * 2);
        }
        assert_eq!(arrivals.quantile(Share::of(Percent(99))), Some(0));
        assert!(arrivals.days.len() <= 3, "{}", arrivals.days.len());
    }

    #[test]
    fn a_boot_takes_what_nine_of_ten_took() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.boot(), SignedDuration::from_mins(5));
        arrivals.booted(SignedDuration::from_secs(200));
        assert_eq!(arrivals.boot(), SignedDuration::from_mins(4));
        // Twenty boots, two of them slow: the eighteenth of twenty counts.
        (0..18).for_each(|_| arrivals.booted(SignedDuration::from_secs(180)));
        (0..2).for_each(|_| arrivals.booted(SignedDuration::from_secs(900)));
        assert_eq!((arrivals.boot(), arrivals.boots.len()), (SignedDuration::from_mins(3), 20));
        arrivals.booted(SignedDuration::from_secs(900));
        assert_eq!(arrivals.boot(), SignedDuration::from_mins(15));
    }

    proptest! {
        #[test]
        fn the_quantile_is_that_of_the_sorted_list(
            counts in prop::collection::vec(0_u32..12, 144..600),
            waiting in 0_i64..20_000_000,
            price in 1_i64..40_000_000,
        ) {
            let (arrivals, _) = after(&counts);
            let mut sorted = counts.clone();
            sorted.sort_unstable();
            // The first of the list that enough of it, waiting ÷ (waiting + price), does not exceed.
            let n = i128::try_from(sorted.len()).unwrap();
            let enough = |of: u32| i128::try_from(sorted.iter().filter(|count| **count <= of).count()).unwrap();
            let share = |of: u32| enough(of) * i128::from(waiting + price) >= i128::from(waiting) * n;
            let want = sorted.iter().copied().find(|count| share(*count)).unwrap();
            let found = arrivals.quantile(Share::that_costs_least(UsdPerHour(waiting), UsdPerHour(price)));
            prop_assert_eq!(found, Some(want));
        }

        /// What being prepared for `nodes` would have cost over all that was seen: idling where fewer came, waiting where more did.
        #[test]
        fn no_other_number_of_nodes_would_have_cost_less(
            counts in prop::collection::vec(0_u32..8, 144..300),
            waiting in 1_i64..9_000_000,
            price in 1_i64..9_000_000,
        ) {
            let (arrivals, _) = after(&counts);
            let cost = |nodes: u32| -> i128 {
                let of = |count: &u32| {
                    let (idle, late) = (nodes.saturating_sub(*count), count.saturating_sub(nodes));
                    i128::from(idle) * i128::from(price) + i128::from(late) * i128::from(waiting)
                };
                counts.iter().map(of).sum()
            };
            let found = arrivals.quantile(Share::that_costs_least(UsdPerHour(waiting), UsdPerHour(price))).unwrap();
            for other in 0..9 {
                prop_assert!(cost(found) <= cost(other), "{} costs {}, {} costs {}", found, cost(found), other, cost(other));
            }
        }
    }
}
