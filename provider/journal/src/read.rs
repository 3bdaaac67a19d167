//! Reading: what was decided, why, and on what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stoker_core::base::ids::{DecisionId, RecordId, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::choose::explanation::Explanation;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::limits::commitment::UsedHour;
use stoker_core::market::price::PriceBook;
use stoker_core::plan::{Action, Note};
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;

use super::AcceptedCall;
use super::chain::{Chain, decode};
use super::checksum;
use super::error::{JournalError, StoreError, While as _};
use super::place::Location;
use super::readings::Readings;
use super::row::{CallRow, DecisionRow};
use super::state::Facts;
use super::store::{Connection, JOURNAL, Store};
use super::write::number;
use super::{chain, index, row, used};

/// Reads a journal: the one that this process writes, or another's.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(super) store: Store,
    pub(super) readings: Arc<Readings>,
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

impl Reader {
    /// Waits until nothing is under way, and closes the journal, also for the writer that it was taken from. What was acknowledged is safe
    /// without it.
    pub async fn close(&self) {
        self.store.close().await;
        self.readings.close().await;
    }

    /// What messages call it.
    pub const fn location(&self) -> &Location {
        self.store.at()
    }

    /// Looks the whole file through where it is too large for that to be done at each start. Takes
    /// seconds for each gigabyte; nobody waits for it.
    pub async fn check_if_large(&self) -> Result<(), JournalError> {
        if self.store.is_large() { self.store.check().await } else { Ok(()) }
    }

    /// Looks the whole file through, however large it is, and each row that has a checksum.
    pub(super) async fn check(&self) -> Result<(), JournalError> {
        self.store.check().await?;
        self.store.check_schema(&JOURNAL).await?;
        let rows = async {
            let mut db = self.store.read().await?;
            check_contents(&mut db).await?;
            chain::check(&mut db).await?;
            // Without a gap: this is what a restart goes on from.
            Chain::<Memory>::newest(&mut db).await?;
            row::check(&mut db).await
        };
        rows.await.map_err(|error| self.failed(error))
    }

    /// A decision; `None` where there is none of that number, or not any more.
    pub async fn explain(&self, id: DecisionId) -> Result<Option<StoredDecision>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            DecisionRow::of(&mut db, id).await?.map(|row| row.shown()).transpose()
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The decisions that concerned a node, oldest first. `node` is a Node's name, a provider id, a placeholder id, a launch key or a
    /// record (`r12`).
    pub async fn decisions_of_node(&self, node: &str) -> Result<Vec<StoredDecision>, JournalError> {
        self.last_of_node(node, usize::MAX).await
    }

    /// The last `most` decisions that concerned a node, oldest first.
    pub async fn last_of_node(&self, node: &str, most: usize) -> Result<Vec<StoredDecision>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut decisions = Vec::new();
            let all = index::decisions_of(&mut db, node).await?;
            for id in all.iter().copied().skip(all.len().saturating_sub(most)) {
                let row = DecisionRow::of(&mut db, DecisionId(number(id))).await?;
                decisions.extend(row.map(|row| row.shown()).transpose()?);
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
            let Some(row) = DecisionRow::of(&mut db, id).await? else { return Ok(None) };
            let before = Chain::at(&mut db, row.memory_before).await?.into_current();
            Ok(Some((before, Chain::at(&mut db, row.memory_after).await?.into_current())))
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
            let rows = DecisionRow::recent(&mut db, limit).await?;
            rows.iter().map(DecisionRow::shown).collect::<Result<Vec<_>, StoreError>>()
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The last accepted calls, newest first.
    pub async fn recent_calls(&self, limit: u32) -> Result<Vec<StoredCall>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let rows: Vec<CallRow> = sqlx::query_as("SELECT * FROM accepted ORDER BY seq DESC LIMIT $1")
                .bind(i64::from(limit))
                .fetch_all(&mut *db)
                .await
                .during("reading accepted calls")?;
            rows.iter().map(CallRow::shown).collect::<Result<Vec<_>, StoreError>>()
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// All that a decision depended on, so that `decide` makes it again; `None` where there is none of that number, or not any more.
    pub async fn replay_inputs(&self, id: DecisionId) -> Result<Option<ReplayInputs>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let Some(row) = DecisionRow::of(&mut db, id).await? else { return Ok(None) };
            Ok(Some(ReplayInputs {
                policy: Arc::new(content(&mut db, row.policy).await?),
                prices: content(&mut db, row.prices).await?,
                market_facts: Chain::at(&mut db, row.facts).await?.into_current(),
                snapshot: Chain::at(&mut db, row.snapshot).await?.into_current(),
                memory: Chain::at(&mut db, row.memory_before).await?.into_current(),
                now: row.made_at()?,
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

    /// What suppliers told of their markets before the last decision; nothing where none was made yet.
    pub async fn last_market_facts(&self) -> Result<BTreeMap<SupplierName, MarketFacts>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let last: Option<i64> = sqlx::query_scalar("SELECT facts FROM decision ORDER BY id DESC LIMIT 1")
                .fetch_optional(&mut *db)
                .await
                .during("looking for the last decision")?;
            match last {
                Some(facts) => Ok(Chain::at(&mut db, facts).await?.into_current()),
                None => Ok(BTreeMap::new()),
            }
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// The policy of the last decision; `None` where none was made yet.
    pub async fn last_policy(&self) -> Result<Option<Policy>, JournalError> {
        self.policy_before(Timestamp::MAX).await
    }

    /// The policy of the last decision before a moment; `None` where there is none, or not any more.
    pub async fn policy_before(&self, moment: Timestamp) -> Result<Option<Policy>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut newest =
                sqlx::query_as::<_, (i64, String)>("SELECT policy, at FROM decision ORDER BY id DESC").fetch(&mut *db);
            let mut found = None;
            while let Some((policy, at)) = newest.try_next().await.during("looking for the last decision")? {
                if at.parse::<Timestamp>().is_ok_and(|at| at < moment) {
                    found = Some(policy);
                    break;
                }
            }
            drop(newest);
            match found {
                Some(id) => content(&mut db, id).await.map(Some),
                None => Ok(None),
            }
        };
        read.await.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: StoreError) -> JournalError {
        JournalError::reading(self.store.at(), error)
    }
}

/// A policy or a price book.
async fn content<T: DeserializeOwned>(db: &mut Connection, id: i64) -> Result<T, StoreError> {
    decode(&content_text(db, id).await?, || format!("content {id}"))
}

/// A policy or a price book, as it was written.
pub(super) async fn content_text(db: &mut Connection, id: i64) -> Result<String, StoreError> {
    let row: Option<(String, String)> = sqlx::query_as("SELECT hash, body FROM content WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *db)
        .await
        .during("looking for content")?;
    let missing = || StoreError::Damaged { what: format!("content {id} is not there") };
    let (hash, body) = row.ok_or_else(missing)?;
    unchanged(id, &hash, &body)?;
    Ok(body)
}

/// Whether each policy and price book is as it was written.
async fn check_contents(db: &mut Connection) -> Result<(), StoreError> {
    let mut rows = sqlx::query_as("SELECT id, hash, body FROM content").fetch(db);
    while let Some((id, hash, body)) = rows.try_next().await.during("reading content")? {
        let (id, hash, body): (i64, String, String) = (id, hash, body);
        unchanged(id, &hash, &body)?;
    }
    Ok(())
}

fn unchanged(id: i64, hash: &str, body: &str) -> Result<(), StoreError> {
    if checksum::of_content(body) == hash {
        return Ok(());
    }
    Err(StoreError::Damaged { what: format!("content {id} does not match its hash") })
}

pub(super) fn moment(text: &str, what: impl FnOnce() -> String) -> Result<Timestamp, StoreError> {
    text.parse().map_err(|_| StoreError::Damaged { what: format!("{} is {text:?}, which is not a time", what()) })
}
