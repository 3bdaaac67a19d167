//! The three things that change all the time, as parts that tell their changes: memory, snapshot, market facts.
//!
//! A type that gets another field does not compile until the journal keeps that too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{
    Cloud, Incarnation, InstanceType, LaunchKey, NodeClassName, NodeGroupId, NodeName, PoolName, ProviderId, RecordId, Region,
    SessionId, SupplierName, ZoneId, ZoneName,
};
use stoker_core::facts::foreign::Foreign;
use stoker_core::facts::images::{NodeImages, PoolImages};
use stoker_core::facts::outdated::Outdated;
use stoker_core::facts::reading::seen::Seen;
use stoker_core::facts::snapshot::{ClusterFacts, Drained, NodeFacts, Snapshot};
use stoker_core::facts::supply::{
    Covered, EndedWhy, Instance, LaunchOutcome, MachineFact, MarketFacts, Observation, QuotaFact, RefusedArea, ReservationFact,
};
use stoker_core::market::offer::{Market, Place};
use stoker_core::market::price::Quote;
use stoker_core::policy::QuotaKey;
use stoker_core::policy::rules::demand::PoolDemand;
use stoker_core::policy::rules::stabilization::Released;
use stoker_core::policy::rules::warm_floor::FloorMemory;
use stoker_core::state::budget::{BudgetOf, MonthSpend, Stage};
use stoker_core::state::cordon::{Announced, Cordoned, Replacements};
use stoker_core::state::disruption::{Disruption, Moves};
use stoker_core::state::memory::{Backoff, GroupMemory, Memory};
use stoker_core::state::outdated::OutdatedNode;
use stoker_core::state::paused::StandingFault;
use stoker_core::state::probe_history::ProbeHistory;
use stoker_core::state::probe_reclaims::ProbeReclaims;
use stoker_core::state::record::Record;
use stoker_core::state::shortfall::NodeShortfall;
use stoker_core::state::spot_history::{RegionReclaims, SpotHistory};

use super::delta::{MapDelta, Part, SetDelta};

/// What suppliers know of their markets.
pub type Facts = BTreeMap<SupplierName, MarketFacts>;

/// Defines the change of a struct and how it is told and applied. Maps and parts are written as what changed in them, other
/// fields whole. A struct that gets another field does not compile until it is named here.
macro_rules! delta {
    (
        $(#[$doc:meta])*
        $of:ident => $delta:ident:
        maps { $($map:ident: $map_type:ty,)* }
        parts { $($part:ident: $part_type:ty,)* }
        whole { $($value:ident: $value_type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Serialize, Deserialize)]
        pub(super) struct $delta {
            $(#[serde(default, skip_serializing_if = "MapDelta::is_empty")]
            pub(super) $map: $map_type,)*
            $(#[serde(default, skip_serializing_if = "Option::is_none")]
            $part: Option<$part_type>,)*
            // A row of an older release lacks what came after it.
            $(#[serde(default)]
            $value: $value_type,)*
        }

        impl Part for $of {
            type Delta = $delta;

            fn whole(&self) -> $delta {
                let Self { $($map,)* $($part,)* $($value,)* } = self;
                $delta {
                    $($map: $map.whole(),)*
                    $($part: Some($part.whole()),)*
                    $($value: Clone::clone($value),)*
                }
            }

            fn since(&self, before: &Self) -> Option<$delta> {
                let delta = $delta {
                    $($map: self.$map.since(&before.$map).unwrap_or_default(),)*
                    $($part: self.$part.since(&before.$part),)*
                    $($value: Clone::clone(&self.$value),)*
                };
                let changed = $(!delta.$map.is_empty() ||)* $(delta.$part.is_some() ||)* $(delta.$value != before.$value ||)* false;
                changed.then_some(delta)
            }

            fn apply(before: Option<Self>, delta: $delta) -> Self {
                let before = before.unwrap_or_default();
                Self {
                    $($map: Part::apply(Some(before.$map), delta.$map),)*
                    $($part: match delta.$part {
                        Some(change) => Part::apply(Some(before.$part), change),
                        None => before.$part,
                    },)*
                    $($value: delta.$value,)*
                }
            }
        }
    };
}

delta! {
    /// What changed in the memory.
    Memory => MemoryDelta:
    maps {
        records: MapDelta<RecordId, Arc<Record>>,
        refused: MapDelta<Market, Arc<Backoff>>,
        refused_areas: MapDelta<RefusedArea, Arc<Backoff>>,
        groups: MapDelta<NodeGroupId, Arc<GroupMemory>>,
        orphans: SetDelta<ProviderId>,
        spot: MapDelta<Place, Arc<SpotHistory>>,
        reclaims: MapDelta<(Cloud, Region), Arc<RegionReclaims>>,
        disruptions: MapDelta<RecordId, Arc<Disruption>>,
        cordons: MapDelta<RecordId, Arc<Cordoned>>,
        announced: MapDelta<RecordId, Arc<Announced>>,
        replaced: MapDelta<PoolName, Arc<Replacements>>,
        outdated: MapDelta<RecordId, Arc<OutdatedNode>>,
        outdated_replaced: MapDelta<PoolName, Timestamp>,
        shortfalls: MapDelta<(PoolName, InstanceType), Arc<NodeShortfall>>,
        probe_reclaims: MapDelta<PoolName, Arc<ProbeReclaims>>,
        free: MapDelta<RecordId, Timestamp>,
        moves: MapDelta<PoolName, Arc<Moves>>,
        floors: MapDelta<PoolName, Arc<FloorMemory>>,
        windows: MapDelta<PoolName, Arc<Released>>,
        images: MapDelta<PoolName, Arc<PoolImages>>,
        budgets: MapDelta<BudgetOf, Stage>,
        months: MapDelta<BudgetOf, Arc<MonthSpend>>,
        probe_history: MapDelta<RecordId, Arc<ProbeHistory>>,
        lapsed: MapDelta<PoolName, Timestamp>,
    }
    parts {
        foreign: ForeignDelta,
    }
    whole {
        watched_at: Option<Timestamp>,
        exposure_at: Option<Timestamp>,
        next_record: u64,
        next_order: u64,
        session: Option<SessionId>,
        incarnation: Option<Incarnation>,
        cautious_until: Option<Timestamp>,
        faults: Vec<StandingFault>,
    }
}

delta! {
    /// What changed in the snapshot.
    Snapshot => SnapshotDelta:
    maps {
        suppliers: MapDelta<SupplierName, InventoryDelta>,
        outcomes: MapDelta<LaunchKey, LaunchOutcome>,
        launching: SetDelta<LaunchKey>,
        terminating: SetDelta<ProviderId>,
        drains: MapDelta<NodeName, Drained>,
        seen: MapDelta<NodeName, Arc<Seen>>,
        images: MapDelta<NodeName, Arc<NodeImages>>,
        demand: MapDelta<PoolName, Arc<PoolDemand>>,
    }
    parts {
        cluster: ClusterDelta,
        foreign: ForeignDelta,
    }
    whole {
        wall: Wall,
        buffers: Option<bool>,
    }
}

/// What changed in a supplier's inventory.
#[expect(clippy::large_enum_variant, reason = "there is one a supplier, and it lives as long as it is written or read")]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum InventoryDelta {
    /// It has not answered.
    Unheard,
    /// It lists this.
    Listed {
        // What an older release wrote covers nothing, and so nothing is concluded from it.
        #[serde(default)]
        covered: Covered,
        complete: bool,
        #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
        ended: MapDelta<ProviderId, EndedWhy>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        impaired: BTreeMap<ProviderId, String>,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        unsure: BTreeSet<(Cloud, Region)>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        zones: BTreeMap<ZoneId, Timestamp>,
        #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
        outdated: MapDelta<ProviderId, Option<Outdated>>,
        #[serde(default, skip_serializing_if = "MapDelta::is_empty")]
        instances: MapDelta<ProviderId, Arc<Instance>>,
    },
}

impl InventoryDelta {
    /// What is listed, with what changed of the machines that ended, of those that are outdated and of all that there are.
    fn listed(
        listed: &Observation,
        ended: MapDelta<ProviderId, EndedWhy>,
        outdated: MapDelta<ProviderId, Option<Outdated>>,
        instances: MapDelta<ProviderId, Arc<Instance>>,
    ) -> Self {
        let (covered, complete) = (listed.covered.clone(), listed.complete);
        let (impaired, unsure) = (listed.impaired.clone(), listed.unsure.clone());
        let zones = listed.zones.clone();
        Self::Listed { covered, complete, ended, impaired, unsure, zones, outdated, instances }
    }
}

impl Part for Option<Arc<Observation>> {
    type Delta = InventoryDelta;

    fn whole(&self) -> InventoryDelta {
        match self.as_deref() {
            None => InventoryDelta::Unheard,
            Some(listed) => {
                InventoryDelta::listed(listed, listed.ended.whole(), listed.outdated.whole(), listed.instances.whole())
            }
        }
    }

    fn since(&self, before: &Self) -> Option<InventoryDelta> {
        match (before, self) {
            (None, None) => None,
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) => None,
            (Some(before), Some(after)) => {
                let (ended, instances) = (after.ended.since(&before.ended), after.instances.since(&before.instances));
                let outdated = after.outdated.since(&before.outdated);
                let same = (ended.is_none() && outdated.is_none() && instances.is_none())
                    && (&after.covered, after.complete) == (&before.covered, before.complete)
                    && (&after.impaired, &after.unsure) == (&before.impaired, &before.unsure)
                    && after.zones == before.zones;
                (!same).then(|| {
                    InventoryDelta::listed(
                        after,
                        ended.unwrap_or_default(),
                        outdated.unwrap_or_default(),
                        instances.unwrap_or_default(),
                    )
                })
            }
            (None, Some(_)) | (Some(_), None) => Some(self.whole()),
        }
    }

    fn apply(before: Option<Self>, delta: InventoryDelta) -> Self {
        match delta {
            InventoryDelta::Unheard => None,
            InventoryDelta::Listed { covered, complete, ended, impaired, unsure, zones, outdated, instances } => {
                let none = || Observation::complete(Timestamp::UNIX_EPOCH, BTreeMap::new());
                let before = before.flatten().map_or_else(none, Arc::unwrap_or_clone);
                Some(Arc::new(Observation {
                    covered,
                    complete,
                    ended: Part::apply(Some(before.ended), ended),
                    impaired,
                    unsure,
                    zones,
                    outdated: Part::apply(Some(before.outdated), outdated),
                    instances: Part::apply(Some(before.instances), instances),
                }))
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

/// What changed in the nodes that are not Stoker's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ForeignDelta {
    /// They are not known, or not asked for.
    Unknown,
    /// They are these.
    Known(Arc<Foreign>),
}

impl Part for Option<Arc<Foreign>> {
    type Delta = ForeignDelta;

    fn whole(&self) -> ForeignDelta {
        self.as_ref().map_or(ForeignDelta::Unknown, |foreign| ForeignDelta::Known(Arc::clone(foreign)))
    }

    fn since(&self, before: &Self) -> Option<ForeignDelta> {
        (self != before).then(|| self.whole())
    }

    fn apply(_: Option<Self>, delta: ForeignDelta) -> Self {
        match delta {
            ForeignDelta::Unknown => None,
            ForeignDelta::Known(foreign) => Some(foreign),
        }
    }
}

delta! {
    /// What changed in what one supplier knows of its markets.
    MarketFacts => MarketFactsDelta:
    maps {
        zone_names: MapDelta<(Cloud, ZoneId), ZoneName>,
        quotes: MapDelta<Market, Quote>,
        quotas: MapDelta<QuotaKey, QuotaFact>,
        reservations: MapDelta<String, ReservationFact>,
        offered: MapDelta<(Cloud, Region), SetDelta<Place>>,
        machines: MapDelta<(Cloud, InstanceType), MachineFact>,
    }
    parts {}
    whole {
        clouds: BTreeSet<Cloud>,
        regions: Option<BTreeSet<(Cloud, Region)>>,
        node_classes: Option<BTreeSet<NodeClassName>>,
        labels_capacity_type: bool,
    }
}
