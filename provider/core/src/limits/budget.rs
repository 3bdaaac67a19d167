//! Budgets: how much cash per hour a pool, and all pools together, may spend, and what may still be
//! bought near the limit.
//!
//! Near its limit a budget restricts purchases. It never ends a running node. From [`WARN_AT`] on
//! operators are warned. From [`SPOT_ONLY_AT`] on a pool that may buy spot buys nothing else for
//! cash, so that the rest lasts longer; a pool without spot goes on to the limit. Each stage ends
//! [`LEFT_BELOW`] points below where it begins. At the limit nothing is bought for cash. Purchases
//! that commitments pay for cost no new cash, and are allowed at every stage.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::PoolName;
use crate::base::units::{Percent, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::limits::month::Month;
use crate::limits::usage::Usage;
use crate::policy::rules::month::MonthBudget;
use crate::policy::{Policy, Pool};
use crate::state::budget::{BudgetOf, Stage};

/// The share of a budget from which on operators are warned: with a fifth left there is time to act before growth narrows.
pub const WARN_AT: Percent = Percent(80);

/// The share of a budget from which on a pool that may buy spot buys nothing else for cash. The tenth that is left buys two to three
/// times as many spot nodes as on-demand ones (median discounts of 45 to 80 % by GPU model and cloud in the price tables).
pub const SPOT_ONLY_AT: Percent = Percent(90);

/// How many points below its beginning a stage is left: spend that wavers about it by a node's price or a quote's change would open and
/// close on-demand, and tell of it, in every pass.
pub const LEFT_BELOW: u8 = 2;

/// The share of a budget from which on a stage holds that begins at `begins`, where the budget stood at `before` when it was last told of.
pub(crate) fn holds_from(stage: Stage, begins: Percent, before: Stage) -> Percent {
    if before >= stage { Percent(begins.0.saturating_sub(LEFT_BELOW)) } else { begins }
}

/// How a budget stood when it was last told of.
fn before(usage: &Usage, pool: Option<&PoolName>) -> Stage {
    usage.stages.iter().find(|(of, _)| of.pool() == pool).map_or(Stage::Ample, |(_, stage)| *stage)
}

/// How a budget stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Whose it is.
    pub of: BudgetOf,
    /// Cash spent: all that is bought, being bought or wanted, less what commitments pay of it.
    pub spent: UsdPerHour,
    /// The limit.
    pub limit: UsdPerHour,
    /// What it still allows.
    pub stage: Stage,
    /// The monthly budget, where what is left of it is that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month: Option<Month>,
}

impl Budget {
    /// `$54.0000/h of $60.0000/h spent, near its limit`.
    pub fn in_words(&self) -> String {
        let Self { of: _, spent, limit, stage, month } = self;
        let left = limit.minus(*spent);
        let why = if *stage == Stage::Spent && left > UsdPerHour::ZERO {
            format!("; no node costs as little as the {left}/h left: ")
        } else {
            ", ".to_owned()
        };
        let month = month.as_ref().map(|month| format!(" ({month})")).unwrap_or_default();
        format!("{spent}/h of {limit}/h spent{month}{why}{stage}")
    }
}

impl fmt::Display for Budget {
    /// `pool training: $54.0000/h of $60.0000/h spent, near its limit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.in_words())
    }
}

/// How every budget of the policy stands: those of the pools in the policy's order, then that of all together.
pub fn standing(usage: &Usage, catalogue: &Catalogue, wall: Wall) -> Vec<Budget> {
    let policy = &catalogue.policy;
    let of_pools = policy.pools.iter().any(|pool| Ceiling::of_pool(usage, pool).is_some());
    if !of_pools && Ceiling::of_all(usage, policy).is_none() {
        return Vec::new();
    }
    let mut cheapest: BTreeMap<&PoolName, UsdPerHour> = BTreeMap::new();
    for group in catalogue.groups.values() {
        let price = group.offers.iter().filter_map(|offer| offer.quote(wall).ok()).map(|quote| quote.price).min();
        if let Some(price) = price {
            let least = cheapest.entry(&group.pool).or_insert(price);
            *least = price.min(*least);
        }
    }
    let budget = |of: BudgetOf, spent: UsdPerHour, Ceiling { limit, month }: Ceiling, least: Option<UsdPerHour>, spot: bool| {
        let left = limit.minus(spent);
        let before = before(usage, of.pool());
        let is_past = |stage, begins| spent >= share(limit, holds_from(stage, begins, before));
        let stage = if left <= UsdPerHour::ZERO || least.is_some_and(|price| price > left) {
            Stage::Spent
        } else if spot && is_past(Stage::SpotOnly, SPOT_ONLY_AT) {
            Stage::SpotOnly
        } else if is_past(Stage::Near, WARN_AT) {
            Stage::Near
        } else {
            Stage::Ample
        };
        Budget { of, spent, limit, stage, month }
    };
    let own = policy.pools.iter().filter_map(|pool| {
        let (limit, least) = (Ceiling::of_pool(usage, pool)?, cheapest.get(&pool.name).copied());
        Some(budget(BudgetOf::Pool(pool.name.clone()), usage.cash(&pool.name), limit, least, pool.may_buy_spot()))
    });
    let all = Ceiling::of_all(usage, policy).map(|limit| {
        let spot = policy.pools.iter().any(Pool::may_buy_spot);
        budget(BudgetOf::All, usage.total_cash(), limit, cheapest.values().min().copied(), spot)
    });
    own.chain(all).collect()
}

/// How much may be spent per hour: by the hourly limit, or by what is left of the month where that is less.
#[derive(Debug, Clone, Copy)]
struct Ceiling {
    limit: UsdPerHour,
    month: Option<Month>,
}

impl Ceiling {
    fn of_pool(usage: &Usage, pool: &Pool) -> Option<Self> {
        Self::lowest(usage, Some(&pool.name), pool.limits.max_usd_per_hour, pool.limits.month)
    }

    fn of_all(usage: &Usage, policy: &Policy) -> Option<Self> {
        Self::lowest(usage, None, policy.max_usd_per_hour, policy.month)
    }

    fn lowest(usage: &Usage, pool: Option<&PoolName>, hourly: Option<UsdPerHour>, budget: Option<MonthBudget>) -> Option<Self> {
        let known = usage.months.iter().find(|(of, _)| of.pool() == pool).map(|(_, known)| known.as_ref());
        let month = budget.map(|budget| Month::now(budget, known, usage.wall));
        match (hourly, month) {
            (Some(limit), Some(month)) if limit <= month.rate => Some(Self { limit, month: None }),
            (_, Some(month)) => Some(Self { limit: month.rate, month: Some(month) }),
            (Some(limit), None) => Some(Self { limit, month: None }),
            (None, None) => None,
        }
    }
}

/// What is kept of the budget of all pools for others than this one: what they do not use of their guarantees.
fn kept_from(usage: &Usage, policy: &Policy, pool: &Pool) -> UsdPerHour {
    let others = policy.pools.iter().filter(|other| !other.limits.guaranteed.is_zero() && other.name != pool.name);
    let unused = others.map(|other| other.limits.guaranteed.minus(usage.cash(&other.name)).max(UsdPerHour::ZERO));
    unused.fold(UsdPerHour::ZERO, UsdPerHour::plus)
}

/// A budget over a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// Whether it is that of all pools.
    pub all: bool,
    /// Cash spent of it.
    pub spent: UsdPerHour,
    /// Its limit, without what is kept for other pools.
    pub limit: UsdPerHour,
    /// The monthly budget, where what is left of it is that limit.
    pub month: Option<Month>,
    /// What is kept for other pools.
    pub kept: UsdPerHour,
    /// The share of it from which on a pool that may buy spot buys nothing else.
    pub spot_only_at: Percent,
}

/// The budgets over a pool: its own, then that of all pools.
pub(crate) fn accounts_over(usage: &Usage, catalogue: &Catalogue, pool: &Pool) -> impl Iterator<Item = Account> {
    let spot_only_at = |pool| holds_from(Stage::SpotOnly, SPOT_ONLY_AT, before(usage, pool));
    let own = Ceiling::of_pool(usage, pool).map(|Ceiling { limit, month }| {
        let (spent, spot_only_at) = (usage.cash(&pool.name), spot_only_at(Some(&pool.name)));
        Account { all: false, spent, limit, month, kept: UsdPerHour::ZERO, spot_only_at }
    });
    let all = Ceiling::of_all(usage, &catalogue.policy).map(|Ceiling { limit, month }| {
        let (spent, spot_only_at) = (usage.total_cash(), spot_only_at(None));
        let kept = kept_from(usage, &catalogue.policy, pool);
        Account { all: true, spent, limit: limit.minus(kept).max(UsdPerHour::ZERO), month, kept, spot_only_at }
    });
    own.into_iter().chain(all)
}

/// A share of a limit, rounded up: what is below it is below the exact share too.
pub(crate) fn share(limit: UsdPerHour, Percent(share): Percent) -> UsdPerHour {
    let micros = (i128::from(limit.0) * i128::from(share) + 99) / 100;
    UsdPerHour(i64::try_from(micros).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 86.7 % nothing may be bought any more, where a node costs more than the rest.
    #[test]
    fn a_budget_that_ends_below_its_limit_says_that_no_node_costs_as_little_as_what_is_left() {
        let told = |spent, stage| {
            let (spent, limit) = (UsdPerHour(spent), UsdPerHour(12_000_000));
            Budget { of: BudgetOf::All, spent, limit, stage, month: None }.to_string()
        };
        assert_eq!(
            told(10_400_000, Stage::Spent),
            "all pools: $10.4000/h of $12.0000/h spent; no node costs as little as the $1.6000/h left: only capacity that \
             commitments already pay for is bought"
        );
        assert_eq!(
            told(12_000_000, Stage::Spent),
            "all pools: $12.0000/h of $12.0000/h spent, only capacity that commitments already pay for is bought"
        );
        assert_eq!(told(10_400_000, Stage::Near), "all pools: $10.4000/h of $12.0000/h spent, near its limit");
    }
}
