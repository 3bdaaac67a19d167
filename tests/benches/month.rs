//! Resident memory of the service over a simulated month with 5,000 nodes: pods come and end on all of them, each node goes after a week
//! and another is ordered in its place. The service is a process of its own, whose clock this one moves; its journal, its watches and the
//! provider's port are as they always are. After the first day its memory must not grow: whatever is kept of nodes that are gone shows.

mod common {
    pub(crate) mod report;
    pub(crate) mod service;
}

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use common::report::{Report, is_short, short};
use common::service;
use jiff::{SignedDuration, Timestamp};
use stoker_fake_apiserver::ApiServer;
use stoker_service::clock::{Clock, VirtualClock};
use stoker_service::publish::view::InstanceStatus;
use stoker_service::serve::KubeOptions;
use stoker_simulated::{Simulation, start};
use stoker_tests::client::{Client, registered};
use stoker_tests::market;
use stoker_tests::process::memory_mb;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Names the directory of the service that this process is to be.
const SERVE: &str = "STOKER_BENCH_SERVE";
/// Names the kubeconfig that it follows.
const KUBECONFIG: &str = "STOKER_BENCH_KUBECONFIG";
/// Says how many pools its policy has.
const POOLS: &str = "STOKER_BENCH_POOLS";

/// Groups of a pool of the benches' policy.
const GROUPS: usize = 6;
/// Between two passes: a real service passes more often, and finds nothing.
const STEP: SignedDuration = SignedDuration::from_mins(5);
const STEPS_AN_HOUR: usize = 12;
/// How long a node is there.
const LIFE_HOURS: usize = 7 * 24;
/// Between the end of a node's pod and its deletion: longer than any window of the policy.
const FREE_HOURS: usize = 1;
/// What the watches take to bring what the last step changed.
const WATCHES: Duration = Duration::from_millis(15);
/// How long the service may take to know the Nodes of all machines.
const PATIENCE: Duration = Duration::from_mins(1);
/// What the service answers when it has done what there is to do.
const DONE: &str = "done";

/// How much of everything.
struct Size {
    pools: usize,
    nodes_per_group: usize,
    days: usize,
}

const FULL: Size = Size { pools: 25, nodes_per_group: 34, days: 30 };
const SHORT: Size = Size { pools: 5, nodes_per_group: 10, days: 3 };

impl Size {
    const fn nodes(&self) -> usize {
        self.pools * GROUPS * self.nodes_per_group
    }
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match std::env::var_os(SERVE) {
        Some(dir) => runtime.block_on(serve(Path::new(&dir))),
        None => runtime.block_on(run()),
    }
}

async fn run() -> Result<()> {
    let mut report = Report::new("month");
    let size = if is_short() { SHORT } else { FULL };
    let dir = tempfile::tempdir()?;
    let mut month = Month::begin(dir.path(), &size).await?;
    println!("{:>4} {:>7} {:>7} {:>7} {:>9} {:>8} {:>9}", "day", "nodes", "pods", "gone", "least MB", "most MB", "state MB");
    let mut days = Vec::new();
    for day in 1..=size.days {
        let begun = Instant::now();
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for _ in 0..24 {
            month.hour(&size).await?;
            let resident = month.resident()?;
            (least, most) = (least.min(resident), most.max(resident));
        }
        let (nodes, pods) = (month.api.nodes().len(), month.pods.len());
        days.push(most);
        println!(
            "{day:>4} {nodes:>7} {pods:>7} {:>7} {:>9} {:>8} {:>9} {:>4} s",
            month.gone,
            short(least),
            short(most),
            short(size_of(&dir.path().join("state"))),
            begun.elapsed().as_secs()
        );
        ensure!(nodes.abs_diff(size.nodes()) * 50 < size.nodes(), "day {day}: {nodes} nodes of {}", size.nodes());
    }
    // On the first day nodes boot and pods begin. From then on the level of each hour is one of a few that the allocator keeps, so days
    // are compared by their peaks.
    let (_, peaks) = days.split_first().context("no day")?;
    let lowest = peaks.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = peaks.iter().copied().fold(0.0, f64::max);
    ensure!(month.gone * LIFE_HOURS * 2 > size.nodes() * 24 * (size.days - 1), "{} nodes went", month.gone);
    let spread = highest / lowest;
    report.ratio("peaks-after-first-day", spread);
    let what = format!("{} nodes for {} days: highest peak of a day after the first, over the lowest", size.nodes(), size.days);
    report.judge(&what, spread, "", "≤ 1.05", spread <= 1.05);
    report.print();
    Ok(())
}

/// The service, its cluster, and what an autoscaler and a scheduler do in it.
struct Month {
    api: ApiServer,
    client: Client,
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    now: Timestamp,
    clock: Arc<AtomicI64>,
    /// Nodes with a pod, in the order in which they got it.
    pods: VecDeque<String>,
    known: BTreeSet<String>,
    /// Nodes whose pod has ended, and the hour of that.
    free: VecDeque<(usize, String)>,
    hours: usize,
    /// Nodes that were deleted.
    gone: usize,
}

impl Month {
    async fn begin(dir: &Path, size: &Size) -> Result<Self> {
        let now = market::start();
        let clock = Arc::new(AtomicI64::new(now.as_second()));
        let seconds = Arc::clone(&clock);
        let api =
            ApiServer::listen(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap_or(Timestamp::UNIX_EPOCH))
                .await;
        let mut child = Command::new(std::env::current_exe()?)
            .envs([stoker_tests::HEAP])
            .env(SERVE, dir)
            .env(KUBECONFIG, api.kubeconfig())
            .env(POOLS, size.pools.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the service's process")?;
        let orders = child.stdin.take().context("no input of the service")?;
        let mut answers = BufReader::new(child.stdout.take().context("no output of the service")?).lines();
        let ports = answer(&mut answers).await?;
        let (provider, expander) = ports.split_once(' ').context("two ports")?;
        let client = Client::connect(provider.parse::<SocketAddr>()?, expander.parse::<SocketAddr>()?).await?;
        let (pods, known, free) = (VecDeque::new(), BTreeSet::new(), VecDeque::new());
        let mut month = Self { api, client, child, orders, answers, now, clock, pods, known, free, hours: 0, gone: 0 };
        month.step().await?;
        Ok(month)
    }

    /// Moves the clock, and waits until the service has done what there is to do.
    async fn step(&mut self) -> Result<()> {
        self.now += STEP;
        self.clock.store(self.now.as_second(), Ordering::Relaxed);
        self.orders.write_all(format!("{}\n", self.now.as_second()).as_bytes()).await?;
        ensure!(answer(&mut self.answers).await? == DONE, "the service says something else");
        tokio::time::sleep(WATCHES).await;
        Ok(())
    }

    /// An hour: nodes get a pod, the longest pods end, nodes without one are deleted, and others are ordered in their place.
    async fn hour(&mut self, size: &Size) -> Result<()> {
        self.client.refresh().await?;
        for group in self.client.groups().await? {
            let missing = i32::try_from(size.nodes_per_group)? - self.client.target(&group.id).await?;
            if missing > 0 {
                self.client.increase(&group.id, missing).await.with_context(|| group.id.clone())?;
            }
        }
        for _ in 0..STEPS_AN_HOUR {
            self.step().await?;
        }
        self.hours += 1;
        let nodes: BTreeMap<String, Node> = self.api.nodes().iter().filter_map(Node::read).collect();
        self.known.retain(|name| nodes.contains_key(name));
        for name in nodes.keys() {
            if self.known.insert(name.clone()) {
                self.api.bind_gpu_pod(&pod(name), name);
                self.pods.push_back(name.clone());
            }
        }
        let ending = size.nodes().div_ceil(LIFE_HOURS).min(self.pods.len());
        for name in self.pods.drain(..ending) {
            self.api.end_pod(&pod(&name));
            self.free.push_back((self.hours, name));
        }
        self.delete(&nodes).await?;
        // What the fake server keeps for tests to read.
        self.api.take_writes();
        Ok(())
    }

    /// Deletes the nodes that have been free for long enough, as an autoscaler does: those that Stoker lets it delete.
    async fn delete(&mut self, nodes: &BTreeMap<String, Node>) -> Result<()> {
        self.client.refresh().await?;
        while let Some((_, name)) = self.free.pop_front_if(|(hour, _)| *hour + FREE_HOURS < self.hours) {
            let Some(node) = nodes.get(&name) else { continue };
            match self.client.delete(&node.group, vec![registered(&name, &node.provider_id)]).await {
                Ok(()) => self.gone += 1,
                // It was asked too early: once more in an hour.
                Err(_) => self.free.push_back((self.hours, name)),
            }
        }
        Ok(())
    }

    /// Resident memory of the service, in MB.
    fn resident(&self) -> Result<f64> {
        memory_mb(self.child.id().context("the service ended")?, "VmRSS")
    }
}

/// The service's next line.
async fn answer(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    let line = tokio::time::timeout(Duration::from_mins(2), lines.next_line()).await;
    line.map_err(|_| anyhow!("the service says nothing for 120 s"))??.context("the service ended")
}

/// What is deleted by.
struct Node {
    group: String,
    provider_id: String,
}

impl Node {
    fn read(node: &serde_json::Value) -> Option<(String, Self)> {
        let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
        let (group, provider_id) = (text(&node["metadata"]["labels"]["stoker.dev/group"])?, text(&node["spec"]["providerID"])?);
        Some((text(&node["metadata"]["name"])?, Self { group, provider_id }))
    }
}

fn pod(node: &str) -> String {
    format!("pod-of-{node}")
}

/// All files of a directory, in MB.
fn size_of(dir: &Path) -> f64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    #[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
    let megabytes = bytes as f64 / 1e6;
    megabytes
}

/// The service, whose clock moves to each second that it reads, until there is none.
async fn serve(dir: &Path) -> Result<()> {
    stoker_service::publish::telemetry::init(true, Some("error"))?;
    let (mut options, mut world) = service::options(service::policy(std::env::var(POOLS)?.parse()?), dir);
    let clock = VirtualClock::new(market::start());
    options.clock = Clock::Virtual(Arc::clone(&clock));
    options.kube = KubeOptions::Kubeconfig(PathBuf::from(std::env::var_os(KUBECONFIG).context("no kubeconfig")?));
    world.file = Some(dir.join("world.jsonl"));
    let running = start(options, world).await?;
    while running.handle.view().ready.is_err() {
        running.handle.settle().await;
        tokio::time::sleep(WATCHES).await;
    }
    println!("{} {}", running.provider, running.expander);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(second) = orders.next_line().await? {
        let now = Timestamp::from_second(second.parse()?)?;
        clock.advance_to(now);
        joined(&running, now).await?;
        println!("{DONE}");
    }
    Ok(())
}

/// Waits until the service has done what there is to do and knows the Node of every machine that is up. Nodes come in real time: a clock
/// that ran ahead of them would find that they did not join in time.
async fn joined(running: &Simulation, now: Timestamp) -> Result<()> {
    let given_up_at = Instant::now() + PATIENCE;
    loop {
        running.handle.settle().await;
        let machines = running.simulated.machines(now);
        let up: BTreeSet<&str> = machines.iter().filter(|(_, up)| *up).map(|(made, _)| made.provider_id.as_str()).collect();
        let view = running.handle.view();
        let instances = view.groups.values().flat_map(|group| &group.instances);
        let missing = instances.filter(|it| it.state == InstanceStatus::Creating && up.contains(it.id.as_str())).count();
        if missing == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < given_up_at, "the Nodes of {missing} machines have not joined for {} s", PATIENCE.as_secs());
        tokio::time::sleep(WATCHES).await;
    }
}
