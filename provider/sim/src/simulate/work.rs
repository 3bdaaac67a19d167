//! The pods of the demand: when they come, how far they are, how long they wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use jiff::SignedDuration;
use stoker_core::base::ids::{InstanceType, PoolName};
use stoker_core::base::units::{MiB, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::isolation::{Shape, admitted};
use stoker_core::catalogue::template::{GPU_LABEL, POOL_LABEL};
use stoker_core::market::offer::CapacityType;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::Pool;
use stoker_core::policy::rules::warm_floor::{ASKED_WITHIN, FloorStands};

use super::Setup;
use super::region::Region;
use crate::demand::{self, Demand, Pod, Service, types};
use crate::in_process::desk::Desk;
use crate::in_process::isolation::needs;
use crate::in_process::play::{Pods, Stop};
use crate::model::{NodeAffinity, PodSpec, Requests, Toleration};
use crate::spot_month::jobs::{Job, Ledger};
use crate::world::draw::whole;

/// By when a node that a floor lacks is on its way: the autoscaler's time to ask, and a minute for the pass that grows the group without it.
const COMES_WITHIN: i64 = ASKED_WITHIN.as_secs() + 60;

/// Pods of the start were there long before, so that the autoscaler does not hold them back as just created. Isolation counts
/// no wait before the start.
const THERE_SINCE: i64 = -3_600;

/// How things stand at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When, in seconds.
    pub at: i64,
    /// GPUs that running and waiting pods request.
    pub demand_gpus: u32,
    /// GPUs that waiting pods request.
    pub waiting_gpus: u32,
    /// Nodes, by an index into [`super::outcome::Outcome::types`] and the way of buying.
    pub nodes: BTreeMap<(usize, CapacityType), u32>,
    /// What they cost.
    pub hourly: UsdPerHour,
}

/// GPUs of the pods that could run on a type, whenever that changed.
pub(super) type Wanted = Vec<(i64, u32)>;

/// The pods of the demand.
#[derive(Debug)]
pub struct Work {
    demand: Arc<Demand>,
    /// The pool of the pods that name none.
    pool: String,
    /// What the pods of each pool tolerate: who asks for a pool has made them so.
    tolerated: BTreeMap<String, Vec<Toleration>>,
    ends: i64,
    /// When each comes, in seconds.
    arrives: Vec<i64>,
    come: usize,
    ledger: Ledger,
    /// When each running pod is done.
    ends_of: BTreeMap<usize, i64>,
    due: BinaryHeap<Reverse<(i64, usize)>>,
    /// Since when each pod waits; `None` while it runs, or is done or yet to come.
    waits: Vec<Option<i64>>,
    started: Vec<bool>,
    /// Types that each pod may use, by indices of the region's.
    usable: Vec<Vec<usize>>,
    pub(super) wanted: Vec<Wanted>,
    /// Waits of the first starts, in seconds.
    pub(super) first_waits: Vec<i64>,
    /// GPU-seconds of waiting.
    pub(super) waited: i64,
    /// GPU-seconds of running.
    pub(super) ran: i64,
    since: Vec<i64>,
    pub(super) stopped: u64,
    pub(super) evicted: u64,
    demand_gpus: u32,
    waiting_gpus: u32,
    sample_every: i64,
    pub(super) samples: Vec<Sample>,
    /// Since when each floor has lacked nodes of which none was on its way, though nothing kept them from being bought.
    lacks_since: BTreeMap<PoolName, i64>,
    /// Launches that had been refused when floors were last looked at.
    refused: u64,
    /// Seconds in which a floor lacked nodes that nothing kept from being bought, once the autoscaler has had its time to ask.
    pub(super) floor_unmet: i64,
}

impl Work {
    pub(super) fn new(setup: &Setup) -> Self {
        let demand = Arc::clone(&setup.demand);
        let policy = &setup.catalogue.policy;
        let pods = &demand.pods;
        let jobs: Vec<Job> = pods.iter().map(job).collect();
        let (usable, types) = usable(&setup.catalogue, &demand);
        Self {
            pool: policy.pools.first().map(|pool| pool.name.to_string()).unwrap_or_default(),
            tolerated: policy.pools.iter().map(|pool| (pool.name.to_string(), tolerations(pool))).collect(),
            ends: whole(demand.seconds),
            arrives: jobs.iter().map(|job| job.arrives).collect(),
            come: 0,
            ledger: Ledger::new(&jobs, setup.world.saving),
            ends_of: BTreeMap::new(),
            due: BinaryHeap::new(),
            waits: vec![None; pods.len()],
            started: vec![false; pods.len()],
            usable,
            wanted: vec![vec![(i64::MIN, 0)]; types],
            first_waits: Vec::new(),
            waited: 0,
            ran: 0,
            since: vec![0; pods.len()],
            stopped: 0,
            evicted: 0,
            demand_gpus: 0,
            waiting_gpus: 0,
            sample_every: setup.sample_every.max(1),
            samples: Vec::new(),
            lacks_since: BTreeMap::new(),
            refused: 0,
            floor_unmet: 0,
            demand,
        }
    }

    /// How far the pods are.
    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Pods that have come and wait.
    pub(super) fn still_waiting(&self) -> usize {
        self.waits.iter().flatten().count()
    }

    /// Ends the count: pods that still wait have waited so long.
    pub(super) fn close(&mut self) {
        for n in 0..self.waits.len() {
            if let Some(since) = self.waits.get(n).copied().flatten() {
                let waited = self.ends - since;
                self.waited += waited * i64::from(self.gpus(n));
                if !self.started.get(n).copied().unwrap_or(true) {
                    self.first_waits.push(waited);
                }
            }
        }
        for n in std::mem::take(&mut self.ends_of).into_keys() {
            self.ran += (self.ends - self.since.get(n).copied().unwrap_or(self.ends)) * i64::from(self.gpus(n));
        }
    }

    fn gpus(&self, n: usize) -> u32 {
        self.demand.pods.get(n).map_or(0, |pod| pod.requests.gpus)
    }

    /// Counts a pod as there, or no more.
    fn count(&mut self, n: usize, now: i64, there: bool) {
        let gpus = self.gpus(n);
        let change = |of: u32| if there { of + gpus } else { of.saturating_sub(gpus) };
        self.demand_gpus = change(self.demand_gpus);
        for of in self.usable.get(n).into_iter().flatten() {
            let Some(wanted) = self.wanted.get_mut(*of) else { continue };
            let now_wanted = change(wanted.last().map_or(0, |(_, gpus)| *gpus));
            match wanted.last_mut() {
                Some((at, gpus)) if *at == now => *gpus = now_wanted,
                _ => wanted.push((now, now_wanted)),
            }
        }
    }

    fn waits_from(&mut self, n: usize, since: i64) {
        self.waiting_gpus += self.gpus(n);
        if let Some(waits) = self.waits.get_mut(n) {
            *waits = Some(since);
        }
    }

    /// A running pod runs no more; answers how long it ran.
    fn halt(&mut self, n: usize, now: i64) {
        self.ends_of.remove(&n);
        self.ran += (now - self.since.get(n).copied().unwrap_or(now)) * i64::from(self.gpus(n));
    }

    fn spec(&self, n: usize, pod: &Pod) -> PodSpec {
        let pool = pod.pool.as_ref().unwrap_or(&self.pool);
        let mut node_selector = BTreeMap::from([(POOL_LABEL.to_owned(), pool.clone())]);
        let mut node_affinity = NodeAffinity::new();
        match pod.models.as_slice() {
            [] => {}
            [model] => drop(node_selector.insert(GPU_LABEL.to_owned(), model.clone())),
            models => drop(node_affinity.insert(GPU_LABEL.to_owned(), models.iter().cloned().collect())),
        }
        PodSpec {
            id: format!("work/{n:06}"),
            requests: requests(pod),
            node_selector,
            node_affinity,
            tolerations: self.tolerated.get(pool).cloned().unwrap_or_default(),
            movable: pod.service == Service::BestEffort,
        }
    }
}

/// The taint of GPU nodes, and those of the pool.
fn tolerations(pool: &Pool) -> Vec<Toleration> {
    std::iter::once(GPU_RESOURCE).chain(pool.taints.iter().map(|taint| taint.key.as_str())).map(Toleration::of_key).collect()
}

fn requests(pod: &Pod) -> Requests {
    Requests {
        milli_cpu: pod.requests.milli_cpu.into(),
        memory: MiB(pod.requests.memory_mib.into()),
        gpus: pod.requests.gpus,
        ..Requests::default()
    }
}

fn job(pod: &Pod) -> Job {
    Job { arrives: whole(pod.arrives), work: whole(pod.runs).max(1), gpus: pod.requests.gpus }
}

/// The types that each pod may use in its pool under the isolation there, by indices of all types' names in order; and
/// how many types there are.
fn usable<'a>(catalogue: &'a Catalogue, demand: &Demand) -> (Vec<Vec<usize>>, usize) {
    // As the region has them.
    let all: BTreeSet<&str> = catalogue.groups.values().map(|group| group.place.instance_type.as_str()).collect();
    let all: Vec<&str> = all.into_iter().collect();
    let first = catalogue.policy.pools.first().map(|pool| pool.name.as_str()).unwrap_or_default();
    let mut pools = BTreeMap::new();
    for pool in &catalogue.policy.pools {
        let known = types::cheapest_of(catalogue, pool.name.as_str());
        let places: Vec<usize> = known.iter().filter_map(|of| all.binary_search(&of.name.as_str()).ok()).collect();
        let known = Demand { types: known, pods: Vec::new(), seconds: 0.0 };
        pools.insert(pool.name.as_str(), (known, places, pool));
    }
    let of = |pod: &Pod| {
        let Some((known, places, pool)) = pools.get(pod.pool.as_deref().unwrap_or(first)) else { return Vec::new() };
        let mut fit = known.types_for(pod);
        if let Some(rules) = pool.isolation {
            let fitting: BTreeMap<&str, &demand::InstanceType> =
                fit.iter().filter_map(|at| known.types.get(*at)).map(|of| (of.name.as_str(), of)).collect();
            let shape = |group: &'a Arc<Group>| {
                let of = fitting.get(group.place.instance_type.as_str())?;
                Some(Shape { group, price: UsdPerHour(of.hourly.0), open: true })
            };
            let shapes: Vec<Shape<'_>> = catalogue.pool_groups(&pool.name).filter_map(shape).collect();
            let may = admitted(&needs(&requests(pod), SignedDuration::ZERO), &shapes, rules, pool.waiting);
            let may: BTreeSet<&str> = may.keys().map(InstanceType::as_str).collect();
            fit.retain(|at| known.types.get(*at).is_some_and(|of| may.contains(of.name.as_str())));
        }
        fit.into_iter().filter_map(|at| places.get(at).copied()).collect()
    };
    (demand.pods.iter().map(of).collect(), all.len())
}

fn index(pod: &str) -> Option<usize> {
    pod.rsplit_once('/')?.1.parse().ok()
}

impl Pods<Region> for Work {
    fn next(&self) -> Option<i64> {
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        [self.arrives.get(self.come).copied(), due, Some(self.ends)].into_iter().flatten().min()
    }

    fn come(&mut self, now: i64) -> Vec<(PodSpec, i64)> {
        let mut come = Vec::new();
        while let Some(at) = self.arrives.get(self.come).copied().filter(|at| *at <= now) {
            let n = self.come;
            self.come += 1;
            self.count(n, now, true);
            self.waits_from(n, at);
            let Some(pod) = self.demand.pods.get(n) else { continue };
            come.push((self.spec(n, pod), if at <= 0 { THERE_SINCE } else { now }));
        }
        come
    }

    fn ended(&mut self, now: i64) -> Vec<String> {
        let mut ended = Vec::new();
        while let Some(Reverse((at, n))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            if self.ends_of.get(&n) != Some(&at) {
                continue;
            }
            self.halt(n, now);
            self.ledger.finish(n, now);
            self.count(n, now, false);
            ended.push(format!("work/{n:06}"));
        }
        ended
    }

    fn started(&mut self, pod: &str, now: i64) {
        let Some(n) = index(pod) else { return };
        let done = self.ledger.start(n, now);
        self.ends_of.insert(n, done);
        self.due.push(Reverse((done, n)));
        if let Some(since) = self.since.get_mut(n) {
            *since = now;
        }
        if let Some(since) = self.waits.get_mut(n).and_then(Option::take) {
            let gpus = self.gpus(n);
            self.waiting_gpus -= gpus.min(self.waiting_gpus);
            self.waited += (now - since) * i64::from(gpus);
            if let Some(started) = self.started.get_mut(n).filter(|started| !**started) {
                *started = true;
                self.first_waits.push(now - since);
            }
        }
    }

    fn stopped(&mut self, pod: &str, now: i64, how: Stop) {
        let Some(n) = index(pod).filter(|n| self.ends_of.contains_key(n)) else { return };
        self.stopped += 1;
        self.halt(n, now);
        self.ledger.stop(n, now, how);
        self.waits_from(n, now);
    }

    fn evicted(&mut self, pod: &str, now: i64) {
        self.evicted += 1;
        self.stopped(pod, now, Stop::Evicted);
    }

    fn elapses(&mut self, desk: &Desk<Region>, from: i64, until: i64) {
        // Where a market refuses, another group is raised, and the autoscaler has its time once more.
        let refused = std::mem::replace(&mut self.refused, desk.cloud.fates.refused);
        if refused != self.refused {
            self.lacks_since.clear();
        }
        self.watch(&desk.accounts.floors, from, until);
        while let Some(at) = Some(self.next_sample()).filter(|at| *at < until) {
            let nodes = desk.cloud.nodes.iter().filter(|(_, n)| **n > 0).map(|(of, n)| (*of, *n)).collect();
            self.samples.push(Sample {
                at,
                demand_gpus: self.demand_gpus,
                waiting_gpus: self.waiting_gpus,
                nodes,
                hourly: desk.cloud.hourly,
            });
        }
    }

    fn is_over(&self, now: i64) -> bool {
        now >= self.ends
    }
}

impl Work {
    /// Counts for how long floors lack nodes of which none is on its way. Until the autoscaler has asked for them, or Stoker grows the
    /// group after that, none can be.
    pub(super) fn watch(&mut self, floors: &[FloorStands], from: i64, until: i64) {
        let lacks = |floor: &&FloorStands| floor.warm + floor.coming < floor.wanted && floor.blocked.is_none();
        let since = |floor: &FloorStands| (floor.pool.clone(), self.lacks_since.get(&floor.pool).copied().unwrap_or(from));
        self.lacks_since = floors.iter().filter(lacks).map(since).collect();
        if let Some(late) = self.lacks_since.values().map(|since| since + COMES_WITHIN).min() {
            self.floor_unmet += (until - late.max(from)).max(0);
        }
    }

    fn next_sample(&self) -> i64 {
        self.samples.last().map_or(0, |last| last.at + self.sample_every)
    }
}
