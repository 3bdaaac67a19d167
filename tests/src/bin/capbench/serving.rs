//! Replicas that follow a rate of requests, each on a node of its own.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};
use stoker_sim::bound::levels::{self, Node};
use stoker_sim::demand::synthetic::{self, Serving};
use stoker_sim::demand::{Demand, InstanceType, Pod, Resources, Service};
use stoker_sim::peers::serving::{Reactive, Wanted, serve};
use stoker_sim::simulate::outcome::Outcome;

use crate::report::{Report, Table};
use crate::stoker::{self, EQUAL_COST, Job, Variant};
use crate::table::{COMMITTED, broken, dollars, ratio};

/// GPU model of a replica's node.
const MODEL: &str = "H100";
/// Its price on demand, of p5.4xlarge in us-east-1 (`pricing/tables/aws.csv`).
const HOURLY: UsdPerHour = UsdPerHour(6_880_000);
/// Requests a second that a replica serves.
const SERVES: f64 = 4.0;
/// Seconds by which a horizontal autoscaler sees the rate late.
const LAG: u32 = 60;
/// Seconds of a boot: the median that is played, which the bound and the others pay for too.
const BOOT: u32 = 270;
/// Seconds of a step of the rates.
const STEP: u32 = 60;

/// Stoker below a horizontal autoscaler: the load of a replica that this aims at, and Stoker's policy.
const OURS: [(u32, Variant); 7] = [
    (800, Variant::tuned("Stoker, target 80 %", "2", EQUAL_COST, "")),
    (850, Variant::tuned("Stoker, target 85 %", "2", EQUAL_COST, "")),
    (850, Variant::tuned("Stoker, target 85 %, floor by quantile", "8", EQUAL_COST, "{ quantile: {} }")),
    (850, Variant::tuned("Stoker, target 85 %, 2 warm nodes", "2", EQUAL_COST, "{ nodes: 2 }")),
    (900, Variant::tuned("Stoker, target 90 %", "2", EQUAL_COST, "")),
    (900, Variant::tuned("Stoker, target 90 %, floor by quantile", "8", EQUAL_COST, "{ quantile: {} }")),
    (950, Variant::tuned("Stoker, target 95 %, floor by quantile", "8", EQUAL_COST, "{ quantile: {} }")),
];

/// The table. Nodes of the start are there: the least pays for their boots, a thousandth of it at most.
pub(crate) fn compare(days: u32, report: &mut Report) -> Result<()> {
    let node = InstanceType {
        name: "p5.4xlarge".to_owned(),
        model: MODEL.to_owned(),
        allocatable: Resources { gpus: 1, milli_cpu: 15_890, memory_mib: 245_000 },
        hourly: UsdMicros(HOURLY.0),
    };
    let serving = synthetic::replicas(1, days);
    let bound = |reserved| levels::optimum(&serving.replicas, &Node { hourly: HOURLY, boot_seconds: BOOT, reserved });
    let least = dollars(bound(None).total);
    report.line(&format!("\nserving: requests of {days} days, replicas on {} each; one seed", node.name))?;
    report.line(&format!(
        "{:<52} {:>8} {:>7} {:>8} {:>8} {:>6} {:>13}",
        "policy", "USD", "x least", "missed %", "launches", "flaps", "floor short s"
    ))?;
    let mut table = Table::new(&["× least", "missed %"]);
    let mut line = |name: &str, usd: f64, missed: Option<f64>, rest: &str| {
        let missed = missed.map(|percent| format!("{percent:.3}")).unwrap_or_default();
        table.row(name, &[ratio(usd / least), missed.clone()]);
        report.line(&format!("{name:<52} {usd:>8.0} {:>7.3} {missed:>8} {rest}", usd / least))
    };
    line("the least with no request missed", least, None, "")?;
    line("the same, with reserved nodes", dollars(bound(Some(COMMITTED)).total), None, "")?;
    let peak = serving.replicas.needed.iter().copied().max().unwrap_or(0);
    line("static fleet of the peak", f64::from(peak) * dollars(node.hourly) * f64::from(days) * 24.0, None, "")?;
    let reactive = |target, window_seconds| Reactive {
        serves: SERVES,
        target: Milli(target),
        window_seconds,
        lag_seconds: LAG,
        boot_seconds: BOOT,
        hourly: HOURLY,
    };
    for (target, window) in [(600, 600), (700, 600), (800, 600), (900, 600), (800, 300), (900, 300), (950, 300)] {
        let served = serve(&serving.rates, STEP, &reactive(target, window));
        let name = format!("horizontal autoscaler, target {} %, {} min", target / 10, window / 60);
        let rest = format!("{:>8} {:>6}", served.launches, served.flaps);
        line(&name, dollars(served.usd), Some(served.missed_percent), &rest)?;
    }
    let demands: Vec<Arc<Demand>> =
        OURS.iter().map(|(target, _)| Arc::new(pods(&serving, &node, &reactive(*target, 300)))).collect();
    let jobs: Vec<Job<'_>> = OURS
        .iter()
        .zip(&demands)
        .map(|((_, variant), demand)| Job { variant: *variant, demand, models: &[MODEL], sample_every: i64::from(STEP) })
        .collect();
    let mut promises = Vec::new();
    for ((_, variant), outcomes) in OURS.iter().zip(stoker::play(&jobs, 1)?) {
        let outcome = outcomes.first().context("a run of Stoker")?;
        let fates = &outcome.fates;
        let rest = format!("{:>8} {:>6} {:>13}", fates.launches, fates.flaps, outcome.violations.floor_seconds);
        line(variant.name, dollars(outcome.total()), Some(missed(&serving, outcome)), &rest)?;
        promises.extend(broken(outcome));
    }
    promises.iter().try_for_each(|broken| report.broken(broken))?;
    report.verdict(promises.is_empty(), "no promise was broken in serving")?;
    report.keep_table("serving", &table)
}

/// The replicas that a horizontal autoscaler wants, as pods: it adds them at once, and removes the youngest, down to the most that it wanted
/// within its window.
fn pods(serving: &Serving, node: &InstanceType, how: &Reactive) -> Demand {
    let wanted = how.wanted(&serving.rates, STEP);
    let at = |step: usize| f64::from(u32::try_from(step).unwrap_or(u32::MAX)) * f64::from(STEP);
    let (mut pods, mut running) = (Vec::new(), Vec::new());
    let mut end = |from: usize, until: usize| {
        pods.push(Pod {
            name: format!("replica-{}", pods.len()),
            arrives: at(from),
            runs: at(until - from),
            requests: node.allocatable,
            gpu_milli: 1000,
            models: Vec::new(),
            service: Service::LatencySensitive,
            pool: None,
        });
    };
    for (step, Wanted { least, most }) in wanted.iter().enumerate() {
        while running.len() > *most {
            let Some(youngest) = running.pop() else { break };
            end(youngest, step);
        }
        running.resize(running.len().max(*least), step);
    }
    for from in running {
        end(from, wanted.len());
    }
    pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    Demand { types: vec![node.clone()], pods, seconds: at(wanted.len()) }
}

/// Percent of the requests that came above what the running replicas serve.
fn missed(serving: &Serving, outcome: &Outcome) -> f64 {
    let runs = |step: usize| {
        let at = i64::try_from(step).unwrap_or(i64::MAX).saturating_mul(i64::from(STEP));
        let after = outcome.samples.partition_point(|sample| sample.at <= at);
        let sample = after.checked_sub(1).and_then(|last| outcome.samples.get(last));
        sample.map_or(0, |sample| sample.demand_gpus - sample.waiting_gpus)
    };
    let missed = serving.rates.iter().enumerate().map(|(step, rate)| (rate - f64::from(runs(step)) * SERVES).max(0.0));
    100.0 * missed.sum::<f64>() / serving.rates.iter().sum::<f64>()
}
