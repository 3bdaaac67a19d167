//! Who holds a GPU, and whose workload that is.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{NodeContext, PodLabels};
use stoker_core::facts::reading::GpuProcess;

/// Whose a pod is: its namespace, and what made it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its Deployment, Job, `StatefulSet` or the like; where none is known, what its label or its own name says.
    pub name: Arc<str>,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}/{}", self.namespace, self.name))
    }
}

impl Owner {
    /// The owner of a pod: its controller by kind and name where one is known, else its label `app.kubernetes.io/name`, else its own name
    /// without what Kubernetes made up.
    pub fn of(namespace: &str, pod: &str, controller: Option<(&str, &str)>, label: Option<&str>) -> Self {
        let name = match (controller, label) {
            // A Deployment's replica sets are called by it and a hash of the template, a CronJob's jobs by it and a time.
            (Some(("ReplicaSet", name)), _) => without_hash(name),
            (Some(("Job", name)), _) => without_time(name),
            (Some((_, name)), _) => name,
            (None, Some(label)) => label,
            (None, None) => without_hash(without_hash(pod)),
        };
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }
}

/// What Kubernetes makes up names of: no vowels, and no digits that look like letters.
const MADE_UP: &str = "bcdfghjklmnpqrstvwxz2456789";

/// A name without the last part, where that is a hash: `recs-7d4b9c5f6d` is `recs`, and `recs-v2` stays.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((rest, last))
            if !rest.is_empty() && (5..=10).contains(&last.len()) && last.chars().all(|c| MADE_UP.contains(c)) =>
        {
            rest
        }
        _ => name,
    }
}

/// A name without the time at its end, in minutes since 1970, that a `CronJob` gives its jobs.
fn without_time(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((rest, last)) if !rest.is_empty() && last.len() >= 8 && last.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => name,
    }
}

/// A pod by `namespace/name`.
pub type PodName = Arc<str>;

/// A pod that holds GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPod {
    /// `namespace/name`.
    pub name: PodName,
    /// Its UID; `None` where it is not known.
    pub uid: Option<Arc<str>>,
    /// Whose it is.
    pub owner: Owner,
    /// Its labels.
    pub labels: PodLabels,
    /// GPUs, or slices of any kind, that it asked for; `None` where that is not known.
    pub units: Option<u32>,
    /// How long after it was scheduled all its containers ran; `None` until then, and once any was restarted.
    pub started_after: Option<Duration>,
}

/// Who held a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// No GPU pod was on the node.
    Nobody,
    /// This pod.
    Pod {
        /// `namespace/name`.
        name: PodName,
        /// Whose it is.
        owner: Owner,
        /// Its labels.
        #[serde(default, skip_serializing_if = "PodLabels::is_empty")]
        labels: PodLabels,
    },
    /// It cannot be told.
    Unattributed(Unattributed),
}

/// Why it cannot be told who held a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unattributed {
    /// There is no Kubernetes feed.
    NoFeed,
    /// Several pods compute on it.
    Shared,
    /// Pods hold some of the node's GPUs, and no process tells which.
    NotTold,
    /// More pods came and went in the hour than are told apart.
    TooMany,
}

impl Unattributed {
    /// Every reason, in declared order.
    pub const ALL: [Self; 4] = [Self::NoFeed, Self::Shared, Self::NotTold, Self::TooMany];

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFeed => "no Kubernetes feed",
            Self::Shared => "several pods share it",
            Self::NotTold => "its processes do not show which pod",
            Self::TooMany => "too many pods in an hour",
        }
    }
}

/// Who holds a GPU of a node: the pod whose processes compute on it; the only pod there, if it asked for all of the node.
pub(super) fn holder(node: &NodeContext, processes: Option<&[GpuProcess]>) -> Holder {
    let Some(pods) = &node.pods else { return Holder::Unattributed(Unattributed::NoFeed) };
    let computes = |pod: &&GpuPod| {
        let uid = pod.uid.as_deref();
        uid.is_some() && processes.unwrap_or_default().iter().any(|process| process.pod_uid.as_deref() == uid)
    };
    let mut told = pods.iter().filter(computes);
    let pod = match (told.next(), told.next(), pods.as_slice()) {
        (_, _, []) => return Holder::Nobody,
        (Some(_), Some(_), _) => return Holder::Unattributed(Unattributed::Shared),
        (Some(pod), None, _) => pod,
        (None, _, [only]) if takes_all(only, node) => only,
        (None, ..) => return Holder::Unattributed(Unattributed::NotTold),
    };
    Holder::Pod { name: Arc::clone(&pod.name), owner: pod.owner.clone(), labels: pod.labels.clone() }
}

/// Whether a pod is known to have asked for all that a node has to give.
fn takes_all(pod: &GpuPod, node: &NodeContext) -> bool {
    match (pod.units, &node.bought) {
        (Some(asked), Some(bought)) => asked >= bought.units,
        _ => false,
    }
}
