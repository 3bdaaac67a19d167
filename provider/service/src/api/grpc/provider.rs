//! The external cloud provider. Reads answer from the published view and never wait; changes go to the engine, and there is no second
//! path to a cloud.
//!
//! What makes the answers look as they do is the autoscaler's handling of each: an error from most of these calls ends its loop, and one
//! from `NodeGroups` makes it forget what it is waiting for. So the place to refuse is `Refresh`, and elsewhere the answer is the best
//! that is known.

use std::sync::Arc;

use arc_swap::Guard;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::base::sabotage;
use stoker_core::base::text::with_causes;
use stoker_core::catalogue::template::{GPU_LABEL, GROUP_LABEL};
use stoker_core::decide::orders::NodeRef;
use stoker_proto::Any;
use stoker_proto::externalgrpc::cloud_provider_server::CloudProvider;
use stoker_proto::externalgrpc::{
    CleanupRequest, CleanupResponse, ExternalGrpcNode, GetAvailableGpuTypesRequest, GetAvailableGpuTypesResponse,
    GpuLabelRequest, GpuLabelResponse, NodeGroup, NodeGroupAutoscalingOptions, NodeGroupAutoscalingOptionsRequest,
    NodeGroupAutoscalingOptionsResponse, NodeGroupDecreaseTargetSizeRequest, NodeGroupDecreaseTargetSizeResponse,
    NodeGroupDeleteNodesRequest, NodeGroupDeleteNodesResponse, NodeGroupForNodeRequest, NodeGroupForNodeResponse,
    NodeGroupIncreaseSizeRequest, NodeGroupIncreaseSizeResponse, NodeGroupNodesRequest, NodeGroupNodesResponse,
    NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse, NodeGroupTemplateNodeInfoRequest,
    NodeGroupTemplateNodeInfoResponse, NodeGroupsRequest, NodeGroupsResponse, PricingNodePriceRequest,
    PricingNodePriceResponse, PricingPodPriceRequest, PricingPodPriceResponse, RefreshRequest, RefreshResponse,
};
use tonic::{Request, Response, Status};

use super::price::UnitPriceCache;
use super::shown::{Reading, Seen, Shown};
use super::status::Refused;
use super::{convert, price};
use crate::api::confirm::Confirm;
use crate::engine::EngineHandle;
use crate::kube::pods::pod_facts;
use crate::listener::PeerInfo;
use crate::publish::view::{GroupView, InstanceView, View};

/// What the autoscaler names the example node of a group by, before the group's id and a random number.
const EXAMPLE_NODE: &str = "template-node-for-";

/// The external cloud provider over an engine.
#[derive(Debug)]
pub struct Provider {
    engine: EngineHandle,
    shown: Shown,
    unit_prices: UnitPriceCache,
    /// Asks probes before nodes go; `None` where no probe is listened to.
    confirm: Option<Arc<Confirm>>,
}

impl Provider {
    /// A provider over this engine.
    pub fn new(engine: EngineHandle) -> Self {
        Self { engine, shown: Shown::default(), unit_prices: UnitPriceCache::default(), confirm: None }
    }

    /// One that asks probes before nodes go.
    #[must_use]
    pub fn confirming(self, confirm: Option<Arc<Confirm>>) -> Self {
        Self { confirm, ..self }
    }

    fn read(&self) -> Reading {
        self.shown.read(&self.engine)
    }

    async fn open(&self, connection: u64) -> Result<(), Refused> {
        self.engine.refresh(connection).await?;
        self.shown.note(&self.engine);
        Ok(())
    }

    fn owner(&self, node: Option<&ExternalGrpcNode>) -> Option<NodeGroup> {
        let node = node?;
        Some(self.read().owner(&node.provider_id, &node.name)?.node_group())
    }

    async fn increase(&self, request: NodeGroupIncreaseSizeRequest) -> Result<(), Refused> {
        let order = self.engine.increase(convert::group_id(&request.id)?, request.delta).await?;
        tracing::debug!(%order, group = request.id, delta = request.delta, "order taken");
        Ok(())
    }

    /// The autoscaler takes the same missing node back by three calls, in any order: what is left to take is little or nothing, and that
    /// is fine. For a group that is gone it is nothing.
    async fn decrease(&self, request: NodeGroupDecreaseTargetSizeRequest) -> Result<(), Refused> {
        let group = self.known_group(&request.id)?;
        let withdrawn = self.engine.decrease(group, request.delta).await?;
        tracing::debug!(group = request.id, delta = request.delta, withdrawn = withdrawn.len(), "target lowered");
        Ok(())
    }

    async fn delete(&self, request: NodeGroupDeleteNodesRequest) -> Result<(), Refused> {
        let nodes = convert::node_refs(request.nodes)?;
        let group = self.known_group(&request.id)?;
        if let Some(confirm) = &self.confirm {
            let view = Guard::into_inner(self.engine.view());
            confirm.quiet(&view, &group, &nodes).await?;
        }
        let records = self.engine.delete(group, nodes).await?;
        tracing::debug!(group = request.id, records = records.len(), "nodes deleted");
        Ok(())
    }

    fn known_group(&self, id: &str) -> Result<NodeGroupId, Refused> {
        self.read().group(id).map(|seen| seen.id().clone())
    }

    fn template(&self, id: &str) -> Result<NodeGroupTemplateNodeInfoResponse, Refused> {
        let reading = self.read();
        let seen = reading.group(id)?;
        if seen.template().is_empty() {
            return Err(Refused::NoTemplate(seen.id().clone()));
        }
        if sabotage::on("template-one-field") {
            return Ok(NodeGroupTemplateNodeInfoResponse { node_bytes: seen.template().clone(), ..Default::default() });
        }
        Ok(NodeGroupTemplateNodeInfoResponse::both(seen.template().clone()))
    }

    fn node_price(&self, request: &PricingNodePriceRequest) -> Result<f64, Refused> {
        let newer = || request.start_timestamp.zip(request.end_timestamp);
        let interval = if sabotage::on("prices-new-fields-only") { newer() } else { request.interval() };
        let hours = convert::hours(interval)?;
        let node = convert::node(request.node.as_ref())?;
        let view = self.engine.view();
        let Some(group) = priced_group(&view, node) else {
            view.ready.clone()?;
            return Err(Refused::NotOurs(node.name.clone()));
        };
        let rate = price::node(&view, group).map_err(|why| Refused::Unpriced { group: group.group.id.clone(), why })?;
        Ok(price::dollars(rate, hours))
    }

    fn pod_price(&self, request: &PricingPodPriceRequest) -> Result<f64, Refused> {
        let bad = |fault: String| Refused::Field { field: "pod", fault, cure: "send a serialised core/v1 Pod" };
        let hours = convert::hours(request.interval())?;
        let pod = request.pod().ok_or_else(|| bad("is missing".to_owned()))?;
        let pod = pod_facts(pod).map_err(|why| bad(format!("cannot be read: {}", with_causes(&why))))?;
        let view = Guard::into_inner(self.engine.view());
        let Some(prices) = self.unit_prices.of(&view) else {
            view.ready.clone()?;
            return Err(Refused::NoPrices);
        };
        if sabotage::on("pods-cost-nothing") {
            return Ok(0.0);
        }
        Ok(prices.dollars(&pod.requests, hours))
    }
}

/// The group whose example a node is: by our label, which every template carries; for a real node by whose it is; else by the name that
/// the autoscaler makes up.
fn priced_group<'a>(view: &'a View, node: &ExternalGrpcNode) -> Option<&'a GroupView> {
    let group = |id: &str| NodeGroupId::find(&view.groups, id).map(AsRef::as_ref);
    let labelled = node.labels.get(GROUP_LABEL).and_then(|id| group(id));
    let owned = || view.owner(&node.provider_id, &node.name).and_then(|id| group(id.as_str()));
    labelled.or_else(owned).or_else(|| example_of(&node.name, group))
}

/// Both the id and what follows it may have dashes, so the longest id that is known wins.
fn example_of<T>(name: &str, group: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut id = name.strip_prefix(EXAMPLE_NODE)?;
    while let Some((shorter, _)) = id.rsplit_once('-') {
        if let Some(found) = group(shorter) {
            return Some(found);
        }
        id = shorter;
    }
    None
}

/// Answers with `done`, or with what was wrong at `call`.
fn answer<T>(call: &'static str, done: Result<T, Refused>) -> Result<Response<T>, Status> {
    done.map(Response::new).map_err(|refused| refused.status(call))
}

#[tonic::async_trait]
impl CloudProvider for Provider {
    async fn node_groups(&self, _: Request<NodeGroupsRequest>) -> Result<Response<NodeGroupsResponse>, Status> {
        let reading = self.read();
        let listed = reading.listed().map(|groups| NodeGroupsResponse { node_groups: groups.map(Seen::remarked).collect() });
        answer("NodeGroups", listed)
    }

    async fn node_group_for_node(
        &self,
        request: Request<NodeGroupForNodeRequest>,
    ) -> Result<Response<NodeGroupForNodeResponse>, Status> {
        if sabotage::on("foreign-node-error") && self.owner(request.get_ref().node.as_ref()).is_none() {
            return Err(Status::not_found("not a node of Stoker's"));
        }
        // "Not ours" is a group without an id. An unset one says the same, but not to a client that reads its id without looking.
        let node_group = self.owner(request.get_ref().node.as_ref()).unwrap_or_default();
        Ok(Response::new(NodeGroupForNodeResponse { node_group: Some(node_group) }))
    }

    async fn pricing_node_price(
        &self,
        request: Request<PricingNodePriceRequest>,
    ) -> Result<Response<PricingNodePriceResponse>, Status> {
        let price = self.node_price(request.get_ref());
        answer("PricingNodePrice", price.map(|price| PricingNodePriceResponse { price }))
    }

    async fn pricing_pod_price(
        &self,
        request: Request<PricingPodPriceRequest>,
    ) -> Result<Response<PricingPodPriceResponse>, Status> {
        let price = self.pod_price(request.get_ref());
        answer("PricingPodPrice", price.map(|price| PricingPodPriceResponse { price }))
    }

    async fn gpu_label(&self, _: Request<GpuLabelRequest>) -> Result<Response<GpuLabelResponse>, Status> {
        Ok(Response::new(GpuLabelResponse { label: GPU_LABEL.to_owned() }))
    }

    async fn get_available_gpu_types(
        &self,
        _: Request<GetAvailableGpuTypesRequest>,
    ) -> Result<Response<GetAvailableGpuTypesResponse>, Status> {
        let view = self.engine.view();
        let models = view.catalogue.groups.values().map(|group| (group.spec.gpu_model.to_string(), Any::default()));
        Ok(Response::new(GetAvailableGpuTypesResponse { gpu_types: models.collect() }))
    }

    async fn cleanup(&self, _: Request<CleanupRequest>) -> Result<Response<CleanupResponse>, Status> {
        if sabotage::on("cleanup-deletes") {
            for (id, group) in &self.engine.view().groups {
                let name = |seen: &InstanceView| NodeRef { provider_id: seen.id.clone(), name: seen.id.clone() };
                let _ = self.engine.delete(id.clone(), group.instances.iter().map(name).collect()).await;
            }
        }
        // An autoscaler that restarts says so too: capacity stays.
        Ok(Response::new(CleanupResponse {}))
    }

    async fn refresh(&self, request: Request<RefreshRequest>) -> Result<Response<RefreshResponse>, Status> {
        let connection = request.extensions().get::<PeerInfo>().map_or(0, |peer| peer.connection);
        answer("Refresh", self.open(connection).await.map(|()| RefreshResponse {}))
    }

    async fn node_group_target_size(
        &self,
        request: Request<NodeGroupTargetSizeRequest>,
    ) -> Result<Response<NodeGroupTargetSizeResponse>, Status> {
        let reading = self.read();
        let target =
            reading.group(&request.get_ref().id).map(|seen| NodeGroupTargetSizeResponse { target_size: seen.target() });
        answer("NodeGroupTargetSize", target)
    }

    async fn node_group_increase_size(
        &self,
        request: Request<NodeGroupIncreaseSizeRequest>,
    ) -> Result<Response<NodeGroupIncreaseSizeResponse>, Status> {
        let done = self.increase(request.into_inner()).await;
        answer("NodeGroupIncreaseSize", done.map(|()| NodeGroupIncreaseSizeResponse {}))
    }

    async fn node_group_delete_nodes(
        &self,
        request: Request<NodeGroupDeleteNodesRequest>,
    ) -> Result<Response<NodeGroupDeleteNodesResponse>, Status> {
        let done = self.delete(request.into_inner()).await;
        answer("NodeGroupDeleteNodes", done.map(|()| NodeGroupDeleteNodesResponse {}))
    }

    async fn node_group_decrease_target_size(
        &self,
        request: Request<NodeGroupDecreaseTargetSizeRequest>,
    ) -> Result<Response<NodeGroupDecreaseTargetSizeResponse>, Status> {
        let done = self.decrease(request.into_inner()).await;
        answer("NodeGroupDecreaseTargetSize", done.map(|()| NodeGroupDecreaseTargetSizeResponse {}))
    }

    async fn node_group_nodes(
        &self,
        request: Request<NodeGroupNodesRequest>,
    ) -> Result<Response<NodeGroupNodesResponse>, Status> {
        let reading = self.read();
        let nodes = reading.group(&request.get_ref().id).map(|seen| seen.instances().iter().map(convert::instance).collect());
        answer("NodeGroupNodes", nodes.map(|instances| NodeGroupNodesResponse { instances }))
    }

    async fn node_group_template_node_info(
        &self,
        request: Request<NodeGroupTemplateNodeInfoRequest>,
    ) -> Result<Response<NodeGroupTemplateNodeInfoResponse>, Status> {
        answer("NodeGroupTemplateNodeInfo", self.template(&request.get_ref().id))
    }

    async fn node_group_get_options(
        &self,
        request: Request<NodeGroupAutoscalingOptionsRequest>,
    ) -> Result<Response<NodeGroupAutoscalingOptionsResponse>, Status> {
        let defaults = request.into_inner().defaults.unwrap_or_default();
        if sabotage::on("options-filled-in-part") {
            let part = NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5, ..Default::default() };
            return Ok(Response::new(NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: Some(part) }));
        }
        if sabotage::on("options-echoed") {
            return Ok(Response::new(NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: Some(defaults) }));
        }
        // "As the flags say". A filled answer breaks most releases, in ways from a crash to buying twice.
        Ok(Response::new(NodeGroupAutoscalingOptionsResponse::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::example_of;

    #[test]
    fn an_example_is_told_by_the_longest_known_group_in_its_name() {
        let known = ["a.g6-xlarge.us-east-1a", "a.g6-xlarge.us-east-1a-2"];
        let group = |id: &str| known.iter().find(|known| **known == id).copied();
        for (name, expected) in [
            ("template-node-for-a.g6-xlarge.us-east-1a-8674665223082153551", Some(known[0])),
            ("template-node-for-a.g6-xlarge.us-east-1a-8674665223082153551-0", Some(known[0])),
            ("template-node-for-a.g6-xlarge.us-east-1a-2-8674665223082153551", Some(known[1])),
            ("template-node-for-b-1", None),
            ("a.g6-xlarge.us-east-1a-1", None),
            ("template-node-for-", None),
            ("", None),
        ] {
            assert_eq!(example_of(name, group), expected, "{name}");
        }
        assert_eq!(example_of(&format!("template-node-for-{}", "-".repeat(512)), group), None);
    }
}
