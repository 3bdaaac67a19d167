//! How outdated nodes are replaced.

use jiff::SignedDuration;

use super::Faults;
use super::calendar::Reader;
use crate::base::calendar::Zone;
use crate::base::text::read_length;
use crate::policy::rules::outdated::OutdatedRules;
use crate::policy::{Path, RawPool};

/// Shortest deadline and life: below it a new image would empty a pool within the hour, and a node would boot for much of its life.
const SHORTEST: SignedDuration = SignedDuration::from_hours(1);
/// Longest deadline: a Kubernetes version is supported for about a year, and its images are mended every few weeks.
const LONGEST: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Longest life: no node class or Kubernetes version is older.
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Reads `outdated`.
pub(super) fn rules(faults: &mut Faults, path: &Path, raw: &RawPool, zone: &Zone) -> Option<OutdatedRules> {
    let Some(outdated) = &raw.outdated else { return Some(OutdatedRules::default()) };
    let path = path.key("outdated");
    let schedule = path.key("maintenance");
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
    let mut length = |key: &str, text: Option<&str>, longest: SignedDuration, (too_short, too_long): (&str, &str)| {
        let Some(text) = text else { return Some(None) };
        let field = path.key(key);
        let length = faults.keep(&field, read_length(text))?;
        if length < SHORTEST {
            faults.add(&field, format!("{text} is below 1h: raise it, {too_short}"));
        } else if length > longest {
            faults.add(&field, format!("{text} is above {}d: lower it, or remove it to {too_long}", longest.as_hours() / 24));
        }
        Some(Some(length))
    };
    let deadline = length(
        "deadline",
        outdated.deadline.as_deref(),
        LONGEST,
        ("a new image would empty the pool at once", "leave nodes with pods alone"),
    );
    let max_node_life = length(
        "maxNodeLife",
        outdated.max_node_life.as_deref(),
        LONGEST_LIFE,
        ("a node would be too old soon after it is ready", "let nodes grow as old as they like"),
    );
    Some(OutdatedRules { maintenance: maintenance?, deadline: deadline?, max_node_life: max_node_life?, paused })
}
