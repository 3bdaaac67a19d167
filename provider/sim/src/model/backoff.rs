//! How long a group that failed is left alone.

use jiff::{SignedDuration, Timestamp};

use super::by_group::{ByGroup, Slot};
use super::settings::Settings;
use super::time::after;

#[derive(Debug, Clone)]
struct Entry {
    duration: SignedDuration,
    until: Timestamp,
    failed_at: Timestamp,
}

/// Backoff by group. Nothing but time ends one.
#[derive(Debug, Clone, Default)]
pub(super) struct Backoff {
    entries: ByGroup<Entry>,
}

impl Backoff {
    /// Notes a failure; answers until when the group is left alone. A failure while it already is does not lengthen the wait;
    /// one after it doubles it.
    pub(super) fn fail(&mut self, group: Slot, settings: &Settings, now: Timestamp) -> Timestamp {
        let duration = match self.entries.get(group) {
            None => settings.initial_backoff,
            Some(entry) if now < entry.until => entry.duration,
            Some(entry) => (entry.duration * 2).min(settings.max_backoff),
        };
        let until = after(now, duration);
        self.entries.insert(group, Entry { duration, until, failed_at: now });
        until
    }

    /// Until when the group is left alone; `None` where it is not.
    pub(super) fn until(&self, group: Slot, now: Timestamp) -> Option<Timestamp> {
        self.entries.get(group).map(|entry| entry.until).filter(|until| now < *until)
    }

    /// Forgets failures that are long past.
    pub(super) fn forget_stale(&mut self, settings: &Settings, now: Timestamp) {
        self.entries.retain(|_, entry| now < after(entry.failed_at, settings.backoff_reset));
    }

    /// When each wait ends.
    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.entries.values().map(|entry| entry.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Generation;

    const A: Slot = Slot::new(0);

    #[test]
    fn waits_double_to_half_an_hour_and_are_forgotten_after_three() {
        let settings = Settings::new(Generation::V1_36);
        let mut backoff = Backoff::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let until = backoff.fail(A, &settings, now);
            waits.push(until.duration_since(now).as_mins());
            now = until;
        }
        assert_eq!(waits, [5, 10, 20, 30, 30]);
        assert_eq!(backoff.until(A, now), None);
        backoff.forget_stale(&settings, after(now, SignedDuration::from_hours(3)));
        assert_eq!(backoff.fail(A, &settings, now).duration_since(now).as_mins(), 5);
    }

    #[test]
    fn a_failure_during_the_wait_does_not_lengthen_the_step() {
        let settings = Settings::new(Generation::V1_36);
        let mut backoff = Backoff::default();
        let start = Timestamp::UNIX_EPOCH;
        backoff.fail(A, &settings, start);
        let minute = after(start, SignedDuration::from_mins(1));
        assert_eq!(backoff.fail(A, &settings, minute).duration_since(minute).as_mins(), 5);
    }
}
