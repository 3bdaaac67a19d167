//! Cordons: nodes that take no new pods and stay. Unhealthy nodes at once, nodes that the cloud
//! will maintain, and nodes of whose reclaim only the probe speaks.
//!
//! A cordon costs little and is lifted when its reason ends, so it waits for nothing. The pool's
//! rule decides what follows for an unhealthy node.

use std::sync::Arc;

use super::super::index::IndexEntry;
use super::super::notices;
use super::super::pass::{Changes, Pass, after};
use super::named;
use crate::base::ids::{NodeName, RecordId};
use crate::facts::reading::Interruption;
use crate::facts::snapshot::Cordon;
use crate::plan::{Action, Evict, Note};
use crate::state::cordon::{CordonReason, Cordoned};
use crate::state::disruption::STAYS_FOR;
use crate::state::node_verdict::Verdict;
use crate::state::record::{Record, State};

/// Closes nodes that are to take no pods, and forgets those that may take some again.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let now = pass.now;
    let mut updates: Vec<(RecordId, Option<Cordoned>, Option<Note>)> = Vec::new();
    let mut announced: Vec<(RecordId, Option<NodeName>, Interruption, &'static str)> = Vec::new();
    let mut close = Vec::new();
    let nobody = changes.memory.cordons.is_empty();
    for (record, entry) in changes.indexed() {
        let id = entry.id;
        let mut known = if nobody { None } else { changes.memory.cordons.get(&id).map(|cordoned| **cordoned) };
        let wanted = wanted(changes, id, entry);
        if known.is_some_and(|cordoned| cordoned.left_open_until.is_some_and(|until| until <= now)) {
            // Begun again below, where it still has a reason.
            updates.push((id, None, None));
            known = None;
        }
        if known.is_none() && wanted.is_none() {
            continue;
        }
        let State::Registered { instance, node: name, .. } = &record.state else {
            updates.push((id, None, None));
            continue;
        };
        // Without its Node nobody knows how it stands.
        let Some(node) = entry.node() else { continue };
        let telling = |of: fn(_, _, _) -> Note, why| named(record).map(|(group, node)| of(group, node, why));
        let opened = |group, node, why: &str| Note::TakesPods { group, node, why: why.to_owned() };
        match (known, wanted, node.cordon) {
            // Whoever closed it wants it as it is.
            (None, _, Cordon::Theirs | Cordon::MarkLeft) => {}
            (Some(_), _, Cordon::Theirs) => updates.push((id, None, None)),
            (Some(cordoned), _, Cordon::MarkLeft) if cordoned.is_closed() => {
                let left = Cordoned { left_open_until: Some(after(now, STAYS_FOR)), ..cordoned };
                updates.push((id, Some(left), telling(opened, "somebody uncordoned it")));
            }
            (None, Some(why), _) => {
                let set_aside = |group, node, why| Note::NodeCordoned { group, node, why };
                let told = named(record).map(|(group, node)| set_aside(group, node, why));
                updates.push((id, Some(Cordoned { why, since: now, left_open_until: None }), told));
                close.push((id, node.name.clone(), instance.clone(), node.cordon));
            }
            (Some(cordoned), Some(why), _) => {
                if cordoned.why != why {
                    updates.push((id, Some(Cordoned { why, since: now, ..cordoned }), None));
                }
                if cordoned.is_closed() {
                    close.push((id, node.name.clone(), instance.clone(), node.cordon));
                }
            }
            (Some(Cordoned { why: CordonReason::Unhealthy, .. }), None, _) if is_fit(record) => {
                updates.push((id, None, telling(opened, "its hardware is healthy again")));
            }
            (Some(Cordoned { why: CordonReason::Maintenance, .. }), None, _) => {
                let over = "the maintenance of its machine is over or cancelled";
                announced.push((id, name.clone(), Interruption::Maintenance, over));
            }
            (Some(Cordoned { why: CordonReason::ReclaimUnconfirmed, .. }), None, _) => {
                announced.push((id, name.clone(), Interruption::Reclaim, "its probe announces no reclaim any more"));
            }
            // Nobody can tell at the moment.
            (_, None, _) => {}
        }
    }
    for (id, node, kind, over) in announced {
        if notices::heard_without(pass, changes, node.as_ref(), |notice| notice.kind == kind) {
            let named = changes.memory.records.get(&id).and_then(|record| named(record));
            updates.push((id, None, named.map(|(group, node)| Note::TakesPods { group, node, why: over.to_owned() })));
        }
    }
    for (id, cordoned, note) in updates {
        match cordoned {
            Some(cordoned) => drop(changes.memory.cordons.insert(id, Arc::new(cordoned))),
            None => drop(changes.memory.cordons.remove(&id)),
        }
        changes.notes.extend(note);
    }
    let gone = |id: &RecordId| !changes.memory.records.contains_key(id);
    let gone: Vec<RecordId> = changes.memory.cordons.keys().copied().filter(gone).collect();
    for id in gone {
        changes.memory.cordons.remove(&id);
    }
    for until in changes.memory.cordons.values().filter_map(|cordoned| cordoned.left_open_until).collect::<Vec<_>>() {
        changes.look_again_at(until);
    }
    for (record, node, provider_id, cordon) in close {
        let goes = changes.memory.is_draining(record);
        if cordon == Cordon::None && !goes {
            changes.actions.push(Action::Drain { record, node, provider_id, evict: Evict::Nobody, gone_by: None });
        }
    }
}

/// Why a node is to take no pods.
fn wanted(changes: &Changes<'_>, id: RecordId, entry: &IndexEntry<'_>) -> Option<CordonReason> {
    if entry.verdict == Some(Verdict::Unhealthy) {
        return Some(CordonReason::Unhealthy);
    }
    if changes.notices.unconfirmed.contains(&id) {
        return Some(CordonReason::ReclaimUnconfirmed);
    }
    changes.notices.maintenance.contains(&id).then_some(CordonReason::Maintenance)
}

/// Whether it is sure that a node is not unhealthy any more; a node of which nobody is to judge is none.
fn is_fit(record: &Record) -> bool {
    match record.judged.as_ref().map(|judged| judged.verdict) {
        None | Some(Verdict::Warm | Verdict::Idle | Verdict::Busy | Verdict::Held) => true,
        Some(Verdict::Booting | Verdict::Unhealthy | Verdict::Draining | Verdict::Unknown) => false,
    }
}
