//! Which pod fits which node: node selector, taints, resources.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use stoker_core::base::kinds::Taint;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::Slices;

use super::ca_client::NodeRef;
use super::cluster::{NodeAffinity, NodeView, PodView, Requests};

/// What of a node in a simulation stays as it is while pods come and go.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// What the provider would be told of it.
    pub(super) node: NodeRef,
    /// Taints.
    pub(super) taints: Vec<Taint>,
    /// Whether pods may be bound to it at all.
    pub(super) open: bool,
    /// What it leaves to pods.
    pub(super) allocatable: Resources,
    /// GPU resources under other names, left to pods.
    pub(super) slices: Slices,
}

impl Frame {
    /// Of a node of the cluster.
    pub(super) fn of(view: &NodeView, ready: bool) -> Self {
        Self {
            node: view.to_ref(),
            taints: view.taints.clone(),
            open: ready && !view.unschedulable,
            allocatable: view.allocatable,
            slices: view.slices.clone(),
        }
    }
}

/// A node in a simulation, with the pods on it.
#[derive(Debug, Clone)]
pub(super) struct SimNode {
    pub(super) frame: Arc<Frame>,
    /// The pods on it.
    pub(super) pods: Vec<Arc<PodView>>,
    /// What those and, on a node made up, its daemon pods ask for.
    pub(super) used: Requests,
}

impl Deref for SimNode {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}

impl SimNode {
    /// A node without pods.
    pub(super) fn new(frame: impl Into<Arc<Frame>>, used: Requests) -> Self {
        Self { frame: frame.into(), pods: Vec::new(), used }
    }

    /// Whether the pod may run here: its selector, the taints, the room left.
    pub(super) fn takes(&self, pod: &PodView) -> bool {
        self.open
            && self.has_room(&pod.requests)
            && selects(&pod.node_selector, &self.node.labels)
            && admits(&pod.node_affinity, &self.node.labels)
            && self.taints.iter().all(|taint| pod.bears(taint))
    }

    fn has_room(&self, more: &Requests) -> bool {
        let (used, has) = (&self.used, &self.allocatable);
        used.milli_cpu.saturating_add(more.milli_cpu) <= has.milli_cpu
            && used.memory.0.saturating_add(more.memory.0) <= has.memory.0
            && used.gpus.saturating_add(more.gpus) <= has.gpus
            && self.pods.len() < has.pods as usize
            && (more.slices.is_empty() && used.slices.is_empty() || used.clone().plus(more).slices.within(&self.slices))
    }

    /// Puts the pod here.
    pub(super) fn put(&mut self, pod: &Arc<PodView>) {
        self.used = std::mem::take(&mut self.used).plus(&pod.requests);
        self.pods.push(Arc::clone(pod));
    }

    /// Takes a pod away again.
    pub(super) fn drop_pod(&mut self, id: &str) {
        self.pods.retain(|pod| pod.id != id);
        self.used = self.pods.iter().fold(Requests::default(), |sum, pod| sum.plus(&pod.requests));
    }

    /// How much of it is used, 0 to 1: of its GPUs where it has the GPU label, else of CPU or memory, whichever is more.
    pub(super) fn utilization(&self, gpu_label: &str, ignore_daemon_sets: bool) -> f64 {
        let (mut daemons, mut others) = (Requests::default(), Requests::default());
        for pod in &self.pods {
            let side = if pod.daemon && ignore_daemon_sets { &mut daemons } else { &mut others };
            *side = std::mem::take(side).plus(&pod.requests);
        }
        if has_label(&self.node, gpu_label) {
            return share(u64::from(others.gpus), u64::from(self.allocatable.gpus.saturating_sub(daemons.gpus)));
        }
        let cpu = share(others.milli_cpu, self.allocatable.milli_cpu.saturating_sub(daemons.milli_cpu));
        let memory = share(others.memory.0, self.allocatable.memory.0.saturating_sub(daemons.memory.0));
        cpu.max(memory)
    }
}

/// Whether the node has the GPU label; an empty name is no label.
pub(super) fn has_label(node: &NodeRef, gpu_label: &str) -> bool {
    !gpu_label.is_empty() && node.labels.contains_key(gpu_label)
}

/// `part / whole`; nought where there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn admits(affinity: &NodeAffinity, labels: &BTreeMap<String, String>) -> bool {
    affinity.iter().all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
}
