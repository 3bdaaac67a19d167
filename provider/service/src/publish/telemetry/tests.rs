use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use stoker_core::base::ids::{NodeGroupId, PoolName, SupplierName};
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::budget::Budget;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::budget::{BudgetOf, Stage};
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::*;
use crate::clock::{Clock, VirtualClock};

fn metrics() -> (Metrics, Registry) {
    let mut registry = Registry::default();
    (Metrics::register(&mut registry), registry)
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// The value of the series that begins so.
fn value(registry: &Registry, series: &str) -> Option<f64> {
    text(registry).lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

const REFRESH: &str = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/Refresh";

fn refresh(code: &str) -> String {
    format!("stoker_rpc_requests_total{{method=\"Refresh\",code=\"{code}\"}}")
}

fn request(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

#[tokio::test]
async fn a_call_abandoned_before_its_answer_is_cancelled() {
    let (metrics, registry) = metrics();
    let never = service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let call = RpcLayer::new(metrics).layer(never).oneshot(request(REFRESH));
    assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err());
    assert_eq!(value(&registry, &refresh("cancelled")), Some(1.0));
    assert_eq!(value(&registry, &refresh("ok")), None);
}

/// A body that has one chunk and then good trailers.
fn answered() -> Response<Body> {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let frames = [http_body::Frame::data(stoker_proto::Bytes::from_static(b"data")), http_body::Frame::trailers(trailers)];
    Response::new(Body::new(Frames(frames.into())))
}

struct Frames(std::collections::VecDeque<http_body::Frame<stoker_proto::Bytes>>);

impl http_body::Body for Frames {
    type Data = stoker_proto::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Infallible>>> {
        std::task::Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn an_answer_counts_when_its_last_byte_is_taken() {
    let (metrics, registry) = metrics();
    let answer = || {
        let service = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(answered()) });
        RpcLayer::new(metrics.clone()).layer(service).oneshot(request(REFRESH))
    };
    let next = async |body: &mut Body| std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await;

    let mut whole = answer().await.unwrap().into_body();
    assert!(next(&mut whole).await.unwrap().unwrap().is_data());
    assert_eq!(value(&registry, &refresh("ok")), None);
    assert!(next(&mut whole).await.unwrap().unwrap().is_trailers());
    drop(whole);
    assert_eq!(value(&registry, &refresh("ok")), Some(1.0));

    let mut half = answer().await.unwrap().into_body();
    assert!(next(&mut half).await.is_some());
    drop(half);
    assert_eq!(value(&registry, &refresh("cancelled")), Some(1.0));
    assert_eq!(value(&registry, &refresh("ok")), Some(1.0));
    assert_eq!(value(&registry, "stoker_rpc_duration_seconds_count{method=\"Refresh\",code=\"ok\"}"), Some(1.0));
}

#[tokio::test]
async fn calls_to_a_real_server_count_by_method_and_code() {
    let (metrics, registry) = metrics();
    let addr = "127.0.0.1:0".parse().unwrap();
    let listener = crate::listener::Listener::bind(addr, crate::listener::Security::Plaintext).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder().layer(RpcLayer::new(metrics)).add_service(health);
    let serving = tokio::spawn(server.serve_with_incoming(listener.incoming()));
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    client.check(HealthCheckRequest { service: "nobody".to_owned() }).await.unwrap_err();
    serving.abort();
    assert_eq!(value(&registry, "stoker_rpc_requests_total{method=\"Check\",code=\"ok\"}"), Some(1.0));
    assert_eq!(value(&registry, "stoker_rpc_requests_total{method=\"Check\",code=\"not_found\"}"), Some(1.0));
}

#[tokio::test]
async fn a_request_that_is_no_message_is_the_clients_fault() {
    let (metrics, registry) = metrics();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let health = RpcLayer::new(metrics).layer(health);
    // A field that says that it is longer than the message; a flag that does not exist; a message that ends early.
    for frame in [&b"\0\0\0\0\x02\x0a\x7f"[..], b"\x07\0\0\0\0", b"\0\0\0\0\x09\x0a"] {
        let body = Body::new(http_body_util::Full::new(stoker_proto::Bytes::from_static(frame)));
        let request =
            Request::post("/grpc.health.v1.Health/Check").header("content-type", "application/grpc").body(body).unwrap();
        let answer = health.clone().oneshot(request).await.unwrap();
        drop(http_body_util::BodyExt::collect(answer.into_body()).await);
    }
    assert_eq!(value(&registry, "stoker_rpc_requests_total{method=\"Check\",code=\"invalid_argument\"}"), Some(3.0));
}

#[test]
fn a_client_cannot_make_labels() {
    assert_eq!(Method::of_path(REFRESH), Method::Refresh);
    assert_eq!(Method::of_path("/grpcplugin.Expander/BestOptions"), Method::BestOptions);
    for path in [
        "/",
        "/anything/Refresh",
        "/grpcplugin.Expander/BestOptions/x",
        "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/New",
    ] {
        assert_eq!(Method::of_path(path), Method::Other);
    }
}

fn view() -> View {
    let pool = PoolName::new("inference").unwrap();
    let gauges = GroupGauges { pool: pool.clone(), target: 3, min: 1, max: 40, suspended: true };
    View {
        groups: [(NodeGroupId::new("inference.g6-xlarge.us-east-1a").unwrap(), gauges)].into(),
        nodes: [((pool.clone(), NodeState::Ready), 2), ((pool.clone(), NodeState::Booting), 1)].into(),
        spend: [((pool.clone(), CapacityType::OnDemand), UsdPerHour(2_414_400))].into(),
        budgets: [(BudgetOf::Pool(pool), Stage::SpotOnly), (BudgetOf::All, Stage::Ample)]
            .map(|(of, stage)| Budget { of, spent: UsdPerHour(2_414_400), limit: UsdPerHour(2_500_000), stage, month: None })
            .into(),
        faults: [(PoolName::new("training").ok(), "bad-limits".to_owned()), (None, "shared-machine".to_owned())].into(),
        unused: [("ri".to_owned(), UsdPerHour(510_000))].into(),
    }
}

#[test]
fn published_gauges_follow_the_view() {
    let (metrics, registry) = metrics();
    metrics.publish(view());
    let group = "{pool=\"inference\",group=\"inference.g6-xlarge.us-east-1a\"}";
    assert_eq!(value(&registry, &format!("stoker_group_target_nodes{group}")), Some(3.0));
    assert_eq!(value(&registry, &format!("stoker_group_min_nodes{group}")), Some(1.0));
    assert_eq!(value(&registry, &format!("stoker_group_max_nodes{group}")), Some(40.0));
    assert_eq!(value(&registry, &format!("stoker_group_suspended{group}")), Some(1.0));
    assert_eq!(value(&registry, "stoker_nodes{pool=\"inference\",state=\"ready\"}"), Some(2.0));
    let spend = "stoker_spend_usd_per_hour{pool=\"inference\",capacity_type=\"on-demand\"}";
    assert_eq!(value(&registry, spend), Some(2.4144));
    let budget = "{scope=\"pool\",pool=\"inference\"}";
    assert_eq!(value(&registry, &format!("stoker_budget_spend_usd_per_hour{budget}")), Some(2.4144));
    assert_eq!(value(&registry, &format!("stoker_budget_limit_usd_per_hour{budget}")), Some(2.5));
    assert_eq!(value(&registry, &format!("stoker_budget_stage{budget}")), Some(2.0));
    assert_eq!(value(&registry, "stoker_budget_stage{scope=\"all\",pool=\"\"}"), Some(0.0));
    assert_eq!(value(&registry, "stoker_consistency_fault{pool=\"training\",fault=\"bad-limits\"}"), Some(1.0));
    assert_eq!(value(&registry, "stoker_consistency_fault{pool=\"\",fault=\"shared-machine\"}"), Some(1.0));
    assert_eq!(value(&registry, "stoker_commitment_unused_usd_per_hour{commitment=\"ri\"}"), Some(0.51));
    metrics.publish(View::default());
    assert!(!text(&registry).contains("inference"));
}

#[test]
fn the_age_of_a_feed_grows_by_itself() {
    let (metrics, registry) = metrics();
    let simulated = SupplierName::new("simulated").unwrap();
    let seen = Timestamp::now() - SignedDuration::from_secs(90);
    metrics.follow(Feed::Supplier(simulated), move || Some(seen));
    let age = value(&registry, "stoker_feed_age_seconds{feed=\"supplier/simulated\"}").unwrap();
    assert!((90.0..300.0).contains(&age), "{age}");
    assert!(!text(&registry).contains("kubernetes"));
}

#[test]
fn a_feed_that_never_reports_is_as_old_as_the_process() {
    let start: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let clock = VirtualClock::new(start);
    let mut registry = Registry::default();
    let metrics = Metrics::register_by(&mut registry, Clock::Virtual(std::sync::Arc::clone(&clock)));
    metrics.follow(Feed::Prometheus, || None);
    clock.advance_to(start + SignedDuration::from_mins(3));
    assert_eq!(value(&registry, "stoker_feed_age_seconds{feed=\"prometheus\"}"), Some(180.0));
}

#[test]
fn the_disk_of_the_state_directory_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(StateDisk(dir.path().to_owned())));
    let (size, free) = (value(&registry, "state_disk_size_bytes").unwrap(), value(&registry, "state_disk_free_bytes").unwrap());
    assert!(size > 0.0 && (0.0..=size).contains(&free), "{free} of {size}");
    dir.close().unwrap();
    assert_eq!(value(&registry, "state_disk_size_bytes"), None, "of one that is gone nothing is known");
}

/// Something of every metric that is not the fleet's.
pub(super) fn everything(metrics: &Metrics) {
    let pool = PoolName::new("inference").unwrap();
    metrics.rpc(Method::Refresh, RpcCode::Ok, Duration::from_millis(3));
    metrics.pass(PassResult::Done, Duration::from_millis(8));
    metrics.decided(DecisionKind::Launch, 2);
    metrics.launched(CapacityType::Spot, LaunchResult::OutOfCapacity);
    metrics.ordered(OrderSource::Autoscaler, OrderResult::Accepted);
    metrics.delete_refused(DeleteRefusal::Busy);
    metrics.booted(&pool, Duration::from_secs(95));
    metrics.pod_started(&pool, Duration::from_secs(70));
    metrics.policy_taken("2026-01-01T00:00:00Z".parse().unwrap());
    metrics.policy_refused(2);
    metrics.certificate(Certificate::Provider, Some("2027-01-01T00:00:00Z".parse().unwrap()), false);
    metrics.handshakes_refused().inc();
    metrics.connections_refused().inc();
    metrics.follow(Feed::Kubernetes, || Some(Timestamp::now()));
    metrics.supplied(&pool, Duration::from_secs(100));
    metrics.reclaimed(&pool, ReclaimSource::Probe, 1);
    metrics.guests(&[(pool, 1)].into(), BTreeSet::new());
    metrics.publish(view());
}

/// Every metric, as a scrape shows it.
#[test]
fn names_help_and_units_are_in_order() {
    let (metrics, registry) = metrics();
    everything(&metrics);
    let text = text(&registry);
    for (series, expected) in [
        (refresh("ok").as_str(), 1.0),
        ("stoker_passes_total{result=\"done\"}", 1.0),
        ("stoker_passes_total{result=\"incomplete\"}", 0.0),
        ("stoker_pass_duration_seconds_count", 1.0),
        ("stoker_decisions_total{kind=\"launch\"}", 2.0),
        ("stoker_launches_total{capacity_type=\"spot\",result=\"out_of_capacity\"}", 1.0),
        ("stoker_launches_total{capacity_type=\"on-demand\",result=\"launched\"}", 0.0),
        ("stoker_orders_total{source=\"autoscaler\",result=\"accepted\"}", 1.0),
        ("stoker_deletes_refused_total{reason=\"busy\"}", 1.0),
        ("stoker_node_boot_duration_seconds_bucket{le=\"120.0\",pool=\"inference\"}", 1.0),
        ("stoker_pod_start_duration_seconds_bucket{le=\"90.0\",pool=\"inference\"}", 1.0),
        ("stoker_node_supply_duration_seconds_bucket{le=\"120.0\",pool=\"inference\"}", 1.0),
        ("stoker_reclaims_total{pool=\"inference\",source=\"probe\"}", 1.0),
        ("stoker_policy_reloads_total{result=\"fault\"}", 1.0),
        ("stoker_policy_faults", 2.0),
        ("stoker_policy_last_load_timestamp_seconds", 1_767_225_600.0),
        ("stoker_certificate_expiry_timestamp_seconds{listener=\"provider\"}", 1_798_761_600.0),
        ("stoker_certificate_fault{listener=\"provider\"}", 0.0),
        ("stoker_handshakes_refused_total", 1.0),
        ("stoker_connections_refused_total", 1.0),
        (concat!("stoker_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        assert_eq!(value(&registry, series), Some(expected), "{series} in\n{text}");
    }
    let help = |line: &&str| line.starts_with("# HELP ");
    assert!(text.lines().filter(help).count() > 20);
    for line in text.lines().filter(help) {
        assert!(line.starts_with("# HELP stoker_") && line.ends_with('.') && !line.ends_with(".."), "{line}");
    }
}

#[test]
fn the_flag_outranks_the_environment_and_info_is_the_default() {
    const QUIET: [&str; 3] =
        ["kube_client::client::builder=off", "aws_config::meta::credentials=off", "sqlx::postgres::notice=off"];
    let filter = |flag, env: Option<&str>| choose_filter(flag, env.map(str::to_owned)).map(|filter| filter.to_string());
    for (flag, env, level) in [
        (None, None, "info"),
        (None, Some(" "), "info"),
        (None, Some("warn"), "warn"),
        (Some("stoker=debug"), Some("warn"), "stoker=debug"),
    ] {
        let chosen = filter(flag, env).unwrap();
        let mut directives: Vec<&str> = chosen.split(',').collect();
        directives.sort_unstable();
        let mut wanted = [level, QUIET[0], QUIET[1], QUIET[2]];
        wanted.sort_unstable();
        assert_eq!(directives, wanted);
    }
    let asked = filter(Some("kube_client=debug,aws_config=debug,sqlx=debug"), None).unwrap();
    assert!(!asked.contains("off"), "{asked}");
    let refused = filter(None, Some("stoker=loud")).unwrap_err();
    assert!(refused.to_string().starts_with("RUST_LOG: \"stoker=loud\" is not a log filter"), "{refused}");
}
