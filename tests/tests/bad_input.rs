//! Bad input over the wire: an error that names the place and the cure, nothing changed, and the service goes on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers stand outside of it")]

use std::path::Path;
use std::sync::Arc;

use k8s_pb::api::core::v1::Pod as WirePod;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use stoker_core::state::memory::Memory;
use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::{ExternalGrpcNode, PricingNodePriceRequest, PricingPodPriceRequest};
use stoker_proto::{Bytes, Timestamp};
use stoker_service::serve::ServeError;
use stoker_simulated::StartError;
use stoker_tests::client::{Client, registered};
use stoker_tests::harness::{Service, Setup};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::process::{Home, Process, memory_mb};
use stoker_tests::raw::Raw;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const GROUP: &str = "p.g6-xlarge.us-east-1a";

/// Longest message that a client can be sent: it travels in a header.
const LONGEST: usize = 1_024;

/// A service with two nodes.
async fn service() -> Service {
    let service = Setup::new(policy(&[Pool::new("p")])).start().await;
    service.client().refresh().await.unwrap();
    service.client().increase(GROUP, 2).await.unwrap();
    service.settle().await;
    service
}

fn memory(service: &Service) -> Arc<Memory> {
    Arc::clone(&service.running().handle.view().memory)
}

/// The call is refused with that code and those words, nothing changed, and the next call is answered.
async fn refused<T: std::fmt::Debug>(
    service: &Service,
    answer: impl Future<Output = Result<T, Status>>,
    code: Code,
    words: &[&str],
) {
    let before = memory(service);
    let status = answer.await.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().len() <= LONGEST, "{} bytes", status.message().len());
    for word in words {
        assert!(status.message().contains(word), "{word}: {status}");
    }
    service.settle().await;
    assert_eq!(*memory(service), *before, "{status}");
    assert_eq!(service.client().target(GROUP).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_groups_are_named_with_the_cure() {
    let service = service().await;
    let client = service.client();
    let words = ["no node group nobody", "Refresh"];
    refused(&service, client.target("nobody"), Code::NotFound, &words).await;
    refused(&service, client.nodes("nobody"), Code::NotFound, &words).await;
    refused(&service, client.template("nobody"), Code::NotFound, &words).await;
    refused(&service, client.increase("nobody", 1), Code::NotFound, &words).await;
    refused(&service, client.decrease("nobody", -1), Code::NotFound, &words).await;
    refused(&service, client.delete("nobody", vec![registered("n", "")]), Code::NotFound, &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_that_make_no_sense_are_refused() {
    let service = service().await;
    let client = service.client();
    for delta in [0, -1, i32::MIN] {
        let words = ["NodeGroupIncreaseSize", "greater than zero"];
        refused(&service, client.increase(GROUP, delta), Code::InvalidArgument, &words).await;
    }
    for delta in [0, 1, i32::MAX] {
        let words = ["NodeGroupDecreaseTargetSize", "below zero"];
        refused(&service, client.decrease(GROUP, delta), Code::InvalidArgument, &words).await;
    }
    for delta in [9, i32::MAX] {
        let words = [GROUP, "8 possible", "limits.maxNodes"];
        refused(&service, client.increase(GROUP, delta), Code::ResourceExhausted, &words).await;
    }
    client.increase(GROUP, 8).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_none_are_refused_or_nobodys() {
    let service = service().await;
    let client = service.client();
    assert_eq!(client.group_of(None).await.unwrap(), "");
    assert_eq!(client.group_of(Some(ExternalGrpcNode::default())).await.unwrap(), "");
    client.delete(GROUP, Vec::new()).await.unwrap();
    let nodes = vec![registered("n", ""), ExternalGrpcNode::default()];
    refused(&service, client.delete(GROUP, nodes), Code::InvalidArgument, &["neither a providerID nor a name"]).await;
    let request =
        PricingNodePriceRequest { start_timestamp: Some(hour(0)), end_timestamp: Some(hour(1)), ..Default::default() };
    refused(&service, client.node_price(request), Code::InvalidArgument, &["node is missing"]).await;
    let node = Some(registered("control-plane-1", "kubeadm://1"));
    let request =
        PricingNodePriceRequest { node, start_timestamp: Some(hour(0)), end_timestamp: Some(hour(1)), ..Default::default() };
    refused(&service, client.node_price(request), Code::NotFound, &["control-plane-1", "label it"]).await;
}

const fn hour(n: i64) -> Timestamp {
    Timestamp { seconds: 1_793_606_400 + n * 3_600, nanos: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_megabyte_are_refused_and_not_repeated() {
    let service = service().await;
    let client = service.client();
    let long = "x".repeat(1 << 20);
    let words = ["1048576 bytes, more than 512"];
    refused(&service, client.target(&long), Code::InvalidArgument, &words).await;
    refused(&service, client.nodes(&long), Code::InvalidArgument, &words).await;
    refused(&service, client.template(&long), Code::InvalidArgument, &words).await;
    refused(&service, client.increase(&long, 1), Code::InvalidArgument, &words).await;
    refused(&service, client.decrease(&long, -1), Code::InvalidArgument, &words).await;
    refused(&service, client.delete(&long, vec![registered("n", "")]), Code::InvalidArgument, &words).await;
    refused(&service, client.delete(GROUP, vec![registered(&long, "")]), Code::InvalidArgument, &words).await;
    refused(&service, client.delete(GROUP, vec![registered("n", &long)]), Code::InvalidArgument, &words).await;
    assert_eq!(client.group_of(Some(registered(&long, &long))).await.unwrap(), "");
    let control = "p\n\u{1b}[31m";
    refused(&service, client.target(control), Code::InvalidArgument, &["control character at byte 1"]).await;
    refused(&service, client.target(""), Code::InvalidArgument, &["empty"]).await;
    assert!(client.options(&long, None).await.unwrap().node_group_autoscaling_options.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_of_nonsense_are_refused() {
    let service = service().await;
    let client = service.client();
    let node = Some(registered(&format!("template-node-for-{GROUP}-1"), ""));
    for (start, end, words) in [
        (None, Some(hour(1)), "interval is missing"),
        (Some(hour(1)), None, "interval is missing"),
        (Some(hour(1)), Some(hour(0)), "does not end after its start"),
        (Some(hour(1)), Some(hour(1)), "does not end after its start"),
        (Some(Timestamp { seconds: i64::MIN, nanos: -1 }), Some(hour(1)), "years 1 to 9999"),
    ] {
        let request =
            PricingNodePriceRequest { node: node.clone(), start_timestamp: start, end_timestamp: end, ..Default::default() };
        refused(&service, client.node_price(request), Code::InvalidArgument, &["PricingNodePrice", words]).await;
    }
    for (pod, words) in [(&b""[..], "pod is missing"), (b"\xff\xff\xff", "cannot be read")] {
        let pod_bytes = Bytes::from_static(pod);
        let request = PricingPodPriceRequest {
            pod_bytes,
            start_timestamp: Some(hour(0)),
            end_timestamp: Some(hour(1)),
            ..Default::default()
        };
        refused(&service, client.pod_price(request), Code::InvalidArgument, &["PricingPodPrice", words]).await;
    }
}

/// A request that is no protobuf at all, and a method that there is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_refused() {
    let service = service().await;
    let call = |method: &'static str, body: &'static [u8]| raw(service.client(), method, body);
    let garbage = call("NodeGroupIncreaseSize", b"\xff\xff\xff\xff\xff");
    refused(&service, garbage, Code::InvalidArgument, &["decode"]).await;
    refused(&service, call("NodeGroupSetSize", b""), Code::Unimplemented, &[]).await;
}

/// Sends these bytes as a request.
async fn raw(client: &Client, method: &str, body: &'static [u8]) -> Result<(), Status> {
    let path = format!("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/{method}");
    let mut grpc = tonic::client::Grpc::new(client.provider_channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path.parse().map_err(|_| Status::internal("a path"))?;
    grpc.unary(tonic::Request::new(Bytes::from_static(body)), path, Raw).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_policy_or_world_does_not_start() {
    let bad = policy(&[Pool { models: "L44", max_nodes: 0, min_nodes: 1, ..Pool::new("p") }]);
    let Err(error) = Setup::new(bad).try_start().await else { unreachable!("it has two faults") };
    let text = error.to_string();
    assert!(matches!(error, StartError::Serve(ServeError::Policy(_))), "{text}");
    assert!(text.contains("L44") && text.contains("nearest is L4") && text.contains("minNodes"), "{text}");
    let world = Setup::new(policy(&[Pool::new("p")])).world(|world| world.api.error_rate = 1.5);
    let Err(error) = world.try_start().await else { unreachable!("a share above one") };
    assert!(error.to_string().contains("api.errorRate"), "{error}");
}

/// The memory limit of the shipped Deployment, in MB.
fn memory_limit() -> f64 {
    let manifest = include_str!("../../manifests/stoker/deployment.yaml");
    let mebibytes = manifest.split("limits: {memory: ").nth(1).and_then(|rest| rest.split("Mi}").next()).unwrap();
    mebibytes.parse::<f64>().unwrap() * 1.048_576
}

/// A client of the expander from that address.
async fn client_from(address: [u8; 4], process: &Process) -> ExpanderClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", process.expander)).unwrap().local_address(Some(address.into()));
    ExpanderClient::new(endpoint.connect().await.unwrap()).max_encoding_message_size(usize::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_requests_at_once_fit_the_memory_limit_of_the_deployment() {
    const LARGEST: usize = (64 << 20) - 4096;
    let home = Home::new(Path::new(env!("CARGO_BIN_EXE_stoker-under-test")), &policy(&[Pool::new("p")]), &market::calm());
    let process = home.start(None).await.unwrap();
    process.ready().await;
    let at_rest = memory_mb(process.pid().unwrap(), "VmRSS").unwrap();
    // Many small pods, and few large ones.
    for (options, pods) in [(50, 4_900), (4, 16)] {
        let each = LARGEST / (options * pods) - 8;
        let pod = |n: usize| {
            let metadata =
                ObjectMeta { name: Some(format!("p-{n}")), namespace: Some("x".repeat(each - 32)), ..ObjectMeta::default() };
            Bytes::from(WirePod { metadata: Some(metadata), ..WirePod::default() }.encode_to_vec())
        };
        let option = |n: usize| ExpanderOption {
            node_group_id: GROUP.to_owned(),
            node_count: 1,
            pod_bytes: (0..pods).map(|m| pod(n * pods + m)).collect(),
            ..ExpanderOption::default()
        };
        let request = BestOptionsRequest { options: (0..options).map(option).collect(), ..BestOptionsRequest::default() };
        assert!((LARGEST - (8 << 20)..LARGEST).contains(&request.encoded_len()), "{}", request.encoded_len());
        let ask = async |address: [u8; 4]| client_from(address, &process).await.best_options(request.clone()).await;
        // A third one waits until there is room again, and may come too late.
        let (first, second, third) = tokio::join!(ask([127, 0, 0, 1]), ask([127, 0, 0, 2]), ask([127, 0, 0, 3]));
        let answered = [first, second, third].iter().filter(|answer| answer.is_ok()).count();
        assert!(answered >= 1, "{options} options of {pods} pods");
    }
    let most = memory_mb(process.pid().unwrap(), "VmHWM").unwrap();
    println!("{at_rest:.0} MB at rest, at most {most:.0} MB; the limit is {:.0} MB", memory_limit());
    assert!(most < memory_limit(), "{most:.0} MB");
    process.kill().await;
}
