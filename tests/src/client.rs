//! The autoscaler's side of the wire: its calls, one by one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption};
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_proto::externalgrpc::{
    CleanupRequest, ExternalGrpcNode, GetAvailableGpuTypesRequest, GpuLabelRequest, Instance, InstanceErrorInfo,
    InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest,
    NodeGroupAutoscalingOptionsResponse, NodeGroupDecreaseTargetSizeRequest, NodeGroupDeleteNodesRequest,
    NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest, NodeGroupNodesRequest, NodeGroupTargetSizeRequest,
    NodeGroupTemplateNodeInfoRequest, NodeGroupTemplateNodeInfoResponse, NodeGroupsRequest, PricingNodePriceRequest,
    PricingPodPriceRequest, RefreshRequest,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Error};

/// What the autoscaler's expander client accepts: 128 MiB each way.
const EXPANDER_LIMIT: usize = 128 << 20;

/// The annotation on a node that the autoscaler made up: why.
const FAKE_NODE_REASON: &str = "k8s.io/cluster-autoscaler/fake-node-reason";

/// A connection to each door. Making another is what a restarted autoscaler does.
#[derive(Debug, Clone)]
pub struct Client {
    provider: CloudProviderClient<Channel>,
    expander: ExpanderClient<Channel>,
    /// The connection to the provider.
    pub provider_channel: Channel,
    /// The connection to the expander.
    pub expander_channel: Channel,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When one of them does not answer.
    pub async fn connect(provider: SocketAddr, expander: SocketAddr) -> Result<Self, Error> {
        let connect = async |addr: SocketAddr| Endpoint::from_shared(format!("http://{addr}"))?.connect().await;
        let provider_channel = connect(provider).await?;
        Ok(Self::over(provider_channel, connect(expander).await?))
    }

    /// The same over connections of any kind.
    pub fn over(provider_channel: Channel, expander_channel: Channel) -> Self {
        let expander = ExpanderClient::new(expander_channel.clone())
            .max_encoding_message_size(EXPANDER_LIMIT)
            .max_decoding_message_size(EXPANDER_LIMIT);
        Self { provider: CloudProviderClient::new(provider_channel.clone()), expander, provider_channel, expander_channel }
    }

    fn provider(&self) -> CloudProviderClient<Channel> {
        self.provider.clone()
    }

    /// Waits until the service is ready: it answers `Refresh` from then on.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn ready(&self, limit: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.refresh().await.is_err() {
            anyhow::ensure!(begun.elapsed() < limit, "the service does not get ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// `Refresh`.
    pub async fn refresh(&self) -> Result<(), Status> {
        self.provider().refresh(RefreshRequest {}).await.map(drop)
    }

    /// `NodeGroups`.
    pub async fn groups(&self) -> Result<Vec<NodeGroup>, Status> {
        Ok(self.provider().node_groups(NodeGroupsRequest {}).await?.into_inner().node_groups)
    }

    /// `Refresh`, `NodeGroups`, and of these the one of that id.
    pub async fn group(&self, id: &str) -> Result<NodeGroup, Status> {
        self.refresh().await?;
        let groups = self.groups().await?;
        groups.into_iter().find(|group| group.id == id).ok_or_else(|| Status::not_found(format!("{id} is not listed")))
    }

    /// `NodeGroupForNode`: the id of the group, empty for none.
    pub async fn group_of(&self, node: Option<ExternalGrpcNode>) -> Result<String, Status> {
        let answer = self.provider().node_group_for_node(NodeGroupForNodeRequest { node }).await?.into_inner();
        Ok(answer.node_group.map(|group| group.id).unwrap_or_default())
    }

    /// `NodeGroupTargetSize`.
    pub async fn target(&self, id: &str) -> Result<i32, Status> {
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        Ok(self.provider().node_group_target_size(request).await?.into_inner().target_size)
    }

    /// `NodeGroupIncreaseSize`.
    pub async fn increase(&self, id: &str, delta: i32) -> Result<(), Status> {
        let request = NodeGroupIncreaseSizeRequest { delta, id: id.to_owned() };
        self.provider().node_group_increase_size(request).await.map(drop)
    }

    /// `NodeGroupDecreaseTargetSize`.
    pub async fn decrease(&self, id: &str, delta: i32) -> Result<(), Status> {
        let request = NodeGroupDecreaseTargetSizeRequest { delta, id: id.to_owned() };
        self.provider().node_group_decrease_target_size(request).await.map(drop)
    }

    /// `NodeGroupDeleteNodes`.
    pub async fn delete(&self, id: &str, nodes: Vec<ExternalGrpcNode>) -> Result<(), Status> {
        let request = NodeGroupDeleteNodesRequest { nodes, id: id.to_owned() };
        self.provider().node_group_delete_nodes(request).await.map(drop)
    }

    /// `NodeGroupNodes`.
    pub async fn nodes(&self, id: &str) -> Result<Vec<Instance>, Status> {
        let request = NodeGroupNodesRequest { id: id.to_owned() };
        Ok(self.provider().node_group_nodes(request).await?.into_inner().instances)
    }

    /// The ids of `NodeGroupNodes`.
    pub async fn ids(&self, id: &str) -> Result<Vec<String>, Status> {
        Ok(self.nodes(id).await?.into_iter().map(|instance| instance.id).collect())
    }

    /// `NodeGroupTemplateNodeInfo`.
    pub async fn template(&self, id: &str) -> Result<NodeGroupTemplateNodeInfoResponse, Status> {
        let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        Ok(self.provider().node_group_template_node_info(request).await?.into_inner())
    }

    /// `NodeGroupGetOptions`.
    pub async fn options(
        &self,
        id: &str,
        defaults: Option<NodeGroupAutoscalingOptions>,
    ) -> Result<NodeGroupAutoscalingOptionsResponse, Status> {
        let request = NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults };
        Ok(self.provider().node_group_get_options(request).await?.into_inner())
    }

    /// `PricingNodePrice`.
    pub async fn node_price(&self, request: PricingNodePriceRequest) -> Result<f64, Status> {
        Ok(self.provider().pricing_node_price(request).await?.into_inner().price)
    }

    /// `PricingPodPrice`.
    pub async fn pod_price(&self, request: PricingPodPriceRequest) -> Result<f64, Status> {
        Ok(self.provider().pricing_pod_price(request).await?.into_inner().price)
    }

    /// `GPULabel`.
    pub async fn gpu_label(&self) -> Result<String, Status> {
        Ok(self.provider().gpu_label(GpuLabelRequest {}).await?.into_inner().label)
    }

    /// The keys of `GetAvailableGPUTypes`.
    pub async fn gpu_types(&self) -> Result<Vec<String>, Status> {
        let answer = self.provider().get_available_gpu_types(GetAvailableGpuTypesRequest {}).await?;
        Ok(answer.into_inner().gpu_types.into_keys().collect())
    }

    /// `Cleanup`.
    pub async fn cleanup(&self) -> Result<(), Status> {
        self.provider().cleanup(CleanupRequest {}).await.map(drop)
    }

    /// `BestOptions`: the groups of the reply.
    pub async fn best_options(&self, options: Vec<ExpanderOption>) -> Result<Vec<String>, Status> {
        let request = BestOptionsRequest { options, ..BestOptionsRequest::default() };
        let answer = self.expander.clone().best_options(request).await?.into_inner();
        Ok(answer.options.into_iter().map(|option| option.node_group_id).collect())
    }
}

/// The node that the autoscaler makes up for an instance without one.
pub fn synthetic(id: &str, reason: &str) -> ExternalGrpcNode {
    let annotations = BTreeMap::from([(FAKE_NODE_REASON.to_owned(), reason.to_owned())]);
    ExternalGrpcNode { provider_id: id.to_owned(), name: id.to_owned(), annotations, ..ExternalGrpcNode::default() }
}

/// A registered node as it crosses the wire.
pub fn registered(name: &str, provider_id: &str) -> ExternalGrpcNode {
    ExternalGrpcNode { provider_id: provider_id.to_owned(), name: name.to_owned(), ..ExternalGrpcNode::default() }
}

/// What an instance is doing, and its error.
pub fn status(instance: &Instance) -> (InstanceState, Option<&InstanceErrorInfo>) {
    let status = instance.status.as_ref();
    (status.map_or(InstanceState::Unspecified, InstanceStatus::instance_state), status.and_then(|s| s.error_info.as_ref()))
}

/// The failed instances: those that the autoscaler would take for creation errors.
pub fn failed(instances: &[Instance]) -> Vec<&Instance> {
    let counts = |instance: &&Instance| {
        let (state, error) = status(instance);
        state == InstanceState::InstanceCreating && error.is_some_and(|error| !error.error_code.is_empty())
    };
    instances.iter().filter(counts).collect()
}
