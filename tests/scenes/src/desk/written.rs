//! Decisions as a journal gets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{DecisionId, SupplierName};
use stoker_core::choose::explanation::Explanation;
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::price::PriceBook;
use stoker_core::plan::{Action, Checked, Note, Plan};
use stoker_core::policy::Policy;
use stoker_core::state::memory::Memory;

use super::Desk;
use crate::market;

/// A decision with all that it depended on, for a journal.
#[derive(Debug, Clone)]
pub struct WrittenDecision {
    /// Its number.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The prices.
    pub prices: Arc<PriceBook>,
    /// What suppliers know of their markets.
    pub market_facts: Arc<BTreeMap<SupplierName, MarketFacts>>,
    /// The facts.
    pub snapshot: Snapshot,
    /// What was remembered before.
    pub before: Memory,
    /// What is remembered now.
    pub after: Memory,
    /// What is to be done.
    pub actions: Vec<Action>,
    /// What happened.
    pub notes: Vec<Note>,
    /// Why orders were supplied as they were.
    pub explanations: Vec<Explanation>,
}

impl Desk {
    /// Writes a decision down, where somebody keeps a journal, and as the engine does: not one that changes nothing.
    pub(super) fn write_down(&mut self, id: DecisionId, snapshot: &Snapshot, plan: &Plan<Checked>, after: &Memory) {
        let at = self.ours();
        let Some(written) = &mut self.written else { return };
        if plan.actions.is_empty() && plan.notes.is_empty() && *after == self.memory {
            return;
        }
        written.push(WrittenDecision {
            id,
            at,
            policy: Arc::clone(&self.catalogue.policy),
            prices: Arc::clone(&self.book),
            market_facts: Arc::new(market::facts()),
            snapshot: snapshot.clone(),
            before: self.memory.clone(),
            after: after.clone(),
            actions: plan.actions.clone(),
            notes: plan.notes.clone(),
            explanations: plan.explanations.clone(),
        });
    }
}
