//! `stoker simulate`: what policies cost, on a demand of a file, of a journal and on the built-in days.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_core::market::sharing::Slices;
use stoker_journal::{Journal, PodChanges, PodEnd, RecordedPod};

use crate::binary::{Ran, folder, golden, stoker};

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
    let cases: [(i32, &[&str]); 10] = [
        (3, &["--workload", "bad-workload.csv"]),
        (3, &["--workload", "bad-trace.csv"]),
        (2, &["--workload", "trace.csv", "--workload", "simulate.csv"]),
        (2, &["--workload", "simulate.csv", "--journal", "state"]),
        (2, &["--since", "2026-11-01T00:00:00Z"]),
        (3, &["--workload", "bad-workload-header.csv"]),
        (3, &["--workload", "nowhere.csv"]),
        (2, &["--workload", "simulate.csv", "--picture", "day.png"]),
        (2, &["--seeds", "0"]),
        (2, &["--seed", "18446744073709551615", "--seeds", "2"]),
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

/// A simulation serves no buffers, and knows nothing of the time before it.
#[test]
fn floors_that_are_not_played_as_they_are_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let paid = |floor: &str| {
        let file = dir.path().join("floor.yaml");
        let policy = fs::read_to_string(folder().join("input/simulate-on-demand.yaml")).unwrap();
        fs::write(&file, policy.replacen("  limits:", &format!("  warmFloor: {floor}\n  limits:"), 1)).unwrap();
        let ran = stoker(&[
            "simulate",
            "--workload",
            "simulate.csv",
            "--seeds",
            "1",
            "-o",
            "json",
            "--policy",
            file.to_str().unwrap(),
        ]);
        let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        (report["policies"][0]["runs"][0]["paid"].clone(), report["notes"].to_string())
    };
    let (by_size, notes) = paid("{ nodes: 3 }");
    assert_eq!(notes, "[]");
    let (buffered, notes) = paid("{ nodes: 3, mechanism: capacityBuffer }");
    assert_eq!(buffered, by_size);
    assert!(notes.contains("played as mechanism: minSize: the warm floor of serving"), "{notes}");
    let (_, notes) = paid("{ quantile: {} }");
    assert!(notes.contains("asks for nothing in the first day"), "{notes}");
}

/// By hand: the pods of the file at their peak, kept for all of its hours, and what is saved of that.
#[test]
fn baselines_stand_beside_the_policies() {
    let ran = simulate(&["--seeds", "2", "--baselines", "-o", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let mean = |of: &Value| {
        let runs = of["runs"].as_array().unwrap();
        runs.iter().map(|run| run["paid"]["microUsd"].as_f64().unwrap() / 1e6).sum::<f64>() / 2.0
    };
    let baselines = report["baselines"].as_array().unwrap();
    assert_eq!(baselines.len(), 3);
    for baseline in baselines {
        let paid = baseline["paidUsd"].as_f64().unwrap();
        for (saved, policy) in baseline["saved"].as_array().unwrap().iter().zip(report["policies"].as_array().unwrap()) {
            let (by, month) = (paid - mean(policy), 730.0 * 3600.0 / report["seconds"].as_f64().unwrap());
            assert!((saved["percent"].as_f64().unwrap() - 100.0 * by / paid).abs() < 0.01, "{saved}");
            assert!((saved["usdPerMonth"].as_f64().unwrap() - by * month).abs() < 0.5, "{saved}");
            let [least, most] = ["leastUsdPerMonth", "mostUsdPerMonth"].map(|name| saved[name].as_f64().unwrap());
            assert!(least <= by * month + 0.5 && by * month <= most + 0.5, "{saved}");
        }
    }
    golden("simulate-baselines", &simulate(&["--seeds", "2", "--baselines"]).out);
}

/// A part of the trace: one pod asks for more than any instance type has, one was never scheduled, one has no GPU.
#[test]
fn a_published_trace_is_played_as_it_is() {
    let ran = stoker(&[&TWO[..7], &["--workload", "trace.csv", "--seeds", "1"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    golden("simulate-trace", &ran.out);
}

fn at(minutes: i64) -> Timestamp {
    "2026-11-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

fn recorded(name: &str, pool: &str, (created, ended): (i64, Option<i64>)) -> RecordedPod {
    RecordedPod {
        uid: name.into(),
        name: format!("ml/{name}").into(),
        owner_kind: Some("Job".into()),
        owner: Owner::of("ml", name, None, None),
        labels: PodLabels::of([("team", "vision")]),
        pool: Some(pool.to_owned()),
        models: Vec::new(),
        gpus: Some(1),
        slices: Slices::default(),
        milli_cpu: 3_000,
        memory_mib: 12_288,
        node: "n".into(),
        created: at(created),
        bound: at(created + 5),
        end: ended.map(|ended| PodEnd { at: at(ended), is_seen: true }),
    }
}

/// Twelve hours of pods, and some that no simulation can play.
async fn write_pods(state: &Path) {
    let (journal, _) = Journal::open(state).await.unwrap();
    let mut came: Vec<RecordedPod> =
        (0..3).map(|n| recorded(&format!("api-{n}"), "serving", (-300 + n, (n > 0).then_some(400)))).collect();
    came.extend((0..6).map(|n| recorded(&format!("job-{n}"), "jobs", (60 * n, Some(60 * n + 125)))));
    let odd = |name: &str, change: fn(&mut RecordedPod)| {
        let mut pod = recorded(name, "jobs", (100, Some(200)));
        change(&mut pod);
        pod
    };
    came.extend([
        odd("lost", |pod| pod.end = Some(PodEnd { at: at(240), is_seen: false })),
        odd("retired", |pod| pod.pool = Some("retired".into())),
        odd("large", |pod| pod.gpus = Some(8)),
        odd("large-too", |pod| pod.gpus = Some(8)),
        odd("claims", |pod| pod.gpus = None),
        odd("theirs", |pod| pod.pool = None),
    ]);
    journal.pods().write((at(0), at(720)), &PodChanges { came, ..PodChanges::default() }).await.unwrap();
    journal.close().await;
}

#[tokio::test]
async fn policies_are_tried_on_the_pods_of_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    write_pods(&state).await;
    let simulate = |args: &[&str]| stoker(&[&TWO[..7], &["--seeds", "1", "--journal"], args].concat());
    let state = state.to_str().unwrap();
    let ran = simulate(&[state]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("simulate-journal", &ran.out);
    assert_eq!(simulate(&["--state-dir", state]).out, ran.out);
    let morning = simulate(&[state, "--since", "2026-10-31T00:00:00Z", "--until", "2026-11-01T02:30:00Z", "-o", "json"]);
    let report: Value = serde_json::from_str(&morning.out).unwrap();
    assert_eq!(report["workload"], "the journal from 2026-11-01T00:00:00Z to 2026-11-01T02:30:00Z", "{morning:?}");
    assert_eq!((&report["seconds"], &report["policies"][0]["runs"][0]["pods"]), (&9000.0.into(), &7.into()));
    assert!(report["notes"][0].as_str().unwrap().contains("from 2026-11-01T00:00:00Z on"), "{}", report["notes"]);

    let mut told = Vec::new();
    let empty = dir.path().join("empty");
    Journal::open(&empty).await.unwrap().0.close().await;
    let no_pod = ["--since", "2026-11-01T11:00:00Z", "--policy", "dev-day.yaml"];
    for (code, args) in [
        (5, vec![dir.path().join("nowhere").to_str().unwrap()]),
        (5, vec![empty.to_str().unwrap()]),
        (2, vec![&format!("{state}/journal.db")]),
        (5, vec![state, "--since", "2026-11-01T12:00:00Z"]),
        (2, vec![state, "--since", "2026-11-01T12:00:00Z", "--until", "2026-11-01T00:00:00Z"]),
        (2, [&[state], &no_pod[..]].concat()),
        (2, vec!["mysql://a:secret@b/c"]),
    ] {
        let ran = simulate(&args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?} {ran:?}");
        assert!(!ran.err.contains("secret"), "{ran:?}");
        told.push(
            format!("$ stoker simulate --journal {}\n{}", args.join(" "), ran.err)
                .replace(dir.path().to_str().unwrap(), "/tmp"),
        );
    }
    golden("simulate-journal-slips", &told.join("\n").replace("secret", "***"));
}
