//! Reclaims: nodes that the cloud takes back. All pods are evicted at once, each with the time that
//! is left to save its work.
//!
//! The record counts until its machine is gone, or empty and ended. Until then the autoscaler
//! counts the node in its group, and a smaller target would not make it buy sooner. It asks for the
//! next node of the evicted pods as soon as they are pending.

use std::sync::Arc;

use super::super::pass::{Changes, Pass, after};
use super::super::{notices, reclaims};
use super::begin;
use crate::base::ids::RecordId;
use crate::market::interruption::longest_notice;
use crate::state::disruption::{Disruption, DrainReason};
use crate::state::record::Record;

/// Begins with those of which it was just announced, whatever else they were let go for.
pub(super) fn nodes<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let told: Vec<_> = changes.notices.reclaims.iter().map(|(id, told)| (*id, *told)).collect();
    for (id, (at, told_by)) in told {
        let Some(market) = changes.memory.records.get(&id).and_then(|record| record.purchase()).map(|bought| &bought.market)
        else {
            continue;
        };
        let known = changes.memory.disruptions.get(&id).filter(|known| known.is_open() && known.gone_by().is_some());
        let heard_at = known.map_or(pass.now, |known| known.since);
        let at = at.min(after(heard_at, longest_notice(market)));
        let why = DrainReason::Reclaimed { at, told_by };
        match changes.memory.disruptions.get_mut(&id).filter(|disruption| disruption.is_open()) {
            Some(disruption) if disruption.why == why => {}
            // Sooner or later than was first said.
            Some(disruption) if matches!(disruption.why, DrainReason::Reclaimed { .. }) => Arc::make_mut(disruption).why = why,
            _ => begin(pass, changes, id, why),
        }
    }
}

/// Those whose notice was withdrawn before a pod was told to go: they stay, and their reclaim is one no more.
pub(super) fn withdrawn<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) -> Vec<RecordId> {
    let open = |(id, disruption): (&RecordId, &Arc<Disruption>)| match disruption.why {
        DrainReason::Reclaimed { told_by, .. } if disruption.is_open() && !disruption.may_have_evicted() => {
            Some((*id, told_by))
        }
        _ => None,
    };
    let open: Vec<_> = changes.memory.disruptions.iter().filter_map(open).collect();
    let mut back = Vec::new();
    for (id, told_by) in open {
        let Some(record) = changes.memory.records.get(&id).map(Arc::clone) else { continue };
        if notices::is_withdrawn(pass, changes, &record, told_by) {
            forget(changes, &record);
            back.push(id);
        }
    }
    back
}

fn forget(changes: &mut Changes<'_>, record: &Record) {
    if let (Some(purchase), Some(instance)) = (record.purchase(), record.instance()) {
        reclaims::withdrawn(changes, instance, &purchase.market);
    }
}
