//! Pods while they wait and run, by what they ask for.

use std::collections::BTreeMap;

use super::fleet::Node;
use super::policy::Policy;
use crate::bound::money::dollars;
use crate::demand::{Demand, Resources, Service};

/// What a type offers, with its price in dollars per hour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sold {
    pub(super) room: Resources,
    pub(super) price: f64,
}

/// Pods that ask for the same.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) asks: Resources,
    /// Types that may run them.
    pub(super) types: Vec<usize>,
    /// The same, by type.
    may: Vec<bool>,
    /// Price of the cheapest of them.
    pub(super) alone: f64,
}

impl Class {
    pub(super) fn may_use(&self, kind: usize) -> bool {
        self.may[kind]
    }
}

/// A pod.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) class: usize,
    pub(super) arrives: f64,
    pub(super) runs: f64,
    pub(super) service: Service,
    /// Whether it may run on spot under the policy.
    pub(super) may_use_spot: bool,
    /// Seconds that it still has to run, as of its last start.
    pub(super) left: f64,
    pub(super) started: Option<f64>,
    /// Number of its starts and stops.
    pub(super) starts: u32,
    /// Since when it waits, as of its last stop.
    pub(super) waits_since: f64,
    /// Whether it was ever moved or interrupted.
    pub(super) was_stopped: bool,
    /// Seconds of work that interruptions lost.
    pub(super) lost: f64,
    pub(super) has_ended: bool,
}

/// All pods and what they ask for.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) sold: Vec<Sold>,
    pub(super) classes: Vec<Class>,
    pub(super) all: Vec<Job>,
    /// Number of pods that no type can run.
    pub(super) unplaceable: usize,
}

impl Jobs {
    /// The demand's pods under the policy.
    pub(super) fn of(demand: &Demand, policy: &Policy) -> Self {
        let taints = policy.taints;
        let sold = |of: &crate::demand::InstanceType| Sold { room: of.allocatable, price: dollars(of.hourly.0) };
        let sold: Vec<Sold> = demand.types.iter().map(sold).collect();
        let mut classes: Vec<Class> = Vec::new();
        let mut known: BTreeMap<(Resources, &[String]), usize> = BTreeMap::new();
        let mut jobs = Vec::new();
        let mut unplaceable = 0;
        for pod in &demand.pods {
            let class = *known.entry((pod.requests, &pod.models)).or_insert_with(|| {
                classes.push(class(pod.requests, demand.types_for(pod), &sold, taints));
                classes.len() - 1
            });
            if classes[class].types.is_empty() {
                unplaceable += 1;
                continue;
            }
            jobs.push(Job {
                class,
                arrives: pod.arrives,
                runs: pod.runs,
                service: pod.service,
                may_use_spot: policy.spot.is_some() && pod.service == Service::BestEffort,
                left: pod.runs,
                started: None,
                starts: 0,
                waits_since: pod.arrives,
                was_stopped: false,
                lost: 0.0,
                has_ended: false,
            });
        }
        Self { sold, classes, all: jobs, unplaceable }
    }

    pub(super) fn class(&self, job: usize) -> &Class {
        &self.classes[self.all[job].class]
    }

    /// Whether the job may run on that node, if it has room.
    pub(super) fn may_run(&self, job: usize, node: &Node) -> bool {
        self.class(job).may_use(node.kind) && (node.pool.is_none() || self.all[job].may_use_spot)
    }

    /// Cheapest type for the job alone.
    pub(super) fn cheapest_for(&self, job: usize) -> usize {
        let price = |kind: &usize| self.sold[*kind].price;
        self.class(job).types.iter().copied().min_by(|a, b| price(a).total_cmp(&price(b))).unwrap_or(0)
    }

    pub(super) fn asks(&self, job: usize) -> Resources {
        self.class(job).asks
    }
}

fn class(asks: Resources, mut types: Vec<usize>, sold: &[Sold], taints: Option<f64>) -> Class {
    let alone = types.iter().map(|kind| sold[*kind].price).fold(f64::INFINITY, f64::min);
    if let Some(most) = taints {
        types.retain(|kind| share(asks, sold[*kind]) <= most * alone);
    }
    let may = (0..sold.len()).map(|kind| types.contains(&kind)).collect();
    // The cheapest type stays: no share of it costs more than all of it.
    Class { asks, types, may, alone }
}

/// Price of the largest share of a node that is asked for.
fn share(asks: Resources, sold: Sold) -> f64 {
    let of = |asked: u32, room: u32| if asked == 0 { 0.0 } else { f64::from(asked) / f64::from(room) };
    let gpus = of(asks.gpus, sold.room.gpus);
    let cpu = of(asks.milli_cpu, sold.room.milli_cpu);
    let memory = of(asks.memory_mib, sold.room.memory_mib);
    sold.price * gpus.max(cpu).max(memory)
}
