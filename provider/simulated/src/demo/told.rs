//! What the demo says while it plays: one line an hour, with what was bought in it and what was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use stoker_core::base::ids::RecordId;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::record::State;
use stoker_sim::model::{Action, LoopReport};

use stoker_service::print::count;
use stoker_service::publish::view::View;

/// Counts what happens, and remembers what was counted already.
#[derive(Debug, Default)]
pub(super) struct Told {
    launched: BTreeSet<RecordId>,
    failed: BTreeSet<RecordId>,
    refused_until: BTreeSet<(String, Timestamp)>,
    /// Refusals of markets so far.
    pub(super) refused: u32,
    hour: Hour,
}

/// What happened in one hour.
#[derive(Debug, Default)]
struct Hour {
    /// Nodes that the autoscaler requested.
    requested: i64,
    /// Nodes bought, by capacity type.
    bought: BTreeMap<CapacityType, u32>,
    /// Markets that refused an order.
    refusals: u64,
    /// Orders that no market of their group could serve.
    failures: u64,
}

impl Told {
    /// Counts what happened at one moment.
    pub(super) fn note(&mut self, view: &View, report: &LoopReport) {
        for action in &report.actions {
            if let Action::ScaledUp { delta, .. } = action {
                self.hour.requested += i64::from(*delta);
            }
        }
        for (market, backoff) in &view.memory.refused {
            if self.refused_until.insert((market.to_string(), backoff.until)) {
                self.refused += 1;
                self.hour.refusals += 1;
            }
        }
        for record in view.memory.records.values() {
            if let Some(purchase) = record.purchase()
                && self.launched.insert(record.id)
            {
                *self.hour.bought.entry(purchase.market.capacity_type).or_default() += 1;
            }
            if matches!(record.state, State::Failed { .. }) && self.failed.insert(record.id) {
                self.hour.failures += 1;
            }
        }
    }

    /// The hour in words, and the next one begins; empty where nothing happened.
    pub(super) fn hour(&mut self) -> String {
        let Hour { requested, bought, refusals, failures } = std::mem::take(&mut self.hour);
        let mut text = String::new();
        if requested > 0 || !bought.is_empty() {
            let bought: Vec<_> = bought.into_iter().map(|(capacity, n)| format!("{n} {capacity}")).collect();
            let bought = if bought.is_empty() { "nothing".to_owned() } else { bought.join(" and ") };
            let _ = write!(text, "; scale-up +{requested}, bought {bought}");
        }
        if refusals > 0 {
            let _ = write!(text, "; {}", count(refusals, "market refusal"));
        }
        if failures > 0 {
            let _ = write!(text, "; {} sent to another group", count(failures, "node"));
        }
        text
    }
}
