use std::collections::BTreeMap;

use jiff::SignedDuration;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::catalogue::template::GROUP_LABEL;
use stoker_core::market::price::NoSignal;
use stoker_proto::externalgrpc::cloud_provider_server::CloudProvider as _;
use stoker_proto::externalgrpc::{PricingNodePriceRequest, PricingPodPriceRequest};
use tonic::{Code, Request, Status};

use super::super::provider::Provider;
use super::*;

fn at(seconds: i64) -> stoker_proto::Timestamp {
    stoker_proto::Timestamp { seconds: now().as_second() + seconds, nanos: 0 }
}

async fn node_price_over(provider: &Provider, node: ExternalGrpcNode, seconds: i64) -> Result<f64, Status> {
    let request = PricingNodePriceRequest {
        node: Some(node),
        start_timestamp: Some(at(0)),
        end_timestamp: Some(at(seconds)),
        ..PricingNodePriceRequest::default()
    };
    provider.pricing_node_price(Request::new(request)).await.map(|reply| reply.into_inner().price)
}

async fn node_price(provider: &Provider, node: ExternalGrpcNode) -> Result<f64, Status> {
    node_price_over(provider, node, 3600).await
}

async fn pod_price(provider: &Provider, pod: Bytes) -> Result<f64, Status> {
    let request = PricingPodPriceRequest {
        pod_bytes: pod,
        start_timestamp: Some(at(0)),
        end_timestamp: Some(at(3600)),
        ..PricingPodPriceRequest::default()
    };
    provider.pricing_pod_price(Request::new(request)).await.map(|reply| reply.into_inner().price)
}

fn example(group: &str) -> ExternalGrpcNode {
    node("", &format!("template-node-for-{group}-5577006791947779410"))
}

/// To a micro-dollar.
#[track_caller]
fn dollars(price: Result<f64, Status>, expected: f64) {
    let price = price.unwrap();
    assert!((price - expected).abs() < 1e-6, "{price} is not {expected}");
}

#[tokio::test]
async fn a_node_costs_what_the_next_one_costs_for_the_time_asked() {
    let mut shown = view();
    fill(
        &mut shown,
        ONE_B,
        vec![InstanceView { id: "aws:///i-1".into(), state: crate::publish::view::InstanceStatus::Running }],
    );
    let handle: Handle<_> = handle!(shown);
    let provider = Provider::new(handle.engine.clone());
    // Told by the name that the autoscaler makes up, by our label, by whose it is.
    dollars(node_price(&provider, example(ONE_A)).await, 0.8);
    let labels = BTreeMap::from([(GROUP_LABEL.to_owned(), TWO_A.to_owned())]);
    dollars(node_price(&provider, ExternalGrpcNode { labels, ..example("whatever") }).await, 1.5);
    dollars(node_price(&provider, node("aws:///i-1", "n")).await, 0.9);
    // A label that names nothing is no reason to give up.
    let labels = BTreeMap::from([(GROUP_LABEL.to_owned(), "gone".to_owned())]);
    dollars(node_price(&provider, ExternalGrpcNode { labels, ..example(ONE_A) }).await, 0.8);
    dollars(node_price_over(&provider, example(ONE_A), 1800).await, 0.4);
    dollars(node_price_over(&provider, example(ONE_A), 24 * 3600).await, 19.2);
    assert_eq!(node_price(&provider, example("foreign")).await.unwrap_err().code(), Code::NotFound);
    // Up to 1.34.1 the times come in the older fields.
    let request = PricingNodePriceRequest {
        node: Some(example(ONE_A)),
        start_time: Some(at(0)),
        end_time: Some(at(3600)),
        ..PricingNodePriceRequest::default()
    };
    dollars(provider.pricing_node_price(Request::new(request)).await.map(|reply| reply.into_inner().price), 0.8);
}

#[tokio::test]
async fn a_closed_group_costs_what_its_pool_would_buy_and_nothing_is_free() {
    let mut shown = view();
    close(&mut shown, ONE_A);
    edit(&mut shown, ONE_B, |group| group.limits.next_price = Some(UsdPerHour::ZERO));
    close(&mut shown, TWO_A);
    edit(&mut shown, TWO_A, |group| {
        let unpriced = Some(Entry::NoSignal(NoSignal::Floor));
        Arc::make_mut(&mut group.group).offers[0].entry = unpriced;
    });
    let handle: Handle<_> = handle!(shown);
    let provider = Provider::new(handle.engine.clone());
    dollars(node_price(&provider, example(ONE_A)).await, 0.8);
    assert!(node_price(&provider, example(ONE_B)).await.unwrap() > 0.0);
    let refused = node_price(&provider, example(TWO_A)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains(TWO_A) && refused.message().contains("prices:"), "{refused:?}");
}

#[tokio::test]
async fn a_lapsed_quote_is_no_price() {
    let mut shown = view();
    close(&mut shown, ONE_A);
    edit(&mut shown, ONE_A, |group| {
        let group = Arc::make_mut(&mut group.group);
        let Some(Entry::Price(quote)) = &mut group.offers[0].entry else { panic!("a price") };
        quote.kind = QuoteKind::Live;
        quote.as_of = Some(now() - SignedDuration::from_hours(2));
    });
    let handle: Handle<_> = handle!(shown);
    let refused = node_price(&Provider::new(handle.engine), example(ONE_A)).await.unwrap_err();
    assert!(refused.message().contains("price has expired"), "{refused:?}");
}

#[tokio::test]
async fn a_pod_costs_the_cheapest_cpu_memory_and_gpus() {
    let handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    // Of one GPU the half of a node at $1.50 is the cheapest; CPU and memory are told by what a template leaves to pods.
    let gpu = 0.75;
    let shown = view();
    let per = |id: &str, price: f64| {
        let node = shown.groups[&NodeGroupId::new(id).unwrap()].group.template.allocatable;
        let (milli_cpu, mib) =
            (f64::from(u32::try_from(node.milli_cpu).unwrap()), f64::from(u32::try_from(node.memory.0).unwrap()));
        (price / milli_cpu, price / mib)
    };
    let cheapest = [per(ONE_A, 0.8), per(ONE_B, 0.9), per(TWO_A, 1.5)]
        .into_iter()
        .fold((f64::MAX, f64::MAX), |least, here| (least.0.min(here.0), least.1.min(here.1)));
    let expected = 2.0 * gpu + 3500.0 * cheapest.0 + 2048.0 * cheapest.1;
    let price = pod_price(&provider, pod("p", &[("cpu", "3500m"), ("memory", "2Gi"), ("nvidia.com/gpu", "2")])).await;
    dollars(price, expected);
    // Asked again, from what was worked out for this view; another view has other prices.
    let one_gpu = || gpu_pod("p", 1);
    let before = pod_price(&provider, one_gpu()).await.unwrap();
    dollars(pod_price(&provider, one_gpu()).await, before);
    let mut dear = view();
    for id in ALL {
        edit(&mut dear, id, |group| group.limits.next_price = Some(UsdPerHour(9_000_000)));
    }
    handle.show(dear);
    assert!(pod_price(&provider, one_gpu()).await.unwrap() > 4.0 * before);
}

#[tokio::test]
async fn a_slice_costs_its_part_of_the_cheapest_node_that_has_it() {
    let mut shown = view();
    edit(&mut shown, ONE_B, |group| {
        let template = &mut Arc::make_mut(&mut group.group).template;
        template.allocatable.gpus = 0;
        template.slices = [("nvidia.com/mig-1g.10gb", 3)].into_iter().collect();
    });
    let handle: Handle<_> = handle!(shown);
    let provider = Provider::new(handle.engine.clone());
    let asking = async |name, amount| pod_price(&provider, pod("p", &[(name, amount)])).await.unwrap();
    let idle = pod_price(&provider, pod("p", &[])).await.unwrap();
    // Two of three of a node at $0.90.
    dollars(Ok(asking("nvidia.com/mig-1g.10gb", "2").await - idle), 0.6);
    // What nobody has is worth a whole GPU, the half of a node at $1.50.
    dollars(Ok(asking("nvidia.com/mig-3g.40gb", "1").await - idle), 0.75);
}

#[tokio::test]
async fn no_pod_is_free() {
    let mut free = view();
    for id in ALL {
        edit(&mut free, id, |group| group.limits.next_price = Some(UsdPerHour::ZERO));
    }
    for shown in [view(), free] {
        let handle: Handle<_> = handle!(shown);
        let provider = Provider::new(handle.engine.clone());
        // The pod by which the autoscaler steadies its scores, and one that asks for nothing.
        assert!(pod_price(&provider, pod("stabilize", &[("cpu", "500m"), ("memory", "500Mi")])).await.unwrap() > 0.0);
        assert!(pod_price(&provider, pod("idle", &[])).await.unwrap() > 0.0);
        let huge = pod("huge", &[("cpu", "9007199254740991"), ("memory", "15Ei"), ("nvidia.com/gpu", "18446744073709551615")]);
        assert!(pod_price(&provider, huge).await.unwrap().is_finite());
    }
}

#[tokio::test]
async fn without_prices_pods_have_none() {
    let mut bare = view();
    bare.groups.clear();
    let handle: Handle<_> = handle!(bare);
    let provider = Provider::new(handle.engine.clone());
    assert_eq!(pod_price(&provider, gpu_pod("p", 1)).await.unwrap_err().code(), Code::FailedPrecondition);
    handle.show(View::starting(now(), Arc::new(catalogue())));
    assert_eq!(pod_price(&provider, gpu_pod("p", 1)).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(node_price(&provider, example(ONE_A)).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn requests_that_cannot_be_priced_name_what_is_missing() {
    let handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    let times = |from: Option<stoker_proto::Timestamp>, to| PricingNodePriceRequest {
        node: Some(example(ONE_A)),
        start_timestamp: from,
        end_timestamp: to,
        ..PricingNodePriceRequest::default()
    };
    let nonsense = stoker_proto::Timestamp { seconds: i64::MAX, nanos: -1 };
    let half = PricingNodePriceRequest { end_time: Some(at(60)), ..times(Some(at(0)), None) };
    let nobody = PricingNodePriceRequest { node: None, ..times(Some(at(0)), Some(at(60))) };
    for (request, named) in [
        (times(None, None), "interval"),
        (half, "interval"),
        (times(Some(at(60)), Some(at(60))), "interval"),
        (times(Some(at(60)), Some(at(0))), "interval"),
        (times(Some(at(0)), Some(nonsense)), "interval"),
        (nobody, "node"),
    ] {
        let refused = provider.pricing_node_price(Request::new(request)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(&format!("PricingNodePrice: {named}")), "{refused:?}");
    }
    for broken in [Bytes::new(), Bytes::from_static(b"\xff"), pod("p", &[("cpu", "lots")])] {
        let refused = pod_price(&provider, broken).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("PricingPodPrice: pod"), "{refused:?}");
    }
}
