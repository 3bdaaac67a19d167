//! 5,000 probes that stream the rounds of 8 GPUs each 5 s to the service: a process of its own, which takes them in, folds them and wakes
//! its loop where something changed, and rolls them up by the hour. Beside it, as the least that it can cost: decoding the same messages and
//! nothing else.

mod common {
    pub(crate) mod report;
    pub(crate) mod service;
    pub(crate) mod times;
}

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::report::{Report, short};
use common::service;
use common::times::Times;
use jiff::Timestamp;
use prost::Message as _;
use stoker::journal::Journal;
use stoker::rollup::SharedRollup;
use stoker::serve::{ProbeDoorOptions, Running, start};
use stoker_core::ids::NodeName;
use stoker_core::rollup::NodeContext;
use stoker_proto::probe::probe_client::ProbeClient;
use stoker_proto::probe::{
    Clocks, Driver, Ecc, FromProbe, Gate, Gpu, Hello, Memory, Mig, NvLink, Pcie, Processes, RemappedRows, Round, Signal,
    Unknown, Why, driver, from_probe, gate,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// Names the directory of the service that this process is to be.
const SERVE: &str = "STOKER_BENCH_SERVE";

const PROBES: usize = 5_000;
const PROBES_PER_SECOND: f64 = 1_000.0;
const GPUS: u32 = 8;
const PERIOD: Duration = Duration::from_secs(5);
/// Of so many rounds of a probe one begins to use a GPU, which is quiet again in the next: 5 such rounds a second over all.
const ROUNDS_A_BURST: u64 = 200;

const POOLS: usize = 25;
/// Until every GPU was found quiet, and the last of the streams stands.
const SETTLE: Duration = Duration::from_secs(25);
const MEASURE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match std::env::var_os(SERVE) {
        Some(dir) => runtime.block_on(serve(Path::new(&dir))),
        None => runtime.block_on(run()),
    }
}

async fn run() -> Result<()> {
    let mut report = Report::new("probes");
    let message = FromProbe { kind: Some(from_probe::Kind::Round(round(1, 0, false))) };
    println!("a round of {GPUS} GPUs: {} bytes", message.encoded_len());
    let bare = bare(&message)?;

    let dir = tempfile::tempdir()?;
    let mut service = Service::spawn(dir.path()).await?;
    let before = service.resident("VmRSS")?;
    let begun = Instant::now();
    let sent = Arc::new(AtomicU64::new(0));
    let mut probes = connect(service.addr, &sent).await?;
    println!("{PROBES} streams stand after {} s", short(begun.elapsed().as_secs_f64()));
    tokio::time::sleep(SETTLE).await;

    service.ask("begin").await?;
    let (cpu, at, rounds) = (service.cpu()?, Instant::now(), sent.load(Ordering::Relaxed));
    tokio::time::sleep(MEASURE).await;
    let wall = at.elapsed().as_secs_f64();
    let share = (service.cpu()? - cpu) / wall * 100.0;
    #[expect(clippy::cast_precision_loss, reason = "some tens of thousands")]
    let per_second = (sent.load(Ordering::Relaxed) - rounds) as f64 / wall;
    let told = service.ask("report").await?;
    let figure = |name: &str| -> Result<f64> {
        let word = told.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Ok(word.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
    };
    let (rss, most) = (service.resident("VmRSS")?, service.resident("VmHWM")?);
    ensure!(probes.try_join_next().is_none(), "a stream broke");
    probes.abort_all();
    service.child.kill().await?;

    let least = bare * 1e-6 * per_second * 100.0;
    println!("\n{:<58} {:>8}", "", "");
    for (what, value) in [
        ("rounds sent, a second", per_second),
        ("rounds taken, a second", figure("rounds")? / wall),
        ("CPU of the service, % of a core", share),
        ("  the bare decode of as many rounds, % of a core", least),
        ("  of it the roll-up, % of a core", figure("rollup")? / wall * 100.0),
        ("a write of the roll-up, every 5 min, ms", figure("write")?),
        ("VmRSS without a stream, MB", before),
        ("VmRSS with all streams, MB", rss),
        ("VmHWM, MB", most),
        ("changes seen by decisions", figure("changes")?),
        ("  from sampled to snapshot, p50 ms", figure("p50")?),
        ("  from sampled to snapshot, p99 ms", figure("p99")?),
    ] {
        println!("{what:<58} {:>8}", short(value));
    }
    report.judge(
        "CPU at 1,000 rounds a second",
        share,
        "% of a core",
        &format!("≤ 25; bare decode: {}", short(least)),
        share <= 25.0,
    );
    report.judge("VmRSS with 5,000 streams of 8 GPUs", rss, "MB", "≤ 400", rss <= 400.0);
    let p99 = figure("p99")?;
    report.judge("from sampled to snapshot, p99", p99, "ms", "≤ 350; publications are 250 apart", p99 <= 350.0);
    report.print();
    Ok(())
}

/// Microseconds to decode that message.
fn bare(message: &FromProbe) -> Result<f64> {
    const TIMES: u32 = 20_000;
    let encoded = stoker_proto::Bytes::from(message.encode_to_vec());
    let begun = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(FromProbe::decode(encoded.clone())?);
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}

/// What one probe sees.
fn round(sequence: u64, probe: usize, busy: bool) -> Round {
    let now = Timestamp::now();
    let unknown = |signal: Signal, why: Why| Unknown { signal: signal.into(), why: why.into() };
    let gpu = |index: u32| Gpu {
        uuid: format!("GPU-{probe:08x}-0000-4000-8000-{index:012x}"),
        index,
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        architecture: Some(9),
        utilization: Some(0),
        sm_activity: Some(0),
        memory_bandwidth: Some(0),
        memory: Some(Memory {
            used_bytes: if busy && index == 0 { 40 << 30 } else { 3 << 20 },
            total_bytes: 85_520_809_984,
            reserved_bytes: 600 << 20,
        }),
        power_mw: Some(71_234 + sequence % 97),
        power_limit_mw: Some(700_000),
        temperature_c: Some(31),
        clocks: Some(Clocks { sm_mhz: 345, memory_mhz: 2619 }),
        clock_limits: Some(1),
        ecc: Some(Ecc { enabled: true, ..Ecc::default() }),
        remapped_rows: Some(RemappedRows::default()),
        retired_pages_pending: None,
        recovery_action: Some(0),
        nvlink: Some(NvLink { active_links: 18, errors: 0 }),
        pcie: Some(Pcie { generation: 5, width: 16, max_generation: 5, max_width: 16, replays: 0 }),
        processes: Some(Processes::default()),
        energy_mj: Some(1_234_567_890 + sequence * 356_000),
        mig: Some(Mig::default()),
        persistence: Some(true),
        codec: Some(0),
        unknown: vec![unknown(Signal::RetiredPages, Why::NotSupported), unknown(Signal::Fabric, Why::NotSupported)],
        ..Gpu::default()
    };
    let passed = |kind: gate::Kind| Gate { kind: kind.into(), result: gate::Result::Passed.into(), detail: String::new() };
    Round {
        sequence,
        at: Some(stoker_proto::Timestamp { seconds: now.as_second(), nanos: now.subsec_nanosecond() }),
        driver: Some(Driver {
            state: driver::State::Ready.into(),
            driver_version: "570.86.15".to_owned(),
            nvml_version: "12.570.86.15".to_owned(),
            cuda_version: 12_080,
            detail: String::new(),
        }),
        gpus_counted: Some(GPUS),
        gpus: (0..GPUS).map(gpu).collect(),
        gates: [gate::Kind::Driver, gate::Kind::GpuCount, gate::Kind::GpuMemory, gate::Kind::Events].map(passed).to_vec(),
        took_us: 4_000,
    }
}

/// Opens all streams, each over a connection of its own; each sends on, in its own fifth of a millisecond of the period.
async fn connect(addr: SocketAddr, sent: &Arc<AtomicU64>) -> Result<JoinSet<Result<()>>> {
    let mut probes = JoinSet::new();
    let (standing, mut stands) = mpsc::channel(PROBES);
    let begun = tokio::time::Instant::now();
    for probe in 0..PROBES {
        let (sent, standing) = (Arc::clone(sent), standing.clone());
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let offset = Duration::from_secs_f64(probe as f64 / PROBES_PER_SECOND);
        probes.spawn(async move {
            tokio::time::sleep_until(begun + offset).await;
            stream(addr, probe, begun + offset, sent, standing).await
        });
    }
    for _ in 0..PROBES {
        tokio::select! {
            standing = stands.recv() => standing.context("a stream")?,
            Some(ended) = probes.join_next() => ended?.context("a stream ended before all stood")?,
        }
    }
    Ok(probes)
}

async fn stream(
    addr: SocketAddr,
    probe: usize,
    begin: tokio::time::Instant,
    sent: Arc<AtomicU64>,
    standing: mpsc::Sender<()>,
) -> Result<()> {
    let channel = Endpoint::from_shared(format!("http://{addr}"))?.connect().await?;
    let (up, requests) = mpsc::channel(4);
    let hello = Hello {
        node: format!("node-{probe:04}"),
        boot_id: "boot".to_owned(),
        session: 1,
        version: String::new(),
        period_ms: 5000,
    };
    up.send(FromProbe { kind: Some(from_probe::Kind::Hello(hello)) }).await?;
    let mut answers = ProbeClient::new(channel).watch(ReceiverStream::new(requests)).await?.into_inner();
    answers.message().await?.context("no first answer")?;
    standing.send(()).await?;
    let mut ticks = tokio::time::interval_at(begin + PERIOD, PERIOD);
    for sequence in 1_u64.. {
        ticks.tick().await;
        let busy = (sequence * 7919 + probe as u64).is_multiple_of(ROUNDS_A_BURST);
        let message = FromProbe { kind: Some(from_probe::Kind::Round(round(sequence, probe, busy))) };
        up.send(message).await?;
        sent.fetch_add(1, Ordering::Relaxed);
        answers.message().await?.context("the stream ended")?;
    }
    Ok(())
}

/// The service's process.
struct Service {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

impl Service {
    async fn spawn(dir: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVE, dir).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("the service's process")?;
        let input = child.stdin.take().context("no input of the service")?;
        let mut output = BufReader::new(child.stdout.take().context("no output of the service")?).lines();
        let line = tokio::time::timeout(Duration::from_mins(1), output.next_line()).await??;
        let addr = line.context("the service ended")?.parse()?;
        Ok(Self { child, input, output, addr })
    }

    async fn ask(&mut self, what: &str) -> Result<String> {
        self.input.write_all(format!("{what}\n").as_bytes()).await?;
        self.output.next_line().await?.context("the service ended")
    }

    /// A line of its status, in MB.
    fn resident(&self, name: &str) -> Result<f64> {
        let id = self.child.id().context("the service ended")?;
        let status =
            std::fs::read_to_string(format!("/proc/{id}/status")).context("memory is read from /proc, on Linux only")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        let kib: f64 = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024.0 / 1e6)
    }

    /// Seconds of CPU that it has used. Linux counts them in hundredths.
    fn cpu(&self) -> Result<f64> {
        let id = self.child.id().context("the service ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let fields = stat.rsplit_once(") ").context("no name in stat")?.1;
        let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }
}

/// The service, until it is killed. Told to begin it forgets what it measured, told to report it says it.
async fn serve(dir: &Path) -> Result<()> {
    stoker::telemetry::init(true, Some("error"))?;
    let mut options = service::options(service::policy(POOLS), dir);
    options.probes = Some(ProbeDoorOptions::loopback());
    let running = start(options).await?;
    let times = Arc::new(Mutex::new(Times::default()));
    let changes = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn(watch(newest(&running), running.readings.seen(), Arc::clone(&times), Arc::clone(&changes)));
    // The service's own leaves out nodes that no record names; this one is told of them.
    let (journal, _) = Journal::open(&dir.join("readings")).await?;
    let (rollup, rolled) = roll_up(&running)?;
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
fn roll_up(running: &Running) -> Result<(SharedRollup, Arc<AtomicU64>)> {
    let (rollup, took) = (SharedRollup::default(), Arc::new(AtomicU64::new(0)));
    let free = Arc::new(NodeContext { bought: None, pods: Some(Vec::new()) });
    let names = (0..PROBES).map(|probe| NodeName::new(format!("node-{probe:04}")));
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
    mut seen: tokio::sync::watch::Receiver<Arc<stoker::probes::SeenNodes>>,
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
