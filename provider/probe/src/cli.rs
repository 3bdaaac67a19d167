//! The binary's flags, and what it does with them.

use std::io::{IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgGroup, Args as _, CommandFactory as _, FromArgMatches as _, Id};
use futures::FutureExt as _;
use stoker_proto::probe::{Event, Round};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::gate::Expected;
use crate::metrics::{Metrics, Page};
use crate::notice::{self, Cloud, Elsewhere};
use crate::once;
use crate::outbox::{Confirm, Outbox};
use crate::print;
use crate::processes::Proc;
use crate::sample::Settings;
use crate::stream::{self, Status, StreamArgs};
use crate::watch::{Sink, Watch};

/// Reads a node's GPUs by NVML and reports to the provider; it never judges
#[derive(Debug, clap::Parser)]
#[command(name = "stoker-probe", version)]
pub struct Cli {
    /// Name of the node, as Kubernetes has it
    #[arg(long, env = "NODE_NAME", default_value = "")]
    node: String,
    /// Seconds between two rounds, with a provider at most 60; slower signals are read in every third or twelfth
    #[arg(long, default_value = "5", value_parser = seconds, value_name = "SECONDS")]
    period: Duration,
    /// NVML's library, where the loader does not find libnvidia-ml.so.1
    #[arg(long, env = "STOKER_NVML", value_name = "FILE")]
    lib_path: Option<PathBuf>,
    /// Address of /metrics and /healthz
    #[arg(long, default_value = "127.0.0.1:9411", value_name = "ADDRESS")]
    http: SocketAddr,
    /// Cloud whose interruption notices to follow
    #[arg(long, value_enum, default_value = "auto")]
    cloud: Cloud,
    /// Metadata service to ask instead of the cloud's own, for tests
    #[arg(long, value_name = "URL", hide = true)]
    metadata_url: Option<String>,
    /// The proc file system, where it is mounted elsewhere
    #[arg(long, default_value = "/proc", value_name = "FOLDER", hide = true)]
    proc: PathBuf,
    #[command(flatten)]
    expected: Expected,
    #[command(flatten)]
    stream: StreamArgs,
    /// Print one round and end: with 1 where the driver is not READY (HUNG after 5 s without an answer), a gate FAILED, or nothing can be printed
    ///
    /// Reports to no provider. XIDs are reported as they happen: earlier ones are not shown.
    #[arg(long)]
    once: bool,
    /// Print each round and event as it comes
    #[arg(long, value_enum)]
    print: Option<Format>,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For the eye.
    Text,
    /// A line each.
    Json,
}

/// From a tenth of a second, which only tests want, to an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.1 and 3600".to_owned())
    }
}

/// Where everything goes that the probe learns.
#[derive(Clone)]
struct Outputs {
    outbox: Outbox,
    metrics: Metrics,
    print: Option<Format>,
}

impl Sink for Outputs {
    fn round(&self, round: Round) {
        self.metrics.round(&round);
        if let Some(format) = self.print {
            print_round(&round, format);
        }
        self.outbox.round(round);
    }

    fn event(&self, event: Event) {
        self.metrics.event(&event);
        if self.print.is_some() {
            say(&format!("{}\n", print::event(&event)));
        }
        self.outbox.event(event);
    }
}

fn print_round(round: &Round, format: Format) {
    match format {
        Format::Text => say(&print::text(round)),
        Format::Json => say(&format!("{}\n", print::round(round))),
    }
}

/// A reader that has gone is no reason to stop telling the provider.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The whole process, by its command line.
pub fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A reader of the log that has gone costs its lines, and not the probe.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // One thread does: what takes time is NVML, which has its own.
    let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(cli.run());
            // A call to NVML may hang; the process ends all the same.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            // Nobody may read it.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    /// What the command line says; ends the process where that makes no sense.
    fn from_command_line() -> Self {
        let mut command = Self::command();
        let matches = command.get_matches_mut();
        let told = |flag: &&Id| matches.value_source(flag.as_str()) == Some(ValueSource::CommandLine);
        let cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
        // By hand: clap would refuse the environment's as well, which a pod's shell has from the probe that runs there.
        let stream = StreamArgs::group_id().and_then(|group| command.get_groups().find(|is| *is.get_id() == group));
        let flag = stream.into_iter().flat_map(ArgGroup::get_args).find(told);
        if let Some(name) = flag.filter(|_| cli.once).map(|flag| flag.as_str().replace('_', "-")) {
            let why = format!("--once prints to standard output only: omit --{name}, or --once");
            command.error(ErrorKind::ArgumentConflict, why).exit();
        }
        cli
    }

    /// Runs until told to stop by SIGTERM or SIGINT.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = Settings {
            library: self.lib_path.clone(),
            proc: Proc::at(&self.proc),
            expected: self.expected.clone(),
            period: self.period,
        };
        let (watch, tidings) = Watch::start(settings).context("starting the sampling thread")?;
        if self.once {
            return once::run(watch, tidings, self.print.unwrap_or(Format::Text)).await;
        }
        if self.node.is_empty() {
            tracing::warn!("the node's name is unknown, so metrics carry none; give --node or NODE_NAME");
        }

        let provider = self.stream.settings(&self.node, self.period)?;
        let stop = CancellationToken::new();
        let (outbox, status) = (Outbox::new(), Status::default());
        let more = provider.is_some().then(|| {
            let (outbox, status) = (outbox.clone(), status.clone());
            Arc::new(move |page: &mut Page| stream::metrics(page, &status, outbox.fill())) as _
        });
        let metrics = Metrics::new(&self.node, self.period, more);
        let (ask, confirms) = mpsc::channel::<Confirm>(CONFIRMS);
        let streaming = match provider {
            Some(settings) => tokio::spawn(stream::run(settings, outbox.clone(), ask, status, stop.clone())),
            // Without a provider nobody asks, and what was left for it goes with the oldest.
            None => tokio::spawn(stop.clone().cancelled_owned().map(move |()| drop(ask))),
        };
        let outputs = Outputs { outbox, metrics: metrics.clone(), print: self.print };

        let listener = TcpListener::bind(self.http).await.with_context(|| format!("listening on {}", self.http))?;
        tracing::info!(node = self.node, http = %listener.local_addr().context("the address listened on")?, "the probe starts");
        let mut serving = tokio::spawn(metrics.serve(listener, stop.clone()));
        let cloud = self.cloud.settled(Path::new("/sys"));
        let elsewhere = Elsewhere { base: self.metadata_url.clone(), period: None };
        let told = outputs.clone();
        let following = tokio::spawn(notice::follow(cloud, elsewhere, move |event| told.event(event), stop.clone()));
        let mut watching = tokio::spawn(watch.run(outputs, tidings, confirms, stop.clone()));

        tokio::select! {
            signal = signalled() => signal.context("waiting for a signal")?,
            // Neither ends unasked but by a fault, and without it nobody is told anything.
            ended = &mut watching => bail!("sampling ended: {ended:?}"),
            ended = &mut serving => bail!("serving metrics ended: {ended:?}"),
        }
        stop.cancel();
        following.await.context("following the cloud's notices")?;
        watching.await.context("sampling")?;
        streaming.await.context("reporting to the provider")?;
        // A scrape in progress does not hold the end up; nor does a call to NVML that hangs.
        serving.abort();
        Ok(ExitCode::SUCCESS)
    }
}

/// One provider asks one question at a time.
const CONFIRMS: usize = 4;

async fn signalled() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
