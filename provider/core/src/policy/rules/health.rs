//! Rules for nodes with unfit hardware.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A pool's rules for unhealthy nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthRules {
    /// What is done with one that has pods.
    pub action: UnhealthyAction,
    /// How long it must have been unhealthy before it is emptied or ended. It takes no new pods from the first moment on.
    pub after: SignedDuration,
    /// Most nodes of the pool that are replaced for it within [`REPLACED_WITHIN`].
    pub max_replacements: u32,
}

/// The window of [`HealthRules::max_replacements`].
pub const REPLACED_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// Most nodes of so many that may be unhealthy at once while any of them is replaced: a fifth, rounded up. What breaks more than that at a
/// time is hardly their hardware. Karpenter's node repair stops at the same share.
pub const fn at_once(nodes: u32) -> u32 {
    nodes.div_ceil(5)
}

/// What is done with an unhealthy node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnhealthyAction {
    /// Closed to new pods, and left.
    Cordon,
    /// Closed, and ended once its pods have gone by themselves.
    #[default]
    Wait,
    /// Closed, its pods told to go, and ended.
    Drain,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self { action: UnhealthyAction::Wait, after: SignedDuration::from_mins(5), max_replacements: 2 }
    }
}
