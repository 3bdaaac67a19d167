//! A copy of a journal in another database: from SQLite to PostgreSQL, and back.

use futures::TryStreamExt as _;
use sqlx::any::{AnyArguments, AnyRow, AnyTypeInfoKind};
use sqlx::error::BoxDynError;
use sqlx::{Arguments as _, AssertSqlSafe, Column, Row as _, ValueRef as _};

use super::backup::settle;
use super::error::{JournalError, StoreError, While as _};
use super::marker;
use super::place::Place;
use super::read::Reader;
use super::store::{Connection, JOURNAL, Kind, READINGS, Store, insert};

/// The journal's tables, but for who leads: that is each database's own.
const TABLES: [&str; 17] = [
    "content",
    "step",
    "accepted",
    "decision",
    "decided_by",
    "launch",
    "touched",
    "known_hour",
    "used_hour",
    "clock",
    "pod",
    "pod_known",
    "node_span",
    "node_life",
    "spend_known",
    "spend_day",
    "spend_rows",
];

/// The journal's name, which is copied last: a journal without one is not whole.
const NAME: &str = "incarnation";

/// The tables of readings.
const OF_READINGS: [&str; 3] = ["reading_hour", "reading_size", "reading_latest"];

/// Rows of one statement.
const ROWS: usize = 500;

impl Reader {
    /// Writes all of the journal, as of one moment, and its readings to another place that has none. The copy is the same journal: launch
    /// keys go on where they were, so only one of both may be used from then on. How many rows were copied.
    ///
    /// # Errors
    /// Where there is a journal already, or it cannot be written; then nothing of the journal is there.
    pub async fn copy(&self, to: &Place) -> Result<u64, JournalError> {
        self.check().await?;
        let mut rows = self.copy_journal(to, Copied::AsIs).await?;
        if let Some(readings) = self.readings.known().await? {
            rows += copy(&readings, to, (&READINGS, &OF_READINGS), Copied::AsIs).await?;
        }
        Ok(rows)
    }

    /// The same without its readings, and without looking at it first.
    pub(super) async fn copy_journal(&self, to: &Place, copied: Copied) -> Result<u64, JournalError> {
        copy(&self.store, to, (&JOURNAL, &[TABLES.as_slice(), &[NAME]].concat()), copied).await
    }
}

/// What a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// The same journal.
    AsIs,
    /// Another, made of a backup: with a name of its own, and without what was on order.
    Restored,
}

async fn copy(from: &Store, to: &Place, (kind, tables): (&'static Kind, &[&str]), is: Copied) -> Result<u64, JournalError> {
    let to = Store::open(to, kind).await?.unhurried();
    let copied = async {
        let mut source = from.read().await?;
        let mut db = to.write().await?;
        let mut rows = 0;
        for table in tables {
            if !is_empty(&mut db, table).await? {
                return Ok(None);
            }
            rows += copy_table(&mut source, &mut db, table).await?;
        }
        if is == Copied::Restored {
            settle(&mut db).await?;
            marker::restored(&mut db).await?;
        }
        db.commit().await.during("committing")?;
        Ok(Some(rows))
    };
    let copied = copied.await;
    let at = to.at().clone();
    to.close().await;
    copied.map_err(|error| JournalError::writing(&at, error))?.ok_or(JournalError::NotEmpty { at })
}

async fn is_empty(db: &mut Connection, table: &str) -> Result<bool, StoreError> {
    let found = sqlx::query(AssertSqlSafe(format!("SELECT 1 FROM {table} LIMIT 1"))).fetch_optional(db).await;
    Ok(found.during("looking whether there is a journal")?.is_none())
}

async fn copy_table(from: &mut Connection, to: &mut Connection, table: &str) -> Result<u64, StoreError> {
    let mut copied = 0;
    let mut rows = sqlx::query(AssertSqlSafe(format!("SELECT * FROM {table}"))).fetch(from).try_chunks(ROWS);
    while let Some(rows) = rows.try_next().await.map_err(|failed| failed.1).during("reading what is copied")? {
        let Some(first) = rows.first() else { continue };
        let columns: Vec<&str> = first.columns().iter().map(Column::name).collect();
        let into = format!("{table} ({})", columns.join(", "));
        insert(to, (&into, ""), &rows, add_row).await.during("writing what is copied")?;
        copied += rows.len() as u64;
    }
    Ok(copied)
}

/// Binds what a row has, each value with its column's type: PostgreSQL refuses a NULL of another type.
fn add_row(values: &mut AnyArguments, row: &AnyRow) -> Result<(), BoxDynError> {
    for (number, column) in row.columns().iter().enumerate() {
        let kind = match row.try_get_raw(number)?.type_info().kind() {
            AnyTypeInfoKind::Null => column.type_info().kind(),
            kind => kind,
        };
        match kind {
            AnyTypeInfoKind::Text => values.add(row.try_get::<Option<String>, _>(number)?)?,
            AnyTypeInfoKind::Blob => values.add(row.try_get::<Option<Vec<u8>>, _>(number)?)?,
            _ => values.add(row.try_get::<Option<i64>, _>(number)?)?,
        }
    }
    Ok(())
}
