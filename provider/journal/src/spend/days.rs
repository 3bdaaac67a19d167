//! Days as they are kept for longer than their spans and pods.

use std::sync::Arc;

use futures::TryStreamExt as _;
use stoker_advice::spend::{DAY, KeptDay};

use crate::chain::{decode, encode};
use crate::error::{JournalError, While as _};
use crate::read::Reader;
use crate::space::Space;
use crate::store::Store;

/// Writes days into the journal, beside the decisions.
#[derive(Debug, Clone)]
pub struct DaysWriter {
    pub(crate) store: Store,
    pub(crate) space: Arc<Space>,
}

impl DaysWriter {
    /// Writes a day that is over. One that was written before stays as it is.
    ///
    /// # Errors
    /// When it cannot be written, or the disk is so full that what is left is kept for decisions.
    pub async fn write(&self, day: &KeptDay) -> Result<(), JournalError> {
        self.space.may_write_beside(&self.store)?;
        let write = async {
            let body = encode(day, "a day of spend")?;
            let mut db = self.store.write().await?;
            sqlx::query("INSERT INTO spend_day (day, body) VALUES ($1, $2) ON CONFLICT (day) DO NOTHING")
                .bind(day.day)
                .bind(body)
                .execute(&mut *db)
                .await
                .during("writing a day of spend")?;
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
