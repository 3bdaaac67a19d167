//! The promises about nodes with work: the autoscaler is kept from them, and nothing that Stoker decides takes them away.
//! Recounted from the snapshot, whatever was concluded from it.

use super::{ByGroup, Found, Violation};
use crate::base::ids::{NodeGroupId, NodeName, ProviderId};
use crate::base::index::{InOrder, Lookup, LookupSet};
use crate::base::kinds::Evidence;
use crate::catalogue::Catalogue;
use crate::facts::reading::seen::{Activity, Hearing, Seen};
use crate::facts::snapshot::{Hold, NodeFacts, Snapshot};
use crate::plan::{Action, Ending};
use crate::policy::Pool;
use crate::state::cordon::CordonReason;
use crate::state::disruption::DrainReason;
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// Judges what is held, drained and ended.
pub(super) fn guarded(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    by_group: &ByGroup<'_>,
    (snapshot, catalogue): (&Snapshot, &Catalogue),
    found: &mut Found<'_>,
) {
    for (at, action) in actions.iter().enumerate() {
        match action {
            Action::Drain { record, node, .. } => {
                let Some((disruption, known)) = memory.disruptions.get(record).zip(memory.records.get(record)) else {
                    continue;
                };
                // One that stays after all may be closed for another reason.
                let moves = disruption.is_open() && matches!(disruption.why, DrainReason::BackToSpot { .. });
                let to_spot = moves && !disruption.may_have_evicted();
                let free = snapshot.cluster.as_ref().and_then(|c| c.nodes.get(node)).is_some_and(|n| n.gpu_pods.is_empty());
                if to_spot && free && !is_proven(known, node, snapshot, catalogue, memory) {
                    found.action(at, Some(*record), memory, Violation::MustNotMove(node.clone()));
                }
            }
            Action::Terminate { instance, why: Ending::BackToSpot | Ending::CapacityEnds, .. } => {
                let Some(known) = memory.records.values().find(|record| record.instance() == Some(instance)) else { continue };
                let Some(node) =
                    node_of(instance, snapshot).filter(|_| pool_of(known, catalogue, memory).is_some_and(is_probed))
                else {
                    continue;
                };
                let began = before.records.get(&known.id).is_some_and(|r| matches!(r.state, State::Registered { .. }));
                let active = snapshot.seen.get(&node.name).is_some_and(|seen| is_active(seen));
                // A GPU that is broken can often not be read.
                let broken = memory.cordons.get(&known.id).is_some_and(|cordoned| cordoned.why == CordonReason::Unhealthy);
                if active || (began && !broken && !is_proven(known, &node.name, snapshot, catalogue, memory)) {
                    found.action(at, Some(known.id), memory, Violation::EndsBusy(instance.clone()));
                }
            }
            _ => {}
        }
    }
    held(actions, memory, by_group, (snapshot, catalogue), found);
}

/// Every node with work is held, or is in this plan.
fn held(
    actions: &[Action],
    memory: &Memory,
    by_group: &ByGroup<'_>,
    (snapshot, catalogue): (&Snapshot, &Catalogue),
    found: &mut Found<'_>,
) {
    let Some(cluster) = &snapshot.cluster else { return };
    let any_probed = catalogue.policy.pools.iter().any(is_probed);
    // Of most nodes nothing is to be asked, and ids are long: the others are found first, and their records in one walk.
    let asked = |node: &NodeFacts| node.scale_down_disabled == Hold::None && (any_probed || !node.gpu_pods.is_empty());
    let mut seen = InOrder::of(&snapshot.seen);
    let asked = cluster.nodes.values().filter(|node| asked(node));
    let nodes: Lookup<&NodeName, (&NodeFacts, Option<&Seen>)> =
        asked.map(|node| (&node.name, (node.as_ref(), seen.next(&node.name).map(AsRef::as_ref)))).collect();
    if nodes.is_empty() {
        return;
    }
    let held: LookupSet<&NodeName> =
        actions.iter().filter_map(|action| if let Action::Hold { node, .. } = action { Some(node) } else { None }).collect();
    let pools = by_group.iter().map(|(group, records)| (pool_of_group(group, catalogue, memory), records));
    let judged = pools.filter(|(pool, _)| pool.is_none_or(|pool| pool.evidence != Evidence::None));
    for (pool, record) in judged.flat_map(|(pool, records)| records.iter().map(move |record| (pool, record))) {
        let State::Registered { node: Some(name), instance, .. } = &record.state else { continue };
        let Some((node, seen)) = nodes.get(name).filter(|(node, _)| node.provider_id.as_ref() == Some(instance)) else {
            continue;
        };
        let seen = seen.filter(|_| pool.is_some_and(is_probed));
        let works = !node.gpu_pods.is_empty() || seen.is_some_and(is_active);
        if works && !held.contains(name) {
            found.group(&record.group, memory, Violation::NotHeld(name.clone()));
        }
    }
}

fn pool_of<'a>(record: &Record, catalogue: &'a Catalogue, memory: &'a Memory) -> Option<&'a Pool> {
    pool_of_group(&record.group, catalogue, memory)
}

fn pool_of_group<'a>(group: &NodeGroupId, catalogue: &'a Catalogue, memory: &'a Memory) -> Option<&'a Pool> {
    catalogue.policy.pool(&catalogue.group_or_remembered(group, memory)?.pool)
}

pub(super) fn is_probed(pool: &Pool) -> bool {
    pool.evidence == Evidence::Probe
}

fn node_of<'a>(machine: &ProviderId, snapshot: &'a Snapshot) -> Option<&'a NodeFacts> {
    let mut nodes = snapshot.cluster.iter().flat_map(|cluster| cluster.nodes.values());
    nodes.find(|node| node.provider_id.as_ref() == Some(machine)).map(AsRef::as_ref)
}

/// Every GPU of a node, and every instance of one.
fn activities(seen: &Seen) -> impl Iterator<Item = &Activity> {
    seen.gpus.values().flat_map(|gpu| gpu.instances.values().chain([&gpu.activity]))
}

pub(super) fn is_active(seen: &Seen) -> bool {
    let heard = matches!(seen.hearing, Hearing::Heard { .. });
    heard && activities(seen).any(|activity| matches!(activity, Activity::Active { .. }))
}

/// Whether nothing runs on a node without pods: its probe says so of each GPU; or none of its pool's probes is heard, or is awaited.
fn is_proven(record: &Record, node: &NodeName, snapshot: &Snapshot, catalogue: &Catalogue, memory: &Memory) -> bool {
    let Some(pool) = pool_of(record, catalogue, memory).filter(|pool| is_probed(pool)) else { return true };
    let seen = snapshot.seen.get(node);
    let quiet = seen.is_some_and(|seen| {
        let all = activities(seen).all(|activity| matches!(activity, Activity::Quiet { .. }));
        matches!(seen.hearing, Hearing::Heard { .. }) && !seen.gpus.is_empty() && all
    });
    let unheard = seen.is_none_or(|seen| matches!(seen.hearing, Hearing::Silent { .. }));
    quiet || (unheard && memory.lapsed.contains_key(&pool.name))
}
