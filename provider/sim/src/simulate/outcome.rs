//! What came of a simulation.

use std::collections::VecDeque;

use stoker_core::base::units::UsdMicros;

use super::Setup;
use super::region::{Bill, FLAPS_WITHIN, Fates, Region};
use super::work::{Sample, Wanted, Work};
use crate::in_process::play::Play;
use crate::peers::report::quantile;
use crate::world::draw::whole;

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was paid.
    pub bill: Bill,
    /// What became of machines.
    pub fates: Fates,
    /// Share of the paid GPU-hours in which no pod had the GPU, in percent.
    pub idle_percent: f64,
    /// From creation to the first start.
    pub waits: Waits,
    /// GPU-hours of waiting, over all starts.
    pub waited_gpu_hours: f64,
    /// Nodes bought within 15 min after one of the same shape was released, although no more GPUs were asked for that could use it.
    pub bought_again: u64,
    /// Pods that lost their node.
    pub interruptions: u64,
    /// GPU-hours of work that was lost with them.
    pub lost_gpu_hours: i64,
    /// Pods that are done.
    pub finished: usize,
    /// Pods that were done later than 1.25 times their run time and ten minutes after they came, or are not done and are that late: in
    /// millionths of these and those that are done.
    pub late_ppm: i64,
    /// Pods that wait at the end.
    pub waiting: usize,
    /// Share of the work that was left to do at the end, of that which pods would have done had each started at once: in millionths.
    pub undone_ppm: i64,
    /// Promises that were broken.
    pub violations: Violations,
    /// Instance types by name, which samples count by.
    pub types: Vec<String>,
    /// How things stood, in steps of the setup.
    pub samples: Vec<Sample>,
    /// How long the demand lasted, in seconds.
    pub seconds: i64,
    /// Passes of the decision.
    pub passes: u64,
    /// Loops of the autoscaler.
    pub loops: u64,
}

/// How long pods waited for their first start. Seconds, and percent of the pods.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waits {
    /// Half of them at most so long.
    pub p50: f64,
    /// 95 % of them.
    pub p95: f64,
    /// 99 % of them.
    pub p99: f64,
    /// Share that waited for more than ten minutes.
    pub over_ten_minutes_percent: f64,
    /// Pods counted.
    pub pods: usize,
}

/// Promises that were broken: there should be none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    /// Launches above a quota.
    pub above_quota: u64,
    /// Seconds in which a warm floor lacked nodes and none was on its way, beyond the time that the autoscaler is given to ask for them.
    pub floor_seconds: i64,
    /// Pods that the autoscaler evicted.
    pub evicted: u64,
    /// What `check` found, in words.
    pub broken: Vec<String>,
}

impl Violations {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl Outcome {
    /// The whole bill.
    pub const fn total(&self) -> UsdMicros {
        self.bill.total()
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds here are far below 2^52")]
    pub(super) fn of(mut play: Play<Region, Work>, setup: &Setup) -> Self {
        let (passes, broken) = (play.autoscaler.provider().passes, std::mem::take(&mut play.autoscaler.provider_mut().broken));
        play.pods.close();
        play.autoscaler.provider_mut().cloud.close();
        let region = &play.autoscaler.provider().cloud;
        let work = &mut play.pods;
        work.first_waits.sort_unstable();
        let paid = region.bill.gpu_seconds.max(1);
        let ledger = work.ledger();
        Self {
            bill: region.bill,
            fates: region.fates,
            idle_percent: 100.0 * (1.0 - work.ran as f64 / paid as f64),
            waits: Waits::of(&work.first_waits),
            waited_gpu_hours: work.waited as f64 / 3600.0,
            bought_again: bought_again(region, &work.wanted),
            interruptions: work.stopped,
            lost_gpu_hours: ledger.lost_gpu_hours(),
            finished: ledger.finished(),
            late_ppm: ledger.late_ppm(whole(setup.demand.seconds)),
            waiting: work.still_waiting(),
            undone_ppm: ledger.undone_ppm(whole(setup.demand.seconds)),
            violations: Violations {
                above_quota: region.above_quota,
                floor_seconds: work.floor_unmet,
                evicted: work.evicted,
                broken,
            },
            types: region.types.clone(),
            samples: std::mem::take(&mut work.samples),
            seconds: whole(setup.demand.seconds),
            passes,
            loops: play.scans,
        }
    }
}

impl Waits {
    /// Of waits in rising order.
    #[expect(clippy::cast_precision_loss, reason = "seconds here are far below 2^52")]
    fn of(waits: &[i64]) -> Self {
        let late = waits.len() - waits.partition_point(|wait| *wait <= 600);
        let seconds: Vec<f64> = waits.iter().map(|wait| *wait as f64).collect();
        Self {
            p50: quantile(&seconds, 0.5),
            p95: quantile(&seconds, 0.95),
            p99: quantile(&seconds, 0.99),
            over_ten_minutes_percent: 100.0 * late as f64 / waits.len().max(1) as f64,
            pods: waits.len(),
        }
    }
}

/// Nodes bought soon after one of the same type was released, while no more was asked for than then. Each release counts once.
fn bought_again(region: &Region, wanted: &[Wanted]) -> u64 {
    let mut released: Vec<VecDeque<i64>> = vec![VecDeque::new(); region.types.len()];
    let wanted_at = |of: usize, at: i64| {
        let known = wanted.get(of)?;
        known.get(known.partition_point(|(since, _)| *since <= at).checked_sub(1)?).map(|(_, gpus)| *gpus)
    };
    let mut again = 0;
    for change in &region.changes {
        let Some(released) = released.get_mut(change.of) else { continue };
        if !change.bought {
            released.push_back(change.at);
            continue;
        }
        released.retain(|at| change.at - at < FLAPS_WITHIN);
        let before = released.iter().position(|at| wanted_at(change.of, change.at) <= wanted_at(change.of, *at));
        if before.and_then(|before| released.remove(before)).is_some() {
            again += 1;
        }
    }
    again
}
