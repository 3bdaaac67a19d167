//! Spot baselines, held against runs of the reference with the same draws.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::*;
use crate::demand::{InstanceType, Pod, Resources, Service};

/// Jobs and pools that were drawn for this test, and what the reference made of them once what it does wrong was mended there
/// too: beyond what `reference.json` says, pods that still boot on demand keep their way back to spot, and waits are of first
/// starts.
#[derive(Deserialize)]
struct Recorded {
    seconds: f64,
    types: Vec<(String, u32, u32, u32, f64)>,
    pods: Vec<(f64, f64, u32, String)>,
    pools: Vec<(String, f64, f64, Vec<u32>)>,
    runs: BTreeMap<String, Figures>,
    normals: Vec<f64>,
    units: Vec<f64>,
}

/// What the reference says of a run.
#[derive(Deserialize)]
struct Figures {
    usd: f64,
    spot: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    waited: f64,
    launches: usize,
    flaps: usize,
    moves: usize,
    interruptions: usize,
    lost: f64,
    refusals: usize,
    late: f64,
    never_started: usize,
    boots: usize,
}

fn policy(name: &str) -> Policy {
    let returns = |policy: Policy, looks| policy.with_return(looks, 300.0, 120.0);
    let soon = |policy: Policy| Policy { idle: Idle::After { seconds: 60.0 }, ..policy };
    match name {
        "b5" => Policy::spot_only(),
        "b6" => Policy::sticky_fallback(),
        "b6k" => returns(Policy::sticky_fallback(), Looks::Underutilized),
        "b6m" => returns(Policy::sticky_fallback(), Looks::OnDemandNodes),
        "b6m60" => soon(policy("b6m")),
        "b7" => returns(Policy::uniform_progress(2.0), Looks::Underutilized),
        "b7m" => returns(Policy::uniform_progress(2.0), Looks::OnDemandNodes),
        "b7w" => soon(returns(Policy::uniform_progress(20.0), Looks::OnDemandNodes)),
        "b7c" => soon(Policy::uniform_progress(10.0).with_return(Looks::OnDemandNodes, 300.0, 60.0)),
        "b3s" => Policy::karpenter_when_empty().with_spot(WithoutRoom::OnDemand).with_return(Looks::Underutilized, 0.0, 30.0),
        other => panic!("no policy {other}"),
    }
}

fn close(name: &str, what: &str, got: f64, expected: f64, off: f64) {
    assert!((got - expected).abs() <= off, "{name}: {what} {got} instead of {expected}");
}

fn pools(pools: &[(String, f64, f64, Vec<u32>)]) -> Vec<SpotPool> {
    let pool = |(name, step_seconds, ratio, room): &(String, f64, f64, Vec<u32>)| SpotPool {
        name: name.clone(),
        types: Vec::new(),
        price: Milli(u32::try_from(crate::world::draw::whole(ratio * 1000.0)).unwrap()),
        step_seconds: *step_seconds,
        room: room.clone(),
    };
    pools.iter().map(pool).collect()
}

fn market(name: &str, of: &[(String, f64, f64, Vec<u32>)], units: Vec<f64>) -> Market {
    let checkpoint = if name == "b7c" { 900.0 } else { 1800.0 };
    Market::recorded(pools(of), units).with_slack(0.25).with_checkpoints(checkpoint)
}

fn job(at: usize, arrives: f64, runs: f64, gpus: u32, service: Service) -> Pod {
    let requests = Resources { gpus, milli_cpu: 6_000 * gpus, memory_mib: 50_000 * gpus };
    Pod { name: format!("p{at}"), arrives, runs, requests, gpu_milli: 1000, models: Vec::new(), service, pool: None }
}

fn sold(of: &[(String, u32, u32, u32, f64)]) -> Vec<InstanceType> {
    let sold = |(name, gpus, milli_cpu, memory_mib, usd): &(String, u32, u32, u32, f64)| InstanceType {
        name: name.clone(),
        model: "V100".into(),
        allocatable: Resources { gpus: *gpus, milli_cpu: *milli_cpu, memory_mib: *memory_mib },
        hourly: UsdMicros(micros(usd + 5e-7)),
    };
    of.iter().map(sold).collect()
}

#[test]
fn it_is_the_references_run_on_the_same_market() {
    let recorded: Recorded = serde_json::from_str(include_str!("spot.json")).unwrap();
    let service = |name: &str| if name == "BE" { Service::BestEffort } else { Service::LatencySensitive };
    let pods = recorded.pods.iter().enumerate().map(|(at, of)| job(at, of.0, of.1, of.2, service(&of.3))).collect();
    let demand = Demand { types: sold(&recorded.types), pods, seconds: recorded.seconds };
    for (name, figures) in &recorded.runs {
        let market = market(name, &recorded.pools, recorded.units.clone());
        let report = replay_with_spot(&demand, &policy(name), Boots::recorded(recorded.normals.clone()), market).unwrap();
        let counts = [report.launches, report.flaps, report.moves, report.interruptions, report.refusals, report.boots];
        let expected = [figures.launches, figures.flaps, figures.moves, figures.interruptions, figures.refusals, figures.boots];
        assert_eq!(counts, expected, "{name}");
        assert_eq!(report.never_started, figures.never_started, "{name}");
        close(name, "usd", dollars(report.usd.0), figures.usd, 0.001);
        close(name, "spot usd", dollars(report.spot_usd.0), figures.spot, 0.001);
        close(name, "p50", report.waits.p50, figures.p50, 0.51);
        close(name, "p95", report.waits.p95, figures.p95, 0.51);
        close(name, "p99", report.waits.p99, figures.p99, 0.51);
        close(name, "waited GPU-hours", report.waits.gpu_hours, figures.waited, 0.051);
        close(name, "lost GPU-hours", report.lost_gpu_hours, figures.lost, 0.051);
        close(name, "late percent", report.late_percent, figures.late, 0.0051);
    }
}

/// Training jobs on the markets of three zones, with the reference's runs of two seeds.
#[derive(Deserialize)]
struct Training {
    seconds: f64,
    pods: Vec<(f64, f64, u32, u32, u32)>,
    pools: Vec<(String, f64, f64, Vec<u32>)>,
}

#[derive(Deserialize)]
struct Draws {
    normals: Vec<f64>,
    units: Vec<f64>,
}

const P3: [(&str, u32, u32, u32, f64); 3] = [
    ("p3.16xlarge", 8, 63_770, 472_000, 24.48),
    ("p3.2xlarge", 1, 7_910, 55_000, 3.06),
    ("p3.8xlarge", 4, 31_850, 235_000, 12.24),
];

#[test]
#[ignore = "reads the training jobs, markets, draws and runs of the reference from STOKER_BENCHMARK_DRAWS"]
fn it_is_the_references_training_on_spot() {
    if crate::is_skipped("STOKER_BENCHMARK_DRAWS") {
        return;
    }
    let root = std::env::var("STOKER_BENCHMARK_DRAWS").unwrap();
    let file = |name: &str| std::fs::read_to_string(std::path::Path::new(&root).join(name)).unwrap();
    let training: Training = serde_json::from_str(&file("w4.json")).unwrap();
    let expected: BTreeMap<String, Vec<Figures>> = serde_json::from_str(&file("w4_out.json")).unwrap();
    let types = P3.map(|(name, gpus, cpu, memory, usd)| (name.to_owned(), gpus, cpu, memory, usd));
    let pods = training.pods.iter().enumerate();
    let pods = pods.map(|(at, of)| job(at, of.0, of.1, of.2, Service::BestEffort)).collect();
    let demand = Demand { types: sold(&types), pods, seconds: training.seconds };
    for (name, seeds) in expected {
        for (seed, figures) in seeds.iter().enumerate() {
            let Draws { normals, units } = serde_json::from_str(&file(&format!("w4_draws_{seed}.json"))).unwrap();
            let start = std::time::Instant::now();
            let market = market(&name, &training.pools, units);
            let report = replay_with_spot(&demand, &policy(&name), Boots::recorded(normals), market).unwrap();
            let (usd, took) = (dollars(report.usd.0), start.elapsed());
            println!(
                "w4 {name:6} seed {seed} ${usd:.2} instead of ${:.2} ({:+.4} %), p95 {:.0} instead of {}, late {:.2} % \
                 instead of {}, {took:.2?}",
                figures.usd,
                100.0 * (usd / figures.usd - 1.0),
                report.waits.p95,
                figures.p95,
                report.late_percent,
                figures.late,
            );
            close(&name, "usd", usd, figures.usd, 0.005 * figures.usd);
        }
    }
}
