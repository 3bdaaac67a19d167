//! Puts the parts together: opens the state, starts the feeds, the engine and the doors, and stops them in order.

mod nodes;
mod options;
mod probes;
mod prometheus;
mod side;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use stoker_core::ids::ClusterName;
use stoker_core::memory::Memory;
use stoker_core::supply::KeyParts;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use options::{Door, KubeOptions, Options, PolicySource, ProbeDoorOptions};

use crate::clock::Clock;
use crate::confirm::Confirm;
use crate::engine::{ClusterFeed, Engine, EngineHandle, Executor, Feeds, Inputs, MarketFeed, Parts, ask};
use crate::journal::{Journal, JournalError, Reader};
use crate::kube::act::KubeAct;
use crate::kube::feed::KubeFeed;
use crate::needs::{Given, warn_of_unmet};
use crate::net::{Listener, Security, Tls, TlsFaults, TlsFiles, check_plaintext};
use crate::observer::Observer;
use crate::permit::{Permit, PermitError};
use crate::policy_watch::{PolicyError, PolicyWatch, warn_of_unmatched};
use crate::probes::{ProbeMetrics, Readings, Streams};
use crate::rollup::{Followed, SharedRollup};
use crate::supplier::Supplier;
use crate::supplier::simulated::{Simulated, WorldError};
use crate::telemetry::{Certificate, Metrics};

/// How often a supplier is asked what it has.
const INVENTORY_EVERY: SignedDuration = SignedDuration::from_secs(2);

/// Where Events about groups go; those about nodes go where Kubernetes keeps them.
const EVENTS_NAMESPACE: &str = "default";

/// Events waiting to be sent: a bad minute's worth. Beyond it they are dropped; logs and the journal have them all.
const EVENTS: usize = 64;

/// How long stopping may take: less than the 30 s that Kubernetes gives a pod.
const STOP_WITHIN: Duration = Duration::from_secs(25);

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The state directory is in use, or cannot be made.
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The policy does not hold.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The simulated world cannot be opened.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Certificates do not hold.
    #[error(transparent)]
    Tls(#[from] TlsFaults),
    /// Plaintext would be served where it can be overheard.
    #[error(transparent)]
    Plaintext(#[from] crate::net::PlaintextRefused),
    /// The same where probes are listened for.
    #[error(
        "--probe-listen {0}: plaintext is served on loopback addresses only, since whoever reaches this port may speak for any node: \
         give --probe-cert, --probe-key and --probe-client-ca (`stoker certs --client-name probe:<node>` makes a set), listen on \
         127.0.0.1, or accept the risk with --allow-plaintext"
    )]
    ProbePlaintext(SocketAddr),
    /// Probes would be believed whatever node they name.
    #[error(
        "nothing tells which node a probe is on: give --probe-client-ca (certificates), or watch a cluster, whose API server reviews \
         ServiceAccount tokens"
    )]
    UnprovenProbes,
    /// Prometheus cannot be asked.
    #[error(transparent)]
    Prometheus(#[from] crate::prometheus::NoAsker),
    /// An address cannot be listened on.
    #[error("{addr}: cannot listen for {door}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What for.
        door: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The state is another cluster's.
    #[error(
        "{}: the nodes kept here are of the cluster {other}, and the policy's clusterName is {cluster}: they would run on, unknown to \
         anybody. Give clusterName back its value, or start with a state directory of its own (--state-dir)", .state_dir.display()
    )]
    OtherCluster {
        /// The state directory.
        state_dir: std::path::PathBuf,
        /// The cluster of its nodes.
        other: String,
        /// The policy's.
        cluster: ClusterName,
    },
    /// The cluster cannot be talked to.
    #[error(transparent)]
    Kubernetes(#[from] crate::kube::client::ClientError),
    /// It runs inside a real cluster, and the supplier is simulated.
    #[error(
        "this runs inside a Kubernetes cluster and the supplier is simulated: the nodes that it announces never exist. \
         Give --simulated-in-cluster if that is what you want (a rehearsal), or run it outside"
    )]
    SimulatedInCluster,
}

/// A running service.
pub struct Running {
    /// The way to its engine.
    pub handle: EngineHandle,
    /// Where the autoscaler's provider listens.
    pub provider: SocketAddr,
    /// Where the expander listens.
    pub expander: SocketAddr,
    /// Where the nodes' probes are listened for, if they are.
    pub probes: Option<SocketAddr>,
    /// Where the side port listens.
    pub http: SocketAddr,
    /// What is read of nodes.
    pub readings: Arc<Readings>,
    /// The probes that speak.
    pub streams: Arc<Streams>,
    /// The simulated supplier.
    pub simulated: Arc<Simulated>,
    /// The journal, closed when all that writes it has ended.
    journal: Reader,
    /// What takes calls in.
    doors: Tasks,
    /// All else.
    inner: Tasks,
}

/// Tasks that end together.
#[derive(Default)]
struct Tasks {
    stop: CancellationToken,
    set: JoinSet<&'static str>,
}

impl Tasks {
    async fn stop(&mut self) {
        self.stop.cancel();
        while self.set.join_next().await.is_some() {}
    }
}

impl Running {
    /// Waits until `until` is over or a part ends unasked, and then stops everything in order. Whether all parts ran to the end.
    pub async fn run_until(mut self, until: impl Future<Output = ()>) -> bool {
        let sound = tokio::select! {
            () = until => true,
            Some(ended) = self.doors.set.join_next() => unasked(ended),
            Some(ended) = self.inner.set.join_next() => unasked(ended),
        };
        self.stop().await;
        sound
    }

    /// Stops everything: first what takes calls in, then the loop, which lets what is under way finish. The state directory is at rest then.
    pub async fn stop(mut self) {
        let in_order = async {
            self.doors.stop().await;
            self.inner.stop().await;
            self.journal.close().await;
        };
        if tokio::time::timeout(STOP_WITHIN, in_order).await.is_err() {
            tracing::warn!(
                "some parts did not stop within {} s; what was under way is taken up at the next start",
                STOP_WITHIN.as_secs()
            );
        }
    }
}

/// The cluster that remembered nodes belong to, where it is not this one.
fn other_cluster(memory: &Memory, cluster: &ClusterName) -> Option<String> {
    memory.records.values().find_map(|record| {
        let key: KeyParts = record.purchase()?.key.as_str().parse().ok()?;
        (key.cluster != *cluster).then(|| key.cluster.to_string())
    })
}

/// Tells of a part that ended by itself. Nothing is sound without it.
fn unasked(ended: Result<&'static str, tokio::task::JoinError>) -> bool {
    match ended {
        Ok(task) => tracing::error!(task, "a part ended unasked; stopping"),
        Err(error) => tracing::error!(%error, "a part failed; stopping"),
    }
    false
}

/// Starts the service.
///
/// # Errors
/// Says what is missing or wrong; then nothing runs and nothing changed.
pub async fn start(options: Options) -> Result<Running, ServeError> {
    crate::net::install_crypto();
    let Options {
        clock,
        book,
        policy: source,
        world,
        state_dir,
        world_file,
        provider,
        expander,
        probes,
        http,
        kube,
        retention,
        prometheus,
    } = options;
    let permit = Arc::new(Permit::take(&state_dir)?);
    let (policy, policy_path) = source.read(&book)?;
    let cluster = policy.cluster.clone();
    let client = match &kube {
        KubeOptions::None => None,
        KubeOptions::Kubeconfig(path) => Some(crate::kube::client::connect(Some(path)).await?),
        KubeOptions::InCluster => Some(crate::kube::client::connect(None).await?),
    };
    let simulated = Arc::new(match &world_file {
        Some(path) => Simulated::durable(cluster.clone(), world, &book, clock.clone(), path)?,
        None => Simulated::in_memory(cluster.clone(), world, &book, clock.clone())?,
    });
    let suppliers: Vec<Arc<dyn Supplier>> = vec![Arc::clone(&simulated) as Arc<dyn Supplier>];
    let (journal, restored) = Journal::open(&state_dir).await?;
    let rollup = SharedRollup::default();
    let journal_reader = journal.reader();
    rollup.restore(&journal_reader, clock.now()).await?;
    let rollup_writer = journal.readings();
    if let Some(other) = other_cluster(&restored.memory, &cluster) {
        return Err(ServeError::OtherCluster { state_dir, other, cluster });
    }

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let probe_metrics = ProbeMetrics::register(&mut registry);
    metrics.policy_taken(clock.now());
    let (mut doors, mut inner) = (Tasks::default(), Tasks::default());
    let (stop, tasks) = (inner.stop.clone(), &mut inner.set);
    let wake = Arc::new(Notify::new());

    let provider_tls = provider.load()?;
    let expander_tls = expander.load()?;
    let provider_listener = listen("the provider", &provider, provider_tls.as_ref(), &metrics).await?;
    let expander_listener = listen("the expander", &expander, expander_tls.as_ref(), &metrics).await?;
    let probe_door = match probes {
        Some(options) => Some(probes::open(options, client.as_ref(), &metrics).await?),
        None => None,
    };
    let side_listener =
        TcpListener::bind(http).await.map_err(|source| ServeError::Listen { addr: http, door: "the side port", source })?;
    let at = |listener: &Listener, asked: SocketAddr| listener.local_addr().unwrap_or(asked);
    let (provider_addr, expander_addr) = (at(&provider_listener, provider.listen), at(&expander_listener, expander.listen));
    let http_addr = side_listener.local_addr().unwrap_or(http);

    let records = restored.memory.records.values();
    let machines = records.clone().filter(|record| record.instance().is_some()).count();
    tracing::info!(records = records.len(), machines, next = %restored.next_decision, "resumed from the journal");

    let mut kube_feed = None;
    let mut kube_act = None;
    if let Some(client) = &client {
        let remembered = restored.memory.images.values().flat_map(|images| images.images()).collect();
        let (feed, follow) = KubeFeed::start_knowing(client, &cluster, remembered, Arc::clone(&wake));
        let stopped = stop.clone();
        tasks.spawn(async move {
            stopped.run_until_cancelled_owned(follow).await;
            "the Kubernetes feed"
        });
        kube_feed = Some(feed);
        kube_act = Some(Arc::new(KubeAct::new(client, EVENTS_NAMESPACE)));
    }
    let streams = Streams::new(probe_metrics.clone());
    let readings = Readings::new(clock.clone(), kube_feed.as_ref().map(KubeFeed::facts), Arc::clone(&wake), probe_metrics);
    let kept = rollup.clone();
    readings.follow(move |taken| {
        if let Some(reading) = taken.reading {
            kept.take(taken.node, taken.at, reading);
        }
    });
    probes::keep(tasks, Arc::clone(&readings), Arc::clone(&streams), stop.clone());
    let events = kube_act.clone().map(|kube| {
        let (sender, events) = mpsc::channel(EVENTS);
        let stopped = stop.clone();
        tasks.spawn(async move {
            stopped.run_until_cancelled_owned(crate::observer::tell(kube, events)).await;
            "the Event recorder"
        });
        sender
    });
    let observer = Arc::new(Observer::new(metrics.clone(), events));
    let markets = MarketFeed::new(&suppliers);
    markets.refresh(clock.now()).await;
    let policy = Arc::new(policy);
    warn_of_unmatched(&policy, &book, &markets.facts().borrow());
    let given = Given { cluster: client.is_some(), probes: probe_door.is_some(), prometheus: prometheus.is_some() };
    warn_of_unmet(&policy, given);
    let (policy_sender, policy_receiver) = watch::channel(policy);
    let prometheus = prometheus::Prometheus::new(prometheus.as_ref(), &policy_receiver, &mut registry, &clock)?;
    let cluster_feed =
        kube_feed.clone().map(|feed: KubeFeed| ClusterFeed { facts: feed.facts(), healthy: Box::new(move || feed.healthy()) });
    let buffers_served = watch::Sender::new(false);
    let mut feeds = Feeds::new(&suppliers, cluster_feed).with_seen(readings.seen()).with_demand(prometheus.demand());
    if let Some(feed) = &kube_feed {
        feeds = feeds.with_images(feed.images(), policy_receiver.clone()).with_buffers(buffers_served.subscribe());
    }
    let pollers = feeds.pollers();
    let market_facts = markets.facts();
    let engine = Engine::new(Parts {
        clock: clock.clone(),
        journal,
        restored,
        permit,
        inputs: Inputs::new(policy_receiver, Arc::clone(&book), markets.facts()),
        markets: Arc::clone(&markets),
        feeds,
        executor: Executor::new(clock.clone(), &suppliers, kube_act.clone(), Arc::clone(&wake)),
        wake: Arc::clone(&wake),
        retention,
        listener: Arc::clone(&observer) as Arc<dyn crate::engine::Listener>,
    });
    let handle = engine.handle();
    let for_people = (prometheus.demand(), prometheus.people());
    let machines = pollers.iter().map(|(_, latest)| latest.subscribe()).collect();
    prometheus.spawn(tasks, kube_feed.clone(), machines, &readings, &stop);

    // A virtual clock is moved by somebody who settles the engine, which asks the suppliers itself.
    if matches!(clock, Clock::System) {
        for (supplier, latest) in pollers {
            let (clock, wake, stop) = (clock.clone(), Arc::clone(&wake), stop.clone());
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    if ask(supplier.as_ref(), &latest, clock.now()).await {
                        wake.notify_one();
                    }
                    pause(&clock, INVENTORY_EVERY, &stop).await;
                }
                "an inventory feed"
            });
        }
        let (clock, wake, stop) = (clock.clone(), Arc::clone(&wake), stop.clone());
        tasks.spawn(async move {
            while !stop.is_cancelled() {
                markets.refresh(clock.now()).await;
                wake.notify_one();
                pause(&clock, crate::engine::MARKETS_EVERY, &stop).await;
            }
            "the market feed"
        });
    }
    if matches!(clock, Clock::System) {
        let engine = handle.clone();
        let followed = Followed {
            clock: clock.clone(),
            view: Box::new(move || Arc::clone(&engine.view())),
            cluster: kube_feed.as_ref().map(KubeFeed::facts),
            pods: kube_feed.as_ref().map(KubeFeed::gpu_pods),
        };
        let keeping = crate::rollup::run(rollup.clone(), rollup_writer, followed, stop.clone());
        tasks.spawn(async move {
            keeping.await;
            "the keeper of readings"
        });
    }
    if let (Some(client), Some(kube)) = (&client, kube_act) {
        if let Some(feed) = &kube_feed {
            let engine = handle.clone();
            let view = move || Arc::clone(&engine.view());
            let guests = crate::kube::guests::run(feed.guests(), view, Arc::clone(&kube), metrics.clone());
            let stopped = stop.clone();
            tasks.spawn(async move {
                stopped.run_until_cancelled_owned(guests).await;
                "the report of pods without GPU"
            });
        }
        let buffers = crate::kube::buffers::run(client.clone(), handle.clone(), cluster.clone(), buffers_served);
        let stopped = stop.clone();
        tasks.spawn(async move {
            Box::pin(stopped.run_until_cancelled_owned(buffers)).await;
            "the keeper of capacity buffers"
        });
        let waiting = crate::kube::waiting::run(client.clone(), handle.clone(), clock.clone(), kube);
        let stopped = stop.clone();
        tasks.spawn(async move {
            Box::pin(stopped.run_until_cancelled_owned(waiting)).await;
            "the care for waiting pods"
        });
        nodes::spawn(tasks, client, cluster, Arc::clone(&simulated), handle.clone(), clock.clone(), stop.clone());
    }
    let policy_fault = policy_path.map(|path| {
        let watch = PolicyWatch::new(path, book, policy_sender.clone(), wake, metrics.clone(), clock.clone(), market_facts);
        let fault = watch.fault();
        let stop = stop.clone();
        tasks.spawn(async move {
            watch.run(stop).await;
            "the policy watch"
        });
        fault
    });
    let mut certificates = BTreeMap::new();
    let probe_tls = probe_door.as_ref().and_then(|door| door.tls.clone());
    for (which, tls) in
        [(Certificate::Provider, provider_tls), (Certificate::Expander, expander_tls), (Certificate::Probes, probe_tls)]
    {
        if let Some(tls) = tls {
            metrics.certificate(which, tls.not_after(), false);
            certificates.insert(which.as_str(), tls.status());
            let (stop, metrics) = (stop.clone(), metrics.clone());
            let mut status = tls.status();
            let watched = Arc::clone(&tls);
            tasks.spawn(async move {
                let follow = async {
                    while status.changed().await.is_ok() {
                        let fault = status.borrow_and_update().is_some();
                        metrics.certificate(which, tls.not_after(), fault);
                    }
                };
                tokio::select! { () = watched.watch(stop.clone()) => {}, () = follow => {} }
                "a certificate watch"
            });
        }
    }
    let state =
        side::state(registry, handle.clone(), Arc::clone(&observer), policy_fault, kube_feed, certificates, for_people, clock);
    let stopped = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = crate::side::serve(side_listener, state, stopped).await {
            tracing::error!(%error, "the side port failed");
        }
        "the side port"
    });
    crate::grpc::server::spawn_provider(
        &mut doors.set,
        provider_listener,
        handle.clone(),
        probe_door.is_some().then(|| Arc::new(Confirm::new(Arc::clone(&readings), Arc::clone(&streams), metrics.clone()))),
        provider.clients.clone(),
        metrics.clone(),
        doors.stop.clone(),
    );
    crate::grpc::server::spawn_expander(&mut doors.set, expander_listener, handle.clone(), metrics, doors.stop.clone());
    let probes = probe_door.as_ref().map(|door| door.addr);
    if let Some(door) = probe_door {
        door.spawn(&mut doors.set, &readings, &streams, doors.stop.clone());
    }
    let stopped = stop.clone();
    tasks.spawn(async move {
        // Kept here so that the engine sees the last policy even where no file is followed.
        let _policy = policy_sender;
        engine.run(stopped).await;
        "the engine"
    });
    Ok(Running {
        handle,
        provider: provider_addr,
        expander: expander_addr,
        probes,
        http: http_addr,
        readings,
        streams,
        simulated,
        journal: journal_reader,
        doors,
        inner,
    })
}

async fn pause(clock: &Clock, wait: SignedDuration, stop: &CancellationToken) {
    let until = clock.now().saturating_add(wait).unwrap_or(jiff::Timestamp::MAX);
    stop.run_until_cancelled(clock.sleep_until(until)).await;
}

async fn listen(name: &'static str, door: &Door, tls: Option<&Arc<Tls>>, metrics: &Metrics) -> Result<Listener, ServeError> {
    let security = if let Some(tls) = tls {
        Security::Tls(Arc::clone(tls))
    } else {
        check_plaintext(door.listen, door.allow_plaintext)?;
        Security::Plaintext
    };
    let listener = Listener::bind(door.listen, security).await.map_err(|source| ServeError::Listen {
        addr: door.listen,
        door: name,
        source,
    })?;
    Ok(listener.count_refused(metrics.handshakes_refused()))
}

impl Door {
    fn load(&self) -> Result<Option<Arc<Tls>>, TlsFaults> {
        self.tls.clone().map(|files: TlsFiles| Tls::load(files)).transpose()
    }
}
