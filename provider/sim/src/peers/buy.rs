//! Which nodes are bought for the jobs that wait.

use std::cmp::Reverse;

use super::events::Event;
use super::fleet::{give, take};
use super::jobs::{Jobs, Sold};
use super::policy::Buys;
use super::run::Run;
use crate::demand::Resources;

/// How much better an option has to be than one before it.
const BETTER: f64 = 1e-12;

impl Run<'_> {
    /// Buys nodes for the jobs that have waited long enough and have no room on booting nodes.
    pub(super) fn provision(&mut self, now: f64) {
        let has_waited = |job: &usize| now <= 0.0 || now - self.jobs.all[*job].waits_since >= self.policy.hold - 1e-9;
        let mut left: Vec<usize> = self.waiting.iter().copied().filter(has_waited).collect();
        if left.len() < self.waiting.len() {
            self.events.add(now + 10.0, Event::ScanHeld);
        }
        if left.is_empty() {
            return;
        }
        let room = |node: usize| (node, self.jobs.sold[self.fleet.nodes[node].kind].room);
        let mut booting: Vec<(usize, Resources)> = self.fleet.booting(now).map(room).collect();
        left.sort_by_key(|job| {
            let asks = self.jobs.asks(*job);
            Reverse((asks.gpus, asks.milli_cpu, asks.memory_mib))
        });
        left.retain(|job| {
            let asks = self.jobs.asks(*job);
            let holds =
                |(node, room): &&mut (usize, Resources)| room.holds(&asks) && self.jobs.may_run(*job, &self.fleet.nodes[*node]);
            let Some((_, room)) = booting.iter_mut().find(holds) else { return true };
            take(room, asks);
            false
        });
        let (for_spot, mut on_demand): (Vec<usize>, Vec<usize>) =
            left.into_iter().partition(|job| self.jobs.all[*job].may_use_spot);
        on_demand.extend(self.buy_spot(for_spot, now));
        for (kind, _) in pack(on_demand, self.policy.buys, &self.jobs) {
            self.buy(kind, now);
        }
    }
}

/// Types of the nodes for the jobs, with the jobs of each.
pub(super) fn pack(mut left: Vec<usize>, buys: Buys, jobs: &Jobs) -> Vec<(usize, Vec<usize>)> {
    if buys == Buys::CheapestFit {
        return cheapest_fit(left, jobs);
    }
    let mut bought = Vec::new();
    while let Some(choice) = choose(&left, buys, jobs) {
        let mut served: Vec<usize> = Vec::new();
        for node in choice.nodes {
            served.extend(&node.jobs);
            bought.push((choice.kind, node.jobs));
        }
        left.retain(|job| !served.contains(job));
    }
    bought
}

/// Cheapest of the types.
fn cheapest(types: &[usize], sold: &[Sold]) -> Option<usize> {
    types.iter().copied().min_by(|a, b| sold[*a].price.total_cmp(&sold[*b].price))
}

/// Karpenter: each job joins the first node that some type could be with it.
fn cheapest_fit(mut left: Vec<usize>, jobs: &Jobs) -> Vec<(usize, Vec<usize>)> {
    let mut open: Vec<Open> = Vec::new();
    left.sort_by_key(|job| {
        let asks = jobs.asks(*job);
        Reverse((asks.milli_cpu, asks.memory_mib))
    });
    for job in left {
        let class = jobs.class(job);
        let joined = open.iter_mut().any(|node| {
            let mut with = node.taken;
            give(&mut with, class.asks);
            let fits = |kind: &usize| class.may_use(*kind) && jobs.sold[*kind].room.holds(&with);
            let still: Vec<usize> = node.types.iter().copied().filter(fits).collect();
            if still.is_empty() {
                return false;
            }
            (node.taken, node.types) = (with, still);
            node.jobs.push(job);
            true
        });
        if !joined {
            open.push(Open { taken: class.asks, types: class.types.clone(), jobs: vec![job] });
        }
    }
    let closed = |node: Open| Some((cheapest(&node.types, &jobs.sold)?, node.jobs));
    open.into_iter().filter_map(closed).collect()
}

/// A node whose type is open.
struct Open {
    taken: Resources,
    /// Types that hold what it has taken.
    types: Vec<usize>,
    jobs: Vec<usize>,
}

/// A node to be, with its jobs.
struct Bin {
    free: Resources,
    jobs: Vec<usize>,
}

/// Nodes of one type.
struct Choice {
    kind: usize,
    nodes: Vec<Bin>,
}

/// The best type, and its nodes.
fn choose(left: &[usize], buys: Buys, jobs: &Jobs) -> Option<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for kind in 0..jobs.sold.len() {
        let fits: Vec<usize> = left.iter().copied().filter(|job| jobs.class(*job).may_use(kind)).collect();
        if fits.is_empty() {
            continue;
        }
        let bins = first_fit(&fits, jobs.sold[kind].room, jobs);
        let (score, nodes) = score(kind, &fits, bins, buys, jobs);
        if best.as_ref().is_none_or(|(least, _)| score < least - BETTER) {
            best = Some((score, Choice { kind, nodes }));
        }
    }
    best.map(|(_, choice)| choice)
}

/// Nodes for the jobs, filled by the largest first.
fn first_fit(fits: &[usize], room: Resources, jobs: &Jobs) -> Vec<Bin> {
    let mut sorted = fits.to_vec();
    sorted.sort_by_key(|job| {
        let asks = jobs.asks(*job);
        Reverse((asks.gpus, asks.milli_cpu))
    });
    let mut bins: Vec<Bin> = Vec::new();
    for job in sorted {
        let asks = jobs.asks(job);
        if let Some(bin) = bins.iter_mut().find(|bin| bin.free.holds(&asks)) {
            take(&mut bin.free, asks);
            bin.jobs.push(job);
        } else {
            let mut free = room;
            take(&mut free, asks);
            bins.push(Bin { free, jobs: vec![job] });
        }
    }
    bins
}

/// How bad the nodes are for the jobs, and those of them that are bought.
fn score(kind: usize, fits: &[usize], bins: Vec<Bin>, buys: Buys, jobs: &Jobs) -> (f64, Vec<Bin>) {
    let Sold { room, price } = jobs.sold[kind];
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs and nodes")]
    let count = bins.len() as f64;
    let alone = |of: &[usize]| of.iter().map(|job| jobs.class(*job).alone).sum::<f64>();
    match buys {
        Buys::LeastWaste => {
            let wasted = |room: u32, asked: fn(&Resources) -> u32| {
                let all = f64::from(room) * count;
                let asked: f64 = fits.iter().map(|job| f64::from(asked(&jobs.asks(*job)))).sum();
                (all - asked) / all
            };
            let waste = wasted(room.milli_cpu, |asks| asks.milli_cpu) + wasted(room.memory_mib, |asks| asks.memory_mib);
            (waste, bins)
        }
        Buys::Price => {
            let worth: f64 = fits.iter().map(|job| pod_price(jobs.asks(*job))).sum();
            ((price * count + 0.01) / (worth + 0.01), bins)
        }
        Buys::BestGroup => (price * count / alone(fits), bins),
        Buys::BestNode | Buys::CheapestFit => {
            let mut best: Option<(f64, Bin)> = None;
            for bin in bins {
                let replaces = alone(&bin.jobs) / price;
                if best.as_ref().is_none_or(|(most, _)| replaces > *most) {
                    best = Some((replaces, bin));
                }
            }
            let bin = best.map(|(_, bin)| bin);
            let worth = bin.as_ref().map_or(0.0, |bin| alone(&bin.jobs));
            (price / worth, bin.into_iter().collect())
        }
    }
}

/// Hourly price of a pod as the price expander has it for GCE.
fn pod_price(asks: Resources) -> f64 {
    f64::from(asks.milli_cpu) / 1000.0 * 0.033_174
        + f64::from(asks.memory_mib) / 1024.0 * 0.004_446
        + f64::from(asks.gpus) * 0.35
}
