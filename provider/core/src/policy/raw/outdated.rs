//! What becomes of outdated nodes, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::RawSlot;

/// How nodes are replaced that would be made differently today: with another image, node class,
/// labels, taints or sharing; and those older than `maxNodeLife`. Free ones are replaced one at a time once their windows are over; nodes with
/// pods stay, unless one of the times below applies. `stoker nodes --outdated` lists them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOutdated {
    /// Times at which nodes with pods are replaced too, one at a time. Their pods are evicted, and
    /// `PodDisruptionBudgets` are respected. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maintenance: Vec<RawSlot>,
    /// How long a node may be outdated before it is replaced at any time, with pods or without:
    /// `1h` to `90d`. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "14d")]
    pub deadline: Option<String>,
    /// The age from which on a node is outdated: `1h` to `365d` after the order of its machine.
    /// Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "24h")]
    pub max_node_life: Option<String>,
    /// Replaces none while it is `true`. Default: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}
