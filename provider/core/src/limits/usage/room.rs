//! Room: how many nodes of an offer the limits allow, and the words for what binds.

use serde::{Deserialize, Serialize};

use super::{Headroom, Limit, Usage};
use crate::base::ids::{GpuModel, Region, ZoneId};
use crate::base::kinds::QuotaUnit;
use crate::base::units::{Percent, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::claims::{Unlisted, in_region};
use crate::catalogue::group::Group;
use crate::catalogue::live::ToldLimit;
use crate::limits::budget::{LEFT_BELOW, SPOT_ONLY_AT};
use crate::limits::commitment::Marginal;
use crate::limits::month::Month;
use crate::market::offer::Offer;
use crate::state::budget::BudgetOf;

/// How many more nodes may be bought, and what stops the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// So many.
    pub nodes: u32,
    /// The limit that binds first; `None` where nothing does.
    pub bound: Option<Bound>,
}

/// The limit that allows the fewest nodes of an offer.
struct Tightest<'o> {
    nodes: u32,
    /// `None` where nothing binds.
    by: Option<Headroom<'o>>,
}

impl Usage {
    /// How many more nodes of `group` this offer may buy at the cost of the next one, and which limit says so.
    pub fn room(&self, group: &Group, offer: &Offer, next: &Marginal, catalogue: &Catalogue) -> Room {
        match self.tightest(group, offer, next, catalogue) {
            Ok(Tightest { nodes, by }) => {
                Room { nodes, bound: by.map(|headroom| self.bound(&headroom, group, next.cash, catalogue)) }
            }
            Err(bound) => Room { nodes: 0, bound: Some(bound) },
        }
    }

    /// How many more nodes of `group` this offer may buy at the cost of the next one.
    ///
    /// # Errors
    /// Says which limit allows none. Only then is it put in words: every pass asks this of every offer.
    pub(crate) fn nodes_left(
        &self,
        group: &Group,
        offer: &Offer,
        next: &Marginal,
        catalogue: &Catalogue,
    ) -> Result<u32, Bound> {
        match self.tightest(group, offer, next, catalogue)? {
            Tightest { nodes: 0, by: Some(headroom) } => Err(self.bound(&headroom, group, next.cash, catalogue)),
            Tightest { nodes, .. } => Ok(nodes),
        }
    }

    fn tightest<'o>(
        &self,
        group: &'o Group,
        offer: &'o Offer,
        next: &Marginal,
        catalogue: &Catalogue,
    ) -> Result<Tightest<'o>, Bound> {
        let mut tightest = Tightest { nodes: u32::MAX, by: None };
        self.each_limit(group, &offer.market, next.cash, catalogue, |headroom| {
            let nodes = match headroom.limit {
                // The nodes after the covered ones cost more.
                Limit::Budget { .. } => next.affordable(UsdPerHour(headroom.left)),
                Limit::SpotOnly { .. } => next.startable(UsdPerHour(headroom.left - next.cash.0 + 1)),
                _ => headroom.alone(),
            };
            if nodes < tightest.nodes {
                tightest = Tightest { nodes, by: Some(headroom) };
            }
        })?;
        Ok(tightest)
    }
}

/// A limit that binds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// The pool's `maxNodes`.
    #[error("limits.maxNodes: {held} of {limit} nodes in use")]
    MaxNodes {
        /// Nodes held.
        held: u32,
        /// The limit.
        limit: u32,
    },
    /// The pool's `offHours.maxNodes`.
    #[error("offHours.maxNodes: {held} of {limit} nodes in use")]
    OffHours {
        /// Nodes held.
        held: u32,
        /// The limit in off-hours.
        limit: u32,
    },
    /// The pool's budget.
    #[error("limits.maxUsdPerHour: {spent}/h of {limit}/h spent, one more costs {price}/h")]
    Budget {
        /// Spend rate, what is being bought included.
        spent: UsdPerHour,
        /// The limit.
        limit: UsdPerHour,
        /// What one more node costs.
        price: UsdPerHour,
    },
    /// The budget of all pools together.
    #[error("limits.maxUsdPerHour of all pools: {spent}/h of {limit}/h spent, one more costs {price}/h{}", kept_for_others(*.kept))]
    OverallBudget {
        /// Spend rate of all pools, what is being bought included.
        spent: UsdPerHour,
        /// The limit.
        limit: UsdPerHour,
        /// What one more node costs.
        price: UsdPerHour,
        /// What is kept for other pools, and so is no part of the limit.
        #[serde(default, skip_serializing_if = "UsdPerHour::is_zero")]
        kept: UsdPerHour,
    },
    /// A monthly budget.
    #[error("limits.maxUsdPerMonth of {of}: {month}, which leaves {limit}/h; {spent}/h spent, one more costs {price}/h")]
    MonthBudget {
        /// Whose budget.
        of: BudgetOf,
        /// How it stands.
        month: Month,
        /// Spend rate, what is being bought included.
        spent: UsdPerHour,
        /// The rate that is left, without what is kept for other pools.
        limit: UsdPerHour,
        /// What one more node costs.
        price: UsdPerHour,
    },
    /// What is left of a budget is kept for spot.
    #[error(
        "limits.maxUsdPerHour of {of}: {spent}/h of {limit}/h spent, only spot is bought from {SPOT_ONLY_AT} on, until spend \
         is {LEFT_BELOW} points lower"
    )]
    SpotOnly {
        /// Whose budget.
        of: BudgetOf,
        /// Spend rate, what is being bought included.
        spent: UsdPerHour,
        /// The limit.
        limit: UsdPerHour,
    },
    /// A quota.
    #[error("quota {name}{}: {left} of {limit} {unit} left, {in_flight} in flight, one more needs {need}{}", in_region(.region.as_ref()), by(.told.as_deref()))]
    Quota {
        /// Its name.
        name: String,
        /// The region; `None` where it counts all of them.
        region: Option<Region>,
        /// Units left: limit − used by others − ours − safety.
        left: u64,
        /// The limit.
        limit: u32,
        /// Who told that limit, where it is lower than the policy's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<Box<ToldLimit>>,
        /// Units of Stoker's that are not yet Ready nodes.
        in_flight: u64,
        /// Units that one more node needs.
        need: u64,
        /// The unit.
        unit: QuotaUnit,
    },
    /// A quota that the policy does not list.
    #[error("{0} is not in the policy: list it under quotas with its limit, or write defaults.unknownQuota: allow")]
    QuotaUnlisted(Unlisted),
    /// Nodes that are not Stoker's count, and are not known.
    #[error("karpenter.countNodes: which GPU nodes of the cluster others bought is not known yet")]
    ForeignUnknown,
    /// The pool's share of spot.
    #[error("capacity.spot.maxShare {limit}: {spot} of {nodes} nodes are spot")]
    SpotShare {
        /// Spot nodes, what may become so included.
        spot: u32,
        /// Nodes bought.
        nodes: u32,
        /// The largest share.
        limit: Percent,
    },
    /// The pool's share of one spot market.
    #[error("capacity.spot.maxMarketShare {limit}: {here} of {nodes} nodes are in this market")]
    MarketShare {
        /// Spot nodes in this market, what may become so included.
        here: u32,
        /// Nodes bought.
        nodes: u32,
        /// The largest share.
        limit: Percent,
    },
    /// The pool's share of one zone.
    #[error("where.maxZoneShare {limit}: {here} of {nodes} nodes are in zone {zone}")]
    ZoneShare {
        /// The zone, by id.
        zone: ZoneId,
        /// Nodes in it, what is wanted there included.
        here: u32,
        /// Nodes bought.
        nodes: u32,
        /// The largest share.
        limit: Percent,
    },
    /// The pool's share of one GPU model.
    #[error("gpu.maxShare {limit} of {model}: {here} of {nodes} nodes have {model}")]
    ModelShare {
        /// The model.
        model: GpuModel,
        /// Nodes of it, what is wanted of it included.
        here: u32,
        /// Nodes bought.
        nodes: u32,
        /// The largest share.
        limit: Percent,
    },
    /// The pool is not in the policy any more.
    #[error("the pool is no longer in the policy")]
    PoolGone,
}

/// What is kept of a budget, as the end of a message.
fn kept_for_others(kept: UsdPerHour) -> String {
    if kept.is_zero() { String::new() } else { format!(", and {kept}/h are kept for other pools") }
}

/// Who told a limit, as the end of a message.
fn by(told: Option<&ToldLimit>) -> String {
    told.map(|told| format!(": {told}, less than the policy")).unwrap_or_default()
}
