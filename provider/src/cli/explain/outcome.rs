//! What came of the machines that a decision bought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use stoker_core::base::ids::{LaunchKey, NodeName, ProviderId, RecordId};
use stoker_core::plan::{Action, Note};
use stoker_core::state::disruption::DrainReason;
use stoker_core::state::record::{Record, State};

use crate::cli::exit::CliError;
use stoker_journal::{Reader, StoredDecision};

/// Machines of one decision whose later decisions are looked up; the fate of the rest is told by where their records stand.
const FOLLOWED: usize = 20;

/// The records as the journal last has them.
pub(super) struct Outcomes {
    records: BTreeMap<RecordId, Arc<Record>>,
}

/// What came of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub record: RecordId,
    pub instance: Option<ProviderId>,
    /// In words.
    pub text: String,
}

impl Outcomes {
    /// Reads where every record stands.
    pub(super) async fn of(reader: &Reader) -> Result<Self, CliError> {
        Ok(Self { records: reader.memory().await?.records })
    }

    /// What came of the machines that a decision bought.
    pub(super) async fn of_decision(&self, reader: &Reader, decision: &StoredDecision) -> Result<Vec<Outcome>, CliError> {
        let mut outcomes = Vec::new();
        for (at, (record, key)) in launches(decision).enumerate() {
            let later = if at < FOLLOWED { reader.decisions_of_node(&record.to_string()).await? } else { Vec::new() };
            let again =
                |other: &&StoredDecision| other.id > decision.id && launches(other).any(|(r, k)| r == record && k != key);
            let (instance, text) = match (self.records.get(&record), later.iter().find(again)) {
                (_, Some(again)) => (None, format!("could not be launched there; retried in {}", again.id)),
                (Some(known), None) => (known.instance().cloned(), stands(known)),
                (None, None) => ended(record, &later),
            };
            outcomes.push(Outcome { record, instance, text });
        }
        Ok(outcomes)
    }
}

/// Where the records stood that a decision without a word of its own changed: it took in what the suppliers or the cluster told.
pub(super) async fn changed(reader: &Reader, decision: &StoredDecision) -> Result<Vec<Outcome>, CliError> {
    let StoredDecision { id, actions, notes, explanations, .. } = decision;
    if !(actions.is_empty() && notes.is_empty() && explanations.is_empty()) {
        return Ok(Vec::new());
    }
    let Some((before, after)) = reader.memories(*id).await? else { return Ok(Vec::new()) };
    let (before, after) = (before.records, after.records);
    let gone = before.keys().filter(|id| !after.contains_key(id)).map(|id| Outcome {
        record: *id,
        instance: None,
        text: "gone".to_owned(),
    });
    let differs = after.iter().filter(|(id, record)| before.get(id).is_some_and(|before| before != *record));
    let differs =
        differs.map(|(id, record)| Outcome { record: *id, instance: record.instance().cloned(), text: stands(record) });
    Ok(differs.chain(gone).collect())
}

/// The machines that a decision bought: for which record, under which key.
fn launches(decision: &StoredDecision) -> impl Iterator<Item = (RecordId, &LaunchKey)> {
    decision.actions.iter().filter_map(|action| match action {
        Action::Launch { record, request, .. } => Some((*record, &request.key)),
        Action::Terminate { .. }
        | Action::Hold { .. }
        | Action::Release { .. }
        | Action::Drain { .. }
        | Action::Uncordon { .. }
        | Action::RemoveNode { .. } => None,
    })
}

fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%SZ").to_string()
}

/// Where a record stands, in words.
fn stands(record: &Record) -> String {
    match &record.state {
        State::Wanted => "abandoned there and wanted again".to_owned(),
        State::Launching { since, .. } => format!("requested from the supplier at {}", clock(*since)),
        State::Booting { instance, launched_at, .. } => format!("{instance} has been booting since {}", clock(*launched_at)),
        State::Registered { instance, node, at, ready_at, .. } => {
            let name = node.as_ref().map_or_else(|| instance.to_string(), ToString::to_string);
            match ready_at {
                Some(ready) => format!("joined as {name} at {}, Ready at {}", clock(*at), clock(*ready)),
                None => format!("joined as {name} at {}, not Ready yet", clock(*at)),
            }
        }
        State::Failed { kind, message, at, .. } => format!("failed at {} ({kind}): {message}", clock(*at)),
        State::Cancelled { since, .. } => format!("cancelled at {}", clock(*since)),
        State::Deleting { instance, since, .. } => format!("{instance} has been terminating since {}", clock(*since)),
    }
}

/// What the cloud announced of a record's machine and did not take back, in words.
fn notice(record: RecordId, decisions: &[StoredDecision]) -> Option<String> {
    let actions = decisions.iter().flat_map(|decision| &decision.actions);
    let drained = actions.filter_map(|action| match action {
        Action::Drain { record: of, node, .. } if *of == record => Some(node),
        _ => None,
    });
    let nodes: BTreeSet<&NodeName> = drained.collect();
    decisions.iter().flat_map(|decision| &decision.notes).fold(None, |told, note| match note {
        Note::Disruption { node, why: why @ DrainReason::Reclaimed { .. }, .. } if nodes.contains(node) => {
            Some(why.to_string())
        }
        Note::DrainAbandoned { node, .. } if nodes.contains(node) => None,
        _ => told,
    })
}

/// How a record that is gone ended, from the decisions that touched it.
fn ended(record: RecordId, decisions: &[StoredDecision]) -> (Option<ProviderId>, String) {
    let last = decisions.iter().rev().find_map(|decision| {
        let lost = decision.notes.iter().find_map(|note| match note {
            Note::Lost { instance, .. } => {
                Some((instance.clone(), notice(record, decisions).unwrap_or_else(|| "disappeared unexpectedly".to_owned())))
            }
            _ => None,
        });
        let terminated = decision.actions.iter().find_map(|action| match action {
            Action::Terminate { instance, why, .. } => Some((instance.clone(), why.to_string())),
            _ => None,
        });
        // A decision may end several machines: only what is said of one alone is surely said of this one.
        let alone = decision.actions.len() + decision.notes.len() == 1;
        let (instance, how) = lost.or(terminated)?;
        Some(if alone {
            (Some(instance), format!("gone after {} ({}): {how}", decision.id, clock(decision.at)))
        } else {
            (None, format!("gone after {} ({})", decision.id, clock(decision.at)))
        })
    });
    last.unwrap_or_else(|| (None, "gone".to_owned()))
}
