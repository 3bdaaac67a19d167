//! How workloads are judged: each threshold a share, and those of one level in order.

use super::{Faults, grammar};
use crate::base::units::Percent;
use crate::policy::rules::advise::Thresholds;
use crate::policy::{Path, RawAdvise};

/// The thresholds; `None` after a fault.
pub(super) fn thresholds(faults: &mut Faults, path: &Path, raw: &RawAdvise) -> Option<Thresholds> {
    let usual = Thresholds::default();
    let mut share = |key: &str, text: Option<&str>, usual: Percent| match text {
        None => Some(usual),
        Some(text) => faults.keep(&path.key(key), grammar::percent(text)),
    };
    let headroom = share("headroom", raw.headroom.as_deref(), usual.headroom);
    let over_provisioned_below =
        share("overProvisionedBelow", raw.over_provisioned_below.as_deref(), usual.over_provisioned_below);
    let memory_bound_from = share("memoryBoundFrom", raw.memory_bound_from.as_deref(), usual.memory_bound_from);
    let compute_bound_from = share("computeBoundFrom", raw.compute_bound_from.as_deref(), usual.compute_bound_from);
    if memory_bound_from == Some(Percent(0)) {
        faults.add(&path.key("memoryBoundFrom"), "is 0%, and every workload would be memory-bound: raise it");
    }
    if let (Some(below), Some(from)) = (over_provisioned_below, compute_bound_from)
        && below >= from
    {
        let message = format!("{below} is not below computeBoundFrom, {from}: lower it, or no workload could fit");
        faults.add(&path.key("overProvisionedBelow"), message);
    }
    Some(Thresholds {
        headroom: headroom?,
        over_provisioned_below: over_provisioned_below?,
        memory_bound_from: memory_bound_from?,
        compute_bound_from: compute_bound_from?,
    })
}
