use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

struct Served {
    addr: std::net::SocketAddr,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<io::Result<()>>,
}

async fn served(health: Health, conditions: Vec<Condition>) -> Served {
    let mut registry = Registry::default();
    let counter: Counter = Counter::default();
    counter.inc();
    registry.register("passes", "Passes", counter);
    let state = SideState {
        registry: Arc::new(registry),
        healthy: Box::new(move || health.clone()),
        ready: Box::new(move || conditions.clone()),
        view: Box::new(|| serde_json::json!({"groups": ["a"]})),
        signals: Box::new(|| Box::pin(async { serde_json::json!([{"signal": "qps"}]) })),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, state, stop.clone()));
    Served { addr, stop, serving }
}

impl Served {
    /// The status and the whole answer.
    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

#[tokio::test]
async fn metrics_are_openmetrics_text() {
    let served = served(Health::Alive, vec![]).await;
    let (status, answer) = served.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{answer}");
    assert!(answer.contains("passes_total 1\n") && answer.ends_with("# EOF\n"), "{answer}");
}

#[tokio::test]
async fn a_stuck_loop_is_not_healthy() {
    let alive = served(Health::Alive, vec![]).await;
    assert_eq!(alive.get("/healthz").await.0, 200);
    let stuck = served(Health::Stuck("no pass for 90 s".to_owned()), vec![]).await;
    let (status, answer) = stuck.get("/healthz").await;
    assert!(status == 503 && answer.ends_with("stuck: no pass for 90 s\n"), "{answer}");
}

#[tokio::test]
async fn readiness_tells_each_condition_on_its_line() {
    let fault = Condition::degraded("policy", "2 faults\nline 3: spot.maxShare 140% is above 100%");
    let served_degraded = served(Health::Alive, vec![Condition::good("supplier"), fault.clone()]).await;
    let (status, answer) = served_degraded.get("/readyz").await;
    assert_eq!(status, 200);
    assert!(
        answer.ends_with(
            "ready, degraded\nok        supplier\ndegraded  policy: 2 faults; line 3: spot.maxShare 140% is above 100%\n"
        ),
        "{answer}"
    );

    let missing = Condition::not_ready("feed supplier/simulated", "nothing heard yet");
    let served_missing = served(Health::Alive, vec![fault, missing]).await;
    let (status, answer) = served_missing.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.contains("not ready\ndegraded  policy: "), "{answer}");
    assert!(answer.ends_with("not-ready feed supplier/simulated: nothing heard yet\n"), "{answer}");
}

#[tokio::test]
async fn the_view_is_json_and_other_paths_are_told() {
    let served = served(Health::Alive, vec![]).await;
    let (status, answer) = served.get("/debug/view").await;
    assert!(status == 200 && answer.ends_with(r#"{"groups":["a"]}"#), "{answer}");
    let (status, answer) = served.get("/").await;
    assert!(status == 404 && answer.contains("/readyz"), "{answer}");
}

#[tokio::test]
async fn an_unfinished_request_does_not_hold_up_the_end() {
    let served = served(Health::Alive, vec![]).await;
    let mut hanging = TcpStream::connect(served.addr).await.unwrap();
    hanging.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    assert_eq!(served.get("/healthz").await.0, 200);
    served.stop.cancel();
    tokio::time::timeout(DRAIN * 10, served.serving).await.expect("ends in time").unwrap().unwrap();
}
