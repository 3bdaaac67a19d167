//! Where a field and its legacy twin meet: which leads, what is kept, what tells the client's generation.

use std::collections::BTreeMap;

use prost::Message;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::{
    LegacyDuration, NodeGroupAutoscalingOptions, PricingNodePriceRequest, PricingPodPriceRequest,
};
use stoker_proto::{Bytes, ClientGeneration, Duration};

use crate::requests::{at, lasting};

#[test]
fn the_newer_half_leads_when_the_halves_differ() {
    let price = PricingPodPriceRequest {
        pod: Bytes::from_static(b"old"),
        pod_bytes: Bytes::from_static(b"new"),
        start_time: Some(at(1)),
        end_time: Some(at(2)),
        start_timestamp: Some(at(3)),
        end_timestamp: Some(at(4)),
    };
    assert_eq!(price.pod(), Some(&Bytes::from_static(b"new")));
    assert_eq!(price.interval(), Some((at(3), at(4))));
    let half = PricingPodPriceRequest { end_timestamp: None, ..price };
    assert_eq!(half.interval(), Some((at(1), at(2))), "a pair is never mixed");
    let none = PricingPodPriceRequest { start_time: None, ..half };
    assert_eq!(none.interval(), None);
    assert_eq!(PricingPodPriceRequest::default().pod(), None);
    assert_eq!(PricingNodePriceRequest::default().interval(), None);

    let map = |key: &str| BTreeMap::from([(key.to_owned(), Bytes::new())]);
    let request = BestOptionsRequest { node_map: map("old"), node_bytes_map: map("new"), ..Default::default() };
    assert_eq!(request.templates().keys().collect::<Vec<_>>(), ["new"]);
    let old = vec![Bytes::from_static(b"old")];
    let option = ExpanderOption { pod: old.clone(), pod_bytes: vec![Bytes::from_static(b"new")], ..Default::default() };
    assert_eq!(option.pods(), ["new"]);
    assert_eq!(ExpanderOption { pod_bytes: Vec::new(), ..option }.pods(), old);
}

#[test]
fn durations_keep_sign_and_fraction() {
    for (nanos, seconds, rest) in [
        (0, 0, 0),
        (1, 0, 1),
        (90_500_000_000, 90, 500_000_000),
        (-1_500_000_000, -1, -500_000_000),
        (i64::MAX, 9_223_372_036, 854_775_807),
        (i64::MIN, -9_223_372_036, -854_775_808),
    ] {
        let old =
            NodeGroupAutoscalingOptions { scale_down_unneeded_time: Some(LegacyDuration { nanos }), ..Default::default() };
        let both = old.both();
        assert_eq!(both.scale_down_unneeded_duration, Some(Duration { seconds, nanos: rest }));
        assert_eq!(both.scale_down_unneeded_time, Some(LegacyDuration { nanos }), "{nanos} went there and back");
        assert_eq!(both.scale_down_unready_time, None, "what was absent stays absent");
    }
    for (seconds, nanos) in [(i64::MAX, i64::MAX), (i64::MIN, i64::MIN)] {
        let new = NodeGroupAutoscalingOptions { scale_down_unready_duration: Some(lasting(seconds)), ..Default::default() };
        assert_eq!(new.both().scale_down_unready_time, Some(LegacyDuration { nanos }), "the end of the scale");
    }
}

#[test]
fn a_generation_is_told_by_durations_alone() {
    let none = NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5, ..Default::default() };
    assert_eq!(ClientGeneration::from_defaults(&none), None);
    // A zero duration is present, with nothing in it or with a written zero.
    for bytes in [&[0x1a, 0x00][..], &[0x1a, 0x02, 0x08, 0x00]] {
        let zero = NodeGroupAutoscalingOptions::decode(bytes).unwrap();
        assert_eq!(ClientGeneration::from_defaults(&zero), Some(ClientGeneration::V1_25));
        assert_eq!(zero.unneeded(), Some(lasting(0)));
    }
    assert!(ClientGeneration::ALL.is_sorted());
    let can = |f: fn(ClientGeneration) -> bool| ClientGeneration::ALL.map(f);
    assert_eq!(can(ClientGeneration::maps_unimplemented), [false, true, true, true]);
    assert_eq!(can(ClientGeneration::takes_group_options), [false, true, true, false]);
    let names = ClientGeneration::ALL.map(ClientGeneration::releases);
    assert_eq!(names, ["1.25-1.28", "1.29-1.34.1", "1.34.2-1.34.5", "1.35+"]);
}
