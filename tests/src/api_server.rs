//! A Kubernetes API server of a few lines, over real HTTP: Nodes and Pods that can be listed, watched, made, patched and deleted, and
//! Events that are taken. Its time is the test's clock.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a harness that cannot be set up is a failed test")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use stoker::clock::{Clock, VirtualClock};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

mod selector;

/// The server; it stops when dropped.
pub struct ApiServer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    dir: TempDir,
}

struct Shared {
    clock: Clock,
    store: Mutex<Store>,
    version: watch::Sender<u64>,
    /// Held from reading an object to writing it: two writers of one version would both succeed.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Store {
    version: u64,
    /// Objects by kind and key: `nodes` by name, `pods` by `namespace/name`.
    objects: BTreeMap<(Kind, String), Value>,
    /// Every change, in order: what watches tell.
    log: Vec<(u64, Kind, &'static str, Value)>,
    events: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Nodes,
    Pods,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "Node",
            Self::Pods => "Pod",
        }
    }
}

impl ApiServer {
    /// An empty cluster on that clock.
    pub async fn start(clock: &Arc<VirtualClock>) -> Self {
        let shared = Arc::new(Shared {
            clock: Clock::Virtual(Arc::clone(clock)),
            store: Mutex::default(),
            version: watch::Sender::new(0),
            writing: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
        let dir = TempDir::new().expect("a directory for the kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "clusters": [{ "name": "test", "cluster": { "server": url } }],
            "users": [{ "name": "test", "user": {} }],
        });
        std::fs::write(dir.path().join("config"), config.to_string()).expect("the kubeconfig is written");
        Self { shared, task, dir }
    }

    /// The kubeconfig that leads here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("config")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A Node of that name, where there is one.
    pub fn node(&self, name: &str) -> Option<Value> {
        self.shared.store().objects.get(&(Kind::Nodes, name.to_owned())).cloned()
    }

    /// All Nodes.
    pub fn nodes(&self) -> Vec<Value> {
        self.shared.store().objects.iter().filter(|((kind, _), _)| *kind == Kind::Nodes).map(|(_, node)| node.clone()).collect()
    }

    /// Each Node as it was when it was made.
    pub fn nodes_at_birth(&self) -> Vec<Value> {
        let store = self.shared.store();
        let born = store.log.iter().filter(|(_, kind, what, _)| *kind == Kind::Nodes && *what == "ADDED");
        born.map(|(.., node)| node.clone()).collect()
    }

    /// Makes a Node as it stands there.
    pub fn add_node(&self, node: Value) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.shared.put(Kind::Nodes, name, node);
    }

    /// Sets an annotation of a Node.
    pub fn annotate(&self, node: &str, key: &str, value: &str) {
        if let Some(mut object) = self.node(node) {
            object["metadata"]["annotations"][key] = json!(value);
            self.shared.put(Kind::Nodes, node.to_owned(), object);
        }
    }

    /// The annotations of a Node.
    pub fn annotations(&self, node: &str) -> BTreeMap<String, String> {
        let annotations = self.node(node).map(|node| node["metadata"]["annotations"].clone()).unwrap_or_default();
        serde_json::from_value(annotations).unwrap_or_default()
    }

    /// Binds a pod with one GPU to a node.
    pub fn bind_gpu_pod(&self, name: &str, node: &str) {
        let pod = json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": "1" } } }],
            },
            "status": { "phase": "Running" },
        });
        self.shared.put(Kind::Pods, format!("default/{name}"), pod);
    }

    /// Ends a pod.
    pub fn end_pod(&self, name: &str) {
        self.shared.remove(Kind::Pods, &format!("default/{name}"));
    }

    /// The reasons of the Events taken so far.
    pub fn event_reasons(&self) -> Vec<String> {
        let store = self.shared.store();
        store.events.iter().filter_map(|event| event["reason"].as_str().map(ToOwned::to_owned)).collect()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Writes an object, as the server completes it.
    fn put(&self, kind: Kind, key: String, mut object: Value) -> Value {
        let now = self.now().to_string();
        let mut store = self.store();
        store.version += 1;
        let version = store.version;
        let before = store.objects.get(&(kind, key.clone())).cloned();
        object["kind"] = json!(kind.name());
        object["apiVersion"] = json!("v1");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if before.is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
            object["metadata"]["creationTimestamp"] = json!(now);
        }
        let conditions = object["status"]["conditions"].as_array_mut().into_iter().flatten();
        // Whoever tells of a change of something else says himself when it was.
        for condition in conditions.filter(|condition| condition["type"] == "Ready") {
            let was = before.as_ref().and_then(|before| {
                let conditions = before["status"]["conditions"].as_array()?;
                conditions.iter().find(|c| c["type"] == condition["type"] && c["status"] == condition["status"])
            });
            condition["lastTransitionTime"] = was.map_or_else(|| json!(now), |was| was["lastTransitionTime"].clone());
        }
        let what = if before.is_some() { "MODIFIED" } else { "ADDED" };
        store.objects.insert((kind, key), object.clone());
        store.log.push((version, kind, what, object.clone()));
        drop(store);
        self.version.send_replace(version);
        object
    }

    fn remove(&self, kind: Kind, key: &str) -> Option<Value> {
        let mut store = self.store();
        let mut object = store.objects.remove(&(kind, key.to_owned()))?;
        store.version += 1;
        let version = store.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        store.log.push((version, kind, "DELETED", object.clone()));
        drop(store);
        self.version.send_replace(version);
        Some(object)
    }
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (kind, key) = match path.as_slice() {
        ["api", "v1", "nodes"] => (Kind::Nodes, None),
        ["api", "v1", "nodes", name] | ["api", "v1", "nodes", name, "status"] => (Kind::Nodes, Some((*name).to_owned())),
        ["api", "v1", "pods"] => (Kind::Pods, None),
        ["api", "v1", "namespaces", namespace, "pods", name] => (Kind::Pods, Some(format!("{namespace}/{name}"))),
        ["apis", "events.k8s.io", ..] => {
            shared.store().events.push(body.clone());
            return answer(&body);
        }
        _ => return failure(StatusCode::NOT_FOUND),
    };
    match (method, key) {
        (Method::GET, None) if query.get("watch").is_some_and(|watch| watch == "true") => follow(&shared, kind, &query),
        (Method::GET, None) => list(&shared, kind, &query),
        (Method::POST, None) => {
            let key = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if shared.store().objects.contains_key(&(kind, key.clone())) {
                return failure(StatusCode::CONFLICT);
            }
            answer(&shared.put(kind, key, body))
        }
        (method, Some(key)) => {
            let _writing = shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(object) = shared.store().objects.get(&(kind, key.clone())).cloned() else {
                return failure(StatusCode::NOT_FOUND);
            };
            one(&shared, &method, kind, key, object, &body)
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// A call about one object that exists.
fn one(shared: &Shared, method: &Method, kind: Kind, key: String, mut object: Value, body: &Value) -> Response {
    let condition = if *method == Method::DELETE { &body["preconditions"] } else { &body["metadata"] };
    let as_read = ["uid", "resourceVersion"]
        .into_iter()
        .all(|field| condition[field].is_null() || condition[field] == object["metadata"][field]);
    match *method {
        Method::GET => answer(&object),
        _ if !as_read => failure(StatusCode::CONFLICT),
        Method::DELETE => answer(&shared.remove(kind, &key).unwrap_or_default()),
        Method::PATCH => {
            merge(&mut object, body);
            answer(&shared.put(kind, key, object))
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// A merge patch; lists of conditions are merged by type, as a strategic one does.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(key));
        } else if key == "conditions" {
            if !object[key].is_array() {
                object[key] = json!([]);
            }
            let Some(conditions) = object[key].as_array_mut() else { continue };
            for new in value.as_array().into_iter().flatten() {
                match conditions.iter().position(|old| old["type"] == new["type"]) {
                    Some(at) if new["$patch"] == "delete" => drop(conditions.remove(at)),
                    Some(at) => conditions.get_mut(at).into_iter().for_each(|old| merge(old, new)),
                    None if new["$patch"] == "delete" => {}
                    None => conditions.push(new.clone()),
                }
            }
        } else if value.is_object() {
            merge(&mut object[key], value);
        } else {
            object[key] = value.clone();
        }
    }
}

fn list(shared: &Shared, kind: Kind, query: &BTreeMap<String, String>) -> Response {
    let store = shared.store();
    let all = store.objects.iter().filter(|((is, _), _)| *is == kind).map(|(_, object)| object);
    let items: Vec<&Value> = all.filter(|object| selector::selects(query, object)).collect();
    let version = store.version.to_string();
    answer(&json!({
        "kind": format!("{}List", kind.name()), "apiVersion": "v1",
        "metadata": { "resourceVersion": version }, "items": items,
    }))
}

/// A watch from the version asked for; it stays open.
fn follow(shared: &Arc<Shared>, kind: Kind, query: &BTreeMap<String, String>) -> Response {
    let from: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let query = query.clone();
    let version = shared.version.subscribe();
    let told = stream::unfold((from, version, Arc::clone(shared)), move |(mut from, mut version, shared)| {
        let query = query.clone();
        async move {
            loop {
                version.borrow_and_update();
                let lines: Vec<String> = {
                    let store = shared.store();
                    let news = store.log.iter().filter(|(at, is, ..)| *at > from && *is == kind);
                    let told = news.filter(|(.., object)| selector::selects(&query, object));
                    let lines =
                        told.map(|(_, _, what, object)| json!({ "type": what, "object": object }).to_string()).collect();
                    from = store.version;
                    lines
                };
                if !lines.is_empty() {
                    return Some((Ok::<_, Infallible>(lines.join("\n") + "\n"), (from, version, shared)));
                }
                version.changed().await.ok()?;
            }
        }
    });
    Response::new(Body::from_stream(told))
}

fn answer(object: &Value) -> Response {
    axum::Json(object).into_response()
}

fn failure(code: StatusCode) -> Response {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        _ => "MethodNotAllowed",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16(),
    });
    (code, axum::Json(status)).into_response()
}
