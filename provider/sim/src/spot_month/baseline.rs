//! What people run without Stoker, the defaults of Karpenter and of the usual spot managers: nodes are bought at once by the least price for
//! the pods they take,
//! and an empty one goes after five minutes.

use std::collections::{BTreeMap, BTreeSet};

use super::Outcome;
use super::availability::Availability;
use super::cloud::{Cloud, SHAPES, SPOT_MILLI, Shape};
use super::jobs::{Job, Ledger, Saving};
use crate::in_process::play::Stop;

/// How a baseline buys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Never spot.
    OnDemand,
    /// Only spot; asked again every two minutes while there is none (B5).
    SpotOnly,
    /// Spot from the cheapest zone that has it, else on-demand, where a job then stays (B6).
    Sticky,
}

/// Zones by price.
const BY_PRICE: [usize; SPOT_MILLI.len()] = [2, 0, 1];
/// From a pod that waits to the purchase.
const DELAY: i64 = 2;
/// Between two looks at whether all that waits has a node coming.
const LOOK: i64 = 10;
/// An empty node goes after so long.
const IDLE: i64 = 300;
/// Between two tries of a market that had nothing, where there is a fallback: Karpenter's cache.
const REFUSED_FOR: i64 = 180;
/// Between two tries where there is none.
const RETRY: i64 = 120;

/// Plays the jobs to their end.
pub fn replay(baseline: Baseline, seed: u64, jobs: &[Job], availability: &Availability, saving: Saving) -> Outcome {
    let mut run = Run {
        baseline,
        now: 0,
        jobs,
        cloud: Cloud::new(seed, availability.clone()),
        ledger: Ledger::new(jobs, saving),
        nodes: BTreeMap::new(),
        waiting: BTreeSet::new(),
        buys_at: None,
        refused: BTreeMap::new(),
    };
    let mut arrivals = jobs.iter().enumerate().peekable();
    while !run.ledger.is_done() {
        let next = [run.cloud.next_change(run.now), arrivals.peek().map(|(_, job)| job.arrives), run.next()];
        let Some(next) = next.into_iter().flatten().min() else { break };
        run.now = next.max(run.now);
        while let Some((n, _)) = arrivals.next_if(|(_, job)| job.arrives <= run.now) {
            run.wait(n);
        }
        run.step();
    }
    run.end()
}

struct Run<'a> {
    baseline: Baseline,
    now: i64,
    jobs: &'a [Job],
    cloud: Cloud,
    ledger: Ledger,
    /// The nodes, by machine.
    nodes: BTreeMap<u64, Node>,
    waiting: BTreeSet<usize>,
    /// When the next purchase is due.
    buys_at: Option<i64>,
    /// Markets that had nothing, and until when they are left alone.
    refused: BTreeMap<(usize, usize), i64>,
}

struct Node {
    gpus: u32,
    ready: i64,
    /// Jobs with when they will be done.
    runs: BTreeMap<usize, i64>,
    /// Since when it is empty.
    idle: Option<i64>,
}

impl Run<'_> {
    fn gpus(&self, job: usize) -> u32 {
        self.jobs.get(job).map_or(0, |job| job.gpus)
    }

    fn wait(&mut self, job: usize) {
        self.waiting.insert(job);
        self.buys_at.get_or_insert(self.now + DELAY);
    }

    fn next(&self) -> Option<i64> {
        let of_node = |node: &Node| {
            let idle = node.idle.map(|at| at + IDLE);
            node.runs.values().copied().chain(idle).min()
        };
        self.nodes.values().filter_map(of_node).chain(self.buys_at).min()
    }

    fn step(&mut self) {
        for id in self.cloud.reclaim(self.now) {
            for (job, _) in self.nodes.remove(&id).into_iter().flat_map(|node| node.runs) {
                self.ledger.stop(job, self.now, Stop::Reclaimed);
                self.wait(job);
            }
        }
        let now = self.now;
        for node in self.nodes.values_mut() {
            let done: Vec<usize> = node.runs.iter().filter(|(_, at)| **at <= now).map(|(job, _)| *job).collect();
            for job in done {
                node.runs.remove(&job);
                self.ledger.finish(job, now);
            }
            if node.ready <= now && node.runs.is_empty() {
                node.idle.get_or_insert(now);
            }
        }
        self.bind();
        if self.buys_at.is_some_and(|at| at <= now) {
            self.buys_at = None;
            self.buy();
        }
        if !self.waiting.is_empty() {
            // Another job may have taken the node that was meant for one.
            self.buys_at.get_or_insert(now + LOOK);
        }
        let empty: Vec<u64> =
            self.nodes.iter().filter(|(_, n)| n.idle.is_some_and(|at| at + IDLE <= now)).map(|(id, _)| *id).collect();
        for id in empty {
            self.nodes.remove(&id);
            self.cloud.end(now, id);
        }
    }

    /// Each waiting job goes to the Ready node that it fills best.
    fn bind(&mut self) {
        for job in std::mem::take(&mut self.waiting) {
            let gpus = self.gpus(job);
            let free = |node: &Node| node.gpus - node.runs.keys().map(|job| self.gpus(*job)).sum::<u32>();
            let fits = self.nodes.iter().filter(|(_, node)| node.ready <= self.now && free(node) >= gpus);
            let best = fits.min_by_key(|(id, node)| (free(node), **id)).map(|(id, _)| *id);
            let Some(node) = best.and_then(|id| self.nodes.get_mut(&id)) else {
                self.waiting.insert(job);
                continue;
            };
            node.idle = None;
            node.runs.insert(job, self.ledger.start(job, self.now));
        }
    }

    /// Buys for what neither is there nor coming.
    fn buy(&mut self) {
        let mut left: Vec<usize> = self.waiting.iter().copied().collect();
        left.sort_by_key(|job| (std::cmp::Reverse(self.gpus(*job)), *job));
        let mut coming: Vec<u32> = self.nodes.values().filter(|node| node.ready > self.now).map(|node| node.gpus).collect();
        left.retain(|job| {
            let gpus = self.jobs.get(*job).map_or(0, |job| job.gpus);
            let Some(free) = coming.iter_mut().find(|free| **free >= gpus) else { return true };
            *free -= gpus;
            false
        });
        while !left.is_empty() {
            let Some((shape, taken)) = self.best_node(&left) else { return };
            left.retain(|job| !taken.contains(job));
            let bought = self.market(shape).map(|id| (id, shape));
            let Some((id, shape)) = bought else {
                let retry = self.now + if self.baseline == Baseline::SpotOnly { RETRY } else { REFUSED_FOR };
                self.buys_at = Some(self.buys_at.map_or(retry, |at| at.min(retry)));
                continue;
            };
            let ready = self.cloud.machines().get(&id).map_or(self.now, |machine| machine.ready);
            let gpus = SHAPES.get(shape).map_or(0, |shape| shape.gpus);
            self.nodes.insert(id, Node { gpus, ready, runs: BTreeMap::new(), idle: None });
        }
    }

    /// The node that costs least for the jobs it takes, each worth the cheapest node that it fits alone.
    fn best_node(&self, jobs: &[usize]) -> Option<(usize, Vec<usize>)> {
        let alone = |job: usize| {
            let fits = |shape: &&Shape| shape.gpus >= self.gpus(job);
            SHAPES.iter().find(fits).map_or(0, |shape| shape.on_demand.0)
        };
        let filled = SHAPES.iter().enumerate().map(|(n, shape)| {
            let mut free = shape.gpus;
            let mut taken = Vec::new();
            for job in jobs {
                if self.gpus(*job) <= free {
                    free -= self.gpus(*job);
                    taken.push(*job);
                }
            }
            let worth: i64 = taken.iter().map(|job| alone(*job)).sum();
            // Worth per dollar, in thousandths.
            (worth * 1000 / shape.on_demand.0, n, taken)
        });
        let best = filled.max_by_key(|(worth, n, _)| (*worth, *n))?;
        (!best.2.is_empty()).then_some((best.1, best.2))
    }

    fn market(&mut self, shape: usize) -> Option<u64> {
        if self.baseline != Baseline::OnDemand {
            for zone in BY_PRICE {
                if self.refused.get(&(zone, shape)).is_some_and(|until| *until > self.now) {
                    continue;
                }
                if let Some(id) = self.cloud.launch(self.now, shape, zone, true) {
                    return Some(id);
                }
                if self.baseline == Baseline::Sticky {
                    self.refused.insert((zone, shape), self.now + REFUSED_FOR);
                }
            }
        }
        if self.baseline == Baseline::SpotOnly { None } else { self.cloud.launch(self.now, shape, 0, false) }
    }

    fn end(mut self) -> Outcome {
        let left: Vec<u64> = self.nodes.keys().copied().collect();
        for id in left {
            self.cloud.end(self.now, id);
        }
        Outcome::new(&self.cloud.bill, &self.ledger, self.jobs.len(), Vec::new())
    }
}
