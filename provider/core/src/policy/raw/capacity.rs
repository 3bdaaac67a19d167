//! How capacity is bought, as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::kinds::ReturnToSpot;
use crate::market::offer::CapacityType;

/// How capacity is bought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCapacity {
    /// Capacity types in order of preference; one that is not listed is not bought. What a
    /// commitment covers is used first in any case. The default depends on the workload, with
    /// `reserved` first where `commitments` reserve capacity.
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
    /// Time between checkpoints, e.g. `30m`, or `none` for work that is lost completely: such a
    /// pool gets no spot unless `capacity.prefer` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Share of the time that goes into writing checkpoints. Default: 3%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_overhead: Option<String>,
    /// How long the work takes from SIGTERM until a checkpoint is saved, e.g. `90s`; its pods need
    /// a `terminationGracePeriodSeconds` as long. On a cloud whose notice of a reclaim leaves that
    /// much (AWS 110 s, others 20 s: the notice less 10 s) a reclaim then costs the save and the
    /// restart; elsewhere all of the time between two checkpoints is assumed to be lost. Default:
    /// unknown, and half of that time is assumed to be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "90s")]
    pub checkpoint_save: Option<String>,
    /// Time from a new node until the work is where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// Which on-demand nodes, bought because spot was not available, are drained and replaced when
    /// spot is available again and that saves money. Default, in a pool that prefers spot: `busy`
    /// where `checkpoint` names a time, `idle` elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_to_spot: Option<ReturnToSpot>,
}

/// A quota: a limit that the cloud sets on the sum over the nodes that it counts.
///
/// For a known cloud quota, e.g. `L-DB2E81BA`, `NVIDIA_L4_GPUS` or `lowPriorityCores`, the name
/// implies what it counts and in which unit: give `limit`. For any other, give `models`,
/// `capacityTypes`, and `vcpus` or `gpus` for the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawQuota {
    /// What the cloud calls it, e.g. `L-DB2E81BA`; shown where it binds.
    pub name: String,
    /// The cloud.
    pub cloud: String,
    /// The region. Omit it for a quota that counts every region of the cloud together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// GPU models counted, where the name does not imply them; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Capacity types counted, where the name does not imply them; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_types: Vec<CapacityType>,
    /// Limit, where the name implies the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Limit in vCPUs, where the name does not imply the unit. Give exactly one of `vcpus` and
    /// `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Limit in GPUs, where the name does not imply the unit. Give exactly one of `vcpus` and
    /// `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Use in the account outside this cluster, in the limit's unit, including reservations without
    /// a node. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u32>,
    /// Safety margin kept free for others, in the limit's unit. Default 0.
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
