//! How long things take.

use std::time::Duration;

/// Times of one thing done again and again.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// One more.
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time that so many thousandths of all stay within, in milliseconds; nought where there are none.
    pub(crate) fn within(&self, permille: usize) -> f64 {
        let mut times = self.0.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        times.get((times.len() * permille / 1000).min(last)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// The median in milliseconds.
    pub(crate) fn p50(&self) -> f64 {
        self.within(500)
    }

    /// What 99 of 100 stay within, in milliseconds.
    pub(crate) fn p99(&self) -> f64 {
        self.within(990)
    }
}
