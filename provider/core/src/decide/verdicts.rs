//! What is concluded of each node, from its pods and from what probes have seen.

use std::sync::Arc;

use super::Draft;
use super::seats::Seat;
use crate::policy::Evidence;
use crate::record::{Record, State};
use crate::verdict::{Judged, Reason, Verdict};

/// Judges every record that has or awaits a node. Where nothing can tell, there is no verdict: a pool whose evidence is `none`, a service
/// that watches no cluster.
pub(super) fn judge(draft: &mut Draft<'_>) {
    let now = draft.now;
    let mut changed = Vec::new();
    for (record, seat) in draft.seated() {
        let found = verdict(draft, record, &seat);
        let known = record.judged.as_ref();
        let verdict_of = |judged: &Judged| judged.verdict;
        // Of free nodes, which are idle is for their windows to say (`windows.rs`).
        if known.map(verdict_of) == Some(Verdict::Idle) && matches!(found, Some((Verdict::Warm, _))) {
            continue;
        }
        if known.map(|judged| (judged.verdict, &judged.why)) == found.as_ref().map(|(verdict, why)| (*verdict, why)) {
            continue;
        }
        let judged = found.map(|(verdict, why)| {
            let since = known.filter(|judged| judged.verdict == verdict).map_or(now, |judged| judged.since);
            Judged { verdict, why, since }
        });
        changed.push((record.id, judged));
    }
    for (id, judged) in changed {
        if let Some(record) = draft.memory.records.get_mut(&id) {
            Arc::make_mut(record).judged = judged;
        }
    }
}

fn verdict(draft: &Draft<'_>, record: &Record, seat: &Seat<'_>) -> Option<(Verdict, Reason)> {
    draft.snapshot.cluster.as_ref()?;
    match &record.state {
        State::Wanted | State::Launching { .. } | State::Failed { .. } | State::Cancelled { .. } => None,
        State::Deleting { .. } => Some((Verdict::Draining, Reason::Leaving)),
        State::Booting { .. } => Some((Verdict::Booting, Reason::NotJoined)),
        State::Registered { .. } if draft.memory.leaving.get(&record.id).is_some_and(|leaving| leaving.is_open()) => {
            Some((Verdict::Draining, Reason::Leaving))
        }
        State::Registered { ready_at, .. } => {
            let node = seat.node()?;
            let evidence = seat.pool().map_or(Evidence::Pods, |(_, pool)| pool.evidence);
            match evidence {
                Evidence::None => None,
                Evidence::Pods | Evidence::Probe if node.is_busy() => Some((Verdict::Busy, Reason::Pods)),
                Evidence::Pods | Evidence::Probe if ready_at.is_none() => Some((Verdict::Booting, Reason::NotReady)),
                Evidence::Pods | Evidence::Probe => Some((Verdict::Warm, Reason::NoPods)),
            }
        }
    }
}
