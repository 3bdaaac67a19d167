//! The rows: an hour of a node, and its newest levels.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attribute::Holder;
use super::levels::{Levels, Occupancy, Sample};
use stoker_core::base::ids::{GpuUuid, NodeName, PoolName};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::reading::{Measured, MemoryLevel, MigReading, Permille, Why};
use stoker_core::market::offer::Market;
use stoker_core::market::sharing::MigProfile;

/// Seconds of an hour.
pub const HOUR: i64 = 3_600;

/// What pods get one of: a GPU, or a MIG instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// The GPU; `unread-` and its place in the driver's order where the driver counts it and could not tell its UUID.
    pub gpu: GpuUuid,
    /// The instance; `None` for a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<GpuUuid>,
    /// What instance it is, where the driver's name for it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
}

impl Unit {
    pub(super) fn whole(gpu: &GpuUuid) -> Self {
        Self { gpu: gpu.clone(), mig: None, profile: None }
    }

    /// A GPU that nobody could ask who it is. No UUID of a driver begins like that.
    pub(super) fn unread(index: u32) -> Option<Self> {
        let gpu = GpuUuid::new(format!("unread-{index}")).ok()?;
        Some(Self { gpu, mig: None, profile: None })
    }

    /// The driver calls an instance like `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
    pub(super) fn instance(gpu: &GpuUuid, mig: &GpuUuid, device: &MigReading) -> Self {
        let profile = device.name.rsplit(' ').next().and_then(|word| word.parse().ok());
        Self { gpu: gpu.clone(), mig: Some(mig.clone()), profile }
    }
}

/// What a node is and costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bought {
    /// Its pool.
    pub pool: PoolName,
    /// Where it is, of which type, and how it was bought.
    pub market: Market,
    /// Its price when it was chosen, without commitments.
    pub price: UsdPerHour,
    /// GPUs that it has; from 1.
    pub gpus: u32,
    /// What pods take of it: its GPUs, or its slices where its pool shares them; from 1.
    pub units: u32,
}

impl Bought {
    /// What a GPU of it costs, or an instance of one: an even part of its price.
    pub fn price_of(&self, unit: &Unit) -> UsdPerHour {
        self.price.per(if unit.mig.is_some() { self.units } else { self.gpus }.max(1))
    }
}

/// An hour of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHour {
    /// Hours since 1970.
    pub hour: i64,
    /// The node.
    pub node: NodeName,
    /// What it was; `None` where no record told.
    pub bought: Option<Bought>,
    /// What was read, by unit and holder.
    pub cells: Vec<Cell>,
}

/// One GPU or MIG instance while one holder had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Which one.
    pub unit: Unit,
    /// Who.
    pub holder: Holder,
    /// What was read of it.
    pub levels: Levels,
}

/// What was last read of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latest {
    /// When it was sampled on the node, not when it reached us.
    pub at: Timestamp,
    /// Each GPU, or each instance of one that is split.
    pub units: Vec<LatestUnit>,
}

/// What was last read of a GPU or an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatestUnit {
    /// Which one.
    #[serde(flatten)]
    pub unit: Unit,
    /// Its GPU's place in the driver's order.
    pub index: u32,
    /// Share of time in which any kernel ran.
    pub utilization: Measured<Permille>,
    /// Share of its multiprocessors at work.
    pub sm_activity: Measured<Permille>,
    /// Its memory.
    pub memory: Measured<MemoryLevel>,
    /// What it was doing.
    pub activity: Occupancy,
    /// Who held it.
    pub holder: Holder,
}

impl LatestUnit {
    pub(super) fn of(unit: Unit, index: u32, sample: &Sample<'_>, holder: Holder) -> Self {
        Self {
            unit,
            index,
            utilization: sample.utilization,
            sm_activity: sample.sm,
            memory: sample.memory,
            activity: sample.activity(),
            holder,
        }
    }

    /// How busy it was: utilization, or SM activity where an instance has no other.
    pub const fn busy(&self) -> Measured<Permille> {
        match self.utilization {
            Measured::Unknown(Why::NotSupported) => self.sm_activity,
            known => known,
        }
    }
}
