//! Outdated nodes, as they are remembered.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::outdated::Outdated;

/// A node that would be made differently today.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutdatedNode {
    /// Since when.
    pub since: Timestamp,
    /// How.
    pub why: Outdated,
}
