//! GPU nodes that are not Stoker's, taken into the memory, from which every limit is counted.

use super::pass::{Changes, Pass};

/// Takes note of them, as long as the policy counts them. What was known stays where nobody tells: unknown is not none.
pub(super) fn remember(pass: &Pass<'_>, changes: &mut Changes<'_>) {
    let known = pass.snapshot.foreign.clone().or_else(|| changes.memory.foreign.take());
    changes.memory.foreign = known.filter(|_| pass.catalogue.policy.karpenter.counts_nodes());
    changes.recount();
}
