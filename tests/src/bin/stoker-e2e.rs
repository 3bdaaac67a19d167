//! Plays the end-to-end scenarios with each autoscaler it is given, on a control plane that runs already. `tests/e2e.sh` calls it.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use stoker_tests::e2e::bench::{Bench, Release, Setup};
use stoker_tests::e2e::cluster::Cluster;
use stoker_tests::e2e::memory;
use stoker_tests::e2e::releases::release;
use stoker_tests::e2e::scenarios::{ALL, Scenario};
use stoker_tests::transcript::{Seen, Transcript};

/// Beyond this something hangs.
const LIMIT: Duration = Duration::from_mins(4);

/// How many minutes it may take, where that is not enough: for a scenario that is told to go on for long.
const MINUTES: &str = "STOKER_E2E_MINUTES";

/// How long is recorded once a scenario is over: a few loops.
const AFTERWARDS: Duration = Duration::from_secs(7);

#[derive(Debug, Parser)]
struct Args {
    /// The administrator's kubeconfig
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Stoker's
    #[arg(long)]
    stoker_kubeconfig: PathBuf,
    /// The autoscaler's
    #[arg(long)]
    autoscaler_kubeconfig: PathBuf,
    /// Where each scenario's files and logs go
    #[arg(long)]
    dir: PathBuf,
    /// The manifests
    #[arg(long)]
    manifests: PathBuf,
    /// The service
    #[arg(long)]
    stoker: PathBuf,
    /// The probe
    #[arg(long)]
    probe: PathBuf,
    /// Karpenter with its KWOK provider
    #[arg(long)]
    karpenter: Option<PathBuf>,
    /// The model of the autoscaler
    #[arg(long)]
    model: PathBuf,
    /// Real autoscalers; the model plays where none is named
    #[arg(long)]
    autoscaler: Vec<PathBuf>,
    /// Only scenarios of these names
    #[arg(long)]
    only: Vec<String>,
    /// A folder by which several of these share the scenarios: each is played by who claims it first
    #[arg(long)]
    shared: Option<PathBuf>,
    /// Where transcripts of the autoscaler's calls go, if they are to be made
    #[arg(long)]
    transcripts: Option<PathBuf>,
    /// Instead of the scenarios: the memory that Stoker holds for a large cluster
    #[arg(long)]
    memory: bool,
    /// What passed before, for the closing line
    #[arg(long, default_value_t = 0)]
    passed: u32,
    /// What failed before
    #[arg(long, default_value_t = 0)]
    failed: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    tokio::select! {
        result = run(&args) => match result {
            Ok(code) => code,
            Err(error) => {
                eprintln!("stoker-e2e: {error:#}");
                ExitCode::FAILURE
            }
        },
        // What was started ends with what is dropped here.
        () = told_to_stop() => ExitCode::FAILURE,
    }
}

/// The turn of a scenario: the lock that it holds meanwhile, where several play.
struct Turn(#[expect(dead_code, reason = "held until it is dropped")] Option<File>);

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cluster = Cluster::connect(&args.kubeconfig).await?;
    let setup = Arc::new(Setup {
        stoker: args.stoker.clone(),
        probe: args.probe.clone(),
        karpenter: args.karpenter.clone(),
        admin_kubeconfig: args.kubeconfig.clone(),
        stoker_kubeconfig: args.stoker_kubeconfig.clone(),
        autoscaler_kubeconfig: args.autoscaler_kubeconfig.clone(),
        record: args.transcripts.is_some(),
    });
    let mut releases = Vec::new();
    for program in &args.autoscaler {
        releases.push(release(program, true, &args.manifests).await?);
    }
    if releases.is_empty() {
        releases.push(release(&args.model, false, &args.manifests).await?);
    }
    if args.memory {
        let release = Arc::new(release(&args.model, false, &args.manifests).await?);
        let within = memory::measure(setup, release, cluster, &args.dir.join("memory")).await?;
        return Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (mut passed, mut failed) = (args.passed, args.failed);
    for release in releases.into_iter().map(Arc::new) {
        println!("autoscaler: {}{}", release.name, if release.real { ", a real one" } else { ", our model of it" });
        let wanted = |s: &&Scenario| args.only.is_empty() || args.only.iter().any(|only| only == s.name);
        // Those that are played by themselves come last: until then nobody waits for anybody.
        let (alone, beside): (Vec<_>, Vec<_>) = ALL.iter().filter(wanted).partition(|scenario| scenario.is_alone());
        for scenario in beside.into_iter().chain(alone) {
            let Some(_turn) = turn(args.shared.as_deref(), &release, scenario).await? else { continue };
            let start = Instant::now();
            let line = |word: &str| {
                println!("{word:6} {:25} {:21} {:6.1} s", release.name, scenario.name, start.elapsed().as_secs_f64());
            };
            if let Some(why) = scenario.skipped(&release) {
                println!("skip   {:25} {:21} {why}", release.name, scenario.name);
                continue;
            }
            let dir = args.dir.join(&release.name).join(scenario.name);
            match play(scenario, &setup, &release, &cluster, &dir).await {
                Ok(calls) => {
                    if let Some(transcripts) = &args.transcripts {
                        write(transcripts, &release, scenario, &calls)?;
                    }
                    passed += 1;
                    line("ok");
                }
                Err(error) => {
                    failed += 1;
                    line("FAILED");
                    println!("       {error:#}; logs in {}", dir.display());
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    // Beside others a lane may find all scenarios claimed.
    Ok(if failed == 0 && (passed > 0 || args.shared.is_some()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for the turn of a scenario, which lasts until the file is dropped; `None` where another lane claimed it.
async fn turn(shared: Option<&Path>, release: &Release, scenario: &Scenario) -> anyhow::Result<Option<Turn>> {
    let Some(shared) = shared else { return Ok(Some(Turn(None))) };
    match File::create_new(shared.join(format!("{}-{}", release.name, scenario.name))) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(error).with_context(|| shared.display().to_string()),
    }
    let playing = File::options().create(true).append(true).open(shared.join("playing"))?;
    loop {
        match if scenario.is_alone() { playing.try_lock() } else { playing.try_lock_shared() } {
            Ok(()) => return Ok(Some(Turn(Some(playing)))),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(200)).await,
            Err(TryLockError::Error(error)) => return Err(error).context("the lock of scenarios that are played"),
        }
    }
}

async fn play(
    scenario: &Scenario,
    setup: &Arc<Setup>,
    release: &Arc<Release>,
    cluster: &Cluster,
    dir: &Path,
) -> anyhow::Result<Vec<Seen>> {
    let play = async {
        let mut bench = Bench::prepare(Arc::clone(setup), Arc::clone(release), cluster.clone(), &scenario.files, dir).await?;
        bench.start().await?;
        (scenario.run)(&mut bench).await?;
        if setup.record {
            tokio::time::sleep(AFTERWARDS).await;
        }
        bench.stop().await
    };
    let limit = std::env::var(MINUTES).ok().and_then(|minutes| minutes.parse().ok()).map_or(LIMIT, Duration::from_mins);
    match tokio::time::timeout(limit, play).await {
        Ok(result) => result,
        Err(_) => anyhow::bail!("did not end within {} s", limit.as_secs()),
    }
}

/// Writes what the autoscaler called in a scenario.
fn write(transcripts: &Path, release: &Release, scenario: &Scenario, calls: &[Seen]) -> anyhow::Result<()> {
    let number = release.name.strip_prefix("cluster-autoscaler-").unwrap_or(&release.name);
    let head = [("release", number.to_owned()), ("scenario", scenario.name.to_owned()), ("flags", release.flags.join(" "))];
    let head = head.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let file = transcripts.join(number).join(format!("{}.txt", scenario.name));
    std::fs::create_dir_all(transcripts.join(number))?;
    let what = "# The calls of a Cluster Autoscaler, as tests/e2e.sh recorded them (STOKER_E2E_TRANSCRIPTS).";
    std::fs::write(&file, format!("{what}\n{}", Transcript::of(head, calls))).with_context(|| file.display().to_string())
}
