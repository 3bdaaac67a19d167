//! The service as `stoker serve` runs it, on the small market of the tests and with failpoints armed by `STOKER_FAILPOINT`. It listens on
//! loopback ports that the system chooses, and says on which in one line on its standard output.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use stoker_service::clock::Clock;
use stoker_service::price_tables;
use stoker_service::serve::{Options, PolicySource};
use stoker_simulated::{WorldOptions, start};
use stoker_tests::market;

/// What it is started with.
#[derive(Debug, Parser)]
struct Args {
    /// The policy file.
    #[arg(long)]
    policy: PathBuf,
    /// How the simulated world behaves.
    #[arg(long)]
    world: PathBuf,
    /// Where the journal and the lock live.
    #[arg(long)]
    state_dir: PathBuf,
    /// Where the simulated machines are kept.
    #[arg(long)]
    world_file: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { policy, world, state_dir, world_file } = Args::parse();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let (clock, book) = (Clock::system(), market::book());
    let world = price_tables::world_config(Some(&world), &book, clock.now())?;
    let options = Options::loopback(clock, book, PolicySource::File(policy), state_dir);
    let running = start(options, WorldOptions { config: world, file: Some(world_file) }).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening provider={} expander={} http={}", running.provider, running.expander, running.http)
        .and_then(|()| out.flush())
        .context("telling where it listens")?;
    running.run_until(async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}
