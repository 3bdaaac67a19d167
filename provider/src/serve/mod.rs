//! Puts the parts together: opens the state, starts the feeds, the engine and the doors, and stops them in order.

mod error;
mod nodes;
mod options;
mod probes;
mod prometheus;
mod running;
mod side;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::SignedDuration;
use prometheus_client::registry::Registry;
use stoker_core::ids::ClusterName;
use stoker_core::memory::Memory;
use stoker_core::supply::KeyParts;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use error::ServeError;
pub use options::{Door, KubeOptions, Options, PolicySource, ProbeDoorOptions};
pub use running::Running;

use crate::clock::Clock;
use crate::confirm::Confirm;
use crate::engine::{ClusterFeed, Engine, Executor, Feeds, Inputs, MarketFeed, Parts, ask};
use crate::journal::Journal;
use crate::kube::act::KubeAct;
use crate::kube::feed::KubeFeed;
use crate::needs::{Given, warn_of_unmet};
use crate::net::{Listener, Security, Tls, TlsFaults, TlsFiles, check_plaintext};
use crate::observer::Observer;
use crate::permit::Permit;
use crate::policy_watch::{PolicyWatch, warn_of_unmatched};
use crate::probes::{ProbeMetrics, Readings, Streams};
use crate::rollup::{Followed, SharedRollup};
use crate::supplier::Supplier;
use crate::supplier::simulated::Simulated;
use crate::telemetry::{Certificate, Metrics};
use running::Tasks;

/// How often a supplier is asked what it has.
const INVENTORY_EVERY: SignedDuration = SignedDuration::from_secs(2);

/// Where Events about groups go; those about nodes go where Kubernetes keeps them.
const EVENTS_NAMESPACE: &str = "default";

/// Events waiting to be sent: a bad minute's worth. Beyond it they are dropped; logs and the journal have them all.
const EVENTS: usize = 64;

/// The cluster that remembered nodes belong to, where it is not this one.
fn other_cluster(memory: &Memory, cluster: &ClusterName) -> Option<String> {
    memory.records.values().find_map(|record| {
        let key: KeyParts = record.purchase()?.key.as_str().parse().ok()?;
        (key.cluster != *cluster).then(|| key.cluster.to_string())
    })
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
    let buffers_served = watch::Sender::new(None);
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
