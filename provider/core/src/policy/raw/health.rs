//! What becomes of unhealthy nodes, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::health::UnhealthyAction;

/// What becomes of nodes whose hardware is not fit for work, by what their probes see. Such a node takes no new pods from the first
/// moment on, and takes them again when it is well before anything else was done. One that somebody else closed is left alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawUnhealthy {
    /// What is done with such a node beside that. Ended, it makes room for the next, which the autoscaler or the floor asks for within
    /// quotas and budgets. Default: `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<UnhealthyAction>,
    /// How long it must have been unhealthy before it is emptied or ended, up to `24h`. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "5m")]
    pub after: Option<String>,
    /// Most nodes of the pool that are replaced so within an hour. None is while more than a fifth of the pool is unhealthy: then its driver
    /// or its probe is more likely to be wrong than its hardware. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replacements: Option<u32>,
}
