use std::sync::Mutex;

use http::{Method, StatusCode};
use serde_json::Value;
use stoker_fake_apiserver::{ApiServer, client, failure};

use super::*;

const NODE: &str = "/api/v1/nodes/n";

/// A server with one Node.
struct Server(ApiServer);

impl Server {
    /// Somebody changes the Node just before each of our writes, the last of `others` first, until none is left.
    fn new(annotations: &Value, others: Vec<fn(&mut Value)>) -> Self {
        let server = ApiServer::new(jiff::Timestamp::now);
        let node = json!({ "metadata": { "annotations": annotations }, "spec": { "providerID": "sim://1" } });
        server.put(NODE, node);
        let others = Mutex::new(others);
        server.answer(move |server, call| {
            if call.method != Method::GET
                && let Some(other) = others.lock().unwrap().pop()
            {
                server.edit(NODE, other);
            }
            if call.method == Method::PATCH {
                assert_eq!(call.param("fieldManager"), Some("stoker"));
                assert!(call.body["metadata"]["resourceVersion"].is_string(), "{}", call.body);
            } else if call.method == Method::DELETE {
                let wanted = &call.body["preconditions"];
                assert!(wanted["uid"].is_string() && wanted["resourceVersion"].is_string(), "{wanted}");
            }
            None
        });
        Self(server)
    }

    fn act(&self) -> KubeAct {
        KubeAct::new(&self.0.client(), "default")
    }

    fn annotations(&self) -> Value {
        self.0.get(NODE).unwrap()["metadata"]["annotations"].clone()
    }

    fn exists(&self) -> bool {
        self.0.get(NODE).is_some()
    }

    /// How often it was written since this was last asked.
    fn writes(&self) -> usize {
        self.0.take_writes().len()
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
    server.0.remove(NODE);
    let act = server.act();
    assert_eq!(act.hold(&name()).await.unwrap(), Outcome::Gone);
    assert_eq!(act.release(&name()).await.unwrap(), Outcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_or_refuses_is_an_error() {
    let silent = KubeAct::new(&client(|_| std::future::pending()), "default");
    let error = silent.hold(&name()).await.unwrap_err();
    assert_eq!((error.label(), error.to_string().as_str()), ("timed-out", "cannot hold Node n: no answer within 10s"));
    let closed = client(|_| std::future::ready(failure(StatusCode::FORBIDDEN, "Forbidden")));
    assert_eq!(KubeAct::new(&closed, "default").hold(&name()).await.unwrap_err().label(), "forbidden");
}

#[tokio::test]
async fn events_that_fail_are_counted_only() {
    let down = client(|_| std::future::ready(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")));
    let act = KubeAct::new(&down, "default");
    for _ in 0..60 {
        act.event(About::Node(&name()), Severity::Warning, "Test", "note").await;
    }
    assert_eq!(act.events_dropped(), 60);
}
