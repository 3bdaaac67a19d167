//! The policy file as written: every field that the format has, typed, before any rule is applied.
//!
//! The JSON Schema of these types is what `stoker policy schema` prints. [`super::Policy`] is what the rules accept.

mod capacity;
mod commitment;
mod health;
mod sharing;
mod signals;
mod warm;
mod windows;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use capacity::{MoveBack, RawCapacity, RawPrice, RawQuota, RawSpot};
pub use commitment::{CommitmentKind, RawCommitment, RawDiscount};
pub use health::RawUnhealthy;
pub use sharing::{RawIsolation, RawMig, RawSharing};
pub use signals::{RawPrometheus, RawSignal};
pub use warm::{HeldThen, RawFloorSlot, RawOffHours, RawQuantile, RawSlot, RawWarmFloor};
pub use windows::RawStabilization;

use crate::offer::{GpuFeature, GpuFigure};
use crate::transfer::MaxDistance;

/// A policy: who may use what, where, how bought, within which limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Stoker policy")]
pub struct RawPolicy {
    /// Format version: `stoker.dev/v1alpha1`.
    pub api_version: String,
    /// Always `Policy`.
    pub kind: String,
    /// The cluster served. It is part of every launch key: two clusters in one account never touch each other's nodes.
    pub cluster_name: String,
    /// What pools inherit.
    #[serde(default)]
    pub defaults: RawDefaults,
    /// Limits of all pools together.
    #[serde(default, skip_serializing_if = "RawOverallLimits::is_empty")]
    pub limits: RawOverallLimits,
    /// Who may use what. Listed in the order in which they are shown; no pool takes precedence.
    pub pools: Vec<RawPool>,
    /// Limits that the cloud sets, as numbers.
    #[serde(default)]
    pub quotas: Vec<RawQuota>,
    /// The operator's own prices: each row replaces the table's row for that market.
    #[serde(default)]
    pub prices: Vec<RawPrice>,
    /// What is paid for already: reservations, capacity blocks, savings plans. Used first, whichever pool buys.
    #[serde(default)]
    pub commitments: Vec<RawCommitment>,
    /// How readings and demand signals are taken from Prometheus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<RawPrometheus>,
    /// How `stoker advise` judges what workloads use; nothing that is bought depends on it.
    #[serde(default, skip_serializing_if = "RawAdvise::is_empty")]
    pub advise: RawAdvise,
}

/// How `stoker advise` judges what workloads use of their GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawAdvise {
    /// What a suggested GPU has above the workload's p95 of arithmetic and bandwidth and its peak of memory. Default: `20%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "20%")]
    pub headroom: Option<String>,
    /// A workload is over-provisioned below this p95 of SM activity (of utilization, where that is not measured), unless it is
    /// memory-bound. Default: `40%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "40%")]
    pub over_provisioned_below: Option<String>,
    /// It is memory-bound from this peak of memory, or p95 of bandwidth, on. Default: `85%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "85%")]
    pub memory_bound_from: Option<String>,
    /// It is compute-bound from this p95 of SM activity (or utilization) on, unless it is memory-bound. Default: `95%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "95%")]
    pub compute_bound_from: Option<String>,
}

impl RawAdvise {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What pools inherit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawDefaults {
    /// Where the pools' data lies, as in `where.dataRegion`, e.g. `aws/us-east-1`. It counts for the pools with a `datasetGiB` or a
    /// `maxDistance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_region: Option<String>,
    /// How long a launched machine may take to join the cluster before it is given up, e.g. `10m` (the default).
    /// Keep it below the autoscaler's `--max-node-provision-time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "10m")]
    pub boot_deadline: Option<String>,
    /// What becomes of markets that count against a quota of the cloud which `quotas` does not list: `deny` buys nothing there, `allow`
    /// takes it as unlimited. Default: `deny` for large GPUs on demand (V100, A100, H100 and their like), `allow` for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_quota: Option<UnknownQuota>,
    /// The IANA time zone by whose clock schedules are read that name none, e.g. `Europe/Berlin`. Default: `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// Limits of all pools together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOverallLimits {
    /// Spend rate that all pools together never exceed, at cash prices: what commitments pay for does not count. It narrows as a pool's own
    /// `limits.maxUsdPerHour` does. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<serde_json::Number>,
}

impl RawOverallLimits {
    const fn is_empty(&self) -> bool {
        self.max_usd_per_hour.is_none()
    }
}

/// What becomes of a market whose quota the policy does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownQuota {
    /// Taken as unlimited.
    Allow,
    /// Nothing is bought there.
    Deny,
}

/// What a pool runs; sets its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Long runs that can resume from a checkpoint: spot first.
    Training,
    /// Serving people: on-demand, no spot unless named.
    Inference,
    /// Work that can wait and be repeated: spot first.
    Batch,
    /// Notebooks and experiments: spot first.
    Dev,
}

impl Workload {
    /// The word used in policies and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Batch => "batch",
            Self::Dev => "dev",
        }
    }
}

/// How much an inference pool's answers matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Tier {
    /// Somebody waits for each: no spot unless `capacity.prefer` names it.
    Standard,
    /// Some may be late or lost: spot first.
    BestEffort,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawPool {
    /// Its name: lower-case letters, digits and `-`, at most 40. Part of group ids and of the label `stoker.dev/pool`.
    pub name: String,
    /// What it runs; sets defaults for the rest.
    pub workload: Workload,
    /// How much an inference pool's answers matter. Default: `standard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Which GPUs.
    pub gpu: RawGpu,
    /// Where.
    #[serde(rename = "where")]
    pub place: RawWhere,
    /// Which instance types; all when empty. A name, or a prefix ending in `*`, e.g. `g6.*`.
    #[serde(default)]
    pub instance_types: Vec<String>,
    /// How capacity is bought.
    #[serde(default)]
    pub capacity: RawCapacity,
    /// Within which limits.
    pub limits: RawLimits,
    /// What tells whether a node is in use. Default: `pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Whether each capacity type is a node group of its own, told by the cloud's own capacity-type label. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_capacity_type: Option<bool>,
    /// Labels and taints of its nodes.
    #[serde(default)]
    pub template: RawTemplate,
    /// Nodes kept warm beside those at work. Off unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_floor: Option<RawWarmFloor>,
    /// How long free nodes are kept before they may go. On by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilization: Option<RawStabilization>,
    /// When the pool is not worked with. Never unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_hours: Option<RawOffHours>,
    /// How long pods may hold a node's GPUs and do nothing with them (no process at work, no memory filled) before the node counts as
    /// held, such as by a forgotten notebook, e.g. `2h` (the default). A held node is guarded as a busy one is. 15m to 168h; needs
    /// `evidence: probe`, which alone can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "2h")]
    pub held_after: Option<String>,
    /// What becomes of nodes whose hardware is not fit for work: closed, and replaced once empty, unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<RawUnhealthy>,
    /// Keeps pods with a cheap home off dear shapes: each shape gets a taint, and pods in namespaces that opt in get tolerations for
    /// those in their class. Off unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<RawIsolation>,
    /// What a GPU-hour of waiting costs you, in dollars: it sizes the warm floor and windows of equal pay, and says when a dearer shape
    /// opens because a pod's own class is sold out in an isolated pool. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_usd_per_gpu_hour: Option<serde_json::Number>,
    /// How each GPU is shared by several pods. A changed layout makes new groups. Off unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<RawSharing>,
    /// Demand signals, from Prometheus: how many replicas the pool's work asks for. They are shown and recorded; nothing is bought or
    /// kept for them but where `warmFloor.signals` says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<RawSignal>,
}

/// Which GPUs a pool may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawGpu {
    /// GPU models, e.g. `[L4, A10G]`.
    pub models: Vec<String>,
    /// GPUs per node: one number or a list. Any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<OneOrMany>,
    /// Least memory that one GPU must have.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "minMemoryGiB")]
    pub min_memory_gib: Option<u32>,
    /// Least GPU memory that all GPUs of a node must have together.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "minMemoryPerNodeGiB")]
    pub min_memory_per_node_gib: Option<u32>,
    /// Least CUDA compute capability, e.g. `8.9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_compute_capability: Option<serde_json::Number>,
    /// What the GPUs must be able to do. A GPU of which no source tells whether it can is left out.
    #[serde(default)]
    pub needs: Vec<GpuFeature>,
    /// How much work one GPU of each model does, as measured with your own work; only the proportions count. With it offers are ranked
    /// by the price of work instead of the price of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<BTreeMap<String, serde_json::Number>>,
    /// The figure of the data sheets to take for `throughput` where nothing is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_from: Option<GpuFigure>,
}

/// One number or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(u32),
    /// Several.
    Many(Vec<u32>),
}

/// Where a pool may buy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawWhere {
    /// Clouds, e.g. `[aws]`.
    pub clouds: Vec<String>,
    /// Regions, e.g. `[us-east-1]`.
    pub regions: Vec<String>,
    /// Zones, by name (`us-east-1a`) or id (`use1-az6`); all of the regions' when empty.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Where the data lies: `cloud/region`, or `cloud/region/zone` of a disk that only one zone has, by the zone's id. Default:
    /// `defaults.dataRegion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "aws/us-east-1")]
    pub data_region: Option<String>,
    /// How much data a node reads at a time, in GiB. Away from the data its price by the egress table is part of what the choice ranks by;
    /// a place to which no transfer price is known is left out. Budgets count nodes and not transfer. Default: none is reckoned with.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "datasetGiB")]
    pub dataset_gib: Option<u64>,
    /// How long a node works with what it has read, e.g. `8h`: the transfer's price is spread over it. A node reads when it starts, so say
    /// how long nodes live, or how often they read if that is sooner. Reclaims of spot are counted in addition. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "24h")]
    pub dataset_read_every: Option<String>,
    /// How far from the data nodes may be: in its `region`, on its `continent` (the Middle East is one), or in `any` of the regions named
    /// above. Default: `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_distance: Option<MaxDistance>,
    /// Largest share of the pool's nodes in one zone, in whole nodes rounded up, so that one is always allowed: `50%` spreads them over
    /// at least 2 zones. Default: 100%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_zone_share: Option<String>,
}

/// Limits of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawLimits {
    /// Nodes kept, whatever the demand. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    /// Nodes never exceeded. Zero closes the pool.
    pub max_nodes: u32,
    /// Spend rate never exceeded, at cash prices: what commitments pay for does not count, and may always be bought. From 80 % of it on
    /// operators are warned; from 90 % on a pool that may buy spot buys nothing else for cash, one that may not goes on to the limit. What
    /// runs is never ended for it. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<serde_json::Number>,
}

/// What tells whether a node is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// GPU pods bound to the node, and the probe on it: it is free when neither a pod nor anything on its GPUs is at work, unknown while
    /// its probe is silent, unhealthy when its hardware is. Should all probes of the pool fall silent together, its pods are the evidence.
    Probe,
    /// GPU pods bound to the node.
    Pods,
    /// Nothing but the autoscaler's word.
    None,
}

/// Labels and taints of a pool's nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawTemplate {
    /// Extra labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints. Default: `nvidia.com/gpu=true:NoSchedule`, which keeps pods without a GPU away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<RawTaint>>,
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawTaint {
    /// Key.
    pub key: String,
    /// Value; empty when absent.
    #[serde(default)]
    pub value: String,
    /// Effect.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if they can.
    PreferNoSchedule,
    /// Running pods leave too.
    NoExecute,
}

impl TaintEffect {
    /// The word that Kubernetes uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}
