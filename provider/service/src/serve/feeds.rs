//! The second step: starts what a pass reads.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use stoker_core::facts::foreign::Foreign;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::demand::Demand;
use stoker_core::state::memory::Memory;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::prometheus::Prometheus;
use super::state::{Setup, WarmFeed};
use super::{Parts, ServeError, probes};
use crate::clock::Clock;
use crate::feeds::foreign::ForeignFeed;
use crate::feeds::policy_watch::{PolicyWatch, warn_of_unmatched};
use crate::feeds::probes::{ProbeMetrics, Readings, Streams};
use crate::feeds::prometheus::People;
use crate::feeds::{AllMarketFacts, ClusterFeed, Feeds, Inputs, MarketFeed, ask};
use crate::kube::act::KubeAct;
use crate::kube::feed::KubeFeed;
use crate::needs::{Given, warn_of_unmet};
use crate::publish::observer::{self, Observer};
use crate::publish::telemetry::{Feed, Metrics};
use crate::suppliers::{LimitedSupplier, Standings};

/// How often a supplier is asked what it has.
const INVENTORY_EVERY: SignedDuration = SignedDuration::from_secs(2);

/// How often it is looked whether a supplier is to be asked for its markets: one that did not answer
/// is asked again so soon.
const MARKETS_LOOKED_AT_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// How long the start waits for the suppliers' markets. One that takes longer is asked on and on
/// while the service runs, and keeps no listener closed meanwhile.
const MARKETS_AT_START: Duration = Duration::from_secs(5);

/// Where Events about groups go; those about nodes go where Kubernetes keeps them.
const EVENTS_NAMESPACE: &str = "default";

/// Events waiting to be sent: a bad minute's worth. Beyond it they are dropped; logs and the journal have them all.
const EVENTS: usize = 64;

/// The connection to the cluster: what is read of it, and what writes to it.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) feed: KubeFeed,
    pub(super) act: Arc<KubeAct>,
}

/// What the engine reads.
pub(super) struct Sources {
    pub(super) feeds: Feeds,
    pub(super) inputs: Inputs,
    pub(super) markets: Arc<MarketFeed>,
    /// Kept so that the engine sees the last policy even where no file is followed.
    pub(super) policy: watch::Sender<Arc<Policy>>,
}

/// The feeds under way, as later steps use them.
pub(super) struct Started {
    pub(super) cluster: Option<Cluster>,
    pub(super) demand: watch::Receiver<Arc<Demand>>,
    pub(super) people: People,
    pub(super) readings: Arc<Readings>,
    pub(super) streams: Arc<Streams>,
    pub(super) observer: Arc<Observer>,
    /// How suppliers stand.
    pub(super) standings: Standings,
    /// Says whether the API server has `CapacityBuffer` objects.
    pub(super) buffers_served: watch::Sender<Option<bool>>,
    pub(super) policy_fault: Option<watch::Receiver<Option<String>>>,
}

/// Starts the feeds. What they publish wakes the engine.
pub(super) async fn start(
    setup: &mut Setup,
    memory: &Memory,
    suppliers: &[LimitedSupplier],
    probes_listened_for: bool,
    parts: &mut Parts,
) -> Result<(Sources, Started), ServeError> {
    let warm = setup.warm.take();
    let setup = &*setup;
    let clock = &setup.options.clock;
    let probe_metrics = ProbeMetrics::register(&mut parts.registry);
    let cluster = setup.client.as_ref().map(|client| follow_cluster(setup, memory, (client, warm), parts));
    let feed = cluster.as_ref().map(|cluster| &cluster.feed);
    let streams = Streams::new(probe_metrics.clone());
    let readings = Readings::new(clock.clone(), feed.map(KubeFeed::facts), Arc::clone(&parts.wake), probe_metrics);
    let rollup = setup.rollup.clone();
    readings.follow(move |taken| {
        if let Some(reading) = taken.reading {
            rollup.take(taken.node, taken.at, reading);
        }
    });
    probes::keep(&mut parts.inner.set, Arc::clone(&readings), Arc::clone(&streams), parts.inner.stop.clone());
    let events = cluster.as_ref().map(|cluster| {
        let (sender, events) = mpsc::channel(EVENTS);
        parts.inner.run("the Event recorder", observer::tell(Arc::clone(&cluster.act), events));
        sender
    });
    let observer = Arc::new(Observer::new(parts.metrics.clone(), events));
    let markets = MarketFeed::new(suppliers);
    if timeout(MARKETS_AT_START, markets.refresh(clock.times())).await.is_err() {
        tracing::warn!("a supplier has not answered about its markets yet; starting without");
    }
    warn_of_unmatched(&setup.policy, &setup.options.book, &markets.facts().borrow());
    let asks_prometheus = setup.options.prometheus.is_some();
    warn_of_unmet(
        &setup.policy,
        Given { cluster: cluster.is_some(), probes: probes_listened_for, prometheus: asks_prometheus },
    );
    let (policy, followed) = watch::channel(Arc::clone(&setup.policy));
    let prometheus = Prometheus::new(setup.options.prometheus.as_ref(), &followed, &mut parts.registry, clock)?;
    let buffers_served = watch::Sender::new(None);
    let of_cluster = feed.cloned().map(|feed| ClusterFeed { facts: feed.facts(), healthy: Box::new(move || feed.healthy()) });
    let mut feeds = Feeds::new(suppliers, of_cluster).with_seen(readings.seen()).with_demand(prometheus.demand());
    if let Some(feed) = feed {
        feeds = feeds.with_images(feed.images(), followed.clone()).with_buffers(buffers_served.subscribe());
    }
    feeds = feeds.with_foreign(follow_foreign(setup, &followed, markets.facts(), parts), followed.clone());
    let inputs = Inputs::new(followed, Arc::clone(&setup.options.book), markets.facts());
    let policy_fault = follow_policy(setup, &policy, markets.facts(), parts);
    // A virtual clock is moved by somebody who settles the engine, which asks the suppliers itself.
    if !clock.is_moved_by_hand() {
        poll_suppliers(clock, &feeds, &markets, parts);
    }
    follow_ages(&feeds, feed, &prometheus, clock, &parts.metrics);
    let (demand, people) = (prometheus.demand(), prometheus.people());
    let machines = feeds.pollers().iter().map(|(_, latest)| latest.subscribe()).collect();
    let listings = feeds.pollers().into_iter().map(|(supplier, latest)| (supplier, latest.subscribe()));
    let standings = Standings { suppliers: listings.collect(), facts: markets.facts() };
    prometheus.spawn(&mut parts.inner.set, feed.cloned(), machines, &readings, &parts.inner.stop);
    let started = Started { cluster, demand, people, readings, streams, observer, standings, buffers_served, policy_fault };
    Ok((Sources { feeds, inputs, markets, policy }, started))
}

/// Shows how old what each feed says is.
fn follow_ages(feeds: &Feeds, kube: Option<&KubeFeed>, prometheus: &Prometheus, clock: &Clock, metrics: &Metrics) {
    for (supplier, latest) in feeds.pollers() {
        let newest = move || latest.borrow().as_ref().map(|seen| seen.as_of());
        metrics.follow(Feed::Supplier(supplier.name().clone()), newest);
    }
    if let Some(kube) = kube.cloned() {
        let clock = clock.clone();
        let newest = move || {
            let age = SignedDuration::try_from(kube.age()).unwrap_or(SignedDuration::MAX);
            clock.now().checked_sub(age).ok()
        };
        metrics.follow(Feed::Kubernetes, newest);
    }
    if let Some(newest) = prometheus.newest() {
        metrics.follow(Feed::Prometheus, newest);
    }
}

fn follow_cluster(setup: &Setup, memory: &Memory, (client, warm): (&Client, Option<WarmFeed>), parts: &mut Parts) -> Cluster {
    let act = Arc::new(KubeAct::new(client, EVENTS_NAMESPACE));
    if let Some(WarmFeed { feed, following }) = warm {
        parts.inner.run("the Kubernetes feed", following);
        return Cluster { client: client.clone(), feed, act };
    }
    let remembered = memory.images.values().flat_map(|images| images.images()).collect();
    let (feed, follow) = KubeFeed::start_knowing(
        client,
        &setup.policy.cluster,
        remembered,
        setup.options.clock.clone(),
        Arc::clone(&parts.wake),
    );
    parts.inner.run("the Kubernetes feed", follow);
    Cluster { client: client.clone(), feed, act }
}

/// Follows the nodes that are not Stoker's, where there is a cluster.
fn follow_foreign(
    setup: &Setup,
    policy: &watch::Receiver<Arc<Policy>>,
    facts: watch::Receiver<Arc<AllMarketFacts>>,
    parts: &mut Parts,
) -> watch::Receiver<Option<Arc<Foreign>>> {
    let known = watch::Sender::new(None);
    let foreign = known.subscribe();
    if let Some(client) = setup.client.clone() {
        let (book, policy, wake) = (Arc::clone(&setup.options.book), policy.clone(), Arc::clone(&parts.wake));
        let promised = setup.promised.clone().unwrap_or_else(|| watch::Sender::new(None).subscribe());
        parts.inner.run("the feed of other nodes", ForeignFeed { client, book, policy, facts, promised, known, wake }.run());
    }
    foreign
}

fn follow_policy(
    setup: &Setup,
    policy: &watch::Sender<Arc<Policy>>,
    markets: watch::Receiver<Arc<AllMarketFacts>>,
    parts: &mut Parts,
) -> Option<watch::Receiver<Option<String>>> {
    let path = setup.policy_path.clone()?;
    let (book, wake, clock) = (Arc::clone(&setup.options.book), Arc::clone(&parts.wake), setup.options.clock.clone());
    let watch = PolicyWatch::new(path, book, policy.clone(), wake, parts.metrics.clone(), clock, markets);
    let fault = watch.fault();
    let stop = parts.inner.stop.clone();
    parts.inner.set.spawn(async move {
        watch.run(stop).await;
        "the policy watch"
    });
    Some(fault)
}

/// Asks every supplier for its machines and markets, each at its own pace.
fn poll_suppliers(clock: &Clock, feeds: &Feeds, markets: &Arc<MarketFeed>, parts: &mut Parts) {
    for (supplier, latest) in feeds.pollers() {
        let (clock, wake) = (clock.clone(), Arc::clone(&parts.wake));
        parts.inner.run("an inventory feed", async move {
            loop {
                if ask(&supplier, &latest, clock.now()).await {
                    wake.notify_one();
                }
                tokio::select! {
                    () = clock.sleep(INVENTORY_EVERY) => {}
                    () = supplier.changed() => {}
                }
            }
        });
    }
    let (clock, markets, wake) = (clock.clone(), Arc::clone(markets), Arc::clone(&parts.wake));
    parts.inner.run("the market feed", async move {
        loop {
            if markets.refresh(clock.times()).await {
                wake.notify_one();
            }
            clock.sleep(MARKETS_LOOKED_AT_EVERY).await;
        }
    });
}
