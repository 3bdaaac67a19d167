//! Who touched what: from a node, a machine or a record to the decisions that concerned it.

use std::collections::BTreeSet;

use sqlx::Arguments as _;
use stoker_core::base::ids::{DecisionId, NodeName, ProviderId, RecordId};
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::facts::supply::LaunchOutcome;
use stoker_core::plan::{Action, Note};
use stoker_core::state::record::{Record, State};

use super::error::{StoreError, While as _};
use super::state::MemoryDelta;
use super::store::{Connection, insert};
use super::write::{int, number};

/// Rows of one statement.
const ROWS: usize = 1000;

/// Something that a decision touches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject(String);

impl Subject {
    pub(super) fn record(id: RecordId) -> Self {
        Self(format!("record:{}", id.0))
    }

    pub(super) fn instance(id: &str) -> Self {
        Self(format!("instance:{id}"))
    }

    pub(super) fn node(name: &str) -> Self {
        Self(format!("node:{name}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Notes which launch made which machine, as far as the changed records tell. `made` is the decision that changed them, and the facts
/// that it was made on.
pub(super) async fn launches(
    db: &mut Connection,
    delta: &MemoryDelta,
    step: i64,
    made: Option<(DecisionId, &Snapshot)>,
) -> Result<(), StoreError> {
    let bought: Vec<_> = delta.records.put.iter().filter_map(|(id, record)| Some((*id, record, record.purchase()?))).collect();
    for rows in bought.chunks(ROWS) {
        // Once known, a machine and its node stay known; and a record that was given up may come back when its machine turns up.
        let into = (
            "launch (key, record, node_group, market, decision, instance, node)",
            "ON CONFLICT (key) DO UPDATE SET instance = COALESCE(excluded.instance, launch.instance), \
             node = COALESCE(excluded.node, launch.node), ended = NULL",
        );
        let noted = insert(db, into, rows, |row, (id, record, purchase)| {
            row.add(purchase.key.to_string())?;
            row.add(int(id.0))?;
            row.add(record.group.to_string())?;
            row.add(purchase.market.to_string())?;
            row.add(made.map(|(decision, _)| int(decision.0)))?;
            row.add(record.instance().map(ProviderId::to_string))?;
            row.add(node(record, made.map(|(_, snapshot)| snapshot)).map(NodeName::to_string))
        });
        noted.await.during("noting launches")?;
    }
    for gone in &delta.records.gone {
        sqlx::query("UPDATE launch SET ended = $1 WHERE record = $2")
            .bind(step)
            .bind(int(gone.0))
            .execute(&mut *db)
            .await
            .during("noting the end of a launch")?;
    }
    Ok(())
}

/// The name of a record's Node: as the cluster has it, else as the supplier says that it will be. Without a cluster nobody else knows.
fn node<'a>(record: &'a Record, snapshot: Option<&'a Snapshot>) -> Option<&'a NodeName> {
    if let State::Registered { node: Some(node), .. } = &record.state {
        return Some(node);
    }
    let (instance, snapshot) = (record.instance()?, snapshot?);
    let listed = || snapshot.suppliers.values().flatten().find_map(|seen| Some(&seen.instances.get(instance)?.node_name));
    match record.purchase().and_then(|purchase| snapshot.outcomes.get(&purchase.key)) {
        Some(LaunchOutcome::Launched(made)) if made.provider_id == *instance => Some(&made.node_name),
        _ => listed(),
    }
}

/// What a decision touches: records that it changed, and what its actions and notes name.
pub(super) fn subjects(delta: Option<&MemoryDelta>, actions: &[Action], notes: &[Note]) -> BTreeSet<Subject> {
    let mut subjects = BTreeSet::new();
    if let Some(delta) = delta {
        let put = delta.records.put.iter().map(|(id, _)| id);
        subjects.extend(put.chain(&delta.records.gone).map(|id| Subject::record(*id)));
    }
    for action in actions {
        match action {
            Action::Launch { record, .. } => {
                subjects.insert(Subject::record(*record));
            }
            Action::Terminate { instance, .. } => {
                subjects.insert(Subject::instance(instance.as_str()));
            }
            Action::Hold { node, .. } | Action::Release { node } => {
                subjects.insert(Subject::node(node.as_str()));
            }
            Action::RemoveNode { node, provider_id }
            | Action::Drain { node, provider_id, .. }
            | Action::Uncordon { node, provider_id } => {
                subjects.insert(Subject::node(node.as_str()));
                subjects.insert(Subject::instance(provider_id.as_str()));
            }
        }
    }
    for note in notes {
        match note {
            Note::BootTimeout { instance: Some(instance), .. }
            | Note::BootConsole { instance, .. }
            | Note::Lost { instance, .. }
            | Note::Adopted { instance, .. }
            | Note::Orphan { instance, .. } => {
                subjects.insert(Subject::instance(instance.as_str()));
            }
            Note::Disruption { node, .. }
            | Note::DrainAbandoned { node, .. }
            | Note::NodeCordoned { node, .. }
            | Note::TakesPods { node, .. }
            | Note::WillBeEmptied { node, .. } => {
                subjects.insert(Subject::node(node.as_str()));
            }
            Note::LessThanPromised { lacks, .. } => {
                subjects.insert(Subject::node(lacks.node.as_str()));
            }
            Note::JournalWritten { held, drained, .. } => {
                subjects.extend(held.union(drained).map(|node| Subject::node(node.as_str())));
            }
            Note::BootTimeout { instance: None, .. }
            | Note::OrderFailed { .. }
            | Note::OrderShort { .. }
            | Note::Suspended { .. }
            | Note::ReplacementsStopped { .. }
            | Note::Outdated { .. }
            | Note::ReclaimsUnconfirmed { .. }
            | Note::Resumed { .. }
            | Note::ProbesLapsed { .. }
            | Note::ProbesBack { .. }
            | Note::FloorGrown { .. }
            | Note::ClockJumped { .. }
            | Note::NoEffect { .. }
            | Note::CheckFailed { .. }
            | Note::CheckPassed { .. }
            | Note::Journal { .. }
            | Note::Budget { .. } => {}
        }
    }
    subjects
}

/// Notes what a decision touches.
pub(super) async fn touch(db: &mut Connection, subjects: &BTreeSet<Subject>, decision: DecisionId) -> Result<(), StoreError> {
    let subjects: Vec<&Subject> = subjects.iter().collect();
    for rows in subjects.chunks(ROWS) {
        let noted = insert(db, ("touched (subject, decision)", ""), rows, |row, subject| {
            row.add(subject.as_str())?;
            row.add(int(decision.0))
        });
        noted.await.during("noting what a decision touches")?;
    }
    Ok(())
}

/// A launch that a name means: its record, its machine and that machine's Node.
type Launch = (i64, Option<String>, Option<String>);

/// The launches that `name` means: a Node's name, a provider id, a launch key, or the record that it names.
async fn launches_of(db: &mut Connection, name: &str, record: Option<RecordId>) -> Result<Vec<Launch>, StoreError> {
    sqlx::query_as("SELECT record, instance, node FROM launch WHERE key = $1 OR instance = $1 OR node = $1 OR record = $2")
        .bind(name)
        .bind(record.map(|id| int(id.0)))
        .fetch_all(&mut *db)
        .await
        .during("looking for launches")
}

/// The records that a name means, as [`decisions_of`] reads it.
pub(super) async fn records_of(db: &mut Connection, name: &str) -> Result<BTreeSet<RecordId>, StoreError> {
    let record = record_named(name);
    let known = launches_of(db, name, record).await?;
    Ok(known.into_iter().map(|(record, ..)| RecordId(number(record))).chain(record).collect())
}

/// The decisions that touched a node, oldest first. `name` is a Node's name, a provider id, a placeholder id, a launch key or a
/// record (`r12`).
pub(super) async fn decisions_of(db: &mut Connection, name: &str) -> Result<BTreeSet<i64>, StoreError> {
    let record = record_named(name);
    let known = launches_of(db, name, record).await?;
    let mut subjects = BTreeSet::from([Subject::instance(name), Subject::node(name)]);
    subjects.extend(record.map(Subject::record));
    for (record, instance, node) in &known {
        subjects.insert(Subject(format!("record:{record}")));
        subjects.extend(instance.as_deref().map(Subject::instance));
        subjects.extend(node.as_deref().map(Subject::node));
    }
    let mut decisions = BTreeSet::new();
    for subject in &subjects {
        let touched: Vec<i64> = sqlx::query_scalar("SELECT decision FROM touched WHERE subject = $1")
            .bind(subject.as_str())
            .fetch_all(&mut *db)
            .await
            .during("looking for decisions")?;
        decisions.extend(touched);
    }
    Ok(decisions)
}

/// The record that a text names: `r12`, `12`, or a placeholder id such as `stoker://prod/inference.g6-xlarge.us-east-1a/12`.
fn record_named(text: &str) -> Option<RecordId> {
    let number = match text.strip_prefix("stoker://") {
        Some(path) => path.rsplit('/').next()?,
        None => text,
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_named_by_number_or_placeholder() {
        for text in ["r12", "12", "stoker://prod/inference.g6-xlarge.us-east-1a/12"] {
            assert_eq!(record_named(text), Some(RecordId(12)), "{text}");
        }
        for text in ["ip-10-0-0-1", "aws:///us-east-1a/i-12", "stoker://prod/x/y", "", "stoker://"] {
            assert_eq!(record_named(text), None, "{text}");
        }
    }
}
