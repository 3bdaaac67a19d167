//! Replicas that follow a rate of requests, each on a node of its own, as a stock autoscaler runs them (B8).
//!
//! A horizontal autoscaler sees the rate with a lag and wants as many replicas as serve it at a target load. It adds
//! them at once, and removes them down to the most that it wanted within a window. The youngest replicas go first. A new
//! replica serves after its node's boot and is paid from its purchase.

use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};

use crate::bound::money::{dollars, micros};
use crate::workload::most_within;

/// Nodes that are given back sooner after their purchase are flaps.
const FLAP: f64 = 900.0;

/// How replicas follow the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reactive {
    /// Requests a second that a replica can serve.
    pub serves: f64,
    /// Target load of a replica.
    pub target: Milli,
    /// Seconds for which what was wanted is kept.
    pub window_seconds: u32,
    /// Seconds by which the rate is seen late.
    pub lag_seconds: u32,
    /// Seconds from a node's purchase until its replica serves.
    pub boot_seconds: u32,
    /// Price of a node.
    pub hourly: UsdPerHour,
}

/// What following the rate cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Bill.
    pub usd: UsdMicros,
    /// Percent of the requests that came above what could be served.
    pub missed_percent: f64,
    /// Number of nodes that were bought after the start.
    pub launches: usize,
    /// Number of nodes that were given back within 15 minutes.
    pub flaps: usize,
    /// Replicas that served in each step.
    pub ready: Vec<u32>,
}

/// What a horizontal autoscaler asks for in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// At least so many replicas, at once.
    pub least: usize,
    /// At most so many: the most that it wanted within its window.
    pub most: usize,
}

impl Reactive {
    /// What is asked for at rates that are given per step.
    pub fn wanted(&self, rates: &[f64], step_seconds: u32) -> Vec<Wanted> {
        let step = step_seconds.max(1);
        let (lag, window) = (steps(self.lag_seconds / step), steps(self.window_seconds / step));
        let least: Vec<usize> = (0..rates.len()).map(|now| self.replicas(rates[now.saturating_sub(lag)])).collect();
        (0..rates.len()).map(|now| Wanted { least: least[now], most: most_within(&least[..=now], window) }).collect()
    }

    /// Replicas that serve the rate at the target load.
    fn replicas(&self, rate: f64) -> usize {
        let number = rate / (self.serves * f64::from(self.target.0) / 1000.0);
        usize::try_from(crate::world::draw::whole(number.ceil())).unwrap_or(0)
    }
}

/// Follows the rates, which are given per step.
pub fn serve(rates: &[f64], step_seconds: u32, how: &Reactive) -> Served {
    let step = step_seconds.max(1);
    let at_start = rates.first().map_or(0, |rate| how.replicas(*rate));
    let mut fleet = Fleet { bought: vec![None; at_start], ready: at_start };
    let boot = steps(how.boot_seconds.div_ceil(step));
    let mut served =
        Served { usd: UsdMicros(0), missed_percent: 0.0, launches: 0, flaps: 0, ready: Vec::with_capacity(rates.len()) };
    let (mut paid_steps, mut missed) = (0_usize, 0.0);
    for (now, (rate, wanted)) in rates.iter().zip(how.wanted(rates, step_seconds)).enumerate() {
        fleet.boot(now, boot);
        let more = wanted.least.saturating_sub(fleet.bought.len());
        served.launches += more;
        fleet.bought.extend(std::iter::repeat_n(Some(now), more));
        if more == 0 && fleet.ready > wanted.most {
            let young = |bought: &Option<usize>| bought.is_some_and(|at| seconds(now - at, step) < FLAP);
            served.flaps += fleet.remove(wanted.most).iter().filter(|bought| young(bought)).count();
        }
        missed += (rate - number(fleet.ready) * how.serves).max(0.0);
        paid_steps += fleet.bought.len();
        served.ready.push(u32::try_from(fleet.ready).unwrap_or(u32::MAX));
    }
    let all: f64 = rates.iter().sum();
    served.missed_percent = if all > 0.0 { 100.0 * missed / all } else { 0.0 };
    served.usd = UsdMicros(micros(seconds(paid_steps, step) * dollars(how.hourly.0) / 3600.0));
    served
}

/// Nodes by purchase, with its step, if it was after the start. Those that are ready come first.
struct Fleet {
    bought: Vec<Option<usize>>,
    ready: usize,
}

impl Fleet {
    fn boot(&mut self, now: usize, boot: usize) {
        let is_ready = |bought: &Option<usize>| bought.is_none_or(|at| at + boot <= now);
        self.ready = self.bought.partition_point(is_ready);
    }

    /// Removes ready nodes, the youngest first, until no more than `kept` nodes are left, booting ones included.
    fn remove(&mut self, kept: usize) -> Vec<Option<usize>> {
        let gone = self.bought.len().saturating_sub(kept).min(self.ready);
        self.ready -= gone;
        self.bought.drain(self.ready..self.ready + gone).collect()
    }
}

fn steps(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn seconds(steps: usize, step: u32) -> f64 {
    number(steps) * f64::from(step)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
const fn number(count: usize) -> f64 {
    count as f64
}
