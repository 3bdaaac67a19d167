//! The breaker: how far a pool acts on reclaims that only probes announce.
//!
//! A bad release of the probe or a faked metadata service announces the end of many nodes at once,
//! and must not drain the fleet. Within five minutes a pool drains a fifth of its nodes on the word
//! of probes alone, or three where that is more, and spot nodes only. Then it drains none until no
//! further node was refused for five minutes. Refused nodes are cordoned. The supplier's word lets
//! any of them go.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::pass::{Changes, Pass, after};
use crate::base::ids::{PoolName, ProviderId, RecordId};
use crate::market::offer::{CapacityType, Market};
use crate::plan::Note;
use crate::state::probe_reclaims::{COUNTED_FOR, ProbeReclaims, most};
use crate::state::record::State;

/// A reclaim that a probe announces. The order is the order in which they are acted on.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AnnouncedReclaim {
    /// When the machine will be gone.
    pub(super) at: Timestamp,
    pub(super) id: RecordId,
    pub(super) instance: ProviderId,
    pub(super) market: Market,
}

/// Those that are acted on. The others are noted as unconfirmed.
pub(super) fn passed<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, told: Vec<AnnouncedReclaim>) -> Vec<AnnouncedReclaim> {
    forget(pass, changes, &told);
    let (mut passed, mut alone) = (Vec::new(), BTreeMap::<PoolName, Vec<AnnouncedReclaim>>::new());
    for one in told {
        let under_way = changes.memory.drain_of(one.id).is_some_and(|disruption| disruption.gone_by().is_some());
        let trusted = under_way || changes.notices.reclaims.contains_key(&one.id);
        match pool_of(pass, changes, one.id).filter(|_| !trusted) {
            Some(pool) => alone.entry(pool).or_default().push(one),
            None => passed.push(one),
        }
    }
    for (pool, mut told) in alone {
        told.sort();
        judge(pass, changes, pool, told, &mut passed);
    }
    passed
}

/// Judges what only the probes of a pool announce.
fn judge<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    pool: PoolName,
    told: Vec<AnnouncedReclaim>,
    passed: &mut Vec<AnnouncedReclaim>,
) {
    // As the pass began: what joins in it is no reason to drain more.
    let registered = pass.before.records.values().filter(|record| matches!(record.state, State::Registered { .. }));
    let of = registered.filter(|record| pass.group(&record.group).is_some_and(|group| group.pool == pool)).count();
    let of = u32::try_from(of).unwrap_or(u32::MAX);
    let known = changes.memory.probe_reclaims.get(&pool);
    let mut known = known.map(|known| ProbeReclaims::clone(known)).unwrap_or_default();
    let was_stopped = known.stopped_at.is_some();
    for one in told {
        let is_spot = one.market.capacity_type == CapacityType::Spot;
        if is_spot && known.stopped_at.is_none() && known.begun.len() < most(of) {
            known.refused.remove(&one.id);
            known.begun.insert(one.id, pass.now);
            passed.push(one);
            continue;
        }
        changes.notices.unconfirmed.insert(one.id);
        if known.refused.insert(one.id) && is_spot {
            known.stopped_at = Some(pass.now);
        }
    }
    if known.stopped_at.is_some() && !was_stopped {
        let nodes = u32::try_from(known.refused.len()).unwrap_or(u32::MAX);
        changes.notes.push(Note::ReclaimsUnconfirmed { pool: pool.clone(), nodes, of });
    }
    if let Some(at) = known.stopped_at {
        changes.look_again_at(after(at, COUNTED_FOR));
    }
    changes.memory.probe_reclaims.insert(pool, Arc::new(known));
}

/// Drops what is past, what the supplier confirms by now, and nodes that announce nothing any more.
fn forget<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, told: &[AnnouncedReclaim]) {
    if changes.memory.probe_reclaims.is_empty() {
        return;
    }
    let recent = |at: &Timestamp| pass.now < after(*at, COUNTED_FOR);
    let confirmed = &changes.notices.reclaims;
    changes.memory.probe_reclaims.retain(|_, known| {
        let mut kept = ProbeReclaims::clone(known);
        kept.begun.retain(|id, at| recent(at) && !confirmed.contains_key(id));
        kept.refused.retain(|id| !confirmed.contains_key(id) && told.iter().any(|one| one.id == *id));
        kept.stopped_at = kept.stopped_at.filter(recent);
        if kept != **known {
            *known = Arc::new(kept);
        }
        !known.is_over()
    });
}

fn pool_of(pass: &Pass<'_>, changes: &Changes<'_>, id: RecordId) -> Option<PoolName> {
    let record = changes.memory.records.get(&id)?;
    Some(pass.group(&record.group)?.pool.clone())
}
