//! Promises about disruptions: what runs on the nodes, who owns them, how many at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{Found, Violation, begun, busy};
use crate::base::ids::{NodeName, PoolName, ProviderId, RecordId};
use crate::base::kinds::ReturnToSpot;
use crate::catalogue::Catalogue;
use crate::facts::snapshot::{Cordon, NodeFacts, Snapshot};
use crate::market::offer::CapacityType;
use crate::plan::{Action, Ending, Evict};
use crate::policy::rules::health::UnhealthyAction;
use crate::policy::rules::spot::Saving;
use crate::state::disruption::{Disruption, DrainReason, Stage};
use crate::state::memory::Memory;
use crate::state::record::{Record, State};

/// Judges what is closed, emptied and ended by Stoker's own decision.
pub(super) fn leaving(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    // Of the moves of one pool the first may go on.
    let mut moving: BTreeMap<&PoolName, Vec<(usize, RecordId)>> = BTreeMap::new();
    for (at, action) in actions.iter().enumerate() {
        match action {
            Action::Drain { record, node, provider_id, evict, gone_by } => {
                let facts = snapshot.cluster.as_ref().and_then(|cluster| cluster.nodes.get(node));
                let known = memory.records.get(record).filter(|record| is_of(record, provider_id));
                let cordoned = memory.cordons.get(record).filter(|cordoned| cordoned.left_open_until.is_none());
                if let (Some(facts), Some(_), Some(_), Evict::Nobody, None) = (facts, known, cordoned, evict, gone_by) {
                    if facts.cordon == Cordon::Theirs {
                        found.action(at, Some(*record), memory, Violation::DrainsUnasked(node.clone()));
                    }
                    continue;
                }
                let going = memory.disruptions.get(record).filter(|disruption| disruption.is_open());
                let (Some(facts), Some(known), Some(going)) = (facts, known, going) else {
                    found.action(at, Some(*record), memory, Violation::DrainsUnasked(node.clone()));
                    continue;
                };
                let there = pods_then(before.disruptions.get(record).map(AsRef::as_ref), going, facts);
                let held = matches!(going.why, DrainReason::Held { .. });
                // A pod may have come until the node was closed, or may work again.
                let came = facts.cordon == Cordon::None || facts.gpu_pods.iter().any(|pod| !there.contains(pod));
                let spared = held && (came || works(known, node, snapshot, catalogue, memory));
                if (spared && *evict != Evict::Nobody) || !pods_told(going, known, *evict, *gone_by, catalogue, memory) {
                    let wrong = Violation::TellsWrongPods { node: node.clone(), evict: *evict };
                    found.action(at, Some(*record), memory, wrong);
                }
                let DrainReason::BackToSpot { work, .. } = going.why else { continue };
                if !movable(known, facts, catalogue, memory) || *evict == Evict::All {
                    found.action(at, Some(*record), memory, Violation::MustNotMove(node.clone()));
                }
                if work && let Some(pool) = pool_of(known, catalogue, memory) {
                    moving.entry(pool).or_default().push((at, *record));
                }
                if there.is_empty() && *evict != Evict::WithoutGpu {
                    found.action(at, Some(*record), memory, Violation::MustNotMove(node.clone()));
                }
            }
            Action::Terminate {
                instance,
                why:
                    Ending::BackToSpot
                    | Ending::CapacityEnds
                    | Ending::Reclaimed
                    | Ending::Unhealthy
                    | Ending::Held
                    | Ending::Outdated,
                ..
            } => {
                let told_now = snapshot.drains.values().any(|told| told.machine == *instance && told.left == 0);
                let of = |id| before.records.get(id).is_some_and(|record| record.instance() == Some(instance));
                let told_before = before.disruptions.iter().any(|(id, disruption)| {
                    of(id) && matches!(disruption.stage, Stage::Ending | Stage::Emptying { left: 0, .. })
                });
                if !told_now && !told_before {
                    let record = memory.records.values().find(|record| record.instance() == Some(instance));
                    found.action(at, record.map(|record| record.id), memory, Violation::EndsFull(instance.clone()));
                }
            }
            _ => {}
        }
    }
    for (pool, all) in moving {
        let nodes = all.len();
        for (at, record) in all.into_iter().skip(1) {
            found.action(at, Some(record), memory, Violation::MovesTogether { pool: pool.clone(), nodes });
        }
    }
    open_again(actions, memory, snapshot, found);
    begun::reasons(actions, before, memory, snapshot, catalogue, found);
}

/// The pods that were on a node when it was decided that it goes: those that are on it now, where that is in this pass.
fn pods_then<'a>(before: Option<&'a Disruption>, now: &Disruption, facts: &'a NodeFacts) -> &'a BTreeSet<String> {
    let same = |before: &&Disruption| before.is_open() && before.since == now.since;
    before.filter(same).map_or(&facts.gpu_pods, |before| &before.pods)
}

/// Whether just those pods may be told to go for that reason, and in that haste.
fn pods_told(
    going: &Disruption,
    record: &Record,
    evict: Evict,
    gone_by: Option<Timestamp>,
    catalogue: &Catalogue,
    memory: &Memory,
) -> bool {
    let spare = SignedDuration::from_secs(10);
    let action = || pool_of(record, catalogue, memory).and_then(|pool| Some(catalogue.policy.pool(pool)?.unhealthy.action));
    match (&going.why, evict) {
        // What the cloud takes in any case, and no later than it can be told of.
        (DrainReason::Reclaimed { at, .. }, Evict::All) => {
            let told_for = at.duration_since(going.since);
            gone_by.is_some_and(|by| at.duration_since(by) == spare) && told_for <= longest_notice(record)
        }
        (DrainReason::CapacityEnds { .. }, Evict::All)
        | (DrainReason::BackToSpot { .. } | DrainReason::Held { .. }, Evict::Movable)
        | (DrainReason::Held { .. }, Evict::Nobody)
        | (DrainReason::BackToSpot { .. }, Evict::WithoutGpu) => gone_by.is_none(),
        // A node that was free when it was chosen loses no GPU pod.
        (DrainReason::Outdated { .. }, Evict::Movable) => gone_by.is_none() && !going.pods.is_empty(),
        (DrainReason::Outdated { .. }, Evict::WithoutGpu) => gone_by.is_none() && going.pods.is_empty(),
        (DrainReason::Unhealthy { .. }, Evict::Movable) => gone_by.is_none() && action() == Some(UnhealthyAction::Drain),
        (DrainReason::Unhealthy { .. }, Evict::WithoutGpu) => gone_by.is_none() && action() == Some(UnhealthyAction::Wait),
        _ => false,
    }
}

/// The longest notice that a cloud gives of a machine's end.
fn longest_notice(record: &Record) -> SignedDuration {
    let seconds = record.purchase().map(|bought| match (bought.market.place.cloud.as_str(), bought.market.capacity_type) {
        ("aws", _) => 120,
        (_, CapacityType::Spot) => 30,
        ("azure", _) => 900,
        _ => 120,
    });
    SignedDuration::from_secs(seconds.unwrap_or(0))
}

/// Whether a probe sees work on a node.
fn works(record: &Record, node: &NodeName, snapshot: &Snapshot, catalogue: &Catalogue, memory: &Memory) -> bool {
    let pool = pool_of(record, catalogue, memory).and_then(|pool| catalogue.policy.pool(pool));
    pool.is_some_and(busy::is_probed) && snapshot.seen.get(node).is_some_and(|seen| busy::is_active(seen))
}

/// A node is opened again only where it bears our mark, and not while it goes or is set aside.
fn open_again(actions: &[Action], memory: &Memory, snapshot: &Snapshot, found: &mut Found<'_>) {
    let open = memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()).map(|(id, _)| id);
    let cordoned = memory.cordons.iter().filter(|(_, cordoned)| cordoned.left_open_until.is_none()).map(|(id, _)| id);
    let going: BTreeSet<&ProviderId> = open.chain(cordoned).filter_map(|id| memory.records.get(id)?.instance()).collect();
    for (at, action) in actions.iter().enumerate() {
        let Action::Uncordon { node, provider_id } = action else { continue };
        let facts = snapshot.cluster.as_ref().and_then(|cluster| cluster.nodes.get(node));
        if going.contains(provider_id) || facts.is_none_or(|facts| !matches!(facts.cordon, Cordon::Ours | Cordon::MarkLeft)) {
            let record = memory.records.values().find(|record| record.instance() == Some(provider_id));
            found.action(at, record.map(|record| record.id), memory, Violation::DrainsUnasked(node.clone()));
        }
    }
}

fn is_of(record: &Record, machine: &ProviderId) -> bool {
    matches!(&record.state, State::Registered { instance, .. } if instance == machine)
}

pub(super) fn pool_of<'a>(record: &Record, catalogue: &'a Catalogue, memory: &'a Memory) -> Option<&'a PoolName> {
    catalogue.group_or_remembered(&record.group, memory).map(|group| &group.pool)
}

/// Whether a node may be moved to spot: it is on demand, nobody else closed it, its pool moves back, and its pods save checkpoints.
fn movable(record: &Record, facts: &NodeFacts, catalogue: &Catalogue, memory: &Memory) -> bool {
    let rules = pool_of(record, catalogue, memory).and_then(|pool| catalogue.policy.pool(pool)?.spot.as_ref());
    let on_demand = record.purchase().is_some_and(|purchase| purchase.market.capacity_type == CapacityType::OnDemand);
    rules.is_some_and(|rules| {
        let saves = matches!(rules.saving, Saving::Checkpoints { .. });
        let allowed = match rules.return_to_spot {
            ReturnToSpot::Never => false,
            ReturnToSpot::Idle => facts.gpu_pods.is_empty(),
            ReturnToSpot::Busy => facts.gpu_pods.is_empty() || saves,
        };
        on_demand && allowed && facts.cordon != Cordon::Theirs
    })
}
