//! What the library answers.
//!
//! Whatever a scenario leaves out of a GPU is answered with "not supported", as by hardware that lacks it.

mod code;
mod models;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use code::Code;

/// A machine's driver and GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scenario {
    /// The driver's version. From 580.82 on field ids are numbered anew.
    pub driver: String,
    /// NVML's version.
    pub nvml: String,
    /// 12080 is 12.8.
    pub cuda: i32,
    /// By index.
    pub gpus: Vec<Gpu>,
    /// Answers lists of processes as a driver does whose caller sits in another PID namespace: empty.
    pub hide_processes: bool,
    /// Events, told to every event set that listens to their GPU, each once.
    pub xids: Vec<Xid>,
    /// What calls answer instead, by symbol (`nvmlInit_v2`); `*` is every call on a device.
    pub errors: BTreeMap<String, Code>,
    /// How long calls take, in milliseconds, by symbol; over at once when the scenario no longer says so.
    pub hangs: BTreeMap<String, u64>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver: "570.86.15".to_owned(),
            nvml: "12.570.86.15".to_owned(),
            cuda: 12080,
            gpus: Vec::new(),
            hide_processes: false,
            xids: Vec::new(),
            errors: BTreeMap::new(),
            hangs: BTreeMap::new(),
        }
    }
}

impl Scenario {
    /// A machine with these GPUs.
    pub fn of(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self { gpus: gpus.into_iter().collect(), ..Self::default() }
    }

    /// Puts it where the library reads it, in one step.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let beside = path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(beside, path)
    }
}

/// A level that holds, or that changes as time passes since the scenario was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Level {
    /// It holds.
    Steady(f64),
    /// From each moment (in milliseconds) on, that level; before the first, the first.
    Steps(Vec<(u64, f64)>),
}

impl Default for Level {
    fn default() -> Self {
        Self::Steady(0.0)
    }
}

impl Level {
    pub(crate) fn at(&self, milliseconds: u64) -> f64 {
        match self {
            Self::Steady(level) => *level,
            Self::Steps(steps) => {
                steps.iter().rev().find(|(from, _)| *from <= milliseconds).or(steps.first()).map_or(0.0, |(_, level)| *level)
            }
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gpu {
    /// `GPU-…`.
    pub uuid: String,
    /// As NVML names it.
    pub name: String,
    /// With a domain of eight digits: `00000000:3B:00.0`.
    pub pci_bus_id: String,
    /// 9 is Hopper.
    pub architecture: u32,
    /// Counted, and every call refuses it: off the bus.
    pub lost: bool,
    /// Bytes.
    pub memory: Option<Memory>,
    /// Percent, for the rates and the sample buffer.
    pub utilization: Option<Level>,
    /// Percent.
    pub codec: Option<Codec>,
    /// Milliwatts.
    pub power: Option<u32>,
    /// Milliwatts.
    pub power_limit: Option<u32>,
    /// Millijoules.
    pub energy: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// MHz.
    pub clocks: Option<Clocks>,
    /// Bits.
    pub throttle_reasons: Option<u64>,
    /// Memory errors.
    pub ecc: Option<Ecc>,
    /// Before Ampere.
    pub retired_pages_pending: Option<bool>,
    /// Field values by the driver's own id (142 to 145: remapped rows, 230: recovery action).
    pub fields: BTreeMap<u32, u64>,
    /// Hopper and later.
    pub gpm: Option<Gpm>,
    /// Links to other GPUs.
    pub nvlink: Option<NvLink>,
    /// The link to the machine.
    pub pcie: Option<Pcie>,
    /// The fabric of `NVSwitch` chips.
    pub fabric: Option<Fabric>,
    /// Persistence mode.
    pub persistence: Option<bool>,
    /// Compute processes.
    pub processes: Vec<Process>,
    /// Whenever compute processes are listed, one more has come than there is room for.
    pub crowded: bool,
    /// Clients of an MPS server.
    pub mps: Vec<Process>,
    /// Absent where the GPU cannot be split.
    pub mig: Option<Mig>,
    /// Types of events that it supports; 8 is XIDs.
    pub event_types: u64,
    /// As [`Scenario::errors`], for this GPU.
    pub errors: BTreeMap<String, Code>,
    /// As [`Scenario::hangs`], for this GPU.
    pub hangs: BTreeMap<String, u64>,
}

/// Device memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Memory {
    /// There is.
    pub total: u64,
    /// In use.
    pub used: Level,
    /// Kept by the driver.
    pub reserved: u64,
}

/// Percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Codec {
    /// Encoder.
    pub encoder: u32,
    /// Decoder.
    pub decoder: u32,
}

/// MHz.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Clocks {
    /// Multiprocessors.
    pub sm: u32,
    /// Memory.
    pub memory: u32,
}

/// Memory errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ecc {
    /// Whether they are looked for.
    pub enabled: bool,
    /// Since the driver was loaded.
    pub uncorrected_volatile: u64,
    /// Since the driver was loaded.
    pub corrected_volatile: u64,
    /// For life.
    pub uncorrected_aggregate: u64,
}

/// Performance metrics, in percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gpm {
    /// Multiprocessors at work.
    pub sm: Level,
    /// Memory bandwidth in use.
    pub memory_bandwidth: Level,
}

/// Links to other GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NvLink {
    /// There are.
    pub links: u32,
    /// The first so many are up.
    pub active: u32,
    /// Of each counter of each link; absent where the counters are gone (Blackwell).
    pub errors: Option<u64>,
}

/// The link to the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pcie {
    /// Now.
    pub generation: u32,
    /// Now.
    pub width: u32,
    /// At most.
    pub max_generation: u32,
    /// At most.
    pub max_width: u32,
    /// Packets sent again.
    pub replays: u32,
}

/// The fabric of `NVSwitch` chips.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fabric {
    /// 3 is completed.
    pub state: u8,
    /// An NVML return code.
    pub status: u32,
    /// Two bits a flag.
    pub health_mask: u32,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Bytes; absent where the driver does not tell.
    pub memory: Option<u64>,
}

/// How a GPU is split.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mig {
    /// Now.
    pub enabled: bool,
    /// After the next reset.
    pub pending: bool,
    /// Instances.
    pub devices: Vec<MigDevice>,
}

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MigDevice {
    /// `MIG-…`.
    pub uuid: String,
    /// As NVML names it.
    pub name: String,
    /// Its place among the seven, which need not be filled in order.
    pub slot: u32,
    /// GPU instance.
    pub gpu_instance: u32,
    /// Compute instance.
    pub compute_instance: u32,
    /// Bytes.
    pub memory: Option<Memory>,
    /// Percent.
    pub gpm: Option<Gpm>,
    /// Compute processes.
    pub processes: Vec<Process>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Xid {
    /// Since the event set was made, in milliseconds.
    #[serde(default)]
    pub after_ms: u64,
    /// Of which GPU.
    pub gpu: usize,
    /// The number.
    pub code: u64,
    /// 8 is an XID.
    #[serde(default = "xid")]
    pub kind: u64,
    /// Where the driver tells.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    /// Where the driver tells.
    #[serde(default)]
    pub compute_instance: Option<u32>,
}

impl Xid {
    /// On this GPU, as soon as somebody listens.
    pub fn on(gpu: usize, code: u64) -> Self {
        Self { after_ms: 0, gpu, code, kind: xid(), gpu_instance: None, compute_instance: None }
    }
}

const fn xid() -> u64 {
    8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_its_file_and_refuses_unknown_fields() -> Result<(), serde_json::Error> {
        let scenario = Scenario::of([Gpu::h100(0), Gpu::a100(1), Gpu::t4(2)]);
        assert_eq!(serde_json::from_slice::<Scenario>(&serde_json::to_vec(&scenario)?)?, scenario);
        assert!(serde_json::from_str::<Scenario>(r#"{"gpus": [{"wattage": 1}]}"#).is_err());
        Ok(())
    }

    #[test]
    fn a_level_holds_from_each_step_to_the_next() {
        let level = Level::Steps(vec![(100, 5.0), (200, 90.0)]);
        let at = |moments: &[u64], expected: f64| moments.iter().all(|at| (level.at(*at) - expected).abs() < f64::EPSILON);
        assert!(at(&[0, 100, 199], 5.0) && at(&[200, 9000], 90.0));
    }
}
