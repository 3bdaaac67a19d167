//! Nodes and Pods as we read them: everything that we do not use is skipped while the JSON is read and never stored.
//!
//! Reading is lenient: what an API server can send never fails, because a failed read makes the client log the whole answer, and a
//! Pod's environment is no matter for a log.

mod images;
mod nodes;
mod others;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_core::facts::images::ImageId;
use stoker_core::facts::node_status::ShownStatus;
use stoker_core::facts::snapshot::{Allocatable, Cordon, Hold};

use super::pods::Requests;

pub(crate) use images::ListedImages;
use nodes::RawNode;
pub(crate) use others::{ClaimRow, Machine, OtherRow};
pub(crate) use pods::RawPod;

/// A Node.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawNode")]
pub struct NodeRow {
    /// Name, uid and resource version only.
    pub meta: ObjectMeta,
    /// The cluster that its label names.
    pub cluster: Option<String>,
    pub(crate) group: Option<String>,
    /// Its machine.
    pub provider_id: Option<String>,
    pub(crate) created_at: Option<Timestamp>,
    /// Since when it is Ready; `None` where it is not.
    pub ready_since: Option<Timestamp>,
    pub(crate) hold: Hold,
    /// Whether it bears our marker, also where the annotation that it marks is not there.
    pub(crate) marked: bool,
    pub(crate) cordon: Cordon,
    /// What it leaves to pods; `None` where its kubelet has not said.
    pub(crate) allocatable: Option<Allocatable>,
    /// What it bears of our verdict; `None` where that is nothing.
    pub(crate) shown: Option<ShownStatus>,
    /// The images that it lists.
    pub(crate) images: ListedImages,
}

/// A Pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawPod")]
pub struct PodRow {
    /// Namespace, name, uid and resource version only.
    pub meta: ObjectMeta,
    /// The node that it holds: `None` where it is not bound, has ended, is being deleted, wants no GPU or is of a `DaemonSet`.
    pub(crate) holds: Option<String>,
    /// The node that it sits on without wanting a GPU; `None` also for what every node or the cluster itself needs.
    pub(crate) guest_on: Option<String>,
    /// Of one that holds a node, whose it is and what it asked for.
    pub(crate) claim: Option<Claim>,
    /// The images of one that holds a node.
    pub(crate) images: Vec<ImageId>,
}

/// Whose a GPU pod is, and what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    pub(crate) labels: PodLabels,
    /// GPUs, or slices of any kind; `None` where it may get others by a resource claim.
    pub(crate) units: Option<u32>,
    /// How long after it was scheduled all its containers ran; `None` until then, and once any was restarted.
    pub(crate) started_after: Option<Duration>,
    pub(crate) asks: Arc<Asks>,
}

/// What a GPU pod asks for, and when it came: what the journal keeps of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Its node.
    pub node: String,
    /// Kind of what made it; `None` where nothing is known to have.
    pub owner_kind: Option<Arc<str>>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it got its node.
    pub scheduled: Option<Timestamp>,
    /// What it needs to be scheduled; `None` where an amount of it cannot be read.
    pub requests: Option<Requests>,
    /// The pool that it selects.
    pub pool: Option<String>,
    /// Values of labels for GPU models that it selects.
    pub gpus: Vec<String>,
}

macro_rules! row {
    ($row:ty, $of:ty, $scope:ty) => {
        impl kube::Resource for $row {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::KIND.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::VERSION.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::URL_PATH_SEGMENT.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }
        }
    };
}

pub(crate) use row;

row!(NodeRow, Node, ClusterResourceScope);
row!(PodRow, Pod, NamespaceResourceScope);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawMeta {
    name: Option<String>,
    pub(crate) namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(crate) creation_timestamp: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<RawAnnotations>,
    owner_references: Option<Vec<RawOwner>>,
}

impl RawMeta {
    pub(crate) fn thin(&mut self) -> ObjectMeta {
        ObjectMeta {
            name: self.name.take(),
            namespace: self.namespace.take(),
            uid: self.uid.take(),
            resource_version: self.resource_version.take(),
            ..ObjectMeta::default()
        }
    }

    /// The kind of its controller.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.controller().and_then(|owner| owner.kind.as_deref())
    }

    fn controller(&self) -> Option<&RawOwner> {
        let owners = self.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whose it is, as a pod; `None` without a name and a namespace.
    fn whose(&self) -> Option<Owner> {
        let controller = self.controller().and_then(|owner| Some((owner.kind.as_deref()?, owner.name.as_deref()?)));
        let app = self.labels.as_ref().and_then(|labels| labels.get(APP_LABEL));
        Some(Owner::of(self.namespace.as_deref()?, self.name.as_deref()?, controller, app.map(String::as_str)))
    }

    /// Kind of what `owner` is: a Deployment of its replica sets' names, a `CronJob` of its jobs'.
    fn owner_kind(&self, owner: &Owner) -> Option<&str> {
        let controller = self.controller()?;
        let is_itself = controller.name.as_deref() == Some(&*owner.name);
        match controller.kind.as_deref()? {
            "ReplicaSet" if !is_itself => Some("Deployment"),
            "Job" if !is_itself => Some("CronJob"),
            kind => Some(kind),
        }
    }

    /// Whether it is being deleted.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// What a pod's application is called, by Kubernetes's recommendation.
const APP_LABEL: &str = "app.kubernetes.io/name";

#[derive(Deserialize, Default)]
pub(crate) struct RawAnnotations {
    #[serde(rename = "cluster-autoscaler.kubernetes.io/scale-down-disabled")]
    disabled: Option<String>,
    #[serde(rename = "stoker.dev/scale-down-blocked")]
    held: Option<String>,
    #[serde(rename = "stoker.dev/draining")]
    draining: Option<String>,
    #[serde(rename = "stoker.dev/verdict")]
    verdict: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub(crate) mirror: Option<IgnoredAny>,
    #[serde(rename = "cluster-autoscaler.kubernetes.io/safe-to-evict")]
    pub(crate) safe_to_evict: Option<String>,
    #[serde(rename = "karpenter.sh/do-not-disrupt")]
    pub(crate) do_not_disrupt: Option<String>,
}

#[derive(Deserialize)]
struct RawOwner {
    kind: Option<String>,
    name: Option<String>,
    controller: Option<bool>,
}

impl PodRow {
    /// `namespace/name`; `None` for a Pod without a name, which no API server sends.
    pub(crate) fn key(&self) -> Option<String> {
        Some(format!("{}/{}", self.meta.namespace.as_ref()?, self.meta.name.as_ref()?))
    }
}
