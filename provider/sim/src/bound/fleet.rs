//! Bound for a demand of pods on a catalogue of instance types.
//!
//! # What it bounds
//! The bill of every fleet that runs each pod from its arrival to its end, on demand. The bound grants free moves of
//! pods, nodes that start and stop at once, and knowledge of the future.
//!
//! # How
//! A function of a pod's size relative to a node is dual feasible if its sum over all pods on one node is at most one.
//! The identity is such a function; Fekete and Schepers give `u_k` for whole `k`. For each type `i` with price `P_i`,
//! choose dollars `w_if` whose sum is at most `P_i`. A pod's value is the least `Σ w_if f(pod)` over the types `i` that
//! can run it. Then the pods on any node are together worth at most its price, so the values of all running pods
//! bound the fleet's cost rate from below.
//!
//! A cut adds that a running shape needs at least one node that fits it: dollars for its presence, which are taken from
//! the dollars of every type that fits it.
//!
//! The dollars that prove the most are found by a linear program per slot. The bound is convex in the demand, so its
//! value at the slot's mean is at most its mean over the slot (Jensen's inequality).

use std::cmp::Reverse;

use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};

use super::linear::{Solver, Unsolved};
use super::money::{dollars, micros};
use crate::demand::Demand;
use crate::world::draw::whole;

mod packing;
mod shapes;
#[cfg(test)]
mod tests;

use packing::Node;
use shapes::{Profile, Running};

/// What a pod takes of GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Gpus {
    /// Whole GPUs, as requested.
    #[default]
    Whole,
    /// A pod with one GPU takes only its `gpu_milli` of it.
    Shared,
}

/// What strengthens the linear program beyond sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    /// The `k` of the functions `u_k` that are used next to the identity. Each is at least 1.
    pub functions: Vec<u32>,
    /// Whether a running shape needs at least one node.
    pub integrality: bool,
}

impl Default for Cuts {
    /// All cuts of the reference.
    fn default() -> Self {
        Self { functions: vec![1, 2, 3, 4, 5, 7], integrality: true }
    }
}

/// How the bound is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// Solver of the linear programs.
    pub solver: Solver,
    /// Cuts.
    pub cuts: Cuts,
    /// Length of a slot in seconds. A longer one gives a weaker bound from fewer programs.
    pub slot_seconds: f64,
    /// What a pod takes of GPUs.
    pub gpus: Gpus,
}

impl Default for Method {
    /// Slots of an hour, whole GPUs, all cuts.
    fn default() -> Self {
        Self { solver: Solver::default(), cuts: Cuts::default(), slot_seconds: 3600.0, gpus: Gpus::default() }
    }
}

/// Lower bound for a demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// Cost rate in every slot, rounded down.
    pub hourly: Vec<UsdPerHour>,
    /// Length of the demand in seconds.
    pub seconds: f64,
    /// Number of pods that no type can run. They are left out.
    pub unplaceable: usize,
    /// How the bound was computed.
    pub method: Method,
}

/// Lower bound with a commitment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// On-demand value of the commitment.
    pub hourly: UsdPerHour,
    /// Cost of the commitment and of what exceeds it.
    pub total: UsdMicros,
}

/// Bounds the on-demand cost of a demand.
pub fn bound(demand: &Demand, method: Method) -> Result<Bound, Unsolved> {
    let profile = Profile::of(demand, method.gpus, method.slot_seconds);
    let nodes: Vec<Node> = demand
        .types
        .iter()
        .map(|of| {
            let room = of.allocatable;
            let capacity = [u64::from(room.gpus) * 1000, room.milli_cpu.into(), room.memory_mib.into()];
            Node { capacity, price: dollars(of.hourly.0) }
        })
        .collect();
    let in_slot = |running: &Vec<Running>| {
        let usd = packing::hourly(&nodes, &profile.shapes, running, &method.cuts, method.solver)?;
        Ok(UsdPerHour(micros(usd)))
    };
    let hourly = profile.slots.iter().map(in_slot).collect::<Result<Vec<_>, _>>()?;
    Ok(Bound { hourly, seconds: demand.seconds, unplaceable: profile.unplaceable, method })
}

impl Bound {
    /// Bound on the cost of the whole demand, on demand.
    pub fn total(&self) -> UsdMicros {
        self.over_slots(self.hourly.iter().map(|rate| rate.0).sum())
    }

    /// Cost of the cheapest fleet that could ever serve the peak, if it were kept for the whole time.
    pub fn static_peak(&self) -> UsdMicros {
        let peak = self.hourly.iter().max().map_or(0, |rate| rate.0);
        UsdMicros(micros(dollars(peak) * self.seconds / 3600.0))
    }

    /// Bound with the best commitment, which costs `factor` of its on-demand value at any time, used or not.
    ///
    /// The best commitment is the quantile of the cost rates at 1 - `factor` (newsvendor). The window may end within the last
    /// slot: that one counts for as long as it lasts, at the rate that it has until then.
    pub fn committed(&self, factor: Milli) -> Committed {
        let (slot, ends) = (whole(self.method.slot_seconds * 1000.0), whole(self.seconds * 1000.0));
        let lasting = |(rate, at): (&UsdPerHour, i64)| {
            let lasts = (ends - at * slot).min(slot);
            (lasts > 0).then(|| (rate.0 * slot / lasts, lasts))
        };
        // Rates, with the milliseconds of each.
        let mut slots: Vec<(i64, i64)> = self.hourly.iter().zip(0..).filter_map(lasting).collect();
        slots.sort_unstable_by_key(|(rate, _)| Reverse(*rate));
        // In thousandths, as the factor is.
        let paid = slots.iter().map(|(_, lasts)| lasts).sum::<i64>() * i64::from(factor.0.min(1000));
        // The lowest commitment that at most `factor` of the time exceeds.
        let mut above = 0;
        let fits = |(_, lasts): &&(i64, i64)| {
            above += lasts;
            (above - lasts) * 1000 <= paid
        };
        let best = slots.iter().take_while(fits).last();
        let hourly = best.map_or(0, |(rate, _)| *rate);
        let exceeds = slots.iter().map(|(rate, lasts)| i128::from((rate - hourly).max(0)) * i128::from(*lasts)).sum::<i128>();
        let micros = (i128::from(hourly) * i128::from(paid) / 1000 + exceeds) / 3_600_000;
        Committed { hourly: UsdPerHour(hourly), total: UsdMicros(i64::try_from(micros).unwrap_or(i64::MAX)) }
    }

    /// Micro-dollars per hour, summed over slots, as money.
    fn over_slots(&self, micros_per_hour: i64) -> UsdMicros {
        UsdMicros(micros(dollars(micros_per_hour) * self.method.slot_seconds / 3600.0))
    }
}
