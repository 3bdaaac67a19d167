//! Pace of calls: how many a second a supplier takes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Longest time between two calls: a launch has a boot deadline of minutes.
const SLOWEST: Duration = Duration::from_mins(1);

/// How many calls a second a supplier takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    every: Duration,
    burst: u32,
}

impl Pace {
    /// So many calls a second, and so many at once after a pause, at least one. `None` where that is no rate. No pace is slower than a call
    /// a minute.
    pub fn per_second(calls: f64, burst: u32) -> Option<Self> {
        let is_rate = calls.is_finite() && calls > 0.0;
        let every = is_rate.then(|| Duration::try_from_secs_f64(calls.recip()).unwrap_or(SLOWEST).min(SLOWEST))?;
        Some(Self { every, burst: burst.max(1) })
    }

    /// Calls a second.
    pub fn calls_per_second(self) -> f64 {
        self.every.as_secs_f64().recip()
    }

    /// Calls at once after a pause.
    pub const fn burst(self) -> u32 {
        self.burst
    }
}

/// Turns of calls, one after the other at a pace.
#[derive(Debug, Default)]
pub struct Turns {
    /// When the calls so far are paid for; `None` before the first.
    paid_at: Mutex<Option<Instant>>,
}

impl Turns {
    /// Takes the next turn; when it is.
    fn take(&self, pace: Pace) -> Instant {
        let now = Instant::now();
        // Plain data that each holder leaves whole.
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        let from = paid_at.map_or(now, |paid_at| paid_at.max(now));
        *paid_at = Some(from + pace.every);
        let ahead = pace.every.saturating_mul(pace.burst - 1);
        from.checked_sub(ahead).map_or(now, |at| at.max(now))
    }

    /// Waits for the next turn at that pace, where there is one; for how long.
    pub async fn wait(&self, pace: Option<Pace>) -> Duration {
        let Some(pace) = pace else { return Duration::ZERO };
        let asked_at = Instant::now();
        let turn = self.take(pace);
        if turn > asked_at {
            sleep_until(turn).await;
        }
        asked_at.elapsed()
    }

    /// How long the next turn at that pace would be waited for.
    pub fn until_next(&self, pace: Option<Pace>) -> Duration {
        let paid_at = *self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(pace), Some(paid_at)) = (pace, paid_at) else { return Duration::ZERO };
        let ahead = pace.every.saturating_mul(pace.burst - 1);
        paid_at.saturating_duration_since(Instant::now()).saturating_sub(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of these calls has its turn, in milliseconds.
    async fn turns(pace: Pace, calls: usize) -> Vec<u128> {
        let (turns, begun) = (Turns::default(), Instant::now());
        let mut at = Vec::new();
        for _ in 0..calls {
            turns.wait(Some(pace)).await;
            at.push(begun.elapsed().as_millis());
        }
        at
    }

    #[tokio::test(start_paused = true)]
    async fn calls_have_their_turn_at_the_pace_after_a_burst() {
        assert_eq!(turns(Pace::per_second(2.0, 0).unwrap(), 4).await, [0, 500, 1000, 1500]);
        assert_eq!(turns(Pace::per_second(2.0, 3).unwrap(), 5).await, [0, 0, 0, 500, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_earns_no_more_than_the_burst() {
        let (turns, pace) = (Turns::default(), Pace::per_second(2.0, 2));
        turns.wait(pace).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((turns.wait(pace).await, turns.wait(pace).await), (Duration::ZERO, Duration::ZERO));
        assert_eq!(turns.until_next(pace), Duration::from_millis(500));
        assert_eq!(turns.wait(pace).await, Duration::from_millis(500));
        assert_eq!(turns.wait(None).await, Duration::ZERO);
    }

    #[test]
    fn what_is_no_rate_is_no_pace() {
        for calls in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Pace::per_second(calls, 1), None, "{calls}");
        }
        assert_eq!(Pace::per_second(1e-300, 1).unwrap().every, SLOWEST);
    }
}
