//! Reading: what nodes did and cost within a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use stoker_advice::rollup::HOUR;
use stoker_advice::spend::{DAY, End, GpuUse, KeptDay, Known, Life, NodeState, OnFreeNode, PodTime, Span, Tariff, units_of};
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, NodeName, PoolName, ProviderId, RecordId, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{CapacityType, Market, Place};

use crate::error::{JournalError, StoreError, While as _};
use crate::pods::PodEnd;
use crate::read::Reader;
use crate::store::Connection;
use crate::write::number;

/// What nodes did and cost within a time, and who held them.
#[derive(Debug, Clone, Default)]
pub struct Spent {
    /// Spans of nodes that reach into it. One that is open ends at the last moment known.
    pub spans: Vec<Span>,
    /// Pods by their node, each node's by when they came.
    pub pods: BTreeMap<Arc<str>, Vec<PodTime>>,
    /// When it is known what nodes did.
    pub known: Known,
    /// When pods were recorded. One that was there before and after a gap held its GPUs in it.
    pub pods_known: Known,
}

impl Spent {
    /// A day, or a part of it between two moments, of those that this was read for.
    pub fn day(&self, tariff: &Tariff, day: i64, time: (i64, i64), gpu_use: &GpuUse, by_instance: bool) -> KeptDay {
        tariff.day(day, time, (&self.spans, &self.pods), (&self.known, &self.pods_known), gpu_use, by_instance)
    }
}

#[derive(Debug, sqlx::FromRow)]
struct SpanRow {
    record: i64,
    since: i64,
    until: Option<i64>,
    pool: String,
    node: Option<String>,
    instance: String,
    cloud: String,
    region: String,
    zone: String,
    instance_type: String,
    capacity_type: String,
    reservation: Option<String>,
    model: String,
    gpus: i64,
    units: i64,
    state: String,
    list_rate: Option<i64>,
    rate: i64,
}

impl SpanRow {
    fn read(self, last_known: i64) -> Result<Span, StoreError> {
        let record = self.record;
        let damaged = || StoreError::Damaged { what: format!("a span of record {record}") };
        let market = || {
            let place = Place {
                cloud: Cloud::new(&self.cloud).ok()?,
                region: Region::new(&self.region).ok()?,
                zone: ZoneId::new(&self.zone).ok()?,
                instance_type: InstanceType::new(&self.instance_type).ok()?,
            };
            Some(Market { place, capacity_type: CapacityType::of(&self.capacity_type)? })
        };
        let read = || {
            Some(Span {
                record: RecordId(number(record)),
                since: self.since,
                until: self.until.unwrap_or(last_known),
                pool: PoolName::new(&self.pool).ok()?,
                node: self.node.as_ref().map(NodeName::new).transpose().ok()?,
                instance: ProviderId::new(&self.instance).ok()?,
                market: market()?,
                reservation: self.reservation.clone(),
                model: GpuModel::new(&self.model).ok()?,
                gpus: u32::try_from(self.gpus).ok()?,
                units: u32::try_from(self.units).ok()?,
                state: NodeState::of(&self.state)?,
                list: self.list_rate.map(UsdPerHour),
                rate: UsdPerHour(self.rate),
            })
        };
        read().ok_or_else(damaged)
    }
}

type LifeRow = (i64, String, String, i64, Option<i64>, Option<i64>, Option<i64>, Option<String>);

fn life((record, pool, capacity_type, ordered, ready, taken, ended, how): LifeRow) -> Option<Life> {
    let end = match (how, ended) {
        (Some(how), Some(ended)) => Some((End::of(&how)?, ended)),
        _ => None,
    };
    let (record, pool) = (RecordId(number(record)), PoolName::new(pool).ok()?);
    Some(Life { record, pool, capacity_type: CapacityType::of(&capacity_type)?, ordered, ready, taken, end })
}

type OnFreeNodeRow = (i64, String, i64, i64, Option<i64>, String, i64, Option<i64>);

impl Reader {
    /// What nodes did and cost between two moments.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn spent(&self, from: Timestamp, until: Timestamp) -> Result<Spent, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let (from, until) = (from.as_second(), until.as_second());
            let known: Vec<(i64, i64)> =
                sqlx::query_as("SELECT since, until FROM spend_known WHERE until > $1 AND since < $2 ORDER BY since")
                    .bind(from)
                    .bind(until)
                    .fetch_all(&mut *db)
                    .await
                    .during("reading when nodes were looked at")?;
            let last_known = known.last().map_or(from, |(_, until)| *until);
            let spans = spans(&mut db, (from, until), last_known).await?;
            Ok((Known(known), last_known, spans))
        };
        let (known, last_known, spans) = read.await.map_err(|error| self.failed(error))?;
        let pods_known = self.pods_known().await?;
        let mut pods: BTreeMap<Arc<str>, Vec<PodTime>> = BTreeMap::new();
        self.each_pod(from, until, |pod| {
            if pod.is_without_gpu() {
                return;
            }
            let node: Arc<str> = Arc::from(pod.node.as_str());
            let since = pod.bound.as_second();
            let time = PodTime {
                node: Arc::clone(&node),
                since,
                until: match pod.end {
                    None => last_known,
                    Some(PodEnd { at, is_seen: true }) => at.as_second(),
                    // It ended while nobody looked: until then it is not known to have held anything.
                    Some(PodEnd { at, is_seen: false }) => {
                        pods_known.last_before(at.as_second()).map_or(since, |at| at.max(since))
                    }
                },
                units: pod.gpus.map(|gpus| units_of(gpus, &pod.slices)),
                namespace: pod.owner.namespace,
                workload: pod.owner.name,
                labels: pod.labels,
            };
            pods.entry(node).or_default().push(time);
        })
        .await?;
        for of_node in pods.values_mut() {
            of_node.sort_by_key(|pod| pod.since);
        }
        Ok(Spent { spans, pods, known, pods_known })
    }

    /// How busy GPUs were on a day, which is counted from 1970.
    ///
    /// # Errors
    /// When the readings cannot be read.
    pub async fn gpu_use(&self, day: i64) -> Result<GpuUse, JournalError> {
        let mut gpu_use = GpuUse::default();
        let hour = |day: i64| day * DAY / HOUR;
        self.each_reading_hour(hour(day), hour(day + 1), |read| gpu_use.add(&read)).await?;
        Ok(gpu_use)
    }

    /// Lives of nodes that were there between two moments.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn lives(&self, from: Timestamp, until: Timestamp) -> Result<Vec<Life>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            lives(&mut db, (from.as_second(), until.as_second())).await
        };
        read.await.map_err(|error| self.failed(error))
    }

    /// When pods without GPU were on nodes that were idle otherwise, between two moments.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn pods_on_free_nodes(&self, from: Timestamp, until: Timestamp) -> Result<Vec<OnFreeNode>, JournalError> {
        let read = async {
            let mut db = self.store.read().await?;
            let (from, until) = (from.as_second(), until.as_second());
            let rows: Vec<OnFreeNodeRow> = sqlx::query_as(
                "SELECT s.record, s.pool, s.rate, s.since, s.until, p.name, p.bound, p.ended \
                 FROM node_span s JOIN pod p ON p.node = s.node \
                 WHERE s.state = 'idle' AND p.gpus = 0 AND p.slices = '' AND s.since < $2 AND (s.until IS NULL OR s.until > $1) \
                 AND p.bound < $2 AND (p.ended IS NULL OR p.ended > $1)",
            )
            .bind(from)
            .bind(until)
            .fetch_all(&mut *db)
            .await
            .during("reading pods on idle nodes")?;
            let last_known: Option<i64> = sqlx::query_scalar("SELECT MAX(until) FROM spend_known")
                .fetch_one(&mut *db)
                .await
                .during("reading when nodes were looked at")?;
            let until = last_known.map_or(until, |last| last.min(until));
            let mut times = Vec::new();
            for (record, pool, rate, since, left, pod, bound, ended) in rows {
                let damaged = |_| StoreError::Damaged { what: format!("a span of record {record}") };
                let since = since.max(bound).max(from);
                let until = [left, ended].into_iter().flatten().fold(until, i64::min);
                if since < until {
                    let (record, pool) = (RecordId(number(record)), PoolName::new(pool).map_err(damaged)?);
                    times.push(OnFreeNode { record, since, until, pool, rate: UsdPerHour(rate), pod: pod.into() });
                }
            }
            Ok(times)
        };
        read.await.map_err(|error| self.failed(error))
    }
}

async fn spans(db: &mut Connection, (from, until): (i64, i64), last_known: i64) -> Result<Vec<Span>, StoreError> {
    let mut rows = sqlx::query_as::<_, SpanRow>(
        "SELECT * FROM node_span WHERE since < $2 AND (until IS NULL OR until > $1) ORDER BY record, since",
    )
    .bind(from)
    .bind(until)
    .fetch(&mut *db);
    let mut spans = Vec::new();
    while let Some(row) = rows.try_next().await.during("reading spans of nodes")? {
        let span = row.read(last_known)?;
        if span.since < span.until {
            spans.push(span);
        }
    }
    Ok(spans)
}

async fn lives(db: &mut Connection, (from, until): (i64, i64)) -> Result<Vec<Life>, StoreError> {
    let rows: Vec<LifeRow> = sqlx::query_as(
        "SELECT record, pool, capacity_type, ordered, ready, taken, ended, how FROM node_life \
         WHERE ordered < $2 AND (ended IS NULL OR ended > $1) ORDER BY record",
    )
    .bind(from)
    .bind(until)
    .fetch_all(&mut *db)
    .await
    .during("reading lives of nodes")?;
    let damaged = |record| StoreError::Damaged { what: format!("the life of record {record}") };
    rows.into_iter().map(|row| (row.0, life(row))).map(|(record, life)| life.ok_or_else(|| damaged(record))).collect()
}
