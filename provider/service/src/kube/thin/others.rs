//! Nodes and `NodeClaims` that are not Stoker's, as far as they tell what machines they are.

use std::collections::BTreeMap;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use stoker_core::market::labels::is_of_capacity_type;
use stoker_core::market::sharing::{GPU_RESOURCE, Slices};

use super::{RawMeta, row};
use crate::kube::gpu_labels::GPU_LABELS;
use crate::kube::node_labels::{INSTANCE_TYPE, REGION, ZONE, ZONE_ID, cloud_of};
use crate::kube::quantity;

/// A Node that is not Stoker's.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawOther")]
pub(crate) struct OtherRow {
    /// Name, uid and resource version only.
    pub(crate) meta: ObjectMeta,
    pub(crate) machine: Machine,
}

row!(OtherRow, Node, ClusterResourceScope);

/// A `NodeClaim` that is not Stoker's.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawClaim")]
pub(crate) struct ClaimRow {
    /// Name, uid and resource version only.
    pub(crate) meta: ObjectMeta,
    /// Its machine; `None` until it is launched.
    pub(crate) machine: Option<Machine>,
}

cluster_kind!(ClaimRow, "karpenter.sh", "v1", "NodeClaim", "nodeclaims");

/// What a Node tells of its machine, or a `NodeClaim` of the one that it got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Its name at its cloud; empty where it is not told.
    pub(crate) provider_id: String,
    /// Its cloud; `None` where its provider id does not tell.
    pub(crate) cloud: Option<String>,
    /// Labels that tell of its type, its GPUs, where it is and how it was bought.
    pub(crate) labels: BTreeMap<String, String>,
    /// `nvidia.com/gpu` that it has.
    pub(crate) gpus: u32,
    /// Whether it has shares of GPUs under names of their own.
    pub(crate) has_slices: bool,
    /// CPUs that it has.
    pub(crate) vcpus: u32,
}

impl Machine {
    fn told(provider_id: String, mut labels: BTreeMap<String, String>, capacity: &BTreeMap<String, String>) -> Self {
        let tells = |key: &str| {
            [INSTANCE_TYPE, REGION, ZONE, ZONE_ID].contains(&key) || GPU_LABELS.contains(&key) || is_of_capacity_type(key)
        };
        labels.retain(|key, _| tells(key));
        // What cannot be read is more than can be counted.
        let amount = |text: &String| quantity::whole(text).ok().and_then(|whole| whole.try_into().ok()).unwrap_or(u32::MAX);
        Self {
            cloud: cloud_of(&provider_id).map(str::to_owned),
            provider_id,
            labels,
            gpus: capacity.get(GPU_RESOURCE).map_or(0, amount),
            has_slices: capacity.iter().any(|(name, found)| Slices::is_slice(name) && amount(found) > 0),
            vcpus: capacity.get("cpu").map_or(0, amount),
        }
    }

    /// A label; `None` also where it is empty.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[derive(Deserialize)]
struct RawOther {
    metadata: RawMeta,
    spec: Option<RawSpec>,
    status: Option<RawStatus>,
}

#[derive(Deserialize, Default)]
struct RawSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Deserialize, Default)]
struct RawStatus {
    capacity: Option<BTreeMap<String, String>>,
}

impl From<RawOther> for OtherRow {
    fn from(mut raw: RawOther) -> Self {
        let labels = raw.metadata.labels.take().unwrap_or_default();
        let provider_id = raw.spec.unwrap_or_default().provider_id.unwrap_or_default();
        let machine = Machine::told(provider_id, labels, &raw.status.unwrap_or_default().capacity.unwrap_or_default());
        Self { meta: raw.metadata.thin(), machine }
    }
}

#[derive(Deserialize)]
struct RawClaim {
    metadata: RawMeta,
    status: Option<RawClaimStatus>,
}

#[derive(Deserialize, Default)]
struct RawClaimStatus {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    capacity: Option<BTreeMap<String, String>>,
}

impl From<RawClaim> for ClaimRow {
    fn from(mut raw: RawClaim) -> Self {
        let labels = raw.metadata.labels.take().unwrap_or_default();
        let RawClaimStatus { provider_id, capacity } = raw.status.unwrap_or_default();
        let launched = provider_id.filter(|id| !id.is_empty());
        let machine = launched.map(|id| Machine::told(id, labels, &capacity.unwrap_or_default()));
        Self { meta: raw.metadata.thin(), machine }
    }
}
