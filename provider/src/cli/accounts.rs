//! Budgets, commitments and warm floors as `plan` and `groups` show them.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::budget::Budget;
use stoker_core::limits::commitment::{Amount, Use};
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::budget::Stage;

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
        let Budget { of, spent, limit, stage, month: _ } = budget;
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
            (_, Some(UsdPerHour::ZERO)) => ", paid for by other commitments".to_owned(),
            (_, Some(rate)) => format!(", {rate}/h"),
            (_, None) => ", at an unknown price".to_owned(),
        };
        let shown = match (active, is_left) {
            (false, _) => "not in effect now".to_owned(),
            (true, false) => format!("fully used ({used})"),
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

/// How a warm floor stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FloorRow {
    pool: PoolName,
    /// Warm nodes that are wanted.
    wanted: u32,
    /// Which part of the floor asks for that.
    why: String,
    /// Nodes that are free, healthy and ready for a pod: those above what is wanted too.
    warm: u32,
    /// Nodes on their way for it.
    coming: u32,
    /// What the wanted nodes cost, before what commitments pay of it.
    per_hour: Money,
    /// Since when some are missing.
    unmet_since: Option<Timestamp>,
    /// What keeps the missing ones from being bought.
    blocked: Option<String>,
    #[serde(skip)]
    rate: UsdPerHour,
}

impl From<FloorStands> for FloorRow {
    fn from(stands: FloorStands) -> Self {
        let FloorStands { pool, wanted, why, warm, coming, usd_per_hour: rate, unmet_since, blocked } = stands;
        Self { pool, wanted, why, warm, coming, per_hour: rate.into(), unmet_since, blocked, rate }
    }
}

impl fmt::Display for FloorRow {
    /// `warm floor of inference: 1 of 2 warm, 1 coming, $1.6000/h (nodes)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, wanted, why, warm, coming, unmet_since, blocked, rate, per_hour: _ } = self;
        write!(f, "warm floor of {pool}: {warm} of {wanted} warm, {coming} booting, {rate}/h ({why})")?;
        if let Some(since) = unmet_since {
            write!(f, "; short since {}", since.strftime("%Y-%m-%d %H:%M:%SZ"))?;
        }
        match blocked {
            Some(why) => write!(f, "; {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_told_in_one_line_with_its_cost_and_what_lacks() {
        let stands = FloorStands {
            pool: PoolName::new("inference").unwrap(),
            wanted: 2,
            why: "nodes".to_owned(),
            warm: 1,
            coming: 0,
            usd_per_hour: UsdPerHour(1_600_000),
            unmet_since: Some(Timestamp::UNIX_EPOCH),
            blocked: Some("quota L-1 is full".to_owned()),
        };
        let met = FloorStands { warm: 3, unmet_since: None, blocked: None, ..stands.clone() };
        assert_eq!(
            FloorRow::from(stands).to_string(),
            "warm floor of inference: 1 of 2 warm, 0 booting, $1.6000/h (nodes); short since 1970-01-01 00:00:00Z; quota L-1 \
             is full"
        );
        assert_eq!(FloorRow::from(met).to_string(), "warm floor of inference: 3 of 2 warm, 0 booting, $1.6000/h (nodes)");
    }
}
