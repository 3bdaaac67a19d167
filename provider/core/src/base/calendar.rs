//! Calendar: schedule slots and off-hours, as times of the week in a time zone.
//!
//! A cron expression is stepped through on the wall calendar, which has no daylight saving. The
//! zone's rules then place each time on the time line. A time that a clock change skips falls on
//! the moment of the change. A time that occurs twice counts the first time. So every slot of the
//! calendar occurs once, and never ends before it begins.
//!
//! Zone rules come from a bundled database, never from the machine: the same inputs decide the same
//! everywhere.

mod cron;
#[cfg(test)]
mod tests;
mod zone;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use cron::{Cron, CronError};
pub use zone::{Zone, ZoneError};

/// So many starts in a row may come before the slot before them is over, and still count as one stretch. A working week of days that run
/// into each other has five; an expression that starts every few minutes has no end that could be looked for.
const RUNS_TOGETHER: usize = 32;

/// A time that comes again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// When it begins.
    pub cron: Cron,
    /// By the clock of this place.
    pub time_zone: Zone,
    /// How long it lasts, by the same clock.
    pub length: SignedDuration,
}

impl Slot {
    /// Whether it is on, and when that changes next. `None` where that is not within four years. Slots that run into each other are one
    /// stretch; of more than 32 in a row the end of the last is given, which is no later than the change.
    pub fn at(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        match self.on_until(now) {
            Some(end) => (true, Some(end)),
            None => (false, self.next_start(now)),
        }
    }

    /// When it is over, where it is on.
    fn on_until(&self, now: Timestamp) -> Option<Timestamp> {
        run_together(now, |at| self.end_of_one_on(at))
    }

    /// Whether its starts run into each other for longer than can be followed.
    pub fn is_endless(&self, from: Timestamp) -> bool {
        let start = if self.end_of_one_on(from).is_some() { Some(from) } else { self.next_start(from) };
        start.and_then(|start| self.on_until(start)).is_some_and(|end| self.end_of_one_on(end).is_some())
    }

    /// When the slot ends that is on at `now`; the first to end of several.
    fn end_of_one_on(&self, now: Timestamp) -> Option<Timestamp> {
        // What began so long before by the clock on the wall is over: ends come in the order of starts.
        let mut start = self.time_zone.clock(now).checked_sub(self.length).ok()?;
        loop {
            start = self.cron.after(start)?;
            if self.time_zone.moment(start)? > now {
                return None;
            }
            let end = self.end(start)?;
            if end > now {
                return Some(end);
            }
        }
    }

    /// When the next slot begins after `now`.
    fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let mut start = self.time_zone.clock(now);
        loop {
            start = self.cron.after(start)?;
            let moment = self.time_zone.moment(start)?;
            // Past are those that the clocks show for the second time; empty are those that they skip.
            if moment > now && self.end(start)? > moment {
                return Some(moment);
            }
        }
    }

    fn end(&self, start: DateTime) -> Option<Timestamp> {
        self.time_zone.moment(start.checked_add(self.length).ok()?)
    }
}

/// Times at which a pool is not used, and what happens to its nodes then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OffHours {
    /// When; never empty.
    pub slots: Vec<Slot>,
    /// Nodes not exceeded then; `None` where that stays as it is. Free nodes go first, busy ones never.
    pub max_nodes: Option<u32>,
    /// How long after it was announced the pods of a held node are told to go; `None` where they never are.
    pub evict_held_after: Option<SignedDuration>,
}

impl OffHours {
    /// Whether it is on, and when that changes next; `None` where that is not within four years.
    pub fn at(&self, now: Timestamp) -> (bool, Option<Timestamp>) {
        on_at(&self.slots, now)
    }
}

/// Whether one of the slots is on, and when that changes next; `None` where that is not within four years.
pub fn on_at(slots: &[Slot], now: Timestamp) -> (bool, Option<Timestamp>) {
    match run_together(now, |at| slots.iter().filter_map(|slot| slot.on_until(at)).max()) {
        Some(end) => (true, Some(end)),
        None => (false, slots.iter().filter_map(|slot| slot.next_start(now)).min()),
    }
}

/// The end of what is on at `now`, and of what is on when that ends, and so forth.
fn run_together(now: Timestamp, end_of_what_is_on: impl Fn(Timestamp) -> Option<Timestamp>) -> Option<Timestamp> {
    let mut end = end_of_what_is_on(now)?;
    for _ in 1..RUNS_TOGETHER {
        match end_of_what_is_on(end) {
            Some(later) => end = later,
            None => break,
        }
    }
    Some(end)
}
