//! Calls of the external cloud provider, with bytes, by the real codec to the real engine.
//!
//! An input is a list of calls: the first byte of each is the method, what follows its message. An
//! answer names only what there is; targets stay within the groups' limits.

use stoker_proto::externalgrpc::cloud_provider_server::CloudProviderServer;
use stoker_proto::externalgrpc::{NodeGroupTargetSizeResponse, NodeGroupsResponse, PricingNodePriceResponse};
use stoker_service::api::grpc::provider::Provider;
use tonic::Code;

use super::{parts, rpc, service};

/// The methods, by the first byte of a call.
pub(crate) const METHODS: [&str; 15] = [
    "NodeGroups",
    "NodeGroupForNode",
    "PricingNodePrice",
    "PricingPodPrice",
    "GPULabel",
    "GetAvailableGPUTypes",
    "Cleanup",
    "Refresh",
    "NodeGroupTargetSize",
    "NodeGroupIncreaseSize",
    "NodeGroupDeleteNodes",
    "NodeGroupDecreaseTargetSize",
    "NodeGroupNodes",
    "NodeGroupTemplateNodeInfo",
    "NodeGroupGetOptions",
];

/// Most calls of an input.
const MOST_CALLS: usize = 8;
/// Nodes of a group, by the policy.
const MOST_NODES: i32 = 10;

pub(super) fn run(data: &[u8]) {
    let running = service::running();
    let server = CloudProviderServer::new(Provider::new(running.service.running().handle.clone()));
    running.runtime.block_on(async {
        for call in parts(data).take(MOST_CALLS) {
            let Some((method, message)) = call.split_first() else { continue };
            let method = METHODS[usize::from(*method) % METHODS.len()];
            let path = format!("/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/{method}");
            let answer = rpc::call(server.clone(), &path, &[message]).await;
            // What the engine cannot do now is unavailable; a method that there is not would be unimplemented.
            assert_ne!(answer.status.code(), Code::Unimplemented, "{method}: {:?}", answer.status);
            assert!(answer.status.code() == Code::Ok || !answer.status.message().is_empty(), "{method}");
            match method {
                "NodeGroups" => {
                    let groups = answer.only::<NodeGroupsResponse>().map(|answer| answer.node_groups).unwrap_or_default();
                    assert!(groups.iter().all(|group| service::GROUPS.contains(&group.id.as_str())), "{groups:?}");
                }
                "NodeGroupTargetSize" => {
                    let target = answer.only::<NodeGroupTargetSizeResponse>().map_or(0, |answer| answer.target_size);
                    assert!((0..=MOST_NODES).contains(&target), "{target}");
                }
                "PricingNodePrice" | "PricingPodPrice" => {
                    let price = answer.only::<PricingNodePriceResponse>().map_or(0.0, |answer| answer.price);
                    assert!(price.is_finite() && price >= 0.0, "{method}: {price}");
                }
                _ => {}
            }
        }
        let view = running.service.running().handle.view();
        assert!(view.groups.values().all(|group| group.limits.target <= MOST_NODES.unsigned_abs()));
    });
}
