//! What-if: what a pass would buy for a number of nodes, over a pool or one group, without doing
//! it.

use crate::base::engine_clock::Times;
use crate::base::ids::{NodeGroupId, PoolName};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::allocate::{Allocation, allocate, tell_binding};
use crate::choose::explanation::Explanation;
use crate::choose::rank::Scales;
use crate::choose::sensitivity::mark_ends;
use crate::limits::usage::Usage;
use crate::state::memory::Memory;

/// Weighs every offer of a pool (or of one of its groups) and fills `count` nodes from them, under every limit.
pub fn what_if(
    catalogue: &Catalogue,
    memory: &Memory,
    pool: &PoolName,
    group: Option<&NodeGroupId>,
    count: u32,
    times: Times,
) -> Explanation {
    what_if_counted(catalogue, memory, pool, group, count, times).0
}

/// The same, and what would be used of every limit then.
pub fn what_if_counted(
    catalogue: &Catalogue,
    memory: &Memory,
    pool: &PoolName,
    group: Option<&NodeGroupId>,
    count: u32,
    times: Times,
) -> (Explanation, Usage) {
    let groups: Vec<&Group> =
        catalogue.pool_groups(pool).map(AsRef::as_ref).filter(|g| group.is_none_or(|id| g.id == *id)).collect();
    let usage = Usage::count(memory, catalogue, times.wall);
    let fresh = |_: &Group| true;
    let scales = Scales { catalogue, memory, usage: &usage, fresh: &fresh, times };
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
