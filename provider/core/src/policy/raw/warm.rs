//! What is kept warm and when, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::floor::{Through, WarmWhen};

/// Nodes kept warm: free, healthy and ready for a pod. As many as the most demanding part asks for, within every limit of the pool. They are
/// kept on the cheapest shapes that are open, unused commitments first; with `isolation` that is the pool's cheapest class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawWarmFloor {
    /// So many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// So large a share of the nodes at work, in whole nodes rounded up, e.g. `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "10%")]
    pub percent_of_busy: Option<String>,
    /// As many nodes as pods have asked for at once in the past: enough for so large a share of all times. Asks for nothing until a day has
    /// been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<RawQuantile>,
    /// So many nodes at set times. Where several are on, the most counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<RawFloorSlot>,
    /// Whether the pool's `signals` ask for nodes: those that the replicas which they need, and which do not run yet, would fill. A replica is
    /// taken for one pod, and a node for as many as a busy one of the pool holds. A signal that is not known asks for what it last did.
    /// Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<bool>,
    /// When a node counts as warm: `ready`, or `imagesPulled`, when every image that the pool's GPU pods used lately is on it too; have them
    /// pulled in advance, as by a `DaemonSet`. Images are those used within an hour before the last use of any, up to 16; a node that lists none,
    /// or its 50 largest only, counts as soon as it is Ready. Default: `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_when: Option<WarmWhen>,
    /// How the autoscaler is asked for them: `minSize`, with `--enforce-node-group-min-size`, or `capacityBuffer`, an object that it (1.35 or
    /// later, with both `--capacity-buffer-...-enabled`) or Karpenter keeps room for. Where the cluster does not serve those, by `minSize`.
    /// A buffer is of the pool's smallest nodes. Default: `minSize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Through>,
}

/// A quantile of past arrivals: of the nodes that pods asked for, or took from the free ones, within a boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawQuantile {
    /// Which quantile, e.g. `95%`. Default: the one that costs least: waiting ÷ (waiting + idling), by `waitingUsdPerGpuHour` and the price of
    /// the pool's cheapest GPU. $2 and $0.80 make 71%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "95%")]
    pub p: Option<String>,
    /// Over how much history: `1d` to `30d`. Default: `14d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "14d")]
    pub window: Option<String>,
    /// Arrivals within how long: what a boot takes. Default: what nine of ten of the pool's last boots took.
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
    /// How long it lasts by that clock, e.g. `10h`: no shorter than what is bought when it begins is kept by `stabilization`.
    #[serde(rename = "for")]
    #[schemars(example = "10h")]
    pub length: String,
    /// So many nodes: more than `nodes`, since the most counts. `offHours` lower a floor.
    pub nodes: u32,
}

/// Times that come again and again.
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

/// When a pool is not worked with, and what becomes of its nodes then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOffHours {
    /// When. Times that run into each other count as one; with `maxNodes` they leave some hour out.
    pub schedule: Vec<RawSlot>,
    /// Nodes not exceeded then, in the place of `limits.maxNodes`. Nothing more is bought and free nodes are not kept; busy ones never go for
    /// it. Default: as at other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// What becomes of nodes that a pod holds without activity for `heldAfter`, a forgotten notebook: `keep` or `evict`, after an Event and the
    /// grace time. Default: `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldThen>,
    /// How long after that Event, `1m` to `24h` and shorter than the times of the schedule. Default: `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "15m")]
    pub grace: Option<String>,
}

/// What becomes of held nodes in off-hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldThen {
    /// They stay.
    #[default]
    Keep,
    /// Their pods are told to go.
    Evict,
}
