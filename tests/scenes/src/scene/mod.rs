//! A scene: the cluster around the provider, moved from event to event.

mod cluster;
mod readied;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use stoker_sim::model::{Autoscaler, Call, LoopReport, MemoryCluster, Scoring, Settings};

use crate::desk::{Desk, WrittenDecision};
use crate::probe::Probe;
use crate::truth::Truth;

/// Steps without time passing before a scene that does not come to rest is a fault.
const MOST_STEPS: u32 = 300;

/// A pod, as a scene has it come.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) pool: String,
    pub(crate) gpus: u32,
    /// How long it works once it is bound; for ever where not said.
    pub(crate) runs: Option<SignedDuration>,
    /// Whether it does anything with its GPUs.
    pub(crate) works: bool,
    /// Whether it may be evicted.
    pub(crate) movable: bool,
    /// How long it takes to go once it is told to.
    pub(crate) saves: SignedDuration,
}

impl Pod {
    /// A pod of a pool: one GPU, at work for ever, movable, gone at once when told to.
    pub fn of(pool: &str) -> Self {
        let pool = pool.to_owned();
        Self { pool, gpus: 1, runs: None, works: true, movable: true, saves: SignedDuration::ZERO }
    }

    /// It asks for so many GPUs.
    #[must_use]
    pub fn gpus(self, gpus: u32) -> Self {
        Self { gpus, ..self }
    }

    /// It ends when it has run for so long.
    #[must_use]
    pub fn runs(self, length: &str) -> Self {
        Self { runs: Some(length.parse().unwrap()), ..self }
    }

    /// It does nothing with its GPUs, like a notebook that nobody types into.
    #[must_use]
    pub fn quiet(self) -> Self {
        Self { works: false, ..self }
    }

    /// Nothing would make it again, so it may not be evicted.
    #[must_use]
    pub fn bare(self) -> Self {
        Self { movable: false, ..self }
    }

    /// It saves a checkpoint for so long when it is told to go, and its grace time allows for that.
    #[must_use]
    pub fn saves(self, length: &str) -> Self {
        Self { saves: length.parse().unwrap(), ..self }
    }
}

/// A pod that there is.
#[derive(Debug)]
pub(crate) struct Living {
    pub(crate) spec: Pod,
    /// When its work is done; while it waits, not known.
    pub(crate) ends_at: Option<Timestamp>,
    /// Told to go, and gone then.
    pub(crate) goes_at: Option<Timestamp>,
}

/// A scene.
#[derive(Debug)]
pub struct Scene {
    pub(crate) autoscaler: Autoscaler<Desk, MemoryCluster>,
    pub(crate) pods: BTreeMap<String, Living>,
    pub(crate) probes: BTreeMap<String, Probe>,
    /// Nodes that we closed, and nodes that we hold.
    pub(crate) closed: BTreeSet<String>,
    pub(crate) held: BTreeSet<String>,
    /// Nodes that are not Ready although their machine runs.
    pub(crate) ailing: BTreeSet<String>,
    /// Nodes whose machine is gone, and since when.
    pub(crate) gone: BTreeMap<String, Timestamp>,
    /// Whether nodes have probes.
    pub(crate) probed: bool,
    pub(crate) instances: u32,
    /// Whether no node's probe can be heard, new nodes' neither.
    pub(crate) deaf: bool,
    /// Whether disruption budgets forbid every eviction.
    pub(crate) budgeted: bool,
    /// Gates that do not hold on nodes that join from now on.
    pub(crate) bad_gate: Option<(stoker_core::facts::reading::Gate, String)>,
    /// Images on nodes; `None` where no node lists any.
    images: Option<readied::Images>,
    /// Whether the autoscaler runs.
    pub(crate) scans: bool,
    pub(crate) truth: Truth,
    pub(crate) now: Timestamp,
    /// Whether anything happened that the autoscaler, and the provider, have not seen.
    changed: bool,
    news: bool,
    shown: Vec<(u32, u32, u32)>,
}

impl Scene {
    /// A scene under a policy, given without its heading, from Monday 2026-11-02 08:00 UTC on.
    pub fn new(policy: &str) -> Self {
        Self::from("2026-11-02T08:00:00Z", policy)
    }

    /// A scene that begins at another time.
    pub fn from(start: &str, policy: &str) -> Self {
        Self::with(start, policy, Settings::recommended())
    }

    /// A scene with other flags of the autoscaler.
    pub fn with(start: &str, policy: &str, settings: Settings) -> Self {
        let start: Timestamp = start.parse().unwrap();
        let desk = Desk::new(policy, start);
        Self {
            autoscaler: Autoscaler::new(desk, MemoryCluster::new(Scoring::MostAllocated), settings),
            pods: BTreeMap::new(),
            probes: BTreeMap::new(),
            closed: BTreeSet::new(),
            held: BTreeSet::new(),
            ailing: BTreeSet::new(),
            gone: BTreeMap::new(),
            probed: true,
            instances: 0,
            deaf: false,
            budgeted: false,
            bad_gate: None,
            images: None,
            scans: true,
            truth: Truth::new(start),
            now: start,
            changed: true,
            news: true,
            shown: Vec::new(),
        }
    }

    pub(crate) const fn desk(&self) -> &Desk {
        self.autoscaler.provider()
    }

    pub(crate) const fn desk_mut(&mut self) -> &mut Desk {
        self.autoscaler.provider_mut()
    }

    /// Lets so much time pass.
    pub fn run(&mut self, length: &str) {
        let length: SignedDuration = length.parse().unwrap();
        self.run_for(length);
    }

    /// The same, of a length that was computed.
    pub fn run_for(&mut self, length: SignedDuration) {
        let until = self.now + length;
        // What was done by hand is seen before time passes.
        self.news = true;
        self.changed = true;
        self.step(false);
        let (mut steps, mut at) = (0_u32, self.now);
        loop {
            let scan = if self.scans { self.autoscaler.next_loop(self.now, self.changed) } else { None };
            let next = self.next().into_iter().chain(scan).min().filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = next.max(self.now);
            steps = if self.now == at { steps + 1 } else { 0 };
            at = self.now;
            assert!(steps < MOST_STEPS, "{}: the scene does not come to rest\n{}", self.now, self.timeline());
            self.step(scan.is_some_and(|scan| scan <= self.now));
        }
        self.now = until;
        self.desk_mut().line.now(until);
    }

    /// The next moment at which anything but the autoscaler does anything.
    fn next(&self) -> Option<Timestamp> {
        let desk = self.desk();
        let again = desk.again.filter(|at| desk.works() && *at > self.now);
        let pods = self.pods.values().flat_map(|pod| [pod.ends_at, pod.goes_at]).flatten();
        let probes = self.probes.values().filter_map(Probe::next);
        let dying = self.gone.values().map(|since| *since + cluster::UNREACHABLE_AFTER).filter(|at| *at > self.now);
        [again, desk.next_change(), self.next_pull()].into_iter().flatten().chain(pods).chain(probes).chain(dying).min()
    }

    /// Everything that is due now.
    fn step(&mut self, scan: bool) {
        let now = self.now;
        let (gone, news) = self.desk_mut().advance(now);
        self.news |= news;
        for machine in gone {
            self.machine_gone(&machine);
        }
        self.follow();
        if scan {
            let report = self.scan();
            self.changed = false;
            self.told_by_autoscaler(&report);
            self.follow();
        }
        let shown = self.desk().limits.values().map(|limits| (limits.min, limits.max, limits.target)).collect();
        if self.shown != shown {
            self.shown = shown;
            self.changed = true;
        }
        self.truth_watches();
    }

    /// One loop of the autoscaler.
    fn scan(&mut self) -> LoopReport {
        let (now, made_up) = (self.now, self.pods_of_buffers());
        for pod in &made_up {
            self.autoscaler.cluster_mut().insert_pod(pod.clone());
        }
        let report = at_once(self.autoscaler.run_once(now));
        for pod in &made_up {
            self.autoscaler.cluster_mut().finish_pod(&pod.id);
        }
        report
    }

    /// The cluster follows the machines, the scheduler the cluster, probes and the provider both.
    fn follow(&mut self) {
        self.finish_pods();
        self.kubelets();
        self.chores();
        self.schedule();
        self.read_probes();
        self.look();
        let now = self.now;
        let desk = self.desk_mut();
        let due = desk.again.is_some_and(|at| at <= now);
        if desk.works() && (self.news || due) {
            self.desk_mut().pass();
            self.news = false;
        }
    }

    fn told_by_autoscaler(&mut self, report: &LoopReport) {
        use stoker_sim::model::Action as Did;
        for action in &report.actions {
            let text = match action {
                Did::ScaledUp { group, delta, for_min_size: true } => format!("asks {group} for {delta} more, to its minSize"),
                Did::ScaledUp { group, delta, for_min_size: false } => format!("asks {group} for {delta} more"),
                Did::ScaleUpFailed { group, delta, error } => format!("asked {group} for {delta} more: {}", error.message),
                Did::CreationFailed { group, error, .. } => format!("sees that {group} failed ({})", error.code),
                Did::BackedOff { group, until } => {
                    self.truth.left_alone.insert(group.clone(), *until);
                    let left = until.duration_since(self.now);
                    format!("leaves {group} alone for {}", crate::timeline::shown(left).trim_end())
                }
                Did::RequestTimedOut { group, increase } => format!("gives up waiting for {increase} of {group}"),
                Did::UnregisteredDeleted { group, instances, .. } => {
                    format!("deletes {} of {group}, which never joined", instances.join(", "))
                }
                Did::FailedDeleted { group, instances, .. } => format!("deletes {} failed of {group}", instances.len()),
                Did::SizeFixed { group, delta } => format!("corrects the size of {group} by {delta}"),
                Did::DeletionStarted { node, drain, .. } => {
                    self.chosen(node);
                    format!("wants {node} gone{}", if *drain { ", its pods elsewhere" } else { "" })
                }
                Did::Evicted { pod, node } => {
                    self.truth.evicted_by_autoscaler(pod, node, self.now);
                    if let Some(pod) = self.pods.get_mut(pod) {
                        (pod.ends_at, pod.goes_at) = (None, None);
                    }
                    format!("evicts {pod} from {node}")
                }
                Did::Deleted { node, .. } => {
                    self.deleted(node);
                    format!("deletes {node}")
                }
                Did::DeletionFailed { node, reason, .. } => {
                    if reason.starts_with("deadline exceeded") {
                        self.deleted(node);
                    }
                    format!("gives up deleting {node}: {reason}")
                }
                Did::Untainted { node } => format!("takes its mark from {node}"),
            };
            self.tell("autoscaler", &text);
        }
        let twice = report.calls.iter().filter(|record| matches!(record.call, Call::IncreaseSize(..)));
        self.truth.asked += twice.count() as u64;
    }

    pub(crate) fn tell(&mut self, who: &str, what: &str) {
        let now = self.now;
        let line = &mut self.desk_mut().line;
        line.now(now);
        line.tell(who, what);
    }

    /// What happened and what was decided so far.
    pub fn timeline(&self) -> String {
        self.desk().line.text()
    }

    /// Keeps no timeline but its end.
    pub fn keep_only_the_end(&mut self) {
        self.desk_mut().line.quiet = true;
    }

    /// Keeps the whole timeline from now on.
    pub fn keep_all(&mut self) {
        self.desk_mut().line.quiet = false;
        self.desk_mut().catch_up();
    }

    /// The decisions since this was last asked, as a journal gets them; from the first time on they are kept.
    pub fn written(&mut self) -> Vec<WrittenDecision> {
        self.desk_mut().written.replace(Vec::new()).unwrap_or_default()
    }

    /// Promises that were broken so far, in words.
    pub fn broken(&self) -> Vec<String> {
        self.desk().broken.iter().chain(&self.truth.broken).cloned().collect()
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

impl Drop for Scene {
    /// A scene that fails tells how it came to that.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.timeline());
        }
    }
}
