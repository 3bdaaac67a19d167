//! The promises about nodes that are let go: what runs on them, whose they are, how many at once.

use std::collections::{BTreeMap, BTreeSet};

use super::Fatal;
use crate::group::Menu;
use crate::ids::{PoolName, ProviderId};
use crate::leaving::{LeaveFor, Stage};
use crate::memory::Memory;
use crate::offer::CapacityType;
use crate::plan::{Action, Ending, Evict};
use crate::policy::MoveBack;
use crate::record::{Record, State};
use crate::snapshot::{Cordon, NodeFacts, Snapshot};
use crate::spot::Saving;

/// Judges what is closed, emptied and ended of our own decision.
pub(super) fn leaving(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    snapshot: &Snapshot,
    menu: &Menu,
    faults: &mut Vec<Fatal>,
) {
    let mut moving: BTreeMap<&PoolName, u32> = BTreeMap::new();
    for action in actions {
        match action {
            Action::Drain { record, node, provider_id, evict } => {
                let facts = snapshot.cluster.as_ref().and_then(|cluster| cluster.nodes.get(node));
                let known = memory.records.get(record).filter(|record| is_of(record, provider_id));
                let going = memory.leaving.get(record).filter(|leaving| leaving.is_open());
                let (Some(facts), Some(known), Some(going)) = (facts, known, going) else {
                    faults.push(Fatal::DrainsUnasked(node.clone()));
                    continue;
                };
                let LeaveFor::BackToSpot { work, .. } = going.why else { continue };
                if !movable(known, facts, menu, memory) || *evict == Evict::All {
                    faults.push(Fatal::MustNotMove(node.clone()));
                }
                if work && let Some(pool) = pool_of(known, menu, memory) {
                    *moving.entry(pool).or_default() += 1;
                } else if !facts.gpu_pods.is_empty() && *evict != Evict::WithoutGpu {
                    faults.push(Fatal::MustNotMove(node.clone()));
                }
            }
            Action::Terminate { instance, why: Ending::BackToSpot | Ending::CapacityEnds, .. } => {
                let told_now = snapshot.drains.values().any(|told| told.machine == *instance && told.left == 0);
                let of = |id| before.records.get(id).is_some_and(|record| record.instance() == Some(instance));
                let told_before = before
                    .leaving
                    .iter()
                    .any(|(id, leaving)| of(id) && matches!(leaving.stage, Stage::Ending | Stage::Emptying { left: 0, .. }));
                if !told_now && !told_before {
                    faults.push(Fatal::EndsFull(instance.clone()));
                }
            }
            _ => {}
        }
    }
    for (pool, nodes) in moving.into_iter().filter(|(_, nodes)| *nodes > 1) {
        faults.push(Fatal::MovesTogether { pool: pool.clone(), nodes });
    }
    open_again(actions, memory, snapshot, faults);
}

/// A node is opened again only where it bears our mark, and not while it goes.
fn open_again(actions: &[Action], memory: &Memory, snapshot: &Snapshot, faults: &mut Vec<Fatal>) {
    let going: BTreeSet<&ProviderId> = memory
        .leaving
        .iter()
        .filter(|(_, leaving)| leaving.is_open())
        .filter_map(|(id, _)| memory.records.get(id)?.instance())
        .collect();
    for action in actions {
        let Action::Uncordon { node, provider_id } = action else { continue };
        let facts = snapshot.cluster.as_ref().and_then(|cluster| cluster.nodes.get(node));
        if going.contains(provider_id) || facts.is_none_or(|facts| !matches!(facts.cordon, Cordon::Ours | Cordon::MarkLeft)) {
            faults.push(Fatal::DrainsUnasked(node.clone()));
        }
    }
}

fn is_of(record: &Record, machine: &ProviderId) -> bool {
    matches!(&record.state, State::Registered { instance, .. } if instance == machine)
}

fn pool_of<'a>(record: &Record, menu: &'a Menu, memory: &'a Memory) -> Option<&'a PoolName> {
    menu.group_or_remembered(&record.group, memory).map(|group| &group.pool)
}

/// Whether a node may be moved to spot: it is on demand, nobody else closed it, its pool moves back, and its pods save checkpoints.
fn movable(record: &Record, facts: &NodeFacts, menu: &Menu, memory: &Memory) -> bool {
    let rules = pool_of(record, menu, memory).and_then(|pool| menu.policy.pool(pool)?.spot.as_ref());
    let on_demand = record.purchase().is_some_and(|purchase| purchase.market.capacity_type == CapacityType::OnDemand);
    rules.is_some_and(|rules| {
        let saves = matches!(rules.saving, Saving::Checkpoints { .. });
        let allowed = match rules.move_back {
            MoveBack::Never => false,
            MoveBack::Idle => facts.gpu_pods.is_empty(),
            MoveBack::Busy => facts.gpu_pods.is_empty() || saves,
        };
        on_demand && allowed && facts.cordon != Cordon::Theirs
    })
}
