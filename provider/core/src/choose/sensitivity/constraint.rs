//! Constraints that may be lifted: where each is written, its value, and the policy without it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, PoolName, Region};
use crate::base::kinds::QuotaUnit;
use crate::base::units::{Percent, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::claims::{Unlisted, in_region};
use crate::catalogue::group::Group;
use crate::choose::candidate::{Barred, Candidate, OfferVerdict};
use crate::limits::budget::{LEFT_BELOW, SPOT_ONLY_AT};
use crate::limits::usage::{Bound, Limit, Usage};
use crate::market::offer::CapacityType;
use crate::market::quota_names::KnownQuota;
use crate::policy::rules::month::MonthBudget;
use crate::policy::{Counts, Policy, Pool, Quota};
use crate::state::budget::BudgetOf;

/// A limit, by where it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Constraint {
    /// A quota that the policy lists.
    Quota {
        /// Its name.
        name: String,
        /// Its cloud.
        cloud: Cloud,
        /// The region; `None` where it counts all of them.
        region: Option<Region>,
    },
    /// A quota that the policy does not list, and that is taken as zero.
    Unlisted {
        /// Its cloud.
        cloud: Cloud,
        /// Which one.
        quota: Unlisted,
    },
    /// The pool's `limits.maxNodes`.
    MaxNodes,
    /// The pool's `limits.maxUsdPerHour`.
    Budget,
    /// The `limits.maxUsdPerHour` of all pools together.
    OverallBudget,
    /// A `limits.maxUsdPerMonth`.
    MonthBudget(BudgetOf),
    /// The pool's `where.maxZoneShare`.
    ZoneShare,
    /// The pool's `gpu.maxShare` of a model.
    ModelShare(GpuModel),
    /// The pool's `capacity.spot.maxShare`.
    SpotShare,
    /// The pool's `capacity.spot.maxMarketShare`.
    MarketShare,
    /// The pool's `capacity.spot.maxInterruption`.
    MaxInterruption,
    /// The pool's order of `capacity.prefer`, in which this capacity type is not the first.
    Preference(CapacityType),
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { name, region, cloud: _ } => write!(f, "quota {name}{}", in_region(region.as_ref())),
            Self::Unlisted { quota, cloud: _ } => write!(f, "{quota}, which the policy does not list,"),
            Self::MaxNodes => f.write_str("limits.maxNodes"),
            Self::Budget => f.write_str("limits.maxUsdPerHour"),
            Self::OverallBudget => f.write_str("limits.maxUsdPerHour of all pools"),
            Self::MonthBudget(BudgetOf::Pool(_)) => f.write_str("limits.maxUsdPerMonth"),
            Self::MonthBudget(BudgetOf::All) => f.write_str("limits.maxUsdPerMonth of all pools"),
            Self::ZoneShare => f.write_str("where.maxZoneShare"),
            Self::ModelShare(model) => write!(f, "gpu.maxShare of {model}"),
            Self::SpotShare => f.write_str("capacity.spot.maxShare"),
            Self::MarketShare => f.write_str("capacity.spot.maxMarketShare"),
            Self::MaxInterruption => f.write_str("capacity.spot.maxInterruption"),
            Self::Preference(first) => write!(f, "capacity.prefer with {first} first"),
        }
    }
}

/// How high a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Nodes.
    Nodes(u32),
    /// A rate of spend.
    Rate(UsdPerHour),
    /// A share.
    Share(Percent),
    /// Units of a quota.
    Units(u64, QuotaUnit),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Rate(rate) => write!(f, "{rate}/h"),
            Self::Share(share) => write!(f, "{share}"),
            Self::Units(units, unit) => write!(f, "{units} {unit}"),
        }
    }
}

impl Constraint {
    /// The limit that stands in a candidate's way, if one does that can be lifted.
    pub(super) fn of(candidate: &Candidate) -> Option<(Self, Option<&Bound>)> {
        let bound = match &candidate.verdict {
            OfferVerdict::Barred(Barred::Bound(bound)) => bound,
            OfferVerdict::Barred(Barred::Interruption { .. }) => return Some((Self::MaxInterruption, None)),
            OfferVerdict::LessPreferred { .. } => return Some((Self::Preference(candidate.market.capacity_type), None)),
            OfferVerdict::Chosen { .. } => candidate.ended_by.as_ref()?,
            OfferVerdict::Barred(_)
            | OfferVerdict::Dearer { .. }
            | OfferVerdict::DearerWork { .. }
            | OfferVerdict::LargerStep
            | OfferVerdict::Tied => return None,
        };
        let cloud = || candidate.market.place.cloud.clone();
        let limit = match bound {
            Bound::MaxNodes { .. } => Self::MaxNodes,
            Bound::Budget { .. } | Bound::SpotOnly { of: BudgetOf::Pool(_), .. } => Self::Budget,
            Bound::OverallBudget { .. } | Bound::SpotOnly { of: BudgetOf::All, .. } => Self::OverallBudget,
            Bound::MonthBudget { of, .. } => Self::MonthBudget(of.clone()),
            Bound::ZoneShare { .. } => Self::ZoneShare,
            Bound::ModelShare { model, .. } => Self::ModelShare(model.clone()),
            Bound::Quota { name, region, .. } => Self::Quota { name: name.clone(), cloud: cloud(), region: region.clone() },
            Bound::QuotaUnlisted(quota) => Self::Unlisted { cloud: cloud(), quota: quota.clone() },
            Bound::SpotShare { .. } => Self::SpotShare,
            Bound::MarketShare { .. } => Self::MarketShare,
            // What is on at times is no limit to lift.
            Bound::OffHours { .. } | Bound::ForeignUnknown | Bound::PoolGone => return None,
        };
        Some((limit, Some(bound)))
    }

    /// Every constraint with a height that could keep one of `wanted` nodes from being bought of these groups.
    pub(super) fn that_could_bind<'g>(
        usage: &Usage,
        catalogue: &Catalogue,
        groups: impl IntoIterator<Item = &'g Group>,
        wanted: u32,
        wall: Wall,
    ) -> BTreeSet<Self> {
        let mut all = BTreeSet::new();
        for group in groups {
            for (offer, quote) in group.offers.iter().filter_map(|offer| Some((offer, offer.quote(wall).ok()?))) {
                // What a quota bars that the policy does not list is told by its reason.
                let _ = usage.each_limit(group, &offer.market, quote.price, catalogue, |room| {
                    let most = (room.takes - room.grows).saturating_mul(i64::from(wanted));
                    if most > room.left {
                        all.extend(Self::over(&room.limit, &catalogue.policy, &group.pool));
                    }
                });
            }
        }
        all
    }

    /// Where a limit on what a pool may buy is written: an hourly budget may be what a monthly one leaves.
    fn over(limit: &Limit<'_>, policy: &Policy, pool: &PoolName) -> Vec<Self> {
        let budgets = |hourly: Option<UsdPerHour>, month: Option<MonthBudget>, own: Self, of: BudgetOf| {
            let (hourly, month) = (hourly.map(|_| own), month.map(|_| Self::MonthBudget(of)));
            hourly.into_iter().chain(month).collect()
        };
        match limit {
            Limit::Nodes => vec![Self::MaxNodes],
            Limit::Budget { all: false } | Limit::SpotOnly { all: false } => {
                let Some(Pool { limits, name, .. }) = policy.pool(pool) else { return Vec::new() };
                budgets(limits.max_usd_per_hour, limits.month, Self::Budget, BudgetOf::Pool(name.clone()))
            }
            Limit::Budget { all: true } | Limit::SpotOnly { all: true } => {
                budgets(policy.max_usd_per_hour, policy.month, Self::OverallBudget, BudgetOf::All)
            }
            Limit::SpotShare => vec![Self::SpotShare],
            Limit::MarketShare(_) => vec![Self::MarketShare],
            Limit::ZoneShare(_) => vec![Self::ZoneShare],
            Limit::ModelShare(model) => vec![Self::ModelShare((*model).clone())],
            Limit::Quota(at) => {
                let quota = policy.quotas.get(*at);
                let quota = quota.map(|Quota { name, cloud, region, .. }| Self::Quota {
                    name: name.clone(),
                    cloud: cloud.clone(),
                    region: region.clone(),
                });
                quota.into_iter().collect()
            }
        }
    }

    /// The policy without it; `None` where the policy has no such constraint.
    pub(super) fn lifted(&self, policy: &Policy, pool: &PoolName) -> Option<Policy> {
        self.put(policy, pool, None)
    }

    /// The policy with it at this height, where that is a rate or units of a quota; without it where no height is given.
    fn put(&self, policy: &Policy, pool: &PoolName, height: Option<Level>) -> Option<Policy> {
        let mut policy = policy.clone();
        let rate = match height {
            Some(Level::Rate(rate)) => Some(rate),
            _ => None,
        };
        let units = match height {
            Some(Level::Units(units, _)) => u32::try_from(units).unwrap_or(u32::MAX),
            _ => u32::MAX,
        };
        match self {
            Self::Quota { .. } => {
                let quota = policy.quotas.iter_mut().find(|quota| self.is(quota))?;
                quota.limit = units;
                if height.is_none() {
                    (quota.used, quota.safety) = (0, 0);
                }
            }
            Self::Unlisted { cloud, quota } => {
                let known = KnownQuota::find(&quota.name)?;
                policy.quotas.push(Quota {
                    name: quota.name.clone(),
                    cloud: cloud.clone(),
                    region: quota.region.clone(),
                    counts: Counts::Known(known),
                    unit: known.unit,
                    limit: units,
                    used: 0,
                    safety: 0,
                });
            }
            Self::MaxNodes => own(&mut policy, pool)?.limits.max_nodes = u32::MAX,
            Self::Budget => own(&mut policy, pool)?.limits.max_usd_per_hour = rate,
            Self::OverallBudget => policy.max_usd_per_hour = rate,
            Self::MonthBudget(BudgetOf::Pool(_)) => own(&mut policy, pool)?.limits.month = None,
            Self::MonthBudget(BudgetOf::All) => policy.month = None,
            Self::ZoneShare => own(&mut policy, pool)?.max_zone_share = None,
            Self::ModelShare(model) => drop(own(&mut policy, pool)?.max_model_share.remove(model)),
            Self::SpotShare => own(&mut policy, pool)?.spot.as_mut()?.max_share = Percent::ALL,
            Self::MarketShare => own(&mut policy, pool)?.spot.as_mut()?.max_market_share = Percent::ALL,
            Self::MaxInterruption => own(&mut policy, pool)?.spot.as_mut()?.max_interruption = None,
            Self::Preference(first) => own(&mut policy, pool)?.prefer.sort_by_key(|own| own != first),
        }
        Some(policy)
    }

    fn is(&self, quota: &Quota) -> bool {
        match self {
            Self::Quota { name, cloud, region } | Self::Unlisted { cloud, quota: Unlisted { name, region, .. } } => {
                (name, cloud, region) == (&quota.name, &quota.cloud, &quota.region)
            }
            _ => false,
        }
    }

    /// How high it is.
    pub(super) fn level(&self, policy: &Policy, pool: &PoolName) -> Option<Level> {
        let pool = policy.pool(pool)?;
        match self {
            Self::OverallBudget => policy.max_usd_per_hour.map(Level::Rate),
            Self::ZoneShare => pool.max_zone_share.map(Level::Share),
            Self::ModelShare(model) => pool.max_model_share.get(model).copied().map(Level::Share),
            Self::Quota { .. } => {
                let quota = policy.quotas.iter().find(|quota| self.is(quota))?;
                Some(Level::Units(quota.limit.into(), quota.unit))
            }
            Self::MaxNodes => Some(Level::Nodes(pool.limits.max_nodes)),
            Self::Budget => pool.limits.max_usd_per_hour.map(Level::Rate),
            Self::SpotShare => pool.spot.as_ref().map(|spot| Level::Share(spot.max_share)),
            Self::MarketShare => pool.spot.as_ref().map(|spot| Level::Share(spot.max_market_share)),
            Self::MaxInterruption => pool.spot.as_ref()?.max_interruption.map(Level::Share),
            // What is left of a month is a rate that changes with each hour.
            Self::Unlisted { .. } | Self::Preference(_) | Self::MonthBudget(_) => None,
        }
    }

    /// How high it must be for what `usage` counts, at least; `None` where that is no number. `holds` is whether the choice is as good under
    /// a policy: the same nodes can be had at less than what is used, where the tie went by name or the last part of a budget is spot's.
    pub(super) fn needed(
        &self,
        policy: &Policy,
        pool: &PoolName,
        (usage, lifted): (&Usage, &Policy),
        holds: impl Fn(Policy) -> bool,
    ) -> Option<Level> {
        let percent = |part: u32, of: u32| {
            let share = (u64::from(part) * 100).div_ceil(u64::from(of.max(1))).min(100);
            u8::try_from(share).ok().map(|share| Level::Share(Percent(share)))
        };
        let at = |height| self.put(policy, pool, Some(height)).is_some_and(&holds);
        let rate = |cash: UsdPerHour| {
            let most = ample(cash, policy.pool(pool)?);
            let rate = |micros| Level::Rate(UsdPerHour(micros));
            Some(rate(least((cash.0, most.0), CENT, |micros| at(rate(micros)))))
        };
        match self {
            Self::Quota { .. } | Self::Unlisted { .. } => {
                let place = lifted.quotas.iter().position(|quota| self.is(quota))?;
                let (quota, held) = (lifted.quotas.get(place)?, usage.quotas.get(place)?);
                let own = policy.quotas.get(place);
                let others = own.map_or(0, |quota| u64::from(quota.used) + u64::from(quota.safety));
                let units = |units: i64| Level::Units(units.unsigned_abs(), quota.unit);
                let most = i64::try_from(held.units.saturating_add(others)).ok()?;
                let before = own.map_or(0, |quota| i64::from(quota.limit)).min(most);
                Some(units(least((before, most), 1, |limit| at(units(limit)))))
            }
            Self::MaxNodes => usage.nodes.get(pool).copied().map(Level::Nodes),
            Self::Budget => rate(usage.cash(pool)),
            Self::OverallBudget => rate(usage.total_cash()),
            Self::ZoneShare => {
                let nodes = usage.zones.get(pool)?;
                percent(nodes.parts.values().copied().max()?, nodes.bought)
            }
            Self::ModelShare(model) => {
                let nodes = usage.models.get(pool)?;
                percent(*nodes.parts.get(model)?, nodes.bought)
            }
            Self::SpotShare => {
                let nodes = usage.spot.get(pool)?;
                percent(nodes.spot, nodes.bought)
            }
            Self::MarketShare => {
                let nodes = usage.spot.get(pool)?;
                let most = nodes.markets.values().copied().max()?;
                percent(most, nodes.bought)
            }
            Self::MaxInterruption | Self::Preference(_) | Self::MonthBudget(_) => None,
        }
    }
}

/// The least of a span, up to a grain, that will do: the most does, and what is above one that does.
fn least((mut low, mut most): (i64, i64), grain: i64, will_do: impl Fn(i64) -> bool) -> i64 {
    if low == most || will_do(low) {
        return low;
    }
    while most - low > grain {
        let middle = low + (most - low) / 2;
        *(if will_do(middle) { &mut most } else { &mut low }) = middle;
    }
    most
}

/// A budget is not told finer than this.
const CENT: i64 = 10_000;

/// A budget that pays for so much, also where its last part is kept for spot.
fn ample(cash: UsdPerHour, pool: &Pool) -> UsdPerHour {
    let whole = |cash: i64| (i128::from(cash) * 100 + 99) / i128::from(SPOT_ONLY_AT.0 - LEFT_BELOW);
    if pool.may_buy_spot() { UsdPerHour(i64::try_from(whole(cash.0)).unwrap_or(i64::MAX)) } else { cash }
}

fn own<'a>(policy: &'a mut Policy, pool: &PoolName) -> Option<&'a mut Pool> {
    policy.pools.iter_mut().find(|own| own.name == *pool)
}

/// Where a bound stands, and how high it must be for so many nodes more.
pub(super) fn raised(bound: &Bound, nodes: u32) -> (Option<Level>, Option<Level>) {
    match bound {
        Bound::MaxNodes { held, limit } | Bound::OffHours { held, limit } => {
            (Some(Level::Nodes(*limit)), Some(Level::Nodes((*limit).max(held.saturating_add(nodes)))))
        }
        Bound::Budget { spent, limit, price } | Bound::OverallBudget { spent, limit, price, kept: _ } => {
            (Some(Level::Rate(*limit)), Some(Level::Rate((*limit).max(spent.plus(price.times(nodes))))))
        }
        Bound::Quota { left, limit, need, unit, .. } => {
            let limit = u64::from(*limit);
            let more = need.saturating_mul(nodes.into()).saturating_sub(*left);
            (Some(Level::Units(limit, *unit)), Some(Level::Units(limit.saturating_add(more), *unit)))
        }
        Bound::SpotOnly { limit, .. } | Bound::MonthBudget { limit, .. } => (Some(Level::Rate(*limit)), None),
        Bound::SpotShare { limit, .. }
        | Bound::MarketShare { limit, .. }
        | Bound::ZoneShare { limit, .. }
        | Bound::ModelShare { limit, .. } => (Some(Level::Share(*limit)), None),
        Bound::QuotaUnlisted(_) | Bound::ForeignUnknown | Bound::PoolGone => (None, None),
    }
}
