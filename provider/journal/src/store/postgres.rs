//! PostgreSQL: one database for all replicas, of which one leads. Each leader takes a number above all before it, its epoch, and
//! every write asks first whether that is still the newest: a leader that was paused while another took over writes nothing more.

use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};

use super::{Connection, DatabaseUrl, Kind, Location, Pool, READERS, Store, StoreError, Transaction};
use crate::error::{JournalError, While as _};

/// The oldest release that is supported by PostgreSQL itself.
const LEAST_RELEASE: u32 = 14;

/// How long a connection is waited for, and a statement.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
const STATEMENT_WITHIN: Duration = Duration::from_secs(10);

/// How long a transaction may rest. A leader that is paused inside one keeps the next from taking over for so long.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(3);

/// How long a write may take as a whole. Of one that takes longer the connection is lost: PostgreSQL ends statements sooner.
pub(in super::super) const WRITTEN_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 15 });

/// Begins a transaction that reads: everything as of one moment.
pub(super) const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A leader's number: above those of all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Epoch(i64);

impl Store {
    /// Opens a database for writing; makes its tables where there are none.
    pub(in super::super) async fn open_database(url: &DatabaseUrl, kind: &'static Kind) -> Result<Self, JournalError> {
        let at = Location::Database(url.to_string());
        inspect(url, &at, kind).await?;
        let pool = writer(url);
        kind.migrate(&pool, &at).await?;
        Ok(Self::of_database(url.clone(), Some(pool), readers(url)))
    }

    /// Opens a database for reading alone.
    pub(in super::super) async fn open_database_read_only(
        url: &DatabaseUrl,
        kind: &'static Kind,
    ) -> Result<Self, JournalError> {
        let at = Location::Database(url.to_string());
        let ours = kind.newest_schema();
        match inspect(url, &at, kind).await? {
            Some(found) if found < ours => Err(JournalError::Older { at, found, ours }),
            Some(_) => Ok(Self::of_database(url.clone(), None, readers(url))),
            None => Err(JournalError::Missing { at }),
        }
    }

    /// Becomes the one that writes. From here on whoever wrote before is refused.
    pub(in super::super) async fn lead(&self) -> Result<Epoch, StoreError> {
        let mut db = self.begin_writing().await?;
        let epoch = "INSERT INTO leader (id, epoch) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1 RETURNING epoch";
        let epoch = sqlx::query_scalar(epoch).fetch_one(&mut *db).await.during("taking the lead")?;
        db.commit().await.during("taking the lead")?;
        Ok(Epoch(epoch))
    }
}

/// Whether that leader is still the newest. Until the transaction ends nobody takes over.
pub(super) async fn check_epoch(db: &mut Transaction, Epoch(epoch): Epoch) -> Result<(), StoreError> {
    let newest: i64 = sqlx::query_scalar("SELECT epoch FROM leader WHERE id = 1 FOR SHARE")
        .fetch_one(&mut **db)
        .await
        .during("looking who leads")?;
    if newest == epoch { Ok(()) } else { Err(StoreError::Fenced) }
}

/// Connections that write, made when they are needed. There is a second one for where the first is lost and nobody has noticed.
pub(super) fn writer(url: &DatabaseUrl) -> Pool {
    pool(2).connect_lazy_with(options(url))
}

fn readers(url: &DatabaseUrl) -> Pool {
    pool(READERS).connect_lazy_with(options(url))
}

fn options(url: &DatabaseUrl) -> AnyConnectOptions {
    super::install_drivers();
    let options = AnyConnectOptions::from_url(url.with_password());
    // Infallible: the address was parsed already.
    options.unwrap_or_else(|_| unreachable!("an address is taken as it is"))
}

fn pool(connections: u32) -> PoolOptions<sqlx::Any> {
    PoolOptions::new().max_connections(connections).acquire_timeout(CONNECTED_WITHIN).after_connect(|db, _| {
        Box::pin(async move {
            let first = format!(
                "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; SET application_name = 'stoker'",
                STATEMENT_WITHIN.as_millis(),
                IDLE_IN_TRANSACTION.as_millis()
            );
            sqlx::raw_sql(AssertSqlSafe(first)).execute(db).await.map(drop)
        })
    })
}

/// Looks at a database without changing it: its schema, or `None` where it holds nothing yet.
async fn inspect(url: &DatabaseUrl, at: &Location, kind: &'static Kind) -> Result<Option<i64>, JournalError> {
    let opening = |source| JournalError::opening(at, source);
    let mut db = tokio::time::timeout(CONNECTED_WITHIN, options(url).connect())
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
        .map_err(opening)?;
    let looked = look(&mut db, at, kind).await;
    // What closing says is of no interest: nothing was written.
    drop(sqlx::Connection::close(db).await);
    looked
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
