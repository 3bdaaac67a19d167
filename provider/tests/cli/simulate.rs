//! `stoker simulate`: what policies cost, on a demand of a file and on the built-in days.

use std::fs;

use serde_json::Value;

use crate::binary::{Ran, golden, stoker};

const TWO: [&str; 9] = [
    "simulate",
    "--prices-dir",
    "prices",
    "--policy",
    "simulate-on-demand.yaml",
    "--policy",
    "simulate-spot.yaml",
    "--workload",
    "simulate.csv",
];

fn simulate(args: &[&str]) -> Ran {
    stoker(&[&TWO[..], args].concat())
}

/// A replica that runs ten hours and seven more that run for less, and jobs that half of the time find no spot.
#[test]
fn simulated_policies_stand_next_to_each_other_on_the_same_pods() {
    let ran = simulate(&["--seeds", "2"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("simulate", &ran.out);
    assert_eq!(simulate(&["--seeds", "2"]).out, ran.out, "the same seeds give the same");
    let other = simulate(&["--seeds", "2", "--seed", "7", "--scoring", "least-allocated", "--boot", "9m", "--no-stock", "50"]);
    assert!(other.code == 0 && !other.out.contains("launches refused    0"), "{other:?}");
}

#[test]
fn a_simulation_is_stable_for_programs_and_drawn_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("day.svg");
    let ran = simulate(&["--seeds", "1", "-o", "json", "--picture", picture.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    golden("simulate-json", &ran.out);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    for policy in report["policies"].as_array().unwrap() {
        let run = &policy["runs"][0];
        let micros = |name: &str| run[name]["microUsd"].as_i64().unwrap();
        assert_eq!(micros("paid"), micros("reserved") + micros("onDemand") + micros("spot"), "{run}");
        assert!(micros("paid") > micros("atLeast"), "{run}");
        assert_eq!((&run["pods"], &run["finished"], &run["brokenPromises"]), (&32.into(), &32.into(), &0.into()), "{run}");
    }
    let drawn = fs::read_to_string(picture).unwrap();
    for text in ["<svg", "simulate-spot.yaml: $", "g6.xlarge on-demand", "spot", "GPUs", "nodes", "$ per hour", "hours"] {
        assert!(drawn.contains(text), "{text}");
    }
    assert!(drawn.len() < 100_000, "{} bytes", drawn.len());
}

#[test]
fn the_built_in_policy_is_simulated_without_options() {
    let ran = stoker(&["simulate", "--days", "1", "--seeds", "1", "-o", "yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.contains("workload: 1 day of the built-in workload\n") && ran.out.contains("brokenPromises: 0"), "{ran:?}");
}

#[test]
fn faults_of_a_simulated_workload_are_told_at_once() {
    let mut told = Vec::new();
    let cases: [(i32, &[&str]); 5] = [
        (3, &["--workload", "bad-workload.csv"]),
        (3, &["--workload", "bad-workload-header.csv"]),
        (3, &["--workload", "nowhere.csv"]),
        (2, &["--workload", "simulate.csv", "--picture", "day.png"]),
        (2, &["--seeds", "0"]),
    ];
    for (code, case) in cases {
        let ran = stoker(&[&TWO[..7], case].concat());
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{case:?} {ran:?}");
        told.push(format!("$ stoker simulate {}\n{}", case.join(" "), ran.err));
    }
    golden("simulate-slips", &told.join("\n"));
}

/// The policy has no pool for training jobs, and none for notebooks.
#[test]
fn pods_that_a_policy_cannot_run_are_left_out_and_named() {
    let ran = stoker(&[&TWO[..5], &["--days", "1", "--seeds", "1"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("note:") && ran.out.contains("dev pods; simulate-on-demand.yaml"), "{}", ran.out);
}
