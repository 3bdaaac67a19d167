//! What is concluded of each node, from its pods and, where the pool's evidence is `probe`, from what probes have seen.
//!
//! Whether a node is *idle* is not judged here: a free node is warm since it is free, and its window begins there. One that was found
//! idle stays so as long as it is free, also when somebody closed it and opened it again, or its kubelet was away for a while.
//!
//! So that nothing flaps: work, pods and what is certainly broken count at once. A node that was at work is free again when it has been
//! quiet for [`QUIET_FOR`]. A fault that one look may be wrong about must last [`FAULT_LASTS`], and what was unhealthy is trusted after
//! [`CLEAN_FOR`] without one. What cannot be told is unknown after three rounds, or after
//! [`AWAITED_FOR`](crate::facts::activity::AWAITED_FOR) where nothing has come since a restart; until then the verdict stands. A pod holds a
//! node that it does nothing with after the pool's `heldAfter`, until it works again. What a cloud says of a machine counts in every pool
//! that is judged.

mod faults;
mod lapse;
mod look;
mod machine;

use std::sync::Arc;

use jiff::Timestamp;

use super::index::IndexEntry;
use super::pass::{Changes, Pass, after};
use crate::base::index::InOrder;
use crate::facts::activity::GpuActivity;
use crate::facts::snapshot::{Cordon, NodeFacts};
use crate::state::disruption::DrainReason;
use crate::state::node_verdict::{Judged, Reason, Verdict};
use crate::state::probe_history::{CLEAN_FOR, FAULT_LASTS, QUIET_FOR, START_WITHIN};
use crate::state::record::{Record, State};
pub use faults::{Fault, hardware_fault};
use faults::{closed_gate, fault};
use lapse::Lapses;
use look::Look;
use machine::Condition;

/// A verdict with its reason, and since when it holds where that is not when it is reached.
struct Found {
    verdict: Verdict,
    why: Reason,
    since: Option<Timestamp>,
}

const fn found(verdict: Verdict, why: Reason) -> Found {
    Found { verdict, why, since: None }
}

/// Judges every record that has or awaits a node. Where nothing can tell, there is no verdict: a pool whose evidence is `none`, a service
/// that watches no cluster.
pub(super) fn judge<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    // Where nobody tells of pods, what probes see is not the whole.
    let looks = if pass.snapshot.cluster.is_some() { look::at_nodes(pass, changes) } else { Vec::new() };
    let lapses = lapse::of_pools(pass, changes, &looks);
    let mut looks = looks.into_iter().peekable();
    let mut due = Vec::new();
    let (mut updates, mut history) = (Vec::new(), Vec::new());
    let mut known = InOrder::of(&changes.memory.probe_history);
    for (record, entry) in changes.indexed() {
        let found = match looks.next_if(|look| look.id == record.id) {
            Some(mut look) => {
                let found = seen(pass, changes, record, &mut look, &lapses, &mut due);
                if known.next(&record.id).is_none_or(|known| **known != look.history) {
                    history.push((record.id, look.history));
                }
                Some(found)
            }
            None => unseen(pass, changes, record, entry),
        };
        let is = found.map(|found| judged(record.judged.as_ref(), found, pass.now));
        if is != record.judged {
            updates.push((record.id, is));
        }
    }
    for at in due {
        changes.look_again_at(at);
    }
    for (id, known) in history {
        changes.memory.probe_history.insert(id, Arc::new(known));
    }
    for (id, judged) in updates {
        changes.edit(pass, id, |record| record.judged = judged);
    }
}

/// What a record's verdict is to be.
fn judged(known: Option<&Judged>, found: Found, now: Timestamp) -> Judged {
    let Found { verdict, why, since } = found;
    let free_since = known.and_then(Judged::free_since);
    let released = known.is_some_and(Judged::is_released);
    let (verdict, why, since) = match (verdict, why) {
        // A window that is over stays so, whatever was missed meanwhile, until something holds the node.
        (Verdict::Warm, _) if released => {
            let why = Reason::WindowOver { free_since: free_since.unwrap_or(now) };
            (Verdict::Idle, why, known.map(|known| known.since))
        }
        (Verdict::Warm, why) => (Verdict::Warm, why, since.or(free_since)),
        // Only what it was before tells since when it is free, and whether its window is over.
        (verdict, Reason::Closed { free_since: found, .. }) => {
            (verdict, Reason::Closed { free_since: free_since.unwrap_or(found), released }, since)
        }
        (Verdict::Booting, Reason::NotReady) => {
            let away = |free_since| Reason::Away { free_since, released };
            (Verdict::Booting, free_since.map_or(Reason::NotReady, away), since)
        }
        (verdict, why) => (verdict, why, since),
    };
    let same = known.filter(|known| known.verdict == verdict).map(|known| known.since);
    Judged { verdict, why, since: since.or(same).unwrap_or(now).min(now) }
}

/// The verdict on a record whose node no probe tells of.
fn unseen(pass: &Pass<'_>, changes: &Changes<'_>, record: &Record, entry: &IndexEntry<'_>) -> Option<Found> {
    pass.snapshot.cluster.as_ref()?;
    match &record.state {
        State::Wanted | State::Launching { .. } | State::Failed { .. } | State::Cancelled { .. } => None,
        State::Deleting { .. } => Some(found(Verdict::Draining, Reason::Disruption)),
        State::Booting { .. } => Some(found(Verdict::Booting, Reason::NotJoined)),
        State::Registered { .. } if changes.memory.is_draining(record.id) => Some(found(Verdict::Draining, Reason::Disruption)),
        State::Registered { .. } => {
            let node = entry.node()?;
            let known = record.judged.as_ref().filter(|known| known.verdict == Verdict::Unhealthy);
            let impaired = match Condition::of(pass, record) {
                Condition::Impaired(why) => Some(why),
                // What nobody can tell now is as it was.
                Condition::Unknown => known.map(|known| known.why.clone()),
                Condition::Well => None,
            };
            let by_pods = || by_pods(node, found(Verdict::Warm, Reason::NoPods), pass.now);
            entry.is_judged().then(|| impaired.map_or_else(by_pods, |why| found(Verdict::Unhealthy, why)))
        }
    }
}

/// The verdict by pods alone; `free` where none holds the node.
fn by_pods(node: &NodeFacts, free: Found, now: Timestamp) -> Found {
    if node.is_busy() { found(Verdict::Busy, Reason::Pods) } else { closed(node, free.since.unwrap_or(now)).unwrap_or(free) }
}

/// The verdict on a node that no pod can begin on, although nothing runs there, by itself since `free_since`.
fn closed(node: &NodeFacts, free_since: Timestamp) -> Option<Found> {
    if node.ready_since.is_none() {
        Some(found(Verdict::Booting, Reason::NotReady))
    } else if node.cordon == Cordon::Theirs {
        Some(found(Verdict::Draining, Reason::Closed { free_since, released: false }))
    } else {
        None
    }
}

/// The verdict on a node that a probe is to tell of. Moments at which it may be another are added to `due`.
fn seen(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    record: &Record,
    look: &mut Look<'_>,
    lapses: &Lapses,
    due: &mut Vec<Timestamp>,
) -> Found {
    look.history.by_pods = matches!(look.activity, GpuActivity::Unclear(_)) && lapses.cover(&look.pool.name, &look.history);
    if let Some(drain) = changes.memory.drain_of(record.id) {
        let is_reclaimed = matches!(drain.why, DrainReason::Reclaimed { .. });
        // A broken GPU can often not be read, and a notice that is withdrawn after pods were evicted leaves nothing else to end the node.
        look.history.by_pods |= is_reclaimed && unhealthy(pass, record, look, due).is_some();
        return found(Verdict::Draining, Reason::Disruption);
    }
    if let Some(found) = unhealthy(pass, record, look, due) {
        return found;
    }
    let (node, activity, now) = (look.node, look.activity, pass.now);
    let mut wait_until = |at: Timestamp| {
        due.extend((at > now).then_some(at));
        at > now
    };
    if look.busy {
        look.history.started = true;
        return with_pods(record, look, now, wait_until);
    }
    if let GpuActivity::Active(gpu) = activity {
        look.history.started = true;
        return found(Verdict::Busy, Reason::Active { gpu: gpu.clone() });
    }
    let free_since = look.history.free_since();
    let unclear_since = look.history.unclear_since.unwrap_or(now);
    if look.history.by_pods {
        // What was at work when its probe fell silent has not been free before: its window begins then.
        let since = look.history.no_pods_since.max(look.history.was_quiet_since.or(look.history.silent_since));
        let free = Found { since, ..found(Verdict::Warm, Reason::NoPodsUnseen) };
        return by_pods(node, free, now);
    }
    if let Some(closed) = closed(node, free_since.unwrap_or(now)) {
        return closed;
    }
    let start_by = after(look.ready_at.unwrap_or(now), START_WITHIN);
    if !look.history.started
        && let Some(why) = look.seen.and_then(closed_gate)
    {
        let _ = wait_until(start_by);
        return found(Verdict::Booting, why);
    }
    let known = record.judged.as_ref();
    match activity {
        GpuActivity::Unclear(why) if !look.history.started => {
            let verdict = if wait_until(start_by) { Verdict::Booting } else { Verdict::Unknown };
            found(verdict, why.reason())
        }
        GpuActivity::Unclear(why) => match known {
            Some(known) if known.verdict != Verdict::Unknown && wait_until(why.unknown_from(unclear_since)) => {
                // What nobody can look at for a moment is as it was. A pod that held it has gone.
                let verdict = if known.verdict == Verdict::Held { Verdict::Busy } else { known.verdict };
                Found { since: free_since.filter(|_| verdict.is_free()), ..found(verdict, known.why.clone()) }
            }
            _ => found(Verdict::Unknown, why.reason()),
        },
        GpuActivity::Quiet(_) | GpuActivity::Active(_) => {
            let warm = Found { since: free_since, ..found(Verdict::Warm, Reason::Quiet) };
            let quiet_from = look.history.quiet_since.map_or(now, |since| after(since, QUIET_FOR));
            match known.map(|known| known.verdict) {
                // Nothing can have been left behind where nothing ran before.
                _ if !look.history.started => look.history.started = true,
                _ if known.and_then(Judged::free_since).is_some() => {}
                Some(Verdict::Unknown) if wait_until(quiet_from) => return found(Verdict::Unknown, Reason::JustQuiet),
                _ if wait_until(quiet_from) => return found(Verdict::Busy, Reason::JustQuiet),
                _ => {}
            }
            warm
        }
    }
}

/// The verdict on a node with pods. A pod holds it that has done nothing for as long as the pool allows. Only work ends that: what is not
/// read for a moment is as it was, and after that it cannot be told whether the pod still does nothing.
fn with_pods(record: &Record, look: &Look<'_>, now: Timestamp, mut wait_until: impl FnMut(Timestamp) -> bool) -> Found {
    let history = &look.history;
    let held_from = history.held_since().map(|since| after(since, look.pool.held_after));
    let known = record.judged.as_ref();
    let was = known.map(|known| known.verdict);
    match look.activity {
        GpuActivity::Quiet(_) if held_from.is_some_and(|from| !wait_until(from)) => found(Verdict::Held, holders(look.node)),
        GpuActivity::Unclear(why)
            if !history.by_pods && was == Some(Verdict::Held) && held_from.is_some_and(|from| from <= now) =>
        {
            let unknown_from = why.unknown_from(history.unclear_since.unwrap_or(now));
            if wait_until(unknown_from) {
                found(Verdict::Held, holders(look.node))
            } else {
                found(Verdict::Unknown, why.reason())
            }
        }
        // The pods that held it when it was last told of.
        GpuActivity::Unclear(why)
            if !history.by_pods
                && was == Some(Verdict::Unknown)
                && history.holding.zip(known).is_some_and(|(holding, known)| holding.since < known.since) =>
        {
            found(Verdict::Unknown, why.reason())
        }
        _ => found(Verdict::Busy, Reason::Pods),
    }
}

/// The verdict on a node whose hardware is not fit for work; `None` where it is.
fn unhealthy(pass: &Pass<'_>, record: &Record, look: &mut Look<'_>, due: &mut Vec<Timestamp>) -> Option<Found> {
    let (now, condition) = (pass.now, Condition::of(pass, record));
    let known = record.judged.as_ref().filter(|known| known.verdict == Verdict::Unhealthy);
    let free = !look.busy && !matches!(look.activity, GpuActivity::Active(_));
    let fault = look.seen.and_then(|seen| fault(seen, free, look.ready_at, look.history.started, now));
    let Some(fault) = fault.or_else(|| condition.fault()) else {
        look.history.fault_since = None;
        let known = known?;
        // What nobody hears is not well again for that, nor what its cloud called impaired before it says that it is not.
        let told_well = match known.why {
            Reason::Impaired { .. } => matches!(condition, Condition::Well),
            _ => look.heard_since().is_some(),
        };
        if told_well {
            let clean_from = after(*look.history.clean_since.get_or_insert(now), CLEAN_FOR);
            if clean_from <= now {
                look.history.clean_since = None;
                return None;
            }
            due.push(clean_from);
        } else {
            look.history.clean_since = None;
        }
        return Some(found(Verdict::Unhealthy, known.why.clone()));
    };
    look.history.clean_since = None;
    let counts_from = after(*look.history.fault_since.get_or_insert(now), FAULT_LASTS);
    if fault.certain || known.is_some() || counts_from <= now {
        return Some(found(Verdict::Unhealthy, fault.why));
    }
    due.push(counts_from);
    None
}

/// Who holds a node's GPUs.
fn holders(node: &NodeFacts) -> Reason {
    let others = u32::try_from(node.gpu_pods.len().saturating_sub(1)).unwrap_or(u32::MAX);
    node.gpu_pods.first().map_or(Reason::Pods, |pod| Reason::Held { pod: pod.clone(), others })
}
