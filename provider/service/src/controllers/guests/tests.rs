use std::time::Duration;

use axum::body::Body;
use http::Response;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stoker_fake_apiserver as fake;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::kube::feed::Guest;
use crate::price_tables::PriceTables;
use crate::publish::view::GroupView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stoker_core::base::ids::NodeName;

fn guest(name: &str, uid: &str, node: &str) -> (String, Guest) {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ml".to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    };
    (format!("ml/{name}"), Guest { node: NodeName::new(node).unwrap(), meta })
}

/// A view of the built-in example in which `node` is one of its inference pool's.
fn view(node: &str) -> Arc<View> {
    let now = "2026-11-01T00:00:00Z".parse().unwrap();
    let price_tables = PriceTables::load(None, None, now).unwrap();
    let catalogue = Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()));
    let group = Arc::clone(catalogue.groups.values().find(|group| group.pool.as_str() == "inference").unwrap());
    let mut view = View::starting(now, catalogue);
    view.owners.insert(node.to_owned(), group.id.clone());
    view.groups.insert(group.id.clone(), Arc::new(GroupView::empty(&group)));
    Arc::new(view)
}

#[tokio::test]
async fn each_pod_is_told_of_once_and_all_are_counted() {
    let (tell, mut told) = mpsc::unbounded_channel::<Value>();
    let client = fake::client(move |call| {
        tell.send(call.body.clone()).unwrap();
        async move { Response::new(Body::from(call.body.to_string())) }
    });
    let (send, guests) = watch::channel(Arc::new(Guests::from([guest("web", "u1", "gpu-node")])));
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let published = view("gpu-node");
    let events = Arc::new(KubeAct::new(&client, "default"));
    let running = tokio::spawn(run(guests, move || Arc::clone(&published), events, metrics));
    let mut next = async || timeout(Duration::from_secs(5), told.recv()).await.unwrap().unwrap();
    let first = next().await;
    assert_eq!(first["regarding"], json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "ml", "uid": "u1" }));
    assert_eq!((first["reason"].as_str(), first["type"].as_str()), (Some("NoGpuOnGpuNode"), Some("Warning")));
    assert!(first["note"].as_str().unwrap().starts_with("requests no GPU and runs on GPU node gpu-node"), "{first}");
    // Another comes, and the first is not told of again; one of its name that comes later is.
    send.send_replace(Arc::new(Guests::from([guest("web", "u1", "gpu-node"), guest("batch", "u2", "gpu-node")])));
    assert_eq!(next().await["regarding"]["name"], "batch");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains("stoker_pods_without_gpu{pool=\"inference\"} 2\n"), "{text}");
    assert!(text.contains("stoker_pods_without_gpu{pool=\"training\"} 0\n"), "{text}");
    send.send_replace(Arc::default());
    send.send_replace(Arc::new(Guests::from([guest("web", "u3", "gpu-node")])));
    assert_eq!(next().await["regarding"]["uid"], "u3");
    drop(send);
    running.await.unwrap();
}
