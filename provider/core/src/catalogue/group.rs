//! Node groups: pool × shape. Groups are homogeneous in all that the scheduler reads.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::ids::{NodeClassName, NodeGroupId, PoolName, SupplierName, ZoneName};
use crate::base::units::{UsdPerHour, Work};
use crate::catalogue::template::{NodeTemplate, Resources};
use crate::market::offer::{InstanceSpec, Offer, Place};
use crate::market::transfer::Transfer;

/// One node group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: NodeGroupId,
    /// Its pool.
    pub pool: PoolName,
    /// Where its nodes are, and of which type.
    pub place: Place,
    /// The zone as its nodes are labelled.
    pub zone_name: ZoneName,
    /// What a node is made of.
    pub spec: Arc<InstanceSpec>,
    /// Who makes its nodes.
    pub supplier: SupplierName,
    /// What they are made with; `None` for the one way that needs no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class: Option<NodeClassName>,
    /// What the autoscaler simulates with.
    pub template: NodeTemplate,
    /// Slices of a node, where its pool shares GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// Work that a node does, in units of what one GPU, or slice, of the pool's slowest model does; `None` where the pool weighs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// What reading the pool's data costs a node; `None` where it lies here, or the pool does not reckon with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
    /// How a node may be bought, in the pool's order of preference.
    pub offers: Vec<Offer>,
}

impl Group {
    /// What pods take of a node: its slices where its pool shares GPUs, else its advertised GPUs.
    pub fn units(&self) -> u32 {
        self.slices.unwrap_or_else(|| self.spec.advertised_gpus())
    }

    /// What a node at this price is ranked by among nodes of which any would do: the price of a unit of work where its pool weighs work,
    /// else of the node.
    pub fn ranked_price(&self, node: UsdPerHour) -> UsdPerHour {
        self.work.map_or(node, |work| node.per_work(work))
    }

    /// What a node at this price would cost if its GPUs did no more work than those of the pool's slowest model: what to compare across
    /// groups per GPU or slice.
    pub fn weighed(&self, node: UsdPerHour) -> UsdPerHour {
        self.work.map_or(node, |work| node.per_work(work).times(self.units()))
    }
}

/// Whether shape `a` makes shape `b` pointless in the same pool and zone: at least as much of everything, for less.
pub fn dominates(a: (&Group, i64), b: (&Group, i64)) -> bool {
    let ((a, a_price), (b, b_price)) = (a, b);
    let ge = |x: &Resources, y: &Resources| {
        x.milli_cpu >= y.milli_cpu && x.memory >= y.memory && x.gpus >= y.gpus && x.pods >= y.pods && x.ephemeral >= y.ephemeral
    };
    a.pool == b.pool
        && a.zone_name == b.zone_name
        && a.spec.gpu_model == b.spec.gpu_model
        && a.spec.gpu_memory == b.spec.gpu_memory
        && a.spec.arch == b.spec.arch
        && a.offers.iter().map(|o| o.market.capacity_type).eq(b.offers.iter().map(|o| o.market.capacity_type))
        && ge(&a.template.allocatable, &b.template.allocatable)
        && b.template.slices.within(&a.template.slices)
        && a_price < b_price
}
