//! Taking back all that is ours on a Node, whatever a decision would say of it.

use jiff::Timestamp;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::{Value, json};
use stoker_core::base::ids::{ClusterName, NodeName};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::snapshot::{Cordon, Hold};

use super::super::pages::{ListError, Pages};
use super::super::thin::NodeRow;
use super::super::{DRAINING, HELD, SCALE_DOWN_DISABLED};
use super::{ActError, Change, DEADLINE, KubeAct, Outcome};

/// Something of ours that a Node bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Trace {
    /// The annotation that keeps the autoscaler from removing it, under our mark.
    Hold,
    /// It is closed to new pods, under our mark.
    Cordon,
    /// A mark of ours that marks nothing any more.
    Mark,
    /// Its verdict: annotation and condition.
    Verdict,
}

impl Trace {
    /// What it is called in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cordon => "cordon",
            Self::Mark => "left-over mark",
            Self::Verdict => "verdict",
        }
    }
}

impl KubeAct {
    /// The Nodes that bear something of ours, by name: of one Stoker's cluster, or whosever they are.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn traces(&self, cluster: Option<&ClusterName>) -> Result<Vec<(NodeName, Vec<Trace>)>, ListError> {
        let mut params = ListParams::default();
        if let Some(cluster) = cluster {
            params = params.labels(&format!("{CLUSTER_LABEL}={cluster}"));
        }
        let mut found = Vec::new();
        let mut pages = Pages::of(&self.nodes, params, DEADLINE);
        while let Some(page) = pages.next().await? {
            for row in &page {
                let traces = traces(row);
                if let Some(Ok(name)) = row.meta.name.as_ref().filter(|_| !traces.is_empty()).map(NodeName::new) {
                    found.push((name, traces));
                }
            }
        }
        Ok(found)
    }

    /// Takes back all that is ours on a Node, and nothing that is not.
    ///
    /// # Errors
    /// See [`ActError`]. What was taken back before stays so.
    pub async fn take_back(&self, node: &NodeName, now: Timestamp) -> Result<Outcome, ActError> {
        let unmarked = self.change("clean", node, |row| unmarked(row).ok_or(Outcome::Already)).await?;
        if unmarked == Outcome::Gone {
            return Ok(Outcome::Gone);
        }
        let (untold, _) = self.put("clean", node, |_| true, None, now).await?;
        Ok(if unmarked == Outcome::Done { unmarked } else { untold })
    }
}

/// What a Node bears of ours.
fn traces(row: &NodeRow) -> Vec<Trace> {
    let is_held = row.hold == Hold::Ours;
    let mark_left = row.cordon == Cordon::MarkLeft || (row.marked && !is_held);
    let all = [
        (Trace::Hold, is_held),
        (Trace::Cordon, row.cordon == Cordon::Ours),
        (Trace::Mark, mark_left),
        (Trace::Verdict, row.shown.is_some()),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(trace, _)| trace).collect()
}

/// The Node without our marks and what they mark; `None` where there are none.
fn unmarked(row: &NodeRow) -> Option<Change> {
    let mut annotations = serde_json::Map::new();
    if row.marked {
        annotations.insert(HELD.to_owned(), Value::Null);
    }
    if row.hold == Hold::Ours {
        annotations.insert(SCALE_DOWN_DISABLED.to_owned(), Value::Null);
    }
    if matches!(row.cordon, Cordon::Ours | Cordon::MarkLeft) {
        annotations.insert(DRAINING.to_owned(), Value::Null);
    }
    let spec = (row.cordon == Cordon::Ours).then(|| json!({ "unschedulable": null }));
    (!annotations.is_empty()).then_some(Change { annotations: Value::Object(annotations), spec })
}

#[cfg(test)]
mod tests;
