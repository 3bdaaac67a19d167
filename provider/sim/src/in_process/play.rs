//! The cluster, its scheduler and kubelets, and the model of the autoscaler in front of a desk, from event to event.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::facts::snapshot::{Cordon, Drained, Hold, NodeFacts, Stuck};
use stoker_core::plan::Evict;

use super::cloud::Cloud;
use super::desk::{Chore, Desk};
use super::isolation::Isolation;
use crate::model::{Action, Autoscaler, MemoryCluster, NodeView, PodSpec, SCALE_DOWN_DISABLED};

/// Rounds of one moment before a cluster that does not come to rest is a fault.
const MOST_ROUNDS: usize = 50;

/// How a run of a pod came to an end before the pod was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The cloud took the node: the work since the last checkpoint is lost.
    Reclaimed,
    /// The pod was evicted, and saved what it had first, as SIGTERM tells it to.
    Evicted,
}

/// The pods of a play: when they come, and what becomes of them. Times are whole seconds from the start.
pub trait Pods<C> {
    /// When the next pod comes or is done.
    fn next(&self) -> Option<i64>;

    /// The pods that have come by now, each with when it was created.
    fn come(&mut self, now: i64) -> Vec<(PodSpec, i64)>;

    /// The running pods that are done by now.
    fn ended(&mut self, now: i64) -> Vec<String>;

    /// A pod got a node.
    fn started(&mut self, pod: &str, now: i64);

    /// A running pod lost its node.
    fn stopped(&mut self, pod: &str, now: i64, how: Stop);

    /// The autoscaler evicts a pod.
    fn evicted(&mut self, pod: &str, now: i64) {
        self.stopped(pod, now, Stop::Evicted);
    }

    /// Nothing changes from now on until a later moment.
    fn elapses(&mut self, _desk: &Desk<C>, _from: i64, _until: i64) {}

    /// When the play is over.
    fn is_over(&self, now: i64) -> bool;
}

/// Which loops of the autoscaler are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// Those at which something can differ. One that is due to a change is run at once where the last was longer ago than its interval.
    Prompt,
    /// Those at which something can differ, each when the process would run it: the same actions as with all of them.
    Needed,
    /// All.
    All,
}

/// A play.
pub struct Play<C, P> {
    /// The autoscaler between the desk and the cluster.
    pub autoscaler: Autoscaler<Desk<C>, MemoryCluster>,
    /// The pods.
    pub pods: P,
    /// Loops of the autoscaler that were run.
    pub scans: u64,
    isolation: Isolation,
    loops: Loops,
    start: Timestamp,
    now: Timestamp,
    /// Whether anything happened that the autoscaler has not seen.
    changed: bool,
    /// Pods that came at this moment.
    fresh: BTreeSet<String>,
    /// Nodes with pods that a drain could not move, and when it last tried: within a moment it would fail again.
    unmoved: BTreeMap<NodeName, Timestamp>,
}

impl<C: Cloud + Send, P: Pods<C>> Play<C, P> {
    /// A play that begins at `start`.
    pub fn new(mut autoscaler: Autoscaler<Desk<C>, MemoryCluster>, pods: P, loops: Loops, start: Timestamp) -> Self {
        autoscaler.provider_mut().restless = loops == Loops::Prompt;
        if loops == Loops::Needed {
            autoscaler.skip_idle_reads();
        }
        let isolation = Isolation::of(autoscaler.provider().catalogue(), start);
        let (fresh, unmoved) = (BTreeSet::new(), BTreeMap::new());
        Self { autoscaler, pods, scans: 0, isolation, loops, start, now: start, changed: true, fresh, unmoved }
    }

    /// Serves the pods that are there at the start at once: the autoscaler loops until it asks for nothing more.
    pub fn begin(&mut self) {
        self.happen();
        for _ in 0..MOST_ROUNDS * MOST_ROUNDS {
            if !self.scan() {
                return;
            }
        }
        self.autoscaler.provider_mut().broken.push(format!("{}: the autoscaler does not come to rest", self.now));
    }

    /// Plays until the pods say that it is over.
    pub fn run(&mut self) {
        while !self.pods.is_over(self.seconds()) {
            let desk = self.autoscaler.provider();
            let of_world = [self.pods.next(), desk.next_change()].into_iter().flatten().min().map(|at| self.at(at));
            let again = [desk.again, self.isolation.again].into_iter().flatten().filter(|at| *at > self.now).min();
            let scan = match self.loops {
                Loops::Prompt => self.autoscaler.next_loop(self.now, self.changed),
                Loops::Needed => self.autoscaler.next_regular_loop(self.now, self.changed),
                Loops::All => self.autoscaler.next_regular_loop(self.now, true),
            };
            let Some(next) = [of_world, again, scan].into_iter().flatten().min() else { break };
            let scans = scan.is_some_and(|at| at <= next);
            let (from, until) = (self.seconds(), next.duration_since(self.start).as_secs());
            if until > from {
                self.pods.elapses(self.autoscaler.provider(), from, until);
            }
            self.now = next.max(self.now);
            self.happen();
            if scans {
                self.scan();
            }
        }
    }

    fn at(&self, seconds: i64) -> Timestamp {
        self.start.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
    }

    /// Whole seconds since the start.
    pub fn seconds(&self) -> i64 {
        self.now.duration_since(self.start).as_secs()
    }

    /// Pods come and end, machines come and go.
    fn happen(&mut self) {
        let seconds = self.seconds();
        for (spec, created_at) in self.pods.come(seconds) {
            self.fresh.insert(spec.id.clone());
            let created_at = if created_at == seconds { self.now } else { self.at(created_at) };
            self.autoscaler.cluster_mut().add_pod(spec, created_at);
        }
        for id in self.pods.ended(seconds) {
            let was = self.autoscaler.cluster_mut().finish_pod(&id);
            let node = was.and_then(|pod| pod.node.clone());
            self.changed |= node.is_none_or(|node| !self.is_kept(&node));
        }
        let settled = !self.fresh.is_empty() && self.loops == Loops::Prompt;
        self.changed |= settled;
        self.changed |= self.autoscaler.provider_mut().advance(self.now);
        self.settle();
        let cluster = self.autoscaler.cluster();
        self.changed |= self.fresh.iter().any(|id| cluster.pod(id).is_some_and(|pod| pod.node.is_none()));
        self.fresh.clear();
    }

    /// Whether the autoscaler would not look at how full a node is: Stoker holds it, and no pod waits for what is free on it.
    fn is_kept(&self, node: &str) -> bool {
        let cluster = self.autoscaler.cluster();
        self.loops != Loops::Prompt && !cluster.any_waits() && cluster.node(node).is_some_and(|node| node.is_kept())
    }

    /// One loop of the autoscaler. Answers whether it asked for nodes.
    fn scan(&mut self) -> bool {
        self.scans += 1;
        let report = at_once(self.autoscaler.run_once(self.now));
        self.changed = false;
        let seconds = self.seconds();
        for action in &report.actions {
            if let Action::Evicted { pod, .. } = action {
                self.pods.evicted(pod, seconds);
            }
        }
        self.autoscaler.provider_mut().answers_changed = false;
        self.settle();
        report.actions.iter().any(|action| matches!(action, Action::ScaledUp { .. }))
    }

    /// The cluster follows the machines, the scheduler the cluster, and the decision both, until all are at rest.
    fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            self.register();
            self.chores();
            self.schedule();
            self.look();
            self.autoscaler.provider_mut().pass();
            if self.autoscaler.provider().chores.is_empty() {
                self.changed |= self.loops != Loops::Prompt && self.autoscaler.provider().answers_changed;
                return;
            }
        }
        self.autoscaler.provider_mut().broken.push(format!("{}: the cluster does not come to rest", self.now));
    }

    fn chores(&mut self) {
        for chore in std::mem::take(&mut self.autoscaler.provider_mut().chores) {
            self.changed = true;
            match chore {
                Chore::Hold(node, held) => {
                    self.autoscaler.cluster_mut().annotate(&node, SCALE_DOWN_DISABLED, held.then_some("true"));
                }
                Chore::Remove(node) => self.remove(&node),
                Chore::Drain(node, machine, evict, hasty) => self.drain(&node, machine, evict, hasty),
                Chore::Uncordon(node) => self.cordon(&node, false),
            }
        }
    }

    fn cordon(&mut self, name: &str, closed: bool) {
        let Some(node) = self.autoscaler.cluster().node(name).cloned() else { return };
        self.autoscaler.cluster_mut().add_node(NodeView { unschedulable: closed, ..NodeView::clone(&node) });
    }

    /// Closes a node and tells its pods to go. Each saves what it has, is gone at once, and waits again. In haste nothing is saved: how
    /// long a save takes is not told of these pods, so the notice is taken to be too short for it.
    fn drain(&mut self, node: &NodeName, machine: ProviderId, evict: Evict, hasty: bool) {
        if self.unmoved.get(node) == Some(&self.now) {
            return;
        }
        self.cordon(node.as_str(), true);
        let mut on_it: Vec<String> =
            self.autoscaler.cluster().pods_on(node.as_str()).iter().map(|pod| pod.id.clone()).collect();
        on_it.sort_unstable();
        let (mut left, mut stuck) = (on_it.len(), None);
        if evict == Evict::Nobody {
            // They stay.
        } else if evict == Evict::WithoutGpu {
            stuck = (left > 0).then(|| Stuck::Never("a GPU pod came".to_owned()));
        } else {
            let seconds = self.seconds();
            for pod in &on_it {
                if at_once(crate::model::Cluster::evict(self.autoscaler.cluster_mut(), pod, self.now)).is_ok() {
                    self.pods.stopped(pod, seconds, if hasty { Stop::Reclaimed } else { Stop::Evicted });
                    left -= 1;
                }
            }
            if left > 0 {
                stuck = Some(Stuck::Never("a pod may not be moved".to_owned()));
                self.unmoved.insert(node.clone(), self.now);
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let drained = Drained { machine, at: self.now, evicted: count(on_it.len() - left), left: count(left), stuck };
        self.autoscaler.provider_mut().drained(node.clone(), drained);
    }

    fn remove(&mut self, node: &str) {
        let seconds = self.seconds();
        self.unmoved.retain(|unmoved, _| unmoved.as_str() != node);
        for pod in self.autoscaler.cluster_mut().remove_node(node, self.now) {
            self.pods.stopped(&pod, seconds, Stop::Reclaimed);
        }
        self.changed = true;
    }

    /// Machines that have booted join as Ready Nodes.
    fn register(&mut self) {
        let now = self.now;
        for (made, group) in self.autoscaler.provider_mut().take_booted() {
            let mut labels = group.template.labels.clone();
            labels.insert("kubernetes.io/hostname".to_owned(), made.node_name.to_string());
            let node = NodeView {
                name: made.node_name.to_string(),
                provider_id: made.provider_id.to_string(),
                labels: Arc::new(labels),
                annotations: Arc::default(),
                taints: group.template.taints.clone(),
                unschedulable: false,
                ready_since: Some(now),
                created_at: now,
                allocatable: group.template.allocatable,
                capacity: group.template.capacity,
                slices: group.template.slices.clone(),
            };
            self.changed = true;
            self.autoscaler.cluster_mut().add_node(node);
        }
    }

    fn schedule(&mut self) {
        self.bind();
        let given = self.isolation.admit(&mut self.autoscaler, self.now);
        if !given.is_empty() {
            // That pods bear more which the autoscaler has seen waiting is news to it.
            self.changed |= given.iter().any(|pod| !self.fresh.contains(pod));
            self.bind();
        }
    }

    fn bind(&mut self) {
        let seconds = self.seconds();
        for (pod, node) in self.autoscaler.cluster_mut().schedule() {
            self.pods.started(&pod, seconds);
            self.changed |= !self.fresh.contains(&pod) || !self.is_kept(&node);
        }
    }

    /// What the decision's feed sees of the cluster.
    fn look(&mut self) {
        for name in self.autoscaler.cluster_mut().take_touched() {
            let cluster = self.autoscaler.cluster();
            let facts = cluster.node(&name).and_then(|node| facts(node, cluster));
            self.autoscaler.provider_mut().sees(&name, facts);
        }
    }
}

fn facts(node: &NodeView, cluster: &MemoryCluster) -> Option<NodeFacts> {
    Some(NodeFacts {
        name: NodeName::new(&node.name).ok()?,
        provider_id: ProviderId::new(&node.provider_id).ok(),
        group: None,
        created_at: node.created_at,
        ready_since: node.ready_since,
        gpu_pods: cluster.pods_on(&node.name).iter().map(|pod| pod.id.clone()).collect(),
        scale_down_disabled: if node.is_kept() { Hold::Ours } else { Hold::None },
        cordon: match (node.unschedulable, node.to_be_deleted_since()) {
            (false, _) => Cordon::None,
            (true, None) => Cordon::Ours,
            (true, Some(_)) => Cordon::Theirs,
        },
        allocatable: None,
        shown: None,
    })
}

/// The value of a future that never waits: everything here answers at once.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

/// What pods of one kind may use; see [`Isolation`].
pub(super) type Shapes = BTreeMap<stoker_core::base::ids::InstanceType, stoker_core::catalogue::isolation::Admitted>;
