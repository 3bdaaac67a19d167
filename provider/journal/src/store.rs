//! The database behind the journal. All that is SQLite's own is here and in [`super::error`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::pool::PoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::error::{JournalError, StoreError, While as _};
use crate::state_lock::make_private;

/// The database.
pub(super) type Db = sqlx::Sqlite;
/// One connection to it.
pub(super) type Connection = sqlx::SqliteConnection;
/// Some connections to it.
type Pool = sqlx::Pool<Db>;
/// All or nothing.
pub(super) type Transaction = sqlx::Transaction<'static, Db>;

/// The journal's file in the state directory.
pub(super) const FILE: &str = "journal.db";

/// Connections for reading: one for a person's question, one for the next, one to spare.
const READERS: u32 = 3;

/// How long a statement waits for another process's checkpoint.
const PATIENCE: Duration = Duration::from_secs(5);

/// Files up to this size are looked through before they are opened, which takes some tenths of a second. What a larger one has
/// broken shows when it is read: a restart checks all that it needs.
const CHECKED_UP_TO: u64 = 64 << 20;

static MIGRATIONS: Migrator = sqlx::migrate!("src/migrations");

/// The newest schema that this release knows.
fn newest_schema() -> i64 {
    MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0)
}

/// A journal's database, open.
#[derive(Debug, Clone)]
pub(super) struct Store {
    path: PathBuf,
    /// One connection, so that writes are one after the other; `None` where it is only read.
    writer: Option<Pool>,
    readers: Pool,
}

impl Store {
    /// Opens the journal in `dir` for writing; makes it where there is none. One that must not be touched is not.
    pub(super) async fn open(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        make_private(dir).map_err(|source| JournalError::Directory { path: path.clone(), source })?;
        if path.exists() {
            inspect(&path).await?;
        }
        let options = options(&path)
            .create_if_missing(true)
            // Readers never wait for the writer, nor it for them; and what is accepted is on the disk before the caller hears of it.
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let writer = pool(1).connect_with(options).await.map_err(|source| JournalError::opening(&path, source))?;
        MIGRATIONS.run(&writer).await.map_err(|source| JournalError::Migrate {
            path: path.clone(),
            ours: newest_schema(),
            source: Box::new(source),
        })?;
        let readers = readers(&path).await?;
        Ok(Self { path, writer: Some(writer), readers })
    }

    /// Opens the journal in `dir` for reading alone, beside the process that writes it.
    pub(super) async fn open_read_only(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        if !path.exists() {
            return Err(JournalError::Missing { path });
        }
        let ours = newest_schema();
        match inspect(&path).await? {
            Some(found) if found < ours => Err(JournalError::Older { path, found, ours }),
            Some(_) => Ok(Self { readers: readers(&path).await?, writer: None, path }),
            None => Err(JournalError::Missing { path }),
        }
    }

    /// The journal's file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to write.
    pub(super) async fn write(&self) -> Result<Transaction, StoreError> {
        match &self.writer {
            Some(writer) => writer.begin().await.during("beginning to write"),
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

/// Looks at a file that is there without changing it: its schema, or `None` where it holds nothing yet.
async fn inspect(path: &Path) -> Result<Option<i64>, JournalError> {
    let opening = |source| JournalError::opening(path, source);
    let mut file = options(path).read_only(true).connect().await.map_err(opening)?;
    let looked = look(&mut file, path).await;
    // What closing says is of no interest: nothing was written.
    drop(file.close().await);
    let found = looked?;
    let ours = newest_schema();
    match found {
        Some(found) if found > ours => Err(JournalError::Newer { path: path.to_owned(), found, ours }),
        found => Ok(found),
    }
}

async fn look(file: &mut Connection, path: &Path) -> Result<Option<i64>, JournalError> {
    let opening = |source| JournalError::opening(path, source);
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'table'")
        .fetch_all(&mut *file)
        .await
        .map_err(opening)?;
    if tables.is_empty() {
        return Ok(None);
    }
    let has = |table: &str| tables.iter().any(|name| name == table);
    if !has(&MIGRATIONS.table_name) {
        return Err(JournalError::Foreign { path: path.to_owned() });
    }
    let schema: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut *file).await.map_err(opening)?;
    if schema.is_some() && !has("decision") {
        return Err(JournalError::Foreign { path: path.to_owned() });
    }
    if fs::metadata(path).is_ok_and(|m| m.len() <= CHECKED_UP_TO) {
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut *file).await.map_err(opening)?;
        if found != "ok" {
            return Err(JournalError::Corrupt { path: path.to_owned(), source: StoreError::Damaged { what: found } });
        }
    }
    Ok(schema)
}
