use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Method;
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_fake_apiserver::ApiServer;

use super::*;

const NODE: &str = "/api/v1/nodes/n";

/// A server with one Node.
struct Server {
    api: ApiServer,
    /// Writes by others just before ours, until there is none left.
    others: Arc<AtomicU32>,
}

impl Server {
    fn new() -> Self {
        let (api, others) = (ApiServer::new(Timestamp::now), Arc::new(AtomicU32::new(0)));
        api.put(NODE, json!({
            "metadata": { "annotations": { "team": "x" } },
            "spec": { "providerID": "sim://1" },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-01T00:00:00Z" }] },
        }));
        let left = Arc::clone(&others);
        api.answer(move |api, call| {
            if call.method == Method::PATCH {
                assert_eq!((call.path.as_str(), call.param("fieldManager")), ("/api/v1/nodes/n/status", Some("stoker")));
                assert_eq!(call.media, "application/strategic-merge-patch+json");
                let meta = &call.body["metadata"];
                assert!(meta["uid"].is_string() && meta["resourceVersion"].is_string(), "{meta}");
                if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    api.edit(NODE, |_| ());
                }
            }
            None
        });
        Self { api, others }
    }

    fn act(&self) -> KubeAct {
        KubeAct::new(&self.api.client(), "default")
    }

    fn node(&self) -> Value {
        self.api.get(NODE).unwrap()
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        self.node()["status"]["conditions"].as_array().unwrap().iter().find(|known| known["type"] == kind).cloned()
    }

    fn annotations(&self) -> Value {
        self.node()["metadata"]["annotations"].clone()
    }

    fn events(&self) -> Vec<(String, String, String)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = self.api.events();
        assert!(events.iter().all(|event| event["regarding"]["kind"] == "Node" && event["regarding"]["name"] == "n"));
        events.iter().map(|event| (text(event, "type"), text(event, "reason"), text(event, "note"))).collect()
    }

    fn writes(&self) -> usize {
        self.api.take_writes().len()
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-01T00:10:00.7Z")
}

fn tell(verdict: Option<(Verdict, Reason)>) -> StatusUpdate {
    let since = at("2026-11-01T00:09:30.2Z");
    StatusUpdate {
        node: NodeName::new("n").unwrap(),
        provider_id: Some(ProviderId::new("sim://1").unwrap()),
        verdict: verdict.map(|(verdict, why)| Judged { verdict, why, since }),
    }
}

#[tokio::test]
async fn a_verdict_is_told_once_beside_what_others_wrote_and_taken_back() {
    let server = Server::new();
    let act = server.act();
    let ready = server.condition("Ready");
    let busy = tell(Some((Verdict::Busy, Reason::Pods)));
    assert_eq!(act.tell(&busy, now()).await.unwrap(), Outcome::Done);
    assert_eq!(act.tell(&busy, now()).await.unwrap(), Outcome::Already);
    let expected = json!({
        "type": "stoker.dev/GpuFree", "status": "False", "reason": "GpuBusy", "message": "GPU pods are bound to it",
        "lastTransitionTime": "2026-11-01T00:09:30Z", "lastHeartbeatTime": "2026-11-01T00:10:00Z",
    });
    assert_eq!((server.condition(CONDITION), server.condition("Ready")), (Some(expected), ready.clone()));
    assert_eq!(server.annotations(), json!({ "team": "x", "stoker.dev/verdict": "busy" }));
    assert_eq!(act.tell(&tell(None), now()).await.unwrap(), Outcome::Done);
    assert_eq!(act.tell(&tell(None), now()).await.unwrap(), Outcome::Already);
    assert_eq!((server.condition(CONDITION), server.condition("Ready")), (None, ready));
    assert_eq!((server.annotations(), server.writes()), (json!({ "team": "x" }), 2));
    assert_eq!(server.events().len(), 1, "nothing is told of a verdict that is taken back");
}

#[tokio::test]
async fn people_hear_of_a_change_of_the_verdict_and_not_of_its_reason() {
    let server = Server::new();
    let act = server.act();
    for told in [(Verdict::Warm, Reason::NoPods), (Verdict::Warm, Reason::NotReady), (Verdict::Unknown, Reason::NoPods)] {
        assert_eq!(act.tell(&tell(Some(told)), now()).await.unwrap(), Outcome::Done);
    }
    let of = |severity: &str, reason: &str, note: &str| (severity.to_owned(), reason.to_owned(), note.to_owned());
    let expected = [
        of("Normal", "GpuWarm", "warm: no GPU pod is bound to it"),
        of("Warning", "GpuUnknown", "unknown, was warm: no GPU pod is bound to it"),
    ];
    assert_eq!(server.events(), expected);
}

#[tokio::test]
async fn a_node_of_another_machine_is_left_alone() {
    let server = Server::new();
    let other =
        StatusUpdate { provider_id: Some(ProviderId::new("sim://2").unwrap()), ..tell(Some((Verdict::Busy, Reason::Pods))) };
    let none = StatusUpdate { provider_id: None, ..other.clone() };
    for tell in [other, none] {
        assert_eq!(server.act().tell(&tell, now()).await.unwrap(), Outcome::NotOurs);
    }
    assert_eq!(server.writes(), 0);
}

#[tokio::test]
async fn a_node_that_others_write_is_read_again_but_not_for_ever() {
    let server = Server::new();
    server.others.store(3, Ordering::Relaxed);
    let busy = tell(Some((Verdict::Busy, Reason::Pods)));
    assert_eq!(server.act().tell(&busy, now()).await.unwrap(), Outcome::Done);
    let server = Server::new();
    server.others.store(100, Ordering::Relaxed);
    assert_eq!(server.act().tell(&busy, now()).await.unwrap_err().label(), "contended");
    assert_eq!(server.events(), []);
}
