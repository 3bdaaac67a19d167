//! Our answers as committed bytes, and as each generation reads them: by hand, looking only at the fields it knows.

use prost::Message;
use stoker_proto::expander::BestOptionsResponse;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_proto::externalgrpc::{
    Instance, InstanceErrorInfo, InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest,
    NodeGroupAutoscalingOptionsResponse, NodeGroupForNodeResponse, NodeGroupNodesResponse, NodeGroupTemplateNodeInfoResponse,
    NodeGroupsResponse, PricingNodePriceResponse,
};
use stoker_proto::{Bytes, Duration, InstanceErrorClass};

use crate::hand::{Out, Value, field, inner};
use crate::releases::{RELEASES, Releases};
use crate::vectors::responses;

const SECOND: i64 = 1_000_000_000;

fn node() -> Out {
    Out::new().bytes(1, Out::new().bytes(1, "n"))
}

fn instance(id: &str, state: InstanceState, error_info: Option<InstanceErrorInfo>) -> Instance {
    Instance { id: id.to_owned(), status: Some(InstanceStatus { instance_state: state.into(), error_info }) }
}

/// Options as a server changes them: defaults of some release, one newer field set, both layouts.
fn changed_options() -> NodeGroupAutoscalingOptions {
    let lasting = |seconds, nanos| Some(Duration { seconds, nanos });
    NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: 0.5,
        scale_down_gpu_utilization_threshold: 0.25,
        ignore_daemon_sets_utilization: true,
        scale_down_unneeded_duration: lasting(90, 500_000_000),
        scale_down_unready_duration: lasting(1200, 0),
        max_node_provision_duration: lasting(900, 0),
        ..Default::default()
    }
    .both()
}

#[test]
fn answers_have_the_committed_bytes() {
    let stockout = InstanceErrorInfo::new(InstanceErrorClass::OutOfResources, "STOCKOUT", "none left");
    let group = NodeGroup { id: "h100".to_owned(), max_size: 64, ..Default::default() };
    let instances = vec![
        instance("sim:///z/i-1", InstanceState::InstanceRunning, None),
        instance("sim:///z/i-2", InstanceState::InstanceCreating, Some(stockout)),
    ];
    let ours = [
        ("NodeGroupsResponse", NodeGroupsResponse { node_groups: vec![group] }.encode_to_vec()),
        ("NodeGroupForNodeResponse", NodeGroupForNodeResponse::default().encode_to_vec()),
        ("PricingNodePriceResponse", PricingNodePriceResponse { price: 31.25 }.encode_to_vec()),
        ("NodeGroupNodesResponse", NodeGroupNodesResponse { instances }.encode_to_vec()),
        (
            "NodeGroupTemplateNodeInfoResponse",
            NodeGroupTemplateNodeInfoResponse::both(Bytes::from(node().done())).encode_to_vec(),
        ),
        ("NodeGroupAutoscalingOptionsResponse", NodeGroupAutoscalingOptionsResponse::default().encode_to_vec()),
        ("NodeGroupAutoscalingOptions", changed_options().encode_to_vec()),
        ("BestOptionsResponse", BestOptionsResponse::keeping(["h100", "a100"]).encode_to_vec()),
    ];
    let vectors = responses();
    assert_eq!(vectors.len(), ours.len());
    for (message, bytes) in ours {
        assert_eq!(vectors[message], bytes, "{message}");
    }
    assert_eq!(InstanceErrorClass::Other.number(), 99);
    assert!(BestOptionsResponse::keeping(Vec::<String>::new()).encode_to_vec().is_empty(), "a veto is empty");
}

/// The node that a release takes from a template answer.
fn template_read_by<'a>(releases: &Releases, answer: &'a [u8]) -> Option<&'a [u8]> {
    let newer = releases.newer.then(|| inner(answer, 2)).flatten();
    newer.or_else(|| releases.legacy.then(|| inner(answer, 1)).flatten())
}

#[test]
fn every_release_finds_the_template() {
    let answer = NodeGroupTemplateNodeInfoResponse::both(Bytes::from(node().done())).encode_to_vec();
    for releases in &RELEASES {
        assert_eq!(template_read_by(releases, &answer), Some(node().as_ref()), "{}", releases.name);
    }
    // What goes wrong with one field only, so that the reader above is known to tell.
    let only_1 = Out::new().bytes(1, node()).done();
    let only_2 = Out::new().bytes(2, node()).done();
    let found = |answer: &[u8]| RELEASES.map(|releases| template_read_by(&releases, answer).is_some());
    assert_eq!(found(&only_1), [true, true, true, true, false]);
    assert_eq!(found(&only_2), [false, false, false, true, true]);
}

/// A duration in nanoseconds as a release takes it from the options; `None` is what crashes it.
fn duration_read_by(releases: &Releases, options: &[u8], newer: u64, legacy: u64) -> Option<i64> {
    let part = |message, number| match field(message, number) {
        Some(Value::Int(value)) => value,
        None => 0,
        other => panic!("field {number} is {other:?}"),
    };
    let newer = releases.newer.then(|| inner(options, newer)).flatten().map(|d| part(d, 1) * SECOND + part(d, 2));
    newer.or_else(|| releases.legacy.then(|| inner(options, legacy)).flatten().map(|d| part(d, 1)))
}

#[test]
fn every_release_finds_changed_options() {
    let answer = NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: Some(changed_options()) };
    let answer = answer.encode_to_vec();
    let options = inner(&answer, 1).unwrap();
    for releases in &RELEASES {
        assert_eq!(field(options, 1), Some(Value::Double(0.5)), "{}", releases.name);
        assert_eq!(field(options, 2), Some(Value::Double(0.25)), "{}", releases.name);
        assert_eq!(duration_read_by(releases, options, 8, 3), Some(90 * SECOND + SECOND / 2), "{}", releases.name);
        assert_eq!(duration_read_by(releases, options, 9, 4), Some(1200 * SECOND), "{}", releases.name);
        assert_eq!(duration_read_by(releases, options, 10, 5), Some(900 * SECOND), "{}", releases.name);
    }
}

#[test]
fn defaults_sent_back_are_what_their_sender_reads() {
    for releases in &RELEASES {
        let request = &releases.vectors()["NodeGroupAutoscalingOptionsRequest"];
        let defaults = NodeGroupAutoscalingOptionsRequest::decode(&**request).unwrap().defaults.unwrap();
        let options = defaults.both().encode_to_vec();
        assert_eq!(duration_read_by(releases, &options, 8, 3), Some(600 * SECOND), "{}", releases.name);
        assert_eq!(duration_read_by(releases, &options, 9, 4), Some(1200 * SECOND), "{}", releases.name);
        let provision = releases.provision.then_some(900 * SECOND);
        assert_eq!(duration_read_by(releases, &options, 10, 5), provision, "{}", releases.name);
        let switch = releases.switches.then_some(Value::Int(1));
        assert_eq!((field(&options, 6), field(&options, 7)), (switch, switch), "{}", releases.name);
    }
}
