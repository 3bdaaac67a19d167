//! Policy files that cannot be, may not be meant, or are no files.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::binary::{command, golden, stoker};
use super::small;

#[test]
fn schedules_that_fight_windows_and_each_other_are_told_with_line_and_cure() {
    let ran = small(&["policy", "check", "schedules.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
    golden("faults-schedules", &ran.err);
}

/// What works as it is written, and may not be meant, is no fault.
#[test]
fn what_may_not_be_meant_is_a_warning_with_its_line() {
    let ran = small(&["policy", "check", "doubtful-policy.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("policy-doubts", &ran.out);
    let json = small(&["policy", "check", "doubtful-policy.yaml", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let first = report["warnings"][0].as_str().unwrap();
    assert!(first.starts_with("doubtful-policy.yaml:13:"), "{first}");
}

/// A device has no end and a pipe nobody who writes: neither is opened.
#[test]
fn what_is_no_file_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let state = dir.path().join("state");
    let serve = ["serve", "--state-dir", state.to_str().unwrap(), "--policy"];
    for path in ["/dev/zero", pipe.to_str().unwrap(), "/"] {
        for args in
            [&["policy", "check"][..], &["policy", "show"], &["plan", "--pool", "a", "--count", "1", "--policy"], &serve]
        {
            let ran = stoker(&[args, &[path]].concat());
            assert_eq!(ran.code, 3, "{args:?} {path}: {ran:?}");
            let told = ran.err.contains("cannot be read") && ran.err.contains(": name a regular file");
            assert!(told, "{args:?} {path}: {ran:?}");
        }
    }
    let tables = stoker(&["offers", "--world", "/dev/zero"]);
    assert!(tables.code == 3 && tables.err.contains("it is a device"), "{tables:?}");
}

#[test]
fn a_policy_comes_in_by_standard_input() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/input/policy.yaml")).unwrap();
    let piped = |args: &[&str], text: &[u8]| {
        let mut child = command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, _) = piped(&["policy", "check", "-", "--prices-dir", "prices"], &text);
    assert_eq!(code, Some(0));
    let by_name = small(&["policy", "check", "policy.yaml"]).out;
    assert_eq!(out.lines().next(), by_name.lines().next().map(|line| line.replace("policy.yaml", "standard input")).as_deref());
    let (code, _, err) = piped(&["policy", "check", "-"], b"kind: Policy\npools: 5\n");
    assert!(code == Some(3) && err.contains("standard input:2:8: pools must be a list"), "{err}");
}

/// The slips of a first hour: each message says what to write.
#[test]
fn slips_of_yaml_name_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.yaml");
    let told = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let ran = command(&["policy", "check", "policy.yaml"]).current_dir(dir.path()).output().unwrap();
        assert_eq!(ran.status.code(), Some(3));
        String::from_utf8(ran.stderr).unwrap().lines().next().unwrap().to_owned()
    };
    let fields = "write its fields apiVersion, kind, clusterName, pools";
    assert_eq!(told(""), format!("policy.yaml:1:1: the file is empty: {fields}"));
    assert_eq!(told("- pools\n"), format!("policy.yaml:1:1: the file must be a mapping, is a list: {fields}"));
    let quote = "put text that begins with * or @ in quotes, as in cron: \"*/5 * * * *\"";
    assert_eq!(told("pools:\n- offHours: { schedule: [{ cron: */5 * * * *, for: 1h }] }\n").split("; ").last(), Some(quote));
    assert_eq!(
        told("cron: */5 * * * *\n"),
        format!("policy.yaml:1:7: cron names the anchor \"/5\", which no line above has: {quote}")
    );
    for text in ["cron: * * * * *\n", "cron: @daily\n"] {
        assert!(told(text).ends_with(quote), "{}", told(text));
    }
}

#[test]
fn a_time_that_is_none_names_both_places_that_it_may_come_from() {
    let ran = command(&["plan", "--pool", "inference", "--count", "1"]).env("STOKER_NOW", "noon").output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(err.contains("write --now, or the variable STOKER_NOW, like 2026-11-01T12:00:00Z"), "{err}");
}
