//! The command line as a user meets it: the built binary, its output, its exit codes.
//!
//! `INSTA_UPDATE=always cargo test -p stoker --test cli` writes the goldens anew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/advise.rs"]
mod advise;
#[path = "cli/aws.rs"]
mod aws;
#[path = "cli/backup.rs"]
mod backup;
#[path = "cli/before.rs"]
mod before;
#[path = "cli/binary.rs"]
mod binary;
#[path = "cli/blind.rs"]
mod blind;
#[path = "cli/certs.rs"]
mod certs;
#[path = "cli/commit.rs"]
mod commit;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/examples.rs"]
mod examples;
#[path = "cli/init.rs"]
mod init;
#[path = "cli/journal.rs"]
mod journal;
#[path = "cli/plans.rs"]
mod plans;
#[path = "cli/policies.rs"]
mod policies;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/service.rs"]
mod service;
#[path = "cli/simulate.rs"]
mod simulate;

use binary::{Ran, golden, stoker};

/// The small tables and the policy that goldens stand on, so that newer price tables change none.
const SMALL: &[&str] = &["--prices-dir", "prices"];

fn small(args: &[&str]) -> Ran {
    stoker(&[args, SMALL].concat())
}

#[test]
fn a_plan_shows_every_candidate_and_why_the_rest_lost() {
    let plan = small(&["plan", "--policy", "policy.yaml", "--world", "world.yaml", "--pool", "serving", "--count", "6"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    golden("plan", &plan.out);
    let all =
        small(&["plan", "--policy", "policy.yaml", "--world", "world.yaml", "--pool", "serving", "--count", "6", "--all"]);
    assert!(all.out.lines().all(|line| line.chars().count() <= 120), "{}", all.out);
    golden("plan-all", &all.out);
}

#[test]
fn a_plan_is_stable_for_programs() {
    let args = ["plan", "--policy", "policy.yaml", "--world", "world.yaml", "--pool", "serving", "--count", "2"];
    let group = ["--group", "serving.g6-xlarge.us-east-1a"];
    let json = small(&[&args[..], &group, &["-o", "json"]].concat());
    golden("plan-json", &json.out);
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let price = &value["candidates"][0]["price"]["perNode"];
    let micros = price["microUsd"].as_i64().unwrap();
    assert_eq!(price["usd"], format!("0.{micros:06}"), "both say the same");
    golden("plan-yaml", &small(&[&args[..], &group, &["--output", "yaml"]].concat()).out);
}

/// The data lies in us-east-1. A node in us-central1 reads its 40 GiB over the internet at $0.09: $3.60 when it starts, once a day $0.15 an
/// hour, and at 0.16 reclaims an hour $0.576 more on spot. Of four nodes half may be in one zone. AWS's table has no price from us-east-1
/// to ap-northeast-1 here.
#[test]
fn a_plan_over_regions_shows_what_moving_the_data_costs() {
    let args = ["plan", "--policy", "regions.yaml", "--world", "world.yaml", "--pool", "m", "--count", "4", "--all"];
    let plan = small(&args);
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(plan.out.lines().all(|line| line.chars().count() <= 120), "{}", plan.out);
    golden("plan-regions", &plan.out);
    let json = small(&[&args[..], &["-o", "json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let candidates = value["candidates"].as_array().unwrap();
    let away = candidates.iter().find(|c| c["cloud"] == "gcp" && c["capacityType"] == "on-demand").unwrap();
    assert_eq!(away["price"]["transferPerNode"]["microUsd"], 150_000);
    assert_eq!(away["price"]["effectivePerNode"]["microUsd"], 706_832 + 150_000);
    let home = candidates.iter().find(|c| c["region"] == "us-east-1").unwrap();
    assert!(home["price"].get("transferPerNode").is_none(), "{home}");
    let near = small(&["plan", "--policy", "regions.yaml", "--world", "world.yaml", "--pool", "near", "--count", "1", "--all"]);
    assert!(near.out.contains("the pool's data is in aws/us-east-1, and where.maxDistance is region"), "{}", near.out);
}

#[test]
fn a_plan_that_is_short_says_so_with_its_exit_code() {
    let short = small(&["plan", "--policy", "policy.yaml", "--pool", "serving", "--count", "30"]);
    assert_eq!(short.code, 4, "{short:?}");
    golden("plan-short", &short.out);
    let nothing = small(&["plan", "--policy", "policy.yaml", "--pool", "big", "--count", "1"]);
    assert_eq!(nothing.code, 4, "{nothing:?}");
    golden("plan-nothing", &nothing.out);
}

/// An H100 on spot is worth $6.7859 of useful time and splits into 2 × 1 + 2 + 3 compute slices: $6.7859 ÷ 7 = $0.9694. Four take turns on an
/// L4, $0.8048 ÷ 4 = $0.2012, or an A10G, $1.006 ÷ 4 = $0.2515.
#[test]
fn shared_gpus_are_planned_by_the_slice() {
    let plan = |pool: &str, more: &[&str]| {
        let args = ["plan", "--policy", "sharing.yaml", "--world", "world.yaml", "--pool", pool, "--count", "2"];
        let plan = small(&[&args[..], more].concat());
        assert_eq!(plan.code, 0, "{plan:?}");
        plan.out
    };
    golden("plan-split", &plan("split", &[]));
    golden("plan-turns", &plan("turns", &[]));
    let json: serde_json::Value = serde_json::from_str(&plan("turns", &["-o", "json"])).unwrap();
    let first = &json["candidates"][0];
    assert_eq!((&first["gpus"], &first["slices"]), (&1.into(), &4.into()));
    assert_eq!(first["price"]["effectivePerSlice"]["microUsd"], 201_200);
    golden("sharing-show", &small(&["policy", "show", "sharing.yaml"]).out);
    let bad = small(&["policy", "check", "bad-sharing.yaml"]);
    assert_eq!(bad.code, 3, "{bad:?}");
    golden("sharing-faults", &bad.err);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples/sharing.yaml");
    let check = stoker(&["policy", "check", example]);
    assert!(check.code == 0 && !check.out.contains("warning:"), "{check:?}");
    for pool in ["notebooks", "small-models"] {
        let plan = stoker(&["plan", "--policy", example, "--pool", pool, "--count", "1"]);
        assert!(plan.code == 0 && plan.out.contains("/slice-h"), "{plan:?}");
    }
}

/// Of four nodes at $0.8048 two are paid for, and the budget of $1.00 takes one more: $0.8048 in cash, $2.4144 without commitments.
#[test]
fn a_plan_counts_cash_and_tells_what_is_unused_and_what_a_budget_leaves() {
    let plan = |count| small(&["plan", "--policy", "accounts.yaml", "--pool", "serving", "--count", count]);
    golden("plan-unused", &plan("1").out);
    let short = plan("4");
    assert_eq!(short.code, 4, "{short:?}");
    golden("plan-budget", &short.out);
    let check = small(&["policy", "check", "accounts.yaml"]);
    assert!(check.out.contains("\nall pools together: at most $1.0000/h\n"), "{check:?}");
}

#[test]
fn the_built_in_example_can_be_planned_and_shown() {
    let plan = stoker(&["plan", "--pool", "inference", "--count", "3"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(plan.out.contains("chosen   3 x ") && plan.out.contains("3 of 3 nodes found"), "{}", plan.out);
    assert_eq!(stoker(&["policy", "show"]).code, 0);
}

#[test]
fn offers_come_cheapest_gpu_first_and_what_has_no_price_says_why() {
    golden("offers", &small(&["offers"]).out);
    golden("offers-all", &small(&["offers", "--all", "--limit", "0"]).out);
    let filtered = small(&[
        "offers",
        "--gpu",
        "L4,A10G",
        "--min-memory",
        "24",
        "--cloud",
        "aws",
        "--capacity-type",
        "spot",
        "--limit",
        "2",
    ]);
    golden("offers-filtered", &filtered.out);
    golden(
        "offers-json",
        &small(&["offers", "--region", "us-central1", "--capacity-type", "on-demand", "--all", "-o", "json"]).out,
    );
}

/// $0.3694 an hour for three years of g6.xlarge, by the tables.
#[test]
fn reserved_rates_of_the_tables_are_listed_and_fitted() {
    let offers = small(&["offers", "--capacity-type", "reserved", "--region", "us-east-1"]);
    assert_eq!(offers.code, 0, "{offers:?}");
    golden("offers-reserved", &offers.out);
    let fit = small(&["fit", "--params", "7B", "--context", "8k", "--capacity-type", "reserved", "--cloud", "aws"]);
    assert!(fit.out.contains("g6.xlarge  aws/us-east-1") && fit.out.contains("$0.3694"), "{fit:?}");
    assert!(fit.out.contains("3y standard-ri-no-upfront by sooddvs@2026-06-15"), "{fit:?}");
}

/// A spot quote of such a table would be fresh for ever.
#[test]
fn a_table_row_of_a_day_to_come_is_a_fault_and_no_price_is_shown_as_of_now() {
    let dir = tempfile::tempdir().unwrap();
    for table in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/input/prices")).unwrap() {
        let table = table.unwrap();
        let text = std::fs::read_to_string(table.path()).unwrap().replace("2026-07-20", "2099-01-01");
        std::fs::write(dir.path().join(table.file_name()), text).unwrap();
    }
    let ahead = stoker(&["offers", "--prices-dir", dir.path().to_str().unwrap()]);
    assert_eq!(ahead.code, 3, "{ahead:?}");
    assert!(ahead.err.contains("aws.csv:4: on_demand_date \"2099-01-01\" is in the future"), "{ahead:?}");
    // By a clock that is set back the built-in tables are ahead, and serve all the same.
    let set_back = stoker(&["offers", "--gpu", "L4", "--capacity-type", "on-demand", "--now", "1970-01-01T00:00:00Z"]);
    assert!(set_back.code == 0 && set_back.out.contains("list of 2026-"), "{set_back:?}");
    assert!(!set_back.out.contains("list now"), "{set_back:?}");
}

#[test]
fn a_fit_says_what_it_needs_and_rests_on() {
    let ran = |args: &[&str]| small(&[&["fit", "--params"], args].concat());
    let seven = ran(&["7B", "--context", "8k"]);
    assert_eq!(seven.code, 0, "{seven:?}");
    assert!(seven.out.starts_with("An estimate: "), "{}", seven.out);
    golden("fit", &seven.out);
    let served = ["7B", "--precision", "fp8", "--context", "2k", "--mode", "batch", "--qps", "100", "--per-replica-qps", "15"];
    golden("fit-qps", &ran(&served).out);
    golden("fit-json", &ran(&["350M", "--mode", "embedding", "--context", "512", "--gpu", "T4", "-o", "json"]).out);
    golden(
        "fit-yaml",
        &ran(&["7B", "--precision", "int4", "--mode", "finetune", "--context", "2k", "--gpu", "L4", "-o", "yaml"]).out,
    );
    let spot = ran(&["7B", "--context", "8k", "--capacity-type", "spot", "--gpu", "L4"]);
    assert!(spot.out.contains("$0.3583"), "{}", spot.out);
    // Nothing here holds it: it is said why, and that smaller weights would not help either.
    let full = ran(&["70B", "--mode", "finetune", "--context", "8k"]);
    assert_eq!(full.code, 4, "{full:?}");
    golden("fit-nothing", &full.out);
}

/// The least that can be bought is a node: a replica on half of one pays for all of it.
#[test]
fn a_fit_shows_what_is_paid_for_whole_nodes_and_that_no_spare_replica_is_kept() {
    let fit = |args: &[&str]| {
        let ran = stoker(&[&["fit", "--params", "70B", "--context", "8k", "--gpu", "A100", "--cloud", "aws"], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out
    };
    let row = |out: &str| {
        let line = out.lines().find(|line| line.starts_with("4 x A100 40G")).expect(out).to_owned();
        line.split_whitespace().map(str::to_owned).skip(6).take(3).collect::<Vec<_>>()
    };
    // Two replicas of four fit the eight GPUs of a p4d.24xlarge at $21.9576.
    let one = fit(&[]);
    assert_eq!(row(&one), ["1", "$21.9576", "$21.9576"], "{one}");
    assert!(one.contains("replicas:  1; --qps and --per-replica-qps say how many a load takes"), "{one}");
    let cheapest = one.lines().find(|line| line.starts_with("fp16 ")).expect(&one);
    assert!(cheapest.contains("$21.9576"), "{one}");
    let three = fit(&["--qps", "500", "--per-replica-qps", "200"]);
    assert!(three.contains("replicas:  3: 500 / 200 and 20 % on top, rounded up; no spare is kept beyond that"), "{three}");
    assert_eq!(row(&three), ["2", "$43.9153", "$14.6384"], "{three}");
}

#[test]
fn the_built_in_tables_tell_what_the_known_models_need() {
    let fits = |args: &[&str]| {
        let ran = stoker(&[&["fit", "--cloud", "aws", "-o", "json", "--params"], args].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let rows = report["fits"].as_array().unwrap().iter();
        let of = |row: &serde_json::Value| {
            let text = |name: &str| row[name].to_string().trim_matches('"').to_owned();
            format!("{} x {} {}", text("gpus"), text("gpuModel"), row["gpuMemoryMib"].as_u64().unwrap() / 1024)
        };
        rows.map(of).collect::<Vec<_>>()
    };
    let has = |rows: &[String], row: &str| assert!(rows.iter().any(|one| one == row), "{row}: {rows:?}");
    has(&fits(&["7B", "--context", "8k"]), "1 x L4 24");
    let seventy = fits(&["70B", "--context", "8k"]);
    for row in ["2 x A100 80", "2 x H100 80", "4 x L40S 48"] {
        has(&seventy, row);
    }
    has(&fits(&["70B", "--context", "8k", "--precision", "int4"]), "1 x L40S 48");
    has(&fits(&["7B", "--context", "2k", "--mode", "finetune"]), "2 x H100 80");
}

#[test]
fn a_sound_policy_is_summed_up_and_written_out_in_full() {
    golden("policy-check", &small(&["policy", "check", "policy.yaml"]).out);
    let shown = small(&["policy", "show", "policy.yaml"]);
    golden("policy-show", &shown.out);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shown.yaml");
    std::fs::write(&file, &shown.out).unwrap();
    let again = small(&["policy", "show", file.to_str().unwrap()]);
    let without_name = |text: &str| text.split_once('\n').map(|(_, rest)| rest.to_owned());
    assert_eq!(without_name(&again.out), without_name(&shown.out), "{again:?}");
}

#[test]
fn a_name_that_yields_no_group_is_told_with_its_reason() {
    let check = small(&["policy", "check", "dead-names.yaml"]);
    assert_eq!(check.code, 0, "{check:?}");
    golden("dead-names-check", &check.out);
    let plan = small(&["plan", "--policy", "dead-names.yaml", "--pool", "serving", "--count", "1"]);
    golden("dead-names-plan", &plan.out);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples/policy.yaml");
    let example = stoker(&["policy", "check", example]);
    assert!(example.code == 0 && !example.out.contains("warning:"), "{example:?}");
}

#[test]
fn every_fault_of_a_file_is_told_with_its_place() {
    let mut told = Vec::new();
    let cases: [&[&str]; 6] = [
        &["policy", "check", "bad-policy.yaml", "--prices-dir", "prices"],
        &["plan", "--pool", "serving", "--count", "1", "--policy", "bad-policy.yaml", "--prices-dir", "prices"],
        &["plan", "--pool", "serving", "--count", "1", "--policy", "absent.yaml", "--prices-dir", "prices"],
        &["offers", "--prices-dir", "prices", "--world", "bad-world.yaml"],
        &["offers", "--prices-dir", "bad-prices"],
        &["serve", "--policy", "bad-policy.yaml"],
    ];
    for case in cases {
        let ran = stoker(case);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{case:?} {ran:?}");
        told.push(format!("$ stoker {}\n{}", case.join(" "), ran.err));
    }
    golden("faults", &told.join("\n"));
    let json = stoker(&["policy", "check", "bad-policy.yaml", "-o", "json"]);
    assert_eq!(json.code, 3);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&report["ok"], &report["faults"][0]["line"]), (&false.into(), &6.into()), "{report}");
}

#[test]
fn absurd_numbers_and_contradictions_are_told_all_at_once() {
    let ran = stoker(&["policy", "check", "absurd-policy.yaml", "--prices-dir", "prices"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
    // Each line has its place, its field and, after a colon, the cure; the last one says that nothing was done.
    let lines: Vec<&str> = ran.err.lines().collect();
    let (_, faults) = lines.split_last().unwrap();
    for fault in faults {
        assert!(fault.starts_with("absurd-policy.yaml:") && fault.splitn(4, ':').nth(3).unwrap().contains(": "), "{fault}");
    }
    golden("faults-absurd", &ran.err);
}

#[test]
fn slips_on_the_command_line_get_the_nearest_name() {
    let mut told = Vec::new();
    let cases: [(i32, &[&str]); 27] = [
        (2, &["plam"]),
        (2, &["plan", "--pool", "serving", "--count", "0"]),
        (2, &["serve", "--tls-cert", "a.crt"]),
        (2, &["serve", "--retention", "soon"]),
        (2, &["serve", "--provider-listen", "0.0.0.0:0", "--http-listen", "127.0.0.1:0", "--expander-listen", "127.0.0.1:0"]),
        (2, &["groups", "--url", "https://127.0.0.1:8088"]),
        (2, &["certs", "--dir", "certs", "--server-name", "a b"]),
        (5, &["plan", "--pool", "inferense", "--count", "1"]),
        (
            5,
            &[
                "plan",
                "--policy",
                "policy.yaml",
                "--prices-dir",
                "prices",
                "--pool",
                "serving",
                "--group",
                "serving.g6-xlarge.us-east-1",
                "--count",
                "1",
            ],
        ),
        (5, &["offers", "--gpu", "L44"]),
        (5, &["offers", "--region", "us-est-1"]),
        (5, &["offers", "--gpu", "T4", "--cloud", "lambda"]),
        (2, &["fit", "--params", "0", "--context", "8k"]),
        (2, &["fit", "--params", "7B", "--context", "1e30"]),
        (2, &["fit", "--params", "7B", "--context", "8k", "--precision", "fp7"]),
        (2, &["fit", "--params", "7B", "--context", "8k", "--batch", "0"]),
        (2, &["fit", "--params", "7B", "--context", "8k", "--qps", "100"]),
        (2, &["fit", "--params", "7B", "--context", "8k", "--qps", "100", "--per-replica-qps", "0"]),
        (5, &["fit", "--params", "7B", "--context", "8k", "--gpu", "L44"]),
        (2, &["plan", "--pool", "serving", "--count", "-1"]),
        (2, &["plan", "--pool", "serving", "--count", "7e9"]),
        (2, &["fit", "--params", "7B", "--context", "8k", "--qps", "-5", "--per-replica-qps", "1"]),
        (2, &["offers", "--limit", "-1"]),
        (2, &["demo", "--hours", "25"]),
        (2, &["nodes", "--by", "owner", "--hours", "0"]),
        (2, &["groups", "--url", "http://user:secret@127.0.0.1:1/ a"]),
        (2, &["groups", "--url", "https://user:secret@127.0.0.1:1"]),
    ];
    for (code, case) in cases {
        let ran = stoker(case);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{case:?} {ran:?}");
        told.push(format!("$ stoker {}\n{}", case.join(" "), ran.err));
    }
    golden("slips", &told.join("\n"));
}

#[test]
fn gpu_models_clouds_and_regions_are_found_in_any_case() {
    let wanted = small(&["offers", "--gpu", "L4", "--cloud", "aws"]);
    let asked = small(&["offers", "--gpu", "l4", "--cloud", "AWS", "--region", "US-east-1"]);
    assert_eq!((asked.code, &asked.out), (0, &wanted.out), "{asked:?}");
}

#[test]
fn no_password_of_a_url_is_shown() {
    for url in ["http://user:secret@127.0.0.1:1", "user:secret@127.0.0.1:1", "http://user:secret@127.0.0.1:1/ x"] {
        let ran = stoker(&["groups", "--url", url]);
        assert!(ran.code != 0 && ran.err.contains("***@127.0.0.1:1") && !ran.err.contains("secret"), "{ran:?}");
    }
    let state = tempfile::tempdir().unwrap();
    let serve = ["serve", "--state-dir", state.path().to_str().unwrap(), "--http-listen", "127.0.0.1:0"];
    let ran = stoker(&[&serve[..], &["--prometheus-url", "user:secret@prometheus:9090"]].concat());
    assert!(ran.code != 0 && ran.err.contains("***@prometheus:9090") && !ran.err.contains("secret"), "{ran:?}");
}

#[test]
fn certificates_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let certs = dir.path().join("certs");
    let args = ["certs", "--dir", certs.to_str().unwrap(), "--server-name", "stoker.stoker.svc", "--client-name", "ca-1"];
    let first = stoker(&args);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.out.contains("--provider-client ca-1") && certs.join("client.key").exists(), "{first:?}");
    let second = stoker(&args);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("--force"), "{second:?}");
    assert_eq!(stoker(&[&args[..], &["--force"]].concat()).code, 0);
}

#[test]
fn certificates_of_probes_come_with_the_commands_that_take_them() {
    let dir = tempfile::tempdir().unwrap();
    let ran = stoker(&["certs", "--dir", dir.path().to_str().unwrap(), "--client-name", "probe:a", "--client-name", "probe:b"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in ["stoker serve --probe-listen", "--probe-client-ca", "stoker-probe --node a", "stoker-probe --node b"] {
        assert!(ran.out.contains(part), "{part} in {ran:?}");
    }
    assert!(!ran.out.contains("cluster-autoscaler") && !ran.out.contains("--provider-client"), "{ran:?}");
    assert!(dir.path().join("client-probe-b.key").exists());
}

#[test]
fn shells_and_editors_get_what_they_need() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(stoker(&["completions", shell]).out.contains("capacity-type"), "{shell}");
    }
    let schema: serde_json::Value = serde_json::from_str(&stoker(&["policy", "schema"]).out).unwrap();
    assert_eq!(schema["title"], "Stoker policy");
}

#[test]
fn help_names_every_command_and_exit_code() {
    let help = stoker(&["--help"]);
    for word in [
        "serve",
        "demo",
        "plan",
        "simulate",
        "explain",
        "offers",
        "fit",
        "commit",
        "policy",
        "aws",
        "init",
        "groups",
        "nodes",
        "advise",
        "certs",
        "ready",
        "backup",
        "restore",
        "completions",
        "\n  5  nothing of that name",
    ] {
        assert!(help.out.contains(word), "{word}: {}", help.out);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let ran = binary::with_a_closed_reader(&["offers", "--limit", "0", "--all", "-o", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
}
