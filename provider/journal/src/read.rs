//! Reading: what was decided, why, and on what.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stoker_core::base::ids::{DecisionId, RecordId};
use stoker_core::catalogue::Catalogue;
use stoker_core::choose::explanation::Explanation;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::limits::commitment::UsedHour;
use stoker_core::market::price::PriceBook;
use stoker_core::plan::{Action, Note};
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;

use super::AcceptedCall;
use super::chain::{Chain, decode};
use super::error::{JournalError, StoreError, While as _};
use super::state::Facts;
use super::store::{Connection, Store};
use super::write::{int, number};
use super::{index, used};

/// Reads a journal: the one that this process writes, or another's.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(super) store: Store,
}

/// A decision as it was written down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredDecision {
    /// Its number.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// What was done.
    pub actions: Vec<Action>,
    /// What had happened.
    pub notes: Vec<Note>,
    /// Why orders were supplied as they were.
    pub explanations: Vec<Explanation>,
}

/// A call of the autoscaler as it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredCall {
    /// When.
    pub at: Timestamp,
    /// What it asked and got.
    pub call: AcceptedCall,
}

/// All that a decision depended on.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayInputs {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The prices.
    pub prices: PriceBook,
    /// What suppliers knew of their markets.
    pub market_facts: Facts,
    /// The facts.
    pub snapshot: Snapshot,
    /// What was remembered before.
    pub memory: Memory,
    /// The time.
    pub now: Timestamp,
}

impl ReplayInputs {
    /// The catalogue that the decision chose from.
    pub fn catalogue(&self) -> Catalogue {
        Catalogue::derive(&self.policy, &self.prices, &self.market_facts)
    }
}

type DecisionRow = (i64, String, String, String, String);

impl Reader {
    /// Waits until nothing is under way, and closes the journal, also for the writer that it was taken from. What was acknowledged is safe
    /// without it.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// A decision; `None` where there is none of that number, or not any more.
    pub async fn explain(&self, id: DecisionId) -> Result<Option<StoredDecision>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            decision(&mut db, int(id.0)).await
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The decisions that concerned a node, oldest first. `node` is a Node's name, a provider id, a placeholder id, a launch key or a
    /// record (`r12`).
    pub async fn decisions_of_node(&self, node: &str) -> Result<Vec<StoredDecision>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut decisions = Vec::new();
            for id in index::decisions_of(&mut db, node).await? {
                decisions.extend(decision(&mut db, id).await?);
            }
            Ok(decisions)
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// What a restart would remember: the newest that is known of every record.
    pub async fn memory(&self) -> Result<Memory, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            Ok(Chain::newest(&mut db).await?.into_current())
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// What was remembered before a decision and after it; `None` where there is none of that number, or not any more.
    pub async fn memories(&self, id: DecisionId) -> Result<Option<(Memory, Memory)>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let row: Option<(i64, i64)> = sqlx::query_as("SELECT memory_before, memory_after FROM decision WHERE id = $1")
                .bind(int(id.0))
                .fetch_optional(&mut *db)
                .await
                .during("looking for a decision")?;
            let Some((before, after)) = row else { return Ok(None) };
            Ok(Some((Chain::at(&mut db, before).await?.into_current(), Chain::at(&mut db, after).await?.into_current())))
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The records that a name means, as [`decisions_of_node`](Self::decisions_of_node) reads it.
    pub async fn records_of_node(&self, node: &str) -> Result<BTreeSet<RecordId>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            index::records_of(&mut db, node).await
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The last decisions, newest first.
    pub async fn recent(&self, limit: u32) -> Result<Vec<StoredDecision>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let rows: Vec<DecisionRow> =
                sqlx::query_as("SELECT id, at, actions, notes, explanations FROM decision ORDER BY id DESC LIMIT $1")
                    .bind(i64::from(limit))
                    .fetch_all(&mut *db)
                    .await
                    .during("reading decisions")?;
            rows.into_iter().map(stored_decision).collect::<Result<Vec<_>, StoreError>>()
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The last accepted calls, newest first.
    pub async fn recent_calls(&self, limit: u32) -> Result<Vec<StoredCall>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let rows: Vec<(i64, String, String)> =
                sqlx::query_as("SELECT seq, at, body FROM accepted ORDER BY seq DESC LIMIT $1")
                    .bind(i64::from(limit))
                    .fetch_all(&mut *db)
                    .await
                    .during("reading accepted calls")?;
            let call = |(seq, at, body): (i64, String, String)| {
                let what = || format!("accepted call {seq}");
                Ok(StoredCall { at: moment(&at, what)?, call: decode(&body, what)? })
            };
            rows.into_iter().map(call).collect::<Result<Vec<_>, StoreError>>()
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// All that a decision depended on, so that `decide` makes it again; `None` where there is none of that number, or not any more.
    pub async fn replay_inputs(&self, id: DecisionId) -> Result<Option<ReplayInputs>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let row: Option<(String, i64, i64, i64, i64, i64)> =
                sqlx::query_as("SELECT at, policy, prices, facts, snapshot, memory_before FROM decision WHERE id = $1")
                    .bind(int(id.0))
                    .fetch_optional(&mut *db)
                    .await
                    .during("looking for a decision")?;
            let Some((at, policy, prices, facts, snapshot, memory)) = row else { return Ok(None) };
            Ok(Some(ReplayInputs {
                policy: Arc::new(content(&mut db, policy).await?),
                prices: content(&mut db, prices).await?,
                market_facts: Chain::at(&mut db, facts).await?.into_current(),
                snapshot: Chain::at(&mut db, snapshot).await?.into_current(),
                memory: Chain::at(&mut db, memory).await?.into_current(),
                now: moment(&at, || format!("the time of {id}"))?,
            }))
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// What was held in each whole hour between two moments, oldest first. An hour that nobody counted has no known second.
    pub async fn used_between(&self, from: Timestamp, until: Timestamp) -> Result<Vec<UsedHour>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            used::between(&mut db, from, until).await
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The policy of the last decision; `None` where none was made yet.
    pub async fn last_policy(&self) -> Result<Option<Policy>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let last: Option<i64> = sqlx::query_scalar("SELECT policy FROM decision ORDER BY id DESC LIMIT 1")
                .fetch_optional(&mut *db)
                .await
                .during("looking for the last decision")?;
            match last {
                Some(id) => content(&mut db, id).await.map(Some),
                None => Ok(None),
            }
        };
        read.await.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: StoreError) -> JournalError {
        JournalError::reading(self.store.path(), error)
    }
}

async fn decision(db: &mut Connection, id: i64) -> Result<Option<StoredDecision>, StoreError> {
    let row: Option<DecisionRow> = sqlx::query_as("SELECT id, at, actions, notes, explanations FROM decision WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *db)
        .await
        .during("looking for a decision")?;
    row.map(stored_decision).transpose()
}

fn stored_decision((id, at, actions, notes, explanations): DecisionRow) -> Result<StoredDecision, StoreError> {
    let id = DecisionId(number(id));
    Ok(StoredDecision {
        id,
        at: moment(&at, || format!("the time of {id}"))?,
        actions: decode(&actions, || format!("the actions of {id}"))?,
        notes: decode(&notes, || format!("the notes of {id}"))?,
        explanations: decode(&explanations, || format!("the explanations of {id}"))?,
    })
}

/// A policy or a price book.
async fn content<T: DeserializeOwned>(db: &mut Connection, id: i64) -> Result<T, StoreError> {
    let row: Option<(String, String)> = sqlx::query_as("SELECT hash, body FROM content WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *db)
        .await
        .during("looking for content")?;
    let damaged = |how: &str| StoreError::Damaged { what: format!("content {id} {how}") };
    let (hash, body) = row.ok_or_else(|| damaged("is not there"))?;
    if blake3::hash(body.as_bytes()).to_hex().as_str() != hash {
        return Err(damaged("does not match its hash"));
    }
    decode(&body, || format!("content {id}"))
}

pub(super) fn moment(text: &str, what: impl FnOnce() -> String) -> Result<Timestamp, StoreError> {
    text.parse().map_err(|_| StoreError::Damaged { what: format!("{} is {text:?}, which is not a time", what()) })
}
