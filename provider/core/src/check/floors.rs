//! Growth that nobody asked for, and the limit of off-hours.

use std::collections::BTreeSet;

use super::Fatal;
use crate::group::Menu;
use crate::ids::{PoolName, RecordId};
use crate::memory::Memory;
use crate::plan::{Plan, Proposed};
use crate::policy::Pool;
use crate::record::{Record, State};

/// The most nodes that a pool may have when these records are launched: at off-hours fewer.
pub(super) fn max_nodes(pool: &Pool, growing: &BTreeSet<RecordId>, memory: &Memory) -> u32 {
    let launched = growing.iter().filter_map(|id| match &memory.records.get(id)?.state {
        State::Launching { since, .. } => Some(*since),
        _ => None,
    });
    let off = pool.off_hours.as_ref().zip(launched.max()).filter(|(off, now)| off.at(*now).0);
    off.and_then(|(off, _)| off.max_nodes).unwrap_or(u32::MAX).min(pool.limits.max_nodes)
}

/// What this pass orders of its own accord is for a warm floor, no more of it than the floor wants, and its group is closed.
pub(super) fn own_growth(plan: &Plan<Proposed>, before: &Memory, memory: &Memory, menu: &Menu, faults: &mut Vec<Fatal>) {
    // Records are numbered in their order, and those of machines that were found have no order.
    let own = memory.records.range(RecordId(before.next_record)..).map(|(_, record)| record.as_ref());
    let own: Vec<&Record> = own.filter(|record| record.order.is_some()).collect();
    let mut pools: BTreeSet<&PoolName> = BTreeSet::new();
    for record in own {
        if let Some(group) = menu.groups.get(&record.group) {
            pools.insert(&group.pool);
        }
        if plan.limits.get(&record.group).is_none_or(|limits| limits.max > limits.target) {
            faults.push(Fatal::GrownOpen(record.group.clone()));
        }
    }
    for pool in pools {
        let wanted = plan.accounts.floors.iter().find(|floor| floor.pool == *pool).map_or(0, |floor| floor.wanted);
        let of_pool =
            |record: &&std::sync::Arc<Record>| menu.groups.get(&record.group).is_some_and(|group| group.pool == *pool);
        let there = memory.records.values().filter(of_pool).filter(|record| match (&record.state, &record.judged) {
            (State::Failed { .. } | State::Cancelled { .. } | State::Deleting { .. }, _) => false,
            (State::Registered { ready_at: Some(_), .. }, Some(judged)) => judged.verdict.is_free(),
            _ => record.floor,
        });
        let nodes = u32::try_from(there.count()).unwrap_or(u32::MAX);
        if nodes > wanted {
            faults.push(Fatal::FloorTooLarge { pool: pool.clone(), nodes, wanted });
        }
    }
}
