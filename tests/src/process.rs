//! The service as a process of its own, which a test may end at any moment, and the books of its simulated cloud.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a harness that cannot be set up is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use stoker_core::base::ids::{LaunchKey, RecordId};
use stoker_core::facts::supply::KeyParts;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_sim::world::{StoredInstance, WorldConfig};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::client::{Client, status};
use crate::http;

/// Longer than any wait here takes on a busy machine, over a cloud of which some calls fail and are made again.
const LONG: Duration = Duration::from_mins(1);

/// A directory for one service after the other: its policy, world, state and the machines of its cloud.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    binary: PathBuf,
}

impl Home {
    /// For that program, with that policy and world.
    pub fn new(binary: &Path, policy: &str, world: &WorldConfig) -> Self {
        let dir = TempDir::new().expect("a directory for the service");
        std::fs::write(dir.path().join("policy.yaml"), policy).expect("the policy is written");
        let world = serde_json::to_string(world).expect("a world is plain data");
        std::fs::write(dir.path().join("world.yaml"), world).expect("the world is written");
        Self { dir, binary: binary.to_owned() }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the service and waits until it listens; with a failpoint it dies there.
    ///
    /// # Errors
    /// What it said when it ended instead.
    pub async fn start(&self, failpoint: Option<&str>) -> Result<Process, String> {
        let log = self.path("stderr.log");
        let stderr = std::fs::File::create(&log).expect("the log can be written");
        let mut command = Command::new(&self.binary);
        command.args([
            "--policy",
            "policy.yaml",
            "--world",
            "world.yaml",
            "--state-dir",
            "state",
            "--world-file",
            "world.jsonl",
        ]);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).kill_on_drop(true);
        command.env("STOKER_FAILPOINT", failpoint.unwrap_or_default()).envs([crate::HEAP]);
        let mut child = command.spawn().expect("the program can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
        let line = timeout(LONG, lines.next_line()).await.expect("it listens or ends in time");
        let Some(line) = line.ok().flatten() else {
            let _ = child.wait().await;
            return Err(std::fs::read_to_string(&log).unwrap_or_default());
        };
        let address = |name: &str| -> SocketAddr {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.and_then(|word| word.parse().ok()).expect("the line tells the addresses")
        };
        let expander = address("expander");
        let client = Client::connect(address("provider"), expander).await.map_err(|error| error.to_string())?;
        Ok(Process { child, http: address("http"), expander, client })
    }

    /// What the simulated cloud's books say.
    pub fn books(&self) -> Books {
        Books::read(&self.path("world.jsonl"))
    }
}

impl Books {
    /// Those that a simulated world keeps in that file.
    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The first line is the world's own; a torn last one was never answered for.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let rows = whole.lines().skip(1).map(|line| serde_json::from_str::<StoredInstance>(line).expect("a row of the books"));
        Self { machines: rows.map(|row| (row.key.clone(), row)).collect() }
    }
}

/// A running service.
#[derive(Debug)]
pub struct Process {
    child: Child,
    http: SocketAddr,
    /// Where its expander listens.
    pub expander: SocketAddr,
    /// Its client.
    pub client: Client,
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What its side port answers to a GET.
    pub async fn get(&self, path: &str) -> String {
        timeout(LONG, http::get(self.http, path)).await.expect("an answer in time").expect("the side port answers")
    }

    /// Ends it as a power cut would.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it was running");
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        timeout(LONG, self.child.wait()).await.expect("it ends in time").expect("it is our child")
    }

    /// Waits until its first refresh.
    pub async fn ready(&self) {
        let ready = async {
            while self.client.refresh().await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, ready).await.expect("it gets ready in time");
    }

    /// Waits until each node that is wanted of these groups runs; how many that are, and their ids, by group.
    pub async fn settled(&self, groups: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let settled = async {
            loop {
                let mut all = BTreeMap::new();
                for group in groups {
                    let Ok(target) = self.client.target(group).await else { break };
                    let Ok(instances) = self.client.nodes(group).await else { break };
                    let is = |state: InstanceState| move |i: &&_| status(i).0 == state;
                    let running: BTreeSet<String> =
                        instances.iter().filter(is(InstanceState::InstanceRunning)).map(|i| i.id.clone()).collect();
                    let coming = instances.iter().filter(is(InstanceState::InstanceCreating)).count();
                    if coming == 0 && usize::try_from(target) == Ok(running.len()) {
                        all.insert((*group).to_owned(), running);
                    }
                }
                if all.len() == groups.len() {
                    return all;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(LONG, settled).await.expect("it settles in time")
    }
}

/// A line of a process's status that tells of its memory, such as `VmRSS`, in KiB.
///
/// # Errors
/// Where there is no such process or line, or no `/proc`.
pub fn memory_kib(process: u32, name: &str) -> anyhow::Result<u32> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("{path}: memory is read on Linux only"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("{path}: no {name}"))?;
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse().with_context(|| format!("{path}: {line}"))
}

/// The same in MB.
///
/// # Errors
/// As [`memory_kib`].
pub fn memory_mb(process: u32, name: &str) -> anyhow::Result<f64> {
    Ok(f64::from(memory_kib(process, name)?) * 1024.0 / 1e6)
}

/// Ticks of a processor's clock in a second, as Linux tells them.
const TICKS: f64 = 100.0;

/// CPU time that a process has used, in user and kernel mode.
///
/// # Errors
/// Where there is no such process, or no `/proc`.
pub fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the program ended")?;
    // The second field, in brackets, may have spaces.
    let (_, fields) = stat.rsplit_once(')').context("a line of stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(Duration::from_secs_f64(f64::from(ticks) / TICKS))
}

/// Every machine that the simulated cloud ever made, by launch key.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// Each as it was last written down.
    pub machines: BTreeMap<LaunchKey, StoredInstance>,
}

impl Books {
    /// Ids of a group's machines that nobody told to end.
    pub fn alive(&self, group: &str) -> BTreeSet<String> {
        let of_group = self.machines.values().filter(|row| parts(&row.key).group.as_str() == group);
        of_group.filter(|row| row.stopping.is_none()).map(|row| row.provider_id.to_string()).collect()
    }

    /// How many machines were ever made for a group.
    pub fn made(&self, group: &str) -> usize {
        self.machines.keys().filter(|key| parts(key).group.as_str() == group).count()
    }

    /// Records for which more than one machine was made.
    pub fn bought_twice(&self) -> Vec<RecordId> {
        let mut seen = BTreeSet::new();
        self.machines.keys().map(|key| parts(key).record).filter(|record| !seen.insert(*record)).collect()
    }
}

fn parts(key: &LaunchKey) -> KeyParts {
    key.as_str().parse().expect("every key in the books is one of ours")
}
