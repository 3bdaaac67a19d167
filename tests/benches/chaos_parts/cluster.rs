//! The cluster: pods that come and end, a scheduler, and the model autoscaler.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use stoker_fake_apiserver::{ApiServer, Call, failure};
use stoker_sim::model::{Autoscaler, Cluster as _, NodeView, PodView, Settings};
use stoker_simulated::ca_client::GrpcCaClient;
use stoker_tests::e2e::mirror::Mirror;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::account::Account;
use super::doors::Doors;
use super::service::POOLS;

/// Between two loops of the autoscaler.
const SCAN: Duration = Duration::from_secs(1);

/// Pods at most, in turns: many, so that nodes are ordered, and few, so that they are let go.
const MOST: [usize; 2] = [25, 5];

/// Seconds of a turn.
const TURN: i64 = 15;

/// How many seconds a pod runs.
const RUNS: std::ops::Range<i64> = 3..15;

/// A cluster at work.
pub(crate) struct Cluster {
    stop: watch::Sender<bool>,
    task: JoinHandle<Seen>,
}

/// What was seen of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What the autoscaler was told.
    pub(crate) account: Account,
    /// Pods that ran.
    pub(crate) pods: usize,
    /// Nodes that were taken from a pod that ran, and pods that somebody else than their owner ended.
    pub(crate) robbed: BTreeSet<String>,
}

impl Cluster {
    /// Runs until it is ended. Nobody but the owner of these pods may end one: they have no controller, so an autoscaler moves none.
    pub(crate) fn run(api: &ApiServer, doors: &Doors) -> Result<Self> {
        let robbed = Arc::<Mutex<BTreeSet<String>>>::default();
        let ended = Arc::clone(&robbed);
        api.answer(move |_, call| guard(call, &ended));
        let (provider, expander) = doors.autoscaler()?;
        let autoscaler = Autoscaler::new(GrpcCaClient::new(provider, expander), Mirror::new(api.client(), false), settings());
        let (stop, stopped) = watch::channel(false);
        let mut work = Work { api: api.clone(), autoscaler, rng: ChaCha8Rng::seed_from_u64(1), next: 0, seen: Seen::default() };
        let task = tokio::spawn(async move {
            loop {
                let stops = *stopped.borrow();
                work.round(stops).await;
                if stops {
                    break;
                }
                tokio::time::sleep(SCAN).await;
            }
            work.seen.robbed.extend(robbed.lock().unwrap_or_else(PoisonError::into_inner).clone());
            work.seen
        });
        Ok(Self { stop, task })
    }

    /// Ends it after the loop that runs; its pods stay.
    pub(crate) async fn end(self) -> Seen {
        self.stop.send_replace(true);
        self.task.await.unwrap_or_default()
    }
}

/// Refuses to end pods, and notes who wanted to.
fn guard(call: &Call, robbed: &Mutex<BTreeSet<String>>) -> Option<stoker_fake_apiserver::Answer> {
    let evicts = call.method == Method::POST && call.path.ends_with("/eviction");
    let deletes = call.method == Method::DELETE && call.path.contains("/pods/");
    if !evicts && !deletes {
        return None;
    }
    robbed.lock().unwrap_or_else(PoisonError::into_inner).insert(call.path.clone());
    Some(failure(StatusCode::FORBIDDEN, "Forbidden"))
}

/// Our flags with everything in seconds.
fn settings() -> Settings {
    let seconds = SignedDuration::from_secs;
    Settings {
        scan_interval: seconds(1),
        pod_hold: seconds(1),
        gpu_pod_hold: seconds(1),
        scale_down_unneeded: seconds(3),
        scale_down_unready: seconds(10),
        scale_down_delay_after_add: seconds(1),
        scale_down_delay_after_failure: seconds(3),
        unremovable_recheck: seconds(5),
        node_delete_delay_after_taint: seconds(0),
        initial_backoff: seconds(5),
        max_backoff: seconds(10),
        backoff_reset: seconds(20),
        ..Settings::recommended()
    }
}

struct Work {
    api: ApiServer,
    autoscaler: Autoscaler<GrpcCaClient, Mirror>,
    rng: ChaCha8Rng,
    next: usize,
    seen: Seen,
}

impl Work {
    /// Pods end and come, waiting ones are bound, and the autoscaler looks.
    async fn round(&mut self, last: bool) {
        let nodes = self.autoscaler.cluster_mut().nodes().await;
        let pods = self.autoscaler.cluster_mut().pods().await;
        self.end_pods(&pods, &nodes);
        let turn = usize::try_from(Timestamp::now().as_second() / TURN).unwrap_or_default();
        if !last && pods.len() < MOST[turn % MOST.len()] {
            for _ in 0..self.rng.random_range(0..3) {
                self.make_pod();
            }
        }
        self.schedule(&nodes, &pods);
        let report = self.autoscaler.run_once(Timestamp::now()).await;
        report.calls.iter().for_each(|record| self.seen.account.note(record));
    }

    fn make_pod(&mut self) {
        let pool = POOLS[self.rng.random_range(0..POOLS.len())];
        let name = format!("work-{}", self.next);
        let runs = self.rng.random_range(RUNS);
        self.next += 1;
        let amounts = json!({ "cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1" });
        let pod = json!({
            "metadata": { "name": name, "namespace": "default", "annotations": { "runs": runs.to_string() } },
            "spec": {
                "nodeSelector": { "stoker.dev/pool": pool },
                "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "none", "resources": { "requests": amounts, "limits": amounts } }],
            },
            "status": {
                "phase": "Pending",
                "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }],
            },
        });
        self.api.put(&path(&name), pod);
    }

    /// Pods end when their time is over; a node that is gone before was taken from its pod.
    fn end_pods(&mut self, pods: &[Arc<PodView>], nodes: &[Arc<NodeView>]) {
        for pod in pods {
            let Some(node) = &pod.node else { continue };
            if !nodes.iter().any(|other| other.name == *node) {
                self.seen.robbed.insert(format!("{node} of {}", pod.id));
                self.remove(&pod.id);
                continue;
            }
            let Some(object) = self.api.get(&path(name(&pod.id))) else { continue };
            let until = object["metadata"]["annotations"]["until"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
            if until.is_some_and(|until| Timestamp::now() >= until) {
                self.remove(&pod.id);
            }
        }
    }

    fn remove(&self, id: &str) {
        self.api.remove(&path(name(id)));
    }

    /// Binds each waiting pod to a node that nobody uses and nobody is about to end.
    fn schedule(&mut self, nodes: &[Arc<NodeView>], pods: &[Arc<PodView>]) {
        let mut used: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.node.as_deref()).collect();
        for pod in pods.iter().filter(|pod| pod.node.is_none()) {
            let fits = |node: &&Arc<NodeView>| {
                let tolerated =
                    node.taints.iter().all(|taint| pod.tolerations.iter().any(|toleration| toleration.bears(taint)));
                let selected = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
                node.ready() && !node.unschedulable && tolerated && selected && !used.contains(node.name.as_str())
            };
            let Some(node) = nodes.iter().find(fits) else { continue };
            used.insert(&node.name);
            self.seen.pods += 1;
            self.api.edit(&path(name(&pod.id)), |object| bind(object, &node.name));
        }
    }
}

fn bind(pod: &mut Value, node: &str) {
    let runs = pod["metadata"]["annotations"]["runs"].as_str().and_then(|text| text.parse().ok()).unwrap_or(RUNS.start);
    let until = Timestamp::now().saturating_add(SignedDuration::from_secs(runs)).unwrap_or(Timestamp::MAX);
    pod["metadata"]["annotations"]["until"] = json!(until);
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({ "phase": "Running", "conditions": [{ "type": "PodScheduled", "status": "True" }] });
}

fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}
