//! What would be bought if so many nodes were asked for: the same choice as a pass makes, over a whole pool or one group, without
//! doing anything.

use jiff::Timestamp;

use crate::allocate::{Allocation, allocate, tell_binding};
use crate::choose::Scales;
use crate::group::{Group, Menu};
use crate::ids::{NodeGroupId, PoolName};
use crate::lift::mark_ends;
use crate::memory::Memory;
use crate::plan::Explanation;
use crate::usage::Usage;

/// Weighs every offer of a pool (or of one of its groups) and fills `count` nodes from them, under every limit.
pub fn what_if(
    menu: &Menu,
    memory: &Memory,
    pool: &PoolName,
    group: Option<&NodeGroupId>,
    count: u32,
    now: Timestamp,
) -> Explanation {
    what_if_counted(menu, memory, pool, group, count, now).0
}

/// The same, and what would be used of every limit then.
pub fn what_if_counted(
    menu: &Menu,
    memory: &Memory,
    pool: &PoolName,
    group: Option<&NodeGroupId>,
    count: u32,
    now: Timestamp,
) -> (Explanation, Usage) {
    let groups: Vec<&Group> =
        menu.pool_groups(pool).map(AsRef::as_ref).filter(|g| group.is_none_or(|id| g.id == *id)).collect();
    let usage = Usage::count(memory, menu, now);
    let fresh = |_: &Group| true;
    let scales = Scales { menu, memory, usage: &usage, fresh: &fresh, now };
    let allocation = allocate(&scales, &groups, count);
    let (eligible, barred) = scales.rank(groups.iter().copied());
    let mut candidates = scales.explain(&eligible, &barred, &allocation.chosen());
    let found = allocation.found();
    let after = Scales { usage: &allocation.usage, ..scales };
    tell_binding(&mut candidates, &after, found < count);
    mark_ends(&after, &mut candidates, found < count);
    let Allocation { usage, proof, .. } = allocation;
    (Explanation { order: None, group: group.cloned(), asked: count, found, candidates, proof }, usage)
}
