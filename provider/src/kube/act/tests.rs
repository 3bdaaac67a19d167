use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use serde_json::Value;

use super::super::fake::{self, Call};
use super::*;

/// A server with one Node, which somebody changes just before the first writes.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    node: Option<Value>,
    /// Who else writes, before each of our writes, until there is none left.
    others: Vec<fn(&mut Value)>,
    writes: u32,
}

impl Server {
    fn new(annotations: &Value, others: Vec<fn(&mut Value)>) -> Self {
        let node = json!({
            "metadata": { "name": "n", "uid": "u1", "resourceVersion": "1", "annotations": annotations },
            "spec": { "providerID": "sim://1" },
        });
        Self(Arc::new(Mutex::new(State { node: Some(node), others, writes: 0 })))
    }

    fn act(&self) -> KubeAct {
        let server = self.clone();
        KubeAct::new(&fake::client(move |call| std::future::ready(server.serve(&call))), "default")
    }

    fn serve(&self, call: &Call) -> http::Response<axum::body::Body> {
        let mut state = self.0.lock().unwrap();
        let missing = || fake::failure(StatusCode::NOT_FOUND, "NotFound");
        if call.method == Method::GET {
            return state.node.as_ref().map_or_else(missing, fake::object);
        }
        if let Some(other) = state.others.pop()
            && let Some(node) = &mut state.node
        {
            other(node);
            let version = node["metadata"]["resourceVersion"].as_str().unwrap().parse::<u32>().unwrap() + 1;
            node["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let conflict = fake::failure(StatusCode::CONFLICT, "Conflict");
        let Some(node) = &mut state.node else { return missing() };
        if call.method == Method::DELETE {
            let wanted = &call.body["preconditions"];
            if wanted["uid"] != node["metadata"]["uid"] || wanted["resourceVersion"] != node["metadata"]["resourceVersion"] {
                return conflict;
            }
            let gone = fake::object(node);
            state.node = None;
            state.writes += 1;
            return gone;
        }
        assert_eq!((call.method.clone(), call.param("fieldManager")), (Method::PATCH, Some("stoker")));
        let patch = &call.body["metadata"];
        if patch["resourceVersion"] != node["metadata"]["resourceVersion"] {
            return conflict;
        }
        for (key, value) in patch["annotations"].as_object().unwrap() {
            let annotations = node["metadata"]["annotations"].as_object_mut().unwrap();
            if value.is_null() {
                annotations.remove(key)
            } else {
                annotations.insert(key.clone(), value.clone())
            };
        }
        let patched = fake::object(node);
        state.writes += 1;
        patched
    }

    fn annotations(&self) -> Value {
        self.0.lock().unwrap().node.as_ref().unwrap()["metadata"]["annotations"].clone()
    }

    fn exists(&self) -> bool {
        self.0.lock().unwrap().node.is_some()
    }

    fn writes(&self) -> u32 {
        self.0.lock().unwrap().writes
    }
}

fn name() -> NodeName {
    NodeName::new("n").unwrap()
}

fn machine(id: &str) -> ProviderId {
    ProviderId::new(id).unwrap()
}

fn ours() -> Value {
    json!({ SCALE_DOWN_DISABLED: "true", HELD: "true", "team": "x" })
}

fn theirs() -> Value {
    json!({ SCALE_DOWN_DISABLED: "true", "team": "x" })
}

#[tokio::test]
async fn a_hold_is_set_and_taken_back_once() {
    let server = Server::new(&json!({ "team": "x" }), vec![]);
    let act = server.act();
    assert_eq!(act.hold(&name()).await.unwrap(), Outcome::Done);
    assert_eq!(act.hold(&name()).await.unwrap(), Outcome::Already);
    assert_eq!(server.annotations(), ours());
    assert_eq!(act.release(&name()).await.unwrap(), Outcome::Done);
    assert_eq!(act.release(&name()).await.unwrap(), Outcome::Already);
    assert_eq!(server.annotations(), json!({ "team": "x" }));
    assert_eq!(server.writes(), 2);
}

#[tokio::test]
async fn a_hold_of_somebody_else_is_left_alone() {
    let server = Server::new(&theirs(), vec![]);
    let act = server.act();
    assert_eq!(act.hold(&name()).await.unwrap(), Outcome::NotOurs);
    assert_eq!(act.release(&name()).await.unwrap(), Outcome::NotOurs);
    assert_eq!((server.annotations(), server.writes()), (theirs(), 0));
}

#[tokio::test]
async fn a_hold_that_somebody_sets_meanwhile_is_left_alone() {
    let set: fn(&mut Value) = |node| node["metadata"]["annotations"][SCALE_DOWN_DISABLED] = json!("true");
    let server = Server::new(&json!({ "team": "x" }), vec![set]);
    assert_eq!(server.act().hold(&name()).await.unwrap(), Outcome::NotOurs);
    assert_eq!((server.annotations(), server.writes()), (theirs(), 0));

    let unmark: fn(&mut Value) = |node| drop(node["metadata"]["annotations"].as_object_mut().unwrap().remove(HELD));
    let server = Server::new(&ours(), vec![unmark]);
    assert_eq!(server.act().release(&name()).await.unwrap(), Outcome::NotOurs);
    assert_eq!((server.annotations(), server.writes()), (theirs(), 0));
}

#[tokio::test]
async fn a_mark_that_marks_nothing_is_taken_back() {
    let server = Server::new(&json!({ HELD: "true" }), vec![]);
    assert_eq!(server.act().release(&name()).await.unwrap(), Outcome::Done);
    assert_eq!(server.annotations(), json!({}));
}

#[tokio::test]
async fn others_that_write_are_waited_for_but_not_for_ever() {
    let heartbeat: fn(&mut Value) = |_| {};
    let server = Server::new(&json!({}), vec![heartbeat; 3]);
    assert_eq!(server.act().hold(&name()).await.unwrap(), Outcome::Done);
    let server = Server::new(&json!({}), vec![heartbeat; 100]);
    assert_eq!(server.act().hold(&name()).await.unwrap_err().label(), "contended");
}

#[tokio::test]
async fn only_the_node_of_that_machine_is_deleted() {
    let server = Server::new(&json!({}), vec![]);
    let act = server.act();
    assert_eq!(act.delete_node(&name(), &machine("sim://2")).await.unwrap(), Outcome::NotOurs);
    assert!(server.exists());
    assert_eq!(act.delete_node(&name(), &machine("sim://1")).await.unwrap(), Outcome::Done);
    assert_eq!(act.delete_node(&name(), &machine("sim://1")).await.unwrap(), Outcome::Gone);
    assert!(!server.exists());
}

#[tokio::test]
async fn a_node_that_gets_another_machine_meanwhile_is_kept() {
    let replace: fn(&mut Value) = |node| {
        node["metadata"]["uid"] = json!("u2");
        node["spec"]["providerID"] = json!("sim://2");
    };
    let server = Server::new(&json!({}), vec![replace]);
    let act = server.act();
    assert_eq!(act.delete_node(&name(), &machine("sim://1")).await.unwrap(), Outcome::NotOurs);
    assert!(server.exists());
}

#[tokio::test]
async fn a_node_that_is_gone_is_no_error() {
    let server = Server::new(&json!({}), vec![]);
    server.0.lock().unwrap().node = None;
    let act = server.act();
    assert_eq!(act.hold(&name()).await.unwrap(), Outcome::Gone);
    assert_eq!(act.release(&name()).await.unwrap(), Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_or_refuses_is_an_error() {
    let silent = KubeAct::new(&fake::client(|_| std::future::pending()), "default");
    let error = silent.hold(&name()).await.unwrap_err();
    assert_eq!((error.label(), error.to_string().as_str()), ("timed-out", "cannot hold Node n: no answer within 10s"));
    let closed = fake::client(|_| std::future::ready(fake::failure(StatusCode::FORBIDDEN, "Forbidden")));
    assert_eq!(KubeAct::new(&closed, "default").hold(&name()).await.unwrap_err().label(), "forbidden");
}

#[tokio::test]
async fn events_that_fail_are_counted_only() {
    let down = fake::client(|_| std::future::ready(fake::failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")));
    let act = KubeAct::new(&down, "default");
    for _ in 0..60 {
        act.event(About::Node(&name()), Severity::Warning, "Test", "note").await;
    }
    assert_eq!(act.events_dropped(), 60);
}
