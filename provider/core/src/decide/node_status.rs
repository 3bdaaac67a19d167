//! Status updates: verdicts to write on Nodes, and marks to remove from Nodes that no record knows.

use super::pass::{Changes, Pass};
use crate::base::index::LookupSet;
use crate::facts::node_status::ShownStatus;
use crate::facts::snapshot::{Cordon, Hold, NodeFacts};
use crate::plan::Action;
use crate::state::node_status::{StatusMatch, StatusUpdate};
use crate::state::node_verdict::Judged;

/// The Nodes that do not bear what is judged of them: changed verdicts first, then changed reasons whose time has come. And of Nodes
/// without a record, what they still bear of Stoker's is taken back.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) -> Vec<StatusUpdate> {
    let Some(cluster) = pass.snapshot.cluster.as_ref() else { return Vec::new() };
    let (mut first, mut later, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut with_record = 0_usize;
    for (record, entry) in changes.indexed() {
        let Some(node) = entry.node() else { continue };
        with_record += 1;
        let judged = record.judged.as_ref();
        match compare(node, judged) {
            StatusMatch::Same => {}
            StatusMatch::Other => first.push(tell(node, judged)),
            StatusMatch::OtherReason => match node.shown.as_ref().and_then(|shown| shown.retell_at(pass.now)) {
                Some(at) => waits.push(at),
                None => later.push(tell(node, judged)),
            },
        }
    }
    for at in waits {
        changes.look_again_at(at);
    }
    // Two Nodes of one machine, or one of a machine without a record: rare enough to look for only where the numbers say so.
    if with_record != cluster.nodes.len() {
        let (told, actions) = strays(pass, changes);
        first.extend(told);
        changes.actions.extend(actions);
    }
    first.extend(later);
    first
}

/// What is taken back of Nodes that no record is of: the memory was lost, or a crash left it there. One at work stays held; one whose
/// machine is gone is removed as a whole.
fn strays(pass: &Pass<'_>, changes: &Changes<'_>) -> (Vec<StatusUpdate>, Vec<Action>) {
    let (mut told, mut actions) = (Vec::new(), Vec::new());
    let indexed: LookupSet<_> = changes.indexed().filter_map(|(_, entry)| Some(&entry.node()?.name)).collect();
    let unlisted: LookupSet<_> = pass.machines.unlisted.iter().map(|(_, node)| &node.name).collect();
    let nodes = pass.snapshot.cluster.iter().flat_map(|cluster| cluster.nodes.values());
    for node in nodes.filter(|node| !indexed.contains(&node.name) && !unlisted.contains(&node.name)) {
        if compare(node, None) != StatusMatch::Same {
            told.push(tell(node, None));
        }
        // Of a group that nobody knows, whoever sees work is believed.
        if node.is_busy() || node.provider_id.as_ref().is_some_and(|machine| pass.is_at_work(None, machine)) {
            continue;
        }
        if node.scale_down_disabled == Hold::Ours {
            actions.push(Action::Release { node: node.name.clone() });
        }
        if let (Cordon::Ours | Cordon::MarkLeft, Some(machine)) = (node.cordon, &node.provider_id) {
            actions.push(Action::Uncordon { node: node.name.clone(), provider_id: machine.clone() });
        }
    }
    (told, actions)
}

fn compare(node: &NodeFacts, judged: Option<&Judged>) -> StatusMatch {
    match &node.shown {
        Some(shown) => shown.compare(judged),
        None => ShownStatus::default().compare(judged),
    }
}

fn tell(node: &NodeFacts, judged: Option<&Judged>) -> StatusUpdate {
    StatusUpdate { node: node.name.clone(), provider_id: node.provider_id.clone(), verdict: judged.cloned() }
}
