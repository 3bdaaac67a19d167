//! Bound for replicas that each fill one node, with reserved, on-demand and spot nodes.
//!
//! # The program
//! Slots are `t`, spot pools `z`. Minimise the price of the reserved nodes `R` over the whole time, of the on-demand
//! nodes `x(t)` and of the spot nodes `s_z(t)`, plus one boot for every rise of `x` or of an `s_z`, where
//! `R + x(t) + Σ s_z(t) ≥ mean demand of t` and `s_z(t) ≤ room of pool z in t`. All are real numbers.
//!
//! # Why no fleet without waiting is cheaper
//! The slot means of any fleet's tiers satisfy the program, and means rise no more than what they are means of. So
//! its bill is at least the objective. The program grants moves without loss and knowledge of the future.
//!
//! # As a flow
//! Each node is a unit that flows through time: in each slot it is off or in one tier, and entering a tier costs a
//! boot. A reserved node is one edge from start to end. At most as many units are off as are not needed. The tests
//! hold the flow against the program.

use stoker_core::base::units::{Milli, UsdMicros};

use super::flow::Flow;
use super::levels::Node;
use super::linear::{Column, Program, Solver, Unsolved};
use super::money::{dollars, micros};
use crate::demand::Replicas;

/// A spot market for the replicas' node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Name, such as that of its zone.
    pub name: String,
    /// Spot price as a share of the on-demand price.
    pub price: Milli,
    /// Length of a step in seconds.
    pub step_seconds: u32,
    /// Most nodes in each step. Beyond its end it starts over.
    pub room: Vec<u32>,
}

/// How the bound is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// As a flow, exactly, with prices per slot rounded down to the micro-dollar.
    #[default]
    Flow,
    /// As a linear program, to the tolerance of the solver.
    Linear(Solver),
}

/// Bound with spot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Cost, rounded down.
    pub total: UsdMicros,
    /// Length of a slot in seconds.
    pub slot_seconds: u32,
    /// How the bound was computed.
    pub method: Method,
}

/// Program in numbers. Amounts are counted in parts of a replica, so that slot means are whole; prices are of replicas.
struct Slots {
    /// Parts of a replica needed in each slot.
    needed: Vec<u32>,
    /// Parts in a replica.
    parts: u32,
    /// On-demand tier first, then the pools.
    tiers: Vec<Tier>,
    /// Micro-dollars of a reserved replica over all slots.
    reserved: Option<i64>,
}

struct Tier {
    /// Micro-dollars of a replica in a slot.
    slot: i64,
    /// Micro-dollars of a replica's boot.
    boot: i64,
    /// Most parts in each slot; none means no limit.
    room: Option<Vec<u32>>,
}

/// Bounds the cost of the demand in slots of `steps` steps. Steps after the last whole slot are left out.
pub fn bound(demand: &Replicas, node: &Node, pools: &[Pool], steps: u32, method: Method) -> Result<Bound, Unsolved> {
    let steps = steps.max(1);
    let slots = Slots::of(demand, node, pools, steps);
    let micros = match method {
        Method::Flow => slots.by_flow(),
        Method::Linear(solver) => slots.by_program(solver)?,
    };
    let total = UsdMicros(micros / i64::from(slots.parts));
    Ok(Bound { total, slot_seconds: demand.step_seconds * steps, method })
}

impl Slots {
    fn of(demand: &Replicas, node: &Node, pools: &[Pool], steps: u32) -> Self {
        let whole = demand.needed.chunks_exact(usize::try_from(steps).unwrap_or(1));
        let needed: Vec<u32> = whole.map(|slot| slot.iter().sum()).collect();
        let seconds = demand.step_seconds * steps;
        let length = u32::try_from(needed.len()).unwrap_or(u32::MAX);
        let price = |share: u32, seconds: u32| {
            let micros = i128::from(node.hourly.0) * i128::from(share) * i128::from(seconds) / 3_600_000;
            i64::try_from(micros).unwrap_or(i64::MAX)
        };
        let tier = |share: u32, room| Tier { slot: price(share, seconds), boot: price(share, node.boot_seconds), room };
        let spot = pools.iter().map(|pool| {
            let room = (0..length).map(|slot| pool.room_during(slot * seconds, seconds).saturating_mul(steps));
            tier(pool.price.0, Some(room.collect()))
        });
        let tiers = std::iter::once(tier(1000, None)).chain(spot).collect();
        let reserved = node.reserved.map(|share| price(share.0, seconds) * i64::from(length));
        Self { needed, parts: steps, tiers, reserved }
    }

    fn by_flow(&self) -> i64 {
        let units = self.needed.iter().copied().max().unwrap_or(0);
        let width = self.tiers.len() + 1;
        // Place 0 of a moment is off, the others are the tiers.
        let node = |moment: usize, place: usize| moment * width + place;
        let (start, end) = (node(0, 0), node(self.needed.len(), 0));
        let mut flow = Flow::new(node(self.needed.len(), width));
        if let Some(cost) = self.reserved {
            flow.edge(start, end, units, cost);
        }
        for (at, needed) in self.needed.iter().enumerate() {
            flow.edge(node(at, 0), node(at + 1, 0), units - needed, 0);
            for (tier, place) in self.tiers.iter().zip(1..) {
                let most = tier.room(at).unwrap_or(units).min(units);
                if most > 0 {
                    flow.edge(node(at, 0), node(at, place), units, tier.boot);
                    flow.edge(node(at, place), node(at + 1, place), most, tier.slot);
                }
                flow.edge(node(at + 1, place), node(at + 1, 0), units, 0);
            }
        }
        flow.cheapest(start, end, units)
    }

    fn by_program(&self, solver: Solver) -> Result<i64, Unsolved> {
        let mut program = Program::default();
        let reserved = self.reserved.map(|cost| program.column(-dollars(cost), f64::INFINITY));
        let mut before: Vec<Option<Column>> = vec![None; self.tiers.len()];
        for (at, needed) in self.needed.iter().enumerate() {
            let mut supply: Vec<(Column, f64)> = reserved.iter().map(|column| (*column, 1.0)).collect();
            for (tier, before) in self.tiers.iter().zip(&mut before) {
                let most = tier.room(at).map_or(f64::INFINITY, f64::from);
                let held = program.column(-dollars(tier.slot), most);
                let rise = program.column(-dollars(tier.boot), f64::INFINITY);
                let change = before.iter().map(|before| (*before, -1.0));
                program.at_most([(held, 1.0), (rise, -1.0)].into_iter().chain(change).collect(), 0.0);
                supply.push((held, 1.0));
                *before = Some(held);
            }
            program.at_least(supply, f64::from(*needed));
        }
        Ok(micros(-program.solve(solver)?.gain))
    }
}

impl Tier {
    fn room(&self, slot: usize) -> Option<u32> {
        self.room.as_ref().map(|room| room.get(slot).copied().unwrap_or(0))
    }
}

impl Pool {
    /// Most nodes at any time in a span of seconds.
    fn room_during(&self, from: u32, seconds: u32) -> u32 {
        let step = self.step_seconds.max(1);
        let steps = from / step..(from + seconds).div_ceil(step);
        let count = self.room.len().max(1);
        let room = steps.filter_map(|at| self.room.get(usize::try_from(at).ok()? % count));
        room.copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
