use stoker_core::base::ids::IdError;
use stoker_core::decide::orders::{DeleteRefused, OrderRefused};
use stoker_core::market::price::Unpriced;
use stoker_proto::externalgrpc::cloud_provider_server::CloudProvider as _;
use stoker_proto::externalgrpc::*;
use tonic::{Code, Request, Status};

use super::super::provider::Provider;
use super::super::status::Refused;
use super::*;
use crate::publish::CallRefused;

#[test]
fn every_refusal_has_its_code_its_place_and_a_cure() {
    let group = || group_id(ONE_A);
    let order = |why: OrderRefused| Refused::from(why);
    let delete = |why: DeleteRefused| Refused::from(CallRefused::from(why));
    let not_ready = |why: NotReady| Refused::from(why);
    let table = [
        (order(OrderRefused::UnknownGroup(group())), Code::NotFound, "Refresh and NodeGroups"),
        (order(OrderRefused::BadDelta(-1, "greater than zero")), Code::InvalidArgument, "greater than zero"),
        (order(OrderRefused::Closed { group: group(), why: "frozen".into() }), Code::FailedPrecondition, "another group"),
        (
            order(OrderRefused::NoRoom { group: group(), asked: 9, room: 2, why: "quota".into() }),
            Code::ResourceExhausted,
            "no more than",
        ),
        (delete(DeleteRefused::Busy { node: "n".into(), pods: vec!["ns/p".into()] }), Code::FailedPrecondition, "drain it"),
        (
            delete(DeleteRefused::WrongGroup { node: "n".into(), actual: group(), asked: group_id("g") }),
            Code::InvalidArgument,
            "NodeGroupForNode",
        ),
        (not_ready(NotReady::Starting), Code::Unavailable, "few seconds"),
        (not_ready(NotReady::Supplier("aws".into())), Code::Unavailable, "credentials"),
        (not_ready(NotReady::Kubernetes), Code::Unavailable, "API server"),
        (not_ready(NotReady::KubernetesBroken), Code::Unavailable, "/readyz"),
        (not_ready(NotReady::Markets("aws".into())), Code::Unavailable, "zones and prices"),
        (not_ready(NotReady::Foreign), Code::Unavailable, "take karpenter out"),
        (not_ready(NotReady::Journal("the disk is full; free space on it".into())), Code::Unavailable, "free space on it"),
        (Refused::Call(CallRefused::Stopped), Code::Unavailable, "ask again"),
        (Refused::Field { field: "id", fault: "is empty".into(), cure: "name one" }, Code::InvalidArgument, "name one"),
        (Refused::NotOurs("n".into()), Code::NotFound, "stoker.dev/group"),
        (Refused::Unpriced { group: group(), why: Unpriced::Unknown }, Code::FailedPrecondition, "prices:"),
        (Refused::NoPrices, Code::FailedPrecondition, "prices:"),
        (Refused::NoTemplate(group()), Code::Internal, "bug"),
        (Refused::NotListed, Code::Unavailable, "Refresh first"),
    ];
    for (refused, code, cure) in table {
        let status = refused.status("SomeCall");
        assert_eq!(status.code(), code, "{refused:?}");
        assert!(status.message().starts_with("SomeCall: ") && status.message().matches(cure).count() == 1, "{status:?}");
    }
}

#[test]
fn a_message_fits_a_header_whatever_it_quotes() {
    let pods = (0..5_000).map(|n| format!("namespace/☃-{n}")).collect();
    let status = Refused::Call(DeleteRefused::Busy { node: "n".into(), pods }.into()).status("NodeGroupDeleteNodes");
    assert!(status.message().len() <= 1024 && status.message().ends_with('…'), "{}", status.message().len());
    let huge = Refused::NotOurs("x".repeat(1 << 20)).status("PricingNodePrice");
    assert!(huge.message().len() < 200, "{huge:?}");
}

async fn increase(provider: &Provider, id: &str, delta: i32) -> Status {
    let request = NodeGroupIncreaseSizeRequest { id: id.to_owned(), delta };
    provider.node_group_increase_size(Request::new(request)).await.unwrap_err()
}

async fn decrease(provider: &Provider, id: &str, delta: i32) -> Status {
    let request = NodeGroupDecreaseTargetSizeRequest { id: id.to_owned(), delta };
    provider.node_group_decrease_target_size(Request::new(request)).await.unwrap_err()
}

async fn delete(provider: &Provider, id: &str, nodes: Vec<ExternalGrpcNode>) -> Status {
    let request = NodeGroupDeleteNodesRequest { id: id.to_owned(), nodes };
    provider.node_group_delete_nodes(Request::new(request)).await.unwrap_err()
}

async fn target(provider: &Provider, id: &str) -> Status {
    provider.node_group_target_size(Request::new(NodeGroupTargetSizeRequest { id: id.to_owned() })).await.unwrap_err()
}

#[tokio::test]
async fn ids_that_cannot_be_are_invalid_and_reach_nobody() {
    let mut handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    for bad in [String::new(), "x".repeat(1 << 20), "a\nb".to_owned(), "\u{0}".to_owned()] {
        for refused in [
            increase(&provider, &bad, 1).await,
            decrease(&provider, &bad, -1).await,
            delete(&provider, &bad, vec![node("a", "b")]).await,
            target(&provider, &bad).await,
        ] {
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
            assert!(refused.message().contains(": id is invalid: node group id "), "{refused:?}");
            assert!(refused.message().len() < 200, "{refused:?}");
        }
    }
    for bad in [ExternalGrpcNode::default(), node(&"x".repeat(1 << 20), "n"), node("aws:///i", "a\u{7}b")] {
        let refused = delete(&provider, ONE_A, vec![node("aws:///i-1", "n"), bad]).await;
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().starts_with("NodeGroupDeleteNodes: nodes "), "{refused:?}");
    }
    let refused = delete(&provider, ONE_A, vec![node("a", "b"); 10_001]).await;
    assert!(refused.message().contains("10001 nodes") && refused.message().contains("several calls"), "{refused:?}");
    assert!(handle.untouched());
    // The ids' own rules are what is told.
    let rule = IdError::Control { kind: "node group id", at: 1 }.to_string();
    assert!(target(&provider, "a\nb").await.message().contains(&rule));
}

#[tokio::test]
async fn groups_that_never_were_are_not_found() {
    let mut handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    for refused in [
        decrease(&provider, "never", -1).await,
        delete(&provider, "never", vec![node("a", "b")]).await,
        target(&provider, "never").await,
    ] {
        assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
        assert!(refused.message().contains("never") && refused.message().contains("NodeGroups"), "{refused:?}");
    }
    assert!(handle.untouched());
}

#[tokio::test]
async fn a_stopped_engine_is_unavailable() {
    let handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    drop(handle.asked);
    for refused in [
        increase(&provider, ONE_A, 1).await,
        decrease(&provider, ONE_A, -1).await,
        delete(&provider, ONE_A, vec![node("a", "b")]).await,
    ] {
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert!(refused.message().contains("shutting down"), "{refused:?}");
    }
}
