//! Recount of zone shares, for the pools and zones in which this pass buys.

use std::collections::{BTreeMap, BTreeSet};

use super::{ByGroup, Found, Violation};
use crate::base::ids::{NodeGroupId, PoolName, RecordId};
use crate::base::units::Percent;
use crate::catalogue::Catalogue;
use crate::market::offer::Place;
use crate::state::memory::Memory;
use crate::state::record::{Purchase, State};

/// No zone that this pass buys in has more of its pool's nodes than the pool's share, in whole nodes rounded up.
pub(super) fn shares(
    growing: &BTreeSet<RecordId>,
    by_group: &ByGroup<'_>,
    memory: &Memory,
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    let limits: BTreeMap<&PoolName, Percent> =
        catalogue.policy.pools.iter().filter_map(|pool| Some((&pool.name, pool.max_zone_share?))).collect();
    if limits.is_empty() || growing.is_empty() {
        return;
    }
    let pool_of = |id: &NodeGroupId| catalogue.group_or_remembered(id, memory).map(|group| &group.pool);
    let zone_of = |place: &Place| format!("{}/{}/{}", place.cloud, place.region, place.zone);
    let mut nodes: BTreeMap<&PoolName, u64> = BTreeMap::new();
    let mut zones: BTreeMap<(&PoolName, String), (u64, bool)> = BTreeMap::new();
    for (group, records) in by_group {
        let Some(pool) = pool_of(group).filter(|pool| limits.contains_key(pool)) else { continue };
        // The nodes of a group are of few places.
        let mut places: Vec<(&Place, u64, bool)> = Vec::new();
        for record in records {
            let Some(Purchase { market, .. }) = record.purchase() else { continue };
            if matches!(record.state, State::Cancelled { .. } | State::Deleting { .. }) {
                continue;
            }
            let grows = growing.contains(&record.id);
            match places.iter_mut().find(|(place, ..)| **place == market.place) {
                Some((_, here, any)) => (*here, *any) = (*here + 1, *any || grows),
                None => places.push((&market.place, 1, grows)),
            }
        }
        for (place, more, grow) in places {
            *nodes.entry(pool).or_default() += more;
            let (here, grows) = zones.entry((pool, zone_of(place))).or_default();
            *here += more;
            *grows |= grow;
        }
    }
    for ((pool, zone), (here, _)) in zones.into_iter().filter(|(_, (_, grows))| *grows) {
        let (Some(&nodes), Some(&limit)) = (nodes.get(pool), limits.get(pool)) else { continue };
        if here > (u64::from(limit.0) * nodes).div_ceil(100) {
            found.pool(pool, Violation::TooMuchInZone { pool: pool.clone(), zone, here, nodes, limit });
        }
    }
}
