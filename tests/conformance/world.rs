//! What many rows begin with.

use std::sync::Arc;
use stoker_core::base::ids::NodeGroupId;

use jiff::SignedDuration;
use k8s_pb::api::core::v1::{Container, Node, Pod, PodSpec, ResourceRequirements};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use stoker_fake_apiserver::ApiServer;
use stoker_proto::Bytes;
use stoker_proto::externalgrpc::ExternalGrpcNode;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_service::clock::{Clock, VirtualClock};
use stoker_sim::model::{Expander, Generation, Settings};
use stoker_sim::world::WorldConfig;
use stoker_tests::client::{Client, registered, status};
use stoker_tests::harness::{Service, Setup};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};

/// The cheaper group of pool `p`.
pub(crate) const L4: &str = "p.g6-xlarge.us-east-1a";
/// The dearer group of pool `p`, where it has two.
pub(crate) const A10G: &str = "p.g5-xlarge.us-east-1a";

pub(crate) const fn secs(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}

pub(crate) const fn mins(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

/// One pool with one group, [`L4`].
pub(crate) fn one_group() -> Setup {
    Setup::new(policy(&[Pool::new("p")]))
}

/// One pool with two groups, [`L4`] and [`A10G`].
pub(crate) fn two_groups() -> Setup {
    Setup::new(policy(&[Pool { models: "L4, A10G", ..Pool::new("p") }]))
}

/// The world sells no L4 nodes.
pub(crate) fn no_l4(world: &mut WorldConfig) {
    world.markets.push(market::stock(market::of_type("g6.xlarge"), 0));
}

/// The newest autoscaler with its own timers: it asks our expander, loops again at once after it scaled, and keeps no floors.
pub(crate) fn newest() -> Settings {
    let expanders = vec![Expander::Grpc, Expander::LeastWaste];
    Settings { frequent_loops: true, expanders, ..Settings::new(Generation::V1_36) }
}

/// A service and the cluster that it follows, on one clock.
pub(crate) struct InCluster {
    pub(crate) cluster: ApiServer,
    pub(crate) service: Service,
}

impl InCluster {
    pub(crate) async fn start(setup: Setup) -> Self {
        let clock = VirtualClock::new(market::start());
        let at = Clock::Virtual(Arc::clone(&clock));
        let cluster = ApiServer::listen(move || at.now()).await;
        let service = setup.cluster(&cluster.kubeconfig()).start_on(Arc::clone(&clock)).await;
        // The cluster is listed by real watches, in their own time.
        service.eventually("the first refresh", || async { service.client().refresh().await.ok() }).await;
        Self { cluster, service }
    }

    pub(crate) fn client(&self) -> &Client {
        self.service.client()
    }

    /// Orders nodes of a group and waits until they have joined; their names and provider ids.
    pub(crate) async fn grow(&self, group: &str, nodes: usize) -> Vec<(String, String)> {
        self.client().refresh().await.unwrap();
        self.client().increase(group, i32::try_from(nodes).unwrap()).await.unwrap();
        self.service.settle().await;
        self.service.pass(secs(160)).await;
        let joined = || async {
            let instances = self.client().nodes(group).await.unwrap();
            let running = instances.iter().filter(|i| status(i).0 == InstanceState::InstanceRunning).count();
            (running >= nodes).then_some(())
        };
        // The simulated kubelets look around twice a second of the moved clock.
        self.eventually_by_clock("the nodes to join", joined).await;
        let field =
            |node: &serde_json::Value, at: &str| node.pointer(at).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
        let of_group = |node: &&serde_json::Value| {
            node.pointer("/metadata/labels/stoker.dev~1group").and_then(|v| v.as_str()) == Some(group)
        };
        let nodes = self.cluster.nodes();
        nodes.iter().filter(of_group).map(|node| (field(node, "/metadata/name"), field(node, "/spec/providerID"))).collect()
    }

    /// Waits, in real time, until `holds` gives something, and moves the clock by a second before each look.
    pub(crate) async fn eventually_by_clock<T, F: Future<Output = Option<T>>>(&self, what: &str, holds: impl Fn() -> F) -> T {
        let second = || async {
            self.service.at(self.service.now() + secs(1)).await;
            holds().await
        };
        self.service.eventually(what, second).await
    }

    /// Binds a GPU pod to a node and waits until the service knows.
    pub(crate) async fn make_busy(&self, group: &str, node: &str, pod: &str) {
        self.cluster.bind_gpu_pod(pod, node);
        let busy = || async {
            let view = self.service.running().handle.view();
            NodeGroupId::find(&view.groups, group).is_some_and(|seen| seen.limits.busy > 0).then_some(())
        };
        self.service.eventually("the pod to be seen", busy).await;
    }
}

/// Orders nodes of a group and lets them boot.
pub(crate) async fn grow(service: &Service, group: &str, nodes: i32) {
    service.client().refresh().await.unwrap();
    service.client().increase(group, nodes).await.unwrap();
    service.settle().await;
    service.pass(secs(160)).await;
}

/// Orders nodes of a group and lets the supplier answer.
pub(crate) async fn order(service: &Service, group: &str, nodes: i32) {
    service.client().refresh().await.unwrap();
    service.client().increase(group, nodes).await.unwrap();
    service.settle().await;
}

/// The template of a group as the autoscaler decodes it.
pub(crate) async fn template(client: &Client, group: &str) -> Node {
    Node::decode(client.template(group).await.unwrap().node_bytes).unwrap()
}

/// A machine's node as the autoscaler names it in calls.
pub(crate) fn node_of(service: &Service, id: &str) -> ExternalGrpcNode {
    let machine = service.machines().into_iter().find(|machine| machine.provider_id.as_str() == id).unwrap();
    registered(machine.node_name.as_str(), id)
}

/// A pod with one GPU, and with so much in its annotations.
pub(crate) fn pod(name: &str, ballast: usize) -> Bytes {
    let amount = |text: &str| Quantity { string: Some(text.to_owned()) };
    let requests = [("cpu", "500m"), ("memory", "500Mi"), ("nvidia.com/gpu", "1")];
    let requests = requests.into_iter().map(|(key, value)| (key.to_owned(), amount(value))).collect();
    let container =
        Container { resources: Some(ResourceRequirements { requests, ..Default::default() }), ..Default::default() };
    let annotations = [("ballast".to_owned(), "x".repeat(ballast))].into();
    let metadata = ObjectMeta { name: Some(name.to_owned()), annotations, ..Default::default() };
    let spec = PodSpec { containers: vec![container], ..Default::default() };
    Bytes::from(Pod { metadata: Some(metadata), spec: Some(spec), ..Default::default() }.encode_to_vec())
}
