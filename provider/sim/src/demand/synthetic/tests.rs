//! The drawn demand has the statistics of what it resembles.

use stoker_core::base::units::UsdMicros;

use super::*;
use crate::peers::{Boots, Policy, replay};

fn sold(name: &str, model: &str, gpus: u32, micros: i64) -> InstanceType {
    let allocatable = Resources { gpus, milli_cpu: 7_700 * gpus, memory_mib: 52_000 * gpus };
    InstanceType { name: name.into(), model: model.into(), allocatable, hourly: UsdMicros(micros) }
}

fn types() -> Vec<InstanceType> {
    let models = [
        ("A10G", 1_212_000),
        ("L4", 977_600),
        ("L40S", 2_242_000),
        ("T4", 752_000),
        ("V100", 3_060_000),
        ("V100-32GB", 3_901_500),
    ];
    let of = |(model, micros): &(&str, i64)| {
        [1, 4, 8].map(|gpus| sold(&format!("{model}-{gpus}"), model, gpus, micros * i64::from(gpus) * 101 / 100))
    };
    models.iter().flat_map(of).collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / count(of.len())
}

fn count(of: usize) -> f64 {
    f64::from(u32::try_from(of).unwrap())
}

fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[usize::try_from(whole(share * count(sorted.len() - 1))).unwrap()]
}

fn runs(demand: &Demand) -> Vec<f64> {
    let mut runs: Vec<f64> = demand.pods.iter().map(|pod| pod.runs).collect();
    runs.sort_by(f64::total_cmp);
    runs
}

fn gpus(demand: &Demand) -> f64 {
    let of = |pod: &Pod| f64::from(pod.requests.gpus) * pod.runs.min(demand.seconds - pod.arrives);
    demand.pods.iter().map(of).sum::<f64>() / demand.seconds
}

/// Variance of the arrivals per hour by their mean.
fn dispersion(demand: &Demand) -> f64 {
    let mut hours = vec![0.0; usize::try_from(whole(demand.seconds / HOUR)).unwrap()];
    for pod in demand.pods.iter().filter(|pod| pod.arrives > 0.0) {
        hours[usize::try_from(whole((pod.arrives / HOUR).floor())).unwrap()] += 1.0;
    }
    let mean_hour = mean(&hours);
    hours.iter().map(|hour| (hour - mean_hour).powi(2)).sum::<f64>() / count(hours.len()) / mean_hour
}

fn over_seeds(of: impl Fn(u64) -> f64) -> f64 {
    mean(&(0..8).map(of).collect::<Vec<_>>())
}

fn near(what: &str, got: f64, expected: f64, off: f64) {
    assert!((got / expected - 1.0).abs() <= off, "{what}: {got} instead of {expected}");
}

#[test]
fn mixed_demand_is_like_the_trace() {
    let of = |seed| mixed(seed, 34, &types());
    near("pods", over_seeds(|seed| count(of(seed).pods.len())), 6_150.0, 0.07);
    near("GPUs", over_seeds(|seed| gpus(&of(seed))), 41.8, 0.1);
    near("dispersion", over_seeds(|seed| dispersion(&of(seed))), 5.3, 0.2);
    let demand = of(1);
    let runs = runs(&demand);
    near("median run", at(&runs, 0.5), 638.0, 0.1);
    near("95th run", at(&runs, 0.95), 15_500.0, 0.15);
    let short = runs.iter().filter(|run| **run < 600.0).count();
    near("short pods", count(short) / count(runs.len()), 0.487, 0.05);
    let top = over_seeds(|seed| {
        let mut used: Vec<f64> = of(seed).pods.iter().map(|pod| f64::from(pod.requests.gpus) * pod.runs).collect();
        used.sort_by(|a, b| b.total_cmp(a));
        used[..used.len() / 100].iter().sum::<f64>() / used.iter().sum::<f64>()
    });
    near("share of the longest hundredth", top, 0.9, 0.06);
    let any = demand.pods.iter().filter(|pod| pod.models.is_empty()).count();
    near("pods of any model", count(any) / count(demand.pods.len()), 0.6645, 0.04);
    let best_effort = demand.pods.iter().filter(|pod| pod.service == Service::BestEffort).count();
    near("best effort", count(best_effort) / count(demand.pods.len()), 0.406, 0.05);
    assert!(demand.pods.is_sorted_by(|a, b| a.arrives <= b.arrives));
    assert!(demand.pods.iter().all(|pod| !demand.types_for(pod).is_empty()));
}

#[test]
fn churn_is_like_the_shifted_trace() {
    let of = |seed| churn(seed, 34, &types());
    near("pods", over_seeds(|seed| count(of(seed).pods.len())), 24_300.0, 0.05);
    near("GPUs", over_seeds(|seed| gpus(&of(seed))), 28.4, 0.08);
    near("dispersion", over_seeds(|seed| dispersion(&of(seed))), 5.3, 0.25);
    let runs = runs(&of(1));
    near("median run", at(&runs, 0.5), 622.0, 0.06);
    assert!(at(&runs, 1.0) <= DAY);
}

#[test]
fn training_is_gangs_by_day() {
    let of = |seed| training(seed, 14, &types());
    near("pods", over_seeds(|seed| count(of(seed).pods.len())), 3_388.0, 0.03);
    near("GPUs", over_seeds(|seed| gpus(&of(seed))), 58.6, 0.08);
    let demand = of(1);
    near("median run", at(&runs(&demand), 0.5), 874.0, 0.12);
    assert!(at(&runs(&demand), 1.0) <= 3.0 * DAY);
    let by_day = demand.pods.iter().filter(|pod| pod.arrives % DAY < DAY / 2.0).count();
    near("by day", count(by_day) / count(demand.pods.len()), 0.8, 0.03);
    let gangs = demand.pods.iter().filter(|pod| pod.requests.gpus == 8).count();
    near("gangs of eight", count(gangs) / count(demand.pods.len()), 0.1, 0.2);
}

#[test]
fn replicas_follow_the_day_with_jumps() {
    let needed = |seed| {
        let serving = replicas(seed, 14);
        serving.replicas.needed.iter().map(|needed| f64::from(*needed)).collect::<Vec<_>>()
    };
    near("replicas", over_seeds(|seed| mean(&needed(seed))), 49.5, 0.04);
    near("peak", over_seeds(|seed| needed(seed).into_iter().fold(0.0, f64::max)), 146.0, 0.1);
    let variation = over_seeds(|seed| {
        let rates = replicas(seed, 14).rates;
        let middle = mean(&rates);
        (rates.iter().map(|rate| (rate - middle).powi(2)).sum::<f64>() / count(rates.len())).sqrt() / middle
    });
    near("variation", variation, 0.39, 0.1);
    let rates = replicas(1, 14).rates;
    let bins: Vec<f64> = rates.iter().skip(5).step_by(10).copied().collect();
    let mut steps: Vec<f64> = bins.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs()).collect();
    steps.sort_by(f64::total_cmp);
    near("median step", at(&steps, 0.5), 0.06, 0.25);
    near("95th step", at(&steps, 0.95), 0.37, 0.25);
    assert_eq!(rates.len(), 14 * 1440);
}

#[test]
fn a_seed_gives_one_demand() {
    assert_eq!(mixed(3, 2, &types()), mixed(3, 2, &types()));
    assert_ne!(churn(3, 2, &types()).pods, churn(4, 2, &types()).pods);
    assert_eq!(replicas(3, 2), replicas(3, 2));
}

#[test]
fn policies_stand_in_the_order_of_the_trace() {
    let demand = churn(1, 14, &types());
    let usd = |name: &str| {
        let policies = Policy::published();
        let (_, policy) = policies.iter().find(|(of, _)| *of == name).unwrap();
        replay(&demand, policy, Boots::seeded(1)).unwrap().usd
    };
    let bills = [
        "behind the autoscaler, equal pay 300",
        "Cluster Autoscaler by price, class taints",
        "Cluster Autoscaler by price",
        "Cluster Autoscaler",
    ]
    .map(usd);
    assert!(bills.is_sorted_by(|less, more| less < more), "{bills:?}");
}
