//! For how long off-hours are on at a time.

use jiff::{SignedDuration, Timestamp};

use crate::base::calendar::{OffHours, Slot};

/// Schedules are looked at from here on: rules of the calendar are alike in every year, and a policy is right or wrong whenever it is read.
pub(super) const REFERENCE: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// For so long: what does not come within a year of days hardly comes.
pub(super) const YEAR: SignedDuration = SignedDuration::from_hours(366 * 24);
/// So many changes of schedules are looked at: more than a year of days has.
pub(super) const CHANGES: usize = 1_500;

/// Slots that cover every hour have begun by then: a slot lasts a month at most.
const BEGUN_BY: SignedDuration = SignedDuration::from_hours(32 * 24);

/// A time for which off-hours are on, whatever slots make it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// When it begins.
    from: Timestamp,
    /// When it is over; past the year where it is not.
    until: Timestamp,
}

impl Stretch {
    fn is_endless(&self) -> bool {
        self.until.duration_since(REFERENCE) >= YEAR
    }
}

/// Whether the slots follow each other without end.
pub(in crate::policy) fn cover_every_hour(off: &OffHours) -> bool {
    stretches(off).take_while(|stretch| stretch.from.duration_since(REFERENCE) < BEGUN_BY).any(|stretch| stretch.is_endless())
}

/// Whether `by` is on whenever `slot` is.
pub(in crate::policy) fn covers(by: &Slot, slot: &Slot) -> bool {
    let mut now = REFERENCE;
    for _ in 0..CHANGES {
        let ((on, next), (by_on, by_next)) = (slot.at(now), by.at(now));
        if on && !by_on {
            return false;
        }
        match next.into_iter().chain(by_next).min().filter(|next| next.duration_since(REFERENCE) < YEAR) {
            Some(next) => now = next,
            None => return true,
        }
    }
    // Too many changes to look at all of them.
    false
}

/// The stretches of a year, in their order.
fn stretches(off: &OffHours) -> impl Iterator<Item = Stretch> {
    let mut now = Some(REFERENCE);
    let next = move || {
        let (on, next) = off.at(now?);
        let from = if on { now? } else { next? };
        let mut until = from;
        for _ in 0..CHANGES {
            match off.at(until) {
                (true, Some(later)) if until.duration_since(REFERENCE) < YEAR => until = later,
                _ => break,
            }
        }
        now = Some(until);
        Some(Stretch { from, until })
    };
    let within = |stretch: &Stretch| stretch.from.duration_since(REFERENCE) < YEAR;
    std::iter::from_fn(next).take(CHANGES).take_while(within)
}

/// How long off-hours are on around a start of one of their slots: as long as the slot, or longer where others join it.
pub(in crate::policy) fn length_around(off: &OffHours, slot: &Slot) -> SignedDuration {
    // Of what is on already when the looking begins, the beginning is not seen.
    let cut = stretches(off).next().filter(|first| first.from == REFERENCE && !first.is_endless());
    let from = cut.map_or(REFERENCE, |cut| cut.until);
    let start = match slot.at(from) {
        (false, start) => start,
        (true, end) => end.and_then(|end| slot.at(end).1).or(Some(from)),
    };
    let around = start.and_then(|start| stretches(off).find(|stretch| stretch.from <= start && start < stretch.until));
    around.map_or(slot.length, |stretch| stretch.until.duration_since(stretch.from).max(slot.length))
}
