//! `stoker explain`: what was decided, why, and what came of it.

mod outcome;
mod story;

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;
use stoker_core::base::ids::DecisionId;

use super::args::{JournalArg, OutputArg};
use super::exit::{CliError, Exit, NotFound};
use super::out;
use outcome::Outcomes;
use stoker_journal::{AcceptedCall, Journal, Place, Reader, StoredCall, StoredDecision};
use story::DecisionReport;
pub(super) use story::deeds;

/// Accepted calls looked through for the one that filed an order: more than an autoscaler makes in a day.
const CALLS: u32 = 10_000;

/// Shows what was decided and why: what was asked, every candidate, what was done and what came of it.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// A decision (d42, as in the logs), or a node: its name, provider id, launch key or record (r12)
    #[arg(value_name = "DECISION|NODE")]
    subject: String,
    /// Show every candidate, not only the best of those that lost
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    journal: JournalArg,
    #[command(flatten)]
    output: OutputArg,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainReport {
    subject: String,
    /// Oldest first.
    decisions: Vec<DecisionReport>,
}

/// Carries the command out.
pub(super) async fn run(args: &ExplainArgs) -> Result<Exit, CliError> {
    let report = ExplainReport::of(&args.subject, args.journal.place()?).await?;
    out::print(args.output.format, &report, |report| story::tell(&report.decisions, args.all))?;
    Ok(Exit::Done)
}

/// What `explain` prints of a node or decision.
pub(super) async fn text(subject: &str, journal: Place) -> Result<String, CliError> {
    Ok(story::tell(&ExplainReport::of(subject, journal).await?.decisions, false))
}

/// The same from a journal that is open already.
pub(super) async fn text_of(subject: &str, reader: &Reader) -> Result<String, CliError> {
    let place = format!("the journal in {}", reader.location());
    Ok(story::tell(&ExplainReport::read(subject, reader, place).await?.decisions, false))
}

/// A decision by itself, without what came of it.
pub(super) fn brief_text(decision: &StoredDecision) -> String {
    story::tell(&[DecisionReport::of(decision, &[], Vec::new(), Vec::new())], false)
}

impl ExplainReport {
    async fn of(subject: &str, place: Place) -> Result<Self, CliError> {
        let reader = Journal::open_read_only(place.clone()).await?;
        Self::read(subject, &reader, format!("the journal in {place}")).await
    }

    async fn read(subject: &str, reader: &Reader, place: String) -> Result<Self, CliError> {
        let decisions = match decision_named(subject) {
            Some(id) => match reader.explain(id).await? {
                Some(decision) => vec![decision],
                None => return Err(no_decision(reader, id, place).await?),
            },
            None => reader.decisions_of_node(subject).await?,
        };
        if decisions.is_empty() {
            let cure = "give a Node's name, a provider id, a launch key, a record (r12) or a decision (d42)".to_owned();
            return Err(CliError::NotFound(NotFound { what: "node", name: subject.to_owned(), place, cure: Some(cure) }));
        }
        let calls = reader.recent_calls(CALLS).await?;
        let outcomes = Outcomes::of(reader).await?;
        let asked_about = match decision_named(subject) {
            Some(_) => BTreeSet::new(),
            None => reader.records_of_node(subject).await?,
        };
        let mut reports = Vec::with_capacity(decisions.len());
        for decision in &decisions {
            let mut outcomes = outcomes.of_decision(reader, decision).await?;
            let mut changed = outcome::changed(reader, decision).await?;
            // What was asked about comes first.
            outcomes.sort_by_key(|outcome| !asked_about.contains(&outcome.record));
            changed.sort_by_key(|outcome| !asked_about.contains(&outcome.record));
            reports.push(DecisionReport::of(decision, &filed(&calls, decision), outcomes, changed));
        }
        Ok(Self { subject: subject.to_owned(), decisions: reports })
    }
}

/// `d42`, or a bare number: records are written `r12`.
pub(super) fn decision_named(text: &str) -> Option<DecisionId> {
    let digits = text.strip_prefix('d').unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

pub(super) async fn no_decision(reader: &Reader, id: DecisionId, place: String) -> Result<CliError, CliError> {
    let cure = match reader.recent(1).await?.first() {
        Some(newest) => format!("the newest is {}; old ones are forgotten after `serve --retention`", newest.id),
        None => "no decision has been made yet".to_owned(),
    };
    Ok(CliError::NotFound(NotFound { what: "decision", name: id.to_string(), place, cure: Some(cure) }))
}

/// The calls that filed the orders of a decision.
fn filed<'a>(calls: &'a [StoredCall], decision: &StoredDecision) -> Vec<&'a StoredCall> {
    let orders = || decision.explanations.iter().filter_map(|explanation| explanation.order);
    let is_one = |call: &&StoredCall| match &call.call {
        AcceptedCall::Increase { order, .. } => orders().any(|o| o == *order),
        AcceptedCall::Decrease { .. } | AcceptedCall::Delete { .. } | AcceptedCall::Session { .. } => false,
    };
    calls.iter().filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_and_nodes_are_told_apart() {
        assert_eq!(decision_named("d42"), Some(DecisionId(42)));
        assert_eq!(decision_named("42"), Some(DecisionId(42)));
        for text in ["", "d", "dev-node", "r12", "aws:///us-east-1a/i-1", "d99999999999999999999"] {
            assert_eq!(decision_named(text), None, "{text}");
        }
    }
}
