//! The databases of the state directory: the journal and, beside it, the readings. All that is
//! SQLite's own is here and in [`super::error`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::error::{JournalError, StoreError, While as _, is_full};
use crate::private;

/// The database.
pub(super) type Db = sqlx::Sqlite;
/// One connection to it.
pub(super) type Connection = sqlx::SqliteConnection;
/// Some connections to it.
pub(super) type Pool = sqlx::Pool<Db>;
/// All or nothing.
pub(super) type Transaction = sqlx::Transaction<'static, Db>;

/// Connections for reading: one for a person's question, one for the next, one to spare.
const READERS: u32 = 3;

/// How long a statement waits for another process's checkpoint.
const PATIENCE: Duration = Duration::from_secs(5);

/// Files up to this size are looked through before they are opened, which takes some tenths of a
/// second. Larger ones are looked through now and then while they are in use; a restart checks all
/// that it needs.
const CHECKED_UP_TO: u64 = 64 << 20;

/// A kind of database.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its file in the state directory.
    pub(super) file: &'static str,
    /// A table that each of its schemas has.
    table: &'static str,
    migrations: Migrator,
}

/// What a restart stands on.
pub(super) static JOURNAL: Kind =
    Kind { file: "journal.db", table: "decision", migrations: sqlx::migrate!("src/migrations/journal") };

/// What was read of GPUs.
pub(super) static READINGS: Kind =
    Kind { file: "readings.db", table: "reading_hour", migrations: sqlx::migrate!("src/migrations/readings") };

impl Kind {
    /// The newest schema that this release knows.
    fn newest_schema(&self) -> i64 {
        self.migrations.iter().map(|m| m.version).max().unwrap_or(0)
    }
}

/// A database, open.
#[derive(Debug, Clone)]
pub(super) struct Store {
    path: PathBuf,
    /// Which file was opened. Another that has its name by now is not it.
    identity: (u64, u64),
    /// One connection, so that writes are one after the other; `None` where it is only read.
    writer: Option<Pool>,
    readers: Pool,
}

impl Store {
    /// Opens a database in `dir` for writing; makes it where there is none. One that must not be
    /// touched is not.
    pub(super) async fn open(dir: &Path, kind: &'static Kind) -> Result<Self, JournalError> {
        let path = dir.join(kind.file);
        private::directory(dir).map_err(|source| JournalError::Directory { path: path.clone(), source })?;
        if path.exists() {
            inspect(&path, kind).await?;
        }
        keep_private(&path).map_err(|source| JournalError::opening(&path, source.into()))?;
        let options = options(&path)
            // Readers never wait for the writer, nor it for them; and what is accepted is on the disk before the caller hears of it.
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let writer = pool(1).connect_with(options).await.map_err(|source| JournalError::opening(&path, source))?;
        kind.migrations.run(&writer).await.map_err(|source| match source {
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) if is_full(&source) => {
                JournalError::opening(&path, source)
            }
            source => JournalError::Migrate { path: path.clone(), ours: kind.newest_schema(), source: Box::new(source) },
        })?;
        let readers = readers(&path).await?;
        let identity = private::identity(&path).map_err(|source| JournalError::opening(&path, source.into()))?;
        Ok(Self { path, identity, writer: Some(writer), readers })
    }

    /// Opens a database in `dir` for reading alone, beside the process that writes it.
    pub(super) async fn open_read_only(dir: &Path, kind: &'static Kind) -> Result<Self, JournalError> {
        Self::open_file_read_only(dir.join(kind.file), kind).await
    }

    /// Opens a database file of any name for reading alone.
    pub(super) async fn open_file_read_only(path: PathBuf, kind: &'static Kind) -> Result<Self, JournalError> {
        if !path.exists() {
            return Err(JournalError::Missing { path });
        }
        let ours = kind.newest_schema();
        match inspect(&path, kind).await? {
            Some(found) if found < ours => Err(JournalError::Older { path, found, ours }),
            Some(_) => {
                let identity = private::identity(&path).map_err(|source| JournalError::opening(&path, source.into()))?;
                Ok(Self { readers: readers(&path).await?, identity, writer: None, path })
            }
            None => Err(JournalError::Missing { path }),
        }
    }

    /// Whether the file is still where it was opened. What is written to one that is not there is
    /// lost with this process.
    pub(super) fn is_in_place(&self) -> bool {
        private::identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Looks the whole file through, while it is in use. Takes seconds for each gigabyte.
    pub(super) async fn check(&self) -> Result<(), JournalError> {
        let opening = |source| JournalError::opening(&self.path, source);
        let mut db = self.readers.acquire().await.map_err(opening)?;
        check(&mut db, &self.path).await
    }

    /// Whether the tables are those that this release makes, with nothing beside them that would do more.
    pub(super) async fn check_schema(&self, kind: &'static Kind) -> Result<(), JournalError> {
        let opening = |source| JournalError::opening(&self.path, source);
        let mut fresh = SqliteConnectOptions::new().in_memory(true).connect().await.map_err(opening)?;
        kind.migrations.run(&mut fresh).await.map_err(|source| JournalError::Migrate {
            path: self.path.clone(),
            ours: kind.newest_schema(),
            source: Box::new(source),
        })?;
        let of = "SELECT type || ' ' || name || ': ' || COALESCE(sql, '') FROM sqlite_master ORDER BY 1";
        let ours: Vec<String> = sqlx::query_scalar(of).fetch_all(&mut fresh).await.map_err(opening)?;
        let mut db = self.readers.acquire().await.map_err(opening)?;
        let found: Vec<String> = sqlx::query_scalar(of).fetch_all(&mut *db).await.map_err(opening)?;
        let strange = found.iter().find(|one| !ours.contains(one)).or_else(|| ours.iter().find(|one| !found.contains(one)));
        let Some(strange) = strange else { return Ok(()) };
        let what = strange.split(':').next().unwrap_or(strange);
        let source = StoreError::Damaged { what: format!("{what} is not as this release makes it") };
        Err(JournalError::Corrupt { path: self.path.clone(), source })
    }

    /// Whether the file is too large to be looked through at each start.
    pub(super) fn is_large(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.len() > CHECKED_UP_TO)
    }

    /// Writes all of it as of one moment into another file, which is empty.
    pub(super) async fn copy_into(&self, to: &str) -> Result<(), sqlx::Error> {
        let mut db = self.readers.acquire().await?;
        sqlx::query("VACUUM INTO $1").bind(to).execute(&mut *db).await.map(drop)
    }

    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The connection that writes.
    #[cfg(test)]
    pub(super) const fn writer_pool(&self) -> Option<&Pool> {
        self.writer.as_ref()
    }

    /// Begins to write. A connection whose last transaction could not be ended (a full disk can do that) is
    /// closed for a new one: what it commits would lie inside that transaction, which never does.
    pub(super) async fn write(&self) -> Result<Transaction, StoreError> {
        match &self.writer {
            Some(writer) => {
                // Unlike a plain `begin`, this fails inside a transaction.
                if let Ok(begun) = writer.begin_with(BEGIN).await {
                    return Ok(begun);
                }
                let broken = writer.acquire().await.during("beginning to write")?;
                // What closing says is of no interest: the connection is gone either way.
                drop(broken.detach().close_hard().await);
                writer.begin_with(BEGIN).await.during("beginning to write")
            }
            None => Err(StoreError::Sql { what: "writing a journal opened for reading", source: sqlx::Error::PoolClosed }),
        }
    }

    /// Begins to read: everything as of one moment.
    pub(super) async fn read(&self) -> Result<Transaction, StoreError> {
        self.readers.begin().await.during("beginning to read")
    }

    /// Waits until nothing is under way, and closes.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        if let Some(writer) = &self.writer {
            writer.close().await;
        }
    }
}

/// Begins a transaction that writes.
const BEGIN: &str = "BEGIN IMMEDIATE";

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).busy_timeout(PATIENCE)
}

fn pool(connections: u32) -> PoolOptions<Db> {
    PoolOptions::new().max_connections(connections).idle_timeout(None).max_lifetime(None)
}

async fn readers(path: &Path) -> Result<Pool, JournalError> {
    let opened = pool(READERS).connect_with(options(path).read_only(true)).await;
    opened.map_err(|source| JournalError::opening(path, source))
}

/// A database's file and those that SQLite keeps beside it.
pub(super) fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix))
}

/// A path whose file's name ends with something more.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the file where there is none, so that only its owner can read it: what SQLite keeps beside
/// it gets the same rights.
fn keep_private(path: &Path) -> io::Result<()> {
    private::options().append(true).open(path)?;
    files(path).iter().filter(|file| file.exists()).try_for_each(|file| private::restrict(file))
}

/// Looks at a file that is there without changing it: its schema, or `None` where it holds nothing yet.
async fn inspect(path: &Path, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    // To open a pipe is to wait for somebody who writes.
    let is_none = |file: &PathBuf| fs::metadata(file).is_ok_and(|found| !found.is_file());
    if let Some(found) = files(path).into_iter().find(is_none) {
        return Err(JournalError::NotAFile { path: path.to_owned(), found });
    }
    let opening = |source| JournalError::opening(path, source);
    let mut file = options(path).read_only(true).connect().await.map_err(opening)?;
    let looked = look(&mut file, path, kind).await;
    // What closing says is of no interest: nothing was written.
    drop(file.close().await);
    let found = looked?;
    let ours = kind.newest_schema();
    match found {
        Some(found) if found > ours => Err(JournalError::Newer { path: path.to_owned(), found, ours }),
        found => Ok(found),
    }
}

async fn look(file: &mut Connection, path: &Path, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    let opening = |source| JournalError::opening(path, source);
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'table'")
        .fetch_all(&mut *file)
        .await
        .map_err(opening)?;
    if tables.is_empty() {
        return Ok(None);
    }
    let has = |table: &str| tables.iter().any(|name| name == table);
    if !has(&kind.migrations.table_name) {
        return Err(JournalError::Foreign { path: path.to_owned() });
    }
    let schema: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut *file).await.map_err(opening)?;
    if schema.is_some() && !has(kind.table) {
        return Err(JournalError::Foreign { path: path.to_owned() });
    }
    if fs::metadata(path).is_ok_and(|m| m.len() <= CHECKED_UP_TO) {
        check(file, path).await?;
    }
    Ok(schema)
}

async fn check(db: &mut Connection, path: &Path) -> Result<(), JournalError> {
    let opening = |source| JournalError::opening(path, source);
    // Not the quicker check: this one also holds the tables against their indices, and so finds what was changed in the
    // rows without a checksum, by which names are looked up.
    let found: String = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut *db).await.map_err(opening)?;
    if found == "ok" {
        return Ok(());
    }
    Err(JournalError::Corrupt { path: path.to_owned(), source: StoreError::Damaged { what: found } })
}
