//! Arguments that several commands share.

use std::env;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};
use jiff::{SignedDuration, Timestamp};

use stoker_journal::{DatabaseUrl, DatabaseUrlError, Place};

use super::exit::CliError;
use super::out::Format;
use stoker_aws::config::{BadConfig, Config};
use stoker_aws::{Access, Aws};
use stoker_core::base::text::read_length;
use stoker_service::clock::Clock;
use stoker_service::price_tables::PriceTables;

/// How a report is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct OutputArg {
    /// Output format; json and yaml have stable fields, and money both in micro-dollars and as decimal text
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) format: Format,
}

/// What "now" is for a one-shot command.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct NowArg {
    /// Time that prices and ages are told by, for output that can be reproduced [default: the time it is]
    #[arg(long, env = "STOKER_NOW", value_name = "TIME", value_parser = moment)]
    now: Option<Timestamp>,
}

impl NowArg {
    /// The time.
    pub(super) fn now(self) -> Timestamp {
        self.now.unwrap_or_else(|| Clock::system().now())
    }
}

/// The files that a one-shot command weighs offers by.
#[derive(Debug, Clone, Args)]
pub(super) struct MarketArgs {
    /// World file: how the simulated markets behave and what spot costs there [default: the built-in world]
    #[arg(long, env = "STOKER_WORLD", value_name = "FILE")]
    pub world: Option<PathBuf>,
    /// Folder of price tables to use instead of the built-in ones
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    pub prices_dir: Option<PathBuf>,
}

/// An account that is asked.
#[derive(Debug, Clone, Args)]
pub(super) struct LiveArg {
    /// File aws.yaml of the supplier for EC2: its account is asked for prices, quotas and types sold, with your credentials
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
}

impl LiveArg {
    /// The tables with what the account tells, where one is asked. What it does not tell is said on standard error.
    pub(super) async fn ask(&self, tables: PriceTables) -> Result<PriceTables, CliError> {
        let Some(file) = &self.live else { return Ok(tables) };
        let config = aws_file("--live", file)?;
        let failed = |why: String| CliError::other(format!("--live: {why}"));
        let access = Access::of_system(Clock::system()).map_err(failed)?;
        let (facts, missing) = Box::pin(Aws::told(config, &tables.prices, access)).await.map_err(failed)?;
        for fault in missing {
            tracing::warn!("{fault}");
        }
        Ok(tables.with_asked(facts))
    }
}

/// The file for AWS that a flag names.
pub(super) fn aws_file(flag: &'static str, file: &Path) -> Result<Config, CliError> {
    Config::read(file).map_err(|error| match error {
        BadConfig::Read { path, source } => CliError::NoFile { flag, path, source },
        faults @ BadConfig::Faults(_) => faults.into(),
    })
}

/// Where the service keeps what must outlive it.
#[derive(Debug, Clone, Args)]
pub struct StateDirArg {
    /// Directory of the journal and the lock [default: stoker in the user's own, e.g. ~/.local/state/stoker]
    #[arg(long, env = "STOKER_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateDirArg {
    /// The directory as given, or the user's own.
    ///
    /// # Errors
    /// When what is given is a file, or none is given and the environment names no home.
    pub fn resolve(&self) -> Result<PathBuf, CliError> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let default = || absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local").join("state")));
        match &self.state_dir {
            Some(file) if file.is_file() => {
                Err(CliError::Usage(format!("{} is a file: give the state directory that it is in", file.display())))
            }
            Some(dir) => Ok(dir.clone()),
            None => default().map(|state| state.join("stoker")).ok_or_else(|| {
                CliError::Usage("no state directory: neither XDG_STATE_HOME nor HOME is set; give one with --state-dir".into())
            }),
        }
    }
}

/// Where the journal is.
#[derive(Debug, Clone, Args)]
pub struct JournalArg {
    #[command(flatten)]
    state: StateDirArg,
    /// `PostgreSQL` database of the journal, as `postgres://ROLE:PASSWORD@HOST/DATABASE` [default: SQLite in the state directory]
    #[arg(long, env = "STOKER_JOURNAL", value_name = "URL", hide_env_values = true)]
    journal: Option<String>,
}

impl JournalArg {
    /// Its place.
    ///
    /// # Errors
    /// When neither is given and the environment names no home.
    pub fn place(&self) -> Result<Place, CliError> {
        match self.database()? {
            Some(url) => Ok(Place::Database(url)),
            None => Ok(Place::Directory(self.state.resolve()?)),
        }
    }

    /// The place that a text names: a directory, or the address of a database. An empty one means that of the environment, or
    /// else the state directory.
    ///
    /// # Errors
    /// When the address of a database is none, or nothing is given and the environment names no home.
    pub(super) fn place_named(text: &str, state: &StateDirArg) -> Result<Place, CliError> {
        let (journal, dir) = match text {
            "" => (env::var("STOKER_JOURNAL").ok(), state.state_dir.clone()),
            url if url.contains("://") => (Some(url.to_owned()), None),
            dir => (None, Some(PathBuf::from(dir))),
        };
        Self { state: StateDirArg { state_dir: dir }, journal }.place()
    }

    /// Its place, where one is given.
    ///
    /// # Errors
    /// When the address of a database is none, or the state directory is a file.
    pub(super) fn given(&self) -> Result<Option<Place>, CliError> {
        match (self.database()?, &self.state.state_dir) {
            (Some(url), _) => Ok(Some(Place::Database(url))),
            (None, Some(_)) => self.state.resolve().map(|dir| Some(Place::Directory(dir))),
            (None, None) => Ok(None),
        }
    }

    /// The directory of the lock and of files.
    ///
    /// # Errors
    /// When none is given and the environment names no home.
    pub fn state_dir(&self) -> Result<PathBuf, CliError> {
        self.state.resolve()
    }

    /// Its database, where it has one.
    ///
    /// # Errors
    /// When the address is none. It is read here, and not where options are: what is wrong there is printed with its password.
    pub fn database(&self) -> Result<Option<DatabaseUrl>, CliError> {
        let url = self.journal.as_ref().map(|url| url.parse());
        url.transpose().map_err(|error: DatabaseUrlError| CliError::Usage(format!("--journal: {error}")))
    }
}

/// A moment as people write it.
fn moment(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "not a time: write --now, or the variable STOKER_NOW, like 2026-11-01T12:00:00Z".to_owned())
}

/// A moment that an option gives.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "not a time: write it like 2026-11-01T12:00:00Z".to_owned())
}

/// A whole number within bounds.
pub(super) fn whole<T>(bounds: impl RangeBounds<T> + Clone + Send + Sync + 'static) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    let wanted = match (bounds.start_bound(), bounds.end_bound()) {
        (Bound::Included(least), Bound::Included(most)) => format!("write a whole number from {least} to {most}"),
        (Bound::Included(least), _) => format!("write a whole number, {least} or more"),
        _ => "write a whole number".to_owned(),
    };
    StringValueParser::new().try_map(move |text| text.parse().ok().filter(|n| bounds.contains(n)).ok_or(wanted.clone()))
}

/// A length of time above zero.
pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    match read_length(text)? {
        SignedDuration::ZERO => Err("must be greater than zero: write it like 30d, 12h or 90m".to_owned()),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_count_days_of_24_hours() {
        assert_eq!(duration("30d"), Ok(SignedDuration::from_hours(30 * 24)));
        assert_eq!(duration("90m"), Ok(SignedDuration::from_mins(90)));
        for text in ["", "30", "-1d", "0s", "1mo", "a week"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
