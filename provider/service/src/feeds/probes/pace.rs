//! How fast one node's probe may send.

use std::time::Duration;

use tokio::time::Instant;

/// Messages of a period in the long run: a round, an answer, and some events.
const EACH_PERIOD: u32 = 4;

/// Messages that may come at once: all that a probe keeps while the provider is away, 128 rounds and 1,088 events, and as much again for
/// what a stream that breaks sends twice.
const AT_ONCE: u32 = 2_048;

/// How fast one node's probe may send, over all its streams: so many messages at once, and then so many a period. It is a bucket that leaks,
/// as one moment: when it will be empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    each: Duration,
    empty_at: Instant,
}

impl Pace {
    /// Of a probe that sends a round each `period`; what it sent before in `known` still counts.
    pub(super) fn of(period: Duration, known: Option<Self>) -> Self {
        Self { each: period / EACH_PERIOD, empty_at: known.map_or_else(Instant::now, |known| known.empty_at) }
    }

    /// Counts a message; the moment until which no other is to be read, where there were too many.
    pub(super) fn message(&mut self, now: Instant) -> Option<Instant> {
        self.empty_at = self.empty_at.max(now) + self.each;
        let full = self.each * AT_ONCE;
        (self.empty_at.duration_since(now) > full).then(|| self.empty_at - full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_probe_may_send_what_it_kept_at_once_and_then_four_messages_a_period() {
        let mut pace = Pace::of(Duration::from_secs(5), None);
        let begun = Instant::now();
        assert!((0..2_048).all(|_| pace.message(begun).is_none()));
        // One more than may come at once is read when a quarter of a period is over.
        let waits = |pace: &mut Pace| pace.message(begun).map(|until| until.duration_since(begun).as_millis());
        assert_eq!([waits(&mut pace), waits(&mut pace)], [Some(1_250), Some(2_500)]);
        // A new stream is the same probe.
        let mut again = Pace::of(Duration::from_secs(5), Some(pace));
        assert_eq!(waits(&mut again), Some(3_750));
        // Four a period for an hour: nobody waits.
        let mut steady = Pace::of(Duration::from_secs(5), Some(pace));
        tokio::time::advance(Duration::from_hours(1)).await;
        for _ in 0..2_880 {
            tokio::time::advance(Duration::from_millis(1_250)).await;
            assert_eq!(steady.message(Instant::now()), None);
        }
    }
}
