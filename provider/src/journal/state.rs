//! The three things that change all the time, as parts that tell their changes: memory, snapshot, market facts.
//!
//! Every type is taken apart by its fields, so that one that gets another field does not compile until the journal keeps that too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::aside::{Announced, Aside, Replacements};
use stoker_core::budget::{BudgetOf, Stage};
use stoker_core::demand::PoolDemand;
use stoker_core::floor::FloorMemory;
use stoker_core::ids::{
    Cloud, LaunchKey, NodeGroupId, NodeName, PoolName, ProviderId, RecordId, Region, SessionId, SupplierName, ZoneId, ZoneName,
};
use stoker_core::images::{NodeImages, PoolImages};
use stoker_core::leaving::{Leaving, Moves};
use stoker_core::memory::{Backoff, GroupMemory, Memory};
use stoker_core::offer::{Market, Place};
use stoker_core::price::Quote;
use stoker_core::reading::seen::Seen;
use stoker_core::record::Record;
use stoker_core::snapshot::{ClusterFacts, Drained, NodeFacts, Snapshot};
use stoker_core::spot::{RegionReclaims, SpotHistory};
use stoker_core::supply::{Instance, LaunchOutcome, MarketFacts, Observation};
use stoker_core::watched::Watched;
use stoker_core::window::Released;

use super::delta::{MapDelta, Part, SetDelta};

/// What suppliers know of their markets.
pub type Facts = BTreeMap<SupplierName, MarketFacts>;

/// What changed in the memory. Numbers are written whole.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MemoryDelta {
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    pub(super) records: MapDelta<RecordId, Arc<Record>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    refused: MapDelta<Market, Arc<Backoff>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    groups: MapDelta<NodeGroupId, Arc<GroupMemory>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    orphans: SetDelta<ProviderId>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    spot: MapDelta<Place, Arc<SpotHistory>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    reclaims: MapDelta<(Cloud, Region), Arc<RegionReclaims>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    leaving: MapDelta<RecordId, Arc<Leaving>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    aside: MapDelta<RecordId, Arc<Aside>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    announced: MapDelta<RecordId, Arc<Announced>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    replaced: MapDelta<PoolName, Arc<Replacements>>,
    #[serde(default, rename = "idle", skip_serializing_if = "MapDelta::is_empty")]
    free: MapDelta<RecordId, Timestamp>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    moves: MapDelta<PoolName, Arc<Moves>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    floors: MapDelta<PoolName, Arc<FloorMemory>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    windows: MapDelta<PoolName, Arc<Released>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    images: MapDelta<PoolName, Arc<PoolImages>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    budgets: MapDelta<BudgetOf, Stage>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    watched: MapDelta<RecordId, Arc<Watched>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    lapsed: MapDelta<PoolName, Timestamp>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    unlisted: MapDelta<ProviderId, Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watched_at: Option<Timestamp>,
    exposure_at: Option<Timestamp>,
    next_record: u64,
    next_order: u64,
    session: Option<SessionId>,
}

impl Part for Memory {
    type Delta = MemoryDelta;

    fn whole(&self) -> MemoryDelta {
        let Self {
            records,
            refused,
            groups,
            orphans,
            spot,
            reclaims,
            leaving,
            aside,
            announced,
            replaced,
            free,
            moves,
            floors,
            windows,
            images,
            budgets,
            watched,
            lapsed,
            unlisted,
            watched_at,
            exposure_at,
            next_record,
            next_order,
            session,
        } = self;
        MemoryDelta {
            records: records.whole(),
            refused: refused.whole(),
            groups: groups.whole(),
            orphans: orphans.whole(),
            spot: spot.whole(),
            reclaims: reclaims.whole(),
            leaving: leaving.whole(),
            aside: aside.whole(),
            announced: announced.whole(),
            replaced: replaced.whole(),
            free: free.whole(),
            moves: moves.whole(),
            floors: floors.whole(),
            windows: windows.whole(),
            images: images.whole(),
            budgets: budgets.whole(),
            watched: watched.whole(),
            lapsed: lapsed.whole(),
            unlisted: unlisted.whole(),
            watched_at: *watched_at,
            exposure_at: *exposure_at,
            next_record: *next_record,
            next_order: *next_order,
            session: *session,
        }
    }

    fn since(&self, before: &Self) -> Option<MemoryDelta> {
        let Self {
            records,
            refused,
            groups,
            orphans,
            spot,
            reclaims,
            leaving,
            aside,
            announced,
            replaced,
            free,
            moves,
            floors,
            windows,
            images,
            budgets,
            watched,
            lapsed,
            unlisted,
            watched_at,
            exposure_at,
            next_record,
            next_order,
            session,
        } = self;
        let delta = MemoryDelta {
            records: records.since(&before.records).unwrap_or_default(),
            refused: refused.since(&before.refused).unwrap_or_default(),
            groups: groups.since(&before.groups).unwrap_or_default(),
            orphans: orphans.since(&before.orphans).unwrap_or_default(),
            spot: spot.since(&before.spot).unwrap_or_default(),
            reclaims: reclaims.since(&before.reclaims).unwrap_or_default(),
            leaving: leaving.since(&before.leaving).unwrap_or_default(),
            aside: aside.since(&before.aside).unwrap_or_default(),
            announced: announced.since(&before.announced).unwrap_or_default(),
            replaced: replaced.since(&before.replaced).unwrap_or_default(),
            free: free.since(&before.free).unwrap_or_default(),
            moves: moves.since(&before.moves).unwrap_or_default(),
            floors: floors.since(&before.floors).unwrap_or_default(),
            windows: windows.since(&before.windows).unwrap_or_default(),
            images: images.since(&before.images).unwrap_or_default(),
            budgets: budgets.since(&before.budgets).unwrap_or_default(),
            watched: watched.since(&before.watched).unwrap_or_default(),
            lapsed: lapsed.since(&before.lapsed).unwrap_or_default(),
            unlisted: unlisted.since(&before.unlisted).unwrap_or_default(),
            watched_at: *watched_at,
            exposure_at: *exposure_at,
            next_record: *next_record,
            next_order: *next_order,
            session: *session,
        };
        let numbers = (*next_record, *next_order, *session, *exposure_at, *watched_at)
            != (before.next_record, before.next_order, before.session, before.exposure_at, before.watched_at);
        let any = numbers
            || !delta.records.is_empty()
            || !delta.refused.is_empty()
            || !delta.groups.is_empty()
            || !delta.orphans.is_empty()
            || !delta.spot.is_empty()
            || !delta.reclaims.is_empty()
            || !delta.leaving.is_empty()
            || !delta.aside.is_empty()
            || !delta.announced.is_empty()
            || !delta.replaced.is_empty()
            || !delta.free.is_empty()
            || !delta.windows.is_empty()
            || !delta.moves.is_empty()
            || !delta.images.is_empty()
            || !delta.floors.is_empty()
            || !delta.budgets.is_empty()
            || !delta.watched.is_empty()
            || !delta.lapsed.is_empty()
            || !delta.unlisted.is_empty();
        any.then_some(delta)
    }

    fn apply(before: Option<Self>, delta: MemoryDelta) -> Self {
        let before = before.unwrap_or_default();
        let MemoryDelta {
            records,
            refused,
            groups,
            orphans,
            spot,
            reclaims,
            leaving,
            aside,
            announced,
            replaced,
            free,
            moves,
            floors,
            windows,
            images,
            budgets,
            watched,
            lapsed,
            unlisted,
            watched_at,
            exposure_at,
            next_record,
            next_order,
            session,
        } = delta;
        Self {
            records: Part::apply(Some(before.records), records),
            refused: Part::apply(Some(before.refused), refused),
            groups: Part::apply(Some(before.groups), groups),
            orphans: Part::apply(Some(before.orphans), orphans),
            spot: Part::apply(Some(before.spot), spot),
            reclaims: Part::apply(Some(before.reclaims), reclaims),
            leaving: Part::apply(Some(before.leaving), leaving),
            aside: Part::apply(Some(before.aside), aside),
            announced: Part::apply(Some(before.announced), announced),
            replaced: Part::apply(Some(before.replaced), replaced),
            free: Part::apply(Some(before.free), free),
            moves: Part::apply(Some(before.moves), moves),
            floors: Part::apply(Some(before.floors), floors),
            windows: Part::apply(Some(before.windows), windows),
            images: Part::apply(Some(before.images), images),
            budgets: Part::apply(Some(before.budgets), budgets),
            watched: Part::apply(Some(before.watched), watched),
            lapsed: Part::apply(Some(before.lapsed), lapsed),
            unlisted: Part::apply(Some(before.unlisted), unlisted),
            watched_at,
            exposure_at,
            next_record,
            next_order,
            session,
        }
    }
}

/// What changed in the snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SnapshotDelta {
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    suppliers: MapDelta<SupplierName, InventoryDelta>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterDelta>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    outcomes: MapDelta<LaunchKey, LaunchOutcome>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    launching: SetDelta<LaunchKey>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    terminating: SetDelta<ProviderId>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    drains: MapDelta<NodeName, Drained>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    seen: MapDelta<NodeName, Arc<Seen>>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    images: MapDelta<NodeName, Arc<NodeImages>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buffers: Option<bool>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    demand: MapDelta<PoolName, Arc<PoolDemand>>,
}

impl Part for Snapshot {
    type Delta = SnapshotDelta;

    fn whole(&self) -> SnapshotDelta {
        let Self { suppliers, cluster, outcomes, launching, terminating, drains, seen, buffers, images, demand } = self;
        SnapshotDelta {
            suppliers: suppliers.whole(),
            cluster: Some(cluster.whole()),
            outcomes: outcomes.whole(),
            launching: launching.whole(),
            terminating: terminating.whole(),
            drains: drains.whole(),
            seen: seen.whole(),
            images: images.whole(),
            buffers: *buffers,
            demand: demand.whole(),
        }
    }

    fn since(&self, before: &Self) -> Option<SnapshotDelta> {
        let Self { suppliers, cluster, outcomes, launching, terminating, drains, seen, buffers, images, demand } = self;
        let delta = SnapshotDelta {
            suppliers: suppliers.since(&before.suppliers).unwrap_or_default(),
            cluster: cluster.since(&before.cluster),
            outcomes: outcomes.since(&before.outcomes).unwrap_or_default(),
            launching: launching.since(&before.launching).unwrap_or_default(),
            terminating: terminating.since(&before.terminating).unwrap_or_default(),
            drains: drains.since(&before.drains).unwrap_or_default(),
            seen: seen.since(&before.seen).unwrap_or_default(),
            images: images.since(&before.images).unwrap_or_default(),
            buffers: *buffers,
            demand: demand.since(&before.demand).unwrap_or_default(),
        };
        let any = !delta.suppliers.is_empty()
            || delta.cluster.is_some()
            || !delta.outcomes.is_empty()
            || !delta.launching.is_empty()
            || !delta.terminating.is_empty()
            || !delta.drains.is_empty()
            || !delta.seen.is_empty()
            || !delta.images.is_empty()
            || *buffers != before.buffers
            || !delta.demand.is_empty();
        any.then_some(delta)
    }

    fn apply(before: Option<Self>, delta: SnapshotDelta) -> Self {
        let before = before.unwrap_or_default();
        let SnapshotDelta { suppliers, cluster, outcomes, launching, terminating, drains, seen, buffers, images, demand } =
            delta;
        Self {
            suppliers: Part::apply(Some(before.suppliers), suppliers),
            cluster: match cluster {
                Some(change) => Part::apply(Some(before.cluster), change),
                None => before.cluster,
            },
            outcomes: Part::apply(Some(before.outcomes), outcomes),
            launching: Part::apply(Some(before.launching), launching),
            terminating: Part::apply(Some(before.terminating), terminating),
            drains: Part::apply(Some(before.drains), drains),
            seen: Part::apply(Some(before.seen), seen),
            images: Part::apply(Some(before.images), images),
            buffers,
            demand: Part::apply(Some(before.demand), demand),
        }
    }
}

/// What changed in a supplier's inventory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum InventoryDelta {
    /// It has not answered.
    Unheard,
    /// It lists this.
    Listed {
        as_of: Timestamp,
        complete: bool,
        #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
        instances: MapDelta<ProviderId, Arc<Instance>>,
    },
}

impl Part for Option<Arc<Observation>> {
    type Delta = InventoryDelta;

    fn whole(&self) -> InventoryDelta {
        match self.as_deref() {
            None => InventoryDelta::Unheard,
            Some(Observation { as_of, complete, instances }) => {
                InventoryDelta::Listed { as_of: *as_of, complete: *complete, instances: instances.whole() }
            }
        }
    }

    fn since(&self, before: &Self) -> Option<InventoryDelta> {
        match (before, self) {
            (None, None) => None,
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) => None,
            (Some(before), Some(after)) => {
                let Observation { as_of, complete, instances } = after.as_ref();
                let instances = instances.since(&before.instances);
                let same = instances.is_none() && (*as_of, *complete) == (before.as_of, before.complete);
                (!same).then(|| InventoryDelta::Listed {
                    as_of: *as_of,
                    complete: *complete,
                    instances: instances.unwrap_or_default(),
                })
            }
            (None, Some(_)) | (Some(_), None) => Some(self.whole()),
        }
    }

    fn apply(before: Option<Self>, delta: InventoryDelta) -> Self {
        match delta {
            InventoryDelta::Unheard => None,
            InventoryDelta::Listed { as_of, complete, instances } => {
                let before = before.flatten().map(|listed| Arc::unwrap_or_clone(listed).instances);
                Some(Arc::new(Observation { as_of, complete, instances: Part::apply(before, instances) }))
            }
        }
    }
}

/// What changed in the cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ClusterDelta {
    /// There is no Kubernetes feed.
    Absent,
    /// Its nodes.
    Nodes(MapDelta<NodeName, Arc<NodeFacts>>),
}

impl Part for Option<Arc<ClusterFacts>> {
    type Delta = ClusterDelta;

    fn whole(&self) -> ClusterDelta {
        match self.as_deref() {
            None => ClusterDelta::Absent,
            Some(ClusterFacts { nodes }) => ClusterDelta::Nodes(nodes.whole()),
        }
    }

    fn since(&self, before: &Self) -> Option<ClusterDelta> {
        match (before, self) {
            (None, None) => None,
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) => None,
            (Some(before), Some(after)) => {
                let ClusterFacts { nodes } = after.as_ref();
                nodes.since(&before.nodes).map(ClusterDelta::Nodes)
            }
            (None, Some(_)) | (Some(_), None) => Some(self.whole()),
        }
    }

    fn apply(before: Option<Self>, delta: ClusterDelta) -> Self {
        match delta {
            ClusterDelta::Absent => None,
            ClusterDelta::Nodes(nodes) => {
                let before = before.flatten().map(|facts| Arc::unwrap_or_clone(facts).nodes);
                Some(Arc::new(ClusterFacts { nodes: Part::apply(before, nodes) }))
            }
        }
    }
}

/// What changed in what one supplier knows of its markets. Its few clouds are written whole.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MarketFactsDelta {
    clouds: BTreeSet<Cloud>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    zone_names: MapDelta<(Cloud, ZoneId), ZoneName>,
    #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
    quotes: MapDelta<Market, Quote>,
}

impl Part for MarketFacts {
    type Delta = MarketFactsDelta;

    fn whole(&self) -> MarketFactsDelta {
        let Self { clouds, zone_names, quotes } = self;
        MarketFactsDelta { clouds: clouds.clone(), zone_names: zone_names.whole(), quotes: quotes.whole() }
    }

    fn since(&self, before: &Self) -> Option<MarketFactsDelta> {
        let Self { clouds, zone_names, quotes } = self;
        let zone_names = zone_names.since(&before.zone_names);
        let quotes = quotes.since(&before.quotes);
        let same = *clouds == before.clouds && zone_names.is_none() && quotes.is_none();
        (!same).then(|| MarketFactsDelta {
            clouds: clouds.clone(),
            zone_names: zone_names.unwrap_or_default(),
            quotes: quotes.unwrap_or_default(),
        })
    }

    fn apply(before: Option<Self>, delta: MarketFactsDelta) -> Self {
        let before = before.unwrap_or_default();
        let MarketFactsDelta { clouds, zone_names, quotes } = delta;
        Self {
            clouds,
            zone_names: Part::apply(Some(before.zone_names), zone_names),
            quotes: Part::apply(Some(before.quotes), quotes),
        }
    }
}
