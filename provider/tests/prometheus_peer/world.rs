//! A real Prometheus on loopback that scrapes the test's exporters, and the feed that asks it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use stoker::clock::Clock;
use stoker::policy_file;
use stoker::prometheus::{Asker, Connection, GpuFeed, KnownNodes, Metrics, Signals, Tell};
use stoker_core::demand::Demand;
use stoker_core::ids::{NodeName, SignalName};
use stoker_core::policy::Policy;
use stoker_core::reading::{NodeEvent, NodeReading};
use tempfile::TempDir;
use tokio::process::{Child, Command};
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
    prometheus: tokio::sync::Mutex<Child>,
    stop: CancellationToken,
    _policy: watch::Sender<Arc<Policy>>,
    _dir: TempDir,
}

impl World {
    /// `None` where there is no Prometheus on this machine.
    pub(crate) async fn start(targets: &[(&str, &str)]) -> Option<Self> {
        if Command::new("prometheus").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_err() {
            eprintln!("skipped: there is no program `prometheus` on the path; on Debian, apt-get install prometheus");
            return None;
        }
        stoker::net::install_crypto();
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
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        // A port that is free now; should somebody take it first, Prometheus ends and the test says so.
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut prometheus = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let asker = Asker::new(&Connection { url: format!("http://{addr}"), token_file: None, ca: None }).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while tokio::net::TcpStream::connect(addr).await.is_err() {
            if let Some(ended) = prometheus.try_wait().unwrap() {
                panic!("Prometheus ended, {ended}: {}", std::fs::read_to_string(dir.path().join("log")).unwrap());
            }
            assert!(Instant::now() < deadline, "Prometheus does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

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
        let readings = GpuFeed::new(asker.clone(), policy.clone(), nodes, tell, metrics.clone(), Clock::System);
        tokio::spawn(readings.run(stop.clone()));
        let signals = Signals::new(Some(asker), policy, metrics, Clock::System);
        let demand = signals.demand();
        tokio::spawn(signals.run(stop.clone()));
        let prometheus = tokio::sync::Mutex::new(prometheus);
        Some(Self { exporters, demand, began, seen, registry, prometheus, stop, _policy: sender, _dir: dir })
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
    pub(crate) async fn stop_prometheus(&self) {
        self.prometheus.lock().await.kill().await.unwrap();
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
    let signals = signals.map(|(name, query)| stoker_core::demand::Signal {
        name: SignalName::new(name).unwrap(),
        query: query.to_owned(),
        per_replica: stoker_core::demand::Amount::parse("10").unwrap(),
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
