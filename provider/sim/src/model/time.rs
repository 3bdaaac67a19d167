//! Small arithmetic on time and counts.

use jiff::{SignedDuration, Timestamp};

/// That much later; the end of time where it would be beyond.
pub(super) fn after(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// A count as the wire carries it.
pub(super) fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
