//! Time as an input: the machine's clock, or one that a test or the demo moves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// Where "now" comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that stands still until it is moved.
    Virtual(Arc<VirtualClock>),
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct VirtualClock {
    now: watch::Sender<Timestamp>,
}

impl VirtualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(start) })
    }

    /// Moves the clock forward to `at`; never back.
    pub fn advance_to(&self, at: Timestamp) {
        self.now.send_if_modified(|now| {
            let forward = at > *now;
            *now = (*now).max(at);
            forward
        });
    }
}

impl Clock {
    /// The time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual(clock) => *clock.now.borrow(),
        }
    }

    /// Waits that long.
    pub async fn sleep(&self, wait: SignedDuration) {
        self.sleep_until(self.now().saturating_add(wait).unwrap_or(Timestamp::MAX)).await;
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Timestamp) {
        match self {
            Self::System => {
                let wait = at.duration_since(Timestamp::now());
                tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
            }
            Self::Virtual(clock) => {
                let mut now = clock.now.subscribe();
                // The sender lives as long as this clock, which the caller holds.
                let _ = now.wait_for(|now| *now >= at).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_virtual_clock_moves_only_forward_and_wakes_sleepers() {
        let start = Timestamp::UNIX_EPOCH;
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let moved = VirtualClock::new(start);
        let clock = Clock::Virtual(Arc::clone(&moved));
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(at(10)).await }
        });
        moved.advance_to(at(5));
        moved.advance_to(at(3));
        assert_eq!(clock.now(), at(5));
        moved.advance_to(at(10));
        sleeper.await.unwrap();
    }
}
