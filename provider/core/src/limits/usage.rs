//! Usage of every limit, counted from the records: the only source of headroom.

mod count;
mod headroom;
mod room;
mod spread;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::engine_clock::Wall;
use crate::base::ids::{GpuModel, NodeGroupId, PoolName};
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::claims::{Claim, Claims};
use crate::catalogue::group::Group;
use crate::limits::commitment::Committed;
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::Pool;
use crate::state::budget::{BudgetOf, MonthSpend, Stage};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

pub(crate) use count::Owner;
pub use headroom::{Headroom, Limit};
pub use room::{Bound, Room};
pub use spread::{Spread, Zone, ZoneOf};

/// What is used of every limit.
///
/// A record without a purchase counts by its group's most expensive usable offer and against every quota that any of its group's offers
/// touches, so that whatever it becomes, nothing is oversold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The time for which it is counted: limits that suppliers told count for a day.
    pub wall: Wall,
    /// Records that count, by group.
    pub targets: BTreeMap<NodeGroupId, u32>,
    /// Records that count, by pool.
    pub nodes: BTreeMap<PoolName, u32>,
    /// Prices by pool, of all that is bought or being bought, and of what is wanted; without what commitments pay.
    pub spend: BTreeMap<PoolName, UsdPerHour>,
    /// What this cluster has of each quota, in the policy's order.
    pub quotas: Vec<Held>,
    /// How much of each pool is spot, for the pools that limit it.
    pub spot: BTreeMap<PoolName, Arc<SpotShare>>,
    /// How the pools spread over zones that limit the share of one.
    pub zones: BTreeMap<PoolName, Arc<Spread<Zone>>>,
    /// How the pools spread over GPU models, for the pools that limit the share of one.
    pub models: BTreeMap<PoolName, Arc<Spread<GpuModel>>>,
    /// What commitments pay of all that is bought.
    pub committed: Committed,
    /// How the budgets that are not ample stood when they were last told of.
    pub stages: BTreeMap<BudgetOf, Stage>,
    /// What was spent of the month, of budgets with a monthly limit, as far as it was counted.
    pub months: BTreeMap<BudgetOf, Arc<MonthSpend>>,
    /// The most nodes that pools may have whose off-hours it is.
    pub off_hours: BTreeMap<PoolName, u32>,
    /// Whether nodes that are not Stoker's count, and nobody knows them.
    pub foreign_unknown: bool,
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
    /// All of it: nodes, and what is wanted, being bought or on its way out; and nodes that are not Stoker's, where they count.
    pub units: u64,
    /// The part of it that is in flight: wanted, being bought, or not yet a Ready node.
    pub in_flight: u64,
}

impl Usage {
    /// Notes a change of what is bought under commitments.
    fn recommit(&mut self, group: &Group, market: &Market, price: UsdPerHour, nodes: i64, catalogue: &Catalogue) {
        if self.committed.note(catalogue, group, market, price, nodes) {
            self.committed.recount(&catalogue.policy.commitments);
        }
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

    /// The count of a pool that limits its share of spot; `None` for any other.
    fn share_of(&mut self, group: &Group, catalogue: &Catalogue) -> Option<&mut SpotShare> {
        let rules = catalogue.policy.pool(&group.pool)?.spot.as_ref()?;
        rules.limits_shares().then(|| Arc::make_mut(self.spot.entry(group.pool.clone()).or_default()))
    }

    /// Counts one more record.
    pub fn add(&mut self, record: &Record, group: &Group, catalogue: &Catalogue, wall: Wall) {
        self.apply(record, group, catalogue, wall, 1);
        if let Some(purchase) = record.purchase() {
            self.recommit(group, &purchase.market, purchase.price, 1, catalogue);
        }
    }

    /// Takes a record out of the count again.
    pub fn remove(&mut self, record: &Record, group: &Group, catalogue: &Catalogue, wall: Wall) {
        self.apply(record, group, catalogue, wall, -1);
        if let Some(purchase) = record.purchase() {
            self.recommit(group, &purchase.market, purchase.price, -1, catalogue);
        }
    }

    /// Counts nodes as being bought in a market, without records: for what-ifs.
    pub fn add_bought(&mut self, group: &Group, market: &Market, price: UsdPerHour, nodes: u32, catalogue: &Catalogue) {
        *self.targets.entry(group.id.clone()).or_default() += nodes;
        *self.nodes.entry(group.pool.clone()).or_default() += nodes;
        if let Some(share) = self.share_of(group, catalogue) {
            share.bought = share.bought.saturating_add(nodes);
            if market.capacity_type == CapacityType::Spot {
                share.add(&market.place, i64::from(nodes));
            }
        }
        self.spread_bought(group, &market.place, i64::from(nodes), catalogue);
        let spend = self.spend.entry(group.pool.clone()).or_default();
        *spend = spend.plus(price.times(nodes));
        self.recommit(group, market, price, i64::from(nodes), catalogue);
        self.claim(&catalogue.claims(group).under(market.capacity_type).listed, nodes, nodes);
    }

    fn apply(&mut self, record: &Record, group: &Group, catalogue: &Catalogue, wall: Wall, sign: i64) {
        let step = |n: &mut u32| *n = if sign > 0 { n.saturating_add(1) } else { n.saturating_sub(1) };
        if record.counts() {
            step(self.targets.entry(group.id.clone()).or_default());
            step(self.nodes.entry(group.pool.clone()).or_default());
        }
        let Some(Stake { price, claims }) = Stake::of(record, group, catalogue, wall) else { return };
        if record.counts() {
            self.spread_record(record, group, sign, catalogue);
        }
        if record.counts()
            && let Some(share) = self.share_of(group, catalogue)
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

    /// The most nodes that a pool may have now.
    fn max_nodes(&self, pool: &Pool) -> u32 {
        let off_hours = self.off_hours.get(&pool.name).copied();
        off_hours.map_or(pool.limits.max_nodes, |most| most.min(pool.limits.max_nodes))
    }

    /// Records that count in a group.
    pub fn target(&self, group: &NodeGroupId) -> u32 {
        self.targets.get(group).copied().unwrap_or(0)
    }
}

/// A count with so many added, or taken out again: never below zero.
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

/// Whether a market is where the group is. No quota looks at more of a place than this.
fn is_there(market: &Market, group: &Group) -> bool {
    market.place.region == group.place.region && market.place.cloud == group.place.cloud
}

/// The group of a record: from the catalogue, or as remembered where its pool is gone.
pub fn group_of<'a>(record: &Record, memory: &'a Memory, catalogue: &'a Catalogue) -> Option<&'a Group> {
    catalogue.group_or_remembered(&record.group, memory).map(AsRef::as_ref)
}

/// What a record has of the limits that count money and quota.
struct Stake {
    price: UsdPerHour,
    claims: Vec<Claim>,
}

impl Stake {
    /// `None` where nothing is bought and nothing wanted.
    fn of(record: &Record, group: &Group, catalogue: &Catalogue, wall: Wall) -> Option<Self> {
        if let Some(purchase) = record.purchase() {
            let market = &purchase.market;
            let claims = if is_there(market, group) {
                catalogue.claims(group).under(market.capacity_type).listed.clone()
            } else {
                Claims::of(&catalogue.policy, &market.place, &group.spec, market.capacity_type).listed
            };
            return Some(Self { price: purchase.price, claims });
        }
        if record.state == State::Wanted {
            let price = group.offers.iter().filter_map(|o| o.quote(wall).ok()).map(|q| q.price).max();
            return Some(Self { price: price.unwrap_or_default(), claims: catalogue.claims(group).wanted.clone() });
        }
        None
    }
}

/// The capacity type under which a node was bought, for bills and gauges.
pub const fn capacity_type(record: &Record) -> Option<CapacityType> {
    match record.purchase() {
        Some(purchase) => Some(purchase.market.capacity_type),
        None => None,
    }
}
