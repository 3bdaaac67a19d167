//! What the scenes' clouds sell, and the policies that are tried on them. Prices are round, for arithmetic by hand; their proportions
//! are about those of the clouds' lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, SupplierName, ZoneId};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{Arch, CapacityType, GpuNames, GpuSpec, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::policy::{Policy, RawPolicy};

/// An instance type: cloud, region, zones, name, GPU model, GPUs, vCPUs, price on demand and as spot in the first zone, in micro-dollars an
/// hour. Spot costs 20,000 more in each further zone, so that ties are rare and the first zone wins.
type Row = (&'static str, &'static str, &'static [&'static str], &'static str, &'static str, u32, u32, i64, i64);

const EAST: &[&str] = &["zone-a", "zone-b", "zone-c"];

const SOLD: [Row; 5] = [
    ("aws", "east", EAST, "g6.xlarge", "L4", 1, 4, 800_000, 300_000),
    ("aws", "east", EAST, "g6.12xlarge", "L4", 4, 48, 4_600_000, 1_800_000),
    ("aws", "east", EAST, "g5.xlarge", "A10G", 1, 4, 1_000_000, 450_000),
    ("aws", "east", EAST, "p5.48xlarge", "H100", 8, 192, 55_000_000, 20_000_000),
    ("gcp", "central", &["zone-g"], "g2-standard-4", "L4", 1, 4, 710_000, 280_000),
];

/// The only supplier.
pub(crate) fn supplier() -> SupplierName {
    SupplierName::new("sim").unwrap()
}

/// Prices of all that is sold, none of which lapses, and how its one GPU can be split that can.
pub(crate) fn book(now: Timestamp) -> PriceBook {
    let mut book = PriceBook::new();
    book.insert_gpu(GpuSpec {
        model: GpuModel::new("H100").unwrap(),
        memory: MiB::from_gib(80),
        bandwidth_gb_s: None,
        fp16_gflops: None,
        fp8_gflops: None,
        compute_capability: None,
        mig_max_instances: Some(7),
        mig_profiles: vec!["1g.10gb".parse().unwrap()],
        nvlink_gb_s: None,
        names: GpuNames::default(),
    });
    for (cloud, region, zones, name, model, gpus, vcpus, on_demand, spot) in SOLD {
        let (cloud, instance_type) = (Cloud::new(cloud).unwrap(), InstanceType::new(name).unwrap());
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: instance_type.clone(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(gpus * 1000),
            gpu_memory: MiB::from_gib(if model == "H100" { 80 } else { 24 }),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(u64::from(vcpus) * 4)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for (place, zone) in (0_i64..).zip(zones) {
            let (region, zone) = (Region::new(region).unwrap(), ZoneId::new(zone).unwrap());
            let at = Place { cloud: cloud.clone(), region, zone, instance_type: instance_type.clone() };
            let prices = [
                (CapacityType::Spot, spot + place * 20_000),
                (CapacityType::OnDemand, on_demand),
                (CapacityType::Reserved, on_demand),
            ];
            for (capacity_type, price) in prices {
                let price = UsdPerHour(price);
                let quote = Quote { price, kind: QuoteKind::Operator, as_of: Some(now), source: Arc::from("scene") };
                book.insert(Market { place: at.clone(), capacity_type }, Entry::Price(quote));
            }
        }
    }
    book
}

fn row(market: &Market) -> &'static Row {
    SOLD.iter().find(|row| row.3 == market.place.instance_type.as_str()).unwrap()
}

/// What an hour of a machine of that market costs, in micro-dollars.
pub(crate) fn price(market: &Market) -> i64 {
    let (_, _, zones, _, _, _, _, on_demand, spot) = row(market);
    let place = zones.iter().position(|zone| *zone == market.place.zone.as_str()).unwrap();
    if market.capacity_type == CapacityType::Spot { spot + i64::try_from(place).unwrap() * 20_000 } else { *on_demand }
}

/// How many vCPUs a machine of that market has.
pub(crate) fn vcpus(market: &Market) -> u32 {
    row(market).6
}

/// A policy from its part of the file below the heading.
///
/// # Panics
/// With every fault that it has.
pub(crate) fn policy(text: &str) -> Policy {
    let unknown_quota = if text.contains("unknownQuota") { "" } else { "defaults: { unknownQuota: allow }\n" };
    let whole = format!("apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: scene\n{unknown_quota}{text}");
    let raw: RawPolicy = serde_saphyr::from_str(&whole).unwrap();
    Policy::try_from_raw(&raw).unwrap_or_else(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        panic!("the scene's policy has faults:\n{}", faults.join("\n"))
    })
}

/// What the supplier knows of its markets.
pub(crate) fn facts() -> BTreeMap<SupplierName, MarketFacts> {
    let clouds = ["aws", "gcp"].map(|cloud| Cloud::new(cloud).unwrap());
    BTreeMap::from([(supplier(), MarketFacts { clouds: clouds.into(), ..MarketFacts::default() })])
}

/// The groups of a policy.
pub(crate) fn catalogue(policy: Policy, book: &PriceBook) -> Catalogue {
    Catalogue::derive(&Arc::new(policy), book, &facts())
}
