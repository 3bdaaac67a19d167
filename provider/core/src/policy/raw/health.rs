//! What becomes of unhealthy nodes, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::rules::health::UnhealthyAction;

/// What to do with nodes whose hardware is faulty, as seen by their probes (`evidence: probe`) or as
/// told by a supplier that knows (`aws`, and plugins that report it). Such a node is cordoned at
/// once, and uncordoned if it recovers before anything else is done. One that somebody else cordoned
/// is not touched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawUnhealthy {
    /// What else is done with such a node. If it is ended, the autoscaler or the floor asks for
    /// another one, within quotas and budgets. Default: `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<UnhealthyAction>,
    /// How long it must have been unhealthy before it is drained or ended, up to `24h`. Default:
    /// `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "5m")]
    pub after: Option<String>,
    /// Maximum nodes of the pool that are replaced within an hour. None is replaced while more than
    /// a fifth of the pool is unhealthy, because then the driver or the probe is more likely at
    /// fault than the hardware. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replacements: Option<u32>,
}
