//! GPUs that several pods share and shapes that are kept apart, as it is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::kinds::Workload;
use crate::market::sharing::{Acknowledgement, MigStrategy};

/// Price-class isolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawIsolation {
    /// A pod may use an instance type whose share of the price is at most this many times that of
    /// the pod's cheapest.
    pub max_cost_ratio: serde_json::Number,
}

/// How GPUs are shared: by `mig` or by `timeSlicing`.
///
/// Offers are then ranked by the price of a slice. Stoker labels the nodes for NVIDIA's MIG manager
/// and device plugin, which must have configurations of those names. A label of the same key under
/// `template.labels` replaces Stoker's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSharing {
    /// The MIG instances of every GPU: a layout of the MIG manager's default configuration,
    /// `all-balanced` or `all-` with a profile, such as `all-1g.10gb`; or a number of each profile,
    /// such as `{ 1g.10gb: 2, 3g.40gb: 1 }`, which your MIG manager must have under the name
    /// `2x1g.10gb-1x3g.40gb`. It becomes the node label `nvidia.com/mig.config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<RawMig>,
    /// How your device plugin names MIG instances: `single` as `nvidia.com/gpu`, `mixed` by their profile, as `nvidia.com/mig-1g.10gb`.
    /// Default: `single` where all instances are alike, else `mixed`, as nothing else can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_strategy: Option<MigStrategy>,
    /// How many pods take turns on a GPU, each with access to all of its memory; from 2 to 110. It
    /// becomes the node label `nvidia.com/device-plugin.config`, e.g. `time-slicing-4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<u32>,
    /// Whether your device plugin advertises time-sliced GPUs as `nvidia.com/gpu.shared`, by its
    /// own setting of this name; the label is then e.g. `time-slicing-4-shared`. Default: no, as
    /// `nvidia.com/gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename_by_default: Option<bool>,
    /// What runs side by side on one GPU. Default: the pool's workload alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// What is rejected unless you list it: `timeSlicedInference`, inference under time-slicing;
    /// `mixedWorkloads`, training and inference on one GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledge: Vec<Acknowledgement>,
}

/// A MIG layout: by name, or instances by profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawMig {
    /// A layout of the MIG manager's default configuration.
    Named(String),
    /// A number of instances of each profile on every GPU.
    Own(BTreeMap<String, u32>),
}
