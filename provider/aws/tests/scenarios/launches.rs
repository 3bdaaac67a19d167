//! Launches whose answer is lost, late or wrong: one machine a key, and never a "no" that is not sure.

use std::time::Duration;

use jiff::SignedDuration;
use stoker_core::facts::supply::{LaunchOutcome, RefusalKind, RefusalScope};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Market, Rule, World};
use tokio::time::sleep;

use crate::bench::{Bench, FILE};

/// The parameter of SSM that names the image of AL2023.
const IMAGE: &str = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";

fn sold_out(world: &mut World) {
    world.region("us-east-1").set_stock("g6.xlarge", "use1-az1", Market::OnDemand, Some(0));
}

fn lose_one(world: &mut World) {
    world.fault(Rule::of("RunInstances", Fault::Lose).times(1));
}

/// Scenario 1.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_again_and_makes_one_machine() {
    let bench = Bench::new().await;
    bench.world(lose_one);
    let launch = bench.usual(1);
    let said = bench.unclear(&launch).await;
    assert!(said.contains("the connection was cut"), "{said}");
    let made = bench.made(&launch).await;
    assert_eq!(made.key, launch.request.key);
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// Scenario 2.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_before_a_crash_makes_one_machine() {
    let mut bench = Bench::new().await;
    bench.world(lose_one);
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(2)).await;
    bench.restart().await;
    let listed = bench.list().await.unwrap();
    assert_eq!(listed.instances.values().map(|made| &made.key).collect::<Vec<_>>(), [&launch.request.key]);
    let made = bench.made(&launch).await;
    assert!(listed.instances.contains_key(&made.provider_id));
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// Scenario 3.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_although_the_image_is_another_now() {
    let mut bench = Bench::new().await;
    bench.world(lose_one);
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(2)).await;
    bench.world(|world| {
        let now = world.now();
        let region = world.region("us-east-1");
        let newer = region.add_image("us-east-1", "x86_64", "amazon-eks-node-al2023-x86_64-nvidia-1.33-v20261101", now);
        region.parameters.insert(IMAGE.to_owned(), newer);
    });
    bench.restart().await;
    bench.made(&launch).await;
    let answers: Vec<String> = bench
        .world(|world| world.calls.iter().filter(|call| call.action == "RunInstances").map(|call| call.code.clone()).collect());
    assert_eq!(answers, ["", "IdempotentParameterMismatch"]);
    assert_eq!(bench.world(|world| world.alive().len()), 1);
}

/// Scenario 3: as long as the process lives, a newer image changes nothing at all.
#[tokio::test(start_paused = true)]
async fn a_newer_image_is_not_taken_while_the_supplier_runs() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(1)).await;
    bench.world(|world| drop(world.region("us-east-1").parameters.insert(IMAGE.to_owned(), "ami-newer".to_owned())));
    sleep(Duration::from_mins(10)).await;
    bench.made(&bench.usual(2)).await;
    let images: Vec<String> = bench.world(|world| world.alive().iter().map(|machine| machine.image.clone()).collect());
    assert_eq!(images.first(), images.last());
}

/// Scenario 4.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_stays_unclear_while_ec2_throttles_or_forbids() {
    for fault in [
        Fault::status(503, "RequestLimitExceeded", "Request limit exceeded."),
        Fault::status(403, "UnauthorizedOperation", "You are not authorized to perform this operation."),
        Fault::status(400, "ExpiredToken", "The provided token has expired."),
    ] {
        let bench = Bench::new().await;
        bench.world(lose_one);
        let launch = bench.usual(1);
        bench.unclear(&launch).await;
        bench.world(|world| world.fault(Rule { answer: fault.clone(), ..Rule::default() }));
        let begun = bench.now();
        while bench.now().duration_since(begun) < SignedDuration::from_mins(1) {
            bench.unclear(&launch).await;
            sleep(Duration::from_secs(5)).await;
        }
        bench.world(|world| world.rules.clear());
        bench.made(&launch).await;
        assert_eq!(bench.world(|world| world.alive().len()), 1, "{fault:?}");
    }
}

/// Scenario 4, where only launching is forbidden: the machine is found.
#[tokio::test(start_paused = true)]
async fn a_machine_of_a_lost_answer_is_found_before_a_no_is_believed() {
    for (status, code) in
        [(403, "UnauthorizedOperation"), (500, "InsufficientInstanceCapacity"), (400, "InvalidParameterValue")]
    {
        let bench = Bench::new().await;
        bench.world(lose_one);
        let launch = bench.usual(1);
        bench.unclear(&launch).await;
        bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(status, code, "no"))));
        bench.made(&launch).await;
        assert_eq!(bench.world(|world| world.alive().len()), 1, "{code}");
    }
}

/// Scenario 4 with a listing that lags: what is not shown yet may still be there.
#[tokio::test(start_paused = true)]
async fn a_no_is_not_believed_while_a_machine_may_be_hidden() {
    let bench = Bench::new().await;
    bench.world(|world| world.listing_lag = Duration::from_secs(40));
    bench.world(lose_one);
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(403, "UnauthorizedOperation", "no"))));
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(41)).await;
    bench.made(&launch).await;
}

/// The same where the answer was lost long after the launch was first asked for.
#[tokio::test(start_paused = true)]
async fn a_no_is_not_believed_soon_after_a_late_try_was_lost() {
    let bench = Bench::new().await;
    bench.world(|world| world.listing_lag = Duration::from_secs(40));
    let launch = bench.usual(1);
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Cut).times(1)));
    bench.unclear(&launch).await;
    sleep(Duration::from_mins(20)).await;
    bench.world(lose_one);
    bench.unclear(&launch).await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(403, "UnauthorizedOperation", "no"))));
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(41)).await;
    bench.made(&launch).await;
}

/// The same after a crash: the process before may have asked just before it died.
#[tokio::test(start_paused = true)]
async fn a_no_is_not_believed_soon_after_a_restart() {
    let mut bench = Bench::new().await;
    bench.world(|world| world.listing_lag = Duration::from_secs(40));
    let launch = bench.usual(1);
    sleep(Duration::from_mins(20)).await;
    bench.world(lose_one);
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(2)).await;
    bench.restart().await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(403, "UnauthorizedOperation", "no"))));
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(41)).await;
    bench.made(&launch).await;
}

/// A status 5xx with a code that nobody knows says nothing of the launch.
#[tokio::test(start_paused = true)]
async fn an_unknown_fault_of_ec2_leaves_a_doubt() {
    let bench = Bench::new().await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(500, "SomethingNew", "?")).times(1)));
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    bench.world(sold_out);
    bench.unclear(&launch).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(bench.refused(&launch).await.kind, RefusalKind::OutOfCapacity);
}

/// Scenario 24.
#[tokio::test(start_paused = true)]
async fn other_labels_after_a_lost_answer_make_no_second_machine() {
    let bench = Bench::new().await;
    bench.world(lose_one);
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    let mut later = launch.clone();
    later.labels.insert("team".to_owned(), "other".to_owned());
    bench.made(&later).await;
    let user_data: Vec<String> = bench.world(|world| world.alive().iter().map(|machine| machine.user_data.clone()).collect());
    assert!(matches!(user_data.as_slice(), [one] if !one.contains("team=other")), "{user_data:?}");
}

/// A class that is gone from the file is no reason to disown what was made with it.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_although_its_node_class_is_gone() {
    let mut bench = Bench::new().await;
    bench.world(lose_one);
    let launch = bench.usual(1);
    bench.unclear(&launch).await;
    sleep(Duration::from_secs(2)).await;
    bench.restart_with(&FILE.replace("  gpu:", "  other:")).await;
    bench.made(&launch).await;
    let refusal = bench.refused(&bench.usual(2)).await;
    assert_eq!(refusal.kind, RefusalKind::Config);
    assert!(refusal.message.contains("aws.yaml has no node class gpu"), "{}", refusal.message);
}

/// Images are not refused for a bad minute of SSM.
#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_asked_for_now_refuses_nothing() {
    for (status, code) in [(500, "InternalServerError"), (400, "ThrottlingException"), (400, "ExpiredTokenException")] {
        let bench = Bench::new().await;
        bench.world(|world| world.fault(Rule::of("GetParameter", Fault::status(status, code, "later"))));
        let launch = bench.usual(1);
        let said = bench.unclear(&launch).await;
        assert!(said.contains(code), "{said}");
        bench.world(|world| world.rules.clear());
        sleep(Duration::from_mins(2)).await;
        bench.made(&launch).await;
    }
}

/// An image that is not there is a fault of the file, and told as one.
#[tokio::test(start_paused = true)]
async fn an_image_that_does_not_exist_is_a_fault_of_the_file() {
    let file = FILE.replace("stoker-node }", "stoker-node, image: { id: ami-00000000000000000 } }");
    let bench = Bench::with_file(&file).await;
    let refusal = bench.refused(&bench.usual(1)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::Config, RefusalScope::Market));
    assert!(bench.faults().contains("ami-00000000000000000"), "{}", bench.faults());
}

/// Scenario 15.
#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_at_once_for_a_key_is_a_fault_of_the_configuration() {
    let bench = Bench::new().await;
    let launch = bench.usual(1);
    let made = bench.made(&launch).await;
    bench.world(|world| {
        let id = world.alive()[0].id.clone();
        world.end_by(&id, "Client.InternalError");
    });
    sleep(Duration::from_secs(4)).await;
    let listed = bench.list().await.unwrap();
    assert!(!listed.instances.contains_key(&made.provider_id));
    // What did not boot was not taken back.
    assert_eq!(listed.ended[&made.provider_id], stoker_core::facts::supply::EndedWhy::FailedBoot);
    let refusal = bench.refused(&launch).await;
    assert_eq!(refusal.kind, RefusalKind::Config);
    assert!(refusal.message.contains("the key that encrypts its disk"), "{}", refusal.message);
}

/// Scenario 25.
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_refuses_nothing_and_is_told() {
    for (seconds, word) in [(600, "s ahead of this machine's"), (-600, "s behind this machine's")] {
        let bench = Bench::new().await;
        bench.made(&bench.usual(1)).await;
        bench.set_ahead(seconds);
        let launch = bench.usual(2);
        bench.unclear(&launch).await;
        sleep(Duration::from_secs(61)).await;
        bench.unclear(&launch).await;
        let faults = bench.faults();
        assert!(faults.contains("AWS's clock is ") && faults.contains(word), "{faults}");
        bench.set_ahead(0);
        bench.made(&launch).await;
        assert!(!bench.faults().contains("clock"), "{}", bench.faults());
    }
}

/// Scenario 26.
#[tokio::test(start_paused = true)]
async fn a_slow_ec2_is_answered_for_in_time_and_buys_nothing_twice() {
    let bench = Bench::new().await;
    bench.made(&bench.usual(100)).await;
    bench.world(|world| world.fault(Rule { delay: Duration::from_secs(20), ..Rule::default() }));
    let (batch, begun) = (bench.many(1..=20), tokio::time::Instant::now());
    let answers = bench.launch_all(&batch).await;
    assert!(begun.elapsed() <= Duration::from_secs(46), "{:?}", begun.elapsed());
    assert_eq!(answers.len(), 20);
    let had = |answer: &&LaunchOutcome| matches!(answer, LaunchOutcome::Launched(_));
    assert!(answers.values().all(|answer| !matches!(answer, LaunchOutcome::Refused(_))), "{answers:?}");
    assert!(answers.values().filter(had).count() < 20);
    bench.world(|world| world.rules.clear());
    let answers = bench.launch_all(&batch).await;
    assert_eq!(answers.values().filter(had).count(), 20, "{answers:?}");
    assert_eq!(bench.world(|world| world.alive().len()), 21);
}

/// The machine is the one that was ordered, and is called as its Node will be.
#[tokio::test(start_paused = true)]
async fn a_machine_is_known_by_the_name_that_its_node_will_have() {
    let bench = Bench::new().await;
    bench.world(|world| world.names_late = true);
    let launch = bench.order(1, "g6.xlarge", "use1-az2", CapacityType::Spot);
    let made = bench.made(&launch).await;
    let id = bench.id_of(&launch);
    assert_eq!(made.provider_id.as_str(), format!("aws:///us-east-1b/{id}"));
    assert_eq!(made.node_name.as_str(), id);
    assert_eq!(made.market, launch.request.market);
    sleep(Duration::from_secs(10)).await;
    let listed = bench.list().await.unwrap();
    assert!(listed.instances[&made.provider_id].node_name.as_str().ends_with(".ec2.internal"));
}
