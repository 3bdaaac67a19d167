//! Spread of a pool's nodes over zones, for pools that limit the share of one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Usage, moved};
use crate::base::ids::{Cloud, PoolName, Region, ZoneId};
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

/// How many of a pool's nodes are in each zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneShare {
    /// Nodes bought or being bought that count: what the shares are shares of.
    pub bought: u32,
    /// By zone those of them, and the nodes wanted there.
    pub zones: BTreeMap<Zone, u32>,
}

impl ZoneShare {
    fn add(&mut self, place: &Place, nodes: i64) {
        let here = self.zones.entry(Zone::of(place)).or_default();
        *here = moved(*here, nodes);
    }
}

impl Usage {
    /// The count of a pool that limits its share of a zone; `None` for any other.
    fn zones_of(&mut self, group: &Group, catalogue: &Catalogue) -> Option<&mut ZoneShare> {
        catalogue.policy.pool(&group.pool)?.max_zone_share?;
        Some(Arc::make_mut(self.zones.entry(group.pool.clone()).or_default()))
    }

    /// Counts nodes bought at a place, or takes them out again.
    pub(super) fn zone_bought(&mut self, group: &Group, place: &Place, nodes: i64, catalogue: &Catalogue) {
        if let Some(share) = self.zones_of(group, catalogue) {
            share.bought = moved(share.bought, nodes);
            share.add(place, nodes);
        }
    }

    /// Counts a record that counts in its group: where it was bought, or will be.
    pub(super) fn zone_record(&mut self, record: &Record, group: &Group, sign: i64, catalogue: &Catalogue) {
        match record.purchase() {
            Some(purchase) => self.zone_bought(group, &purchase.market.place, sign, catalogue),
            None => {
                if let Some(share) = self.zones_of(group, catalogue) {
                    share.add(&group.place, sign);
                }
            }
        }
    }

    /// A pool's nodes that count in the zone of a place, and in all zones.
    pub(super) fn in_zone(&self, pool: &PoolName, place: &Place) -> (u32, u32) {
        let share = self.zones.get(pool);
        let here = share.and_then(|share| share.zones.get(&Zone::of(place))).copied().unwrap_or(0);
        (here, share.map_or(0, |share| share.bought))
    }
}
