//! A day of GPU pods, seeded: what a demo shows and a test replays.
//!
//! [`Workload::day`] makes the pods of one day, from midnight, for four pools:
//! * **inference**: replicas with one GPU that follow the day, from a night's base to an afternoon's peak, in steps of ten minutes.
//!   The youngest leave first, so a few run all day; together they are the larger part of the GPU-hours.
//! * **training**: gangs of 4 or 8 GPUs that start at any hour, more often by day, and run for hours. They may not be moved.
//! * **dev**: notebooks with one GPU, from about nine to about six. They may not be moved.
//! * **batch**: short pods with one GPU in small bursts, half of them under three minutes.
//!
//! # Guarantees
//! The same seed and pools give the same day; each of the four has a generator of its own, so that a change to one does not shift
//! the others. Over seeds, as in public traces of shared GPU clusters, about half of the some 190 pods live less than ten minutes
//! and use less than a fiftieth of the GPU-hours, while a tenth of the pods uses half of them and a quarter nearly nine tenths.
//! Short jobs that arrive within ten minutes vary about twice as much in number as independent ones would. The demand is some 40
//! GPUs on average and nearly twice that at its peak.
//!
//! # Caveats
//! The curves and lengths are made up in that spirit, not fitted to a trace; there is no weekend.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::market::sharing::GPU_RESOURCE;

use crate::model::{PodSpec, Requests, Toleration};

mod draw;
#[cfg(test)]
mod tests;

use draw::{log_normal, poisson, waiting_time, whole};

/// What a pod is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A replica that serves requests.
    Inference,
    /// A part of a training job.
    Training,
    /// A notebook.
    Dev,
    /// A short job.
    Batch,
}

/// Which pool each kind runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// The pool of the replicas.
    pub inference: String,
    /// The pool of the training jobs.
    pub training: String,
    /// The most GPUs that one pod of a training job asks for; larger jobs are several pods that start together.
    pub training_gpus_per_pod: u32,
    /// The pool of the notebooks.
    pub dev: String,
    /// The pool of the short jobs.
    pub batch: String,
}

impl Default for Pools {
    /// Pools named by what runs there, and a training job in one pod.
    fn default() -> Self {
        Self {
            inference: "inference".to_owned(),
            training: "training".to_owned(),
            training_gpus_per_pod: 8,
            dev: "dev".to_owned(),
            batch: "batch".to_owned(),
        }
    }
}

/// A pod arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// How long after midnight.
    pub at: SignedDuration,
    /// What it is for.
    pub kind: Kind,
    /// Pods with the same number belong to one training job.
    pub gang: Option<u32>,
    /// The pod.
    pub pod: PodSpec,
    /// How long it runs from when it starts; for a replica and a notebook, from when it arrives.
    pub lifetime: SignedDuration,
}

/// Makes days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// How often the number of replicas follows the demand.
const STEP: i64 = 10 * MINUTE;

impl Workload {
    /// The pods of a day, by time.
    pub fn day(seed: u64, pools: &Pools) -> Vec<PodEvent> {
        let mut events = inference(generator(seed, 1), pools);
        events.extend(training(generator(seed, 2), pools));
        events.extend(dev(generator(seed, 3), pools));
        events.extend(batch(generator(seed, 4), pools));
        events.sort_by(|a, b| (a.at, &a.pod.id).cmp(&(b.at, &b.pod.id)));
        events
    }
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    generator
}

fn event(kind: Kind, pool: &str, name: &str, gpus: u32, at: i64, lifetime: i64) -> PodEvent {
    let (namespace, movable) = match kind {
        Kind::Inference => ("serving", true),
        Kind::Training => ("training", false),
        Kind::Dev => ("dev", false),
        Kind::Batch => ("batch", true),
    };
    // Fits what 4 CPUs and 16 GiB per GPU leave to pods, the least that is common; so the GPUs decide how many a node takes.
    let per_gpu = Requests { milli_cpu: 3000, memory: MiB::from_gib(12), gpus: 1, ..Requests::default() };
    let requests = (0..gpus).fold(Requests::default(), |sum, _| sum.plus(&per_gpu));
    let pod = PodSpec {
        id: format!("{namespace}/{name}"),
        requests,
        node_selector: BTreeMap::from([(POOL_LABEL.to_owned(), pool.to_owned())]),
        node_affinity: BTreeMap::new(),
        tolerations: vec![Toleration::of_key(GPU_RESOURCE)],
        movable,
    };
    let lifetime = SignedDuration::from_secs(lifetime.max(1));
    PodEvent { at: SignedDuration::from_secs(at), kind, gang: None, pod, lifetime }
}

/// The most of the last so many, of one at the least: what a horizontal autoscaler does not go below before its window is over.
pub(crate) fn most_within(wanted: &[usize], window: usize) -> usize {
    wanted.iter().rev().take(window.max(1)).copied().max().unwrap_or(0)
}

/// How busy an hour is, from 0 in the small hours to 1 in the afternoon: a cosine with its peak at 15:00.
fn daylight(at: i64) -> f64 {
    let hours = f64::from(i32::try_from(at.rem_euclid(DAY)).unwrap_or_default()) / 3600.0;
    0.5 + 0.5 * ((hours - 15.0) / 24.0 * std::f64::consts::TAU).cos()
}

fn inference(mut rng: ChaCha8Rng, pools: &Pools) -> Vec<PodEvent> {
    const NIGHT: f64 = 14.0;
    const MORE_BY_DAY: f64 = 20.0;
    /// Replicas leave when they were not wanted in so many steps.
    const PATIENCE: usize = 3;
    let mut events: Vec<PodEvent> = Vec::new();
    // Those that run, oldest first, as places in `events`.
    let mut running: Vec<usize> = Vec::new();
    let mut wanted = Vec::new();
    for step in 0..DAY / STEP {
        let at = step * STEP;
        let now = whole((NIGHT + MORE_BY_DAY * daylight(at)) * rng.random_range(0.95..1.05));
        wanted.push(now);
        while running.len() < now {
            // The requests of one step do not come all at once.
            let arrives = at + rng.random_range(0..2 * MINUTE);
            let name = format!("replica-{:04}", events.len());
            running.push(events.len());
            events.push(event(Kind::Inference, &pools.inference, &name, 1, arrives, DAY - arrives));
        }
        let kept = most_within(&wanted, PATIENCE).min(running.len());
        for ended in running.split_off(kept) {
            if let Some(replica) = events.get_mut(ended) {
                replica.lifetime = (SignedDuration::from_secs(at) - replica.at).max(SignedDuration::from_secs(1));
            }
        }
    }
    events
}

fn training(mut rng: ChaCha8Rng, pools: &Pools) -> Vec<PodEvent> {
    /// Jobs in an hour at its busiest.
    const RATE: f64 = 1.0;
    let mut events = Vec::new();
    let mut gang = 0;
    let mut at = waiting_time(&mut rng, RATE);
    while at < DAY {
        // Thinned to the day: a third at night.
        let keeps = rng.random_range(0.0..1.0) < 0.33 + 0.67 * daylight(at);
        let gpus: u32 = if rng.random_bool(0.6) { 4 } else { 8 };
        let lifetime = log_normal(&mut rng, 2.5, 0.7, HOUR).clamp(20 * MINUTE, 12 * HOUR);
        if keeps {
            let per_pod = pools.training_gpus_per_pod.clamp(1, gpus);
            for part in 0..gpus.div_ceil(per_pod) {
                let name = format!("job-{gang:03}-{part}");
                let here = per_pod.min(gpus - part * per_pod);
                let made = event(Kind::Training, &pools.training, &name, here, at, lifetime);
                events.push(PodEvent { gang: Some(gang), ..made });
            }
            gang += 1;
        }
        at += waiting_time(&mut rng, RATE);
    }
    events
}

fn dev(mut rng: ChaCha8Rng, pools: &Pools) -> Vec<PodEvent> {
    const PEOPLE: usize = 9;
    let person = |n: usize| {
        let from = 9 * HOUR + rng.random_range(-20 * MINUTE..60 * MINUTE);
        let until = 18 * HOUR + rng.random_range(-90 * MINUTE..30 * MINUTE);
        event(Kind::Dev, &pools.dev, &format!("notebook-{n:02}"), 1, from, until - from)
    };
    (0..PEOPLE).map(person).collect()
}

fn batch(mut rng: ChaCha8Rng, pools: &Pools) -> Vec<PodEvent> {
    /// Bursts in an hour at its busiest.
    const RATE: f64 = 3.5;
    /// Pods beyond the first in each.
    const MORE: f64 = 1.0;
    let mut events = Vec::new();
    let mut at = waiting_time(&mut rng, RATE);
    while at < DAY {
        let keeps = rng.random_range(0.0..1.0) < 0.4 + 0.6 * daylight(at);
        let pods = 1 + poisson(&mut rng, MORE);
        for _ in 0..pods {
            let arrives = at + rng.random_range(0..MINUTE);
            let lifetime = log_normal(&mut rng, 3.0, 1.0, MINUTE).clamp(20, 2 * HOUR);
            if keeps && arrives < DAY {
                let name = format!("job-{:04}", events.len());
                events.push(event(Kind::Batch, &pools.batch, &name, 1, arrives, lifetime));
            }
        }
        at += waiting_time(&mut rng, RATE);
    }
    events
}
