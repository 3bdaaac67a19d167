//! Asks probes *now* before nodes go: what the autoscaler takes for unneeded may have begun to work since. It is asked only where probes are the
//! pool's evidence, and never of what has no work to lose: failed ids, unknown ones, and those that never were Ready.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use stoker_core::base::ids::{GpuUuid, NodeGroupId, NodeName};
use stoker_core::base::kinds::Evidence;
use stoker_core::decide::orders::NodeRef;
use stoker_core::facts::activity::GpuActivity;
use stoker_core::facts::reading::Source;
use stoker_core::facts::reading::seen::{Hearing, Seen};
use stoker_core::policy::rules::warm_floor::DOUBTED_FOR;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::{Record, State};

use crate::feeds::probes::{NotConfirmed, Readings, Streams};
use crate::publish::telemetry::{DeleteRefusal, Metrics};
use crate::publish::view::View;

/// How long the answers to one call may take, all of them together: a probe gives its own within 2 s, and the autoscaler waits 5 s for
/// the whole call.
const WITHIN: Duration = Duration::from_secs(3);

/// Why a node must not go. Nothing of the call was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotQuiet {
    /// It is at work.
    #[error("{node} is busy: its probe sees work on GPU {gpu} now")]
    Busy {
        /// The node.
        node: NodeName,
        /// A GPU at work, or an instance of one.
        gpu: GpuUuid,
    },
    /// It cannot be told.
    #[error("{node} cannot be confirmed idle: {why}")]
    Unknown {
        /// The node.
        node: NodeName,
        /// Why not.
        why: String,
    },
}

/// Asks probes before nodes go.
#[derive(Debug)]
pub struct Confirm {
    readings: Arc<Readings>,
    streams: Arc<Streams>,
    metrics: Metrics,
}

/// What asking one node came to, where its GPUs are not proven quiet.
enum Found {
    Busy(GpuUuid),
    Unknown(String),
}

impl Confirm {
    /// Asks through these streams.
    pub const fn new(readings: Arc<Readings>, streams: Arc<Streams>, metrics: Metrics) -> Self {
        Self { readings, streams, metrics }
    }

    /// Confirms that those of the nodes that may be at work are not, all of them at once.
    ///
    /// # Errors
    /// Names the first node that is at work, or of which that cannot be told. Where all probes of the pool have lapsed, pods are the
    /// evidence, and only work that was seen counts; so it does of a node that is lost.
    pub async fn quiet(&self, view: &View, group: &NodeGroupId, nodes: &[NodeRef]) -> Result<(), NotQuiet> {
        let pool = view.groups.get(group).map(|shown| &shown.group.pool);
        if pool.and_then(|pool| view.catalogue.policy.pool(pool)).is_none_or(|pool| pool.evidence != Evidence::Probe) {
            return Ok(());
        }
        let asked =
            started(view, group, nodes).into_iter().map(|(record, node)| async move { (record, node, self.ask(node).await) });
        for (record, node, found) in join_all(asked).await {
            let unhealthy = || record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Unhealthy);
            let (refusal, why) = match found {
                Ok(()) => continue,
                Err(Found::Busy(gpu)) => (DeleteRefusal::Busy, NotQuiet::Busy { node: node.clone(), gpu }),
                // A GPU that is broken can often not be read, and it is for that that the node goes.
                Err(Found::Unknown(_)) if unhealthy() || by_pods(view, record) || is_lost(view, record) => continue,
                Err(Found::Unknown(why)) => (DeleteRefusal::Unknown, NotQuiet::Unknown { node: node.clone(), why }),
            };
            self.metrics.delete_refused(refusal);
            tracing::warn!(rpc = "NodeGroupDeleteNodes", %group, "refused: {why}");
            return Err(why);
        }
        Ok(())
    }

    async fn ask(&self, node: &NodeName) -> Result<(), Found> {
        let answer = tokio::time::timeout(WITHIN, self.streams.confirm_quiet(node)).await;
        // The answer was taken in before it came here.
        let seen = self.readings.seen_of(node);
        match answer {
            Ok(Ok(_)) => match GpuActivity::of(seen.as_ref()) {
                GpuActivity::Quiet(_) => Ok(()),
                GpuActivity::Active(gpu) => Err(Found::Busy(gpu.clone())),
                GpuActivity::Unclear(why) => Err(Found::Unknown(why.reason().to_string())),
            },
            // Prometheus stands in: nobody can be asked, and what is concluded of its readings is the engine's to say.
            Ok(Err(NotConfirmed::NoStream)) if seen.is_some_and(|seen| is_read_otherwise(&seen)) => Ok(()),
            Ok(Err(why)) => Err(Found::Unknown(why.to_string())),
            Err(_) => Err(Found::Unknown(format!("its probe did not answer within {} s", WITHIN.as_secs()))),
        }
    }
}

/// Whether pods are the evidence of what a node does, as its probe is silent with all others of its pool. That is the engine's to conclude.
fn by_pods(view: &View, record: &Record) -> bool {
    view.memory.probe_history.get(&record.id).is_some_and(|known| known.by_pods)
}

/// Whether a node's kubelet is away for so long that its machine is taken for dead. Its probe is with it, so nobody would ever answer: refused,
/// it would be paid for without end, and each refusal stops the removal of others for a while.
fn is_lost(view: &View, record: &Record) -> bool {
    let away = record.judged.as_ref().filter(|judged| judged.is_not_ready());
    away.is_some_and(|judged| view.at.duration_since(judged.since) >= DOUBTED_FOR)
}

/// Those of the named nodes that are of the group and were Ready, with their records.
fn started<'a>(view: &'a View, group: &NodeGroupId, nodes: &[NodeRef]) -> Vec<(&'a Record, &'a NodeName)> {
    let mut by_id = HashMap::new();
    for record in view.memory.records.values().filter(|record| record.group == *group) {
        if let State::Registered { instance, node: Some(node), ready_at: Some(_), .. } = &record.state {
            by_id.insert(instance.as_str(), (record.as_ref(), node));
            by_id.insert(node.as_str(), (record.as_ref(), node));
        }
    }
    // A machine that is named by its id is that one or none, as where the order is filed.
    let id = |node: &NodeRef| if node.provider_id.is_empty() { node.name.clone() } else { node.provider_id.clone() };
    nodes.iter().filter_map(|node| by_id.get(id(node).as_str()).copied()).collect()
}

fn is_read_otherwise(seen: &Seen) -> bool {
    seen.source == Source::Prometheus && matches!(seen.hearing, Hearing::Heard { .. })
}
