use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::registry::Registry;
use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_proto::externalgrpc::*;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::super::server::{ServeError, serve_expander, serve_provider};
use super::*;
use crate::listener::{Listener, Security, Tls, TlsFiles, install_crypto};
use crate::publish::telemetry::Metrics;

/// Far above what anything here takes, so that only a hang meets it.
const LONG: Duration = Duration::from_secs(30);

const SERVICE: &str = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";

struct Served {
    addr: SocketAddr,
    stop: CancellationToken,
    server: JoinHandle<Result<(), ServeError>>,
    registry: Registry,
}

impl Served {
    fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.addr)).unwrap().connect_lazy()
    }

    async fn stopped(self) {
        self.stop.cancel();
        timeout(LONG, self.server).await.expect("an end").unwrap().unwrap();
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

async fn listener(security: Security) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), security).await.unwrap()
}

fn provider_at(listener: Listener, engine: EngineHandle, clients: &[&str]) -> Served {
    let mut registry = Registry::default();
    let (addr, stop, metrics) = (listener.local_addr().unwrap(), CancellationToken::new(), Metrics::register(&mut registry));
    let clients = clients.iter().map(|&name| name.to_owned()).collect();
    let server = tokio::spawn(serve_provider(listener, engine, None, clients, metrics, stop.clone()));
    Served { addr, stop, server, registry }
}

async fn provider(engine: EngineHandle) -> Served {
    provider_at(listener(Security::Plaintext).await, engine, &[])
}

async fn expander(engine: EngineHandle) -> Served {
    let listener = listener(Security::Plaintext).await;
    let mut registry = Registry::default();
    let (addr, stop, metrics) = (listener.local_addr().unwrap(), CancellationToken::new(), Metrics::register(&mut registry));
    let server = tokio::spawn(serve_expander(listener, engine, metrics, stop.clone()));
    Served { addr, stop, server, registry }
}

async fn health(channel: Channel, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    HealthClient::new(channel).check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn health_follows_the_view_and_a_watch_does_not_hold_up_the_stop() {
    let handle: Handle<_> = handle!(View::starting(now(), Arc::new(catalogue())));
    let served = provider(handle.engine.clone()).await;
    assert_eq!(health(served.channel(), "").await, ServingStatus::NotServing);
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut watch = HealthClient::new(served.channel()).watch(request).await.unwrap().into_inner();
    let mut next = async || timeout(LONG, watch.next()).await.expect("news").map(|told| told.unwrap().status());
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    handle.show(view());
    assert_eq!(next().await, Some(ServingStatus::Serving));
    assert_eq!(health(served.channel(), "").await, ServingStatus::Serving);
    handle.show_not_ready();
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    timeout(Duration::from_secs(4), served.stopped()).await.expect("the watch is let go");
    while let Some(told) = next().await {
        assert_eq!(told, ServingStatus::NotServing);
    }
}

#[tokio::test]
async fn calls_over_the_wire_are_answered_and_counted() {
    let handle: Handle<_> = handle!(view());
    // A session of this connection would have to be begun by an engine.
    let served = provider(handle.engine.clone()).await;
    let mut client = CloudProviderClient::new(served.channel());
    let target = client.node_group_target_size(NodeGroupTargetSizeRequest { id: ONE_A.to_owned() }).await.unwrap();
    assert_eq!(target.into_inner().target_size, 0);
    let refused = client.node_group_target_size(NodeGroupTargetSizeRequest { id: "x".repeat(1 << 20) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    // A request larger than the usual 4 MiB: a whole batch of nodes with their annotations.
    let annotated = ExternalGrpcNode { annotations: [("a".to_owned(), "x".repeat(7 << 20))].into(), ..node("", "n") };
    let owner = client.node_group_for_node(NodeGroupForNodeRequest { node: Some(annotated) }).await.unwrap().into_inner();
    assert_eq!(owner.node_group.unwrap_or_default(), NodeGroup::default());
    let metrics = served.metrics();
    assert!(metrics.contains(r#"method="NodeGroupTargetSize",code="ok"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"method="NodeGroupTargetSize",code="invalid_argument"} 1"#), "{metrics}");
    drop(client);
    served.stopped().await;
}

#[tokio::test]
async fn only_allowed_clients_may_call_and_anyone_with_a_certificate_may_check_health() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    crate::certs::write_tryout(dir.path(), &[], "autoscaler").unwrap();
    let path = |name: &str| dir.path().join(name);
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    let files = || TlsFiles {
        cert: path("server.crt"),
        key: path("server.key"),
        client_ca: Some(path("ca.crt")),
        denied_serials: None,
    };
    let handle: Handle<_> = handle!(view());
    for (allowed, expected) in [("autoscaler", Ok(())), ("probe", Err(Code::PermissionDenied))] {
        let tls = Security::Tls(Tls::load(files()).unwrap());
        let served = provider_at(listener(tls).await, handle.engine.clone(), &[allowed]);
        let tls = ClientTlsConfig::new()
            .domain_name("localhost")
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("client.crt"), read("client.key")));
        let channel =
            Endpoint::from_shared(format!("https://{}", served.addr)).unwrap().tls_config(tls).unwrap().connect_lazy();
        let asked = CloudProviderClient::new(channel.clone()).gpu_label(GpuLabelRequest {}).await;
        assert_eq!(asked.map(drop).map_err(|refused| refused.code()), expected);
        assert_eq!(health(channel, "").await, ServingStatus::Serving);
        served.stopped().await;
    }
}

/// Names of the services that a server says it has.
async fn reflected(channel: Channel, newer: bool) -> Vec<String> {
    if newer {
        use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};
        let ask =
            ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) };
        let mut replies =
            ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) = replies.message().await.unwrap().unwrap().message_response
        else {
            panic!("a list")
        };
        list.service.into_iter().map(|ServiceResponse { name }| name).collect()
    } else {
        use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse;
        use tonic_reflection::pb::v1alpha::{ServerReflectionRequest, ServiceResponse};
        let ask =
            ServerReflectionRequest { host: String::new(), message_request: Some(MessageRequest::ListServices(String::new())) };
        let mut replies =
            ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) = replies.message().await.unwrap().unwrap().message_response
        else {
            panic!("a list")
        };
        list.service.into_iter().map(|ServiceResponse { name }| name).collect()
    }
}

#[tokio::test]
async fn reflection_tells_the_services_that_are_there() {
    let handle: Handle<_> = handle!(view());
    let served = provider(handle.engine.clone()).await;
    for newer in [true, false] {
        let services = reflected(served.channel(), newer).await;
        assert!(services.iter().any(|name| name == SERVICE), "{services:?}");
        assert!(services.iter().any(|name| name == "grpc.health.v1.Health"), "{services:?}");
        assert!(!services.iter().any(|name| name.contains("Expander")), "{services:?}");
    }
    served.stopped().await;
    let served = expander(handle.engine.clone()).await;
    for newer in [true, false] {
        let services = reflected(served.channel(), newer).await;
        assert!(services.iter().any(|name| name == "grpcplugin.Expander"), "{services:?}");
        assert!(!services.iter().any(|name| name == SERVICE), "{services:?}");
    }
    served.stopped().await;
}

fn options(bytes: usize) -> BestOptionsRequest {
    let option = |group: &str| ExpanderOption {
        node_group_id: group.to_owned(),
        node_count: 1,
        pod_bytes: vec![Bytes::from(vec![0; bytes / 2])],
        ..ExpanderOption::default()
    };
    BestOptionsRequest { options: vec![option(ONE_B), option(ONE_A)], ..BestOptionsRequest::default() }
}

#[tokio::test]
async fn the_expander_takes_large_requests_and_refuses_larger_ones() {
    let handle: Handle<_> = handle!(view());
    let served = expander(handle.engine.clone()).await;
    assert_eq!(health(served.channel(), "grpcplugin.Expander").await, ServingStatus::Serving);
    let mut client = ExpanderClient::new(served.channel());
    let best = client.best_options(options(60 << 20)).await.unwrap().into_inner();
    assert_eq!(best.options.len(), 1);
    assert_eq!(best.options[0].node_group_id, ONE_A);
    let refused = client.best_options(options(66 << 20)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    // The place that the large one had is free again.
    assert_eq!(client.best_options(options(2)).await.unwrap().into_inner().options.len(), 1);
    drop(client);
    served.stopped().await;
}

#[tokio::test]
async fn a_small_message_that_would_become_a_large_one_is_refused() {
    let handle: Handle<_> = handle!(view());
    let served = expander(handle.engine.clone()).await;
    let mut client = ExpanderClient::new(served.channel());
    let many = BestOptionsRequest { options: vec![ExpanderOption::default(); 20_000], ..BestOptionsRequest::default() };
    let refused = client.best_options(many).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("BestOptions: 20000 options"), "{refused:?}");
    assert_eq!(client.best_options(options(2)).await.unwrap().into_inner().options.len(), 1);
    drop(client);
    served.stopped().await;
}

/// Two bytes each on the wire, a hundred in memory.
#[tokio::test]
async fn a_deletion_of_more_nodes_than_a_cluster_has_is_refused_before_it_is_decoded() {
    let handle: Handle<_> = handle!(view());
    let served = provider(handle.engine.clone()).await;
    let mut client = CloudProviderClient::new(served.channel()).max_encoding_message_size(usize::MAX);
    let of =
        |nodes: usize| NodeGroupDeleteNodesRequest { id: ONE_A.to_owned(), nodes: vec![ExternalGrpcNode::default(); nodes] };
    let refused = client.node_group_delete_nodes(of(1_000_000)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let large = NodeGroupDeleteNodesRequest { id: "x".repeat(9 << 20), nodes: Vec::new() };
    assert_eq!(client.node_group_delete_nodes(large).await.unwrap_err().code(), Code::OutOfRange);
    drop(client);
    served.stopped().await;
}

/// A channel that comes from that address of this machine.
async fn channel_from(address: [u8; 4], served: &Served) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", served.addr)).unwrap();
    endpoint.local_address(Some(address.into())).connect().await.unwrap()
}

/// Begins a request of so many bytes and never ends it; what it is answered.
fn unfinished(channel: &Channel, path: &str, bytes: u32) -> JoinHandle<Code> {
    use http_body_util::StreamBody;
    use tower::ServiceExt as _;
    let mut begun = vec![0];
    begun.extend_from_slice(&bytes.to_be_bytes());
    begun.extend_from_slice(&[0; 100]);
    let frames = tokio_stream::once(Ok::<_, tonic::Status>(http_body::Frame::data(Bytes::from(begun))));
    let body = tonic::body::Body::new(StreamBody::new(frames.chain(tokio_stream::pending())));
    let request = http::Request::post(path).header("content-type", "application/grpc").header("te", "trailers").body(body);
    let answer = channel.clone().oneshot(request.unwrap());
    tokio::spawn(async move {
        let answer = answer.await.unwrap();
        tonic::Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code())
    })
}

const BEST_OPTIONS: &str = "/grpcplugin.Expander/BestOptions";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_requests_of_one_client_do_not_keep_the_expander_from_another() {
    let handle: Handle<_> = handle!(view());
    let served = expander(handle.engine.clone()).await;
    let hostile = channel_from([127, 0, 0, 2], &served).await;
    let held: Vec<_> = (0..50).map(|_| unfinished(&hostile, BEST_OPTIONS, 60 << 20)).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut honest = ExpanderClient::new(served.channel());
    let begun = std::time::Instant::now();
    for bytes in [2, 1 << 20, 2, 30 << 20, 2] {
        assert_eq!(honest.best_options(options(bytes)).await.unwrap().into_inner().options.len(), 1);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    held.iter().for_each(JoinHandle::abort);
    drop((honest, hostile));
    served.stopped().await;
}

/// Two claims fill the room. Each loses it within half a second, so who waits behind a dozen is answered before the autoscaler gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_requests_of_a_dozen_addresses_do_not_keep_the_expander_from_another() {
    let handle: Handle<_> = handle!(view());
    let served = expander(handle.engine.clone()).await;
    let mut hostile = Vec::new();
    for last in 2..14 {
        let channel = channel_from([127, 0, 0, last], &served).await;
        hostile.push((unfinished(&channel, BEST_OPTIONS, 60 << 20), channel));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut honest = ExpanderClient::new(served.channel());
    let begun = std::time::Instant::now();
    assert_eq!(honest.best_options(options(2)).await.unwrap().into_inner().options.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for (call, _channel) in hostile {
        assert_eq!(timeout(LONG, call).await.expect("an answer").unwrap(), Code::DeadlineExceeded);
    }
    drop(honest);
    served.stopped().await;
}

#[tokio::test]
async fn a_request_whose_body_does_not_come_is_ended() {
    let handle: Handle<_> = handle!(view());
    for (served, path) in [
        (expander(handle.engine.clone()).await, BEST_OPTIONS),
        (
            provider(handle.engine.clone()).await,
            "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroupForNode",
        ),
    ] {
        let answered = timeout(LONG, unfinished(&served.channel(), path, 1 << 20)).await.expect("an answer").unwrap();
        assert_eq!(answered, Code::DeadlineExceeded);
        served.stopped().await;
    }
}

#[test]
fn a_ranking_keeps_its_turn_when_its_call_has_timed_out() {
    // One thread for rankings, which is taken: the first ranking begins when it is free again.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    runtime.block_on(async {
        let handle: Handle<_> = handle!(view());
        let served = expander(handle.engine.clone()).await;
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let blocker = tokio::task::spawn_blocking(move || taken.recv());
        let mut client = ExpanderClient::new(Endpoint::from_shared(format!("http://{}", served.addr)).unwrap().connect_lazy());
        assert!(timeout(Duration::from_millis(500), client.best_options(options(1 << 20))).await.is_err());
        let mut other = ExpanderClient::new(served.channel());
        let mut next = std::pin::pin!(other.best_options(options(2)));
        assert!(timeout(Duration::from_millis(500), &mut next).await.is_err(), "a second ranking began beside the first");
        drop(free);
        assert_eq!(timeout(LONG, next).await.expect("its turn").unwrap().into_inner().options.len(), 1);
        assert!(blocker.await.unwrap().is_err());
        served.stopped().await;
    });
}

/// How often a client connects that calls, waits for an hour and calls again.
async fn connects_in_an_hour(served: &Served, path: &'static str) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::{ServiceExt as _, service_fn};
    let (addr, connects) = (served.addr, Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connects);
    let connector = service_fn(move |_: http::Uri| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { tokio::net::TcpStream::connect(addr).await.map(hyper_util::rt::TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://stoker").connect_with_connector_lazy(connector);
    for _ in 0..2 {
        let request = http::Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let empty = tonic::body::Body::new(http_body_util::Full::new(Bytes::from_static(&[0; 5])));
        let answer = channel.clone().oneshot(request.body(empty).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        tokio::time::sleep(Duration::from_mins(61)).await;
    }
    connects.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn connections_to_the_expander_end_within_an_hour_and_those_of_the_autoscaler_stand() {
    let handle: Handle<_> = handle!(view());
    let served = expander(handle.engine.clone()).await;
    assert_eq!(connects_in_an_hour(&served, BEST_OPTIONS).await, 2);
    let served = provider(handle.engine.clone()).await;
    let path = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/GPULabel";
    assert_eq!(connects_in_an_hour(&served, path).await, 1);
}
