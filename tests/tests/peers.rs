//! Each peer of the service misbehaves in turn: it hangs, says a byte a second, talks garbage, closes connections. The others are served as if
//! nothing were the matter, and once it behaves it is heard again, without a restart.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "peers/fault.rs"]
mod fault;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::routing::post;
use jiff::Timestamp;
use serde_json::json;
use stoker_fake_apiserver::ApiServer;
use stoker_service::clock::Clock;
use stoker_service::feeds::prometheus::Connection;
use stoker_service::serve::{KubeOptions, Options, ProbeListenerOptions, Running, State, start};
use stoker_service::suppliers::Supplier;
use stoker_simulated::supplier::Simulated;
use stoker_tests::client::Client;
use stoker_tests::http;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::proxy::{Fault, Proxy};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use fault::{Faulty, misbehave};

const GROUP: &str = "p.g6-xlarge.us-east-1a";

/// How long a peer does one thing.
const TURN: Duration = Duration::from_secs(1);

/// 99 of 100 calls that others make are answered within so long: a tenth of it is usual here. An autoscaler gives a call 5 s, and makes some
/// hundred of them each 10 s.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

/// Longer than anything that is waited for here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// How old what a feed says may be, in seconds, while its own peer behaves: suppliers are asked each 2 s and Prometheus each 5 s, and a quiet
/// watch gives a sign of life each half minute.
const YOUNG: [(&str, f64); 3] = [("supplier/simulated", 15.0), ("prometheus", 15.0), ("kubernetes", 60.0)];

async fn service(dir: &Path, supplier: &Arc<Faulty>, kube: KubeOptions, prometheus: Option<Connection>) -> Running {
    let pool = Pool { max_nodes: 100, ..Pool::new("p") };
    let text = format!("{}prometheus: {{ interval: 5s }}\n", policy(&[pool]));
    let probes = Some(ProbeListenerOptions::loopback());
    let options = Options { probes, kube, prometheus, ..market::options(text, dir) };
    let suppliers = [Arc::clone(supplier) as Arc<dyn Supplier>];
    start(Box::pin(State::open(options)).await.unwrap(), &suppliers).await.unwrap()
}

fn supplier() -> Arc<Faulty> {
    let cluster = stoker_core::base::ids::ClusterName::new("test").unwrap();
    let simulated = Simulated::in_memory(cluster, market::calm(), &market::book(), Clock::system()).unwrap();
    Arc::new(Faulty::new(simulated))
}

/// A Prometheus that knows of nothing.
async fn prometheus() -> SocketAddr {
    let empty = || async { Json(json!({ "status": "success", "data": { "resultType": "vector", "result": [] } })) };
    let app = axum::Router::new().route("/api/v1/query", post(empty));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr
}

/// The answer of the side port.
async fn get(addr: SocketAddr, path: &str) -> String {
    timeout(Duration::from_secs(2), http::get(addr, path)).await.expect("the side port answers within 2 s").unwrap()
}

/// The feeds that are older than they may be.
async fn old_feeds(addr: SocketAddr) -> Vec<&'static str> {
    let text = get(addr, "/metrics").await;
    let age = |feed: &str| -> Option<f64> {
        let series = format!("stoker_feed_age_seconds{{feed=\"{feed}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
    };
    YOUNG.iter().filter(|(feed, most)| age(feed).is_none_or(|age| age > *most)).map(|(feed, _)| *feed).collect()
}

/// One who behaves, and how long its calls took.
struct Honest {
    client: Client,
    http: SocketAddr,
    took: Vec<Duration>,
    ordered: i32,
    /// Feeds whose peers misbehave, or did and have not been heard since.
    spoilt: Vec<&'static str>,
}

impl Honest {
    async fn timed<T>(&mut self, what: &str, call: impl Future<Output = Result<T, tonic::Status>>) -> T {
        let begun = Instant::now();
        let answer = call.await.unwrap_or_else(|why| panic!("{what}: {why}"));
        self.took.push(begun.elapsed());
        answer
    }

    /// Calls like an autoscaler for a turn, in which `who` does `fault`, and looks whether all that is not of that peer goes on.
    async fn turn(&mut self, running: &Running, (who, fault): (&str, Fault)) {
        let (begun, client) = (Instant::now(), self.client.clone());
        let decided = running.handle.view().at;
        self.ordered += 1;
        self.timed("an order", client.increase(GROUP, 1)).await;
        while begun.elapsed() < TURN {
            self.timed("Refresh", client.refresh()).await;
            self.timed("NodeGroups", client.groups()).await;
            let target = self.timed("TargetSize", client.target(GROUP)).await;
            assert_eq!(target, self.ordered, "while the {who} {fault:?}");
            self.timed("Nodes", client.nodes(GROUP)).await;
            self.timed("BestOptions", client.best_options(Vec::new())).await;
            sleep(Duration::from_millis(5)).await;
        }
        let health = get(self.http, "/healthz").await;
        assert!(health.starts_with("HTTP/1.1 200"), "while the {who} {fault:?}: {health}");
        assert!(running.handle.view().at > decided, "no pass while the {who} {fault:?}");
        let mut old = old_feeds(self.http).await;
        old.retain(|feed| !self.spoilt.contains(feed));
        assert_eq!(old, [""; 0], "while the {who} {fault:?}");
    }

    /// The time within which 99 of 100 calls were answered since it was last asked.
    fn p99(&mut self) -> Duration {
        self.took.sort();
        let at = self.took.len().saturating_sub(1) * 99 / 100;
        let p99 = self.took.get(at).copied().unwrap_or_default();
        self.took.clear();
        p99
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_misbehaves_keeps_no_other_from_being_served() {
    let (dir, api, supplier) = (TempDir::new().unwrap(), ApiServer::listen(Timestamp::now).await, supplier());
    let config = std::fs::read_to_string(api.kubeconfig()).unwrap();
    let server: serde_json::Value = serde_json::from_str(&config).unwrap();
    let server = server["clusters"][0]["cluster"]["server"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let of_api = Proxy::before(server.parse().unwrap()).await.unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, config.replace(&server, &of_api.addr.to_string())).unwrap();
    let of_prometheus = Proxy::before(prometheus().await).await.unwrap();
    let asked = Connection { url: format!("http://{}", of_prometheus.addr), token_file: None, ca: None };
    let running = service(dir.path(), &supplier, KubeOptions::Kubeconfig(kubeconfig), Some(asked)).await;
    let client = Client::connect(running.provider, running.expander).await.unwrap();
    let begun = Instant::now();
    while client.refresh().await.is_err() || !old_feeds(running.http).await.is_empty() {
        assert!(begun.elapsed() < LONG, "the service does not get ready");
        sleep(Duration::from_millis(50)).await;
    }
    let mut honest = Honest { client, http: running.http, took: Vec::new(), ordered: 0, spoilt: Vec::new() };
    let mut answered_in = Vec::new();

    // What the service asks.
    for (who, feed, does) in [
        ("supplier", "supplier/simulated", &supplier.fault),
        ("API server", "kubernetes", &of_api.fault),
        ("Prometheus", "prometheus", &of_prometheus.fault),
    ] {
        honest.spoilt.push(feed);
        for fault in Fault::ALL {
            does.send_replace(fault);
            honest.turn(&running, (who, fault)).await;
        }
        does.send_replace(Fault::None);
        answered_in.push((who, honest.p99()));
    }
    // Who asks the service.
    for (who, door) in [
        ("autoscaler", running.provider),
        ("expander's client", running.expander),
        ("probe", running.probes.unwrap()),
        ("side port's client", running.http),
    ] {
        for fault in Fault::ALL {
            let clients = misbehave(door, fault);
            honest.turn(&running, (who, fault)).await;
            drop(clients);
        }
        answered_in.push((who, honest.p99()));
    }
    // All behave again, and are heard without a restart.
    let begun = Instant::now();
    loop {
        let old = old_feeds(running.http).await;
        if old.is_empty() {
            break;
        }
        assert!(begun.elapsed() < LONG, "these are not heard again: {old:?}");
        sleep(Duration::from_millis(100)).await;
    }
    println!("99 of 100 calls were answered within {answered_in:?}");
    let late: Vec<_> = answered_in.iter().filter(|(_, p99)| *p99 > ANSWERED_WITHIN).collect();
    assert!(late.is_empty(), "calls of others are late while these misbehave: {late:?}");
    // Not stopped: that would wait for the launch that hangs.
    drop(running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supplier_that_hangs_at_the_start_keeps_no_listener_closed() {
    let (dir, supplier) = (TempDir::new().unwrap(), supplier());
    supplier.fault.send_replace(Fault::Hangs);
    let running = timeout(Duration::from_secs(20), service(dir.path(), &supplier, KubeOptions::None, None)).await;
    let running = running.expect("the service starts without its supplier");
    assert!(get(running.http, "/healthz").await.starts_with("HTTP/1.1 200"));
    // The first pass, which finds what is missing, is made within 10 s.
    let begun = Instant::now();
    loop {
        let ready = get(running.http, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
        if ready.contains("supplier simulated has not listed all its machines yet") {
            break;
        }
        assert!(begun.elapsed() < LONG, "{ready}");
        sleep(Duration::from_millis(100)).await;
    }
    running.stop().await;
}
