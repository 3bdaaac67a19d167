//! Seconds by level, in buckets that merge exactly.

use stoker_core::facts::reading::Permille;

/// A bucket is one hundredth wide, and the lowest holds zero alone: NVML tells utilization in whole hundredths, so its quantiles are
/// exact. A level between two hundredths counts as the upper one: a quantile is never too low, and too high by less than 10 thousandths.
const WIDTH: u16 = 10;

/// Buckets: 0, (0, 10], (10, 20], … (990, 1000] thousandths.
const BUCKETS: usize = 101;

/// Seconds by level, of an hour: only the buckets that hold any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket and seconds, lowest first.
    pub(super) buckets: Vec<(u8, u32)>,
    /// The highest sample, not rounded; `None` where none was known.
    pub(super) peak: Option<Permille>,
}

impl Histogram {
    /// Adds a level that held for so many seconds.
    pub fn add(&mut self, level: Permille, seconds: u32) {
        self.peak = self.peak.max(Some(level));
        if seconds == 0 {
            return;
        }
        // At most 100, since a share is at most 1000 thousandths.
        let bucket = u8::try_from(level.get().div_ceil(WIDTH)).unwrap_or(u8::MAX);
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => {
                if let Some((_, held)) = self.buckets.get_mut(at) {
                    *held = held.saturating_add(seconds);
                }
            }
            Err(at) => self.buckets.insert(at, (bucket, seconds)),
        }
    }

    /// Seconds of which the level is known.
    pub fn known(&self) -> u64 {
        self.buckets.iter().map(|(_, seconds)| u64::from(*seconds)).sum()
    }

    /// The levels of those seconds, in thousandths × seconds: each level as that of its bucket.
    pub fn level_seconds(&self) -> u64 {
        self.buckets.iter().map(|(bucket, seconds)| u64::from(*bucket) * u64::from(WIDTH) * u64::from(*seconds)).sum()
    }
}

/// Seconds by level, of any number of hours and GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    seconds: [u64; BUCKETS],
    peak: Option<Permille>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { seconds: [0; BUCKETS], peak: None }
    }
}

impl Distribution {
    /// Adds an hour; exact, in any order.
    pub fn add(&mut self, hour: &Histogram) {
        for (bucket, seconds) in &hour.buckets {
            if let Some(held) = self.seconds.get_mut(usize::from(*bucket)) {
                *held += u64::from(*seconds);
            }
        }
        self.peak = self.peak.max(hour.peak);
    }

    /// Adds another distribution; exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        for (held, seconds) in self.seconds.iter_mut().zip(other.seconds) {
            *held += seconds;
        }
        self.peak = self.peak.max(other.peak);
    }

    /// Seconds of which the level is known.
    pub fn known(&self) -> u64 {
        self.seconds.iter().sum()
    }

    /// The level that was not exceeded in this share of the known time, rounded up to a whole hundredth and never above the peak; `None`
    /// where nothing is known.
    pub fn quantile(&self, percent: u8) -> Option<Permille> {
        let known = self.known();
        let rank = (u128::from(known) * u128::from(percent.min(100))).div_ceil(100);
        let mut below = 0;
        for (bucket, seconds) in (0_u16..).zip(self.seconds) {
            below += u128::from(seconds);
            if seconds > 0 && below >= rank {
                return Permille::new((bucket * WIDTH).min(1000)).min(self.peak);
            }
        }
        None
    }

    /// The highest sample, not rounded.
    pub const fn peak(&self) -> Option<Permille> {
        self.peak
    }
}
