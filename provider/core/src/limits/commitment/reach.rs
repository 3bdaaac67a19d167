//! Reached nodes: purchases with the commitments that can pay for them.

use std::sync::Arc;

use super::bill::at_plan_rate;
use super::{Line, NoSlot};
use crate::base::engine_clock::Wall;
use crate::base::ids::PoolName;
use crate::base::units::{Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::reach::Reach;
use crate::facts::foreign::ForeignKind;
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};

/// Nodes that one pool bought alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    /// What they are: shared, as a count is copied for every order.
    pub(super) what: Arc<What>,
    /// So many.
    pub(super) nodes: u32,
}

/// What nodes of a line are, and the commitments that reach them: found once, as a bill is worked out many times.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct What {
    /// The pool; `None` of nodes that are not Stoker's.
    pub(super) pool: Option<PoolName>,
    /// Where and how they were bought.
    pub(super) market: Market,
    /// Advertised GPUs of one.
    pub(super) gpus: u32,
    /// What one costs without any commitment.
    pub(super) price: UsdPerHour,
    pub(super) by: Reach,
}

impl Reached {
    pub(super) fn line(&self) -> Option<Line> {
        let What { pool, market, gpus, price, by: _ } = self.what.as_ref();
        Some(Line { pool: pool.clone()?, market: market.clone(), gpus: *gpus, price: *price, nodes: self.nodes })
    }

    /// Nodes that are not Stoker's, with the commitments that reach them; `None` of spot nodes, and where their type is not told.
    ///
    /// What may be in kept capacity is taken to be, so that nothing is bought there twice.
    pub(super) fn foreign(kind: &ForeignKind, nodes: u32, commitments: &[Commitment]) -> Option<Self> {
        let (mut place, spec) = kind.place()?;
        let may_be = |wanted| kind.capacity_type.is_none_or(|told| told == wanted);
        let is_there = |kept: &Place| {
            let zone = if kind.zone.is_some() { &place.zone } else { &kept.zone };
            *kept == Place { zone: zone.clone(), ..place.clone() }
        };
        let kept = commitments.iter().find_map(|commitment| match &commitment.terms {
            Terms::Capacity(capacity) if is_there(&capacity.place) => Some(capacity.place.clone()),
            _ => None,
        });
        let capacity_type = if let Some(kept) = kept.filter(|_| may_be(CapacityType::Reserved)) {
            place = kept;
            CapacityType::Reserved
        } else if may_be(CapacityType::OnDemand) {
            CapacityType::OnDemand
        } else {
            return None;
        };
        let (price, by) = (kind.price.unwrap_or_default(), Reach::of(commitments, &place, spec));
        let what = What { pool: None, market: Market { place, capacity_type }, gpus: kind.gpus.max(1), price, by };
        Some(Self { what: Arc::new(what), nodes })
    }
}

impl Catalogue {
    /// Nodes of a group bought in a market, with the commitments that reach them.
    pub(crate) fn reached(&self, group: &Group, market: &Market, price: UsdPerHour, nodes: u32) -> Reached {
        let (pool, gpus) = (Some(group.pool.clone()), group.spec.advertised_gpus().max(1));
        Reached {
            what: Arc::new(What { pool, market: market.clone(), gpus, price, by: self.reach(group, &market.place) }),
            nodes,
        }
    }
}

impl Commitment {
    /// Why nothing new starts under it now; `None` while it may.
    pub(super) fn shut(&self, wall: Wall) -> Option<NoSlot> {
        let ends = match &self.terms {
            Terms::Capacity(Capacity { paid: Paid::Ahead { leave_at, .. }, .. }) => Some(*leave_at),
            _ => self.until,
        };
        let name = || self.name.clone();
        match (self.from, ends) {
            (Some(from), _) if !wall.shows(from) => Some(NoSlot::NotBegun { name: name(), from }),
            (_, Some(since)) if wall.shows(since) => Some(NoSlot::Ending { name: name(), since }),
            _ => None,
        }
    }

    pub(super) fn is_discount(&self) -> bool {
        !matches!(self.terms, Terms::Capacity(_))
    }

    /// All of it, in its own unit: nodes, GPUs or micro-dollars per hour.
    pub(super) fn size(&self) -> i64 {
        match &self.terms {
            Terms::Nodes(nodes) => i64::from(nodes.nodes),
            Terms::Gpus(gpus) => i64::from(gpus.gpus),
            Terms::Spend(spend) => spend.rate.0,
            Terms::Capacity(capacity) => i64::from(capacity.nodes),
        }
    }

    /// What one such node takes of it, in its own unit.
    pub(super) fn taken_by_one(&self, what: &What, discount: Milli) -> i64 {
        match &self.terms {
            Terms::Nodes(_) | Terms::Capacity(_) => 1,
            Terms::Gpus(_) => i64::from(what.gpus),
            Terms::Spend(_) => at_plan_rate(what.price.0, discount),
        }
    }
}
