//! Growth that nobody asked for, the limit of off-hours, and what goes of a warm floor.

use std::collections::BTreeSet;

use super::Fatal;
use crate::group::Menu;
use crate::ids::{PoolName, RecordId};
use crate::leaving::{LeaveFor, Leaving};
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

/// What begins to go back to spot at once is more than the floor wants: of what it wants nodes go as work does, one at a time.
pub(super) fn moved_at_once(plan: &Plan<Proposed>, before: &Memory, memory: &Memory, menu: &Menu, faults: &mut Vec<Fatal>) {
    let to_spot = |leaving: &Leaving| match leaving.why {
        LeaveFor::BackToSpot { work, .. } if leaving.is_open() => Some(work),
        _ => None,
    };
    let of = |id: &RecordId| Some(&menu.group_or_remembered(&memory.records.get(id)?.group, memory)?.pool);
    let begun = memory.leaving.iter().filter(|(id, leaving)| {
        to_spot(leaving) == Some(false) && before.leaving.get(id).and_then(|known| to_spot(known)) != Some(false)
    });
    let pools: BTreeSet<&PoolName> = begun.filter_map(|(id, _)| of(id)).collect();
    for floor in plan.accounts.floors.iter().filter(|floor| pools.contains(&floor.pool)) {
        let stays = |id: &RecordId| {
            let leaving = memory.leaving.get(id).filter(|leaving| leaving.is_open());
            leaving.is_none_or(|leaving| to_spot(leaving) == Some(true))
        };
        let warm = memory.records.values().filter(|record| {
            let free = record.judged.as_ref().is_some_and(|judged| judged.verdict.is_free());
            matches!(record.state, State::Registered { .. }) && free && stays(&record.id) && of(&record.id) == Some(&floor.pool)
        });
        let left = u32::try_from(warm.count()).unwrap_or(u32::MAX);
        if left < floor.wanted {
            faults.push(Fatal::EmptiesFloor { pool: floor.pool.clone(), left, wanted: floor.wanted });
        }
    }
}
