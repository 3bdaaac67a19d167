//! What is used of every limit, counted from the records: the only place where headroom comes from.

mod headroom;
mod zones;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::budget::{BudgetOf, LEFT_BELOW, SPOT_ONLY_AT, Stage};
use crate::commitment::{Committed, Marginal};
use crate::group::{Group, Menu, Offer};
use crate::ids::{NodeGroupId, PoolName, Region, ZoneId};
use crate::lookup::Lookup;
use crate::memory::Memory;
use crate::offer::{CapacityType, Market, Place};
use crate::policy::QuotaUnit;
use crate::quota::{Claim, Claims, Unlisted, in_region};
use crate::record::{Record, State};
use crate::units::{Percent, UsdPerHour};

pub use headroom::{Headroom, Limit};
pub use zones::{Zone, ZoneOf, ZoneShare};

/// What is used of every limit.
///
/// A record without a purchase counts by its group's dearest usable offer and against every quota that any of its group's offers
/// touches, so that whatever it becomes, nothing is oversold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records that count, by group.
    pub targets: BTreeMap<NodeGroupId, u32>,
    /// Records that count, by pool.
    pub nodes: BTreeMap<PoolName, u32>,
    /// Prices by pool, of all that is bought or being bought, and of what is wanted; without what commitments pay.
    pub spend: BTreeMap<PoolName, UsdPerHour>,
    /// What this cluster has of each quota, in the policy's order.
    pub quotas: Vec<Held>,
    /// How much of each pool is spot, for the pools that limit it.
    pub spot: BTreeMap<PoolName, SpotShare>,
    /// How the pools spread over zones that limit the share of one.
    pub zones: BTreeMap<PoolName, ZoneShare>,
    /// What commitments pay of all that is bought.
    pub committed: Committed,
    /// How the budgets that are not ample stood when they were last told of.
    pub stages: BTreeMap<BudgetOf, Stage>,
}

/// How much of a pool is spot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpotShare {
    /// Nodes bought or being bought that count: what the shares are shares of.
    pub bought: u32,
    /// Those of them that are spot, and those wanted that may become so.
    pub spot: u32,
    /// The same by market.
    pub markets: BTreeMap<Place, u32>,
}

/// What this cluster has of a quota, in the quota's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// All of it: nodes, and what is wanted, being bought or on its way out.
    pub units: u64,
    /// The part of it that is in flight: wanted, being bought, or not yet a Ready node.
    pub in_flight: u64,
}

impl Usage {
    /// Counts every record.
    pub fn count(memory: &Memory, menu: &Menu, now: Timestamp) -> Self {
        let committed = Committed::count(memory, menu, now);
        let (quotas, stages) = (vec![Held::default(); menu.policy.quotas.len()], memory.budgets.clone());
        let mut usage = Self { quotas, committed, stages, ..Self::default() };
        // Most records are nodes bought where their group is: those are counted by group and capacity type, and added up at the end.
        let mut known: Lookup<&NodeGroupId, Lots<'_>> = menu.groups.iter().map(|(id, group)| (id, Lots::of(group))).collect();
        for record in memory.records.values() {
            let simple = known.get_mut(&record.group).is_some_and(|lots| lots.take(record));
            if !simple && let Some(group) = group_of(record, memory, menu) {
                usage.apply(record, group, menu, now, 1);
            }
        }
        for id in menu.groups.keys() {
            if let Some(lots) = known.get(id) {
                usage.add_lots(lots, menu);
            }
        }
        usage
    }

    /// Notes a change of what is bought under commitments.
    fn recommit(&mut self, group: &Group, market: &Market, price: UsdPerHour, nodes: i64, menu: &Menu) {
        self.committed.note(&menu.policy.commitments, group, market, price, nodes);
        self.committed.recount(&menu.policy.commitments);
    }

    /// The cash rate of a pool: the prices of all that is bought, being bought or wanted, less what commitments pay of them.
    ///
    /// A covered node is no new cash: its commitment is paid for whether it runs or not, out of a decision that no pool made. Nodes are
    /// covered in the order in which they were bought, so that no pool's purchase takes another pool's cover by count away; a plan that
    /// turns to usage with a greater discount does.
    pub fn cash(&self, pool: &PoolName) -> UsdPerHour {
        self.spend.get(pool).copied().unwrap_or_default().minus(self.committed.relief(pool))
    }

    /// The cash rate of all pools together, those that are not in the policy any more included.
    pub fn total_cash(&self) -> UsdPerHour {
        let prices = self.spend.values().fold(UsdPerHour::ZERO, |sum, prices| sum.plus(*prices));
        prices.minus(self.committed.total_relief())
    }

    fn add_lots(&mut self, lots: &Lots<'_>, menu: &Menu) {
        let group = lots.group;
        if lots.nodes > 0 {
            let targets = self.targets.entry(group.id.clone()).or_default();
            *targets = targets.saturating_add(lots.nodes);
            let nodes = self.nodes.entry(group.pool.clone()).or_default();
            *nodes = nodes.saturating_add(lots.nodes);
            self.zone_bought(group, &group.place, i64::from(lots.nodes), menu);
        }
        if lots.nodes > 0
            && let Some(share) = self.share_of(group, menu)
        {
            share.bought = share.bought.saturating_add(lots.nodes);
            share.add(&group.place, i64::from(lots.spot));
        }
        for (capacity_type, lot) in CapacityType::ALL.into_iter().zip(lots.bought).filter(|(_, lot)| lot.nodes > 0) {
            let spend = self.spend.entry(group.pool.clone()).or_default();
            *spend = spend.plus(lot.price);
            self.claim(&menu.claims(group).under(capacity_type).listed, lot.nodes, lot.in_flight);
        }
    }

    /// The count of a pool that limits its share of spot; `None` for any other.
    fn share_of(&mut self, group: &Group, menu: &Menu) -> Option<&mut SpotShare> {
        let rules = menu.policy.pool(&group.pool)?.spot.as_ref()?;
        rules.limits_shares().then(|| self.spot.entry(group.pool.clone()).or_default())
    }

    /// Counts one more record.
    pub fn add(&mut self, record: &Record, group: &Group, menu: &Menu, now: Timestamp) {
        self.apply(record, group, menu, now, 1);
        if let Some(purchase) = record.purchase() {
            self.recommit(group, &purchase.market, purchase.price, 1, menu);
        }
    }

    /// Takes a record out of the count again.
    pub fn remove(&mut self, record: &Record, group: &Group, menu: &Menu, now: Timestamp) {
        self.apply(record, group, menu, now, -1);
        if let Some(purchase) = record.purchase() {
            self.recommit(group, &purchase.market, purchase.price, -1, menu);
        }
    }

    /// Counts nodes as being bought in a market, without records: for what-ifs.
    pub fn add_bought(&mut self, group: &Group, market: &Market, price: UsdPerHour, nodes: u32, menu: &Menu) {
        *self.targets.entry(group.id.clone()).or_default() += nodes;
        *self.nodes.entry(group.pool.clone()).or_default() += nodes;
        if let Some(share) = self.share_of(group, menu) {
            share.bought = share.bought.saturating_add(nodes);
            if market.capacity_type == CapacityType::Spot {
                share.add(&market.place, i64::from(nodes));
            }
        }
        self.zone_bought(group, &market.place, i64::from(nodes), menu);
        let spend = self.spend.entry(group.pool.clone()).or_default();
        *spend = spend.plus(price.times(nodes));
        self.recommit(group, market, price, i64::from(nodes), menu);
        self.claim(&menu.claims(group).under(market.capacity_type).listed, nodes, nodes);
    }

    fn apply(&mut self, record: &Record, group: &Group, menu: &Menu, now: Timestamp, sign: i64) {
        let step = |n: &mut u32| *n = if sign > 0 { n.saturating_add(1) } else { n.saturating_sub(1) };
        if record.counts() {
            step(self.targets.entry(group.id.clone()).or_default());
            step(self.nodes.entry(group.pool.clone()).or_default());
        }
        let Some(Stake { price, claims }) = Stake::of(record, group, menu, now) else { return };
        if record.counts() {
            self.zone_record(record, group, sign, menu);
        }
        if record.counts()
            && let Some(share) = self.share_of(group, menu)
        {
            match record.purchase().map(|purchase| &purchase.market) {
                Some(market) => {
                    step(&mut share.bought);
                    if market.capacity_type == CapacityType::Spot {
                        share.add(&market.place, sign);
                    }
                }
                None if group.offers.iter().any(|offer| offer.market.capacity_type == CapacityType::Spot) => {
                    share.add(&group.place, sign);
                }
                None => {}
            }
        }
        let spend = self.spend.entry(group.pool.clone()).or_default();
        *spend = if sign > 0 { spend.plus(price) } else { spend.minus(price) };
        let in_flight = u32::from(record.is_coming());
        if sign > 0 { self.claim(&claims, 1, in_flight) } else { self.unclaim(&claims, in_flight) }
    }

    fn claim(&mut self, claims: &[Claim], nodes: u32, in_flight: u32) {
        for claim in claims {
            let Some(held) = self.quotas.get_mut(claim.quota) else { continue };
            held.units = held.units.saturating_add(claim.units.saturating_mul(u64::from(nodes)));
            held.in_flight = held.in_flight.saturating_add(claim.units.saturating_mul(u64::from(in_flight)));
        }
    }

    fn unclaim(&mut self, claims: &[Claim], in_flight: u32) {
        for claim in claims {
            let Some(held) = self.quotas.get_mut(claim.quota) else { continue };
            held.units = held.units.saturating_sub(claim.units);
            held.in_flight = held.in_flight.saturating_sub(claim.units.saturating_mul(u64::from(in_flight)));
        }
    }

    /// Records that count in a group.
    pub fn target(&self, group: &NodeGroupId) -> u32 {
        self.targets.get(group).copied().unwrap_or(0)
    }

    /// How many more nodes of `group` this offer may buy at the cost of the next one, and which limit says so.
    pub fn room(&self, group: &Group, offer: &Offer, next: &Marginal, menu: &Menu) -> Room {
        let mut room = Room { nodes: u32::MAX, bound: None };
        let counted = self.each_limit(group, &offer.market, next.cash, menu, |headroom| {
            let nodes = match headroom.limit {
                // The nodes after the covered ones cost more.
                Limit::Budget { .. } => next.affordable(UsdPerHour(headroom.left)),
                Limit::SpotOnly { .. } => next.startable(UsdPerHour(headroom.left - next.cash.0 + 1)),
                _ => headroom.alone(),
            };
            room.lower(nodes, || self.bound(&headroom, group, next.cash, menu));
        });
        match counted {
            Ok(()) => room,
            Err(bound) => Room { nodes: 0, bound: Some(bound) },
        }
    }
}

/// A count with so many added, or taken out again: never below nought.
pub(crate) fn moved(count: u32, by: i64) -> u32 {
    u32::try_from(i64::from(count).saturating_add(by).max(0)).unwrap_or(u32::MAX)
}

impl SpotShare {
    /// Adds spot nodes of a market, or takes them out again.
    fn add(&mut self, place: &Place, nodes: i64) {
        self.spot = moved(self.spot, nodes);
        let here = self.markets.entry(place.clone()).or_default();
        *here = moved(*here, nodes);
    }
}

/// The nodes of one group, as long as all of them are bought where the group is.
struct Lots<'a> {
    group: &'a Group,
    /// Records that count.
    nodes: u32,
    /// Those of them that are spot.
    spot: u32,
    /// Records bought, by capacity type in declared order.
    bought: [Lot; 3],
}

/// Nodes bought alike.
#[derive(Clone, Copy, Default)]
struct Lot {
    nodes: u32,
    /// Of those, the ones that are not Ready yet.
    in_flight: u32,
    /// What they cost together.
    price: UsdPerHour,
}

impl<'a> Lots<'a> {
    fn of(group: &'a Group) -> Self {
        Self { group, nodes: 0, spot: 0, bought: [Lot::default(); 3] }
    }

    /// Takes a record in, unless it is only wanted or was bought elsewhere.
    fn take(&mut self, record: &Record) -> bool {
        let bought = record.purchase().filter(|purchase| purchase.market.place == self.group.place);
        let Some(purchase) = bought else { return false };
        let capacity_type = purchase.market.capacity_type;
        let Some(at) = CapacityType::ALL.iter().position(|&c| c == capacity_type) else { return false };
        let Some(lot) = self.bought.get_mut(at) else { return false };
        lot.nodes = lot.nodes.saturating_add(1);
        lot.in_flight = lot.in_flight.saturating_add(u32::from(record.is_coming()));
        lot.price = lot.price.plus(purchase.price);
        if record.counts() {
            self.nodes = self.nodes.saturating_add(1);
            if capacity_type == CapacityType::Spot {
                self.spot = self.spot.saturating_add(1);
            }
        }
        true
    }
}

/// Whether a market is where the group is. No quota looks at more of a place than this.
fn is_there(market: &Market, group: &Group) -> bool {
    market.place.region == group.place.region && market.place.cloud == group.place.cloud
}

/// The group of a record: from the menu, or as remembered where its pool is gone.
pub fn group_of<'a>(record: &Record, memory: &'a Memory, menu: &'a Menu) -> Option<&'a Group> {
    menu.group_or_remembered(&record.group, memory).map(AsRef::as_ref)
}

/// What a record has of the limits that count money and quota.
struct Stake {
    price: UsdPerHour,
    claims: Vec<Claim>,
}

impl Stake {
    /// `None` where nothing is bought and nothing wanted.
    fn of(record: &Record, group: &Group, menu: &Menu, now: Timestamp) -> Option<Self> {
        if let Some(purchase) = record.purchase() {
            let market = &purchase.market;
            let claims = if is_there(market, group) {
                menu.claims(group).under(market.capacity_type).listed.clone()
            } else {
                Claims::of(&menu.policy, &market.place, &group.spec, market.capacity_type).listed
            };
            return Some(Self { price: purchase.price, claims });
        }
        if record.state == State::Wanted {
            let price = group.offers.iter().filter_map(|o| o.quote(now).ok()).map(|q| q.price).max();
            return Some(Self { price: price.unwrap_or_default(), claims: menu.claims(group).wanted.clone() });
        }
        None
    }
}

/// How many more nodes may be bought, and what stops the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// So many.
    pub nodes: u32,
    /// The limit that binds first; `None` where nothing does.
    pub bound: Option<Bound>,
}

impl Room {
    fn lower(&mut self, nodes: u32, bound: impl FnOnce() -> Bound) {
        if nodes < self.nodes {
            *self = Self { nodes, bound: Some(bound()) };
        }
    }
}

/// A limit that binds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// The pool's `maxNodes`.
    #[error("limits.maxNodes: {held} of {limit} nodes held")]
    MaxNodes {
        /// Nodes held.
        held: u32,
        /// The limit.
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
    #[error("limits.maxUsdPerHour of all pools: {spent}/h of {limit}/h spent, one more costs {price}/h")]
    OverallBudget {
        /// Spend rate of all pools, what is being bought included.
        spent: UsdPerHour,
        /// The limit.
        limit: UsdPerHour,
        /// What one more node costs.
        price: UsdPerHour,
    },
    /// What is left of a budget is kept for spot.
    #[error(
        "limits.maxUsdPerHour of {of}: {spent}/h of {limit}/h spent, from {SPOT_ONLY_AT} on, until {LEFT_BELOW} points less are spent, only spot is bought"
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
    #[error("quota {name}{}: {left} of {limit} {unit} left, {in_flight} in flight, one more needs {need}", in_region(.region.as_ref()))]
    Quota {
        /// Its name.
        name: String,
        /// The region; `None` where it counts all of them.
        region: Option<Region>,
        /// Units left: limit − used by others − ours − safety.
        left: u64,
        /// The limit.
        limit: u32,
        /// Units of ours that are not yet Ready nodes.
        in_flight: u64,
        /// Units that one more node needs.
        need: u64,
        /// The unit.
        unit: QuotaUnit,
    },
    /// A quota that the policy does not list.
    #[error("{0} is not in the policy: list it under quotas with its limit, or write defaults.unknownQuota: allow")]
    QuotaUnlisted(Unlisted),
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
    /// The pool is not in the policy any more.
    #[error("the pool is not in the policy any more")]
    PoolGone,
}

/// The capacity type under which a node was bought, for bills and gauges.
pub const fn capacity_type(record: &Record) -> Option<CapacityType> {
    match record.purchase() {
        Some(purchase) => Some(purchase.market.capacity_type),
        None => None,
    }
}
