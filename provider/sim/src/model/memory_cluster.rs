//! A cluster in memory, with a scheduler of its own: what a demo or a test runs the autoscaler against.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::kinds::{Taint, TaintEffect};

use super::cluster::{Cluster, ClusterError, NodeView, PodView, Requests, TO_BE_DELETED_TAINT, Toleration};
use super::fit::{SimNode, place};

#[cfg(test)]
mod tests;

/// How the scheduler chooses among the nodes that take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// The first by name.
    FirstFit,
    /// The one with the fewest free GPUs, then the fewest free slices of any, then the least free CPU, then the first by name.
    MostAllocated,
}

/// A pod to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// `namespace/name`.
    pub id: String,
    /// What it asks for.
    pub requests: Requests,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// Whether it may be evicted.
    pub movable: bool,
}

/// A cluster in memory.
///
/// Every pod has a controller: one that is evicted or loses its node comes back at once as a new waiting pod of the same name.
#[derive(Debug, Clone)]
pub struct MemoryCluster {
    nodes: BTreeMap<String, Arc<NodeView>>,
    pods: BTreeMap<String, Arc<PodView>>,
    scoring: Scoring,
}

impl MemoryCluster {
    /// An empty cluster.
    pub const fn new(scoring: Scoring) -> Self {
        Self { nodes: BTreeMap::new(), pods: BTreeMap::new(), scoring }
    }

    /// Creates a pod; it waits until [`Self::schedule`] finds it a node.
    pub fn add_pod(&mut self, spec: PodSpec, now: Timestamp) {
        let PodSpec { id, requests, node_selector, tolerations, movable } = spec;
        let pod = PodView {
            id,
            node: None,
            requests,
            node_selector,
            tolerations,
            created_at: now,
            unschedulable: false,
            daemon: false,
            movable,
        };
        self.insert_pod(pod);
    }

    /// Puts a pod there as it is, e.g. a daemon pod bound to its node.
    pub fn insert_pod(&mut self, pod: PodView) {
        self.pods.insert(pod.id.clone(), Arc::new(pod));
    }

    /// Ends a pod; answers what it was.
    pub fn finish_pod(&mut self, id: &str) -> Option<Arc<PodView>> {
        self.pods.remove(id)
    }

    /// Registers a node, or puts a new state of it in the old one's place.
    pub fn add_node(&mut self, node: NodeView) {
        self.nodes.insert(node.name.clone(), Arc::new(node));
    }

    /// Takes a node away; answers the pods that lost their place and wait again.
    pub fn remove_node(&mut self, name: &str, now: Timestamp) -> Vec<String> {
        if self.nodes.remove(name).is_none() {
            return Vec::new();
        }
        let (daemons, lost): (Vec<_>, Vec<_>) =
            self.pods.values().filter(|p| p.node.as_deref() == Some(name)).cloned().partition(|p| p.daemon);
        for pod in daemons {
            self.pods.remove(&pod.id);
        }
        for pod in &lost {
            self.recreate(pod, now);
        }
        lost.iter().map(|pod| pod.id.clone()).collect()
    }

    /// Sets since when a node is Ready; `None` makes it not Ready.
    pub fn set_ready(&mut self, name: &str, since: Option<Timestamp>) {
        self.change(name, |node| node.ready_since = since);
    }

    /// Sets an annotation of a node; `None` takes it away.
    pub fn annotate(&mut self, name: &str, key: &str, value: Option<&str>) {
        self.change(name, |node| {
            let annotations = Arc::make_mut(&mut node.annotations);
            match value {
                Some(value) => annotations.insert(key.to_owned(), value.to_owned()),
                None => annotations.remove(key),
            };
        });
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeView>> {
        self.nodes.get(name)
    }

    /// All nodes, by name.
    pub fn all_nodes(&self) -> impl Iterator<Item = &Arc<NodeView>> {
        self.nodes.values()
    }

    /// A pod.
    pub fn pod(&self, id: &str) -> Option<&Arc<PodView>> {
        self.pods.get(id)
    }

    /// All pods, by name.
    pub fn all_pods(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.pods.values()
    }

    /// One pass of the scheduler: binds each waiting pod, oldest first, and marks those that no node takes. Answers what was bound
    /// where.
    pub fn schedule(&mut self) -> Vec<(String, String)> {
        let mut waiting: Vec<Arc<PodView>> = self.pods.values().filter(|p| p.node.is_none()).cloned().collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        waiting.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let pods: Vec<Arc<PodView>> = self.pods.values().filter(|p| p.node.is_some()).cloned().collect();
        let mut nodes = place(self.nodes.values().map(|node| SimNode::of(node, node.ready())), &pods);
        let mut bound = Vec::new();
        for pod in waiting {
            let chosen = self.choose(&mut nodes, &pod);
            let node = chosen.map(|node| {
                node.put(&pod);
                node.node.name.clone()
            });
            let mut changed = PodView::clone(&pod);
            changed.unschedulable = node.is_none();
            changed.node.clone_from(&node);
            self.insert_pod(changed);
            bound.extend(node.map(|name| (pod.id.clone(), name)));
        }
        bound
    }

    fn choose<'a>(&self, nodes: &'a mut [SimNode], pod: &PodView) -> Option<&'a mut SimNode> {
        let mut fitting = nodes.iter_mut().filter(|node| node.takes(pod));
        match self.scoring {
            Scoring::FirstFit => fitting.next(),
            Scoring::MostAllocated => fitting.min_by_key(|node| {
                (
                    node.allocatable.gpus.saturating_sub(node.used.gpus),
                    node.slices.total().saturating_sub(node.used.slices.total()),
                    node.allocatable.milli_cpu.saturating_sub(node.used.milli_cpu),
                )
            }),
        }
    }

    fn change(&mut self, name: &str, by: impl FnOnce(&mut NodeView)) -> bool {
        match self.nodes.get_mut(name) {
            Some(node) => {
                by(Arc::make_mut(node));
                true
            }
            None => false,
        }
    }

    fn change_or_gone(&mut self, name: &str, by: impl FnOnce(&mut NodeView)) -> Result<(), ClusterError> {
        if self.change(name, by) { Ok(()) } else { Err(ClusterError::Gone(name.to_owned())) }
    }

    fn recreate(&mut self, pod: &PodView, now: Timestamp) {
        self.insert_pod(PodView { node: None, created_at: now, unschedulable: false, ..pod.clone() });
    }
}

impl Cluster for MemoryCluster {
    async fn nodes(&mut self) -> Vec<Arc<NodeView>> {
        self.nodes.values().cloned().collect()
    }

    async fn pods(&mut self) -> Vec<Arc<PodView>> {
        self.pods.values().cloned().collect()
    }

    async fn taint_to_be_deleted(&mut self, node: &str, now: Timestamp) -> Result<(), ClusterError> {
        self.change_or_gone(node, |node| {
            node.taints.retain(|t| t.key != TO_BE_DELETED_TAINT);
            node.taints.push(Taint {
                key: TO_BE_DELETED_TAINT.to_owned(),
                value: now.as_second().to_string(),
                effect: TaintEffect::NoSchedule,
            });
            node.unschedulable = true;
        })
    }

    async fn untaint(&mut self, node: &str) -> Result<(), ClusterError> {
        self.change_or_gone(node, |node| {
            node.taints.retain(|t| t.key != TO_BE_DELETED_TAINT);
            node.unschedulable = false;
        })
    }

    async fn evict(&mut self, pod: &str, now: Timestamp) -> Result<(), ClusterError> {
        let Some(pod) = self.pods.get(pod).cloned() else {
            return Err(ClusterError::Gone(pod.to_owned()));
        };
        if !pod.movable {
            return Err(ClusterError::Refused(format!("{} may not be evicted", pod.id)));
        }
        self.recreate(&pod, now);
        Ok(())
    }
}
