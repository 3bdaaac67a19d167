//! Ten things that a naive provider gets wrong.

use std::collections::{BTreeMap, BTreeSet};

use k8s_pb::api::core::v1::{Node, Pod};
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use serde_json::json;
use stoker_core::base::ids::{LaunchKey, NodeGroupId};
use stoker_core::catalogue::template::{CLUSTER_LABEL, GPU_LABEL};
use stoker_core::facts::supply::{InstanceState, LaunchOutcome, LaunchRequest};
use stoker_core::market::offer::CapacityType;
use stoker_proto::expander::ExpanderOption;
use stoker_proto::externalgrpc::{
    ExternalGrpcNode, LegacyDuration, NodeGroupAutoscalingOptions, PricingNodePriceRequest, PricingPodPriceRequest,
};
use stoker_proto::{Bytes, Duration, Timestamp};
use stoker_tests::client::{failed, registered, synthetic};
use stoker_tests::harness::Setup;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};

use crate::world::{A10G, InCluster, L4, grow, mins, no_l4, node_of, one_group, order, pod, secs, template, two_groups};

/// The defaults that clients of each generation send with `GetOptions`.
fn defaults() -> Vec<Option<NodeGroupAutoscalingOptions>> {
    let (old, new) = (Some(LegacyDuration { nanos: 600_000_000_000 }), Some(Duration { seconds: 600, nanos: 0 }));
    let first = NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: 0.5,
        scale_down_gpu_utilization_threshold: 0.5,
        scale_down_unneeded_time: old,
        scale_down_unready_time: old,
        ..Default::default()
    };
    let second = NodeGroupAutoscalingOptions { max_node_provision_time: old, ..first };
    let third = NodeGroupAutoscalingOptions { ignore_daemon_sets_utilization: true, ..second };
    let dual = NodeGroupAutoscalingOptions {
        scale_down_unneeded_duration: new,
        scale_down_unready_duration: new,
        max_node_provision_duration: new,
        ..third
    };
    let newest = NodeGroupAutoscalingOptions {
        scale_down_unneeded_time: None,
        scale_down_unready_time: None,
        max_node_provision_time: None,
        ..dual
    };
    vec![None, Some(first), Some(second), Some(third), Some(dual), Some(newest)]
}

/// 1. `GetOptions` filled in part: thresholds of nought, start-up time of nought, a crash on old releases. Ours answers empty, whoever
/// asks about whatever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_are_answered_empty() {
    let service = one_group().start().await;
    for group in [L4, "unknown"] {
        for defaults in defaults() {
            let answer = service.client().options(group, defaults).await.unwrap();
            assert_eq!(answer.node_group_autoscaling_options, None, "{group} {defaults:?}");
        }
    }
}

/// 2. An error from `NodeGroupForNode` for a node that is not ours stops the whole autoscaler. Ours answers "no group".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_nodes_are_nobodys_and_no_error() {
    let service = one_group().start().await;
    grow(&service, L4, 1).await;
    let client = service.client();
    let long = "x".repeat(1 << 20);
    let foreign = [
        None,
        Some(ExternalGrpcNode::default()),
        Some(registered("control-plane-1", "kubeadm://control-plane-1")),
        Some(registered("control-plane-2", "")),
        Some(registered("", "aws:///us-east-1a/i-0123456789abcdef0")),
        Some(synthetic("stoker://test/p.g6-xlarge.us-east-1a/999999", "unregistered")),
        Some(registered(&format!("template-node-for-{L4}-upcoming-0"), "")),
        Some(registered(&long, &long)),
    ];
    for node in foreign {
        let shown = format!("{node:?}").chars().take(200).collect::<String>();
        assert_eq!(client.group_of(node).await.unwrap(), "", "{shown}");
    }
    let ours = node_of(&service, &service.machine_ids()[0]);
    assert_eq!(client.group_of(Some(ours)).await.unwrap(), L4);
}

/// 2. An error from `DecreaseTargetSize` stops the whole autoscaler, in every loop. Ours takes back what there is to take and answers OK.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decreasing_by_too_much_is_no_error() {
    let service = one_group().start().await;
    let client = service.client();
    client.decrease(L4, -1).await.unwrap();
    grow(&service, L4, 2).await;
    for delta in [-1, -2, -50, i32::MIN] {
        client.decrease(L4, delta).await.unwrap();
        service.settle().await;
        assert_eq!(client.target(L4).await.unwrap(), 2, "{delta}");
    }
    assert_eq!(service.machine_ids().len(), 2);
}

/// 3. A plain counter as target: time-out, clean-up and size fix each subtract the same missing node, and healthy ones are killed. Our
/// target is the count of records, so each of them goes once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_missing_node_taken_back_three_ways_counts_once() {
    let service = one_group().start().await;
    order(&service, L4, 3).await;
    let client = service.client();
    let missing = client.ids(L4).await.unwrap().remove(0);
    client.decrease(L4, -3).await.unwrap();
    client.delete(L4, vec![synthetic(&missing, "unregistered")]).await.unwrap();
    client.decrease(L4, -1).await.unwrap();
    client.delete(L4, vec![synthetic(&missing, "unregistered")]).await.unwrap();
    service.settle().await;
    client.delete(L4, vec![synthetic(&missing, "unregistered")]).await.unwrap();
    assert_eq!(client.target(L4).await.unwrap(), 2);
    service.pass(mins(5)).await;
    assert_eq!(client.target(L4).await.unwrap(), 2);
    assert_eq!(service.machine_ids().len(), 2, "two healthy ones are there, the third has gone");
}

/// 4. An instance id that differs from its Node's `spec.providerID`: healthy nodes are deleted after a quarter of an hour. Ours are the
/// same text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instance_ids_are_provider_ids() {
    let world = InCluster::start(one_group()).await;
    let nodes = world.grow(L4, 2).await;
    let provider_ids: BTreeSet<String> = nodes.iter().map(|(_, id)| id.clone()).collect();
    let instances: BTreeSet<String> = world.client().ids(L4).await.unwrap().into_iter().collect();
    assert_eq!(provider_ids.len(), 2);
    assert_eq!(instances, provider_ids);
    for (name, id) in nodes {
        assert_eq!(world.client().group_of(Some(registered(&name, &id))).await.unwrap(), L4);
    }
}

/// 5. Errors told of running instances or without a code, or the placeholder gone from the target first: no backoff, and a quarter of an
/// hour of waiting. Ours are creating, have a code, and count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_told_of_placeholders_that_still_count() {
    let service = one_group().world(no_l4).start().await;
    order(&service, L4, 2).await;
    let instances = service.client().nodes(L4).await.unwrap();
    assert_eq!(failed(&instances).len(), 2, "{instances:?}");
    assert_eq!(service.client().target(L4).await.unwrap(), 2);
}

/// 6. `IncreaseSize` that blocks until there are machines: a deadline of 5 s, backoff, nodes nobody counts. Ours answers when the order
/// is durable and its target published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growing_returns_before_there_are_machines() {
    let service = one_group().world(|world| (world.api.latency_ms.min, world.api.latency_ms.max) = (1_500, 1_500));
    let service = service.in_real_time().start().await;
    let client = service.client();
    service.eventually("the first refresh", || async { client.refresh().await.ok() }).await;
    client.increase(L4, 2).await.unwrap();
    let machines = service.machine_ids().len();
    assert_eq!((client.target(L4).await.unwrap(), machines), (2, 0));
}

/// 7. A template that is empty, in one field only, or without GPUs or taints: crashes of one release or another, or pods that never fit.
/// Ours is whole, and the same in both fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_are_whole_for_every_release() {
    let pools = [
        Pool { models: "L4, A10G, L40S", zones: "us-east-1a, us-east-1b", ..Pool::new("p") },
        Pool { count: 4, prefer: "spot, on-demand", ..Pool::new("big") },
    ];
    let service = Setup::new(policy(&pools)).start().await;
    service.client().refresh().await.unwrap();
    let groups = service.client().groups().await.unwrap();
    assert_eq!(groups.len(), 7);
    for group in groups {
        let answer = service.client().template(&group.id).await.unwrap();
        assert!(!answer.node_info.is_empty() && answer.node_info == answer.node_bytes, "{}", group.id);
        let node = Node::decode(answer.node_bytes).unwrap();
        let status = node.status.unwrap();
        let gpus = if group.id.starts_with("big") { "4" } else { "1" };
        assert_eq!(status.allocatable["nvidia.com/gpu"].string.as_deref(), Some(gpus), "{}", group.id);
        assert_eq!(node.spec.unwrap().taints.len(), 1, "{}", group.id);
    }
}

/// 7. A shape that changes under the same id: the autoscaler simulates with the old one for ever. Ours gets a new id, and the old group
/// keeps its template until it is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_shape_is_a_new_group() {
    let mut service = two_groups().start().await;
    grow(&service, L4, 1).await;
    let mut before = BTreeMap::new();
    for group in service.client().groups().await.unwrap() {
        before.insert(group.id.clone(), template(service.client(), &group.id).await);
    }
    service.kill().await;
    let more = "  template: { labels: { team: recs } }\n".to_owned();
    service.setup.policy = policy(&[Pool { models: "L4, A10G", more, ..Pool::new("p") }]);
    service.revive().await;
    let old = service.client().group(L4).await.unwrap();
    assert_eq!(
        (old.max_size, service.client().target(L4).await.unwrap()),
        (1, 1),
        "the old group stays, closed, while it has a node"
    );
    for group in service.client().groups().await.unwrap() {
        let after = template(service.client(), &group.id).await;
        let labels = &after.metadata.as_ref().unwrap().labels;
        match before.get(&group.id) {
            Some(before) => assert_eq!(*before, after, "{} changed", group.id),
            None => assert_eq!(labels["team"], "recs", "{}", group.id),
        }
    }
}

/// 8. A GPU label that comes late, or that nodes of others bear too: wrong templates, blocked scale-ups. Ours has a key of our own, is on
/// the template, and on the Node from its first moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gpu_label_is_ours_and_there_from_the_start() {
    let world = InCluster::start(one_group()).await;
    let label = world.client().gpu_label().await.unwrap();
    assert_eq!(label, GPU_LABEL);
    assert!(world.client().gpu_types().await.unwrap().contains(&"L4".to_owned()));
    let template = template(world.client(), L4).await;
    assert_eq!(template.metadata.unwrap().labels[&label], "L4");
    world.grow(L4, 1).await;
    let born = world.cluster.nodes_at_birth();
    assert_eq!(born.len(), 1);
    assert_eq!(born[0]["metadata"]["labels"][&label], "L4", "{}", born[0]["metadata"]);
    assert_eq!(born[0]["status"]["allocatable"]["nvidia.com/gpu"], "1");
}

/// 8. A Ready node with the GPU label and no `nvidia.com/gpu` is taken for one that still starts, for ever. Ours bears it only where it has
/// some, under whatever name the rest goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_publishes_no_gpu_bears_no_gpu_label() {
    let sharing = |rename: bool| {
        format!("  sharing: {{ timeSlicing: 4, renameByDefault: {rename}, acknowledge: [timeSlicedInference] }}\n")
    };
    for (rename, resource, labelled) in [(false, "nvidia.com/gpu", true), (true, "nvidia.com/gpu.shared", false)] {
        let world = InCluster::start(Setup::new(policy(&[Pool { more: sharing(rename), ..Pool::new("p") }]))).await;
        world.client().refresh().await.unwrap();
        let group = world.client().groups().await.unwrap()[0].id.clone();
        let template = template(world.client(), &group).await;
        assert_eq!(template.metadata.unwrap().labels.contains_key(GPU_LABEL), labelled, "{resource}");
        let allocatable = template.status.unwrap().allocatable;
        let gpus: Vec<_> = allocatable.iter().filter(|(name, _)| name.starts_with("nvidia.com/")).collect();
        assert_eq!((gpus.len(), gpus[0].0.as_str(), gpus[0].1.string.as_deref()), (1, resource, Some("4")));
        world.grow(&group, 1).await;
        let born = &world.cluster.nodes_at_birth()[0];
        assert_eq!(born["metadata"]["labels"].get(GPU_LABEL).is_some(), labelled, "{resource}");
        assert_eq!(born["status"]["allocatable"][resource], "4");
    }
}

/// 9. `DeleteNodes` that refuses at the minimum size, or for ids that are gone: clean-up never ends. Ours takes both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_below_the_minimum_or_what_is_gone_is_fine() {
    let service = Setup::new(policy(&[Pool { min_nodes: 2, ..Pool::new("p") }])).start().await;
    grow(&service, L4, 2).await;
    let client = service.client();
    assert_eq!(client.group(L4).await.unwrap().min_size, 2);
    let one = node_of(&service, &service.machine_ids()[0]);
    client.delete(L4, vec![one.clone()]).await.unwrap();
    assert_eq!(client.target(L4).await.unwrap(), 1);
    for gone in
        [one, synthetic("stoker://test/p.g6-xlarge.us-east-1a/999999", "unregistered"), registered("never-heard-of", "")]
    {
        client.delete(L4, vec![gone]).await.unwrap();
        assert_eq!(client.target(L4).await.unwrap(), 1);
    }
}

/// 9. Capacity that goes on `Cleanup`: an autoscaler that restarts says so too. Ours stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_deletes_nothing() {
    let service = one_group().start().await;
    grow(&service, L4, 2).await;
    service.client().cleanup().await.unwrap();
    service.pass(mins(2)).await;
    assert_eq!(service.client().target(L4).await.unwrap(), 2);
    assert!(service.machines().iter().all(|machine| machine.state == InstanceState::Running));
}

/// 9. Node objects of dead machines that stay: three of them and 45 % halt the whole autoscaler. Ours are removed; nobody else's are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_dead_machines_go() {
    let world = InCluster::start(one_group()).await;
    let alive = world.grow(L4, 1).await.remove(0).0;
    let node =
        |name: &str, id: &str, labels| json!({ "metadata": { "name": name, "labels": labels }, "spec": { "providerID": id } });
    world.cluster.add_node(node("dead", "aws:///us-east-1a/i-dead", json!({ CLUSTER_LABEL: "test" })));
    world.cluster.add_node(node("foreign", "aws:///us-east-1a/i-foreign", json!({})));
    let gone = || async {
        world.service.at(world.service.now() + secs(10)).await;
        world.cluster.node("dead").is_none().then_some(())
    };
    world.service.eventually("the dead node to go", gone).await;
    assert!(world.cluster.node("foreign").is_some() && world.cluster.node(&alive).is_some());
}

/// 10. That what is coming is always seen: a newest autoscaler ignores what it did not ask for. While such a machine boots, nothing that
/// could serve the same pods may grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_asked_for_closes_the_groups_while_it_boots() {
    let service = two_groups().start().await;
    let client = service.client();
    client.refresh().await.unwrap();
    let key = LaunchKey::new(format!("test/{L4}/900/1")).unwrap();
    let market = market::market("g6.xlarge", "use1-az1", CapacityType::OnDemand);
    let zone_name = "us-east-1a".to_owned().try_into().unwrap();
    let request = LaunchRequest { key, group: NodeGroupId::new(L4).unwrap(), market, zone_name, reservation: None };
    assert!(matches!(service.launch_aside(request).await, LaunchOutcome::Launched(_)));
    service.pass(secs(20)).await;
    assert_eq!(client.target(L4).await.unwrap(), 1, "it is counted");
    for (group, target) in [(L4, 1), (A10G, 0)] {
        assert_eq!(client.group(group).await.unwrap().max_size, target, "{group}");
        assert!(client.increase(group, 1).await.is_err(), "{group}");
    }
    service.pass(mins(3)).await;
    assert_eq!(client.group(L4).await.unwrap().max_size, 10, "it has booted, so all is open again");
}

/// 10. That `maxSize` is static. Ours falls with what the pool holds in other groups, and to the target where the market is shut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_size_follows_the_world() {
    let pool = Pool { models: "L4, A10G", max_nodes: 3, ..Pool::new("p") };
    let service = Setup::new(policy(&[pool])).world(|world| world.markets.push(market::stock(market::of_type("g5.xlarge"), 1)));
    let service = service.start().await;
    let client = service.client();
    assert_eq!((client.group(L4).await.unwrap().max_size, client.group(A10G).await.unwrap().max_size), (3, 3));
    order(&service, L4, 1).await;
    assert_eq!((client.group(L4).await.unwrap().max_size, client.group(A10G).await.unwrap().max_size), (3, 2));
    order(&service, A10G, 2).await;
    assert_eq!((client.group(L4).await.unwrap().max_size, client.group(A10G).await.unwrap().max_size), (2, 1));
}

/// 10. That 4 MiB is enough for the expander: each option brings all its pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_request_reaches_the_expander() {
    let service = two_groups().start().await;
    let pods: Vec<Bytes> = (0..20).map(|i| pod(&format!("p{i}"), 200_000)).collect();
    let option = |group: &str| ExpanderOption {
        node_group_id: group.to_owned(),
        node_count: 20,
        pod_bytes: pods.clone(),
        ..ExpanderOption::default()
    };
    assert_eq!(service.client().best_options(vec![option(A10G), option(L4)]).await.unwrap(), [L4]);
}

/// 10. That prices may be nought: then every option scores the same, or none at all. Ours never are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_costs_nothing() {
    let service = two_groups().start().await;
    service.client().refresh().await.unwrap();
    let (from, to) = (Timestamp { seconds: 1_793_606_400, nanos: 0 }, Timestamp { seconds: 1_793_610_000, nanos: 0 });
    let bare =
        Pod { metadata: Some(ObjectMeta { name: Some("stabilize".to_owned()), ..Default::default() }), ..Default::default() };
    for bytes in [Bytes::from(bare.encode_to_vec()), pod("gpu", 0)] {
        let request = PricingPodPriceRequest {
            pod_bytes: bytes,
            start_timestamp: Some(from),
            end_timestamp: Some(to),
            ..Default::default()
        };
        assert!(service.client().pod_price(request).await.unwrap() > 0.0);
    }
    for (group, price) in [(L4, 0.9), (A10G, 1.2)] {
        let request = PricingNodePriceRequest {
            node: Some(registered(&format!("template-node-for-{group}-123"), "")),
            start_timestamp: Some(from),
            end_timestamp: Some(to),
            ..Default::default()
        };
        assert!((service.client().node_price(request).await.unwrap() - price).abs() < 1e-9, "{group}");
    }
}
