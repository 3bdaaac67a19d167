//! `karpenter:`, what is steered.

use super::{Faults, Path};
use crate::policy::raw::RawPolicy;
use crate::policy::rules::karpenter::{Lever, Steering};

pub(super) fn steering(faults: &mut Faults, path: &Path, raw: &RawPolicy) -> Steering {
    let Some(karpenter) = &raw.karpenter else { return Steering::default() };
    let steer = path.key("steer");
    if karpenter.steer.is_empty() {
        faults.add(&steer, "is empty: name limits, protect or both, or take karpenter out");
    }
    faults.unrepeated(&steer, &karpenter.steer, |lever| lever.as_str().to_owned());
    if let Some(at) = karpenter.steer.iter().position(|lever| *lever == Lever::Limits).filter(|_| raw.quotas.is_empty()) {
        let message = "limits are made of what is left of the quotas, and there is none: list them under quotas";
        faults.add(&steer.index(at), message);
    }
    Steering { levers: karpenter.steer.iter().copied().collect(), dry_run: karpenter.dry_run }
}
