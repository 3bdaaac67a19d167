//! W1, W1n or W2 of the policy benchmark under Stoker: `first_look w1n [seeds] [waiting] [scale-down]`.
#![allow(missing_docs, clippy::pedantic, clippy::unwrap_used)]
use std::sync::Arc;

use stoker_core::base::units::UsdMicros;
use stoker_core::policy::{Policy, RawPolicy};
use stoker_sim::demand::{Demand, InstanceType, Pod, Room, Service};
use stoker_sim::simulate::{Setup, simulate, types};

fn catalog() -> Vec<InstanceType> {
    let text = std::fs::read_to_string("/work/shared/benchmark/catalog.json").unwrap();
    let json: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut all: Vec<InstanceType> = Vec::new();
    let model = |name: &str| match name.split('.').next().unwrap() {
        "g4dn" => Some("T4"),
        "g5" => Some("A10G"),
        "g6" => Some("L4"),
        "g6e" => Some("L40S"),
        "p3" => Some("V100"),
        "p3dn" => Some("V100M32"),
        _ => None,
    };
    let mut add = |name: &str, gpus: u32, cpu: u32, mem: u32, usd: f64| {
        let Some(model) = model(name) else { return };
        let allocatable = Room { gpus, milli_cpu: cpu, memory_mib: mem };
        let hourly = UsdMicros((usd * 1e6).round() as i64);
        all.push(InstanceType { name: name.into(), model: model.into(), allocatable, hourly });
    };
    for (name, of) in &json {
        let n = |key: &str| of[key].as_f64().unwrap();
        add(name, n("gpu") as u32, n("cpu_milli") as u32, n("mem_mib") as u32, n("usd_h"));
    }
    for (n, g, c, m, p) in
        [("p3.2xlarge", 1, 7910, 55000, 3.06), ("p3.8xlarge", 4, 31850, 235000, 12.24), ("p3.16xlarge", 8, 63770, 472000, 24.48)]
    {
        add(n, g, c, m, p);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn demand(workload: &str) -> Demand {
    const DAY: f64 = 86_400.0;
    let t0 = 115.0 * DAY;
    let text = std::fs::read_to_string("/work/shared/data/traces/openb_pod_list_gpuspec33.csv").unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let num = |row: &[&str], at: usize| row[at].parse::<f64>().ok();
    let rows: Vec<_> = rows.iter().filter(|r| num(r, 3).unwrap() > 0.0 && num(r, 10).is_some()).collect();
    let end = rows.iter().map(|r| num(r, 9).unwrap()).fold(0.0, f64::max) - t0;
    let types = catalog();
    let mut pods = Vec::new();
    let mut luck = 12345_u64;
    let norm = workload != "w1";
    for r in rows {
        let [cpu, mem, gpus, milli] = [1, 2, 3, 4].map(|at| num(r, at).unwrap());
        let [created, deleted, scheduled] = [8, 9, 10].map(|at| num(r, at).unwrap());
        let runs = deleted - scheduled.max(t0);
        if runs <= 0.0 || deleted <= t0 || workload == "w2" && deleted - scheduled > DAY {
            continue;
        }
        let (cpu, mem) = if norm { (cpu.min(7600.0 * gpus), mem.min(28000.0 * gpus)) } else { (cpu, mem) };
        let mut models: Vec<String> = Vec::new();
        for spec in r[5].split('|') {
            let model = match spec {
                "T4" | "P100" => "T4",
                "A10" => "A10G",
                "G2" => "L4",
                "G3" => "L40S",
                "V100M16" => "V100",
                "V100M32" => "V100M32",
                _ => continue,
            };
            if !models.iter().any(|m| m == model) {
                models.push(model.into());
            }
        }
        let service = match r[6] {
            "LS" => Service::LatencySensitive,
            "BE" => Service::BestEffort,
            _ => Service::Other,
        };
        for copy in 0..if workload == "w2" { 4 } else { 1 } {
            let shift = if copy == 0 {
                0.0
            } else {
                luck = luck.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (luck >> 11) as f64 / (1_u64 << 53) as f64 * end
            };
            let arrives = ((created.max(t0) - t0) + shift) % end;
            let requests = Room { gpus: gpus as u32, milli_cpu: cpu as u32, memory_mib: mem as u32 };
            pods.push(Pod {
                name: format!("{}-{copy}", r[0]),
                arrives,
                runs,
                requests,
                gpu_milli: milli as u32,
                models: models.clone(),
                service,
            });
        }
    }
    let mut demand = Demand { types, pods: Vec::new(), seconds: end };
    pods.retain(|pod| !demand.types_for(pod).is_empty());
    pods.sort_by(|a, b| a.arrives.total_cmp(&b.arrives));
    demand.pods = pods;
    demand
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let arg = |at: usize, or: &str| args.get(at).cloned().unwrap_or_else(|| or.to_owned());
    let demand = Arc::new(demand(&arg(1, "w1n")));
    let seeds: u64 = arg(2, "1").parse().unwrap();
    let waiting: f64 = arg(3, "2").parse().unwrap();
    let pool = arg(4, r#"{"scaleDown":"10m","window":"equalCost","minimumLife":"15m"}"#);
    let isolation = arg(5, "1.0");
    let boot = arg(6, "10m");
    let raw: RawPolicy = serde_json::from_value(serde_json::json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "sim",
        "defaults": { "unknownQuota": "allow", "bootDeadline": boot },
        "pools": [{
            "name": "gpu", "workload": "batch",
            "gpu": { "models": ["T4", "A10G", "L4", "L40S", "V100", "V100M32"] },
            "where": { "clouds": ["aws"], "regions": ["us-east-1"] },
            "capacity": { "prefer": ["on-demand"] },
            "limits": { "maxNodes": 2000 },
            "isolation": if isolation == "off" { serde_json::Value::Null } else { serde_json::json!({ "maxCostRatio": isolation.parse::<f64>().unwrap() }) },
            "waitingUsdPerGpuHour": waiting,
            "stabilization": serde_json::from_str::<serde_json::Value>(&pool).unwrap(),
        }],
    }))
    .unwrap();
    let policy = Arc::new(Policy::try_from_raw(&raw).map_err(|f| format!("{f:?}")).unwrap());
    let catalogue = types::catalogue(&policy, &demand.types).unwrap();
    let bound = match arg(1, "w1n").as_str() {
        "w1" => 43_079.0,
        "w2" => 20_337.0,
        _ => 34_634.0,
    };
    println!("{} pods, {} groups, {:?} left out", demand.pods.len(), catalogue.groups.len(), catalogue.left_out.len());
    let mut most: f64 = arg(7, "0").parse().unwrap();
    if most == 0.0 {
        most = demand.seconds;
    }
    let demand = Arc::new(Demand {
        seconds: most,
        pods: demand.pods.iter().filter(|pod| pod.arrives < most).cloned().collect(),
        types: demand.types.clone(),
    });
    for seed in 0..seeds {
        let mut setup = Setup::new(Arc::clone(&demand), catalogue.clone(), seed);
        setup.every_loop = std::env::var("EVERY").is_ok();
        if let Ok(u) = std::env::var("UNNEEDED") {
            setup.settings.scale_down_unneeded = jiff::SignedDuration::from_secs(u.parse().unwrap());
        }
        if let Ok(u) = std::env::var("AFTER_ADD") {
            setup.settings.scale_down_delay_after_add = jiff::SignedDuration::from_secs(u.parse().unwrap());
        }
        if std::env::var("LEAST").is_ok() {
            setup.scoring = stoker_sim::model::Scoring::LeastAllocated;
        }
        let made = simulate(&setup).unwrap();
        let o = &made.outcome;
        println!(
            "seed {seed} USD {:.0} {:.3}x p50 {:.0} p95 {:.0} p99 {:.0} >10m {:.2}% waited {:.0} idle {:.1}% again {} {:?} viol {:?} unfinished {} passes {} loops {} in {:.1?}",
            o.total().0 as f64 / 1e6,
            o.total().0 as f64 / 1e6 / bound,
            o.waits.p50,
            o.waits.p95,
            o.waits.p99,
            o.waits.over_ten_minutes_percent,
            o.waited_gpu_hours,
            o.idle_percent,
            o.bought_again,
            o.fates,
            o.violations,
            demand.pods.len() - o.finished.0,
            o.passes,
            o.loops,
            made.took,
        );
    }
}
