//! A cluster in memory, with a scheduler of its own: what a demo or a test runs the autoscaler against.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use stoker_core::base::kinds::{Taint, TaintEffect};

use super::cluster::{Cluster, ClusterError, NodeAffinity, NodeView, PodView, Requests, TO_BE_DELETED_TAINT, Toleration};
use super::fit::{Frame, SimNode};

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

/// What the scheduler tells pods apart by.
type Kind = (Requests, BTreeMap<String, String>, NodeAffinity, Vec<Toleration>);

/// A pod in the queue.
#[derive(Debug, Clone, Copy)]
struct Queued {
    /// The number of its kind.
    kind: usize,
    /// Whether it is marked as one that no node takes.
    marked: bool,
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
    queue: BTreeMap<(Timestamp, String), Queued>,
    /// How often a pod came into the queue.
    queued: u64,
    /// The kinds of pods that were in the queue.
    kinds: BTreeMap<Kind, usize>,
    /// Kinds that no node took when the scheduler last looked.
    hopeless: FxHashSet<usize>,
    /// Nodes that may take more than they did then.
    freed: BTreeSet<String>,
    /// Nodes that changed, or got or lost a pod, since somebody last asked.
    touched: BTreeSet<String>,
    /// Whether a waiting pod may find a place that it did not find before.
    stirred: bool,
    scoring: Scoring,
}

impl MemoryCluster {
    /// An empty cluster.
    pub fn new(scoring: Scoring) -> Self {
        Self {
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            seats: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            kinds: BTreeMap::new(),
            hopeless: FxHashSet::default(),
            freed: BTreeSet::new(),
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
            None => self.enqueue(&pod),
        }
        self.stirred = true;
        self.pods.insert(pod.id.clone(), pod);
    }

    fn enqueue(&mut self, pod: &PodView) {
        let kind = (pod.requests.clone(), pod.node_selector.clone(), pod.node_affinity.clone(), pod.tolerations.clone());
        let next = self.kinds.len();
        let kind = *self.kinds.entry(kind).or_insert(next);
        self.queue.insert((pod.created_at, pod.id.clone()), Queued { kind, marked: pod.unschedulable });
        self.queued += 1;
    }

    /// Lets a pod that waits bear more taints.
    pub fn tolerate(&mut self, id: &str, more: impl IntoIterator<Item = Toleration>) {
        let Some(pod) = self.pods.get_mut(id) else { return };
        Arc::make_mut(pod).tolerations.extend(more);
        self.stirred = true;
        let pod = Arc::clone(pod);
        if pod.node.is_none() {
            self.enqueue(&pod);
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
                    self.freed.insert(node.clone());
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
                let mut seat = SimNode::new(Frame::of(node, node.ready()), Requests::default());
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
        let frame = Arc::new(Frame::of(node, node.ready()));
        self.seats.insert(name.to_owned(), SimNode { frame, pods, used });
        self.freed.insert(name.to_owned());
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
        self.queue.keys().filter_map(|(_, id)| self.pods.get(id))
    }

    /// How often a pod came to wait.
    pub(crate) const fn queued(&self) -> u64 {
        self.queued
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
        if self.queue.is_empty() {
            self.hopeless.clear();
            self.freed.clear();
            return Vec::new();
        }
        if !std::mem::take(&mut self.stirred) {
            return Vec::new();
        }
        let (hopeless, freed) = (std::mem::take(&mut self.hopeless), std::mem::take(&mut self.freed));
        let mut bound = Vec::new();
        // Nodes only fill while this looks: what none took is taken by none for the rest of it.
        let mut failed: FxHashMap<usize, bool> = FxHashMap::default();
        for ((created_at, id), Queued { kind, marked }) in self.to_try(&hopeless, &freed, &mut failed) {
            let Some(pod) = self.pods.get(&id).cloned() else { continue };
            let name = match failed.get(&kind) {
                Some(true) => None,
                _ if hopeless.contains(&kind) => {
                    let nodes = freed.iter().filter_map(|name| self.seats.get_key_value(name));
                    self.choose(nodes, &pod)
                }
                _ => self.choose(self.seats.iter(), &pod),
            };
            if let Some(name) = name
                && let Some(seat) = self.seats.get_mut(&name)
            {
                let pod = Arc::new(PodView { unschedulable: false, node: Some(name.clone()), ..PodView::clone(&pod) });
                seat.put(&pod);
                self.queue.remove(&(created_at, id.clone()));
                self.touched.insert(name.clone());
                bound.push((id.clone(), name));
                self.pods.insert(id, pod);
                continue;
            }
            failed.insert(kind, true);
            if !marked {
                self.pods.insert(id.clone(), Arc::new(PodView { unschedulable: true, ..PodView::clone(&pod) }));
                self.queue.insert((created_at, id), Queued { kind, marked: true });
            }
        }
        self.hopeless = self.queue.values().map(|queued| queued.kind).collect();
        bound
    }

    /// The pods in the queue that a node may take, or that are not marked yet. `failed` is told of the kinds that no node took before and
    /// that those which may take more do not take either.
    fn to_try(
        &self,
        hopeless: &FxHashSet<usize>,
        freed: &BTreeSet<String>,
        failed: &mut FxHashMap<usize, bool>,
    ) -> Vec<((Timestamp, String), Queued)> {
        let mut all = Vec::new();
        for (key, queued) in &self.queue {
            let fails = hopeless.contains(&queued.kind)
                && *failed.entry(queued.kind).or_insert_with(|| {
                    let takes =
                        |pod: &Arc<PodView>| freed.iter().any(|name| self.seats.get(name).is_some_and(|seat| seat.takes(pod)));
                    !self.pods.get(&key.1).is_some_and(takes)
                });
            if !fails || !queued.marked {
                all.push((key.clone(), *queued));
            }
        }
        all
    }

    /// The name of the node that the pod is bound to, of these.
    fn choose<'a>(&self, nodes: impl Iterator<Item = (&'a String, &'a SimNode)>, pod: &PodView) -> Option<String> {
        let mut fitting = nodes.filter(|(_, node)| node.takes(pod));
        let free = |node: &SimNode| {
            (
                node.allocatable.gpus.saturating_sub(node.used.gpus),
                node.slices.total().saturating_sub(node.used.slices.total()),
                node.allocatable.milli_cpu.saturating_sub(node.used.milli_cpu),
            )
        };
        let chosen = match self.scoring {
            Scoring::FirstFit => fitting.next(),
            Scoring::MostAllocated => fitting.min_by_key(|(_, node)| free(node)),
            Scoring::LeastAllocated => fitting.min_by_key(|(_, node)| Reverse(free(node))),
        };
        chosen.map(|(name, _)| name.clone())
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

    async fn node_and_pods(&mut self, name: &str) -> Option<(Arc<NodeView>, Vec<Arc<PodView>>)> {
        let mut pods = self.pods_on(name).to_vec();
        pods.sort_by(|a, b| a.id.cmp(&b.id));
        Some((self.nodes.get(name).cloned()?, pods))
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
