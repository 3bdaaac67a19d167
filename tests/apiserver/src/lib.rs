//! The one fake Kubernetes API server of all tests.
//!
//! [`ApiServer`] keeps objects: what it serves can be listed in pages, watched, made, patched, applied, evicted and deleted, with selectors,
//! preconditions and versions. A test reaches it through a [`client`](ApiServer::client) without a network, or
//! [listens](ApiServer::listen) and hands its kubeconfig to a process. What a test wants answered otherwise it [says](ApiServer::answer).
//! Where there is nothing to keep, [`client`] answers as a function says.
//!
//! # Caveats
//! No admission, validation or defaults; a watch with a selector does not tell that an object has left it; patches of any kind are
//! merged, and lists but those of conditions are replaced.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a harness that cannot be set up is a failed test")]

mod call;
mod change;
mod selector;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use futures::stream;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch as versions;
use tokio::task::JoinHandle;

pub use call::{Answer, Call, client, failure, object, page, watch};
use store::{Change, Key, Store, Target};

/// The longest body that is read.
const LONGEST: usize = 16 << 20;

/// The server. Clones are the same server; one that listens stops when the last of them is dropped.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    door: Option<Arc<Door>>,
}

type Hook = dyn Fn(&ApiServer, &Call) -> Option<Answer> + Send + Sync;

struct Shared {
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    store: Mutex<Store>,
    version: versions::Sender<u64>,
    settings: Mutex<Settings>,
}

#[derive(Clone)]
struct Settings {
    /// Kinds that it knows, by their plural.
    served: BTreeSet<String>,
    page: usize,
    hook: Option<Arc<Hook>>,
}

/// Where it listens.
struct Door {
    task: JoinHandle<()>,
    dir: TempDir,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn target(path: &str) -> (Key, String) {
    let target = Target::of(path).expect("the path of an object");
    (target.key().expect("the path of an object"), target.api_version)
}

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

impl ApiServer {
    /// An empty cluster of Nodes and Pods whose time is that.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let settings = Settings { served: ["nodes", "pods"].map(ToOwned::to_owned).into(), page: usize::MAX, hook: None };
        let shared = Shared {
            now: Box::new(now),
            store: Mutex::default(),
            version: versions::Sender::new(0),
            settings: Mutex::new(settings),
        };
        Self { shared: Arc::new(shared), door: None }
    }

    /// The same on a loopback port.
    pub async fn listen(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let server = Self::new(now);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let app = Router::new().fallback(over_http).with_state(server.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
        let dir = TempDir::new().expect("a directory for the kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "clusters": [{ "name": "test", "cluster": { "server": url } }],
            "users": [{ "name": "test", "user": {} }],
        });
        std::fs::write(dir.path().join("config"), config.to_string()).expect("the kubeconfig is written");
        Self { door: Some(Arc::new(Door { task, dir })), ..server }
    }

    /// The kubeconfig that leads to one that listens.
    pub fn kubeconfig(&self) -> PathBuf {
        self.door.as_ref().expect("a server that listens").dir.path().join("config")
    }

    /// A client of it, without a network.
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        client(move |call| std::future::ready(server.serve(&call)))
    }

    /// Another kind that it serves, by its plural.
    pub fn serve_kind(&self, plural: &str) {
        lock(&self.shared.settings).served.insert(plural.to_owned());
    }

    /// Lists so many objects a page at most, whatever is asked.
    pub fn page_by(&self, most: usize) {
        lock(&self.shared.settings).page = most;
    }

    /// Looks at each call first, and may answer in the server's place. Changes that it makes itself are those of somebody else.
    pub fn answer(&self, hook: impl Fn(&Self, &Call) -> Option<Answer> + Send + Sync + 'static) {
        lock(&self.shared.settings).hook = Some(Arc::new(hook));
    }

    /// An object, by its path.
    pub fn get(&self, path: &str) -> Option<Value> {
        lock(&self.shared.store).get(&target(path).0)
    }

    /// Writes an object, as the server completes it.
    pub fn put(&self, path: &str, object: Value) -> Value {
        let (key, api_version) = target(path);
        self.changed(|store, now| store.put(key, &api_version, object, now))
    }

    /// Puts an object there as if it had always been: no watch tells of it.
    pub fn seed(&self, path: &str, object: Value) {
        let (key, api_version) = target(path);
        lock(&self.shared.store).seed(key, &api_version, object, (self.shared.now)());
    }

    /// Changes an object, where there is one.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let (key, api_version) = target(path);
        self.changed(|store, now| {
            if let Some(mut object) = store.get(&key) {
                change(&mut object);
                store.put(key, &api_version, object, now);
            }
        });
    }

    /// Takes an object away.
    pub fn remove(&self, path: &str) -> Option<Value> {
        let (key, _) = target(path);
        self.changed(|store, _| store.remove(&key))
    }

    /// The objects of a kind, by its plural.
    pub fn all(&self, plural: &str) -> Vec<Value> {
        lock(&self.shared.store).of(plural).filter_map(|(_, text)| serde_json::from_str(text).ok()).collect()
    }

    /// A Node of that name, where there is one.
    pub fn node(&self, name: &str) -> Option<Value> {
        self.get(&node_path(name))
    }

    /// All Nodes.
    pub fn nodes(&self) -> Vec<Value> {
        self.all("nodes")
    }

    /// Each Node as it was when it was made.
    pub fn nodes_at_birth(&self) -> Vec<Value> {
        let store = lock(&self.shared.store);
        let born = store.log.iter().filter(|change| change.key.plural == "nodes" && change.what == "ADDED");
        born.filter_map(|change| serde_json::from_str(&change.object).ok()).collect()
    }

    /// Makes a Node as it stands there.
    pub fn add_node(&self, node: Value) {
        let path = node_path(node["metadata"]["name"].as_str().unwrap_or_default());
        self.put(&path, node);
    }

    /// Sets an annotation of a Node.
    pub fn annotate(&self, node: &str, key: &str, value: &str) {
        self.edit(&node_path(node), |node| node["metadata"]["annotations"][key] = json!(value));
    }

    /// The annotations of a Node.
    pub fn annotations(&self, node: &str) -> BTreeMap<String, String> {
        let annotations = self.node(node).map(|node| node["metadata"]["annotations"].clone()).unwrap_or_default();
        serde_json::from_value(annotations).unwrap_or_default()
    }

    /// Binds a pod with one GPU to a node.
    pub fn bind_gpu_pod(&self, name: &str, node: &str) {
        let pod = json!({
            "metadata": {},
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "main", "image": "none", "resources": { "limits": { "nvidia.com/gpu": "1" } } }],
            },
            "status": { "phase": "Running" },
        });
        self.put(&format!("/api/v1/namespaces/default/pods/{name}"), pod);
    }

    /// Ends a pod.
    pub fn end_pod(&self, name: &str) {
        self.remove(&format!("/api/v1/namespaces/default/pods/{name}"));
    }

    /// The Events taken so far.
    pub fn events(&self) -> Vec<Value> {
        lock(&self.shared.store).events.clone()
    }

    /// Their reasons.
    pub fn event_reasons(&self) -> Vec<String> {
        self.events().iter().filter_map(|event| event["reason"].as_str().map(ToOwned::to_owned)).collect()
    }

    /// The calls by which clients changed objects, in order, since this was last asked.
    pub fn take_writes(&self) -> Vec<Call> {
        std::mem::take(&mut lock(&self.shared.store).writes)
    }

    /// How often what was asked: `GET nodes`, `WATCH pods`.
    pub fn asked(&self) -> BTreeMap<String, usize> {
        lock(&self.shared.store).asked.clone()
    }

    /// Changes what is kept, and wakes the watches.
    fn changed<T>(&self, change: impl FnOnce(&mut Store, Timestamp) -> T) -> T {
        let now = (self.shared.now)();
        let (result, version) = {
            let mut store = lock(&self.shared.store);
            (change(&mut store, now), store.version)
        };
        self.shared.version.send_replace(version);
        result
    }

    /// Answers a call.
    pub fn serve(&self, call: &Call) -> Answer {
        let missing = || failure(StatusCode::NOT_FOUND, "NotFound");
        let settings = lock(&self.shared.settings).clone();
        let Some(target) = Target::of(&call.path) else { return missing() };
        {
            let method = if call.is_watch() { "WATCH" } else { call.method.as_str() };
            let mut store = lock(&self.shared.store);
            *store.asked.entry(format!("{method} {}", target.plural)).or_default() += 1;
        }
        if let Some(answer) = settings.hook.as_ref().and_then(|hook| hook(self, call)) {
            return answer;
        }
        if target.plural == "events" {
            lock(&self.shared.store).events.push(call.body.clone());
            return object(&call.body);
        }
        if !settings.served.contains(&target.plural) {
            return missing();
        }
        match (&call.method, target.key()) {
            (&Method::GET, None) if call.is_watch() => self.follow(call, target),
            (&Method::GET, None) => self.list(call, &target, settings.page),
            (&Method::GET, Some(key)) => lock(&self.shared.store).get(&key).map_or_else(missing, |found| object(&found)),
            (_, key) => {
                let name = || call.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let namespace = target.namespace.clone().unwrap_or_default();
                let made = || Key { plural: target.plural.clone(), namespace: namespace.clone(), name: name() };
                let creates = key.is_none();
                let key = key.unwrap_or_else(made);
                self.changed(|store, now| {
                    let before = call.is_dry_run().then(|| store.marked());
                    let answer = if creates {
                        change::create(store, call, &target, key, now)
                    } else {
                        change::write(store, call, &target, key, now)
                    };
                    if let Some(before) = before {
                        store.back_to(before);
                    } else if answer.status().is_success() {
                        store.writes.push(call.clone());
                    }
                    answer
                })
            }
        }
    }

    fn list(&self, call: &Call, target: &Target, page: usize) -> Answer {
        let number = |name: &str| call.param(name).and_then(|text| text.parse::<usize>().ok()).filter(|limit| *limit > 0);
        let page = number("limit").unwrap_or(usize::MAX).min(page);
        let after = call.param("continue").and_then(|token| token.split_once('/'));
        let store = lock(&self.shared.store);
        let mut found = store
            .of(&target.plural)
            .filter(|(key, _)| target.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace))
            .filter(|(key, _)| after.is_none_or(|after| (key.namespace.as_str(), key.name.as_str()) > after))
            .filter(|(_, text)| is_selected(call, text));
        let (mut items, mut last) = (Vec::new(), None);
        for (key, text) in found.by_ref().take(page) {
            items.push(&**text);
            last = Some(format!("{}/{}", key.namespace, key.name));
        }
        let meta = json!({ "resourceVersion": store.version.to_string(), "continue": last.filter(|_| found.next().is_some()) });
        call::text(format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{meta},"items":[{}]}}"#, items.join(",")))
    }

    /// A watch from the version asked for; it stays open for as long as it is asked to.
    fn follow(&self, call: &Call, target: Target) -> Answer {
        let number = |name: &str| call.param(name).and_then(|text| text.parse::<u64>().ok());
        let from = number("resourceVersion").unwrap_or(0);
        let until = number("timeoutSeconds").map(|seconds| tokio::time::Instant::now() + Duration::from_secs(seconds));
        let (shared, version, call) = (Arc::clone(&self.shared), self.shared.version.subscribe(), call.clone());
        let told = stream::unfold((from, version), move |(mut from, mut version)| {
            let (shared, call) = (Arc::clone(&shared), call.clone());
            let (plural, namespace) = (target.plural.clone(), target.namespace.clone());
            async move {
                loop {
                    version.borrow_and_update();
                    let lines: String = {
                        let store = lock(&shared.store);
                        let news = store.log.iter().filter(|change| change.version > from && change.key.plural == plural);
                        let here = news.filter(|change| namespace.as_ref().is_none_or(|of| *of == change.key.namespace));
                        let told = here.filter(|change| is_selected(&call, &change.object));
                        let line =
                            |change: &Change| format!(r#"{{"type":"{}","object":{}}}"#, change.what, change.object) + "\n";
                        let lines: Vec<String> = told.map(line).collect();
                        from = store.version;
                        lines.concat()
                    };
                    if !lines.is_empty() {
                        return Some((Ok::<_, Infallible>(lines), (from, version)));
                    }
                    match until {
                        Some(until) => tokio::time::timeout_at(until, version.changed()).await.ok()?.ok()?,
                        None => version.changed().await.ok()?,
                    }
                }
            }
        });
        Response::new(Body::from_stream(told))
    }
}

fn is_selected(call: &Call, text: &str) -> bool {
    !selector::is_selective(call) || serde_json::from_str(text).is_ok_and(|object| selector::selects(call, &object))
}

async fn over_http(State(server): State<ApiServer>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LONGEST).await.unwrap_or_default();
    server.serve(&Call::of(&parts, &body))
}
