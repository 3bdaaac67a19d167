//! The databases: the journal and, beside it, the readings. What is SQLite's own is in [`sqlite`], what is PostgreSQL's in
//! [`postgres`]; all else is the same statements for both.

mod postgres;
mod sqlite;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::any::AnyArguments;
use sqlx::error::BoxDynError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::time::timeout;

use super::error::{JournalError, StoreError, While as _, has_own_cure};
use super::place::{DatabaseUrl, Location, Place};
use crate::private;

pub(super) use postgres::{Epoch, try_write, wait_for_others};
pub(super) use sqlite::{files, seal, with_suffix};

/// Whether this process may still be the one that writes.
pub(super) type Still<'a> = &'a (dyn Fn() -> bool + Sync);

/// Either database. Statements are those that both understand, with `$1` for the first value.
pub(super) type Db = sqlx::Any;
/// One connection to it.
pub(super) type Connection = sqlx::AnyConnection;
/// Some connections to it.
pub(super) type Pool = sqlx::Pool<Db>;
/// All or nothing.
pub(super) type Transaction = sqlx::Transaction<'static, Db>;

/// Connections for reading: one for a person's question, one for the next, one to spare.
const READERS: u32 = 3;

/// How long a write in PostgreSQL may take as a whole, statements and all; and once one was not answered.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);
const SILENT_FOR: Duration = Duration::from_secs(2);

/// A kind of database.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its file in the state directory.
    pub(super) file: &'static str,
    /// A table that each of its schemas has.
    table: &'static str,
    migrations: Migrator,
    /// The same in PostgreSQL, where both kinds are in one database.
    in_postgres: Migrator,
}

/// What a restart stands on.
pub(super) static JOURNAL: LazyLock<Kind> = LazyLock::new(|| Kind {
    file: "journal.db",
    table: "decision",
    migrations: sqlx::migrate!("src/migrations/journal"),
    in_postgres: sqlx::migrate!("src/migrations/journal"),
});

/// What was read of GPUs.
pub(super) static READINGS: LazyLock<Kind> = LazyLock::new(|| {
    let mut in_postgres = sqlx::migrate!("src/migrations/readings");
    in_postgres.dangerous_set_table_name("_sqlx_reading_migrations");
    Kind { file: "readings.db", table: "reading_hour", migrations: sqlx::migrate!("src/migrations/readings"), in_postgres }
});

impl Kind {
    /// The newest schema that this release knows.
    fn newest_schema(&self) -> i64 {
        self.migrations.iter().map(|m| m.version).max().unwrap_or(0)
    }

    const fn migrations_of(&self, at: &Location) -> &Migrator {
        match at {
            Location::File(_) => &self.migrations,
            Location::Database(_) => &self.in_postgres,
        }
    }

    /// Whether a database whose schema that is can be read as it is.
    fn check_readable(&self, at: &Location, schema: Option<i64>) -> Result<(), JournalError> {
        let ours = self.newest_schema();
        match schema {
            Some(found) if found < ours => Err(JournalError::Older { at: at.clone(), found, ours }),
            Some(_) => Ok(()),
            None => Err(JournalError::Missing { at: at.clone() }),
        }
    }

    /// Brings a database to this release's schema.
    async fn migrate(&self, pool: &Pool, at: &Location) -> Result<(), JournalError> {
        self.migrations_of(at).run(pool).await.map_err(|source| match source {
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) if has_own_cure(&source) => {
                JournalError::opening(at, source)
            }
            source => JournalError::Migrate { at: at.clone(), ours: self.newest_schema(), source: Box::new(source) },
        })
    }

    /// What a database that is there is: its schema; `None` where it holds nothing yet. `tables` are those that it has.
    async fn schema_of(&self, db: &mut Connection, at: &Location, tables: &[String]) -> Result<Option<i64>, JournalError> {
        if tables.is_empty() {
            return Ok(None);
        }
        let has = |table: &str| tables.iter().any(|name| name == table);
        let migrations = self.migrations_of(at);
        if !has(&migrations.table_name) {
            return Err(JournalError::Foreign { at: at.clone() });
        }
        let newest = format!("SELECT MAX(version) FROM {}", migrations.table_name);
        let newest = sqlx::query_scalar(AssertSqlSafe(newest)).fetch_one(&mut *db).await;
        let schema: Option<i64> = newest.map_err(|source| JournalError::opening(at, source))?;
        if schema.is_some() && !has(self.table) {
            return Err(JournalError::Foreign { at: at.clone() });
        }
        let ours = self.newest_schema();
        match schema {
            Some(found) if found > ours => Err(JournalError::Newer { at: at.clone(), found, ours }),
            found => Ok(found),
        }
    }
}

/// A database, open.
#[derive(Debug, Clone)]
pub(super) struct Store {
    at: Location,
    /// What writes; `None` where it is only read.
    writer: Option<Arc<Mutex<Pool>>>,
    readers: Pool,
    own: Own,
}

/// What only one of the two databases has.
#[derive(Debug, Clone)]
enum Own {
    /// Which file was opened. Another that has its name by now is not it.
    Sqlite { identity: (u64, u64) },
    Postgres {
        url: DatabaseUrl,
        /// Which leader it writes for.
        epoch: Option<Epoch>,
        /// How long a write may take as a whole.
        written_within: Duration,
        /// How many writes in a row were not answered.
        silent: Arc<AtomicU32>,
    },
}

impl Store {
    /// Opens a database for writing; makes it where there is none. One that must not be touched is not.
    pub(super) async fn open(place: &Place, kind: &'static Kind) -> Result<Self, JournalError> {
        match place {
            Place::Directory(dir) => Self::open_in(dir, kind).await,
            Place::Database(url) => Self::open_database(url, kind, None).await,
        }
    }

    /// The same as the one that writes, if it still may when that is about to count. In PostgreSQL whoever was that is refused from now on.
    pub(super) async fn open_to_lead(place: &Place, kind: &'static Kind, still: Still<'_>) -> Result<Self, JournalError> {
        match place {
            Place::Directory(dir) => Self::open_in(dir, kind).await,
            Place::Database(url) => Self::open_database(url, kind, Some(still)).await,
        }
    }

    /// Opens a database for reading alone, beside the process that writes it.
    pub(super) async fn open_read_only(place: &Place, kind: &'static Kind) -> Result<Self, JournalError> {
        match place {
            Place::Directory(dir) => Self::open_file_read_only(dir.join(kind.file), kind).await,
            Place::Database(url) => Self::open_database_read_only(url, kind).await,
        }
    }

    fn of_file(path: PathBuf, writer: Option<Pool>, readers: Pool) -> Result<Self, JournalError> {
        let identity = private::identity(&path);
        let at = Location::File(path);
        let identity = identity.map_err(|source| JournalError::opening(&at, source.into()))?;
        Ok(Self::of(at, writer, readers, Own::Sqlite { identity }))
    }

    fn of_database(url: &DatabaseUrl, writer: Option<Pool>, readers: Pool) -> Self {
        let own = Own::Postgres { url: url.clone(), epoch: None, written_within: WRITTEN_WITHIN, silent: Arc::default() };
        Self::of(Location::Database(url.to_string()), writer, readers, own)
    }

    fn of(at: Location, writer: Option<Pool>, readers: Pool, own: Own) -> Self {
        Self { at, writer: writer.map(|pool| Arc::new(Mutex::new(pool))), readers, own }
    }

    /// The same, whose writes count as long as that leader is the newest.
    pub(super) fn of_leader(mut self, newest: Option<Epoch>) -> Self {
        if let Own::Postgres { epoch, .. } = &mut self.own {
            *epoch = newest;
        }
        self
    }

    /// Whether the file is still where it was opened. What is written to one that is not there is
    /// lost with this process.
    pub(super) fn is_in_place(&self) -> bool {
        match (&self.at, &self.own) {
            (Location::File(path), Own::Sqlite { identity }) => private::identity(path).is_ok_and(|found| found == *identity),
            _ => true,
        }
    }

    /// Looks the whole file through, while it is in use. Takes seconds for each gigabyte. PostgreSQL looks after its own.
    pub(super) async fn check(&self) -> Result<(), JournalError> {
        let Location::File(_) = &self.at else { return Ok(()) };
        let mut db = self.readers.acquire().await.map_err(|source| JournalError::opening(&self.at, source))?;
        sqlite::check(&mut db, &self.at).await
    }

    /// Whether the file is too large to be looked through at each start.
    pub(super) fn is_large(&self) -> bool {
        let Location::File(path) = &self.at else { return false };
        std::fs::metadata(path).is_ok_and(|found| found.len() > sqlite::CHECKED_UP_TO)
    }

    /// Writes all of a file as of one moment into another, which is empty.
    pub(super) async fn copy_into(&self, to: &str) -> Result<(), sqlx::Error> {
        let mut db = self.readers.acquire().await?;
        sqlx::query("VACUUM INTO $1").bind(to).execute(&mut *db).await.map(drop)
    }

    /// Which leader it writes for.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match &self.own {
            Own::Postgres { epoch, .. } => epoch.clone(),
            Own::Sqlite { .. } => None,
        }
    }

    /// A write in PostgreSQL, which the network may swallow. What was not answered in time may have been done. After any failure the next
    /// write takes a new connection: a server that became a standby keeps the old ones, and refuses all that is written.
    pub(super) async fn in_time<T>(&self, write: BoxFuture<'_, Result<T, JournalError>>) -> Result<T, JournalError> {
        let Own::Postgres { written_within, silent: unanswered, .. } = &self.own else { return write.await };
        // While it is silent nobody waits for long at first, as there is work that needs no journal; then longer and longer, as it may only
        // be slow.
        let silent = unanswered.load(Ordering::Relaxed);
        let within = match silent {
            0 => *written_within,
            times => SILENT_FOR.saturating_mul(1 << (times - 1).min(8)).min(*written_within),
        };
        let written = timeout(within, write).await;
        unanswered.store(if written.is_err() { silent.saturating_add(1) } else { 0 }, Ordering::Relaxed);
        let written = written.unwrap_or_else(|_| {
            let source = StoreError::NoAnswer { seconds: within.as_secs() };
            Err(JournalError::Write { at: self.at.clone(), source })
        });
        if matches!(written, Err(JournalError::Write { .. })) {
            self.reconnect();
        }
        written
    }

    /// The same for a write that does not yet say where it failed.
    pub(super) async fn write_in_time<T>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, JournalError> {
        let write = async { write.await.map_err(|error| JournalError::writing(&self.at, error)) };
        self.in_time(write.boxed()).await
    }

    /// What messages call it.
    pub(super) const fn at(&self) -> &Location {
        &self.at
    }

    /// What writes.
    pub(super) fn writer_pool(&self) -> Option<Pool> {
        // A pool is a handle, which each holder leaves whole.
        self.writer.as_ref().map(|writer| writer.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Lets a file grow to so many pages at most.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, most: i64) {
        let (Some(writer), Location::File(path)) = (&self.writer, &self.at) else { return };
        let limited = sqlite::writer(path, Some(format!("PRAGMA max_page_count = {most}"))).unwrap();
        *writer.lock().unwrap() = limited;
    }

    /// Gives up writes sooner.
    #[cfg(test)]
    pub(super) const fn hurry(&mut self, within: Duration) {
        if let Own::Postgres { written_within, .. } = &mut self.own {
            *written_within = within;
        }
    }

    /// Gives up connections that write and do not answer. Until their end is noticed they would keep others from being made.
    fn reconnect(&self) {
        if let (Some(writer), Own::Postgres { url, .. }) = (&self.writer, &self.own) {
            *writer.lock().unwrap_or_else(PoisonError::into_inner) = postgres::writer(url);
        }
    }

    /// Begins to write, for the leader that it was opened by.
    pub(super) async fn write(&self) -> Result<Transaction, StoreError> {
        let mut db = self.begin_writing().await?;
        if let Own::Postgres { epoch: Some(epoch), .. } = &self.own {
            postgres::check_epoch(&mut db, epoch).await?;
        }
        Ok(db)
    }

    /// Begins to write. A connection whose last transaction could not be ended (a full disk can do that) is
    /// closed for a new one: what it commits would lie inside that transaction, which never does.
    async fn begin_writing(&self) -> Result<Transaction, StoreError> {
        let Some(writer) = self.writer_pool() else {
            return Err(StoreError::Sql { what: "writing a journal opened for reading", source: sqlx::Error::PoolClosed });
        };
        if let Own::Postgres { .. } = self.own {
            return writer.begin().await.during("beginning to write");
        }
        // Unlike a plain `begin`, this fails inside a transaction.
        if let Ok(begun) = writer.begin_with(sqlite::BEGIN).await {
            return Ok(begun);
        }
        let broken = writer.acquire().await.during("beginning to write")?;
        // What closing says is of no interest: the connection is gone either way.
        drop(broken.detach().close_hard().await);
        writer.begin_with(sqlite::BEGIN).await.during("beginning to write")
    }

    /// Begins to read: everything as of one moment.
    pub(super) async fn read(&self) -> Result<Transaction, StoreError> {
        let begun = match self.own {
            Own::Postgres { .. } => self.readers.begin_with(postgres::BEGIN_READING).await,
            Own::Sqlite { .. } => self.readers.begin().await,
        };
        begun.during("beginning to read")
    }

    /// Waits until nothing is under way, and closes.
    pub(super) async fn close(&self) {
        self.readers.close().await;
        if let Some(writer) = self.writer_pool() {
            writer.close().await;
        }
    }
}

/// Makes the driver find the databases. Once is enough, and more does nothing.
fn install_drivers() {
    sqlx::any::install_default_drivers();
}

/// Some rows of one statement, all of them or none: `INSERT INTO head VALUES (…), (…) tail`. What each row has is bound by `bind`,
/// as many values as `head` names columns. Numbered, as PostgreSQL wants it, and well below what a database takes of values when
/// there are a thousand rows (SQLite 32,766, PostgreSQL 65,535).
pub(super) async fn insert<T>(
    db: &mut Connection,
    (head, tail): (&str, &str),
    rows: &[T],
    bind: impl Fn(&mut AnyArguments, &T) -> Result<(), BoxDynError>,
) -> Result<(), sqlx::Error> {
    let columns = head.split(',').count();
    let mut values = AnyArguments::default();
    let mut places = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        bind(&mut values, row).map_err(sqlx::Error::Encode)?;
        let of_row: Vec<String> = (1..=columns).map(|column| format!("${}", number * columns + column)).collect();
        places.push(format!("({})", of_row.join(", ")));
    }
    let statement = format!("INSERT INTO {head} VALUES {} {tail}", places.join(", "));
    sqlx::query_with(AssertSqlSafe(statement), values).persistent(false).execute(db).await.map(drop)
}
