//! How long capacity is kept, as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::window::Window;

/// How long a free node is kept before the autoscaler may remove it. While it is kept it bears the annotation `scale-down-disabled`; when
/// all that holds it is over the autoscaler removes it after its own `--scale-down-unneeded-time`. Busy nodes are kept in any case, and
/// nodes that Stoker itself lets go (spot is back, the capacity ends) wait for none of this.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawStabilization {
    /// How long a node must be free, from 1s to 24h, like `10m`. Left out, 15m in inference pools and 10m in others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<String>,
    /// Whether every node of the pool waits that long. `fixed`, the default: each does. `equalPay`: each may stand free for the same
    /// money, what 150 s of waiting cost by `waitingUsdPerGpuHour` ($0.083 at $2), but no longer than `scaleDown` and at least 1m, so dear
    /// nodes go sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How long a node is kept from its order on, at most 24h, even if no pod needs it. Left out, 15m, so that no node goes that was just
    /// bought; `0s` is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_life: Option<String>,
    /// For how long after an order no free node of the pool goes, at most 24h. Left out, none: the new nodes have their minimum life,
    /// and the others no pod wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_scale_up: Option<String>,
    /// How large a share of the pool's nodes may be released within one `scaleDown`, in whole nodes rounded down and at least one,
    /// dearest first. Left out, `100%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_removals_per_window: Option<String>,
}
