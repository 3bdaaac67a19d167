//! Why the journal could not be opened, written or read.

use std::io;
use std::path::PathBuf;

use stoker_core::base::ids::DecisionId;

use crate::place::Location;

/// Why the journal could not be opened, written or read. What failed left nothing half done.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The state directory is not there and cannot be made.
    #[error("journal {}: its directory could not be created; give one that this user may write to", path.display())]
    Directory {
        /// The journal's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no journal to read.
    #[error("journal {at}: is not there, or holds nothing; give the state directory or the database of a Stoker that has run")]
    Missing {
        /// The journal.
        at: Location,
    },
    /// A newer release wrote it.
    #[error(
        "journal {at}: was written by a newer release: its schema is {found}, this release knows up to {ours}; nothing was \
         changed: start that release, or {} to start afresh (machines are then found again in the suppliers' inventories)",
        at.start_afresh()
    )]
    Newer {
        /// The journal.
        at: Location,
        /// Its schema.
        found: i64,
        /// The newest schema that this release knows.
        ours: i64,
    },
    /// An older release wrote it, and it is only to be read.
    #[error(
        "journal {at}: was written by an older release: its schema is {found}, this release reads {ours}; read it with the release that \
         serves it, or start this one on it once"
    )]
    Older {
        /// The journal.
        at: Location,
        /// Its schema.
        found: i64,
        /// The schema that this release reads.
        ours: i64,
    },
    /// It is a database, but of something else.
    #[error("journal {at}: is another program's database; nothing was changed: give {}", at.another())]
    Foreign {
        /// The journal.
        at: Location,
    },
    /// It is damaged, or no database at all.
    #[error(
        "journal {at}: is damaged; nothing was changed: restore a backup of it (stoker restore), or {} to start afresh (machines are then \
         found again in the suppliers' inventories)",
        at.start_afresh()
    )]
    Corrupt {
        /// The journal.
        at: Location,
        /// What is wrong with it.
        source: StoreError,
    },
    /// It is no regular file.
    #[error("journal {}: {} is a pipe, a device or a directory; move it away, or give another state directory",
            path.display(), found.display())]
    NotAFile {
        /// The journal's file.
        path: PathBuf,
        /// The file or its companion that is none.
        found: PathBuf,
    },
    /// It could not be opened.
    #[error("journal {at}: could not be opened; {}", at.check_access())]
    Open {
        /// The journal.
        at: Location,
        /// What the database said.
        source: sqlx::Error,
    },
    /// It could not be brought to this release's schema.
    #[error("journal {at}: could not be brought to schema {ours}; start the release that wrote it, or {}", at.check_disk())]
    Migrate {
        /// The journal.
        at: Location,
        /// The schema wanted.
        ours: i64,
        /// What the database said.
        source: Box<sqlx::migrate::MigrateError>,
    },
    /// It could not be written.
    #[error("journal {at}: could not be written; {}", at.check_disk())]
    Write {
        /// The journal.
        at: Location,
        /// What went wrong.
        source: StoreError,
    },
    /// The disk is full.
    #[error("journal {at}: the disk is full; free space on it, or give {} a larger volume", at.volume_of())]
    Full {
        /// The journal.
        at: Location,
        /// What went wrong.
        source: StoreError,
    },
    /// Its file was removed or replaced while it was open.
    #[error(
        "journal {}: was removed or replaced while the service runs, so nothing written would be kept; put it back, or restart the \
         service, which then starts afresh",
        path.display()
    )]
    Gone {
        /// The journal's file.
        path: PathBuf,
    },
    /// There is a file where one is to be made.
    #[error("{}: is there already, and is not replaced; move it away, or name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is a journal where one is to be made.
    #[error("journal {at}: holds a journal already, which is not replaced; give {}", at.another())]
    NotEmpty {
        /// The journal.
        at: Location,
    },
    /// What is given as a backup cannot be used as one.
    #[error("backup {at}: {why}")]
    BadBackup {
        /// The backup.
        at: Location,
        /// What is wrong, and the cure.
        why: &'static str,
        /// What was found, where that says more.
        source: Option<StoreError>,
    },
    /// A backup could not be made.
    #[error("backup {}: could not be written; check that the disk has room, and that this user may write there", path.display())]
    Backup {
        /// The backup's file.
        path: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A backup could not be copied into the state directory.
    #[error("journal {}: the backup could not be copied there; check that the disk has room, and that this user may write there",
            path.display())]
    Restore {
        /// The journal's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be read.
    #[error("journal {at}: could not be read")]
    Read {
        /// The journal.
        at: Location,
        /// What went wrong.
        source: StoreError,
    },
    /// A decision's number was used before.
    #[error("journal {at}: decision {got} was to be written, but the next is {next}")]
    OutOfOrder {
        /// The journal.
        at: Location,
        /// The number given.
        got: DecisionId,
        /// The least that is free.
        next: DecisionId,
    },
    /// The server is older than what Stoker is tested on.
    #[error("journal {at}: PostgreSQL {found} is too old; use release {least} or newer")]
    OldServer {
        /// The journal.
        at: Location,
        /// The server's release.
        found: u32,
        /// The oldest that will do.
        least: u32,
    },
    /// The role may not do what a journal needs.
    #[error(
        "journal {at}: its role may not do that; make the role owner of the database, or grant it CREATE and USAGE on the schema and all \
         rights on its tables"
    )]
    Denied {
        /// The journal.
        at: Location,
        /// What PostgreSQL said.
        source: StoreError,
    },
    /// The server takes no writes.
    #[error("journal {at}: PostgreSQL is read-only there, as a standby is; give the address of the primary")]
    ReadOnly {
        /// The journal.
        at: Location,
    },
    /// Another Stoker has it open.
    #[error(
        "journal {at}: in use by another Stoker; two that know nothing of each other would buy every node twice: stop that one, or \
         give both --lease NAMESPACE/NAME"
    )]
    InUse {
        /// The journal.
        at: Location,
    },
    /// Another replica leads: what this one writes does not count any more.
    #[error("journal {at}: another Stoker has taken it over, and this one writes no more; two need --lease NAMESPACE/NAME")]
    Fenced {
        /// The journal.
        at: Location,
    },
}

impl JournalError {
    /// A word for metrics and logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "directory",
            Self::Missing { .. } => "missing",
            Self::Newer { .. } => "newer",
            Self::Older { .. } => "older",
            Self::Foreign { .. } => "foreign",
            Self::Corrupt { .. } => "corrupt",
            Self::NotAFile { .. } => "not-a-file",
            Self::Open { .. } => "open",
            Self::Migrate { .. } => "migrate",
            Self::Write { .. } => "write",
            Self::Full { .. } => "full",
            Self::Gone { .. } => "gone",
            Self::Exists { .. } => "exists",
            Self::NotEmpty { .. } => "not-empty",
            Self::BadBackup { .. } => "bad-backup",
            Self::Backup { .. } => "backup",
            Self::Restore { .. } => "restore",
            Self::Read { .. } => "read",
            Self::OutOfOrder { .. } => "out-of-order",
            Self::OldServer { .. } => "old-server",
            Self::Denied { .. } => "denied",
            Self::ReadOnly { .. } => "read-only",
            Self::InUse { .. } => "in-use",
            Self::Fenced { .. } => "fenced",
        }
    }

    /// The same of a file that is a backup: what cures a journal does not cure it.
    pub(super) fn of_backup(self) -> Self {
        let (at, why, source) = match self {
            Self::Missing { at: Location::File(path) } if path.exists() => {
                (Location::File(path), "holds no journal; give the file that `stoker backup` wrote", None)
            }
            Self::Missing { at } => (at, "is not there; give the file that `stoker backup` wrote", None),
            Self::NotAFile { path, .. } => {
                let why = "is a pipe, a device or a directory; give the file that `stoker backup` wrote";
                (Location::File(path), why, None)
            }
            Self::Foreign { at } => (at, "is another program's database; give the file that `stoker backup` wrote", None),
            Self::Corrupt { at, source } => (at, "is damaged, and nothing was changed; give an earlier one", Some(source)),
            Self::Newer { at, .. } => (at, "was written by a newer release; restore it with that one", None),
            Self::Older { at, .. } => {
                let why =
                    "was written by an older release; restore it into a state directory, and give `stoker journal copy` that";
                (at, why, None)
            }
            other => return other,
        };
        Self::BadBackup { at, why, source }
    }

    /// The same, found in the copy of the backup that is `at`.
    pub(super) fn of_backup_at(self, at: &Location) -> Self {
        match self.of_backup() {
            Self::BadBackup { why, source, .. } => Self::BadBackup { at: at.clone(), why, source },
            other => other,
        }
    }

    pub(super) fn opening(at: &Location, source: sqlx::Error) -> Self {
        let at = at.clone();
        let said = |source| StoreError::Sql { what: "opening it", source };
        match kind(&source) {
            Some(ErrorKind::Damage) => Self::Corrupt { at, source: said(source) },
            Some(ErrorKind::Full) => Self::Full { at, source: said(source) },
            Some(ErrorKind::Denied) => Self::Denied { at, source: said(source) },
            Some(ErrorKind::ReadOnly) => Self::ReadOnly { at },
            None => Self::Open { at, source },
        }
    }

    pub(super) fn writing(at: &Location, source: StoreError) -> Self {
        let at = at.clone();
        match source.kind() {
            Some(ErrorKind::Damage) => Self::Corrupt { at, source },
            Some(ErrorKind::Full) => Self::Full { at, source },
            Some(ErrorKind::Denied) => Self::Denied { at, source },
            Some(ErrorKind::ReadOnly) => Self::ReadOnly { at },
            None if matches!(source, StoreError::Fenced) => Self::Fenced { at },
            None => Self::Write { at, source },
        }
    }

    pub(super) fn reading(at: &Location, source: StoreError) -> Self {
        let at = at.clone();
        match source.kind() {
            Some(ErrorKind::Damage) => Self::Corrupt { at, source },
            Some(ErrorKind::Denied) => Self::Denied { at, source },
            Some(ErrorKind::Full | ErrorKind::ReadOnly) | None => Self::Read { at, source },
        }
    }
}

/// What went wrong inside the journal.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused.
    #[error("{what} failed")]
    Sql {
        /// What was being done.
        what: &'static str,
        /// What the database said.
        source: sqlx::Error,
    },
    /// A value cannot be written as JSON.
    #[error("{what} cannot be written as JSON")]
    Encode {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// What is stored is not what was written.
    #[error("{what} cannot be read back")]
    Decode {
        /// Which value.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// What is stored is not what was written.
    #[error("{what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// Another replica leads.
    #[error("the journal has another leader")]
    Fenced,
    /// PostgreSQL did not answer in time.
    #[error("no answer within {seconds} s")]
    NoAnswer {
        /// How long was waited.
        seconds: u64,
    },
}

/// Errors that have a cure of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    /// What is stored is broken, rather than out of reach.
    Damage,
    /// There is no room.
    Full,
    /// The role may not.
    Denied,
    /// The server takes no writes.
    ReadOnly,
}

impl StoreError {
    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Sql { source, .. } => kind(source),
            Self::Decode { .. } | Self::Damaged { .. } => Some(ErrorKind::Damage),
            Self::Encode { .. } | Self::Fenced | Self::NoAnswer { .. } => None,
        }
    }
}

/// Says what was being done when the database refused.
pub(super) trait While<T> {
    fn during(self, what: &'static str) -> Result<T, StoreError>;
}

impl<T> While<T> for Result<T, sqlx::Error> {
    fn during(self, what: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Sql { what, source })
    }
}

/// Whether the database says what people can cure: that there is no room, or that the role may not.
pub(super) fn has_own_cure(error: &sqlx::Error) -> bool {
    matches!(kind(error), Some(ErrorKind::Full | ErrorKind::Denied | ErrorKind::ReadOnly))
}

// SQLite's own.
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const NOT_A_DATABASE: i32 = 26;
/// `SQLITE_IOERR_SHMSIZE`: of the index that it keeps with its log.
const NO_ROOM_FOR_INDEX: i32 = 4_874;

/// Whether a database is not as it was written.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    matches!(kind(error), Some(ErrorKind::Damage))
}

fn kind(error: &sqlx::Error) -> Option<ErrorKind> {
    let code = error.as_database_error()?.code()?;
    // PostgreSQL's codes have five characters, SQLite's are numbers of at most four digits.
    if code.len() == 5 {
        return match &*code {
            "XX001" | "XX002" => Some(ErrorKind::Damage),
            "53100" => Some(ErrorKind::Full),
            // Also where no schema is there, or none that the role may use.
            "42501" | "3F000" => Some(ErrorKind::Denied),
            "25006" => Some(ErrorKind::ReadOnly),
            _ => None,
        };
    }
    let code: i32 = code.parse().ok()?;
    // The low byte is the error, the rest its finer kind.
    match (code, code & 0xff) {
        (_, CORRUPT | NOT_A_DATABASE) => Some(ErrorKind::Damage),
        (FULL | NO_ROOM_FOR_INDEX, _) => Some(ErrorKind::Full),
        _ => None,
    }
}
