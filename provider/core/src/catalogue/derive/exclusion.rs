//! Exclusions: places of the policy that yield no group, and why.

use serde::{Deserialize, Serialize};

use crate::base::ids::{PoolName, SupplierName};
use crate::facts::supply::CannotMake;
use crate::market::offer::{ComputeCapability, GpuFeature, GpuFigure, Place};
use crate::market::sharing::Misfit;
use crate::market::transfer::{MaxDistance, Site};

/// A place that the pool names but does not get a group for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The pool.
    pub pool: PoolName,
    /// The place.
    pub place: Place,
    /// Why.
    pub why: Exclusion,
}

/// Why a place gets no group in a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Exclusion {
    /// The GPUs are not so many.
    #[error("has {has} GPU{} a node, the pool wants {}", if *.has == 1 { "" } else { "s" }, list(.want))]
    GpuCount {
        /// GPUs of the type.
        has: u32,
        /// Counts allowed.
        want: Vec<u32>,
    },
    /// The GPU is too small.
    #[error("has {has} MiB a GPU, the pool wants at least {want}")]
    GpuMemory {
        /// Memory of one advertised GPU in MiB.
        has: u64,
        /// Least allowed.
        want: u64,
    },
    /// The GPUs of a node are too small together.
    #[error("has {has} MiB of GPU memory a node, the pool wants at least {want}")]
    NodeGpuMemory {
        /// Memory of all GPUs of a node in MiB.
        has: u64,
        /// Least allowed.
        want: u64,
    },
    /// The GPU is too old.
    #[error("its compute capability is {has}, the pool wants at least {want}")]
    ComputeCapability {
        /// What it has.
        has: ComputeCapability,
        /// Least allowed.
        want: ComputeCapability,
    },
    /// No source tells how old the GPU is.
    #[error("its compute capability is unknown, and the pool wants at least {want}")]
    UnknownCapability {
        /// Least allowed.
        want: ComputeCapability,
    },
    /// The GPU cannot do what the pool needs.
    #[error("has no {0}, which the pool needs")]
    Lacks(GpuFeature),
    /// No source tells whether the GPU can do what the pool needs.
    #[error("it is unknown whether it has {0}, which the pool needs")]
    UnknownFeature(GpuFeature),
    /// The pool weighs work by a figure of the GPU that no source tells.
    #[error("its {0} is unknown, and the pool ranks by it: measure it, and write it under gpu.throughput")]
    UnknownFigure(GpuFigure),
    /// The GPU cannot be shared as the pool says.
    #[error("{0}, and the pool shares GPUs so")]
    Sharing(Misfit),
    /// The type is not among those that the pool names.
    #[error("instance type is not among the pool's instanceTypes")]
    InstanceType,
    /// The zone is not among those that the pool names.
    #[error("zone is not among the pool's zones")]
    Zone,
    /// It is too far from the pool's data.
    #[error("the pool's data is in {data}, and where.maxDistance is {within}")]
    TooFar {
        /// Where the data lies.
        data: Site,
        /// How far from it the pool may buy.
        within: MaxDistance,
    },
    /// No source tells how far it is from the pool's data.
    #[error("the continent of {0} is unknown, and where.maxDistance is continent")]
    UnknownContinent(Site),
    /// Data must move, and no source tells what that costs.
    #[error("no transfer price is known from {from}, where the pool's data is, to {to}")]
    NoTransferPrice {
        /// Where the data lies.
        from: Site,
        /// Where it would be read.
        to: Site,
    },
    /// No source tells the type's CPUs or memory, so no template can be built.
    #[error("vCPUs or memory unknown, so no node template can be built")]
    UnknownSize,
    /// No supplier makes nodes there.
    #[error("no supplier is configured for this cloud")]
    NoSupplier,
    /// The supplier that would does not.
    #[error("supplier {supplier}: {why}")]
    CannotMake {
        /// Its name.
        supplier: SupplierName,
        /// Why not.
        why: CannotMake,
    },
    /// The id would be longer than a label may be.
    #[error("its group id {0:?} is longer than a label may be (63): shorten the pool's name")]
    IdTooLong(String),
}

fn list(counts: &[u32]) -> String {
    counts.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ")
}
