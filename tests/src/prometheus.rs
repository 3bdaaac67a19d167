//! A real Prometheus on a loopback port, and its `promtool`: Debian's package `prometheus` has both.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use prometheus_http_query::Client;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::e2e::process::Process;

/// Longer than it takes to open a store of some days on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_mins(1);

/// Where a program of the package is.
///
/// # Errors
/// When it is not on the PATH; says how to get it.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.with_context(|| {
        format!("{name} is not on the PATH, and this test is of it: apt-get install --no-install-recommends prometheus")
    })
}

/// Runs `promtool`; what it printed.
///
/// # Errors
/// When it is not there or says no, with what it printed.
pub async fn promtool(arguments: &[&str], dir: &Path) -> anyhow::Result<String> {
    let output = tokio::process::Command::new(program("promtool")?).args(arguments).current_dir(dir).output().await?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("promtool {}:\n{text}", arguments.join(" "));
    }
    Ok(text)
}

/// A running Prometheus; it ends when dropped.
pub struct Prometheus {
    /// Where it is.
    pub url: String,
    /// The way to it.
    pub client: Client,
    process: Process,
    dir: TempDir,
}

impl Prometheus {
    /// Starts one with that configuration in that directory, which may hold rule files and, in `data`, blocks of earlier samples.
    ///
    /// # Errors
    /// When it is not installed, or does not get ready; says what it logged.
    pub async fn start(dir: TempDir, config: &str) -> anyhow::Result<Self> {
        let (file, data, log) = (dir.path().join("prometheus.yml"), dir.path().join("data"), dir.path().join("log"));
        std::fs::write(&file, config)?;
        // It cannot tell which port it chose itself; between this and its own listening nobody else is likely to take it.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address={address}"),
        ];
        let process = Process::start(&program("prometheus")?, arguments, &log)?;
        let url = format!("http://{address}");
        let client: Client = url.parse().context("an address of loopback")?;
        let mut prometheus = Self { url, client, process, dir };
        let ready = async {
            while !prometheus.client.is_server_ready().await.unwrap_or(false) && prometheus.process.runs() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(STARTS_WITHIN, ready).await.is_err() || !prometheus.process.runs() {
            bail!("prometheus does not get ready:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        }
        Ok(prometheus)
    }

    /// How many series a query has now.
    ///
    /// # Errors
    /// When it cannot be parsed or evaluated.
    pub async fn series(&self, query: &str) -> anyhow::Result<usize> {
        let answer = self.client.query(query).post().await.with_context(|| query.to_owned())?;
        let data = answer.data();
        Ok(data.as_vector().map_or_else(|| usize::from(data.as_scalar().is_some()), Vec::len))
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(self) -> anyhow::Result<()> {
        let Self { process, dir, .. } = self;
        process.stop().await?;
        dir.close().context("its directory")
    }
}
