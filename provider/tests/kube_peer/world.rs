//! A test's own corner of the server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::base::ids::{ClusterName, NodeName, ProviderId};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::{CLUSTER_LABEL, GROUP_LABEL, NodeTemplate, Resources};
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_core::facts::supply::{Instance, InstanceState};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;
use stoker_service::kube::client::connect;
use stoker_service::kube::feed::KubeFeed;
use stoker_service::kube::template::node_object;
use stoker_simulated::registrar::{RegisteredNode, Registrar};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than any wait here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) cluster: ClusterName,
    pub(crate) nodes: Api<Node>,
    pub(crate) pods: Api<Pod>,
}

pub(crate) async fn peer(test: &str) -> Option<Peer> {
    let Ok(path) = std::env::var("STOKER_E2E_KUBECONFIG") else {
        println!("skipped: STOKER_E2E_KUBECONFIG not set");
        return None;
    };
    let client = connect(Some(Path::new(&path))).await.unwrap();
    let cluster = ClusterName::new(format!("{test}-{:x}", Timestamp::now().as_nanosecond())).unwrap();
    Some(Peer { nodes: Api::all(client.clone()), pods: Api::namespaced(client.clone(), "default"), client, cluster })
}

impl Peer {
    pub(crate) fn name(&self, name: &str) -> NodeName {
        NodeName::new(format!("{}-{name}", self.cluster)).unwrap()
    }

    pub(crate) fn machine(&self, name: &str) -> ProviderId {
        ProviderId::new(format!("sim://{}/{name}", self.cluster)).unwrap()
    }

    pub(crate) fn template(&self) -> NodeTemplate {
        let resources = Resources { milli_cpu: 3_920, memory: MiB(13_590), ephemeral: MiB::from_gib(90), pods: 110, gpus: 1 };
        let labels = [
            (CLUSTER_LABEL, self.cluster.as_str()),
            (GROUP_LABEL, "inference.g6-xlarge.us-east-1a"),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ];
        let taint = Taint { key: GPU_RESOURCE.into(), value: "true".into(), effect: TaintEffect::NoSchedule };
        NodeTemplate {
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            taints: vec![taint],
            capacity: resources,
            allocatable: resources,
            slices: Slices::default(),
        }
    }

    pub(crate) fn wanted(&self, name: &str, ready: bool) -> RegisteredNode {
        let id = |text: &str| text.to_owned();
        let place = Place {
            cloud: id("aws").try_into().unwrap(),
            region: id("us-east-1").try_into().unwrap(),
            zone: id("use1-az6").try_into().unwrap(),
            instance_type: id("g6.xlarge").try_into().unwrap(),
        };
        let instance = Instance {
            key: format!("{}/g/1/1", self.cluster).try_into().unwrap(),
            provider_id: self.machine(name),
            node_name: self.name(name),
            market: Market { place, capacity_type: CapacityType::Spot },
            launched_at: Timestamp::now(),
            state: InstanceState::Running,
        };
        RegisteredNode { instance: Arc::new(instance), template: Arc::new(self.template()), ready }
    }

    pub(crate) async fn create_node(&self, name: &str, annotations: &[(&str, &str)]) -> NodeName {
        let annotations: BTreeMap<_, _> = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let object = node_object(&self.template(), &self.name(name), &self.machine(name), annotations);
        self.nodes.create(&PostParams::default(), &object).await.unwrap();
        self.name(name)
    }

    /// A pod bound to that node, with whatever `change` adds.
    pub(crate) async fn create_pod(&self, name: &str, node: &NodeName, change: impl FnOnce(&mut Value)) -> String {
        let name = format!("{}-{name}", self.cluster);
        let mut pod = json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node.as_str(),
                "containers": [{ "name": "main", "image": "none", "resources": { "limits": { GPU_RESOURCE: "1" } } }],
            },
        });
        change(&mut pod);
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        name
    }

    pub(crate) async fn annotations(&self, node: &NodeName) -> BTreeMap<String, String> {
        self.nodes.get(node.as_str()).await.unwrap().annotations().clone()
    }

    pub(crate) fn feed(&self) -> (KubeFeed, JoinHandle<()>) {
        let (feed, task) = KubeFeed::start(&self.client, &self.cluster, Arc::new(Notify::new()));
        (feed, tokio::spawn(task))
    }

    pub(crate) fn registrar(&self) -> (watch::Sender<Option<Vec<RegisteredNode>>>, JoinHandle<()>) {
        let (wanted, receiver) = watch::channel(None);
        (wanted, tokio::spawn(Registrar::new(&self.client, self.cluster.clone()).run(receiver)))
    }

    pub(crate) async fn our_nodes(&self) -> Vec<Node> {
        let ours = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", self.cluster));
        self.nodes.list(&ours).await.unwrap().items
    }

    /// Removes what this test made.
    pub(crate) async fn clean(&self) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for pod in self.pods.list(&ListParams::default()).await.unwrap() {
            if pod.name_any().starts_with(self.cluster.as_str()) {
                let _ = self.pods.delete(&pod.name_any(), &now).await;
            }
        }
        for node in self.our_nodes().await {
            let _ = self.nodes.delete(&node.name_any(), &now).await;
        }
    }
}

pub(crate) async fn until(feed: &KubeFeed, what: &str, holds: impl Fn(&ClusterFacts) -> bool) -> Arc<ClusterFacts> {
    let mut facts = feed.facts();
    let found = timeout(LONG, facts.wait_for(|facts| facts.as_ref().is_some_and(|facts| holds(facts)))).await;
    let Ok(found) = found else { panic!("waited for {what}; the facts are {:?}", feed.latest()) };
    found.unwrap().clone().unwrap()
}

/// Polls until `holds` gives something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, holds: impl Fn() -> F) -> T {
    let poll = async {
        loop {
            if let Some(found) = holds().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, poll).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

/// Runs `work` on each of `0..count`, some at a time.
pub(crate) async fn each<F: Future>(count: usize, work: impl Fn(usize) -> F) {
    stream::iter(0..count).map(work).buffer_unordered(16).for_each(|_| std::future::ready(())).await;
}
