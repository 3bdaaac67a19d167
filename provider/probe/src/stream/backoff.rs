//! How long to wait before the next try.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Waits that double, each drawn evenly from nought to that long: when a provider restarts, all of its probes are back within seconds
/// and no two at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Default for Backoff {
    /// From 4 s, over which 5,000 handshakes are no burden, to 30 s: two periods more than a node may be silent anyway.
    fn default() -> Self {
        Self::new(Duration::from_secs(4), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Waits from at most `first` to at most `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// A stream stood, and was of use.
    pub(super) const fn stood(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now, after one more failure.
    pub(super) fn next_wait(&mut self) -> Duration {
        let longest = self.longest();
        self.failures = self.failures.saturating_add(1);
        // Each state of the standard library's hasher has keys of its own, drawn at random.
        let drawn = u32::try_from(RandomState::new().hash_one(self.failures) >> 32).unwrap_or(u32::MAX);
        longest.mul_f64(f64::from(drawn) / (f64::from(u32::MAX) + 1.0))
    }

    fn longest(&self) -> Duration {
        self.first.saturating_mul(1 << self.failures.min(16)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_anew_once_a_stream_stood() {
        let mut backoff = Backoff::default();
        let longest: Vec<u64> = (0..5)
            .map(|_| {
                let longest = backoff.longest();
                assert!(backoff.next_wait() < longest);
                longest.as_secs()
            })
            .collect();
        assert_eq!(longest, [4, 8, 16, 30, 30]);
        (0..100_000).for_each(|_| backoff.failures = backoff.failures.saturating_add(1_000_000));
        assert_eq!(backoff.longest().as_secs(), 30);
        backoff.stood();
        assert_eq!(backoff.longest().as_secs(), 4);
    }

    #[test]
    fn probes_do_not_come_back_together() {
        let waits: Vec<Duration> = (0..1000).map(|_| Backoff::default().next_wait()).collect();
        // Of 1000 draws over 4 s some 250 fall in each second; fewer than 150 happens to nobody.
        for second in 0..4 {
            let within = waits.iter().filter(|wait| wait.as_secs() == second).count();
            assert!(within > 150, "{within} in second {second}");
        }
    }
}
