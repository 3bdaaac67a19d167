//! GPU pods: what each asked for, and when it ran. `stoker simulate` plays them again. Beside them, pods without GPU on GPU nodes.
//!
//! A row is written once the pod has a node, and its end when it is gone. Both are found by the pod's UID, so that writing one again
//! changes nothing. No decision reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use sqlx::{Arguments as _, AssertSqlSafe};
use stoker_advice::rollup::{Owner, PodLabels};
use stoker_advice::spend::Known;
use stoker_core::market::sharing::Slices;

use super::error::{JournalError, StoreError, While as _};
use super::read::Reader;
use super::space::Space;
use super::spend::LONGEST_GAP;
use super::store::{Connection, Store, insert};

/// Most pods of one write: some tens of milliseconds, in which no decision is written.
pub const MOST_PODS: usize = 250;

/// Pods that one call forgets at most.
const FORGOTTEN_AT_ONCE: i64 = 1_000;

/// A GPU pod, or one without GPU on a GPU node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedPod {
    /// Its UID, which no other pod ever has.
    pub uid: Arc<str>,
    /// `namespace/name`.
    pub name: Arc<str>,
    /// Kind of what made it, such as `Job`; `None` where nothing is known to have.
    pub owner_kind: Option<Arc<str>>,
    /// Whose it is.
    pub owner: Owner,
    /// Its labels.
    pub labels: PodLabels,
    /// The pool that it asks for, or else whose node it got; `None` where neither is known.
    pub pool: Option<String>,
    /// GPU models that it may run on; empty means any.
    pub models: Vec<String>,
    /// Whole GPUs that it asks for; `None` where that is not known, as of a resource claim.
    pub gpus: Option<u32>,
    /// GPU resources under other names that it asks for.
    pub slices: Slices,
    /// Thousandths of a CPU that it asks for.
    pub milli_cpu: u32,
    /// Memory in MiB that it asks for.
    pub memory_mib: u32,
    /// The node that it got.
    pub node: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it got its node.
    pub bound: Timestamp,
    /// Its end; `None` while it runs.
    pub end: Option<PodEnd>,
}

impl RecordedPod {
    /// Whether it is on a GPU node and asks for no GPU. Of such a pod nothing is known but its name and node.
    pub fn is_without_gpu(&self) -> bool {
        self.gpus == Some(0) && self.slices.is_empty()
    }
}

/// The end of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodEnd {
    /// When it was found gone.
    pub at: Timestamp,
    /// Whether it ended just then; else nobody had looked for a while, and it ended at that time or before.
    pub is_seen: bool,
}

/// What changed since pods were last looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodChanges {
    /// Pods that came.
    pub came: Vec<RecordedPod>,
    /// Pods that are gone, by their UIDs.
    pub ended: BTreeMap<Arc<str>, PodEnd>,
}

/// Writes pods into the journal, beside the decisions.
#[derive(Debug, Clone)]
pub struct PodsWriter {
    pub(super) store: Store,
    pub(super) space: Arc<Space>,
}

impl PodsWriter {
    /// Writes down what was found from `since` to `until`, a time in which pods were looked at without a gap; all of it or nothing. The same
    /// may be written again, and the time may have begun in an earlier write. [`MOST_PODS`] at a time keep decisions from waiting.
    ///
    /// # Errors
    /// When it cannot be written, or the disk is so full that what is left is kept for decisions.
    pub async fn write(&self, (since, until): (Timestamp, Timestamp), changes: &PodChanges) -> Result<(), JournalError> {
        self.space.may_write_beside(&self.store)?;
        let write = async {
            let mut db = self.store.write().await?;
            put(&mut db, &changes.came).await?;
            end(&mut db, &changes.ended).await?;
            keep_known(&mut db, (since.as_second(), until.as_second())).await?;
            db.commit().await.during("committing pods")
        };
        self.store.write_in_time(write).await
    }
}

/// Notes that pods were looked at. A restart, or a watch that was lost for no longer than that, leaves no gap.
async fn keep_known(db: &mut Connection, (since, until): (i64, i64)) -> Result<(), StoreError> {
    let gone_on = "UPDATE pod_known SET until = $2 \
                   WHERE since = (SELECT MAX(since) FROM pod_known) AND since <= $2 AND until >= $1 - $3";
    let known = sqlx::query(gone_on)
        .bind(since)
        .bind(until)
        .bind(LONGEST_GAP)
        .execute(&mut *db)
        .await
        .during("noting that pods were looked at")?;
    if known.rows_affected() == 0 {
        sqlx::query("INSERT INTO pod_known (since, until) VALUES ($1, $2) ON CONFLICT (since) DO NOTHING")
            .bind(since)
            .bind(until)
            .execute(&mut *db)
            .await
            .during("noting since when pods are looked at")?;
    }
    Ok(())
}

async fn put(db: &mut Connection, pods: &[RecordedPod]) -> Result<(), StoreError> {
    let into = (
        "pod (uid, name, owner_kind, owner, labels, pool, models, gpus, slices, milli_cpu, memory_mib, node, created, bound, ended, \
         end_seen)",
        // One that is there again, after a backup was restored, runs.
        "ON CONFLICT (uid) DO UPDATE SET ended = excluded.ended, end_seen = excluded.end_seen",
    );
    for rows in pods.chunks(MOST_PODS) {
        let written = insert(db, into, rows, |row, pod| {
            let slices: Vec<String> = pod.slices.iter().map(|(name, number)| format!("{name}={number}")).collect();
            row.add(&*pod.uid)?;
            row.add(&*pod.name)?;
            row.add(pod.owner_kind.as_deref())?;
            row.add(&*pod.owner.name)?;
            row.add(pod.labels.as_str())?;
            row.add(pod.pool.as_deref())?;
            row.add(pod.models.join("|"))?;
            row.add(pod.gpus.map(i64::from))?;
            row.add(slices.join(","))?;
            row.add(i64::from(pod.milli_cpu))?;
            row.add(i64::from(pod.memory_mib))?;
            row.add(pod.node.as_str())?;
            row.add(pod.created.as_second())?;
            row.add(pod.bound.as_second())?;
            row.add(pod.end.map(|end| end.at.as_second()))?;
            row.add(i64::from(pod.end.is_some_and(|end| end.is_seen)))
        });
        written.await.during("writing pods")?;
    }
    Ok(())
}

async fn end(db: &mut Connection, ended: &BTreeMap<Arc<str>, PodEnd>) -> Result<(), StoreError> {
    let mut by_end: BTreeMap<PodEnd, Vec<&str>> = BTreeMap::new();
    for (uid, end) in ended {
        by_end.entry(*end).or_default().push(uid);
    }
    for (PodEnd { at, is_seen }, uids) in by_end {
        for uids in uids.chunks(MOST_PODS) {
            let places: Vec<String> = (3..).take(uids.len()).map(|place: usize| format!("${place}")).collect();
            let update = format!("UPDATE pod SET ended = $1, end_seen = $2 WHERE uid IN ({})", places.join(", "));
            let mut query = sqlx::query(AssertSqlSafe(update)).bind(at.as_second()).bind(i64::from(is_seen));
            for uid in uids {
                query = query.bind(*uid);
            }
            query.persistent(false).execute(&mut *db).await.during("writing the ends of pods")?;
        }
    }
    Ok(())
}

/// Forgets pods that ended before `cutoff`, some at a time; how many, and whether there are more.
pub(super) async fn prune(db: &mut Connection, cutoff: Timestamp) -> Result<(u64, bool), StoreError> {
    let gone = sqlx::query("DELETE FROM pod WHERE uid IN (SELECT uid FROM pod WHERE ended < $1 ORDER BY ended LIMIT $2)")
        .bind(cutoff.as_second())
        .bind(FORGOTTEN_AT_ONCE)
        .execute(&mut *db)
        .await
        .during("forgetting pods")?
        .rows_affected();
    if gone > 0 {
        for statement in ["DELETE FROM pod_known WHERE until <= $1", "UPDATE pod_known SET since = $1 WHERE since < $1"] {
            sqlx::query(statement)
                .bind(cutoff.as_second())
                .execute(&mut *db)
                .await
                .during("noting since when pods are recorded")?;
        }
    }
    Ok((gone, gone >= FORGOTTEN_AT_ONCE.unsigned_abs()))
}

/// Moves back to `now` what a wall clock that ran ahead left later than that.
pub(super) async fn not_after(db: &mut Connection, now: Timestamp) -> Result<(), StoreError> {
    for statement in [
        "UPDATE pod SET ended = $1 WHERE ended > $1",
        "DELETE FROM pod_known WHERE since > $1",
        "UPDATE pod_known SET until = $1 WHERE until > $1",
    ] {
        sqlx::query(statement).bind(now.as_second()).execute(&mut *db).await.during("moving the ends of pods")?;
    }
    Ok(())
}

#[derive(Debug, sqlx::FromRow)]
struct PodRow {
    uid: String,
    name: String,
    owner_kind: Option<String>,
    owner: String,
    labels: String,
    pool: Option<String>,
    models: String,
    gpus: Option<i64>,
    slices: String,
    milli_cpu: i64,
    memory_mib: i64,
    node: String,
    created: i64,
    bound: i64,
    ended: Option<i64>,
    end_seen: i64,
}

impl PodRow {
    fn read(self) -> Result<RecordedPod, StoreError> {
        let (uid, damaged) = (self.uid.clone(), |what| StoreError::Damaged { what: format!("{what} of pod {:?}", self.uid) });
        let second = |second| Timestamp::from_second(second).map_err(|_| damaged("a time"));
        let amount = |amount: i64| u32::try_from(amount).map_err(|_| damaged("an amount"));
        let slice = |slice: &str| {
            let (name, number) = slice.split_once('=').ok_or_else(|| damaged("a GPU resource"))?;
            Ok((name.to_owned(), number.parse().map_err(|_| damaged("a GPU resource"))?))
        };
        let words = |text: &str, by| text.split(by).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let slices: Vec<(String, u64)> =
            words(&self.slices, ',').iter().map(|one| slice(one)).collect::<Result<_, StoreError>>()?;
        let namespace = self.name.split_once('/').map_or("", |(namespace, _)| namespace);
        let end = |at| Ok::<_, StoreError>(PodEnd { at: second(at)?, is_seen: self.end_seen != 0 });
        Ok(RecordedPod {
            owner: Owner { namespace: namespace.into(), name: self.owner.as_str().into() },
            labels: PodLabels::from_text(&self.labels),
            models: words(&self.models, '|'),
            gpus: self.gpus.map(amount).transpose()?,
            slices: slices.iter().map(|(name, number)| (name.as_str(), *number)).collect(),
            milli_cpu: amount(self.milli_cpu)?,
            memory_mib: amount(self.memory_mib)?,
            created: second(self.created)?,
            bound: second(self.bound)?,
            end: self.ended.map(end).transpose()?,
            uid: uid.into(),
            name: self.name.as_str().into(),
            owner_kind: self.owner_kind.as_deref().map(Arc::from),
            pool: self.pool.clone(),
            node: self.node.clone(),
        })
    }
}

impl Reader {
    /// When pods were recorded. At other times it is known of those alone that were there before and after.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn pods_known(&self) -> Result<Known, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let known: Vec<(i64, i64)> = sqlx::query_as("SELECT since, until FROM pod_known ORDER BY since")
                .fetch_all(&mut *db)
                .await
                .during("reading when pods were recorded")?;
            Ok(Known(known))
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// Goes over the pods that were there at some time between `since` and `until`, by when they were created.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn each_pod(
        &self,
        since: Timestamp,
        until: Timestamp,
        mut each: impl FnMut(RecordedPod),
    ) -> Result<(), JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let mut rows = sqlx::query_as::<_, PodRow>(
                "SELECT * FROM pod WHERE created < $2 AND (ended IS NULL OR ended > $1) ORDER BY created, uid",
            )
            .bind(since.as_second())
            .bind(until.as_second())
            .fetch(&mut *db);
            while let Some(row) = rows.try_next().await.during("reading pods")? {
                each(row.read()?);
            }
            Ok(())
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// UIDs of the pods without an end.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn running_pods(&self) -> Result<BTreeSet<Arc<str>>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let uids: Vec<String> = sqlx::query_scalar("SELECT uid FROM pod WHERE ended IS NULL")
                .fetch_all(&mut *db)
                .await
                .during("looking for running pods")?;
            Ok(uids.into_iter().map(Arc::from).collect())
        };
        read.await.map_err(|error| self.failed(error))
    }
}
