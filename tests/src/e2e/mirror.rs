//! The autoscaler model's view of a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodStatus, PodTemplate, PodTemplateSpec, Taint as KubeTaint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, EvictParams, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;
use stoker_service::kube::quantity;
use stoker_sim::model::{Cluster, ClusterError, NodeView, PodView, Requests, TO_BE_DELETED_TAINT, Toleration};

/// How often a change that somebody else's change crossed is tried again.
const ATTEMPTS: usize = 5;

/// Nodes and Pods of an API server. Each read asks it anew: the tests' clusters are small.
pub struct Mirror {
    client: Client,
    nodes: Vec<Arc<NodeView>>,
    pods: Vec<Arc<PodView>>,
    /// Whether `CapacityBuffer` objects are read.
    buffers: bool,
}

impl Mirror {
    /// The cluster of that client. With `buffers`, pods stand for the room that its `CapacityBuffer` objects ask for.
    pub const fn new(client: Client, buffers: bool) -> Self {
        Self { client, nodes: Vec::new(), pods: Vec::new(), buffers }
    }

    /// For each buffer as many waiting pods of its template as it asks for, which no API server knows.
    async fn buffer_pods(&self) -> Result<Vec<Pod>, kube::Error> {
        let kind = GroupVersionKind::gvk("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer");
        let buffers = ApiResource::from_gvk_with_plural(&kind, "capacitybuffers");
        let buffers = Api::<DynamicObject>::all_with(self.client.clone(), &buffers).list(&ListParams::default()).await?;
        let mut pods = Vec::new();
        for buffer in buffers.items {
            let spec = buffer.data.get("spec");
            let replicas = spec.and_then(|spec| spec["replicas"].as_u64()).unwrap_or_default();
            let Some(template) = spec.and_then(|spec| spec["podTemplateRef"]["name"].as_str()) else { continue };
            let templates = Api::<PodTemplate>::namespaced(self.client.clone(), &buffer.namespace().unwrap_or_default());
            let Some(template) = templates.get_opt(template).await?.and_then(|found| found.template) else { continue };
            pods.extend((0..replicas).map(|i| buffer_pod(&buffer, &template, i)));
        }
        Ok(pods)
    }

    fn node_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn change(&self, name: &str, change: impl Fn(&mut Node) + Send + Sync) -> Result<(), ClusterError> {
        let api = self.node_api();
        let mut last = ClusterError::Gone(name.to_owned());
        for _ in 0..ATTEMPTS {
            let mut node = match api.get_opt(name).await {
                Ok(Some(node)) => node,
                Ok(None) => return Err(ClusterError::Gone(name.to_owned())),
                Err(error) => return Err(ClusterError::Refused(error.to_string())),
            };
            change(&mut node);
            match api.replace(name, &PostParams::default(), &node).await {
                Ok(_) => return Ok(()),
                Err(error) => last = ClusterError::Refused(error.to_string()),
            }
        }
        Err(last)
    }
}

impl Cluster for Mirror {
    async fn nodes(&mut self) -> Vec<Arc<NodeView>> {
        match self.node_api().list(&ListParams::default()).await {
            Ok(nodes) => self.nodes = nodes.items.iter().filter_map(|node| node_view(node).map(Arc::new)).collect(),
            Err(error) => eprintln!("cannot list nodes: {error}"),
        }
        self.nodes.clone()
    }

    async fn pods(&mut self) -> Vec<Arc<PodView>> {
        let running = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
        let listed = async {
            let mut pods = Api::<Pod>::all(self.client.clone()).list(&running).await?.items;
            if self.buffers {
                pods.extend(self.buffer_pods().await?);
            }
            Ok::<_, kube::Error>(pods)
        };
        match listed.await {
            Ok(pods) => self.pods = pods.iter().filter_map(|pod| pod_view(pod).map(Arc::new)).collect(),
            Err(error) => eprintln!("cannot list pods: {error}"),
        }
        self.pods.clone()
    }

    async fn taint_to_be_deleted(&mut self, node: &str, now: Timestamp) -> Result<(), ClusterError> {
        self.change(node, |node| {
            let spec = node.spec.get_or_insert_default();
            let taints = spec.taints.get_or_insert_default();
            taints.retain(|taint| taint.key != TO_BE_DELETED_TAINT);
            taints.push(KubeTaint {
                key: TO_BE_DELETED_TAINT.to_owned(),
                value: Some(now.as_second().to_string()),
                effect: TaintEffect::NoSchedule.as_str().to_owned(),
                ..KubeTaint::default()
            });
            spec.unschedulable = Some(true);
        })
        .await
    }

    async fn untaint(&mut self, node: &str) -> Result<(), ClusterError> {
        self.change(node, |node| {
            let spec = node.spec.get_or_insert_default();
            spec.taints.get_or_insert_default().retain(|taint| taint.key != TO_BE_DELETED_TAINT);
            spec.unschedulable = None;
        })
        .await
    }

    async fn evict(&mut self, pod: &str, _now: Timestamp) -> Result<(), ClusterError> {
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        api.evict(name, &EvictParams::default()).await.map(drop).map_err(|error| ClusterError::Refused(error.to_string()))
    }
}

fn node_view(node: &Node) -> Option<NodeView> {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.as_ref();
    let ready = status.and_then(|s| s.conditions.iter().flatten().find(|c| c.type_ == "Ready" && c.status == "True"));
    let created_at = node.creation_timestamp()?.0;
    let taints = spec.taints.into_iter().flatten().filter_map(|taint| {
        Some(Taint { effect: effect(&taint.effect)?, key: taint.key, value: taint.value.unwrap_or_default() })
    });
    Some(NodeView {
        name: node.name_any(),
        provider_id: spec.provider_id.unwrap_or_default(),
        labels: Arc::new(node.labels().clone()),
        annotations: Arc::new(node.annotations().clone()),
        taints: taints.collect(),
        unschedulable: spec.unschedulable.unwrap_or(false),
        ready_since: ready.map(|c| c.last_transition_time.as_ref().map_or(created_at, |time| time.0)),
        created_at,
        allocatable: resources(status.and_then(|s| s.allocatable.as_ref()))?,
        capacity: resources(status.and_then(|s| s.capacity.as_ref()))?,
        slices: slices(status.and_then(|s| s.allocatable.as_ref()))?,
    })
}

fn effect(name: &str) -> Option<TaintEffect> {
    [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute].into_iter().find(|e| e.as_str() == name)
}

/// `None` where an amount is no quantity.
fn resources(amounts: Option<&BTreeMap<String, Quantity>>) -> Option<Resources> {
    let text = |name: &str| amounts.and_then(|amounts| amounts.get(name)).map_or("0", |quantity| quantity.0.as_str());
    let whole = |name: &str| quantity::whole(text(name)).ok();
    Some(Resources {
        milli_cpu: quantity::milli(text("cpu")).ok()?,
        memory: MiB(whole("memory")? >> 20),
        ephemeral: MiB(whole("ephemeral-storage")? >> 20),
        pods: u32::try_from(whole("pods")?).ok()?,
        gpus: u32::try_from(whole(GPU_RESOURCE)?).ok()?,
    })
}

/// `None` where an amount is no quantity.
fn slices(amounts: Option<&BTreeMap<String, Quantity>>) -> Option<Slices> {
    let mut slices = Slices::default();
    for (name, amount) in amounts.into_iter().flatten().filter(|(name, _)| Slices::is_slice(name)) {
        slices.add(name, quantity::whole(&amount.0).ok()?);
    }
    Some(slices)
}

/// A pod of a buffer's template that waits, since the buffer was made.
fn buffer_pod(buffer: &DynamicObject, template: &PodTemplateSpec, number: u64) -> Pod {
    let metadata = ObjectMeta {
        name: Some(format!("capacity-buffer-{}-{number}", buffer.name_any())),
        namespace: buffer.namespace(),
        creation_timestamp: buffer.creation_timestamp(),
        ..template.metadata.clone().unwrap_or_default()
    };
    let waits = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        ..PodCondition::default()
    };
    let status = PodStatus { conditions: Some(vec![waits]), ..PodStatus::default() };
    Pod { metadata, spec: template.spec.clone(), status: Some(status) }
}

fn pod_view(pod: &Pod) -> Option<PodView> {
    let spec = pod.spec.as_ref()?;
    let mut requests = Requests::default();
    for container in &spec.containers {
        let asked = container.resources.as_ref().and_then(|r| r.requests.as_ref());
        let amount = |name: &str| asked?.get(name).map(|q| q.0.as_str());
        requests = requests.plus(&Requests {
            milli_cpu: amount("cpu").map_or(Some(0), |text| quantity::milli(text).ok())?,
            memory: MiB(amount("memory").map_or(Some(0), |text| quantity::whole(text).ok())? >> 20),
            gpus: u32::try_from(amount(GPU_RESOURCE).map_or(Some(0), |text| quantity::whole(text).ok())?).ok()?,
            slices: slices(asked)?,
        });
    }
    let tolerations = spec.tolerations.iter().flatten().map(|t| Toleration {
        key: t.key.clone().filter(|key| !key.is_empty()),
        value: t.value.clone().filter(|_| t.operator.as_deref() != Some("Exists")),
        effect: t.effect.as_deref().and_then(effect),
    });
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let daemon = owner.is_some_and(|owner| owner.kind == "DaemonSet");
    let unschedulable = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten())
        .any(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"));
    Some(PodView {
        id: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        requests,
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        node_affinity: BTreeMap::new(),
        tolerations: tolerations.collect(),
        created_at: pod.creation_timestamp()?.0,
        unschedulable,
        daemon,
        movable: owner.is_some() && !daemon,
    })
}
