//! The service as a process of its own, which takes orders about its clock and its supplier on its standard input.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::SignedDuration;
use stoker_service::failpoints;
use stoker_service::listener::TlsFiles;
use stoker_service::serve::{KubeOptions, ListenerOptions, Options, ProbeListenerOptions};
use stoker_sim::world::{BootConfig, WorldConfig};
use stoker_simulated::supplier::Simulated;
use stoker_simulated::{WorldOptions, start};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::process::memory_mb;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::doors::Doors;

/// Names the directory of the service that this process is to be.
const SERVE: &str = "STOKER_CHAOS_SERVE";
/// Where it listens: provider, expander, probes and side port.
const LISTEN: &str = "STOKER_CHAOS_LISTEN";

/// How long a start may take, with a disk that is full or a clock that is wrong.
const STARTS: Duration = Duration::from_mins(1);

/// The pools; each has one group.
pub(crate) const POOLS: [&str; 2] = ["p", "q"];

/// The directory of the service, where this process is to be it.
pub(crate) fn asked_for() -> Option<OsString> {
    std::env::var_os(SERVE)
}

/// A running service.
pub(crate) struct Service {
    child: Child,
    orders: ChildStdin,
}

impl Service {
    pub(crate) fn start(dir: &Path, doors: &Doors) -> Result<Self> {
        let listen = [doors.provider, doors.expander, doors.probes, doors.side].map(|address| address.to_string()).join(",");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("service.log"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .envs([stoker_tests::HEAP])
            .env(SERVE, dir)
            .env(LISTEN, listen)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("the service's process")?;
        let orders = child.stdin.take().context("its input is ours")?;
        Ok(Self { child, orders })
    }

    /// Waits until it answers its autoscaler.
    pub(crate) async fn ready(&mut self, doors: &Doors) -> Result<()> {
        let begun = Instant::now();
        let client = doors.client()?;
        while let Err(status) = client.refresh().await {
            if let Some(ended) = self.child.try_wait()? {
                bail!("the service ended by itself: {ended}");
            }
            ensure!(begun.elapsed() < STARTS, "the service answers {status} after {} s", STARTS.as_secs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Tells it what to do.
    pub(crate) async fn order(&mut self, order: &str) -> Result<()> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.context("the service ended by itself")
    }

    /// Ends it as a power cut would; the most memory that it had, in MB.
    pub(crate) async fn kill(mut self) -> Result<f64> {
        let most = self.resident()?.1;
        self.child.kill().await?;
        Ok(most)
    }

    /// Resident memory now and at most, in MB.
    pub(crate) fn resident(&self) -> Result<(f64, f64)> {
        let id = self.child.id().context("the service ended by itself")?;
        Ok((memory_mb(id, "VmRSS")?, memory_mb(id, "VmHWM")?))
    }
}

/// The last lines of its log.
pub(crate) fn log(dir: &Path) -> String {
    let text = std::fs::read_to_string(dir.join("service.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
}

/// The service, until it is killed.
pub(crate) fn main(dir: &OsString) -> Result<()> {
    stoker_service::publish::telemetry::init(true, Some("warn"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(Path::new(dir)))
}

async fn serve(dir: &Path) -> Result<()> {
    let listen = std::env::var(LISTEN)?;
    let listen: Vec<SocketAddr> = listen.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let &[provider, expander, probes, http] = listen.as_slice() else { return Err(anyhow!("{LISTEN}: four addresses")) };
    let running = start(options(dir, [provider, expander, probes, http]), world(dir)).await?;
    let simulated = Arc::clone(&running.simulated);
    let input = async move {
        if let Err(error) = obey(&simulated).await {
            eprintln!("{error}");
        }
    };
    ensure!(running.run_until(input).await, "a part of the service ended by itself");
    Ok(())
}

fn options(dir: &Path, [provider, expander, probes, http]: [SocketAddr; 4]) -> Options {
    let certs = dir.join("certs");
    let listener = |listen, clients: bool| ListenerOptions {
        listen,
        tls: Some(TlsFiles {
            cert: certs.join("server.crt"),
            key: certs.join("server.key"),
            client_ca: clients.then(|| certs.join("ca.crt")),
            denied_serials: None,
        }),
        allow_plaintext: false,
        clients: if clients { ["cluster-autoscaler".to_owned()].into() } else { [].into() },
    };
    let of = |name, models| Pool { models, max_nodes: 40, ..Pool::new(name) };
    let [p, q] = POOLS;
    Options {
        provider: listener(provider, true),
        expander: listener(expander, false),
        probes: Some(ProbeListenerOptions { listener: listener(probes, false), ..ProbeListenerOptions::loopback() }),
        http,
        kube: KubeOptions::Kubeconfig(dir.join("kubeconfig")),
        retention: SignedDuration::from_hours(1),
        ..market::options(policy(&[of(p, "L4"), of(q, "A10G")]), dir)
    }
}

/// A world whose machines boot in a second, and of whose calls some fail.
fn world(dir: &Path) -> WorldOptions {
    let mut config = WorldConfig {
        boot: BootConfig { median_seconds: 1, sigma: 0.0, clouds: [].into() },
        stop_seconds: 1,
        ..market::calm()
    };
    (config.api.latency_ms.min, config.api.latency_ms.max) = (5, 30);
    (config.api.error_rate, config.api.partial_listing_rate) = (0.05, 0.05);
    WorldOptions { config, file: Some(PathBuf::from(dir).join("world.jsonl")) }
}

/// Does what its input says, until that ends.
async fn obey(simulated: &Simulated) -> Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        match order.split_once(' ') {
            Some(("wall", seconds)) => failpoints::step_wall(seconds.parse()?),
            Some(("supplier", hangs)) => simulated.hang(hangs == "hangs"),
            _ => return Err(anyhow!("an unknown order: {order}")),
        }
    }
    Ok(())
}
