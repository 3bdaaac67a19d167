//! Why the journal could not be opened, written or read.

use std::io;
use std::path::{Path, PathBuf};

use stoker_core::base::ids::DecisionId;

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
    #[error("journal {}: is not there; give the state directory of a Stoker that has run", path.display())]
    Missing {
        /// The journal's file.
        path: PathBuf,
    },
    /// A newer release wrote it.
    #[error(
        "journal {}: was written by a newer release: its schema is {found}, this release knows up to {ours}; nothing was \
         changed: start that release, or move the file away to start afresh (machines are then found again in the suppliers' \
         inventories)",
        path.display()
    )]
    Newer {
        /// The journal's file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this release knows.
        ours: i64,
    },
    /// An older release wrote it, and it is only to be read.
    #[error(
        "journal {}: was written by an older release: its schema is {found}, this release reads {ours}; read it with the release that \
         serves it, or start this one on it once",
        path.display()
    )]
    Older {
        /// The journal's file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The schema that this release reads.
        ours: i64,
    },
    /// It is a database, but of something else.
    #[error("journal {}: is another program's database; nothing was changed: give another state directory", path.display())]
    Foreign {
        /// The journal's file.
        path: PathBuf,
    },
    /// It is damaged, or no database at all.
    #[error(
        "journal {}: is damaged; nothing was changed: restore a backup of it (stoker restore), or move it and its -wal file away to start \
         afresh (machines are then found again in the suppliers' inventories)",
        path.display()
    )]
    Corrupt {
        /// The journal's file.
        path: PathBuf,
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
    #[error("journal {}: could not be opened; check that this user may write to it and its directory, and that the disk has \
             room", path.display())]
    Open {
        /// The journal's file.
        path: PathBuf,
        /// What the database said.
        source: sqlx::Error,
    },
    /// It could not be brought to this release's schema.
    #[error("journal {}: could not be brought to schema {ours}; start the release that wrote it, or check that the disk has \
             room", path.display())]
    Migrate {
        /// The journal's file.
        path: PathBuf,
        /// The schema wanted.
        ours: i64,
        /// What the database said.
        source: Box<sqlx::migrate::MigrateError>,
    },
    /// It could not be written.
    #[error("journal {}: could not be written; check that the disk works and has free space", path.display())]
    Write {
        /// The journal's file.
        path: PathBuf,
        /// What went wrong.
        source: StoreError,
    },
    /// The disk is full.
    #[error("journal {}: the disk is full; free space on it, or give the state directory a larger volume", path.display())]
    Full {
        /// The journal's file.
        path: PathBuf,
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
    /// What is given as a backup cannot be used as one.
    #[error("backup {}: {why}", path.display())]
    BadBackup {
        /// The backup's file.
        path: PathBuf,
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
    #[error("journal {}: could not be read", path.display())]
    Read {
        /// The journal's file.
        path: PathBuf,
        /// What went wrong.
        source: StoreError,
    },
    /// A decision's number was used before.
    #[error("journal {}: decision {got} was to be written, but the next is {next}", path.display())]
    OutOfOrder {
        /// The journal's file.
        path: PathBuf,
        /// The number given.
        got: DecisionId,
        /// The least that is free.
        next: DecisionId,
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
            Self::BadBackup { .. } => "bad-backup",
            Self::Backup { .. } => "backup",
            Self::Restore { .. } => "restore",
            Self::Read { .. } => "read",
            Self::OutOfOrder { .. } => "out-of-order",
        }
    }

    /// The same of a file that is a backup: what cures a journal does not cure it.
    pub(super) fn of_backup(self) -> Self {
        let (path, why, source) = match self {
            Self::Missing { path } if path.exists() => {
                (path, "holds no journal; give the file that `stoker backup` wrote", None)
            }
            Self::Missing { path } => (path, "is not there; give the file that `stoker backup` wrote", None),
            Self::NotAFile { path, .. } => {
                (path, "is a pipe, a device or a directory; give the file that `stoker backup` wrote", None)
            }
            Self::Foreign { path } => (path, "is another program's database; give the file that `stoker backup` wrote", None),
            Self::Corrupt { path, source } => (path, "is damaged, and nothing was changed; give an earlier one", Some(source)),
            Self::Newer { path, .. } => (path, "was written by a newer release; restore it with that one", None),
            Self::Older { path, .. } => {
                (path, "was written by an older release; restore it with that one, then start this one", None)
            }
            other => return other,
        };
        Self::BadBackup { path, why, source }
    }

    pub(super) fn opening(path: &Path, source: sqlx::Error) -> Self {
        if is_damage(&source) {
            return Self::Corrupt { path: path.to_owned(), source: StoreError::Sql { what: "opening it", source } };
        }
        if is_full(&source) {
            return Self::Full { path: path.to_owned(), source: StoreError::Sql { what: "opening it", source } };
        }
        Self::Open { path: path.to_owned(), source }
    }

    pub(super) fn writing(path: &Path, source: StoreError) -> Self {
        let path = path.to_owned();
        if source.is_damage() {
            return Self::Corrupt { path, source };
        }
        if source.is_full() { Self::Full { path, source } } else { Self::Write { path, source } }
    }

    pub(super) fn reading(path: &Path, source: StoreError) -> Self {
        let path = path.to_owned();
        if source.is_damage() { Self::Corrupt { path, source } } else { Self::Read { path, source } }
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
}

impl StoreError {
    /// Whether what is stored is broken, rather than out of reach.
    fn is_damage(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_damage(source),
            Self::Encode { .. } => false,
            Self::Decode { .. } | Self::Damaged { .. } => true,
        }
    }

    /// Whether there was no room.
    fn is_full(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if is_full(source))
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

/// Whether the database says that the file is broken (`SQLITE_CORRUPT`) or none of its own (`SQLITE_NOTADB`).
fn is_damage(error: &sqlx::Error) -> bool {
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;
    // The low byte is the error, the rest its finer kind.
    code(error).is_some_and(|code| matches!(code & 0xff, CORRUPT | NOT_A_DATABASE))
}

/// Whether the database says that the disk is full: `SQLITE_FULL`, or `SQLITE_IOERR_SHMSIZE` of the
/// index beside its log.
pub(super) fn is_full(error: &sqlx::Error) -> bool {
    const FULL: i32 = 13;
    const NO_ROOM_FOR_INDEX: i32 = 4_874;
    code(error).is_some_and(|code| matches!(code, FULL | NO_ROOM_FOR_INDEX))
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}
