//! One thing that changes all the time, stored as a base and what changed since.

use futures::TryStreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::state::memory::Memory;

use super::checksum;
use super::delta::Part;
use super::error::{StoreError, While as _};
use super::state::Facts;
use super::store::Connection;

/// Deltas after which a base is written whatever their size: a restart reads one base and so many deltas, some 20 ms at the most.
const MOST_DELTAS: u32 = 4096;

/// Bytes of deltas before a base may be written: of less than this, neither the base nor the deltas are worth a thought.
const LEAST_BYTES: usize = 16 << 10;

/// Something that is stored as a chain.
pub(super) trait Chained: Part + Clone + Default {
    /// What its chain is called.
    const STREAM: &'static str;
}

impl Chained for Memory {
    const STREAM: &'static str = "memory";
}

impl Chained for Snapshot {
    const STREAM: &'static str = "snapshot";
}

impl Chained for Facts {
    const STREAM: &'static str = "facts";
}

/// A chain as far as it was read or written. Step 0 is the empty value, before anything was written.
#[derive(Debug)]
pub(super) struct Chain<T> {
    current: T,
    head: i64,
    base: i64,
    deltas: u32,
    base_bytes: usize,
    delta_bytes: usize,
}

impl<T: Chained> Chain<T> {
    /// The chain as it ends now.
    pub(super) async fn newest(db: &mut Connection) -> Result<Self, StoreError> {
        let head: Option<i64> = sqlx::query_scalar("SELECT MAX(seq) FROM step WHERE stream = $1")
            .bind(T::STREAM)
            .fetch_one(&mut *db)
            .await
            .during("looking for the newest step")?;
        Self::at(db, head.unwrap_or(0)).await
    }

    /// The chain as it ends now, where at least the step `known` of it was written.
    pub(super) async fn newest_since(db: &mut Connection, known: i64) -> Result<Self, StoreError> {
        let chain = Self::newest(db).await?;
        if chain.head < known { Err(damaged::<T>(known, "is not there")) } else { Ok(chain) }
    }

    /// The chain before anything was written.
    pub(super) fn unwritten() -> Self {
        Self { current: T::default(), head: 0, base: 0, deltas: 0, base_bytes: 0, delta_bytes: 0 }
    }

    /// The chain as it ended at that step.
    pub(super) async fn at(db: &mut Connection, head: i64) -> Result<Self, StoreError> {
        let mut chain = Self::unwritten();
        chain.move_to(db, head).await?;
        Ok(chain)
    }

    /// Moves to another step. One that is a little later on the same base costs only the deltas between.
    pub(super) async fn move_to(&mut self, db: &mut Connection, head: i64) -> Result<(), StoreError> {
        if head == self.head {
            return Ok(());
        }
        if head == 0 {
            *self = Self::unwritten();
            return Ok(());
        }
        let base: Option<i64> = sqlx::query_scalar("SELECT base FROM step WHERE stream = $1 AND seq = $2")
            .bind(T::STREAM)
            .bind(head)
            .fetch_optional(&mut *db)
            .await
            .during("looking for a step")?;
        let base = base.ok_or_else(|| damaged::<T>(head, "is not there"))?;
        let first = if base == self.base && head > self.head { self.head + 1 } else { base };
        let rows: Vec<(i64, i64, String, i64)> = sqlx::query_as(
            "SELECT seq, base, body, checksum FROM step WHERE stream = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq",
        )
        .bind(T::STREAM)
        .bind(first)
        .bind(head)
        .fetch_all(&mut *db)
        .await
        .during("reading a chain")?;
        for (expected, (seq, of, body, sum)) in (first..=head).zip(&rows) {
            if (*seq, *of) != (expected, base) {
                return Err(damaged::<T>(expected, "is not there"));
            }
            unchanged(T::STREAM, *seq, base, body, *sum)?;
            let before = if *seq == base { None } else { Some(std::mem::take(&mut self.current)) };
            self.current = T::apply(before, decode(body, || format!("step {seq} of {}", T::STREAM))?);
            self.count(*seq, base, body.len());
        }
        if self.head != head {
            return Err(damaged::<T>(self.head + 1, "is not there"));
        }
        Ok(())
    }

    /// The value where the chain ends.
    pub(super) fn into_current(self) -> T {
        self.current
    }

    /// The value where the chain ends.
    pub(super) const fn current(&self) -> &T {
        &self.current
    }

    /// The step where the chain ends.
    pub(super) const fn head(&self) -> i64 {
        self.head
    }

    /// Writes what changed, if anything did, and says what.
    pub(super) async fn advance(&mut self, db: &mut Connection, next: &T) -> Result<Option<T::Delta>, StoreError> {
        let Some(delta) = next.since(&self.current) else { return Ok(None) };
        let seq = self.head + 1;
        let (base, body) = match self.on_base(&delta)? {
            Some(body) => (self.base, body),
            None => (seq, encode(&next.whole(), T::STREAM)?),
        };
        sqlx::query("INSERT INTO step (stream, seq, base, body, checksum) VALUES ($1, $2, $3, $4, $5)")
            .bind(T::STREAM)
            .bind(seq)
            .bind(base)
            .bind(&body)
            .bind(checksum::of_step(seq, base, &body))
            .execute(&mut *db)
            .await
            .during("writing a step")?;
        self.count(seq, base, body.len());
        self.current = next.clone();
        Ok(Some(delta))
    }

    /// The delta as it is stored; `None` where it is time for a base.
    fn on_base(&self, delta: &T::Delta) -> Result<Option<String>, StoreError> {
        if self.head == 0 || self.deltas >= MOST_DELTAS {
            return Ok(None);
        }
        let body = encode(delta, T::STREAM)?;
        // Once the deltas outgrow the base, another base costs no more than they did, and a restart reads less.
        let outgrown = self.delta_bytes + body.len() > self.base_bytes.max(LEAST_BYTES);
        Ok((!outgrown).then_some(body))
    }

    fn count(&mut self, seq: i64, base: i64, bytes: usize) {
        self.head = seq;
        self.base = base;
        if seq == base {
            (self.deltas, self.base_bytes, self.delta_bytes) = (0, bytes, 0);
        } else {
            self.deltas += 1;
            self.delta_bytes += bytes;
        }
    }
}

/// Whether each step is as it was written.
pub(super) async fn check(db: &mut Connection) -> Result<(), StoreError> {
    let mut rows = sqlx::query_as("SELECT stream, seq, base, body, checksum FROM step").fetch(db);
    while let Some(step) = rows.try_next().await.during("reading steps")? {
        let (stream, seq, base, body, sum): (String, i64, i64, String, i64) = step;
        unchanged(&stream, seq, base, &body, sum)?;
    }
    Ok(())
}

fn unchanged(stream: &str, seq: i64, base: i64, body: &str, sum: i64) -> Result<(), StoreError> {
    if sum == checksum::of_step(seq, base, body) {
        return Ok(());
    }
    Err(StoreError::Damaged { what: format!("step {seq} of {stream} does not match its checksum") })
}

fn damaged<T: Chained>(seq: i64, how: &str) -> StoreError {
    StoreError::Damaged { what: format!("step {seq} of {} {how}", T::STREAM) }
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T, what: &'static str) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Encode { what, source })
}

pub(super) fn decode<T: DeserializeOwned>(body: &str, what: impl FnOnce() -> String) -> Result<T, StoreError> {
    serde_json::from_str(body).map_err(|source| StoreError::Decode { what: what(), source })
}
