use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::base::engine_clock::Times;
use crate::base::ids::{GpuModel, InstanceType, PoolName, SupplierName};
use crate::base::units::{MiB, Milli};
use crate::catalogue::Catalogue;
use crate::choose::candidate::{Candidate, OfferVerdict};
use crate::choose::what_if::what_if;
use crate::facts::supply::MarketFacts;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::policy::{Policy, RawPolicy};
use crate::state::memory::Memory;

/// Cloud, region, zone, price of a node on demand in micro-dollars. AWS's west is 2 dollars cheaper than its east, GCP's Europe than its
/// America.
const SOLD: [(&str, &str, &str, i64); 6] = [
    ("aws", "us-east-1", "use1-az1", 32_000_000),
    ("aws", "us-east-1", "use1-az2", 31_990_000),
    ("aws", "us-west-2", "usw2-az1", 30_000_000),
    ("aws", "il-central-1", "ilc1-az1", 29_000_000),
    ("gcp", "us-central1", "us-central1-a", 32_000_000),
    ("gcp", "europe-west4", "europe-west4-a", 30_000_000),
];

fn cloud(name: &str) -> Cloud {
    Cloud::new(name).unwrap()
}

fn region(name: &str) -> Region {
    Region::new(name).unwrap()
}

fn hop(cloud_name: &str, crosses: Crossing, from: End, to: End) -> Hop {
    Hop { cloud: cloud(cloud_name), crosses, from, to }
}

fn transfers() -> TransferPrices {
    let mut prices = TransferPrices::default();
    for (at, name, continent) in [
        ("aws", "us-east-1", Continent::NorthAmerica),
        ("aws", "us-west-2", Continent::NorthAmerica),
        ("gcp", "us-central1", Continent::NorthAmerica),
        ("gcp", "europe-west4", Continent::Europe),
    ] {
        prices.insert_continent(cloud(at), region(name), continent);
    }
    let west = End::Region(region("us-west-2"));
    let east = End::Region(region("us-east-1"));
    let (america, europe) = (End::Continent(Continent::NorthAmerica), End::Continent(Continent::Europe));
    prices.insert(hop("aws", Crossing::Region, east.clone(), west), UsdPerGiB(20_000));
    prices.insert(hop("aws", Crossing::Internet, east, End::Anywhere), UsdPerGiB(90_000));
    prices.insert(hop("aws", Crossing::Zone, End::Anywhere, End::Anywhere), UsdPerGiB(20_000));
    prices.insert(hop("gcp", Crossing::Region, america, europe), UsdPerGiB(50_000));
    prices
}

fn book(capacity_types: &[CapacityType]) -> PriceBook {
    let mut book = PriceBook::new();
    for (at, name, zone, price) in SOLD {
        let place = Place {
            cloud: cloud(at),
            region: region(name),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new("big").unwrap(),
        };
        book.insert_spec(InstanceSpec {
            cloud: place.cloud.clone(),
            instance_type: place.instance_type.clone(),
            gpu_model: GpuModel::new("A100").unwrap(),
            gpus: Milli(8000),
            gpu_memory: MiB::from_gib(40),
            vcpus: Some(96),
            memory: Some(MiB::from_gib(1152)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for &capacity_type in capacity_types {
            let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: None, source: "test".into() };
            book.insert(Market { place: place.clone(), capacity_type }, Entry::Price(quote));
        }
    }
    book.set_transfers(transfers());
    book
}

/// The catalogue of a pool that may buy in these regions, with this said of where beside.
fn catalogue(clouds: &[&str], regions: &[&str], more: &Value, prefer: &[CapacityType]) -> Catalogue {
    committed(clouds, regions, more, prefer, &json!([]))
}

fn committed(clouds: &[&str], regions: &[&str], more: &Value, prefer: &[CapacityType], commitments: &Value) -> Catalogue {
    let mut place = json!({ "clouds": clouds, "regions": regions });
    place.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test", "defaults": {"unknownQuota": "allow"},
        "pools": [{
            "name": "p", "workload": "training", "gpu": {"models": ["A100"]}, "where": place,
            "capacity": {"prefer": prefer}, "limits": {"maxNodes": 9},
        }],
        "commitments": commitments,
    }))
    .unwrap();
    let policy = Policy::try_from_raw(&raw).unwrap_or_else(|faults| panic!("{faults:?}"));
    let facts = MarketFacts { clouds: ["aws", "gcp"].map(cloud).into(), ..MarketFacts::default() };
    Catalogue::derive(&Arc::new(policy), &book(prefer), &[(SupplierName::new("test").unwrap(), facts)].into())
}

fn on_demand(clouds: &[&str], regions: &[&str], more: &Value) -> Catalogue {
    catalogue(clouds, regions, more, &[CapacityType::OnDemand])
}

fn left_out(catalogue: &Catalogue) -> Vec<String> {
    catalogue.left_out.iter().map(|left| format!("{}: {}", left.place.region, left.why)).collect()
}

fn weighed(catalogue: &Catalogue) -> Vec<Candidate> {
    what_if(catalogue, &Memory::default(), &PoolName::new("p").unwrap(), None, 1, Times::at(Timestamp::UNIX_EPOCH)).candidates
}

/// The region of the node that is bought.
fn bought(catalogue: &Catalogue) -> String {
    let chosen =
        weighed(catalogue).into_iter().find(|c| matches!(c.verdict, OfferVerdict::Chosen { .. })).expect("one is bought");
    chosen.market.place.region.to_string()
}

/// The break-even of moving 10 TB. Across the Atlantic 10,000 GiB × $0.05 are $500, and Europe saves $32 − $30 = $2 an hour: staying wins
/// below $500 ÷ $2 = 250 node-hours between two readings. Within AWS they are 10,000 × $0.02 = $200: below 100.
#[test]
fn staying_with_ten_terabytes_wins_below_the_break_even() {
    let data = |at: &str, every: &str| json!({"datasetGiB": 10_000, "dataRegion": at, "datasetReadEvery": every});
    let gcp = |every: &str| on_demand(&["gcp"], &["us-central1", "europe-west4"], &data("gcp/us-central1", every));
    assert_eq!(bought(&gcp("249h")), "us-central1");
    assert_eq!(bought(&gcp("251h")), "europe-west4");
    // In the east the cheaper zone counts: $31.99 − $30 = $1.99, and $200 ÷ $1.99 = 100.5.
    let aws = |every: &str| on_demand(&["aws"], &["us-east-1", "us-west-2"], &data("aws/us-east-1", every));
    assert_eq!(bought(&aws("100h")), "us-east-1");
    assert_eq!(bought(&aws("101h")), "us-west-2");
    // Without data the cheaper price wins.
    assert_eq!(bought(&on_demand(&["aws"], &["us-east-1", "us-west-2"], &json!({}))), "us-west-2");
}

#[test]
fn transfer_is_a_part_of_the_effective_price_and_no_cash() {
    let data = json!({"datasetGiB": 600, "dataRegion": "aws/us-east-1"});
    let catalogue = on_demand(&["aws"], &["us-east-1", "us-west-2"], &data);
    let parts = |region: &str| {
        let candidate = weighed(&catalogue).into_iter().find(|c| c.market.place.region.as_str() == region).unwrap();
        let parts = candidate.price.unwrap();
        (parts.quote.price.0, parts.transfer.map(|t| t.0), parts.effective.0, parts.cash.0, parts.per_gpu.0)
    };
    // 600 GiB × $0.02 = $12 a day by default: $0.50 an hour; a GPU of eight is $30.50 ÷ 8.
    assert_eq!(parts("us-west-2"), (30_000_000, Some(500_000), 30_500_000, 30_000_000, 3_812_500));
    assert_eq!(parts("us-east-1").1, None);
}

#[test]
fn every_reclaim_reads_the_data_again() {
    // 100 GiB × $0.09 = $9: once a day $0.375 an hour, and at 0.16 reclaims an hour $1.44 more.
    let transfer = Transfer { per_read: UsdMicros(9_000_000), every: SignedDuration::from_hours(24) };
    assert_eq!(transfer.per_hour(Hazard(0)), UsdPerHour(375_000));
    assert_eq!(transfer.per_hour(Hazard(160_000_000)), UsdPerHour(1_815_000));
    // A micro-dollar that does not come out even counts as a whole one, and what is beyond a rate is held at its end.
    let odd = Transfer { per_read: UsdMicros(1), every: SignedDuration::from_hours(24) };
    assert_eq!(odd.per_hour(Hazard(0)), UsdPerHour(1));
    let huge = Transfer { per_read: UsdMicros(i64::MAX), every: SignedDuration::from_mins(1) };
    assert_eq!(huge.per_hour(Hazard(u64::MAX)), UsdPerHour(i64::MAX));
    let data = json!({"datasetGiB": 450, "dataRegion": "aws/us-east-1"});
    let catalogue = catalogue(&["aws"], &["us-west-2"], &data, &[CapacityType::Spot]);
    let parts = weighed(&catalogue).remove(0).price.unwrap();
    // 450 GiB × $0.02 = $9 again, at the hazard that is assumed where no table has one. An hour of useful time pays for both.
    assert_eq!(parts.transfer, Some(UsdPerHour(1_815_000)));
    assert_eq!(parts.effective, crate::policy::rules::spot::effective(UsdPerHour(31_815_000), parts.spot.unwrap().useful));
}

#[test]
fn a_place_without_a_transfer_price_is_left_out_only_where_data_must_move() {
    let regions = ["us-east-1", "us-west-2", "il-central-1"];
    let data = json!({"datasetGiB": 1, "dataRegion": "aws/us-east-1"});
    let catalogue = on_demand(&["aws"], &regions, &data);
    let why = "il-central-1: no transfer price is known from aws/us-east-1, where the pool's data is, to aws/il-central-1";
    assert_eq!(left_out(&catalogue), [why]);
    assert_eq!(catalogue.groups.len(), 3);
    // From there nothing is known at all, and there nothing has to move.
    let catalogue = on_demand(&["aws"], &["il-central-1"], &json!({"datasetGiB": 1, "dataRegion": "aws/il-central-1"}));
    assert_eq!((left_out(&catalogue), catalogue.groups.len()), (Vec::new(), 1));
    assert_eq!(on_demand(&["aws"], &regions, &json!({})).groups.len(), 4);
    // Another cloud is reached over the internet.
    let catalogue = on_demand(&["aws", "gcp"], &["us-east-1", "us-central1"], &data);
    let away = catalogue.groups.values().find(|group| group.place.cloud.as_str() == "gcp").unwrap();
    assert_eq!(away.transfer.map(|t| t.per_read), Some(UsdMicros(90_000)));
}

#[test]
fn distance_leaves_out_what_is_farther() {
    let (clouds, regions) = (["aws", "gcp"], ["us-east-1", "us-west-2", "il-central-1", "us-central1", "europe-west4"]);
    let within = |word: &str| on_demand(&clouds, &regions, &json!({"dataRegion": "aws/us-east-1", "maxDistance": word}));
    let places = |catalogue: &Catalogue| {
        let mut regions: Vec<String> = catalogue.groups.values().map(|group| group.place.region.to_string()).collect();
        regions.sort();
        regions.dedup();
        regions
    };
    assert_eq!(places(&within("region")), ["us-east-1"]);
    let continent = within("continent");
    assert_eq!(places(&continent), ["us-central1", "us-east-1", "us-west-2"]);
    assert_eq!(
        left_out(&continent),
        [
            "il-central-1: the continent of aws/il-central-1 is unknown, and where.maxDistance is continent",
            "europe-west4: the pool's data is in aws/us-east-1, and where.maxDistance is continent",
        ]
    );
}

#[test]
fn a_disk_of_one_zone_is_read_from_the_others_at_a_price() {
    let data = json!({"datasetGiB": 1200, "dataRegion": "aws/us-east-1/use1-az1"});
    let catalogue = on_demand(&["aws"], &["us-east-1"], &data);
    let reads = catalogue.groups.values().map(|group| (group.place.zone.as_str(), group.transfer.map(|t| t.per_read.0)));
    assert_eq!(reads.collect::<Vec<_>>(), [("use1-az1", None), ("use1-az2", Some(24_000_000))]);
    // The cheaper zone saves a cent an hour and costs a dollar to read from.
    let chosen = weighed(&catalogue).into_iter().find(|c| matches!(c.verdict, OfferVerdict::Chosen { .. })).unwrap();
    assert_eq!(chosen.market.place.zone.as_str(), "use1-az1");
}

#[test]
fn a_covered_node_far_from_the_data_is_not_free() {
    let with = |gib: u32| {
        let data = json!({"datasetGiB": gib, "dataRegion": "aws/us-east-1"});
        let paid = json!([{
            "name": "ri", "cloud": "aws", "kind": "reserved-instance", "region": "us-west-2", "instanceType": "big", "nodes": 1,
            "usdPerHour": 20,
        }]);
        bought(&committed(&["aws"], &["us-east-1", "us-west-2"], &data, &[CapacityType::OnDemand], &paid))
    };
    // The node itself costs a trifle. 600 GiB are $0.50 an hour, which is less than $31.99; 60,000 GiB are $50.
    assert_eq!(with(600), "us-west-2");
    assert_eq!(with(60_000), "us-east-1");
}

#[test]
fn the_price_that_says_most_of_where_the_data_goes_counts() {
    let mut prices = transfers();
    let site = |text: &str| crate::market::transfer::Site { cloud: cloud("gcp"), region: region(text), zone: None };
    let price = |prices: &TransferPrices| prices.price(&site("us-central1"), &site("europe-west4")).map(|price| price.0);
    assert_eq!(price(&prices), Some(50_000));
    let from = End::Region(region("us-central1"));
    prices.insert(hop("gcp", Crossing::Region, from.clone(), End::Anywhere), UsdPerGiB(1));
    assert_eq!(price(&prices), Some(50_000));
    prices.insert(hop("gcp", Crossing::Region, from, End::Continent(Continent::Europe)), UsdPerGiB(2));
    assert_eq!(price(&prices), Some(2));
    prices.insert(hop("gcp", Crossing::Region, End::Anywhere, End::Region(region("europe-west4"))), UsdPerGiB(3));
    assert_eq!(price(&prices), Some(3));
    // Written and read again it says the same.
    let text = serde_json::to_string(&prices).unwrap();
    assert_eq!(serde_json::from_str::<TransferPrices>(&text).unwrap(), prices);
}
