//! What a pool's buffer and its pod template say.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};
use stoker_core::base::ids::{ClusterName, PoolName};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::isolation::SHAPE_TAINT;
use stoker_core::catalogue::template::{CLUSTER_LABEL, POOL_LABEL};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::Pool;

use crate::publish::view::View;

/// The group and version of buffers.
pub(super) const API: (&str, &str) = ("autoscaling.x-k8s.io", "v1beta1");

/// The label by which objects are known as ours.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A pool's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Nodes to keep free.
    replicas: u32,
    /// What one node of the pool offers, by resource.
    resources: Vec<(String, u64)>,
    /// Taints of the pool's nodes.
    taints: Vec<Taint>,
    /// Whether each of its shapes bears a taint of its own.
    isolated: bool,
    /// Whether nodes of the pool differ in size.
    mixed: bool,
}

impl Wanted {
    /// What the pool's buffer should be; `None` while its floor is not known, or where it has no groups.
    pub(super) fn of(view: &View, pool: &PoolName) -> Option<Self> {
        let floor = view.accounts.floors.iter().find(|floor| floor.pool == *pool)?;
        let pool: &Pool = view.catalogue.policy.pool(pool)?;
        let groups = || view.catalogue.pool_groups(&pool.name);
        // The smallest node: a pod that takes more would have no place on it.
        let smallest: &Group = groups().min_by_key(|group| (group.units(), &group.id))?;
        let template = &smallest.template;
        let whole = (template.allocatable.gpus > 0).then(|| (GPU_RESOURCE.to_owned(), u64::from(template.allocatable.gpus)));
        let slices = template.slices.iter().map(|(name, number)| (name.to_owned(), number));
        Some(Self {
            replicas: floor.wanted,
            resources: whole.into_iter().chain(slices).collect(),
            taints: pool.taints.clone(),
            isolated: pool.isolation.is_some(),
            mixed: groups().any(|group| group.units() != smallest.units()),
        })
    }

    /// The pod template.
    pub(super) fn template(&self, cluster: &ClusterName, pool: &PoolName) -> Value {
        let mut spec = room(&self.resources, &json!({ POOL_LABEL: pool.as_str() }), &self.tolerations());
        if self.mixed {
            // Two of them would have room on one larger node.
            spec["affinity"] = apart(pool.as_str());
        }
        pod_template(&metadata(cluster, pool), pool.as_str(), &spec)
    }

    fn tolerations(&self) -> Value {
        let refuses = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule;
        let own = self.taints.iter().filter(refuses).map(
            |taint| json!({ "key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect.as_str() }),
        );
        let shape = self.isolated.then(|| json!({ "key": SHAPE_TAINT, "operator": "Exists", "effect": "NoSchedule" }));
        own.chain(shape).collect()
    }

    /// The buffer.
    pub(super) fn buffer(&self, cluster: &ClusterName, pool: &PoolName) -> Value {
        buffer(&metadata(cluster, pool), self.replicas)
    }
}

/// The spec of a pod that takes that room. It is never run: autoscalers only reckon with it.
pub fn room(resources: &[(String, u64)], node_selector: &Value, tolerations: &Value) -> Value {
    let limits: Map<String, Value> = resources.iter().map(|(name, n)| (name.clone(), json!(n.to_string()))).collect();
    json!({
        // From 1.36 on the Cluster Autoscaler has the API server try the pod, which holds it to the Pod Security Standard of the namespace:
        // restricted, in Stoker's own.
        "automountServiceAccountToken": false,
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{
            "name": "room",
            "image": "registry.k8s.io/pause:3.10",
            "resources": { "limits": limits, "requests": limits },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        }],
        "nodeSelector": node_selector,
        "tolerations": tolerations,
    })
}

/// An affinity that puts each pod with that value of `stoker.dev/buffer` on a node of its own.
pub fn apart(value: &str) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { BUFFER_LABEL: value } } },
    ]}})
}

/// The two kinds of objects: buffers, and the pod templates that they name.
pub fn kinds() -> [ApiResource; 2] {
    let buffers = GroupVersionKind::gvk(API.0, API.1, "CapacityBuffer");
    let templates = GroupVersionKind::gvk("", "v1", "PodTemplate");
    [
        ApiResource::from_gvk_with_plural(&buffers, "capacitybuffers"),
        ApiResource::from_gvk_with_plural(&templates, "podtemplates"),
    ]
}

/// A buffer with that metadata: room for so many pods, each as the pod template of the same name says.
pub fn buffer(metadata: &Value, replicas: u32) -> Value {
    json!({
        "apiVersion": format!("{}/{}", API.0, API.1),
        "kind": "CapacityBuffer",
        "metadata": metadata,
        "spec": {
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            "podTemplateRef": { "name": metadata["name"] },
            "replicas": replicas,
        },
    })
}

/// The pod template with that metadata, of pods with that spec and that value of the label `stoker.dev/buffer`.
pub fn pod_template(metadata: &Value, value: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": metadata,
        "template": { "metadata": { "labels": { BUFFER_LABEL: value } }, "spec": spec },
    })
}

/// The label of the pods that buffers stand for.
const BUFFER_LABEL: &str = "stoker.dev/buffer";

/// What a pool's objects are called.
pub(super) fn name(pool: &PoolName) -> String {
    format!("stoker-{pool}")
}

fn metadata(cluster: &ClusterName, pool: &PoolName) -> Value {
    let labels = json!({ MANAGED_BY: "stoker", CLUSTER_LABEL: cluster.as_str(), POOL_LABEL: pool.as_str() });
    json!({ "name": name(pool), "labels": labels })
}

/// Whether an object says all that is wanted, whatever else it says: the API server fills in defaults.
pub fn covers(has: &Value, wanted: &Value) -> bool {
    match (has, wanted) {
        (Value::Object(has), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| has.get(key).is_some_and(|has| covers(has, value)))
        }
        (Value::Array(has), Value::Array(wanted)) => {
            has.len() == wanted.len() && has.iter().zip(wanted).all(|(has, wanted)| covers(has, wanted))
        }
        _ => has == wanted,
    }
}
