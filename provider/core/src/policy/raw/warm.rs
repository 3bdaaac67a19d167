//! What is kept warm and when, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Nodes kept warm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawWarmFloor {
    /// So many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// So large a share of the busy nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent_of_busy: Option<String>,
    /// As many as a quantile of past arrivals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<RawQuantile>,
    /// At set times.
    #[serde(default)]
    pub schedule: Vec<RawSlot>,
}

/// A quantile of past arrivals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawQuantile {
    /// Which quantile, e.g. `95%`.
    pub p: String,
    /// Over how much history.
    pub window: String,
    /// Arrivals within how long.
    pub horizon: String,
}

/// A slot of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSlot {
    /// When it begins, as a cron expression.
    pub cron: String,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub length: String,
    /// So many nodes.
    pub nodes: u32,
}

/// When a pool is not worked with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOffHours {
    /// When each begins, as a cron expression of five fields.
    pub cron: String,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub length: String,
}
