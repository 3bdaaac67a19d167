//! What nodes did and cost, written as it happens: `stoker report` reads it.
//!
//! A node's life is a row of spans. A span ends when the node's state, its Node or a rate changes, and when its
//! cloud announces that it takes the machine back. Each write of a decision, a call or a
//! count of use compares the memory with the open spans, in its own transaction. Time in which nobody looked is a gap: spans end at the last
//! moment known, and new ones begin. No decision reads them.

mod days;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sqlx::{Arguments as _, AssertSqlSafe};
use stoker_advice::spend::{DAY, End, NodeState, units_of};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{NodeName, ProviderId, RecordId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::rates::Rates;
use stoker_core::facts::supply::EndedWhy;
use stoker_core::market::offer::{Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::plan::Note;
use stoker_core::policy::Policy;
use stoker_core::state::disruption::DrainReason;
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::{PodsSeen, Purchase, Record, State};

use super::error::{StoreError, While as _};
use super::state::Facts;
use super::store::{Connection, insert};
use super::write::{int, number};

pub use days::{DaysWriter, EncodedDay};
pub use read::Spent;

/// A longer time since somebody last looked is a gap, as in the count of use.
pub(super) const LONGEST_GAP: i64 = 15 * 60;

/// How long spans and lives are kept: a month and the one before, which reports compare, and a week to ask for them. A fleet of 5,000 nodes
/// whose states change ten times a day writes some ten megabytes a day.
pub const SPANS_KEPT: SignedDuration = SignedDuration::from_hours(70 * 24);

/// How long days are kept as a whole: a year, and a month to ask for it.
pub const DAYS_KEPT: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Rows of one statement, and rows that one call forgets at most.
const ROWS: usize = 500;

/// What an open span says that may change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Now {
    state: NodeState,
    node: Option<NodeName>,
    list: Option<UsdPerHour>,
    rate: UsdPerHour,
    /// Whether the cloud announced that it takes the machine back.
    is_taken: bool,
}

#[derive(Debug)]
struct Followed {
    now: Now,
    /// Whether its span is open: after a gap it is not until the node is looked at again.
    is_open: bool,
    /// The record as it was last looked at; `None` after a restart.
    record: Option<Arc<Record>>,
}

/// The prices by which rates were last found.
#[derive(Debug, Clone)]
pub(super) struct Prices {
    pub(super) policy: Arc<Policy>,
    pub(super) book: Arc<PriceBook>,
    pub(super) facts: Arc<Facts>,
}

impl Prices {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
            && Arc::ptr_eq(&self.book, &other.book)
            && Arc::ptr_eq(&self.facts, &other.facts)
    }
}

/// The open spans, and until when somebody looked.
#[derive(Debug)]
pub(super) struct Spans {
    open: BTreeMap<RecordId, Followed>,
    /// Since when and until when it is known what nodes did, without a gap; `None` before the first time.
    known: Option<(i64, i64)>,
    /// `None` after a restart, until the first decision.
    prices: Option<Prices>,
}

/// A span to be opened.
struct Opened<'a> {
    record: &'a Record,
    group: &'a Group,
    purchase: &'a Purchase,
    instance: &'a ProviderId,
    now: Now,
}

/// What a node costs at list and as paid, as far as it is known.
type ListAndPaid = (Option<UsdPerHour>, Option<UsdPerHour>);

type OpenRow = (i64, Option<String>, String, Option<i64>, i64);

impl Spans {
    /// Reads the open spans.
    pub(super) async fn restore(db: &mut Connection) -> Result<Self, StoreError> {
        let known: Option<(i64, i64)> = sqlx::query_as("SELECT since, until FROM spend_known ORDER BY since DESC LIMIT 1")
            .fetch_optional(&mut *db)
            .await
            .during("looking for when nodes were last looked at")?;
        let rows: Vec<OpenRow> =
            sqlx::query_as("SELECT record, node, state, list_rate, rate FROM node_span WHERE until IS NULL")
                .fetch_all(&mut *db)
                .await
                .during("looking for open spans")?;
        let mut open = BTreeMap::new();
        for (record, node, state, list, rate) in rows {
            let damaged = |what: &str| StoreError::Damaged { what: format!("the {what} of the open span of record {record}") };
            let state = NodeState::of(&state).ok_or_else(|| damaged("state"))?;
            let node = node.map(NodeName::new).transpose().map_err(|_| damaged("node"))?;
            let now = Now { state, node, list: list.map(UsdPerHour), rate: UsdPerHour(rate), is_taken: false };
            open.insert(RecordId(number(record)), Followed { now, is_open: true, record: None });
        }
        Ok(Self { open, known, prices: None })
    }

    /// Reads the open spans back, under the same prices.
    pub(super) async fn reread(&mut self, db: &mut Connection) -> Result<(), StoreError> {
        *self = Self { prices: self.prices.take(), ..Self::restore(db).await? };
        Ok(())
    }

    /// Takes over the prices of a decision. Whether they are others.
    fn take(&mut self, prices: Option<Prices>) -> bool {
        let Some(prices) = prices else { return false };
        let is_new = !self.prices.as_ref().is_some_and(|known| known.is_same(&prices));
        self.prices = Some(prices);
        is_new
    }

    /// Brings the spans up to what the memory says at `now`. `notes` tell why machines are gone.
    pub(super) async fn follow(
        &mut self,
        db: &mut Connection,
        now: Timestamp,
        memory: &Memory,
        prices: Option<Prices>,
        notes: &[Note],
    ) -> Result<(), StoreError> {
        let at = now.as_second();
        // The clock was set back: what is later than it is known already.
        if self.known.is_some_and(|(_, until)| at < until) {
            return Ok(());
        }
        let is_repriced = self.take(prices);
        match self.known {
            Some((since, until)) if at - until <= LONGEST_GAP => self.known = Some((since, at)),
            Some((_, until)) => {
                self.close_all(db, until).await?;
                self.known = Some((at, at));
            }
            None => self.known = Some((at, at)),
        }
        self.keep_known(db).await?;

        let gone: Vec<RecordId> = self.open.keys().filter(|id| !has_machine(memory, **id)).copied().collect();
        self.close(db, &gone, at).await?;
        let ends = gone.iter().filter(|id| !memory.records.contains_key(id));
        let ends: Vec<(RecordId, End)> = ends.map(|id| (*id, self.end_of(*id, notes))).collect();
        for id in &gone {
            self.open.remove(id);
        }
        end_lives(db, &ends, at).await?;

        let rates = self.prices.as_ref().map(|known| Rates::new(&known.policy, &known.book, &known.facts, Wall(now)));
        let mut of_market: BTreeMap<(&Market, &str), ListAndPaid> = BTreeMap::new();
        let mut opened = Vec::new();
        for (id, record) in &memory.records {
            let open = self.open.get(id);
            let (Some(purchase), Some(instance)) = (record.purchase(), record.instance()) else { continue };
            let state = state_of(memory, record);
            let is_taken = is_reclaimed(memory, *id);
            let is_alike = |Followed { now, is_open, record: known }: &Followed| {
                let is_same = now.state == state && now.is_taken == is_taken;
                *is_open && is_same && known.as_ref().is_some_and(|known| Arc::ptr_eq(known, record))
            };
            if !is_repriced && open.is_some_and(is_alike) {
                continue;
            }
            // A group is remembered as long as it has records.
            let Some(group) = memory.groups.get(&record.group).map(|remembered| &remembered.group) else { continue };
            let (list, paid) = match &rates {
                Some(rates) => *of_market
                    .entry((&purchase.market, group.supplier.as_str()))
                    .or_insert_with(|| (rates.list(&purchase.market.place), rates.paid(&purchase.market, &group.supplier))),
                None => open.map_or((None, None), |open| (open.now.list, Some(open.now.rate))),
            };
            let node = match &record.state {
                State::Registered { node, .. } => node.clone(),
                _ => open.and_then(|open| open.now.node.clone()),
            };
            let next = Now { state, node, list, rate: paid.unwrap_or(purchase.price), is_taken };
            if open.is_none_or(|open| !open.is_open || open.now != next) {
                opened.push(Opened { record, group, purchase, instance, now: next });
            } else if let Some(open) = self.open.get_mut(id) {
                open.record = Some(Arc::clone(record));
            }
        }
        let changed: Vec<RecordId> = opened.iter().map(|span| span.record.id).filter(|id| self.open.contains_key(id)).collect();
        self.close(db, &changed, at).await?;
        open_spans(db, &opened, at).await?;
        keep_lives(db, memory, &opened).await?;
        let opened: Vec<(RecordId, Now)> = opened.into_iter().map(|span| (span.record.id, span.now)).collect();
        for (id, now) in opened {
            self.open.insert(id, Followed { now, is_open: true, record: memory.records.get(&id).cloned() });
        }
        Ok(())
    }

    async fn keep_known(&self, db: &mut Connection) -> Result<(), StoreError> {
        let Some((since, until)) = self.known else { return Ok(()) };
        sqlx::query(
            "INSERT INTO spend_known (since, until) VALUES ($1, $2) ON CONFLICT (since) DO UPDATE SET until = excluded.until",
        )
        .bind(since)
        .bind(until)
        .execute(&mut *db)
        .await
        .during("noting that nodes were looked at")?;
        Ok(())
    }

    /// Ends all spans at the last moment known: what nodes did since nobody knows.
    async fn close_all(&mut self, db: &mut Connection, until: i64) -> Result<(), StoreError> {
        let all: Vec<RecordId> = self.open.keys().copied().collect();
        self.close(db, &all, until).await?;
        self.open.values_mut().for_each(|open| open.is_open = false);
        Ok(())
    }

    /// Ends spans at a moment. Those that began just then were none.
    async fn close(&self, db: &mut Connection, records: &[RecordId], at: i64) -> Result<(), StoreError> {
        for records in records.chunks(ROWS) {
            let places: Vec<String> = (2..).take(records.len()).map(|place: usize| format!("${place}")).collect();
            let places = places.join(", ");
            for (what, statement) in [
                (
                    "dropping empty spans",
                    format!("DELETE FROM node_span WHERE until IS NULL AND since >= $1 AND record IN ({places})"),
                ),
                ("closing spans", format!("UPDATE node_span SET until = $1 WHERE until IS NULL AND record IN ({places})")),
            ] {
                let mut query = sqlx::query(AssertSqlSafe(statement)).bind(at);
                for record in records {
                    query = query.bind(int(record.0));
                }
                query.persistent(false).execute(&mut *db).await.during(what)?;
            }
        }
        Ok(())
    }

    /// Why the record of an open span is gone.
    fn end_of(&self, id: RecordId, notes: &[Note]) -> End {
        let Some(open) = self.open.get(&id) else { return End::Vanished };
        let machine = open.record.as_ref().and_then(|record| record.instance());
        let lost = notes.iter().find_map(|note| match note {
            Note::Lost { instance, why, .. } if Some(instance) == machine => Some(*why),
            _ => None,
        });
        let is_late = open.record.as_ref().is_some_and(|record| matches!(record.state, State::Deleting { late: true, .. }));
        match (lost, open.now.state) {
            (Some(Some(EndedWhy::Reclaimed)), _) => End::Reclaimed,
            (Some(Some(EndedWhy::FailedBoot)), _) | (None, NodeState::Lost) => End::Failed,
            _ if open.now.is_taken => End::Reclaimed,
            (None, NodeState::Ending) if is_late => End::Failed,
            (None, NodeState::Ending) | (Some(Some(EndedWhy::Deleted)), _) => End::Released,
            (Some(_) | None, _) => End::Vanished,
        }
    }
}

fn has_machine(memory: &Memory, id: RecordId) -> bool {
    memory.records.get(&id).is_some_and(|record| record.instance().is_some() && record.purchase().is_some())
}

/// Whether the cloud announced that it takes a record's machine.
fn is_reclaimed(memory: &Memory, id: RecordId) -> bool {
    memory.disruptions.get(&id).is_some_and(|disruption| matches!(disruption.why, DrainReason::Reclaimed { .. }))
}

/// What a record's node does.
fn state_of(memory: &Memory, record: &Record) -> NodeState {
    match &record.state {
        State::Deleting { .. } => NodeState::Ending,
        State::Failed { .. } => NodeState::Lost,
        State::Registered { ready_at: Some(_), .. } if memory.is_draining(record.id) => NodeState::Draining,
        State::Registered { ready_at: Some(_), .. } => {
            let had_pods = record.pods == PodsSeen::Seen;
            let is_free = match record.judged.as_ref().map(|judged| judged.verdict) {
                // A gate of its start is not passed yet.
                Some(Verdict::Booting) if !had_pods => return NodeState::Booting,
                Some(verdict) => verdict.is_free(),
                // Nobody sees Nodes here: what holds it is unknown, and not nothing. Who reads it counts pods.
                None if matches!(record.state, State::Registered { node: None, .. }) => false,
                None => !had_pods || memory.free.contains_key(&record.id),
            };
            match (is_free, record.floor) {
                (false, _) => NodeState::Held,
                (true, true) => NodeState::Warm,
                (true, false) => NodeState::Idle,
            }
        }
        State::Wanted
        | State::Launching { .. }
        | State::Booting { .. }
        | State::Registered { ready_at: None, .. }
        | State::Cancelled { .. } => NodeState::Booting,
    }
}

async fn open_spans(db: &mut Connection, opened: &[Opened<'_>], at: i64) -> Result<(), StoreError> {
    let into = (
        "node_span (record, since, pool, node, instance, cloud, region, zone, instance_type, capacity_type, reservation, model, gpus, \
         units, state, list_rate, rate)",
        "ON CONFLICT (record, since) DO NOTHING",
    );
    for rows in opened.chunks(ROWS) {
        let written = insert(db, into, rows, |row, span| {
            let Opened { record, group, purchase, instance, now } = span;
            let Place { cloud, region, zone, instance_type } = &purchase.market.place;
            row.add(int(record.id.0))?;
            row.add(at)?;
            row.add(group.pool.as_str())?;
            row.add(now.node.as_ref().map(NodeName::as_str))?;
            row.add(instance.as_str())?;
            for text in [cloud.as_str(), region.as_str(), zone.as_str(), instance_type.as_str()] {
                row.add(text)?;
            }
            row.add(purchase.market.capacity_type.as_str())?;
            row.add(purchase.reservation.as_deref())?;
            row.add(group.spec.gpu_model.as_str())?;
            row.add(i64::from(group.spec.advertised_gpus()))?;
            row.add(i64::from(units_of(group.template.allocatable.gpus, &group.template.slices)))?;
            row.add(now.state.as_str())?;
            row.add(now.list.map(|rate| rate.0))?;
            row.add(now.rate.0)
        });
        written.await.during("writing spans of nodes")?;
    }
    Ok(())
}

/// Writes down how far the lives of nodes have come.
async fn keep_lives(db: &mut Connection, memory: &Memory, opened: &[Opened<'_>]) -> Result<(), StoreError> {
    let into = (
        "node_life (record, pool, capacity_type, ordered, ready, taken)",
        "ON CONFLICT (record) DO UPDATE SET ready = COALESCE(node_life.ready, excluded.ready), \
         taken = COALESCE(node_life.taken, excluded.taken), ended = NULL, how = NULL",
    );
    for rows in opened.chunks(ROWS) {
        let written = insert(db, into, rows, |row, span| {
            let Opened { record, group, purchase, .. } = span;
            let ready = match &record.state {
                State::Registered { ready_at, .. } => *ready_at,
                _ => None,
            };
            let taken = memory.disruptions.get(&record.id).filter(|_| is_reclaimed(memory, record.id));
            row.add(int(record.id.0))?;
            row.add(group.pool.as_str())?;
            row.add(purchase.market.capacity_type.as_str())?;
            row.add(record.ordered_at.as_second())?;
            row.add(ready.map(Timestamp::as_second))?;
            row.add(taken.map(|disruption| disruption.since.as_second()))
        });
        written.await.during("writing lives of nodes")?;
    }
    Ok(())
}

async fn end_lives(db: &mut Connection, ends: &[(RecordId, End)], at: i64) -> Result<(), StoreError> {
    for how in End::ALL {
        let records: Vec<RecordId> = ends.iter().filter(|(_, end)| *end == how).map(|(id, _)| *id).collect();
        for records in records.chunks(ROWS) {
            let places: Vec<String> = (3..).take(records.len()).map(|place: usize| format!("${place}")).collect();
            // What is gone without a notice was taken now.
            let taken = if how == End::Reclaimed { ", taken = COALESCE(taken, $1)" } else { "" };
            let update = format!("UPDATE node_life SET ended = $1, how = $2{taken} WHERE record IN ({})", places.join(", "));
            let mut query = sqlx::query(AssertSqlSafe(update)).bind(at).bind(how.as_str());
            for record in records {
                query = query.bind(int(record.0));
            }
            query.persistent(false).execute(&mut *db).await.during("writing how nodes ended")?;
        }
    }
    Ok(())
}

/// Forgets what is past its time, some rows at a time; whether there is more.
pub(super) async fn forget(db: &mut Connection, now: Timestamp) -> Result<bool, StoreError> {
    let cutoff = |kept: SignedDuration| now.as_second().saturating_sub(kept.as_secs());
    let (spans, first_day) = (cutoff(SPANS_KEPT), cutoff(DAYS_KEPT).div_euclid(DAY));
    let limit = i64::try_from(ROWS).unwrap_or(i64::MAX);
    let mut more = false;
    for (statement, cutoff) in [
        (
            "DELETE FROM node_span WHERE (record, since) IN \
             (SELECT record, since FROM node_span WHERE until < $1 ORDER BY until LIMIT $2)",
            spans,
        ),
        (
            "DELETE FROM node_life WHERE record IN (SELECT record FROM node_life WHERE ended < $1 ORDER BY ended LIMIT $2)",
            spans,
        ),
        (
            "DELETE FROM spend_known WHERE since IN (SELECT since FROM spend_known WHERE until < $1 ORDER BY since LIMIT $2)",
            spans,
        ),
        ("DELETE FROM spend_day WHERE day IN (SELECT day FROM spend_day WHERE day < $1 ORDER BY day LIMIT $2)", first_day),
        (
            "DELETE FROM spend_rows WHERE day IN (SELECT day FROM spend_rows WHERE day < $1 ORDER BY day LIMIT $2)",
            spans.div_euclid(DAY),
        ),
    ] {
        let gone =
            sqlx::query(statement).bind(cutoff).bind(limit).execute(&mut *db).await.during("forgetting spans of nodes")?;
        more |= gone.rows_affected() >= limit.unsigned_abs();
    }
    Ok(more)
}

/// Takes back what a wall clock that ran ahead left later than `now`.
pub(super) async fn not_after(db: &mut Connection, now: Timestamp) -> Result<(), StoreError> {
    let second = now.as_second();
    for (statement, last) in [
        ("DELETE FROM node_span WHERE since >= $1", second),
        ("UPDATE node_span SET until = $1 WHERE until > $1 OR until IS NULL", second),
        ("UPDATE node_life SET ended = $1 WHERE ended > $1", second),
        ("UPDATE node_life SET ready = $1 WHERE ready > $1", second),
        ("UPDATE node_life SET taken = $1 WHERE taken > $1", second),
        ("UPDATE node_life SET ordered = $1 WHERE ordered > $1", second),
        ("DELETE FROM spend_known WHERE since > $1", second),
        ("UPDATE spend_known SET until = $1 WHERE until > $1", second),
        // A day that is kept is one that is over.
        ("DELETE FROM spend_day WHERE day >= $1", second.div_euclid(DAY)),
        ("DELETE FROM spend_rows WHERE day >= $1", second.div_euclid(DAY)),
    ] {
        sqlx::query(statement).bind(last).execute(&mut *db).await.during("moving spans of nodes")?;
    }
    Ok(())
}
