//! From when on operators want to be told, in one place.

use jiff::SignedDuration;
use stoker_core::base::units::Percent;
use stoker_core::market::price::OLD_LIST_PRICE;

/// From when on operators are told. The defaults are what practice with cloud bills and the cards' data sheets suggest; none is a rule of Stoker's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// A GPU is idle below this utilization.
    pub idle_below: Percent,
    /// A GPU that is idle for so long is told of.
    pub idle_for: SignedDuration,
    /// A pool's GPUs are underused below this utilization.
    pub low: Percent,
    /// For so long.
    pub low_for: SignedDuration,
    /// The same for the mean of a day: less, as nights are in it.
    pub low_day: Percent,
    /// A pool has too little room for a burst above this utilization: it should grow before.
    pub busy: Percent,
    /// A pool's GPUs are saturated above this utilization.
    pub high: Percent,
    /// For so long.
    pub high_for: SignedDuration,
    /// A GPU's memory is nearly full above this share.
    pub memory: Percent,
    /// A GPU is hot above so many degrees Celsius: data-centre cards slow down from 83 to 87 on.
    pub hot_celsius: u8,
    /// A GPU draws nearly all it may above this share of its enforced power limit.
    pub power: Percent,
    /// A busy GPU works little below this share of its enforced power limit: an A100 of 400 W that draws less than 240.
    pub power_low: Percent,
    /// Training leaves multiprocessors idle below this share of them at work.
    pub training_sm: Percent,
    /// The largest share of a day's GPU-hours that may be idle.
    pub idle_hours: Percent,
    /// The least share of training's GPUs that should be spot.
    pub training_spot: Percent,
    /// By how many percent a busy GPU-hour may get dearer in a week: several hundred where a week is like no other.
    pub unit_cost_rise: u16,
    /// How much of a quota may be used.
    pub quota: Percent,
    /// How much of a budget the last day may have spent.
    pub pace: Percent,
    /// How old a list price may be.
    pub price_age: SignedDuration,
    /// How long a node may send no reading.
    pub silent_for: SignedDuration,
    /// How long a floor may be unmet: longer than a boot takes.
    pub floor_for: SignedDuration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            idle_below: Percent(5),
            idle_for: SignedDuration::from_mins(30),
            low: Percent(40),
            low_for: SignedDuration::from_mins(30),
            low_day: Percent(30),
            busy: Percent(85),
            high: Percent(95),
            high_for: SignedDuration::from_hours(1),
            memory: Percent(85),
            hot_celsius: 83,
            power: Percent(90),
            power_low: Percent(60),
            training_sm: Percent(50),
            idle_hours: Percent(20),
            training_spot: Percent(30),
            unit_cost_rise: 20,
            quota: Percent(90),
            pace: Percent(80),
            price_age: OLD_LIST_PRICE,
            silent_for: SignedDuration::from_mins(10),
            floor_for: SignedDuration::from_mins(15),
        }
    }
}

/// A length of time as Prometheus writes it, in the largest unit that leaves no rest; below a second it is nought.
pub fn promql_time(length: SignedDuration) -> String {
    let seconds = length.as_secs().max(0);
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds >= *unit && seconds % unit == 0);
    whole.map_or_else(|| format!("{seconds}s"), |(unit, letter)| format!("{}{letter}", seconds / unit))
}
