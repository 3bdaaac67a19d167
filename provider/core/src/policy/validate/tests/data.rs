//! Where data lies, how far nodes may be from it, and how they spread.

use super::*;
use crate::market::transfer::{Continent, Data, DataSet, MaxDistance, Site, TransferPrices};

/// The good policy with this said of its first pool's where beside, and this region under defaults.
fn located(more: &Value, default: Option<&str>) -> RawPolicy {
    let mut place = json!({"clouds": ["aws"], "regions": ["us-east-1", "us-east-2"]});
    place.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    let mut raw = with("/pools/0/where", place);
    raw.defaults.data_region = default.map(str::to_owned);
    raw
}

fn said(more: &Value, default: Option<&str>) -> Vec<String> {
    let told = faults(&located(more, default));
    told.iter().map(|text| text.strip_prefix("pools[0].where.").unwrap_or(text).to_owned()).collect()
}

fn data(more: &Value, default: Option<&str>) -> Option<Data> {
    Policy::try_from_raw(&located(more, default)).expect("no faults").pools[0].data.clone()
}

fn site(zone: Option<&str>) -> Site {
    let id = |text: &str| ZoneId::new(text).expect("an id");
    Site { cloud: Cloud::new("aws").expect("an id"), region: Region::new("us-east-1").expect("an id"), zone: zone.map(id) }
}

#[test]
fn data_counts_only_where_something_is_said_of_it() {
    assert_eq!(data(&json!({}), None), None);
    assert_eq!(data(&json!({}), Some("aws/us-east-1")), None, "a default alone weighs nothing");
    assert_eq!(data(&json!({"maxDistance": "any"}), None), None);
    let day = DataSet { gib: 200, every: SignedDuration::from_hours(24) };
    let of = |at, within, set| Some(Data { at, within, set });
    assert_eq!(data(&json!({"datasetGiB": 200}), Some("aws/us-east-1")), of(site(None), MaxDistance::Any, Some(day)));
    assert_eq!(
        data(&json!({"maxDistance": "region", "dataRegion": "aws/us-east-1"}), Some("gcp/us-central1")),
        of(site(None), MaxDistance::Region, None)
    );
    let said = json!({"datasetGiB": 200, "datasetReadEvery": "90m", "dataRegion": "aws/us-east-1/use1-az6"});
    let often = DataSet { every: SignedDuration::from_mins(90), ..day };
    assert_eq!(data(&said, None), of(site(Some("use1-az6")), MaxDistance::Any, Some(often)));
}

#[test]
#[rustfmt::skip] // A case a line.
fn each_word_about_data_has_its_fault() {
    let home = Some("aws/us-east-1");
    for (more, default, expected) in [
        (json!({"datasetGiB": 0}), home, "datasetGiB is 0: write how many GiB a node reads, or remove it"),
        (json!({"datasetGiB": 9_000_000_000_u64}), home, "datasetGiB 9000000000 is above 1048576, a PiB, more than a node reads: write GiB"),
        (json!({"datasetGiB": 1}), None, "pools[0].where has datasetGiB and does not say where the data is: name dataRegion here or under defaults, e.g. aws/us-east-1"),
        (json!({"maxDistance": "continent"}), None, "pools[0].where has maxDistance and does not say where the data is: name dataRegion here or under defaults, e.g. aws/us-east-1"),
        (json!({"datasetGiB": 1, "dataRegion": "us-east-1"}), None, "dataRegion \"us-east-1\" is not a cloud and region: write it like aws/us-east-1"),
        (json!({"datasetGiB": 1, "dataRegion": "aws/"}), None, "dataRegion is empty: give a name"),
        (json!({"dataRegion": "aws/us-east-1"}), None, "pools[0].where has a dataRegion without effect: name datasetGiB, or a maxDistance of region or continent, or remove it"),
        (json!({"datasetReadEvery": "8h"}), home, "pools[0].where has a datasetReadEvery without datasetGiB: name how much a node reads, or remove it"),
        (json!({"datasetGiB": 1, "datasetReadEvery": "daily"}), home, "datasetReadEvery \"daily\" is not a length of time: write it like 10m, 1h30m or 90s"),
        (json!({"datasetGiB": 1, "datasetReadEvery": "0s"}), home, "datasetReadEvery 0s is below 1m: raise it; it is how long a node works with the data that it read"),
        (json!({"datasetGiB": 1, "datasetReadEvery": "9000h"}), home, "datasetReadEvery 9000h is above 8760h, a year: lower it; it is how long a node works with the data that it read"),
        (json!({"maxDistance": "region"}), Some("aws/eu-west-1"), "maxDistance region allows only aws/eu-west-1, where the \
            data is and the pool may not buy: name aws in clouds and eu-west-1 in regions, or write continent or any"),
        (json!({"maxZoneShare": "half"}), None, "maxZoneShare \"half\" is not a share: write it like 25%"),
        (json!({"maxZoneShare": "101%"}), None, "maxZoneShare \"101%\" is above 100%: lower it"),
        (json!({"maxZoneShare": "0%"}), None, "maxZoneShare is 0%, which no node fits: raise it, or remove it"),
        (json!({"maxZoneShare": "33%", "zones": ["us-east-1a", "us-east-1b", "us-east-1c"]}), None, "maxZoneShare 33% needs at least 4 zones, and zones names 3: \
            name more, leave zones out, or raise it to 34%"),
    ] {
        assert_eq!(said(&more, default), [expected], "{more}");
    }
}

#[test]
fn a_wrong_default_is_told_once() {
    let mut raw = located(&json!({"datasetGiB": 1}), Some("us-east-1"));
    raw.pools[1].place.dataset_gib = Some(1);
    assert_eq!(faults(&raw), ["defaults.dataRegion \"us-east-1\" is not a cloud and region: write it like aws/us-east-1"]);
}

#[test]
fn all_of_it_is_no_limit_on_a_zone() {
    let share = |text: &str| {
        Policy::try_from_raw(&located(&json!({"maxZoneShare": text}), None)).expect("no faults").pools[0].max_zone_share
    };
    assert_eq!((share("100%"), share("50%")), (None, Some(Percent(50))));
}

#[test]
#[rustfmt::skip] // A case a line.
fn data_regions_are_held_against_the_price_tables() {
    let mut book = super::book();
    let mut transfers = TransferPrices::default();
    let id = |cloud: &str, region: &str| (Cloud::new(cloud).expect("an id"), Region::new(region).expect("an id"));
    for (cloud, region, continent) in [
        ("aws", "us-east-1", Continent::NorthAmerica), ("aws", "us-east-2", Continent::NorthAmerica), ("aws", "eu-west-2", Continent::Europe),
    ] {
        let (cloud, region) = id(cloud, region);
        transfers.insert_continent(cloud, region, continent);
    }
    book.set_transfers(transfers);
    for (more, default, expected) in [
        (json!({"datasetGiB": 1, "dataRegion": "aws/us-est-1"}), None, r#"pools[0].where.dataRegion "us-est-1" is not a known region of aws: nearest is us-east-1"#),
        (json!({"datasetGiB": 1, "dataRegion": "lambda/global"}), None, r#"pools[0].where.dataRegion "lambda" is not a known cloud: known are aws, azure"#),
        (json!({"datasetGiB": 1, "dataRegion": "aws/us-east-1/us-east-1a"}), None, r#"pools[0].where.dataRegion "us-east-1a" is a zone's name, which means another zone in each account: write its id, such as use1-az1"#),
        (json!({"datasetGiB": 1}), Some("aws/us-est-1"), r#"defaults.dataRegion "us-est-1" is not a known region of aws: nearest is us-east-1"#),
        (json!({"maxDistance": "continent"}), Some("aws/eu-west-2"), "pools[0].where.maxDistance continent allows only \
            europe, where aws/eu-west-2 is, and the pool names only aws/us-east-1 in north-america, aws/us-east-2 in \
            north-america: name a region there, or write any"),
        (json!({"maxDistance": "continent"}), Some("azure/eastus"), "pools[0].where.maxDistance continent does not work for azure/eastus, whose continent is unknown: write region or any"),
    ] {
        assert_eq!(shown(&check_against_prices(&located(&more, default), &book)), [expected], "{more}");
    }
    // A region that sells no GPUs may hold data.
    assert_eq!(check_against_prices(&located(&json!({"datasetGiB": 1, "dataRegion": "aws/eu-west-2"}), None), &book), []);
}
