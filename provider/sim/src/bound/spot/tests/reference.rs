//! The figures of the Python reference for W3: replicas for `ServeGen`'s requests, spot room of the `SkyNomad` probe.
//!
//! `STOKER_BENCHMARK_REFERENCE` names a directory where `src/servegen` and `src/skynomad` are the two repositories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use super::*;
use crate::bound::levels;

const MINUTE: u32 = 60;

/// Files of a folder below the reference's sources, by name.
fn files(folder: &str, suffix: &str) -> Vec<String> {
    let root = std::env::var("STOKER_BENCHMARK_REFERENCE").unwrap();
    let folder = Path::new(&root).join("src").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(suffix));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn whole(number: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds and replicas are small")]
    let whole = number.round() as u32;
    whole
}

/// Replicas of four requests a second, by minute, on the line between the middles of the trace's ten minutes.
fn replicas() -> Replicas {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    for client in files("servegen/data/language/m-large", "-trace.csv") {
        for line in client.lines() {
            let mut fields = line.split(',');
            let mut next = || fields.next().unwrap().parse::<f64>().unwrap();
            let (at, rate) = (whole(next()), next());
            *rates.entry(at).or_default() += rate;
        }
    }
    let points: Vec<(f64, f64)> = rates.iter().map(|(at, rate)| (f64::from(*at) + 300.0, *rate)).collect();
    let rate = |at: f64| match points.partition_point(|(time, _)| *time <= at) {
        0 => points[0].1,
        after if after == points.len() => points[after - 1].1,
        after => {
            let [(from, before), (until, then)] = [points[after - 1], points[after]];
            before + (then - before) * (at - from) / (until - from)
        }
    };
    let minutes = u32::try_from(points.len()).unwrap() * 10;
    let needed = (0..minutes).map(|minute| whole((rate(f64::from(minute * MINUTE)) / 4.0).ceil())).collect();
    Replicas { needed, step_seconds: MINUTE }
}

/// Spot room of each zone in every ten minutes.
fn pools() -> Vec<Pool> {
    let mut zones: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for run in files("skynomad/data/h100_16_runs", ".json") {
        let run: Value = serde_json::from_str(&run).unwrap();
        for (zone, result) in run["zone_results"].as_object().unwrap() {
            let created = u32::try_from(result["instances_created"].as_u64().unwrap()).unwrap();
            zones.entry(zone.clone()).or_default().push(created);
        }
    }
    let price = |zone: &str| match &zone[..zone.len() - 2] {
        "asia-south2" => Milli(705),
        "us-central1" | "us-west1" => Milli(230),
        _ => Milli(180),
    };
    zones.into_iter().map(|(name, room)| Pool { price: price(&name), name, step_seconds: 600, room }).collect()
}

#[test]
#[ignore = "reads ServeGen and SkyNomad from STOKER_BENCHMARK_REFERENCE"]
fn it_is_the_references() {
    if crate::is_skipped("STOKER_BENCHMARK_REFERENCE") {
        return;
    }
    let (demand, pools) = (replicas(), pools());
    let node = Node { hourly: UsdPerHour(6_880_000), boot_seconds: 360, reserved: None };
    let usd = |micros: UsdMicros| dollars(micros.0);
    let start = Instant::now();
    let on_demand = levels::optimum(&demand, &node);
    let node = Node { reserved: Some(Milli(620)), ..node };
    let best = levels::optimum(&demand, &node);
    println!("levels: {on_demand:?} {best:?} {:.1?}", start.elapsed());
    assert!((usd(on_demand.total) - 117_753.608).abs() < 0.01 && on_demand.boots == 4576);
    assert!((usd(best.total) - 88_779.589).abs() < 0.01 && best.reserved == 43);
    let mut methods: Vec<Method> =
        solvers().into_iter().filter(|solver| *solver != Solver::Microlp).map(Method::Linear).collect();
    methods.push(Method::Flow);
    let table = [("us-east4", 67_839.632), ("us-central1", 58_424.244), ("us-", 30_855.112), ("", 23_327.838)];
    for (region, expected) in table {
        let pools: Vec<Pool> = pools.iter().filter(|pool| pool.name.starts_with(region)).cloned().collect();
        for method in &methods {
            let start = Instant::now();
            let found = bound(&demand, &node, &pools, 10, *method).unwrap();
            println!("{} zones, {method:?}: ${:.2}, {:.1?}", pools.len(), usd(found.total), start.elapsed());
            assert!((usd(found.total) - expected).abs() < 0.05, "{region}, {method:?}: {}", found.total);
        }
    }
}
