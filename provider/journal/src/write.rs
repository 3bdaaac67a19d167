//! Writing: everything of one call in one transaction.

use std::sync::Arc;

use serde::Serialize;
use stoker_core::base::ids::DecisionId;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;

use super::chain::{Chain, encode};
use super::checksum;
use super::error::{StoreError, While as _};
use super::replay::{ByEngine, RELEASE};
use super::row::DecisionRow;
use super::spend::{Prices, Spans};
use super::state::{Facts, MemoryDelta};
use super::store::Connection;
use super::{AcceptedCall, DecisionEntry, index};

/// What is known of the journal's end, so that a write need not read.
///
/// It runs ahead of the database while a transaction is open: whoever fails to commit throws it away and reads it back.
#[derive(Debug)]
pub(super) struct Writer {
    memory: Chain<Memory>,
    snapshot: Chain<Snapshot>,
    facts: Chain<Facts>,
    last_decision: i64,
    last_call: i64,
    /// Kept so that what is still the same allocation is neither written as JSON nor compared again.
    policy: Option<(Arc<Policy>, i64)>,
    prices: Option<(Arc<PriceBook>, i64)>,
    last_facts: Option<Arc<Facts>>,
    /// The release that made the last decision; `None` where none did, or one that did not say.
    release: Option<String>,
    /// What nodes do and cost.
    spans: Spans,
}

impl Writer {
    /// Reads the journal's end.
    pub(super) async fn restore(db: &mut Connection) -> Result<Self, StoreError> {
        // What the last entries stand on must be there: without it the fleet would be taken for an
        // empty one.
        let decision: Option<(i64, i64, i64, i64)> =
            sqlx::query_as("SELECT id, memory_after, snapshot, facts FROM decision ORDER BY id DESC LIMIT 1")
                .fetch_optional(&mut *db)
                .await
                .during("looking for the last decision")?;
        let call: Option<(i64, i64)> = sqlx::query_as("SELECT seq, memory FROM accepted ORDER BY seq DESC LIMIT 1")
            .fetch_optional(&mut *db)
            .await
            .during("looking for the last call")?;
        let (last_decision, memory, snapshot, facts) = decision.unwrap_or_default();
        let (last_call, left) = call.unwrap_or_default();
        let release = sqlx::query_scalar("SELECT release FROM decided_by ORDER BY decision DESC LIMIT 1")
            .fetch_optional(&mut *db)
            .await
            .during("looking for the release")?;
        Ok(Self {
            memory: Chain::newest_since(db, memory.max(left)).await?,
            snapshot: Chain::newest_since(db, snapshot).await?,
            facts: Chain::newest_since(db, facts).await?,
            last_decision,
            last_call,
            policy: None,
            prices: None,
            last_facts: None,
            release,
            spans: Spans::restore(db).await?,
        })
    }

    /// Whether the journal ends where it is known to: what was acknowledged last is there, and nothing more.
    pub(super) async fn is_at_end(&self, db: &mut Connection) -> Result<bool, StoreError> {
        let newest = "SELECT (SELECT COALESCE(MAX(seq), 0) FROM step WHERE stream = 'memory'), \
                      (SELECT COALESCE(MAX(id), 0) FROM decision), (SELECT COALESCE(MAX(seq), 0) FROM accepted)";
        let found: (i64, i64, i64) =
            sqlx::query_as(newest).fetch_one(&mut *db).await.during("looking for the newest entries")?;
        Ok(found == (self.memory.head(), self.last_decision, self.last_call))
    }

    /// What a restart would remember.
    pub(super) const fn memory(&self) -> &Memory {
        self.memory.current()
    }

    /// The step where the memory's chain ends.
    pub(super) const fn memory_head(&self) -> i64 {
        self.memory.head()
    }

    /// The steps where the other chains end.
    pub(super) const fn other_heads(&self) -> (i64, i64) {
        (self.snapshot.head(), self.facts.head())
    }

    /// The least number that no decision has.
    pub(super) fn next_decision(&self) -> DecisionId {
        DecisionId(number(self.last_decision) + 1)
    }

    pub(super) async fn accept(
        &mut self,
        db: &mut Connection,
        at: jiff::Timestamp,
        call: &AcceptedCall,
        before: &Memory,
        after: &Memory,
    ) -> Result<(), StoreError> {
        self.remember(db, before, None).await?;
        self.remember(db, after, None).await?;
        self.last_call += 1;
        let (time, at, body) = (at, at.to_string(), encode(call, "an accepted call")?);
        let checksum = checksum::of_row(&[self.last_call, self.memory.head()], &[&at, &body]);
        sqlx::query("INSERT INTO accepted (seq, at, body, memory, checksum) VALUES ($1, $2, $3, $4, $5)")
            .bind(self.last_call)
            .bind(at)
            .bind(body)
            .bind(self.memory.head())
            .bind(checksum)
            .execute(&mut *db)
            .await
            .during("writing an accepted call")?;
        self.spans.follow(db, time, after, None, &[]).await
    }

    pub(super) async fn decide(&mut self, db: &mut Connection, entry: &DecisionEntry<'_>) -> Result<(), StoreError> {
        self.forget_unacknowledged(db, entry.id).await?;
        self.remember(db, entry.before, None).await?;
        let memory_before = self.memory.head();
        let delta = self.remember(db, entry.after, Some((entry.id, entry.snapshot))).await?;
        self.snapshot.advance(db, entry.snapshot).await?;
        if !self.last_facts.as_ref().is_some_and(|last| Arc::ptr_eq(last, entry.market_facts)) {
            self.facts.advance(db, entry.market_facts).await?;
            self.last_facts = Some(Arc::clone(entry.market_facts));
        }
        let policy = content(db, &mut self.policy, entry.policy, "the policy").await?;
        let prices = content(db, &mut self.prices, entry.prices, "the price book").await?;
        let (memory_after, facts, snapshot) = (self.memory.head(), self.facts.head(), self.snapshot.head());
        let row = DecisionRow {
            id: int(entry.id.0),
            at: entry.at.to_string(),
            policy,
            prices,
            facts,
            snapshot,
            memory_before,
            memory_after,
            actions: encode(entry.actions, "actions")?,
            notes: encode(entry.notes, "notes")?,
            explanations: encode(entry.explanations, "explanations")?,
            checksum: None,
            engine: Some(ByEngine::of(entry)?.encoded()?),
        };
        let checksum = row.sum();
        sqlx::query(
            "INSERT INTO decision (id, at, policy, prices, facts, snapshot, memory_before, memory_after, actions, notes, explanations, \
             checksum, engine) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(row.id)
        .bind(row.at)
        .bind(row.policy)
        .bind(row.prices)
        .bind(row.facts)
        .bind(row.snapshot)
        .bind(row.memory_before)
        .bind(row.memory_after)
        .bind(row.actions)
        .bind(row.notes)
        .bind(row.explanations)
        .bind(checksum)
        .bind(row.engine)
        .execute(&mut *db)
        .await
        .during("writing a decision")?;
        self.sign(db, entry.id).await?;
        let prices =
            Prices { policy: Arc::clone(entry.policy), book: Arc::clone(entry.prices), facts: Arc::clone(entry.market_facts) };
        self.spans.follow(db, entry.at, entry.after, Some(prices), entry.notes).await?;
        index::touch(db, &index::subjects(delta.as_ref(), entry.actions, entry.notes), entry.id).await?;
        self.last_decision = int(entry.id.0);
        Ok(())
    }

    /// What nodes do and cost.
    pub(super) const fn spans(&mut self) -> &mut Spans {
        &mut self.spans
    }

    /// Writes down which release decides from now on, where it is another than before.
    async fn sign(&mut self, db: &mut Connection, id: DecisionId) -> Result<(), StoreError> {
        if self.release.as_deref() == Some(RELEASE) {
            return Ok(());
        }
        // A decision that was taken back leaves its row, and its number is used again.
        sqlx::query(
            "INSERT INTO decided_by (decision, release) VALUES ($1, $2) \
             ON CONFLICT (decision) DO UPDATE SET release = excluded.release",
        )
        .bind(int(id.0))
        .bind(RELEASE)
        .execute(&mut *db)
        .await
        .during("writing the release")?;
        self.release = Some(RELEASE.to_owned());
        Ok(())
    }

    /// Writes what changed in the memory. `next` follows on what is stored, whatever the caller believes that to be: a chain without a
    /// hole is what a restart stands on.
    pub(super) async fn remember(
        &mut self,
        db: &mut Connection,
        next: &Memory,
        made: Option<(DecisionId, &Snapshot)>,
    ) -> Result<Option<MemoryDelta>, StoreError> {
        let delta = self.memory.advance(db, next).await?;
        if let Some(delta) = &delta {
            index::launches(db, delta, self.memory.head(), made).await?;
        }
        Ok(delta)
    }

    /// A commit may fail after it reached the disk. Its decision was never acted on, so the next one takes its number and place.
    async fn forget_unacknowledged(&mut self, db: &mut Connection, id: DecisionId) -> Result<(), StoreError> {
        if self.last_decision < int(id.0) {
            return Ok(());
        }
        for statement in ["DELETE FROM touched WHERE decision >= $1", "DELETE FROM decision WHERE id >= $1"] {
            sqlx::query(statement)
                .bind(int(id.0))
                .execute(&mut *db)
                .await
                .during("taking back a decision that was not acted on")?;
        }
        Ok(())
    }
}

/// The number under which a policy or a price book is stored; stores it first where it is new.
async fn content<T: Serialize + Sync + Send>(
    db: &mut Connection,
    last: &mut Option<(Arc<T>, i64)>,
    value: &Arc<T>,
    what: &'static str,
) -> Result<i64, StoreError> {
    if let Some((known, id)) = last
        && Arc::ptr_eq(known, value)
    {
        return Ok(*id);
    }
    let body = encode(value.as_ref(), what)?;
    let hash = checksum::of_content(&body);
    let stored: Option<i64> = sqlx::query_scalar("SELECT id FROM content WHERE hash = $1")
        .bind(hash.as_str())
        .fetch_optional(&mut *db)
        .await
        .during("looking for content")?;
    let id = if let Some(id) = stored { id } else { store(db, hash.as_str(), body).await? };
    *last = Some((Arc::clone(value), id));
    Ok(id)
}

async fn store(db: &mut Connection, hash: &str, body: String) -> Result<i64, StoreError> {
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(id) FROM content").fetch_one(&mut *db).await.during("numbering content")?;
    let id = last.unwrap_or(0) + 1;
    sqlx::query("INSERT INTO content (id, hash, body) VALUES ($1, $2, $3)")
        .bind(id)
        .bind(hash)
        .bind(body)
        .execute(&mut *db)
        .await
        .during("writing content")?;
    Ok(id)
}

/// A number as the database holds it. Numbers are counted up from 1, so none comes near the end.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from the database.
pub(super) fn number(int: i64) -> u64 {
    u64::try_from(int).unwrap_or(0)
}
