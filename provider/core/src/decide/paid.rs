//! Which idle nodes the autoscaler is kept from removing: those whose going saves nothing, while it may remove one that costs money.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::Draft;
use crate::commitment::PaidFor;
use crate::ids::{PoolName, RecordId};
use crate::lookup::LookupSet;
use crate::offer::CapacityType;
use crate::record::{Record, State};
use crate::snapshot::{Cordon, Hold};
use crate::usage::Usage;

/// How long an idle node that costs money stands in the way of others at most: six times what the autoscaler waits by default
/// (`--scale-down-unneeded-time`). One that is idle for longer is not removed for reasons of its own, and nothing is held for it.
const GOES_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// Idle nodes that stay for now. In each pool, the autoscaler may remove those first whose going saves money; what commitments pay for
/// is free to go when none of those is left. Where nothing is committed, nothing is held.
pub(super) fn kept(draft: &mut Draft<'_>, usage: &Usage) -> LookupSet<RecordId> {
    let mut kept = LookupSet::default();
    if draft.menu.policy.commitments.is_empty() || draft.memory.idle.len() < 2 {
        return kept;
    }
    let mut by_pool: BTreeMap<PoolName, Vec<Arc<Record>>> = BTreeMap::new();
    for record in draft.memory.idle.keys().filter_map(|id| draft.memory.records.get(id)) {
        if let Some(group) = draft.group(&record.group).filter(|_| !draft.memory.leaving.contains_key(&record.id)) {
            by_pool.entry(group.pool.clone()).or_default().push(Arc::clone(record));
        }
    }
    by_pool.retain(|_, idle| idle.len() > 1 && idle.iter().any(|record| !is_spot(record)));
    if by_pool.is_empty() {
        return kept;
    }
    let paid_for = PaidFor::of(usage, draft.menu);
    for (pool, idle) in by_pool {
        let floor = draft.menu.policy.pool(&pool).map_or(0, |pool| pool.limits.min_nodes);
        if usage.nodes.get(&pool).is_none_or(|nodes| *nodes <= floor) {
            // Nothing may go.
            continue;
        }
        // The youngest first: of nodes bought alike it is the one to go.
        let rest: Vec<&Record> = idle.iter().rev().map(AsRef::as_ref).filter(|record| !is_spot(record)).collect();
        let paid: LookupSet<RecordId> = paid_for.among(&pool, &rest).into_iter().collect();
        let may_go: Vec<RecordId> = idle.iter().map(|record| record.id).filter(|id| !paid.contains(id)).collect();
        if !paid.is_empty() && goes_soon(draft, &may_go) {
            kept.extend(paid);
        }
    }
    kept
}

fn is_spot(record: &Record) -> bool {
    record.purchase().is_some_and(|purchase| purchase.market.capacity_type == CapacityType::Spot)
}

/// Whether the autoscaler can be expected to remove one of these soon.
fn goes_soon(draft: &mut Draft<'_>, records: &[RecordId]) -> bool {
    let mut last = None;
    for id in records {
        let Some(State::Registered { instance, .. }) = draft.memory.records.get(id).map(|record| &record.state) else {
            continue;
        };
        let free =
            draft.node(instance).is_some_and(|node| node.scale_down_disabled != Hold::Theirs && node.cordon != Cordon::Theirs);
        let until = draft.memory.idle.get(id).map(|since| Draft::after(*since, GOES_WITHIN));
        last = last.max(until.filter(|until| free && *until > draft.now));
    }
    if let Some(until) = last {
        draft.look_again_at(until);
    }
    last.is_some()
}
