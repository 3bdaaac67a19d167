//! The Kubernetes side against a real kube-apiserver, named by `STOKER_E2E_KUBECONFIG`. Without it, every test here says so and passes.
//!
//! Each test has a cluster name, and so nodes, of its own: they may run side by side, and again on the same server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "kube_peer/told.rs"]
mod told;
#[path = "kube_peer/world.rs"]
mod world;

use http::Request;
use k8s_openapi::api::events::v1::Event;
use k8s_pb::api::core::v1::Node as ProtoNode;
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use prost::Message as _;
use serde_json::json;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::catalogue::template::{CAPACITY_TYPE_ANNOTATION, CLUSTER_LABEL};
use stoker_core::facts::snapshot::Hold;
use stoker_service::kube::act::{About, KubeAct, Outcome, Severity};
use stoker_service::kube::template::{node_object, node_proto};
use stoker_service::kube::{HELD, SCALE_DOWN_DISABLED};

use world::{each, eventually, peer, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_facts_are_complete_over_several_pages() {
    let Some(peer) = &peer("pages").await else { return };
    // More than a page of either.
    let count = 300;
    each(count, |i| async move {
        let node = peer.create_node(&format!("n{i}"), &[]).await;
        peer.create_pod(&format!("p{i}"), &node, |_| {}).await;
    })
    .await;
    let (feed, task) = peer.feed();
    let first = until(&feed, "the first facts", |_| true).await;
    assert_eq!(first.nodes.len(), count);
    assert!(first.nodes.values().all(|node| node.gpu_pods.len() == 1 && node.ready_since.is_some()));
    assert!(feed.healthy() && feed.broken().is_none());
    task.abort();
    peer.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_follows_nodes_and_gpu_pods() {
    let Some(peer) = &peer("follow").await else { return };
    let node = peer.create_node("a", &[(SCALE_DOWN_DISABLED, "true")]).await;
    let (feed, task) = peer.feed();
    let facts = until(&feed, "the node", |facts| facts.nodes.contains_key(&node)).await;
    let seen = &facts.nodes[&node];
    assert_eq!(seen.provider_id, Some(peer.machine("a")));
    assert_eq!(seen.group, Some(NodeGroupId::new("inference.g6-xlarge.us-east-1a").unwrap()));
    assert_eq!((seen.scale_down_disabled, seen.is_busy()), (Hold::Theirs, false));

    // Neither a pod without GPUs nor one of a DaemonSet makes it busy; the third does.
    peer.create_pod("cpu", &node, |pod| pod["spec"]["containers"][0]["resources"] = json!({})).await;
    peer.create_pod("daemon", &node, |pod| {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true });
        pod["metadata"]["ownerReferences"] = json!([owner]);
    })
    .await;
    let first = peer.create_pod("first", &node, |_| {}).await;
    let second = peer.create_pod("second", &node, |_| {}).await;
    let facts = until(&feed, "two pods", |facts| facts.nodes[&node].gpu_pods.len() == 2).await;
    assert!(facts.nodes[&node].gpu_pods.contains(&format!("default/{first}")));

    // One ends, the other is deleted with a grace period that nobody ends.
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    peer.pods.patch_status(&first, &PatchParams::default(), &ended).await.unwrap();
    until(&feed, "one pod", |facts| facts.nodes[&node].gpu_pods.len() == 1).await;
    peer.pods.delete(&second, &DeleteParams { grace_period_seconds: Some(3_600), ..DeleteParams::default() }).await.unwrap();
    until(&feed, "no pod", |facts| !facts.nodes[&node].is_busy()).await;

    peer.nodes.delete(node.as_str(), &DeleteParams::default()).await.unwrap();
    until(&feed, "no node", |facts| facts.nodes.is_empty()).await;
    assert!(feed.healthy());
    task.abort();
    peer.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_somebody_else_is_never_touched() {
    let Some(peer) = &peer("hold").await else { return };
    let act = KubeAct::new(&peer.client, "default");
    let theirs = peer.create_node("theirs", &[(SCALE_DOWN_DISABLED, "true"), ("team", "x")]).await;
    let before = peer.annotations(&theirs).await;
    assert_eq!(act.hold(&theirs).await.unwrap(), Outcome::NotOurs);
    assert_eq!(act.release(&theirs).await.unwrap(), Outcome::NotOurs);
    assert_eq!(peer.annotations(&theirs).await, before);

    let free = peer.create_node("free", &[("team", "x")]).await;
    let before = peer.annotations(&free).await;
    assert_eq!(act.hold(&free).await.unwrap(), Outcome::Done);
    assert_eq!(act.hold(&free).await.unwrap(), Outcome::Already);
    let held = peer.annotations(&free).await;
    assert_eq!((held[SCALE_DOWN_DISABLED].as_str(), held[HELD].as_str(), held["team"].as_str()), ("true", "true", "x"));
    assert_eq!(act.release(&free).await.unwrap(), Outcome::Done);
    assert_eq!(act.release(&free).await.unwrap(), Outcome::Already);
    assert_eq!(peer.annotations(&free).await, before);
    assert_eq!(act.hold(&peer.name("absent")).await.unwrap(), Outcome::Gone);

    // Many at once with somebody who writes all the time: all end, and the node is held.
    let nodes = &peer.nodes;
    let (busy, act) = (&free, &act);
    tokio::join!(
        each(20, |i| async move {
            let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": i.to_string() } } }));
            nodes.patch(busy.as_str(), &PatchParams::default(), &note).await.unwrap();
        }),
        each(8, |_| async move {
            // Contended is an honest answer too; the engine asks again.
            let _ = act.hold(busy).await;
        }),
    );
    let _ = act.hold(busy).await.unwrap();
    assert_eq!(peer.annotations(busy).await[HELD], "true");
    peer.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_deleted_only_with_its_machine() {
    let Some(peer) = &peer("delete").await else { return };
    let act = KubeAct::new(&peer.client, "default");
    let node = peer.create_node("a", &[]).await;
    assert_eq!(act.delete_node(&node, &peer.machine("b")).await.unwrap(), Outcome::NotOurs);
    assert!(peer.nodes.get_opt(node.as_str()).await.unwrap().is_some());
    assert_eq!(act.delete_node(&node, &peer.machine("a")).await.unwrap(), Outcome::Done);
    assert_eq!(act.delete_node(&node, &peer.machine("a")).await.unwrap(), Outcome::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_people() {
    let Some(peer) = &peer("events").await else { return };
    let act = KubeAct::new(&peer.client, "default");
    let node = peer.name("a");
    let group = NodeGroupId::new(format!("{}.Standard_NC24ads_A100_v4.westus-1", peer.cluster)).unwrap();
    act.event(About::Node(&node), Severity::Normal, "NodeHeld", "a GPU pod was bound").await;
    act.event(About::Group(&group), Severity::Warning, "OutOfCapacity", &"no capacity; ".repeat(200)).await;
    assert_eq!(act.events_dropped(), 0);
    let events: Api<Event> = Api::namespaced(peer.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let about =
        |name: &str| events.iter().find(|e| e.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(name))).unwrap();
    assert_eq!(about(node.as_str()).reason.as_deref(), Some("NodeHeld"));
    assert_eq!(about(group.as_str()).type_.as_deref(), Some("Warning"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_template_is_what_the_server_makes_of_the_node() {
    let Some(peer) = &peer("template").await else { return };
    let (template, name) = (peer.template(), peer.name("a"));
    let object = node_object(&template, &name, &peer.machine("a"), [].into());
    let request = Request::post("/api/v1/nodes?dryRun=All")
        .header("Content-Type", "application/json")
        .header("Accept", "application/vnd.kubernetes.protobuf")
        .body(Body::from(serde_json::to_vec(&object).unwrap()))
        .unwrap();
    let answer = peer.client.send(request).await.unwrap().into_body().collect_bytes().await.unwrap();
    let unknown = Unknown::decode(answer.strip_prefix(b"k8s\0").unwrap()).unwrap();
    let server = ProtoNode::decode(unknown.raw.unwrap().as_slice()).unwrap();
    let ours = ProtoNode::decode(node_proto(&template, &name).as_slice()).unwrap();

    assert_eq!(server.metadata.unwrap().labels, ours.metadata.unwrap().labels);
    assert_eq!(server.spec.unwrap().provider_id.as_deref(), Some(peer.machine("a").as_str()));
    let (server, ours) = (server.status.unwrap(), ours.status.unwrap());
    assert_eq!(server.capacity, ours.capacity);
    assert_eq!(server.allocatable, ours.allocatable);
    assert_eq!(server.conditions[0].r#type, ours.conditions[0].r#type);
    assert_eq!(server.conditions[0].status, ours.conditions[0].status);
    assert_eq!(server.node_info.unwrap().architecture, ours.node_info.unwrap().architecture);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registrar_makes_and_ends_nodes_with_their_pods() {
    let Some(peer) = &peer("registrar").await else { return };
    // A node of the same cluster that is not of a simulated machine, and one whose name is wanted by a machine of ours.
    let real = Patch::Apply(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": peer.name("real"), "labels": { CLUSTER_LABEL: peer.cluster } },
        "spec": { "providerID": "aws:///us-east-1a/i-1" },
    }));
    let by_us = PatchParams::apply("test");
    peer.nodes.patch(peer.name("real").as_str(), &by_us, &real).await.unwrap();
    let taken = Patch::Apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": peer.name("taken") } }));
    peer.nodes.patch(peer.name("taken").as_str(), &by_us, &taken).await.unwrap();
    let leftover = peer.create_node("leftover", &[]).await;

    let (feed, feed_task) = peer.feed();
    let (wanted, task) = peer.registrar();
    until(&feed, "the nodes of others", |facts| facts.nodes.len() == 2).await;
    // Nothing is done before the supplier has said what it has.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(peer.our_nodes().await.len(), 2);

    let fleet = |count: usize, ready| (0..count).map(|i| peer.wanted(&format!("n{i}"), ready)).collect::<Vec<_>>();
    let mut first = fleet(40, false);
    first.push(peer.wanted("taken", true));
    wanted.send_replace(Some(first));
    let facts = until(&feed, "the fleet", |facts| facts.nodes.len() == 41 && !facts.nodes.contains_key(&leftover)).await;
    assert!(facts.nodes.values().all(|node| node.ready_since.is_none()));
    let one = peer.nodes.get(peer.name("n0").as_str()).await.unwrap();
    assert_eq!(one.metadata.annotations.unwrap()[CAPACITY_TYPE_ANNOTATION], "spot");
    assert_eq!(one.spec.unwrap().taints.unwrap().len(), 1);
    assert_eq!(one.status.unwrap().allocatable.unwrap()["nvidia.com/gpu"].0, "1");

    wanted.send_replace(Some(fleet(40, true)));
    until(&feed, "40 ready nodes", |facts| facts.nodes.values().filter(|n| n.ready_since.is_some()).count() == 40).await;

    // Somebody puts another Node in the place of one of ours: neither it nor its pods are touched from then on.
    peer.nodes.delete(peer.name("n7").as_str(), &DeleteParams::default()).await.unwrap();
    let other = Patch::Apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": peer.name("n7") } }));
    peer.nodes.patch(peer.name("n7").as_str(), &by_us, &other).await.unwrap();
    let of_other = peer.create_pod("of-other", &peer.name("n7"), |_| {}).await;
    let mut next = fleet(40, true);
    next[7].ready = false;
    next[8].ready = false;
    wanted.send_replace(Some(next));
    let eight = peer.name("n8");
    until(&feed, "n8 to be unready", |facts| facts.nodes[&eight].ready_since.is_none()).await;

    // Machines 2 to 39 go; so do their nodes and the pods on them, and no others. One Node was deleted by somebody else already.
    let kept = peer.create_pod("kept", &peer.name("n0"), |_| {}).await;
    let ended = peer.create_pod("ended", &peer.name("n5"), |_| {}).await;
    let orphan = peer.create_pod("orphan", &peer.name("n6"), |_| {}).await;
    peer.nodes.delete(peer.name("n6").as_str(), &DeleteParams::default()).await.unwrap();
    wanted.send_replace(Some(fleet(2, true)));
    let facts = until(&feed, "two nodes and the real one", |facts| facts.nodes.len() == 3).await;
    assert!(facts.nodes.contains_key(&peer.name("real")));
    for pod in [&ended, &orphan] {
        eventually("the pod of a gone node to end", || async { peer.pods.get_opt(pod).await.unwrap().is_none().then_some(()) })
            .await;
    }
    for pod in [&kept, &of_other] {
        assert!(peer.pods.get_opt(pod).await.unwrap().is_some());
    }
    let other = peer.nodes.get(peer.name("n7").as_str()).await.unwrap();
    assert!(other.status.unwrap().conditions.unwrap_or_default().is_empty());
    let taken = peer.nodes.get(peer.name("taken").as_str()).await.unwrap();
    assert_eq!(taken.spec.unwrap().provider_id, None);

    // A registrar that starts again takes over what is there.
    task.abort();
    let (wanted, task) = peer.registrar();
    wanted.send_replace(Some(fleet(1, true)));
    until(&feed, "one node and the real one", |facts| facts.nodes.len() == 2).await;
    wanted.send_replace(Some(vec![]));
    until(&feed, "the real one", |facts| facts.nodes.len() == 1).await;

    drop(wanted);
    task.await.unwrap();
    feed_task.abort();
    for name in ["taken", "n7"] {
        peer.nodes.delete(peer.name(name).as_str(), &DeleteParams::default()).await.unwrap();
    }
    peer.clean().await;
}
