//! Requests of every generation: the committed bytes are what the hand writes, and we read the same out of all of them.

use prost::Message;
use stoker_proto::expander::BestOptionsRequest;
use stoker_proto::externalgrpc::{
    NodeGroupAutoscalingOptionsRequest, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest,
    NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, PricingNodePriceRequest, PricingPodPriceRequest,
};
use stoker_proto::{Bytes, ClientGeneration, Duration, Timestamp};

use crate::hand::Out;
use crate::releases::{RELEASES, Releases};
use crate::vectors::requests_all;

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;
const END: i64 = START + 3600;
const SECOND: i64 = 1_000_000_000;

/// A Kubernetes `Time`: seconds, and nanos that are always written and always 0.
fn time(seconds: i64) -> Out {
    Out::new().int(1, seconds).int(2, 0)
}

fn stamp(seconds: i64) -> Out {
    Out::new().int(1, seconds)
}

fn seconds(seconds: i64) -> Out {
    Out::new().int(1, seconds)
}

fn nanos(seconds: i64) -> Out {
    Out::new().int(1, seconds * SECOND)
}

fn named(name: &str) -> Out {
    Out::new().bytes(1, Out::new().bytes(1, name))
}

fn node_price(releases: &Releases) -> Vec<u8> {
    Out::new()
        .bytes(1, Out::new().bytes(2, "template-node-for-h100-7").entry(3, "gpu", "h100"))
        .when(releases.legacy, |out| out.bytes(2, time(START)).bytes(3, time(END)))
        .when(releases.newer, |out| out.bytes(4, stamp(START)).bytes(5, stamp(END)))
        .done()
}

fn pod_price(releases: &Releases) -> Vec<u8> {
    Out::new()
        .when(releases.legacy, |out| out.bytes(1, named("train-0")).bytes(2, time(START)).bytes(3, time(END)))
        .when(releases.newer, |out| out.bytes(4, named("train-0")).bytes(5, stamp(START)).bytes(6, stamp(END)))
        .done()
}

fn options(releases: &Releases) -> Vec<u8> {
    let defaults = Out::new()
        .double(1, 0.5)
        .double(2, 0.25)
        .when(releases.legacy, |out| out.bytes(3, nanos(600)).bytes(4, nanos(1200)))
        .when(releases.legacy && releases.provision, |out| out.bytes(5, nanos(900)))
        .when(releases.switches, |out| out.int(6, 1).int(7, 1))
        .when(releases.newer, |out| out.bytes(8, seconds(600)).bytes(9, seconds(1200)).bytes(10, seconds(900)));
    Out::new().bytes(1, "h100").bytes(2, defaults).done()
}

fn best_options(releases: &Releases) -> Vec<u8> {
    let two_pods = |out: Out, number| out.bytes(number, named("train-0")).bytes(number, named("train-0"));
    let two_nodes = |out: Out, number| out.entry(number, "a100", named("n")).entry(number, "h100", named("n"));
    let option = Out::new()
        .bytes(1, "h100")
        .int(2, 3)
        .when(releases.legacy, |out| two_pods(out, 4))
        .when(releases.newer, |out| two_pods(out, 5));
    Out::new()
        .bytes(1, option)
        .when(releases.legacy, |out| two_nodes(out, 2))
        .when(releases.newer, |out| two_nodes(out, 3))
        .done()
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

pub(crate) fn lasting(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

#[test]
fn committed_bytes_are_what_the_hand_writes() {
    for releases in &RELEASES {
        let vectors = releases.vectors();
        assert_eq!(vectors["PricingNodePriceRequest"], node_price(releases), "{}", releases.name);
        assert_eq!(vectors["PricingPodPriceRequest"], pod_price(releases), "{}", releases.name);
        assert_eq!(vectors["NodeGroupAutoscalingOptionsRequest"], options(releases), "{}", releases.name);
        assert_eq!(vectors["BestOptionsRequest"], best_options(releases), "{}", releases.name);
        assert_eq!(vectors.len(), 4, "{}", releases.name);
    }
}

#[test]
fn prices_are_asked_for_the_same_interval_and_pod() {
    for releases in &RELEASES {
        let vectors = releases.vectors();
        let node = PricingNodePriceRequest::decode(&*vectors["PricingNodePriceRequest"]).unwrap();
        assert_eq!(node.interval(), Some((at(START), at(END))), "{}", releases.name);
        assert_eq!(node.node.unwrap().labels["gpu"], "h100", "{}", releases.name);

        let pod = PricingPodPriceRequest::decode(&*vectors["PricingPodPriceRequest"]).unwrap();
        assert_eq!(pod.interval(), Some((at(START), at(END))), "{}", releases.name);
        assert_eq!(pod.pod().unwrap().as_ref(), named("train-0").as_ref(), "{}", releases.name);
    }
}

#[test]
fn defaults_read_alike_and_tell_the_generation() {
    for releases in &RELEASES {
        let request = &releases.vectors()["NodeGroupAutoscalingOptionsRequest"];
        let request = NodeGroupAutoscalingOptionsRequest::decode(&**request).unwrap();
        assert_eq!(request.id, "h100", "{}", releases.name);
        let defaults = request.defaults.unwrap();
        assert_eq!(ClientGeneration::from_defaults(&defaults), Some(releases.told), "{}", releases.name);
        assert_eq!(defaults.unneeded(), Some(lasting(600)), "{}", releases.name);
        assert_eq!(defaults.unready(), Some(lasting(1200)), "{}", releases.name);
        assert_eq!(defaults.max_node_provision(), releases.provision.then(|| lasting(900)), "{}", releases.name);
        assert_eq!(defaults.zero_or_max_node_scaling, releases.switches, "{}", releases.name);
        assert_eq!(defaults.ignore_daemon_sets_utilization, releases.switches, "{}", releases.name);
    }
}

#[test]
fn the_expander_sees_the_same_pods_and_templates() {
    for releases in &RELEASES {
        let request = Bytes::from(releases.vectors()["BestOptionsRequest"].clone());
        let whole = request.as_ptr_range();
        let request = BestOptionsRequest::decode(request).unwrap();
        let pods = request.options[0].pods();
        assert_eq!(pods, [named("train-0").done(), named("train-0").done()], "{}", releases.name);
        assert!(pods.iter().all(|pod| whole.contains(&pod.as_ptr())), "{}: a pod was copied", releases.name);
        let templates: Vec<_> = request.templates().iter().collect();
        let node = Bytes::from(named("n").done());
        assert_eq!(templates, [(&"a100".to_owned(), &node), (&"h100".to_owned(), &node)], "{}", releases.name);
    }
}

#[test]
fn requests_that_never_changed() {
    let vectors = requests_all();
    let fake = Out::new().bytes(1, "sim:///z/i-1").bytes(2, "sim:///z/i-1");
    let fake = fake.entry(4, "k8s.io/cluster-autoscaler/fake-node-reason", "unregistered");

    let bytes = &vectors["NodeGroupForNodeRequest"];
    assert_eq!(*bytes, Out::new().bytes(1, &fake).done());
    let node = NodeGroupForNodeRequest::decode(&**bytes).unwrap().node.unwrap();
    assert_eq!((node.provider_id.as_str(), node.name.as_str()), ("sim:///z/i-1", "sim:///z/i-1"));
    assert_eq!(node.annotations["k8s.io/cluster-autoscaler/fake-node-reason"], "unregistered");

    let bytes = &vectors["NodeGroupIncreaseSizeRequest"];
    assert_eq!(*bytes, Out::new().int(1, 300).bytes(2, "h100").done());
    let request = NodeGroupIncreaseSizeRequest::decode(&**bytes).unwrap();
    assert_eq!((request.delta, request.id.as_str()), (300, "h100"));

    let bytes = &vectors["NodeGroupDecreaseTargetSizeRequest"];
    assert_eq!(*bytes, Out::new().int(1, -2).bytes(2, "h100").done());
    let request = NodeGroupDecreaseTargetSizeRequest::decode(&**bytes).unwrap();
    assert_eq!((request.delta, request.id.as_str()), (-2, "h100"));

    let bytes = &vectors["NodeGroupDeleteNodesRequest"];
    assert_eq!(*bytes, Out::new().bytes(1, &fake).bytes(2, "h100").done());
    let request = NodeGroupDeleteNodesRequest::decode(&**bytes).unwrap();
    assert_eq!((request.nodes.len(), request.nodes[0].labels.len(), request.id.as_str()), (1, 0, "h100"));

    assert_eq!(vectors["NodeGroupTargetSizeRequest"], Out::new().bytes(1, "h100").done());
    assert_eq!(vectors["RefreshRequest"], Vec::<u8>::new());
}
