//! Which commitments reach a node, how large they are and when they take something new.

use std::sync::Arc;

use jiff::Timestamp;

use super::bill::at_plan_rate;
use super::{Capacity, Commitment, CommittedGpus, CommittedNodes, Line, NoSlot, Paid, Terms};
use crate::group::{Group, Menu};
use crate::ids::PoolName;
use crate::offer::{InstanceSpec, Market, Place};
use crate::units::{Milli, UsdPerHour};

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
    /// The pool.
    pub(super) pool: PoolName,
    /// Where and how they were bought.
    pub(super) market: Market,
    /// Advertised GPUs of one.
    pub(super) gpus: u32,
    /// What one costs without any commitment.
    pub(super) price: UsdPerHour,
    pub(super) by: Reach,
}

impl Reached {
    pub(super) fn line(&self) -> Line {
        let What { pool, market, gpus, price, by: _ } = self.what.as_ref();
        Line { pool: pool.clone(), market: market.clone(), gpus: *gpus, price: *price, nodes: self.nodes }
    }
}

/// The commitments that reach some nodes, by their place in the policy; of plans with the discount, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach(pub(super) Arc<[(usize, Milli)]>);

impl Reach {
    pub(crate) fn of(commitments: &[Commitment], place: &Place, spec: &InstanceSpec) -> Self {
        let reaches = |(at, commitment): (usize, &Commitment)| Some((at, commitment.reaches(place, spec)?));
        Self(commitments.iter().enumerate().filter_map(reaches).collect())
    }

    pub(super) fn discount(&self, commitment: usize) -> Option<Milli> {
        self.0.iter().find(|(at, _)| *at == commitment).map(|(_, discount)| *discount)
    }
}

impl Menu {
    /// Nodes of a group bought in a market, with the commitments that reach them.
    pub(crate) fn reached(&self, group: &Group, market: &Market, price: UsdPerHour, nodes: u32) -> Reached {
        let (pool, gpus) = (group.pool.clone(), group.spec.advertised_gpus().max(1));
        Reached {
            what: Arc::new(What { pool, market: market.clone(), gpus, price, by: self.reach(group, &market.place) }),
            nodes,
        }
    }
}

impl CommittedNodes {
    fn fits(&self, place: &Place) -> bool {
        self.region == place.region
            && self.instance_type == place.instance_type
            && self.zone.as_ref().is_none_or(|zone| *zone == place.zone)
    }
}

impl CommittedGpus {
    fn fits(&self, place: &Place, spec: &InstanceSpec) -> bool {
        self.region == place.region
            && self.model == spec.gpu_model
            && self.memory.is_none_or(|memory| memory == spec.gpu_memory)
    }
}

impl Commitment {
    /// Whether it can pay for a node there: kept capacity for a reserved one, all else for what is billed on demand. With the discount of
    /// a plan, and nought otherwise.
    fn reaches(&self, place: &Place, spec: &InstanceSpec) -> Option<Milli> {
        let whole = |fits: bool| fits.then_some(Milli(0));
        match &self.terms {
            _ if self.cloud != place.cloud => None,
            Terms::Nodes(nodes) => whole(nodes.fits(place)),
            Terms::Gpus(gpus) => whole(gpus.fits(place, spec)),
            Terms::Spend(spend) => spend.discount(place),
            Terms::Capacity(capacity) => whole(capacity.place == *place),
        }
    }

    /// Why nothing new starts under it now; `None` while it may.
    pub(super) fn shut(&self, now: Timestamp) -> Option<NoSlot> {
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
