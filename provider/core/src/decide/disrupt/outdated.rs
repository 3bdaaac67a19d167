//! Replacement of outdated nodes: in each pool one at a time, and the next only when no node of the
//! pool is on its way.
//!
//! Free nodes go first, once their windows are over, so that no promise to keep them is broken.
//! Nodes with pods go in maintenance times, or past the deadline, which waits for no other node. A
//! node that is needed goes only while another could be bought in its place.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::index::IndexEntry;
use super::super::outdated::successor;
use super::super::pass::{Changes, Pass, after};
use super::super::{floors, is_fresh};
use super::{begin, eviction};
use crate::base::ids::RecordId;
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::facts::snapshot::{Cordon, Hold};
use crate::facts::supply::RefusalKind;
use crate::limits::usage::Usage;
use crate::plan::{Ending, HoldFor};
use crate::policy::rules::outdated::OutdatedRules;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::outdated::OutdatedNode;
use crate::state::record::{Phase, PodsSeen, Record};

/// How soon after a node was chosen its drain begins: at the next pass.
const SOON: SignedDuration = SignedDuration::from_secs(1);

/// How often a pool is looked at again whose nodes cannot be replaced at the moment.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// An outdated node that may be replaced now. The order of the fields is the order in which they are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    /// Past the deadline first.
    not_overdue: bool,
    /// Without pods before those with some.
    busy: bool,
    since: Timestamp,
    id: RecordId,
}

/// What counts of a pool.
#[derive(Default)]
struct Tally {
    /// Whether a node is being replaced.
    replacing: bool,
    /// Whether a node is on its way.
    coming: bool,
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
pub(in super::super) fn begin_next<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    usage: &Usage,
    kept: &[(RecordId, HoldFor)],
) {
    if changes.memory.outdated.is_empty() || changes.caution().is_some() || pass.snapshot.cluster.is_none() {
        return;
    }
    let pools = &pass.catalogue.policy.pools;
    let counts = floors::count(pass, changes);
    let mut tallies: Vec<Tally> = pools.iter().map(|_| Tally::default()).collect();
    let mut later = Vec::new();
    for (record, entry) in changes.indexed() {
        let Some((at, pool)) = entry.pool() else { continue };
        let Some(tally) = tallies.get_mut(at) else { continue };
        let disruption = changes.memory.disruptions.get(&record.id);
        let goes = disruption.is_some_and(|disruption| matches!(disruption.why, DrainReason::Outdated { .. }));
        // One that could not be emptied, and is left alone for a while, keeps no other from going.
        let goes = goes && disruption.is_some_and(|disruption| disruption.is_open());
        tally.replacing |= goes || super::ending(changes, record) == Some(Ending::Outdated);
        tally.coming |= entry.phase.is_coming();
        let Some(known) = changes.memory.outdated.get(&record.id).filter(|_| disruption.is_none() && !pool.outdated.paused)
        else {
            continue;
        };
        if let Some(at) = pool.outdated.due_at(known.since) {
            later.push(at);
        }
        let floor_lacks = || {
            let wanted = changes.floors.get(at).and_then(Option::as_ref).map_or(0, |wanted| wanted.nodes);
            counts.get(at).is_some_and(|count| count.missing(wanted) > 0)
        };
        let free_for =
            kept.binary_search_by_key(&record.id, |(id, _)| *id).ok().and_then(|at| kept.get(at)).map(|(_, why)| *why);
        tally.due.extend(due(pass, changes, entry, known, free_for, &pool.outdated, floor_lacks));
    }
    for pool in pools.iter().filter(|pool| !pool.outdated.maintenance.is_empty()) {
        if let Some(at) = pool.outdated.maintenance_at(pass.wall.0).1 {
            changes.look_again_on_wall(pass, at);
        }
    }
    for at in later {
        changes.look_again_at(at);
    }
    for tally in tallies {
        begin_one(pass, changes, usage, kept, tally);
    }
}

/// Whether an outdated node may be replaced now. `free_for` is what keeps it, where it is free.
fn due(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    entry: &IndexEntry<'_>,
    known: &OutdatedNode,
    free_for: Option<HoldFor>,
    rules: &OutdatedRules,
    floor_lacks: impl Fn() -> bool,
) -> Option<Due> {
    // One that is new waits for its pods, unless it is there for a floor. Whoever closed a node, or wants it kept, wants it as it is.
    let may_go = entry.phase == Phase::Started
        && (entry.pods_seen != PodsSeen::NotYet || free_for == Some(HoldFor::Floor))
        && entry.cordon() == Cordon::None
        && entry.hold().is_some_and(|hold| hold != Hold::Theirs)
        && !changes.memory.cordons.contains_key(&entry.id);
    let busy = entry.is_busy();
    let allowed = if busy {
        takes_busy(pass, rules, known.since)
    } else {
        let released = match free_for {
            None | Some(HoldFor::Paid) => true,
            Some(HoldFor::Floor) => !floor_lacks(),
            Some(_) => false,
        };
        changes.proves_free(entry) && released
    };
    let not_overdue = !is_overdue(pass, rules, known.since);
    (may_go && allowed).then_some(Due { not_overdue, busy, since: known.since, id: entry.id })
}

fn begin_one<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, usage: &Usage, kept: &[(RecordId, HoldFor)], tally: Tally) {
    let Tally { replacing, coming, mut due } = tally;
    if due.is_empty() {
        return;
    }
    due.sort_unstable();
    let is_needed = |due: &Due| due.busy || kept.binary_search_by_key(&due.id, |(id, _)| *id).is_ok();
    // A pool that grows all the time would keep its outdated nodes for ever.
    let in_turn = |due: &&Due| !due.not_overdue || !coming;
    let next = due.iter().filter(in_turn).find(|due| !is_needed(due) || can_be_bought(pass, changes, usage, due.id));
    let next = next.filter(|_| !replacing);
    let why = next.and_then(|due| Some((due.id, changes.memory.outdated.get(&due.id)?.why.clone())));
    match why {
        Some((id, why)) => {
            begin(pass, changes, id, DrainReason::Outdated { why });
            changes.look_again_at(after(pass.now, SOON));
        }
        None => changes.look_again_at(after(pass.now, LOOK_AGAIN)),
    }
}

/// Whether a node like that one could be bought once it is gone: limits have room for it then, its market is open, and the last machine
/// there has joined.
fn can_be_bought<'a>(pass: &Pass<'a>, changes: &Changes<'_>, usage: &Usage, id: RecordId) -> bool {
    let group = changes.memory.records.get(&id).and_then(|record| pass.group(&record.group));
    let now = |group: &'a Arc<Group>| pass.catalogue.groups.get(&group.id).or_else(|| successor(group, pass.catalogue));
    let Some(group) = group.and_then(now) else { return false };
    let (snapshot, now) = (pass.snapshot, pass.now);
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let scales = Scales { catalogue: pass.catalogue, memory: &changes.memory, usage, fresh: &fresh, times: pass.times() };
    let joins = |market| {
        changes.memory.refusal(market, group, pass.catalogue).is_none_or(|known| known.backoff.kind != RefusalKind::BootTimeout)
    };
    group.offers.iter().any(|offer| joins(&offer.market) && scales.admit(group, offer).is_ok())
}
