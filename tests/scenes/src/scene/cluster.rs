//! The cluster's own part: kubelets, the scheduler, what is done to nodes, and what the feeds make of it all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use stoker_core::base::ids::{NodeGroupId, NodeName, ProviderId};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Drained, Hold, NodeFacts, Stuck};
use stoker_core::plan::Evict;
use stoker_sim::model::{NodeView, SCALE_DOWN_DISABLED};

use super::Scene;
use crate::cloud::Machine;
use crate::desk::{Chore, Pods};
use crate::probe::{Load, Probe};

/// How long after its last word a kubelet's node counts as not Ready.
pub(super) const UNREACHABLE_AFTER: SignedDuration = SignedDuration::from_secs(40);

impl Scene {
    /// Pods whose work is done, and those that have saved what they had.
    pub(super) fn finish_pods(&mut self) {
        let now = self.now;
        let done: Vec<String> = self.due(|pod| pod.ends_at.is_some_and(|at| at <= now));
        for id in done {
            self.pods.remove(&id);
            self.autoscaler.cluster_mut().finish_pod(&id);
            self.tell("cluster", &format!("{id} is done"));
            self.moved();
        }
        for id in self.due(|pod| pod.goes_at.is_some_and(|at| at <= now)) {
            self.goes(&id);
        }
    }

    fn due(&self, is: impl Fn(&super::Living) -> bool) -> Vec<String> {
        self.pods.iter().filter(|(_, pod)| is(pod)).map(|(id, _)| id.clone()).collect()
    }

    /// A pod leaves its node, and its successor waits.
    fn goes(&mut self, id: &str) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(id) {
            (pod.ends_at, pod.goes_at) = (None, None);
            self.truth.asks(&pod.spec.pool, now);
        }
        if let Some(pod) = self.autoscaler.cluster().pod(id).cloned() {
            self.autoscaler.cluster_mut().finish_pod(id);
            let fresh =
                stoker_sim::model::PodView { node: None, created_at: now, unschedulable: false, ..pod.as_ref().clone() };
            self.autoscaler.cluster_mut().insert_pod(fresh);
        }
        self.moved();
    }

    pub(super) const fn moved(&mut self) {
        self.changed = true;
        self.news = true;
    }

    pub(super) fn machine_gone(&mut self, machine: &Machine) {
        let name = machine.made.node_name.to_string();
        let reclaimed = machine.reclaim.is_some_and(|(_, at)| at <= self.now);
        self.tell("cloud", &format!("{name} is gone{}", if reclaimed { ": taken back" } else { "" }));
        self.truth.moved += u64::from(self.goes_back_to_spot(machine));
        // It was empty before its time, and was ended then.
        self.truth.lost += u64::from(machine.reclaim.is_some() && !reclaimed);
        let pods = self.pods_on(&name);
        self.truth.machine_gone(&name, reclaimed, &pods, self.now);
        self.probes.remove(&name);
        for id in &pods {
            if let Some(pod) = self.pods.get_mut(id) {
                pod.ends_at = None;
            }
        }
        if self.autoscaler.cluster().node(&name).is_some() {
            self.gone.insert(name, self.now);
        }
        self.moved();
    }

    /// The pods on a node that are not on their way out.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<String> {
        let bound = self.autoscaler.cluster().all_pods().filter(|pod| pod.node.as_deref() == Some(node));
        bound.filter(|pod| self.pods.get(&pod.id).is_some_and(|pod| pod.goes_at.is_none())).map(|pod| pod.id.clone()).collect()
    }

    /// Machines that have booted join, become Ready, and are not Ready when they are gone.
    pub(super) fn kubelets(&mut self) {
        let now = self.now;
        let mut joins: Vec<NodeView> = Vec::new();
        for machine in self.desk().cloud.machines.values() {
            let name = machine.made.node_name.as_str();
            if machine.joins_at > now || machine.ends_at.is_some() || self.autoscaler.cluster().node(name).is_some() {
                continue;
            }
            let group = machine.made.key.as_str().split('/').nth(1).unwrap_or_default();
            let known = NodeGroupId::find(&self.desk().memory.groups, group).map(|known| &known.group);
            let Some(group) = NodeGroupId::find(&self.desk().catalogue.groups, group).or(known) else { continue };
            let mut labels = group.template.labels.clone();
            labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
            joins.push(NodeView {
                name: name.to_owned(),
                provider_id: machine.made.provider_id.to_string(),
                labels: Arc::new(labels),
                annotations: Arc::default(),
                taints: group.template.taints.clone(),
                unschedulable: false,
                ready_since: None,
                created_at: now,
                allocatable: group.template.allocatable,
                capacity: group.template.capacity,
                slices: group.template.slices.clone(),
            });
        }
        for node in joins {
            self.truth.joined(&node.name, now);
            self.autoscaler.cluster_mut().add_node(node);
            self.moved();
        }
        let nodes: Vec<Arc<NodeView>> = self.autoscaler.cluster().all_nodes().cloned().collect();
        for node in nodes {
            let dead = self.gone.get(&node.name).is_some_and(|since| now.duration_since(*since) >= UNREACHABLE_AFTER);
            let machine = self.desk().cloud.of_node(&node.name);
            let up = machine.is_none_or(|machine| machine.ready_at <= now);
            let ready = up && !dead && !self.ailing.contains(&node.name);
            if ready == node.ready() {
                continue;
            }
            self.autoscaler.cluster_mut().set_ready(&node.name, ready.then_some(now));
            self.tell("cluster", &format!("{} is {}", node.name, if ready { "Ready" } else { "not Ready" }));
            self.moved();
            if let (true, true, Some(machine)) = (ready, self.probed, self.desk().cloud.of_node(&node.name)) {
                let gpus = NodeGroupId::find(
                    &self.desk().catalogue.groups,
                    machine.made.key.as_str().split('/').nth(1).unwrap_or_default(),
                );
                let gpus = gpus.map_or(1, |group| group.spec.gpus.0 / 1000);
                let (instances, ours, unheard) = (self.instances, self.desk().ours(), self.deaf);
                let mut probe = Probe::new(&node.name, (gpus, instances), ours, now);
                probe.broken.gates.extend(self.bad_gate.clone());
                if self.bad_gate.is_some() {
                    self.truth.sick.insert(node.name.clone());
                }
                probe.switch(!unheard, ours, now);
                self.probes.entry(node.name.clone()).or_insert(probe);
            }
        }
    }

    /// What the provider asked of the cluster and is due.
    pub(super) fn chores(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.desk_mut().chores).into_iter().partition(|(at, _)| *at <= now);
        self.desk_mut().chores = later;
        let due: Vec<_> = due;
        for (_, chore) in due {
            let name = chore.node().to_string();
            if self.autoscaler.cluster().node(&name).is_none() {
                continue;
            }
            self.moved();
            match chore {
                Chore::Hold(_) => self.annotate(&name, true),
                Chore::Release(_) => self.annotate(&name, false),
                Chore::Remove(_) => self.remove_node(&name),
                Chore::Drain(node, machine, pods) => self.drain(&node, machine, pods),
                Chore::Uncordon(_) => {
                    if self.closed.remove(&name) {
                        self.cordon(&name, false);
                    }
                }
            }
        }
    }

    fn annotate(&mut self, name: &str, on: bool) {
        let users = self.autoscaler.cluster().node(name).is_some_and(|node| node.is_kept()) && !self.held.contains(name);
        if users {
            return;
        }
        if on {
            self.held.insert(name.to_owned())
        } else {
            self.held.remove(name)
        };
        self.autoscaler.cluster_mut().annotate(name, SCALE_DOWN_DISABLED, on.then_some("true"));
    }

    fn remove_node(&mut self, name: &str) {
        let now = self.now;
        self.node_removed(name);
        let lost = self.autoscaler.cluster_mut().remove_node(name, now);
        for id in &lost {
            if let Some(pod) = self.pods.get_mut(id) {
                (pod.ends_at, pod.goes_at) = (None, None);
                self.truth.asks(&pod.spec.pool, now);
            }
        }
        if !lost.is_empty() {
            self.tell("cluster", &format!("{} lost {name} and wait again", lost.join(", ")));
        }
        self.probes.remove(name);
        self.closed.remove(name);
        self.held.remove(name);
        self.ailing.remove(name);
        self.gone.remove(name);
        self.truth.removed(name);
    }

    pub(super) fn cordon(&mut self, name: &str, closed: bool) {
        let Some(node) = self.autoscaler.cluster().node(name).cloned() else { return };
        self.autoscaler.cluster_mut().add_node(NodeView { unschedulable: closed, ..NodeView::clone(&node) });
    }

    /// Closes a node and tells those of its pods to go that may be told.
    fn drain(&mut self, node: &NodeName, machine: ProviderId, Pods { evict, gone_by }: Pods) {
        let (name, now) = (node.to_string(), self.now);
        let users =
            self.autoscaler.cluster().node(&name).is_some_and(|node| node.unschedulable) && !self.closed.contains(&name);
        if !users {
            self.closed.insert(name.clone());
            self.cordon(&name, true);
        }
        let on_it = self.pods_on(&name);
        let bare = on_it.iter().find(|id| self.pods.get(*id).is_some_and(|pod| !pod.spec.movable)).cloned();
        let stuck = match evict {
            _ if on_it.is_empty() => None,
            Evict::Nobody => None,
            Evict::WithoutGpu => Some(Stuck::Never(format!("{} has a GPU", on_it.join(", ")))),
            Evict::Movable if bare.is_some() => bare.map(|pod| Stuck::Never(format!("{pod} has no controller"))),
            _ if self.budgeted => Some(Stuck::NotNow("a disruption budget forbids it".to_owned())),
            Evict::Movable | Evict::All => None,
        };
        let told: Vec<String> = if stuck.is_some() || evict == Evict::Nobody { Vec::new() } else { on_it };
        let time = gone_by.map(|by| by.duration_since(self.desk().ours()).max(SignedDuration::ZERO));
        for id in &told {
            self.evicted_by_us(id, &name);
            let Some(pod) = self.pods.get_mut(id) else { continue };
            let (saves, grace) = (pod.spec.saves, time.unwrap_or(SignedDuration::MAX));
            pod.goes_at = Some(now + saves.min(grace));
            let lost = saves > grace;
            let left = time.map_or(String::new(), |time| format!(" within {} s", time.as_secs()));
            let lost = if lost { ", too short for what it has to save" } else { "" };
            self.tell("provider", &format!("tells {id} to leave {name}{left}{lost}"));
            if saves == SignedDuration::ZERO {
                self.goes(id);
            }
        }
        let left = self.autoscaler.cluster().all_pods().filter(|pod| pod.node.as_deref() == Some(name.as_str())).count();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let at = self.desk().ours();
        let drained = Drained { machine, at, evicted: count(told.len()), left: count(left), stuck };
        self.desk_mut().drains.insert(node.clone(), drained);
    }

    pub(super) fn schedule(&mut self) {
        let now = self.now;
        for (id, node) in self.autoscaler.cluster_mut().schedule() {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.ends_at = pod.spec.runs.map(|length| now + length);
            }
            self.tell("cluster", &format!("{id} is bound to {node}"));
            self.moved();
        }
    }

    /// Probes read what is on their nodes.
    pub(super) fn read_probes(&mut self) {
        let (now, ours) = (self.now, self.desk().ours());
        let mut loads: BTreeMap<String, Vec<Load>> = BTreeMap::new();
        let mut held: BTreeSet<String> = BTreeSet::new();
        for pod in self.autoscaler.cluster().all_pods() {
            let (Some(node), Some(living)) = (&pod.node, self.pods.get(&pod.id)) else { continue };
            held.insert(node.clone());
            let load = if living.spec.works { Load::Work } else { Load::Nothing };
            let on_it = loads.entry(node.clone()).or_default();
            on_it.extend((0..living.spec.gpus).map(|_| load));
        }
        let mut news = Vec::new();
        for (name, probe) in &mut self.probes {
            probe.set_load(loads.remove(name).unwrap_or_default(), now);
            let known = NodeName::find(&self.autoscaler.provider().seen, name.as_str()).is_some();
            if probe.advance(held.contains(name), ours, now) || !known {
                news.push((NodeName::new(name).unwrap(), Arc::new(probe.digest.seen().clone())));
            }
        }
        let probes = &self.probes;
        let desk = self.autoscaler.provider_mut();
        let before = desk.seen.len();
        desk.seen.retain(|name, _| probes.contains_key(name.as_str()));
        self.news |= !news.is_empty() || desk.seen.len() != before;
        if !desk.faults.down {
            desk.seen.extend(news);
        }
    }

    /// What the provider's watch sees of the cluster.
    pub(super) fn look(&mut self) {
        if !self.desk().works() {
            return;
        }
        self.pull();
        let (ours, known) = (self.desk().ours(), self.desk().facts.clone());
        let facts = |node: &Arc<NodeView>| {
            let name = NodeName::new(&node.name).ok()?;
            let closed = self.closed.contains(&node.name);
            let facts = NodeFacts {
                name: name.clone(),
                provider_id: ProviderId::new(&node.provider_id).ok(),
                group: None,
                created_at: node.created_at,
                ready_since: node.ready_since,
                gpu_pods: self.pods_on(&node.name).into_iter().collect(),
                scale_down_disabled: match (node.is_kept(), self.held.contains(&node.name)) {
                    (false, _) => Hold::None,
                    (true, true) => Hold::Ours,
                    (true, false) => Hold::Theirs,
                },
                allocatable: Some(node.allocatable.without_gpus()),
                shown: None,
                cordon: match (node.unschedulable, closed) {
                    (true, true) => Cordon::Ours,
                    (true, false) => Cordon::Theirs,
                    (false, true) => Cordon::MarkLeft,
                    (false, false) => Cordon::None,
                },
            };
            let facts = facts.happened_by(ours, known.as_ref().and_then(|known| known.nodes.get(&name)).map(AsRef::as_ref));
            Some((name, Arc::new(facts)))
        };
        let nodes = self.autoscaler.cluster().all_nodes().filter_map(facts).collect();
        let facts = ClusterFacts { nodes };
        if known.as_deref() != Some(&facts) {
            self.desk_mut().facts = Some(Arc::new(facts));
            self.news = true;
        }
    }
}
