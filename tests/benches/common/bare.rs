//! The ceiling: tonic and the same messages, with nothing behind them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use stoker_proto::expander::expander_server::{Expander, ExpanderServer};
use stoker_proto::expander::{BestOptionsRequest, BestOptionsResponse};
use stoker_proto::externalgrpc as wire;
use stoker_proto::externalgrpc::cloud_provider_server::{CloudProvider, CloudProviderServer};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// What a request may have, as the service allows it.
pub(crate) const LIMIT: usize = 128 << 20;

/// Answers always the same.
#[derive(Debug, Clone)]
pub(crate) struct Bare {
    /// What it says every node's group to be.
    pub(crate) group: wire::NodeGroup,
    /// What it says every target to be.
    pub(crate) target: i32,
}

impl Bare {
    /// Serves both doors on one loopback port, for as long as the process lives.
    pub(crate) fn serve(self) -> Result<SocketAddr> {
        let incoming =
            TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("a loopback port")?.with_nodelay(Some(true));
        let addr = incoming.local_addr()?;
        let served = Server::builder()
            .add_service(CloudProviderServer::new(self.clone()).max_decoding_message_size(LIMIT))
            .add_service(ExpanderServer::new(self).max_decoding_message_size(LIMIT))
            .serve_with_incoming(incoming);
        tokio::spawn(async move {
            if let Err(error) = served.await {
                eprintln!("the bare service ended: {error}");
            }
        });
        Ok(addr)
    }
}

#[tonic::async_trait]
impl Expander for Bare {
    async fn best_options(&self, request: Request<BestOptionsRequest>) -> Result<Response<BestOptionsResponse>, Status> {
        let first = request.get_ref().options.first().map(|option| option.node_group_id.clone());
        Ok(Response::new(BestOptionsResponse::keeping(first)))
    }
}

/// The provider: two calls that answer, and the others that do not.
macro_rules! provider {
    ($($call:ident: $request:ident => $response:ident,)*) => {
        #[tonic::async_trait]
        impl CloudProvider for Bare {
            async fn node_group_for_node(
                &self,
                _: Request<wire::NodeGroupForNodeRequest>,
            ) -> Result<Response<wire::NodeGroupForNodeResponse>, Status> {
                Ok(Response::new(wire::NodeGroupForNodeResponse { node_group: Some(self.group.clone()) }))
            }

            async fn node_group_target_size(
                &self,
                _: Request<wire::NodeGroupTargetSizeRequest>,
            ) -> Result<Response<wire::NodeGroupTargetSizeResponse>, Status> {
                Ok(Response::new(wire::NodeGroupTargetSizeResponse { target_size: self.target }))
            }

            $(async fn $call(&self, _: Request<wire::$request>) -> Result<Response<wire::$response>, Status> {
                Err(Status::unimplemented(stringify!($call)))
            })*
        }
    };
}

provider! {
    node_groups: NodeGroupsRequest => NodeGroupsResponse,
    pricing_node_price: PricingNodePriceRequest => PricingNodePriceResponse,
    pricing_pod_price: PricingPodPriceRequest => PricingPodPriceResponse,
    gpu_label: GpuLabelRequest => GpuLabelResponse,
    get_available_gpu_types: GetAvailableGpuTypesRequest => GetAvailableGpuTypesResponse,
    cleanup: CleanupRequest => CleanupResponse,
    refresh: RefreshRequest => RefreshResponse,
    node_group_increase_size: NodeGroupIncreaseSizeRequest => NodeGroupIncreaseSizeResponse,
    node_group_delete_nodes: NodeGroupDeleteNodesRequest => NodeGroupDeleteNodesResponse,
    node_group_decrease_target_size: NodeGroupDecreaseTargetSizeRequest => NodeGroupDecreaseTargetSizeResponse,
    node_group_nodes: NodeGroupNodesRequest => NodeGroupNodesResponse,
    node_group_template_node_info: NodeGroupTemplateNodeInfoRequest => NodeGroupTemplateNodeInfoResponse,
    node_group_get_options: NodeGroupAutoscalingOptionsRequest => NodeGroupAutoscalingOptionsResponse,
}
