//! What readings of GPUs come to, hour by hour: what `stoker nodes` and `stoker advise` stand on.
//!
//! An hour's rows are written every few minutes while it lasts and once more when it is over: each replaces the one before, so that writing
//! one again changes nothing and a crash loses a few minutes at most. The whole is bounded twice:
//! by age and by size. It has a file of its own, the first thing that is given up on a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use sqlx::Arguments as _;
use stoker_advice::rollup::{Batch, HOUR, Latest, NodeHour};
use stoker_core::base::ids::NodeName;
use tokio::sync::Mutex;

use super::chain::{decode, encode};
use super::error::{JournalError, StoreError, While as _};
use super::place::{Location, Place};
use super::read::Reader;
use super::space::Space;
use super::store::{Connection, Epoch, READINGS, Store, files, insert};

/// How long hours are kept: `stoker advise` looks back a month.
pub const READINGS_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Most that hours may take. A month of 5,000 nodes with 8 GPUs each takes 5 to 6 GB: 720 hours × 5,000 rows of some 1,600 bytes where levels
/// wander over a dozen buckets (a test measures it), and as many index entries. Past it the oldest hours go first.
pub const MOST_BYTES: i64 = 8 << 30;

/// What a row takes beside its body: its key, twice, and the page's own share.
const ROW_BYTES: i64 = 150;

/// Hours that one call forgets at most of those past their time: at 5,000 nodes an hour is some tens of milliseconds.
const HOURS_AT_ONCE: usize = 2;

/// How long the newest levels of a node that is heard of no more are kept.
const LATEST_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Rows of one statement.
const ROWS: usize = 1_000;

/// The readings' own database: a file beside the journal's, or the same PostgreSQL. It is opened when it is first needed: nothing that a
/// restart stands on is in it.
#[derive(Debug)]
pub(super) struct Readings {
    place: Place,
    writable: bool,
    /// The leader that writes, in PostgreSQL.
    epoch: Option<Epoch>,
    open: Mutex<Option<Store>>,
}

impl Readings {
    /// Those of a journal that is written.
    pub(super) fn of_writer(place: &Place, epoch: Option<Epoch>) -> Arc<Self> {
        Arc::new(Self { place: place.clone(), writable: true, epoch, open: Mutex::default() })
    }

    /// Those of a journal that is read.
    pub(super) fn of_reader(place: &Place) -> Arc<Self> {
        Arc::new(Self { place: place.clone(), writable: false, epoch: None, open: Mutex::default() })
    }

    /// What messages call them.
    fn at(&self) -> Location {
        match &self.place {
            Place::Directory(dir) => Location::File(dir.join(READINGS.file)),
            Place::Database(url) => Location::Database(url.to_string()),
        }
    }

    /// The database, made where there is none.
    async fn made(&self) -> Result<Store, JournalError> {
        let mut open = self.open.lock().await;
        if let Some(store) = open.as_ref() {
            return Ok(store.clone());
        }
        let store = if self.writable {
            Store::open(&self.place, &READINGS).await?.of_leader(self.epoch.clone())
        } else {
            Store::open_read_only(&self.place, &READINGS).await?
        };
        *open = Some(store.clone());
        Ok(store)
    }

    /// The database; `None` where there is none.
    pub(super) async fn known(&self) -> Result<Option<Store>, JournalError> {
        if matches!(self.at(), Location::File(path) if !path.exists()) {
            return Ok(None);
        }
        match self.made().await {
            Err(JournalError::Missing { .. }) => Ok(None),
            store => store.map(Some),
        }
    }

    /// Removes all readings, to make room for what counts; whether there were any.
    pub(super) async fn drop_all(&self) -> bool {
        let Location::File(path) = self.at() else { return self.empty().await.unwrap_or(false) };
        let mut open = self.open.lock().await;
        if let Some(store) = open.take() {
            store.close().await;
        }
        let removed = files(&path).map(|file| fs::remove_file(file).is_ok());
        removed.contains(&true)
    }

    /// The same in PostgreSQL. To empty a table takes no room.
    async fn empty(&self) -> Result<bool, JournalError> {
        let Some(store) = self.known().await? else { return Ok(false) };
        let empty = async {
            let mut db = store.write().await?;
            let any = sqlx::query("SELECT 1 FROM reading_hour LIMIT 1").fetch_optional(&mut *db).await;
            let any = any.during("looking for readings")?.is_some();
            let emptied = sqlx::query("TRUNCATE TABLE reading_hour, reading_size, reading_latest").execute(&mut *db).await;
            emptied.during("removing readings")?;
            db.commit().await.during("committing")?;
            Ok(any)
        };
        store.write_in_time(empty).await
    }

    /// Waits until nothing is under way, and closes.
    pub(super) async fn close(&self) {
        if let Some(store) = self.open.lock().await.take() {
            store.close().await;
        }
    }
}

/// Writes readings down, beside the decisions.
#[derive(Debug, Clone)]
pub struct ReadingsWriter {
    pub(super) space: Arc<Space>,
}

impl ReadingsWriter {
    /// Writes a batch, all of it or nothing. Bodies are made before the database is asked for, so that no order waits for that.
    ///
    /// # Errors
    /// When it cannot be written, or the disk is so full that what is left is the journal's. The
    /// same rows may be written again, then or after more was added to them.
    pub async fn write(&self, batch: &Batch) -> Result<(), JournalError> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.space.is_short() {
            let at = self.space.readings.at();
            let what = "the disk is nearly full, and what is left of it is the journal's".to_owned();
            return Err(JournalError::Full { at, source: StoreError::Damaged { what } });
        }
        let store = self.space.readings.made().await?;
        let hours: Vec<(i64, &NodeName, Vec<u8>)> = batch.hours.iter().map(|row| (row.hour, &row.node, row.encode())).collect();
        let write = async {
            let latest = batch
                .latest
                .iter()
                .map(|(node, latest)| Ok((node, latest.at.as_second(), encode(latest, "the newest levels of a node")?)))
                .collect::<Result<Vec<_>, StoreError>>()?;
            let mut db = store.write().await?;
            put_hours(&mut db, &hours).await?;
            put_latest(&mut db, &latest).await?;
            db.commit().await.during("committing readings")
        };
        store.write_in_time(write).await
    }

    /// Forgets what is past its time or beyond its bound, a little at a time; whether there is
    /// more.
    pub async fn forget(&self, now: Timestamp) -> Result<bool, JournalError> {
        let Some(store) = self.space.readings.known().await? else { return Ok(false) };
        let forget = async {
            let mut db = store.write().await?;
            let more = forget(&mut db, now, MOST_BYTES).await?;
            db.commit().await.during("committing")?;
            Ok(more)
        };
        store.write_in_time(forget).await
    }

    /// Forgets readings from after `now`, which a wall clock that ran ahead left.
    pub async fn forget_after(&self, now: Timestamp) -> Result<(), JournalError> {
        let Some(store) = self.space.readings.known().await? else { return Ok(()) };
        let forget = async {
            let mut db = store.write().await?;
            forget_after(&mut db, now).await?;
            db.commit().await.during("committing")
        };
        store.write_in_time(forget).await
    }
}

async fn put_hours(db: &mut Connection, hours: &[(i64, &NodeName, Vec<u8>)]) -> Result<(), StoreError> {
    for rows in hours.chunks(ROWS) {
        let into = ("reading_hour (hour, node, body)", "ON CONFLICT (hour, node) DO UPDATE SET body = excluded.body");
        let written = insert(db, into, rows, |row, (hour, node, body)| {
            row.add(*hour)?;
            row.add(node.as_str())?;
            row.add(body.as_slice())
        });
        written.await.during("writing an hour of readings")?;
    }
    let mut touched: Vec<i64> = hours.iter().map(|(hour, ..)| *hour).collect();
    touched.sort_unstable();
    touched.dedup();
    for hour in touched {
        sqlx::query(
            "INSERT INTO reading_size (hour, nodes, bytes) \
             SELECT hour, COUNT(*), SUM(LENGTH(body)) FROM reading_hour WHERE hour = $1 GROUP BY hour \
             ON CONFLICT (hour) DO UPDATE SET nodes = excluded.nodes, bytes = excluded.bytes",
        )
        .bind(hour)
        .execute(&mut *db)
        .await
        .during("sizing an hour of readings")?;
    }
    Ok(())
}

async fn put_latest(db: &mut Connection, latest: &[(&NodeName, i64, String)]) -> Result<(), StoreError> {
    for rows in latest.chunks(ROWS) {
        let into =
            ("reading_latest (node, at, body)", "ON CONFLICT (node) DO UPDATE SET at = excluded.at, body = excluded.body");
        let written = insert(db, into, rows, |row, (node, at, body)| {
            row.add(node.as_str())?;
            row.add(*at)?;
            row.add(body.as_str())
        });
        written.await.during("writing the newest levels")?;
    }
    Ok(())
}

/// Forgets what is past its time or beyond the bound, the oldest first and a little at a time; whether there is more.
pub(super) async fn forget(db: &mut Connection, now: Timestamp, most_bytes: i64) -> Result<bool, StoreError> {
    let before = |kept: SignedDuration| now.as_second().saturating_sub(kept.as_secs());
    sqlx::query("DELETE FROM reading_latest WHERE at < $1")
        .bind(before(LATEST_KEPT))
        .execute(&mut *db)
        .await
        .during("forgetting the newest levels of nodes that are gone")?;
    let cutoff = before(READINGS_KEPT).div_euclid(HOUR);
    let sizes: Vec<(i64, i64, i64)> = sqlx::query_as("SELECT hour, nodes, bytes FROM reading_size ORDER BY hour")
        .fetch_all(&mut *db)
        .await
        .during("looking for old readings")?;
    let mut bytes: i64 = sizes.iter().map(|(_, nodes, bytes)| bytes + nodes * ROW_BYTES).sum();
    for (forgotten, (hour, nodes, own)) in sizes.into_iter().enumerate() {
        if hour >= cutoff && bytes <= most_bytes {
            break;
        }
        if forgotten == HOURS_AT_ONCE {
            return Ok(true);
        }
        for statement in ["DELETE FROM reading_hour WHERE hour = $1", "DELETE FROM reading_size WHERE hour = $1"] {
            sqlx::query(statement).bind(hour).execute(&mut *db).await.during("forgetting old readings")?;
        }
        bytes -= own + nodes * ROW_BYTES;
    }
    Ok(false)
}

/// Forgets readings from after `now`, which a wall clock that ran ahead left.
pub(super) async fn forget_after(db: &mut Connection, now: Timestamp) -> Result<(), StoreError> {
    for (statement, last) in [
        ("DELETE FROM reading_hour WHERE hour > $1", now.as_second().div_euclid(HOUR)),
        ("DELETE FROM reading_size WHERE hour > $1", now.as_second().div_euclid(HOUR)),
        ("DELETE FROM reading_latest WHERE at > $1", now.as_second()),
    ] {
        sqlx::query(statement).bind(last).execute(&mut *db).await.during("forgetting readings to come")?;
    }
    Ok(())
}

impl Reader {
    /// Goes over the hours of `first..end` (hours since 1970), oldest first, one node at a time: a month of a large cluster does not fit
    /// into memory.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn each_reading_hour(&self, first: i64, end: i64, mut each: impl FnMut(NodeHour)) -> Result<(), JournalError> {
        let Some(store) = self.readings.known().await? else { return Ok(()) };
        let read = async {
            let mut db = store.read().await?;
            let mut rows = sqlx::query_as::<_, (i64, String, Vec<u8>)>(
                "SELECT hour, node, body FROM reading_hour WHERE hour >= $1 AND hour < $2 ORDER BY hour, node",
            )
            .bind(first)
            .bind(end)
            .fetch(&mut *db);
            while let Some((hour, node, body)) = rows.try_next().await.during("reading readings")? {
                let damaged = || StoreError::Damaged {
                    what: format!("the readings of hour {hour} of node {node:?} cannot be read back"),
                };
                let name = NodeName::new(&node).map_err(|_| damaged())?;
                each(NodeHour::decode(hour, name, &body).map_err(|_| damaged())?);
            }
            Ok(())
        };
        read.await.map_err(|error| JournalError::reading(store.at(), error))
    }

    /// What was last read of each node.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn latest_readings(&self) -> Result<BTreeMap<NodeName, Latest>, JournalError> {
        let Some(store) = self.readings.known().await? else { return Ok(BTreeMap::new()) };
        let read = async {
            let mut db = store.read().await?;
            let rows: Vec<(String, String)> = sqlx::query_as("SELECT node, body FROM reading_latest ORDER BY node")
                .fetch_all(&mut *db)
                .await
                .during("reading the newest levels")?;
            let one = |(node, body): (String, String)| {
                let what = || format!("the newest levels of node {node:?}");
                let name = NodeName::new(&node).map_err(|_| StoreError::Damaged { what: what() })?;
                Ok((name, decode(&body, what)?))
            };
            rows.into_iter().map(one).collect::<Result<BTreeMap<_, _>, StoreError>>()
        };
        read.await.map_err(|error| JournalError::reading(store.at(), error))
    }
}
