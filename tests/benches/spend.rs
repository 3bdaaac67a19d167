//! `stoker report` over a month of 5,000 nodes and 50,000 pods a day: the time and memory of the real program, and how long the service
//! takes to sum up one day; beside it how long it takes to read the rows of one day.

mod common {
    #[expect(dead_code, reason = "nothing is decided here")]
    pub(crate) mod fleet;
    pub(crate) mod report;
}

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::fleet::Fleet;
use common::report::{Report, is_short, short};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_advice::spend::{DAY, KeptDay, Tariff};
use stoker_core::base::ids::RecordId;
use stoker_core::state::memory::Memory;
use stoker_journal::{Journal, MOST_PODS, PodChanges, PodEnd, RecordedPod};
use stoker_service::controllers::kept_days::keep;
use stoker_service::{policy_file, price_tables};
use stoker_tests::process::memory_mb;

const NODES: u64 = 5_000;
/// Pods of a day, and those of the short form.
const PODS: u64 = 50_000;
const SHORT_PODS: u64 = 10_000;
/// Days of October and November, but for the last two.
const DAYS_BEFORE: i64 = 59;
/// How often the service looks.
const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// Nodes that pods came to or left between two looks: with so many pods, 50,000 spans a day.
const CHANGED: u64 = 350;
/// The bars.
const SECONDS: f64 = 10.0;
const MEGABYTES: f64 = 300.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut report = Report::new("spend");
    let state = tempfile::tempdir()?;
    let today: Timestamp = "2026-11-30T00:00:00Z".parse()?;
    let yesterday = today.checked_sub(SignedDuration::from_hours(24))?;
    let (journal, _) = Journal::open(state.path()).await?;
    let mut memory = Fleet::new()?.memory;
    for record in memory.records.values_mut() {
        // Whether it is held, pods alone tell.
        Arc::make_mut(record).judged = None;
    }
    let pods = if is_short() { SHORT_PODS } else { PODS };
    for day in [yesterday, today] {
        follow(&journal, &mut memory, (day, pods)).await?;
    }
    let now = today.checked_add(SignedDuration::from_hours(24))?;

    let prices = price_tables::prices(None, now)?;
    std::fs::write(state.path().join("policy.yaml"), policy_file::example())?;
    let tariff = Tariff::new(Arc::new(price_tables::policy(None, &prices)?), Arc::new(prices), now);
    let (reader, writer) = (journal.reader(), journal.days());
    let begun = Instant::now();
    keep(&reader, &writer, &tariff, now).await?;
    let kept_in = begun.elapsed().as_secs_f64();
    let number = yesterday.as_second().div_euclid(DAY);
    let kept = reader.kept_days(number, number + 1).await?.pop().context("no day was kept")?;
    ensure!(kept.is_folded(), "so many workloads are kept apart");
    let rows = reader.kept_rows(number).await?.context("no rows were kept")?;
    let whole = KeptDay { rows, ..kept.clone() };
    for before in 1..=DAYS_BEFORE {
        writer.write(&writer.encode(KeptDay { day: number - before, ..whole.clone() })?).await?;
    }
    let begun = Instant::now();
    let spent = reader.spent(today, now).await?;
    let read = begun.elapsed().as_secs_f64();
    println!("a day: {} spans, {} pods on {} nodes, {} rows kept", spent.spans.len(), pods, spent.pods.len(), kept.rows.len());
    drop(spent);
    journal.close().await;

    println!("\n{:<34} {:>8} {:>8}", "", "s", "MB");
    println!("{:<34} {:>8}", "the service sums up a day", short(kept_in));
    println!("{:<34} {:>8}", "the rows of the last day are read", short(read));
    let (mut slowest, mut most) = (0.0_f64, 0.0_f64);
    let mut show = |name: &str, (seconds, megabytes): (f64, f64)| {
        println!("{name:<34} {:>8} {:>8}", short(seconds), short(megabytes));
        (slowest, most) = (slowest.max(seconds), most.max(megabytes));
    };
    let names =
        if is_short() { &["namespace", "workload"][..] } else { &["pool", "namespace", "capacity", "workload", "label=team"] };
    for by in names {
        let (took, report) = reported(state.path(), now, &["--by", by, "-o", "json"], whole_report)?;
        let days = |of: &Value| of["knownSeconds"].as_i64().map(|seconds| seconds / DAY);
        ensure!((days(&report), days(&report["before"])) == (Some(30), Some(31)), "the days are not all known");
        show(&format!("a month by {by}"), took);
    }
    let (took, rows) = reported(state.path(), now, &["--focus"], |out| Ok(out.lines().count()))?;
    // Pods of one workload on one machine are one row.
    ensure!(rows > 15 * usize::try_from(pods)?, "{rows} FOCUS rows");
    show(&format!("a month as {rows} FOCUS rows"), took);
    if is_short() {
        println!("{pods} pods a day: the bars are for {PODS}");
    }
    report.judge("report of a month", slowest, "s", "≤ 10", slowest <= SECONDS);
    report.judge("memory of it", most, "MB", "≤ 300", most <= MEGABYTES);
    report.ratio("day-over-rows", kept_in / read);
    report.print();
    Ok(())
}

/// A day of the fleet, as the service writes it: pods come and go, and every ten minutes it looks.
async fn follow(journal: &Journal, memory: &mut Memory, (day, number): (Timestamp, u64)) -> Result<()> {
    let pods = journal.pods();
    let of_day = day.as_second().div_euclid(DAY).unsigned_abs() * number;
    let all: Vec<RecordedPod> = (0..number).map(|n| pod(of_day + n, n, day)).collect::<Result<_>>()?;
    for came in all.chunks(MOST_PODS) {
        pods.write((day, day), &PodChanges { came: came.to_vec(), ended: BTreeMap::new() }).await?;
    }
    let mut now = day;
    let mut node = 0;
    while now.duration_since(day) <= SignedDuration::from_hours(24) {
        for _ in 0..CHANGED * number / PODS {
            let id = RecordId(node % NODES);
            if memory.free.remove(&id).is_none() {
                memory.free.insert(id, now);
            }
            node += 1;
        }
        journal.count_use(now, memory).await?;
        now = now.checked_add(LOOK_EVERY)?;
    }
    pods.write((day, now), &PodChanges::default()).await?;
    Ok(())
}

/// One of some 40,000 workloads of 50 namespaces, for an hour or two.
fn pod(uid: u64, n: u64, day: Timestamp) -> Result<RecordedPod> {
    let bound = day.checked_add(SignedDuration::from_secs(i64::try_from(n * 37 % 79_200)?))?;
    let end = bound.checked_add(SignedDuration::from_secs(i64::try_from(3_600 + n % 3_600)?))?;
    let (namespace, job) = (format!("team-{}", n % 50), format!("train-{}", uid % 40_000));
    Ok(RecordedPod {
        uid: format!("uid-{uid}").into(),
        name: format!("{namespace}/{job}-0").into(),
        owner_kind: Some("Job".into()),
        owner: Owner { namespace: namespace.into(), name: job.into() },
        labels: PodLabels::from_text(&format!("team=t{}", n % 50)),
        pool: None,
        models: Vec::new(),
        gpus: Some(1),
        slices: std::iter::empty().collect(),
        milli_cpu: 4_000,
        memory_mib: 16_384,
        node: format!("node-{:06}", n * 7 % NODES),
        created: bound,
        bound,
        end: Some(PodEnd { at: end, is_seen: true }),
    })
}

/// The report of November by what is asked for, as `read` takes it, and the seconds and megabytes that the program takes.
fn reported<T: Send + 'static>(
    state: &Path,
    now: Timestamp,
    asked: &[&str],
    read: impl FnOnce(BufReader<ChildStdout>) -> Result<T> + Send + 'static,
) -> Result<((f64, f64), T)> {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_shipped-stoker"))
        .args(["report", "--month", "2026-11", "--now", &now.to_string()])
        .args(asked)
        .arg("--state-dir")
        .arg(state)
        .arg("--policy")
        .arg(state.join("policy.yaml"))
        .stdout(Stdio::piped())
        .spawn()?;
    let out = BufReader::new(child.stdout.take().context("no output")?);
    let output = std::thread::spawn(move || read(out));
    let mut most = 0.0_f64;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        // A process that has just ended tells nothing any more.
        most = most.max(memory_mb(child.id(), "VmHWM").unwrap_or(0.0));
        std::thread::sleep(Duration::from_millis(5));
    };
    let seconds = begun.elapsed().as_secs_f64();
    let output = output.join().ok().context("the reader of the output")??;
    ensure!(ended.success() && most > 0.0, "{ended}");
    Ok(((seconds, most), output))
}

fn whole_report(out: BufReader<ChildStdout>) -> Result<Value> {
    Ok(serde_json::from_reader(out)?)
}
