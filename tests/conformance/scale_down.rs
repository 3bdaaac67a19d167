//! Scale-down, annotations, taints and labels.

use serde_json::json;
use stoker_core::facts::supply::InstanceState;
use stoker_service::kube::{HELD, SCALE_DOWN_DISABLED};
use stoker_service::policy_file;
use stoker_tests::client::registered;
use stoker_tests::harness::Setup;
use stoker_tests::policy::{Pool, policy};
use tonic::Code;

use crate::world::{InCluster, L4, one_group, secs, template};

/// A node whose pods must not be interrupted is annotated before the autoscaler marks it, and freed when they have ended; what somebody
/// else set is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_nodes_are_held_and_the_holds_of_others_left_alone() {
    let world = InCluster::start(one_group()).await;
    let nodes = world.grow(L4, 2).await;
    let (busy, idle) = (&nodes[0].0, &nodes[1].0);
    let is_held = |node: &str| world.cluster.annotations(node).get(SCALE_DOWN_DISABLED).is_some_and(|value| value == "true");
    // Their windows of a second are over before anybody writes on them.
    world.eventually_by_clock("the new nodes to be free", || async { (!is_held(busy) && !is_held(idle)).then_some(()) }).await;
    world.cluster.annotate(idle, SCALE_DOWN_DISABLED, "true");
    world.cluster.bind_gpu_pod("training-1", busy);
    world.service.eventually("the busy node to be held", || async { is_held(busy).then_some(()) }).await;
    assert_eq!(world.cluster.annotations(busy)[HELD], "true");
    world.cluster.end_pod("training-1");
    world.service.pass(secs(20)).await;
    // Its window of a second begins when the pod is seen to have ended.
    world.eventually_by_clock("the hold to be taken back", || async { (!is_held(busy)).then_some(()) }).await;
    assert!(is_held(idle) && !world.cluster.annotations(idle).contains_key(HELD));
}

/// The answer to a batch holds for all of it: one node that must not go, and none goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_whole_or_not_at_all() {
    let world = InCluster::start(one_group()).await;
    let nodes = world.grow(L4, 3).await;
    world.make_busy(L4, &nodes[1].0, "training-1").await;
    let batch: Vec<_> = nodes.iter().map(|(name, id)| registered(name, id)).collect();
    let refused = world.client().delete(L4, batch).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    world.service.settle().await;
    assert_eq!(world.client().target(L4).await.unwrap(), 3);
    assert!(world.service.machines().iter().all(|machine| machine.state == InstanceState::Running));
}

/// The autoscaler never deletes Node objects: a deleted node's machine and its Node are gone within 5 min.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_machines_and_their_nodes_go() {
    let world = InCluster::start(one_group()).await;
    let nodes = world.grow(L4, 2).await;
    let (name, id) = &nodes[0];
    world.client().delete(L4, vec![registered(name, id)]).await.unwrap();
    world.service.pass(secs(60)).await;
    assert!(!world.service.machine_ids().contains(id));
    world.eventually_by_clock("the Node to go", || async { world.cluster.node(name).is_none().then_some(()) }).await;
    assert!(world.cluster.node(&nodes[1].0).is_some());
}

/// Nodes are candidates only above `minSize`: it is the floor, or as many nodes as pods or windows hold, and never above `maxSize`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_size_is_the_floor_or_what_is_busy() {
    let floor = "f.g6-xlarge.us-east-1a";
    let pools = [Pool { max_nodes: 2, ..Pool::new("p") }, Pool { min_nodes: 1, ..Pool::new("f") }];
    let world = InCluster::start(Setup::new(policy(&pools))).await;
    assert_eq!(world.client().group(floor).await.unwrap().min_size, 1);
    assert_eq!(world.client().group(L4).await.unwrap().min_size, 0);
    let nodes = world.grow(L4, 2).await;
    let min_size = || async { world.client().group(L4).await.unwrap().min_size };
    world.eventually_by_clock("the windows to be over", || async { (min_size().await == 0).then_some(()) }).await;
    for (pods, (node, _)) in nodes.iter().enumerate() {
        world.cluster.bind_gpu_pod(&format!("training-{pods}"), node);
        let expected = i32::try_from(pods + 1).unwrap();
        let raised = || async {
            let group = world.client().group(L4).await.unwrap();
            assert!(group.min_size <= group.max_size && group.max_size == 2);
            (group.min_size == expected).then_some(())
        };
        world.service.eventually("minSize to be what is busy", raised).await;
    }
}

/// A template carries all that the scheduler and the autoscaler read of a node: labels, taints, capacity and what of it is left to pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_carry_all_that_is_read() {
    let service = one_group().start().await;
    service.client().refresh().await.unwrap();
    let node = template(service.client(), L4).await;
    let labels = node.metadata.unwrap().labels;
    for (key, value) in [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", "g6.xlarge"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("stoker.dev/gpu", "L4"),
        ("stoker.dev/group", L4),
        ("stoker.dev/pool", "p"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(labels.contains_key("kubernetes.io/hostname"));
    let taints = node.spec.unwrap().taints;
    let taints: Vec<_> = taints.iter().map(|t| json!([t.key, t.value, t.effect])).collect();
    assert_eq!(taints, [json!(["nvidia.com/gpu", "true", "NoSchedule"])]);
    let status = node.status.unwrap();
    for amounts in [&status.capacity, &status.allocatable] {
        let names: Vec<&str> = amounts.keys().map(String::as_str).collect();
        assert_eq!(names, ["cpu", "ephemeral-storage", "memory", "nvidia.com/gpu", "pods"]);
    }
    let cpu = |amounts: &std::collections::BTreeMap<String, k8s_pb::apimachinery::pkg::api::resource::Quantity>| {
        amounts["cpu"].string.clone().unwrap_or_default()
    };
    assert_eq!((cpu(&status.capacity).as_str(), cpu(&status.allocatable).as_str()), ("4", "3920m"));
    assert!(status.conditions.iter().any(|c| c.r#type.as_deref() == Some("Ready") && c.status.as_deref() == Some("True")));
}

/// Start-up taints are stripped from templates, and a node that bears one never counts as ready: a policy may not set them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_may_not_set_start_up_taints() {
    for key in [
        "startup-taint.cluster-autoscaler.kubernetes.io/driver",
        "ignore-taint.cluster-autoscaler.kubernetes.io/driver",
        "status-taint.cluster-autoscaler.kubernetes.io/driver",
        "ToBeDeletedByClusterAutoscaler",
    ] {
        let more = format!("  template: {{ taints: [{{ key: {key}, effect: NoSchedule }}] }}\n");
        let faults =
            policy_file::parse("policy.yaml", &policy(&[Pool { more, ..Pool::new("p") }]), None).unwrap_err().to_string();
        assert!(faults.contains(key) && faults.contains("choose another key"), "{faults}");
    }
}
