//! `karpenter:` as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What Stoker knows of nodes that Karpenter buys in the same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawKarpenter {
    /// Whether GPU nodes of the cluster that Karpenter or anybody else bought count against `quotas`
    /// and `commitments`, next to Stoker's own. Leave them out of the quotas' `used` then.
    pub count_nodes: bool,
}
