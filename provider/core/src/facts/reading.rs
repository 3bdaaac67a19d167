//! Readings of a node's GPUs, from its probe or from Prometheus. A reading is a fact; other modules
//! draw conclusions.
//!
//! Every level is [`Measured`]: known, or unknown for a reason. Unknown is never zero, quiet or
//! healthy. [`digest`] condenses readings into [`seen`], which changes only when something changes.

pub mod digest;
mod measured;
pub mod seen;
pub mod work;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::GpuUuid;

pub use measured::{Measured, Permille, Why};

/// One round of reading a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReading {
    /// When it reached us, by our clock: what readings are aged by.
    pub arrived: Timestamp,
    /// Who read it.
    pub source: Source,
    /// How the driver stands.
    pub driver: DriverState,
    /// How many GPUs the driver counts, lost ones among them.
    pub counted: Measured<u32>,
    /// Each GPU that could be asked who it is.
    pub gpus: BTreeMap<GpuUuid, GpuReading>,
    /// The conditions of a started node that were checked.
    pub gates: BTreeMap<Gate, GateResult>,
}

/// Who read a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The probe on it.
    Probe,
    /// A DCGM exporter, by way of Prometheus.
    Prometheus,
}

/// How NVML stands on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverState {
    /// It answers.
    Ready,
    /// There is no library.
    LibraryMissing,
    /// The kernel has no driver.
    DriverNotLoaded,
    /// Library and driver are of different releases.
    VersionMismatch,
    /// The probe may not open it.
    NoPermission,
    /// A call has not come back.
    Hung,
    /// Anything else.
    Failed,
    /// Nobody tells: the source of the readings has gone silent.
    Unknown,
}

/// What was read of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuReading {
    /// Its place in the driver's order, which a reboot may change.
    pub index: u32,
    /// As the driver names it, e.g. `NVIDIA L4`; empty where it does not.
    pub name: String,
    /// Where it is on the PCI bus.
    pub pci_bus_id: String,
    /// The highest sample since the last round: the share of time in which any kernel ran. Proves activity, never the want of it.
    pub utilization: Measured<Permille>,
    /// Share of streaming multiprocessors at work.
    pub sm_activity: Measured<Permille>,
    /// Share of the memory's bandwidth in use.
    pub memory_bandwidth: Measured<Permille>,
    /// Device memory.
    pub memory: Measured<MemoryLevel>,
    /// Power drawn, in milliwatts.
    pub power_mw: Measured<u64>,
    /// The enforced limit, in milliwatts.
    pub power_limit_mw: Measured<u64>,
    /// In degrees Celsius.
    pub temperature_c: Measured<i32>,
    /// Clocks of the multiprocessors and of the memory, in MHz.
    pub clocks_mhz: Measured<(u32, u32)>,
    /// Why clocks are held down: the bits of `nvmlClocksEventReasons`.
    pub clock_limits: Measured<u64>,
    /// Memory errors.
    pub ecc: Measured<Ecc>,
    /// Rows of memory replaced by spare ones (Ampere and later).
    pub remapped_rows: Measured<RemappedRows>,
    /// Whether pages wait to be retired (before Ampere).
    pub retired_pages_pending: Measured<bool>,
    /// What the driver wants done: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.
    pub recovery_action: Measured<u8>,
    /// Links to other GPUs.
    pub nvlink: Measured<NvLink>,
    /// The link to the machine.
    pub pcie: Measured<Pcie>,
    /// Processes that compute on it.
    pub processes: Measured<Vec<GpuProcess>>,
    /// Millijoules since the driver was loaded.
    pub energy_mj: Measured<u64>,
    /// Whether the GPU is split, and into what.
    pub mig: Measured<Mig>,
    /// `NVSwitch` fabric: state, status and fault mask as the driver gives them.
    pub fabric: Measured<(u32, u32, u32)>,
    /// Whether the driver stays loaded without a client.
    pub persistence: Measured<bool>,
    /// The busier of encoder and decoder.
    pub codec: Measured<Permille>,
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryLevel {
    /// In use, without what the driver keeps.
    pub used: u64,
    /// There is.
    pub total: u64,
    /// Kept by the driver.
    pub reserved: u64,
}

/// Memory errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ecc {
    /// Whether they are looked for.
    pub enabled: bool,
    /// Not corrected, since the driver was loaded.
    pub uncorrected_volatile: u64,
    /// Corrected, since the driver was loaded.
    pub corrected_volatile: u64,
    /// Not corrected, in the GPU's life.
    pub uncorrected_aggregate: u64,
}

/// Rows of memory replaced by spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemappedRows {
    /// After errors that were corrected.
    pub correctable: u32,
    /// After errors that were not.
    pub uncorrectable: u32,
    /// Whether one waits for a reset. A DCGM exporter leaves it out unless it is told to.
    pub pending: Measured<bool>,
    /// Whether one could not be replaced: for life.
    pub failed: bool,
}

/// Links to other GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NvLink {
    /// How many are up.
    pub active: u32,
    /// Errors counted over all of them.
    pub errors: u64,
}

/// The link to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pcie {
    /// Generation now; an idle link may run at a lower one.
    pub generation: u32,
    /// Lanes now.
    pub width: u32,
    /// Generation that both ends can do.
    pub max_generation: u32,
    /// Lanes that both ends have.
    pub max_width: u32,
    /// Packets sent again.
    pub replays: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuProcess {
    /// Its number, in the probe's PID namespace.
    pub pid: u32,
    /// Device memory it holds, in bytes, where the driver tells.
    pub memory: Option<u64>,
    /// Its container, where the cgroup tells.
    pub container: Option<String>,
    /// The UID of its pod, where the cgroup tells.
    pub pod_uid: Option<String>,
}

/// How a GPU is split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mig {
    /// Whether it is.
    pub enabled: bool,
    /// Whether the mode changes at the next reset, which is owed.
    pub pending_change: bool,
    /// Its instances.
    pub devices: BTreeMap<GpuUuid, MigReading>,
}

/// What was read of one MIG instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigReading {
    /// GPU instance.
    pub gpu_instance: u32,
    /// Compute instance within it.
    pub compute_instance: u32,
    /// As the driver names it; empty where it does not.
    pub name: String,
    /// Device memory.
    pub memory: Measured<MemoryLevel>,
    /// Share of its streaming multiprocessors at work.
    pub sm_activity: Measured<Permille>,
    /// Share of its memory's bandwidth in use.
    pub memory_bandwidth: Measured<Permille>,
    /// Processes that compute on it.
    pub processes: Measured<Vec<GpuProcess>>,
}

/// A condition of a started node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gate {
    /// NVML answers.
    Driver,
    /// The driver is new enough.
    DriverVersion,
    /// As many GPUs as the instance type has.
    GpuCount,
    /// The model that the instance type has.
    GpuModel,
    /// As much memory as the model has.
    GpuMemory,
    /// XID events are listened to.
    Events,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Driver => "the driver",
            Self::DriverVersion => "the driver's version",
            Self::GpuCount => "the number of GPUs",
            Self::GpuModel => "the GPUs' model",
            Self::GpuMemory => "the GPUs' memory",
            Self::Events => "listening to XIDs",
        })
    }
}

/// How a gate stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GateResult {
    /// It holds.
    Passed,
    /// It does not, in words.
    Failed(String),
    /// It was not checked, or cannot be.
    Unknown(String),
}

/// Something that happened on a node at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeEvent {
    /// When, by our clock: when it reached us.
    pub arrived: Timestamp,
    /// When, by the node's.
    pub at: Timestamp,
    /// What.
    pub what: Happening,
}

/// What happened on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Happening {
    /// The driver reported an error.
    Xid {
        /// Its number.
        code: u32,
        /// On which GPU, where the driver could tell.
        gpu: Option<GpuUuid>,
    },
    /// The cloud will take the machine away, or no longer will.
    Interruption {
        /// How.
        kind: Interruption,
        /// When, where the cloud says.
        deadline: Option<Timestamp>,
    },
}

/// How a cloud takes a machine away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interruption {
    /// The machine ends.
    Reclaim,
    /// It is more likely to than before.
    Rebalance,
    /// Maintenance, a reboot or a freeze.
    Maintenance,
    /// It was announced and is no longer.
    Withdrawn,
}

/// What to make of an XID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XidClass {
    /// Counted only.
    Informational,
    /// The application's fault.
    Application,
    /// Suspect: look again, and a second one within a day drains.
    Suspect,
    /// No new work; reset or replace when what runs has ended.
    Drain,
    /// Replace now.
    Replace,
}

impl XidClass {
    /// The class of a code, by NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors, read 2026-11) where it names an action. The
    /// recovery action that the driver asks for wins over it, and an unlisted code is suspect, never more.
    pub const fn of(code: u32) -> Self {
        match code {
            44 | 121 | 141 | 160 | 161 => Self::Informational,
            13 | 31 | 32 | 39..=41 | 43 | 45 | 68 | 69 | 137 => Self::Application,
            46 | 48 | 62 | 74 | 95 | 109 | 110 | 119 | 120 | 136 | 140 | 143 | 149 | 150 | 156 | 158 => Self::Drain,
            54 | 64 | 79 | 151 => Self::Replace,
            _ => Self::Suspect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_an_xid_is_what_nvidia_asks_for_and_never_worse_for_an_unknown_one() {
        let of = |codes: &[u32]| codes.iter().map(|code| XidClass::of(*code)).collect::<Vec<_>>();
        assert_eq!(of(&[13, 31, 43, 45, 68]), [XidClass::Application; 5]);
        assert_eq!(of(&[48, 74, 95, 109, 119]), [XidClass::Drain; 5]);
        assert_eq!(of(&[54, 64, 79]), [XidClass::Replace; 3]);
        assert_eq!(of(&[61, 63, 92, 94, 154, 999]), [XidClass::Suspect; 6]);
        assert_eq!(of(&[44, 121]), [XidClass::Informational; 2]);
    }

    #[test]
    fn what_was_not_reported_is_unknown() {
        assert_eq!(GpuReading::default().utilization, Measured::Unknown(Why::NotReported));
        assert_eq!(Permille::new(1001), None);
    }
}
