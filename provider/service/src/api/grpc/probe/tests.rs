#![expect(clippy::unnecessary_wraps, reason = "as the fields that they fill have it")]

mod bad_input;
mod confirm;

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::{Measured, Why};
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_proto::probe::probe_client::ProbeClient;
use stoker_proto::probe::{Ack, ConfirmQuiet, Event, Gpu, Memory, QuietAnswer, Round, driver, event, to_probe};
use stoker_proto::probe::{Driver, Xid};
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as ClientIdentity};

use super::*;
use crate::api::grpc::server::serve_probes;
use crate::clock::Clock;
use crate::feeds::probes::tests::facts;
use crate::feeds::probes::{NotConfirmed, ProbeMetrics};
use crate::listener::{Limits, Listener, Security, Tls, TlsFiles, install_crypto};

/// Far above what anything here takes, so that only a hang meets it.
const LONG: Duration = Duration::from_secs(30);

/// The nodes that there are.
type Cluster = watch::Receiver<Option<Arc<ClusterFacts>>>;

struct Served {
    addr: std::net::SocketAddr,
    readings: Arc<Readings>,
    streams: Arc<Streams>,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    async fn start(security: Security, identity: Identity) -> Self {
        Self::among(None, security, identity).await
    }

    /// Of a cluster.
    async fn among(cluster: Option<Cluster>, security: Security, identity: Identity) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), security).await.unwrap();
        let listener = listener.with_limits(Limits::default().proven_by_requests());
        let addr = listener.local_addr().unwrap();
        let metrics = ProbeMetrics::default();
        let readings = Readings::new(Clock::system(), cluster, Arc::new(Notify::new()), metrics.clone());
        let streams = Streams::new(metrics);
        let stop = CancellationToken::new();
        let door = ProbeService::new(Arc::clone(&readings), Arc::clone(&streams), identity, stop.clone());
        tokio::spawn(serve_probes(listener, door, stop.clone()));
        Self { addr, readings, streams, stop }
    }

    async fn plaintext() -> Self {
        Self::start(Security::Plaintext, Identity::Unproven).await
    }

    fn rejected(&self, reason: Reason) -> u64 {
        self.readings.metrics().rejections(reason)
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.addr)).unwrap().connect().await.unwrap()
    }
}

/// A probe by hand.
struct Hand {
    up: mpsc::Sender<FromProbe>,
    down: Streaming<ToProbe>,
}

impl Hand {
    async fn open(channel: Channel, first: FromProbe) -> Result<Self, Status> {
        let (up, requests) = mpsc::channel(64);
        up.send(first).await.unwrap();
        let down = timeout(LONG, ProbeClient::new(channel).watch(ReceiverStream::new(requests))).await.unwrap()?.into_inner();
        Ok(Self { up, down })
    }

    /// Opens a stream for that node and hears what is known.
    async fn speak(served: &Served, node: &str, session: u64) -> (Self, Ack) {
        let mut hand = Self::open(served.channel().await, hello(node, session)).await.unwrap();
        let ack = hand.ack().await;
        (hand, ack)
    }

    async fn send(&self, kind: from_probe::Kind) {
        self.up.send(FromProbe { kind: Some(kind) }).await.unwrap();
    }

    async fn next(&mut self) -> Result<Option<ToProbe>, Status> {
        timeout(LONG, self.down.message()).await.expect("an answer")
    }

    async fn ack(&mut self) -> Ack {
        match self.next().await.unwrap().unwrap().kind {
            Some(to_probe::Kind::Ack(ack)) => ack,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a round and waits until it is acknowledged.
    async fn round(&mut self, round: Round) -> Ack {
        self.send(from_probe::Kind::Round(round)).await;
        self.ack().await
    }
}

fn hello(node: &str, session: u64) -> FromProbe {
    let hello = Hello { node: node.to_owned(), boot_id: "boot".to_owned(), session, version: "t".to_owned(), period_ms: 5000 };
    FromProbe { kind: Some(from_probe::Kind::Hello(hello)) }
}

fn now(ahead: i64) -> Option<stoker_proto::Timestamp> {
    let at = Timestamp::now() + SignedDuration::from_secs(ahead);
    Some(stoker_proto::Timestamp { seconds: at.as_second(), nanos: 0 })
}

fn round(sequence: u64) -> Round {
    let memory = Some(Memory { used_bytes: 0, total_bytes: 24 << 30, reserved_bytes: 0 });
    let gpu = Gpu { uuid: "GPU-a".to_owned(), memory, utilization: Some(0), ..Gpu::default() };
    let driver = Some(Driver { state: driver::State::Ready.into(), ..Driver::default() });
    Round { sequence, at: now(0), driver, gpus_counted: Some(1), gpus: vec![gpu], ..Round::default() }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[tokio::test]
async fn rounds_and_events_are_taken_in_order_and_acknowledged() {
    let served = Served::plaintext().await;
    let (mut hand, known) = Hand::speak(&served, "a", 1).await;
    assert_eq!(known, Ack::default());
    assert_eq!(hand.round(round(1)).await, Ack { round: 1, event: 0 });
    // Thinned out on the way.
    assert_eq!(hand.round(round(5)).await, Ack { round: 5, event: 0 });
    let xid = event::Kind::Xid(Xid { code: 79, gpu_uuid: "GPU-a".to_owned(), ..Xid::default() });
    hand.send(from_probe::Kind::Event(Event { number: 1, at: now(0), kind: Some(xid) })).await;
    assert_eq!(hand.ack().await, Ack { round: 5, event: 1 });
    served.readings.publish();
    assert_eq!(served.readings.seen().borrow()[&NodeName::new("a").unwrap()].xids.kinds[0].code, 79);
    // The same process comes back, and what was taken is known.
    drop(hand);
    let (_, known) = Hand::speak(&served, "a", 1).await;
    assert_eq!(known, Ack { round: 5, event: 1 });
}

#[tokio::test]
async fn the_newer_stream_of_a_node_ends_the_older() {
    let served = Served::plaintext().await;
    let (mut old, _) = Hand::speak(&served, "a", 1).await;
    old.round(round(1)).await;
    let (mut new, _) = Hand::speak(&served, "a", 2).await;
    assert_eq!(old.next().await.unwrap_err().code(), Code::Aborted);
    new.round(round(1)).await;
    let refused = Hand::open(served.channel().await, hello("a", 1)).await.err().unwrap();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(served.rejected(Reason::OldSession), 1);
    assert_eq!(served.readings.metrics().streams(), 1);
}

#[tokio::test]
async fn streams_end_when_the_service_stops() {
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    served.stop.cancel();
    assert_eq!(hand.next().await.unwrap_err().code(), Code::Unavailable);
}

/// A try-out set whose client is called that.
fn set(client: &str) -> tempfile::TempDir {
    install_crypto();
    let dir = tempfile::TempDir::new().unwrap();
    crate::certs::write_tryout(dir.path(), &[], client).unwrap();
    dir
}

fn files(dir: &Path) -> TlsFiles {
    TlsFiles {
        cert: dir.join("server.crt"),
        key: dir.join("server.key"),
        client_ca: Some(dir.join("ca.crt")),
        denied_serials: None,
    }
}

async fn tls_channel(served: &Served, dir: &Path) -> Channel {
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let tls = ClientTlsConfig::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(read("ca.crt")))
        .identity(ClientIdentity::from_pem(read("client.crt"), read("client.key")));
    let endpoint = Endpoint::from_shared(format!("https://{}", served.addr)).unwrap().tls_config(tls).unwrap();
    endpoint.connect().await.unwrap()
}

#[tokio::test]
async fn a_certificate_lets_a_probe_speak_for_its_own_node_only() {
    let dir = set("probe:node-a");
    let tls = || Security::Tls(Tls::load(files(dir.path())).unwrap());
    let served = Served::start(tls(), Identity::Certificates).await;
    let channel = tls_channel(&served, dir.path()).await;
    let mut hand = Hand::open(channel.clone(), hello("node-a", 1)).await.unwrap();
    hand.ack().await;
    assert_eq!(Hand::open(channel, hello("node-b", 1)).await.err().unwrap().code(), Code::PermissionDenied);
    assert_eq!(served.rejected(Reason::WrongIdentity), 1);
    assert!(NodeName::find(&served.readings.seen().borrow(), "node-b").is_none());
}

#[tokio::test]
async fn the_autoscalers_certificate_speaks_for_no_node() {
    let dir = set("cluster-autoscaler");
    let served = Served::start(Security::Tls(Tls::load(files(dir.path())).unwrap()), Identity::Certificates).await;
    let channel = tls_channel(&served, dir.path()).await;
    assert_eq!(Hand::open(channel, hello("node-a", 1)).await.err().unwrap().code(), Code::PermissionDenied);
    assert_eq!(served.rejected(Reason::WrongIdentity), 1);
}

#[tokio::test]
async fn nothing_else_is_served_to_probes() {
    use stoker_proto::externalgrpc::RefreshRequest;
    use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
    let served = Served::plaintext().await;
    let refused = CloudProviderClient::new(served.channel().await).refresh(RefreshRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let mut health = tonic_health::pb::health_client::HealthClient::new(served.channel().await);
    let refused = health.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

/// A token with that id.
fn token(id: &str) -> String {
    // The same however late it is asked for.
    static MADE: std::sync::OnceLock<std::sync::Mutex<std::collections::HashMap<String, String>>> = std::sync::OnceLock::new();
    let mut made = MADE.get_or_init(Default::default).lock().unwrap();
    made.entry(id.to_owned()).or_insert_with(|| crate::feeds::probes::tokens::tests::token(3600, id)).clone()
}

/// An API server that vouches for the token `good` of node-a while `up`, and is asked about those of streams that often.
fn reviewer(up: Arc<std::sync::atomic::AtomicBool>, again: Duration) -> Identity {
    reviewer_of(up, again, Arc::new(std::sync::atomic::AtomicBool::new(true)))
}

/// The same as long as it vouches for the token.
fn reviewer_of(
    up: Arc<std::sync::atomic::AtomicBool>,
    again: Duration,
    vouches: Arc<std::sync::atomic::AtomicBool>,
) -> Identity {
    use std::sync::atomic::Ordering;
    let client = stoker_fake_apiserver::client(move |call: stoker_fake_apiserver::Call| {
        let (up, vouches) = (up.load(Ordering::Relaxed), vouches.load(Ordering::Relaxed));
        async move {
            let good = call.body["spec"]["token"] == token("good").as_str() && vouches;
            let status = serde_json::json!({
                "authenticated": good,
                "audiences": ["stoker-probe"],
                "user": {
                    "username": "system:serviceaccount:stoker-probe:stoker-probe",
                    "extra": { "authentication.kubernetes.io/node-name": ["node-a"] },
                },
            });
            let review = serde_json::json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": call.body["spec"],
                "status": status,
            });
            let mut answer = http::Response::new(axum::body::Body::from(review.to_string()));
            if !up {
                *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            answer
        }
    });
    let reviewer = crate::feeds::probes::Reviewer::new(&client, crate::feeds::probes::ServiceAccount::default(), again);
    Identity::Tokens(Arc::new(reviewer))
}

#[tokio::test]
async fn a_token_lets_a_probe_speak_for_the_node_of_its_pod_only() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio_stream::StreamExt as _;
    let up = Arc::new(AtomicBool::new(true));
    let served = Served::start(Security::Plaintext, reviewer(Arc::clone(&up), LONG)).await;
    let open = async |node: &str, token: Option<&str>| {
        let mut request = Request::new(tokio_stream::iter([hello(node, 1)]).chain(tokio_stream::pending()));
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {}", self::token(token)).parse().unwrap());
        }
        ProbeClient::new(served.channel().await).watch(request).await.map(Response::into_inner)
    };
    let mut stands = open("node-a", Some("good")).await.unwrap();
    assert!(stands.message().await.unwrap().is_some());
    let code = |opened: Result<Streaming<ToProbe>, Status>| opened.err().unwrap().code();
    assert_eq!(code(open("node-b", Some("good")).await), Code::PermissionDenied);
    assert_eq!(code(open("node-a", Some("bad")).await), Code::Unauthenticated);
    assert_eq!(code(open("node-a", None).await), Code::Unauthenticated);
    // The API server is away: nobody new is believed, and whoever speaks goes on.
    up.store(false, Ordering::Relaxed);
    assert_eq!(code(open("node-a", Some("another")).await), Code::Unavailable);
    assert!(timeout(Duration::from_millis(100), stands.message()).await.is_err());
    let counts = [Reason::WrongIdentity, Reason::NoIdentity, Reason::ReviewUnavailable].map(|reason| served.rejected(reason));
    assert_eq!(counts, [1, 2, 1]);
}

#[tokio::test]
async fn a_token_that_counts_no_more_ends_its_stream_and_an_api_server_that_is_away_does_not() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio_stream::StreamExt as _;
    let (up, vouches) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let identity = reviewer_of(Arc::clone(&up), Duration::from_millis(20), Arc::clone(&vouches));
    let served = Served::start(Security::Plaintext, identity).await;
    up.store(true, Ordering::Relaxed);
    let mut request = Request::new(tokio_stream::iter([hello("node-a", 1)]).chain(tokio_stream::pending()));
    request.metadata_mut().insert("authorization", format!("Bearer {}", token("good")).parse().unwrap());
    let mut stands = ProbeClient::new(served.channel().await).watch(request).await.unwrap().into_inner();
    assert!(stands.message().await.unwrap().is_some());
    up.store(false, Ordering::Relaxed);
    timeout(LONG, async {
        while served.rejected(Reason::ReviewUnavailable) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!((served.rejected(Reason::Lapsed), served.readings.metrics().streams()), (0, 1));
    vouches.store(false, Ordering::Relaxed);
    up.store(true, Ordering::Relaxed);
    let ended = timeout(LONG, stands.message()).await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert_eq!(served.rejected(Reason::Lapsed), 1);
    // Nor is it remembered as good.
    let mut request = Request::new(tokio_stream::iter([hello("node-a", 2)]).chain(tokio_stream::pending()));
    request.metadata_mut().insert("authorization", format!("Bearer {}", token("good")).parse().unwrap());
    let refused = ProbeClient::new(served.channel().await).watch(request).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_probe_that_sends_too_much_is_listened_to_slower_and_loses_nothing() {
    let served = Served::plaintext().await;
    // A tenth of a second is the shortest period: four messages in it, after those that may come at once.
    let mut first = hello("a", 1);
    if let Some(from_probe::Kind::Hello(hello)) = &mut first.kind {
        hello.period_ms = 100;
    }
    let mut hand = Hand::open(served.channel().await, first).await.unwrap();
    hand.ack().await;
    let begun = std::time::Instant::now();
    let up = hand.up.clone();
    let flood = tokio::spawn(async move {
        for sequence in 1..=2_100_u64 {
            up.send(FromProbe { kind: Some(from_probe::Kind::Round(round(sequence))) }).await.unwrap();
        }
    });
    while hand.ack().await.round < 2_100 {}
    flood.await.unwrap();
    // 2,100 at once, less 2,048 that may be and those that the time before let through: each of the rest waits for 25 ms.
    let metrics = served.readings.metrics();
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_millis(51 * 25), "{taken:?}");
    assert!(metrics.throttles() > 0);
    assert_eq!(metrics.rounds(), 2_100);
}

/// What is logged meanwhile.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn why_rounds_are_not_taken_is_logged_once_until_one_is() {
    let log = Log::default();
    let writer = log.clone();
    let to_log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
    let _logged = tracing::subscriber::set_default(to_log.with_writer(move || writer.clone()).finish());
    let told = || {
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains("the probe's reading is rejected")).map(str::to_owned).collect::<Vec<_>>()
    };
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    for sequence in 1..=3 {
        hand.round(Round { at: now(3600), ..round(sequence) }).await;
    }
    let first = told();
    assert!(first.len() == 1 && first[0].contains("node=a reason=future"), "{first:?}");
    // A round is taken; the next that is not is told again, no sooner than a second after the last.
    hand.round(round(4)).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    hand.round(Round { at: now(3600), ..round(5) }).await;
    assert_eq!(told().len(), 2);
    assert_eq!(served.rejected(Reason::Future), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stream_and_its_connection_end_in_good_order_within_an_hour() {
    let served = Served::plaintext().await;
    let begun = tokio::time::Instant::now();
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    assert_eq!(tokio::time::timeout(LONG * 1000, hand.down.message()).await.expect("an end").unwrap(), None);
    let age = begun.elapsed();
    assert!(age >= CONNECTION_AGE && age < CONNECTION_AGE + CONNECTION_GRACE, "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_the_probes_listener_that_proves_nothing_is_closed_and_a_probes_stands() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    let mut silent = tokio::net::TcpStream::connect(served.addr).await.unwrap();
    // The preface and empty settings, as any client sends them.
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let begun = tokio::time::Instant::now();
    let _ = silent.read_to_end(&mut Vec::new()).await;
    assert!(begun.elapsed() <= Duration::from_secs(31), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_mins(10)).await;
    hand.round(round(1)).await;
}
