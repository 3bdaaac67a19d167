//! Which commitments reach a node, how large they are and when they take something new.

use jiff::Timestamp;

use super::bill::at_plan_rate;
use super::{Capacity, Commitment, CommittedGpus, CommittedNodes, Line, NoSlot, Paid, Terms};
use crate::group::Group;
use crate::offer::{InstanceSpec, Market, Place};
use crate::units::{Milli, UsdPerHour};

/// A line and the commitments that reach it: found once, as a bill is worked out many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) line: Line,
    pub(super) by: Reach,
}

/// The commitments that reach some nodes, by their place in the policy; of plans with the discount, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach(pub(super) Vec<(usize, Milli)>);

impl Reach {
    pub(super) fn of(commitments: &[Commitment], place: &Place, spec: &InstanceSpec) -> Self {
        let reaches = |(at, commitment): (usize, &Commitment)| Some((at, commitment.reaches(place, spec)?));
        Self(commitments.iter().enumerate().filter_map(reaches).collect())
    }

    pub(super) fn discount(&self, commitment: usize) -> Option<Milli> {
        self.0.iter().find(|(at, _)| *at == commitment).map(|(_, discount)| *discount)
    }
}

/// Nodes of a group bought in a market, with the commitments that reach them.
pub(super) fn reached(commitments: &[Commitment], group: &Group, market: &Market, price: UsdPerHour, nodes: u32) -> Reached {
    let (pool, gpus) = (group.pool.clone(), group.spec.advertised_gpus().max(1));
    let by = Reach::of(commitments, &market.place, &group.spec);
    Reached { line: Line { pool, market: market.clone(), gpus, price, nodes }, by }
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
    pub(super) fn taken_by_one(&self, line: &Line, discount: Milli) -> i64 {
        match &self.terms {
            Terms::Nodes(_) | Terms::Capacity(_) => 1,
            Terms::Gpus(_) => i64::from(line.gpus),
            Terms::Spend(_) => at_plan_rate(line.price.0, discount),
        }
    }
}
