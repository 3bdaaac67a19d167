//! Reservations: what is bought from one comes from it, and nothing else does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoker_core::facts::supply::{RefusalKind, RefusalScope};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, ReservationKind, Rule, World};
use stoker_service::suppliers::Launch;
use tokio::time::sleep;

use crate::bench::Bench;

fn reserved(bench: &Bench, record: u64, name: Option<&str>) -> Launch {
    let mut launch = bench.order(record, "g6.xlarge", "use1-az1", CapacityType::Reserved);
    launch.request.reservation = name.map(ToOwned::to_owned);
    launch
}

fn of_two(world: &mut World) {
    world.region("us-east-1").add_reservation("cr-two", "g6.xlarge", "use1-az1", 2).open = true;
}

fn scope() -> RefusalScope {
    RefusalScope::Reservation("cr-two".to_owned())
}

fn block(world: &mut World, starts: Timestamp, ends: Timestamp) {
    let block = world.region("us-east-1").add_reservation("cr-block", "p5.48xlarge", "use1-az1", 1);
    (block.kind, block.starts, block.ends) = (ReservationKind::Block, starts, Some(ends));
}

fn of_block(bench: &Bench, record: u64) -> Launch {
    let mut launch = bench.order(record, "p5.48xlarge", "use1-az1", CapacityType::Reserved);
    launch.request.reservation = Some("cr-block".to_owned());
    launch
}

/// Scenario 20.
#[tokio::test(start_paused = true)]
async fn the_third_of_a_reservation_of_two_is_refused_and_bought_on_demand_outside_it() {
    let bench = Bench::new().await;
    bench.world(of_two);
    // On demand declines it, open as it is.
    bench.made(&bench.usual(1)).await;
    for record in 2..=3 {
        let made = bench.made(&reserved(&bench, record, Some("cr-two"))).await;
        assert_eq!(made.market.capacity_type, CapacityType::Reserved);
    }
    let refusal = bench.refused(&reserved(&bench, 4, Some("cr-two"))).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, scope()));
    bench.made(&bench.usual(5)).await;
    let within: Vec<(String, Option<String>)> = bench
        .world(|world| world.alive().iter().map(|machine| (machine.preference.clone(), machine.reservation.clone())).collect());
    let inside = ("capacity-reservations-only".to_owned(), Some("cr-two".to_owned()));
    let outside = ("none".to_owned(), None);
    assert_eq!(within.iter().filter(|one| **one == inside).count(), 2);
    assert_eq!(within.iter().filter(|one| **one == outside).count(), 2);
}

/// Scenario 20: a machine whose reservation is cancelled is one on demand from then.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_reservation_is_cancelled_counts_as_on_demand() {
    let bench = Bench::new().await;
    bench.world(of_two);
    let made = bench.made(&reserved(&bench, 1, Some("cr-two"))).await;
    sleep(Duration::from_secs(10)).await;
    let bought = async || bench.list().await.unwrap().instances[&made.provider_id].market.capacity_type;
    assert_eq!(bought().await, CapacityType::Reserved);
    let now = bench.peer.now();
    bench.world(|world| world.region("us-east-1").reservations.get_mut("cr-two").unwrap().cancelled = Some(now));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bought().await, CapacityType::OnDemand);
    let refusal = bench.refused(&reserved(&bench, 2, Some("cr-two"))).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::Config, scope()));
}

/// Where the policy names no id, the one that ends first and has room is taken, and kept over a lost answer.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_not_named_by_its_id_is_found_and_kept() {
    let bench = Bench::new().await;
    bench.world(|world| {
        of_two(world);
        let ends = world.now() + SignedDuration::from_hours(10);
        world.region("us-east-1").add_reservation("cr-one", "g6.xlarge", "use1-az1", 1).ends = Some(ends);
    });
    bench.facts().await;
    let launch = reserved(&bench, 1, Some("training"));
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Lose).times(1)));
    bench.unclear(&launch).await;
    // Full by now, by this very machine.
    sleep(Duration::from_mins(2)).await;
    bench.facts().await;
    bench.made(&launch).await;
    bench.made(&reserved(&bench, 2, Some("training"))).await;
    let within: Vec<Option<String>> =
        bench.world(|world| world.alive().iter().map(|machine| machine.reservation.clone()).collect());
    assert_eq!(within, [Some("cr-one".to_owned()), Some("cr-two".to_owned())]);
}

/// The same over a crash: the last place of a reservation was taken by the launch that is asked again.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_filled_a_reservation_is_found_after_a_crash() {
    let mut bench = Bench::new().await;
    bench.world(|world| world.region("us-east-1").add_reservation("cr-one", "g6.xlarge", "use1-az1", 1).open = false);
    bench.facts().await;
    let launch = reserved(&bench, 1, Some("training"));
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Lose).times(1)));
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(2)).await;
    bench.restart().await;
    bench.facts().await;
    bench.made(&launch).await;
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// Whether a reservation is a block must be known before the first launch.
#[tokio::test(start_paused = true)]
async fn the_first_launch_after_a_start_knows_a_block_for_one() {
    let bench = Bench::new().await;
    let now = bench.now();
    bench.world(|world| block(world, now, now + SignedDuration::from_hours(30)));
    let made = bench.made(&of_block(&bench, 1)).await;
    assert_eq!(made.market.capacity_type, CapacityType::Reserved);
    let other = Bench::new().await;
    other.world(of_two);
    other.made(&reserved(&other, 1, Some("training"))).await;
}

/// What cannot be asked for refuses nothing.
#[tokio::test(start_paused = true)]
async fn reservations_that_cannot_be_asked_for_refuse_nothing() {
    let bench = Bench::new().await;
    bench.world(of_two);
    bench.world(|world| world.fault(Rule::of("DescribeCapacityReservations", Fault::status(500, "InternalError", "later"))));
    for name in ["training", "cr-two"] {
        let said = bench.unclear(&reserved(&bench, 1, Some(name))).await;
        assert!(said.contains("DescribeCapacityReservations"), "{said}");
    }
    bench.world(|world| world.rules.clear());
    bench.made(&reserved(&bench, 1, Some("cr-two"))).await;
}

/// Scenario 19, the supplier's part.
#[tokio::test(start_paused = true)]
async fn a_block_that_has_not_begun_is_out_of_capacity_and_no_fault() {
    let bench = Bench::new().await;
    let (starts, ends) = (bench.now() + SignedDuration::from_mins(10), bench.now() + SignedDuration::from_hours(30));
    bench.world(|world| block(world, starts, ends));
    let refusal = bench.refused(&of_block(&bench, 1)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, RefusalScope::Reservation("cr-block".to_owned())));
    assert_eq!(bench.faults(), "");
    sleep(Duration::from_mins(11)).await;
    bench.made(&of_block(&bench, 2)).await;
    let lifecycle = bench.world(|world| world.alive()[0].market);
    assert_eq!(lifecycle, stoker_fake_ec2::Market::Block);
    // Its machines go half an hour before it ends, and that is no reclaim and no fault of theirs.
    sleep(Duration::from_hours(30)).await;
    assert!(bench.list().await.unwrap().instances.is_empty());
    assert_eq!(bench.refused(&of_block(&bench, 3)).await.scope, RefusalScope::Reservation("cr-block".to_owned()));
}

/// `stoker commit --from-aws`: a block to paste, of which only the discount is left to write.
#[tokio::test(start_paused = true)]
async fn savings_plans_are_proposed_once_where_gpu_machines_are_paid_by_them() {
    let bench = Bench::with_file(&crate::bench::file_of_two_regions()).await;
    let plan = |id: &str, of: &str, region: &str, family: &str, currency: &str| {
        serde_json::json!({
            "savingsPlanId": id, "savingsPlanType": of, "region": region, "ec2InstanceFamily": family, "currency": currency,
            "commitment": "12.50000000", "end": "2027-06-01T00:00:00.000Z", "state": "active",
        })
    };
    bench.world(|world| {
        _ = world.add_region("us-west-2", &[("a", "usw2-az1")]);
        world.savings_plans = vec![
            plan("sp-family", "EC2Instance", "us-east-1", "g6", "USD"),
            plan("sp-all", "Compute", "", "", "USD"),
            plan("sp-cpus", "EC2Instance", "us-east-1", "m7i", "USD"),
            plan("sp-elsewhere", "EC2Instance", "eu-central-1", "g6", "USD"),
            plan("sp-models", "SageMaker", "", "", "USD"),
            plan("sp-yuan", "Compute", "", "", "CNY"),
        ];
    });
    let (all, notes) = bench.commitments().await;
    let written: Vec<String> = all.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
    let rest = "\"usdPerHour\":12.5,\"until\":\"2027-06-01T00:00:00.000Z\"}";
    let family =
        "{\"name\":\"sp-family\",\"cloud\":\"aws\",\"kind\":\"ec2-savings-plan\",\"region\":\"us-east-1\",\"family\":\"g6\",";
    let any = "{\"name\":\"sp-all\",\"cloud\":\"aws\",\"kind\":\"compute-savings-plan\",";
    assert_eq!(written, [format!("{family}{rest}"), format!("{any}{rest}")]);
    assert_eq!(notes.iter().filter(|note| note.contains("write its discount")).count(), 2, "{notes:?}");
    // The rest is proposed without them.
    bench.world(|world| {
        of_two(world);
        world.fault(Rule::of("DescribeSavingsPlans", Fault::status(403, "AccessDeniedException", "not allowed")));
    });
    let (all, notes) = bench.commitments().await;
    assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["cr-two"]);
    assert!(
        notes.iter().any(|note| note.starts_with("missing: savings plans of us-east-1: ") && note.contains("AccessDenied")),
        "{notes:?}"
    );
}
