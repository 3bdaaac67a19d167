//! How long capacity is kept, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::rules::stabilization::Window;

/// How long a free node is kept before the autoscaler may remove it. Until then it has the
/// annotation `scale-down-disabled`; after that the autoscaler removes it after its own
/// `--scale-down-unneeded-time`. Busy nodes are kept in any case. Nodes that Stoker itself drains
/// (spot is available again, the capacity ends) do not wait.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawStabilization {
    /// How long a node must be free, from 1s to 24h, like `10m`. Left out, 15m in inference pools and 10m in others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<String>,
    /// `fixed`, the default: every node of the pool waits that long. `equalCost`: each node may be
    /// free for the same amount of money, the cost of 150 s of waiting by `waitingUsdPerGpuHour`
    /// ($0.083 at $2), at least 1m and at most `scaleDown`, so expensive nodes are released sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How long a node is kept from its order on, at most 24h, even if no pod needs it. Left out,
    /// 15m, so that no node is removed that was just bought; `0s` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_life: Option<String>,
    /// How long after a scale-up no free node of the pool is released, at most 24h. Default: none,
    /// since the new nodes have their minimum life and no pod wanted the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_scale_up: Option<String>,
    /// Largest share of the pool's nodes that may be released within one `scaleDown`, in whole
    /// nodes rounded down and at least one, most expensive first. Default: `100%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_removals_per_window: Option<String>,
}
