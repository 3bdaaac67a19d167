use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use stoker_core::ids::{NodeName, ProviderId};
use stoker_core::verdict::{Judged, Reason, Verdict};

use super::super::super::fake::{self, Call};
use super::*;

/// A server with one Node, which merges a patch of its status as the real one does, and keeps Events.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    node: Value,
    events: Vec<Value>,
    /// Writes by others just before ours, until there is none left.
    others: u32,
    writes: u32,
}

impl Server {
    fn new() -> Self {
        let node = json!({
            "metadata": { "name": "n", "uid": "u1", "resourceVersion": "1", "annotations": { "team": "x" } },
            "spec": { "providerID": "sim://1" },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-01T00:00:00Z" }] },
        });
        Self(Arc::new(Mutex::new(State { node, events: Vec::new(), others: 0, writes: 0 })))
    }

    fn act(&self) -> KubeAct {
        let server = self.clone();
        KubeAct::new(&fake::client(move |call| std::future::ready(server.serve(&call))), "default")
    }

    fn serve(&self, call: &Call) -> http::Response<axum::body::Body> {
        let mut state = self.0.lock().unwrap();
        if call.method == Method::GET {
            return fake::object(&state.node);
        }
        if call.path.ends_with("/events") {
            state.events.push(call.body.clone());
            return fake::object(&call.body);
        }
        assert_eq!((call.path.as_str(), call.param("fieldManager")), ("/api/v1/nodes/n/status", Some("stoker")));
        assert_eq!(call.media, "application/strategic-merge-patch+json");
        if state.others > 0 {
            state.others -= 1;
            state.node["metadata"]["resourceVersion"] = json!(format!("other-{}", state.others));
        }
        let meta = &call.body["metadata"];
        if (&meta["uid"], &meta["resourceVersion"])
            != (&state.node["metadata"]["uid"], &state.node["metadata"]["resourceVersion"])
        {
            return fake::failure(StatusCode::CONFLICT, "Conflict");
        }
        state.writes += 1;
        let version = format!("ours-{}", state.writes);
        let node = &mut state.node;
        node["metadata"]["resourceVersion"] = json!(version);
        for (key, value) in meta["annotations"].as_object().unwrap() {
            node["metadata"]["annotations"][key] = value.clone();
        }
        node["metadata"]["annotations"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for patch in call.body["status"]["conditions"].as_array().unwrap() {
            conditions.retain(|known| known["type"] != patch["type"]);
            if patch["$patch"] != "delete" {
                conditions.push(patch.clone());
            }
        }
        fake::object(&state.node)
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        let state = self.0.lock().unwrap();
        state.node["status"]["conditions"].as_array().unwrap().iter().find(|known| known["type"] == kind).cloned()
    }

    fn annotations(&self) -> Value {
        self.0.lock().unwrap().node["metadata"]["annotations"].clone()
    }

    fn events(&self) -> Vec<(String, String, String)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let state = self.0.lock().unwrap();
        assert!(state.events.iter().all(|event| event["regarding"]["kind"] == "Node" && event["regarding"]["name"] == "n"));
        state.events.iter().map(|event| (text(event, "type"), text(event, "reason"), text(event, "note"))).collect()
    }

    fn writes(&self) -> u32 {
        self.0.lock().unwrap().writes
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-01T00:10:00.7Z")
}

fn tell(verdict: Option<(Verdict, Reason)>) -> Tell {
    let since = at("2026-11-01T00:09:30.2Z");
    Tell {
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
    let other = Tell { provider_id: Some(ProviderId::new("sim://2").unwrap()), ..tell(Some((Verdict::Busy, Reason::Pods))) };
    let none = Tell { provider_id: None, ..other.clone() };
    for tell in [other, none] {
        assert_eq!(server.act().tell(&tell, now()).await.unwrap(), Outcome::NotOurs);
    }
    assert_eq!(server.writes(), 0);
}

#[tokio::test]
async fn a_node_that_others_write_is_read_again_but_not_for_ever() {
    let server = Server::new();
    server.0.lock().unwrap().others = 3;
    let busy = tell(Some((Verdict::Busy, Reason::Pods)));
    assert_eq!(server.act().tell(&busy, now()).await.unwrap(), Outcome::Done);
    let server = Server::new();
    server.0.lock().unwrap().others = 100;
    assert_eq!(server.act().tell(&busy, now()).await.unwrap_err().label(), "contended");
    assert_eq!(server.events(), []);
}
