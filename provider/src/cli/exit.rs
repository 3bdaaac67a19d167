//! How a command ends: the exit codes, and what standard error says.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use stoker_aws::config::BadConfig;
use stoker_journal::JournalError;
use stoker_service::api::console::NoAccess;
use stoker_service::boot::BadTemplate;
use stoker_service::certs::CertsError;
use stoker_service::feeds::policy_watch::PolicyError;
use stoker_service::price_tables::PriceTablesError;
use stoker_service::serve::ServeError;
use stoker_simulated::StartError;
use stoker_simulated::supplier::WorldError;

use super::report::BillFaults;

/// How a command that could be carried out ended. Scripts may rely on these numbers; 2 is clap's, for a command line that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Done = 0,
    /// Something failed that is no fault of the command line or the files.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A policy, world, price, AWS, workload or certificate file or a bill has faults, or an autoscaler's flags have.
    BadFile = 3,
    /// Not all of what was asked can be bought, nothing holds it, or too little is known to advise or to replay.
    Short = 4,
    /// There is nothing of that name.
    NotFound = 5,
    /// A decision that was replayed differs from what was recorded.
    Differs = 6,
}

/// What `--help` says of the exit codes and the environment.
pub(super) const AFTER_HELP: &str = "Exit codes:
  0  done
  1  failed: something could not be read, written or reached
  2  the command line is wrong
  3  a policy, world, price, AWS, workload or certificate file or a bill cannot be read or has errors; a flag of the autoscaler must change (doctor)
  4  not all of it can be bought (plan), no GPU is large enough (fit), too little use is known (commit, advise, report), not all could be asked (commit --from-aws), or a decision was recorded without what a replay needs (replay)
  5  nothing of that name (a pool, group, decision, node, GPU model, ...)
  6  a decision differs from what was recorded (replay)

Options can be set by environment variables too, as their help says. STOKER_NOW=2026-11-01T12:00:00Z fixes the time of plan, simulate, offers, fit, commit, report, nodes, advise and policy check, for output that can be reproduced.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file that it stands on does not hold.
    #[error(transparent)]
    PriceTables(#[from] PriceTablesError),
    /// The manifest that was to be checked holds no policy.
    #[error("{0}: is a ConfigMap that holds no policy: write it as text under data, like `policy.yaml: |`")]
    NoPolicy(String),
    /// There is nothing of that name.
    #[error("{0}")]
    NotFound(NotFound),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The service could not start.
    #[error(transparent)]
    Serve(StartError),
    /// What a plugin's machines boot with cannot be used.
    #[error(transparent)]
    BootTemplate(#[from] BadTemplate),
    /// The file for AWS cannot be used.
    #[error(transparent)]
    AwsFile(#[from] BadConfig),
    /// The file that a flag names cannot be read.
    #[error("{flag} {}: cannot be read", path.display())]
    NoFile {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The pods of a file cannot be played.
    #[error(transparent)]
    Workload(#[from] stoker_sim::demand::file::Faults),
    /// A cloud's bill cannot be compared.
    #[error(transparent)]
    Bill(BillFaults),
    /// There are no certificates.
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// The command line asks for what makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It could not be done; `doing` says what.
    #[error("{doing}")]
    Failed {
        /// What was being done, and the cure where one is known.
        doing: String,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A part of the program failed and says all about it.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

/// Something that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// What kind of thing.
    pub what: &'static str,
    /// What was asked for; empty where it has no name.
    pub name: String,
    /// Where it was looked for.
    pub place: String,
    /// What to do about it.
    pub cure: Option<String>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, place, cure } = self;
        match name.as_str() {
            "" => write!(f, "no {what} in {place}")?,
            name => write!(f, "no {what} {} in {place}", stoker_core::base::text::quoted(name))?,
        }
        match cure {
            Some(cure) => write!(f, ": {cure}"),
            None => Ok(()),
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Serve(ServeError::Policy(error)) => Self::PriceTables(error.into()),
            other => Self::Serve(other),
        }
    }
}

impl CliError {
    /// The threads that do the work could not be started.
    pub fn runtime(error: io::Error) -> Self {
        Self::failed("the worker threads could not be started")(error)
    }

    /// A failure of a part that says all about it.
    pub(super) fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// A failure to do something.
    pub(super) fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Failed { doing: doing.into(), source: source.into() }
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::PriceTables(_)
            | Self::NoPolicy(_)
            | Self::BootTemplate(_)
            | Self::AwsFile(_)
            | Self::NoFile { .. }
            | Self::Workload(_)
            | Self::Bill(_)
            | Self::Serve(
                StartError::Serve(ServeError::Tls(_) | ServeError::Console(NoAccess::Read(..) | NoAccess::Weak(_)))
                | StartError::World(WorldError::Config(_)),
            ) => Exit::BadFile,
            Self::NotFound(_) | Self::Journal(JournalError::Missing { .. }) => Exit::NotFound,
            Self::Usage(_)
            | Self::Serve(
                StartError::Serve(
                    ServeError::Plaintext(_) | ServeError::ProbePlaintext(_) | ServeError::Console(NoAccess::Open(_)),
                )
                | StartError::SimulatedInCluster,
            )
            | Self::Certs(CertsError::Name { .. } | CertsError::Address { .. } | CertsError::Unnamed { .. }) => Exit::Usage,
            Self::Journal(_) | Self::Serve(_) | Self::Certs(_) | Self::Failed { .. } | Self::Other(_) => Exit::Failed,
        }
    }
}

/// Whether the message is a list of faults, one a line, each with its place.
fn is_list(error: &CliError) -> bool {
    match error {
        CliError::PriceTables(error) => {
            matches!(
                error,
                PriceTablesError::Tables(_) | PriceTablesError::World(_) | PriceTablesError::Policy(PolicyError::Faults(_))
            )
        }
        CliError::Workload(_) | CliError::Bill(_) => true,
        CliError::AwsFile(error) => matches!(error, BadConfig::Faults(_)),
        _ => false,
    }
}

/// Says on standard error why a command failed, cause by cause. A standard error that is closed is nobody's fault.
pub(super) fn report(error: &CliError) {
    let mut text = if is_list(error) {
        // Each line begins with its place, so that editors and terminals find it.
        format!("{error}\nerror: the file has errors; nothing was done\n")
    } else {
        format!("error: {error}\n")
    };
    let causes = std::iter::successors(Error::source(error), |cause| (*cause).source());
    for cause in causes {
        let _ = writeln!(text, "  because: {cause}");
    }
    let _ = io::stderr().write_all(text.as_bytes());
}
