//! What a run cost, and how long pods waited.

use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};

use super::jobs::Job;
use super::run::Run;
use crate::bound::money::{dollars, micros};

/// Seconds of an hour.
const HOUR: f64 = 3600.0;
/// Nodes that are given back sooner after their purchase are flaps.
const FLAP: f64 = 900.0;
/// Seconds after which a wait is long.
const LONG: f64 = 600.0;
/// Hours from which a commitment is chosen.
const FIRST_WEEK: usize = 168;

/// One wait for a start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) gpus: u32,
    pub(super) seconds: f64,
    /// Whether it was the first start of its pod.
    pub(super) is_first: bool,
}

/// Seconds that pods waited for their first start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Half of the pods waited no longer.
    pub p50: f64,
    /// 95 % of the pods waited no longer.
    pub p95: f64,
    /// 99 % of the pods waited no longer.
    pub p99: f64,
    /// Percent of the pods that waited longer than ten minutes.
    pub long_percent: f64,
    /// GPU-hours that pods waited for, restarts of moved pods included.
    pub gpu_hours: f64,
}

/// What a run cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Bill.
    pub usd: UsdMicros,
    /// Part of the bill that is for spot nodes.
    pub spot_usd: UsdMicros,
    /// GPU-hours that were billed.
    pub gpu_hours: f64,
    /// GPU-hours that pods ran.
    pub busy_gpu_hours: f64,
    /// Waiting. Pods that never started waited until the end.
    pub waits: Waits,
    /// Number of nodes that were bought.
    pub launches: usize,
    /// Prices of all nodes that were ever bought, together.
    pub bought: UsdPerHour,
    /// Number of nodes that were given back within 15 minutes.
    pub flaps: usize,
    /// Number of pods that were moved.
    pub moves: usize,
    /// Number of pods that a reclaim of their spot node interrupted.
    pub interruptions: usize,
    /// GPU-hours of work that had to be done again.
    pub lost_gpu_hours: f64,
    /// Number of purchases that a spot pool had no room for.
    pub refusals: usize,
    /// Percent of the pods that ended later than their run and slack allow, by more than ten minutes.
    pub late_percent: f64,
    /// Number of pods that never started.
    pub never_started: usize,
    /// Number of pods that no type can run. They are left out of everything else.
    pub unplaceable: usize,
    /// Number of boot times that were drawn.
    pub boots: usize,
    /// Cost of on-demand nodes in every hour.
    pub hourly: Vec<UsdMicros>,
}

/// A run with a commitment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// On-demand value of the commitment.
    pub hourly: UsdPerHour,
    /// Cost of the commitment and of what exceeds it.
    pub total: UsdMicros,
}

impl Report {
    pub(super) fn of(run: &Run<'_>, boots: usize) -> Self {
        let (mut usd, mut spot_usd, mut gpu_hours, mut bought, mut flaps) = (0.0, 0.0, 0.0, 0.0, 0);
        let mut hourly = vec![0.0; hours(run.end)];
        for node in &run.fleet.gone {
            let price = run.price(*node);
            let node = &run.fleet.nodes[*node];
            let is_spot = node.pool.is_some();
            let (from, to) = (node.bought, node.gone.unwrap_or(run.end));
            usd += (to - from) * price / HOUR;
            gpu_hours += (to - from) * f64::from(run.jobs.sold[node.kind].room.gpus) / HOUR;
            bought += price;
            flaps += usize::from(to < run.end && to - from < FLAP);
            if is_spot {
                spot_usd += (to - from) * price / HOUR;
            } else {
                spread(&mut hourly, from, to, price);
            }
        }
        let ran = |job: &Job| {
            let gpus = run.jobs.classes[job.class].asks.gpus;
            let seconds = (job.runs + job.lost).min((run.end - job.arrives).max(0.0));
            if job.started.is_some() { f64::from(gpus) * seconds / HOUR } else { 0.0 }
        };
        Self {
            usd: UsdMicros(micros(usd)),
            spot_usd: UsdMicros(micros(spot_usd)),
            gpu_hours,
            busy_gpu_hours: run.jobs.all.iter().map(ran).sum(),
            waits: waits(run),
            launches: run.fleet.nodes.len(),
            bought: UsdPerHour(micros(bought)),
            flaps,
            moves: run.moves,
            interruptions: run.interruptions,
            lost_gpu_hours: run.lost,
            refusals: run.used.refusals,
            late_percent: 100.0 * number(run.late) / number(run.ended.max(1)),
            never_started: never_started(run).count(),
            unplaceable: run.jobs.unplaceable,
            boots,
            hourly: hourly.into_iter().map(|usd| UsdMicros(micros(usd))).collect(),
        }
    }

    /// Percent of the billed GPU-hours in which no pod ran.
    pub fn idle_percent(&self) -> f64 {
        if self.gpu_hours > 0.0 { 100.0 * (1.0 - self.busy_gpu_hours / self.gpu_hours) } else { 0.0 }
    }

    /// The bill with a commitment, as [`commit`] chooses it.
    pub fn commit(&self, factor: Milli) -> Committed {
        commit(&self.hourly, self.usd, factor)
    }
}

/// A bill of which `hourly` is on demand, with a commitment that costs `factor` of its on-demand value in every hour, used or not.
///
/// It is the quantile of the hours of the first week at 1 - `factor` (newsvendor): no policy sees more.
pub fn commit(hourly: &[UsdMicros], bill: UsdMicros, factor: Milli) -> Committed {
    let factor = f64::from(factor.0.min(1000)) / 1000.0;
    let rates: Vec<f64> = hourly.iter().map(|usd| dollars(usd.0)).collect();
    let mut week: Vec<f64> = rates.iter().copied().take(FIRST_WEEK).collect();
    week.sort_by(f64::total_cmp);
    let committed = quantile(&week, 1.0 - factor);
    let total: f64 = rates.iter().map(|rate| factor * committed + (rate - committed).max(0.0)).sum();
    let other = dollars(bill.0) - rates.iter().sum::<f64>();
    Committed { hourly: UsdPerHour(micros(committed)), total: UsdMicros(micros(total + other)) }
}

/// Pods that wait for their first start, not those that wait for another one.
fn never_started<'r>(run: &'r Run<'_>) -> impl Iterator<Item = &'r Job> {
    run.waiting.iter().map(|job| &run.jobs.all[*job]).filter(|job| !job.was_stopped)
}

fn waits(run: &Run<'_>) -> Waits {
    let first = run.waits.iter().filter(|wait| wait.is_first).map(|wait| wait.seconds);
    let still = never_started(run).map(|job| run.end - job.waits_since);
    let mut seconds: Vec<f64> = first.chain(still).collect();
    seconds.sort_by(f64::total_cmp);
    let long = seconds.iter().filter(|seconds| **seconds > LONG).count();
    Waits {
        p50: quantile(&seconds, 0.5),
        p95: quantile(&seconds, 0.95),
        p99: quantile(&seconds, 0.99),
        long_percent: 100.0 * number(long) / number(seconds.len().max(1)),
        gpu_hours: run.waits.iter().map(|wait| f64::from(wait.gpus) * wait.seconds).sum::<f64>() / HOUR,
    }
}

/// Adds what the node costs from one time to the other, by hours.
fn spread(hourly: &mut [f64], from: f64, to: f64, price: f64) {
    for (hour, usd) in hourly.iter_mut().enumerate().take(hours(to)).skip(hours(from).saturating_sub(1)) {
        let starts = number(hour) * HOUR;
        *usd += (to.min(starts + HOUR) - from.max(starts)).max(0.0) / HOUR * price;
    }
}

/// Hours until then, begun ones included.
fn hours(seconds: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let hours = (seconds / HOUR).ceil().clamp(0.0, 1e6) as usize;
    hours
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
const fn number(count: usize) -> f64 {
    count as f64
}

/// Quantile of sorted numbers, between two of them in proportion; zero of none.
pub(crate) fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * number(sorted.len().saturating_sub(1));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the list")]
    let below = place.floor().max(0.0) as usize;
    let Some(low) = sorted.get(below) else { return 0.0 };
    let high = sorted.get(below + 1).unwrap_or(low);
    low + (high - low) * (place - place.floor())
}
