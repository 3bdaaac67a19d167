//! A decision as a few lines to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use stoker_core::base::ids::{DecisionId, NodeGroupId, OrderId};
use stoker_core::choose::allocate::Proof;
use stoker_core::choose::explanation::Explanation;
use stoker_core::choose::sensitivity::lifts_told;
use stoker_core::plan::{Action, Evict, Note};

use super::outcome::Outcome;
use crate::cli::brief::{self, LiftRow, line};
use crate::cli::candidates::{CandidateRow, candidates_table};
use stoker_journal::{StoredCall, StoredDecision};
use stoker_service::print::count;

/// Lines of one kind shown where not all are asked for.
const LINES: usize = 5;

/// A decision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionReport {
    id: DecisionId,
    at: Timestamp,
    asked: Vec<OrderReport>,
    actions: Vec<Action>,
    notes: Vec<Note>,
    /// What came of the machines that it bought.
    outcomes: Vec<Outcome>,
    /// Where the records stood that it changed, where it has nothing else to say.
    changed: Vec<Outcome>,
}

/// An order as one decision supplied it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OrderReport {
    order: Option<OrderId>,
    /// When the autoscaler asked; `None` where nobody did, or it is forgotten.
    filed_at: Option<Timestamp>,
    group: Option<NodeGroupId>,
    asked: u32,
    found: u32,
    candidates: Vec<CandidateRow>,
    /// Limits that may be worth lifting, as far as the reasons tell.
    lifts: Vec<LiftRow>,
    /// How good the choice is known to be; left out where no other is better.
    #[serde(skip_serializing_if = "Proof::is_best")]
    proof: Proof,
}

impl DecisionReport {
    pub(super) fn of(decision: &StoredDecision, calls: &[&StoredCall], outcomes: Vec<Outcome>, changed: Vec<Outcome>) -> Self {
        let StoredDecision { id, at, actions, notes, explanations } = decision;
        let asked = explanations.iter().map(|explanation| OrderReport::of(explanation, calls, *at)).collect();
        Self { id: *id, at: *at, asked, actions: actions.clone(), notes: notes.clone(), outcomes, changed }
    }
}

impl OrderReport {
    fn of(explanation: &Explanation, calls: &[&StoredCall], at: Timestamp) -> Self {
        use stoker_journal::AcceptedCall::Increase;
        let Explanation { order, group, asked, found, candidates, proof } = explanation;
        let files = |call: &&&StoredCall| matches!(&call.call, Increase { order: filed, .. } if Some(*filed) == *order);
        Self {
            order: *order,
            filed_at: calls.iter().find(files).map(|call| call.at),
            group: group.clone(),
            asked: *asked,
            found: *found,
            candidates: candidates.iter().map(|candidate| CandidateRow::of(candidate, at)).collect(),
            lifts: lifts_told(explanation).into_iter().map(LiftRow::of).collect(),
            proof: *proof,
        }
    }

    fn tell(&self, text: &mut String, all: bool) {
        let order = self.order.map_or_else(|| "no order".to_owned(), |order| format!("order {order}"));
        let when = self.filed_at.map(|at| format!(" filed at {}", at.strftime("%H:%M:%SZ"))).unwrap_or_default();
        let group = self.group.as_ref().map_or_else(|| "any group".to_owned(), ToString::to_string);
        line(
            text,
            "asked",
            &format!("{order}{when}: {} of {group}; offers found for {}", count(self.asked, "node"), self.found),
        );
        if !self.proof.is_best() {
            line(text, "note", &self.proof.to_string());
        }
        if all {
            text.push_str(&candidates_table(&self.candidates));
        } else {
            brief::tell(text, &self.candidates);
        }
        // That no limit would help is not said: the journal does not tell all of them.
        brief::tell_lifts(text, &self.lifts, None);
    }
}

fn lines(text: &mut String, word: &str, rest: &[String], all: bool) {
    let shown = if all { rest.len() } else { LINES };
    for (at, one) in rest.iter().take(shown).enumerate() {
        line(text, if at == 0 { word } else { "" }, one);
    }
    if rest.len() > shown {
        line(text, "", &format!("and {} more; shown with --all", rest.len() - shown));
    }
}

/// The decisions, one after the other.
pub(super) fn tell(decisions: &[DecisionReport], all: bool) -> String {
    let mut text = String::new();
    for decision in decisions {
        let DecisionReport { id, at, asked, actions, notes, outcomes, changed } = decision;
        let _ = writeln!(text, "{id} at {}", at.strftime("%Y-%m-%d %H:%M:%SZ"));
        for order in asked {
            order.tell(&mut text, all);
        }
        lines(&mut text, "did", &deeds(actions), all);
        lines(&mut text, "noted", &notes.iter().map(ToString::to_string).collect::<Vec<_>>(), all);
        let told = |outcomes: &[Outcome]| outcomes.iter().map(|o| format!("{}: {}", o.record, o.text)).collect::<Vec<_>>();
        lines(&mut text, "outcome", &told(outcomes), all);
        lines(&mut text, "observed", &told(changed), all);
        if asked.is_empty() && actions.is_empty() && notes.is_empty() && changed.is_empty() {
            line(&mut text, "observed", "what suppliers and the cluster reported; the next decision shows what that changed");
        }
    }
    text
}

/// What was done, in words; launches in one market are one line.
pub(in crate::cli) fn deeds(actions: &[Action]) -> Vec<String> {
    let mut launches: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rest = Vec::new();
    for action in actions {
        match action {
            Action::Launch { record, supplier, request, price } => {
                let key = format!("at {supplier} in {} for {price}/h each", request.market);
                launches.entry(key).or_default().push(record.to_string());
            }
            Action::Terminate { supplier, instance, why } => {
                rest.push(format!("terminate {instance} at {supplier}: {why}"));
            }
            Action::Hold { node, why } => rest.push(format!("block scale-down of {node}: {why}")),
            Action::Release { node } => rest.push(format!("unblock scale-down of {node}")),
            Action::Drain { node, evict: Evict::Nobody, .. } => rest.push(format!("cordon {node}")),
            Action::Drain { node, gone_by: Some(by), .. } => {
                let by = by.strftime("%H:%M:%SZ");
                rest.push(format!("cordon {node} and evict its pods by {by}"));
            }
            Action::Drain { node, .. } => rest.push(format!("cordon {node} and evict its pods")),
            Action::Uncordon { node, .. } => rest.push(format!("uncordon {node}")),
            Action::RemoveNode { node, provider_id } => {
                rest.push(format!("remove the Node {node}: its machine {provider_id} is gone"));
            }
        }
    }
    let launches = launches.into_iter().map(|(how, records)| format!("launch {} {how}", records.join(", ")));
    launches.chain(rest).collect()
}
