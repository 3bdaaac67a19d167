//! Nodes and what runs on them.

use std::cmp::Reverse;

use super::jobs::Jobs;
use super::policy::Scheduler;
use crate::demand::Resources;

/// A node, from its purchase on.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: usize,
    /// Spot pool of which it is.
    pub(super) pool: Option<usize>,
    /// Dollars per hour.
    pub(super) price: f64,
    pub(super) bought: f64,
    pub(super) ready: f64,
    pub(super) free: Resources,
    /// Jobs with when they came.
    pub(super) runs: Vec<(usize, f64)>,
    /// Since when it is empty.
    pub(super) idle: Option<f64>,
    /// Until when it is billed, once it is gone.
    pub(super) gone: Option<f64>,
}

/// All nodes that were ever bought, by number.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) nodes: Vec<Node>,
    /// Nodes that are still there, by purchase.
    pub(super) live: Vec<usize>,
    /// Nodes that are gone, by release.
    pub(super) gone: Vec<usize>,
}

/// Takes from the room.
pub(super) const fn take(room: &mut Resources, asks: Resources) {
    room.gpus -= asks.gpus;
    room.milli_cpu -= asks.milli_cpu;
    room.memory_mib -= asks.memory_mib;
}

/// Gives back to the room.
pub(super) const fn give(room: &mut Resources, asks: Resources) {
    room.gpus += asks.gpus;
    room.milli_cpu += asks.milli_cpu;
    room.memory_mib += asks.memory_mib;
}

/// GPUs first, then CPU.
const fn size(room: &Resources) -> (u32, u32) {
    (room.gpus, room.milli_cpu)
}

impl Fleet {
    pub(super) fn is_live(&self, node: usize) -> bool {
        self.nodes[node].gone.is_none()
    }

    pub(super) fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.live.push(number);
        number
    }

    /// Removes the node, billed for a minute at least and to the end at most.
    pub(super) fn remove(&mut self, node: usize, now: f64, end: f64) {
        let gone = &mut self.nodes[node];
        gone.gone = Some(now.max(gone.bought + 60.0).min(end));
        if let Ok(at) = self.live.binary_search(&node) {
            self.live.remove(at);
        }
        self.gone.push(node);
    }

    pub(super) fn ready(&self, now: f64) -> impl Iterator<Item = usize> {
        self.live.iter().copied().filter(move |node| self.nodes[*node].ready <= now)
    }

    pub(super) fn booting(&self, now: f64) -> impl Iterator<Item = usize> {
        self.live.iter().copied().filter(move |node| self.nodes[*node].ready > now)
    }

    /// The ready node that the scheduler chooses for the job.
    pub(super) fn choose(&self, job: usize, now: f64, jobs: &Jobs, scheduler: Scheduler) -> Option<usize> {
        let class = jobs.class(job);
        let holds = |node: &usize| {
            let node = &self.nodes[*node];
            node.free.holds(&class.asks) && jobs.may_run(job, node)
        };
        let held = self.ready(now).filter(holds);
        match scheduler {
            Scheduler::MostAllocated => held.min_by_key(|node| size(&self.nodes[*node].free)),
            // Of equals, the first.
            Scheduler::LeastAllocated => held.min_by_key(|node| Reverse(size(&self.nodes[*node].free))),
        }
    }

    /// Where the jobs would fit on those nodes, the largest first, and which would not.
    pub(super) fn place(&self, jobs_to_place: &[usize], on: &[usize], jobs: &Jobs) -> (Vec<(usize, usize)>, Vec<usize>) {
        let mut free: Vec<Resources> = on.iter().map(|node| self.nodes[*node].free).collect();
        let mut placed = Vec::new();
        let mut rest = Vec::new();
        let mut sorted = jobs_to_place.to_vec();
        sorted.sort_by_key(|job| Reverse(size(&jobs.asks(*job))));
        for job in sorted {
            let class = jobs.class(job);
            let fits = |at: &usize| free[*at].holds(&class.asks) && jobs.may_run(job, &self.nodes[on[*at]]);
            if let Some(at) = (0..on.len()).filter(fits).min_by_key(|at| size(&free[*at])) {
                take(&mut free[at], class.asks);
                placed.push((job, on[at]));
            } else {
                rest.push(job);
            }
        }
        (placed, rest)
    }
}
