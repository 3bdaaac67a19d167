//! `karpenter:`, whether other nodes count.

use super::{Faults, Path};
use crate::policy::raw::RawPolicy;

pub(super) fn counts_foreign(faults: &mut Faults, path: &Path, raw: &RawPolicy) -> bool {
    let counts = raw.karpenter.as_ref().is_some_and(|karpenter| karpenter.count_nodes);
    if counts && raw.quotas.is_empty() && raw.commitments.is_empty() {
        let message = "has nothing to count nodes against: list quotas or commitments, or take karpenter out";
        faults.add(&path.key("countNodes"), message);
    }
    counts
}
