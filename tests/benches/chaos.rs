//! The service among hostile clients, over a disk that fills, a clock that steps, and an API server and a supplier that hang in turn,
//! killed every 20 s, while a model autoscaler orders and lets go nodes for pods that come and end. At the end what was acknowledged,
//! what the service lists and what the cloud has must be one and the same.
//!
//! It runs for 30 min, or for 2 min with `--short`. The state directory is a small file system of its own, so the bench enters a mount
//! namespace first, which root may and most users may (`unshare --map-root-user --mount`).

mod common {
    pub(crate) mod logs;
    pub(crate) mod report;
    pub(crate) mod times;
}
mod chaos_parts {
    pub(crate) mod account;
    pub(crate) mod cluster;
    pub(crate) mod doors;
    pub(crate) mod honest;
    pub(crate) mod hostile;
    pub(crate) mod service;
    pub(crate) mod trouble;
}

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use chaos_parts::cluster::Cluster;
use chaos_parts::honest::Honest;
use chaos_parts::hostile::Hostile;
use chaos_parts::service::Service;
use chaos_parts::trouble::{Trouble, Volume};
use chaos_parts::{doors, service};
use common::logs;
use common::report::{Report, is_short, short};
use jiff::Timestamp;
use stoker_fake_apiserver::ApiServer;
use stoker_tests::process::Books;
use stoker_tests::proxy::Proxy;

/// Says that this process is in the namespace already.
const INSIDE: &str = "STOKER_CHAOS_INSIDE";

/// How long a service lives.
const LIFE: Duration = Duration::from_secs(20);
/// How long after a start the trouble begins.
const BEGIN: Duration = Duration::from_secs(5);
/// How long a trouble lasts that ends in the same life; others end as long after the next start as they began after the last.
const LASTS: Duration = Duration::from_secs(8);
/// How long all may take to settle at the end: a failed call of the cloud is made again after 15 s.
const SETTLES: Duration = Duration::from_mins(2);

const RUN: Duration = Duration::from_mins(30);
const SHORT_RUN: Duration = Duration::from_mins(2);

/// The most memory of the service at any moment, in MB.
const RSS_BAR: f64 = 200.0;
/// The most that 99 of 100 honest calls may take, in milliseconds.
const P99_BAR: f64 = 100.0;

fn main() -> Result<()> {
    if let Some(dir) = service::asked_for() {
        return service::main(&dir);
    }
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe()?;
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "--"]).arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1");
        return Err(command.exec()).context("unshare (util-linux) could not be started");
    }
    logs::to_nowhere()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let outcome = play(dir.path()).await;
    if outcome.is_err() {
        eprintln!("the service's log ends with:\n{}", service::log(dir.path()));
    }
    outcome
}

async fn play(dir: &Path) -> Result<()> {
    let mut report = Report::new("chaos");
    stoker_service::listener::install_crypto();
    let volume = Volume::mount(&dir.join("state"))?;
    let doors = doors::Doors::new(dir)?;

    let api = ApiServer::listen(Timestamp::now).await;
    api.serve_kind("tokenreviews");
    let (address, kubeconfig) = doors::kubeconfig(&api)?;
    let proxy = Proxy::before(address).await?;
    std::fs::write(dir.join("kubeconfig"), kubeconfig.replace(&address.to_string(), &proxy.addr.to_string()))?;

    let mut service = Service::start(dir, &doors)?;
    service.ready(&doors).await?;
    let at_rest = service.resident()?.0;
    let cluster = Cluster::run(&api, &doors)?;
    let honest = Honest::run(&doors)?;
    let hostile = Hostile::run(&doors)?;

    let begun = Instant::now();
    let end = begun + if is_short() { SHORT_RUN } else { RUN };
    let (mut outages, mut most, mut kills) = (Vec::new(), 0.0_f64, 0_usize);
    let mut troubles = Trouble::ALL.into_iter().cycle();
    let mut standing: Option<Trouble> = None;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    while Instant::now() < end {
        let next = troubles.next().unwrap_or(Trouble::Disk);
        tokio::time::sleep(BEGIN).await;
        if let Some(trouble) = standing.take() {
            trouble.end(&volume, &proxy, &mut service).await?;
        }
        next.begin(&volume, &proxy, &mut service).await?;
        *seen.entry(next.name()).or_default() += 1;
        tokio::time::sleep(LASTS).await;
        if next.outlives_the_service() {
            standing = Some(next);
        } else {
            next.end(&volume, &proxy, &mut service).await?;
        }
        tokio::time::sleep(LIFE.saturating_sub(BEGIN + LASTS)).await;
        let from = Instant::now();
        most = most.max(service.kill().await?);
        kills += 1;
        service = Service::start(dir, &doors)?;
        if let Some(trouble) = standing {
            trouble.carry_over(&mut service).await?;
        }
        service.ready(&doors).await.with_context(|| format!("after kill {kills}, with {standing:?} standing"))?;
        let took = from.elapsed();
        println!(
            "{:>5} s: {}, killed, served again after {} s",
            begun.elapsed().as_secs(),
            next.name(),
            short(took.as_secs_f64())
        );
        outages.push((from, Instant::now()));
    }
    if let Some(trouble) = standing.take() {
        trouble.end(&volume, &proxy, &mut service).await?;
    }
    let (times, failed) = honest.end(&outages).await;
    let attacks = hostile.end().await;
    let last = cluster.end().await;
    println!("{kills} kills; troubles {seen:?}; attacks {attacks:?}");

    let books = || Books::read(&dir.join("world.jsonl"));
    let deadline = Instant::now() + SETTLES;
    let settled = loop {
        match settled(&doors, &books()).await {
            Ok(settled) => break settled,
            Err(error) if Instant::now() > deadline => return Err(error.context("it does not settle")),
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    most = most.max(service.kill().await?);

    println!("\n{:<30} {:>14} {:>7} {:>9}", "group", "acknowledged", "listed", "machines");
    for (group, machines) in &settled {
        let (lowest, highest) = last.account.target(group);
        println!("{group:<30} {:>14} {:>7} {:>9}", format!("{lowest} to {highest}"), machines.len(), machines.len());
        let listed = i64::try_from(machines.len())?;
        ensure!(
            (lowest..=highest).contains(&listed),
            "{group}: {lowest} to {highest} nodes were acknowledged, {listed} are there"
        );
    }
    let tally = last.account.tally;
    println!("{tally:?}; pods run {}, nodes taken from a pod {}", last.pods, last.robbed.len());
    ensure!(books().bought_twice().is_empty(), "bought twice: {:?}", books().bought_twice());
    ensure!(last.robbed.is_empty(), "nodes taken from a pod: {:?}", last.robbed);
    ensure!(tally.ordered > 5 && tally.deleted > 0 && last.pods > 5, "the autoscaler had nothing to do");
    for (attack, [tried, got_in]) in &attacks {
        ensure!(*tried > 0, "{attack}: was never tried");
        ensure!(*got_in == 0, "{attack}: {got_in} of {tried} calls were answered as if they were honest");
    }
    ensure!(failed.is_empty(), "{} honest calls failed, first {:?}", failed.len(), failed.first());
    if kills == 0 || seen.len() < Trouble::ALL.len() {
        bail!("the run was too short: {kills} kills, troubles {seen:?}");
    }
    for (call, times) in &times {
        let p99 = times.p99();
        report.judge(&format!("honest {call} while hostile clients call, p99"), p99, "ms", "≤ 100", p99 <= P99_BAR);
    }
    report.judge("memory of the service, at most", most, "MB", "≤ 200", most <= RSS_BAR);
    report.ratio("memory", most / at_rest);
    report.print();
    ensure!(times.values().all(|times| times.p99() <= P99_BAR), "honest calls took longer than {P99_BAR} ms");
    ensure!(most <= RSS_BAR, "the service had {} MB", short(most));
    Ok(())
}

/// The machines of each group; an error until what is wanted, what is listed and what the cloud has are the same.
async fn settled(doors: &doors::Doors, books: &Books) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let client = doors.client()?;
    client.refresh().await?;
    let mut all = BTreeMap::new();
    for group in client.groups().await? {
        let target = usize::try_from(client.target(&group.id).await?)?;
        let listed: BTreeSet<String> = client.ids(&group.id).await?.into_iter().collect();
        let alive = books.alive(&group.id);
        ensure!(target == listed.len(), "{}: {target} wanted, {} listed", group.id, listed.len());
        ensure!(listed == alive, "{}: {listed:?} are listed, {alive:?} exist", group.id);
        all.insert(group.id, alive);
    }
    Ok(all)
}
