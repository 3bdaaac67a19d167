//! Nodes and Pods as an API server sends them, through the real client and the watches, and
//! quantities.
//!
//! An input is objects, one a line; those that are no JSON are taken for quantities. Every node that
//! is published was sent, and what happened to it is not in the future.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use stoker_core::base::ids::ClusterName;
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::kube::feed::KubeFeed;
use stoker_service::kube::quantity;
use stoker_tests::market;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tower::service_fn;

pub(super) fn run(data: &[u8]) {
    thread_local! {
        static RUNTIME: Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    }
    let (mut nodes, mut pods) = (Vec::new(), Vec::new());
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(text) = std::str::from_utf8(line) else { continue };
        match serde_json::from_str::<Value>(text) {
            // A list is of one kind, whatever its items say.
            Ok(object) if object.is_object() && text.contains("\"containers\"") => pods.push(text.to_owned()),
            Ok(object) if object.is_object() => nodes.push(text.to_owned()),
            Ok(Value::String(amount)) => amounts(&amount),
            _ => amounts(text),
        }
    }
    if !nodes.is_empty() || !pods.is_empty() {
        RUNTIME.with(|runtime| runtime.block_on(listed(&nodes, &pods)));
    }
}

/// A quantity in thousandths is a thousand times the whole one at the most, and more than that less one.
fn amounts(text: &str) {
    let Ok(whole) = quantity::whole(text) else { return };
    if let Ok(milli) = quantity::milli(text) {
        assert!(milli.div_ceil(1000) == whole, "{text:?}: {whole} and {milli} thousandths");
        assert_eq!(quantity::milli(&quantity::cpu(milli)), Ok(milli), "{text:?}");
    }
}

/// The feed of an API server that lists these.
async fn listed(nodes: &[String], pods: &[String]) {
    let list = |kind: &str, items: &[String]| {
        let items = items.join(",");
        format!(r#"{{"kind":"{kind}List","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
    };
    let (node_list, pod_list) = (Arc::new(list("Node", nodes)), Arc::new(list("Pod", pods)));
    let server = service_fn(move |request: Request<Body>| {
        let list = if request.uri().path().ends_with("nodes") { Arc::clone(&node_list) } else { Arc::clone(&pod_list) };
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let body = Body::from(list.as_bytes().to_vec());
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    let client = Client::new(server, "default");
    let cluster = ClusterName::new("test").expect("a name");
    let clock = Clock::Virtual(VirtualClock::new(market::start()));
    let (feed, run) = KubeFeed::start_knowing(&client, &cluster, BTreeSet::new(), clock, Arc::new(Notify::new()));
    // Time stands until nothing is to be done: a list that cannot be read is asked for again and again.
    let _ = tokio::time::timeout(Duration::from_millis(200), run).await;
    let Some(facts) = feed.latest() else { return };
    assert!(facts.nodes.len() <= nodes.len(), "{} nodes of {}", facts.nodes.len(), nodes.len());
    let mut held = BTreeSet::new();
    for (name, node) in &facts.nodes {
        assert_eq!(*name, node.name);
        assert!(node.created_at <= market::start() && node.ready_since.is_none_or(|at| at <= market::start()), "{node:?}");
        assert!(node.gpu_pods.iter().all(|pod| held.insert(pod.clone())), "a pod holds two nodes");
    }
    assert!(held.len() <= pods.len() && feed.gpu_pods().borrow().len() <= pods.len());
    assert!(feed.guests().borrow().len() <= pods.len());
}
