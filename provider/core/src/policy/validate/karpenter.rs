//! `karpenter:`, whether other nodes count, and what is steered.

use super::{Faults, Path};
use crate::policy::raw::RawPolicy;
use crate::policy::rules::karpenter::{BesideKarpenter, Lever};

pub(super) fn beside_karpenter(faults: &mut Faults, path: &Path, raw: &RawPolicy) -> BesideKarpenter {
    let Some(karpenter) = &raw.karpenter else { return BesideKarpenter::default() };
    let steer = path.key("steer");
    if karpenter.dry_run && karpenter.steer.is_empty() {
        faults.add(
            &path.key("dryRun"),
            "shows nothing, as nothing is steered: list limits, prices, protect, windows, floors or repair under steer",
        );
    }
    let count_nodes = karpenter.count_nodes == Some(true);
    if count_nodes && raw.quotas.is_empty() && raw.commitments.is_empty() {
        let message = "has nothing to count nodes against: list quotas or commitments, or take it out";
        faults.add(&path.key("countNodes"), message);
    }
    faults.unrepeated(&steer, &karpenter.steer, |lever| lever.as_str().to_owned());
    if let Some(at) = karpenter.steer.iter().position(|lever| *lever == Lever::Limits).filter(|_| raw.quotas.is_empty()) {
        let message = "limits are made of what is left of the quotas, and there is none: list them under quotas";
        faults.add(&steer.index(at), message);
    }
    let read = BesideKarpenter { count_nodes, steer: karpenter.steer.iter().copied().collect(), dry_run: karpenter.dry_run };
    if karpenter.count_nodes == Some(false) && read.counts_nodes() {
        let message = "cannot be false beside limits or prices, which go by what others leave: take it out";
        faults.add(&path.key("countNodes"), message);
    }
    read
}
