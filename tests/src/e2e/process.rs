//! Processes that a test starts, and ends.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::{Child, Command};

/// How long a process may take to end when it is asked to.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A running process. It is killed where it is dropped.
pub struct Process {
    child: Child,
    /// Where its output goes.
    pub log: PathBuf,
}

impl Process {
    /// Starts `program`; its output is added to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>, log: &Path) -> anyhow::Result<Self> {
        let mut command = std::process::Command::new(program);
        command.args(args);
        Self::spawn(command, log)
    }

    /// Starts what `command` says; its output is added to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(command: std::process::Command, log: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let program = command.get_program().to_owned();
        let child = Command::from(command)
            // No peer is anywhere but on this machine.
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its number; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends it a signal, such as `STOP`.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let id = self.id().context("it has ended")?;
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().await?;
        ensure!(sent.success(), "signal {name} was not sent");
        Ok(())
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it with no warning, as a crash does.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill a process")
    }

    /// Asks it to end, and ends it if it does not.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if self.signal("TERM").await.is_ok() && tokio::time::timeout(STOP_WITHIN, self.child.wait()).await.is_ok() {
            return Ok(());
        }
        self.kill().await
    }
}
