//! Busy nodes: the one rule for whether work runs, or may run, on a node.
//!
//! The autoscaler is kept from a busy node, `minSize` counts it, and Stoker does not remove it.

use super::index::IndexEntry;
use super::pass::{Changes, Pass};
use crate::base::ids::{NodeGroupId, ProviderId, RecordId};
use crate::base::kinds::Evidence;
use crate::plan::HoldFor;
use crate::state::cordon::CordonReason;
use crate::state::node_verdict::Verdict;

impl Pass<'_> {
    /// Whether work is seen on a machine, which may be another than that of the group's record. Of a group that nobody knows, whoever sees
    /// it is believed.
    pub(super) fn is_at_work(&self, group: Option<&NodeGroupId>, machine: &ProviderId) -> bool {
        let machine = self.machines.get(machine);
        let pool = |group: &NodeGroupId| self.groups.get(group)?.pool;
        let by_probe = || group.is_none_or(|group| pool(group).is_some_and(|(_, pool)| pool.evidence == Evidence::Probe));
        machine.is_busy() || (machine.is_active() && by_probe())
    }
}

impl Changes<'_> {
    /// Why nobody may take a record's node away; `None` where nothing speaks against it, or nobody can tell.
    ///
    /// A node that is broken is guarded by what runs on it alone; one that is let go, by that and by what cannot be told.
    pub(super) fn guards(&self, entry: &IndexEntry<'_>) -> Option<HoldFor> {
        entry.node()?;
        match (entry.evidence(), entry.verdict) {
            (Evidence::Probe, Some(Verdict::Held)) if entry.is_busy() => Some(HoldFor::Held),
            (Evidence::Pods | Evidence::Probe, _) if entry.is_busy() => Some(HoldFor::Pods),
            (Evidence::Pods | Evidence::None, _) => None,
            (Evidence::Probe, Some(Verdict::Busy | Verdict::Held)) => Some(HoldFor::Active),
            (Evidence::Probe, Some(Verdict::Unknown)) => Some(HoldFor::Unknown),
            (Evidence::Probe, Some(Verdict::Draining)) if self.is_untold(entry.id) => Some(HoldFor::Unknown),
            (Evidence::Probe, _) => entry.is_active().then_some(HoldFor::Active),
        }
    }

    /// Whether it is proven that nothing runs on a record's node: now, and not only a moment ago.
    pub(super) fn proves_free(&self, entry: &IndexEntry<'_>) -> bool {
        match entry.evidence() {
            Evidence::None => false,
            Evidence::Pods => entry.node().is_some() && !entry.is_busy(),
            Evidence::Probe => {
                let may_be = entry.verdict.is_some_and(|verdict| verdict.is_free() || verdict == Verdict::Draining);
                may_be && !self.is_untold(entry.id) && self.guards(entry).is_none()
            }
        }
    }

    /// Whether nothing tells what a node of a pool with probes does. A broken one need not tell; what may only be a fault breaks none yet.
    fn is_untold(&self, id: RecordId) -> bool {
        let broken = || self.memory.cordons.get(&id).is_some_and(|cordoned| cordoned.why == CordonReason::Unhealthy);
        self.memory.probe_history.get(&id).is_some_and(|known| known.is_untold()) && !broken()
    }
}
