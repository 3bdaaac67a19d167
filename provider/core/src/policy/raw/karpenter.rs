//! `karpenter:` as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::rules::karpenter::Lever;

/// What Stoker does about a Karpenter that runs in the same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawKarpenter {
    /// Whether GPU nodes of the cluster that Karpenter or anybody else bought count against `quotas`
    /// and `commitments`, next to Stoker's own. Leave them out of the quotas' `used` then. Default:
    /// `false`, and always `true` where `steer` has `limits` or `prices` and `dryRun` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_nodes: Option<bool>,
    /// What Stoker steers, in `NodePools` with the label `stoker.dev/steered: "true"`: `limits`
    /// writes their `spec.limits` so that Karpenter and Stoker together stay within `quotas`;
    /// `prices` has Karpenter compare what nodes cost with `commitments`, and spot with the work that
    /// reclaims lose; `protect` keeps Karpenter from emptying nodes that GPU pods hold; `windows`,
    /// `floors` and `repair` have it keep free nodes, keep a warm floor and replace nodes with unfit
    /// GPUs by the rules of the pool that the label `stoker.dev/rules-of` names. It needs
    /// `manifests/karpenter/steering.yaml`. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steer: Vec<Lever>,
    /// Whether Stoker only shows what it would write, by `stoker karpenter diff`, and gives back what
    /// it wrote before. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}
