//! Replay: makes recorded decisions again from what they depended on, and tells how they differ from what was written
//! down.
//!
//! A pass is a pure function. Made again from the same inputs, a decision is the same byte for byte, unless a rule
//! changed.

mod difference;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::DecisionId;
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::market::price::PriceBook;
use stoker_core::pass::{Before, step};
use stoker_core::plan::{Accounts, Action, Decision, Note};
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;

use super::chain::{Chain, decode, encode};
use super::error::{JournalError, StoreError, While as _};
use super::place::Location;
use super::read::{Reader, content_text, moment};
use super::row::DecisionRow;
use super::state::Facts;
use super::store::Connection;
use super::write::number;
use super::{DecisionEntry, checksum};

pub use difference::{Difference, Part};

/// The release that this is, as decisions are signed with it.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// What the engine changed in a plan before it was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ByEngine {
    /// Checksums of the actions that were left out because they were under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    withheld: Vec<u32>,
    /// How many of the last notes are the engine's own.
    #[serde(default, skip_serializing_if = "is_zero")]
    added: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl ByEngine {
    /// What it changed in the plan of that entry.
    pub(super) fn of(entry: &DecisionEntry<'_>) -> Result<Self, StoreError> {
        let sum = |action| Ok(checksum::of_action(&encode(action, "an action")?));
        Ok(Self { withheld: entry.withheld.iter().map(sum).collect::<Result<_, _>>()?, added: entry.added_notes })
    }

    /// As a row has it: most decisions are written as they were planned, and of those it costs nothing.
    pub(super) fn encoded(&self) -> Result<String, StoreError> {
        if *self == Self::default() { Ok(String::new()) } else { encode(self, "what the engine changed") }
    }

    fn decoded(text: &str, id: DecisionId) -> Result<Self, StoreError> {
        if text.is_empty() { Ok(Self::default()) } else { decode(text, || format!("what the engine changed in {id}")) }
    }
}

/// Reads decisions for replay, quickest in their order: what two in a row share is read once.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    memory: Chain<Memory>,
    snapshot: Chain<Snapshot>,
    facts: Chain<Facts>,
    policy: Option<Content<Policy>>,
    prices: Option<Content<PriceBook>>,
    /// What the last decision chose from.
    derived: Option<Derived>,
    /// Which release decided from which decision on.
    releases: BTreeMap<i64, String>,
}

/// What a decision chose from.
#[derive(Debug)]
struct Derived {
    /// The numbers of its policy, its prices and its market facts.
    of: (i64, i64, i64),
    market_facts: Arc<Facts>,
    catalogue: Arc<Catalogue>,
}

/// A policy or a price book under its number.
#[derive(Debug)]
struct Content<T> {
    id: i64,
    value: Arc<T>,
    /// Whether this release reads and writes it as it was written.
    same: bool,
}

/// A decision as it was written down, with all that it depended on.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its number.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// The release that made it; `None` where it did not say.
    pub release: Option<String>,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The prices.
    pub prices: Arc<PriceBook>,
    /// What suppliers knew of their markets, as far as the policy's groups rest on it.
    pub market_facts: Arc<Facts>,
    /// What it chose from: derived of those three by this release.
    pub catalogue: Arc<Catalogue>,
    /// The facts.
    pub snapshot: Snapshot,
    /// What was remembered before.
    pub before: Memory,
    /// What was remembered then.
    pub after: Memory,
    /// Inputs that this release reads otherwise than they were written, in words: fields came, went or got another
    /// default.
    pub read_otherwise: Vec<&'static str>,
    of: Location,
    actions: String,
    notes: String,
    explanations: String,
    engine: Option<ByEngine>,
}

impl Reader {
    /// Reads decisions for replay.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub async fn replay(&self) -> Result<Replay, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let rows: Vec<(i64, String)> = sqlx::query_as("SELECT decision, release FROM decided_by")
                .fetch_all(&mut *db)
                .await
                .during("reading releases")?;
            Ok(rows.into_iter().collect())
        };
        let releases = read.await.map_err(|error| self.failed(error))?;
        Ok(Replay {
            reader: self.clone(),
            memory: Chain::unwritten(),
            snapshot: Chain::unwritten(),
            facts: Chain::unwritten(),
            policy: None,
            prices: None,
            derived: None,
            releases,
        })
    }

    /// The decisions that were made since a moment, or all that are kept, oldest first.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub async fn decisions_since(&self, since: Option<Timestamp>) -> Result<Vec<DecisionId>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut rows = sqlx::query_as("SELECT id, at FROM decision ORDER BY id").fetch(&mut *db);
            let mut made = Vec::new();
            while let Some((id, at)) = rows.try_next().await.during("looking for decisions")? {
                let (id, at): (i64, String) = (id, at);
                let id = DecisionId(number(id));
                if let Some(since) = since
                    && moment(&at, || format!("the time of {id}"))? < since
                {
                    continue;
                }
                made.push(id);
            }
            Ok(made)
        };
        read.await.map_err(|error| self.failed(error))
    }
}

impl Replay {
    /// A decision with all that it depended on; `None` where there is none of that number, or not any more.
    ///
    /// # Errors
    /// Where it cannot be read, or is not as it was written.
    pub async fn read(&mut self, id: DecisionId) -> Result<Option<Recorded>, JournalError> {
        let reader = self.reader.clone();
        self.try_read(id).await.map_err(|error| reader.failed(error))
    }

    async fn try_read(&mut self, id: DecisionId) -> Result<Option<Recorded>, StoreError> {
        let mut db = self.reader.store.read().await?;
        let Some(row) = DecisionRow::of(&mut db, id).await? else { return Ok(None) };
        self.snapshot.move_to(&mut db, row.snapshot).await?;
        self.facts.move_to(&mut db, row.facts).await?;
        self.memory.move_to(&mut db, row.memory_before).await?;
        let before = self.memory.current().clone();
        self.memory.move_to(&mut db, row.memory_after).await?;
        let (policy, same_policy) = content(&mut db, &mut self.policy, row.policy, "the policy").await?;
        let (prices, same_prices) = content(&mut db, &mut self.prices, row.prices, "the price book").await?;
        let key = (row.policy, row.prices, row.facts);
        let derived = match self.derived.take() {
            Some(derived) if derived.of == key => derived,
            _ => {
                let market_facts = Arc::new(self.facts.current().clone());
                let catalogue = Arc::new(Catalogue::derive(&policy, &prices, &market_facts));
                Derived { of: key, market_facts, catalogue }
            }
        };
        let (market_facts, catalogue) = (Arc::clone(&derived.market_facts), Arc::clone(&derived.catalogue));
        self.derived = Some(derived);
        let read_otherwise = [(same_policy, "the policy"), (same_prices, "the price tables")];
        Ok(Some(Recorded {
            id,
            at: row.made_at()?,
            release: self.releases.range(..=row.id).next_back().map(|(_, release)| release.clone()),
            policy,
            prices,
            market_facts,
            catalogue,
            snapshot: self.snapshot.current().clone(),
            before,
            after: self.memory.current().clone(),
            read_otherwise: read_otherwise.into_iter().filter(|(same, _)| !same).map(|(_, what)| what).collect(),
            of: self.reader.store.at().clone(),
            engine: row.engine.as_deref().map(|text| ByEngine::decoded(text, id)).transpose()?,
            actions: row.actions,
            notes: row.notes,
            explanations: row.explanations,
        }))
    }
}

impl Recorded {
    /// Whether it was written with all that a replay needs: releases up to schema 7 did not say which actions were
    /// left out.
    pub const fn is_whole(&self) -> bool {
        self.engine.is_some()
    }

    /// Whether it did anything.
    pub fn acts(&self) -> bool {
        self.actions != "[]"
    }

    /// What it would choose from under another policy. Of markets in which the recorded policy had no groups nothing
    /// is known.
    pub fn catalogue_of(&self, policy: &Arc<Policy>) -> Catalogue {
        Catalogue::derive(policy, &self.prices, &self.market_facts)
    }

    /// Makes the decision again, and compares: no difference where it is the same, byte for byte. `look` sees it
    /// before it is checked, and may spoil it in a test.
    ///
    /// # Errors
    /// Where what was written cannot be read as what it is, or is not whole.
    pub fn again(&self, catalogue: &Catalogue, look: impl FnOnce(&mut Decision)) -> Result<Vec<Difference>, JournalError> {
        self.compare(catalogue, look).map_err(|error| JournalError::reading(&self.of, error))
    }

    fn compare(&self, catalogue: &Catalogue, look: impl FnOnce(&mut Decision)) -> Result<Vec<Difference>, StoreError> {
        let unwhole = || StoreError::Damaged { what: format!("{} does not say what was left out", self.id) };
        let ByEngine { withheld, added } = self.engine.as_ref().ok_or_else(unwhole)?;
        // Only what the autoscaler is shown after a panic depends on these, and that is not written down.
        let (limits, accounts) = (BTreeMap::new(), Accounts::default());
        let before = Before { memory: &self.before, limits: &limits, accounts: &accounts };
        let made = step(&before, (&self.snapshot, catalogue), (self.id, self.at), look).verified;
        let mut found = Vec::new();

        let (actions, gone) = without(made.plan.actions, withheld)?;
        found.extend(gone.into_iter().map(Difference::not_withheld));
        let actions = encode(&actions, "actions")?;
        compare_lists(Part::Action, &self.actions, &actions, &mut found)?;

        let mut notes = made.plan.notes;
        if *added > 0 {
            let mut recorded: Vec<Note> = decode(&self.notes, || format!("the notes of {}", self.id))?;
            notes.extend(recorded.split_off(recorded.len().saturating_sub(*added)));
        }
        let notes = encode(&notes, "notes")?;
        compare_lists(Part::Note, &self.notes, &notes, &mut found)?;

        let explanations = encode(&made.plan.explanations, "explanations")?;
        compare_lists(Part::Explanation, &self.explanations, &explanations, &mut found)?;
        if made.memory != self.after {
            let [recorded, now] = [encode(&self.after, "the memory")?, encode(&made.memory, "the memory")?];
            let before = found.len();
            difference::trees(Part::Memory, "", &parsed(&recorded)?, &parsed(&now)?, &mut found);
            if found.len() == before {
                found.push(Difference::of_text(Part::Memory, &recorded, &now));
            }
        }
        Ok(found)
    }
}

/// The actions without those that were withheld, and the checksums that none of them has.
fn without(actions: Vec<Action>, withheld: &[u32]) -> Result<(Vec<Action>, Vec<u32>), StoreError> {
    let mut withheld = withheld.to_vec();
    if withheld.is_empty() {
        return Ok((actions, withheld));
    }
    let mut kept = Vec::with_capacity(actions.len());
    for action in actions {
        let sum = checksum::of_action(&encode(&action, "an action")?);
        match withheld.iter().position(|one| *one == sum) {
            Some(at) => {
                withheld.swap_remove(at);
            }
            None => kept.push(action),
        }
    }
    Ok((kept, withheld))
}

/// The differences of two lists, which are the same where their text is.
fn compare_lists(part: Part, recorded: &str, now: &str, found: &mut Vec<Difference>) -> Result<(), StoreError> {
    if recorded != now {
        let before = found.len();
        difference::lists(part, &parsed::<Vec<_>>(recorded)?, &parsed::<Vec<_>>(now)?, found);
        if found.len() == before {
            found.push(Difference::of_text(part, recorded, now));
        }
    }
    Ok(())
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    decode(text, || "what is compared".to_owned())
}

/// A policy or a price book, and whether this release reads and writes it as it was written.
async fn content<T: Serialize + DeserializeOwned + Sync + Send>(
    db: &mut Connection,
    last: &mut Option<Content<T>>,
    id: i64,
    what: &'static str,
) -> Result<(Arc<T>, bool), StoreError> {
    let known = match last.take() {
        Some(known) if known.id == id => known,
        _ => {
            let body = content_text(db, id).await?;
            let value: T = decode(&body, || format!("content {id}"))?;
            let same = encode(&value, what)? == body;
            Content { id, value: Arc::new(value), same }
        }
    };
    let found = (Arc::clone(&known.value), known.same);
    *last = Some(known);
    Ok(found)
}
