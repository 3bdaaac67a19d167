//! What a month of readings says: how much of their GPUs workloads use, what cheaper ones would do, and what is held or left idle.
//!
//! It advises and never acts. Each figure comes with what it was worked out from, so that a reader can work it out again.

mod cheaper;
mod checkpoint;
mod class;
mod observed;
#[cfg(test)]
mod tests;

pub use cheaper::{Change, Layout, Now, Stay, Suggestion, everything};
pub use checkpoint::{Interval, interval};
pub use class::{Class, Measure, Spread, Used};
pub use observed::{Held, IdleKey, Observed, Workload};

use crate::rollup::Owner;
use jiff::Timestamp;
use stoker_core::base::ids::PoolName;
use stoker_core::catalogue::Catalogue;
use stoker_core::market::price::PriceBook;
use stoker_core::state::memory::Memory;

/// Days with readings below which nothing is advised of a workload: a week, so that every day of the week counts alike, as `stoker commit`
/// has it.
pub const LEAST_DAYS: usize = 7;

/// Known seconds from which on a day counts as one with readings: an hour of one GPU.
pub const KNOWN_DAY: u64 = 3_600;

/// Hours of a month, by which clouds bill.
pub const MONTH_HOURS: i64 = 730;

/// What is said of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadAdvice {
    /// Whose.
    pub owner: Owner,
    /// In which pool.
    pub pool: PoolName,
    /// Days with readings.
    pub known_days: usize,
    /// What it used of its GPUs.
    pub levels: Used,
    /// What it is called for that.
    pub class: Class,
    /// What it runs on.
    pub now: Now,
    /// The cheapest that fits it, whatever the policy would have to say for it.
    pub cheapest: Result<Suggestion, Stay>,
    /// The cheapest as the policy stands, where that is another one.
    pub as_it_stands: Option<Suggestion>,
    /// The cheapest if it needed half of the memory, as with weights of 8 bits instead of 16; `None` where it does not serve, or that would
    /// save no more.
    pub quantized: Option<Suggestion>,
    /// How often to write checkpoints; `None` where it writes none or does not run on spot.
    pub checkpoints: Option<Interval>,
    /// Time and money in which its GPUs did nothing.
    pub held: Held,
}

/// What is said of everything that was observed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    /// What is said, most expensive workload first.
    pub workloads: Vec<WorkloadAdvice>,
    /// Workloads of which too little is known, with their known days.
    pub too_little: Vec<(Owner, PoolName, usize)>,
    /// Workloads of which nothing can be said for another reason.
    pub unknown: Vec<(Owner, PoolName, &'static str)>,
}

/// What advice rests on beside the readings.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The policy and its groups with their prices.
    pub catalogue: &'a Catalogue,
    /// Everything that the clouds and regions of its pools sell: [`everything`] tells.
    pub wide: &'a Catalogue,
    /// Data sheets.
    pub book: &'a PriceBook,
    /// What is remembered of spot markets.
    pub memory: &'a Memory,
    /// When quotes are asked for.
    pub now: Timestamp,
}

/// Advises on every workload that was observed.
pub fn advise(observed: &Observed, inputs: &Inputs<'_>) -> Advice {
    let mut advice = Advice::default();
    for ((owner, pool), workload) in observed.workloads() {
        let days = workload.known_days();
        if days < LEAST_DAYS {
            advice.too_little.push((owner.clone(), pool.clone(), days));
            continue;
        }
        match one(owner, pool, workload, observed, inputs) {
            Ok(said) => advice.workloads.push(said),
            Err(why) => advice.unknown.push((owner.clone(), pool.clone(), why)),
        }
    }
    advice.workloads.sort_by(|a, b| (b.now.per_month, &a.owner, &a.pool).cmp(&(a.now.per_month, &b.owner, &b.pool)));
    advice
}

fn one(
    owner: &Owner,
    pool: &PoolName,
    workload: &Workload,
    observed: &Observed,
    inputs: &Inputs<'_>,
) -> Result<WorkloadAdvice, &'static str> {
    let thresholds = inputs.catalogue.policy.advise;
    let levels = workload.levels().ok_or("neither its utilization nor its SM activity is known")?;
    let class = class::of(&levels, thresholds);
    let now = cheaper::now(workload, observed.known_hours()).ok_or("there is no record of what its nodes cost")?;
    let cheaper::Found { cheapest, as_it_stands, quantized } = cheaper::find(workload, &levels, &now, pool, inputs);
    let checkpoints = checkpoint::advised(workload, pool, observed.known_hours(), inputs);
    Ok(WorkloadAdvice {
        owner: owner.clone(),
        pool: pool.clone(),
        known_days: workload.known_days(),
        levels,
        class,
        now,
        cheapest,
        as_it_stands,
        quantized,
        checkpoints,
        held: workload.held().clone(),
    })
}
