//! The decision's own month: the jobs as pods of a play in front of the decision and its region.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::facts::supply::{Refusal, RefusalKind};
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::{Policy, RawPolicy};

use super::accounts::{Accounts, InUse, SpotMarket};
use super::cloud::Cloud;
use super::jobs::{Job, Ledger, Saving};
use super::{Month, Outcome, sold};
use crate::in_process::cloud::{self, Life};
use crate::in_process::desk::Desk;
use crate::in_process::play::{Loops, Play, Pods, Stop};
use crate::model::{Autoscaler, MemoryCluster, PodSpec, Requests, Scoring, Settings, Toleration};

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
    let cloud = Cloud::new(month.seed, month.availability.clone());
    let desk = Desk::new(cloud, catalogue, sold::supplier().map_err(region)?, start);
    let jobs = Jobs {
        all: &month.jobs,
        arrived: 0,
        ledger: Ledger::new(&month.jobs, saving),
        ends: BTreeMap::new(),
        accounts: Accounts::default(),
    };
    let autoscaler = Autoscaler::new(desk, MemoryCluster::new(Scoring::MostAllocated), settings);
    let mut play = Play::new(autoscaler, jobs, Loops::Prompt, start);
    play.run();
    let seconds = play.seconds();
    let desk = play.autoscaler.provider_mut();
    let left: Vec<u64> = desk.cloud.machines().keys().copied().collect();
    for machine in left {
        desk.cloud.end(seconds, machine);
    }
    let broken = std::mem::take(&mut desk.broken);
    let Jobs { ledger, accounts, .. } = &play.pods;
    let made = Outcome::new(&play.autoscaler.provider().cloud.bill, ledger, month.jobs.len(), broken);
    Ok(Outcome { accounts: Some(*accounts), ..made })
}

impl cloud::Cloud for Cloud {
    fn launch(&mut self, now: i64, market: &Market) -> Result<u64, Refusal> {
        let refused = |kind, message: &str| Refusal::of_market(kind, message);
        let Some((zone, shape)) = sold::indices(&market.place) else {
            return Err(refused(RefusalKind::Config, "not sold here"));
        };
        let spot = market.capacity_type == CapacityType::Spot;
        Self::launch(self, now, shape, zone, spot).ok_or_else(|| refused(RefusalKind::OutOfCapacity, "no capacity"))
    }

    fn end(&mut self, now: i64, machine: u64) {
        Self::end(self, now, machine);
    }

    fn reclaim(&mut self, now: i64) {
        Self::reclaim(self, now);
    }

    fn life(&self, machine: u64) -> Option<Life> {
        self.machines().get(&machine).map(|machine| Life { ready: machine.ready, reclaim: machine.reclaim })
    }
}

/// The jobs, each of one pod.
struct Jobs<'a> {
    all: &'a [Job],
    /// How many have arrived.
    arrived: usize,
    ledger: Ledger,
    /// When each running job will be done, in seconds.
    ends: BTreeMap<usize, i64>,
    accounts: Accounts,
}

impl Pods<Cloud> for Jobs<'_> {
    fn next(&self) -> Option<i64> {
        let arrives = self.all.get(self.arrived).map(|job| job.arrives);
        arrives.into_iter().chain(self.ends.values().copied()).min()
    }

    fn come(&mut self, now: i64) -> Vec<(PodSpec, i64)> {
        let mut come = Vec::new();
        while let Some(job) = self.all.get(self.arrived).filter(|job| job.arrives <= now) {
            come.push((pod(self.arrived, job), now));
            self.arrived += 1;
        }
        come
    }

    fn ended(&mut self, now: i64) -> Vec<String> {
        let done: Vec<usize> = self.ends.iter().filter(|(_, at)| **at <= now).map(|(n, _)| *n).collect();
        for n in &done {
            self.ends.remove(n);
            self.ledger.finish(*n, now);
        }
        done.into_iter().map(pod_id).collect()
    }

    fn started(&mut self, pod: &str, now: i64) {
        if let Some(job) = job_of(pod) {
            self.ends.insert(job, self.ledger.start(job, now));
        }
    }

    fn stopped(&mut self, pod: &str, now: i64, how: Stop) {
        if let Some(job) = job_of(pod) {
            self.ends.remove(&job);
            self.ledger.stop(job, now, how);
        }
    }

    /// Adds what is paid until then.
    fn elapses(&mut self, desk: &Desk<Cloud>, from: i64, until: i64) {
        let market = SpotMarket::at(&desk.cloud, from);
        for (number, _, node) in desk.machines() {
            let Some(machine) = desk.cloud.machines().get(&number) else { continue };
            let jobs = node.into_iter().flat_map(|node| &node.gpu_pods).filter_map(|pod| job_of(pod));
            let running = jobs.filter_map(|job| self.ledger.running(job, from));
            let used = running.fold(InUse::default(), |used, (gpus, restarts)| InUse {
                gpus: used.gpus + gpus,
                restarting: used.restarting + if restarts { gpus } else { 0 },
            });
            self.accounts.add(machine, used, market, (from, until - from));
        }
    }

    fn is_over(&self, _: i64) -> bool {
        self.ledger.is_done()
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
        node_affinity: BTreeMap::new(),
        tolerations: vec![Toleration::of_key(GPU_RESOURCE)],
        movable: true,
    }
}
