//! What a pass, or a deletion, changed that promises are about: the verdicts before are the provider's own.

use stoker_core::base::ids::NodeName;
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::{Record, State};

use super::Desk;

/// A node that was taken although the provider itself said that it is busy, held or unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) node: NodeName,
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
    /// Whether the autoscaler's deletion was accepted; else the provider lets it go of itself.
    pub(crate) by_autoscaler: bool,
}

const fn node(record: &Record) -> Option<&NodeName> {
    if let State::Registered { node, .. } = &record.state { node.as_ref() } else { None }
}

impl Desk {
    /// Notes what is different from `before`.
    pub(crate) fn note(&mut self, before: &Memory, by_autoscaler: bool) {
        let leaves = |memory: &Memory, record: &Record| {
            let open = memory.disruptions.get(&record.id).is_some_and(|disruption| disruption.is_open());
            open || matches!(record.state, State::Deleting { .. })
        };
        let idle = |record: &Record| record.judged.as_ref().is_some_and(stoker_core::state::node_verdict::Judged::is_released);
        for (id, record) in &self.memory.records {
            let Some(known) = before.records.get(id) else {
                if record.order.is_some() {
                    self.ordered.insert(*id, self.now);
                }
                continue;
            };
            let (Some(judged), Some(node)) = (&known.judged, node(known)) else { continue };
            if judged.verdict.is_guarded() && leaves(&self.memory, record) && !leaves(before, known) {
                let (verdict, why) = (judged.verdict, judged.why.to_string());
                self.taken.push(Taken { node: node.clone(), verdict, why, by_autoscaler });
            }
            match (idle(known), idle(record)) {
                (false, true) => self.released.push(node.clone()),
                (true, false) if !leaves(&self.memory, record) => self.kept_again.push(node.clone()),
                _ => {}
            }
        }
    }
}
