//! The example policies: each is sound by the built-in tables, and buys what its first line says.
//!
//! The plans stand on a copy of the lines of the built-in tables that the examples need, so that newer tables change no golden.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::binary::{golden, stoker};

const FOLDER: &str = "../../../../manifests/examples";

/// Nodes bought by capacity type, and in how many markets each.
type Bought<'a> = BTreeMap<&'a str, (u64, usize)>;

fn example(name: &str, pool: &str, count: &str) -> Value {
    let file = format!("{FOLDER}/{name}.yaml");
    let plan = |output: &str| {
        let args = ["plan", "--policy", &file, "--prices-dir", "examples", "--pool", pool, "--count", count, "-o", output];
        let ran = stoker(&args);
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
        ran.out
    };
    golden(&format!("example-{name}"), &plan("table"));
    serde_json::from_str(&plan("json")).unwrap()
}

fn bought(report: &Value) -> Bought<'_> {
    let mut bought = Bought::new();
    for row in report["candidates"].as_array().unwrap().iter().filter(|row| row["verdict"] == "chosen") {
        let (nodes, markets) = bought.entry(row["capacityType"].as_str().unwrap()).or_default();
        *nodes += row["nodes"].as_u64().unwrap();
        *markets += 1;
    }
    bought
}

#[test]
fn every_example_is_sound_and_names_nothing_that_matches_nothing() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if ["aws.yaml", "world.yaml", "README.md", "plugin", "boot", "node-classes"].contains(&name.as_str()) {
            continue;
        }
        let ran = stoker(&["policy", "check", &format!("{FOLDER}/{name}")]);
        assert!(ran.code == 0 && !ran.out.contains("warning:"), "{name}: {ran:?}");
        checked += 1;
    }
    assert_eq!(checked, 7);
}

/// Two nodes are kept in zone 6. The quota of 32 vCPU holds eight of 4, the kept ones included: six on demand. Spot fills up, a fifth of
/// ten.
#[test]
fn inference_uses_what_is_paid_for_then_on_demand_then_a_little_spot() {
    let report = example("inference-reserved", "inference", "10");
    assert_eq!(bought(&report), Bought::from([("reserved", (2, 1)), ("on-demand", (6, 1)), ("spot", (2, 1))]));
    // Of no nodes none may be spot: what binds once ten are bought is said, not that.
    let rows = report["candidates"].as_array().unwrap();
    let reasons: Vec<&str> = rows.iter().map(|row| row["reason"].as_str().unwrap()).collect();
    assert!(!reasons.iter().any(|why| why.contains("0 of 0 nodes")), "{reasons:?}");
    assert!(reasons.contains(&"limits.maxNodes: 10 of 10 nodes in use"), "{reasons:?}");
}

/// A fifth of ten nodes is two in each market.
#[test]
fn training_spreads_over_five_spot_markets() {
    assert_eq!(bought(&example("training-spot", "training", "10")), Bought::from([("spot", (10, 5))]));
}

/// Half of six in one market, the rest in the next.
#[test]
fn best_effort_inference_runs_on_spot() {
    assert_eq!(bought(&example("inference-best-effort", "summaries", "6")), Bought::from([("spot", (6, 2))]));
}

#[test]
fn batch_buys_nothing_but_spot() {
    let report = example("batch", "batch", "8");
    assert_eq!(bought(&report), Bought::from([("spot", (8, 2))]));
    let rows = report["candidates"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["capacityType"] == "spot"));
}

/// Half of four may be spot.
#[test]
fn a_shared_dev_pool_keeps_half_of_its_nodes_off_spot() {
    assert_eq!(bought(&example("dev", "dev", "4")), Bought::from([("on-demand", (2, 1)), ("spot", (2, 1))]));
}
