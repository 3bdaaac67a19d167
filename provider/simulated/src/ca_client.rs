//! The doors from the other side: the autoscaler model's calls, over real gRPC.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_pb::api::core::v1 as proto;
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message as _;
use stoker_core::base::ids::NodeName;
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;
use stoker_proto::Bytes;
use stoker_proto::expander::expander_client::ExpanderClient;
use stoker_proto::expander::{BestOptionsRequest, ExpanderOption as WireOption};
use stoker_proto::externalgrpc as wire;
use stoker_proto::externalgrpc::cloud_provider_client::CloudProviderClient;
use stoker_proto::externalgrpc::instance_status::InstanceState as WireState;
use stoker_sim::model::{
    CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceError, InstanceInfo, InstanceState, NodeRef, PodView,
    Template,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

use stoker_service::kube::quantity;

/// What the autoscaler's expander client accepts: 128 MiB each way.
const EXPANDER_LIMIT: usize = 128 * 1024 * 1024;

/// The two doors of a running service.
#[derive(Debug, Clone)]
pub struct GrpcCaClient {
    provider: CloudProviderClient<Channel>,
    expander: ExpanderClient<Channel>,
}

impl GrpcCaClient {
    /// Doors over these channels.
    pub fn new(provider: Channel, expander: Channel) -> Self {
        let expander =
            ExpanderClient::new(expander).max_decoding_message_size(EXPANDER_LIMIT).max_encoding_message_size(EXPANDER_LIMIT);
        Self { provider: CloudProviderClient::new(provider), expander }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
fn error(status: Status) -> CaError {
    CaError::new(i32::from(status.code()), status.message())
}

fn node(node: &NodeRef) -> wire::ExternalGrpcNode {
    wire::ExternalGrpcNode {
        provider_id: node.provider_id.clone(),
        name: node.name.clone(),
        labels: node.labels.as_ref().clone(),
        annotations: node.annotations.as_ref().clone(),
    }
}

impl CaClient for GrpcCaClient {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.provider.refresh(wire::RefreshRequest {}).await.map(drop).map_err(error)
    }

    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        let answer = self.provider.node_groups(wire::NodeGroupsRequest {}).await.map_err(error)?.into_inner();
        let group = |g: wire::NodeGroup| GroupInfo { id: g.id, min: g.min_size, max: g.max_size };
        Ok(answer.node_groups.into_iter().map(group).collect())
    }

    async fn node_group_for_node(&mut self, asked: &NodeRef) -> Result<Option<String>, CaError> {
        let request = wire::NodeGroupForNodeRequest { node: Some(node(asked)) };
        let answer = self.provider.node_group_for_node(request).await.map_err(error)?.into_inner();
        Ok(answer.node_group.map(|group| group.id).filter(|id| !id.is_empty()))
    }

    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        let request = wire::NodeGroupTargetSizeRequest { id: group.to_owned() };
        Ok(self.provider.node_group_target_size(request).await.map_err(error)?.into_inner().target_size)
    }

    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let request = wire::NodeGroupIncreaseSizeRequest { delta, id: group.to_owned() };
        self.provider.node_group_increase_size(request).await.map(drop).map_err(error)
    }

    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let request = wire::NodeGroupDecreaseTargetSizeRequest { delta, id: group.to_owned() };
        self.provider.node_group_decrease_target_size(request).await.map(drop).map_err(error)
    }

    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        let nodes = nodes.iter().map(node).collect();
        let request = wire::NodeGroupDeleteNodesRequest { nodes, id: group.to_owned() };
        self.provider.node_group_delete_nodes(request).await.map(drop).map_err(error)
    }

    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        let request = wire::NodeGroupNodesRequest { id: group.to_owned() };
        let answer = self.provider.node_group_nodes(request).await.map_err(error)?.into_inner();
        Ok(answer.instances.into_iter().map(instance).collect())
    }

    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        let request = wire::NodeGroupTemplateNodeInfoRequest { id: group.to_owned() };
        let answer = self.provider.node_group_template_node_info(request).await.map_err(error)?.into_inner();
        template(&answer.node_bytes).map_err(|message| CaError::new(i32::from(Code::Internal), message))
    }

    async fn get_options(&mut self, group: &str, _: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        let request = wire::NodeGroupAutoscalingOptionsRequest { id: group.to_owned(), defaults: None };
        let answer = self.provider.node_group_get_options(request).await.map_err(error)?.into_inner();
        match answer.node_group_autoscaling_options {
            None => Ok(None),
            Some(_) => Err(CaError::new(
                i32::from(Code::Internal),
                "options of a group were filled in; several releases break on that",
            )),
        }
    }

    async fn gpu_label(&mut self) -> Result<String, CaError> {
        Ok(self.provider.gpu_label(wire::GpuLabelRequest {}).await.map_err(error)?.into_inner().label)
    }

    async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        let options = options
            .iter()
            .map(|option| WireOption {
                node_group_id: option.group.clone(),
                node_count: option.node_count,
                pod_bytes: option.pods.iter().map(|pod| pod_bytes(pod)).collect(),
                ..WireOption::default()
            })
            .collect();
        let node_bytes_map = templates
            .iter()
            .filter_map(|(group, template)| {
                let name = NodeName::new(group).ok()?;
                Some((group.clone(), Bytes::from(stoker_service::kube::template::node_proto(template, &name))))
            })
            .collect();
        let request = BestOptionsRequest { options, node_bytes_map, ..BestOptionsRequest::default() };
        let answer = self.expander.best_options(request).await.map_err(error)?.into_inner();
        Ok(answer.options.into_iter().map(|option| option.node_group_id).collect())
    }
}

fn instance(instance: wire::Instance) -> InstanceInfo {
    let status = instance.status.unwrap_or_default();
    let state = match status.instance_state() {
        WireState::Unspecified => InstanceState::Unspecified,
        WireState::InstanceRunning => InstanceState::Running,
        WireState::InstanceCreating => InstanceState::Creating,
        WireState::InstanceDeleting => InstanceState::Deleting,
    };
    let error = status.error_info.map(|info| InstanceError {
        code: info.error_code,
        message: info.error_message,
        class: info.instance_error_class,
    });
    InstanceInfo { id: instance.id, state, error }
}

/// A template Node read back from its bytes.
fn template(bytes: &[u8]) -> Result<Template, String> {
    let node = proto::Node::decode(bytes).map_err(|error| format!("the template is not a Node: {error}"))?;
    let status = node.status.unwrap_or_default();
    let taints = node.spec.unwrap_or_default().taints.into_iter().filter_map(taint).collect();
    Ok(Template {
        labels: node.metadata.unwrap_or_default().labels,
        taints,
        capacity: resources(&status.capacity)?,
        allocatable: resources(&status.allocatable)?,
        slices: slices(&status.allocatable)?,
    })
}

fn taint(taint: proto::Taint) -> Option<Taint> {
    let effect = TaintEffect::of(taint.effect.as_deref()?)?;
    Some(Taint { key: taint.key?, value: taint.value.unwrap_or_default(), effect })
}

fn resources(amounts: &BTreeMap<String, Quantity>) -> Result<Resources, String> {
    let text = |name: &str| amounts.get(name).and_then(|q| q.string.as_deref()).unwrap_or("0");
    let bad = |error: quantity::QuantityError| error.to_string();
    let count = |name: &str| quantity::whole(text(name)).map_err(bad).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let mib = |name: &str| quantity::whole(text(name)).map_err(bad).map(|bytes| MiB(bytes >> 20));
    Ok(Resources {
        milli_cpu: quantity::milli(text("cpu")).map_err(bad)?,
        memory: mib("memory")?,
        ephemeral: mib("ephemeral-storage")?,
        pods: count("pods")?,
        gpus: count(GPU_RESOURCE)?,
    })
}

fn slices(amounts: &BTreeMap<String, Quantity>) -> Result<Slices, String> {
    let mut slices = Slices::default();
    for (name, amount) in amounts.iter().filter(|(name, _)| Slices::is_slice(name)) {
        let number = quantity::whole(amount.string.as_deref().unwrap_or("0")).map_err(|error| error.to_string())?;
        slices.add(name, number);
    }
    Ok(slices)
}

/// A pod as the expander is sent it.
fn pod_bytes(pod: &PodView) -> Bytes {
    let (namespace, name) = pod.id.split_once('/').unwrap_or(("default", &pod.id));
    let amount = |text: String| Quantity { string: Some(text) };
    let mut requests = BTreeMap::from([
        ("cpu".to_owned(), amount(quantity::cpu(pod.requests.milli_cpu))),
        ("memory".to_owned(), amount(quantity::memory(pod.requests.memory))),
    ]);
    if pod.requests.gpus > 0 {
        requests.insert(GPU_RESOURCE.to_owned(), amount(pod.requests.gpus.to_string()));
    }
    for (name, number) in pod.requests.slices.iter() {
        requests.insert(name.to_owned(), amount(number.to_string()));
    }
    let container = proto::Container {
        name: Some("main".to_owned()),
        resources: Some(proto::ResourceRequirements { requests, ..Default::default() }),
        ..Default::default()
    };
    let tolerations = pod
        .tolerations
        .iter()
        .map(|t| proto::Toleration {
            key: t.key.clone(),
            operator: Some(if t.value.is_some() { "Equal" } else { "Exists" }.to_owned()),
            value: t.value.clone(),
            effect: t.effect.map(|effect| effect.as_str().to_owned()),
            ..Default::default()
        })
        .collect();
    let pod = proto::Pod {
        metadata: Some(ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..Default::default() }),
        spec: Some(proto::PodSpec {
            containers: vec![container],
            node_selector: pod.node_selector.clone(),
            tolerations,
            ..Default::default()
        }),
        ..Default::default()
    };
    Bytes::from(pod.encode_to_vec())
}
