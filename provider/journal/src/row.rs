//! Rows as they are stored, and whether they are as they were written.

use futures::TryStreamExt as _;
use jiff::Timestamp;
use stoker_core::base::ids::DecisionId;

use super::chain::decode;
use super::checksum;
use super::error::{StoreError, While as _};
use super::read::{StoredCall, StoredDecision, moment};
use super::store::Connection;
use super::write::{int, number};

/// A decision.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct DecisionRow {
    pub(super) id: i64,
    pub(super) at: String,
    pub(super) policy: i64,
    pub(super) prices: i64,
    pub(super) facts: i64,
    pub(super) snapshot: i64,
    pub(super) memory_before: i64,
    pub(super) memory_after: i64,
    pub(super) actions: String,
    pub(super) notes: String,
    pub(super) explanations: String,
    /// `None` of a row that a release without checksums wrote.
    pub(super) checksum: Option<i64>,
    /// [`ByEngine`](super::replay::ByEngine) as JSON, empty where it is empty; `None` of a row that an older release
    /// wrote.
    pub(super) engine: Option<String>,
}

impl DecisionRow {
    /// The decision of that number, where it is as it was written; `None` where there is none, or
    /// not any more.
    pub(super) async fn of(db: &mut Connection, id: DecisionId) -> Result<Option<Self>, StoreError> {
        let row: Option<Self> = sqlx::query_as("SELECT * FROM decision WHERE id = $1")
            .bind(int(id.0))
            .fetch_optional(&mut *db)
            .await
            .during("looking for a decision")?;
        row.map(Self::checked).transpose()
    }

    /// The last decisions, newest first.
    pub(super) async fn recent(db: &mut Connection, limit: u32) -> Result<Vec<Self>, StoreError> {
        let rows: Vec<Self> = sqlx::query_as("SELECT * FROM decision ORDER BY id DESC LIMIT $1")
            .bind(i64::from(limit))
            .fetch_all(&mut *db)
            .await
            .during("reading decisions")?;
        rows.into_iter().map(Self::checked).collect()
    }

    /// What its checksum has to be.
    pub(super) fn sum(&self) -> i64 {
        let Self { id, policy, prices, facts, snapshot, memory_before, memory_after, .. } = self;
        let numbers = [id, policy, prices, facts, snapshot, memory_before, memory_after].map(|number| *number);
        let texts = [&self.at, &self.actions, &self.notes, &self.explanations];
        // A row that an older release wrote has the sum of what that release wrote.
        let texts: Vec<&str> = texts.into_iter().chain(&self.engine).map(String::as_str).collect();
        checksum::of_row(&numbers, &texts)
    }

    /// The row, where it is as it was written.
    fn checked(self) -> Result<Self, StoreError> {
        if self.checksum.is_some_and(|sum| sum != self.sum()) {
            let what = format!("decision {} does not match its checksum", DecisionId(number(self.id)));
            return Err(StoreError::Damaged { what });
        }
        Ok(self)
    }

    /// When it was made.
    pub(super) fn made_at(&self) -> Result<Timestamp, StoreError> {
        moment(&self.at, || format!("the time of {}", DecisionId(number(self.id))))
    }

    /// What people are shown of it.
    pub(super) fn shown(&self) -> Result<StoredDecision, StoreError> {
        let id = DecisionId(number(self.id));
        Ok(StoredDecision {
            id,
            at: self.made_at()?,
            actions: decode(&self.actions, || format!("the actions of {id}"))?,
            notes: decode(&self.notes, || format!("the notes of {id}"))?,
            explanations: decode(&self.explanations, || format!("the explanations of {id}"))?,
        })
    }
}

/// An accepted call.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct CallRow {
    seq: i64,
    at: String,
    body: String,
    memory: i64,
    checksum: Option<i64>,
}

impl CallRow {
    /// What people are shown of it, where it is as it was written.
    pub(super) fn shown(&self) -> Result<StoredCall, StoreError> {
        self.check()?;
        let what = || format!("accepted call {}", self.seq);
        Ok(StoredCall { at: moment(&self.at, what)?, call: decode(&self.body, what)? })
    }

    fn check(&self) -> Result<(), StoreError> {
        let sum = checksum::of_row(&[self.seq, self.memory], &[&self.at, &self.body]);
        if self.checksum.is_some_and(|written| written != sum) {
            return Err(StoreError::Damaged { what: format!("accepted call {} does not match its checksum", self.seq) });
        }
        Ok(())
    }
}

/// Whether each decision and each accepted call is as it was written.
pub(super) async fn check(db: &mut Connection) -> Result<(), StoreError> {
    let mut decisions = sqlx::query_as("SELECT * FROM decision").fetch(&mut *db);
    while let Some(row) = decisions.try_next().await.during("reading decisions")? {
        DecisionRow::checked(row)?;
    }
    drop(decisions);
    let mut calls = sqlx::query_as("SELECT * FROM accepted").fetch(db);
    while let Some(row) = calls.try_next().await.during("reading accepted calls")? {
        CallRow::check(&row)?;
    }
    Ok(())
}
