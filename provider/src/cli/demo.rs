//! `stoker demo`: a day of GPU pods in a few minutes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::args::whole;
use super::exit::{CliError, Exit};
use super::serve::told_to_stop;
use stoker_service::clock::Clock;
use stoker_service::feeds::policy_watch::PolicyError;
use stoker_service::files;
use stoker_service::policy_file;
use stoker_service::price_tables::{self, EXAMPLE, PriceTablesError};
use stoker_service::print::NotWritten;
use stoker_simulated::demo::{DemoOptions, LimitsBroken};

/// Plays a day of arriving and leaving GPU pods in three to four minutes, and ends with a bill.
///
/// It starts the provider on loopback with simulated markets and drives it over real gRPC with a model of the Cluster Autoscaler. It
/// needs nothing; only its journal stays, for `stoker explain` and `stoker simulate`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Random seed: the same seed plays the same day
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole(0_u64..), allow_negative_numbers = true)]
    seed: u64,
    /// How many hours of the day are played
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = whole(1..=24_u32), allow_negative_numbers = true)]
    hours: u32,
    /// Policy file [default: the built-in example]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// World file: how the simulated markets behave [default: the built-in world]
    #[arg(long, env = "STOKER_WORLD", value_name = "FILE")]
    world: Option<PathBuf>,
    /// Folder of price tables to use instead of the built-in ones
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    /// Where the journal stays: a directory that is not there yet, or empty [default: a new one in the temporary directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Carries the command out.
pub(super) async fn run(args: DemoArgs) -> Result<Exit, CliError> {
    let DemoArgs { seed, hours, policy, world, prices_dir, state_dir } = args;
    let files = [("--world", &world), ("--prices-dir", &prices_dir)];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.clone()?))).collect();
    let now = Clock::system().now();
    let book = Arc::new(price_tables::prices(prices_dir.as_deref(), now)?);
    let world = price_tables::world_config(world.as_deref(), &book, now)?;
    let policy = match policy {
        Some(path) => (files::shown(&path), price_tables::policy_text(&path).map_err(PriceTablesError::from)?),
        None => (EXAMPLE.to_owned(), policy_file::example().to_owned()),
    };
    // Read here too, so that its faults are told as those of any other command.
    let (name, text) = &policy;
    policy_file::parse(name, text, Some(&book)).map_err(PolicyError::Faults).map_err(PriceTablesError::from)?;
    let (state_dir, ours) = if let Some(dir) = state_dir {
        (unused(&dir)?, false)
    } else {
        let cure = "no directory could be made in the temporary one; give one with --state-dir";
        (fresh().map_err(CliError::failed(cure))?, true)
    };
    let options = DemoOptions { seed, hours, policy, world, book, files, state_dir: state_dir.clone() };
    let played = Box::pin(stoker_simulated::demo::run(options, told_to_stop())).await;
    // Nobody was told of it, unless the day was played to its end.
    if ours && played.as_ref().is_err_and(|error| !error.is::<LimitsBroken>()) {
        let _ = fs::remove_dir_all(state_dir);
    }
    match played {
        Err(error) if error.downcast_ref::<NotWritten>().is_some_and(NotWritten::is_enough) => Ok(Exit::Done),
        played => played.map(|()| Exit::Done).map_err(CliError::other),
    }
}

/// A day begins with nothing remembered, and nobody's journal is overwritten.
fn unused(dir: &Path) -> Result<PathBuf, CliError> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(false) => Err(CliError::Usage(format!("{}: is not empty; the demo needs a new or empty directory", dir.display()))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::failed(format!("{}: cannot be read", dir.display()))(error))
        }
        Ok(true) | Err(_) => Ok(dir.to_owned()),
    }
}

/// A directory that nobody had before.
fn fresh() -> io::Result<PathBuf> {
    let mut attempt = 0_u32;
    loop {
        let dir = std::env::temp_dir().join(format!("stoker-demo-{}-{attempt}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}
