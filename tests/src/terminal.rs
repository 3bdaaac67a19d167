//! A program in a real terminal, which tmux keeps (Debian's `tmux`): its screen can be read, and keys typed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// A terminal with one program. It ends with the value.
#[derive(Debug)]
pub struct Terminal {
    /// Holds the socket of a tmux of its own.
    dir: TempDir,
    /// The program's process.
    pub pid: u32,
}

impl Terminal {
    /// Starts a program in a terminal of that many columns and lines.
    ///
    /// # Errors
    /// Where there is no tmux, or it does not start.
    pub fn run(program: &Path, arguments: &[&str], (columns, lines): (u16, u16)) -> Result<Self> {
        let dir = TempDir::new()?;
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let program = program.to_str().context("a path in UTF-8")?;
        let mut words = vec!["-f", "/dev/null", "-u", "new-session", "-d", "-x", &columns, "-y", &lines, "--", program];
        words.extend(arguments);
        tmux(&socket(&dir), &words)?;
        // What the program printed stays to be read when it has ended.
        tmux(&socket(&dir), &["set-option", "-g", "remain-on-exit", "on"])?;
        let pid = tmux(&socket(&dir), &["display-message", "-p", "#{pane_pid}"])?.trim().parse()?;
        Ok(Self { dir, pid })
    }

    /// What it shows.
    ///
    /// # Errors
    /// Where tmux is gone.
    pub fn screen(&self) -> Result<String> {
        tmux(&socket(&self.dir), &["capture-pane", "-p"])
    }

    /// Types a key by its name for tmux, such as `Enter` or `q`.
    ///
    /// # Errors
    /// Where tmux is gone.
    pub fn press(&self, key: &str) -> Result<()> {
        tmux(&socket(&self.dir), &["send-keys", key]).map(drop)
    }

    /// Waits until the screen is as wanted; what it shows then.
    ///
    /// # Errors
    /// With the screen, where it is not within that time.
    pub fn shows(&self, wanted: impl Fn(&str) -> bool, within: Duration) -> Result<String> {
        let begun = Instant::now();
        loop {
            let screen = self.screen()?;
            if wanted(&screen) {
                return Ok(screen);
            }
            if begun.elapsed() > within {
                bail!("not what is wanted within {} s:\n{screen}", within.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the program has ended. tmux is not asked: now and then it misses the end.
    pub fn ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tmux(&socket(&self.dir), &["kill-server"]);
    }
}

fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("tmux")
}

fn tmux(socket: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new("tmux").arg("-S").arg(socket).args(words).output().context("tmux (Debian's `tmux`)")?;
    ensure!(output.status.success(), "tmux {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
