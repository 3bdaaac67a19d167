//! Rules for outdated nodes.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::calendar::{Slot, on_at};

/// A pool's rules for outdated nodes. By default free ones are replaced, one at a time, and those with pods stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutdatedRules {
    /// When those with pods are replaced too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maintenance: Vec<Slot>,
    /// How long one may be outdated before it is replaced whatever is on it; `None` where it may for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<SignedDuration>,
    /// The age from which on a node is outdated, from the order of its machine; `None` where it may grow as old as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_node_life: Option<SignedDuration>,
    /// Whether none is replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl OutdatedRules {
    /// Whether it is maintenance time, and when that changes next; `None` where that is not within four years.
    pub fn maintenance_at(&self, wall: Timestamp) -> (bool, Option<Timestamp>) {
        on_at(&self.maintenance, wall)
    }

    /// When a node whose machine was ordered then is too old; `None` where it never is.
    pub fn expires_at(&self, ordered_at: Timestamp) -> Option<Timestamp> {
        Some(ordered_at.saturating_add(self.max_node_life?).unwrap_or(Timestamp::MAX))
    }

    /// When a node that is outdated since then is replaced whatever is on it; `None` where it never is.
    pub fn due_at(&self, since: Timestamp) -> Option<Timestamp> {
        Some(since.saturating_add(self.deadline?).unwrap_or(Timestamp::MAX))
    }
}
