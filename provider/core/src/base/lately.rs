//! Whether something was done a moment ago, by a clock that may be set back.

use jiff::{SignedDuration, Timestamp};

/// Whether `at` lies less than `length` before `now`. What was done later than now was done before a clock was set back: it is done again,
/// rather than not until the clock is there again.
pub fn was_lately(at: Timestamp, length: SignedDuration, now: Timestamp) -> bool {
    (SignedDuration::ZERO..length).contains(&now.duration_since(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_future_was_not_lately() {
        let (now, length) = (Timestamp::UNIX_EPOCH, SignedDuration::from_secs(5));
        let was = |seconds| was_lately(now + SignedDuration::from_secs(seconds), length, now);
        assert_eq!([-5, -4, 0, 1].map(was), [false, true, true, false]);
    }
}
