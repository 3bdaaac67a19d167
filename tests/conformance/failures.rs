//! Errors of instances, and what makes the autoscaler leave a group alone.

use std::collections::BTreeSet;

use stoker_sim::model::Action;
use stoker_tests::client::{failed, status, synthetic};
use stoker_tests::market;
use stoker_tests::rig::Rig;

use crate::world::{A10G, InCluster, L4, mins, newest, no_l4, one_group, order, secs, two_groups};

/// The codes that an autoscaler may see: each becomes a label of its metrics.
const CODES: [&str; 5] = ["OUT_OF_CAPACITY", "QUOTA_EXCEEDED", "PERMISSION", "CONFIG", "BOOT_TIMEOUT"];

/// Only an error with a code counts as a failed creation; without one the instance is waited for until the provision time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_has_a_code() {
    let service = one_group().world(no_l4).start().await;
    order(&service, L4, 2).await;
    let instances = service.client().nodes(L4).await.unwrap();
    assert_eq!(instances.len(), 2);
    for instance in &instances {
        let error = status(instance).1.unwrap();
        assert!(!error.error_code.is_empty() && !error.error_message.is_empty(), "{error:?}");
    }
}

/// Failed placeholders are counted until the autoscaler has deleted them: else it sees no scale-up that could have failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_placeholders_count_until_they_are_deleted() {
    let service = one_group().world(no_l4).start().await;
    order(&service, L4, 2).await;
    let client = service.client();
    let ids = client.ids(L4).await.unwrap();
    service.pass(mins(5)).await;
    assert_eq!((client.target(L4).await.unwrap(), client.ids(L4).await.unwrap()), (2, ids.clone()));
    assert_eq!(ids.len(), 2);
    client.delete(L4, vec![synthetic(&ids[0], "create-error")]).await.unwrap();
    assert_eq!((client.target(L4).await.unwrap(), client.ids(L4).await.unwrap()), (1, vec![ids[1].clone()]));
}

/// An error under an id that was seen with that error before is no news, and backs nothing off: every node asked for has a new id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_has_a_fresh_id() {
    let service = one_group().world(no_l4).start().await;
    let client = service.client();
    let mut seen = BTreeSet::new();
    let mut asked = 0;
    for nodes in [2, 1, 1] {
        order(&service, L4, nodes).await;
        asked += nodes;
        let ids = client.ids(L4).await.unwrap();
        client.delete(L4, ids.iter().map(|id| synthetic(id, "create-error")).collect()).await.unwrap();
        seen.extend(ids);
        // Past the longest time for which the market is left alone.
        service.pass(mins(16)).await;
    }
    assert_eq!(seen.len(), usize::try_from(asked).unwrap(), "{seen:?}");
}

/// Codes are labels of metrics: there are few, and they never carry what differs from case to case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_are_few() {
    let setup = two_groups().world(|world| {
        no_l4(world);
        world.broken_images.push(market::of_type("g5.xlarge"));
    });
    let service = setup.start().await;
    order(&service, L4, 1).await;
    order(&service, A10G, 1).await;
    service.pass(mins(11)).await;
    for (group, expected, class) in [(L4, "OUT_OF_CAPACITY", 1), (A10G, "BOOT_TIMEOUT", 99)] {
        let instances = service.client().nodes(group).await.unwrap();
        let error = failed(&instances)[0].status.as_ref().unwrap().error_info.clone().unwrap();
        assert!(CODES.contains(&error.error_code.as_str()), "{error:?}");
        assert_eq!((error.error_code.as_str(), error.instance_error_class), (expected, class));
    }
}

/// Nothing to be had: the order is taken, all its placeholders have an error, and the autoscaler is in the next group in its next loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_be_had_leads_to_the_next_group_at_once() {
    let mut rig = Rig::start(two_groups().world(no_l4), newest()).await;
    rig.want("p", &["a", "b"]);
    let reports = rig.run(secs(60)).await;
    let asked = |group: &str| reports.iter().find(|report| report.asked().contains_key(group)).map(|report| report.at);
    let (first, second) = (asked(L4).unwrap(), asked(A10G).unwrap());
    assert!(second.duration_since(first) < secs(1), "{first} and {second}");
    assert!(rig.actions.iter().any(|action| matches!(action, Action::BackedOff { group, .. } if group == L4)));
    rig.run(mins(5)).await;
    assert_eq!((rig.running_pods(), rig.service.machine_ids().len()), (2, 2));
}

/// A part to be had: what is there or coming is counted and has no error, the rest goes from the target, the group is closed until its
/// market may be tried again, an Event tells, and a late request to take all of it back takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_to_be_had_stays_and_the_group_is_closed() {
    let setup = one_group().world(|world| world.markets.push(market::stock(market::of_type("g6.xlarge"), 2)));
    let world = InCluster::start(setup).await;
    let (service, client) = (&world.service, world.client());
    order(service, L4, 4).await;
    for _ in 0..2 {
        let instances = client.nodes(L4).await.unwrap();
        assert!(instances.len() == 2 && instances.iter().all(|instance| status(instance).1.is_none()), "{instances:?}");
        let group = client.group(L4).await.unwrap();
        assert_eq!((client.target(L4).await.unwrap(), group.max_size), (2, 2));
        assert!(client.increase(L4, 1).await.is_err());
        client.decrease(L4, -4).await.unwrap();
        service.settle().await;
    }
    let told = || async { world.cluster.event_reasons().contains(&"OrderShort".to_owned()).then_some(()) };
    service.eventually("the Event", told).await;
}
