//! What moving data costs by the built-in tables, and where regions are.

use std::collections::BTreeSet;

use stoker_core::base::ids::{Cloud, Region, ZoneId};
use stoker_core::base::units::UsdMicros;
use stoker_core::market::transfer::{Continent, Site, UsdPerGiB};

use super::book;

/// `cloud/region`, or `cloud/region/zone`.
fn site(text: &str) -> Site {
    let mut parts = text.split('/');
    let mut next = || parts.next();
    Site {
        cloud: Cloud::new(next().unwrap()).unwrap(),
        region: Region::new(next().unwrap()).unwrap(),
        zone: next().map(|zone| ZoneId::new(zone).unwrap()),
    }
}

#[test]
fn every_region_that_sells_gpus_is_on_a_continent() {
    let book = book();
    let sold = book.entries().map(|(market, _)| (&market.place.cloud, &market.place.region));
    let listed = book.unzoned().map(|((cloud, region, _), _)| (cloud, region));
    let regions: BTreeSet<_> = sold.chain(listed).collect();
    let unknown: Vec<String> = regions
        .iter()
        .filter(|(cloud, region)| book.transfers().continent(cloud, region).is_none())
        .map(|(cloud, region)| format!("{cloud}/{region}"))
        .collect();
    // Clouds with one price everywhere do not say where they are.
    assert!(unknown.iter().all(|name| name.ends_with("/global")), "{unknown:?}");
    assert_eq!(book.transfers().regions().count(), 116);
    for (name, continent) in [
        ("aws/us-east-1", Continent::NorthAmerica),
        ("aws/ap-southeast-2", Continent::Oceania),
        ("aws/il-central-1", Continent::MiddleEast),
        ("gcp/northamerica-northeast1", Continent::NorthAmerica),
        ("gcp/me-west1", Continent::MiddleEast),
        ("azure/northeurope", Continent::Europe),
        ("azure/southafricanorth", Continent::Africa),
        ("azure/brazilsouth", Continent::SouthAmerica),
        ("nebius/eu-north1", Continent::Europe),
    ] {
        let site = site(name);
        assert_eq!(book.transfers().continent(&site.cloud, &site.region), Some(continent), "{name}");
    }
}

#[test]
fn a_gib_costs_what_the_lists_say_and_what_no_list_says_is_unknown() {
    let book = book();
    for (from, to, micros) in [
        // Between two regions the cloud that the data leaves charges.
        ("aws/us-east-1", "aws/us-west-2", Some(20_000)),
        ("aws/us-east-1", "aws/us-east-2", Some(10_000)),
        ("aws/ap-northeast-1", "aws/us-east-1", Some(90_000)),
        ("gcp/us-central1", "gcp/us-east1", Some(20_000)),
        ("gcp/us-central1", "gcp/europe-west4", Some(50_000)),
        ("gcp/europe-west4", "gcp/me-west1", Some(110_000)),
        ("gcp/asia-east1", "gcp/asia-southeast1", Some(80_000)),
        // Jakarta has prices of its own.
        ("gcp/asia-east1", "gcp/asia-southeast2", Some(100_000)),
        ("gcp/asia-southeast2", "gcp/australia-southeast1", Some(80_000)),
        ("azure/eastus", "azure/westus2", Some(20_000)),
        ("azure/eastus", "azure/westeurope", Some(50_000)),
        ("azure/brazilsouth", "azure/eastus", Some(160_000)),
        // To another cloud it goes over the internet.
        ("aws/us-east-1", "gcp/us-central1", Some(90_000)),
        ("aws/us-east-1", "nebius/eu-north1", Some(90_000)),
        ("gcp/us-central1", "aws/us-east-1", Some(120_000)),
        ("gcp/us-central1", "aws/ap-southeast-2", Some(190_000)),
        ("azure/westeurope", "aws/eu-west-1", Some(87_000)),
        // A bucket is read for nothing in its region, a disk in its zone.
        ("aws/us-east-1", "aws/us-east-1/use1-az6", Some(0)),
        ("aws/us-east-1/use1-az6", "aws/us-east-1/use1-az6", Some(0)),
        ("aws/us-east-1/use1-az6", "aws/us-east-1/use1-az1", Some(20_000)),
        ("gcp/us-central1/us-central1-a", "gcp/us-central1/us-central1-b", Some(10_000)),
        ("azure/eastus/1", "azure/eastus/2", Some(0)),
        // The source of AWS's prices does not have its newest regions, and of other clouds no source tells anything.
        ("aws/us-east-1", "aws/il-central-1", None),
        ("aws/il-central-1", "gcp/us-central1", None),
        ("nebius/eu-north1", "nebius/us-central1", None),
        ("lambda/global", "aws/us-east-1", None),
    ] {
        assert_eq!(book.transfers().price(&site(from), &site(to)), micros.map(UsdPerGiB), "{from} to {to}");
    }
}

#[test]
fn ten_terabytes_cost_about_500_dollars_across_the_atlantic_and_200_within_aws() {
    let book = book();
    let cost = |from, to| book.transfers().price(&site(from), &site(to)).map(|price| price.of(10_000));
    // 10,000 GiB × $0.05, and × $0.02.
    assert_eq!(cost("gcp/us-central1", "gcp/europe-west4"), Some(UsdMicros(500_000_000)));
    assert_eq!(cost("azure/eastus", "azure/westeurope"), Some(UsdMicros(500_000_000)));
    assert_eq!(cost("aws/us-east-1", "aws/us-west-2"), Some(UsdMicros(200_000_000)));
}
