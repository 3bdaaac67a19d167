use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use stoker_core::told::CONDITION;

use super::super::super::VERDICT;
use super::super::super::fake::{self, Call};
use super::*;

/// A server with Nodes, by name.
#[derive(Clone)]
struct Server(Arc<Mutex<BTreeMap<String, Value>>>);

/// A Node with these annotations, closed or not, and with the condition or not.
fn node(name: &str, annotations: &Value, closed: bool, told: bool) -> Value {
    let mut conditions = vec![json!({ "type": "Ready", "status": "True" })];
    if told {
        conditions.push(json!({ "type": CONDITION, "status": "False", "reason": "GpuBusy", "message": "" }));
    }
    json!({
        "metadata": { "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations, "labels": { "team": "x" } },
        "spec": { "unschedulable": closed.then_some(true) },
        "status": { "conditions": conditions },
    })
}

fn merge(known: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        if value.is_null() {
            known.as_object_mut().unwrap().remove(key);
        } else {
            known[key] = value.clone();
        }
    }
}

impl Server {
    fn of(nodes: [Value; 6]) -> Self {
        let named = nodes.map(|node| (node["metadata"]["name"].as_str().unwrap().to_owned(), node));
        Self(Arc::new(Mutex::new(named.into())))
    }

    fn act(&self) -> KubeAct {
        let server = self.clone();
        KubeAct::new(&fake::client(move |call| std::future::ready(server.serve(&call))), "default")
    }

    fn serve(&self, call: &Call) -> http::Response<axum::body::Body> {
        let mut nodes = self.0.lock().unwrap();
        let Some(rest) = call.path.strip_prefix("/api/v1/nodes/") else {
            // Two pages, so that the second is asked for.
            let items: Vec<Value> = nodes.values().cloned().collect();
            return match call.param("continue") {
                None => fake::page(&items[..3], Some("more")),
                Some(_) => fake::page(&items[3..], None),
            };
        };
        let name = rest.trim_end_matches("/status");
        let Some(node) = nodes.get_mut(name) else { return fake::failure(StatusCode::NOT_FOUND, "NotFound") };
        if call.method == Method::PATCH {
            let meta = &call.body["metadata"];
            assert_eq!(meta["resourceVersion"], node["metadata"]["resourceVersion"]);
            merge(&mut node["metadata"]["annotations"], &meta["annotations"]);
            if rest.ends_with("/status") {
                node["status"]["conditions"].as_array_mut().unwrap().retain(|known| known["type"] != CONDITION);
            } else if let Some(spec) = call.body.get("spec") {
                merge(&mut node["spec"], spec);
            }
            let version: u32 = node["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            node["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        }
        fake::object(node)
    }

    /// Annotations, whether it is closed, and the types of its conditions.
    fn stands(&self, name: &str) -> (Value, bool, Vec<String>) {
        let nodes = self.0.lock().unwrap();
        let node = &nodes[name];
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
