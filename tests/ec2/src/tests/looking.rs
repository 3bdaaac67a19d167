//! Listings: filters, pages, lag, notices; and the pace at which they may be asked.

use std::time::Duration;

use super::{Rig, element, refused};
use crate::{Fault, Rule, State};

const RUNNING: [(&str, &str); 2] = [("Filter.1.Name", "instance-state-name"), ("Filter.1.Value.1", "running")];

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[tokio::test]
async fn listings_lag_behind_launches_and_ends() {
    let rig = Rig::new();
    rig.peer.world().listing_lag = Duration::from_secs(40);
    let id = rig.id("a", "t", &[]).await;
    assert_eq!(count(&rig.ask("DescribeInstances", &[]).await.1, "<instanceId>"), 0);
    refused(&rig.ask("DescribeInstances", &[("InstanceId.1", &id)]).await, 400, "InvalidInstanceID.NotFound");
    rig.pass(39);
    assert_eq!(count(&rig.ask("DescribeInstances", &[]).await.1, "<instanceId>"), 0);
    assert_eq!(element(&rig.run("a", "t", &[]).await.1, "name"), "running", "a replay sees the truth");
    rig.pass(1);
    assert_eq!(count(&rig.ask("DescribeInstances", &RUNNING).await.1, "<instanceId>"), 1);
    let told = rig.ask("TerminateInstances", &[("InstanceId.1", &id)]).await;
    assert!(told.1.contains("<currentState><code>32</code><name>shutting-down</name></currentState>"), "{}", told.1);
    rig.pass(39);
    assert_eq!(count(&rig.ask("DescribeInstances", &RUNNING).await.1, "<instanceId>"), 1, "its end is not seen yet");
    rig.pass(1);
    let told = rig.ask("DescribeInstances", &[]).await.1;
    assert!(told.contains("<code>Client.UserInitiatedShutdown</code>"), "{told}");
    assert_eq!(element(&told, "name"), "terminated");
    rig.pass(3_600);
    assert_eq!(count(&rig.ask("DescribeInstances", &[]).await.1, "<instanceId>"), 0);
}

#[tokio::test]
async fn pages_hold_every_machine_once_and_one_may_fail() {
    let rig = Rig::new();
    rig.peer.world().buckets = false;
    let mut made = Vec::new();
    for number in 0..12 {
        made.push(rig.id("a", &format!("t{number}"), &[]).await);
    }
    rig.peer.world().fault(
        Rule::of("DescribeInstances", Fault::status(500, "InternalError", "")).matching("NextToken", "page-3*").times(1),
    );
    let (mut next, mut found, mut failed) = (String::new(), Vec::new(), 0);
    loop {
        let told = rig.ask("DescribeInstances", &[("MaxResults", "5"), ("NextToken", &next)]).await;
        if told.0 == 500 {
            failed += 1;
            continue;
        }
        found.extend(told.1.split("<instanceId>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()));
        next = element(&told.1, "nextToken");
        if next.is_empty() {
            break;
        }
    }
    made.sort();
    assert_eq!((found, failed), (made.clone(), 1));
    let both = [("MaxResults", "5"), ("InstanceId.1", made[0].as_str())];
    refused(&rig.ask("DescribeInstances", &both).await, 400, "InvalidParameterCombination");
    refused(&rig.ask("DescribeInstances", &[("MaxResults", "4")]).await, 400, "InvalidParameterValue");
}

#[tokio::test]
async fn filters_narrow_a_listing() {
    let rig = Rig::new();
    rig.id("a", "t", &[]).await;
    let other = rig.id("b", "u", &[("TagSpecification.1.Tag.1.Value", "a+b & <ü>")]).await;
    for (name, value, found) in [
        ("client-token", "u", 1),
        ("tag:stoker.dev/cluster", "a+b*", 1),
        ("tag:stoker.dev/cluster", "other", 0),
        ("tag-key", "stoker.dev/cluster", 2),
        ("availability-zone", "us-east-1b", 1),
        ("instance-id", other.as_str(), 1),
        ("instance-type", "g6.*large", 2),
    ] {
        let filter = [("Filter.1.Name", name), ("Filter.1.Value.1", "none"), ("Filter.1.Value.2", value)];
        assert_eq!(count(&rig.ask("DescribeInstances", &filter).await.1, "<instanceId>"), found, "{name}={value}");
    }
    let told = rig.ask("DescribeInstances", &[("InstanceId.1", &other)]).await.1;
    assert!(told.contains("<value>a+b &amp; &lt;ü&gt;</value>"), "{told}");
    let unknown = [("Filter.1.Name", "colour"), ("Filter.1.Value.1", "red")];
    refused(&rig.ask("DescribeInstances", &unknown).await, 400, "InvalidParameterValue");
    refused(&rig.ask("DescribeSubnets", &unknown).await, 400, "InvalidParameterValue");
}

#[tokio::test]
async fn launches_are_throttled_at_two_a_second() {
    let rig = Rig::new();
    for number in 0..5 {
        rig.id("a", &format!("t{number}"), &[]).await;
    }
    refused(&rig.run("a", "t5", &[]).await, 503, "RequestLimitExceeded");
    rig.pass(1);
    rig.id("a", "t5", &[]).await;
    rig.id("a", "t6", &[]).await;
    refused(&rig.run("a", "t7", &[]).await, 503, "RequestLimitExceeded");
    rig.peer.world().buckets = false;
    rig.id("a", "t7", &[]).await;
}

#[tokio::test]
async fn a_bare_listing_has_a_smaller_bucket() {
    let rig = Rig::new();
    for _ in 0..50 {
        assert_eq!(rig.ask("DescribeInstances", &[]).await.0, 200);
    }
    refused(&rig.ask("DescribeInstances", &[]).await, 503, "RequestLimitExceeded");
    assert_eq!(rig.ask("DescribeInstances", &RUNNING).await.0, 200);
}

#[tokio::test]
async fn a_spot_request_says_terminated_while_the_machine_still_runs() {
    let rig = Rig::new();
    let id = rig.id("a", "t", &[("InstanceMarketOptions.MarketType", "spot")]).await;
    rig.pass(10);
    let now = rig.peer.now();
    rig.peer.world().reclaim(&id, now);
    let filter = [("Filter.1.Name", "status-code"), ("Filter.1.Value.1", "instance-terminated-no-capacity")];
    let told = rig.ask("DescribeSpotInstanceRequests", &filter).await.1;
    assert_eq!(element(&told, "instanceId"), id);
    assert_eq!(rig.peer.world().state(&id), Some(State::Running));
    rig.pass(120);
    assert_eq!(rig.peer.world().state(&id), Some(State::ShuttingDown));
    rig.pass(30);
    let told = rig.ask("DescribeInstances", &[("InstanceId.1", &id)]).await.1;
    assert!(told.contains("<code>Server.SpotInstanceTermination</code>"), "{told}");
}

#[tokio::test]
async fn a_machine_may_end_right_after_its_launch() {
    let rig = Rig::new();
    let id = rig.id("a", "t", &[]).await;
    rig.peer.world().end_by(&id, "Client.InternalError");
    let told = rig.ask("DescribeInstances", &[("InstanceId.1", &id)]).await.1;
    assert!(told.contains("<code>Client.InternalError</code>"), "{told}");
    let stopped = rig.id("a", "u", &[]).await;
    rig.peer.world().stop(&stopped);
    rig.pass(30);
    assert_eq!(rig.peer.world().state(&stopped), Some(State::Stopped));
}

#[tokio::test]
async fn spot_prices_come_in_the_order_of_the_world() {
    let rig = Rig::new();
    let now = rig.peer.now();
    {
        let mut world = rig.peer.world();
        let prices = &mut world.region("us-east-1").spot_prices;
        prices.retain(|price| price.instance_type == "g6.xlarge" && price.zone_id == "use1-az1");
        let mut later = prices[0].clone();
        (later.price, later.at) = ("0.500000".to_owned(), now + Duration::from_mins(5));
        prices.insert(0, later);
    }
    let then = (now + Duration::from_mins(1)).to_string();
    let told = rig.ask("DescribeSpotPriceHistory", &[("StartTime", &then), ("EndTime", &then)]).await.1;
    assert_eq!((count(&told, "<spotPrice>"), element(&told, "spotPrice").as_str()), (1, "0.321900"), "{told}");
    rig.pass(600);
    let told = rig.ask("DescribeSpotPriceHistory", &[("StartTime", &then)]).await.1;
    assert_eq!((count(&told, "<spotPrice>"), element(&told, "spotPrice").as_str()), (2, "0.500000"), "{told}");
}

#[tokio::test]
async fn another_account_sees_nothing_of_ours() {
    let rig = Rig::new();
    rig.id("a", "t", &[]).await;
    rig.peer.world().accounts.insert(crate::ACCESS_KEY.to_owned(), "222222222222".to_owned());
    assert_eq!(count(&rig.ask("DescribeInstances", &[]).await.1, "<instanceId>"), 0);
    refused(&rig.run("a", "t", &[]).await, 400, "InvalidSubnetID.NotFound");
    rig.peer.world().accounts.clear();
    refused(&rig.ask("DescribeInstances", &[]).await, 401, "AuthFailure");
}
