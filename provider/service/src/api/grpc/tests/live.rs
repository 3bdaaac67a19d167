//! Over loopback gRPC, with a whole engine behind the door and a supplier that does as it is told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{LaunchKey, ProviderId};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts};
use stoker_core::facts::supply::{Instance, InstanceState, LaunchOutcome, LaunchRequest, Observation, Refusal, RefusalKind};
use stoker_core::plan::JournalFault;
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_proto::externalgrpc::instance_status::InstanceState as WireState;
use stoker_proto::externalgrpc::{
    Instance as WireInstance, InstanceErrorInfo, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest,
    NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest,
    NodeGroupsRequest, RefreshRequest,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::super::server::serve_provider;
use super::*;
use crate::act::{Executor, Permit};
use crate::clock::{Clock, VirtualClock};
use crate::engine::{Engine, Parts};
use crate::feeds::{ClusterFeed, Feeds, Inputs, MarketFeed};
use crate::kube::act::KubeAct;
use crate::listener::{Listener, Security};
use crate::publish::observer::Observer;
use crate::publish::telemetry::Metrics;
use crate::suppliers::{Launch, LimitedSupplier, Supplier, SupplierError};
use stoker_journal::Journal;
use stoker_journal::state_lock::StateLock;

/// Makes every machine at once, or none.
struct Told {
    name: SupplierName,
    sold_out: AtomicBool,
    /// Whoever holds this to write keeps launches from being answered.
    answering: tokio::sync::RwLock<()>,
    machines: Mutex<BTreeMap<ProviderId, Arc<Instance>>>,
}

impl Told {
    fn machines(&self) -> std::sync::MutexGuard<'_, BTreeMap<ProviderId, Arc<Instance>>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, now: Timestamp, request: LaunchRequest) -> LaunchOutcome {
        if self.sold_out.load(Ordering::Relaxed) {
            return LaunchOutcome::Refused(Refusal::of_market(RefusalKind::OutOfCapacity, "none left"));
        }
        let id = ProviderId::new(format!("told:///{}", request.key)).unwrap();
        let node_name = NodeName::new(format!("n-{}", self.machines().len())).unwrap();
        let made = Instance {
            key: request.key,
            provider_id: id.clone(),
            node_name,
            market: request.market,
            launched_at: now,
            state: InstanceState::Running,
        };
        self.machines().insert(id, Arc::new(made.clone()));
        LaunchOutcome::Launched(made)
    }
}

impl Supplier for Told {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        4
    }

    fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let _answering = self.answering.read().await;
            let made = |Launch { request, .. }| (request.key.clone(), self.make(now, request));
            batch.into_iter().map(made).collect()
        }
        .boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        let instances = self.machines().clone();
        std::future::ready(Ok(Observation::complete(now, instances))).boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.machines().retain(|id, _| !ids.contains(id));
        std::future::ready(ids.into_iter().map(|id| (id, Ok(()))).collect()).boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
        std::future::ready(Ok(facts)).boxed()
    }
}

/// A running engine, its door, and the hands that move both.
struct Live {
    supplier: Arc<Told>,
    clock: Arc<VirtualClock>,
    engine: EngineHandle,
    client: CloudProviderClient<Channel>,
    addr: std::net::SocketAddr,
    stop: CancellationToken,
    observer: Arc<Observer>,
    registry: Registry,
    dir: tempfile::TempDir,
    _policy: watch::Sender<Arc<Policy>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Live {
    async fn start() -> Self {
        Self::start_in(None).await
    }

    /// Started with the nodes of a cluster, and what changes them.
    async fn start_in(cluster: Option<(ClusterFeed, Arc<KubeAct>)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (nodes, act) = cluster.unzip();
        let clock = VirtualClock::new(now());
        let told = Told {
            name: SupplierName::new("told").unwrap(),
            sold_out: AtomicBool::new(false),
            answering: tokio::sync::RwLock::default(),
            machines: Mutex::default(),
        };
        let supplier = Arc::new(told);
        let suppliers = vec![LimitedSupplier::new(Arc::<Told>::clone(&supplier))];
        let (journal, restored) = Journal::open(&state).await.unwrap();
        let (sender, policy) = watch::channel(Arc::new(policy()));
        let (markets, wake) = (MarketFeed::new(&suppliers), Arc::new(Notify::new()));
        markets.refresh(Times::at(now())).await;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let observer = Arc::new(Observer::new(metrics.clone(), None));
        let engine = Engine::new(Parts {
            clock: Clock::Virtual(Arc::clone(&clock)),
            journal,
            restored,
            away: SignedDuration::ZERO,
            permit: Permit::new(StateLock::take(&state).unwrap(), None),
            inputs: Inputs::new(policy, Arc::new(book()), markets.facts()),
            markets,
            feeds: Feeds::new(&suppliers, nodes),
            executor: Executor::new(Clock::Virtual(Arc::clone(&clock)), &suppliers, act, Arc::clone(&wake)),
            wake,
            retention: SignedDuration::from_hours(24),
            listener: Arc::clone(&observer) as Arc<dyn crate::publish::Listener>,
        });
        let (handle, stop) = (engine.handle(), CancellationToken::new());
        tokio::spawn(engine.run(stop.clone()));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Security::Plaintext).await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_provider(listener, handle.clone(), None, Arc::from([]), metrics, stop.clone()));
        let client = connect(addr);
        Self { supplier, clock, engine: handle, client, addr, stop, observer, registry, dir, _policy: sender }
    }

    /// Started, settled and refreshed.
    async fn ready() -> Self {
        let mut live = Self::start().await;
        live.engine.settle().await;
        live.client.refresh(RefreshRequest {}).await.unwrap();
        live
    }

    async fn settle(&self, later: SignedDuration) {
        self.clock.advance_to(crate::clock::Clock::Virtual(Arc::clone(&self.clock)).now() + later);
        self.engine.settle().await;
    }

    /// A series of the metrics.
    fn metric(&self, series: &str) -> Option<f64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    async fn increase(&mut self, id: &str, delta: i32) -> Result<(), Status> {
        self.client.node_group_increase_size(NodeGroupIncreaseSizeRequest { id: id.to_owned(), delta }).await.map(drop)
    }

    async fn decrease(&mut self, id: &str, delta: i32) -> Result<(), Status> {
        self.client
            .node_group_decrease_target_size(NodeGroupDecreaseTargetSizeRequest { id: id.to_owned(), delta })
            .await
            .map(drop)
    }

    async fn delete(&mut self, id: &str, ids: &[&str]) -> Result<(), Status> {
        let nodes = ids.iter().map(|id| node(id, id)).collect();
        self.client.node_group_delete_nodes(NodeGroupDeleteNodesRequest { id: id.to_owned(), nodes }).await.map(drop)
    }

    async fn target(&mut self, id: &str) -> i32 {
        self.client
            .node_group_target_size(NodeGroupTargetSizeRequest { id: id.to_owned() })
            .await
            .unwrap()
            .into_inner()
            .target_size
    }

    async fn instances(&mut self, id: &str) -> Vec<(String, WireState, Option<InstanceErrorInfo>)> {
        let reply = self.client.node_group_nodes(NodeGroupNodesRequest { id: id.to_owned() }).await.unwrap().into_inner();
        let told = |instance: WireInstance| {
            let status = instance.status.unwrap();
            (instance.id, status.instance_state(), status.error_info)
        };
        reply.instances.into_iter().map(told).collect()
    }

    async fn owner(&mut self, id: &str) -> String {
        let request = NodeGroupForNodeRequest { node: Some(node(id, id)) };
        self.client.node_group_for_node(request).await.unwrap().into_inner().node_group.unwrap_or_default().id
    }
}

fn connect(addr: std::net::SocketAddr) -> CloudProviderClient<Channel> {
    CloudProviderClient::new(Endpoint::from_shared(format!("http://{addr}")).unwrap().connect_lazy())
}

fn code(answer: Result<(), Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

#[tokio::test]
async fn nothing_is_shown_before_the_view_is_whole() {
    let mut live = Live::start().await;
    assert_eq!(live.client.refresh(RefreshRequest {}).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(code(live.increase(ONE_A, 1).await), Code::Unavailable);
    live.engine.settle().await;
    live.client.refresh(RefreshRequest {}).await.unwrap();
    let groups = live.client.node_groups(NodeGroupsRequest {}).await.unwrap().into_inner().node_groups;
    let seen: Vec<_> = groups.iter().map(|group| (group.id.as_str(), group.min_size, group.max_size)).collect();
    assert_eq!(seen, [(ONE_A, 0, 10), (ONE_B, 0, 10), (TWO_A, 0, 10)]);
}

#[tokio::test]
async fn an_order_is_visible_at_once_supplied_later_and_taken_back_only_once() {
    let mut live = Live::ready().await;
    let supplier = Arc::clone(&live.supplier);
    let unanswered = supplier.answering.write().await;
    live.increase(ONE_A, 2).await.unwrap();
    assert_eq!(live.target(ONE_A).await, 2);
    let placeholders = live.instances(ONE_A).await;
    assert!(placeholders.iter().all(|(id, state, error)| id.starts_with("stoker://test/")
        && *state == WireState::InstanceCreating
        && error.is_none()));
    assert_eq!(live.owner(&placeholders[0].0).await, ONE_A);

    drop(unanswered);
    live.settle(SignedDuration::from_secs(5)).await;
    let machines = live.instances(ONE_A).await;
    assert!(machines.iter().all(|(id, ..)| id.starts_with("told:///test/")), "{machines:?}");
    for (id, ..) in machines.iter().chain(&placeholders) {
        assert_eq!(live.owner(id).await, ONE_A);
    }
    // The same two nodes, cancelled by each of the autoscaler's ways: only the deletion takes one, and only once.
    live.decrease(ONE_A, -2).await.unwrap();
    assert_eq!(live.target(ONE_A).await, 2);
    for _ in 0..2 {
        live.delete(ONE_A, &[&machines[0].0]).await.unwrap();
        assert_eq!(live.target(ONE_A).await, 1);
    }
    live.delete(ONE_A, &["told:///never", "gone"]).await.unwrap();
    assert_eq!(live.target(ONE_A).await, 1);
    // Gone from the list once an inventory well after its end lacks it.
    live.settle(SignedDuration::from_mins(2)).await;
    assert_eq!((live.instances(ONE_A).await.len(), live.supplier.machines().len()), (1, 1));
}

#[tokio::test]
async fn what_cannot_be_had_fails_as_placeholders_until_it_is_deleted() {
    let mut live = Live::ready().await;
    live.supplier.sold_out.store(true, Ordering::Relaxed);
    live.increase(TWO_A, 2).await.unwrap();
    live.settle(SignedDuration::from_secs(5)).await;
    assert_eq!(live.target(TWO_A).await, 2);
    let failed = live.instances(TWO_A).await;
    for (id, state, error) in &failed {
        let error = error.as_ref().unwrap();
        assert_eq!(
            (*state, error.error_code.as_str(), error.instance_error_class),
            (WireState::InstanceCreating, "OUT_OF_CAPACITY", 1)
        );
        assert!(id.starts_with("stoker://"), "{id}");
    }
    let ids: Vec<&str> = failed.iter().map(|(id, ..)| id.as_str()).collect();
    live.delete(TWO_A, &ids).await.unwrap();
    assert_eq!((live.target(TWO_A).await, live.instances(TWO_A).await.len()), (0, 0));
    live.delete(TWO_A, &ids).await.unwrap();
    live.decrease(TWO_A, -2).await.unwrap();
    assert_eq!(live.target(TWO_A).await, 0);
    assert_eq!(code(live.increase(TWO_A, 1).await), Code::FailedPrecondition, "its market is left alone for a while");
}

#[tokio::test]
async fn an_order_that_is_refused_changes_nothing() {
    let mut live = Live::ready().await;
    for (id, delta, expected) in [
        (ONE_A, 0, Code::InvalidArgument),
        (ONE_A, -1, Code::InvalidArgument),
        (ONE_A, i32::MIN, Code::InvalidArgument),
        (ONE_A, 11, Code::ResourceExhausted),
        (ONE_A, i32::MAX, Code::ResourceExhausted),
        ("never", 1, Code::NotFound),
    ] {
        let refused = live.increase(id, delta).await.unwrap_err();
        assert_eq!(refused.code(), expected, "{refused:?}");
        assert!(refused.message().starts_with("NodeGroupIncreaseSize: "), "{refused:?}");
    }
    for delta in [0, 1, i32::MAX] {
        assert_eq!(code(live.decrease(ONE_A, delta).await), Code::InvalidArgument);
    }
    live.decrease(ONE_A, i32::MIN).await.unwrap();
    live.increase(ONE_A, 1).await.unwrap();
    let mine = live.instances(ONE_A).await.remove(0).0;
    // All or none: the first is ours to delete, the second is another group's.
    live.increase(ONE_B, 1).await.unwrap();
    let other = live.instances(ONE_B).await.remove(0).0;
    let refused = live.delete(ONE_A, &[&mine, &other]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains(ONE_B), "{refused:?}");
    assert_eq!((live.target(ONE_A).await, live.target(ONE_B).await), (1, 1));
}

#[tokio::test]
async fn orders_made_at_once_are_all_counted_and_never_beyond_the_limit() {
    let live = Live::ready().await;
    let orders = (0..16).map(|n| {
        let mut client = live.client.clone();
        let request = NodeGroupIncreaseSizeRequest { id: [ONE_A, ONE_B][n % 2].to_owned(), delta: 1 };
        async move { code(client.node_group_increase_size(request).await.map(drop)) }
    });
    let answers = futures::future::join_all(orders).await;
    let taken = answers.iter().filter(|code| **code == Code::Ok).count();
    // The pool has room for ten.
    assert_eq!(taken, 10, "{answers:?}");
    let mut live = live;
    assert_eq!(live.target(ONE_A).await + live.target(ONE_B).await, 10);
    live.settle(SignedDuration::from_secs(5)).await;
    assert_eq!(live.supplier.machines().len(), 10);
}

#[tokio::test]
async fn another_connection_that_refreshes_is_another_session() {
    let mut live = Live::ready().await;
    let session = live.engine.view().memory.session;
    assert!(session.is_some());
    live.client.refresh(RefreshRequest {}).await.unwrap();
    assert_eq!(live.engine.view().memory.session, session);
    // Reads over another connection are no restart; a Refresh is.
    let mut other = connect(live.addr);
    other.node_groups(NodeGroupsRequest {}).await.unwrap();
    assert_eq!(live.engine.view().memory.session, session);
    other.refresh(RefreshRequest {}).await.unwrap();
    assert!(live.engine.view().memory.session > session);
}

/// The journal's file while it is not where it was: as on a full disk, nothing can be written.
struct Unwritable<'a> {
    live: &'a Live,
}

impl<'a> Unwritable<'a> {
    fn begin(live: &'a Live) -> Self {
        std::fs::rename(live.dir.path().join("state"), live.dir.path().join("aside")).unwrap();
        Self { live }
    }
}

impl Drop for Unwritable<'_> {
    fn drop(&mut self) {
        std::fs::rename(self.live.dir.path().join("aside"), self.live.dir.path().join("state")).unwrap();
    }
}

#[tokio::test]
async fn orders_are_refused_by_the_true_reason_and_taken_again_once_the_journal_can_be_written() {
    let mut live = Live::ready().await;
    live.increase(ONE_A, 1).await.unwrap();
    std::fs::rename(live.dir.path().join("state"), live.dir.path().join("aside")).unwrap();
    for _ in 0..2 {
        let refused = live.increase(ONE_A, 1).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        let says = |word: &str| refused.message().contains(word);
        assert!(says("the journal cannot be written") && says("was removed or replaced"), "{refused:?}");
        assert!(!says("promise") && !says("paused"), "{refused:?}");
    }
    // From the first refused order on, without any pass that had something else to decide.
    assert!(matches!(live.engine.view().ready, Err(NotReady::Journal(_))));
    assert!(live.observer.journal_faults().contains_key(&JournalFault::Unwritable));
    assert_eq!(live.client.refresh(RefreshRequest {}).await.unwrap_err().code(), Code::Unavailable);
    std::fs::rename(live.dir.path().join("aside"), live.dir.path().join("state")).unwrap();
    live.settle(SignedDuration::from_secs(10)).await;
    assert_eq!((live.engine.view().ready.clone(), live.observer.journal_faults().len()), (Ok(()), 0));
    live.increase(ONE_A, 1).await.unwrap();
    assert_eq!(live.target(ONE_A).await, 2, "what was refused was not counted");
}

#[tokio::test]
async fn a_state_directory_that_is_removed_is_noticed_without_any_order() {
    let live = Live::ready().await;
    std::fs::remove_dir_all(live.dir.path().join("state")).unwrap();
    live.settle(SignedDuration::from_secs(10)).await;
    let faults = live.observer.journal_faults();
    assert!(faults[&JournalFault::Unwritable].contains("was removed or replaced while the service runs"), "{faults:?}");
    assert!(live.engine.view().ready.is_err());
}

/// The paths that somebody asks the API server for.
type Asked = Arc<Mutex<Vec<String>>>;

/// A cluster of one node, told of by hand, and the names of the Nodes that somebody asks the API
/// server for.
fn one_node() -> (watch::Sender<Option<Arc<ClusterFacts>>>, ClusterFeed, Arc<KubeAct>, Asked) {
    let (nodes, facts) = watch::channel(Some(Arc::default()));
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let client = stoker_fake_apiserver::client(move |call| {
        seen.lock().unwrap().push(call.path);
        async { stoker_fake_apiserver::failure(http::StatusCode::NOT_FOUND, "NotFound") }
    });
    (nodes, ClusterFeed { facts, healthy: Box::new(|| true) }, Arc::new(KubeAct::new(&client, "default")), asked)
}

/// That cluster once the machine's node has joined, with these GPU pods on it.
fn with_node(machine: &str, pods: &[&str]) -> Arc<ClusterFacts> {
    let name = NodeName::new("n-0").unwrap();
    let node = NodeFacts {
        name: name.clone(),
        provider_id: Some(ProviderId::new(machine).unwrap()),
        group: None,
        created_at: now(),
        ready_since: Some(now()),
        gpu_pods: pods.iter().map(ToString::to_string).collect(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    Arc::new(ClusterFacts { nodes: [(name, Arc::new(node))].into() })
}

#[tokio::test]
async fn a_node_at_work_is_held_while_nothing_can_be_written_and_the_next_decision_says_so() {
    let (nodes, feed, act, asked) = one_node();
    let mut live = Live::start_in(Some((feed, act))).await;
    live.engine.settle().await;
    live.client.refresh(RefreshRequest {}).await.unwrap();
    live.increase(ONE_A, 1).await.unwrap();
    live.settle(SignedDuration::from_secs(5)).await;
    let machine = live.instances(ONE_A).await.remove(0).0;
    let facts = |pods: &[&str]| Some(with_node(&machine, pods));
    nodes.send_replace(facts(&[]));
    live.settle(SignedDuration::from_secs(60)).await;
    asked.lock().unwrap().clear();

    let unwritable = Unwritable::begin(&live);
    nodes.send_replace(facts(&["ml/train"]));
    live.settle(SignedDuration::from_secs(60)).await;
    assert!(asked.lock().unwrap().iter().any(|path| path.ends_with("/nodes/n-0")), "{asked:?}");
    assert!(live.engine.view().ready.is_err());
    drop(unwritable);
    live.settle(SignedDuration::from_secs(60)).await;
    let reader = Journal::open_read_only(&live.dir.path().join("state")).await.unwrap();
    let told: Vec<String> =
        reader.decisions_of_node("n-0").await.unwrap().iter().flat_map(|d| &d.notes).map(ToString::to_string).collect();
    assert!(told.iter().any(|note| note.contains("held meanwhile: n-0")), "{told:?}");
}

#[tokio::test]
async fn the_time_from_order_to_ready_and_reclaims_are_counted() {
    let (nodes, feed, act, _) = one_node();
    let mut live = Live::start_in(Some((feed, act))).await;
    live.engine.settle().await;
    live.client.refresh(RefreshRequest {}).await.unwrap();
    let pool = ONE_A.split('.').next().unwrap();
    let reclaimed = |live: &Live| {
        let of = |source: &str| live.metric(&format!("stoker_reclaims_total{{pool=\"{pool}\",source=\"{source}\"}}"));
        ["supplier", "probe", "nobody"].map(of)
    };
    let supplied = format!("stoker_node_supply_duration_seconds_count{{pool=\"{pool}\"}}");
    assert_eq!(reclaimed(&live), [Some(0.0); 3], "there from the start");
    live.increase(ONE_A, 1).await.unwrap();
    live.settle(SignedDuration::from_secs(5)).await;
    let machine = live.instances(ONE_A).await.remove(0).0;
    assert_eq!(live.metric(&supplied), None, "it has not joined");
    nodes.send_replace(Some(with_node(&machine, &["ml/train"])));
    live.settle(SignedDuration::from_secs(60)).await;
    assert_eq!(live.metric(&supplied), Some(1.0));
    let at = now() + SignedDuration::from_mins(5);
    for made in live.supplier.machines().values_mut() {
        *made = Arc::new(Instance { state: InstanceState::Reclaiming { at }, ..Instance::clone(made) });
    }
    for _ in 0..3 {
        live.settle(SignedDuration::from_secs(5)).await;
    }
    let once = [Some(1.0), Some(0.0), Some(0.0)];
    assert_eq!(reclaimed(&live), once, "once, however many passes see it");
    live.supplier.machines().clear();
    nodes.send_replace(Some(Arc::default()));
    live.settle(SignedDuration::from_secs(5)).await;
    assert_eq!(reclaimed(&live), once, "nor again when it is gone");
}
