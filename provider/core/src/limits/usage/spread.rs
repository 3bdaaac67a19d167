//! Spread of a pool's nodes over zones and GPU models, for pools that limit the share of one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Usage, moved};
use crate::base::ids::{Cloud, GpuModel, PoolName, Region, ZoneId};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::market::offer::Place;
use crate::state::record::Record;

/// A zone, told from those of the same name elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: Region,
    /// The zone, by id.
    pub zone: ZoneId,
}

impl Zone {
    /// The zone of a place.
    pub fn of(place: &Place) -> Self {
        Self { cloud: place.cloud.clone(), region: place.region.clone(), zone: place.zone.clone() }
    }
}

/// The zone of a place, as a key that copies nothing: places of other instance types in the same zone are the same.
#[derive(Debug, Clone, Copy)]
pub struct ZoneOf<'a>(pub &'a Place);

impl ZoneOf<'_> {
    fn key(&self) -> (&Cloud, &Region, &ZoneId) {
        (&self.0.cloud, &self.0.region, &self.0.zone)
    }
}

impl PartialEq for ZoneOf<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ZoneOf<'_> {}

impl PartialOrd for ZoneOf<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ZoneOf<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// How the nodes of a pool spread over its zones, or over its GPU models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread<K> {
    /// Nodes bought or being bought that count: what the shares are shares of.
    pub bought: u32,
    /// By zone or model those of them, and the nodes wanted there.
    pub parts: BTreeMap<K, u32>,
}

impl<K> Default for Spread<K> {
    fn default() -> Self {
        Self { bought: 0, parts: BTreeMap::new() }
    }
}

impl<K: Ord> Spread<K> {
    /// Counts nodes of one part, or takes them out again.
    fn count(&mut self, part: K, nodes: i64, bought: bool) {
        if bought {
            self.bought = moved(self.bought, nodes);
        }
        let here = self.parts.entry(part).or_default();
        *here = moved(*here, nodes);
    }

    /// The nodes of a part, and all that are bought.
    fn part(&self, part: &K) -> (u32, u32) {
        (self.parts.get(part).copied().unwrap_or(0), self.bought)
    }
}

impl Usage {
    /// Counts nodes bought at a place, or takes them out again.
    pub(super) fn spread_bought(&mut self, group: &Group, place: &Place, nodes: i64, catalogue: &Catalogue) {
        self.spread(group, place, nodes, true, catalogue);
    }

    /// Counts a record that counts in its group: where it was bought, or will be.
    pub(super) fn spread_record(&mut self, record: &Record, group: &Group, sign: i64, catalogue: &Catalogue) {
        match record.purchase() {
            Some(purchase) => self.spread(group, &purchase.market.place, sign, true, catalogue),
            None => self.spread(group, &group.place, sign, false, catalogue),
        }
    }

    /// Only pools that limit the share of a zone, or of a model, are counted.
    fn spread(&mut self, group: &Group, place: &Place, nodes: i64, bought: bool, catalogue: &Catalogue) {
        let Some(pool) = catalogue.policy.pool(&group.pool) else { return };
        if pool.max_zone_share.is_some() {
            let zones = Arc::make_mut(self.zones.entry(group.pool.clone()).or_default());
            zones.count(Zone::of(place), nodes, bought);
        }
        if !pool.max_model_share.is_empty() {
            let models = Arc::make_mut(self.models.entry(group.pool.clone()).or_default());
            models.count(group.spec.gpu_model.clone(), nodes, bought);
        }
    }

    /// A pool's nodes that count in the zone of a place, and in all zones.
    pub(super) fn in_zone(&self, pool: &PoolName, place: &Place) -> (u32, u32) {
        self.zones.get(pool).map_or((0, 0), |zones| zones.part(&Zone::of(place)))
    }

    /// A pool's nodes that count of a GPU model, and of all models.
    pub(super) fn of_model(&self, pool: &PoolName, model: &GpuModel) -> (u32, u32) {
        self.models.get(pool).map_or((0, 0), |models| models.part(model))
    }
}
