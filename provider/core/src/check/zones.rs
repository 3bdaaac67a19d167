//! Counts the shares of zones from the records, for the pools and zones in which this pass buys.

use std::collections::{BTreeMap, BTreeSet};

use super::Fatal;
use crate::group::Menu;
use crate::ids::{NodeGroupId, PoolName, RecordId};
use crate::memory::Memory;
use crate::offer::Place;
use crate::record::State;
use crate::units::Percent;

/// No zone that this pass buys in has more of its pool's nodes than the pool's share, in whole nodes rounded up.
pub(super) fn shares(growing: &BTreeSet<RecordId>, memory: &Memory, menu: &Menu, faults: &mut Vec<Fatal>) {
    let limits: BTreeMap<&PoolName, Percent> =
        menu.policy.pools.iter().filter_map(|pool| Some((&pool.name, pool.max_zone_share?))).collect();
    if limits.is_empty() || growing.is_empty() {
        return;
    }
    let pool_of = |id: &NodeGroupId| menu.group_or_remembered(id, memory).map(|group| &group.pool);
    let zone_of = |place: &Place| format!("{}/{}/{}", place.cloud, place.region, place.zone);
    let mut nodes: BTreeMap<&PoolName, u64> = BTreeMap::new();
    let mut zones: BTreeMap<(&PoolName, String), (u64, bool)> = BTreeMap::new();
    for record in memory.records.values() {
        let limited = pool_of(&record.group).filter(|pool| limits.contains_key(pool));
        let (Some(pool), Some(purchase)) = (limited, record.purchase()) else { continue };
        if matches!(record.state, State::Cancelled { .. } | State::Deleting { .. }) {
            continue;
        }
        *nodes.entry(pool).or_default() += 1;
        let (here, grows) = zones.entry((pool, zone_of(&purchase.market.place))).or_default();
        *here += 1;
        *grows |= growing.contains(&record.id);
    }
    for ((pool, zone), (here, _)) in zones.into_iter().filter(|(_, (_, grows))| *grows) {
        let (Some(&nodes), Some(&limit)) = (nodes.get(pool), limits.get(pool)) else { continue };
        if here > (u64::from(limit.0) * nodes).div_ceil(100) {
            faults.push(Fatal::TooMuchInZone { pool: pool.clone(), zone, here, nodes, limit });
        }
    }
}
