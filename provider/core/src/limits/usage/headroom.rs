//! Headroom: how much of a limit one node takes, how much is left, and how much more each purchase
//! of the pool adds.
//!
//! The room of one offer and the solver's problem both come from here.

use std::collections::BTreeMap;

use super::{Bound, Usage, ZoneOf};
use crate::base::ids::GpuModel;
use crate::base::units::{Percent, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::limits::budget::{self, Account};
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::Pool;
use crate::policy::rules::spot::{Rounding, SpotRules};
use crate::state::budget::BudgetOf;

/// A limit that the offers of one pool may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit<'a> {
    /// The pool's `maxNodes`.
    Nodes,
    /// A budget: the pool's, or that of all pools.
    Budget {
        /// Whether it is that of all pools.
        all: bool,
    },
    /// The part of a budget that is kept for spot, which other nodes may only begin to use.
    SpotOnly {
        /// Whether it is that of all pools.
        all: bool,
    },
    /// The pool's share of spot.
    SpotShare,
    /// The pool's share of one spot market.
    MarketShare(&'a Place),
    /// The pool's share of a zone.
    ZoneShare(ZoneOf<'a>),
    /// The pool's share of a GPU model.
    ModelShare(&'a GpuModel),
    /// A quota, by its place in the policy.
    Quota(usize),
}

/// What one more node of an offer takes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom<'a> {
    /// The limit.
    pub limit: Limit<'a>,
    /// What one node takes, in the limit's own unit; never below zero.
    pub takes: i64,
    /// What is left of it; below zero where more is held than the limit allows.
    pub left: i64,
    /// What every node that the pool buys adds to what is left: shares are shares of all that is bought. Zero for any other limit.
    pub grows: i64,
}

impl<'a> Headroom<'a> {
    /// A share of the pool's nodes, all of one kind of which there are `part`, made whole so: a node of the kind takes a hundred parts
    /// in a hundred, and every node bought adds the share of one.
    pub(crate) fn share(limit: Limit<'a>, rounding: Rounding, share: Percent, part: u32, nodes: u32) -> Self {
        // part + m ≤ ⌊(share (nodes + n) + slack) ÷ 100⌋: the left side is whole, so the floor can be dropped.
        let grows = i64::from(share.0);
        Self { limit, takes: 100, left: grows * i64::from(nodes) + rounding.slack() - 100 * i64::from(part), grows }
    }

    /// How many nodes of the offer the limit allows where no other is bought.
    pub fn alone(&self) -> u32 {
        match self.takes - self.grows {
            ..=0 => u32::MAX,
            each => u32::try_from(self.left.max(0) / each).unwrap_or(u32::MAX),
        }
    }
}

impl Usage {
    /// Shows `each` every limit that a node of `group` counts against when it is bought in `market` and adds `cash` to the bill.
    ///
    /// # Errors
    /// Where nothing may be bought there whatever is left.
    pub fn each_limit<'a>(
        &self,
        group: &'a Group,
        market: &'a Market,
        cash: UsdPerHour,
        catalogue: &Catalogue,
        mut each: impl FnMut(Headroom<'a>),
    ) -> Result<(), Bound> {
        let pool = catalogue.policy.pool(&group.pool).ok_or(Bound::PoolGone)?;
        if self.foreign_unknown {
            return Err(Bound::ForeignUnknown);
        }
        let held = self.nodes.get(&group.pool).copied().unwrap_or(0);
        let fixed = |limit, takes, left| Headroom { limit, takes, left, grows: 0 };
        each(fixed(Limit::Nodes, 1, i64::from(self.max_nodes(pool)) - i64::from(held)));
        for Account { all, spent, limit, spot_only_at, .. } in budget::accounts_over(self, catalogue, pool) {
            each(fixed(Limit::Budget { all }, cash.0, limit.minus(spent).0));
            if market.capacity_type != CapacityType::Spot && pool.may_buy_spot() {
                let left = budget::share(limit, spot_only_at).minus(spent).0;
                // The last node may begin with as little as is left, so what it takes beyond that does not count.
                each(fixed(Limit::SpotOnly { all }, cash.0, if left > 0 { left - 1 + cash.0 } else { left }));
            }
        }
        if market.capacity_type == CapacityType::Spot {
            self.spot_limits(pool, &market.place, &mut each);
        }
        if let Some(share) = pool.max_zone_share {
            let (here, nodes) = self.in_zone(&group.pool, &market.place);
            each(Headroom::share(Limit::ZoneShare(ZoneOf(&market.place)), Rounding::Up, share, here, nodes));
        }
        let model = &group.spec.gpu_model;
        if let Some(share) = pool.max_model_share.get(model) {
            let (here, nodes) = self.of_model(&group.pool, model);
            each(Headroom::share(Limit::ModelShare(model), Rounding::Up, *share, here, nodes));
        }
        let claims = catalogue.claims(group);
        let claims = claims.under(market.capacity_type);
        if let Some(quota) = &claims.denied {
            return Err(Bound::QuotaUnlisted(quota.clone()));
        }
        let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for claim in &claims.listed {
            let Some(held) = self.quotas.get(claim.quota) else { continue };
            let share = catalogue.quota_share(claim.quota, self.wall);
            each(fixed(Limit::Quota(claim.quota), whole(claim.units.max(1)), whole(share) - whole(held.units)));
        }
        Ok(())
    }

    fn spot_limits<'a>(&self, pool: &Pool, place: &'a Place, each: &mut impl FnMut(Headroom<'a>)) {
        let Some(rules) = pool.spot.as_ref().filter(|rules| rules.limits_shares()) else { return };
        let share = self.spot.get(&pool.name);
        let (nodes, spot) = share.map_or((0, 0), |share| (share.bought, share.spot));
        let here = share.and_then(|share| share.markets.get(place)).copied().unwrap_or(0);
        each(Headroom::share(Limit::SpotShare, Rounding::Down, rules.max_share, spot, nodes));
        each(Headroom::share(Limit::MarketShare(place), Rounding::Up, rules.max_market_share, here, nodes));
    }

    /// Every limit that leaves no room for a node of `group` that is bought in `market` and adds `cash` to the bill; with `instead_of`, what
    /// another node takes of each limit, for one that is bought in its place.
    pub fn bounds(
        &self,
        group: &Group,
        market: &Market,
        cash: UsdPerHour,
        catalogue: &Catalogue,
        instead_of: Option<&BTreeMap<Limit<'_>, i64>>,
    ) -> Vec<Bound> {
        let mut bounds = Vec::new();
        let counted = self.each_limit(group, market, cash, catalogue, |headroom| {
            let has_room = match instead_of {
                None => headroom.alone() > 0,
                Some(other) => headroom.takes <= headroom.left + other.get(&headroom.limit).copied().unwrap_or(0),
            };
            if !has_room {
                bounds.push(self.bound(&headroom, group, cash, catalogue));
            }
        });
        bounds.extend(counted.err());
        bounds
    }

    /// What a node of `group` that is bought in `market` and adds `cash` to the bill takes of each limit.
    pub fn takes<'a>(
        &self,
        group: &'a Group,
        market: &'a Market,
        cash: UsdPerHour,
        catalogue: &Catalogue,
    ) -> BTreeMap<Limit<'a>, i64> {
        let mut takes = BTreeMap::new();
        let counted = self.each_limit(group, market, cash, catalogue, |headroom| {
            takes.insert(headroom.limit, headroom.takes);
        });
        counted.map(|()| takes).unwrap_or_default()
    }

    /// Says of a limit that it binds a node of `group` that would add `cash` to the bill.
    pub(super) fn bound(&self, headroom: &Headroom<'_>, group: &Group, cash: UsdPerHour, catalogue: &Catalogue) -> Bound {
        let Some(pool) = catalogue.policy.pool(&group.pool) else { return Bound::PoolGone };
        let share = self.spot.get(&group.pool);
        let (nodes, spot) = share.map_or((0, 0), |share| (share.bought, share.spot));
        let shares = |of: fn(&SpotRules) -> Percent| pool.spot.as_ref().map_or(Percent::ALL, of);
        match headroom.limit {
            Limit::Nodes => {
                let held = self.nodes.get(&group.pool).copied().unwrap_or(0);
                match self.off_hours.get(&pool.name) {
                    Some(_) => Bound::OffHours { held, limit: self.max_nodes(pool) },
                    None => Bound::MaxNodes { held, limit: pool.limits.max_nodes },
                }
            }
            Limit::Budget { all } | Limit::SpotOnly { all } => {
                let account = budget::accounts_over(self, catalogue, pool).find(|account| account.all == all);
                let Some(Account { spent, limit, month, kept, .. }) = account else { return Bound::PoolGone };
                let of = || if all { BudgetOf::All } else { BudgetOf::Pool(pool.name.clone()) };
                match (headroom.limit, month) {
                    (Limit::SpotOnly { .. }, _) => Bound::SpotOnly { of: of(), spent, limit },
                    (_, Some(month)) => Bound::MonthBudget { of: of(), month, spent, limit, price: cash },
                    (_, None) if all => Bound::OverallBudget { spent, limit, price: cash, kept },
                    (_, None) => Bound::Budget { spent, limit, price: cash },
                }
            }
            Limit::SpotShare => Bound::SpotShare { spot, nodes, limit: shares(|rules| rules.max_share) },
            Limit::MarketShare(place) => {
                let here = share.and_then(|share| share.markets.get(place)).copied().unwrap_or(0);
                Bound::MarketShare { here, nodes, limit: shares(|rules| rules.max_market_share) }
            }
            Limit::ZoneShare(ZoneOf(place)) => {
                let (here, nodes) = self.in_zone(&group.pool, place);
                Bound::ZoneShare { zone: place.zone.clone(), here, nodes, limit: pool.max_zone_share.unwrap_or(Percent::ALL) }
            }
            Limit::ModelShare(model) => {
                let (here, nodes) = self.of_model(&group.pool, model);
                let limit = pool.max_model_share.get(model).copied().unwrap_or(Percent::ALL);
                Bound::ModelShare { model: model.clone(), here, nodes, limit }
            }
            Limit::Quota(at) => {
                let Some((quota, held)) = catalogue.policy.quotas.get(at).zip(self.quotas.get(at)) else {
                    return Bound::PoolGone;
                };
                let (limit, told) = catalogue.quota_limit(at, self.wall);
                Bound::Quota {
                    name: quota.name.clone(),
                    region: quota.region.clone(),
                    left: u64::try_from(headroom.left).unwrap_or(0),
                    limit,
                    told: told.cloned().map(Box::new),
                    in_flight: held.in_flight,
                    need: u64::try_from(headroom.takes).unwrap_or(0),
                    unit: quota.unit,
                }
            }
        }
    }
}

impl Bound {
    /// Whether it is the same limit, whatever is held of it.
    pub fn is_of_the_same_limit(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quota { name, region, .. }, Self::Quota { name: theirs, region: there, .. }) => {
                (name, region) == (theirs, there)
            }
            (Self::SpotOnly { of, .. }, Self::SpotOnly { of: theirs, .. }) => of == theirs,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}
