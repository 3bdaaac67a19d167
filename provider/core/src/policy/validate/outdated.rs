//! How outdated nodes are replaced.

use jiff::SignedDuration;

use super::Faults;
use super::calendar::Reader;
use crate::base::calendar::Zone;
use crate::base::text::read_length;
use crate::policy::rules::outdated::OutdatedRules;
use crate::policy::{Path, RawPool};

/// Shortest deadline: below it a new image would empty a pool within the hour.
const SHORTEST: SignedDuration = SignedDuration::from_hours(1);
/// Longest deadline: a Kubernetes version is supported for about a year, and its images are mended every few weeks.
const LONGEST: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Reads `outdated`.
pub(super) fn rules(faults: &mut Faults, path: &Path, raw: &RawPool, zone: &Zone) -> Option<OutdatedRules> {
    let Some(outdated) = &raw.outdated else { return Some(OutdatedRules::default()) };
    let path = path.key("outdated");
    let (schedule, field) = (path.key("maintenance"), path.key("deadline"));
    let paused = outdated.paused.unwrap_or(false);
    let mut reader = Reader::of_maintenance(zone);
    let maintenance: Option<Vec<_>> = outdated
        .maintenance
        .iter()
        .enumerate()
        .map(|(at, slot)| reader.slot(faults, &schedule.index(at), &slot.cron, slot.time_zone.as_deref(), &slot.length))
        .collect::<Vec<_>>()
        .into_iter()
        .collect();
    let deadline = match outdated.deadline.as_deref() {
        None => Some(None),
        Some(text) => {
            let length = faults.keep(&field, read_length(text));
            if length.is_some_and(|length| length < SHORTEST) {
                faults.add(&field, format!("{text} is below 1h: raise it, a new image would empty the pool at once"));
            } else if length.is_some_and(|length| length > LONGEST) {
                faults.add(&field, format!("{text} is above 90d: lower it, or remove it to leave nodes with pods alone"));
            }
            length.map(Some)
        }
    };
    Some(OutdatedRules { maintenance: maintenance?, deadline: deadline?, paused })
}
