//! How much was held, hour by hour: what `stoker commit` advises from.
//!
//! The loop counts every few minutes what it holds, for the time since it last did. What was counted and up to when is one transaction, so
//! that a crash makes a gap at most, never a second count. Time of which nobody knows is left unknown: it is not idle time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sqlx::Arguments as _;
use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::limits::commitment::UsedHour;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::state::memory::Memory;

use super::error::{StoreError, While as _};
use super::store::{Connection, insert};

/// How often the loop counts. A node's first and last count are off by half of this on average, one up and one down.
pub const COUNT_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// A longer time since the last count is not counted: a service that was away does not know what it held.
const LONGEST_GAP: i64 = 15 * 60;

/// How long use is kept: a quarter, the longest that is asked for.
pub const USE_KEPT: SignedDuration = SignedDuration::from_hours(92 * 24);

/// Hours that one call forgets at most.
const HOURS_AT_ONCE: i64 = 24;

const HOUR: i64 = 3_600;

/// Counts what is held for the time since the last count.
pub(super) async fn count(db: &mut Connection, now: Timestamp, memory: &Memory) -> Result<(), StoreError> {
    let now = now.as_second();
    let counted: Option<i64> = sqlx::query_scalar("SELECT MAX(until) FROM known_hour")
        .fetch_one(&mut *db)
        .await
        .during("looking for the last count of use")?;
    let from = match counted {
        Some(counted) if now <= counted => return Ok(()),
        Some(counted) if now - counted <= LONGEST_GAP => counted,
        // The first count, or the first after a gap, only marks where the next one begins.
        Some(_) | None => now,
    };
    let held = held(memory);
    for (hour, seconds) in hours(from, now) {
        known(db, hour, seconds, now.min((hour + 1) * HOUR)).await?;
        if seconds > 0 && !held.is_empty() {
            add(db, hour, seconds, &held).await?;
        }
    }
    Ok(())
}

/// Machines that exist, by market.
fn held(memory: &Memory) -> BTreeMap<&Market, i64> {
    let mut held = BTreeMap::new();
    for record in memory.records.values().filter(|record| record.instance().is_some()) {
        if let Some(purchase) = record.purchase() {
            *held.entry(&purchase.market).or_insert(0) += 1;
        }
    }
    held
}

/// The hours that a time touches, with its seconds in each; a time of zero seconds touches the hour that it is in.
fn hours(from: i64, until: i64) -> impl Iterator<Item = (i64, i64)> {
    let (first, last) = (from.div_euclid(HOUR), until.div_euclid(HOUR));
    let parts = move |hour: i64| (hour, until.min((hour + 1) * HOUR) - from.max(hour * HOUR));
    (first..=last).map(parts).filter(move |(hour, seconds)| *seconds > 0 || *hour == last)
}

async fn known(db: &mut Connection, hour: i64, seconds: i64, until: i64) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO known_hour (hour, known, until) VALUES ($1, $2, $3) \
         ON CONFLICT (hour) DO UPDATE SET known = known_hour.known + excluded.known, until = excluded.until",
    )
    .bind(hour)
    .bind(seconds)
    .bind(until)
    .execute(&mut *db)
    .await
    .during("counting a known hour")?;
    Ok(())
}

async fn add(db: &mut Connection, hour: i64, seconds: i64, held: &BTreeMap<&Market, i64>) -> Result<(), StoreError> {
    let held: Vec<_> = held.iter().collect();
    let into = (
        "used_hour (hour, cloud, region, zone, instance_type, capacity_type, node_seconds)",
        "ON CONFLICT (hour, cloud, region, zone, instance_type, capacity_type) \
         DO UPDATE SET node_seconds = used_hour.node_seconds + excluded.node_seconds",
    );
    for rows in held.chunks(1_000) {
        let counted = insert(db, into, rows, |row, (market, nodes)| {
            let Place { cloud, region, zone, instance_type } = &market.place;
            row.add(hour)?;
            for text in [cloud.as_str(), region.as_str(), zone.as_str(), instance_type.as_str(), market.capacity_type.as_str()]
            {
                row.add(text)?;
            }
            row.add(**nodes * seconds)
        });
        counted.await.during("counting use")?;
    }
    Ok(())
}

/// Forgets use that is past its time, some hours at a time; whether there is more.
pub(super) async fn forget(db: &mut Connection, now: Timestamp) -> Result<bool, StoreError> {
    let cutoff = now.as_second().saturating_sub(USE_KEPT.as_secs()).div_euclid(HOUR);
    let old: Vec<i64> = sqlx::query_scalar("SELECT hour FROM known_hour WHERE hour < $1 ORDER BY hour LIMIT $2")
        .bind(cutoff)
        .bind(HOURS_AT_ONCE)
        .fetch_all(&mut *db)
        .await
        .during("looking for old use")?;
    let Some(last) = old.last() else { return Ok(false) };
    for statement in ["DELETE FROM used_hour WHERE hour <= $1", "DELETE FROM known_hour WHERE hour <= $1"] {
        sqlx::query(statement).bind(last).execute(&mut *db).await.during("forgetting old use")?;
    }
    Ok(i64::try_from(old.len()).is_ok_and(|forgotten| forgotten >= HOURS_AT_ONCE))
}

type UsedRow = (i64, String, String, String, String, String, i64);

/// What was held in each of the whole hours between two moments, oldest first; an hour that nobody counted is unknown.
pub(super) async fn between(db: &mut Connection, from: Timestamp, until: Timestamp) -> Result<Vec<UsedHour>, StoreError> {
    // Only whole hours: the one that `from` is in, and the one that `until` is in, are cut.
    let (first, end) = ((from.as_second() + HOUR - 1).div_euclid(HOUR), until.as_second().div_euclid(HOUR));
    let mut hours = vec![UsedHour::default(); usize::try_from(end - first).unwrap_or(0)];
    let place_of = |hour: i64| usize::try_from(hour - first).ok();
    let counted: Vec<(i64, i64)> = sqlx::query_as("SELECT hour, known FROM known_hour WHERE hour >= $1 AND hour < $2")
        .bind(first)
        .bind(end)
        .fetch_all(&mut *db)
        .await
        .during("reading known hours")?;
    for (hour, known) in counted {
        if let Some(of) = place_of(hour).and_then(|at| hours.get_mut(at)) {
            of.known = u32::try_from(known).unwrap_or(0);
        }
    }
    let rows: Vec<UsedRow> = sqlx::query_as(
        "SELECT hour, cloud, region, zone, instance_type, capacity_type, node_seconds FROM used_hour \
         WHERE hour >= $1 AND hour < $2",
    )
    .bind(first)
    .bind(end)
    .fetch_all(&mut *db)
    .await
    .during("reading use")?;
    for row in rows {
        let (hour, node_seconds) = (row.0, u64::try_from(row.6).unwrap_or(0));
        let market =
            market(&row).ok_or_else(|| StoreError::Damaged { what: format!("the use of hour {hour} names no market") })?;
        if let Some(of) = place_of(hour).and_then(|at| hours.get_mut(at)) {
            of.node_seconds.insert(market, node_seconds);
        }
    }
    Ok(hours)
}

fn market((_, cloud, region, zone, instance_type, capacity_type, _): &UsedRow) -> Option<Market> {
    let place = Place {
        cloud: Cloud::new(cloud).ok()?,
        region: Region::new(region).ok()?,
        zone: ZoneId::new(zone).ok()?,
        instance_type: InstanceType::new(instance_type).ok()?,
    };
    let capacity_type = CapacityType::of(capacity_type)?;
    Some(Market { place, capacity_type })
}
