//! What becomes of unhealthy nodes, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of nodes whose hardware is not fit for work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawUnhealthy {
    /// What is done with such a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<crate::health::UnhealthyAction>,
}
