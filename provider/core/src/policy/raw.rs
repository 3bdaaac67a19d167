//! The policy file as written: every field that the format has, typed, before any rule is applied.
//!
//! The JSON Schema of these types is what `stoker policy schema` prints. [`super::Policy`] is what the rules accept.

mod health;
mod signals;
mod warm;
mod windows;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use health::RawUnhealthy;
pub use signals::{RawPrometheus, RawSignal};
pub use warm::{HeldThen, RawFloorSlot, RawOffHours, RawQuantile, RawSlot, RawWarmFloor};
pub use windows::RawStabilization;

use crate::offer::{CapacityType, GpuFeature, GpuFigure};
use crate::sharing::{Acknowledgement, MigStrategy};
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

/// Which on-demand nodes are let go when spot is back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MoveBack {
    /// None of our own decision.
    #[default]
    Never,
    /// Free ones: without GPU pods, whatever their windows say.
    Idle,
    /// Busy ones too, one by one: their pods are told to go, and resume from their last checkpoint.
    Busy,
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

/// How capacity is bought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCapacity {
    /// Capacity types in the order in which they are tried; one that is not named is not bought. What a commitment covers is used before
    /// that order counts. Default by workload; `reserved` first where `commitments` keep capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Vec<CapacityType>>,
    /// Spot rules, for a pool that buys spot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<RawSpot>,
}

/// Spot rules. The defaults follow from the workload: training and dev save a checkpoint every 30 min and take 5 min to restart, batch
/// repeats 10 min of work and restarts in 2 min, inference has nothing to save and restarts in 2 min.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSpot {
    /// Largest share of the pool's nodes that may be spot, e.g. `50%`, in whole nodes rounded down. Default: 100%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<String>,
    /// Largest share of the pool's nodes in one spot market, in whole nodes rounded up, so that one is always allowed: `25%` spreads
    /// them over at least 4 markets. Default: 100%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_market_share: Option<String>,
    /// Highest published monthly reclaim rate accepted; a market without one is not. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interruption: Option<String>,
    /// Time between checkpoints, e.g. `30m`, or `none` for work that is lost whole: such a pool gets no spot unless `capacity.prefer`
    /// names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Share of the time that goes into writing checkpoints. Default: 3%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_overhead: Option<String>,
    /// How long the work takes from SIGTERM until a checkpoint is saved, e.g. `90s`; its pods need a `terminationGracePeriodSeconds` as
    /// long. On a cloud whose notice of a reclaim leaves that much (AWS 110 s, others 20 s: the notice less 10 s) a reclaim then costs the
    /// save and the restart; elsewhere all of the time between two checkpoints is reckoned to be lost. Default: not known, and half of
    /// that time is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "90s")]
    pub checkpoint_save: Option<String>,
    /// Time from a new node to where the work stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// Which on-demand nodes, bought when spot could not be had, are emptied and let go when spot is back and that pays. Default, in a
    /// pool that prefers spot: `busy` where `checkpoint` names a time, `idle` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_back: Option<MoveBack>,
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

/// A quota: a limit that the cloud sets on the sum over the nodes that it counts.
///
/// Of a quota that the clouds are known to have, e.g. `L-DB2E81BA`, `NVIDIA_L4_GPUS` or `lowPriorityCores`, the name tells what it counts
/// and in which unit: give `limit`. Of any other, say it: `models`, `capacityTypes`, and `vcpus` or `gpus` for the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawQuota {
    /// What the cloud calls it, e.g. `L-DB2E81BA`; shown where it binds.
    pub name: String,
    /// The cloud.
    pub cloud: String,
    /// The region. Left out for a quota that counts every region of the cloud together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// GPU models counted, where the name does not tell; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Capacity types counted, where the name does not tell; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_types: Vec<CapacityType>,
    /// Limit, where the name tells the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Limit in vCPUs, where the name does not tell the unit. Give exactly one of `vcpus` and `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Limit in GPUs, where the name does not tell the unit. Give exactly one of `vcpus` and `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// What runs in the account outside this cluster, in the limit's unit; what reservations hold without a node in it belongs here.
    /// Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// What is kept back for others, in the limit's unit. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety: Option<u32>,
}

/// The operator's own price of a market.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawPrice {
    /// The cloud.
    pub cloud: String,
    /// The region.
    pub region: String,
    /// The zone, by id; every zone of the region that sells the type when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instance type.
    pub instance_type: String,
    /// The capacity type.
    pub capacity_type: CapacityType,
    /// Dollars per node-hour.
    pub usd_per_hour: serde_json::Number,
}

/// Capacity or spend already paid for. Which fields it needs follows from its kind; one that it does not need is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCommitment {
    /// What you call it, e.g. the id that the cloud gave it; shown where it covers a node. Unique.
    pub name: String,
    /// The cloud that sold it.
    pub cloud: String,
    /// What it is.
    pub kind: CommitmentKind,
    /// The region; not for plans that reach every region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The zone, by id: of kept capacity, and of a zonal reserved instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The instance type: of reserved nodes and of kept capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The instance family of an `ec2-savings-plan`, e.g. `g6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The GPU model of a `committed-use`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Memory of one GPU of a `committed-use`, in GiB: must be named for a model that comes in several sizes, such as A100.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "memoryGiB")]
    pub memory_gib: Option<u32>,
    /// So many nodes: of reserved nodes and of kept capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// So many GPUs: of a `committed-use`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// What all of it costs per hour, used or not, with what was paid upfront spread over the term; the committed spend of a plan. Not for
    /// capacity that is billed at the on-demand rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<serde_json::Number>,
    /// How far a plan's rates lie below on-demand, e.g. `28%`; or by instance type, a name or a prefix ending in `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discount: Option<RawDiscount>,
    /// When it begins, e.g. `2026-12-01T11:30:00Z`. Must be named for capacity blocks and calendar reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When it ends. Must be named for capacity blocks and calendar reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl RawCommitment {
    /// Whether it keeps capacity for us, which is bought as `reserved`.
    pub(super) fn keeps_capacity(&self) -> bool {
        match self.kind {
            CommitmentKind::CapacityReservation | CommitmentKind::CapacityBlock | CommitmentKind::CalendarReservation => true,
            CommitmentKind::Reservation => self.cloud == "gcp",
            CommitmentKind::ReservedInstance
            | CommitmentKind::Ec2SavingsPlan
            | CommitmentKind::ComputeSavingsPlan
            | CommitmentKind::CommittedUse
            | CommitmentKind::SavingsPlan => false,
        }
    }
}

/// What a commitment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommitmentKind {
    /// AWS: a discount on nodes of one type in a region, or in a zone.
    ReservedInstance,
    /// AWS: a discount on the on-demand spend of one family in a region.
    Ec2SavingsPlan,
    /// AWS: a discount on all on-demand spend.
    ComputeSavingsPlan,
    /// AWS and Azure: capacity of one type kept in a zone, billed at the on-demand rate.
    CapacityReservation,
    /// AWS: capacity of one type kept in a zone for a time, paid ahead.
    CapacityBlock,
    /// Google: a discount on GPUs of one model in a region.
    CommittedUse,
    /// Google: capacity of one type kept in a zone, billed at the on-demand rate. Azure: a discount on nodes of one type in a region.
    Reservation,
    /// Google: capacity of one type kept in a zone for a time, paid ahead.
    CalendarReservation,
    /// Azure: a discount on all on-demand spend.
    SavingsPlan,
}

impl CommitmentKind {
    /// Every kind, in declared order.
    pub const ALL: [Self; 9] = [
        Self::ReservedInstance,
        Self::Ec2SavingsPlan,
        Self::ComputeSavingsPlan,
        Self::CapacityReservation,
        Self::CapacityBlock,
        Self::CommittedUse,
        Self::Reservation,
        Self::CalendarReservation,
        Self::SavingsPlan,
    ];

    /// The word used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReservedInstance => "reserved-instance",
            Self::Ec2SavingsPlan => "ec2-savings-plan",
            Self::ComputeSavingsPlan => "compute-savings-plan",
            Self::CapacityReservation => "capacity-reservation",
            Self::CapacityBlock => "capacity-block",
            Self::CommittedUse => "committed-use",
            Self::Reservation => "reservation",
            Self::CalendarReservation => "calendar-reservation",
            Self::SavingsPlan => "savings-plan",
        }
    }

    /// The clouds that sell it.
    pub const fn clouds(self) -> &'static [&'static str] {
        match self {
            Self::ReservedInstance | Self::Ec2SavingsPlan | Self::ComputeSavingsPlan | Self::CapacityBlock => &["aws"],
            Self::CapacityReservation => &["aws", "azure"],
            Self::CommittedUse | Self::CalendarReservation => &["gcp"],
            Self::Reservation => &["gcp", "azure"],
            Self::SavingsPlan => &["azure"],
        }
    }
}

/// One discount, or one for each instance type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawDiscount {
    /// The same for all.
    One(String),
    /// By instance type. What none fits is not covered.
    ByType(BTreeMap<String, String>),
}

/// Price-class isolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawIsolation {
    /// A pod may use a shape whose share of price is at most this many times its own cheapest.
    pub kappa: serde_json::Number,
}

/// How GPUs are shared: by `mig` or by `timeSlicing`.
///
/// Offers are then ranked by the price of a slice. Stoker labels the nodes for NVIDIA's MIG manager and device plugin; their
/// configurations of those names are yours to have. A label of the same key under `template.labels` stands instead.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSharing {
    /// The MIG instances of every GPU: a layout of the MIG manager's default configuration, `all-balanced` or `all-` with a profile, such as
    /// `all-1g.10gb`; or so many of each profile, such as `{ 1g.10gb: 2, 3g.40gb: 1 }`, which your MIG manager must have under the name
    /// `2x1g.10gb-1x3g.40gb`. It becomes the node label `nvidia.com/mig.config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<RawMig>,
    /// How your device plugin names MIG instances: `single` as `nvidia.com/gpu`, `mixed` by their profile, as `nvidia.com/mig-1g.10gb`.
    /// Default: `single` where all instances are alike, else `mixed`, as nothing else can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig_strategy: Option<MigStrategy>,
    /// So many pods take turns on a GPU, and each sees all of its memory; from 2 to 110. It becomes the node label
    /// `nvidia.com/device-plugin.config`, e.g. `time-slicing-4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<u32>,
    /// Whether your device plugin advertises time-sliced GPUs as `nvidia.com/gpu.shared`, by its own setting of this name; the label then
    /// says e.g. `time-slicing-4-shared`. Default: no, as `nvidia.com/gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename_by_default: Option<bool>,
    /// What runs side by side on one GPU. Default: the pool's workload alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// What is refused unless you name it: `timeSlicedInference`, inference under time-slicing; `mixedWorkloads`, training and inference on
    /// one GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acknowledge: Vec<Acknowledgement>,
}

/// A MIG layout: by name, or instances by profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawMig {
    /// A layout of the MIG manager's default configuration.
    Named(String),
    /// So many instances of each profile on every GPU.
    Own(BTreeMap<String, u32>),
}
