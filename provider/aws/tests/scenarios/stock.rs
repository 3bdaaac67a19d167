//! Stock, quotas and addresses: what is refused, how widely, and at which pace launches are asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use stoker_core::base::ids::LaunchKey;
use stoker_core::facts::supply::{LaunchOutcome, RefusalKind, RefusalScope};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Market, Rule, Subnet, World};
use tokio::time::{Instant, sleep};

use crate::bench::Bench;

fn stock(world: &mut World, left: u32) {
    world.region("us-east-1").set_stock("g6.xlarge", "use1-az1", Market::OnDemand, Some(left));
}

fn launched(answers: &BTreeMap<LaunchKey, LaunchOutcome>) -> usize {
    answers.values().filter(|answer| matches!(answer, LaunchOutcome::Launched(_))).count()
}

/// Scenario 5.
#[tokio::test(start_paused = true)]
async fn a_stock_out_is_refused_after_one_call_although_its_status_is_500() {
    let bench = Bench::new().await;
    bench.world(|world| stock(world, 0));
    let begun = Instant::now();
    let refusal = bench.refused(&bench.usual(1)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, RefusalScope::Market));
    assert_eq!(bench.count("RunInstances"), 1);
    assert!(begun.elapsed() < Duration::from_secs(1));
    // The next zone has it.
    bench.made(&bench.order(2, "g6.xlarge", "use1-az2", CapacityType::OnDemand)).await;
}

/// Scenario 7.
#[tokio::test(start_paused = true)]
async fn a_batch_is_bought_at_the_pace_that_ec2_takes() {
    let bench = Bench::new().await;
    let begun = Instant::now();
    let first = tokio::spawn({
        let (aws, batch, now) = (bench.aws.clone(), bench.many(1..=20), bench.now());
        async move { stoker_service::suppliers::Supplier::launch(&*aws, now, batch).await }
    });
    sleep(Duration::from_millis(100)).await;
    let second = bench.launch_all(&bench.many(21..=30)).await;
    let first = first.await.unwrap().into_iter().collect();
    let took = begun.elapsed();
    assert_eq!((launched(&first), launched(&second)), (20, 10));
    // 4 at once, and 26 at 1.9 a second.
    assert!((Duration::from_secs(12)..Duration::from_secs(15)).contains(&took), "{took:?}");
    let throttled = bench.world(|world| world.calls.iter().filter(|call| call.code == "RequestLimitExceeded").count());
    assert_eq!(throttled, 0);
}

/// Scenario 7: one batch alone.
#[tokio::test(start_paused = true)]
async fn a_batch_of_twenty_takes_eight_seconds() {
    let bench = Bench::new().await;
    let begun = Instant::now();
    assert_eq!(launched(&bench.launch_all(&bench.many(1..=20)).await), 20);
    assert!((Duration::from_secs(7)..=Duration::from_secs(9)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(bench.count("RunInstances"), 20);
}

/// Scenario 8.
#[tokio::test(start_paused = true)]
async fn a_throttled_batch_is_answered_for_in_time_and_bought_later() {
    let bench = Bench::new().await;
    let batch = bench.many(1..=20);
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::None).times(3)));
    let throttled = Fault::status(503, "RequestLimitExceeded", "Request limit exceeded.");
    bench.world(|world| world.fault(Rule::of("RunInstances", throttled)));
    let begun = Instant::now();
    let answers = bench.launch_all(&batch).await;
    assert!(begun.elapsed() <= Duration::from_secs(45), "{:?}", begun.elapsed());
    assert_eq!((answers.len(), launched(&answers)), (20, 3));
    assert!(answers.values().all(|answer| !matches!(answer, LaunchOutcome::Refused(_))), "{answers:?}");
    sleep(Duration::from_secs(5)).await;
    bench.world(|world| world.rules.clear());
    let rest: Vec<_> =
        batch.into_iter().filter(|one| !matches!(answers[&one.request.key], LaunchOutcome::Launched(_))).collect();
    let answers = bench.launch_all(&rest).await;
    assert_eq!(launched(&answers), 17, "{answers:?}");
    assert_eq!(bench.world(|world| world.alive().len()), 20);
}

/// Scenario 8: what was throttled was not asked for, and so leaves no doubt.
#[tokio::test(start_paused = true)]
async fn a_throttle_leaves_no_doubt() {
    let bench = Bench::new().await;
    let throttled = Fault::status(503, "RequestLimitExceeded", "Request limit exceeded.");
    bench.world(|world| world.fault(Rule::of("RunInstances", throttled).times(2)));
    bench.world(|world| stock(world, 0));
    assert_eq!(bench.refused(&bench.usual(1)).await.kind, RefusalKind::OutOfCapacity);
    assert_eq!(bench.count("RunInstances"), 3);
}

/// Scenario 9.
#[tokio::test(start_paused = true)]
async fn what_is_in_stock_is_had_and_the_rest_refused() {
    let bench = Bench::new().await;
    bench.world(|world| stock(world, 3));
    let answers = bench.launch_all(&bench.many(1..=5)).await;
    let refused: Vec<_> = answers
        .values()
        .filter_map(|answer| match answer {
            LaunchOutcome::Refused(refusal) => Some((refusal.kind, refusal.scope.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(launched(&answers), 3);
    assert_eq!(refused, vec![(RefusalKind::OutOfCapacity, RefusalScope::Market); 2]);
    bench.world(|world| stock(world, 1));
    bench.made(&bench.usual(6)).await;
}

/// Scenario 10.
#[tokio::test(start_paused = true)]
async fn a_used_up_quota_is_refused_for_all_that_it_counts() {
    let bench = Bench::new().await;
    bench.world(|world| world.region("us-east-1").set_quota("L-DB2E81BA", 4));
    bench.made(&bench.usual(1)).await;
    let refusal = bench.refused(&bench.usual(2)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::QuotaExceeded, RefusalScope::Quota("L-DB2E81BA".to_owned())));
    assert!(refusal.message.contains("your current vCPU limit of 4"), "{}", refusal.message);
    // Spot has a quota of its own.
    let spot = |record| bench.order(record, "g6.xlarge", "use1-az1", CapacityType::Spot);
    bench.made(&spot(3)).await;
    bench.world(|world| world.region("us-east-1").set_quota("L-3819A6DF", 4));
    let refusal = bench.refused(&spot(4)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::QuotaExceeded, RefusalScope::Quota("L-3819A6DF".to_owned())));
}

/// A second subnet in the first zone, with fewer free addresses than the first.
fn second_subnet(world: &mut World, free: u32) {
    let region = world.region("us-east-1");
    let first = region.subnets["subnet-us-east-1a"].clone();
    let id = "subnet-us-east-1a-too".to_owned();
    region.subnets.insert(id.clone(), Subnet { id, free, ..first });
}

/// Scenario 11.
#[tokio::test(start_paused = true)]
async fn a_full_subnet_is_left_for_the_next_of_its_zone() {
    let bench = Bench::new().await;
    bench.world(|world| second_subnet(world, 100));
    bench.made(&bench.usual(1)).await;
    let fill = |name: &str| {
        bench.world(|world| world.region("us-east-1").subnets.get_mut(name).unwrap().free = 0);
    };
    fill("subnet-us-east-1a");
    let launch = bench.usual(2);
    bench.made(&launch).await;
    let asked: Vec<(String, String)> = bench.world(|world| {
        let calls = world.calls.iter().filter(|call| call.action == "RunInstances").skip(1);
        let parts = |name: &str| calls.clone().map(|call| call.params[name].clone()).collect::<Vec<_>>();
        parts("NetworkInterface.1.SubnetId").into_iter().zip(parts("ClientToken")).collect()
    });
    let subnets: Vec<&str> = asked.iter().map(|(subnet, _)| subnet.as_str()).collect();
    assert_eq!(subnets, ["subnet-us-east-1a", "subnet-us-east-1a-too"]);
    assert_eq!(asked[0].1, asked[1].1);
    assert_eq!(bench.world(|world| world.alive().len()), 2);
    fill("subnet-us-east-1a-too");
    let refusal = bench.refused(&bench.usual(3)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, RefusalScope::Zone));
    bench.made(&bench.order(4, "g6.xlarge", "use1-az2", CapacityType::OnDemand)).await;
}

/// Scenario 11 with a lost answer: another subnet has most addresses by the time of the retry.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_although_another_subnet_is_the_emptiest_now() {
    let bench = Bench::new().await;
    bench.world(|world| second_subnet(world, 100));
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Lose).times(1)));
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    bench.world(|world| second_subnet(world, 8_000));
    sleep(Duration::from_mins(2)).await;
    bench.made(&launch).await;
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// A zone without a subnet sells nothing, and says what to do about it.
#[tokio::test(start_paused = true)]
async fn a_zone_without_a_subnet_is_a_fault_of_the_file() {
    let bench = Bench::new().await;
    let refusal = bench.refused(&bench.order(1, "g6.xlarge", "use1-az6", CapacityType::OnDemand)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::Config, RefusalScope::Zone));
    assert!(refusal.message.contains("add one to subnets in aws.yaml"), "{}", refusal.message);
}

/// Types that a zone does not sell are left alone for half a day.
#[tokio::test(start_paused = true)]
async fn a_type_that_is_not_sold_there_is_left_alone_for_half_a_day() {
    let bench = Bench::new().await;
    bench.world(|world| {
        let place = ("g6.xlarge".to_owned(), "use1-az1".to_owned());
        world.region("us-east-1").offered.remove(&place);
    });
    let refusal = bench.refused(&bench.usual(1)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::Config, RefusalScope::TypeInZone));
    assert_eq!(refusal.retry_after.map(|after| after.as_hours()), Some(12));
}

/// A subnet that is gone is looked up anew before anything is refused.
#[tokio::test(start_paused = true)]
async fn a_subnet_that_is_replaced_is_looked_up_anew_at_once() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    bench.world(|world| {
        let region = world.region("us-east-1");
        let old = region.subnets.remove("subnet-us-east-1a").unwrap();
        let id = "subnet-us-east-1a-too".to_owned();
        region.subnets.insert(id.clone(), Subnet { id, ..old });
    });
    bench.made(&bench.usual(2)).await;
}
