//! SQLite: one file, and those that it keeps beside it, which one process writes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::any::AnyConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::{Connection, Kind, Location, Pool, READERS, Store, StoreError};
use crate::error::JournalError;
use crate::private;

/// How long a statement waits for another process's checkpoint.
const PATIENCE: Duration = Duration::from_secs(5);

/// Files up to this size are looked through before they are opened, which takes some tenths of a
/// second. Larger ones are looked through now and then while they are in use; a restart checks all
/// that it needs.
pub(super) const CHECKED_UP_TO: u64 = 64 << 20;

/// What a path keeps of itself in an address.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// Begins a transaction that writes.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

impl Store {
    /// Opens a database in `dir` for writing; makes it where there is none. One that must not be
    /// touched is not.
    pub(super) async fn open_in(dir: &Path, kind: &'static Kind) -> Result<Self, JournalError> {
        let path = dir.join(kind.file);
        private::directory(dir).map_err(|source| JournalError::Directory { path: path.clone(), source })?;
        let at = Location::File(path.clone());
        if path.exists() {
            inspect(&path, kind).await?;
        }
        keep_private(&path).map_err(|source| JournalError::opening(&at, source.into()))?;
        let pool = writer(&path, None).map_err(|source| JournalError::opening(&at, source))?;
        // Opened now: what is wrong with it is told here.
        pool.acquire().await.map_err(|source| JournalError::opening(&at, source))?;
        kind.migrate(&pool, &at).await?;
        let readers = readers(&path).await?;
        Self::of_file(path, Some(pool), readers)
    }

    /// Opens a database file of any name for reading alone.
    pub(in super::super) async fn open_file_read_only(path: PathBuf, kind: &'static Kind) -> Result<Self, JournalError> {
        let (store, schema) = Self::open_file_of_any_release(path, kind).await?;
        kind.check_readable(&store.at, Some(schema))?;
        Ok(store)
    }

    /// The same of one that an older release may have written, with its schema: it can be copied, and its rows cannot be read.
    pub(in super::super) async fn open_file_of_any_release(
        path: PathBuf,
        kind: &'static Kind,
    ) -> Result<(Self, i64), JournalError> {
        let missing = || JournalError::Missing { at: Location::File(path.clone()) };
        if !path.exists() {
            return Err(missing());
        }
        let schema = inspect(&path, kind).await?.ok_or_else(missing)?;
        let readers = readers(&path).await?;
        Ok((Self::of_file(path, None, readers)?, schema))
    }

    /// Whether the tables are those that this release makes, with nothing beside them that would do more. PostgreSQL's are made by
    /// Stoker alone.
    pub(in super::super) async fn check_schema(&self, kind: &'static Kind) -> Result<(), JournalError> {
        let Location::File(_) = &self.at else { return Ok(()) };
        let opening = |source| JournalError::opening(&self.at, source);
        let mut fresh = address("sqlite::memory:").map_err(opening)?.connect().await.map_err(opening)?;
        kind.migrations.run(&mut fresh).await.map_err(|source| JournalError::Migrate {
            at: self.at.clone(),
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
        Err(JournalError::Corrupt { at: self.at.clone(), source })
    }
}

/// The connection that writes, made when it is needed: one, so that writes are one after the other. `more` is done on it too.
pub(super) fn writer(path: &Path, more: Option<String>) -> Result<Pool, sqlx::Error> {
    // Readers never wait for the writer, nor it for them; and what is accepted is on the disk before the caller hears of it.
    let all = format!("{}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {}", patience(), more.unwrap_or_default());
    let options = address(&format!("{}?mode=rw", of_path(path)?))?;
    Ok(pool(1, all).connect_lazy_with(options))
}

async fn readers(path: &Path) -> Result<Pool, JournalError> {
    let open = async { pool(READERS, patience()).connect_with(read_only(path)?).await };
    open.await.map_err(|source| JournalError::opening(&Location::File(path.to_owned()), source))
}

/// Connections on each of which that is done first. They are never given up.
fn pool(connections: u32, first: String) -> PoolOptions<sqlx::Any> {
    PoolOptions::new().max_connections(connections).idle_timeout(None).max_lifetime(None).after_connect(move |db, _| {
        let first = first.clone();
        Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(first)).execute(db).await.map(drop) })
    })
}

fn patience() -> String {
    format!("PRAGMA busy_timeout = {}", PATIENCE.as_millis())
}

fn read_only(path: &Path) -> Result<AnyConnectOptions, sqlx::Error> {
    address(&format!("{}?mode=ro", of_path(path)?))
}

/// A path as an address.
fn of_path(path: &Path) -> Result<String, sqlx::Error> {
    let text = path.to_str().ok_or_else(|| sqlx::Error::Configuration("the path is no text in UTF-8".into()))?;
    Ok(format!("sqlite://{}", utf8_percent_encode(text, IN_PATHS)))
}

fn address(url: &str) -> Result<AnyConnectOptions, sqlx::Error> {
    super::install_drivers();
    url.parse()
}

/// Makes one file of a database that nobody has open, to be read where nothing can be written.
pub(in super::super) async fn seal(path: &Path) -> Result<(), sqlx::Error> {
    let mut db = address(&format!("{}?mode=rw", of_path(path)?))?.connect().await?;
    sqlx::query("PRAGMA journal_mode = DELETE").execute(&mut db).await?;
    db.close().await
}

/// A database's file and those that SQLite keeps beside it.
pub(in super::super) fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix))
}

/// A path whose file's name ends with something more.
pub(in super::super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
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
    let at = Location::File(path.to_owned());
    let opening = |source| JournalError::opening(&at, source);
    let mut file = read_only(path).map_err(opening)?.connect().await.map_err(opening)?;
    let looked = look(&mut file, path, kind).await;
    // What closing says is of no interest: nothing was written.
    drop(file.close().await);
    looked
}

async fn look(file: &mut Connection, path: &Path, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    let at = Location::File(path.to_owned());
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'table'")
        .fetch_all(&mut *file)
        .await
        .map_err(|source| JournalError::opening(&at, source))?;
    let schema = kind.schema_of(file, &at, &tables).await?;
    if schema.is_some() && fs::metadata(path).is_ok_and(|m| m.len() <= CHECKED_UP_TO) {
        check(file, &at).await?;
    }
    Ok(schema)
}

/// Looks a whole file through.
pub(super) async fn check(db: &mut Connection, at: &Location) -> Result<(), JournalError> {
    // Not the quicker check: this one also holds the tables against their indices, and so finds what was changed in the
    // rows without a checksum, by which names are looked up.
    let found: Result<String, _> = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut *db).await;
    let found = found.map_err(|source| JournalError::opening(at, source))?;
    if found == "ok" {
        return Ok(());
    }
    Err(JournalError::Corrupt { at: at.clone(), source: StoreError::Damaged { what: found } })
}
