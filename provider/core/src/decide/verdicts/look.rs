//! Update of the probe history of each node in pools with probes.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::pass::{Changes, Pass, after};
use crate::base::ids::RecordId;
use crate::base::index::InOrder;
use crate::base::kinds::Evidence;
use crate::facts::activity::{GpuActivity, Unclear};
use crate::facts::reading::seen::{Hearing, Seen};
use crate::facts::snapshot::NodeFacts;
use crate::policy::Pool;
use crate::state::probe_history::{BRIDGED, Holding, NOTED_EVERY, ProbeHistory};
use crate::state::record::State;

/// One node of a pool with probes, as it stands now.
pub(super) struct Look<'a> {
    pub(super) id: RecordId,
    pub(super) pool: &'a Pool,
    /// The pool's place in the policy.
    pub(super) pool_at: usize,
    pub(super) node: &'a NodeFacts,
    /// Whether GPU pods are on the node.
    pub(super) busy: bool,
    pub(super) seen: Option<&'a Seen>,
    pub(super) activity: GpuActivity<'a>,
    /// When it was first Ready.
    pub(super) ready_at: Option<Timestamp>,
    pub(super) history: ProbeHistory,
}

impl Look<'_> {
    /// Since when it is heard; `None` while it is not.
    pub(super) fn heard_since(&self) -> Option<Timestamp> {
        match self.seen?.hearing {
            Hearing::Heard { since } => Some(since),
            Hearing::Silent { .. } => None,
        }
    }
}

/// Looks at every node of a pool with probes, in the order of their records, and forgets the others.
pub(super) fn at_nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) -> Vec<Look<'a>> {
    let now = pass.now;
    let noted = changes.memory.watched_at;
    // Between two notes so far apart nobody was there: what happened meanwhile is not known.
    let gap = noted.is_some_and(|at| now.duration_since(at) > BRIDGED);
    let mut looks = Vec::with_capacity(changes.memory.probe_history.len());
    let mut known = InOrder::of(&changes.memory.probe_history);
    for (record, entry) in changes.indexed() {
        let Some((pool_at, pool)) = entry.pool().filter(|(_, pool)| pool.evidence == Evidence::Probe) else { continue };
        let State::Registered { ready_at, .. } = &record.state else { continue };
        let Some(node) = entry.node() else { continue };
        let mut known = known.next(&entry.id).map(|known| **known).unwrap_or_default();
        // While nobody watched, no probe could be heard: those that had not lapsed before have their time to come back.
        if gap && !changes.memory.lapsed.contains_key(&pool.name) {
            known.silent_since = None;
        }
        let activity = entry.activity();
        let busy = entry.is_busy();
        let history = looked(known, activity, (node, busy), noted.filter(|_| !gap), now);
        let (id, seen, ready_at) = (entry.id, entry.seen(), *ready_at);
        looks.push(Look { id, pool, pool_at, node, busy, seen, activity, ready_at, history });
    }
    if changes.memory.probe_history.len() > looks.len() {
        let there: BTreeSet<RecordId> = looks.iter().map(|look| look.id).collect();
        changes.memory.probe_history.retain(|id, _| there.contains(id));
    }
    if looks.is_empty() {
        changes.memory.watched_at = None;
        return looks;
    }
    let due = noted.filter(|_| !gap).map(|at| after(at, NOTED_EVERY)).filter(|due| *due > now);
    if due.is_none() {
        changes.memory.watched_at = Some(now);
    }
    changes.look_again_at(due.unwrap_or_else(|| after(now, NOTED_EVERY)));
    looks
}

/// What is remembered of a node after one more look. `noted`: when it was last noted that somebody watches; `None` after a gap.
fn looked(
    mut known: ProbeHistory,
    activity: GpuActivity<'_>,
    (node, busy): (&NodeFacts, bool),
    noted: Option<Timestamp>,
    now: Timestamp,
) -> ProbeHistory {
    match activity {
        GpuActivity::Active(_) => known.quiet_since = None,
        GpuActivity::Quiet(since) => {
            // After a gap nothing is proven of the time before, whatever is said of it.
            let since = if noted.is_some() || known == ProbeHistory::default() { since } else { now };
            let told_until = known.unclear_since.or(noted);
            let bridged = |quiet: Timestamp| since <= quiet || told_until.is_some_and(|at| since <= after(at, BRIDGED));
            let quiet = known.quiet_since.filter(|quiet| noted.is_some() && bridged(*quiet));
            known.quiet_since = Some(quiet.unwrap_or(since));
        }
        GpuActivity::Unclear(_) => {}
    }
    if let GpuActivity::Unclear(why) = activity {
        let since = if let Unclear::Silent(since) = why { since } else { now };
        if known.unclear_since.is_none() {
            known.was_quiet_since = known.quiet_since;
        }
        let unclear = *known.unclear_since.get_or_insert(since);
        if noted.is_none() || now > after(unclear, BRIDGED) {
            known.quiet_since = None;
        }
        match why {
            Unclear::Silent(_) | Unclear::Unread => {
                known.silent_since.get_or_insert(since);
            }
            Unclear::NotYet | Unclear::Gpu(..) | Unclear::Missing => (known.heard, known.silent_since) = (true, None),
        }
    } else {
        (known.heard, known.unclear_since, known.silent_since, known.was_quiet_since) = (true, None, None, None);
    }
    if busy {
        known.no_pods_since = None;
        known.holding = match (known.quiet_since, activity) {
            (Some(_), _) => {
                let pods = Holding::fingerprint(&node.gpu_pods);
                let same = known.holding.filter(|holding| holding.pods == pods);
                Some(same.unwrap_or(Holding { pods, since: now }))
            }
            // Nobody can tell what they do: they are still the same.
            (None, GpuActivity::Unclear(_)) => {
                known.holding.filter(|holding| holding.pods == Holding::fingerprint(&node.gpu_pods))
            }
            (None, _) => None,
        };
    } else {
        known.no_pods_since.get_or_insert(now);
        known.holding = None;
    }
    known
}
