//! What runs of real autoscalers added.

use std::collections::BTreeMap;

use k8s_pb::api::core::v1::Node;
use prost::Message as _;
use serde_json::json;
use stoker_core::facts::supply::InstanceState;
use stoker_core::market::offer::CapacityType;
use stoker_proto::expander::ExpanderOption;
use stoker_proto::externalgrpc::instance_status::InstanceState as Shown;
use stoker_proto::externalgrpc::{PricingNodePriceRequest, PricingPodPriceRequest};
use stoker_proto::{Bytes, Timestamp};
use stoker_sim::model::{Call, LoopError, Outcome, Settings};
use stoker_sim::world::MarketConfig;
use stoker_tests::client::{registered, status, synthetic};
use stoker_tests::harness::Setup;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::rig::Rig;
use tonic::Code;

use crate::world::{A10G, InCluster, L4, grow, mins, newest, no_l4, node_of, one_group, order, pod, secs, two_groups};

/// A newest autoscaler that restarts forgets what it asked for and would buy it again: while that boots, nothing that could serve the
/// same pods may grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_autoscaler_buys_nothing_twice() {
    let mut rig = Rig::start(two_groups(), newest()).await;
    rig.want("p", &["a", "b"]);
    rig.run(mins(1)).await;
    assert_eq!(rig.asked(), [(L4.to_owned(), 2)].into());
    rig.restart_autoscaler().await;
    rig.run(mins(8)).await;
    assert_eq!((rig.running_pods(), rig.asked()), (2, [(L4.to_owned(), 2)].into()));
}

/// Half an answer makes the autoscaler forget what is coming: before everything has been seen once, `Refresh` fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_fails_rather_than_show_half_a_view() {
    for fault in ["partial listings", "errors"] {
        let setup = one_group().world(|world| match fault {
            "errors" => world.api.error_rate = 1.0,
            _ => world.api.partial_listing_rate = 1.0,
        });
        let service = setup.start().await;
        let refused = service.client().refresh().await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{fault}");
        assert!(refused.message().contains("simulated"), "{refused}");
        assert!(service.client().groups().await.is_err(), "{fault}");
        assert!(service.client().increase(L4, 1).await.is_err(), "{fault}");
    }
}

/// Growth that the autoscaler did not ask for is not seen by it: a floor is shown as `minSize`, it asks for that, and pods that come
/// while it boots buy nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floors_grow_through_min_size() {
    let pool = Pool { min_nodes: 2, ..Pool::new("p") };
    let mut rig = Rig::start(Setup::new(policy(&[pool])), Settings::recommended()).await;
    rig.service.pass(mins(1)).await;
    assert_eq!(rig.service.machine_ids().len(), 0, "it does not grow by itself");
    rig.run(secs(90)).await;
    assert_eq!(rig.asked(), [(L4.to_owned(), 2)].into());
    rig.want("p", &["a", "b"]);
    rig.run(mins(6)).await;
    assert_eq!((rig.running_pods(), rig.asked()), (2, [(L4.to_owned(), 2)].into()));
}

/// A floor that meets a stock-out waits out the group's backoff, and no other group is tried for it: another group's floor is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_that_cannot_be_had_moves_to_another_group() {
    let pool = Pool { models: "L4, A10G", min_nodes: 1, ..Pool::new("p") };
    let mut rig = Rig::start(Setup::new(policy(&[pool])).world(no_l4), Settings::recommended()).await;
    rig.run(mins(2)).await;
    assert_eq!(rig.asked(), [(A10G.to_owned(), 1), (L4.to_owned(), 1)].into());
    assert_eq!(rig.service.machines_of(A10G), 1);
}

/// `DecreaseTargetSize` comes for nodes that are live, registered and merely slow, as while a driver is installed. None of them ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_registered_nodes_survive_a_decrease() {
    let mut rig = Rig::start(two_groups(), newest()).await;
    rig.driver = mins(25);
    rig.want("p", &["a", "b"]);
    let reports = rig.run(mins(17)).await;
    let calls = reports.iter().flat_map(|report| report.mutations());
    assert!(
        calls.into_iter().any(|call| *call == Call::DecreaseTargetSize(L4.to_owned(), -2)),
        "the case did not come up: {:?}",
        rig.actions
    );
    assert_eq!(rig.service.client().target(L4).await.unwrap(), 2);
    let machines = rig.service.machines();
    let of_group: Vec<_> = machines.iter().filter(|machine| machine.key.as_str().contains(L4)).collect();
    assert_eq!(of_group.len(), 2);
    assert!(of_group.iter().all(|machine| machine.state == InstanceState::Running), "{of_group:?}");
}

/// Two good nodes on their way beside two errors: a newest autoscaler forgets the good ones and buys two too many. Without the errors,
/// and with the group closed, it buys what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_had_is_completed_elsewhere_and_not_overbought() {
    let setup = two_groups().world(|world| world.markets.push(market::stock(market::of_type("g6.xlarge"), 2)));
    let mut rig = Rig::start(setup, newest()).await;
    rig.want("p", &["a", "b", "c", "d"]);
    rig.run(mins(8)).await;
    assert_eq!(rig.asked(), [(A10G.to_owned(), 2), (L4.to_owned(), 4)].into());
    assert_eq!((rig.running_pods(), rig.service.machine_ids().len()), (4, 4));
}

/// The same over two orders: the second gets nothing while the nodes of the first are on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_gets_nothing_does_not_hide_what_is_coming() {
    let setup = two_groups().world(|world| world.markets.push(market::stock(market::of_type("g6.xlarge"), 2)));
    let mut rig = Rig::start(setup, newest()).await;
    rig.want("p", &["a", "b"]);
    rig.run(secs(45)).await;
    assert_eq!(rig.asked(), [(L4.to_owned(), 2)].into());
    rig.want("p", &["c", "d"]);
    rig.run(mins(8)).await;
    assert_eq!(rig.asked(), [(A10G.to_owned(), 2), (L4.to_owned(), 4)].into());
    assert_eq!((rig.running_pods(), rig.service.machine_ids().len()), (4, 4));
}

/// A deletion of failed placeholders that fails is repeated in every loop. Ours never fails, also done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_placeholders_can_be_deleted() {
    let service = one_group().world(no_l4).start().await;
    order(&service, L4, 2).await;
    let client = service.client();
    let nodes: Vec<_> = client.ids(L4).await.unwrap().iter().map(|id| synthetic(id, "create-error")).collect();
    assert_eq!(nodes.len(), 2);
    for _ in 0..2 {
        client.delete(L4, nodes.clone()).await.unwrap();
        assert_eq!(client.target(L4).await.unwrap(), 0);
        assert_eq!(client.ids(L4).await.unwrap(), Vec::<String>::new());
    }
}

/// A spot node is taken back: the target falls at once and nothing is refilled, so that the autoscaler asks again within seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_spot_nodes_lower_the_target_and_are_not_refilled() {
    let pool = Pool { prefer: "spot, on-demand", ..Pool::new("p") };
    let setup = Setup::new(policy(&[pool])).world(|world| {
        let often = Some(4.0);
        let market = market::of_kind("g6.xlarge", CapacityType::Spot);
        world.markets.push(MarketConfig { market, reclaims_per_hour: often, ..MarketConfig::default() });
        world.reclaims.spread_seconds = 0;
    });
    let service = setup.start().await;
    grow(&service, L4, 2).await;
    assert!(service.machines().iter().all(|machine| machine.market.capacity_type == CapacityType::Spot));
    let mut waited = 0;
    while !service.machine_ids().is_empty() && waited < 180 {
        service.pass(mins(1)).await;
        waited += 1;
    }
    let client = service.client();
    for _ in 0..3 {
        assert_eq!((client.target(L4).await.unwrap(), client.ids(L4).await.unwrap()), (0, Vec::new()));
        assert_eq!(service.machine_ids(), Vec::<String>::new());
        service.pass(mins(5)).await;
    }
}

/// An empty reply of the expander vetoes the scale-up. Ours names an option whatever it is asked, and never one that was not offered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_expander_never_vetoes_by_accident() {
    let setup = two_groups().world(no_l4);
    let service = setup.start().await;
    order(&service, L4, 1).await;
    let option = |group: &str, count: i32, pods: &[&'static [u8]]| ExpanderOption {
        node_group_id: group.to_owned(),
        node_count: count,
        pod_bytes: pods.iter().map(|pod| Bytes::from_static(pod)).collect(),
        ..ExpanderOption::default()
    };
    // Unknown groups, a closed one, no pods, pods that are none, senseless counts.
    let cases = [
        vec![option("unknown", 1, &[])],
        vec![option(L4, 1, &[b"\xff\xff"])],
        vec![option("unknown", 1, &[]), option(L4, 2, &[])],
        vec![option(A10G, 0, &[])],
        vec![option(A10G, -5, &[]), option("unknown", 1, &[])],
        vec![option("", 1, &[])],
        vec![option(L4, 1, &[]), option(A10G, 1, &[b"garbage"])],
    ];
    for options in cases {
        let offered: Vec<String> = options.iter().map(|option| option.node_group_id.clone()).collect();
        let kept = service.client().best_options(options).await.unwrap();
        assert!(!kept.is_empty() && kept.iter().all(|group| offered.contains(group)), "{offered:?} -> {kept:?}");
    }
}

/// The price expander sends times and pods in other fields from release to release, and of a node hardly more than its labels. Each gets
/// the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_are_told_to_every_release() {
    let service = one_group().start().await;
    let client = service.client();
    client.refresh().await.unwrap();
    let (from, to) =
        (Some(Timestamp { seconds: 1_793_606_400, nanos: 0 }), Some(Timestamp { seconds: 1_793_610_000, nanos: 0 }));
    let mut node = registered("template-node-for-whatever-123", "");
    node.labels = [("stoker.dev/group".to_owned(), L4.to_owned())].into();
    let newer =
        PricingNodePriceRequest { node: Some(node.clone()), start_timestamp: from, end_timestamp: to, ..Default::default() };
    let older = PricingNodePriceRequest { node: Some(node), start_time: from, end_time: to, ..Default::default() };
    let dual = PricingNodePriceRequest { start_timestamp: from, end_timestamp: to, ..older.clone() };
    for request in [newer, older, dual] {
        assert!((client.node_price(request).await.unwrap() - 0.9).abs() < 1e-9);
    }
    let pod = pod("p", 0);
    let newer =
        PricingPodPriceRequest { pod_bytes: pod.clone(), start_timestamp: from, end_timestamp: to, ..Default::default() };
    let older = PricingPodPriceRequest { pod, start_time: from, end_time: to, ..Default::default() };
    let (newer, older) = (client.pod_price(newer).await.unwrap(), client.pod_price(older).await.unwrap());
    assert!(newer > 0.0 && (newer - older).abs() < 1e-12);
}

/// A template is not asked for again once the group had a node: so each node is exactly what the template said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_what_their_template_says() {
    let more = "  template: { labels: { team: recs }, taints: [{ key: nvidia.com/gpu, effect: NoSchedule }] }\n".to_owned();
    let world = InCluster::start(Setup::new(policy(&[Pool { more, ..Pool::new("p") }]))).await;
    world.client().refresh().await.unwrap();
    let group = world.client().groups().await.unwrap().remove(0).id;
    let template = Node::decode(world.client().template(&group).await.unwrap().node_bytes).unwrap();
    let name = world.grow(&group, 1).await.remove(0).0;
    let node = world.cluster.node(&name).unwrap();

    let mut labels: BTreeMap<String, String> = serde_json::from_value(node["metadata"]["labels"].clone()).unwrap();
    let mut expected = template.metadata.unwrap().labels;
    assert_eq!(labels.remove("kubernetes.io/hostname"), Some(name));
    expected.remove("kubernetes.io/hostname");
    assert_eq!(labels, expected);
    let taints = template.spec.unwrap().taints;
    let taints: Vec<_> = taints.into_iter().map(|t| json!({ "key": t.key, "effect": t.effect })).collect();
    assert_eq!(node["spec"]["taints"], json!(taints));
    let status = template.status.unwrap();
    for (field, amounts) in [("capacity", status.capacity), ("allocatable", status.allocatable)] {
        let amounts: BTreeMap<_, _> = amounts.into_iter().map(|(name, amount)| (name, amount.string)).collect();
        assert_eq!(node["status"][field], json!(amounts), "{field}");
    }
}

/// The server is killed and comes back half a minute later: loops end with a failed refresh, what was accepted is there under the same
/// ids, and nothing is bought twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_buys_nothing_twice() {
    let setup = Setup::new(policy(&[Pool::new("p"), Pool { models: "A10G", ..Pool::new("q") }]));
    let setup = setup.world(|world| world.markets.push(market::stock(market::of_type("g5.xlarge"), 0)));
    let mut rig = Rig::start(setup, newest()).await;
    rig.want("p", &["a", "b", "c"]);
    rig.run(mins(1)).await;
    let dry = "q.g5-xlarge.us-east-1a";
    rig.service.client().increase(dry, 2).await.unwrap();
    rig.service.settle().await;
    let before = (rig.service.client().ids(L4).await.unwrap(), rig.service.client().ids(dry).await.unwrap());
    assert_eq!((before.0.len(), before.1.len()), (3, 2));
    rig.service.kill().await;
    for report in rig.run_without_service(secs(35)).await {
        assert!(matches!(report.outcome, Outcome::Failed(LoopError::Refresh(_))), "{:?}", report.outcome);
    }
    rig.service.revive().await;
    rig.reconnect();
    let after = (rig.service.client().ids(L4).await.unwrap(), rig.service.client().ids(dry).await.unwrap());
    assert_eq!(after, before);
    rig.run(mins(8)).await;
    assert_eq!((rig.running_pods(), rig.service.machines_of(L4)), (3, 3));
    assert_eq!(rig.asked().get(L4), Some(&3));
}

/// A deletion that takes 40 s: the instance is told as on its way out, once deleted it does not count, and a second call changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_deletion_is_told_as_one() {
    let service = one_group().world(|world| world.stop_seconds = 40).start().await;
    grow(&service, L4, 2).await;
    let client = service.client();
    let going = service.machine_ids().remove(0);
    let node = node_of(&service, &going);
    client.delete(L4, vec![node.clone()]).await.unwrap();
    for _ in 0..2 {
        service.pass(secs(15)).await;
        client.delete(L4, vec![node.clone()]).await.unwrap();
        let instances = client.nodes(L4).await.unwrap();
        let shown = instances.iter().find(|instance| instance.id == going).map(|instance| status(instance).0);
        assert_eq!((shown, client.target(L4).await.unwrap()), (Some(Shown::InstanceDeleting), 1));
    }
    service.pass(mins(2)).await;
    assert_eq!((client.ids(L4).await.unwrap().len(), service.machine_ids().len()), (1, 1));
}

/// `GPULabel` comes too late to notice a restart by it: the first `Refresh` of a new connection closes the groups, before its first list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_closes_what_is_coming_before_its_first_list() {
    let service = two_groups().start().await;
    order(&service, L4, 2).await;
    assert!(service.client().group(A10G).await.unwrap().max_size > 0);
    let restarted = service.another_client().await;
    restarted.refresh().await.unwrap();
    let limits: BTreeMap<String, i32> =
        restarted.groups().await.unwrap().into_iter().map(|group| (group.id, group.max_size)).collect();
    assert_eq!(limits, [(A10G.to_owned(), 0), (L4.to_owned(), 2)].into());
}

/// An annotation set after the mark does not stop a deletion: the last resort is `DeleteNodes`, which refuses a node that pods hold, and
/// names them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_became_busy_after_the_mark_is_refused() {
    let world = InCluster::start(one_group()).await;
    let (name, id) = world.grow(L4, 1).await.remove(0);
    world.make_busy(L4, &name, "training-1").await;
    let node = registered(&name, &id);
    let refused = world.client().delete(L4, vec![node.clone()]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("default/training-1"), "{refused}");
    assert_eq!(world.client().target(L4).await.unwrap(), 1);
    world.cluster.end_pod("training-1");
    let deleted = || async { world.client().delete(L4, vec![node.clone()]).await.ok() };
    world.service.eventually("the idle node to be deleted", deleted).await;
    assert_eq!(world.client().target(L4).await.unwrap(), 0);
}
