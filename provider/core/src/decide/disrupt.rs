//! Disruptions: nodes that Stoker drains because the cloud takes them or their capacity, because
//! they are unhealthy, outdated or held in off-hours, or because spot is available again.
//!
//! Stoker cordons the node, evicts its pods, and ends the machine when it is empty. The target
//! falls then, and the autoscaler asks again for the pods that wait. A started disruption is
//! remembered, so a crash changes nothing. While no pod has been evicted, it is cancelled when its
//! reason ends.

mod cordon;
mod eviction;
mod held;
pub(super) mod outdated;
mod reclaimed;
mod spot_return;
mod unhealthy;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::pass::{Changes, Pass, after};
use crate::base::ids::{NodeGroupId, NodeName, PoolName, RecordId};
use crate::base::index::InOrder;
use crate::facts::snapshot::{Cordon, Drained, Stuck};
use crate::limits::commitment::nodes_on_ending;
use crate::market::offer::{CapacityType, Market};
use crate::plan::{Action, Ending, Evict, Note};
use crate::policy::rules::commitment::Commitment;
use crate::state::disruption::{CLOSED_FOR, Disruption, DrainReason, GIVE_UP_AFTER, JUDGED_WITHIN, PAUSE, STAYS_FOR, Stage};
use crate::state::record::{Phase, PodsSeen, Record, State};

/// Lets nodes go.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    forget(pass, changes);
    judge(pass, changes);
    if pass.snapshot.cluster.is_none() {
        // Nobody can say what runs on a node, nor tell it to go.
        return;
    }
    changes.memory.free = free(pass, changes);
    told(pass, changes);
    let ending = ending_capacity(pass, changes);
    take_back(pass, changes, &ending);
    capacity_ends(pass, changes, ending);
    reclaimed::nodes(pass, changes);
    cordon::nodes(pass, changes);
    if changes.caution().is_none() {
        unhealthy::nodes(pass, changes);
        held::nodes(pass, changes);
        spot_return::back_to_spot(pass, changes);
    }
    empty(pass, changes);
    open_again(changes);
}

/// Why the machine of a record that is on its way out is ended, where that was our own decision.
pub(super) fn ending(changes: &Changes<'_>, record: &Record) -> Option<Ending> {
    let disruption = changes.memory.disruptions.get(&record.id)?;
    (disruption.stage == Stage::Ending).then_some(match disruption.why {
        DrainReason::BackToSpot { .. } => Ending::BackToSpot,
        DrainReason::CapacityEnds { .. } => Ending::CapacityEnds,
        DrainReason::Reclaimed { .. } => Ending::Reclaimed,
        DrainReason::Unhealthy { .. } => Ending::Unhealthy,
        DrainReason::Held { .. } => Ending::Held,
        DrainReason::Outdated { .. } => Ending::Outdated,
    })
}

/// Drops what has come to its end by itself.
fn forget<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let now = pass.now;
    let records = &changes.memory.records;
    changes.memory.disruptions.retain(|id, disruption| {
        match (records.get(id).map(|record| &record.state), &disruption.stage) {
            (Some(State::Registered { .. }), Stage::DrainAbandoned { until }) => *until > now,
            (Some(State::Registered { .. }), Stage::Closing | Stage::Emptying { .. })
            | (Some(State::Deleting { .. }), Stage::Ending) => true,
            _ => false,
        }
    });
    let stay =
        |disruption: &Arc<Disruption>| if let Stage::DrainAbandoned { until } = disruption.stage { Some(until) } else { None };
    if let Some(at) = changes.memory.disruptions.values().filter_map(stay).min() {
        changes.look_again_at(at);
    }
    changes.memory.moves.retain(|_, moves| {
        // A pool that has moved nothing for a day after its rest starts afresh.
        let over = moves.rests_until.is_none_or(|until| after(until, SignedDuration::from_hours(24)) <= now);
        moves.began_at.is_some() || moves.rests_until.is_some_and(|until| until > now) || (moves.failed > 0 && !over)
    });
}

/// Learns from the first order of its type after a move whether its work is on spot now.
///
/// That the market has shut meanwhile says nothing of the work: the market is left alone for that, and other nodes need not wait. A
/// rest here would be most of what a region's return costs: of the hours on demand that remained in a replayed month more than half
/// were such rests.
fn judge<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let mut verdicts: Vec<(PoolName, Option<bool>)> = Vec::new();
    for (pool, moves) in &changes.memory.moves {
        let Some((began_at, aimed_at)) = moves.began_at.zip(moves.aimed_at.as_ref()) else { continue };
        let bought = changes.memory.records.values().filter(|record| record.ordered_at >= began_at);
        let bought = bought.filter(|record| pass.group(&record.group).is_some_and(|group| group.pool == *pool));
        let market = bought.filter_map(|record| match &record.state {
            State::Booting { purchase, .. } | State::Registered { purchase, .. } => Some(&purchase.market),
            _ => None,
        });
        let alike = |market: &&Market| market.place.instance_type == aimed_at.place.instance_type;
        match market.filter(alike).map(|market| market.capacity_type == CapacityType::Spot).next() {
            Some(false) if has_shut(pass, changes, pool, aimed_at, began_at) => verdicts.push((pool.clone(), None)),
            Some(as_spot) => verdicts.push((pool.clone(), Some(as_spot))),
            None if after(began_at, JUDGED_WITHIN) <= pass.now => verdicts.push((pool.clone(), None)),
            None => {}
        }
    }
    for (pool, verdict) in verdicts {
        let Some(moves) = changes.memory.moves.get_mut(&pool) else { continue };
        match verdict {
            Some(as_spot) => Arc::make_mut(moves).judge(as_spot, pass.now),
            // Its pods found room elsewhere, or are done, or nobody knows.
            None => Arc::make_mut(moves).began_at = None,
        }
    }
}

/// Whether a market of a pool has refused, or taken nodes back, since then.
fn has_shut(pass: &Pass<'_>, changes: &Changes<'_>, pool: &PoolName, market: &Market, since: Timestamp) -> bool {
    let group = pass.catalogue.pool_groups(pool).find(|group| group.place == market.place);
    let refused = group.and_then(|group| changes.memory.refusal(market, group, pass.catalogue));
    let refused = refused.is_some_and(|refused| refused.backoff.since >= since);
    let reclaimed = changes.memory.spot.get(&market.place).and_then(|known| known.event_at).is_some_and(|at| at >= since);
    let region = (market.place.cloud.clone(), market.place.region.clone());
    let left_alone = changes.memory.reclaims.get(&region).and_then(|region| region.left_alone_until);
    refused || reclaimed || left_alone.is_some_and(|until| until > since)
}

/// Since when nodes are without a GPU pod, of those that had some.
fn free(pass: &Pass<'_>, changes: &Changes<'_>) -> BTreeMap<RecordId, Timestamp> {
    let mut free = BTreeMap::new();
    let mut known = InOrder::of(&changes.memory.free);
    for (_, entry) in changes.indexed() {
        if entry.phase != Phase::Started || entry.pods_seen == PodsSeen::NotYet || !entry.is_judged() {
            continue;
        }
        if entry.node().is_some() && changes.guards(entry).is_none() {
            free.insert(entry.id, known.next(&entry.id).copied().unwrap_or(pass.now));
        }
    }
    free
}

/// What came of draining since the last pass.
fn told<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    for (node, drained) in &pass.snapshot.drains {
        let of = |(id, disruption): (&RecordId, &Arc<Disruption>)| {
            let record = changes.memory.records.get(id)?;
            let same = disruption.is_open() && record.instance() == Some(&drained.machine);
            same.then(|| (*id, record.group.clone()))
        };
        let Some((id, group)) = changes.memory.disruptions.iter().find_map(of) else { continue };
        let Some(disruption) = changes.memory.disruptions.get_mut(&id) else { continue };
        let disruption = Arc::make_mut(disruption);
        disruption.asked = false;
        let ends = disruption.ends_anyway();
        match &drained.stuck {
            // Said of a try that spared what may stay. The cloud takes this node in any case, so the next try spares nothing.
            Some(Stuck::Never(_)) if ends => {}
            Some(Stuck::Never(why)) => {
                disruption.stage = Stage::DrainAbandoned { until: after(pass.now, STAYS_FOR) };
                changes.notes.push(Note::DrainAbandoned { group, node: node.clone(), why: why.clone() });
            }
            _ => disruption.stage = emptying(&disruption.stage, drained),
        }
    }
}

fn emptying(before: &Stage, drained: &Drained) -> Stage {
    let (closed_at, already) = match before {
        Stage::Emptying { closed_at, evicted, .. } => (*closed_at, *evicted),
        _ => (drained.at, false),
    };
    let stuck = drained.stuck.as_ref().map(|stuck| match stuck {
        Stuck::Never(why) | Stuck::NotNow(why) => why.clone(),
    });
    let (left, evicted) = (drained.left, already || drained.evicted > 0);
    Stage::Emptying { closed_at, counted_at: drained.at, left, evicted, stuck }
}

/// The nodes on capacity that ends, each with what ends and when the cloud takes it.
fn ending_capacity(pass: &Pass<'_>, changes: &Changes<'_>) -> BTreeMap<RecordId, DrainReason> {
    let commitments = &pass.catalogue.policy.commitments;
    if commitments.is_empty() {
        return BTreeMap::new();
    }
    let why = |commitment: &Commitment| DrainReason::CapacityEnds {
        commitment: commitment.name.clone(),
        at: commitment.until.unwrap_or(Timestamp::MAX),
    };
    nodes_on_ending(&changes.memory, commitments, pass.times()).into_iter().map(|(id, c)| (id, why(c))).collect()
}

/// Cancels disruptions: before any eviction when the reason ended; at any time when the node must not move any more, or its pods could
/// not be evicted for too long.
fn take_back<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, ending: &BTreeMap<RecordId, DrainReason>) {
    let mut back: Vec<(RecordId, Option<Timestamp>, &'static str)> = Vec::new();
    let mut moving: Vec<RecordId> = Vec::new();
    for (id, disruption) in changes.memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()) {
        let give_up = after(disruption.since, GIVE_UP_AFTER);
        match &disruption.why {
            DrainReason::CapacityEnds { .. } if !disruption.may_have_evicted() && !ending.contains_key(id) => {
                back.push((*id, None, "the capacity that it runs on does not end soon any more"));
            }
            DrainReason::CapacityEnds { .. } | DrainReason::Reclaimed { .. } => {}
            _ if pass.now >= give_up => back.push((*id, Some(after(pass.now, STAYS_FOR)), "its pods could not be evicted")),
            DrainReason::BackToSpot { .. } | DrainReason::Outdated { .. } => moving.push(*id),
            DrainReason::Held { .. } if !disruption.may_have_evicted() && !held::is_on(pass, changes, *id) => {
                back.push((*id, None, "the off-hours are over"));
            }
            DrainReason::Held { .. } if !disruption.may_have_evicted() && held::is_used_again(changes, *id, disruption) => {
                back.push((*id, None, "it is in use again"));
            }
            DrainReason::Held { .. } | DrainReason::Unhealthy { .. } => {}
        }
    }
    back.extend(reclaimed::withdrawn(pass, changes).into_iter().map(|id| (id, None, "the cloud withdrew its notice")));
    unhealthy::take_back(pass, changes);
    for id in moving {
        let (Some(record), Some(disruption)) = (changes.memory.records.get(&id), changes.memory.disruptions.get(&id)) else {
            continue;
        };
        // Else it would go again in this pass, with the pod that has come.
        let came =
            changes.entry(record).and_then(|entry| entry.node()).is_some_and(|node| eviction::has_come(node, disruption));
        let stays_until = came.then(|| after(pass.now, PAUSE));
        let stands = match disruption.why {
            DrainReason::Outdated { .. } => outdated::stands(pass, changes, record, disruption),
            _ => spot_return::stands(pass, changes, record, disruption),
        };
        if let Err(why) = stands {
            back.push((id, stays_until, why));
        }
    }
    for (id, stays_until, why) in back {
        let Some(disruption) = changes.memory.disruptions.remove(&id) else { continue };
        if let Some(until) = stays_until {
            let stays = Disruption { stage: Stage::DrainAbandoned { until }, ..Disruption::clone(&disruption) };
            changes.memory.disruptions.insert(id, Arc::new(stays));
        }
        if let Some((group, node)) = changes.memory.records.get(&id).and_then(|record| named(record)) {
            changes.notes.push(Note::DrainAbandoned { group, node, why: why.to_owned() });
        }
    }
}

fn named(record: &Record) -> Option<(NodeGroupId, NodeName)> {
    match &record.state {
        State::Registered { node: Some(node), .. } => Some((record.group.clone(), node.clone())),
        _ => None,
    }
}

/// Begins to let a node go; one that goes already goes on, for this reason from now on.
fn begin<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, id: RecordId, why: DrainReason) {
    let Some(record) = changes.memory.records.get(&id) else { return };
    let Some((group, node)) = named(record) else { return };
    let pods = changes.entry(record).and_then(|entry| entry.node()).map(|node| node.gpu_pods.clone()).unwrap_or_default();
    changes.notes.push(Note::Disruption { group, node, why: why.clone() });
    let known = changes.memory.drain_of(id);
    let (stage, asked) = known.map_or((Stage::Closing, false), |disruption| (disruption.stage.clone(), disruption.asked));
    changes.memory.disruptions.insert(id, Arc::new(Disruption { why, since: pass.now, stage, asked, pods }));
}

/// Nodes on capacity that ends leave, all at once: the cloud takes them otherwise.
fn capacity_ends<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, ending: BTreeMap<RecordId, DrainReason>) {
    for (id, why) in ending {
        let known = changes.memory.disruptions.get(&id);
        // One that was to move back to spot goes for the better reason.
        let stays = |disruption: &Disruption| matches!(disruption.stage, Stage::DrainAbandoned { .. });
        let anew = known.is_none_or(|disruption| stays(disruption) || !disruption.ends_anyway());
        if anew {
            begin(pass, changes, id, why);
        }
    }
}

/// Nodes that go are closed and emptied, again and again, and ended when they are empty.
fn empty<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let cautious = changes.caution().is_some();
    let goes = |disruption: &Disruption| disruption.is_open() && (disruption.ends_anyway() || !cautious);
    let open: Vec<(RecordId, Arc<Disruption>)> =
        changes.memory.disruptions.iter().filter(|(_, l)| goes(l)).map(|(id, l)| (*id, Arc::clone(l))).collect();
    for (id, disruption) in open {
        let Some(record) = changes.memory.records.get(&id) else { continue };
        let State::Registered { purchase, instance, .. } = &record.state else { continue };
        // Without its Node nobody knows what runs on it.
        let Some((entry, node)) = changes.entry(record).and_then(|entry| Some((entry, entry.node()?))) else { continue };
        if let Stage::Emptying { closed_at, counted_at, left, .. } = disruption.stage {
            let closed = node.cordon.is_closed() && counted_at >= after(closed_at, CLOSED_FOR);
            if closed && left == 0 && !node.is_busy() && changes.guards(&entry).is_none() {
                let state =
                    State::Deleting { purchase: purchase.clone(), instance: instance.clone(), since: pass.now, late: false };
                let pool = pass.group(&record.group).map(|group| group.pool.clone());
                changes.set_state(pass, id, state);
                changes
                    .memory
                    .disruptions
                    .insert(id, Arc::new(Disruption { stage: Stage::Ending, ..Disruption::clone(&disruption) }));
                if let (DrainReason::Outdated { needed: true, .. }, Some(pool)) = (&disruption.why, &pool) {
                    changes.memory.outdated_replaced.insert(pool.clone(), pass.now);
                }
                if let (true, Some(pool)) = (disruption.moves_work(), pool) {
                    let moves = Arc::make_mut(changes.memory.moves.entry(pool).or_default());
                    moves.began_at = Some(disruption.since);
                    if let DrainReason::BackToSpot { market, .. } = &disruption.why {
                        moves.aimed_at = Some(market.clone());
                    }
                    moves.rests_until = Some(after(pass.now, PAUSE));
                }
                continue;
            }
            // Pods that were told for a lesser reason, or not all of them, are told at once.
            if let Some(again) = eviction::again_at(&disruption).filter(|at| *at > pass.now && counted_at >= disruption.since) {
                changes.look_again_at(again);
                continue;
            }
        }
        let evict = eviction::whom(pass, changes, record, &entry, node, &disruption);
        let gone_by = disruption.gone_by();
        let told = evict != Evict::Nobody;
        if let Some(disruption) = changes.memory.disruptions.get_mut(&id).filter(|disruption| told && !disruption.asked) {
            Arc::make_mut(disruption).asked = true;
        }
        let (node, provider_id) = (node.name.clone(), instance.clone());
        changes.actions.push(Action::Drain { record: id, node, provider_id, evict, gone_by });
    }
}

/// Nodes that we closed, and that are neither let go nor set aside, take pods again; our mark goes also where somebody else has opened them.
fn open_again(changes: &mut Changes<'_>) {
    let mut actions = Vec::new();
    for (record, entry) in changes.indexed().filter(|(_, entry)| matches!(entry.cordon(), Cordon::Ours | Cordon::MarkLeft)) {
        let (State::Registered { instance, .. }, Some(node)) = (&record.state, entry.node()) else { continue };
        let goes = changes.memory.is_draining(record.id);
        let cordoned = changes.memory.cordons.get(&record.id).is_some_and(|cordoned| cordoned.is_closed());
        if !goes && !cordoned {
            actions.push(Action::Uncordon { node: node.name.clone(), provider_id: instance.clone() });
        }
    }
    changes.actions.extend(actions);
}
