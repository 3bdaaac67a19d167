//! `stoker backup`, `stoker restore` and `stoker journal copy`: a copy of the journal, and a journal made of one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::args::JournalArg;
use super::exit::{CliError, Exit};
use super::out;
use stoker_journal::state_lock::StateLock;
use stoker_journal::{DatabaseUrlError, Journal, JournalError, Place, Reader};
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
    journal: JournalArg,
}

/// Makes a backup the journal of a state directory, or a database, that has none.
///
/// For a journal that is lost or damaged: stop the service, move away what is left of journal.db,
/// or make an empty database, restore, and start the service. Machines that came since are found again in the suppliers'
/// inventories; orders of which no machine had come are forgotten, and the autoscaler asks again.
/// For the first ten minutes nothing is ended or drained but what the cloud takes.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// Backup to restore
    #[arg(value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    journal: JournalArg,
}

/// Carries `stoker backup` out.
pub(super) async fn backup(args: &BackupArgs) -> Result<Exit, CliError> {
    let reader = Journal::open_read_only(args.journal.place()?).await?;
    reader.backup(&args.to).await?;
    let copy = Reader::open_backup(&args.to).await?;
    out::write(&format!("{}: {}\n", args.to.display(), content(&copy).await?)).map(|()| Exit::Done)
}

/// Carries `stoker restore` out.
pub(super) async fn restore(args: &RestoreArgs) -> Result<Exit, CliError> {
    let place = args.journal.place()?;
    match &place {
        Place::Directory(dir) => {
            let lock = StateLock::take(dir).map_err(CliError::other)?;
            Journal::restore(&lock, &args.from).await?;
        }
        Place::Database(_) => Journal::restore_into(&place, &args.from).await?,
    }
    let journal = Journal::open_read_only(place).await?;
    let text = format!("{}: {}\n", journal.location(), content(&journal).await?);
    let next = "start the service; orders of which no machine had come are forgotten, and for its first 10 min nothing is ended or \
                drained but what the cloud takes";
    out::write(&(text + &paragraph("next:", next))).map(|()| Exit::Done)
}

/// Works on the journal itself.
#[derive(Debug, Args)]
pub(super) struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    Copy(CopyArgs),
}

/// Copies a journal and its readings to a place that has none: from SQLite to PostgreSQL, or back.
///
/// Stop the service first. The copy is the same journal: its launch keys go on where they were, so start the service on the copy, and
/// on the original no more.
#[derive(Debug, Args)]
struct CopyArgs {
    /// State directory, or `postgres://ROLE:PASSWORD@HOST/DATABASE`
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// The same, of a place that has no journal
    #[arg(long, value_name = "DIR|URL")]
    to: String,
}

/// Read here, and not where options are: what is wrong there is printed with its password.
fn place(text: &str) -> Result<Place, CliError> {
    if !text.contains("://") {
        return Ok(Place::from(Path::new(text)));
    }
    text.parse().map(Place::Database).map_err(|error: DatabaseUrlError| CliError::Usage(error.to_string()))
}

/// Carries `stoker journal` out.
pub(super) async fn journal(args: &JournalArgs) -> Result<Exit, CliError> {
    let JournalCommand::Copy(CopyArgs { from, to }) = &args.command;
    let (from, to) = (&place(from)?, &place(to)?);
    // Whoever runs on the journal is refused here, or from here on.
    let mut locks = Vec::new();
    for place in [from, to] {
        if let Place::Directory(dir) = place {
            locks.push(StateLock::take(dir).map_err(CliError::other)?);
        } else {
            Journal::ensure_alone(place).await?;
        }
    }
    // Looked at before it is opened for writing, which would make one.
    Journal::open_read_only(from.clone()).await?.close().await;
    let (source, _) = Box::pin(Journal::open(from.clone())).await?;
    let rows = Box::pin(source.reader().copy(to)).await;
    source.close().await;
    let rows = count(usize::try_from(rows?).unwrap_or(usize::MAX), "row");
    let copy = Journal::open_read_only(to.clone()).await?;
    let text = format!("{}: {rows}, {}\n", copy.location(), content(&copy).await?);
    let next = "start the service on the copy, and on the original no more: both have the same launch keys";
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
