//! The least that the work can cost: a linear program, solved exactly.
//!
//! # The program
//! Let `d(t)` be the GPUs of all jobs that run at `t` if each runs from its arrival on, uninterrupted. Supply comes in tiers: on-demand at
//! the price `p` of a GPU, and the spot of each zone at `pᵢ` while that zone has it, at most [`ZONE_GPUS`] of it. With real numbers `x(t)`
//! and `sᵢ(t)` of GPUs in each, minimise
//!
//! > ∫ (p x + Σ pᵢ sᵢ) dt + B × (p × all rises of x + Σ pᵢ × all rises of sᵢ)
//!
//! where x + Σ sᵢ ≥ d at all times, sᵢ ≤ [`ZONE_GPUS`], sᵢ = 0 where zone i has none, and B is the mean boot. A zone has spot while it is
//! open, and after it shut until the last node there can be gone.
//!
//! # Why nothing that serves the work as it comes is cheaper
//! Take any nodes that run each job from its arrival on, and let x and sᵢ be the GPUs of those that are Ready. They satisfy the
//! program's conditions. A tier rises only by nodes that have booted, and each was paid while it did: for B on average, since nobody knows
//! beforehand which boot will be short. So the bill of these nodes is at least the program's objective there, and the program takes the least
//! over all choices. What it leaves out makes it only smaller: nodes need not be whole, pods need not fit them, nothing is idle but by choice,
//! work moves between nodes for nothing, no reclaim loses any, and all of the future is known.
//!
//! It does not bound a supply that lets work *wait* until spot is there. To wait is to be late, so the share of late jobs stands beside
//! every cost. Bounds of this kind are often worked out in slots of ten minutes; here it is at the very seconds.
//!
//! # How it is solved
//! Each GPU is a unit that flows through time: in each span it is off, or in one tier; to come into a tier costs its boot, to stay there
//! its price, and at most as many may be off as are not asked for. That is a flow of least cost, whose optimum is whole, and it is found
//! by shortest paths, one after the other. The tests hold it against a solver of the program as it stands above.

use super::availability::Availability;
use super::cloud::{BOOT_MEAN, LINGERS, SHAPES, SPOT_MILLI, ZONE_GPUS};
use super::jobs::Job;
use crate::bound::flow::Flow;
use stoker_core::base::units::UsdMicros;

/// A time in which nothing changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    seconds: i64,
    gpus: u32,
    /// Whether each zone has spot.
    spot: Vec<bool>,
}

/// What the tiers cost and hold.
#[derive(Debug, Clone)]
struct Tiers {
    /// On-demand, and the spot of each zone, per GPU and second, in any unit.
    on_demand: i64,
    spot: Vec<i64>,
    /// GPUs of a zone.
    zone: u32,
    /// Seconds that a boot costs.
    boot: i64,
}

/// The bound for these jobs where spot capacity is there so.
pub fn bound(jobs: &[Job], availability: &Availability) -> UsdMicros {
    let on_demand = SHAPES[0].on_demand.0;
    let spot = SPOT_MILLI.iter().map(|milli| on_demand * milli / 1000).collect();
    let tiers = Tiers { on_demand, spot, zone: ZONE_GPUS, boot: BOOT_MEAN };
    // Prices are in micro-dollars per hour, times in seconds.
    UsdMicros(least(&spans(jobs, availability), &tiers) / 3600)
}

/// What the same work costs on demand, with whole nodes never idle and no boot.
pub fn on_demand(jobs: &[Job]) -> UsdMicros {
    UsdMicros(jobs.iter().map(|job| job.work * i64::from(job.gpus)).sum::<i64>() * SHAPES[0].on_demand.0 / 3600)
}

fn spans(jobs: &[Job], availability: &Availability) -> Vec<Span> {
    let mut steps: Vec<(i64, i64)> = Vec::new();
    for job in jobs {
        let gpus = i64::from(job.gpus);
        steps.extend([(job.arrives, gpus), (job.arrives + job.work, -gpus)]);
    }
    let end = steps.iter().map(|(at, _)| *at).max().unwrap_or(0);
    let changes = availability.changes().flat_map(|at| [at, at + LINGERS]).filter(|at| *at < end);
    steps.extend(changes.map(|at| (at, 0)));
    steps.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    let mut gpus = 0;
    for pair in steps.windows(2) {
        let [(from, change), (until, _)] = pair else { continue };
        gpus += change;
        if until > from {
            let has = |zone| availability.is_open(zone, *from) || availability.is_open(zone, from - LINGERS);
            let spot = (0..availability.zones()).map(has).collect();
            spans.push(Span { seconds: until - from, gpus: u32::try_from(gpus).unwrap_or(0), spot });
        }
    }
    spans
}

/// The program's optimum, as the cheapest flow of as many units as are ever asked for.
fn least(spans: &[Span], tiers: &Tiers) -> i64 {
    let units = spans.iter().map(|span| span.gpus).max().unwrap_or(0);
    let width = 2 + tiers.spot.len();
    // Node 0 of a moment is off, the others are the tiers.
    let node = |moment: usize, place: usize| moment * width + place;
    let mut flow = Flow::new(node(spans.len(), width));
    for (at, span) in spans.iter().enumerate() {
        flow.edge(node(at, 0), node(at + 1, 0), units - span.gpus, 0);
        let spot = tiers.spot.iter().zip(&span.spot).map(|(price, has)| (*price, if *has { tiers.zone } else { 0 }));
        for (tier, (price, most)) in std::iter::once((tiers.on_demand, units)).chain(spot).enumerate() {
            if most > 0 {
                flow.edge(node(at, 0), node(at, tier + 1), units, price * tiers.boot);
                flow.edge(node(at, tier + 1), node(at + 1, tier + 1), most, price * span.seconds);
            }
            flow.edge(node(at + 1, tier + 1), node(at + 1, 0), units, 0);
        }
    }
    flow.cheapest(node(0, 0), node(spans.len(), 0), units)
}

#[cfg(test)]
mod tests;
