//! What the demo says while it plays: each order with its choice, and what went wrong.

use std::collections::BTreeSet;

use jiff::Timestamp;
use stoker_core::ids::RecordId;
use stoker_core::record::State;
use stoker_sim::model::{Action, LoopReport};

use crate::view::View;

/// Remembers what was said already.
#[derive(Debug, Default)]
pub(super) struct Told {
    launched: BTreeSet<RecordId>,
    failed: BTreeSet<RecordId>,
    refused_until: BTreeSet<(String, Timestamp)>,
    /// Refusals of markets so far.
    pub(super) refused: u32,
}

impl Told {
    /// The lines of one moment.
    pub(super) fn tell(&mut self, view: &View, report: &LoopReport, now: Timestamp) -> Vec<String> {
        let clock = now.strftime("%H:%M:%S").to_string();
        let mut lines = Vec::new();
        for action in &report.actions {
            if let Action::ScaledUp { group, delta, .. } = action {
                let bought = self.bought(view, group);
                lines.push(format!("{clock}  asked {group} +{delta}{bought}"));
            }
        }
        for (market, backoff) in &view.memory.refused {
            if self.refused_until.insert((market.to_string(), backoff.until)) {
                self.refused += 1;
                lines.push(format!(
                    "{clock}  {market} said {}: left alone until {}",
                    backoff.kind,
                    backoff.until.strftime("%H:%M")
                ));
            }
        }
        for record in view.memory.records.values() {
            if let State::Failed { kind, .. } = &record.state
                && self.failed.insert(record.id)
            {
                lines.push(format!("{clock}  {} cannot be supplied ({kind}); the autoscaler turns elsewhere", record.group));
            }
        }
        lines
    }

    /// What was bought for a group since this was last asked.
    fn bought(&mut self, view: &View, group: &str) -> String {
        let mut text = String::new();
        for record in view.memory.records.values().filter(|r| r.group.as_str() == group) {
            let Some(purchase) = record.purchase() else { continue };
            if self.launched.insert(record.id) && text.is_empty() {
                text = format!(" → {} at {}/h", purchase.market.capacity_type, purchase.price);
            }
        }
        text
    }
}
