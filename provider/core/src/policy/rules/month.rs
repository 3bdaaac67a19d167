//! Budgets of a calendar month.

use serde::{Deserialize, Serialize};

use crate::base::units::{Milli, UsdMicros};

/// A budget for each calendar month of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonthBudget {
    /// Cash that may be spent in a month.
    pub limit: UsdMicros,
    /// How many times the even rate may be spent at once: what is left of the month, spread evenly over its hours left. At least one.
    pub pace: Milli,
}
