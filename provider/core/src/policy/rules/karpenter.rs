//! What Stoker steers of a Karpenter that runs next to it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label by which a `NodePool` is opened to steering. No other is ever written to.
pub const STEERED_LABEL: &str = "stoker.dev/steered";

/// A part of Karpenter that is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lever {
    /// `spec.limits` of `NodePools`, from what is left of the quotas.
    Limits,
    /// `karpenter.sh/do-not-disrupt` on Nodes, while GPU pods hold them.
    Protect,
}

impl Lever {
    /// The word in the policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Protect => "protect",
        }
    }
}

/// What is steered of Karpenter; nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Steering {
    /// The parts.
    pub levers: BTreeSet<Lever>,
    /// Whether nothing is written, and only shown what would be.
    pub dry_run: bool,
}

impl Steering {
    /// Whether nothing is steered.
    pub fn is_off(&self) -> bool {
        self.levers.is_empty()
    }

    /// Whether a part is steered, in earnest or for show.
    pub fn has(&self, lever: Lever) -> bool {
        self.levers.contains(&lever)
    }

    /// Whether Karpenter's nodes and what it was promised count against the quotas: only then is it held to its promise.
    pub fn shares_quotas(&self) -> bool {
        self.has(Lever::Limits) && !self.dry_run
    }
}
