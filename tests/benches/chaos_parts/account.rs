//! What the autoscaler was told, call by call.

use std::collections::BTreeMap;

use stoker_sim::model::{Call, CallRecord};

/// The sizes of groups that the answers allow.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The least and the greatest size of each group.
    targets: BTreeMap<String, (i64, i64)>,
    pub(crate) tally: Tally,
}

/// What happened so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Nodes whose order was acknowledged.
    pub(crate) ordered: i64,
    /// Nodes whose deletion was acknowledged.
    pub(crate) deleted: i64,
    /// Calls that the service refused.
    pub(crate) refused: i64,
    /// Calls over which it died, or that nobody answered.
    pub(crate) cut_off: i64,
}

impl Account {
    /// The least and the greatest size that a group may have.
    pub(crate) fn target(&self, group: &str) -> (i64, i64) {
        self.targets.get(group).copied().unwrap_or_default()
    }

    /// Takes in a call and its answer.
    pub(crate) fn note(&mut self, record: &CallRecord) {
        let (group, change) = match &record.call {
            // By a negative number where it decreases.
            Call::IncreaseSize(group, delta) | Call::DecreaseTargetSize(group, delta) => (group, i64::from(*delta)),
            Call::DeleteNodes(group, nodes) => (group, -i64::try_from(nodes.len()).unwrap_or(i64::MAX)),
            _ => return,
        };
        let (least, greatest) = self.targets.entry(group.clone()).or_default();
        match &record.error {
            None => {
                *least += change;
                *greatest += change;
                self.tally.ordered += change.max(0);
                self.tally.deleted -= change.min(0);
            }
            // The service's own words: it refused.
            Some(error) if error.message.starts_with("NodeGroup") => self.tally.refused += 1,
            Some(_) => {
                *least += change.min(0);
                *greatest += change.max(0);
                self.tally.cut_off += 1;
            }
        }
    }
}
