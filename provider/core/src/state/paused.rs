//! Pools that are paused because the internal consistency check failed, and since which decision.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{DecisionId, PoolName};

/// What a fault concerns, and so what is paused for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Concern {
    /// Every pool: a limit that they share, or a machine that nobody can tell the owner of.
    Fleet,
    /// One pool.
    Pool(PoolName),
}

impl Concern {
    /// The pool; `None` for the whole fleet.
    pub const fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::Pool(pool) => Some(pool),
            Self::Fleet => None,
        }
    }

    /// Whether a pool is paused by it.
    pub fn covers(&self, pool: Option<&PoolName>) -> bool {
        self.pool().is_none_or(|own| pool == Some(own))
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("the fleet"),
            Self::Pool(pool) => write!(f, "pool {pool}"),
        }
    }
}

/// A fault that the last check found, as it was first found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingFault {
    /// What it concerns.
    pub concern: Concern,
    /// Its kind as one word, for metrics.
    pub fault: String,
    /// What was found, in words.
    pub message: String,
    /// The first decision in which it was found without a break.
    pub decision: DecisionId,
    /// When that was.
    pub since: Timestamp,
}

impl StandingFault {
    /// The pause that it causes.
    pub fn pause(&self) -> Pause {
        Pause { concern: self.concern.clone(), decision: self.decision }
    }
}

impl fmt::Display for StandingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pause(), self.message)
    }
}

/// That growth is paused, for whom, and since which decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("Internal consistency check failed for {concern}; scale-up is paused (decision {decision})")]
pub struct Pause {
    /// For whom.
    pub concern: Concern,
    /// Since which decision.
    pub decision: DecisionId,
}
