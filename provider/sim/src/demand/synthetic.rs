//! Drawn demand that resembles published traces, for where those may not be passed on.
//!
//! * [`mixed`]: some 180 pods a day of many classes beside a base of pods that run for weeks (resembles W1n).
//! * [`churn`]: four times as many pods of at most a day (resembles W2).
//! * [`training`]: gangs of one, two, four or eight GPUs that may run on spot (W4).
//! * [`replicas`]: replicas that follow a rate of requests (resembles W3).
//!
//! # Laws of `mixed` and `churn`
//! * Arrivals are Poisson. Their rate follows the day by a cosine between half and one and a half of its mean; each day
//!   and each hour has a lognormal factor of its own (sigma 0.45 and 0.35), which gives an index of dispersion of five
//!   per hour.
//! * Runs follow the quantiles of Alibaba's trace of 2023, log-linear between them: half of the pods run less than ten
//!   minutes, and a hundredth of them use most of the GPU-hours. Gangs of eight run longer.
//! * Requests, GPU models and services have that trace's shares. CPU and memory are at most 7.6 CPUs and 28,000 MiB
//!   per GPU.
//! * `churn` is the sum of four such streams whose days start at random times.
//!
//! # Laws of `training`
//! Arrivals are Poisson at 1.6 times their mean in the first half of each day and 0.4 times in the second. Runs are
//! lognormal (median 874 s, sigma 2.43) and at most three days, which gives the mean of Philly's runs capped so.
//!
//! # Laws of `replicas`
//! The logarithm of the rate of each ten minutes is that of a daily cosine, with a slow drift, a small noise, and now
//! and then a jump for ten minutes. Rates in between are linear.
//!
//! # Guarantees
//! The same seed gives the same demand. A pod that no given type can run stays in the demand: bounds and simulations
//! count it.

use std::f64::consts::TAU;

use super::{Demand, InstanceType, Pod, Replicas, Resources, Service};
use crate::world::draw::{Seed, Stream, whole};

mod laws;
#[cfg(test)]
mod tests;

use laws::{CHURN_RUNS, CLASSES, GANGS, MIXED_RUNS, RESIDENT_HOURS, SERVICES, SHAPES, among, quantile};

const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;
/// Arrivals a day of one stream.
const A_DAY: f64 = 179.0;

/// Requests that a replica serves a second.
const SERVES: f64 = 4.0;
/// Requests a second on average.
const MEAN_RATE: f64 = 186.0;
/// Seconds of a step of rates.
const STEP: u32 = 60;

/// Pods of many classes beside a base of pods that run for weeks.
pub fn mixed(seed: u64, days: u32, types: &[InstanceType]) -> Demand {
    let mut stream = Seed(seed).stream("mixed", &[], 0);
    let mut pods = Vec::new();
    for number in 0..25 {
        let gpus = if number == 0 { 8 } else { 1 };
        let runs = quantile(&mut stream, &RESIDENT_HOURS) * HOUR;
        pods.push(Pod { service: Service::LatencySensitive, ..pod(&mut stream, 0.0, gpus, runs) });
    }
    for arrives in arrivals(&mut stream, days, 0.0) {
        let gpus = *among(&mut stream, &GANGS);
        let longer = if gpus == 8 { 5.0 } else { 1.0 };
        let runs = quantile(&mut stream, &MIXED_RUNS) * longer;
        pods.push(pod(&mut stream, arrives, gpus, runs));
    }
    demand(pods, days, types)
}

/// Pods of at most a day.
pub fn churn(seed: u64, days: u32, types: &[InstanceType]) -> Demand {
    let mut pods = Vec::new();
    for copy in 0..4 {
        let mut stream = Seed(seed).stream("churn", &[], copy);
        let starts = stream.unit() * DAY;
        for arrives in arrivals(&mut stream, days, starts) {
            let gpus = *among(&mut stream, &GANGS);
            let longer = if gpus == 8 { 3.0 } else { 1.0 };
            let runs = (quantile(&mut stream, &CHURN_RUNS) * longer).min(DAY);
            pods.push(pod(&mut stream, arrives, gpus, runs));
        }
    }
    demand(pods, days, types)
}

/// Training jobs on V100s that may run on spot.
pub fn training(seed: u64, days: u32, types: &[InstanceType]) -> Demand {
    let mut stream = Seed(seed).stream("training", &[], 0);
    let mut pods = Vec::new();
    for hour in 0..days * 24 {
        let rate = 242.0 / 24.0 * if hour % 24 < 12 { 1.6 } else { 0.4 };
        for arrives in within_hour(&mut stream, hour, rate) {
            let gpus = *among(&mut stream, &[(0.7, 1), (0.1, 2), (0.1, 4), (0.1, 8)]);
            let requests = Resources { gpus, milli_cpu: 6_000 * gpus, memory_mib: 50_000 * gpus };
            let runs = stream.log_normal(874.0, 2.43).min(3.0 * DAY);
            let (models, service) = (vec!["V100".to_owned()], Service::BestEffort);
            pods.push(Pod { requests, models, service, ..pod(&mut stream, arrives, gpus, runs) });
        }
    }
    demand(pods, days, types)
}

/// A rate of requests, and the replicas that it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Serving {
    /// Requests a second in each step.
    pub rates: Vec<f64>,
    /// Replicas that serve four requests a second each.
    pub replicas: Replicas,
}

/// Replicas that follow a rate of requests, in steps of a minute.
pub fn replicas(seed: u64, days: u32) -> Serving {
    let mut stream = Seed(seed).stream("replicas", &[], 0);
    let mut drift = 0.0;
    let bins: Vec<f64> = (0..days * 144)
        .map(|bin| {
            drift = 0.97 * drift + 0.03 * stream.normal();
            let jump = if stream.chance(0.055) { 0.45 * stream.normal() } else { 0.0 };
            let noise = 0.05 * stream.normal();
            let day = 1.0 - 0.48 * (TAU * f64::from(bin) / 144.0).cos();
            MEAN_RATE * (day * (drift + jump + noise).exp()).min(3.1)
        })
        .collect();
    let rates: Vec<f64> = (0..days * 1440).map(|minute| between(&bins, minute)).collect();
    let needed = |rate: &f64| u32::try_from(whole((rate / SERVES).ceil())).unwrap_or(u32::MAX);
    let replicas = Replicas { needed: rates.iter().map(needed).collect(), step_seconds: STEP };
    Serving { rates, replicas }
}

/// The rate at a minute, linear between the middles of the bins of ten minutes.
fn between(bins: &[f64], minute: u32) -> f64 {
    let place = ((f64::from(minute) - 5.0) / 10.0).max(0.0);
    let below = usize::try_from(minute.saturating_sub(5) / 10).unwrap_or(0);
    let Some(low) = bins.get(below) else { return 0.0 };
    let high = bins.get(below + 1).unwrap_or(low);
    low + (high - low) * (place - place.floor())
}

/// Arrivals of one stream, whose day starts at `starts` seconds.
fn arrivals(stream: &mut Stream, days: u32, starts: f64) -> Vec<f64> {
    // Factors with a mean of one.
    let factor = |stream: &mut Stream, sigma: f64| stream.log_normal((-sigma * sigma / 2.0).exp(), sigma);
    let mut all = Vec::new();
    let mut of_day = 1.0;
    for hour in 0..days * 24 {
        if hour % 24 == 0 {
            of_day = factor(stream, 0.45);
        }
        let of_hour = factor(stream, 0.35);
        let turn = TAU * (f64::from(hour) + starts / HOUR) / 24.0;
        let rate = A_DAY / 24.0 * (1.0 - 0.5 * turn.cos()) * of_day * of_hour;
        all.extend(within_hour(stream, hour, rate));
    }
    all
}

/// Independent arrivals at that rate within the hour.
fn within_hour(stream: &mut Stream, hour: u32, rate: f64) -> Vec<f64> {
    let mut all = Vec::new();
    let mut at = 0.0;
    loop {
        at -= (1.0 - stream.unit()).ln() / rate;
        if at >= 1.0 {
            return all;
        }
        all.push((f64::from(hour) + at) * HOUR);
    }
}

fn pod(stream: &mut Stream, arrives: f64, gpus: u32, runs: f64) -> Pod {
    let (milli_cpu, memory_mib) = *among(stream, &SHAPES);
    let models = among(stream, &CLASSES).iter().map(|model| (*model).to_owned()).collect();
    let service = *among(stream, &SERVICES);
    let requests = Resources { gpus, milli_cpu: milli_cpu * gpus, memory_mib: memory_mib * gpus };
    Pod { name: String::new(), arrives, runs, requests, gpu_milli: 1000, models, service, pool: None }
}

/// The pods by arrival, named by their order.
fn demand(mut pods: Vec<Pod>, days: u32, types: &[InstanceType]) -> Demand {
    pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    for (number, pod) in pods.iter_mut().enumerate() {
        pod.name = format!("pod-{number}");
    }
    Demand { types: types.to_vec(), pods, seconds: f64::from(days) * DAY }
}
