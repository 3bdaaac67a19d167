//! What is used of every limit, counted from the records: the only place where headroom comes from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::commitment::{Committed, Marginal};
use crate::group::{Group, Menu, Offer};
use crate::ids::{NodeGroupId, PoolName};
use crate::lookup::Lookup;
use crate::memory::Memory;
use crate::offer::{CapacityType, Market};
use crate::policy::{Quota, QuotaLimit};
use crate::record::Record;
use crate::units::UsdPerHour;

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
    /// Units used of each quota, in the policy's order.
    pub quotas: Vec<u64>,
    /// What commitments pay of all that is bought.
    pub committed: Committed,
}

impl Usage {
    /// Counts every record.
    pub fn count(memory: &Memory, menu: &Menu, now: Timestamp) -> Self {
        let committed = Committed::count(memory, menu, now);
        let mut usage = Self { quotas: vec![0; menu.policy.quotas.len()], committed, ..Self::default() };
        // Most records are nodes bought where their group is: those are counted by group and capacity type, and added up at the end.
        let mut known: Lookup<&NodeGroupId, Held<'_>> =
            menu.groups.iter().map(|(id, group)| (id, Held { group, nodes: 0, bought: [(0, UsdPerHour::ZERO); 3] })).collect();
        for record in memory.records.values() {
            let simple = known.get_mut(&record.group).is_some_and(|held| held.take(record));
            if !simple && let Some(group) = group_of(record, memory, menu) {
                usage.apply(record, group, menu, now, 1);
            }
        }
        for id in menu.groups.keys() {
            if let Some(held) = known.get(id) {
                usage.add_held(held, menu);
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

    fn add_held(&mut self, held: &Held<'_>, menu: &Menu) {
        let group = held.group;
        if held.nodes > 0 {
            let targets = self.targets.entry(group.id.clone()).or_default();
            *targets = targets.saturating_add(held.nodes);
            let nodes = self.nodes.entry(group.pool.clone()).or_default();
            *nodes = nodes.saturating_add(held.nodes);
        }
        for (capacity_type, (bought, price)) in CapacityType::ALL.into_iter().zip(held.bought) {
            if bought == 0 {
                continue;
            }
            let spend = self.spend.entry(group.pool.clone()).or_default();
            *spend = spend.plus(price);
            let market = Market { place: group.place.clone(), capacity_type };
            for (used, quota) in self.quotas.iter_mut().zip(&menu.policy.quotas) {
                if covers(quota, &market, group) {
                    *used = used.saturating_add(units(quota, group).saturating_mul(u64::from(bought)));
                }
            }
        }
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

    /// Counts nodes as bought in a market, without records: for what-ifs.
    pub fn add_bought(&mut self, group: &Group, market: &Market, price: UsdPerHour, nodes: u32, menu: &Menu) {
        *self.targets.entry(group.id.clone()).or_default() += nodes;
        *self.nodes.entry(group.pool.clone()).or_default() += nodes;
        let spend = self.spend.entry(group.pool.clone()).or_default();
        *spend = spend.plus(price.times(nodes));
        self.recommit(group, market, price, i64::from(nodes), menu);
        for (used, quota) in self.quotas.iter_mut().zip(&menu.policy.quotas) {
            if covers(quota, market, group) {
                *used = used.saturating_add(units(quota, group).saturating_mul(u64::from(nodes)));
            }
        }
    }

    fn apply(&mut self, record: &Record, group: &Group, menu: &Menu, now: Timestamp, sign: i64) {
        let step = |n: &mut u32| *n = if sign > 0 { n.saturating_add(1) } else { n.saturating_sub(1) };
        if record.counts() {
            step(self.targets.entry(group.id.clone()).or_default());
            step(self.nodes.entry(group.pool.clone()).or_default());
        }
        let claim = Claim::of(record, group, now);
        if let Claim::Nothing = claim {
            return;
        }
        let spend = self.spend.entry(group.pool.clone()).or_default();
        let price = claim.price();
        *spend = if sign > 0 { spend.plus(price) } else { spend.minus(price) };
        for (used, quota) in self.quotas.iter_mut().zip(&menu.policy.quotas) {
            if claim.touches(quota, group) {
                let units = units(quota, group);
                *used = if sign > 0 { used.saturating_add(units) } else { used.saturating_sub(units) };
            }
        }
    }

    /// Records that count in a group.
    pub fn target(&self, group: &NodeGroupId) -> u32 {
        self.targets.get(group).copied().unwrap_or(0)
    }

    /// How many more nodes of `group` this offer may buy at the cost of the next one, and which limit says so.
    pub fn room(&self, group: &Group, offer: &Offer, next: &Marginal, menu: &Menu) -> Room {
        let mut room = Room { nodes: u32::MAX, bound: None };
        let Some(pool) = menu.policy.pool(&group.pool) else {
            return Room { nodes: 0, bound: Some(Bound::PoolGone) };
        };
        let held = self.nodes.get(&group.pool).copied().unwrap_or(0);
        room.lower(pool.limits.max_nodes.saturating_sub(held), || Bound::MaxNodes { held, limit: pool.limits.max_nodes });
        if let Some(limit) = pool.limits.max_usd_per_hour {
            let spent = self.cash(&group.pool);
            room.lower(next.affordable(limit.minus(spent)), || Bound::Budget { spent, limit, price: next.cash });
        }
        for (quota, used) in menu.policy.quotas.iter().zip(&self.quotas) {
            if covers(quota, &offer.market, group) {
                let need = units(quota, group).max(1);
                let limit = limit_of(quota);
                let left = limit.saturating_sub(*used) / need;
                room.lower(u32::try_from(left).unwrap_or(u32::MAX), || Bound::Quota {
                    name: quota.name.clone(),
                    region: group.place.region.to_string(),
                    used: *used,
                    limit,
                    need,
                    unit: unit_of(quota).to_owned(),
                });
            }
        }
        room
    }
}

/// What is held of one group, as long as all of it is bought where the group is.
struct Held<'a> {
    group: &'a Group,
    /// Records that count.
    nodes: u32,
    /// Records bought and what they cost, by capacity type in declared order.
    bought: [(u32, UsdPerHour); 3],
}

impl Held<'_> {
    /// Takes a record in, unless it is only wanted or was bought elsewhere.
    fn take(&mut self, record: &Record) -> bool {
        let bought = record.purchase().filter(|purchase| {
            // No quota looks at more of a market than this.
            let place = &purchase.market.place;
            place.region == self.group.place.region && place.cloud == self.group.place.cloud
        });
        let Some(purchase) = bought else { return false };
        let capacity_type = purchase.market.capacity_type;
        let Some(at) = CapacityType::ALL.iter().position(|&c| c == capacity_type) else { return false };
        let Some((nodes, price)) = self.bought.get_mut(at) else { return false };
        *nodes = nodes.saturating_add(1);
        *price = price.plus(purchase.price);
        if record.counts() {
            self.nodes = self.nodes.saturating_add(1);
        }
        true
    }
}

/// The group of a record: from the menu, or as remembered where its pool is gone.
pub fn group_of<'a>(record: &Record, memory: &'a Memory, menu: &'a Menu) -> Option<&'a Group> {
    menu.group_or_remembered(&record.group, memory).map(AsRef::as_ref)
}

/// What a record lays claim to.
enum Claim<'a> {
    Nothing,
    Bought { market: &'a Market, price: UsdPerHour },
    Wanted { offers: &'a [Offer], price: UsdPerHour },
}

impl<'a> Claim<'a> {
    fn of(record: &'a Record, group: &'a Group, now: Timestamp) -> Self {
        if let Some(purchase) = record.purchase() {
            return Self::Bought { market: &purchase.market, price: purchase.price };
        }
        if matches!(record.state, crate::record::State::Wanted) {
            let price = group.offers.iter().filter_map(|o| o.quote(now).ok()).map(|q| q.price).max();
            return Self::Wanted { offers: &group.offers, price: price.unwrap_or_default() };
        }
        Self::Nothing
    }

    const fn price(&self) -> UsdPerHour {
        match self {
            Self::Nothing => UsdPerHour::ZERO,
            Self::Bought { price, .. } | Self::Wanted { price, .. } => *price,
        }
    }

    fn touches(&self, quota: &Quota, group: &Group) -> bool {
        match self {
            Self::Nothing => false,
            Self::Bought { market, .. } => covers(quota, market, group),
            Self::Wanted { offers, .. } => offers.iter().any(|offer| covers(quota, &offer.market, group)),
        }
    }
}

/// Whether a quota counts nodes bought in this market.
pub fn covers(quota: &Quota, market: &Market, group: &Group) -> bool {
    quota.cloud == market.place.cloud
        && quota.region.as_ref().is_none_or(|region| *region == market.place.region)
        && (quota.models.is_empty() || quota.models.contains(&group.spec.gpu_model))
        && (quota.capacity_types.is_empty() || quota.capacity_types.contains(&market.capacity_type))
}

/// Units of a quota that one node takes. Unknown CPUs never get here: such a type has no template and so no group.
pub fn units(quota: &Quota, group: &Group) -> u64 {
    match quota.limit {
        QuotaLimit::Vcpus(_) => u64::from(group.spec.vcpus.unwrap_or(u32::MAX)),
        QuotaLimit::Gpus(_) => u64::from(group.spec.advertised_gpus()),
    }
}

const fn limit_of(quota: &Quota) -> u64 {
    match quota.limit {
        QuotaLimit::Vcpus(n) | QuotaLimit::Gpus(n) => n as u64,
    }
}

const fn unit_of(quota: &Quota) -> &'static str {
    match quota.limit {
        QuotaLimit::Vcpus(_) => "vCPU",
        QuotaLimit::Gpus(_) => "GPU",
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
    /// A quota.
    #[error("quota {name} {region}: {used} of {limit} {unit} used or in flight, one more needs {need}")]
    Quota {
        /// Its name.
        name: String,
        /// The region.
        region: String,
        /// Units used, in flight included.
        used: u64,
        /// The limit.
        limit: u64,
        /// Units that one more node needs.
        need: u64,
        /// `vCPU` or `GPU`.
        unit: String,
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
