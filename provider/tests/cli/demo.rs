//! `stoker demo`: what it prints holds, and however it ends it leaves nothing behind that nobody was told of.

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use jiff::{SignedDuration, Timestamp};
use stoker_journal::Journal;

use crate::binary::{command, stoker};

const DEMO: [&str; 5] = ["demo", "--hours", "1", "--policy", "dev-day.yaml"];

/// The demo with a temporary directory of its own.
fn demo(temporary: &Path) -> Command {
    let mut demo = command(&DEMO);
    demo.env("TMPDIR", temporary).stdin(Stdio::null()).stderr(Stdio::piped());
    demo
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// The exit code, and what standard error said.
fn ended(output: Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// An amount in cents, as the bill states it.
fn cents(amount: &str) -> u64 {
    amount.trim_start_matches('$').replace('.', "").parse().unwrap()
}

#[test]
fn the_demo_ends_with_a_bill_that_adds_up_and_with_commands_that_work() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("a day");
    let own = ["--prices-dir", "../../../../pricing/tables", "--state-dir", state.to_str().unwrap()];
    let played = stoker(&[&DEMO[..], &own].concat());
    assert_eq!((played.code, played.err.as_str()), (0, ""), "{played:?}");

    assert!(played.out.contains("The bill of 1 hour\n"), "{}", played.out);
    let words: Vec<Vec<&str>> = played.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows = words.iter().filter(|row| matches!(row[..], ["dev", "spot" | "on-demand", ..]));
    let paid: u64 = rows.map(|row| cents(row[3])).sum();
    let total = words.iter().find(|row| row.first() == Some(&"stoker")).unwrap();
    assert!(paid > 0);
    assert_eq!(paid, cents(total[1]), "{}", played.out);

    // The loop counted what it held.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let used = runtime.block_on(async {
        let fixed: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let reader = Journal::open_read_only(&state).await.unwrap();
        reader.used_between(fixed, fixed + SignedDuration::from_hours(48)).await.unwrap()
    });
    let known: u32 = used.iter().map(|hour| hour.known).sum();
    let nodes: u64 = used.iter().flat_map(|hour| hour.node_seconds.values()).sum();
    assert!((600..=3_900).contains(&known) && nodes > 600, "{known} s known, {nodes} node-seconds");

    // And wrote down whose pods held it.
    let month = ["report", "--month", "2026-11", "--now", "2026-11-30T00:00:00Z", "--by", "workload", "--state-dir"];
    let spent = stoker(&[&month[..], &[state.to_str().unwrap()]].concat());
    assert!(spent.code == 0 && spent.out.contains("\nheld ") && !spent.out.contains("not recorded"), "{spent:?}");

    let next: Vec<&str> = played.out.lines().filter_map(|line| line.strip_prefix("  stoker ")).collect();
    assert!(next[0].starts_with("explain "), "{}", played.out);
    // By the same policy and tables as the day was played by.
    assert!(next[1].contains("--policy dev-day.yaml --prices-dir ../../../../pricing/tables"), "{}", played.out);
    assert!(next[2].contains("--prices-dir ../../../../pricing/tables"), "{}", played.out);
    for line in next {
        // As a shell reads it: the path with a space is in quotes, and what follows the mark is a remark.
        let line = line.split_once(" # ").unwrap().0;
        let args = line.split('\'').enumerate();
        let args = args.flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
        let args: Vec<&str> = args.collect();
        let ran = stoker(&args);
        assert_eq!(ran.code, 0, "{args:?} {ran:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_demo_quietly() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(temporary.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("A day of "), "{first}");
    assert_eq!(ended(child.wait_with_output().unwrap()), (Some(0), String::new()));
    assert_eq!(entries(temporary.path()), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_takes_nothing_is_told() {
    let temporary = tempfile::tempdir().unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, error) = ended(demo(temporary.path()).stdout(full).output().unwrap());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with("error: standard output could not be written\n  because: "), "{error}");
    assert_eq!(entries(temporary.path()), 0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_demo_takes_its_directory_away() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(temporary.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    assert_eq!(entries(temporary.path()), 1);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    out.read_to_string(&mut String::new()).unwrap();
    assert_eq!(ended(child.wait_with_output().unwrap()), (Some(1), "error: interrupted\n".to_owned()));
    assert_eq!(entries(temporary.path()), 0);
}
