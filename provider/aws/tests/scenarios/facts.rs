//! Facts of markets and of the account: prices, offers, quotas and reservations, each as old as it says.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::policy::QuotaKey;
use stoker_fake_ec2::{Fault, Quota, Rule};
use tokio::time::{Instant, sleep};

use crate::bench::{BOOK, Bench};

fn place(zone: &str) -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new(zone).unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    }
}

/// The Spot price of a g6.xlarge there, in text.
fn spot(facts: &MarketFacts, zone: &str) -> Option<String> {
    let market = Market { place: place(zone), capacity_type: CapacityType::Spot };
    facts.quotes.get(&market).map(|quote| quote.price.to_string())
}

/// A quota of us-east-1.
fn quota_key() -> QuotaKey {
    let (cloud, region) = (Cloud::new("aws").unwrap(), Some(Region::new("us-east-1").unwrap()));
    QuotaKey { name: String::new(), cloud, region }
}

fn limit(facts: &MarketFacts, name: &str) -> Option<u32> {
    let key = QuotaKey { name: name.to_owned(), ..quota_key() };
    facts.quotas.get(&key).map(|quota| quota.limit)
}

/// A page of the Spot history.
fn history(records: &[(&str, &str, &str)]) -> String {
    let records = records.iter().map(|(zone, price, at)| {
        format!(
            "<item><instanceType>g6.xlarge</instanceType><productDescription>Linux/UNIX</productDescription><spotPrice>{price}\
             </spotPrice><timestamp>{at}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
        )
    });
    let records: String = records.collect();
    format!(
        "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>{records}</spotPriceHistorySet><nextToken/>\
         </DescribeSpotPriceHistoryResponse>"
    )
}

/// Scenario 22.
#[tokio::test(start_paused = true)]
async fn the_newest_spot_price_counts_in_whichever_order_they_come() {
    let old = ("us-east-1a", "0.300000", "2026-11-02T09:00:00.000Z");
    let new = ("us-east-1a", "0.400000", "2026-11-02T11:00:00.000Z");
    for records in [[old, new], [new, old]] {
        let bench = Bench::new().await;
        bench.answer_with("DescribeSpotPriceHistory", &history(&records));
        let facts = bench.facts().await;
        assert_eq!(spot(&facts, "use1-az1").as_deref(), Some("$0.4000"), "{records:?}");
        assert_eq!(spot(&facts, "use1-az2"), None);
    }
}

/// Scenario 22: a price that is told no more is not told on.
#[tokio::test(start_paused = true)]
async fn a_spot_price_that_is_told_no_more_lapses() {
    let bench = Bench::new().await;
    assert!(spot(&bench.facts().await, "use1-az2").is_some());
    bench.world(|world| world.region("us-east-1").spot_prices.retain(|price| price.zone_id != "use1-az2"));
    sleep(Duration::from_secs(301)).await;
    let facts = bench.facts().await;
    assert_eq!(spot(&facts, "use1-az2"), None);
    assert!(spot(&facts, "use1-az1").is_some());
}

/// Prices that cannot be asked for stay, and say how old they are.
#[tokio::test(start_paused = true)]
async fn spot_prices_that_cannot_be_asked_for_keep_their_age() {
    let bench = Bench::new().await;
    let market = Market { place: place("use1-az1"), capacity_type: CapacityType::Spot };
    let before = bench.facts().await.quotes[&market].clone();
    bench.world(|world| world.fault(Rule::of("DescribeSpotPriceHistory", Fault::status(403, "UnauthorizedOperation", "no"))));
    sleep(Duration::from_mins(50)).await;
    assert_eq!(bench.facts().await.quotes[&market], before);
    assert!(bench.faults().contains("spot prices cannot be asked"), "{}", bench.faults());
    // They keep no launch waiting.
    bench.made(&bench.usual(1)).await;
    bench.world(|world| world.rules.clear());
    sleep(Duration::from_mins(5)).await;
    assert!(bench.facts().await.quotes[&market].as_of > before.as_of);
    assert_eq!(bench.faults(), "");
}

/// A zone without a subnet, and a type that is not sold, are no places.
#[tokio::test(start_paused = true)]
async fn only_what_is_sold_where_there_is_a_subnet_is_offered() {
    let bench = Bench::new().await;
    bench.world(|world| {
        let region = world.region("us-east-1");
        region.subnets.remove("subnet-us-east-1c");
        region.offered.remove(&("g6.xlarge".to_owned(), "use1-az2".to_owned()));
    });
    let facts = bench.facts().await;
    let offered = facts.offered.values().next().unwrap();
    assert!(offered.contains(&place("use1-az1")));
    assert!(!offered.contains(&place("use1-az2")) && !offered.contains(&place("use1-az4")));
    let names: Vec<String> = facts.zone_names.iter().map(|((_, id), name)| format!("{id} {name}")).collect();
    assert_eq!(names, ["use1-az1 us-east-1a", "use1-az2 us-east-1b"]);
}

/// What is asked twice a day is not unknown for half a day because of one bad minute.
#[tokio::test(start_paused = true)]
async fn a_fact_that_failed_is_asked_again_soon() {
    let bench = Bench::new().await;
    bench.world(|world| {
        world.fault(Rule::of("DescribeInstanceTypeOfferings", Fault::status(500, "InternalError", "later")));
        world.fault(Rule::of("GetServiceQuota", Fault::status(400, "ThrottlingException", "later")));
    });
    let facts = bench.facts().await;
    assert!(facts.offered.is_empty() && facts.quotas.is_empty());
    let faults = bench.faults();
    assert!(faults.contains("offered types cannot be asked") && faults.contains("quotas cannot be asked"), "{faults}");
    bench.world(|world| world.rules.clear());
    sleep(Duration::from_secs(90)).await;
    let facts = bench.facts().await;
    assert!(!facts.offered.is_empty() && !facts.quotas.is_empty());
    assert_eq!(bench.faults(), "");
}

#[tokio::test(start_paused = true)]
async fn quotas_are_the_accounts_own_or_awss_default() {
    let bench = Bench::new().await;
    bench.world(|world| {
        let region = world.region("us-east-1");
        region.set_quota("L-DB2E81BA", 96);
        let never = Quota { name: "All G and VT Spot Instance Requests".to_owned(), limit: 64, changed: false };
        region.quotas.insert("L-3819A6DF".to_owned(), never);
        // A quota that this region does not have hides no other.
        region.quotas.remove("L-C4BD4855");
    });
    let facts = bench.facts().await;
    assert_eq!(limit(&facts, "L-DB2E81BA"), Some(96));
    assert_eq!(limit(&facts, "L-3819A6DF"), Some(64));
    assert_eq!(limit(&facts, "L-C4BD4855"), None);
    bench.world(|world| world.region("us-east-1").set_quota("L-DB2E81BA", 192));
    sleep(Duration::from_mins(16)).await;
    assert_eq!(limit(&bench.facts().await, "L-DB2E81BA"), Some(192));
}

/// `CloudWatch` counts what the whole account uses. Where it has not, or may not be asked, that is unknown, and the limit holds all the same.
#[tokio::test(start_paused = true)]
async fn what_the_account_uses_of_its_quotas_is_known_where_it_is_counted() {
    let bench = Bench::new().await;
    bench.world(|world| {
        let region = world.region("us-east-1");
        region.usage = [("G/OnDemand".to_owned(), 40), ("P5/Spot".to_owned(), 0)].into();
    });
    let used = async |name: &str| {
        let key = QuotaKey { name: name.to_owned(), ..quota_key() };
        bench.facts().await.quotas[&key].used
    };
    assert_eq!((used("L-DB2E81BA").await, used("L-C4BD4855").await), (Some(40), Some(0)));
    assert_eq!(used("L-3819A6DF").await, None, "nobody counted it");
    assert_eq!((bench.count("GetMetricData"), bench.faults().as_str()), (1, ""));
    // The same limit with another use is news.
    bench.world(|world| world.region("us-east-1").usage.insert("G/OnDemand".to_owned(), 44));
    sleep(Duration::from_mins(16)).await;
    assert_eq!(used("L-DB2E81BA").await, Some(44));
    bench.world(|world| world.fault(Rule::of("GetMetricData", Fault::status(403, "AccessDenied", "not allowed"))));
    sleep(Duration::from_mins(16)).await;
    assert_eq!(used("L-DB2E81BA").await, None);
    assert!(limit(&bench.facts().await, "L-DB2E81BA").is_some());
    let faults = bench.faults();
    assert!(faults.contains("how much of quotas is used") && faults.contains("AccessDenied"), "{faults}");
}

#[tokio::test(start_paused = true)]
async fn reservations_tell_what_is_left_of_them() {
    let bench = Bench::new().await;
    let ends = bench.now() + SignedDuration::from_hours(48);
    bench.world(|world| {
        world.region("us-east-1").add_reservation("cr-two", "g6.xlarge", "use1-az1", 2).ends = Some(ends);
    });
    let mut launch = bench.order(1, "g6.xlarge", "use1-az1", CapacityType::Reserved);
    launch.request.reservation = Some("cr-two".to_owned());
    bench.made(&launch).await;
    sleep(Duration::from_secs(61)).await;
    let facts = bench.facts().await;
    let told = &facts.reservations["cr-two"];
    assert_eq!((told.total, told.free, told.ends), (2, Some(1), Some(ends)));
    assert_eq!(told.place, place("use1-az1"));
}

/// EC2's own figures, asked twice a day; where they cannot be had the last ones stay, and else the tables'.
#[tokio::test(start_paused = true)]
async fn types_are_made_of_what_ec2_says() {
    let bench = Bench::new().await;
    let denied = || Rule::of("DescribeInstanceTypes", Fault::status(403, "UnauthorizedOperation", "no"));
    bench.world(|world| world.fault(denied()));
    assert!(bench.facts().await.machines.is_empty());
    assert!(bench.faults().contains("instance types cannot be asked"), "{}", bench.faults());
    bench.world(|world| world.rules.clear());
    sleep(Duration::from_secs(90)).await;
    let told = async |name: &str| {
        let key = (Cloud::new("aws").unwrap(), InstanceType::new(name).unwrap());
        bench.facts().await.machines.remove(&key)
    };
    // The tables are right about these, and the peer has AWS's own figures.
    for name in ["g4dn.xlarge", "g5g.xlarge", "g6.xlarge", "g6.12xlarge", "p4d.24xlarge", "p5.48xlarge"] {
        let is_it = |spec: &&Arc<InstanceSpec>| spec.cloud.as_str() == "aws" && spec.instance_type.as_str() == name;
        let spec = BOOK.specs().find(is_it).unwrap();
        let fact = told(name).await.unwrap_or_else(|| panic!("{name}: {}", bench.faults()));
        assert_eq!(fact.corrected(spec), *spec, "{name}");
        assert!(fact.gpus.is_some() && fact.network.is_some(), "{name}");
    }
    assert_eq!(told("g6e.xlarge").await, None, "of which this region says nothing");
    bench.world(|world| {
        let changed = world.types.get_mut("g6.xlarge").unwrap();
        (changed.interfaces_of_card_0, changed.disks, changed.gpus) = (3, 0, 2);
    });
    assert_eq!(told("g6.xlarge").await.unwrap().gpus, Some(1), "not asked anew yet");
    sleep(Duration::from_hours(12)).await;
    let fact = told("g6.xlarge").await.unwrap();
    let pods = fact.network.unwrap().pods;
    assert_eq!((pods, fact.local_disk, fact.gpus), (3 * 14 + 2, None, Some(2)));
    let asked_at = bench.now();
    bench.world(|world| world.fault(denied()));
    sleep(Duration::from_hours(13)).await;
    let fact = told("g6.xlarge").await.unwrap();
    assert!(fact.gpus == Some(2) && fact.as_of <= asked_at, "it ages");
}

/// Nothing is known of a region whose subnets cannot be had.
#[tokio::test(start_paused = true)]
async fn a_region_without_subnets_says_what_to_do() {
    let bench = Bench::new().await;
    bench.world(|world| world.region("us-east-1").subnets.clear());
    assert!(bench.facts().await.zone_names.is_empty());
    assert!(bench.faults().contains("no subnet is found"), "{}", bench.faults());
}

/// A service that hangs, as behind an endpoint of the VPC that lets nothing through, keeps no other fact from being told, and is named.
#[tokio::test(start_paused = true)]
async fn a_price_list_that_hangs_holds_up_no_spot_price() {
    let bench = Bench::new().await;
    bench.world(|world| world.fault(Rule::of("GetProducts", Fault::None).delay(Duration::from_hours(1))));
    let begun = Instant::now();
    let facts = bench.facts().await;
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let of = |bought| facts.quotes.keys().filter(|market| market.capacity_type == bought).count();
    assert!(of(CapacityType::Spot) > 0 && of(CapacityType::OnDemand) == 0);
    assert!(bench.faults().contains("GetProducts: no answer within 9 s"), "{}", bench.faults());
    // Once it answers, its prices are told too.
    bench.world(|world| world.rules.clear());
    sleep(Duration::from_mins(1)).await;
    assert!(bench.facts().await.quotes.keys().any(|market| market.capacity_type == CapacityType::OnDemand));
    assert_eq!(bench.faults(), "");
}
