//! A real Prometheus on loopback that scrapes the test's exporters, and the feed that asks it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use stoker_core::base::ids::{NodeName, SignalName};
use stoker_core::facts::reading::{NodeEvent, NodeReading};
use stoker_core::policy::Policy;
use stoker_core::policy::rules::demand::Demand;
use stoker_service::clock::Clock;
use stoker_service::feeds::prometheus::{Asker, Connection, GpuFeed, KnownNodes, Metrics, Signals, Tell};
use stoker_service::policy_file;
use stoker_tests::prometheus::Prometheus;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::exporter::Exporters;

/// How long samples count here: three scrapes.
pub(crate) const STALE_AFTER: SignedDuration = SignedDuration::from_secs(3);

/// How often the feed asks here.
const INTERVAL: SignedDuration = SignedDuration::from_millis(500);

/// The newest reading of each node, and all that happened there.
pub(crate) type Seen = BTreeMap<String, (NodeReading, Vec<NodeEvent>)>;

/// A Prometheus, what it scrapes, and what the feed makes of it.
pub(crate) struct World {
    pub(crate) exporters: Exporters,
    pub(crate) demand: watch::Receiver<Arc<Demand>>,
    pub(crate) began: Timestamp,
    seen: Arc<Mutex<Seen>>,
    registry: Registry,
    prometheus: Option<Prometheus>,
    stop: CancellationToken,
    _policy: watch::Sender<Arc<Policy>>,
}

impl World {
    pub(crate) async fn start(targets: &[(&str, &str)]) -> Self {
        stoker_service::listener::install_crypto();
        let began = Timestamp::now();
        let exporters = Exporters::start().await;
        let mut config = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n".to_owned();
        for (name, text) in targets {
            exporters.set(name, Some(text));
            let target = exporters.addr;
            let job =
                format!("{{job_name: {name}, metrics_path: /{name}/metrics, static_configs: [{{targets: [\"{target}\"]}}]}}");
            writeln!(config, "- {job}").unwrap();
        }
        let prometheus = Prometheus::start(TempDir::new().unwrap(), &config).await.unwrap();
        let asker = Asker::new(&Connection { url: prometheus.url.clone(), token_file: None, ca: None }).unwrap();

        let (sender, policy) = watch::channel(Arc::new(policy()));
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let heard = Arc::clone(&seen);
        let tell: Tell = Arc::new(move |node: NodeName, reading, events| {
            let mut heard = heard.lock().unwrap();
            let before = heard.remove(node.as_str()).map(|(_, events)| events).unwrap_or_default();
            heard.insert(node.to_string(), (reading, before.into_iter().chain(events).collect()));
        });
        let nodes: KnownNodes = Arc::new(|| ["gpu-a", "gpu-b"].map(|name| NodeName::new(name).unwrap()).to_vec());
        let stop = CancellationToken::new();
        let readings = GpuFeed::new(asker.clone(), policy.clone(), nodes, tell, metrics.clone(), Clock::system());
        tokio::spawn(readings.run(stop.clone()));
        let signals = Signals::new(Some(asker), policy, metrics, Clock::system());
        let demand = signals.demand();
        tokio::spawn(signals.run(stop.clone()));
        Self { exporters, demand, began, seen, registry, prometheus: Some(prometheus), stop, _policy: sender }
    }

    /// What the feed passed on so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// The value of a series of our own metrics.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
        text.lines().find_map(value)
    }

    /// Ends the Prometheus.
    pub(crate) async fn stop_prometheus(&mut self) {
        if let Some(prometheus) = self.prometheus.take() {
            prometheus.stop().await.unwrap();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The example policy, asked more often than a file may say, with signals in its first pool.
fn policy() -> Policy {
    let mut policy = policy_file::parse("policy.yaml", policy_file::example(), None).unwrap();
    policy.prometheus.interval = INTERVAL;
    policy.prometheus.stale_after = STALE_AFTER;
    let signals = [("queueDepth", "sum(queue_depth)"), ("everyPod", "queue_depth"), ("misspelt", "sum(queue_dept)")];
    let signals = signals.map(|(name, query)| stoker_core::policy::rules::demand::DemandSignal {
        name: SignalName::new(name).unwrap(),
        query: query.to_owned(),
        per_replica: stoker_core::policy::rules::demand::Amount::parse("10").unwrap(),
        per_second: None,
    });
    policy.pools[0].signals = signals.to_vec();
    policy
}

/// Waits until there is such a thing.
pub(crate) async fn within<T>(seconds: u64, what: &str, find: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
