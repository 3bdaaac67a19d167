//! What is done of a plan with faults, and what of its memory is kept.
//!
//! A fault pauses a pool, one of the fleet pauses every pool. A paused pool does not grow and begins no disruption of its own. What
//! began before goes on, and so does what nobody may wait with: holds, drains of nodes that the cloud takes, and the deletions that the
//! autoscaler asked for.
//!
//! | action | in a paused pool |
//! |---|---|
//! | `Launch`, `Release` | left out |
//! | `Drain` | left out where the disruption begins in this pass and is Stoker's own choice; else kept |
//! | `Terminate`, `Hold`, `Uncordon`, `RemoveNode` | kept |
//! | any action that would break a promise by itself | left out |
//!
//! | part of the memory | owner | in a paused pool |
//! |---|---|---|
//! | `records`: nodes bought in this pass | pool | reverted: wanted, with the attempts that they had |
//! | `records`: nodes ordered in this pass without the autoscaler | pool | reverted: removed |
//! | `records`: what suppliers, the cluster and probes say | pool | kept |
//! | `disruptions`: begun in this pass for spot, for an unhealthy or for a held node | pool | reverted |
//! | `disruptions`: under way, or because the cloud takes the node or its capacity | pool | kept |
//! | `disruptions` and the end of a record that an action left out belongs to | pool | reverted |
//! | `announced`: announced in this pass | pool | reverted |
//! | `replaced`: replacements begun in this pass | pool | reverted |
//! | `probe_reclaims` | pool | kept: a bound on what probes may drain |
//! | `floors`: `raised` and `unasked` | pool | emptied: a closed group shows no raised `minSize` |
//! | `floors`: the rest; `windows`, `moves`, `images`, `lapsed` | pool | kept: learnt, or a bound on what may go |
//! | `groups`, `cordons`, `free`, `probe_history` | pool | kept |
//! | `refused`, `refused_areas`, `spot` | market, area | kept |
//! | `reclaims` | region | kept |
//! | `budgets` | pool, fleet | kept: the next pass counts again |
//! | `exposure_at`, `watched_at`, `foreign`, `orphans`, `session`, `incarnation`, `cautious_until` | fleet | kept |
//! | `next_record`, `next_order` | fleet | kept: no number is used twice |
//! | `faults` | fleet | what this check found |
//!
//! The figures in [`Accounts`](crate::plan::Accounts) stay as they were decided; the next pass counts them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::found::Found;
use super::{Finding, asked_before, begun};
use crate::base::ids::{DecisionId, NodeGroupId, NodeName, PoolName, RecordId};
use crate::catalogue::Catalogue;
use crate::plan::{Action, Closed, Evict, Note, Plan, Proposed};
use crate::state::cordon::Cordoned;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::memory::Memory;
use crate::state::paused::{Concern, Pause, StandingFault};
use crate::state::record::{Record, State};

/// The pools that a decision is paused for.
struct Paused {
    concerns: BTreeSet<Concern>,
    /// The pool of every group that anything is said about.
    pools: BTreeMap<NodeGroupId, PoolName>,
    /// The group of every record.
    groups: BTreeMap<RecordId, NodeGroupId>,
}

impl Paused {
    fn group(&self, group: &NodeGroupId) -> bool {
        let pool = self.pools.get(group);
        self.concerns.iter().any(|concern| concern.covers(pool))
    }

    fn record(&self, id: RecordId) -> bool {
        self.groups.get(&id).is_some_and(|group| self.group(group))
    }

    fn pool(&self, pool: &PoolName) -> bool {
        self.concerns.iter().any(|concern| concern.covers(Some(pool)))
    }
}

/// Takes out of a decision what belongs to its faults.
pub(super) fn contain(
    plan: &mut Plan<Proposed>,
    memory: &mut Memory,
    before: &Memory,
    catalogue: &Catalogue,
    found: &Found<'_>,
) {
    if found.findings.is_empty() {
        return;
    }
    let groups: BTreeMap<RecordId, NodeGroupId> = memory.records.values().map(|r| (r.id, r.group.clone())).collect();
    let launched = plan.actions.iter().filter_map(|action| match action {
        Action::Launch { request, .. } => Some(&request.group),
        _ => None,
    });
    let named = plan.limits.keys().chain(groups.values()).chain(launched);
    let pool_of = |id: &NodeGroupId| Some((id.clone(), catalogue.group_or_remembered(id, memory)?.pool.clone()));
    let pools = named.filter_map(pool_of).collect();
    let concerns = found.findings.iter().map(|finding| finding.concern.clone()).collect();
    let paused = Paused { concerns, pools, groups };
    let reverted = revert(memory, before, &paused, found);
    actions(plan, memory, &paused, &reverted, found);
    notes(plan, memory, &paused, &reverted);
}

/// Reverts the memory by the table above; the answer is whose drains are.
fn revert(memory: &mut Memory, before: &Memory, paused: &Paused, found: &Found<'_>) -> BTreeSet<RecordId> {
    // A new part of the memory must be placed in the table.
    let Memory {
        records,
        disruptions,
        announced,
        replaced,
        floors,
        refused: _,
        spot: _,
        reclaims: _,
        exposure_at: _,
        budgets: _,
        months: _,
        refused_areas: _,
        groups: _,
        free: _,
        moves: _,
        cordons: _,
        probe_history: _,
        probe_reclaims: _,
        lapsed: _,
        watched_at: _,
        windows: _,
        images: _,
        outdated: _,
        outdated_replaced: _,
        shortfalls: _,
        foreign: _,
        orphans: _,
        faults: _,
        next_record: _,
        next_order: _,
        incarnation: _,
        cautious_until: _,
        session: _,
    } = memory;
    let ordered_now = |record: &Record| record.id.0 >= before.next_record && record.order.is_some();
    records.retain(|_, record| !(ordered_now(record) && paused.group(&record.group)));
    for (id, record) in records.iter_mut().filter(|(_, record)| paused.group(&record.group)) {
        let State::Launching { purchase, .. } = &record.state else { continue };
        if !asked_before(before, *id, &purchase.key) {
            let record = Arc::make_mut(record);
            record.state = State::Wanted;
            record.attempts = before.records.get(id).map_or(0, |known| known.attempts);
        }
    }
    let begins = |(id, now): (&RecordId, &Arc<Disruption>)| {
        let own_choice = match now.why {
            DrainReason::BackToSpot { .. }
            | DrainReason::Unhealthy { .. }
            | DrainReason::Held { .. }
            | DrainReason::Outdated { .. } => true,
            DrainReason::CapacityEnds { .. } | DrainReason::Reclaimed { .. } => false,
        };
        let begins = own_choice && now.is_open() && !begun::is_under_way(before.disruptions.get(id).map(AsRef::as_ref), now);
        (begins && paused.record(*id)).then_some(*id)
    };
    let mut reverted: BTreeSet<RecordId> = disruptions.iter().filter_map(begins).collect();
    reverted.extend(&found.records);
    for id in &reverted {
        match before.disruptions.get(id) {
            Some(known) => disruptions.insert(*id, Arc::clone(known)),
            None => disruptions.remove(id),
        };
        if let (Some(record), Some(known)) = (records.get_mut(id), before.records.get(id))
            && matches!((&known.state, &record.state), (State::Registered { .. }, State::Deleting { .. }))
        {
            Arc::make_mut(record).state = known.state.clone();
        }
    }
    announced.retain(|id, said| !paused.record(*id) || before.announced.get(id) == Some(said));
    for (pool, lately) in replaced.iter_mut().filter(|(pool, _)| paused.pool(pool)) {
        let known = before.replaced.get(pool);
        Arc::make_mut(lately).at.retain(|at| known.is_some_and(|known| known.at.contains(at)));
    }
    for (_, floor) in floors.iter_mut().filter(|(pool, _)| paused.pool(pool)) {
        if !floor.raised.is_empty() || floor.unasked.is_some() {
            let floor = Arc::make_mut(floor);
            floor.raised.clear();
            floor.unasked = None;
        }
    }
    reverted
}

/// Leaves out actions by the table above.
fn actions(plan: &mut Plan<Proposed>, memory: &Memory, paused: &Paused, reverted: &BTreeSet<RecordId>, found: &Found<'_>) {
    let opened = |name: &NodeName| {
        let of = |record: &&Arc<Record>| matches!(&record.state, State::Registered { node: Some(node), .. } if node == name);
        memory.records.values().find(of).is_some_and(|record| paused.group(&record.group))
    };
    let keeps = |action: &Action| match action {
        Action::Launch { request, .. } => !paused.group(&request.group),
        Action::Release { node } => !opened(node),
        Action::Drain { record, evict, .. } => {
            let cordon =
                *evict == Evict::Nobody && memory.cordons.get(record).is_some_and(|cordoned| Cordoned::is_closed(cordoned));
            cordon || !reverted.contains(record)
        }
        Action::Terminate { .. } | Action::Hold { .. } | Action::Uncordon { .. } | Action::RemoveNode { .. } => true,
    };
    let mut at = 0;
    plan.actions.retain(|action| {
        let barred = found.actions.contains(&at);
        at += 1;
        !barred && keeps(action)
    });
}

/// Nobody is told of what is not done.
fn notes(plan: &mut Plan<Proposed>, memory: &Memory, paused: &Paused, reverted: &BTreeSet<RecordId>) {
    let named = |id: &RecordId| match &memory.records.get(id)?.state {
        State::Registered { node: Some(node), .. } => Some(node),
        _ => None,
    };
    let stay: BTreeSet<&NodeName> = reverted.iter().filter_map(named).collect();
    plan.notes.retain(|note| match note {
        Note::Disruption { node, .. } => !stay.contains(node),
        Note::WillBeEmptied { group, .. } | Note::FloorGrown { group, .. } => !paused.group(group),
        _ => true,
    });
    plan.explanations.retain(|said| said.found == 0 || !said.group.as_ref().is_some_and(|group| paused.group(group)));
}

/// Remembers what stands since when, closes the groups of paused pools, and tells what has begun and what is over.
pub(super) fn remember(
    plan: &mut Plan<Proposed>,
    memory: &mut Memory,
    before: &Memory,
    found: &Found<'_>,
    (decision, since): (DecisionId, Timestamp),
) {
    if found.findings.is_empty() && before.faults.is_empty() {
        return;
    }
    let mut faults: BTreeMap<(&Concern, &str), StandingFault> = BTreeMap::new();
    for Finding { concern, violation } in &found.findings {
        let same = |known: &&StandingFault| known.concern == *concern && known.fault == violation.as_str();
        faults.entry((concern, violation.as_str())).or_insert_with(|| {
            before.faults.iter().find(same).cloned().unwrap_or_else(|| StandingFault {
                concern: concern.clone(),
                fault: violation.as_str().to_owned(),
                message: violation.to_string(),
                decision,
                since,
            })
        });
    }
    memory.faults = faults.into_values().collect();
    let new = memory.faults.iter().filter(|fault| !before.faults.contains(fault));
    plan.notes.extend(new.map(|fault| Note::CheckFailed { fault: fault.clone() }));
    let mut over: BTreeMap<&Concern, Pause> = BTreeMap::new();
    for known in before.faults.iter().filter(|known| !memory.faults.iter().any(|fault| fault.concern == known.concern)) {
        let pause = over.entry(&known.concern).or_insert_with(|| known.pause());
        pause.decision = pause.decision.min(known.decision);
    }
    plan.notes.extend(over.into_values().map(|pause| Note::CheckPassed { pause }));
    for (id, limits) in &mut plan.limits {
        if let Some(pause) = memory.pause_of(found.pool_of(id, memory)) {
            limits.close(memory.target(id), Closed::Paused(pause));
        }
    }
}
