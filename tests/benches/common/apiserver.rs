//! A stand-in for a Kubernetes API server: it lists Nodes and Pods in pages, and its watches stand and tell nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoker_core::ids::{ClusterName, LaunchKey, NodeName, ProviderId};
use stoker_core::offer::CapacityType;
use stoker_sim::world::StoredInstance;
use stoker_tests::market;

use super::service::{CLUSTER, pool};

/// Nodes there are.
pub(crate) const NODES: usize = 5_000;
/// GPU pods on each of them.
pub(crate) const PODS_PER_NODE: usize = 4;
/// Pods there are.
pub(crate) const PODS: usize = NODES * PODS_PER_NODE;

/// Types and zones of a pool's groups, which are called `<pool>.<type>.<zone>`. A zone goes by id in the price book, by name elsewhere.
const TYPES: [&str; 3] = ["g6.xlarge", "g5.xlarge", "g6e.xlarge"];
const ZONES: [(&str, &str); 2] = [("use1-az1", "us-east-1a"), ("use1-az2", "us-east-1b")];

/// Pools whose groups the nodes are spread over.
const POOLS: usize = 25;
/// When every node came.
const HOURS_AGO: i64 = 2;

/// A running stand-in.
pub(crate) struct ApiServer {
    url: String,
    cluster: Arc<Cluster>,
}

struct Cluster {
    joined: Timestamp,
    /// One Pod as JSON, with `@N@` for its number and `@NODE@` for its node.
    pod: String,
    lists: AtomicUsize,
    watches: AtomicUsize,
    others: Mutex<BTreeMap<String, usize>>,
}

impl ApiServer {
    /// Starts it on a loopback port.
    pub(crate) async fn start() -> Result<Self> {
        let joined = Timestamp::now().checked_sub(SignedDuration::from_hours(HOURS_AGO))?;
        let cluster = Arc::new(Cluster {
            joined,
            pod: pod(joined).to_string(),
            lists: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            others: Mutex::default(),
        });
        let app = Router::new()
            .route("/api/v1/nodes", get(nodes).fallback(other))
            .route("/api/v1/pods", get(pods).fallback(other))
            .fallback(other)
            .with_state(Arc::clone(&cluster));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { url, cluster })
    }

    /// Writes a kubeconfig for it.
    pub(crate) fn write_kubeconfig(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
            "clusters": [{ "name": "bench", "cluster": { "server": self.url } }],
            "users": [{ "name": "bench", "user": {} }],
        });
        fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Writes the machines of its nodes, as the simulated world keeps them.
    pub(crate) fn write_machines(&self, path: &Path) -> Result<()> {
        let joined = self.cluster.joined;
        let mut text = format!("{}\n", json!({ "start": joined }));
        for n in 0..NODES {
            let node = Place::of(n);
            let row = StoredInstance {
                key: LaunchKey::new(format!("{CLUSTER}/{}/{n}/1", node.group))?,
                cluster: ClusterName::new(CLUSTER)?,
                provider_id: ProviderId::new(node.provider_id)?,
                node_name: NodeName::new(node.name)?,
                market: market::market(node.instance_type, node.zone_id, CapacityType::OnDemand),
                launched_at: joined,
                ready_at: Some(joined),
                reclaim: None,
                stopping: None,
            };
            writeln!(text, "{}", serde_json::to_string(&row)?)?;
        }
        fs::write(path, text)?;
        Ok(())
    }

    /// Bytes of one Pod.
    pub(crate) fn pod_bytes(&self) -> usize {
        self.cluster.pod.len()
    }

    /// What was asked.
    pub(crate) fn requests(&self) -> String {
        let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let others = self.cluster.others.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{} pages, {} watches, others {others:?}", count(&self.cluster.lists), count(&self.cluster.watches))
    }
}

/// Where the `n`-th node is, and what it is called.
struct Place {
    name: String,
    provider_id: String,
    group: String,
    pool: String,
    instance_type: &'static str,
    zone_id: &'static str,
    zone: &'static str,
}

impl Place {
    fn of(n: usize) -> Self {
        let (instance_type, (zone_id, zone)) = (TYPES[n % TYPES.len()], ZONES[n / TYPES.len() % ZONES.len()]);
        let pool = pool(n / (TYPES.len() * ZONES.len()) % POOLS);
        let dashed = instance_type.replace('.', "-");
        // As the simulated world names them: the node by the first eight digits of its machine.
        let bits = n * 0x1_0001;
        Self {
            name: format!("{dashed}-{bits:08x}"),
            provider_id: format!("sim:///{zone}/i-{bits:08x}0000"),
            group: format!("{pool}.{dashed}.{zone}"),
            pool,
            instance_type,
            zone_id,
            zone,
        }
    }
}

type Params = Query<BTreeMap<String, String>>;

async fn nodes(State(cluster): State<Arc<Cluster>>, Query(params): Params) -> Response {
    let joined = cluster.joined;
    cluster.answer(&params, "NodeList", NODES, |n| node(n, joined).to_string())
}

async fn pods(State(cluster): State<Arc<Cluster>>, Query(params): Params) -> Response {
    let pod = |n: usize| cluster.pod.replace("@N@", &format!("{n:05}")).replace("@NODE@", &Place::of(n / PODS_PER_NODE).name);
    // Each of them is bound, so whoever asks for those that wait is told of none.
    let waiting = params.get("fieldSelector").is_some_and(|fields| fields.split(',').any(|term| term == "spec.nodeName="));
    cluster.answer(&params, "PodList", if waiting { 0 } else { PODS }, pod)
}

/// Anything else: Events are taken, the rest is not there.
async fn other(State(cluster): State<Arc<Cluster>>, method: Method, uri: Uri, body: Body) -> Response {
    let kind = uri.path().rsplit('/').find(|part| !part.contains('-')).unwrap_or_default();
    let mut others = cluster.others.lock().unwrap_or_else(PoisonError::into_inner);
    *others.entry(format!("{method} {kind}")).or_default() += 1;
    if method == Method::POST && kind == "events" {
        return (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    }
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "" });
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

impl Cluster {
    fn answer(
        &self,
        params: &BTreeMap<String, String>,
        kind: &str,
        count: usize,
        object: impl Fn(usize) -> String,
    ) -> Response {
        let number = |name: &str| params.get(name).and_then(|text| text.parse::<usize>().ok());
        let json = [(header::CONTENT_TYPE, "application/json")];
        if params.get("watch").is_some_and(|watch| watch == "true") {
            self.watches.fetch_add(1, Ordering::Relaxed);
            let wait = Duration::from_secs(number("timeoutSeconds").unwrap_or(30) as u64);
            let silent = stream::once(async move {
                tokio::time::sleep(wait).await;
                Ok::<_, std::io::Error>(String::new())
            });
            return (json, Body::from_stream(silent)).into_response();
        }
        self.lists.fetch_add(1, Ordering::Relaxed);
        let from = number("continue").unwrap_or(0);
        let to = from.saturating_add(number("limit").filter(|limit| *limit > 0).unwrap_or(count)).min(count);
        let next = if to < count { to.to_string() } else { String::new() };
        let items = (from..to).map(object).collect::<Vec<_>>().join(",");
        let list = format!(
            r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"1000","continue":"{next}"}},"items":[{items}]}}"#
        );
        (json, list).into_response()
    }
}

/// The `n`-th Node, Ready and held by us.
fn node(n: usize, joined: Timestamp) -> Value {
    let place = Place::of(n);
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|kind| {
            json!({
                "type": kind, "status": if kind == "Ready" { "True" } else { "False" }, "lastHeartbeatTime": joined,
                "lastTransitionTime": joined, "reason": format!("Kubelet{kind}"), "message": "kubelet says so",
            })
        })
        .into();
    let images: Vec<Value> = (0..20)
        .map(|image| {
            let digest = format!("{image:064x}");
            json!({ "names": [format!("registry.example.internal/team/image-{image}@sha256:{digest}")], "sizeBytes": 1_234_567_890 })
        })
        .collect();
    let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "58", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "4" });
    json!({
        "metadata": {
            "name": place.name, "uid": format!("6f1c9b3e-0000-4000-8000-{n:012x}"), "resourceVersion": "900", "creationTimestamp": joined,
            "labels": {
                "stoker.dev/cluster": CLUSTER, "stoker.dev/group": place.group, "stoker.dev/pool": place.pool,
                "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": place.name,
                "node.kubernetes.io/instance-type": place.instance_type, "topology.kubernetes.io/region": "us-east-1",
                "topology.kubernetes.io/zone": place.zone,
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", "stoker.dev/held": "true",
                "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": { "f:conditions": {} } } }],
        },
        "spec": { "providerID": place.provider_id, "taints": [{ "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule" }] },
        "status": {
            "conditions": conditions, "images": images, "capacity": amounts, "allocatable": amounts,
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0" },
        },
    })
}

/// A bound GPU Pod of about six kilobytes, as an API server tells of it.
fn pod(joined: Timestamp) -> Value {
    let env: Vec<Value> = (0..24)
        .map(|n| json!({ "name": format!("MODEL_SERVER_OPTION_{n}"), "value": format!("--option-{n}=https://models.example.internal/v1/{n:08x}") }))
        .collect();
    let mounts: Vec<Value> = (0..4)
        .map(|n| json!({ "name": format!("volume-{n}"), "mountPath": format!("/mnt/volume-{n}"), "readOnly": true }))
        .collect();
    let volumes: Vec<Value> = (0..4)
        .map(|n| json!({ "name": format!("volume-{n}"), "configMap": { "name": format!("config-{n}"), "defaultMode": 420 } }))
        .collect();
    let fields = json!({ "f:metadata": { "f:labels": { ".": {}, "f:app": {}, "f:team": {} } }, "f:spec": { "f:containers": {
        "k:{\"name\":\"main\"}": { ".": {}, "f:args": {}, "f:env": {}, "f:image": {}, "f:resources": {}, "f:volumeMounts": {} },
    } } });
    let amounts = json!({ "cpu": "500m", "memory": "3Gi", "nvidia.com/gpu": "1" });
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": joined }))
        .into();
    json!({
        "metadata": {
            "name": "model-server-7d9c5b6f8-@N@", "generateName": "model-server-7d9c5b6f8-", "namespace": "inference",
            "uid": "3b0c7c1e-5f0e-4a52-9b0b-0000000@N@", "resourceVersion": "900", "creationTimestamp": joined,
            "labels": { "app": "model-server", "pod-template-hash": "7d9c5b6f8", "team": "recommendations" },
            "annotations": { "prometheus.io/scrape": "true", "checksum/config": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "model-server-7d9c5b6f8", "uid": "a9d7a6c1", "controller": true }],
            "managedFields": (0..3).map(|n| json!({ "manager": format!("manager-{n}"), "operation": "Update", "fieldsV1": fields })).collect::<Vec<_>>(),
        },
        "spec": {
            "nodeName": "@NODE@", "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "model-server",
            "containers": [{
                "name": "main", "image": format!("registry.example.internal/inference/model-server@sha256:{:064x}", 7), "env": env,
                "args": (0..8).map(|n| format!("--serve-model-shard={n}")).collect::<Vec<_>>(),
                "resources": { "requests": amounts, "limits": amounts }, "volumeMounts": mounts,
            }],
            "volumes": volumes,
            "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.2", "qosClass": "Guaranteed", "startTime": joined,
            "conditions": conditions,
            "containerStatuses": [{ "name": "main", "ready": true, "restartCount": 0, "image": "registry.example.internal/inference/model-server" }],
        },
    })
}
