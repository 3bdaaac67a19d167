//! GPU sharing: one GPU for several pods, split by MIG or taken in turns by time-slicing.
//!
//! A pool's [`Split`] says how; [`Split::per_gpu`] says what comes of it on one GPU, and `Shares` on a node: the resources that it
//! advertises, the slices that its price is divided by, and the labels that configure NVIDIA's MIG manager and device plugin.
//!
//! What they are called and mean follows NVIDIA's MIG user guide ("Supported MIG Profiles"), the default configuration of the MIG
//! manager (NVIDIA/gpu-operator at 0b0b6b1, `assets/state-mig-manager/0400_configmap.yaml`), and the pages of its device plugin and GPU
//! feature discovery (NVIDIA/k8s-device-plugin, `README.md` and `docs/gpu-feature-discovery/README.md`).

mod mig;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use mig::{Geometry, MigLayout, MigProfile, Misfit, NoProfile};

use crate::base::kinds::Workload;
use crate::base::units::MiB;
use crate::market::offer::{GpuSpec, InstanceSpec};

/// The extended resource of a GPU: a whole one, unless the pool shares them.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// The label with the name of the GPU that GPU feature discovery sets.
pub const PRODUCT_LABEL: &str = "nvidia.com/gpu.product";

/// What every MIG instance's resource begins with where the device plugin names instances by profile.
const MIG_RESOURCE: &str = "nvidia.com/mig-";
/// The resource of a time-sliced GPU where the device plugin renames it.
const SHARED_RESOURCE: &str = "nvidia.com/gpu.shared";
/// The node label by which the MIG manager is told its configuration.
const MIG_CONFIG: &str = "nvidia.com/mig.config";
/// The node label by which the device plugin is told its configuration.
const PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";

/// How a pool shares its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sharing {
    /// How one GPU is made several.
    pub split: Split,
    /// What runs beside each other on one GPU; never empty.
    pub workloads: BTreeSet<Workload>,
    /// What the operator takes on by name.
    pub acknowledged: BTreeSet<Acknowledgement>,
}

/// A use of shared GPUs that is refused unless the pool names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Acknowledgement {
    /// Inference takes turns on a GPU: every answer waits for the others' turns, and one pod can take the memory of all.
    TimeSlicedInference,
    /// Training and inference share one GPU, and the training's load shows in the answers' times.
    MixedWorkloads,
}

impl Acknowledgement {
    /// The word used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimeSlicedInference => "timeSlicedInference",
            Self::MixedWorkloads => "mixedWorkloads",
        }
    }
}

/// How one GPU is made several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Split {
    /// In hardware: each instance has its own memory and its own part of the processors.
    Mig {
        /// The instances.
        layout: MigLayout,
        /// How the device plugin names them.
        strategy: MigStrategy,
    },
    /// By turns: every pod sees all of the memory.
    TimeSlicing {
        /// Pods that one GPU is given to.
        replicas: u32,
        /// Whether the device plugin advertises them as `nvidia.com/gpu.shared` instead of `nvidia.com/gpu`.
        renamed: bool,
    },
}

/// How the device plugin names MIG instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigStrategy {
    /// Every instance is one `nvidia.com/gpu`; they must all be alike.
    Single,
    /// Every instance is one of its profile's resource, such as `nvidia.com/mig-1g.10gb`.
    Mixed,
}

impl MigStrategy {
    /// The word used in policies, and by the device plugin.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mixed => "mixed",
        }
    }
}

/// GPU resources beside `nvidia.com/gpu`, by their Kubernetes names: what a node has of them, or what a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slices(BTreeMap<String, u64>);

impl Slices {
    /// Whether a resource is a share of a GPU under a name of its own: an MIG instance, or anything renamed.
    pub fn is_slice(resource: &str) -> bool {
        resource.starts_with(MIG_RESOURCE) || resource.strip_prefix(GPU_RESOURCE).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Each with its number, above nought.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// How many there are of that name.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How many there are of all names.
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, number| sum.saturating_add(*number))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many more of that name.
    pub fn add(&mut self, name: &str, number: u64) {
        if number == 0 {
            return;
        }
        match self.0.get_mut(name) {
            Some(has) => *has = has.saturating_add(number),
            None => drop(self.0.insert(name.to_owned(), number)),
        }
    }

    /// At least so many of that name.
    pub fn raise(&mut self, name: &str, number: u64) {
        self.add(name, number.saturating_sub(self.of(name)));
    }

    /// So many fewer of each name.
    pub fn take(&mut self, others: &Self) {
        for (name, number) in others.iter() {
            if let Some(has) = self.0.get_mut(name) {
                *has = has.saturating_sub(number);
            }
        }
        self.0.retain(|_, number| *number > 0);
    }

    /// Whether all of these are among `others`.
    pub fn within(&self, others: &Self) -> bool {
        self.iter().all(|(name, number)| number <= others.of(name))
    }
}

impl<'a> FromIterator<(&'a str, u64)> for Slices {
    fn from_iter<I: IntoIterator<Item = (&'a str, u64)>>(amounts: I) -> Self {
        let mut slices = Self::default();
        amounts.into_iter().for_each(|(name, number)| slices.add(name, number));
        slices
    }
}

/// So many of a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// So many.
    pub of: u32,
    /// Of so many.
    pub whole: u32,
}

/// What sharing makes of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerGpu {
    /// MIG instances; none under time-slicing.
    pub instances: BTreeMap<MigProfile, u32>,
    /// Slices that the price is divided by: pods that fit where all shares are alike, else compute slices in use.
    pub slices: u32,
    /// Processors in use.
    pub compute: Part,
    /// Memory, and so memory bandwidth, in use.
    pub memory: Part,
}

impl Split {
    /// What it makes of a GPU; `None` is one of which no source tells.
    ///
    /// # Errors
    /// Says what the GPU lacks.
    pub fn per_gpu(&self, gpu: Option<&GpuSpec>) -> Result<PerGpu, Misfit> {
        match self {
            Self::TimeSlicing { replicas, .. } => {
                let all = Part { of: 1, whole: 1 };
                Ok(PerGpu { instances: BTreeMap::new(), slices: (*replicas).max(1), compute: all, memory: all })
            }
            Self::Mig { layout, .. } => {
                let geometry = Geometry::of(gpu.ok_or(Misfit::Unknown)?)?;
                let instances = layout.on(&geometry)?;
                let (compute, memory) = geometry.used(&instances);
                let slices = match instances.values().collect::<Vec<_>>()[..] {
                    [alike] => *alike,
                    _ => compute.of,
                };
                Ok(PerGpu { instances, slices: slices.max(1), compute, memory })
            }
        }
    }

    /// The labels that configure the MIG manager or the device plugin, and those by which GPU feature discovery tells of it.
    fn labels(&self) -> BTreeMap<&'static str, String> {
        match self {
            Self::Mig { layout, strategy } => {
                BTreeMap::from([(MIG_CONFIG, layout.config()), ("nvidia.com/mig.strategy", strategy.as_str().to_owned())])
            }
            Self::TimeSlicing { replicas, renamed } => {
                let shared = if *renamed { "-shared" } else { "" };
                BTreeMap::from([
                    (PLUGIN_CONFIG, format!("time-slicing-{replicas}{shared}")),
                    ("nvidia.com/gpu.replicas", replicas.to_string()),
                    ("nvidia.com/gpu.sharing-strategy", "time-slicing".to_owned()),
                ])
            }
        }
    }

    /// Every setting that shows on a node, in words: part of what a group's id stands for.
    pub fn mark(&self) -> String {
        match self {
            Self::Mig { layout, strategy } => format!("mig {} {}", layout.config(), strategy.as_str()),
            Self::TimeSlicing { replicas, renamed } => format!("time-slicing {replicas} {renamed}"),
        }
    }
}

/// What sharing makes of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shares {
    /// What it makes of each GPU.
    pub(crate) per_gpu: PerGpu,
    /// Slices of the node.
    pub(crate) slices: u32,
    /// Advertised as `nvidia.com/gpu`.
    pub(crate) gpus: u32,
    /// Advertised under other names.
    pub(crate) named: Slices,
    /// Labels of the node.
    pub(crate) labels: BTreeMap<&'static str, String>,
}

impl Shares {
    /// What a split makes of a node of this type.
    ///
    /// # Errors
    /// Says what its GPUs lack.
    pub(crate) fn of(split: &Split, spec: &InstanceSpec, gpu: Option<&GpuSpec>) -> Result<Self, Misfit> {
        if matches!(split, Split::Mig { .. }) && spec.gpus.0 < 1000 {
            return Err(Misfit::PartOfGpu);
        }
        let per_gpu = split.per_gpu(gpu)?;
        let on_node = |of_one: u32| of_one.saturating_mul(spec.advertised_gpus());
        let (gpus, named, suffix) = match (split, per_gpu.instances.first_key_value()) {
            (Split::Mig { strategy: MigStrategy::Single, .. }, Some((profile, number))) => {
                (on_node(*number), Slices::default(), format!("-MIG-{profile}"))
            }
            (Split::Mig { .. }, _) => {
                let mut named = Slices::default();
                for (profile, number) in &per_gpu.instances {
                    named.add(&profile.resource(), on_node(*number).into());
                }
                (0, named, String::new())
            }
            (Split::TimeSlicing { replicas, renamed: false }, _) => {
                (on_node(*replicas), Slices::default(), "-SHARED".to_owned())
            }
            (Split::TimeSlicing { replicas, renamed: true }, _) => {
                (0, [(SHARED_RESOURCE, on_node(*replicas).into())].into_iter().collect(), String::new())
            }
        };
        let mut labels = split.labels();
        if let Some(product) = gpu.and_then(|gpu| spec.product(gpu)) {
            labels.insert(PRODUCT_LABEL, format!("{product}{suffix}"));
        }
        Ok(Self { slices: on_node(per_gpu.slices), per_gpu, gpus, named, labels })
    }

    /// Memory of the smallest instance; `None` where every pod sees all of the GPU's.
    pub(crate) fn least_memory(&self) -> Option<MiB> {
        self.per_gpu.instances.keys().map(|profile| MiB::from_gib(profile.gib.into())).min()
    }
}
