//! Cluster facts about machines: which have joined, are Ready, and have had pods.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use crate::base::ids::{NodeGroupId, ProviderId, RecordId};
use crate::facts::snapshot::NodeFacts;
use crate::facts::supply::InstanceState;
use crate::plan::Note;
use crate::state::record::{Phase, PodsSeen, Purchase, Record, State};
use crate::state::shortfall::{COUNTS_FOR, NodeShortfall};

/// Which machines have joined the cluster, which of their nodes are Ready, and which have had pods.
pub(in crate::decide) fn registrations<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    // Of a large fleet nearly every node has joined, was Ready and had pods: nothing is left to learn of those.
    let open = |entry: &IndexEntry<'_>| match entry.phase {
        Phase::Booting | Phase::Failed | Phase::Joined => true,
        Phase::Started => entry.pods_seen != PodsSeen::Seen,
        _ => false,
    };
    forget_sizes(pass, changes);
    let open = changes.indexed().filter(|(_, entry)| open(entry));
    let records: Vec<Arc<Record>> = open.map(|(record, _)| Arc::clone(record)).collect();
    for record in records {
        let id = record.id;
        match &record.state {
            State::Booting { purchase, instance, launched_at } => {
                let node = pass.node(instance);
                let running = || {
                    let inventory = pass.inventory_of(&record.group)?;
                    let made = inventory.instances.get(instance)?;
                    (made.state == InstanceState::Running).then_some(())
                };
                let state = match (&pass.snapshot.cluster, node) {
                    (Some(_), Some(node)) => registered(purchase, instance, *launched_at, node, pass.now),
                    // Without a Kubernetes feed the supplier's word is the best there is.
                    (None, _) if running().is_some() => State::Registered {
                        purchase: purchase.clone(),
                        instance: instance.clone(),
                        launched_at: *launched_at,
                        node: None,
                        at: pass.now,
                        ready_at: Some(pass.now),
                    },
                    _ => continue,
                };
                changes.memory.refused.remove(&purchase.market);
                changes.set_state(pass, id, state);
                see_size(pass, changes, &record.group, node.filter(|node| node.ready_since.is_some()));
                see_pods(pass, changes, id);
            }
            // Given up too soon: it joined after all, and pods hold it.
            State::Failed { purchase: Some(purchase), instance: Some(instance), .. } => {
                let Some(node) = pass.node(instance).filter(|node| node.is_busy()) else { continue };
                let made = pass.inventory_of(&record.group).and_then(|inventory| inventory.instances.get(instance));
                let launched_at = made.map_or(record.ordered_at, |made| made.launched_at);
                let state = registered(purchase, instance, launched_at, node, pass.now);
                changes.set_state(pass, id, state);
                see_pods(pass, changes, id);
            }
            State::Registered { instance, launched_at, ready_at, purchase, node, at } => {
                if ready_at.is_none()
                    && let Some(ready) = pass.node(instance).and_then(|n| n.ready_since)
                {
                    let state = State::Registered {
                        purchase: purchase.clone(),
                        instance: instance.clone(),
                        launched_at: *launched_at,
                        node: node.clone(),
                        at: *at,
                        // It was not when it joined, whatever clock says since when.
                        ready_at: Some(ready.max(*at)),
                    };
                    changes.set_state(pass, id, state);
                    see_size(pass, changes, &record.group, pass.node(instance));
                }
                see_pods(pass, changes, id);
            }
            _ => {}
        }
    }
}

/// A machine whose node is in the cluster.
pub(super) fn registered(
    purchase: &Purchase,
    instance: &ProviderId,
    launched_at: Timestamp,
    node: &NodeFacts,
    now: Timestamp,
) -> State {
    State::Registered {
        purchase: purchase.clone(),
        instance: instance.clone(),
        launched_at,
        node: Some(node.name.clone()),
        at: now,
        ready_at: node.ready_since,
    }
}

/// Forgets what nodes lacked once it does not count any more, or their pool has no such type.
fn forget_sizes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    if changes.memory.shortfalls.is_empty() {
        return;
    }
    changes.memory.shortfalls.retain(|(pool, instance_type), lacks| {
        let mut groups = pass.catalogue.pool_groups(pool).filter(|group| group.place.instance_type == *instance_type);
        groups.any(|group| lacks.counts(&group.template, pass.now))
    });
    let ends = changes.memory.shortfalls.values().map(|lacks| after(lacks.at, COUNTS_FOR)).min();
    if let Some(at) = ends {
        changes.look_again_at(at);
    }
}

/// Compares a node that has become Ready with what its group's template promises. The last one of an instance type is right.
fn see_size<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, group: &NodeGroupId, node: Option<&Arc<NodeFacts>>) {
    let (Some(group), Some(node)) = (pass.catalogue.groups.get(group), node) else { return };
    let Some(has) = node.allocatable else { return };
    let of_type = (group.pool.clone(), group.place.instance_type.clone());
    let Some(lacks) = NodeShortfall::of(&node.name, has, &group.template, pass.now).map(Arc::new) else {
        changes.memory.shortfalls.remove(&of_type);
        return;
    };
    let before = changes.memory.shortfalls.insert(of_type, Arc::clone(&lacks));
    if before.is_none_or(|before| before.has != lacks.has) {
        changes.notes.push(Note::LessThanPromised { group: group.id.clone(), lacks });
    }
}

fn see_pods<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, id: RecordId) {
    let Some(record) = changes.memory.records.get(&id) else { return };
    if record.pods == PodsSeen::Seen {
        return;
    }
    let busy = record.instance().and_then(|i| pass.node(i)).is_some_and(|n| n.is_busy());
    if busy {
        let group = record.group.clone();
        changes.edit(pass, id, |record| record.pods = PodsSeen::Seen);
        if let Some(remembered) = changes.memory.groups.get_mut(&group)
            && (remembered.unused > 0 || remembered.suspended_since.is_some())
        {
            let remembered = Arc::make_mut(remembered);
            remembered.unused = 0;
            if remembered.suspended_since.take().is_some() {
                changes.notes.push(Note::Resumed { group });
            }
        }
    }
}
