//! Pods on a node, as far as it decides whether they may be told to go.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::SYSTEM_NAMESPACES;
use super::thin::{RawPod, row};

/// A Pod on a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct BoundPod {
    /// Namespace, name, uid and resource version only.
    pub(super) meta: ObjectMeta,
    /// Whether it belongs to the node: of a `DaemonSet`, or a mirror of what the kubelet runs by itself.
    pub(super) of_node: bool,
    /// Whether it is on its way out already.
    pub(super) leaves: bool,
    /// Whether it may use a GPU.
    pub(super) wants_gpu: bool,
    /// Why it may not be moved; `None` where it may.
    pub(super) fixed: Option<String>,
    /// How many seconds it takes for itself between SIGTERM and its end.
    pub(super) grace: u32,
}

row!(BoundPod, Pod, NamespaceResourceScope);

impl From<RawPod> for BoundPod {
    fn from(mut raw: RawPod) -> Self {
        let annotations = raw.metadata.annotations.take().unwrap_or_default();
        let namespace = raw.metadata.namespace.as_deref().unwrap_or_default();
        let fixed = if SYSTEM_NAMESPACES.contains(&namespace) {
            Some("is of a system namespace")
        } else if annotations.safe_to_evict.as_deref() == Some("false") {
            Some("is annotated cluster-autoscaler.kubernetes.io/safe-to-evict=false")
        } else if annotations.do_not_disrupt.as_deref() == Some("true") {
            Some("is annotated karpenter.sh/do-not-disrupt=true")
        } else if raw.metadata.owner().is_none() {
            Some("has no controller that would recreate it")
        } else {
            None
        };
        Self {
            of_node: raw.metadata.owner() == Some("DaemonSet") || annotations.mirror.is_some(),
            leaves: raw.metadata.is_leaving(),
            wants_gpu: raw.wants_gpu(),
            fixed: fixed.map(str::to_owned),
            grace: raw.grace(),
            meta: raw.metadata.thin(),
        }
    }
}

impl BoundPod {
    /// Its name and its namespace.
    pub(super) fn place(&self) -> (&str, &str) {
        (self.meta.name.as_deref().unwrap_or_default(), self.meta.namespace.as_deref().unwrap_or_default())
    }

    /// Whether it is of a namespace whose pods are never told to go.
    pub(super) fn is_of_system(&self) -> bool {
        SYSTEM_NAMESPACES.contains(&self.place().1)
    }

    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{}/{}", of(&self.meta.namespace), of(&self.meta.name))
    }
}
