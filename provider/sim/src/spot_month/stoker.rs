//! The decision's own month: the cluster, its scheduler and kubelets, and the model of the autoscaler, from event to event.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Drained, Hold, NodeFacts, Stuck};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::plan::Evict;
use stoker_core::policy::{Policy, RawPolicy};

use super::accounts::{Accounts, InUse, SpotMarket};
use super::ca_client::{Chore, Desk};
use super::cloud::Cloud;
use super::jobs::{Job, Ledger, Saving, Stop};
use super::{Month, Outcome, sold};
use crate::model::{
    Autoscaler, Cluster, LoopReport, MemoryCluster, NodeView, PodSpec, Requests, SCALE_DOWN_DISABLED, Scoring, Settings,
    Toleration,
};

/// Why a month cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPlayed {
    /// The policy has faults.
    #[error("the policy has faults: {0}")]
    Policy(String),
    /// It makes no groups here.
    #[error("the region cannot be told: {0}")]
    Region(String),
}

/// Rounds of one moment before a cluster that does not come to rest is a fault.
const MOST_ROUNDS: usize = 50;

/// What each GPU of a job asks for besides, which leaves a third of a node's CPUs (W4).
fn per_gpu() -> Requests {
    Requests { milli_cpu: 6_000, memory: MiB(50_000), gpus: 1, ..Requests::default() }
}

/// Plays a month under a policy, with the autoscaler's flags, to the last job.
///
/// # Errors
/// When the policy has faults or makes no groups here.
pub fn replay(month: &Month, policy: &RawPolicy, settings: Settings, saving: Saving) -> Result<Outcome, NotPlayed> {
    let policy = Policy::try_from_raw(policy)
        .map_err(|faults| NotPlayed::Policy(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    let start = Timestamp::UNIX_EPOCH;
    let region = |error: stoker_core::base::ids::IdError| NotPlayed::Region(error.to_string());
    let catalogue = sold::catalogue(policy, start).map_err(region)?;
    let cloud = Cloud::new(month.seed, month.weather.clone());
    let desk = Desk::new(cloud, catalogue, sold::supplier().map_err(region)?, start);
    let mut play = Play {
        autoscaler: Autoscaler::new(desk, MemoryCluster::new(Scoring::MostAllocated), settings),
        ledger: Ledger::new(&month.jobs, saving),
        ends: BTreeMap::new(),
        start,
        now: start,
        changed: true,
        accounts: Accounts::default(),
    };
    play.run(&month.jobs);
    Ok(play.end(month.jobs.len()))
}

struct Play {
    autoscaler: Autoscaler<Desk, MemoryCluster>,
    ledger: Ledger,
    /// When each running job will be done, in seconds.
    ends: BTreeMap<usize, i64>,
    start: Timestamp,
    now: Timestamp,
    /// Whether anything happened that the autoscaler has not seen.
    changed: bool,
    accounts: Accounts,
}

impl Play {
    fn run(&mut self, jobs: &[Job]) {
        let mut arrivals = jobs.iter().enumerate().peekable();
        while !self.ledger.is_done() {
            let seconds = self.seconds();
            let desk = self.autoscaler.door();
            let of_world = [
                arrivals.peek().map(|(_, job)| job.arrives),
                self.ends.values().min().copied(),
                desk.cloud.next_change(seconds),
            ];
            let of_world = of_world.into_iter().flatten().min().map(|at| self.at(at));
            let again = desk.again.filter(|at| *at > self.now);
            let scan = self.autoscaler.next_loop(self.now, self.changed);
            let Some(next) = [of_world, again, scan].into_iter().flatten().min() else { break };
            let scans = scan.is_some_and(|at| at <= next);
            self.account(next);
            self.now = next.max(self.now);
            self.happen(&mut arrivals);
            if scans {
                self.scan();
            }
        }
    }

    /// Adds what is paid until then.
    fn account(&mut self, until: Timestamp) {
        let now = self.seconds();
        let seconds = until.duration_since(self.start).as_secs() - now;
        if seconds <= 0 {
            return;
        }
        let desk = self.autoscaler.door();
        let market = SpotMarket::at(&desk.cloud, now);
        for (machine, node) in desk.machines() {
            let jobs = node.into_iter().flat_map(|node| &node.gpu_pods).filter_map(|pod| job_of(pod));
            let running = jobs.filter_map(|job| self.ledger.running(job, now));
            let used = running.fold(InUse::default(), |used, (gpus, restarts)| InUse {
                gpus: used.gpus + gpus,
                restarting: used.restarting + if restarts { gpus } else { 0 },
            });
            self.accounts.add(machine, used, market, (now, seconds));
        }
    }

    fn at(&self, seconds: i64) -> Timestamp {
        self.start.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
    }

    fn seconds(&self) -> i64 {
        self.now.duration_since(self.start).as_secs()
    }

    /// Jobs arrive and end, machines come and go.
    fn happen<'a>(&mut self, arrivals: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a Job)>>) {
        let seconds = self.seconds();
        while let Some((n, job)) = arrivals.next_if(|(_, job)| job.arrives <= seconds) {
            self.autoscaler.cluster_mut().add_pod(pod(n, job), self.now);
            self.changed = true;
        }
        let done: Vec<usize> = self.ends.iter().filter(|(_, at)| **at <= seconds).map(|(n, _)| *n).collect();
        for n in done {
            self.ends.remove(&n);
            self.ledger.finish(n, seconds);
            self.autoscaler.cluster_mut().finish_pod(&pod_id(n));
            self.changed = true;
        }
        self.changed |= self.autoscaler.door_mut().advance(self.now);
        self.settle();
    }

    /// One loop of the autoscaler.
    fn scan(&mut self) {
        let _: LoopReport = at_once(self.autoscaler.run_once(self.now));
        self.changed = false;
        self.settle();
    }

    /// The cluster follows the machines, the scheduler the cluster, and the decision both, until all are at rest.
    fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            self.register();
            self.chores();
            self.schedule();
            self.look();
            self.autoscaler.door_mut().pass();
            if self.autoscaler.door().chores.is_empty() {
                return;
            }
        }
        self.autoscaler.door_mut().broken.push(format!("{}: the cluster does not come to rest", self.now));
    }

    fn chores(&mut self) {
        for chore in std::mem::take(&mut self.autoscaler.door_mut().chores) {
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
    /// long a save takes is not told of these jobs, so the notice is taken to be too short for it.
    fn drain(&mut self, node: &NodeName, machine: ProviderId, evict: Evict, hasty: bool) {
        self.cordon(node.as_str(), true);
        let on_it: Vec<String> = self
            .autoscaler
            .cluster()
            .all_pods()
            .filter(|pod| pod.node.as_deref() == Some(node.as_str()))
            .map(|pod| pod.id.clone())
            .collect();
        let (mut left, mut stuck) = (on_it.len(), None);
        if evict == Evict::Nobody {
            // They stay.
        } else if evict == Evict::WithoutGpu {
            stuck = (left > 0).then(|| Stuck::Never("a GPU pod came".to_owned()));
        } else {
            let seconds = self.seconds();
            for job in on_it.iter().filter_map(|pod| job_of(pod)) {
                self.ends.remove(&job);
                self.ledger.stop(job, seconds, if hasty { Stop::Reclaimed } else { Stop::Evicted });
            }
            for pod in &on_it {
                left -= usize::from(at_once(self.autoscaler.cluster_mut().evict(pod, self.now)).is_ok());
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let drained = Drained { machine, at: self.now, evicted: count(on_it.len() - left), left: count(left), stuck };
        self.autoscaler.door_mut().drains.insert(node.clone(), drained);
    }

    fn remove(&mut self, node: &str) {
        let seconds = self.seconds();
        for pod in self.autoscaler.cluster_mut().remove_node(node, self.now) {
            let Some(job) = job_of(&pod) else { continue };
            self.ends.remove(&job);
            self.ledger.stop(job, seconds, Stop::Reclaimed);
        }
        self.changed = true;
    }

    /// Machines that have booted join as Ready Nodes.
    fn register(&mut self) {
        let now = self.now;
        let booted = self.autoscaler.door().booted();
        let nodes: Vec<NodeView> = booted
            .map(|(made, group)| {
                let mut labels = group.template.labels.clone();
                labels.insert("kubernetes.io/hostname".to_owned(), made.node_name.to_string());
                NodeView {
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
                }
            })
            .collect();
        for node in nodes {
            self.changed = true;
            self.autoscaler.cluster_mut().add_node(node);
        }
    }

    fn schedule(&mut self) {
        let seconds = self.seconds();
        for (pod, _) in self.autoscaler.cluster_mut().schedule() {
            if let Some(job) = job_of(&pod) {
                self.ends.insert(job, self.ledger.start(job, seconds));
                self.changed = true;
            }
        }
    }

    /// What the decision's feed sees of the cluster.
    fn look(&mut self) {
        let cluster = self.autoscaler.cluster();
        let mut pods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for pod in cluster.all_pods() {
            if let Some(node) = &pod.node {
                pods.entry(node).or_default().insert(pod.id.clone());
            }
        }
        let facts = |node: &Arc<NodeView>| {
            let name = NodeName::new(&node.name).ok()?;
            let facts = NodeFacts {
                name: name.clone(),
                provider_id: ProviderId::new(&node.provider_id).ok(),
                group: None,
                created_at: node.created_at,
                ready_since: node.ready_since,
                gpu_pods: pods.remove(node.name.as_str()).unwrap_or_default(),
                scale_down_disabled: if node.is_kept() { Hold::Ours } else { Hold::None },
                cordon: match (node.unschedulable, node.to_be_deleted_since()) {
                    (false, _) => Cordon::None,
                    (true, None) => Cordon::Ours,
                    (true, Some(_)) => Cordon::Theirs,
                },
                allocatable: None,
                shown: None,
            };
            Some((name, Arc::new(facts)))
        };
        let nodes = cluster.all_nodes().filter_map(facts).collect();
        self.autoscaler.door_mut().facts = Arc::new(ClusterFacts { nodes });
    }

    fn end(mut self, jobs: usize) -> Outcome {
        let seconds = self.seconds();
        let desk = self.autoscaler.door_mut();
        let left: Vec<u64> = desk.cloud.machines().keys().copied().collect();
        for machine in left {
            desk.cloud.end(seconds, machine);
        }
        let broken = std::mem::take(&mut desk.broken);
        Outcome { accounts: Some(self.accounts), ..Outcome::new(&desk.cloud.bill, &self.ledger, jobs, broken) }
    }
}

fn pod_id(job: usize) -> String {
    format!("training/job-{job:05}")
}

fn job_of(pod: &str) -> Option<usize> {
    pod.rsplit_once('-')?.1.parse().ok()
}

fn pod(n: usize, job: &Job) -> PodSpec {
    PodSpec {
        id: pod_id(n),
        requests: (0..job.gpus).fold(Requests::default(), |sum, _| sum.plus(&per_gpu())),
        node_selector: BTreeMap::from([(POOL_LABEL.to_owned(), sold::POOL.to_owned())]),
        tolerations: vec![Toleration::of_key(GPU_RESOURCE)],
        movable: true,
    }
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
