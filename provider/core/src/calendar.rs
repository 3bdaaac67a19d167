//! Times of the week by the clock of a place: slots of schedules, and a pool's off-hours.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// A time that comes again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// When it begins: a cron expression of five fields.
    pub cron: String,
    /// By the clock of this IANA time zone.
    pub time_zone: String,
    /// How long it lasts, by the same clock.
    pub length: SignedDuration,
}

/// When a pool is not worked with, and what becomes of its nodes then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OffHours {
    /// When; never empty.
    pub slots: Vec<Slot>,
    /// Nodes not exceeded then; `None` where that stays as it is. Idle nodes go first, busy ones never.
    pub max_nodes: Option<u32>,
    /// How long after it was announced the pods of a held node are told to go; `None` where they never are.
    pub evict_held_after: Option<SignedDuration>,
}

impl OffHours {
    /// Whether it is on, and when that changes next; `None` where it never does.
    pub fn at(&self, _now: Timestamp) -> (bool, Option<Timestamp>) {
        (false, None)
    }
}
