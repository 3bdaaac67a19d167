//! Instances that never came, and targets that nothing stands behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::autoscaler::Autoscaler;
use super::by_group::Slot;
use super::ca_client::{CaClient, FAKE_CREATE_ERROR, FAKE_UNREGISTERED, NodeRef};
use super::cluster::Cluster;
use super::report::{Action, LoopError, LoopReport};
use super::time::after;

impl<D: CaClient, C: Cluster> Autoscaler<D, C> {
    /// Deletes instances that have been without a Node for longer than they may, down to the group's minimum. The first refusal
    /// ends it for this loop.
    pub(super) async fn delete_unregistered(&mut self, now: Timestamp, report: &mut LoopReport) -> Result<(), LoopError> {
        let defaults = self.settings.group_options();
        let mut late: BTreeMap<Arc<str>, (Slot, Vec<NodeRef>)> = BTreeMap::new();
        for (id, since) in self.state.registry.unregistered() {
            let node = NodeRef::fake(&id, FAKE_UNREGISTERED);
            let Some(group) = self.client.known_group_of(&node).await else { continue };
            let Ok(options) = self.client.options(group, &defaults).await else { return Ok(()) };
            if after(since, options.max_node_provision) <= now {
                late.entry(self.client.name(group)).or_insert((group, Vec::new())).1.push(node);
            }
        }
        for (id, (slot, mut nodes)) in late {
            let id = id.to_string();
            let Some(group) = self.client.group(slot).await else { return Err(LoopError::UnlistedGroup { group: id }) };
            let Ok(size) = self.client.target_size(slot).await else { continue };
            let may_go = usize::try_from(size - group.min).unwrap_or_default();
            if may_go == 0 {
                continue;
            }
            nodes.truncate(may_go);
            let error = self.client.delete_nodes(slot, &nodes).await.err();
            self.state.registry.drop_cached(slot);
            let instances = nodes.into_iter().map(|n| n.provider_id).collect();
            let failed = error.is_some();
            report.actions.push(Action::UnregisteredDeleted { group: id, instances, error });
            if failed {
                break;
            }
        }
        Ok(())
    }

    /// Deletes instances that could not be created, without a look at the minimum; every loop again while they are listed. Answers
    /// whether any went.
    pub(super) async fn delete_failed(&mut self, report: &mut LoopReport) -> bool {
        let defaults = self.settings.group_options();
        let mut any = false;
        for (id, (group, instances)) in self.state.registry.failed_instances(&self.client) {
            let nodes: Vec<NodeRef> = instances.iter().map(|i| NodeRef::fake(i, FAKE_CREATE_ERROR)).collect();
            if self.settings.generation.asks_whose_failed() {
                for node in &nodes {
                    // A supplier that lists an instance in a group names that group here too.
                    let _ = self.client.known_group_of(node).await;
                }
            }
            if self.client.group(group).await.is_none() || self.client.options(group, &defaults).await.is_err() {
                continue;
            }
            let error = self.client.delete_nodes(group, &nodes).await.err();
            if error.is_none() {
                any = true;
                self.state.registry.drop_cached(group);
            }
            report.actions.push(Action::FailedDeleted { group: id.to_string(), instances, error });
        }
        if any && !self.settings.generation.clean_up_ends_loop() {
            self.state.registry.recalculate(&mut self.client).await;
        }
        any
    }

    /// Lowers targets that the registered nodes have not reached for as long as a node may take. Answers whether any was lowered.
    pub(super) async fn fix_sizes(&mut self, now: Timestamp, report: &mut LoopReport) -> Result<bool, LoopError> {
        let defaults = self.settings.group_options();
        let mut fixed = false;
        for group in self.client.node_groups().await.iter() {
            let Some((delta, since)) = self.state.registry.size_gap(group.slot) else { continue };
            let failed = |source| LoopError::SizeFix { group: group.id.to_string(), source };
            let options = self.client.options(group.slot, &defaults).await.map_err(failed)?;
            if delta < 0 && after(since, options.max_node_provision) <= now {
                self.client.decrease_target_size(group.slot, delta).await.map_err(failed)?;
                report.actions.push(Action::SizeFixed { group: group.id.to_string(), delta });
                fixed = true;
            }
        }
        Ok(fixed)
    }
}
