//! GPU pods and instance types as plain numbers: what simulations, baselines and bounds are given.
//!
//! * [`day`]: pods of the built-in workload.
//! * [`mod@file`]: pods from a file of Stoker's own format.
//! * [`openb`]: pods from a published trace.
//! * [`synthetic`]: drawn pods that resemble published traces.
//! * [`types`]: instance types as numbers from a catalogue, and price books and catalogues made of such numbers.
//!
//! Times are seconds from the start of the demand. Prices are on demand, in the cheapest zone.

pub mod day;
pub mod file;
pub mod openb;
pub mod synthetic;
pub mod types;

use stoker_core::base::units::UsdMicros;

/// Whole GPUs, CPU and memory: what a node leaves to pods, or what a pod requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    /// Whole GPUs.
    pub gpus: u32,
    /// Thousandths of a CPU.
    pub milli_cpu: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
}

impl Resources {
    /// Whether all of `asked` fits in here.
    pub const fn holds(&self, asked: &Self) -> bool {
        self.gpus >= asked.gpus && self.milli_cpu >= asked.milli_cpu && self.memory_mib >= asked.memory_mib
    }
}

/// An instance type that can be bought without limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// Its name at the cloud, such as `g6.xlarge`.
    pub name: String,
    /// Its GPU model as a policy names it, such as `L4`.
    pub model: String,
    /// What it leaves to pods.
    pub allocatable: Resources,
    /// On-demand price per hour.
    pub hourly: UsdMicros,
}

/// What a pod's owner promised about it. The names are those of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Long-running and latency-sensitive (`LS`).
    LatencySensitive,
    /// Best effort (`BE`): may run on spot.
    BestEffort,
    /// `Burstable` and `Guaranteed`.
    Other,
}

/// A pod of the demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Its name, unique in the demand.
    pub name: String,
    /// When it is created, in seconds.
    pub arrives: f64,
    /// How long it runs once started, in seconds.
    pub runs: f64,
    /// What it requests.
    pub requests: Resources,
    /// What it would use of its GPUs if they were shared, in thousandths of a GPU.
    pub gpu_milli: u32,
    /// GPU models it may run on; empty means any.
    pub models: Vec<String>,
    /// What its owner promised.
    pub service: Service,
    /// The pool that it asks for by its node selector; `None` for the policy's first.
    pub pool: Option<String>,
}

/// Demand over a time, with what can be bought for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Instance types, by name.
    pub types: Vec<InstanceType>,
    /// Pods, by arrival.
    pub pods: Vec<Pod>,
    /// How long the demand lasts, in seconds.
    pub seconds: f64,
}

/// Demand for replicas, in steps of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// Replicas needed in each step.
    pub needed: Vec<u32>,
    /// Length of a step in seconds.
    pub step_seconds: u32,
}

impl Demand {
    /// Indices into [`Self::types`] of the types that can run the pod, in their order.
    pub fn types_for(&self, pod: &Pod) -> Vec<usize> {
        let fits = |of: &InstanceType| {
            of.allocatable.holds(&pod.requests) && (pod.models.is_empty() || pod.models.contains(&of.model))
        };
        self.types.iter().enumerate().filter(|(_, of)| fits(of)).map(|(index, _)| index).collect()
    }
}
