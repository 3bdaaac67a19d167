//! Launches: one machine a key, whatever EC2 answers.

use std::time::Duration;

use stoker_core::facts::supply::{RefusalKind, RefusalScope};
use stoker_fake_ec2::{Fault, Rule};
use tokio::time::sleep;

use crate::bench::Bench;

/// No token ever made two machines, and none was used in two zones.
fn assert_one_a_token(bench: &Bench) {
    for (token, zones) in bench.world(|world| world.machines_by_token()) {
        assert_eq!(zones.len(), 1, "{token} was used in {zones:?}");
        assert!(zones.values().all(|made| *made == 1), "{token} made {zones:?}");
    }
}

/// Scenario 1.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_again_and_makes_one_machine() {
    let bench = Bench::new().await;
    bench.world(|world| world.fault(Rule::of("RunInstances", Fault::Lose).times(1)));
    let launch = bench.usual(1);
    let said = bench.unclear(&launch).await;
    assert!(said.contains("the connection was cut"), "{said}");
    let made = bench.made(&launch).await;
    assert_eq!(made.key, launch.request.key);
    assert_eq!(bench.world(|world| world.alive().len()), 1);
    assert_one_a_token(&bench);
}

/// Scenario 5.
#[tokio::test(start_paused = true)]
async fn a_stock_out_is_refused_after_one_call_although_its_status_is_500() {
    let bench = Bench::new().await;
    bench.world(|world| {
        world.region("us-east-1").set_stock("g6.xlarge", "use1-az1", stoker_fake_ec2::Market::OnDemand, Some(0))
    });
    let begun = bench.now();
    let refusal = bench.refused(&bench.usual(1)).await;
    assert_eq!((refusal.kind, refusal.scope), (RefusalKind::OutOfCapacity, RefusalScope::Market));
    assert_eq!(bench.world(|world| world.count("RunInstances")), 1);
    assert!(bench.now().duration_since(begun).as_secs() < 1);
    sleep(Duration::from_secs(1)).await;
}
