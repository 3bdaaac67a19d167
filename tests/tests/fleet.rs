//! Two dozen probes as they are shipped, each a process over a driver of its own, and what a provider makes of what they tell.
//!
//! `STOKER_FLEET_AWAY=600` keeps the provider away for ten minutes, in which probes read every 5 s as they do by default.
//!
//! That by Prometheus needs Debian's package `prometheus`, and is ignored unless asked for:
//! `cargo test -p stoker-tests --test fleet -- --ignored`.

#[path = "fleet/node.rs"]
mod node;
#[path = "fleet/provider.rs"]
mod provider;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use stoker_core::facts::reading::seen::{Ailment, Hearing};
use stoker_fake_apiserver::ApiServer;
use stoker_service::feeds::prometheus::Connection;
use stoker_service::serve::KubeOptions;
use stoker_simulated::Simulation;
use stoker_tests::prometheus::Prometheus;
use stoker_tests::relay::Relay;
use tempfile::TempDir;

use node::{Fate, Node};
use provider::{Books, Told, ToldGpu, driver, order, provider, told, until};

const NODES: usize = 24;

/// Names for how many seconds the provider is away.
const AWAY: &str = "STOKER_FLEET_AWAY";
/// Where it does not say.
const AWAY_SECONDS: u64 = 10;
/// Rounds that a probe keeps whole while the provider is away, less those until it tries again: ten minutes at the default period are 120.
const ROUNDS_AWAY: u64 = 120;

/// For how long the provider is away.
fn away() -> Duration {
    let seconds = std::env::var(AWAY).ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(AWAY_SECONDS))
}

/// A provider, its cluster, and a probe on each of its nodes, which reaches it by a relay.
struct Fleet {
    dir: TempDir,
    api: ApiServer,
    relay: Relay,
    books: Books,
    running: Simulation,
    nodes: Vec<Node>,
}

impl Fleet {
    async fn start() -> anyhow::Result<Self> {
        let (dir, books, relay) = (TempDir::new()?, Books::default(), Relay::start().await?);
        let api = ApiServer::listen(Timestamp::now).await;
        let running = provider(dir.path(), KubeOptions::Kubeconfig(api.kubeconfig()), None, &books).await?;
        relay.lead(running.probes);
        let url = format!("http://{}", relay.addr);
        let names = order(&running, &api, NODES).await?;
        let period = Duration::from_secs((away().as_secs() / ROUNDS_AWAY).max(1));
        let nodes = (0..).zip(&names).map(|(number, name)| Node::start(name, number, &url, period));
        let nodes = nodes.collect::<anyhow::Result<Vec<_>>>()?;
        for node in nodes.iter().filter(|node| node.fate.is_held()) {
            api.bind_gpu_pod(&format!("job-{}", node.name), &node.name);
        }
        let fleet = Self { dir, api, relay, books, running, nodes };
        until("every node heard", || fleet.all_heard()).await?;
        Ok(fleet)
    }

    fn all_heard(&self) -> Result<(), String> {
        let seen = self.running.readings.seen();
        let seen = seen.borrow();
        let heard = |node: &&Node| {
            let seen = seen.iter().find(|(name, _)| name.as_str() == node.name);
            seen.is_some_and(|(_, seen)| matches!(seen.hearing, Hearing::Heard { .. }) && !seen.gpus.is_empty())
        };
        match self.nodes.iter().find(|node| !heard(node)) {
            None => Ok(()),
            Some(node) => Err(format!("{}: {}", node.name, node.log())),
        }
    }

    /// Starts the provider anew on what it left behind. Meanwhile nothing is there for so long; `twin` gets a copy of what is left.
    async fn restart(self, away: Duration, twin: Option<&Path>) -> anyhow::Result<Self> {
        let kube = KubeOptions::Kubeconfig(self.api.kubeconfig());
        self.running.stop().await;
        self.relay.lead(None);
        self.relay.cut();
        if let Some(twin) = twin {
            copy(self.dir.path(), twin)?;
        }
        tokio::time::sleep(away).await;
        let running = provider(self.dir.path(), kube, None, &self.books).await?;
        self.relay.lead(running.probes);
        Ok(Self { running, ..self })
    }

    /// Every round that a probe made until `end` was taken by a provider.
    fn all_taken(&self, end: Timestamp) -> Result<(), String> {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        for node in &self.nodes {
            let made = node.rounds().map_err(|error| error.to_string())?;
            let taken = books.get(&node.name).ok_or("nothing was taken")?;
            let missing = made.iter().filter(|at| **at <= end && !taken.contains(at)).count();
            if missing > 0 {
                return Err(format!("{}: {missing} of {} rounds", node.name, made.len()));
            }
        }
        Ok(())
    }
}

/// What a provider should see of a node at last, by its probe; `xids` are those that every node gave.
fn scripted(node: &Node, xids: &[u32]) -> Told {
    let gpu = |activity: &str| ToldGpu { activity: activity.to_owned(), ..ToldGpu::default() };
    let gpus = match node.fate {
        Fate::Idle | Fate::Falls => vec![gpu("quiet")],
        Fate::Busy | Fate::Hopper | Fate::Decodes => vec![gpu("active")],
        Fate::Split => vec![ToldGpu { instances: ["active", "quiet"].map(str::to_owned).to_vec(), ..gpu("active") }],
        Fate::Ailing => vec![ToldGpu { ailments: vec![Ailment::RemapPending], ..gpu("quiet") }],
        Fate::Hangs => vec![gpu("unknown: TimedOut")],
        Fate::Loses => vec![gpu("quiet"), gpu("unknown: GpuLost")],
    };
    let xids = xids.iter().copied().chain((node.fate == Fate::Falls).then_some(79));
    Told {
        gpus: (0..).zip(gpus).map(|(number, gpu)| (node.gpu(number), gpu)).collect(),
        xids: xids.map(|code| (code, Some(node.gpu(0)))).collect(),
    }
}

/// The first node of which something else is told than should be.
fn differs(told: &BTreeMap<String, Told>, wanted: &BTreeMap<String, Told>) -> Result<(), String> {
    match wanted.iter().find(|(node, wanted)| told.get(*node) != Some(wanted)) {
        None => Ok(()),
        Some((node, wanted)) => Err(format!("{node}: {:?} instead of {wanted:?}", told.get(node))),
    }
}

/// Copies a folder and the folders in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&to)?;
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// What `stoker nodes` prints of a state directory.
fn listed(state: &Path) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_shipped-stoker")).arg("nodes").arg("--state-dir").arg(state).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_of_what_shipped_probes_tell_over_streams_that_break_to_a_provider_that_restarts() -> anyhow::Result<()>
{
    let fleet = Fleet::start().await?;
    // Streams break, also those that have just come back, while drivers hang, lose GPUs and give XIDs.
    for cut in 0..3 {
        for node in &fleet.nodes {
            node.script(cut > 0, &[31])?;
        }
        fleet.relay.cut();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // One more XID of each as the provider goes.
    for node in &fleet.nodes {
        node.script(true, &[31, 43])?;
    }
    let gone = Timestamp::now();
    let mut fleet = fleet.restart(away(), None).await?;
    let back = Timestamp::now();

    let wanted: BTreeMap<_, _> = fleet.nodes.iter().map(|node| (node.name.clone(), scripted(node, &[31, 43]))).collect();
    until("what was scripted", || differs(&told(&fleet.running), &wanted)).await?;
    until("every node heard", || fleet.all_heard()).await?;
    let now = Timestamp::now();
    until("every round", || fleet.all_taken(now)).await?;
    println!("{NODES} probes, {} connections, every round until {now} taken", fleet.relay.opened());
    // Every one, also of the time without a provider, and none had to make room on the way.
    let mut kept = 0;
    for node in &fleet.nodes {
        kept += node.rounds()?.range(gone..back).count();
        for dropped in ["stoker_probe_rounds_thinned_total", "stoker_probe_events_dropped_total"] {
            assert!(node.metric(dropped)? < 0.5, "{}: {dropped}", node.name);
        }
    }
    println!("{kept} of them were kept while the provider was away for {:?}", away());
    assert!(kept >= NODES * 2, "nothing was read while the provider was away");
    // Those at first, those after the restart, and those in between.
    assert!(fleet.relay.opened() > 2 * NODES, "no stream was broken");
    let hung = fleet.nodes.iter().find(|node| node.fate == Fate::Hangs).unwrap();
    assert_eq!(driver(&fleet.running, &hung.name), "Hung");
    for node in &mut fleet.nodes {
        assert!(node.runs(), "{}: {}", node.name, node.log());
    }

    // What is left in the state directory, for people.
    fleet.running.stop().await;
    let shown = listed(&fleet.dir.path().join("state"))?;
    let line = |fate: Fate| {
        let node = fleet.nodes.iter().find(|node| node.fate == fate).unwrap();
        shown.lines().find(|line| line.starts_with(&node.name)).unwrap_or_else(|| unreachable!("{}\n{shown}", node.name))
    };
    for (fate, bar, state, pods) in [
        (Fate::Busy, "▇ 80%", " busy ", "default/job-"),
        (Fate::Idle, "_ 0%", " idle ", "nobody"),
        // Nothing is known of its GPU, and nothing is nought; by its pods, which are this pool's evidence, it is idle.
        (Fate::Hangs, " - ", " idle ", "nobody"),
    ] {
        let line = line(fate);
        assert!([bar, state, pods].iter().all(|word| line.contains(word)), "{fate:?}: {line}\n{shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn the_same_is_seen_by_a_prometheus_that_scrapes_the_probes_as_by_their_streams() -> anyhow::Result<()> {
    let fleet = Fleet::start().await?;
    let metrics = || fleet.nodes.iter().filter_map(Node::metrics).collect::<Vec<_>>();
    until("metrics of every probe", || if metrics().len() == NODES { Ok(()) } else { Err("some are missing".to_owned()) })
        .await?;
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n- {{ job_name: gpu, static_configs: [{{ targets: {:?} }}] }}\n",
        metrics()
    );
    let prometheus = Prometheus::start(TempDir::new()?, &config).await?;

    // Another provider with the same machines, which no probe speaks to.
    let dir = TempDir::new()?;
    let fleet = fleet.restart(Duration::from_secs(1), Some(dir.path())).await?;
    let url = prometheus.url.clone();
    let connection = Connection { url, token_file: None, ca: None };
    let other = provider(dir.path(), KubeOptions::None, Some(connection), &Books::default()).await?;

    let both = || -> (BTreeMap<_, _>, BTreeMap<_, _>) {
        let less_reasons =
            |told: BTreeMap<String, Told>| told.into_iter().map(|(node, told)| (node, told.less_reasons())).collect();
        (less_reasons(told(&fleet.running)), less_reasons(told(&other)))
    };
    let same = || -> Result<(), String> {
        let (streamed, scraped) = both();
        differs(&scraped, &streamed).and_then(|()| differs(&streamed, &scraped))
    };
    // While all is well: everything is known, and the same.
    let known = |told: &Told| told.gpus.values().all(|gpu| gpu.activity != "unknown");
    let all_known = || match both().0.iter().filter(|(_, told)| known(told)).count() {
        NODES => Ok(()),
        others => Err(format!("everything is known of {others} nodes")),
    };
    until("all known while all is well", all_known).await?;
    until("the same while all is well", same).await?;

    // And once it is not.
    for node in &fleet.nodes {
        node.script(true, &[])?;
    }
    let wanted: BTreeMap<_, _> =
        fleet.nodes.iter().map(|node| (node.name.clone(), scripted(node, &[]).less_reasons())).collect();
    until("what was scripted, by streams", || differs(&both().0, &wanted)).await?;
    until("what was scripted, by Prometheus", || differs(&both().1, &wanted)).await?;
    until("the same", same).await?;
    other.stop().await;
    fleet.running.stop().await;
    prometheus.stop().await
}
