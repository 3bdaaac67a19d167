//! How much of each commitment is used, by what, and what one more node costs.
//!
//! The bill is worked out as the clouds do: kept capacity first, then discounts by count (zonal before regional), then savings plans (of
//! a family before those of a whole cloud), each on the usage with the greatest discount first. What one more node costs is the bill with
//! it less the bill without.

use std::cmp::Reverse;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Capacity, Commitment, CommittedNodes, Paid, Terms};
use crate::group::{Group, Menu};
use crate::ids::{GpuModel, NodeGroupId, PoolName};
use crate::lookup::Lookup;
use crate::memory::Memory;
use crate::offer::{CapacityType, Market, Place};
use crate::record::{Purchase, Record};
use crate::units::{Milli, UsdPerHour};
use crate::usage::group_of;

/// A covered node costs this share of its price: near nothing, but in the same order, and never nought, which would be an unknown
/// price. Karpenter divides the price of a reservation by the same (`pricing-notes` §4).
const TRIFLE: i64 = 10_000_000;

/// Nodes that one pool bought alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The pool.
    pub pool: PoolName,
    /// Where and how they were bought.
    pub market: Market,
    /// Advertised GPUs of one.
    pub gpus: u32,
    /// What one costs without any commitment.
    pub price: UsdPerHour,
    /// So many nodes.
    pub nodes: u32,
}

/// What commitments pay of the nodes of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCover {
    /// The nodes.
    pub line: Line,
    /// The commitments that pay, by their place in the policy, and how much of the line's price each pays.
    pub by: Vec<(usize, UsdPerHour)>,
}

/// An amount of a commitment, in the unit that it is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// Nodes.
    Nodes(u32),
    /// GPUs.
    Gpus(u32),
    /// Spend at the plan's rates.
    Spend(UsdPerHour),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(1) => f.write_str("1 node"),
            Self::Nodes(nodes) => write!(f, "{nodes} nodes"),
            Self::Gpus(1) => f.write_str("1 GPU"),
            Self::Gpus(gpus) => write!(f, "{gpus} GPUs"),
            Self::Spend(rate) => write!(f, "{rate}/h"),
        }
    }
}

/// How much of a commitment is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Its name.
    pub name: String,
    /// Whether it counts now. One that does not has nothing used and nothing unused.
    pub active: bool,
    /// What is used.
    pub used: Amount,
    /// What is paid for and not used.
    pub unused: Amount,
    /// What the unused part costs; `None` for capacity billed on demand at a place whose on-demand price is not known.
    pub unused_rate: Option<UsdPerHour>,
}

/// What one more node in a market would cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marginal {
    /// What it costs without any commitment.
    pub price: UsdPerHour,
    /// What it adds to the bill: nought while a commitment covers it, a part of its price where one covers it in part.
    pub cash: UsdPerHour,
    /// What covers it.
    pub by: Option<CoveredBy>,
    /// How many nodes from here on cost the same, at least one.
    pub alike: u32,
}

/// The commitment that covers a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredBy {
    /// Its name.
    pub name: String,
    /// How much of the node's price is saved, in thousandths.
    pub share: Milli,
}

impl fmt::Display for CoveredBy {
    /// `covered by commitment ri`; a half-covered node is `0.500 covered by commitment sp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            Milli(1000) => write!(f, "covered by commitment {}", self.name),
            share => write!(f, "{share} covered by commitment {}", self.name),
        }
    }
}

/// Why no node can be bought from kept capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum NoSlot {
    /// All of it is used.
    #[error("commitment {name} is full: {nodes} of {nodes} nodes used")]
    Full {
        /// Its name.
        name: String,
        /// Its nodes.
        nodes: u32,
    },
    /// It has not begun.
    #[error("commitment {name} begins at {}", .from.strftime("%Y-%m-%d %H:%MZ"))]
    NotBegun {
        /// Its name.
        name: String,
        /// When it begins.
        from: Timestamp,
    },
    /// It is over, or so near its end that nodes must leave.
    #[error("commitment {name} takes nothing new since {}", .since.strftime("%Y-%m-%d %H:%MZ"))]
    Ending {
        /// Its name.
        name: String,
        /// Since when.
        since: Timestamp,
    },
}

impl Marginal {
    /// A node that nothing covers.
    pub const fn uncovered(price: UsdPerHour) -> Self {
        Self { price, cash: price, by: None, alike: u32::MAX }
    }

    /// What the choice ranks by: the cash, or a trifle of the price where no cash is due.
    pub fn effective(&self) -> UsdPerHour {
        self.cash.max(UsdPerHour(self.price.0 / TRIFLE)).max(UsdPerHour(1))
    }

    /// How many such nodes `left` pays for: those that cost the same as the next one, and then others at the full price.
    pub fn affordable(&self, left: UsdPerHour) -> u32 {
        // A price of nought would be an unknown one; the tables and the policy refuse it, and `max` keeps the division safe.
        let whole = |left: UsdPerHour| u32::try_from(left.0.max(0) / self.price.0.max(1)).unwrap_or(u32::MAX);
        if self.cash == self.price {
            return whole(left);
        }
        let first = self.cash.times(self.alike);
        // What costs nothing more needs nothing left.
        if self.cash > UsdPerHour::ZERO && left < first { 0 } else { self.alike.saturating_add(whole(left.minus(first))) }
    }
}

/// All that is bought, and what the commitments pay of it. Empty where the policy has no commitments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    now: Timestamp,
    /// In the order of purchase, which is the order in which nodes are covered.
    lines: Vec<Reached>,
    /// What an unused node of each commitment is, where it is billed on demand and the price is known.
    idle: Vec<Option<Idle>>,
    bill: Bill,
}

impl Committed {
    /// Counts every record, and works out the bill.
    pub fn count(memory: &Memory, menu: &Menu, now: Timestamp) -> Self {
        if menu.policy.commitments.is_empty() {
            return Self::default();
        }
        // Most nodes are bought like others of their group: those are counted first, so that each group is looked up once.
        let mut alike: Vec<(&Record, &Purchase, u32)> = Vec::new();
        let mut known: Lookup<(&NodeGroupId, &Market, UsdPerHour), usize> = Lookup::default();
        for record in memory.records.values() {
            let Some(purchase) = record.purchase().filter(|p| p.market.capacity_type != CapacityType::Spot) else { continue };
            let at = *known.entry((&record.group, &purchase.market, purchase.price)).or_insert(alike.len());
            match alike.get_mut(at) {
                Some((_, _, nodes)) => *nodes += 1,
                None => alike.push((record, purchase, 1)),
            }
        }
        let mut committed = Self::empty(menu, now);
        let mut known: Lookup<(&PoolName, &Market, UsdPerHour), usize> = Lookup::default();
        for (record, purchase, nodes) in alike {
            let Some(group) = group_of(record, memory, menu) else { continue };
            let at = *known.entry((&group.pool, &purchase.market, purchase.price)).or_insert(committed.lines.len());
            match committed.lines.get_mut(at) {
                Some(known) => known.line.nodes += nodes,
                None => committed.lines.push(reached(&menu.policy.commitments, group, &purchase.market, purchase.price, nodes)),
            }
        }
        committed.recount(&menu.policy.commitments);
        committed
    }

    fn empty(menu: &Menu, now: Timestamp) -> Self {
        let idle = |commitment: &Commitment| {
            let Terms::Capacity(Capacity { place, paid: Paid::OnDemand, .. }) = &commitment.terms else { return None };
            let of = |wanted| {
                let groups = menu.groups.values().filter(|group| group.place == *place);
                let offers = groups.flat_map(|group| group.offers.iter().map(move |offer| (group, offer)));
                offers.filter(move |(_, offer)| offer.market.capacity_type == wanted).find_map(|(group, offer)| {
                    let by = Reach::of(&menu.policy.commitments, place, &group.spec.gpu_model);
                    Some(Idle { gpus: group.spec.advertised_gpus().max(1), price: offer.quote(now).ok()?.price, by })
                })
            };
            // Where the reserved offer has no price of its own, it has the on-demand one.
            of(CapacityType::Reserved).or_else(|| of(CapacityType::OnDemand))
        };
        let idle = menu.policy.commitments.iter().map(idle).collect();
        Self { now, lines: Vec::new(), idle, bill: Bill::default() }
    }

    /// Notes nodes bought (or, with a count below nought, given up) without working out the bill.
    pub fn note(&mut self, commitments: &[Commitment], group: &Group, market: &Market, price: UsdPerHour, nodes: i64) {
        // Nothing covers spot nodes.
        if commitments.is_empty() || market.capacity_type == CapacityType::Spot {
            return;
        }
        let alike = |line: &Line| line.price == price && line.market == *market && line.pool == group.pool;
        let change = |held: u32| u32::try_from(i64::from(held).saturating_add(nodes).max(0)).unwrap_or(u32::MAX);
        if let Some(known) = self.lines.iter_mut().find(|known| alike(&known.line)) {
            known.line.nodes = change(known.line.nodes);
        } else {
            self.lines.push(reached(commitments, group, market, price, change(0)));
        }
    }

    /// Works out the bill of all that is noted.
    pub fn recount(&mut self, commitments: &[Commitment]) {
        if !commitments.is_empty() {
            self.bill = self.bill_of(commitments, self.lines.iter());
        }
    }

    /// What commitments pay of a pool's nodes: so much less cash is due for them than their prices say.
    pub fn relief(&self, pool: &PoolName) -> UsdPerHour {
        let of_pool = |cover: &&Cover| self.lines.get(cover.line).is_some_and(|known| known.line.pool == *pool);
        UsdPerHour(self.bill.covers.iter().filter(of_pool).fold(0, |sum, cover| sum.saturating_add(cover.value)))
    }

    /// How much of each commitment is used, in the policy's order.
    pub fn uses(&self, commitments: &[Commitment]) -> Vec<Use> {
        commitments.iter().enumerate().map(|(at, commitment)| self.use_of(at, commitment)).collect()
    }

    /// What covers the nodes of each line.
    pub fn covers(&self) -> Vec<LineCover> {
        let covers = |(at, Reached { line, .. }): (usize, &Reached)| {
            let by =
                self.bill.covers.iter().filter(|cover| cover.line == at).map(|c| (c.commitment, UsdPerHour(c.value))).collect();
            LineCover { line: line.clone(), by }
        };
        self.lines.iter().enumerate().map(covers).collect()
    }

    /// What one more node of `group` would cost in `market`, whose price is `price`.
    pub fn marginal(&self, commitments: &[Commitment], group: &Group, market: &Market, price: UsdPerHour) -> Marginal {
        match market.capacity_type {
            CapacityType::OnDemand if commitments.iter().any(Commitment::is_discount) => {
                self.discounted(commitments, &reached(commitments, group, market, price, 1))
            }
            CapacityType::Reserved => match self.slot(commitments, &market.place) {
                Some(Ok((name, alike))) => {
                    let by = Some(CoveredBy { name: name.to_owned(), share: Milli(1000) });
                    Marginal { price, cash: UsdPerHour::ZERO, by, alike }
                }
                Some(Err(_)) | None => Marginal::uncovered(price),
            },
            CapacityType::OnDemand | CapacityType::Spot => Marginal::uncovered(price),
        }
    }

    /// Kept capacity at a place: the commitment with a free node and how many are free in all, or why there is none. `None` where no
    /// commitment keeps any.
    pub fn slot<'a>(&self, commitments: &'a [Commitment], place: &Place) -> Option<Result<(&'a str, u32), NoSlot>> {
        let (mut free, mut first, mut why) = (0_u32, None, None);
        for (at, commitment) in commitments.iter().enumerate() {
            let Some(capacity) = commitment.capacity_at(place) else { continue };
            if let Some(shut) = commitment.shut(self.now) {
                why = why.or(Some(shut));
                continue;
            }
            match self.bill.left.get(at).copied().unwrap_or_default() {
                // A full one says more than one that is shut: its nodes can come free.
                0 => why = Some(NoSlot::Full { name: commitment.name.clone(), nodes: capacity.nodes }),
                left => {
                    free = free.saturating_add(u32::try_from(left).unwrap_or(u32::MAX));
                    first = first.or(Some(commitment.name.as_str()));
                }
            }
        }
        first.map(|name| Ok((name, free))).or_else(|| why.map(Err))
    }

    /// How much less the bill would be with one node of this kind fewer.
    pub(super) fn saved_without(&self, commitments: &[Commitment], market: &Market, price: UsdPerHour) -> Option<UsdPerHour> {
        let at = self.lines.iter().position(|l| l.line.nodes > 0 && l.line.price == price && l.line.market == *market)?;
        let mut lines = self.lines.clone();
        lines.get_mut(at)?.line.nodes -= 1;
        let less = self.bill.due - self.bill_of(commitments, lines.iter()).due;
        Some(UsdPerHour(i64::try_from(less).unwrap_or(i64::MAX)))
    }

    fn discounted(&self, commitments: &[Commitment], one_more: &Reached) -> Marginal {
        let price = one_more.line.price;
        // What is left of a commitment is left because all that it reaches is covered, so taking it takes nothing from anyone.
        let mut by = None;
        for at in order(commitments) {
            let (Some(commitment), Some(discount)) = (commitments.get(at), one_more.by.discount(at)) else { continue };
            let left = self.left_of(at);
            let each = commitment.taken_by_one(&one_more.line, discount);
            if left >= each {
                let by = Some(CoveredBy { name: commitment.name.clone(), share: Milli(1000) });
                let alike = u32::try_from(left / each.max(1)).unwrap_or(u32::MAX);
                return Marginal { price, cash: UsdPerHour::ZERO, by, alike };
            }
            by = by.or((left > 0 || self.turns_to(at, discount)).then_some(at));
        }
        let Some(commitment) = by.and_then(|at| commitments.get(at)) else { return Marginal::uncovered(price) };
        let with = self.bill_of(commitments, self.lines.iter().chain([one_more]));
        let cash = UsdPerHour(i64::try_from(with.due - self.bill.due).unwrap_or(i64::MAX).clamp(0, price.0));
        let saved = i128::from(price.0 - cash.0) * 1000 / i128::from(price.0.max(1));
        let share = Milli(u32::try_from(saved).unwrap_or(1000));
        Marginal { price, cash, by: Some(CoveredBy { name: commitment.name.clone(), share }), alike: 1 }
    }

    /// What is left of a commitment, in its own unit.
    pub(super) fn left_of(&self, commitment: usize) -> i64 {
        self.bill.left.get(commitment).copied().unwrap_or_default()
    }

    /// Whether a full plan turns to a node with this discount: it is greater than that of some node that the plan covers now.
    pub(super) fn turns_to(&self, plan: usize, discount: Milli) -> bool {
        self.bill.least.get(plan).copied().flatten().is_some_and(|least| discount > least)
    }

    fn use_of(&self, at: usize, commitment: &Commitment) -> Use {
        let active = commitment.is_active(self.now);
        let left = if active { self.bill.left.get(at).copied().unwrap_or_default() } else { 0 };
        let all = if active { commitment.size() } else { 0 };
        let amount = |n: i64| match &commitment.terms {
            Terms::Nodes(_) | Terms::Capacity(_) => Amount::Nodes(u32::try_from(n).unwrap_or(u32::MAX)),
            Terms::Gpus(_) => Amount::Gpus(u32::try_from(n).unwrap_or(u32::MAX)),
            Terms::Spend(_) => Amount::Spend(UsdPerHour(n)),
        };
        let part = |rate: UsdPerHour| {
            let rate = i128::from(rate.0) * i128::from(left) / i128::from(all.max(1));
            Some(UsdPerHour(i64::try_from(rate).unwrap_or(i64::MAX)))
        };
        let unused_rate = || match &commitment.terms {
            Terms::Nodes(nodes) => part(nodes.rate),
            Terms::Gpus(gpus) => part(gpus.rate),
            Terms::Spend(spend) => part(spend.rate),
            Terms::Capacity(Capacity { paid: Paid::Ahead { rate, .. }, .. }) => part(*rate),
            Terms::Capacity(Capacity { paid: Paid::OnDemand, .. }) if left == 0 => Some(UsdPerHour::ZERO),
            Terms::Capacity(Capacity { paid: Paid::OnDemand, .. }) => {
                let idle = self.idle.get(at)?.as_ref()?;
                Some(idle.price.times(u32::try_from(left).unwrap_or(u32::MAX)))
            }
        };
        Use {
            name: commitment.name.clone(),
            active,
            used: amount(all - left),
            unused: amount(left),
            unused_rate: unused_rate(),
        }
    }

    fn bill_of<'a>(&'a self, commitments: &'a [Commitment], lines: impl Iterator<Item = &'a Reached>) -> Bill {
        let mut billing = Billing::new(commitments, self.now);
        billing.keep_capacity(lines, &self.idle);
        for at in order(commitments) {
            billing.discount(at);
        }
        let due = billing.unkept + billing.rows.iter().map(|row| i128::from(row.open)).sum::<i128>();
        Bill { left: billing.left, least: billing.least, covers: billing.covers, due }
    }
}

/// The discounts in the order in which a bill applies them: by count (zonal, regional, by GPU), then plans (of a family, of a cloud).
pub(super) fn order(commitments: &[Commitment]) -> Vec<usize> {
    let class = |terms: &Terms| match terms {
        Terms::Nodes(nodes) => Some(u8::from(nodes.zone.is_none())),
        Terms::Gpus(_) => Some(2),
        Terms::Spend(spend) => Some(3 + u8::from(spend.family.is_none())),
        Terms::Capacity(_) => None,
    };
    let mut order: Vec<_> = commitments.iter().enumerate().filter_map(|(at, c)| Some((class(&c.terms)?, at))).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

pub(super) fn reached(commitments: &[Commitment], group: &Group, market: &Market, price: UsdPerHour, nodes: u32) -> Reached {
    let (pool, gpus) = (group.pool.clone(), group.spec.advertised_gpus().max(1));
    let by = Reach::of(commitments, &market.place, &group.spec.gpu_model);
    Reached { line: Line { pool, market: market.clone(), gpus, price, nodes }, by }
}

impl CommittedNodes {
    fn fits(&self, place: &Place) -> bool {
        self.region == place.region
            && self.instance_type == place.instance_type
            && self.zone.as_ref().is_none_or(|zone| *zone == place.zone)
    }
}

impl Commitment {
    /// Whether it can pay for a node there: kept capacity for a reserved one, all else for what is billed on demand. With the discount of
    /// a plan, and nought otherwise.
    fn reaches(&self, place: &Place, model: &GpuModel) -> Option<Milli> {
        let whole = |fits: bool| fits.then_some(Milli(0));
        match &self.terms {
            _ if self.cloud != place.cloud => None,
            Terms::Nodes(nodes) => whole(nodes.fits(place)),
            Terms::Gpus(gpus) => whole(gpus.region == place.region && gpus.model == *model),
            Terms::Spend(spend) => spend.discount(place),
            Terms::Capacity(capacity) => whole(capacity.place == *place),
        }
    }

    /// Why nothing new starts under it now; `None` while it may.
    fn shut(&self, now: Timestamp) -> Option<NoSlot> {
        let ends = match &self.terms {
            Terms::Capacity(Capacity { paid: Paid::Ahead { leave_at, .. }, .. }) => Some(*leave_at),
            _ => self.until,
        };
        let name = || self.name.clone();
        match (self.from, ends) {
            (Some(from), _) if now < from => Some(NoSlot::NotBegun { name: name(), from }),
            (_, Some(since)) if since <= now => Some(NoSlot::Ending { name: name(), since }),
            _ => None,
        }
    }

    pub(super) fn is_discount(&self) -> bool {
        !matches!(self.terms, Terms::Capacity(_))
    }

    /// All of it, in its own unit: nodes, GPUs or micro-dollars per hour.
    fn size(&self) -> i64 {
        match &self.terms {
            Terms::Nodes(nodes) => i64::from(nodes.nodes),
            Terms::Gpus(gpus) => i64::from(gpus.gpus),
            Terms::Spend(spend) => spend.rate.0,
            Terms::Capacity(capacity) => i64::from(capacity.nodes),
        }
    }

    /// What one such node takes of it, in its own unit.
    pub(super) fn taken_by_one(&self, line: &Line, discount: Milli) -> i64 {
        match &self.terms {
            Terms::Nodes(_) | Terms::Capacity(_) => 1,
            Terms::Gpus(_) => i64::from(line.gpus),
            Terms::Spend(_) => at_plan_rate(line.price.0, discount),
        }
    }
}

/// What usage worth `value` on demand takes of a plan with this discount; rounded up, so that no plan covers more than it can.
fn at_plan_rate(value: i64, discount: Milli) -> i64 {
    let rest = 1000 - i64::from(discount.0.min(999));
    // Bills are worked out often, and wide numbers divide slowly.
    if let Some(thousandths) = value.checked_mul(rest).and_then(|product| product.checked_add(999)) {
        return thousandths / 1000;
    }
    i64::try_from((i128::from(value) * i128::from(rest) + 999) / 1000).unwrap_or(i64::MAX)
}

/// What usage a plan with this discount covers with `spend`, worth on demand; rounded down for the same reason.
fn worth_on_demand(spend: i64, discount: Milli) -> i64 {
    i64::try_from(i128::from(spend) * 1000 / i128::from(1000 - discount.0.min(999))).unwrap_or(i64::MAX)
}

/// A line and the commitments that reach it: found once, as a bill is worked out many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) line: Line,
    pub(super) by: Reach,
}

/// The commitments that reach some nodes, by their place in the policy; of plans with the discount, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach(Vec<(usize, Milli)>);

impl Reach {
    fn of(commitments: &[Commitment], place: &Place, model: &GpuModel) -> Self {
        let reaches = |(at, commitment): (usize, &Commitment)| Some((at, commitment.reaches(place, model)?));
        Self(commitments.iter().enumerate().filter_map(reaches).collect())
    }

    pub(super) fn discount(&self, commitment: usize) -> Option<Milli> {
        self.0.iter().find(|(at, _)| *at == commitment).map(|(_, discount)| *discount)
    }
}

/// An unused node of kept capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Idle {
    gpus: u32,
    price: UsdPerHour,
    by: Reach,
}

/// What is due, and what the commitments paid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bill {
    /// What is left of each commitment, in its own unit.
    left: Vec<i64>,
    /// The least discount of what each plan covers.
    least: Vec<Option<Milli>>,
    /// What commitments pay of each line. What they pay of kept capacity is between them: its place is paid for already.
    covers: Vec<Cover>,
    /// What all lines and all capacity billed on demand cost beside the commitments, in micro-dollars per hour.
    due: i128,
}

/// What one commitment pays of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cover {
    line: usize,
    commitment: usize,
    value: i64,
}

/// Usage that discounts can take.
struct Row<'a> {
    /// The line; `None` for kept capacity that is not used.
    line: Option<usize>,
    /// Whether it is kept capacity, paid for by its commitment whether used or not.
    kept: bool,
    by: &'a Reach,
    gpus: u32,
    price: UsdPerHour,
    /// GPUs not yet covered by count.
    open_gpus: u64,
    /// What is not yet covered, in micro-dollars per hour on demand.
    open: i64,
}

impl Row<'_> {
    fn value(&self, gpus: u64) -> i64 {
        let value = i128::from(self.price.0) * i128::from(gpus) / i128::from(self.gpus.max(1));
        i64::try_from(value).unwrap_or(i64::MAX)
    }
}

/// A bill in the making.
struct Billing<'a> {
    commitments: &'a [Commitment],
    now: Timestamp,
    rows: Vec<Row<'a>>,
    left: Vec<i64>,
    least: Vec<Option<Milli>>,
    covers: Vec<Cover>,
    /// Prices of nodes bought as reserved that no kept capacity has room for.
    unkept: i128,
}

impl<'a> Billing<'a> {
    fn new(commitments: &'a [Commitment], now: Timestamp) -> Self {
        let left = commitments.iter().map(|c| if c.is_active(now) { c.size() } else { 0 }).collect();
        let least = vec![None; commitments.len()];
        Self { commitments, now, rows: Vec::new(), left, least, covers: Vec::new(), unkept: 0 }
    }

    /// Reserved nodes take kept capacity, in the policy's order; what takes nothing new comes last, so that a new node never seems to have
    /// gone where it cannot. What is billed on demand stays open to discounts, used or not, and the
    /// unused part comes last: AWS prefers running nodes too.
    fn keep_capacity(&mut self, lines: impl Iterator<Item = &'a Reached>, idle: &'a [Option<Idle>]) {
        for (at, Reached { line, by }) in lines.enumerate() {
            let row = |kept, nodes: u32| Row {
                line: Some(at),
                kept,
                by,
                gpus: line.gpus,
                price: line.price,
                open_gpus: u64::from(nodes) * u64::from(line.gpus),
                open: line.price.times(nodes).0,
            };
            if line.market.capacity_type == CapacityType::OnDemand {
                self.rows.push(row(false, line.nodes));
                continue;
            }
            let mut nodes = line.nodes;
            let kept = by.0.iter().filter_map(|&(at, _)| match self.commitments.get(at) {
                Some(c @ Commitment { terms: Terms::Capacity(capacity), .. }) => {
                    Some((c.shut(self.now).is_some(), at, capacity))
                }
                _ => None,
            });
            let mut kept: Vec<_> = kept.collect();
            kept.sort_by_key(|(shut, at, _)| (*shut, *at));
            for (_, commitment, capacity) in kept {
                let Some(left) = self.left.get_mut(commitment) else { continue };
                let taken = u32::try_from(*left).unwrap_or(u32::MAX).min(nodes);
                if taken == 0 {
                    continue;
                }
                nodes -= taken;
                *left -= i64::from(taken);
                self.covers.push(Cover { line: at, commitment, value: line.price.times(taken).0 });
                if capacity.paid == Paid::OnDemand {
                    self.rows.push(row(true, taken));
                }
            }
            self.unkept += i128::from(line.price.times(nodes).0);
        }
        for (left, idle) in self.left.iter().zip(idle) {
            let Some(Idle { gpus, price, by }) = idle else { continue };
            let nodes = u32::try_from(*left).unwrap_or(0);
            let (open_gpus, open) = (u64::from(nodes) * u64::from(*gpus), price.times(nodes).0);
            self.rows.push(Row { line: None, kept: true, by, gpus: *gpus, price: *price, open_gpus, open });
        }
    }

    /// Applies the discount of one commitment.
    fn discount(&mut self, at: usize) {
        match self.commitments.get(at).map(|commitment| &commitment.terms) {
            Some(Terms::Spend(_)) => self.discount_spend(at),
            Some(terms) => self.discount_count(at, terms),
            None => {}
        }
    }

    /// A discount by count takes usage in the order of purchase: whole nodes, or as many GPUs of a node as are left.
    fn discount_count(&mut self, at: usize, terms: &Terms) {
        let Some(left) = self.left.get_mut(at) else { return };
        // A zonal reserved instance brings capacity of its own, and pays for no other.
        let zonal = matches!(terms, Terms::Nodes(nodes) if nodes.zone.is_some());
        let unit_of = |row: &Row<'_>| if matches!(terms, Terms::Gpus(_)) { 1 } else { u64::from(row.gpus.max(1)) };
        for row in &mut self.rows {
            if *left == 0 || (zonal && row.kept) || row.by.discount(at).is_none() {
                continue;
            }
            let unit = unit_of(row);
            let taken = (*left).min(i64::try_from(row.open_gpus / unit).unwrap_or(i64::MAX));
            if taken == 0 {
                continue;
            }
            *left -= taken;
            row.open_gpus -= u64::try_from(taken).unwrap_or(0) * unit;
            let open = row.value(row.open_gpus);
            pay(&mut self.covers, row, at, row.open - open);
        }
    }

    /// A plan takes the usage with the greatest discount first, then, as AWS breaks that tie, that with the lowest rate.
    fn discount_spend(&mut self, at: usize) {
        let (Some(left), Some(least)) = (self.left.get_mut(at), self.least.get_mut(at)) else { return };
        let open = self.rows.iter_mut().filter(|row| row.open > 0);
        let mut reached: Vec<_> = open.filter_map(|row| Some((row.by.discount(at)?, row))).collect();
        reached.sort_by_key(|(discount, row)| (Reverse(*discount), at_plan_rate(row.price.0, *discount)));
        for (discount, row) in reached {
            if *left == 0 {
                break;
            }
            let need = at_plan_rate(row.open, discount);
            let (taken, value) =
                if need <= *left { (need, row.open) } else { (*left, worth_on_demand(*left, discount).min(row.open)) };
            *left -= taken;
            *least = Some(discount);
            pay(&mut self.covers, row, at, value);
        }
    }
}

/// A commitment pays `value` of a row.
fn pay(covers: &mut Vec<Cover>, row: &mut Row<'_>, commitment: usize, value: i64) {
    if value == 0 {
        return;
    }
    row.open -= value;
    if let Some(line) = row.line.filter(|_| !row.kept) {
        covers.push(Cover { line, commitment, value });
    }
}
