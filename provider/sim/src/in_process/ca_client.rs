//! The autoscaler's calls to a desk: they go to the same functions that the service calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::ids::{NodeGroupId, ProviderId};
use stoker_core::catalogue::template::GPU_LABEL;
use stoker_core::decide::orders;
use stoker_core::plan::GroupLimits;
use stoker_core::state::record::Record;

use super::cloud::Cloud;
use super::desk::{Desk, changed};
use super::{INVALID, NOT_FOUND, PRECONDITION, best_options, groups, instances, listing, size};
use crate::model::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};

impl<C: Cloud> Desk<C> {
    fn limits_of(&self, group: &str) -> Result<&GroupLimits, CaError> {
        let id = self.names.get(group).and_then(|id| self.limits.get(id));
        id.or_else(|| NodeGroupId::find(&self.limits, group))
            .ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))
    }
}

/// What a record's node may be called by.
fn names(record: &Record) -> [Option<&ProviderId>; 2] {
    [Some(&record.placeholder), record.instance()]
}

fn id(group: &str) -> Result<NodeGroupId, CaError> {
    NodeGroupId::new(group).map_err(|error| CaError::new(INVALID, error.to_string()))
}

impl<C: Cloud + Send> CaClient for Desk<C> {
    async fn refresh(&mut self) -> Result<(), CaError> {
        if !std::mem::take(&mut self.remembers_anew) {
            return Ok(());
        }
        let owned = std::mem::replace(&mut self.owned, self.memory.records.clone());
        for (before, now) in changed(&owned, &self.memory.records) {
            if before.zip(now).is_some_and(|(a, b)| a.group == b.group && names(a) == names(b)) {
                continue;
            }
            for id in before.into_iter().flat_map(|record| names(record)).flatten() {
                self.owners.remove(id.as_str());
                self.regrouped.insert(id.to_string());
            }
            for (id, group) in
                now.into_iter().flat_map(|record| names(record).into_iter().flatten().map(|id| (id, &record.group)))
            {
                self.owners.insert(id.to_string(), group.clone());
            }
        }
        let listing = listing(&self.limits);
        if listing != self.listing {
            (self.listing, self.cached_groups) = (listing, None);
        }
        Ok(())
    }

    async fn regrouped(&mut self) -> Option<BTreeSet<String>> {
        Some(std::mem::take(&mut self.regrouped))
    }

    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        Ok(groups(&self.listing, &self.limits))
    }

    async fn shared_groups(&mut self) -> Result<Arc<[GroupInfo]>, CaError> {
        let cached = self.cached_groups.get_or_insert_with(|| groups(&self.listing, &self.limits).into());
        Ok(Arc::clone(cached))
    }

    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        Ok(self.owners.get(&node.provider_id).map(ToString::to_string))
    }

    async fn target_sizes(&mut self, groups: &[GroupInfo]) -> Option<Vec<i32>> {
        let mut limits = self.limits.iter();
        let mut of = |group: &GroupInfo| limits.find(|(id, _)| id.as_str() == group.id).map(|(_, limits)| size(limits.target));
        groups.iter().map(&mut of).collect()
    }

    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.limits_of(group).map(|limits| size(limits.target))
    }

    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let id = id(group)?;
        self.order(&id, delta)
    }

    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let id = id(group)?;
        let taken = orders::decrease(&mut self.memory, &id, delta, self.now);
        taken.map_err(|why| CaError::new(INVALID, why.to_string()))?;
        self.ordered();
        self.pass();
        Ok(())
    }

    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        let id = id(group)?;
        let plain = |node: &NodeRef| orders::NodeRef { provider_id: node.provider_id.clone(), name: node.name.clone() };
        let nodes: Vec<orders::NodeRef> = nodes.iter().map(plain).collect();
        let gone = orders::delete(&mut self.memory, &self.catalogue, Some(&self.facts), &id, &nodes, self.now);
        gone.map_err(|why| CaError::new(PRECONDITION, why.to_string()))?;
        self.ordered();
        self.pass();
        Ok(())
    }

    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        Ok(instances(&self.memory, group))
    }

    async fn shared_nodes(&mut self, group: &str) -> Result<Arc<[InstanceInfo]>, CaError> {
        if std::mem::take(&mut self.records_changed) {
            let cached = std::mem::replace(&mut self.cached_records, self.memory.records.clone());
            for (before, now) in changed(&cached, &self.memory.records) {
                for record in before.into_iter().chain(now) {
                    self.instances.remove(&record.group);
                }
            }
        }
        let Some(id) = self.names.get(group) else { return self.nodes(group).await.map(Into::into) };
        let cached = self.instances.entry(id.clone()).or_insert_with(|| instances(&self.memory, group).into());
        Ok(Arc::clone(cached))
    }

    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        let group = NodeGroupId::find(&self.catalogue.groups, group)
            .ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))?;
        Ok(group.template.clone())
    }

    async fn shared_template(&mut self, group: &str) -> Result<Arc<Template>, CaError> {
        if let Some(known) = self.templates.get(group) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(self.template(group).await?);
        self.templates.insert(group.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    async fn get_options(&mut self, _: &str, _: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        Ok(None)
    }

    async fn gpu_label(&mut self) -> Result<String, CaError> {
        Ok(GPU_LABEL.to_owned())
    }

    /// The option that the service's expander would take.
    async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        _: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        Ok(best_options(options, &self.catalogue, &self.limits))
    }
}
