//! The policy file as written: every field that the format has, typed, before any rule is applied.
//!
//! The JSON Schema of these types is what `stoker policy schema` prints. [`super::Policy`] is what the rules accept.

mod capacity;
mod commitment;
mod health;
mod karpenter;
mod outdated;
mod sharing;
mod signals;
mod warm;
mod windows;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use capacity::{RawCapacity, RawPrice, RawQuota, RawSpot};
pub use commitment::{RawCommitment, RawDiscount};
pub use health::RawUnhealthy;
pub use karpenter::RawKarpenter;
pub use outdated::RawOutdated;
pub use sharing::{RawIsolation, RawMig, RawSharing};
pub use signals::{RawPrometheus, RawSignal};
pub use warm::{HeldThen, RawFloorSlot, RawOffHours, RawQuantile, RawSlot, RawWarmFloor};
pub use windows::RawStabilization;

use crate::base::kinds::{Evidence, TaintEffect, Workload};
use crate::market::offer::{GpuFeature, GpuFigure};
use crate::market::transfer::MaxDistance;
use crate::policy::rules::supplier::PluginTls;

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
    /// Who makes nodes. A pool's nodes are made by the first of the list that can, unless the pool
    /// names one. Default: one, simulated. Changes take effect when the service starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppliers: Vec<RawSupplier>,
    /// Limits of all pools together.
    #[serde(default, skip_serializing_if = "RawOverallLimits::is_empty")]
    pub limits: RawOverallLimits,
    /// Who may use what. Listed in the order in which they are shown; no pool takes precedence.
    pub pools: Vec<RawPool>,
    /// Quotas that the cloud sets, as numbers.
    #[serde(default)]
    pub quotas: Vec<RawQuota>,
    /// The operator's own prices: each row replaces the table's row for that market.
    #[serde(default)]
    pub prices: Vec<RawPrice>,
    /// Commitments that are already paid for: reservations, capacity blocks, savings plans. They
    /// are used first, whichever pool buys.
    #[serde(default)]
    pub commitments: Vec<RawCommitment>,
    /// How readings and demand signals are taken from Prometheus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<RawPrometheus>,
    /// Thresholds of `stoker advise`; purchases do not depend on them.
    #[serde(default, skip_serializing_if = "RawAdvise::is_empty")]
    pub advise: RawAdvise,
    /// What Stoker does about a Karpenter that runs in the same cluster. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub karpenter: Option<RawKarpenter>,
}

/// Who makes nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSupplier {
    /// Its name; `simulated` for the simulated one, `karpenter` for Karpenter.
    pub name: String,
    /// How it is reached.
    pub kind: RawSupplierKind,
    /// Where a plugin listens: `unix:///path/to/socket` or `http://127.0.0.1:port` beside Stoker,
    /// `https://host:port` elsewhere. Only for `kind: plugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "unix:///run/stoker/lambda.sock")]
    pub endpoint: Option<String>,
    /// File with what a new machine boots with, where Stoker runs: `@STOKER_TOKEN@` and other markers
    /// are filled in. Left out, the image joins the cluster by itself. Only for `kind: plugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/etc/stoker/boot/kubeadm.yaml")]
    pub boot_template: Option<String>,
    /// What both sides show where the endpoint is `https://`. Only for `kind: plugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<PluginTls>,
    /// File with what machines are made with and where, as Stoker reads it. It is read again whenever it changes.
    /// Only for `kind: aws`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/etc/stoker/aws/aws.yaml")]
    pub config: Option<String>,
}

/// How a supplier is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RawSupplierKind {
    /// Nodes exist in this process only.
    Simulated,
    /// A process beside this one knows a cloud.
    Plugin,
    /// Karpenter makes a node for each `NodeClaim` that Stoker creates.
    Karpenter,
    /// EC2 itself makes nodes, as the file under `config` says.
    Aws,
}

/// Thresholds by which `stoker advise` judges the GPU use of workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawAdvise {
    /// Headroom of a suggested GPU above the workload's p95 of arithmetic and bandwidth and its
    /// peak of memory. Default: `20%`.
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
    /// Where the pools' data is, as in `where.dataRegion`, e.g. `aws/us-east-1`. It applies to
    /// pools with a `datasetGiB` or a `maxDistance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_region: Option<String>,
    /// How long a launched machine may take to join the cluster before the launch is abandoned,
    /// e.g. `10m` (the default). Keep it below the autoscaler's `--max-node-provision-time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "10m")]
    pub boot_deadline: Option<String>,
    /// What to do with markets that count against a cloud quota which `quotas` does not list:
    /// `deny` buys nothing there, `allow` assumes it is unlimited. Default: `deny` for large GPUs
    /// on demand (V100, A100, H100 and their like), `allow` for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_quota: Option<UnknownQuota>,
    /// The IANA time zone of schedules that name none, e.g. `Europe/Berlin`. Default: `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// Limits of all pools together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOverallLimits {
    /// Spend rate that all pools together never exceed. What commitments pay for does not count. It
    /// restricts purchases in the same steps as a pool's own `limits.maxUsdPerHour`. Default: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<serde_json::Number>,
    /// What all pools together may spend in a calendar month of UTC, in the same way as a pool's own
    /// `limits.maxUsdPerMonth`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_month: Option<serde_json::Number>,
    /// The same as a pool's own `limits.monthlyPace`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly_pace: Option<serde_json::Number>,
}

impl RawOverallLimits {
    const fn is_empty(&self) -> bool {
        self.max_usd_per_hour.is_none() && self.max_usd_per_month.is_none() && self.monthly_pace.is_none()
    }
}

/// What to do with a market whose quota the policy does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownQuota {
    /// It is assumed to be unlimited.
    Allow,
    /// Nothing is bought there.
    Deny,
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
    /// Who makes its nodes, by a name under `suppliers`. Default: the first there that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplier: Option<String>,
    /// What its nodes are made with, such as an image with its network: a name that its supplier
    /// knows. Suppliers with one way need none. `stoker policy check` looks it up in the file of a
    /// supplier of `kind: aws`, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class: Option<String>,
    /// How capacity is bought.
    #[serde(default)]
    pub capacity: RawCapacity,
    /// Within which limits.
    pub limits: RawLimits,
    /// How Stoker decides that a node is in use. Default: `pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Whether each capacity type is its own node group, labelled with the cloud's capacity-type
    /// label. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_capacity_type: Option<bool>,
    /// Labels and taints of its nodes.
    #[serde(default)]
    pub template: RawTemplate,
    /// Nodes kept warm in addition to busy ones. Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_floor: Option<RawWarmFloor>,
    /// How long free nodes are kept before they may be removed. On by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilization: Option<RawStabilization>,
    /// Times at which the pool is not used. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_hours: Option<RawOffHours>,
    /// How long pods may occupy a node's GPUs and do nothing with them (no process runs, no memory
    /// fills) before the node's verdict is `held`, e.g. because of a forgotten notebook. Default:
    /// `2h`. A held node is protected like a busy one. 15m to 168h; needs `evidence: probe`, which
    /// alone can detect it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "2h")]
    pub held_after: Option<String>,
    /// What to do with nodes whose hardware is faulty. By default they are cordoned, and replaced
    /// once empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<RawUnhealthy>,
    /// How nodes are replaced whose image, node class, labels or taints have changed since. By
    /// default free ones are, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outdated: Option<RawOutdated>,
    /// Keeps pods that fit a cheap instance type off expensive ones: each instance type gets a
    /// taint, and pods in namespaces that opt in get tolerations for those in their price class.
    /// Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<RawIsolation>,
    /// What a GPU-hour of waiting costs you, in dollars. It sizes the warm floor and windows of
    /// equal cost. In an isolated pool it decides when a more expensive instance type opens because
    /// a pod's own class is sold out. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_usd_per_gpu_hour: Option<serde_json::Number>,
    /// How each GPU is shared by several pods. A changed layout makes new groups. Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<RawSharing>,
    /// Demand signals from Prometheus: how many replicas the pool's work needs. They are shown and
    /// recorded; they change purchases only with `warmFloor.signals`.
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
    /// Features that the GPUs must have. A GPU for which this is unknown is excluded.
    #[serde(default)]
    pub needs: Vec<GpuFeature>,
    /// How much work one GPU of each model does, as measured with your own work; only the proportions count. With it offers are ranked
    /// by the price of work instead of the price of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<BTreeMap<String, serde_json::Number>>,
    /// The figure of the data sheets to take for `throughput` where nothing is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_from: Option<GpuFigure>,
    /// Largest share of the pool's nodes with a model, in whole nodes rounded up, so that one is
    /// always allowed: `{L4: 20%}` tries a new model with a fifth of the pool. Only purchases are
    /// limited. A model that is not named may be all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_share: BTreeMap<String, String>,
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
    /// Where the data is: `cloud/region`, or `cloud/region/zone` of a disk that only one zone has,
    /// by the zone's id. Default: `defaults.dataRegion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "aws/us-east-1")]
    pub data_region: Option<String>,
    /// How much data a node reads at a time, in GiB. Outside the data's region its price by the
    /// egress table is added to the ranking price; a place without a known transfer price is
    /// excluded. Budgets count nodes and not transfer. Default: no transfer.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "datasetGiB")]
    pub dataset_gib: Option<u64>,
    /// How long a node works with what it has read, e.g. `8h`: the transfer's price is spread over
    /// it. A node reads when it starts, so write how long nodes live, or how often they read if
    /// that is sooner. Spot reclaims are counted in addition. Default: `24h`.
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawLimits {
    /// Minimum nodes, whatever the demand. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    /// Maximum nodes. Zero closes the pool.
    pub max_nodes: u32,
    /// Spend rate that is never exceeded. What commitments pay for does not count and may always be
    /// bought. From 80 % on operators are warned. From 90 % on a pool that may buy spot buys only
    /// spot; other pools continue up to the limit. Nothing more is bought for cash at the limit, or
    /// below it once the cheapest node costs more than is left. Running nodes are never ended for
    /// it. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<serde_json::Number>,
    /// What may be spent in a calendar month of UTC. What is left of it, spread evenly over the
    /// hours left, is the hourly limit, worked out anew each hour. It restricts purchases in the
    /// same steps as `maxUsdPerHour`, and the lower of both counts. Of a month that had begun when
    /// the limit was first read, it is assumed that it was spent evenly. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_per_month: Option<serde_json::Number>,
    /// How many times that even rate may be spent at once, 1 to 24: `4` lets a pool that works
    /// eight hours on weekdays use its month in those hours. Default 1, with which the month's
    /// budget lasts to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly_pace: Option<serde_json::Number>,
    /// The part of `limits.maxUsdPerHour` of all pools that is kept for this pool: other pools
    /// cannot spend what the pool does not use of it. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_usd_per_hour: Option<serde_json::Number>,
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
