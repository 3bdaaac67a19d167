//! What came at once in the past: how many nodes pods asked for, or took from the free ones, within the time that a boot takes.
//!
//! Each instance type is counted for itself: a node helps what comes only where that would have asked for one like it. Time is cut into
//! stretches of a boot, and of each day it is remembered how many stretches had how many arrivals. So a month is a few hundred numbers for
//! each type, however busy it was.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::SHORTEST_WINDOW;
use crate::base::ids::InstanceType;
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
    /// Stretches that were watched.
    stretches: u32,
    /// How many of them had so many arrivals of an instance type; those without any are not written down.
    by_type: BTreeMap<InstanceType, BTreeMap<u32, u32>>,
}

/// A stretch of time in which arrivals are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stretch {
    from: Timestamp,
    /// The first moment after it.
    until: Timestamp,
    arrived: BTreeMap<InstanceType, u32>,
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
        let begin = |from: Timestamp| Stretch {
            from,
            until: from.saturating_add(horizon).unwrap_or(Timestamp::MAX),
            arrived: BTreeMap::new(),
        };
        let Some(open) = &self.open else {
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
        let next = begin(open.until);
        let Some(open) = self.open.replace(next) else { return false };
        if self.days.last().is_none_or(|day| open.from.duration_since(day.from) >= DAY) {
            self.days.push(Day { from: open.from, seen: 0, stretches: 0, by_type: BTreeMap::new() });
        }
        if let Some(day) = self.days.last_mut() {
            day.seen = day.seen.saturating_add(length.as_secs());
            day.stretches = day.stretches.saturating_add(1);
            for (of, arrived) in open.arrived {
                *day.by_type.entry(of).or_default().entry(arrived).or_default() += 1;
            }
        }
        // A day is forgotten when its end is too old: what is left is never less than the window.
        self.days.retain(|day| now.duration_since(day.from) < window + DAY);
        true
    }

    /// When [`Self::move_on`] has something to add.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.open.as_ref().map(|open| open.until)
    }

    /// Counts a node that was asked for or taken now.
    pub fn add(&mut self, instance_type: &InstanceType) {
        if let Some(open) = &mut self.open {
            *open.arrived.entry(instance_type.clone()).or_default() += 1;
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

    /// Of each instance type the fewest nodes that would have been enough for such a share of all times, where that is more than none;
    /// `None` as long as less than a day was seen.
    pub fn quantile(&self, share: impl Fn(&InstanceType) -> Share) -> Option<BTreeMap<InstanceType, u32>> {
        let seen: i64 = self.days.iter().map(|day| day.seen).sum();
        if seen < SHORTEST_WINDOW.as_secs() {
            return None;
        }
        let mut all: BTreeMap<&InstanceType, BTreeMap<u32, u128>> = BTreeMap::new();
        for (of, counts) in self.days.iter().flat_map(|day| &day.by_type) {
            for (arrived, stretches) in counts {
                *all.entry(of).or_default().entry(*arrived).or_default() += u128::from(*stretches);
            }
        }
        let total: u128 = self.days.iter().map(|day| u128::from(day.stretches)).sum();
        let nodes = |(of, counts): (&InstanceType, BTreeMap<u32, u128>)| {
            let Share { part, whole } = share(of);
            let mut enough = total - counts.values().sum::<u128>();
            let too_few = |enough: u128| enough * whole < part * total;
            let mut nodes = 0;
            for (arrived, stretches) in counts {
                if too_few(enough) {
                    nodes = arrived;
                    enough += stretches;
                }
            }
            (nodes > 0).then(|| (of.clone(), nodes))
        };
        Some(all.into_iter().filter_map(nodes).collect())
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

    fn shape() -> InstanceType {
        InstanceType::new("g4dn.xlarge").unwrap()
    }

    /// What the quantile is of that shape.
    fn of_shape(arrivals: &Arrivals, share: Share) -> Option<u32> {
        arrivals.quantile(|_| share).map(|of| of.get(&shape()).copied().unwrap_or(0))
    }

    /// One stretch after the other with so many arrivals.
    fn after(counts: &[u32]) -> (Arrivals, Timestamp) {
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, WINDOW);
        for count in counts {
            (0..*count).for_each(|_| arrivals.add(&shape()));
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
        let wanted = |waiting, price| of_shape(&arrivals, Share::that_costs_least(usd(waiting), usd(price))).unwrap();
        // $2 against $0.80: 2 ÷ 2.8 = 71.4 %; 140 of 200 are 70 %, 180 are 90 %: one node.
        assert_eq!(wanted(2_000_000, 800_000), 1);
        // $2 against $0.90: 69.0 %: none is enough.
        assert_eq!(wanted(2_000_000, 900_000), 0);
        // $10 against $0.80: 92.6 %: 195 of 200 are 97.5 %: two.
        assert_eq!(wanted(10_000_000, 800_000), 2);
        // What costs nothing is kept for the worst that came; what nobody waits for is not kept.
        assert_eq!([wanted(2_000_000, 0), wanted(0, 800_000), wanted(0, 0)], [4, 0, 0]);
        assert_eq!(of_shape(&arrivals, Share::of(Percent(90))), Some(1));
        assert_eq!(of_shape(&arrivals, Share::of(Percent(91))), Some(2));
    }

    #[test]
    fn each_instance_type_is_counted_and_priced_for_itself() {
        let (small, large) = (shape(), InstanceType::new("p4d.24xlarge").unwrap());
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, WINDOW);
        // A small one in three of four stretches, and a large one in every second.
        for n in 0..200 {
            if n % 4 < 3 {
                arrivals.add(&small);
            }
            if n % 2 == 0 {
                arrivals.add(&large);
            }
            now += HORIZON;
            arrivals.move_on(now, HORIZON, WINDOW);
        }
        // Waiting at $2: idling at $0.526 makes 79 %, at $4.10 33 %.
        let price = |of: &InstanceType| UsdPerHour(if *of == small { 526_000 } else { 4_100_000 });
        let found = arrivals.quantile(|of| Share::that_costs_least(UsdPerHour(2_000_000), price(of))).unwrap();
        assert_eq!(found, [(small.clone(), 1)].into());
        assert_eq!(arrivals.quantile(|_| Share::of(Percent(60))).unwrap(), [(small, 1), (large, 1)].into());
    }

    #[test]
    fn nothing_is_known_before_a_day_was_seen() {
        // 144 stretches of ten minutes are a day.
        assert_eq!(of_shape(&after(&[3; 143]).0, Share::of(Percent(95))), None);
        assert_eq!(of_shape(&after(&[3; 144]).0, Share::of(Percent(95))), Some(3));
    }

    #[test]
    fn a_window_of_one_day_is_known_on_the_second_and_on_the_third() {
        let mut arrivals = Arrivals::default();
        let mut now = start();
        arrivals.move_on(now, HORIZON, DAY);
        for n in 1..=3 * 144 {
            (0..3).for_each(|_| arrivals.add(&shape()));
            now += HORIZON;
            arrivals.move_on(now, HORIZON, DAY);
            assert_eq!(of_shape(&arrivals, Share::of(Percent(95))), (n >= 144).then_some(3), "{n}");
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
            (0..if n < 144 { 5 } else { 0 }).for_each(|_| arrivals.add(&shape()));
            now += HORIZON;
            arrivals.move_on(now, HORIZON, day * 2);
        }
        assert_eq!(of_shape(&arrivals, Share::of(Percent(99))), Some(0));
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
            let found = of_shape(&arrivals, Share::that_costs_least(UsdPerHour(waiting), UsdPerHour(price)));
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
            let found = of_shape(&arrivals, Share::that_costs_least(UsdPerHour(waiting), UsdPerHour(price))).unwrap();
            for other in 0..9 {
                prop_assert!(cost(found) <= cost(other), "{} costs {}, {} costs {}", found, cost(found), other, cost(other));
            }
        }
    }
}
