//! The door in process: the autoscaler's calls go to the same functions that the service calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::template::GPU_LABEL;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::is_fresh;
use stoker_core::decide::orders;
use stoker_core::limits::usage::Usage;
use stoker_core::plan::GroupLimits;
use stoker_sim::in_process;
use stoker_sim::model::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};

use super::Desk;

const DEADLINE: i32 = 4;
const NOT_FOUND: i32 = 5;
const PRECONDITION: i32 = 9;
const UNAVAILABLE: i32 = 14;

fn group_id(group: &str) -> Result<NodeGroupId, CaError> {
    NodeGroupId::new(group).map_err(|error| CaError::new(NOT_FOUND, error.to_string()))
}

impl Desk {
    fn open(&self) -> Result<(), CaError> {
        if self.works() { Ok(()) } else { Err(CaError::new(UNAVAILABLE, "the provider is not there")) }
    }

    fn heard(&self) -> Result<(), CaError> {
        if self.faults.unheard { Err(CaError::new(DEADLINE, "deadline exceeded")) } else { Ok(()) }
    }

    fn limits_of(&self, group: &str) -> Result<&GroupLimits, CaError> {
        self.open()?;
        NodeGroupId::find(&self.limits, group).ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))
    }

    fn order(&mut self, id: &NodeGroupId, delta: i32) -> Result<(), CaError> {
        self.open()?;
        let before = self.memory.clone();
        let times @ Times { now, wall } = self.times;
        let usage = Usage::count(&before, &self.catalogue, wall);
        let snapshot = self.snapshot();
        let fresh = |group: &Group| is_fresh(&snapshot, group, now);
        let scales = Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times };
        let limits = self.limits.get(id).ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {id}")))?;
        let filed = orders::increase(&mut self.memory, &scales, limits, id, delta);
        filed.map_err(|why| CaError::new(PRECONDITION, why.to_string()))?;
        self.note(&before, false);
        self.pass();
        self.heard()
    }
}

impl CaClient for Desk {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.open()?;
        self.owners.clear();
        for record in self.memory.records.values() {
            self.owners.insert(record.placeholder.to_string(), record.group.clone());
            if let Some(machine) = record.instance().filter(|_| self.memory.shows(record)) {
                self.owners.insert(machine.to_string(), record.group.clone());
            }
        }
        self.listing = in_process::listing(&self.limits);
        Ok(())
    }

    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        self.open()?;
        Ok(in_process::groups(&self.listing, &self.limits))
    }

    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        self.open()?;
        Ok(self.owners.get(&node.provider_id).map(ToString::to_string))
    }

    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.limits_of(group).map(|limits| in_process::size(limits.target))
    }

    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.order(&group_id(group)?, delta)
    }

    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.open()?;
        let (id, now) = (group_id(group)?, self.ours());
        let taken = orders::decrease(&mut self.memory, &id, delta, now);
        taken.map_err(|why| CaError::new(PRECONDITION, why.to_string()))?;
        self.pass();
        self.heard()
    }

    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        self.open()?;
        let id = group_id(group)?;
        let plain = |node: &NodeRef| orders::NodeRef { provider_id: node.provider_id.clone(), name: node.name.clone() };
        let nodes: Vec<orders::NodeRef> = nodes.iter().map(plain).collect();
        for _ in 0..if self.faults.repeated { 2 } else { 1 } {
            if let Err(why) = self.delete(&id, &nodes) {
                self.line.tell("provider", &format!("refuses to delete: {why}"));
                return Err(CaError::new(PRECONDITION, why.to_string()));
            }
            self.pass();
        }
        self.heard()
    }

    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        self.open()?;
        Ok(in_process::instances(&self.memory, group))
    }

    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        self.open()?;
        let known = NodeGroupId::find(&self.catalogue.groups, group)
            .or_else(|| NodeGroupId::find(&self.memory.groups, group).map(|known| &known.group));
        Ok(known.ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))?.template.clone())
    }

    async fn get_options(&mut self, _: &str, _: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        self.open()?;
        Ok(None)
    }

    async fn gpu_label(&mut self) -> Result<String, CaError> {
        self.open()?;
        Ok(GPU_LABEL.to_owned())
    }

    /// The option that the service's expander would take.
    async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        _: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        self.open()?;
        Ok(in_process::best_options(options, &self.catalogue, &self.limits))
    }
}
