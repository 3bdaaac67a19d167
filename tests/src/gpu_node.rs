//! A node's GPUs, which a file scripts, and the probe that reads them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use nvidia_ml::{SCENARIO_VARIABLE, Scenario};

/// The inode of the PID namespace that the kernel begins with: a probe in another would not trust its lists of processes.
const INITIAL: &str = "pid:[4026531836]";

/// Where a node's scenario is in its folder.
pub fn scenario(dir: &Path) -> PathBuf {
    dir.join("scenario.json")
}

/// The shipped probe `program` of a node, over a driver that answers `begin` until its [`scenario`] is written anew. It tells `provider`
/// what it reads every `period`, in whole seconds; what else it needs is up to the caller.
///
/// # Errors
/// When its folder cannot be filled, or the fake library is not built beside this program.
pub fn probe(
    program: &Path,
    dir: &Path,
    node: &str,
    provider: &str,
    period: Duration,
    begin: &Scenario,
) -> anyhow::Result<Command> {
    let proc = dir.join("proc");
    std::fs::create_dir_all(proc.join("self/ns"))?;
    let namespace = proc.join("self/ns/pid");
    if !namespace.is_symlink() {
        std::os::unix::fs::symlink(INITIAL, namespace)?;
    }
    begin.write(&scenario(dir))?;
    let library = nvidia_ml::library().context("the fake library is not built beside this program")?;
    let mut command = Command::new(program);
    command
        .args(["--node", node, "--provider", provider, "--period", &period.as_secs().to_string(), "--http", "127.0.0.1:0"])
        .args([Path::new("--proc"), &proc, Path::new("--lib-path"), &library])
        .env(SCENARIO_VARIABLE, scenario(dir))
        .env("NO_COLOR", "1");
    Ok(command)
}
