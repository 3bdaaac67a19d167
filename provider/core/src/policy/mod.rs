//! The policy: what the operator allows, as values that cannot be wrong.
//!
//! A [`RawPolicy`] becomes a [`Policy`] only through [`Policy::try_from_raw`], which reports every fault at once, each with
//! the path of the field that has it. Whoever read the file turns the path into a line.

mod fault;
mod lint;
mod prometheus;
mod raw;
pub mod rules;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

pub use fault::{Fault, Path, Segment};
pub use lint::doubts;
pub use prometheus::{LONGEST_GAP, Prometheus};
pub use raw::*;
pub use validate::{MAX_POOL_NAME, check_against_prices, cluster_name, discount, label_key, label_value};

use crate::base::calendar::OffHours;
use crate::base::ids::{Cloud, ClusterName, GpuModel, InstanceType, NodeClassName, PoolName, Region, SupplierName, ZoneId};
use crate::base::kinds::{Evidence, QuotaUnit, Taint, Workload};
use crate::base::units::{MiB, Milli, Percent, UsdPerHour};
use crate::market::offer::{CapacityType, ComputeCapability, GpuFeature, GpuFigure};
use crate::market::quota_names::KnownQuota;
use crate::market::sharing::Sharing;
use crate::market::transfer::Data;
use crate::policy::rules::advise::Thresholds;
use crate::policy::rules::commitment::Commitment;
use crate::policy::rules::demand::DemandSignal;
use crate::policy::rules::health::HealthRules;
use crate::policy::rules::karpenter::BesideKarpenter;
use crate::policy::rules::month::MonthBudget;
use crate::policy::rules::outdated::OutdatedRules;
use crate::policy::rules::spot::SpotRules;
use crate::policy::rules::stabilization::Stabilization;
use crate::policy::rules::supplier::SupplierRule;
use crate::policy::rules::warm_floor::{WarmFloor, WarmWhen};

/// The `apiVersion` this release reads.
pub const API_VERSION: &str = "stoker.dev/v1alpha1";

/// Boot deadline where the policy names none: above what nearly all boots take (with the 4 to 6 min that operators report as the
/// middle, 95 % are below 521 s) and below the autoscaler's default `--max-node-provision-time` of 15 min.
pub const DEFAULT_BOOT_DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// What a GPU-hour of waiting costs where the policy does not say: about what the GPU itself costs (L4 to A100, on demand).
pub const DEFAULT_WAITING: UsdPerHour = UsdPerHour(2_000_000);

/// How long a pod may hold GPUs and do nothing with them, where the policy does not say: longer than a lunch and shorter than a working
/// day.
pub const DEFAULT_HELD_AFTER: SignedDuration = SignedDuration::from_hours(2);

const fn default_held_after() -> SignedDuration {
    DEFAULT_HELD_AFTER
}

const fn default_waiting() -> UsdPerHour {
    DEFAULT_WAITING
}

/// What the operator allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The cluster served.
    pub cluster: ClusterName,
    /// How long a launched machine may take to join the cluster.
    pub boot_deadline: SignedDuration,
    /// Spend rate that all pools together never exceed; `None` is no limit.
    #[serde(default)]
    pub max_usd_per_hour: Option<UsdPerHour>,
    /// What all pools together may spend in a calendar month; `None` is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month: Option<MonthBudget>,
    /// Who makes nodes, in the order in which they are asked whether they can; names are unique. Whoever there is, where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppliers: Vec<SupplierRule>,
    /// The pools, in file order; names are unique.
    pub pools: Vec<Pool>,
    /// Limits that the cloud sets.
    pub quotas: Vec<Quota>,
    /// What becomes of a market whose quota is not among them; `None` is the usual rule: nothing is bought on demand where the quota
    /// is [`Known::must_be_listed`](crate::market::quota_names::Known::must_be_listed), elsewhere it is taken as unlimited.
    pub unknown_quota: Option<UnknownQuota>,
    /// The operator's own prices.
    pub prices: Vec<PriceRow>,
    /// What is paid for already, in file order; names are unique.
    pub commitments: Vec<Commitment>,
    /// How `stoker advise` judges.
    #[serde(default)]
    pub advise: Thresholds,
    /// How Prometheus is asked.
    #[serde(default)]
    pub prometheus: Prometheus,
    /// What is done about a Karpenter next to Stoker.
    #[serde(default, skip_serializing_if = "BesideKarpenter::is_off")]
    pub karpenter: BesideKarpenter,
}

/// One pool: who may use what, in which order, within which limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// What it runs.
    pub workload: Workload,
    /// GPU models allowed; never empty.
    pub models: BTreeSet<GpuModel>,
    /// GPUs per node allowed; any when empty.
    pub gpu_counts: BTreeSet<u32>,
    /// Least memory of one GPU.
    pub min_gpu_memory: MiB,
    /// Least memory of all GPUs of a node together.
    pub min_node_gpu_memory: MiB,
    /// Least CUDA compute capability.
    pub min_compute_capability: Option<ComputeCapability>,
    /// What the GPUs must be able to do.
    pub needs: BTreeSet<GpuFeature>,
    /// How much work a GPU does.
    pub throughput: Throughput,
    /// Clouds allowed; never empty.
    pub clouds: BTreeSet<Cloud>,
    /// Regions allowed; never empty.
    pub regions: BTreeSet<Region>,
    /// Zones allowed, by name or id as written; all when empty.
    pub zones: BTreeSet<String>,
    /// Its data; `None` where nothing of it counts for the choice.
    pub data: Option<Data>,
    /// Largest share of its nodes in one zone, in whole nodes rounded up; `None` where any will do. Never zero and never all.
    pub max_zone_share: Option<Percent>,
    /// Largest share of its nodes with a GPU model, in whole nodes rounded up, where less than all may be. Never zero and never all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_model_share: BTreeMap<GpuModel, Percent>,
    /// Instance types allowed; all when empty.
    pub instance_types: Vec<TypePattern>,
    /// Capacity types in the order in which they are tried; never empty, no repeats.
    pub prefer: Vec<CapacityType>,
    /// Who makes its nodes; `None` for the first of the policy's that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplier: Option<SupplierName>,
    /// What they are made with; `None` for the one way that needs no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class: Option<NodeClassName>,
    /// Spot rules; `None` where the pool buys no spot.
    pub spot: Option<SpotRules>,
    /// Limits.
    pub limits: Limits,
    /// How Stoker decides that a node is in use.
    pub evidence: Evidence,
    /// Whether each capacity type is a group of its own.
    pub split_capacity_type: bool,
    /// Extra labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Price-class isolation; `None` is off.
    pub isolation: Option<Isolation>,
    /// What a GPU-hour of waiting costs.
    #[serde(default = "default_waiting")]
    pub waiting: UsdPerHour,
    /// How GPUs are shared; `None` gives whole ones.
    pub sharing: Option<Sharing>,
    /// Its demand signals, in file order; names are unique.
    #[serde(default)]
    pub signals: Vec<DemandSignal>,
    /// What it keeps warm; `None` where it keeps nothing.
    #[serde(default)]
    pub warm_floor: Option<WarmFloor>,
    /// How long its capacity is kept; `None` where nothing tells whether a node is free, and in what was written by a release that kept
    /// none.
    #[serde(default)]
    pub stabilization: Option<Stabilization>,
    /// When it is not worked with; `None` where that is never.
    #[serde(default)]
    pub off_hours: Option<OffHours>,
    /// How long a pod may hold GPUs and do nothing with them before its node counts as held.
    #[serde(default = "default_held_after")]
    pub held_after: SignedDuration,
    /// What becomes of its unhealthy nodes.
    #[serde(default)]
    pub unhealthy: HealthRules,
    /// How its outdated nodes are replaced.
    #[serde(default)]
    pub outdated: OutdatedRules,
}

/// Price-class isolation of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Isolation {
    /// A pod may use a shape on which its share of the price is at most this many times its own cheapest node's price, in thousandths.
    pub max_cost_ratio: Milli,
}

/// How much work one GPU does in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Throughput {
    /// Every GPU counts alike.
    Alike,
    /// By the operator's figures, in thousandths, for every model of the pool; above zero.
    Given(BTreeMap<GpuModel, Milli>),
    /// By a figure of the data sheets.
    From(GpuFigure),
}

/// Limits of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Nodes kept, whatever the demand.
    pub min_nodes: u32,
    /// Nodes never exceeded.
    pub max_nodes: u32,
    /// Spend rate never exceeded; `None` is no limit.
    pub max_usd_per_hour: Option<UsdPerHour>,
    /// What may be spent in a calendar month; `None` is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month: Option<MonthBudget>,
    /// The part of the budget of all pools that is kept for this one.
    #[serde(default, skip_serializing_if = "UsdPerHour::is_zero")]
    pub guaranteed: UsdPerHour,
}

/// An instance type, or a prefix of some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TypePattern {
    /// Just this one.
    Exact(InstanceType),
    /// Those that begin so.
    Prefix(String),
}

impl TypePattern {
    /// Whether `instance_type` is meant.
    pub fn matches(&self, instance_type: &InstanceType) -> bool {
        match self {
            Self::Exact(name) => name == instance_type,
            Self::Prefix(prefix) => instance_type.as_str().starts_with(prefix),
        }
    }
}

/// Which nodes a quota counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Counts {
    /// Those that the cloud is known to count.
    Known(KnownQuota),
    /// Those that the operator says.
    Own {
        /// GPU models; all when empty.
        models: BTreeSet<GpuModel>,
        /// Capacity types; all when empty.
        capacity_types: BTreeSet<CapacityType>,
    },
}

/// A limit that the cloud sets on the sum over the nodes that it counts. What this cluster may hold of it is limit − used − safety.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// What the cloud calls it.
    pub name: String,
    /// The cloud.
    pub cloud: Cloud,
    /// The region; all of the cloud's when `None`.
    pub region: Option<Region>,
    /// Which nodes it counts.
    pub counts: Counts,
    /// What the numbers below mean.
    pub unit: QuotaUnit,
    /// The limit.
    pub limit: u32,
    /// What runs in the account outside this cluster.
    pub used: u32,
    /// What is kept back.
    pub safety: u32,
}

impl Quota {
    /// What this cluster may hold of it; zero where others hold it all.
    pub fn share(&self) -> u64 {
        self.share_of(self.limit)
    }

    /// The same, were that its limit.
    pub fn share_of(&self, limit: u32) -> u64 {
        u64::from(limit.saturating_sub(self.used).saturating_sub(self.safety))
    }
}

/// A quota, whatever its place in the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaKey {
    /// What the cloud calls it.
    pub name: String,
    /// The cloud.
    pub cloud: Cloud,
    /// The region; all of the cloud's when `None`.
    pub region: Option<Region>,
}

impl QuotaKey {
    /// That of a quota.
    pub fn of(quota: &Quota) -> Self {
        Self { name: quota.name.clone(), cloud: quota.cloud.clone(), region: quota.region.clone() }
    }
}

impl fmt::Display for QuotaKey {
    /// Its name, and its region where it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.region.as_ref().map_or(Ok(()), |region| write!(f, " {region}"))
    }
}

/// The operator's own price of a market.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceRow {
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: Region,
    /// The zone; every zone of the region that sells the type when `None`.
    pub zone: Option<ZoneId>,
    /// The instance type.
    pub instance_type: InstanceType,
    /// The capacity type.
    pub capacity_type: CapacityType,
    /// Price of one node.
    pub price: UsdPerHour,
}

impl Pool {
    /// Whether a node of it is warm only with its images.
    pub fn waits_for_images(&self) -> bool {
        self.warm_floor.as_ref().is_some_and(|floor| floor.warm_when == WarmWhen::ImagesPulled)
    }

    /// Whether it may buy spot at all.
    pub fn may_buy_spot(&self) -> bool {
        self.prefer.contains(&CapacityType::Spot) && self.spot.as_ref().is_some_and(|rules| rules.max_share.0 > 0)
    }
}

impl Policy {
    /// The pool of that name.
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == *name)
    }

    /// Applies the rules to a policy as written.
    ///
    /// # Errors
    /// Every fault found, in file order, each naming its field and the cure.
    pub fn try_from_raw(raw: &RawPolicy) -> Result<Self, Vec<Fault>> {
        validate::policy(raw)
    }
}
