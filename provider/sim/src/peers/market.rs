//! Spot markets, and what an interruption costs.

use std::collections::BTreeMap;

use stoker_core::base::units::Milli;

use crate::world::draw::{Seed, Stream};

/// Seconds for which a pool is not asked again for a type that it had no room for: Karpenter's cache.
const REFUSED_FOR: f64 = 180.0;

/// A spot market for some types in one place.
#[derive(Debug, Clone, PartialEq)]
pub struct SpotPool {
    /// Name, such as that of its zone.
    pub name: String,
    /// Names of the types that it sells. None means all.
    pub types: Vec<String>,
    /// Spot price as a share of the on-demand price.
    pub price: Milli,
    /// Length of a step in seconds.
    pub step_seconds: f64,
    /// Most GPUs in each step. Beyond its end it starts over.
    pub room: Vec<u32>,
}

/// Spot pools, with the work that depends on them.
///
/// When the room of a pool falls below what is used, nodes are reclaimed in random order until the rest fits. A pod loses
/// an even part of the time between two checkpoints, but never more than it ran. Latency-sensitive pods lose nothing.
pub struct Market {
    pub(super) pools: Vec<SpotPool>,
    /// Seconds between two checkpoints.
    pub(super) checkpoint: f64,
    /// Part of its run by which a pod may end later, beyond ten minutes.
    pub(super) slack: f64,
    draws: Draws,
}

enum Draws {
    Seeded(Box<Stream>),
    Recorded(std::vec::IntoIter<f64>),
}

impl Market {
    const fn new(pools: Vec<SpotPool>, draws: Draws) -> Self {
        Self { pools, checkpoint: 1800.0, slack: 0.0, draws }
    }

    /// No spot at all.
    pub fn none() -> Self {
        Self::recorded(Vec::new(), Vec::new())
    }

    /// Pools with losses and reclaimed nodes drawn from the seed. Checkpoints are half an hour apart.
    pub fn seeded(pools: Vec<SpotPool>, seed: u64) -> Self {
        Self::new(pools, Draws::Seeded(Box::new(Seed(seed).stream("peer-interruptions", &[], 0))))
    }

    /// The same with draws from 0 to 1. Those after the last of them are 0.5.
    pub fn recorded(pools: Vec<SpotPool>, units: Vec<f64>) -> Self {
        Self::new(pools, Draws::Recorded(units.into_iter()))
    }

    /// The same with so many seconds between two checkpoints.
    #[must_use]
    pub fn with_checkpoints(self, seconds: f64) -> Self {
        Self { checkpoint: seconds, ..self }
    }

    /// The same with pods that may end later by that part of their run, and ten minutes. It decides which pods are late.
    #[must_use]
    pub fn with_slack(self, slack: f64) -> Self {
        Self { slack, ..self }
    }

    /// A number from 0 to 1.
    pub(super) fn unit(&mut self) -> f64 {
        match &mut self.draws {
            Draws::Seeded(stream) => stream.unit(),
            Draws::Recorded(units) => units.next().unwrap_or(0.5),
        }
    }

    /// The nodes in random order.
    pub(super) fn shuffle(&mut self, nodes: &mut [usize]) {
        for last in (1..nodes.len()).rev() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the place itself")]
            let other = (self.unit() * (f64::from(u32::try_from(last).unwrap_or(u32::MAX)) + 1.0)) as usize;
            nodes.swap(last, other.min(last));
        }
    }
}

impl SpotPool {
    /// GPUs for which there is room in the step of that time.
    pub(super) fn room_at(&self, now: f64) -> u32 {
        self.room_in(self.step_of(now))
    }

    fn room_in(&self, step: usize) -> u32 {
        self.room.get(step % self.room.len().max(1)).copied().unwrap_or(0)
    }

    fn step_of(&self, now: f64) -> usize {
        let whole = (now - now.rem_euclid(self.step_seconds)) / self.step_seconds;
        usize::try_from(crate::world::draw::whole(whole)).unwrap_or(0)
    }

    /// Times before `end` at which the room falls.
    pub(super) fn falls(&self, end: f64) -> Vec<f64> {
        let steps = (1..=self.step_of(end)).filter(|step| self.room_in(*step) < self.room_in(step - 1));
        let start = |step: usize| f64::from(u32::try_from(step).unwrap_or(u32::MAX)) * self.step_seconds;
        steps.map(start).collect()
    }

    pub(super) fn share(&self) -> f64 {
        f64::from(self.price.0) / 1000.0
    }
}

/// What is used of the pools, and which of them refused what.
#[derive(Debug)]
pub(super) struct Use {
    /// GPUs of each pool.
    pub(super) gpus: Vec<u32>,
    /// Pools by price.
    cheapest: Vec<usize>,
    /// Whether a pool sells a type.
    sells: Vec<Vec<bool>>,
    /// Until when a pool is not asked for a type.
    refused: BTreeMap<(usize, usize), f64>,
    /// Number of refusals.
    pub(super) refusals: usize,
}

impl Use {
    /// Of the pools, for types of those names.
    pub(super) fn of(market: &Market, types: &[&str]) -> Self {
        let mut cheapest: Vec<usize> = (0..market.pools.len()).collect();
        cheapest.sort_by_key(|pool| market.pools[*pool].price);
        let sells = |pool: &SpotPool| {
            let sold = |name: &&str| pool.types.is_empty() || pool.types.iter().any(|of| of == name);
            types.iter().map(sold).collect()
        };
        let sells = market.pools.iter().map(sells).collect();
        Self { gpus: vec![0; market.pools.len()], cheapest, sells, refused: BTreeMap::new(), refusals: 0 }
    }

    /// Whether any pool has room for anything.
    pub(super) fn has_room(&self, market: &Market, now: f64) -> bool {
        market.pools.iter().zip(&self.gpus).any(|(pool, used)| *used < pool.room_at(now))
    }

    /// The cheapest pool with room for a node of the type. Pools that have none are not asked again for a while.
    pub(super) fn pick(&mut self, market: &Market, kind: usize, gpus: u32, now: f64) -> Option<usize> {
        for pool in self.cheapest.clone() {
            let is_refused = self.refused.get(&(pool, kind)).is_some_and(|until| *until > now);
            if is_refused || !self.sells[pool][kind] {
                continue;
            }
            if self.gpus[pool] + gpus <= market.pools[pool].room_at(now) {
                return Some(pool);
            }
            self.refusals += 1;
            self.refused.insert((pool, kind), now + REFUSED_FOR);
        }
        None
    }
}
