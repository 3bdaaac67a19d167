//! Resident memory of the service with watches on 5,000 Nodes and 20,000 Pods: a process of its own against a small API server in this
//! one, which lists in pages and watches. The 5,000 machines of those nodes run in its simulated world, so it holds everything that it
//! would for a fleet of that size. A service without a cluster and without machines shows what it takes by itself.

mod common {
    pub(crate) mod crowd;
    pub(crate) mod report;
    pub(crate) mod service;
    pub(crate) mod wait;
}

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use common::crowd::{Crowd, PODS_PER_NODE};
use common::report::{Report, is_short, short};
use common::{service, wait};
use jiff::Timestamp;
use stoker_fake_apiserver::ApiServer;
use stoker_service::serve::{KubeOptions, Running};
use stoker_simulated::start;
use stoker_tests::process::memory_mb;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Names the directory of the service that this process is to be.
const SERVE: &str = "STOKER_BENCH_SERVE";
/// Names the kubeconfig that it follows; none without.
const KUBECONFIG: &str = "STOKER_BENCH_KUBECONFIG";
/// Says how many nodes that has.
const COUNT: &str = "STOKER_BENCH_NODES";

/// Long enough for every watch to have been begun anew, and for some passes over everything.
const QUIET: Duration = Duration::from_secs(40);
const POOLS: usize = 25;
/// Nodes of the cluster.
const NODES: usize = 5_000;
/// The same in the short form.
const SHORT_QUIET: Duration = Duration::from_secs(5);
const SHORT_NODES: usize = 1_000;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match std::env::var_os(SERVE) {
        Some(dir) => runtime.block_on(serve(Path::new(&dir))),
        None => runtime.block_on(run()),
    }
}

async fn run() -> Result<()> {
    let mut report = Report::new("memory");
    let (nodes, quiet) = if is_short() { (SHORT_NODES, SHORT_QUIET) } else { (NODES, QUIET) };
    let empty = tempfile::tempdir()?;
    let mut idle = spawn(empty.path(), None, 0)?;
    told(&mut idle).await?;
    let (before, _) = resident(&idle)?;
    idle.kill().await?;

    let dir = tempfile::tempdir()?;
    let (server, crowd) = (ApiServer::listen(Timestamp::now).await, Crowd::new(nodes)?);
    let pod_bytes = crowd.fill(&server);
    crowd.write_machines(&dir.path().join("world.jsonl"))?;
    let mut full = spawn(dir.path(), Some(&server.kubeconfig()), nodes)?;
    println!("{}", told(&mut full).await?);
    let (loaded, _) = resident(&full)?;
    tokio::time::sleep(quiet).await;
    ensure!(full.try_wait()?.is_none(), "the service ended");
    let (after, most) = resident(&full)?;
    full.kill().await?;

    println!("\n{:<52} {:>8}", "", "MB");
    for (what, megabytes) in [
        ("VmRSS before: no cluster, no machines", before),
        ("VmRSS once all nodes and pods are seen", loaded),
        ("VmRSS after some time of watching", after),
        ("VmHWM: the most that it ever was", most),
    ] {
        println!("{what:<52} {:>8}", short(megabytes));
    }
    println!("{nodes} nodes and {} pods of {pod_bytes} bytes; requests: {:?}", nodes * PODS_PER_NODE, server.asked());
    report.ratio("over-idle", after / before);
    if nodes != NODES {
        println!("{nodes} nodes: the bars are for {NODES}");
        report.print();
        return Ok(());
    }
    for (what, figure) in [("VmRSS with 5,000 nodes and 20,000 pods", after), ("VmHWM with 5,000 nodes and 20,000 pods", most)]
    {
        report.judge(what, figure, "MB", "≤ 100 MB", figure <= 100.0);
    }
    report.print();
    Ok(())
}

/// Starts this program again, as the service.
fn spawn(dir: &Path, kubeconfig: Option<&Path>, nodes: usize) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .envs([stoker_tests::HEAP])
        .env(SERVE, dir)
        .env(COUNT, nodes.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    if let Some(kubeconfig) = kubeconfig {
        command.env(KUBECONFIG, kubeconfig);
    }
    command.spawn().context("the service's process")
}

/// What the service says once it has seen everything.
async fn told(child: &mut Child) -> Result<String> {
    let out = child.stdout.take().context("no output of the service")?;
    let line = tokio::time::timeout(Duration::from_mins(2), BufReader::new(out).lines().next_line()).await;
    line.map_err(|_| anyhow!("the service has not seen everything within 120 s"))??.context("the service ended")
}

/// Resident memory now and at most, in MB.
fn resident(child: &Child) -> Result<(f64, f64)> {
    let id = child.id().context("the service ended")?;
    Ok((memory_mb(id, "VmRSS")?, memory_mb(id, "VmHWM")?))
}

/// The service, until it is killed.
async fn serve(dir: &Path) -> Result<()> {
    stoker_service::publish::telemetry::init(true, Some("warn"))?;
    let (mut options, mut world) = service::options(service::policy(POOLS), dir);
    let kubeconfig = std::env::var_os(KUBECONFIG).map(PathBuf::from);
    let wanted = std::env::var(COUNT)?.parse()?;
    if let Some(kubeconfig) = kubeconfig {
        world.file = Some(dir.join("world.jsonl"));
        options.kube = KubeOptions::Kubeconfig(kubeconfig);
    }
    let running = start(options, world).await?;
    let ready = || usize::from(running.handle.view().ready.is_ok());
    wait::until("ready views", ready, 1, Duration::from_mins(1)).await?;
    wait::until("busy nodes", || busy(&running), wanted, Duration::from_mins(1)).await?;
    println!(
        "{} nodes run in {} groups, each held by {PODS_PER_NODE} pods",
        busy(&running),
        running.handle.view().groups.len()
    );
    running.run_until(std::future::pending()).await;
    Err(anyhow!("a part of the service ended by itself"))
}

/// Nodes that run and that pods hold.
fn busy(running: &Running) -> usize {
    running.handle.view().groups.values().map(|group| usize::try_from(group.limits.busy).unwrap_or(0)).sum()
}
