//! PostgreSQL: one database for all replicas, of which one leads. Each leader takes a number above all before it, its epoch, and
//! every write asks first whether that is still the newest: a leader that was paused while another took over writes nothing more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};

use super::{Connection, DatabaseUrl, Kind, Location, Own, Pool, READERS, Still, Store, StoreError, Transaction};
use crate::error::{JournalError, While as _};

/// The oldest release that is supported by PostgreSQL itself.
const LEAST_RELEASE: u32 = 14;

/// How long a connection is waited for, and a statement.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
const STATEMENT_WITHIN: Duration = Duration::from_secs(10);

/// For so many seconds another Stoker may still be connected that was just ended.
const OTHERS_GO_WITHIN: u32 = 5;

/// How long a look at what a database is may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(15);

/// How long a try to write may take.
const TRIED_WITHIN: Duration = Duration::from_secs(3);

/// The schema that has leaders. A first start that was cut short may have left an earlier one.
const LEADERS_SINCE: i64 = 7;

/// How long a transaction may rest. A leader that is paused inside one keeps the next from taking over for so long.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(3);

/// Begins a transaction that reads: everything as of one moment.
pub(super) const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Which leader one is: its number, above those of all before it, and its word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Epoch(i64, String);

impl Store {
    /// Opens a database for writing; makes its tables where there are none. With `still`, for a leader, as long as it may lead.
    pub(super) async fn open_database(
        url: &DatabaseUrl,
        kind: &'static Kind,
        still: Option<Still<'_>>,
    ) -> Result<Self, JournalError> {
        let at = Location::Database(url.to_string());
        let found = inspect(url, &at, kind).await?;
        let store = Self::of_database(url, Some(writer(url)), readers(url));
        let migrate = async {
            let unhurried = unhurried(url);
            let migrated = kind.migrate(&unhurried, &at).await;
            unhurried.close().await;
            migrated
        };
        let lead = async |still| store.lead(still).await.map_err(|error| JournalError::writing(&at, error));
        let epoch = match (still, found) {
            (None, _) => {
                migrate.await?;
                None
            }
            // First: nobody writes into tables that change.
            (Some(still), Some(found)) if found >= LEADERS_SINCE => {
                let epoch = lead(still).await?;
                migrate.await?;
                Some(epoch)
            }
            (Some(still), _) => {
                migrate.await?;
                Some(lead(still).await?)
            }
        };
        Ok(store.of_leader(epoch))
    }

    /// The same whose writes may take as long as they take: for copies.
    pub(in super::super) fn unhurried(self) -> Self {
        match &self.own {
            Own::Postgres { url, .. } => Self { writer: Some(Arc::new(Mutex::new(unhurried(url)))), ..self },
            Own::Sqlite { .. } => self,
        }
    }

    /// Opens a database for reading alone.
    pub(in super::super) async fn open_database_read_only(
        url: &DatabaseUrl,
        kind: &'static Kind,
    ) -> Result<Self, JournalError> {
        let at = Location::Database(url.to_string());
        kind.check_readable(&at, inspect(url, &at, kind).await?)?;
        Ok(Self::of_database(url, None, readers(url)))
    }

    /// Becomes the one that writes, unless it may not any more when that is about to count. From here on whoever wrote before is refused.
    async fn lead(&self, still: Still<'_>) -> Result<Epoch, StoreError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| StoreError::Damaged { what: format!("no random number: {error}") })?;
        let word = format!("{:016x}", u64::from_le_bytes(random));
        let mut db = self.begin_writing().await?;
        let epoch = "INSERT INTO leader (id, epoch, word) VALUES (1, 1, $1) \
                     ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, word = excluded.word RETURNING epoch";
        let epoch = sqlx::query_scalar(epoch).bind(&word).fetch_one(&mut *db).await.during("taking the lead")?;
        // Who is paused from here on loses the transaction before another replica may lead.
        if !still() {
            return Err(StoreError::Fenced);
        }
        db.commit().await.during("taking the lead")?;
        Ok(Epoch(epoch, word))
    }
}

/// Waits a moment until no other Stoker is connected to a database: one that was killed is gone soon.
///
/// # Errors
/// Where another stays, or the database cannot be asked.
pub(in super::super) async fn wait_for_others(url: &DatabaseUrl) -> Result<(), JournalError> {
    let at = Location::Database(url.to_string());
    let count = "SELECT COUNT(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name = 'stoker' AND pid <> pg_backend_pid()";
    let look = async {
        let mut db = options(url).connect().await?;
        let mut others: i64 = sqlx::query_scalar(count).fetch_one(&mut db).await?;
        for _ in 0..OTHERS_GO_WITHIN {
            if others == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            others = sqlx::query_scalar(count).fetch_one(&mut db).await?;
        }
        sqlx::Connection::close(db).await.map(|()| others)
    };
    match look.await {
        Ok(0) => Ok(()),
        Ok(_) => Err(JournalError::InUse { at }),
        Err(source) => Err(JournalError::opening(&at, source)),
    }
}

/// Writes, and takes it back.
///
/// # Errors
/// Where that does not work.
pub(in super::super) async fn try_write(url: &DatabaseUrl) -> Result<(), JournalError> {
    let at = Location::Database(url.to_string());
    let write = async {
        let mut db = options(url).connect().await?;
        let mut begun = sqlx::Connection::begin(&mut db).await?;
        sqlx::query("UPDATE leader SET word = word WHERE id = 1").execute(&mut *begun).await?;
        begun.rollback().await?;
        sqlx::Connection::close(db).await
    };
    let written = tokio::time::timeout(TRIED_WITHIN, write).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    written.map_err(|source| JournalError::opening(&at, source))
}

/// Whether that leader is still the newest. Until the transaction ends nobody takes over.
pub(super) async fn check_epoch(db: &mut Transaction, Epoch(epoch, word): &Epoch) -> Result<(), StoreError> {
    let newest: (i64, String) = sqlx::query_as("SELECT epoch, word FROM leader WHERE id = 1 FOR SHARE")
        .fetch_one(&mut **db)
        .await
        .during("looking who leads")?;
    if (newest.0, &newest.1) == (*epoch, word) { Ok(()) } else { Err(StoreError::Fenced) }
}

/// Connections that write, made when they are needed. There is a second one for where the first is lost and nobody has noticed. What is
/// accepted is on the disk before the caller hears of it, whatever the role's default.
pub(super) fn writer(url: &DatabaseUrl) -> Pool {
    let first = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SELECT set_config('synchronous_commit', 'on', FALSE) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
        STATEMENT_WITHIN.as_millis(),
        IDLE_IN_TRANSACTION.as_millis()
    );
    pool(2, &first).connect_lazy_with(options(url))
}

/// Connections whose statements may take as long as they take.
fn unhurried(url: &DatabaseUrl) -> Pool {
    // A session that is cut off may hold the lock on migrations.
    pool(1, "SET lock_timeout = '20s'").connect_lazy_with(options(url))
}

fn readers(url: &DatabaseUrl) -> Pool {
    pool(READERS, "").connect_lazy_with(options(url))
}

fn options(url: &DatabaseUrl) -> AnyConnectOptions {
    super::install_drivers();
    let options = AnyConnectOptions::from_url(url.with_password());
    // Infallible: the address was parsed already.
    options.unwrap_or_else(|_| unreachable!("an address is taken as it is"))
}

/// Connections on each of which that is done first.
fn pool(connections: u32, first: &str) -> PoolOptions<sqlx::Any> {
    // Of a client that is gone the server ends the session, with its locks, within half a minute.
    let first = format!(
        "SET application_name = 'stoker'; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; \
         SET tcp_keepalives_count = 3; {first}"
    );
    PoolOptions::new().max_connections(connections).acquire_timeout(CONNECTED_WITHIN).after_connect(move |db, _| {
        let first = first.clone();
        Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(first)).execute(db).await.map(drop) })
    })
}

/// Looks at a database without changing it: its schema, or `None` where it holds nothing yet.
async fn inspect(url: &DatabaseUrl, at: &Location, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    let look = async {
        let mut db = options(url).connect().await.map_err(|source| JournalError::opening(at, source))?;
        let looked = look(&mut db, at, kind).await;
        // What closing says is of no interest: nothing was written.
        drop(sqlx::Connection::close(db).await);
        looked
    };
    let late = |_| Err(JournalError::opening(at, sqlx::Error::PoolTimedOut));
    tokio::time::timeout(LOOKED_WITHIN, look).await.unwrap_or_else(late)
}

async fn look(db: &mut Connection, at: &Location, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    let opening = |source| JournalError::opening(at, source);
    let release = sqlx::query("SELECT current_setting('server_version_num')").fetch_one(&mut *db).await.map_err(opening)?;
    let release: String = release.try_get(0).map_err(opening)?;
    check_release(at, &release)?;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT tablename::TEXT FROM pg_catalog.pg_tables WHERE schemaname = current_schema()")
            .fetch_all(&mut *db)
            .await
            .map_err(opening)?;
    // Readings are put beside the journal, which is there first.
    let is_beside = kind.file == super::READINGS.file;
    if is_beside && !tables.iter().any(|table| *table == *kind.in_postgres.table_name) {
        return Ok(None);
    }
    kind.schema_of(db, at, &tables).await
}

/// Whether a server's release, as `server_version_num` tells it, will do.
fn check_release(at: &Location, told: &str) -> Result<(), JournalError> {
    let found = told.parse::<u32>().unwrap_or(0) / 10_000;
    if found >= LEAST_RELEASE {
        return Ok(());
    }
    Err(JournalError::OldServer { at: at.clone(), found, least: LEAST_RELEASE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_release() {
        let at = Location::Database("postgres://db/stoker".to_owned());
        check_release(&at, "140001").unwrap();
        check_release(&at, "180002").unwrap();
        let error = check_release(&at, "130022").unwrap_err().to_string();
        assert_eq!(error, "journal postgres://db/stoker: PostgreSQL 13 is too old; use release 14 or newer");
        check_release(&at, "90624").unwrap_err();
    }
}
