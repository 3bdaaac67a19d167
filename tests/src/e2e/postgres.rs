//! A real PostgreSQL on loopback, by `tests/peers/postgres.sh`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/postgres.sh");

/// The server. It ends when this is dropped.
pub struct Postgres {
    dir: PathBuf,
    /// Where it listens.
    pub port: u16,
}

impl Postgres {
    /// Starts one in `dir`.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        // Its user has to reach it.
        for folder in dir.ancestors().take_while(|folder| folder.starts_with(std::env::temp_dir())) {
            let _ = Command::new("chmod").arg("o+x").arg(folder).status().await;
        }
        call("postgres_start", dir, &[]).await?;
        let url = std::fs::read_to_string(dir.join("url"))?;
        let port = url.split([':', '/']).find_map(|part| part.parse().ok()).context("PostgreSQL has no port")?;
        Ok(Self { dir: dir.to_owned(), port })
    }

    /// Ends it as a crash does.
    pub async fn crash(&self) -> anyhow::Result<()> {
        call("postgres_stop", &self.dir, &[]).await.map(drop)
    }

    /// Starts it again, where it was.
    pub async fn start_again(&self) -> anyhow::Result<()> {
        call("postgres_start", &self.dir, &[&self.port.to_string()]).await.map(drop)
    }

    /// Runs statements in the database; what they answer.
    pub async fn sql(&self, statements: &str) -> anyhow::Result<String> {
        call("postgres_sql", &self.dir, &[statements]).await
    }
}

async fn call(function: &str, dir: &Path, more: &[&str]) -> anyhow::Result<String> {
    let mut bash = Command::new("bash");
    bash.args(["-c", "source \"$1\" && shift && \"$@\"", "bash", SCRIPT, function]).arg(dir).args(more);
    let output = bash.output().await?;
    ensure!(output.status.success(), "{function}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let stop = ["-c", "source \"$1\" && postgres_stop \"$2\"", "bash", SCRIPT];
        // What is left ends with the machine that the tests run on.
        let _ = std::process::Command::new("bash").args(stop).arg(&self.dir).status();
    }
}
