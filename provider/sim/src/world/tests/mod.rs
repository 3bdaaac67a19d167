//! A small price book and worlds on it.

mod config;
mod facts;
mod fates;
mod launches;
mod restore;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{
    Cloud, ClusterName, GpuModel, InstanceType, LaunchKey, NodeGroupId, ProviderId, Region, ZoneId, ZoneName,
};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::facts::supply::{Instance, LaunchOutcome, LaunchRequest, RefusalKind};
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, NoSignal, PriceBook, Quote, QuoteKind};

use super::*;

pub(super) const SPOT: CapacityType = CapacityType::Spot;
pub(super) const ON_DEMAND: CapacityType = CapacityType::OnDemand;

/// The beginning of every test world.
pub(super) fn start() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

/// So many seconds later.
pub(super) fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

pub(super) fn market_of(cloud: &str, region: &str, zone: &str, instance_type: &str, capacity_type: CapacityType) -> Market {
    Market {
        place: Place {
            cloud: Cloud::new(cloud).unwrap(),
            region: Region::new(region).unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new(instance_type).unwrap(),
        },
        capacity_type,
    }
}

/// A market in AWS us-east-1.
pub(super) fn market(zone: &str, instance_type: &str, capacity_type: CapacityType) -> Market {
    market_of("aws", "us-east-1", zone, instance_type, capacity_type)
}

pub(super) fn l4() -> Market {
    market("use1-az1", "g6.xlarge", ON_DEMAND)
}

pub(super) fn l4_spot() -> Market {
    market("use1-az1", "g6.xlarge", SPOT)
}

fn price(micros: i64, kind: QuoteKind) -> Entry {
    let quote =
        Quote { price: UsdPerHour(micros), kind, as_of: "2025-04-04T00:00:00Z".parse().ok(), source: Arc::from("test") };
    Entry::Price(quote)
}

/// L4 and H100 in three zones of two regions of AWS, L4 on GCP, a type of Azure with an unruly name; spot quotes lapsed long ago.
pub(super) fn book() -> PriceBook {
    let mut book = PriceBook::new();
    let types = [
        ("aws", "g6.xlarge", 1, 24),
        ("aws", "p5.48xlarge", 8, 80),
        ("gcp", "g2-standard-4", 1, 24),
        ("azure", "Standard_NC4as_T4_v3", 1, 16),
    ];
    for (cloud, name, gpus, gib) in types {
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new(cloud).unwrap(),
            instance_type: InstanceType::new(name).unwrap(),
            gpu_model: GpuModel::new("X").unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(gib),
            vcpus: Some(4),
            memory: Some(MiB::from_gib(16)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
    }
    let places = [
        ("aws", "us-east-1", "use1-az1", "g6.xlarge", 804_800),
        ("aws", "us-east-1", "use1-az4", "g6.xlarge", 804_800),
        ("aws", "us-east-2", "use2-az1", "g6.xlarge", 804_800),
        ("aws", "us-east-1", "use1-az1", "p5.48xlarge", 55_040_000),
        ("gcp", "us-central1", "us-central1-a", "g2-standard-4", 706_832),
        ("azure", "eastus", "eastus-1", "Standard_NC4as_T4_v3", 526_000),
    ];
    for (cloud, region, zone, name, list) in places {
        book.insert(market_of(cloud, region, zone, name, ON_DEMAND), price(list, QuoteKind::List));
        book.insert(market_of(cloud, region, zone, name, SPOT), price(list / 2, QuoteKind::Spot));
    }
    book.insert(market("use1-az4", "p5.48xlarge", SPOT), Entry::NoSignal(NoSignal::PinnedAtOnDemand));
    book.insert(market("use1-az4", "p5.48xlarge", ON_DEMAND), Entry::NoSignal(NoSignal::ListOnly));
    book
}

/// A world in which nothing happens by chance but boots.
pub(super) fn calm() -> WorldConfig {
    let mut config = WorldConfig::default();
    config.reclaims.per_hour = 0.0;
    config.spells.spot_share = 0.0;
    config
}

pub(super) fn world(config: WorldConfig) -> World {
    World::new(config, &book(), start()).unwrap()
}

pub(super) fn cluster() -> ClusterName {
    ClusterName::new("test").unwrap()
}

pub(super) fn request(number: usize, market: &Market) -> LaunchRequest {
    LaunchRequest {
        key: LaunchKey::new(format!("test/pool.shape/{number}/1")).unwrap(),
        group: NodeGroupId::new("pool.shape").unwrap(),
        market: market.clone(),
        zone_name: ZoneName::from(&market.place.zone),
        reservation: None,
    }
}

/// Launches one machine in each market, numbered from `first`.
pub(super) fn launch(world: &mut World, now: Timestamp, first: usize, markets: &[Market]) -> Vec<LaunchOutcome> {
    let requests: Vec<_> = markets.iter().enumerate().map(|(n, market)| request(first + n, market)).collect();
    world.launch(now, &cluster(), &requests).into_iter().map(|(_, outcome)| outcome).collect()
}

/// Launches one machine that must succeed.
pub(super) fn launch_one(world: &mut World, now: Timestamp, number: usize, market: &Market) -> Instance {
    match launch(world, now, number, std::slice::from_ref(market)).remove(0) {
        LaunchOutcome::Launched(instance) => instance,
        other => panic!("{other:?}"),
    }
}

/// Why a launch was refused.
pub(super) fn refusal(outcome: &LaunchOutcome) -> (RefusalKind, &str) {
    match outcome {
        LaunchOutcome::Refused(refusal) => (refusal.kind, &refusal.message),
        other => panic!("{other:?}"),
    }
}

/// The state of a machine, by id.
pub(super) fn state(world: &mut World, now: Timestamp, id: &ProviderId) -> Option<stoker_core::facts::supply::InstanceState> {
    world.observe(now, &cluster()).unwrap().instances.get(id).map(|instance| instance.state)
}
