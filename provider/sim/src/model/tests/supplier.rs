//! A small correct supplier, with faults that a test can order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::Resources;
use stoker_core::market::sharing::Slices;

use super::super::*;

/// What a call is told instead of an answer.
pub(super) fn refused() -> CaError {
    CaError::new(14, "unavailable")
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) min: i32,
    pub(super) max: i32,
    /// Whether `max` is answered as the target, so that nothing more is asked for.
    pub(super) closed: bool,
    /// How many more nodes can be had; none of the rest.
    pub(super) stock: usize,
    pub(super) template: Template,
    pub(super) instances: Vec<InstanceInfo>,
    /// Nodes that the target counts and nothing stands behind.
    pub(super) phantom: i32,
}

/// A supplier whose target is the count of its instances.
#[derive(Debug, Clone, Default)]
pub(super) struct Supplier {
    pub(super) groups: BTreeMap<String, Group>,
    /// Calls that fail, as `Method` or `Method argument`.
    pub(super) failing: BTreeSet<String>,
    /// What `GetOptions` answers.
    pub(super) options: Option<GroupOptions>,
    /// What the expander answers; `None` is an error.
    pub(super) choice: Option<Vec<String>>,
    pub(super) gpu_label: String,
    /// What `NodeGroupForNode` answers whatever it is asked, where set.
    pub(super) owner: Option<String>,
    /// Whether deleted instances stay for a while.
    pub(super) lingers: bool,
    made: u32,
}

impl Supplier {
    pub(super) fn add_group(&mut self, id: &str) {
        self.gpu_label = "stoker.dev/gpu".into();
        let capacity =
            Resources { milli_cpu: 8000, memory: MiB::from_gib(32), ephemeral: MiB::from_gib(100), pods: 110, gpus: 1 };
        let labels = [(super::POOL, "p"), ("stoker.dev/group", id), ("stoker.dev/gpu", "L4")];
        let template = Template {
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            taints: vec![super::gpu_taint()],
            capacity,
            allocatable: capacity,
            slices: Slices::default(),
        };
        let group = Group { min: 0, max: 10, closed: false, stock: 100, template, instances: Vec::new(), phantom: 0 };
        self.groups.insert(id.to_owned(), group);
    }

    pub(super) fn group(&mut self, id: &str) -> &mut Group {
        self.groups.get_mut(id).expect("a group")
    }

    /// Adds so many instances of its own accord.
    pub(super) fn grow(&mut self, id: &str, nodes: usize) {
        for _ in 0..nodes {
            self.made += 1;
            let made = self.made;
            let group = self.group(id);
            let had = group.stock > 0;
            group.stock = group.stock.saturating_sub(1);
            let error = InstanceError { code: "OUT_OF_CAPACITY".into(), message: "none left".into(), class: 1 };
            group.instances.push(InstanceInfo {
                id: format!("sim://{id}/{made}"),
                state: InstanceState::Creating,
                error: (!had).then_some(error),
            });
        }
    }

    pub(super) fn target(&self, id: &str) -> i32 {
        let group = &self.groups[id];
        let there = group.instances.iter().filter(|i| i.state != InstanceState::Deleting).count();
        group.phantom + i32::try_from(there).unwrap()
    }

    pub(super) fn has(&self, provider_id: &str) -> bool {
        self.groups.values().flat_map(|g| &g.instances).any(|i| i.id == provider_id)
    }

    /// The nodes of the instances that are being made and can be; those run from now on.
    pub(super) fn boot(&mut self, now: Timestamp, ready: bool) -> Vec<NodeView> {
        let mut nodes = Vec::new();
        for group in self.groups.values_mut() {
            let coming = |i: &&mut InstanceInfo| i.state == InstanceState::Creating && i.error.is_none();
            for instance in group.instances.iter_mut().filter(coming) {
                instance.state = InstanceState::Running;
                nodes.push(NodeView {
                    name: instance.id.replace("sim://", "node-").replace('/', "-"),
                    provider_id: instance.id.clone(),
                    labels: Arc::new(group.template.labels.clone()),
                    annotations: Arc::default(),
                    taints: group.template.taints.clone(),
                    unschedulable: false,
                    ready_since: ready.then_some(now),
                    created_at: now,
                    allocatable: group.template.allocatable,
                    capacity: group.template.capacity,
                    slices: group.template.slices.clone(),
                });
            }
        }
        nodes
    }

    fn check(&self, method: &str, argument: &str) -> Result<(), CaError> {
        let fails = self.failing.contains(method) || self.failing.contains(&format!("{method} {argument}"));
        if fails { Err(refused()) } else { Ok(()) }
    }
}

impl CaClient for Supplier {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.check("Refresh", "")
    }

    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        self.check("NodeGroups", "")?;
        let info = |(id, group): (&String, &Group)| GroupInfo {
            id: id.clone(),
            min: group.min,
            max: if group.closed { self.target(id) } else { group.max },
        };
        Ok(self.groups.iter().map(info).collect())
    }

    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        self.check("NodeGroupForNode", &node.name)?;
        if self.owner.is_some() {
            return Ok(self.owner.clone());
        }
        let owns = |group: &Group| group.instances.iter().any(|i| i.id == node.provider_id);
        Ok(self.groups.iter().find(|(_, group)| owns(group)).map(|(id, _)| id.clone()))
    }

    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.check("TargetSize", group)?;
        Ok(self.target(group))
    }

    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.check("IncreaseSize", group)?;
        assert!(self.target(group) + delta <= self.group(group).max, "asked for more than the maximum");
        self.grow(group, usize::try_from(delta).unwrap());
        Ok(())
    }

    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        self.check("DecreaseTargetSize", group)?;
        let group = self.group(group);
        let mut left = -delta;
        let phantom = left.min(group.phantom);
        group.phantom -= phantom;
        left -= phantom;
        group.instances.retain(|i| {
            let goes = left > 0 && i.state == InstanceState::Creating;
            left -= i32::from(goes);
            !goes
        });
        Ok(())
    }

    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        self.check("DeleteNodes", group)?;
        let going = |i: &InstanceInfo| nodes.iter().any(|n| n.provider_id == i.id);
        if self.lingers {
            let instances = &mut self.group(group).instances;
            instances.iter_mut().filter(|i| going(i)).for_each(|i| i.state = InstanceState::Deleting);
        } else {
            self.group(group).instances.retain(|i| !going(i));
        }
        Ok(())
    }

    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        self.check("Nodes", group)?;
        Ok(self.group(group).instances.clone())
    }

    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        if self.failing.contains(&format!("Unimplemented Template {group}")) {
            return Err(CaError::new(CaError::UNIMPLEMENTED, "no such method"));
        }
        self.check("Template", group)?;
        Ok(self.group(group).template.clone())
    }

    async fn get_options(&mut self, group: &str, _: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        self.check("GetOptions", group)?;
        Ok(self.options)
    }

    async fn gpu_label(&mut self) -> Result<String, CaError> {
        self.check("GpuLabel", "")?;
        Ok(self.gpu_label.clone())
    }

    async fn best_options(
        &mut self,
        _: &[ExpanderOption],
        _: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        self.choice.clone().ok_or_else(refused)
    }
}
