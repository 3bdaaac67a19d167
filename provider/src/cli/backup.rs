//! `stoker backup` and `stoker restore`: a copy of the journal, and a journal made of one.

use std::path::PathBuf;

use clap::Args;

use super::args::StateDirArg;
use super::exit::{CliError, Exit};
use super::out;
use stoker_journal::state_lock::StateLock;
use stoker_journal::{Journal, JournalError, Reader};
use stoker_service::print::{count, paragraph};

/// Copies the journal into a file, while the service runs.
///
/// The copy is whole, as of one moment, and nothing waits for it. Readings of GPUs are not in it:
/// they inform people only.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// File to write; it must not exist
    #[arg(value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    state: StateDirArg,
}

/// Makes a backup the journal of a state directory that has none.
///
/// For a journal that is lost or damaged: stop the service, move away what is left of journal.db,
/// restore, and start the service. Machines that came since are found again in the suppliers'
/// inventories; orders of which no machine had come are forgotten, and the autoscaler asks again.
/// For the first ten minutes nothing is ended or drained but what the cloud takes.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// Backup to restore
    #[arg(value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    state: StateDirArg,
}

/// Carries `stoker backup` out.
pub(super) async fn backup(args: &BackupArgs) -> Result<Exit, CliError> {
    let reader = Journal::open_read_only(&args.state.resolve()?).await?;
    reader.backup(&args.to).await?;
    let copy = Reader::open_backup(&args.to).await?;
    out::write(&format!("{}: {}\n", args.to.display(), content(&copy).await?)).map(|()| Exit::Done)
}

/// Carries `stoker restore` out.
pub(super) async fn restore(args: &RestoreArgs) -> Result<Exit, CliError> {
    let dir = args.state.resolve()?;
    let lock = StateLock::take(&dir).map_err(CliError::other)?;
    Journal::restore(&lock, &args.from).await?;
    let journal = Journal::open_read_only(&dir).await?;
    let text = format!("{}: {}\n", dir.join("journal.db").display(), content(&journal).await?);
    let next = "start the service; orders of which no machine had come are forgotten, and for its first 10 min nothing is ended or \
                drained but what the cloud takes";
    out::write(&(text + &paragraph("next:", next))).map(|()| Exit::Done)
}

/// What a journal holds, in a line.
async fn content(journal: &Reader) -> Result<String, JournalError> {
    let memory = journal.memory().await?;
    let machines = memory.records.values().filter(|record| record.instance().is_some()).count();
    let machines = count(machines, "machine");
    let last = journal.recent(1).await?;
    Ok(match last.first() {
        Some(last) => format!("{machines}, last decision {} of {}", last.id, last.at.strftime("%Y-%m-%d %H:%M:%SZ")),
        None => format!("{machines}, no decision"),
    })
}
