//! Stages of budgets, as they were last reported.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::ids::PoolName;

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
