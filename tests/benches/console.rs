//! The console over 5,000 nodes of four GPUs with a pod each: how long the first page takes on loopback, and what ten browsers that follow
//! it take of a core, over what the service takes by itself. As the least that a page can cost: the same service's answer to `stoker top`,
//! which has all nodes.

mod common {
    pub(crate) mod report;
}

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::report::{Report, is_short, short};
use jiff::Timestamp;
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, NodeReading, Permille, Source};
use stoker_fake_apiserver::ApiServer;
use stoker_service::api::console::ConsoleOptions;
use stoker_service::feeds::probes::Readings;
use stoker_service::serve::{KubeOptions, Options};
use stoker_simulated::{WorldOptions, start};
use stoker_tests::client::Client;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::process::cpu_time;
use stoker_tests::{http, market};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const NODES: i32 = 5_000;
/// Those of the short form, which looks at two pages: most of its time is waiting for pages to grow old.
const SHORT_NODES: i32 = 1_000;
/// Nodes of one order: the autoscaler asks for no more at a time.
const ORDER: i32 = 500;
/// GPUs of a node.
const GPUS: u32 = 4;
const POOLS: [&str; 5] = ["a", "b", "c", "d", "e"];
const READERS: usize = 10;
/// Pages asked for one after the other, each when what is shared is too old.
const PAGES: [&str; 4] = ["/console", "/console/nodes", "/console/nodes?sort=price&page=25", "/console/nodes?q=g6+a"];
const ROUNDS: usize = 3;
/// Longer than what readers share is shown.
const OLD: Duration = Duration::from_millis(15_200);
const MEASURE: Duration = Duration::from_mins(1);
const SHORT_MEASURE: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_mins(5);
/// The bars: milliseconds, and % of a core.
const FIRST: f64 = 300.0;
const SHARE: f64 = 1.0;

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::new("console");
    let nodes = if is_short() { SHORT_NODES } else { NODES };
    let dir = TempDir::new()?;
    let mut world = market::calm();
    world.boot.median_seconds = 1;
    world.markets.push(market::stock(market::of_type("g6.12xlarge"), nodes.unsigned_abs()));
    let api = ApiServer::listen(Timestamp::now).await;
    let pools = POOLS.map(|name| Pool { max_nodes: 2_000, count: GPUS, ..Pool::new(name) });
    let console = ConsoleOptions {
        token_file: None,
        listener: None,
        clients: Vec::new().into(),
        text: stoker::cli::console_text(market::book()),
    };
    let kube = KubeOptions::Kubeconfig(api.kubeconfig());
    let options = Options { kube, console: Some(console), debug: true, ..market::options(policy(&pools), dir.path()) };
    let running = start(options, WorldOptions { config: world, file: None }).await?;
    let client = Client::connect(running.provider, running.expander).await?;
    let begun = Instant::now();
    client.ready(LONG).await?;
    let groups = POOLS.map(|pool| format!("{pool}.g6-12xlarge.us-east-1a"));
    for group in groups.iter().cycle().take(usize::try_from(nodes / ORDER)?) {
        client.increase(group, ORDER).await?;
    }
    let wanted = usize::try_from(nodes)?;
    while api.nodes().len() < wanted || running.handle.view().memory.records.values().any(|one| one.is_coming()) {
        ensure!(begun.elapsed() < LONG, "the nodes do not come");
        sleep(Duration::from_secs(1)).await;
    }
    let names =
        api.nodes().iter().filter_map(|node| NodeName::new(node["metadata"]["name"].as_str()?).ok()).collect::<Vec<_>>();
    for (at, name) in names.iter().enumerate() {
        api.bind_gpu_pod(&format!("train-{at}"), name.as_str());
    }
    while !is_read(&running.readings, &names, &get(running.http, "/debug/top").await?)? {
        ensure!(begun.elapsed() < LONG, "what GPUs do is not shown");
        sleep(Duration::from_secs(2)).await;
    }
    println!("{nodes} nodes after {} s", short(begun.elapsed().as_secs_f64()));

    let (mut pages, mut tops) = (Vec::new(), Vec::new());
    let looks = if is_short() { 2 } else { PAGES.len() * ROUNDS };
    for path in PAGES.iter().cycle().take(looks) {
        sleep(OLD).await;
        pages.push(timed(running.http, path).await?);
        tops.push(timed(running.http, "/debug/top").await?);
    }
    let (median, worst) = (middle(&mut pages)?, pages.last().copied().context("a page")?);
    println!("the first page, of {} askings: median {} ms, worst {} ms", pages.len(), short(median), short(worst));
    report.judge(&format!("first page at {nodes} nodes"), worst, "ms", "≤ 300", worst <= FIRST);

    let measure = if is_short() { SHORT_MEASURE } else { MEASURE };
    read(&running.readings, &names)?;
    let alone = share(measure).await?;
    let (mut readers, updates) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..READERS {
        readers.spawn(follow(running.http, "/console/events?of=%2Fconsole%2Fnodes", Arc::clone(&updates)));
    }
    read(&running.readings, &names)?;
    sleep(OLD).await;
    let together = share(measure).await?;
    readers.abort_all();
    let updates = updates.load(Ordering::Relaxed);
    ensure!(updates >= READERS, "{READERS} readers got {updates} updates");
    println!("the service by itself {} % of a core, with {READERS} readers {} %", short(alone), short(together));
    let more = (together - alone).max(0.0);
    report.judge(&format!("{READERS} readers at {nodes} nodes"), more, "% of a core", "≤ 1", more <= SHARE);
    report.ratio("page-over-top", median / middle(&mut tops)?);
    report.print();
    running.stop().await;
    Ok(())
}

/// Reports of every GPU of the nodes how busy it is; what nobody knows of yet is reported a moment later.
fn read(readings: &Readings, names: &[NodeName]) -> Result<()> {
    for (at, name) in names.iter().enumerate() {
        let gpu = |gpu: u32| -> Result<_> {
            let level = u16::try_from((at * 37 + usize::try_from(gpu)? * 211) % 1_001)?;
            let utilization = Measured::Known(Permille::new(level).context("a share")?);
            Ok((GpuUuid::new(format!("GPU-{gpu}"))?, GpuReading { utilization, ..GpuReading::default() }))
        };
        let reading = NodeReading {
            arrived: Timestamp::now(),
            source: Source::Probe,
            driver: DriverState::Ready,
            counted: Measured::Known(GPUS),
            gpus: (0..GPUS).map(gpu).collect::<Result<_>>()?,
            gates: [].into(),
        };
        let _ = readings.take(name, reading, Vec::new());
    }
    Ok(())
}

/// Whether `stoker top` is shown what nearly all GPUs do, and who holds their nodes.
fn is_read(readings: &Readings, names: &[NodeName], top: &str) -> Result<bool> {
    read(readings, names)?;
    Ok([r#""gpus":"#, "/train-"].iter().all(|shown| top.matches(shown).count() > names.len() * 9 / 10))
}

async fn get(addr: SocketAddr, path: &str) -> Result<String> {
    let answer = http::get(addr, path).await?;
    ensure!(http::is_ok(&answer), "{path}: {}", answer.lines().next().unwrap_or_default());
    Ok(answer)
}

/// Milliseconds from the connection to the last byte.
async fn timed(addr: SocketAddr, path: &str) -> Result<f64> {
    let begun = Instant::now();
    get(addr, path).await?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn middle(figures: &mut [f64]) -> Result<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().context("a figure")
}

/// Reads a stream of updates, and the next when it ends, as a browser does.
async fn follow(addr: SocketAddr, path: &'static str, updates: Arc<AtomicUsize>) -> Result<()> {
    loop {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut read = vec![0; 64 << 10];
        loop {
            let bytes = timeout(LONG, stream.read(&mut read)).await??;
            if bytes == 0 {
                break;
            }
            if read[..bytes].windows(6).any(|part| part == b"event:") {
                updates.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// What this process takes of a core over that time, in %.
async fn share(over: Duration) -> Result<f64> {
    let this = std::process::id();
    let (before, begun) = (cpu_time(this)?, Instant::now());
    sleep(over).await;
    let used = cpu_time(this)?.saturating_sub(before);
    Ok(used.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0)
}
