//! Stages of budgets, as they were last reported, and what was spent of the month.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::PoolName;
use crate::base::units::{UsdMicros, UsdPerHour};

/// Whose budget it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetOf {
    /// A pool's own.
    Pool(PoolName),
    /// That of all pools together.
    All,
}

impl BudgetOf {
    /// The pool; `None` for all together.
    pub const fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::Pool(pool) => Some(pool),
            Self::All => None,
        }
    }
}

impl fmt::Display for BudgetOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::All => f.write_str("all pools"),
        }
    }
}

/// What a budget still allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Everything.
    Ample,
    /// Everything, but it is near its limit.
    Near,
    /// Nothing but spot, to pools that may buy spot.
    SpotOnly,
    /// Nothing that costs new cash: no node is as cheap as what is left.
    Spent,
}

impl Stage {
    /// Every stage, from the first to the last.
    pub const ALL: [Self; 4] = [Self::Ample, Self::Near, Self::SpotOnly, Self::Spent];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ample => "within budget",
            Self::Near => "near its limit",
            Self::SpotOnly => "pools that may buy spot buy only spot",
            Self::Spent => "only capacity that commitments already pay for is bought",
        })
    }
}

/// What was spent of a calendar month, by the wall clock, of a budget that has a monthly limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonthSpend {
    /// When the hour began whose rate counts now.
    pub hour: Timestamp,
    /// What was spent of the month then.
    pub at_hour: UsdMicros,
    /// Since when the rate is what it is.
    pub since: Timestamp,
    /// What was spent of the month until then.
    pub spent: UsdMicros,
    /// Cash spent per hour since then.
    pub rate: UsdPerHour,
}
