//! The shipped binary over the fake library.
#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nvidia_ml::{SCENARIO_VARIABLE, Scenario};
use serde_json::Value;
use tempfile::TempDir;

/// However slow the machine, what is waited for comes within this.
const PATIENCE: Duration = Duration::from_mins(1);
/// The inode of the PID namespace that the kernel begins with.
const INITIAL: &str = "pid:[4026531836]";

/// A machine: a scenario and a proc file system, in a folder of its own.
pub(crate) struct Machine {
    folder: TempDir,
}

impl Machine {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self> {
        let machine = Self { folder: tempfile::tempdir()? };
        machine.set(scenario)?;
        machine.namespace(INITIAL)?;
        Ok(machine)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Another scenario from now on.
    pub(crate) fn set(&self, scenario: &Scenario) -> Result<()> {
        Ok(scenario.write(&self.path().join("scenario.json"))?)
    }

    /// The probe's PID namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<()> {
        let folder = self.path().join("proc/self/ns");
        std::fs::create_dir_all(&folder)?;
        let link = folder.join("pid");
        if link.is_symlink() {
            std::fs::remove_file(&link)?;
        }
        Ok(std::os::unix::fs::symlink(name, link)?)
    }

    /// A process of that cgroup.
    pub(crate) fn process(&self, pid: u32, name: &str, cgroup: &str) -> Result<()> {
        let folder = self.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("cgroup"), cgroup)?;
        Ok(std::fs::write(folder.join("comm"), format!("{name}\n"))?)
    }

    /// [`Self::bare`], which prints what it reads for programs.
    pub(crate) fn command(&self, library: Option<&Path>) -> Command {
        let mut command = self.bare(library);
        command.args(["--print", "json"]);
        command
    }

    /// The probe on this machine, by its own way to find the library unless one is given.
    pub(crate) fn bare(&self, library: Option<&Path>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoker-probe"));
        if let Some(library) = library {
            command.arg("--lib-path").arg(library);
        }
        command.args(["--node", "node-1", "--http", "127.0.0.1:0", "--cloud", "none", "--proc"]).arg(self.path().join("proc"));
        command.env(SCENARIO_VARIABLE, self.path().join("scenario.json")).env("RUST_LOG", "info");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The probe at a fast pace, with further flags.
    pub(crate) fn probe(&self, flags: &[&str]) -> Result<Probe> {
        let mut command = self.command(Some(&library()?));
        if !flags.contains(&"--period") {
            command.args(["--period", "0.1"]);
        }
        command.args(flags);
        Probe::start(command)
    }
}

pub(crate) fn library() -> Result<PathBuf> {
    nvidia_ml::library().context("the fake library is not built beside the test")
}

/// A running probe.
pub(crate) struct Probe {
    child: Child,
    lines: Receiver<Value>,
    /// Where its metrics are.
    pub(crate) http: String,
}

impl Probe {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.spawn().context("starting stoker-probe")?;
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().context("no stdout")?);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str(&line)
                    && send.send(value).is_err()
                {
                    return;
                }
            }
        });
        let mut log = BufReader::new(child.stderr.take().context("no stderr")?).lines();
        let mut http = None;
        for line in log.by_ref().map_while(Result::ok) {
            // Colours or not: the address is the last word of its field.
            if line.contains("the probe starts") {
                http = line
                    .rsplit("127.0.0.1:")
                    .next()
                    .map(|port| port.chars().take_while(char::is_ascii_digit).collect::<String>());
                break;
            }
        }
        std::thread::spawn(move || log.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        let port = http.context("the probe ended before it began")?;
        Ok(Self { child, lines, http: format!("127.0.0.1:{port}") })
    }

    /// The first line from now on that fits.
    pub(crate) fn until(&self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> Result<Value> {
        let end = Instant::now() + PATIENCE;
        let mut last = Value::Null;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if fits(&line) {
                return Ok(line);
            }
            last = line;
        }
        bail!("{what} never came; last was {last:#}")
    }

    /// The next round whose driver is in this state.
    pub(crate) fn state(&self, state: &str) -> Result<Value> {
        self.until(state, |line| line["driver"]["state"] == state)
    }

    /// The next event.
    pub(crate) fn event(&self, kind: &str) -> Result<Value> {
        self.until(kind, |line| !line[kind].is_null())
    }

    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.http)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Ends it as Kubernetes does; gives how long that took.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let from = Instant::now();
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "it ended with {status}");
        Ok(from.elapsed())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a signal of a GPU (or of an instance) is unknown; null where it is known.
pub(crate) fn why<'a>(of: &'a Value, signal: &str) -> &'a Value {
    &of["unknown"][signal]
}

/// The result of a gate.
pub(crate) fn gate<'a>(round: &'a Value, kind: &str) -> &'a str {
    let gates = round["gates"].as_array();
    gates.into_iter().flatten().find(|gate| gate["kind"] == kind).and_then(|gate| gate["result"].as_str()).unwrap_or_default()
}
