//! A node of the fleet: its driver, which is scripted, and the probe that is shipped, as a process of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use nvidia_ml::scenario::{Codec, Memory, Xid};
use nvidia_ml::{Gpu, Level, Scenario};
use serde_json::Value;
use stoker_tests::gpu_node;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Idle,
    Busy,
    /// Two MIG instances, of which one works.
    Split,
    /// Works, as its multiprocessors tell and nothing else does.
    Hopper,
    /// Decodes and does nothing else.
    Decodes,
    /// Idle, and a row of its memory waits for a reset.
    Ailing,
    /// Its driver comes to hang.
    Hangs,
    /// The second of its GPUs comes to be lost.
    Loses,
    /// Comes to give XID 79.
    Falls,
}

impl Fate {
    /// Of the node of that number: one of each, and the others half idle and half busy.
    pub(crate) const fn of(number: u32) -> Self {
        match number {
            0 => Self::Hangs,
            1 => Self::Loses,
            2 => Self::Falls,
            3 => Self::Split,
            4 => Self::Hopper,
            5 => Self::Ailing,
            6 => Self::Decodes,
            even if even.is_multiple_of(2) => Self::Idle,
            _ => Self::Busy,
        }
    }

    pub(crate) const fn is_held(self) -> bool {
        matches!(self, Self::Busy | Self::Split | Self::Hopper | Self::Decodes)
    }
}

/// A node and its probe, which ends when dropped.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) fate: Fate,
    number: u32,
    dir: TempDir,
    probe: Child,
}

impl Node {
    /// Starts its probe while all is still well; `provider` is where it tells what it reads each `period`.
    pub(crate) fn start(name: &str, number: u32, provider: &str, period: Duration) -> anyhow::Result<Self> {
        let dir = TempDir::new()?;
        let path = |name: &str| dir.path().join(name);
        let fate = Fate::of(number);
        let program = Path::new(env!("CARGO_BIN_EXE_shipped-probe"));
        let command = gpu_node::probe(program, dir.path(), name, provider, period, &scenario(fate, number))?;
        let probe = Command::from(command)
            .args(["--cloud", "none", "--print", "json"])
            .stdin(Stdio::null())
            .stdout(File::create(path("rounds"))?)
            .stderr(File::create(path("log"))?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { name: name.to_owned(), fate, number, dir, probe })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The UUID of one of its GPUs.
    pub(crate) fn gpu(&self, of: u32) -> String {
        Gpu::a100(2 * self.number + of).uuid
    }

    /// Its driver from now on gives these XIDs, each once, and where `late` also does what it comes to.
    pub(crate) fn script(&self, late: bool, xids: &[u64]) -> anyhow::Result<()> {
        let mut scenario = scenario(self.fate, self.number);
        scenario.xids = xids.iter().map(|code| Xid::on(0, *code)).collect();
        match self.fate {
            Fate::Hangs if late => scenario.hangs = [("nvmlDeviceGetMemoryInfo_v2".to_owned(), 600_000)].into(),
            Fate::Loses if late => scenario.gpus.iter_mut().skip(1).for_each(|gpu| gpu.lost = true),
            // The library knows those that it gave by their places.
            Fate::Falls if late => scenario.xids.insert(scenario.xids.len().min(1), Xid::on(0, 79)),
            _ => {}
        }
        Ok(scenario.write(&gpu_node::scenario(self.dir.path()))?)
    }

    /// When the rounds that the probe has made so far were read.
    pub(crate) fn rounds(&self) -> anyhow::Result<BTreeSet<Timestamp>> {
        let text = std::fs::read_to_string(self.path("rounds"))?;
        // The last line may not be whole yet.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let at = lines.filter(|line| line["driver"].is_object()).map(|round| round["at"].as_str().map(str::parse));
        Ok(at.flatten().collect::<Result<_, _>>()?)
    }

    /// Where its metrics are, once they are.
    pub(crate) fn metrics(&self) -> Option<String> {
        let log = self.log();
        let begun = log.lines().find(|line| line.contains("the probe starts"))?;
        begun.split(' ').find_map(|word| word.strip_prefix("http=")).map(str::to_owned)
    }

    /// A number of its own metrics.
    pub(crate) fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let addr = self.metrics().context("no metrics yet")?;
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {series} in {page}"))?.parse()?)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Whether its probe runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.probe.try_wait(), Ok(None))
    }
}

/// Its GPUs while all is well.
fn scenario(fate: Fate, number: u32) -> Scenario {
    let (first, second) = (2 * number, 2 * number + 1);
    let idle = Gpu::a100(first);
    let gpus = match fate {
        Fate::Idle | Fate::Hangs | Fate::Falls => vec![idle],
        Fate::Loses => vec![idle, Gpu::a100(second)],
        Fate::Busy => vec![Gpu { utilization: Some(Level::Steady(80.0)), memory: filled(idle.memory), ..idle }],
        Fate::Decodes => vec![Gpu { codec: Some(Codec { encoder: 0, decoder: 30 }), ..idle }],
        Fate::Ailing => {
            let mut gpu = idle;
            // A row waits to be replaced.
            gpu.fields.insert(144, 1);
            vec![gpu]
        }
        Fate::Hopper => {
            let mut gpu = Gpu::h100(first);
            gpu.gpm.get_or_insert_default().sm = Level::Steady(40.0);
            vec![gpu]
        }
        Fate::Split => {
            let mut gpu = Gpu::h100(first).split(2);
            let devices = gpu.mig.iter_mut().flat_map(|mig| &mut mig.devices);
            devices.take(1).for_each(|device| device.memory = filled(device.memory.take()));
            vec![gpu]
        }
    };
    Scenario::of(gpus)
}

/// Three quarters of it in use.
fn filled(memory: Option<Memory>) -> Option<Memory> {
    #[expect(clippy::cast_precision_loss, reason = "a power of two's multiple, far below 2^53")]
    memory.map(|memory| Memory { used: Level::Steady((memory.total / 4 * 3) as f64), ..memory })
}
