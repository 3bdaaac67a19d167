//! `karpenter:` as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::rules::karpenter::Lever;

/// What Stoker steers of a Karpenter that runs next to it, in `NodePools` with the label
/// `stoker.dev/steered: "true"`. It needs `manifests/karpenter/steering.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawKarpenter {
    /// The parts: `limits` writes `spec.limits` of the `NodePools` so that Karpenter and Stoker
    /// together stay within `quotas`; `protect` keeps Karpenter from emptying nodes that GPU pods
    /// hold.
    pub steer: Vec<Lever>,
    /// Write nothing; `stoker karpenter diff` shows what would be written. Default: `false`.
    #[serde(default)]
    pub dry_run: bool,
}
