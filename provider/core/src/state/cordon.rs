//! Cordons: nodes that take no new pods but stay, announced drains, and recent replacements.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why a node is closed to new pods without being let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CordonReason {
    /// Its hardware is not fit for work.
    Unhealthy,
    /// The cloud will maintain its machine. What runs on it goes on: a freeze of seconds is announced like a reboot.
    Maintenance,
    /// Its probe announces that the cloud takes its machine back, and nothing confirms that.
    ReclaimUnconfirmed,
}

impl fmt::Display for CordonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unhealthy => "its hardware is faulty",
            Self::Maintenance => "the cloud has scheduled maintenance of its machine",
            Self::ReclaimUnconfirmed => "only its probe says that the cloud reclaims it",
        })
    }
}

/// A node that is closed to new pods and not let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cordoned {
    /// Why.
    pub why: CordonReason,
    /// Since when.
    pub since: Timestamp,
    /// Somebody opened it again: it is left open until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_open_until: Option<Timestamp>,
}

impl Cordoned {
    /// Whether it is to take no pods.
    pub const fn is_closed(&self) -> bool {
        self.left_open_until.is_none()
    }
}

/// That a node will be emptied, as it was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Announced {
    /// When that was.
    pub since: Timestamp,
    /// When its pods are told to go.
    pub at: Timestamp,
}

/// Which of a pool's nodes were replaced because they were unhealthy, lately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacements {
    /// When each began, oldest first.
    pub at: Vec<Timestamp>,
    /// Since when no more is, while others wait to be; that was told then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_since: Option<Timestamp>,
}
