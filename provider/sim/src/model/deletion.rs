//! Shrinking, second half: nodes are marked, given a moment, drained and deleted, beside the loop.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::autoscaler::{Autoscaler, Pass};
use super::by_group::Slot;
use super::ca_client::CaClient;
use super::cluster::{Cluster, NodeView, PodView};
use super::limits::Usage;
use super::planner::Removable;
use super::report::{Action, LoopError, LoopReport};
use super::time::after;

/// How long a node marked for deletion is left to its supplier before it is looked at again.
pub(super) const DELETION_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// How far a deletion has come.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Marked; the scheduler gets a moment to see it.
    Marked { due: Timestamp },
    /// Its pods were evicted and may take so long to go.
    Draining { until: Timestamp },
}

/// A node on its way out.
#[derive(Debug, Clone)]
struct Deletion {
    node: String,
    group: Slot,
    drain: bool,
    phase: Phase,
}

/// The deletions under way. A restart gives them up.
#[derive(Debug, Clone, Default)]
pub(super) struct Deletions(Vec<Deletion>);

impl Deletions {
    /// Whether that node is on its way out.
    pub(super) fn contains(&self, node: &str) -> bool {
        self.0.iter().any(|d| d.node == node)
    }

    /// Whether that node's pods are about to move.
    pub(super) fn is_draining(&self, node: &str) -> bool {
        self.0.iter().any(|d| d.drain && d.node == node)
    }

    /// The group of each node on its way out.
    pub(super) fn groups(&self) -> impl Iterator<Item = Slot> {
        self.0.iter().map(|d| d.group)
    }

    /// Whether any node's pods are about to move.
    pub(super) fn any_drains(&self) -> bool {
        self.0.iter().any(|d| d.drain)
    }

    /// When the next step of each is due.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        self.0.iter().map(|d| match d.phase {
            Phase::Marked { due } => due,
            Phase::Draining { until } => until,
        })
    }
}

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// Looks for nodes that are not needed and marks those that may go for deletion.
    pub(super) async fn scale_down(&mut self, pass: &mut Pass<'_>, report: &mut LoopReport) -> Result<(), LoopError> {
        let any = self.find_unneeded(pass).await;
        let rests = !any && self.settings.generation.rests_without_candidates();
        if rests || pass.hold_scale_down || self.cooldown_ends(pass.now).is_some() {
            self.look_for_soft_taints(pass).await;
            return Ok(());
        }
        // Counted for the lower ends of the limits, which are not modelled; a failure stops every removal all the same.
        let counts = self.settings.generation.counts_by_node();
        if counts && Usage::count(&mut self.client, &self.settings, pass, &self.state.templates).await.is_err() {
            return Ok(());
        }
        let removable = self.removable(pass).await;
        let (drain, empty): (Vec<_>, Vec<_>) = removable.into_iter().partition(|r| r.drain);
        let draining = self.state.deletions.0.iter().filter(|d| d.drain).count();
        let mut parallel = self.settings.max_scale_down_parallelism.saturating_sub(self.state.deletions.0.len());
        for (mut nodes, limit) in [(empty, usize::MAX), (drain, self.settings.max_drain_parallelism.saturating_sub(draining))] {
            nodes.truncate(parallel.min(limit));
            parallel -= nodes.len();
            self.mark(nodes, pass.now, report).await?;
        }
        self.look_for_soft_taints(pass).await;
        Ok(())
    }

    /// Which of the nodes are of a group: only those get soft taints, or lose them. The taints themselves are not modelled.
    async fn look_for_soft_taints(&mut self, pass: &Pass<'_>) {
        // All of them were asked about before: these are calls only where the answer was "not ours".
        if self.client.quiet {
            return;
        }
        for seen in &pass.roster.seen {
            let _ = self.client.known_group_of_seen(seen).await;
        }
    }

    /// Until when nothing is removed after a scale-up, a removal or a failure.
    pub(super) fn cooldown_ends(&self, now: Timestamp) -> Option<Timestamp> {
        let settings = &self.settings;
        let ends = [
            (self.state.last_scale_up, settings.scale_down_delay_after_add),
            (self.state.last_delete, settings.scale_down_delay_after_delete),
            (self.state.last_scale_down_failure, settings.scale_down_delay_after_failure),
        ];
        ends.into_iter().filter_map(|(at, wait)| at.map(|at| after(at, wait))).max().filter(|end| now < *end)
    }

    /// Marks nodes for deletion: all or none.
    async fn mark(&mut self, nodes: Vec<Removable>, now: Timestamp, report: &mut LoopReport) -> Result<(), LoopError> {
        if nodes.is_empty() {
            return Ok(());
        }
        for (done, removable) in nodes.iter().enumerate() {
            if let Err(source) = self.cluster.taint_to_be_deleted(&removable.node.name, now).await {
                for marked in nodes.iter().take(done) {
                    // Nothing is left to be done where this fails as well.
                    let _ = self.cluster.untaint(&marked.node.name).await;
                }
                self.state.last_scale_down_failure = Some(now);
                return Err(LoopError::Taint { node: removable.node.name.clone(), source });
            }
        }
        let due = after(now, self.settings.node_delete_delay_after_taint);
        for Removable { node, group, drain } in nodes {
            self.state.last_delete = Some(now);
            let name = node.name.clone();
            let group_id = self.client.name(group).to_string();
            report.actions.push(Action::DeletionStarted { node: name.clone(), group: group_id, drain });
            self.state.deletions.0.push(Deletion { node: name, group, drain, phase: Phase::Marked { due } });
        }
        self.state.registry.recalculate(&mut self.client).await;
        Ok(())
    }

    /// The goroutines beside the loop: each deletion takes the steps that are due.
    pub(super) async fn continue_deletions(&mut self, now: Timestamp, report: &mut LoopReport) {
        // Side by side: all are begun before the first is done.
        let mut begun = Vec::new();
        for mut deletion in std::mem::take(&mut self.state.deletions.0) {
            match self.begin(&mut deletion, now, report).await {
                Ok(()) => begun.push(deletion),
                Err(reason) => self.give_up(deletion, reason, report).await,
            }
        }
        for deletion in begun {
            match self.advance(&deletion, now).await {
                Ok(true) => {
                    let (node, group) = (deletion.node, self.client.name(deletion.group).to_string());
                    report.actions.push(Action::Deleted { node, group });
                }
                Ok(false) => self.state.deletions.0.push(deletion),
                Err(reason) => self.give_up(deletion, reason, report).await,
            }
        }
    }

    /// Has the pods of a marked node move, once it has had its moment.
    async fn begin(&mut self, deletion: &mut Deletion, now: Timestamp, report: &mut LoopReport) -> Result<(), String> {
        if !matches!(deletion.phase, Phase::Marked { due } if due <= now) {
            return Ok(());
        }
        // Asked for whether the group goes to nought at once, which is not modelled.
        let options = self.client.options(deletion.group, &self.settings.group_options()).await;
        options.map_err(|e| format!("no options of its group: {e}"))?;
        let (_, pods) = self.look_at(&deletion.node).await?;
        if !deletion.drain && !pods.is_empty() {
            return Err("new pods were bound to it".to_owned());
        }
        if let Some(pod) = pods.iter().find(|pod| !pod.movable) {
            return Err(format!("{} may not be moved", pod.id));
        }
        for pod in pods {
            self.cluster.evict(&pod.id, now).await.map_err(|e| format!("{} could not be evicted: {e}", pod.id))?;
            report.actions.push(Action::Evicted { pod: pod.id.clone(), node: deletion.node.clone() });
        }
        deletion.phase = Phase::Draining { until: after(now, self.settings.max_graceful_termination) };
        Ok(())
    }

    /// Deletes a node whose pods have gone. Answers whether the provider has taken it.
    async fn advance(&mut self, deletion: &Deletion, now: Timestamp) -> Result<bool, String> {
        let Phase::Draining { until } = deletion.phase else { return Ok(false) };
        let (node, pods) = self.look_at(&deletion.node).await?;
        if !pods.is_empty() {
            let late = until <= now;
            return if late { Err("its pods did not go in time".to_owned()) } else { Ok(false) };
        }
        let node = node.to_ref();
        let group = self.client.group_of(&node).await.map_err(|e| format!("no group: {e}"))?;
        let group = group.ok_or("it is of no group")?;
        self.client.delete_nodes(group, &[node]).await.map_err(|e| e.to_string())?;
        Ok(true)
    }

    /// The node and the pods on it that have to move.
    async fn look_at(&mut self, name: &str) -> Result<(Arc<NodeView>, Vec<Arc<PodView>>), String> {
        let (node, mut pods) = self.cluster.node_and_pods(name).await.ok_or("it is gone")?;
        pods.retain(|pod| !pod.daemon);
        Ok((node, pods))
    }

    /// Opens the node again.
    async fn give_up(&mut self, deletion: Deletion, reason: String, report: &mut LoopReport) {
        // The node may be gone, which is why it failed.
        let _ = self.cluster.untaint(&deletion.node).await;
        let (node, group) = (deletion.node, self.client.name(deletion.group).to_string());
        report.actions.push(Action::DeletionFailed { node, group, reason });
    }
}
