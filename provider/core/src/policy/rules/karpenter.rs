//! What Stoker does about a Karpenter that runs next to it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label by which a `NodePool` is opened to steering. No other is ever written to.
pub const STEERED_LABEL: &str = "stoker.dev/steered";

/// The label of a `NodePool` whose work is like that of a pool of the policy: that pool's spot rules price its spot nodes, its window keeps its
/// free nodes, its floor is kept, its rules repair unhealthy nodes, and a budget of it that is spent closes it.
pub const RULES_LABEL: &str = "stoker.dev/rules-of";

/// The annotation of a `NodePool` whose limits Stoker has set: what was set, what was there before, and why, as JSON.
pub const LIMITS_MARK: &str = "stoker.dev/limits";

/// The annotation of a `NodePool` whose `consolidateAfter` Stoker has set: the same.
pub const WINDOW_MARK: &str = "stoker.dev/consolidate-after";

/// The annotation of a `NodePool` whose disruption budgets Stoker has set: the same.
pub const BUDGETS_MARK: &str = "stoker.dev/disruption-budgets";

/// The annotation of a `NodePool` whose weight Stoker has set: the same.
pub const WEIGHT_MARK: &str = "stoker.dev/weight";

/// A part of Karpenter that is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lever {
    /// `spec.limits` of `NodePools`, from what is left of the quotas.
    Limits,
    /// Prices that Karpenter compares, as `NodeOverlays`: of what commitments cover, and of spot with the work that reclaims lose. Where it
    /// compares none, `spec.weight` of `NodePools` that a commitment covers.
    Prices,
    /// `karpenter.sh/do-not-disrupt` on Nodes, while GPU pods hold them.
    Protect,
    /// `spec.disruption` of `NodePools`, by a pool's window: how long a free node stays, and how many go at once.
    Windows,
    /// The condition of Nodes with unfit GPUs by which Karpenter's node repair replaces them.
    Repair,
    /// Warm floors of `NodePools`, as `CapacityBuffers`, by a pool's floor.
    Floors,
}

impl Lever {
    /// The word in the policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Prices => "prices",
            Self::Protect => "protect",
            Self::Windows => "windows",
            Self::Repair => "repair",
            Self::Floors => "floors",
        }
    }
}

/// What is done about Karpenter; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BesideKarpenter {
    /// Whether the policy says that GPU nodes that others than Stoker bought count. See [`Self::counts_nodes`].
    pub count_nodes: bool,
    /// The parts of Karpenter that are steered.
    pub steer: BTreeSet<Lever>,
    /// Whether nothing is steered, and only shown what would be written.
    pub dry_run: bool,
}

impl BesideKarpenter {
    /// Whether anything is steered, in earnest or for show.
    pub fn steers(&self) -> bool {
        !self.steer.is_empty()
    }

    /// Whether nothing is done.
    pub fn is_off(&self) -> bool {
        !self.count_nodes && self.steer.is_empty()
    }

    /// Whether a part is steered, in earnest or for show.
    pub fn has(&self, lever: Lever) -> bool {
        self.steer.contains(&lever)
    }

    /// Whether Karpenter is held to what it was promised of the quotas: only then do promises count.
    pub fn promises(&self) -> bool {
        self.has(Lever::Limits) && !self.dry_run
    }

    /// Whether nodes that others bought count. A promise is made of what they leave, and a price of what they leave of commitments, so
    /// they count under either too.
    pub fn counts_nodes(&self) -> bool {
        self.count_nodes || self.promises() || (self.has(Lever::Prices) && !self.dry_run)
    }
}
