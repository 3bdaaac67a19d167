//! Verdicts on Nodes, and taking back all that is ours.

use k8s_openapi::api::core::v1::NodeCondition;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::node_status::ShownStatus;
use stoker_core::facts::snapshot::{Cordon, Hold};
use stoker_core::state::node_status::{CONDITION, StatusUpdate};
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_service::kube::act::{KubeAct, Outcome, Trace};
use stoker_service::kube::{SCALE_DOWN_DISABLED, VERDICT};

use crate::world::{Peer, peer, until};

async fn condition(peer: &Peer, node: &NodeName, kind: &str) -> Option<NodeCondition> {
    let status = peer.nodes.get(node.as_str()).await.unwrap().status.unwrap();
    status.conditions.unwrap_or_default().into_iter().find(|known| known.type_ == kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_is_told_beside_the_kubelet_s_conditions_and_read_back_as_it_was_told() {
    let Some(peer) = &peer("told").await else { return };
    let act = KubeAct::new(&peer.client, "default");
    let node = peer.create_node("a", &[("team", "x")]).await;
    let (feed, task) = peer.feed();
    let before = until(&feed, "the node", |facts| facts.nodes.contains_key(&node)).await;
    assert_eq!(before.nodes[&node].shown, None);
    let ready = condition(peer, &node, "Ready").await;
    let now = jiff::Timestamp::now();
    let judged = Judged { verdict: Verdict::Unknown, why: Reason::NoPods, since: now };
    let tell = StatusUpdate { node: node.clone(), provider_id: Some(peer.machine("a")), verdict: Some(judged.clone()) };
    assert_eq!(act.tell(&tell, now).await.unwrap(), Outcome::Done);
    assert_eq!(act.tell(&tell, now).await.unwrap(), Outcome::Already);
    let facts = until(&feed, "the verdict", |facts| facts.nodes[&node].shown.is_some()).await;
    assert_eq!(facts.nodes[&node].shown.as_deref(), ShownStatus::of(Some(&judged), now).as_ref());
    assert_eq!(condition(peer, &node, "Ready").await, ready);
    // A kubelet writes its own conditions, and ours stays.
    let heartbeat = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Test" }] } });
    peer.nodes.patch_status(node.as_str(), &PatchParams::default(), &Patch::Strategic(heartbeat)).await.unwrap();
    let told = condition(peer, &node, CONDITION).await.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_deref()), ("Unknown", Some("GpuUnknown")));
    assert_eq!(peer.annotations(&node).await[VERDICT], "unknown");

    let back = StatusUpdate { verdict: None, ..tell };
    assert_eq!(act.tell(&back, now).await.unwrap(), Outcome::Done);
    until(&feed, "nothing", |facts| facts.nodes[&node].shown.is_none()).await;
    assert_eq!(condition(peer, &node, CONDITION).await, None);
    assert_eq!(condition(peer, &node, "Ready").await.unwrap().status, "False");
    assert_eq!(act.events_dropped(), 0);
    task.abort();
    peer.clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_ours_is_taken_back_and_what_is_others_stays() {
    let Some(peer) = &peer("clean").await else { return };
    let act = KubeAct::new(&peer.client, "default");
    let ours = peer.create_node("ours", &[("team", "x")]).await;
    let theirs = peer.create_node("theirs", &[(SCALE_DOWN_DISABLED, "true")]).await;
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    peer.nodes.patch(theirs.as_str(), &PatchParams::default(), &cordon).await.unwrap();
    let now = jiff::Timestamp::now();
    let judged = Judged { verdict: Verdict::Busy, why: Reason::Pods, since: now };
    for (node, machine) in [(&ours, "ours"), (&theirs, "theirs")] {
        let tell = StatusUpdate { node: node.clone(), provider_id: Some(peer.machine(machine)), verdict: Some(judged.clone()) };
        assert_eq!(act.tell(&tell, now).await.unwrap(), Outcome::Done);
    }
    assert_eq!(act.hold(&ours).await.unwrap(), Outcome::Done);
    assert_eq!(act.close(&ours, &peer.machine("ours"), stoker_core::plan::Evict::All).await.unwrap(), Outcome::Done);
    let found = act.traces(Some(&peer.cluster)).await.unwrap();
    let expected = [(ours.clone(), vec![Trace::Hold, Trace::Cordon, Trace::Verdict]), (theirs.clone(), vec![Trace::Verdict])];
    assert_eq!(found, expected);
    for node in [&ours, &theirs] {
        assert_eq!(act.take_back(node, now).await.unwrap(), Outcome::Done);
        assert_eq!(act.take_back(node, now).await.unwrap(), Outcome::Already);
    }
    assert_eq!(act.traces(Some(&peer.cluster)).await.unwrap(), []);
    let (feed, task) = peer.feed();
    let facts = until(&feed, "both", |facts| facts.nodes.len() == 2).await;
    let stands = |node: &NodeName| (facts.nodes[node].scale_down_disabled, facts.nodes[node].cordon);
    assert_eq!((stands(&ours), stands(&theirs)), ((Hold::None, Cordon::None), (Hold::Theirs, Cordon::Theirs)));
    assert_eq!(peer.annotations(&ours).await["team"], "x");
    task.abort();
    peer.clean().await;
}
