//! Days as they are kept for longer than their spans and pods.

use std::sync::Arc;

use futures::TryStreamExt as _;
use stoker_advice::spend::{DAY, DayRow, KeptDay, PackedRows};

use crate::chain::{decode, encode};
use crate::error::{JournalError, StoreError, While as _};
use crate::read::Reader;
use crate::space::Space;
use crate::store::Store;

/// A day as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedDay {
    day: i64,
    folded: String,
    rows: String,
}

/// Writes days into the journal, beside the decisions.
#[derive(Debug, Clone)]
pub struct DaysWriter {
    pub(crate) store: Store,
    pub(crate) space: Arc<Space>,
}

impl DaysWriter {
    /// What is written of a day that is over: the day folded, and for a while its rows as they are. At thousands of nodes it takes a moment
    /// that no task should wait for.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn encode(&self, day: KeptDay) -> Result<EncodedDay, JournalError> {
        let number = day.day;
        let encode = || {
            let rows = encode(&PackedRows::of(&day.rows), "the rows of a day of spend")?;
            Ok(EncodedDay { day: number, rows, folded: encode(&day.folded(), "a day of spend")? })
        };
        encode().map_err(|error| JournalError::writing(self.store.at(), error))
    }

    /// Writes a day. One that was written before stays as it is.
    ///
    /// # Errors
    /// When it cannot be written, or the disk is so full that what is left is kept for decisions.
    pub async fn write(&self, EncodedDay { day, folded, rows }: &EncodedDay) -> Result<(), JournalError> {
        self.space.may_write_beside(&self.store)?;
        let write = async {
            let mut db = self.store.write().await?;
            for (statement, body) in [
                ("INSERT INTO spend_day (day, body) VALUES ($1, $2) ON CONFLICT (day) DO NOTHING", folded),
                ("INSERT INTO spend_rows (day, body) VALUES ($1, $2) ON CONFLICT (day) DO NOTHING", rows),
            ] {
                sqlx::query(statement)
                    .bind(*day)
                    .bind(body.as_str())
                    .execute(&mut *db)
                    .await
                    .during("writing a day of spend")?;
            }
            db.commit().await.during("committing a day of spend")
        };
        self.store.write_in_time(write).await
    }
}

impl Reader {
    /// The days of `first..end` that are kept, counted from 1970, in order.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn kept_days(&self, first: i64, end: i64) -> Result<Vec<KeptDay>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut rows =
                sqlx::query_as::<_, (i64, String)>("SELECT day, body FROM spend_day WHERE day >= $1 AND day < $2 ORDER BY day")
                    .bind(first)
                    .bind(end)
                    .fetch(&mut *db);
            let mut days = Vec::new();
            while let Some((day, body)) = rows.try_next().await.during("reading days of spend")? {
                let kept: KeptDay = decode(&body, || format!("day {day} of spend"))?;
                days.push(kept);
            }
            Ok(days)
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The rows of a day as they were before it was folded, in which machines and workloads are kept apart; `None` where the journal has
    /// none.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn kept_rows(&self, day: i64) -> Result<Option<Vec<DayRow>>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let body: Option<String> = sqlx::query_scalar("SELECT body FROM spend_rows WHERE day = $1")
                .bind(day)
                .fetch_optional(&mut *db)
                .await
                .during("reading the rows of a day of spend")?;
            let what = || format!("the rows of day {day} of spend");
            let Some(body) = body else { return Ok(None) };
            let packed: PackedRows = decode(&body, what)?;
            packed.rows().map(Some).ok_or_else(|| StoreError::Damaged { what: what() })
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The first day before `today` that has spans and is not kept yet, counted from 1970; `None` where there is none.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn day_to_keep(&self, today: i64) -> Result<Option<i64>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let kept: Option<i64> = sqlx::query_scalar("SELECT MAX(day) FROM spend_day")
                .fetch_one(&mut *db)
                .await
                .during("looking for the last day of spend")?;
            let after = kept.map_or(i64::MIN, |day| (day + 1) * DAY);
            let since: Option<i64> = sqlx::query_scalar("SELECT MIN(since) FROM spend_known WHERE until > $1 AND since < $2")
                .bind(after)
                .bind(today * DAY)
                .fetch_one(&mut *db)
                .await
                .during("looking for the next day of spend")?;
            Ok(since.map(|since| since.max(after).div_euclid(DAY)).filter(|day| *day < today))
        };
        read.await.map_err(|error| self.failed(error))
    }
}
