//! Taking back all that is ours on a Node, whatever a decision would say of it.

use jiff::Timestamp;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::{Value, json};
use stoker_core::base::ids::{ClusterName, NodeName};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::snapshot::{Cordon, Hold};
use tokio::time::timeout;

use super::super::thin::NodeRow;
use super::super::{DRAINING, HELD, SCALE_DOWN_DISABLED};
use super::{ActError, Change, DEADLINE, KubeAct, Outcome};

/// Nodes of one page of a list.
const PAGE: u32 = 250;

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

/// The Nodes could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server refused or could not be asked.
    #[error(transparent)]
    Api(Box<kube::Error>),
    /// No answer came in time.
    #[error("no answer within {}s", DEADLINE.as_secs())]
    TimedOut,
}

impl KubeAct {
    /// The Nodes that bear something of ours, by name: of one Stoker's cluster, or whosever they are.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn traces(&self, cluster: Option<&ClusterName>) -> Result<Vec<(NodeName, Vec<Trace>)>, ListError> {
        let mut params = ListParams::default().limit(PAGE);
        if let Some(cluster) = cluster {
            params = params.labels(&format!("{CLUSTER_LABEL}={cluster}"));
        }
        let mut found = Vec::new();
        loop {
            let page = match timeout(DEADLINE, self.nodes.list(&params)).await {
                Ok(page) => page.map_err(|error| ListError::Api(Box::new(error)))?,
                Err(_) => return Err(ListError::TimedOut),
            };
            for row in &page.items {
                let traces = traces(row);
                if let Some(Ok(name)) = row.meta.name.as_ref().filter(|_| !traces.is_empty()).map(NodeName::new) {
                    found.push((name, traces));
                }
            }
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(found),
            }
        }
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
