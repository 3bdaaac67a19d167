//! Recount of zone and model shares, for the pools, zones and GPU models in which this pass buys.

use std::collections::{BTreeMap, BTreeSet};

use super::{ByGroup, Found, Violation};
use crate::base::ids::{GpuModel, PoolName, RecordId};
use crate::catalogue::Catalogue;
use crate::market::offer::Place;
use crate::state::memory::Memory;
use crate::state::record::{Purchase, State};

/// What a share is of.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Zone(String),
    Model(&'a GpuModel),
}

/// Nothing that this pass buys takes a zone or a model above its pool's share of it, in whole nodes rounded up.
pub(super) fn shares(
    growing: &BTreeSet<RecordId>,
    by_group: &ByGroup<'_>,
    memory: &Memory,
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    let is_limited = |name: &PoolName| {
        let pool = catalogue.policy.pool(name);
        pool.is_some_and(|pool| pool.max_zone_share.is_some() || !pool.max_model_share.is_empty())
    };
    if growing.is_empty() || !catalogue.policy.pools.iter().any(|pool| is_limited(&pool.name)) {
        return;
    }
    let zone_of = |place: &Place| format!("{}/{}/{}", place.cloud, place.region, place.zone);
    let mut nodes: BTreeMap<&PoolName, u64> = BTreeMap::new();
    let mut parts: BTreeMap<(&PoolName, Part<'_>), (u64, bool)> = BTreeMap::new();
    for (group, records) in by_group {
        let Some(group) = catalogue.group_or_remembered(group, memory).filter(|group| is_limited(&group.pool)) else {
            continue;
        };
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
            *nodes.entry(&group.pool).or_default() += more;
            for part in [Part::Zone(zone_of(place)), Part::Model(&group.spec.gpu_model)] {
                let (here, grows) = parts.entry((&group.pool, part)).or_default();
                *here += more;
                *grows |= grow;
            }
        }
    }
    for ((name, part), (here, _)) in parts.into_iter().filter(|(_, (_, grows))| *grows) {
        let (Some(&nodes), Some(pool)) = (nodes.get(name), catalogue.policy.pool(name)) else { continue };
        let limit = match &part {
            Part::Zone(_) => pool.max_zone_share,
            Part::Model(model) => pool.max_model_share.get(model).copied(),
        };
        let Some(limit) = limit.filter(|limit| here > (u64::from(limit.0) * nodes).div_ceil(100)) else { continue };
        let pool = name.clone();
        found.pool(
            name,
            match part {
                Part::Zone(zone) => Violation::TooMuchInZone { pool, zone, here, nodes, limit },
                Part::Model(model) => Violation::TooMuchOfModel { pool, model: model.clone(), here, nodes, limit },
            },
        );
    }
}
