//! Replacement of outdated nodes: in each pool one at a time, and the next only when the node that
//! takes the place of the last is Ready, or does not come.
//!
//! Free nodes go first, once their windows are over, so that no promise to keep them is broken, and
//! only while no other node of the pool is on its way. Nodes with pods go in maintenance times, or
//! past the deadline. A node that is needed goes only while another could be bought in its place.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::index::IndexEntry;
use super::super::outdated::successor;
use super::super::pass::{Changes, Pass, after};
use super::super::{floors, is_fresh};
use super::{begin, eviction};
use crate::base::ids::{NodeGroupId, RecordId};
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::facts::snapshot::{Cordon, Hold};
use crate::facts::supply::RefusalKind;
use crate::limits::usage::Usage;
use crate::plan::{Ending, HoldFor};
use crate::policy::Pool;
use crate::policy::rules::outdated::OutdatedRules;
use crate::policy::rules::warm_floor::Places;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::outdated::OutdatedNode;
use crate::state::record::{Phase, PodsSeen, Record};

/// How soon after a node was chosen its drain begins: at the next pass.
const SOON: SignedDuration = SignedDuration::from_secs(1);

/// How often a pool is looked at again whose nodes cannot be replaced at the moment.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// How long a pool waits for the node that takes the place of a needed one, which may not come: its pods may fit elsewhere. A boot takes
/// ten minutes at most by default.
const WAITS_FOR: SignedDuration = SignedDuration::from_mins(15);

/// An outdated node that may be replaced now. The order of the fields is the order in which they are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// Past the deadline first.
    not_overdue: bool,
    /// Without pods before those with some.
    busy: bool,
    since: Timestamp,
    id: RecordId,
    /// What keeps it, where it is free.
    kept_for: Option<HoldFor>,
}

impl Due {
    /// Whether another node must take its place.
    const fn is_needed(&self) -> bool {
        self.busy || self.kept_for.is_some()
    }
}

/// What counts of a pool.
#[derive(Default)]
struct Tally {
    /// Whether a node is being replaced.
    replacing: bool,
    /// When the youngest node was ordered that is on its way.
    coming_since: Option<Timestamp>,
    /// When the youngest node was ordered that has been Ready.
    started_since: Option<Timestamp>,
    /// Ready nodes that do not go.
    ready: u32,
    due: Vec<Due>,
}

/// Whether a node with pods may be replaced now.
fn takes_busy(pass: &Pass<'_>, rules: &OutdatedRules, since: Timestamp) -> bool {
    is_overdue(pass, rules, since) || rules.maintenance_at(pass.wall.0).0
}

fn is_overdue(pass: &Pass<'_>, rules: &OutdatedRules, since: Timestamp) -> bool {
    rules.due_at(since).is_some_and(|at| at <= pass.now)
}

/// Whether a node that is being replaced may go on.
///
/// # Errors
/// Says why not.
pub(super) fn stands(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    record: &Record,
    disruption: &Disruption,
) -> Result<(), &'static str> {
    let Some(entry) = changes.entry(record) else { return Err("its record is gone") };
    let has_come = entry.node().is_some_and(|node| eviction::has_come(node, disruption));
    if disruption.pods.is_empty() && has_come {
        return Err("a pod has come to it");
    }
    // From the first pod that may have been told to go there is no way back.
    if disruption.may_have_evicted() {
        return Ok(());
    }
    let Some(known) = changes.memory.outdated.get(&record.id) else { return Err("it is no longer outdated") };
    let Some((_, pool)) = entry.pool() else { return Err("its pool is gone") };
    if pool.outdated.paused {
        return Err("outdated.paused is on");
    }
    if entry.cordon() == Cordon::Theirs || entry.hold() == Some(Hold::Theirs) {
        return Err("somebody else cordoned it, or wants it kept");
    }
    let busy = !disruption.pods.is_empty();
    if busy && !takes_busy(pass, &pool.outdated, known.since) {
        return Err("its pool's maintenance time is over");
    }
    Ok(())
}

/// Chooses the next node of each pool to be replaced. `kept` is what keeps free nodes, in the order of their records.
pub(in super::super) fn begin_next<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, kept: &[(RecordId, HoldFor)]) {
    changes.memory.outdated_replaced.retain(|_, at| after(*at, WAITS_FOR) > pass.now);
    if changes.memory.outdated.is_empty() || changes.caution().is_some() || pass.snapshot.cluster.is_none() {
        return;
    }
    let pools = &pass.catalogue.policy.pools;
    let mut tallies: Vec<Tally> = pools.iter().map(|_| Tally::default()).collect();
    let mut later = Vec::new();
    for (record, entry) in changes.indexed() {
        let Some((at, pool)) = entry.pool() else { continue };
        let Some(tally) = tallies.get_mut(at) else { continue };
        let disruption = changes.memory.disruptions.get(&record.id);
        // One that could not be emptied, and is left alone for a while, keeps no other from going.
        let goes = disruption.is_some_and(|disruption| disruption.is_open());
        let is_outdated = |disruption: &Arc<Disruption>| matches!(disruption.why, DrainReason::Outdated { .. });
        tally.replacing |=
            goes && disruption.is_some_and(is_outdated) || super::ending(changes, record) == Some(Ending::Outdated);
        if entry.phase.is_coming() {
            tally.coming_since = tally.coming_since.max(Some(record.ordered_at));
        } else if entry.phase == Phase::Started {
            tally.started_since = tally.started_since.max(Some(record.ordered_at));
            tally.ready += u32::from(entry.is_ready() && !goes);
        }
        let Some(known) = changes.memory.outdated.get(&record.id).filter(|_| disruption.is_none() && !pool.outdated.paused)
        else {
            continue;
        };
        later.extend(pool.outdated.due_at(known.since));
        let kept_for = kept.binary_search_by_key(&record.id, |(id, _)| *id).ok().and_then(|at| kept.get(at));
        tally.due.extend(due(pass, changes, entry, known, kept_for.map(|(_, why)| *why)));
    }
    for pool in pools.iter().filter(|pool| !pool.outdated.maintenance.is_empty()) {
        if let Some(at) = pool.outdated.maintenance_at(pass.wall.0).1 {
            changes.look_again_on_wall(pass, at);
        }
    }
    for at in later {
        changes.look_again_at(at);
    }
    if tallies.iter().all(|tally| tally.due.is_empty()) {
        return;
    }
    let counts = floors::count(pass, changes);
    for (at, (pool, tally)) in pools.iter().zip(tallies).enumerate() {
        let wanted = changes.floors.get(at).and_then(Option::as_ref);
        let missing = counts.get(at).zip(wanted).map(|(count, wanted)| count.fill(wanted).missing);
        let mut lacking = missing.unwrap_or_default();
        lacking.any = lacking.any.saturating_add(pool.limits.min_nodes.saturating_sub(tally.ready));
        begin_one(pass, changes, pool, tally, &lacking);
    }
}

/// Whether an outdated node may be replaced now. `kept_for` is what keeps it, where it is free.
fn due(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    entry: &IndexEntry<'_>,
    known: &OutdatedNode,
    kept_for: Option<HoldFor>,
) -> Option<Due> {
    let (owner, (_, pool)) = (entry.owner?, entry.pool()?);
    // One that is new waits for its pods, unless a floor keeps it. Whoever closed a node, or wants it kept, wants it as it is.
    let may_go = entry.phase == Phase::Started
        && (entry.pods_seen != PodsSeen::NotYet || kept_for == Some(HoldFor::Floor))
        && entry.cordon() == Cordon::None
        && entry.hold().is_some_and(|hold| hold != Hold::Theirs)
        && !changes.memory.cordons.contains_key(&entry.id)
        && is_fresh(pass.snapshot, owner.group, pass.now);
    // At these times windows keep none: a node with pods would go before a free one.
    let is_time = takes_busy(pass, &pool.outdated, known.since);
    let is_released = matches!(kept_for, None | Some(HoldFor::Paid | HoldFor::Floor));
    let allowed = is_time || (!entry.is_busy() && is_released && changes.proves_free(entry));
    let not_overdue = !is_overdue(pass, &pool.outdated, known.since);
    let due = Due { not_overdue, busy: entry.is_busy(), since: known.since, id: entry.id, kept_for };
    (may_go && allowed).then_some(due)
}

/// Begins to replace one of the outdated nodes of a pool. `lacking`: what its floor and its `minNodes` lack.
fn begin_one<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, pool: &Pool, tally: Tally, lacking: &Places) {
    let Tally { replacing, coming_since, started_since, mut due, .. } = tally;
    if due.is_empty() {
        return;
    }
    due.sort_unstable();
    let replaced_at = changes.memory.outdated_replaced.get(&pool.name).copied();
    let is_awaited = replaced_at.is_some_and(|at| started_since.is_none_or(|since| since < at));
    let comes_instead = replaced_at.is_some_and(|at| coming_since.is_some_and(|since| since >= at));
    let begun = (!replacing && !is_awaited && !comes_instead).then(|| {
        let mut closed: Vec<&NodeGroupId> = Vec::new();
        due.iter().find(|due| {
            // A pool that grows all the time would keep its outdated nodes for ever.
            let in_turn = !due.not_overdue || coming_since.is_none();
            let Some(record) = changes.memory.records.get(&due.id) else { return false };
            let is_lacking = |group: &Arc<Group>| lacking.left(&group.place.instance_type) > 0;
            let floor_allows =
                due.kept_for != Some(HoldFor::Floor) || pass.group(&record.group).is_some_and(|group| !is_lacking(group));
            if !in_turn || !floor_allows || closed.contains(&&record.group) {
                return false;
            }
            let can_go = !due.is_needed() || can_be_bought(pass, changes, record);
            if !can_go {
                closed.push(&record.group);
            }
            can_go
        })
    });
    let chosen = begun.flatten().and_then(|due| {
        let why = changes.memory.outdated.get(&due.id)?.why.clone();
        Some((due.id, DrainReason::Outdated { why, needed: due.is_needed() }))
    });
    match chosen {
        Some((id, why)) => {
            begin(pass, changes, id, why);
            changes.look_again_at(after(pass.now, SOON));
        }
        None => changes.look_again_at(after(pass.now, LOOK_AGAIN)),
    }
}

/// Whether a node like that one could be bought once it is gone: its market is open, every limit has room for one without it, and the last
/// machine there has joined.
fn can_be_bought<'a>(pass: &Pass<'a>, changes: &Changes<'a>, record: &Record) -> bool {
    let now = |group: &'a Arc<Group>| pass.catalogue.groups.get(&group.id).or_else(|| successor(group, pass.catalogue));
    let Some(group) = pass.group(&record.group).and_then(now) else { return false };
    let others = changes.indexed().filter(|(other, _)| other.id != record.id);
    let owned = others.filter_map(|(other, entry)| Some((other.as_ref(), entry.owner?.owner())));
    let usage = Usage::count_owned(owned, &changes.memory, pass.catalogue, pass.wall);
    let fresh = |group: &Group| is_fresh(pass.snapshot, group, pass.now);
    let scales =
        Scales { catalogue: pass.catalogue, memory: &changes.memory, usage: &usage, fresh: &fresh, times: pass.times() };
    let joins = |market| {
        let refused = changes.memory.refusal(market, group, pass.catalogue);
        refused.is_none_or(|refused| refused.backoff.kind != RefusalKind::BootTimeout)
    };
    group.offers.iter().any(|offer| joins(&offer.market) && scales.weigh(group, offer).is_ok_and(|offer| offer.room > 0))
}
