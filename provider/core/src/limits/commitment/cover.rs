//! Coverage: how much of each commitment is used, by what, and the marginal cost of one more node.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bill::{Bill, Idle, order};
use super::reach::{Reached, What};
use super::{CoveredBy, Marginal, NoSlot};
use crate::base::engine_clock::Wall;
use crate::base::ids::PoolName;
use crate::base::units::{Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::reach::Reach;
use crate::facts::foreign::ForeignKind;
use crate::limits::usage::moved;
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};

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
    /// What the unused part costs, beside what other commitments pay of it: those have it among what they are used for. `None` for capacity billed on demand at a place whose on-demand price is not known.
    pub unused_rate: Option<UsdPerHour>,
}

/// All that is bought, and what the commitments pay of it. Empty where the policy has no commitments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    wall: Wall,
    /// In the order of purchase, which is the order in which nodes are covered.
    pub(super) lines: Vec<Reached>,
    /// Nodes that are not Stoker's: every bill covers them last.
    pub(super) foreign: Vec<Reached>,
    /// What an unused node of each commitment is, where it is billed on demand and the price is known.
    pub(super) idle: Vec<Option<Idle>>,
    pub(super) bill: Bill,
    /// What commitments pay, by pool, as the bill says.
    relief: Vec<(PoolName, UsdPerHour)>,
}

impl Committed {
    /// Of nothing bought.
    pub(super) fn empty(catalogue: &Catalogue, wall: Wall) -> Self {
        let idle = |commitment: &Commitment| {
            let Terms::Capacity(Capacity { place, paid: Paid::OnDemand, .. }) = &commitment.terms else { return None };
            let of = |wanted| {
                let groups = catalogue.groups.values().filter(|group| group.place == *place);
                let offers = groups.flat_map(|group| group.offers.iter().map(move |offer| (group, offer)));
                offers.filter(move |(_, offer)| offer.market.capacity_type == wanted).find_map(|(group, offer)| {
                    let by = Reach::of(&catalogue.policy.commitments, place, &group.spec);
                    Some(Idle { gpus: group.spec.advertised_gpus().max(1), price: offer.quote(wall).ok()?.price, by })
                })
            };
            // Where the reserved offer has no price of its own, it has the on-demand one.
            of(CapacityType::Reserved).or_else(|| of(CapacityType::OnDemand))
        };
        let idle = catalogue.policy.commitments.iter().map(idle).collect();
        Self { wall, idle, ..Self::default() }
    }

    /// Notes nodes bought (or, with a count below zero, given up) without working out the bill; whether the bill is another then.
    pub fn note(&mut self, catalogue: &Catalogue, group: &Group, market: &Market, price: UsdPerHour, nodes: i64) -> bool {
        // Nothing covers spot nodes.
        if catalogue.policy.commitments.is_empty() || market.capacity_type == CapacityType::Spot {
            return false;
        }
        let alike = |what: &What| what.price == price && what.market == *market && what.pool.as_ref() == Some(&group.pool);
        if let Some(known) = self.lines.iter_mut().find(|known| alike(&known.what)) {
            known.nodes = moved(known.nodes, nodes);
        } else {
            self.lines.push(catalogue.reached(group, market, price, moved(0, nodes)));
        }
        true
    }

    /// Works out the bill of all that is noted.
    pub fn recount(&mut self, commitments: &[Commitment]) {
        if !commitments.is_empty() {
            self.bill = self.bill_of(commitments, self.lines.iter());
            self.relief = self.relief_by_pool();
        }
    }

    /// What the bill's covers come to, by pool: every limit of every offer asks for it.
    fn relief_by_pool(&self) -> Vec<(PoolName, UsdPerHour)> {
        let mut relief: Vec<(PoolName, UsdPerHour)> = Vec::new();
        for cover in &self.bill.covers {
            let Some(of) = self.lines.get(cover.line).and_then(|line| line.what.pool.as_ref()) else { continue };
            let value = UsdPerHour(cover.value);
            match relief.iter_mut().find(|(pool, _)| pool == of) {
                Some((_, sum)) => *sum = sum.plus(value),
                None => relief.push((of.clone(), value)),
            }
        }
        relief
    }

    /// What commitments pay of a pool's nodes: so much less cash is due for them than their prices say.
    pub fn relief(&self, pool: &PoolName) -> UsdPerHour {
        self.relief.iter().find(|(of, _)| of == pool).map_or(UsdPerHour::ZERO, |(_, sum)| *sum)
    }

    /// What commitments pay of all nodes.
    pub fn total_relief(&self) -> UsdPerHour {
        self.relief.iter().fold(UsdPerHour::ZERO, |sum, (_, of_pool)| sum.plus(*of_pool))
    }

    /// How much of each commitment is used, in the policy's order.
    pub fn uses(&self, commitments: &[Commitment]) -> Vec<Use> {
        commitments.iter().enumerate().map(|(at, commitment)| self.use_of(at, commitment)).collect()
    }

    /// What covers the nodes of each line.
    pub fn covers(&self) -> Vec<LineCover> {
        let covers = |(at, line): (usize, &Reached)| {
            let by =
                self.bill.covers.iter().filter(|cover| cover.line == at).map(|c| (c.commitment, UsdPerHour(c.value))).collect();
            Some(LineCover { line: line.line()?, by })
        };
        self.lines.iter().enumerate().filter_map(covers).collect()
    }

    /// What one more node of `group` would cost in `market`, whose price is `price`.
    pub fn marginal(&self, catalogue: &Catalogue, group: &Group, market: &Market, price: UsdPerHour) -> Marginal {
        let commitments = &catalogue.policy.commitments;
        match market.capacity_type {
            CapacityType::OnDemand if commitments.iter().any(Commitment::is_discount) => {
                self.discounted(commitments, &catalogue.reached(group, market, price, 1))
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

    /// What one more node on demand would cost that is not Stoker's; `None` where its type or price is not known.
    pub fn marginal_of(&self, commitments: &[Commitment], kind: &ForeignKind) -> Option<Marginal> {
        kind.price?;
        let on_demand = ForeignKind { capacity_type: Some(CapacityType::OnDemand), ..kind.clone() };
        Some(self.discounted(commitments, &Reached::foreign(&on_demand, 1, commitments)?))
    }

    /// Kept capacity at a place: the commitment with a free node and how many are free in all, or why there is none. `None` where no
    /// commitment keeps any.
    pub fn slot<'a>(&self, commitments: &'a [Commitment], place: &Place) -> Option<Result<(&'a str, u32), NoSlot>> {
        let (mut free, mut first, mut why) = (0_u32, None, None);
        for (at, commitment) in commitments.iter().enumerate() {
            let Some(capacity) = commitment.capacity_at(place) else { continue };
            if let Some(shut) = commitment.shut(self.wall) {
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
        let alike = |line: &Reached| line.nodes > 0 && line.what.price == price && line.what.market == *market;
        let at = self.lines.iter().position(alike)?;
        let (before, rest) = self.lines.split_at_checked(at)?;
        let (line, after) = rest.split_first()?;
        let fewer = Reached { nodes: line.nodes - 1, ..line.clone() };
        let lines = before.iter().chain([&fewer]).chain(after);
        let less = self.bill.due - self.bill_of(commitments, lines).due;
        Some(UsdPerHour(i64::try_from(less).unwrap_or(i64::MAX)))
    }

    fn discounted(&self, commitments: &[Commitment], one_more: &Reached) -> Marginal {
        let price = one_more.what.price;
        // What is left of a commitment is left because all that it reaches is covered, so taking it takes nothing from anyone.
        let mut by = None;
        for at in order(commitments) {
            let (Some(commitment), Some(discount)) = (commitments.get(at), one_more.what.by.discount(at)) else { continue };
            let left = self.left_of(at);
            let each = commitment.taken_by_one(&one_more.what, discount);
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
        let active = commitment.is_active(self.wall);
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
                self.idle.get(at)?.as_ref()?;
                self.bill.idle_due.get(at).copied().map(UsdPerHour)
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
        Bill::of(commitments, lines.chain(&self.foreign), &self.idle, self.wall)
    }
}
