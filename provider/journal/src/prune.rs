//! Forgetting: what is older than it is kept goes, a bounded piece at a time, and never what a restart needs.

use jiff::{SignedDuration, Timestamp};
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::state::memory::Memory;

use super::chain::Chained;
use super::error::{StoreError, While as _};
use super::read::moment;
use super::state::Facts;
use super::store::Connection;
use super::write::Writer;

/// How long decisions are kept where nothing else is said.
pub const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long it is known at least which pods there were: a day is summed up by them an hour after its end, or once the service is back.
pub const LEAST_PODS_KEPT: SignedDuration = SignedDuration::from_hours(3 * 24);

/// Decisions, calls and launches that one call forgets at most of each: some tens of milliseconds, in which no order is accepted.
const AT_ONCE: usize = 500;

/// Steps that one call forgets at most of each chain.
const STEPS_AT_ONCE: i64 = 2_000;

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Decisions.
    pub decisions: u64,
    /// Accepted calls.
    pub calls: u64,
    /// Steps of memory, snapshot and market facts.
    pub steps: u64,
    /// GPU pods.
    pub pods: u64,
    /// Whether there is more to forget: call again.
    pub more: bool,
}

/// Forgets what is from before `cutoff`. The newest decision and the newest call stay: their numbers are what the next ones follow on.
pub(super) async fn prune(db: &mut Connection, writer: &Writer, cutoff: Timestamp) -> Result<Pruned, StoreError> {
    let mut pruned = Pruned::default();
    let old = oldest(db, "SELECT id, at FROM decision ORDER BY id LIMIT $1", cutoff).await?;
    if let Some(last) = old.last {
        pruned.decisions = delete(db, "DELETE FROM decision WHERE id <= $1", last).await?;
        delete(db, "DELETE FROM touched WHERE decision <= $1", last).await?;
        sqlx::query(
            "DELETE FROM content WHERE NOT EXISTS (SELECT 1 FROM decision WHERE policy = content.id) \
             AND NOT EXISTS (SELECT 1 FROM decision WHERE prices = content.id)",
        )
        .execute(&mut *db)
        .await
        .during("forgetting content")?;
    }
    let calls = oldest(db, "SELECT seq, at FROM accepted ORDER BY seq LIMIT $1", cutoff).await?;
    if let Some(last) = calls.last {
        pruned.calls = delete(db, "DELETE FROM accepted WHERE seq <= $1", last).await?;
    }
    pruned.more = old.more || calls.more;

    let needed: Option<(i64, i64, i64)> =
        sqlx::query_as("SELECT memory_before, snapshot, facts FROM decision ORDER BY id LIMIT 1")
            .fetch_optional(&mut *db)
            .await
            .during("looking for the oldest decision")?;
    let (snapshot_head, facts_head) = writer.other_heads();
    let (memory, snapshot, facts) = needed.unwrap_or((writer.memory_head(), snapshot_head, facts_head));
    let memory = steps::<Memory>(db, memory, &mut pruned).await?;
    steps::<Snapshot>(db, snapshot, &mut pruned).await?;
    steps::<Facts>(db, facts, &mut pruned).await?;

    // A launch is forgotten once no step that is kept knows its record.
    let limit = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
    let launches =
        sqlx::query("DELETE FROM launch WHERE key IN (SELECT key FROM launch WHERE ended < $1 ORDER BY ended LIMIT $2)")
            .bind(memory)
            .bind(limit)
            .execute(&mut *db)
            .await
            .during("forgetting launches")?;
    pruned.more |= launches.rows_affected() >= limit.unsigned_abs();
    Ok(pruned)
}

struct Old {
    /// The last that may go, by number; `None` where none may.
    last: Option<i64>,
    more: bool,
}

/// The longest run of rows from the oldest on that may go. A run, so that what is kept has no holes, not even where a restart followed a wall that was set back.
async fn oldest(db: &mut Connection, select: &'static str, cutoff: Timestamp) -> Result<Old, StoreError> {
    // One more than may go at once: the newest row of all never goes.
    let limit = i64::try_from(AT_ONCE + 1).unwrap_or(i64::MAX);
    let rows: Vec<(i64, String)> =
        sqlx::query_as(select).bind(limit).fetch_all(&mut *db).await.during("looking for what is old")?;
    let mut last = None;
    let mut count = 0;
    for (number, at) in rows.iter().take(rows.len().saturating_sub(1)) {
        if moment(at, || format!("the time of entry {number}"))? >= cutoff {
            break;
        }
        last = Some(*number);
        count += 1;
    }
    Ok(Old { last, more: count == AT_ONCE })
}

async fn delete(db: &mut Connection, statement: &'static str, last: i64) -> Result<u64, StoreError> {
    let done = sqlx::query(statement).bind(last).execute(&mut *db).await.during("forgetting what is old")?;
    Ok(done.rows_affected())
}

/// Forgets the steps before the base of the oldest step needed; that base.
async fn steps<T: Chained>(db: &mut Connection, needed: i64, pruned: &mut Pruned) -> Result<i64, StoreError> {
    let base: Option<i64> = sqlx::query_scalar("SELECT base FROM step WHERE stream = $1 AND seq = $2")
        .bind(T::STREAM)
        .bind(needed)
        .fetch_optional(&mut *db)
        .await
        .during("looking for the oldest step needed")?;
    // Nothing was written yet, or the oldest decision is from before anything was: all of the chain is needed.
    let Some(base) = base else { return Ok(0) };
    let done = sqlx::query(
        "DELETE FROM step WHERE stream = $1 AND seq < $2 \
         AND seq IN (SELECT seq FROM step WHERE stream = $1 ORDER BY seq LIMIT $3)",
    )
    .bind(T::STREAM)
    .bind(base)
    .bind(STEPS_AT_ONCE)
    .execute(&mut *db)
    .await
    .during("forgetting steps")?;
    pruned.steps += done.rows_affected();
    pruned.more |= done.rows_affected() >= STEPS_AT_ONCE.unsigned_abs();
    Ok(base)
}
