//! A cluster in memory, with a scheduler of its own: what a demo or a test runs the autoscaler against.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::kinds::{Taint, TaintEffect};

use super::cluster::{Cluster, ClusterError, NodeAffinity, NodeView, PodView, Requests, TO_BE_DELETED_TAINT, Toleration};
use super::fit::SimNode;

#[cfg(test)]
mod tests;

/// How the scheduler chooses among the nodes that take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// The first by name.
    FirstFit,
    /// The one with the fewest free GPUs, then the fewest free slices of any, then the least free CPU, then the first by name.
    MostAllocated,
    /// The other way round: the one with the most free GPUs, then the most free slices, then the most free CPU, then the first by name.
    /// The worst that kube-scheduler's default can do.
    LeastAllocated,
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
    /// Labels of which its node must have one of these values.
    pub node_affinity: NodeAffinity,
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
    /// The nodes with the pods on them, as the scheduler counts them.
    seats: BTreeMap<String, SimNode>,
    /// Pods without a node, oldest first.
    queue: BTreeSet<(Timestamp, String)>,
    /// Nodes that changed, or got or lost a pod, since somebody last asked.
    touched: BTreeSet<String>,
    /// Whether a waiting pod may find a place that it did not find before.
    stirred: bool,
    scoring: Scoring,
}

impl MemoryCluster {
    /// An empty cluster.
    pub const fn new(scoring: Scoring) -> Self {
        Self {
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            seats: BTreeMap::new(),
            queue: BTreeSet::new(),
            touched: BTreeSet::new(),
            stirred: false,
            scoring,
        }
    }

    /// Creates a pod; it waits until [`Self::schedule`] finds it a node.
    pub fn add_pod(&mut self, spec: PodSpec, now: Timestamp) {
        let PodSpec { id, requests, node_selector, node_affinity, tolerations, movable } = spec;
        let pod = PodView {
            id,
            node: None,
            requests,
            node_selector,
            node_affinity,
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
        self.take_pod(&pod.id);
        let pod = Arc::new(pod);
        match &pod.node {
            Some(node) => {
                if let Some(seat) = self.seats.get_mut(node) {
                    seat.put(&pod);
                }
                self.touched.insert(node.clone());
            }
            None => drop(self.queue.insert((pod.created_at, pod.id.clone()))),
        }
        self.stirred = true;
        self.pods.insert(pod.id.clone(), pod);
    }

    /// Lets a pod that waits bear more taints.
    pub fn tolerate(&mut self, id: &str, more: impl IntoIterator<Item = Toleration>) {
        if let Some(pod) = self.pods.get_mut(id) {
            Arc::make_mut(pod).tolerations.extend(more);
            self.stirred = true;
        }
    }

    /// Ends a pod; answers what it was.
    pub fn finish_pod(&mut self, id: &str) -> Option<Arc<PodView>> {
        let pod = self.take_pod(id)?;
        self.stirred = true;
        Some(pod)
    }

    /// Takes a pod out of its place.
    fn take_pod(&mut self, id: &str) -> Option<Arc<PodView>> {
        let pod = self.pods.remove(id)?;
        match &pod.node {
            Some(node) => {
                if let Some(seat) = self.seats.get_mut(node) {
                    seat.drop_pod(id);
                }
                self.touched.insert(node.clone());
            }
            None => drop(self.queue.remove(&(pod.created_at, pod.id.clone()))),
        }
        Some(pod)
    }

    /// Registers a node, or puts a new state of it in the old one's place.
    pub fn add_node(&mut self, node: NodeView) {
        let name = node.name.clone();
        self.nodes.insert(name.clone(), Arc::new(node));
        if !self.seats.contains_key(&name) {
            // Pods may have been bound to it before it was there.
            let mut bound = self.pods.values().filter(|pod| pod.node.as_deref() == Some(&name)).peekable();
            if bound.peek().is_some()
                && let Some(node) = self.nodes.get(&name)
            {
                let mut seat = SimNode::of(node, node.ready());
                bound.for_each(|pod| seat.put(pod));
                self.seats.insert(name.clone(), seat);
            }
        }
        self.reseat(&name);
    }

    /// Counts a node anew that changed.
    fn reseat(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let (pods, used) = self.seats.remove(name).map(|seat| (seat.pods, seat.used)).unwrap_or_default();
        self.seats.insert(name.to_owned(), SimNode { pods, used, ..SimNode::of(node, node.ready()) });
        self.touched.insert(name.to_owned());
        self.stirred = true;
    }

    /// Takes a node away; answers the pods that lost their place and wait again.
    pub fn remove_node(&mut self, name: &str, now: Timestamp) -> Vec<String> {
        if self.nodes.remove(name).is_none() {
            return Vec::new();
        }
        self.touched.insert(name.to_owned());
        let on_it = self.seats.remove(name).map(|seat| seat.pods).unwrap_or_default();
        let (daemons, mut lost): (Vec<_>, Vec<_>) = on_it.into_iter().partition(|p| p.daemon);
        lost.sort_by(|a, b| a.id.cmp(&b.id));
        for pod in daemons {
            self.take_pod(&pod.id);
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

    /// The pods on a node, in the order in which they came.
    pub fn pods_on(&self, node: &str) -> &[Arc<PodView>] {
        self.seats.get(node).map_or(&[], |seat| &seat.pods)
    }

    /// The pods without a node, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.queue.iter().filter_map(|(_, id)| self.pods.get(id))
    }

    /// Whether any pod has no node.
    pub fn any_waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The names of the nodes that came, went or changed, or got or lost a pod, since this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// One pass of the scheduler: binds each waiting pod, oldest first, and marks those that no node takes. Answers what was bound
    /// where.
    pub fn schedule(&mut self) -> Vec<(String, String)> {
        if self.queue.is_empty() || !std::mem::take(&mut self.stirred) {
            return Vec::new();
        }
        let mut bound = Vec::new();
        for (created_at, id) in self.queue.clone() {
            let Some(pod) = self.pods.get(&id).cloned() else { continue };
            match Self::choose(self.scoring, &mut self.seats, &pod) {
                Some((name, seat)) => {
                    let pod = Arc::new(PodView { unschedulable: false, node: Some(name.clone()), ..PodView::clone(&pod) });
                    seat.put(&pod);
                    self.queue.remove(&(created_at, id.clone()));
                    self.touched.insert(name.clone());
                    bound.push((id.clone(), name.clone()));
                    self.pods.insert(id, pod);
                }
                None if !pod.unschedulable => {
                    self.pods.insert(id, Arc::new(PodView { unschedulable: true, ..PodView::clone(&pod) }));
                }
                None => {}
            }
        }
        bound
    }

    fn choose<'a>(
        scoring: Scoring,
        seats: &'a mut BTreeMap<String, SimNode>,
        pod: &PodView,
    ) -> Option<(&'a String, &'a mut SimNode)> {
        let mut fitting = seats.iter_mut().filter(|(_, node)| node.takes(pod));
        let free = |node: &SimNode| {
            (
                node.allocatable.gpus.saturating_sub(node.used.gpus),
                node.slices.total().saturating_sub(node.used.slices.total()),
                node.allocatable.milli_cpu.saturating_sub(node.used.milli_cpu),
            )
        };
        match scoring {
            Scoring::FirstFit => fitting.next(),
            Scoring::MostAllocated => fitting.min_by_key(|(_, node)| free(node)),
            Scoring::LeastAllocated => fitting.min_by_key(|(_, node)| Reverse(free(node))),
        }
    }

    fn change(&mut self, name: &str, by: impl FnOnce(&mut NodeView)) -> bool {
        match self.nodes.get_mut(name) {
            Some(node) => {
                by(Arc::make_mut(node));
                self.reseat(name);
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
