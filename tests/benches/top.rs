//! `stoker top` in a real terminal, against a side port that gives 5,000 nodes whose GPU use changes with each answer: the CPU time of the
//! real program, over some seconds, as a share of one core. As the least that it can cost: reading the same answer, at the same pace.

mod common {
    pub(crate) mod report;
}

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::routing::get;
use common::report::{Report, is_short, short};
use serde_json::{Value, json};
use stoker_service::publish::picture::Picture;
use stoker_tests::process::cpu_time;
use stoker_tests::terminal::Terminal;

const NODES: u64 = 5_000;
const POOLS: u64 = 25;
/// GPUs of a node.
const GPUS: u64 = 8;
/// Answers that differ, given in turn.
const ANSWERS: u64 = 4;
/// How long the program runs before it is measured, and while it is.
const WARM: Duration = Duration::from_secs(4);
const MEASURE: Duration = Duration::from_secs(20);
const SHORT_MEASURE: Duration = Duration::from_secs(10);
/// Between two readings, about as long as the program pauses.
const PAUSE: Duration = Duration::from_secs(2);
/// The bar, in % of a core.
const BAR: f64 = 5.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut report = Report::new("top");
    let answers: Vec<Vec<u8>> = (0..ANSWERS).map(|n| serde_json::to_vec(&picture(n))).collect::<Result<_, _>>()?;
    let answer = answers.first().context("an answer")?.clone();

    let served = Arc::new((answers, AtomicU64::new(0)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app = Router::new().route("/debug/top", get(top)).route("/readyz", get(|| async { "ready\n" }));
    let app = app.with_state(Arc::clone(&served));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let program = Path::new(env!("CARGO_BIN_EXE_shipped-stoker"));
    let terminal = Terminal::run(program, &["top", "--url", &url], (160, 50))?;
    tokio::time::sleep(WARM).await;
    let screen = terminal.screen()?;
    ensure!(screen.contains("5000 nodes"), "{screen}");
    let (before, asked, begun) = (cpu_time(terminal.pid)?, served.1.load(Ordering::Relaxed), Instant::now());
    let mut readings = Vec::new();
    // Meanwhile and at its pace: a processor that wakes for it takes several times as long as one that reads on and on.
    while begun.elapsed() < if is_short() { SHORT_MEASURE } else { MEASURE } {
        tokio::time::sleep(PAUSE).await;
        let reading = Instant::now();
        drop(serde_json::from_slice::<Picture>(&answer.clone())?);
        readings.push(reading.elapsed());
    }
    readings.sort();
    let read = readings.get(readings.len() / 2).copied().context("a reading")?;
    println!("an answer of {NODES} nodes: {} KiB, read in {} ms", answer.len() >> 10, short(read.as_secs_f64() * 1e3));
    let (used, wall) = (cpu_time(terminal.pid)?.saturating_sub(before).as_secs_f64(), begun.elapsed().as_secs_f64());
    let asked = served.1.load(Ordering::Relaxed) - asked;
    ensure!(asked > 0, "nothing was asked:\n{}", terminal.screen()?);
    let each = used / f64::from(u32::try_from(asked)?);
    println!("asked {asked} times in {} s, {} ms of CPU each, drawing included", short(wall), short(each * 1e3));
    let share = used / wall * 100.0;
    report.judge(&format!("CPU at {NODES} nodes"), share, "% of a core", "≤ 5", share <= BAR);
    report.ratio("cpu-over-reading", each / read.as_secs_f64());
    report.print();
    Ok(())
}

async fn top(State(served): State<Arc<(Vec<Vec<u8>>, AtomicU64)>>) -> ([(header::HeaderName, &'static str); 1], Vec<u8>) {
    let n = served.1.fetch_add(1, Ordering::Relaxed) % ANSWERS;
    let answer = usize::try_from(n).ok().and_then(|n| served.0.get(n)).cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], answer)
}

/// A fleet whose GPUs are as busy as the `n`th answer says.
fn picture(n: u64) -> Value {
    let verdicts = ["busy", "busy", "busy", "held", "warm"];
    let nodes: Vec<Value> = (1..=NODES)
        .map(|node| {
            let pool = node % POOLS;
            let verdict = usize::try_from(node).ok().and_then(|at| verdicts.get(at % verdicts.len())).copied();
            let gpus: Vec<u64> = (0..GPUS).map(|gpu| (node * 37 + gpu * 11 + n * 53) % 1_001).collect();
            json!({
                "record": node, "name": format!("ip-10-{pool}-{}-{}.ec2.internal", node / 250, node % 250),
                "group": format!("pool-{pool:02}.g6-48xlarge.us-east-1a"), "pool": format!("pool-{pool:02}"),
                "instanceType": "g6.48xlarge", "zone": "us-east-1a", "capacityType": "spot", "rate": 4_500_000 + node,
                "phase": "running", "verdict": verdict, "since": "2026-11-01T11:00:00Z", "gpus": gpus,
                "why": "its GPUs were at work within the last minute", "heldBy": [format!("team-{}/train-{node}-0", node % 7)],
            })
        })
        .collect();
    let pools: Vec<Value> = (0..POOLS)
        .map(|pool| {
            json!({
                "pool": format!("pool-{pool:02}"), "running": NODES / POOLS, "coming": 0, "wanted": NODES / POOLS, "max": 400,
                "floor": null, "budget": null, "rate": 900_000_000, "fault": null,
            })
        })
        .collect();
    let (now, at) = (format!("2026-11-01T12:00:0{n}Z"), "2026-11-01T12:00:00Z");
    json!({ "cluster": "bench", "now": now, "at": at, "budget": null, "pools": pools, "nodes": nodes })
}
