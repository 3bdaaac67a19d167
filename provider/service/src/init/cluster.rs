//! What a cluster tells, as far as a policy is drafted from it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use stoker_core::base::ids::{ZoneId, ZoneName};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::market::labels::{is_of_karpenter, tells_each_capacity_type};
use stoker_core::market::offer::CapacityType;
use stoker_core::market::sharing::{GPU_RESOURCE, Slices};
use stoker_core::policy::label_key;

use crate::kube::node_class::zone_names;
use crate::kube::node_labels::{REGION, ZONE, ZONE_ID, bought_as, cloud_of};
use crate::kube::pending::PendingRow;
use crate::kube::quantity;

/// Labels by which others call the pool that a node is of, in the order in which they are looked at.
pub(super) const POOL_LABELS: [&str; 5] = [
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
];

/// A cluster as it was read.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub(super) nodes: Vec<NodeSeen>,
    /// Those that ask for GPUs, but of `DaemonSets`.
    pub(super) pods: Vec<PendingRow>,
    pub(super) node_pools: Vec<DynamicObject>,
    /// The id of each zone by its name, where nodes or node classes of AWS tell.
    pub(super) zone_ids: BTreeMap<ZoneName, ZoneId>,
}

/// A Node.
#[derive(Debug, Clone)]
pub(super) struct NodeSeen {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Taints that it has for good, in order.
    pub(super) taints: Vec<Taint>,
    /// Its cloud; empty where its provider id does not tell.
    pub(super) cloud: String,
    /// `nvidia.com/gpu` that it has.
    pub(super) gpus: u64,
    /// Whether it has shares of GPUs under names of their own.
    pub(super) has_slices: bool,
}

impl NodeSeen {
    pub(super) fn of(node: Node) -> Self {
        let labels = node.metadata.labels.unwrap_or_default();
        let spec = node.spec.unwrap_or_default();
        let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
        let amount = |text: &str| quantity::whole(text).unwrap_or(0);
        let taints = spec.taints.unwrap_or_default().into_iter().filter_map(|taint| {
            Some(Taint { effect: TaintEffect::of(&taint.effect)?, key: taint.key, value: taint.value.unwrap_or_default() })
        });
        let mut taints: Vec<Taint> = taints.filter(is_lasting).collect();
        taints.sort();
        Self {
            name: node.metadata.name.unwrap_or_default(),
            cloud: spec.provider_id.as_deref().and_then(cloud_of).unwrap_or_default().to_owned(),
            gpus: capacity.get(GPU_RESOURCE).map_or(0, |found| amount(&found.0)),
            has_slices: capacity.iter().any(|(name, found)| Slices::is_slice(name) && amount(&found.0) > 0),
            labels,
            taints,
        }
    }

    pub(super) fn has_gpus(&self) -> bool {
        self.gpus > 0 || self.has_slices
    }

    pub(super) fn label(&self, key: &str) -> &str {
        self.labels.get(key).map(String::as_str).unwrap_or_default()
    }

    /// The label and the name by which others call its pool.
    pub(super) fn pool(&self) -> Option<(&'static str, &str)> {
        POOL_LABELS.into_iter().map(|key| (key, self.label(key))).find(|(_, name)| !name.is_empty())
    }

    pub(super) fn capacity_type(&self) -> CapacityType {
        bought_as(&self.labels).unwrap_or(CapacityType::OnDemand)
    }
}

/// Whether a taint is its pool's, and none that comes and goes: of Kubernetes, Karpenter or an autoscaler.
fn is_lasting(taint: &Taint) -> bool {
    let domain = taint.key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
    let comes_and_goes =
        ["kubernetes.io", "karpenter.sh"].iter().any(|of| domain == *of || domain.ends_with(&format!(".{of}")));
    !comes_and_goes && label_key(&taint.key).is_ok() && !taint.key.ends_with("ClusterAutoscaler")
}

impl Cluster {
    /// One of which the nodes alone are known.
    pub fn of_nodes(nodes: Vec<Node>) -> Self {
        Self::of(nodes.into_iter().map(NodeSeen::of).collect(), Vec::new(), Vec::new(), &[])
    }

    pub(super) fn of(
        nodes: Vec<NodeSeen>,
        pods: Vec<PendingRow>,
        node_pools: Vec<DynamicObject>,
        classes: &[DynamicObject],
    ) -> Self {
        let of_node = |node: &NodeSeen| Some((ZoneName::new(node.label(ZONE)).ok()?, ZoneId::new(node.label(ZONE_ID)).ok()?));
        let of_classes = classes.iter().flat_map(|class| zone_names(&class.data)).map(|(id, name)| (name, id));
        let zone_ids = nodes.iter().filter_map(of_node).chain(of_classes).collect();
        Self { nodes, pods: pods.into_iter().filter(asks_for_gpus).collect(), node_pools, zone_ids }
    }

    /// The clouds and regions that its nodes are in.
    pub(super) fn home(&self) -> (BTreeSet<&str>, BTreeSet<&str>) {
        let places = self.nodes.iter().map(|node| (node.cloud.as_str(), node.label(REGION)));
        places.filter(|(cloud, region)| !cloud.is_empty() && !region.is_empty()).unzip()
    }

    /// The labels that its GPU pods choose nodes by.
    pub(super) fn selected(&self) -> BTreeSet<&str> {
        self.pods.iter().flat_map(PendingRow::wanted).map(|(key, _)| key).collect()
    }

    /// Whether some of its GPU pods choose nodes by how these were bought.
    pub(super) fn selects_capacity_type(&self) -> bool {
        self.selected().iter().any(|key| tells_each_capacity_type(key))
    }

    /// Labels of the nodes of a pool that its nodes need with Stoker, too: those that pods choose nodes by, and that an operator may set.
    pub(super) fn needed(&self, labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let selected = self.selected();
        let mut labels = labels;
        labels.retain(|key, _| selected.contains(key.as_str()) && is_free(key));
        labels
    }
}

/// Whether an operator may set a label, and nobody else does.
pub(super) fn is_free(key: &str) -> bool {
    label_key(key).is_ok() && !is_of_karpenter(key) && !POOL_LABELS.contains(&key) && key != ZONE_ID
}

/// Whether a pod waits for a GPU, or has one, for itself.
pub(super) fn asks_for_gpus(pod: &PendingRow) -> bool {
    !pod.of_node && pod.requests.as_ref().is_some_and(|requests| requests.all_gpus() > 0)
}

/// `ml/a, ml/b and 3 more`.
pub(super) fn listed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
