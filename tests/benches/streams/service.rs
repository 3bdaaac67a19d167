//! The service, as a process of its own: what the bench starts, asks and kills, and what runs there.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use stoker_advice::rollup::NodeContext;
use stoker_core::base::ids::NodeName;
use stoker_journal::Journal;
use stoker_service::controllers::rollup::SharedRollup;
use stoker_service::listener::TlsFiles;
use stoker_service::serve::{ListenerOptions, ProbeListenerOptions, Running};
use stoker_simulated::start;
use stoker_tests::process::memory_mb;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::bare;
use crate::common::service;
use crate::common::times::Times;
use crate::fleet::node;

/// Names the directory of the service that this process is to be; the others how it is to how.
const SERVE: &str = "STOKER_BENCH_SERVE";
const LISTEN: &str = "STOKER_BENCH_LISTEN";
const NODES: &str = "STOKER_BENCH_NODES";
const CERTIFICATES: &str = "STOKER_BENCH_CERTIFICATES";
const BARE: &str = "STOKER_BENCH_BARE";

const POOLS: usize = 25;

/// All nodes are heard by then, or something is wrong.
const LONGEST: Duration = Duration::from_mins(3);

/// How the service begins.
#[derive(Debug, Clone)]
pub(crate) struct How {
    dir: PathBuf,
    listen: SocketAddr,
    nodes: usize,
    certificates: Option<PathBuf>,
    bare: bool,
}

impl How {
    /// On a port that the system chooses, for so many nodes; over TLS where there are certificates.
    pub(crate) fn first(dir: &Path, nodes: usize, certificates: Option<&Path>) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { dir: dir.to_owned(), listen, nodes, certificates: certificates.map(Path::to_owned), bare: false }
    }

    /// Without the service: the streams alone, in plain text.
    pub(crate) fn bare(&self) -> Self {
        Self { certificates: None, bare: true, ..self.clone() }
    }

    /// Where it was before.
    pub(crate) fn again(&self, listen: SocketAddr) -> Self {
        Self { listen, ..self.clone() }
    }

    /// What this process was told to be; `None` where it is the bench.
    pub(crate) fn from_environment() -> Result<Option<Self>> {
        let Some(dir) = std::env::var_os(SERVE) else { return Ok(None) };
        Ok(Some(Self {
            dir: dir.into(),
            listen: std::env::var(LISTEN)?.parse()?,
            nodes: std::env::var(NODES)?.parse()?,
            certificates: std::env::var_os(CERTIFICATES).map(PathBuf::from),
            bare: std::env::var_os(BARE).is_some(),
        }))
    }

    fn listener(&self) -> ListenerOptions {
        let tls = self.certificates.as_ref().map(|dir| TlsFiles {
            cert: dir.join("server.crt"),
            key: dir.join("server.key"),
            client_ca: Some(dir.join("ca.crt")),
            denied_serials: None,
        });
        ListenerOptions { listen: self.listen, tls, ..ListenerOptions::loopback() }
    }
}

/// The service's process.
pub(crate) struct Service {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Where it takes probes.
    pub(crate) addr: SocketAddr,
}

impl Service {
    /// Starts it; it takes probes once this returns.
    pub(crate) async fn spawn(how: &How) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .envs([stoker_tests::HEAP])
            .env(SERVE, &how.dir)
            .env(LISTEN, how.listen.to_string())
            .env(NODES, how.nodes.to_string());
        if let Some(certificates) = &how.certificates {
            command.env(CERTIFICATES, certificates);
        }
        if how.bare {
            command.env(BARE, "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("the service's process")?;
        let input = child.stdin.take().context("no input of the service")?;
        let mut output = BufReader::new(child.stdout.take().context("no output of the service")?).lines();
        let line = tokio::time::timeout(Duration::from_mins(1), output.next_line()).await??;
        let addr = line.context("the service ended")?.parse()?;
        Ok(Self { child, input, output, addr })
    }

    /// Kills it, as a crash does.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits until it has a reading of each of so many nodes.
    pub(crate) async fn heard_of_all(&mut self, nodes: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let heard: usize = self.ask("heard").await?.parse()?;
            if heard == nodes {
                return Ok(());
            }
            ensure!(begun.elapsed() < LONGEST, "{heard} of {nodes} nodes are heard after {LONGEST:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its answer to a question.
    pub(crate) async fn ask(&mut self, what: &str) -> Result<String> {
        self.input.write_all(format!("{what}\n").as_bytes()).await?;
        self.output.next_line().await?.context("the service ended")
    }

    /// A line of its status, in MB.
    pub(crate) fn resident(&self, name: &str) -> Result<f64> {
        let id = self.child.id().context("the service ended")?;
        memory_mb(id, name)
    }

    /// Seconds of CPU that it has used. Linux counts them in hundredths.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let id = self.child.id().context("the service ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let fields = stat.rsplit_once(") ").context("no name in stat")?.1;
        let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }
}

/// The service, until it is killed. Told to begin it forgets what it measured, told to report it says it; asked, it says how many nodes it
/// has heard of.
pub(crate) async fn serve(how: How) -> Result<()> {
    if how.bare {
        return bare::serve().await;
    }
    stoker_service::publish::telemetry::init(true, Some("error"))?;
    let dir = how.dir.as_path();
    let (mut options, world) = service::options(service::policy(POOLS), dir);
    options.probes = Some(ProbeListenerOptions { listener: how.listener(), ..ProbeListenerOptions::loopback() });
    let running = start(options, world).await?;
    let times = Arc::new(Mutex::new(Times::default()));
    let changes = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn(watch(newest(&running), running.readings.seen(), Arc::clone(&times), Arc::clone(&changes)));
    // The service's own leaves out nodes that no record names; this one is told of them.
    let (journal, _) = Journal::open(&dir.join("readings")).await?;
    let (rollup, rolled) = roll_up(&running, how.nodes)?;
    println!("{}", running.probes.context("no door for probes")?);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut rounds = 0;
    while let Some(line) = lines.next_line().await? {
        let taken = running.readings.metrics().rounds();
        if line == "begin" {
            rounds = taken;
            rolled.store(0, Ordering::Relaxed);
            *times.lock().unwrap_or_else(PoisonError::into_inner) = Times::default();
            changes.store(0, Ordering::Relaxed);
            println!("begun");
        } else if line == "heard" {
            println!("{}", running.readings.latest().len());
        } else {
            let rolled = Duration::from_nanos(rolled.load(Ordering::Relaxed)).as_secs_f64();
            let begun = Instant::now();
            rollup.write(&journal.readings(), Timestamp::now()).await?;
            let write = begun.elapsed().as_secs_f64() * 1e3;
            let times = times.lock().unwrap_or_else(PoisonError::into_inner);
            let (changes, rounds) = (changes.load(Ordering::Relaxed), taken - rounds);
            let (p50, p99) = (times.p50(), times.p99());
            println!("rounds={rounds} changes={changes} p50={p50} p99={p99} rollup={rolled} write={write}");
        }
    }
    watching.abort();
    running.stop().await;
    Ok(())
}

/// Rolls up what is taken of every node of the bench; the nanoseconds that it took so far.
fn roll_up(running: &Running, nodes: usize) -> Result<(SharedRollup, Arc<AtomicU64>)> {
    let (rollup, took) = (SharedRollup::default(), Arc::new(AtomicU64::new(0)));
    let free = Arc::new(NodeContext { bought: None, pods: Some(Vec::new()) });
    let names = (0..nodes).map(|probe| NodeName::new(node(probe)));
    let contexts: BTreeMap<_, _> = names.map(|name| Ok((name?, Arc::clone(&free)))).collect::<Result<_>>()?;
    rollup.follow(contexts);
    let (counting, into) = (Arc::clone(&took), rollup.clone());
    running.readings.follow(move |taken| {
        if let Some(reading) = taken.reading {
            let begun = Instant::now();
            into.take(taken.node, taken.at, reading);
            counting.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(0), Ordering::Relaxed);
        }
    });
    Ok((rollup, took))
}

type Newest = Arc<Mutex<HashMap<NodeName, Timestamp>>>;

/// When the newest reading of each node was sampled. Probes and service share a clock here.
fn newest(running: &Running) -> Newest {
    let newest = Newest::default();
    let kept = Arc::clone(&newest);
    running.readings.follow(move |taken| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).insert(taken.node.clone(), taken.at);
    });
    newest
}

/// Times how long after the sample each change is there for decisions.
async fn watch(
    newest: Newest,
    mut seen: tokio::sync::watch::Receiver<Arc<stoker_service::feeds::probes::SeenNodes>>,
    times: Arc<Mutex<Times>>,
    changes: Arc<AtomicU64>,
) {
    let mut before = Arc::clone(&seen.borrow_and_update());
    while seen.changed().await.is_ok() {
        let now = Timestamp::now();
        let after = Arc::clone(&seen.borrow_and_update());
        let newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, value) in after.iter() {
            let same = before.get(node).is_some_and(|was| Arc::ptr_eq(was, value));
            if let (false, Some(at)) = (same, newest.get(node)) {
                times.add(now.duration_since(*at).try_into().unwrap_or_default());
                changes.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop((newest, times));
        before = after;
    }
}
