//! How long capacity is kept, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long need must stay low before capacity goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawStabilization {
    /// How long a node must be idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<String>,
    /// `fixed` or `equalPay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// How long a node lives at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_life: Option<String>,
    /// How long an unhealthy node is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// How long nothing goes after growth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_scale_up: Option<String>,
    /// How large a share may go in one window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_removals_per_window: Option<String>,
}
