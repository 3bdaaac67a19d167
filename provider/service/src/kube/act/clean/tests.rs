use std::collections::BTreeMap;

use http::Method;
use stoker_core::state::node_status::CONDITION;
use stoker_fake_apiserver::ApiServer;

use super::super::super::VERDICT;
use super::*;

/// A server with Nodes.
struct Server(ApiServer);

/// A Node with these annotations, closed or not, and with the condition or not.
fn node(name: &str, annotations: &Value, closed: bool, told: bool) -> Value {
    let mut conditions = vec![json!({ "type": "Ready", "status": "True" })];
    if told {
        conditions.push(json!({ "type": CONDITION, "status": "False", "reason": "GpuBusy", "message": "" }));
    }
    json!({
        "metadata": { "name": name, "annotations": annotations, "labels": { "team": "x" } },
        "spec": { "unschedulable": closed.then_some(true) },
        "status": { "conditions": conditions },
    })
}

impl Server {
    fn of(nodes: [Value; 6]) -> Self {
        let server = ApiServer::new(Timestamp::now);
        for node in nodes {
            server.add_node(node);
        }
        // Two pages, so that the second is asked for.
        server.page_by(3);
        server.answer(|_, call| {
            assert!(call.method != Method::PATCH || call.body["metadata"]["resourceVersion"].is_string(), "{}", call.body);
            None
        });
        Self(server)
    }

    fn act(&self) -> KubeAct {
        KubeAct::new(&self.0.client(), "default")
    }

    /// Annotations, whether it is closed, and the types of its conditions.
    fn stands(&self, name: &str) -> (Value, bool, Vec<String>) {
        let node = self.0.node(name).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let types = conditions.iter().map(|condition| condition["type"].as_str().unwrap().to_owned()).collect();
        (node["metadata"]["annotations"].clone(), node["spec"]["unschedulable"] == true, types)
    }
}

#[tokio::test]
async fn all_that_is_ours_is_taken_back_and_what_is_others_stays() {
    let theirs = json!({ SCALE_DOWN_DISABLED: "true", "team": "x" });
    let server = Server::of([
        node("a", &json!({ SCALE_DOWN_DISABLED: "true", HELD: "true", VERDICT: "busy", "team": "x" }), false, true),
        node("b", &json!({ DRAINING: "true" }), true, false),
        node("c", &json!({ HELD: "true", DRAINING: "true", "team": "x" }), false, false),
        node("d", &theirs, true, false),
        node("e", &json!({ VERDICT: "warm" }), false, false),
        node("f", &json!({}), false, true),
    ]);
    let act = server.act();
    let found: BTreeMap<String, Vec<Trace>> =
        act.traces(None).await.unwrap().into_iter().map(|(node, traces)| (node.to_string(), traces)).collect();
    let expected = [
        ("a", vec![Trace::Hold, Trace::Verdict]),
        ("b", vec![Trace::Cordon]),
        ("c", vec![Trace::Mark]),
        ("e", vec![Trace::Verdict]),
        ("f", vec![Trace::Verdict]),
    ];
    assert_eq!(found, expected.map(|(node, traces)| (node.to_owned(), traces)).into());
    let now = "2026-11-01T00:00:00Z".parse().unwrap();
    for (name, expected) in [("a", Outcome::Done), ("a", Outcome::Already), ("b", Outcome::Done), ("c", Outcome::Done)] {
        assert_eq!(act.take_back(&NodeName::new(name).unwrap(), now).await.unwrap(), expected, "{name}");
    }
    for (name, expected) in [("e", Outcome::Done), ("f", Outcome::Done), ("d", Outcome::Already), ("gone", Outcome::Gone)] {
        assert_eq!(act.take_back(&NodeName::new(name).unwrap(), now).await.unwrap(), expected, "{name}");
    }
    let ready = || vec!["Ready".to_owned()];
    let free = |annotations: Value| (annotations, false, ready());
    assert_eq!(server.stands("a"), free(json!({ "team": "x" })));
    assert_eq!(server.stands("b"), free(json!({})));
    assert_eq!(server.stands("c"), free(json!({ "team": "x" })));
    assert_eq!(server.stands("d"), (theirs, true, ready()));
    assert_eq!((server.stands("e"), server.stands("f")), (free(json!({})), free(json!({}))));
    assert_eq!(act.traces(None).await.unwrap(), []);
}
