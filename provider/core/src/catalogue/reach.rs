//! Reach of commitments: which of them can pay for nodes of a group.

use std::sync::Arc;

use crate::base::units::Milli;
use crate::market::offer::{InstanceSpec, Place};
use crate::policy::rules::commitment::{Commitment, CommittedGpus, CommittedNodes, Terms};

/// The commitments that reach some nodes, by their place in the policy; of plans with the discount, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach(pub(crate) Arc<[(usize, Milli)]>);

impl Reach {
    pub(crate) fn of(commitments: &[Commitment], place: &Place, spec: &InstanceSpec) -> Self {
        let reaches = |(at, commitment): (usize, &Commitment)| Some((at, commitment.reaches(place, spec)?));
        Self(commitments.iter().enumerate().filter_map(reaches).collect())
    }

    pub(crate) fn discount(&self, commitment: usize) -> Option<Milli> {
        self.0.iter().find(|(at, _)| *at == commitment).map(|(_, discount)| *discount)
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
    /// a plan, and zero otherwise.
    pub(crate) fn reaches(&self, place: &Place, spec: &InstanceSpec) -> Option<Milli> {
        let whole = |fits: bool| fits.then_some(Milli(0));
        match &self.terms {
            _ if self.cloud != place.cloud => None,
            Terms::Nodes(nodes) => whole(nodes.fits(place)),
            Terms::Gpus(gpus) => whole(gpus.fits(place, spec)),
            Terms::Spend(spend) => spend.discount(place),
            Terms::Capacity(capacity) => whole(capacity.place == *place),
        }
    }
}
