//! The runs of the reference, with its own boot draws.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use serde::Deserialize;

use super::*;
use crate::demand::openb::{self, MODELS, Selection, Shifts};
use crate::demand::{InstanceType, Pod, Resources, Service};

/// Arrival and run in seconds, GPUs, thousandths of a CPU, MiB, models and service of a pod.
type Drawn = (f64, f64, u32, u32, u32, Vec<String>, String);

/// Pods that were drawn for this test, and what the reference made of them once what it does wrong was mended there too: it
/// looks for waiting pods again when a replacement is ready, and forgets a replacement that is gone.
#[derive(Deserialize)]
struct Recorded {
    seconds: f64,
    types: Vec<(String, String, u32, u32, u32, f64)>,
    pods: Vec<Drawn>,
    runs: BTreeMap<String, Figures>,
    normals: Vec<f64>,
    #[serde(rename = "static")]
    static_peak: f64,
}

/// What the reference says of a run.
#[derive(Deserialize)]
struct Figures {
    usd: f64,
    commit: f64,
    gpu_hours: f64,
    idle: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    waited: f64,
    long: f64,
    launches: usize,
    flaps: usize,
    moves: usize,
    boots: usize,
}

const fn pay(pay: f64, most: f64) -> Policy {
    Policy::behind_autoscaler(Idle::EqualPay { pay, most })
}

/// Policies by the name of their run.
fn policy(name: &str) -> Policy {
    match name {
        "b1" => Policy::autoscaler(),
        "b1s" => Policy::autoscaler().spread(),
        "b2" => Policy::autoscaler_by_price(),
        "b2b4" => Policy::autoscaler_by_price().with_taints(1.3),
        "b2b4s" => Policy::autoscaler_by_price().with_taints(1.3).spread(),
        "b3a" => Policy::karpenter_when_empty(),
        "b3b" => Policy::karpenter(0.0),
        "b3bs" => Policy::karpenter(0.0).spread(),
        "b3b10" => Policy::karpenter(600.0),
        "b3bb4" => Policy::karpenter(600.0).with_taints(1.3),
        "ref" => Policy::own_choice(300.0),
        "reft" => Policy::own_choice(300.0).with_taints(1.001),
        "reft1" => Policy::own_choice(60.0).with_taints(1.001),
        "reft10" => Policy::own_choice(600.0).with_taints(1.001),
        "door0" => Policy::behind_autoscaler(Idle::After { seconds: 0.0 }),
        "door300" => pay(300.0, 600.0),
        "door300s" => pay(300.0, 600.0).spread(),
        "door600" => pay(600.0, 1200.0),
        "doorf2" => pay(150.0, 600.0).with_floors(&[("g4dn.2xlarge", 1), ("g4dn.xlarge", 1)]),
        "doorf" => pay(150.0, 600.0).with_floors(&[("g4dn.2xlarge", 2), ("g4dn.xlarge", 1), ("g6.2xlarge", 1)]),
        other => panic!("no policy {other}"),
    }
}

fn sold(name: &str, model: &str, [gpus, milli_cpu, memory_mib]: [u32; 3], usd: f64) -> InstanceType {
    let allocatable = Resources { gpus, milli_cpu, memory_mib };
    InstanceType { name: name.into(), model: model.into(), allocatable, hourly: UsdMicros(micros(usd + 5e-7)) }
}

fn of_reference(recorded: &Recorded) -> Demand {
    let pod = |(at, of): (usize, &Drawn)| Pod {
        name: format!("p{at}"),
        arrives: of.0,
        runs: of.1,
        requests: Resources { gpus: of.2, milli_cpu: of.3, memory_mib: of.4 },
        gpu_milli: 1000,
        pool: None,
        models: of.5.clone(),
        service: if of.6 == "LS" { Service::LatencySensitive } else { Service::Other },
    };
    let types = recorded.types.iter().map(|of| sold(&of.0, &of.1, [of.2, of.3, of.4], of.5)).collect();
    Demand { types, pods: recorded.pods.iter().enumerate().map(pod).collect(), seconds: recorded.seconds }
}

fn close(name: &str, what: &str, got: f64, expected: f64, off: f64) {
    assert!((got - expected).abs() <= off, "{name}: {what} {got} instead of {expected}");
}

#[test]
fn it_is_the_references_run_with_the_same_boots() {
    let recorded: Recorded = serde_json::from_str(include_str!("reference.json")).unwrap();
    let demand = of_reference(&recorded);
    close("static", "usd", dollars(static_peak(&demand).0), recorded.static_peak, 0.001);
    for (name, figures) in &recorded.runs {
        let report = replay(&demand, &policy(name), Boots::recorded(recorded.normals.clone())).unwrap();
        let counts = (report.launches, report.flaps, report.moves, report.boots);
        assert_eq!(counts, (figures.launches, figures.flaps, figures.moves, figures.boots), "{name}");
        close(name, "usd", dollars(report.usd.0), figures.usd, 0.001);
        close(name, "committed usd", dollars(report.commit(Milli(620)).total.0), figures.commit, 0.001);
        close(name, "GPU-hours", report.gpu_hours, figures.gpu_hours, 0.51);
        close(name, "idle percent", report.idle_percent(), figures.idle, 0.051);
        close(name, "p50", report.waits.p50, figures.p50, 0.51);
        close(name, "p95", report.waits.p95, figures.p95, 0.51);
        close(name, "p99", report.waits.p99, figures.p99, 0.51);
        close(name, "waited GPU-hours", report.waits.gpu_hours, figures.waited, 0.051);
        close(name, "long waits", report.waits.long_percent, figures.long, 0.0051);
    }
}

mod published;
