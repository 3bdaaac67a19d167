//! The work: training jobs of one pod each, and what becomes of it as nodes come and go.

use jiff::SignedDuration;

use crate::in_process::play::Stop;
use crate::world::draw::{Seed, whole};

/// Seconds in a day.
pub(super) const DAY: i64 = 86_400;

/// Run times of GPU jobs: what share of them, in thousandths, is at most so many seconds long. Quantiles of the 83,152 jobs of the Philly
/// trace that ran at all, cut at three days (`philly_runtime.csv` of alibaba/clusterdata, cluster-trace-gpu-v2020, CC BY 4.0). Between
/// two quantiles the logarithm of the length is taken to be even.
const RUN_TIMES: [(f64, f64); 31] = [
    (0.0, 1.0),
    (25.0, 31.0),
    (50.0, 48.0),
    (100.0, 61.0),
    (150.0, 68.0),
    (200.0, 76.0),
    (250.0, 131.0),
    (300.0, 229.0),
    (350.0, 428.0),
    (400.0, 630.0),
    (450.0, 889.0),
    (500.0, 1_186.0),
    (550.0, 1_500.0),
    (600.0, 1_871.0),
    (650.0, 2_242.0),
    (700.0, 2_590.0),
    (750.0, 3_342.0),
    (800.0, 4_700.0),
    (850.0, 6_302.0),
    (900.0, 12_860.0),
    (910.0, 15_086.0),
    (920.0, 18_843.0),
    (930.0, 23_848.0),
    (940.0, 32_001.0),
    (950.0, 49_969.0),
    (960.0, 69_288.0),
    (970.0, 101_884.0),
    (980.0, 167_785.0),
    (988.743, 259_200.0),
    (990.0, 259_200.0),
    (1000.0, 259_200.0),
];

/// The mean of those lengths, in seconds.
const MEAN_RUN_TIME: f64 = 10_260.0;

/// GPUs of a job, and the share of jobs: gangs of at most one node. Assumed, with a mean of 2.1: that of the Philly trace is 1.9.
const SIZES: [(u32, f64); 4] = [(1, 0.7), (2, 0.1), (4, 0.1), (8, 0.1)];

/// Mean of those.
const MEAN_SIZE: f64 = 2.1;

/// Jobs arrive at 1.6 times the mean rate in the first half of a day, and at 0.4 times in the second (W4).
const BUSY: f64 = 1.6;
const QUIET: f64 = 0.4;

/// A job is late when it took a quarter longer than its work and ten minutes more: a boot and a half (W4).
const GRACE: i64 = 600;

/// A training job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// When it arrives, in seconds.
    pub arrives: i64,
    /// How long it runs if nothing interrupts it, in seconds.
    pub work: i64,
    /// GPUs that it asks for, on one node.
    pub gpus: u32,
}

impl Job {
    /// When it is late.
    const fn deadline(&self) -> i64 {
        self.arrives + self.work + self.work / 4 + GRACE
    }
}

/// Draws the jobs that arrive in so many days, by arrival: on average they use `load` GPUs.
pub fn jobs(seed: u64, days: i64, load: f64) -> Vec<Job> {
    let mut stream = Seed(seed).stream("jobs", &[], 0);
    let rate = load / (MEAN_SIZE * MEAN_RUN_TIME);
    let mut jobs = Vec::new();
    let mut t = 0.0;
    loop {
        // Independent arrivals at the busy rate, thinned to the hour's.
        t += -(1.0 - stream.unit()).ln() / (rate * BUSY);
        let arrives = whole(t);
        if arrives >= days * DAY {
            return jobs;
        }
        let (kept, work, gpus) = (stream.unit(), run_time(stream.unit()), size(stream.unit()));
        let share = if arrives.rem_euclid(DAY) < DAY / 2 { 1.0 } else { QUIET / BUSY };
        if kept < share {
            jobs.push(Job { arrives, work, gpus });
        }
    }
}

fn run_time(share: f64) -> i64 {
    let at = share * 1000.0;
    let above = RUN_TIMES.partition_point(|(upto, _)| *upto <= at).clamp(1, RUN_TIMES.len() - 1);
    let [(from, shortest), (upto, longest)] = [RUN_TIMES[above - 1], RUN_TIMES[above]];
    whole(shortest * (longest / shortest).powf((at - from) / (upto - from))).max(1)
}

fn size(share: f64) -> u32 {
    let mut left = share;
    SIZES
        .iter()
        .find(|(_, part)| {
            left -= part;
            left < 0.0
        })
        .map_or(1, |(gpus, _)| *gpus)
}

/// How jobs save their work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saving {
    /// Time between two checkpoints, from when the work began. What a reclaim finds unsaved is lost.
    pub checkpoint: SignedDuration,
    /// Time that every start but the first takes before work goes on.
    pub restart: SignedDuration,
}

/// How far the jobs are.
#[derive(Debug, Clone)]
pub struct Ledger {
    saving: Saving,
    jobs: Vec<Progress>,
    /// GPU-seconds of work that was lost.
    lost: i64,
    /// How often a running job was stopped by a reclaim.
    pub reclaims: u64,
    /// How often one was moved.
    pub moves: u64,
    finished: usize,
    late: usize,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    job: Job,
    left: i64,
    began: bool,
    /// Since when it works, once its start is over; `None` while it waits.
    runs: Option<i64>,
}

impl Ledger {
    /// Nothing has arrived yet.
    pub fn new(jobs: &[Job], saving: Saving) -> Self {
        let fresh = |job: &Job| Progress { job: *job, left: job.work, began: false, runs: None };
        Self { saving, jobs: jobs.iter().map(fresh).collect(), lost: 0, reclaims: 0, moves: 0, finished: 0, late: 0 }
    }

    /// A job has a node; answers when it will be done.
    pub fn start(&mut self, job: usize, now: i64) -> i64 {
        let restart = self.saving.restart.as_secs();
        let Some(at) = self.jobs.get_mut(job) else { return now };
        let begins = now + if at.began { restart } else { 0 };
        at.began = true;
        at.runs = Some(begins);
        begins + at.left
    }

    /// A running job loses its node.
    pub fn stop(&mut self, job: usize, now: i64, how: Stop) {
        let Some((at, since)) = self.jobs.get_mut(job).and_then(|at| at.runs.take().map(|since| (at, since))) else { return };
        let ran = (now - since).max(0);
        let unsaved = match how {
            Stop::Reclaimed => {
                self.reclaims += 1;
                ran % self.saving.checkpoint.as_secs().max(1)
            }
            Stop::Evicted => {
                self.moves += 1;
                0
            }
        };
        at.left -= ran - unsaved;
        self.lost += unsaved * i64::from(at.job.gpus);
    }

    /// A job is done.
    pub fn finish(&mut self, job: usize, now: i64) {
        let Some(at) = self.jobs.get_mut(job) else { return };
        at.runs = None;
        at.left = 0;
        self.finished += 1;
        self.late += usize::from(now > at.job.deadline());
    }

    /// The GPUs of a running job, and whether it is yet to be where it stood; `None` while it waits.
    pub fn running(&self, job: usize, now: i64) -> Option<(u32, bool)> {
        let at = self.jobs.get(job)?;
        at.runs.map(|since| (at.job.gpus, since > now))
    }

    /// Whether all are done.
    pub fn is_done(&self) -> bool {
        self.finished == self.jobs.len()
    }

    /// Jobs that are done.
    pub const fn finished(&self) -> usize {
        self.finished
    }

    /// Jobs that are late at `now`, done or not, in millionths of these and of those that are done.
    pub fn late_ppm(&self, now: i64) -> i64 {
        let overdue = self.jobs.iter().filter(|at| at.left > 0 && now > at.job.deadline()).count();
        i64::try_from((self.late + overdue) * 1_000_000 / (self.finished + overdue).max(1)).unwrap_or(i64::MAX)
    }

    /// How much of the work was left to do at `now`, of that which jobs would have done by then had each started at once: in millionths.
    pub fn undone_ppm(&self, now: i64) -> i64 {
        let (mut ideal, mut undone) = (0, 0);
        for Progress { job, left, runs, .. } in self.jobs.iter().filter(|at| at.job.arrives < now) {
            let (there, gpus) = (now - job.arrives, i64::from(job.gpus));
            let left = left - runs.map_or(0, |since| (now - since).max(0)).min(*left);
            ideal += job.work.min(there) * gpus;
            undone += (left - (job.work - there).max(0)).max(0) * gpus;
        }
        if ideal > 0 { undone.saturating_mul(1_000_000) / ideal } else { 0 }
    }

    /// GPU-hours of work that was lost.
    pub const fn lost_gpu_hours(&self) -> i64 {
        self.lost / 3600
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_what_was_asked_for() {
        let jobs = jobs(1, 200, 60.0);
        let work: i64 = jobs.iter().map(|job| job.work * i64::from(job.gpus)).sum();
        let load = work as f64 / (200 * DAY) as f64;
        assert!((57.0..63.0).contains(&load), "{load}");
        let by_day = jobs.iter().filter(|job| job.arrives % DAY < DAY / 2).count() as f64 / jobs.len() as f64;
        assert!((0.78..0.82).contains(&by_day), "{by_day}");
    }

    #[test]
    fn a_reclaim_costs_what_was_not_saved_and_a_restart() {
        let saving = Saving { checkpoint: SignedDuration::from_mins(30), restart: SignedDuration::from_mins(2) };
        let mut ledger = Ledger::new(&[Job { arrives: 0, work: 7200, gpus: 2 }], saving);
        assert_eq!(ledger.start(0, 0), 7200);
        // 40 min in, 30 of them saved: 90 are left, and 2 to restart.
        ledger.stop(0, 2400, Stop::Reclaimed);
        assert_eq!(ledger.start(0, 3000), 3000 + 120 + 5400);
        // Reclaimed while it restarts: nothing was done, and nothing is lost.
        ledger.stop(0, 3060, Stop::Reclaimed);
        assert_eq!(ledger.start(0, 4000), 4000 + 120 + 5400);
        // Moved after 10 min of work, all of it saved.
        ledger.stop(0, 4720, Stop::Evicted);
        assert_eq!(ledger.start(0, 5000), 5000 + 120 + 4800);
        // Lost: 10 min of 2 GPUs. Late: past 7,200 × 1.25 + 600 = 9,600.
        ledger.finish(0, 9920);
        assert_eq!((ledger.lost, ledger.reclaims, ledger.moves, ledger.late_ppm(i64::MAX)), (1200, 2, 1, 1_000_000));
        assert!(ledger.is_done());
    }

    #[test]
    fn run_times_and_sizes_are_those_of_the_table() {
        assert_eq!([0.0, 0.5, 0.99, 0.9999].map(run_time), [1, 1186, 259_200, 259_200]);
        assert_eq!([0.0, 0.69, 0.71, 0.81, 0.95].map(size), [1, 1, 2, 4, 8]);
    }
}
