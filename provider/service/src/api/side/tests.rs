use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::listener::{Limits, Security};

/// The side port on loopback.
struct Port {
    addr: std::net::SocketAddr,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

async fn served(health: Health, conditions: Vec<Condition>) -> Port {
    with_debug(true, health, conditions).await
}

async fn with_debug(debug: bool, health: Health, conditions: Vec<Condition>) -> Port {
    let mut registry = Registry::default();
    let counter: Counter = Counter::default();
    counter.inc();
    registry.register("passes", "Passes", counter);
    let state = SideState {
        registry: Arc::new(registry),
        debug,
        healthy: Box::new(move || health.clone()),
        ready: Arc::new(move || conditions.clone()),
        view: Box::new(|| serde_json::json!({"groups": ["a"]})),
        picture: Arc::new(Picture::default),
        signals: Box::new(|| Box::pin(async { serde_json::json!([{"signal": "qps"}]) })),
        console: None,
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Security::Plaintext).await.unwrap();
    let listener = listener.with_limits(Limits::of(64));
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, state, stop.clone()));
    Port { addr, stop, serving }
}

impl Port {
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
    tokio::time::timeout(DRAIN * 10, served.serving).await.expect("ends in time").unwrap();
}

#[tokio::test]
async fn the_view_is_not_served_unless_asked_for() {
    let port = with_debug(false, Health::Alive, vec![]).await;
    for path in ["/debug/view", "/debug/top", "/debug/signals"] {
        let (status, answer) = port.get(path).await;
        assert!(status == 404 && answer.contains("--debug"), "{answer}");
    }
    assert_eq!(port.get("/metrics").await.0, 200);
}

/// How long the port keeps a connection open over which that was sent.
async fn kept_open(port: &Port, sent: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(port.addr).await.unwrap();
    let begun = Instant::now();
    stream.write_all(sent).await.unwrap();
    // An end or a reset, both are one.
    let _ = stream.read_to_end(&mut Vec::new()).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_for_nothing_or_half_or_is_idle_is_closed() {
    let port = served(Health::Alive, vec![]).await;
    for sent in ["", "GET /metr", "GET /metrics HTTP/1.1\r\nhost: stoker\r\nx-y: "] {
        let open = kept_open(&port, sent.as_bytes()).await;
        assert!(open <= HEADERS + Duration::from_secs(1), "{sent:?}: {open:?}");
    }
    let idle = kept_open(&port, b"GET /healthz HTTP/1.1\r\nhost: stoker\r\nconnection: keep-alive\r\n\r\n").await;
    assert!(idle < Duration::from_secs(1), "{idle:?}");
    let body = kept_open(&port, b"GET /healthz HTTP/1.1\r\nhost: stoker\r\ncontent-length: 1000000\r\n\r\nx").await;
    assert!(body <= CONNECTION + Duration::from_secs(1), "{body:?}");
}

#[tokio::test]
async fn many_connections_of_one_address_keep_nobody_from_the_side_port() {
    let port = served(Health::Alive, vec![]).await;
    let mut hostile = Vec::new();
    for _ in 0..500 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        let mut stream = socket.connect(port.addr).await.unwrap();
        // Refused ones are closed already.
        let _ = stream.write_all(b"GET /metr").await;
        hostile.push(stream);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(timeout(Duration::from_secs(5), port.get(path)).await.expect("an answer").0, 200);
    }
}
