//! Budgets and commitments as `plan` and `groups` show them.

use std::fmt;

use serde::Serialize;
use stoker_core::budget::{Budget, Stage};
use stoker_core::commitment::{Amount, Use};
use stoker_core::ids::PoolName;
use stoker_core::units::UsdPerHour;

use super::out::Money;

/// How a budget stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetRow {
    /// `None` where it is that of all pools together.
    pool: Option<PoolName>,
    spent: Money,
    limit: Money,
    pub(super) stage: Stage,
    #[serde(skip)]
    shown: String,
}

impl From<Budget> for BudgetRow {
    fn from(budget: Budget) -> Self {
        let shown = budget.to_string();
        let Budget { of, spent, limit, stage } = budget;
        Self { pool: of.pool().cloned(), spent: spent.into(), limit: limit.into(), stage, shown }
    }
}

impl fmt::Display for BudgetRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shown)
    }
}

/// How much of a commitment is used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UseRow {
    name: String,
    /// Whether it counts now. One that does not has nothing used and nothing unused.
    active: bool,
    used: AmountRow,
    unused: AmountRow,
    /// What the unused part costs; `None` where the on-demand price that it is billed at is not known.
    unused_per_hour: Option<Money>,
    #[serde(skip)]
    shown: String,
    #[serde(skip)]
    pub(super) is_left: bool,
}

/// An amount of a commitment, as programs get it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum AmountRow {
    Nodes(u32),
    Gpus(u32),
    SpendPerHour(Money),
}

impl From<Amount> for AmountRow {
    fn from(amount: Amount) -> Self {
        match amount {
            Amount::Nodes(n) => Self::Nodes(n),
            Amount::Gpus(n) => Self::Gpus(n),
            Amount::Spend(rate) => Self::SpendPerHour(rate.into()),
        }
    }
}

impl From<Use> for UseRow {
    fn from(of: Use) -> Self {
        let Use { name, active, used, unused, unused_rate } = of;
        let is_left = match unused {
            Amount::Nodes(n) | Amount::Gpus(n) => n > 0,
            Amount::Spend(rate) => rate.0 > 0,
        };
        let cost = match (unused, unused_rate) {
            // Said by the amount itself.
            (Amount::Spend(_), _) => String::new(),
            // Kept capacity that another commitment discounts away costs nothing beside that one.
            (_, Some(UsdPerHour::ZERO)) => ", which other commitments pay for".to_owned(),
            (_, Some(rate)) => format!(", {rate}/h"),
            (_, None) => ", at a price that is not known".to_owned(),
        };
        let shown = match (active, is_left) {
            (false, _) => "does not count now".to_owned(),
            (true, false) => format!("all of it used ({used})"),
            (true, true) => format!("{used} used, {unused} unused{cost}"),
        };
        let (used, unused) = (used.into(), unused.into());
        Self { name, active, used, unused, unused_per_hour: unused_rate.map(Money::from), shown, is_left }
    }
}

impl fmt::Display for UseRow {
    /// `commitment ri: 1 node used, 2 nodes unused, $1.0200/h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commitment {}: {}", self.name, self.shown)
    }
}
