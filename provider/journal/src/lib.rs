//! The journal: what was accepted and decided, durable before it is acted on, and readable when somebody asks why.
//!
//! A restart stands on the memory, which is stored as a base and what changed since. The rest is for people and for
//! replay: a decision is stored with all that it depended on, so that the same function makes it again. Writes are cheap because
//! only changes are written: a policy or a price book once, a record when it changes.

mod backup;
mod chain;
pub mod checksum;
mod clock;
mod copy;
mod delta;
mod error;
mod index;
mod marker;
mod place;
mod pods;
pub mod private;
mod prune;
mod read;
mod readings;
pub mod replay;
mod row;
mod space;
mod spend;
mod state;
pub mod state_lock;
mod store;
#[cfg(test)]
mod tests;
mod used;
mod write;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::Mark;
use stoker_core::base::ids::{DecisionId, Incarnation, NodeGroupId, OrderId, RecordId, SessionId};
use stoker_core::choose::explanation::Explanation;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::market::price::PriceBook;
use stoker_core::plan::{Action, Note};
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;
use tokio::sync::{Mutex, MutexGuard};

pub use error::{JournalError, StoreError};
pub use marker::Loss;
pub use place::{DatabaseUrl, DatabaseUrlError, Location, Place};
pub use pods::{MOST_PODS, PodChanges, PodEnd, PodsWriter, RecordedPod};
pub use prune::{KEPT, LEAST_PODS_KEPT, Pruned};
pub use read::{Reader, ReplayInputs, StoredCall, StoredDecision};
pub use readings::{MOST_BYTES, READINGS_KEPT, ReadingsWriter};
pub use spend::{DAYS_KEPT, DaysWriter, EncodedDay, SPANS_KEPT, Spent};
pub use state::Facts;
pub use used::{COUNT_EVERY, USE_KEPT};

use marker::Marker;
use readings::Readings;
use space::Space;
use store::{JOURNAL, Store, Transaction};
use write::Writer;

/// A mutating call of the autoscaler that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "call")]
pub enum AcceptedCall {
    /// `NodeGroupIncreaseSize`.
    Increase {
        /// The group.
        group: NodeGroupId,
        /// Nodes asked for.
        delta: i32,
        /// The order that was filed.
        order: OrderId,
    },
    /// `NodeGroupDecreaseTargetSize`.
    Decrease {
        /// The group.
        group: NodeGroupId,
        /// The change asked for, below nought.
        asked: i32,
        /// The records that were taken back.
        withdrawn: Vec<RecordId>,
    },
    /// `NodeGroupDeleteNodes`.
    Delete {
        /// The group.
        group: NodeGroupId,
        /// The nodes, as they were named.
        nodes: Vec<String>,
        /// Their records, as far as there were any.
        records: Vec<RecordId>,
    },
    /// The autoscaler began a session.
    Session {
        /// The session.
        session: SessionId,
    },
}

/// A decision to be written down, with all that it depended on.
#[derive(Debug, Clone, Copy)]
pub struct DecisionEntry<'a> {
    /// Its number: above every one that was written before.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// The policy. One that is the same allocation as the last is not looked at again.
    pub policy: &'a Arc<Policy>,
    /// The prices; likewise.
    pub prices: &'a Arc<PriceBook>,
    /// What suppliers knew of their markets; likewise.
    pub market_facts: &'a Arc<Facts>,
    /// The facts.
    pub snapshot: &'a Snapshot,
    /// What was remembered before.
    pub before: &'a Memory,
    /// What is remembered now.
    pub after: &'a Memory,
    /// What is to be done.
    pub actions: &'a [Action],
    /// What happened.
    pub notes: &'a [Note],
    /// Why orders were supplied as they were.
    pub explanations: &'a [Explanation],
    /// Actions of the plan that are left out because they are under way.
    pub withheld: &'a [Action],
    /// How many of the last notes are of the engine, and not of the plan.
    pub added_notes: usize,
}

/// What a restart goes on from.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// The memory.
    pub memory: Memory,
    /// The number of the next decision.
    pub next_decision: DecisionId,
    /// Where decision time stood; `None` where nothing was ever decided.
    pub mark: Option<Mark>,
    /// Which journal this is. Launch keys carry it, so that none is used twice after a journal was
    /// lost.
    pub incarnation: Incarnation,
    /// What is wrong with the journal as a whole; `None` where it is the one that was here, or the
    /// first.
    pub loss: Option<Loss>,
}

/// The journal, open for writing. The only one: whoever opens it holds the [`StateLock`](crate::state_lock::StateLock) of its
/// directory; and in PostgreSQL nothing counts that is written by one which was opened before the newest.
#[derive(Debug)]
pub struct Journal {
    /// Where its marker lies; `None` of PostgreSQL.
    dir: Option<PathBuf>,
    store: Store,
    space: Arc<Space>,
    incarnation: Incarnation,
    /// It was made of a backup in PostgreSQL, and nobody has written since.
    is_restored: AtomicBool,
    desk: Mutex<Desk>,
}

/// Where one writes at a time.
#[derive(Debug)]
struct Desk {
    /// What is known of the journal's end; `None` after a write that failed or was abandoned, and then read back.
    writer: Option<Writer>,
    /// The number after the last decision whose writing was acknowledged.
    next_decision: DecisionId,
}

/// One write in the making. Dropped before it is finished, it leaves nothing behind.
struct Draft<'a> {
    desk: MutexGuard<'a, Desk>,
    writer: Writer,
    db: Transaction,
}

impl Journal {
    /// Opens the journal of that place, or makes one. A journal that is damaged, of something else or of a newer release is refused and
    /// left as it is. In PostgreSQL whoever had it open is refused from now on.
    pub async fn open(place: impl Into<Place>) -> Result<(Self, Restored), JournalError> {
        Self::open_while(&place.into(), &|| true).await
    }

    /// Whether it may be opened by one that knows of no others: no other Stoker has it. Of a state directory the lock says so.
    ///
    /// # Errors
    /// Where another has it, or that cannot be asked.
    pub async fn ensure_alone(place: &Place) -> Result<(), JournalError> {
        match place {
            Place::Directory(_) => Ok(()),
            Place::Database(url) => store::wait_for_others(url).boxed().await,
        }
    }

    /// Whether a replica that takes the lead could write there. Changes nothing.
    ///
    /// # Errors
    /// Where the database is away, silent or read-only, or the role lacks a right.
    pub async fn try_write(place: &Place) -> Result<(), JournalError> {
        match place {
            Place::Directory(_) => Ok(()),
            Place::Database(url) => store::try_write(url).boxed().await,
        }
    }

    /// The same, unless this process may not any more by the time that it would count.
    pub async fn open_while(place: &Place, still: &(dyn Fn() -> bool + Sync)) -> Result<(Self, Restored), JournalError> {
        let store = loop {
            match Store::open_to_lead(place, &JOURNAL, still).boxed().await {
                Err(JournalError::Full { .. }) if Space::of(place, None).make().await => {}
                opened => break opened?,
            }
        };
        let space = Space::of(place, store.epoch());
        loop {
            match Self::open_with(place, &store, &space).boxed().await {
                Err(JournalError::Full { .. }) if space.make().await => {}
                opened => return opened,
            }
        }
    }

    async fn open_with(place: &Place, store: &Store, space: &Arc<Space>) -> Result<(Self, Restored), JournalError> {
        let dir = match place {
            Place::Directory(dir) => Some(dir.clone()),
            Place::Database(_) => None,
        };
        let marker = dir.as_deref().and_then(Marker::read);
        let restore = async {
            let mut db = store.read().await?;
            let (writer, mark) = (Writer::restore(&mut db).await?, clock::last(&mut db).await?);
            Ok((writer, mark, marker::stored(&mut db).await?, marker::is_restored(&mut db).await?))
        };
        let (writer, mark, known, is_restored) = restore.await.map_err(|error| JournalError::reading(store.at(), error))?;
        let next = writer.next_decision();
        let last = before(next);
        let loss =
            if is_restored { Some(Loss::Other) } else { marker.as_ref().and_then(|marker| marker.loss(known.as_ref(), last)) };
        // One that was made of a backup in PostgreSQL got its name then.
        let incarnation = match known.filter(|_| loss.is_none() || is_restored) {
            Some(known) => known,
            None => name(store).await.map_err(|error| JournalError::writing(store.at(), error))?,
        };
        let memory = writer.memory().clone();
        let desk = Mutex::new(Desk { next_decision: next, writer: Some(writer) });
        let is_restored = AtomicBool::new(is_restored);
        let (store, space) = (store.clone(), Arc::clone(space));
        let journal = Self { dir, store, space, incarnation: incarnation.clone(), is_restored, desk };
        // A loss is told again until time was kept on this journal, so after a decision that knew of it: a start that ends before that
        // must not be the only one who heard.
        if loss.is_none() {
            journal.leave_marker(last).await?;
        }
        journal.space.renew();
        let restored = Restored { memory, next_decision: next, mark, incarnation, loss };
        Ok((journal, restored))
    }

    /// Opens the journal of that place to read it, beside the process that writes it.
    pub async fn open_read_only(place: impl Into<Place>) -> Result<Reader, JournalError> {
        let place = place.into();
        Ok(Reader { store: Store::open_read_only(&place, &JOURNAL).await?, readings: Readings::of_reader(&place) })
    }

    /// Reads this journal, without waiting for its writes.
    pub fn reader(&self) -> Reader {
        Reader { store: self.store.clone(), readings: Arc::clone(&self.space.readings) }
    }

    /// Writes readings beside this journal.
    pub fn readings(&self) -> ReadingsWriter {
        ReadingsWriter { space: Arc::clone(&self.space) }
    }

    /// Writes GPU pods into this journal.
    pub fn pods(&self) -> PodsWriter {
        PodsWriter { store: self.store.clone(), space: Arc::clone(&self.space) }
    }

    /// Writes days of spend into this journal.
    pub fn days(&self) -> DaysWriter {
        DaysWriter { store: self.store.clone(), space: Arc::clone(&self.space) }
    }

    /// Makes what the journal keeps of the disk in reserve again, where that was given up and there is room for it. Whether it is there.
    pub fn renew_reserve(&self) -> bool {
        !self.space.is_short() || self.space.renew()
    }

    /// Whether the journal is still where it was opened.
    ///
    /// # Errors
    /// Where it was removed or replaced: what is written is lost with this process.
    pub fn in_place(&self) -> Result<(), JournalError> {
        match self.store.at() {
            Location::File(path) if !self.store.is_in_place() => Err(JournalError::Gone { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Writes down a call that was accepted. When this returns, a restart remembers `after`.
    ///
    /// After an error the caller goes on from `before`; what it writes next puts right whatever the failed write left.
    pub async fn accept(
        &self,
        at: Timestamp,
        call: &AcceptedCall,
        before: &Memory,
        after: &Memory,
    ) -> Result<(), JournalError> {
        while let Err(error) = self.store.in_time(self.try_accept(at, call, before, after).boxed()).await {
            self.make_room(error).await?;
        }
        Ok(())
    }

    async fn try_accept(
        &self,
        at: Timestamp,
        call: &AcceptedCall,
        before: &Memory,
        after: &Memory,
    ) -> Result<(), JournalError> {
        let mut draft = self.draft().await?;
        let written = draft.writer.accept(&mut draft.db, at, call, before, after).await;
        self.finish(draft, written).await.map(drop)
    }

    /// Writes down a decision. When this returns, it may be acted on.
    ///
    /// After an error the caller goes on from `before`, and may use the number again.
    pub async fn decide(&self, entry: &DecisionEntry<'_>) -> Result<(), JournalError> {
        while let Err(error) = self.store.in_time(self.try_decide(entry).boxed()).await {
            self.make_room(error).await?;
        }
        // Before the machine is asked for: a journal that ends before this decision is not the one that knows of it.
        if entry.actions.iter().any(|action| matches!(action, Action::Launch { .. }))
            && let Err(error) = self.leave_marker(entry.id).await
        {
            // It is not acted on, and the next decision takes its number and place.
            self.desk.lock().await.next_decision = entry.id;
            return Err(error);
        }
        Ok(())
    }

    async fn try_decide(&self, entry: &DecisionEntry<'_>) -> Result<(), JournalError> {
        let mut draft = self.draft().await?;
        let next = draft.desk.next_decision;
        if entry.id < next {
            draft.desk.writer = Some(draft.writer);
            return Err(JournalError::OutOfOrder { at: self.store.at().clone(), got: entry.id, next });
        }
        let written = draft.writer.decide(&mut draft.db, entry).await;
        let mut desk = self.finish(draft, written).await?.0;
        desk.next_decision = DecisionId(entry.id.0 + 1);
        Ok(())
    }

    /// Forgets what is older than `keep` ([`KEPT`] where nobody says otherwise), a bounded piece of it at a time, and never what a
    /// restart needs. Pods are kept for [`LEAST_PODS_KEPT`] at least.
    pub async fn prune(&self, now: Timestamp, keep: SignedDuration) -> Result<Pruned, JournalError> {
        let cutoff = now.saturating_sub(keep).unwrap_or(Timestamp::MIN);
        let prune = async {
            let mut draft = self.draft().await?;
            let prune = async {
                let mut pruned = prune::prune(&mut draft.db, &draft.writer, cutoff).await?;
                // Of a day that is not summed up yet it must be known who held nodes, however soon decisions are forgotten.
                let of_pods = cutoff.min(now.saturating_sub(LEAST_PODS_KEPT).unwrap_or(Timestamp::MIN));
                let (gone, more) = pods::prune(&mut draft.db, of_pods).await?;
                pruned.pods = gone;
                pruned.more |= more | used::forget(&mut draft.db, now).await? | spend::forget(&mut draft.db, now).await?;
                Ok(pruned)
            };
            let pruned = prune.await;
            self.finish(draft, pruned).await.map(|(_, pruned)| pruned)
        };
        self.store.in_time(prune.boxed()).await
    }

    /// Counts what is held for the time since it was last counted. Call it every [`COUNT_EVERY`]: time between two calls that is much longer
    /// stays unknown.
    pub async fn count_use(&self, now: Timestamp, memory: &Memory) -> Result<(), JournalError> {
        let count = async {
            let mut draft = self.draft().await?;
            let count = async {
                used::count(&mut draft.db, now, memory).await?;
                draft.writer.spans().follow(&mut draft.db, now, memory, None, &[]).await
            };
            let counted = count.await;
            self.finish(draft, counted).await.map(drop)
        };
        self.store.in_time(count.boxed()).await
    }

    /// Writes down where decision time stands. Call it every some minutes: a restart goes on from there.
    pub async fn keep_time(&self, mark: &Mark) -> Result<(), JournalError> {
        let keep = async {
            let mut draft = self.draft().await?;
            let kept = clock::keep(&mut draft.db, mark).await;
            Ok(self.finish(draft, kept).await?.0.next_decision)
        };
        let next = self.store.in_time(keep.boxed()).await?;
        self.leave_marker(before(next)).await
    }

    /// Writes down a memory that moved with the wall, and where decision time stands now; and
    /// forgets the hours of use and moves back the ends of pods to come, which a wall that ran ahead
    /// left. All or nothing: the next restart moves nothing again.
    pub async fn rebase(&self, moved: &Memory, mark: &Mark) -> Result<(), JournalError> {
        self.store.in_time(self.try_rebase(moved, mark).boxed()).await
    }

    async fn try_rebase(&self, moved: &Memory, mark: &Mark) -> Result<(), JournalError> {
        let mut draft = self.draft().await?;
        let rebase = async {
            draft.writer.remember(&mut draft.db, moved, None).await?;
            clock::keep(&mut draft.db, mark).await?;
            pods::not_after(&mut draft.db, mark.now).await?;
            spend::not_after(&mut draft.db, mark.now).await?;
            draft.writer.spans().reread(&mut draft.db).await?;
            draft.writer.spans().follow(&mut draft.db, mark.now, moved, None, &[]).await?;
            clock::forget_after(&mut draft.db, mark.now).await
        };
        let rebased = rebase.await;
        self.finish(draft, rebased).await.map(drop)
    }

    /// Waits until nothing is under way, and closes. What was acknowledged is safe without it.
    pub async fn close(self) {
        self.reader().close().await;
    }

    /// Gives something up where the disk is full, so that the write can be tried again.
    ///
    /// # Errors
    /// The same error where nothing is left to give up, or that is not what is wrong.
    async fn make_room(&self, error: JournalError) -> Result<(), JournalError> {
        if matches!(error, JournalError::Full { .. }) && self.space.make().await { Ok(()) } else { Err(error) }
    }

    /// Leaves the marker beside the journal. Where the disk is full to the last byte the one of before
    /// stays: it knows an earlier decision, so it finds less missing than there may be, and nothing that
    /// is not.
    async fn leave_marker(&self, last: DecisionId) -> Result<(), JournalError> {
        let Some(dir) = &self.dir else { return self.heard_of_restore().await };
        while let Err(source) = Marker::write(dir, &self.incarnation, last) {
            if source.kind() != io::ErrorKind::StorageFull {
                let source = StoreError::Sql { what: "writing the marker beside it", source: source.into() };
                return Err(JournalError::writing(&Location::File(marker::path(dir)), source));
            }
            if !self.space.make().await {
                break;
            }
        }
        Ok(())
    }

    /// Whoever wrote has heard that the journal was made of a backup.
    async fn heard_of_restore(&self) -> Result<(), JournalError> {
        if !self.is_restored.load(Ordering::Relaxed) {
            return Ok(());
        }
        let heard = async {
            let mut draft = self.draft().await?;
            let heard = marker::heard(&mut draft.db).await;
            self.finish(draft, heard).await.map(drop)
        };
        self.store.in_time(heard.boxed()).await?;
        self.is_restored.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn draft(&self) -> Result<Draft<'_>, JournalError> {
        self.in_place()?;
        let mut desk = self.desk.lock().await;
        // Taken out for as long as it runs ahead of the database: a caller that goes away in the middle leaves none behind.
        let known = desk.writer.take();
        let begin = async {
            let mut db = self.store.write().await?;
            let writer = match known {
                // A server that took over may not have all that the one before had acknowledged.
                Some(writer) if self.dir.is_some() || writer.is_at_end(&mut db).await? => writer,
                _ => Writer::restore(&mut db).await?,
            };
            Ok((writer, db))
        };
        let (writer, db) = begin.await.map_err(|error| JournalError::writing(self.store.at(), error))?;
        Ok(Draft { desk, writer, db })
    }

    async fn finish<'a, T>(
        &self,
        draft: Draft<'a>,
        written: Result<T, StoreError>,
    ) -> Result<(MutexGuard<'a, Desk>, T), JournalError> {
        let Draft { mut desk, writer, db } = draft;
        let commit = async {
            let value = written?;
            error::While::during(db.commit().await, "committing")?;
            Ok(value)
        };
        let value = commit.await.map_err(|error| JournalError::writing(self.store.at(), error))?;
        desk.writer = Some(writer);
        Ok((desk, value))
    }
}

/// The last decision before the next one; 0 before the first.
fn before(next: DecisionId) -> DecisionId {
    DecisionId(next.0.saturating_sub(1))
}

/// Gives a journal its name, for good.
async fn name(store: &Store) -> Result<Incarnation, StoreError> {
    let mut db = store.write().await?;
    let minted = marker::mint(&mut db).await?;
    error::While::during(db.commit().await, "committing")?;
    Ok(minted)
}
