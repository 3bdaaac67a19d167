//! What is kept warm and when, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::rules::warm_floor::{Mechanism, WarmWhen};

/// Nodes kept warm: free, healthy and ready for a pod. The largest of its parts counts, within
/// every limit of the pool. They are kept on the cheapest open instance types, unused commitments
/// first; with `isolation` in the pool's cheapest class. Those of `quantile` are kept on the
/// instance types that pods asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawWarmFloor {
    /// So many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// A share of the busy nodes, in whole nodes rounded up, e.g. `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "10%")]
    pub percent_of_busy: Option<String>,
    /// As many nodes of each instance type as were enough for this share of past demand. Nothing
    /// until a day has been observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<RawQuantile>,
    /// A number of nodes at set times. Where several apply, the largest counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<RawFloorSlot>,
    /// Whether the pool's `signals` add nodes: as many as the needed replicas that do not run yet
    /// would fill. A replica counts as one pod, and a node fits as many pods as a busy node of the
    /// pool has. An unknown signal keeps its last value. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<bool>,
    /// When a node counts as warm: `ready`, or `imagesPulled`, when it also has every image that
    /// the pool's GPU pods used recently; pull them in advance, e.g. by a `DaemonSet`. Images are
    /// those used within an hour before the last use of any, up to 16; a node that lists none, or
    /// its 50 largest only, counts as soon as it is Ready. Default: `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_when: Option<WarmWhen>,
    /// How the autoscaler is asked for these nodes: `minSize`, with
    /// `--enforce-node-group-min-size`, or `capacityBuffer`, an object that it (1.35 or later, with
    /// both `--capacity-buffer-...-enabled`) or Karpenter keeps room for. If the cluster does not
    /// serve those, `minSize` is used. A buffer has the size of the pool's smallest nodes. Default:
    /// `minSize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
}

/// A quantile of past arrivals: of the nodes of an instance type that pods asked for, or took from
/// the free ones, within a boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawQuantile {
    /// Which quantile, e.g. `95%`. Default: the one that costs least: waiting ÷ (waiting + idling),
    /// by `waitingUsdPerGpuHour` and the price of a GPU of the instance type. $2 and $0.80 make 71%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "95%")]
    pub p: Option<String>,
    /// How much history it covers: `1d` to `30d`. Default: `14d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "14d")]
    pub window: Option<String>,
    /// The span in which arrivals are counted, about the time of a boot. Default: what nine of ten
    /// of the pool's last boots took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "10m")]
    pub horizon: Option<String>,
}

/// Nodes at set times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawFloorSlot {
    /// When it begins: minute, hour, day of the month, month and day of the week, e.g. `0 8 * * 1-5`.
    #[schemars(example = "0 8 * * 1-5")]
    pub cron: String,
    /// By the clock of this IANA time zone, daylight saving included. Default: `defaults.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
    /// How long it lasts by that clock, e.g. `10h`; at least as long as `stabilization` keeps the
    /// nodes that are bought when it begins.
    #[serde(rename = "for")]
    #[schemars(example = "10h")]
    pub length: String,
    /// Number of nodes: more than `nodes`, because the largest counts. `offHours` lower a floor.
    pub nodes: u32,
}

/// Recurring times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSlot {
    /// When each begins: minute, hour, day of the month, month and day of the week, e.g. `0 20 * * 1-5`.
    #[schemars(example = "0 20 * * 1-5")]
    pub cron: String,
    /// By the clock of this IANA time zone, daylight saving included. Default: `defaults.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
    /// How long it lasts by that clock, e.g. `12h`.
    #[serde(rename = "for")]
    #[schemars(example = "12h")]
    pub length: String,
}

/// Times at which a pool is not used, and what happens to its nodes then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOffHours {
    /// When. Times that run into each other count as one; with `maxNodes` they must not cover every
    /// hour.
    pub schedule: Vec<RawSlot>,
    /// Maximum nodes in that time, instead of `limits.maxNodes`. Nothing more is bought and free
    /// nodes are not kept; busy nodes are never removed for it. Default: as at other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// What to do with nodes that a pod occupies without activity for `heldAfter`, such as a
    /// forgotten notebook: `keep` or `evict`, after an Event and the grace time. Default: `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldThen>,
    /// Time between that Event and the eviction, `1m` to `24h` and shorter than the times of the
    /// schedule. Default: `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "15m")]
    pub grace: Option<String>,
}

/// What to do with held nodes in off-hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldThen {
    /// They stay.
    #[default]
    Keep,
    /// Their pods are evicted.
    Evict,
}
