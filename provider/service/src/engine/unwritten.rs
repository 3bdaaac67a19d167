//! What is done while nothing can be written down: nodes at work are held, and nodes that the cloud
//! takes are drained. Both are idempotent, and a crash forgets nothing that is not seen again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use stoker_core::base::ids::NodeName;
use stoker_core::plan::{Action, Note};

/// Since when nothing can be written down, and what was done all the same.
#[derive(Debug)]
pub(super) struct Unwritten {
    since: Timestamp,
    /// Why, as the last try said.
    pub(super) why: String,
    held: BTreeSet<NodeName>,
    /// By when the pods of a node must be gone, as it was said first: a pass that nobody remembers
    /// would give them as long again.
    drained: BTreeMap<NodeName, Timestamp>,
}

impl Unwritten {
    pub(super) const fn new(since: Timestamp, why: String) -> Self {
        Self { since, why, held: BTreeSet::new(), drained: BTreeMap::new() }
    }

    /// What of a plan may be done without being written down.
    pub(super) fn protect(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let protects = |action: &mut Action| match action {
            Action::Hold { node, .. } => {
                self.held.insert(node.clone());
                true
            }
            Action::Drain { node, gone_by: Some(gone_by), .. } => {
                *gone_by = *self.drained.entry(node.clone()).or_insert(*gone_by);
                true
            }
            Action::Launch { .. }
            | Action::Terminate { .. }
            | Action::Release { .. }
            | Action::Drain { gone_by: None, .. }
            | Action::Uncordon { .. }
            | Action::RemoveNode { .. } => false,
        };
        let mut actions = actions;
        actions.retain_mut(protects);
        actions
    }

    /// What the next decision that is written down says of it.
    pub(super) fn note(&self) -> Note {
        let drained = self.drained.keys().cloned().collect();
        Note::JournalWritten { since: self.since, held: self.held.clone(), drained }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use stoker_core::base::ids::{ProviderId, RecordId};
    use stoker_core::plan::{Evict, HoldFor};

    use super::*;

    fn name(n: &str) -> NodeName {
        NodeName::new(n).unwrap()
    }

    fn drain(node: &str, gone_by: Option<Timestamp>) -> Action {
        let provider_id = ProviderId::new(format!("sim://{node}")).unwrap();
        Action::Drain { record: RecordId(1), node: name(node), provider_id, evict: Evict::All, gone_by }
    }

    #[test]
    fn holds_and_drains_of_reclaimed_nodes_go_on_and_their_time_does_not_get_longer() {
        let at = Timestamp::UNIX_EPOCH;
        let mut unwritten = Unwritten::new(at, "the disk is full".to_owned());
        let hold = Action::Hold { node: name("busy"), why: HoldFor::Pods };
        let actions =
            vec![hold.clone(), Action::Release { node: name("free") }, drain("taken", Some(at)), drain("moved", None)];
        assert_eq!(unwritten.protect(actions), [hold, drain("taken", Some(at))]);
        let again = unwritten.protect(vec![drain("taken", Some(at + SignedDuration::from_mins(2)))]);
        assert_eq!(again, [drain("taken", Some(at))]);
        let text = unwritten.note().to_string();
        assert!(text.contains("held meanwhile: busy") && text.contains("takes them: taken"), "{text}");
    }
}
