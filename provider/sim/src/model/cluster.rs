//! The cluster: the Nodes and Pods that the autoscaler watches, and what it does to them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::Slices;

use super::ca_client::{Labels, NodeRef, Template};

/// The taint on a node that is about to be deleted; its value is the time it was set, in seconds since 1970.
pub const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// The annotation that, set to `true`, keeps a node from being removed.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Prefixes of taints that mean "still starting": such a node counts as not ready, and its template does not carry them. The last is as
/// if named by `--startup-taint`, as the page on Karpenter asks.
pub const STARTUP_TAINT_PREFIXES: [&str; 3] = [
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/unregistered",
];

/// Why the cluster refused a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// There is no such node or pod.
    #[error("{0} does not exist")]
    Gone(String),
    /// The change was refused or failed.
    #[error("{0}")]
    Refused(String),
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Requests {
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory.
    pub memory: MiB,
    /// `nvidia.com/gpu`.
    pub gpus: u32,
    /// GPU resources under other names.
    pub slices: Slices,
}

impl Requests {
    /// The sum.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (name, number) in other.slices.iter() {
            self.slices.add(name, number);
        }
        Self {
            milli_cpu: self.milli_cpu.saturating_add(other.milli_cpu),
            memory: MiB(self.memory.0.saturating_add(other.memory.0)),
            gpus: self.gpus.saturating_add(other.gpus),
            slices: self.slices,
        }
    }
}

/// Labels, each with the values of which a node must have one.
pub type NodeAffinity = BTreeMap<String, BTreeSet<String>>;

/// Which taints a pod bears.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The taint's key; `None` for every key.
    pub key: Option<String>,
    /// The taint's value; `None` for every value.
    pub value: Option<String>,
    /// The taint's effect; `None` for every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Bears every taint with that key.
    pub fn of_key(key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), value: None, effect: None }
    }

    /// Whether it bears that taint.
    pub fn bears(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

/// A Node as the autoscaler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its machine; empty where the Node does not say.
    pub provider_id: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Since when its Ready condition is true; `None` while it is not.
    pub ready_since: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// What it leaves to pods.
    pub allocatable: Resources,
    /// What it has.
    pub capacity: Resources,
    /// GPU resources under other names than `nvidia.com/gpu`, left to pods.
    pub slices: Slices,
}

impl NodeView {
    /// Whether its Ready condition is true.
    pub const fn ready(&self) -> bool {
        self.ready_since.is_some()
    }

    /// What the provider is told of it.
    pub fn to_ref(&self) -> NodeRef {
        NodeRef {
            name: self.name.clone(),
            provider_id: self.provider_id.clone(),
            labels: Arc::clone(&self.labels),
            annotations: Arc::clone(&self.annotations),
        }
    }

    /// Since when it is marked for deletion; `None` where it is not.
    pub fn to_be_deleted_since(&self) -> Option<Timestamp> {
        let taint = self.taints.iter().find(|t| t.key == TO_BE_DELETED_TAINT)?;
        Some(taint.value.parse().ok().and_then(|s| Timestamp::from_second(s).ok()).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Whether it was marked for deletion less than `for_` ago.
    pub fn is_being_deleted(&self, now: Timestamp, for_: SignedDuration) -> bool {
        self.to_be_deleted_since().is_some_and(|since| now.duration_since(since) < for_)
    }

    /// Whether its annotation keeps it.
    pub fn is_kept(&self) -> bool {
        self.annotations.get(SCALE_DOWN_DISABLED).is_some_and(|v| v == "true")
    }
}

/// A Pod as the autoscaler sees it. Pods that ended are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// `namespace/name`.
    pub id: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// What it asks for.
    pub requests: Requests,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Labels of which its node must have one of these values: required node affinity of one term, with the operator `In`.
    pub node_affinity: NodeAffinity,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether the scheduler tried it and found no node.
    pub unschedulable: bool,
    /// Whether a `DaemonSet` owns it: it neither keeps a node nor is moved.
    pub daemon: bool,
    /// Whether it may be evicted: it has a controller and nothing forbids it.
    pub movable: bool,
}

impl PodView {
    /// Whether it would be bound to an empty node of that template that has room, the taint `but` aside.
    pub fn admits(&self, template: &Template, but: &str) -> bool {
        let labels = &template.labels;
        let mut taints = template.taints.iter().filter(|taint| taint.key != but);
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.node_affinity.iter().all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
            && taints.all(|taint| self.bears(taint))
    }

    /// Whether it bears a taint, or the taint keeps no pod away.
    pub fn bears(&self, taint: &Taint) -> bool {
        taint.effect == TaintEffect::PreferNoSchedule || self.tolerations.iter().any(|toleration| toleration.bears(taint))
    }

    /// Whether it waits for a node that the scheduler could not find.
    pub const fn is_waiting(&self) -> bool {
        self.node.is_none() && self.unschedulable && !self.daemon
    }
}

/// A cluster, as the autoscaler watches and changes it.
///
/// Reads cannot fail: the autoscaler reads from watches that it keeps.
pub trait Cluster: Send {
    /// All Nodes.
    fn nodes(&mut self) -> impl Future<Output = Vec<Arc<NodeView>>> + Send;
    /// All Pods that have not ended.
    fn pods(&mut self) -> impl Future<Output = Vec<Arc<PodView>>> + Send;
    /// A Node and the Pods on it, in the order of [`Self::pods`]; `None` where it is gone.
    fn node_and_pods(&mut self, name: &str) -> impl Future<Output = Option<(Arc<NodeView>, Vec<Arc<PodView>>)>> + Send {
        async move {
            let node = self.nodes().await.into_iter().find(|node| node.name == name)?;
            let mut pods = self.pods().await;
            pods.retain(|pod| pod.node.as_deref() == Some(name));
            Some((node, pods))
        }
    }
    /// Cordons a node and marks it for deletion, with `now` as the taint's value.
    fn taint_to_be_deleted(&mut self, node: &str, now: Timestamp) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Takes the mark and the cordon back.
    fn untaint(&mut self, node: &str) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Evicts a pod.
    fn evict(&mut self, pod: &str, now: Timestamp) -> impl Future<Output = Result<(), ClusterError>> + Send;
}
