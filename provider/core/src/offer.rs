//! What can be bought: instance types, the markets they are sold in, the GPUs they carry.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use crate::units::{MiB, Milli};

/// How capacity is bought.
///
/// The declared order is the stable order of explanations, not of preference: that is the pool's `capacity.prefer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Capacity or spend already committed to.
    Reserved,
    /// Spare capacity that the cloud may take back at short notice.
    Spot,
    /// Pay per second at the list price.
    OnDemand,
}

impl CapacityType {
    /// Every capacity type, in declared order.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// The word used in policies, labels, metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where one instance type is sold: cloud × region × zone × type. Capacity is bought here under a [`CapacityType`].
///
/// Clouds that do not tell zones have one zone a region, named like the region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: Region,
    /// The zone, by id.
    pub zone: ZoneId,
    /// The instance type.
    pub instance_type: InstanceType,
}

/// Where a price, a stock and a reclaim risk live: instance type × zone × capacity type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Market {
    /// Where, and which type.
    #[serde(flatten)]
    pub place: Place,
    /// How it is bought.
    pub capacity_type: CapacityType,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cloud, self.zone, self.instance_type)
    }
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.capacity_type)
    }
}

/// Processor architecture, as in the label `kubernetes.io/arch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit Arm (Graviton, Grace).
    Arm64,
}

impl Arch {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// What one instance type is made of; the same in every zone that sells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The cloud.
    pub cloud: Cloud,
    /// The instance type.
    pub instance_type: InstanceType,
    /// The GPU model.
    pub gpu_model: GpuModel,
    /// Physical GPUs in thousandths: a sixth of an A10 is `Milli(167)`.
    pub gpus: Milli,
    /// Memory of one physical GPU.
    pub gpu_memory: MiB,
    /// Virtual CPUs; `None` where the source does not tell, and then no template can be built.
    pub vcpus: Option<u32>,
    /// Main memory; `None` where the source does not tell.
    pub memory: Option<MiB>,
    /// Processor architecture.
    pub arch: Arch,
}

impl InstanceSpec {
    /// GPUs as the node advertises them: a fraction of a GPU is one `nvidia.com/gpu`.
    pub const fn advertised_gpus(&self) -> u32 {
        if self.gpus.0 < 1000 { 1 } else { self.gpus.0 / 1000 }
    }

    /// GPU memory that one advertised GPU has: all of a whole GPU, or the slice's share of a fractional one.
    pub const fn memory_per_advertised_gpu(&self) -> MiB {
        if self.gpus.0 < 1000 { MiB(self.gpu_memory.0 * self.gpus.0 as u64 / 1000) } else { self.gpu_memory }
    }
}

/// What one GPU model can do. Figures are per physical GPU; `None` is "no figure found", never nought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSpec {
    /// The model.
    pub model: GpuModel,
    /// Its memory. One model may come in two sizes (A100 40 and 80 GiB).
    pub memory: MiB,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gb_s: Option<u32>,
    /// Dense FP16 in gigaflops (so that 18.7 TFLOPS stays an integer).
    pub fp16_gflops: Option<u64>,
    /// Dense FP8 in gigaflops.
    pub fp8_gflops: Option<u64>,
    /// CUDA compute capability, e.g. `8.9`.
    pub compute_capability: Option<String>,
    /// MIG profiles it can be split into; empty where it cannot.
    pub mig_profiles: Vec<String>,
    /// NVLink bandwidth in GB/s; nought where it has none.
    pub nvlink_gb_s: Option<u32>,
    /// The label that GPU feature discovery gives it (`nvidia.com/gpu.product`).
    pub product_label: Option<String>,
}
