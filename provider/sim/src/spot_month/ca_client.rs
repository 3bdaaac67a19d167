//! The door in process: the autoscaler's calls go to the same functions that the service calls, and each change makes a pass of `decide`
//! and `check`, whose actions the region carries out at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::DecisionId;
use stoker_core::base::ids::{LaunchKey, NodeGroupId, NodeName, ProviderId, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::template::GPU_LABEL;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::is_fresh;
use stoker_core::decide::orders;
use stoker_core::facts::snapshot::{ClusterFacts, Drained, NodeFacts, Snapshot};
use stoker_core::facts::supply::{
    Instance, InstanceState as Doing, LaunchOutcome, LaunchRequest, Observation, Refusal, RefusalKind,
};
use stoker_core::limits::usage::Usage;
use stoker_core::market::offer::CapacityType;
use stoker_core::pass::{Before, step};
use stoker_core::plan::{Accounts, Action, Evict, GroupLimits};
use stoker_core::state::memory::Memory;

use super::cloud::{Cloud, Machine};
use super::sold;
use crate::in_process;
use crate::model::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};

/// Passes of one moment before a decision that does not come to rest is a fault.
const MOST_PASSES: usize = 50;

/// What the cluster has to do after a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chore {
    /// Set our hold on a node, or take it back.
    Hold(String, bool),
    /// Take a Node away: its machine ended or is gone.
    Remove(String),
    /// Close a node and tell those of its pods to go that may be told; in haste where the cloud takes it.
    Drain(NodeName, ProviderId, Evict, bool),
    /// Open a node again.
    Uncordon(String),
}

/// The decision with its memory, and the region that it buys in.
pub(super) struct Desk {
    pub(super) cloud: Cloud,
    /// The cluster as it was last seen.
    pub(super) facts: Arc<ClusterFacts>,
    /// What the cluster still has to do.
    pub(super) chores: Vec<Chore>,
    /// What came of draining nodes since the last pass.
    pub(super) drains: BTreeMap<NodeName, Drained>,
    /// Promises that were broken, in words.
    pub(super) broken: Vec<String>,
    /// When the decision asked to be made again.
    pub(super) again: Option<Timestamp>,
    catalogue: Catalogue,
    memory: Memory,
    supplier: SupplierName,
    limits: BTreeMap<NodeGroupId, GroupLimits>,
    listing: Vec<NodeGroupId>,
    /// The group of each machine and placeholder, as of the last refresh.
    owners: BTreeMap<String, NodeGroupId>,
    machines: BTreeMap<ProviderId, (u64, Arc<Instance>)>,
    start: Timestamp,
    now: Timestamp,
}

impl Desk {
    pub(super) fn new(cloud: Cloud, catalogue: Catalogue, supplier: SupplierName, start: Timestamp) -> Self {
        let mut memory = Memory::default();
        orders::begin_session(&mut memory);
        let mut desk = Self {
            cloud,
            facts: Arc::default(),
            chores: Vec::new(),
            drains: BTreeMap::new(),
            broken: Vec::new(),
            again: None,
            catalogue,
            memory,
            supplier,
            limits: BTreeMap::new(),
            listing: Vec::new(),
            owners: BTreeMap::new(),
            machines: BTreeMap::new(),
            start,
            now: start,
        };
        desk.pass();
        desk
    }

    /// Whole seconds since the start.
    pub(super) fn seconds(&self) -> i64 {
        self.now.duration_since(self.start).as_secs()
    }

    /// Lets time pass: machines boot, get their notice and go. Whether any did.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        self.now = now;
        let seconds = self.seconds();
        let gone = self.cloud.reclaim(seconds);
        let mut changed = !gone.is_empty();
        for (number, made) in self.machines.values_mut() {
            let Some(machine) = self.cloud.machines().get(number) else {
                self.chores.push(Chore::Remove(made.node_name.to_string()));
                continue;
            };
            let state = doing(machine, seconds, self.start);
            if made.state != state {
                Arc::make_mut(made).state = state;
                changed = true;
            }
        }
        self.machines.retain(|_, (number, _)| self.cloud.machines().contains_key(number));
        changed
    }

    /// The machines that have booted and are no Nodes yet: what their Nodes are called and their group.
    pub(super) fn booted(&self) -> impl Iterator<Item = (&Instance, &Arc<Group>)> {
        let seconds = self.seconds();
        self.machines.values().filter_map(move |(number, made)| {
            let up = self.cloud.machines().get(number).is_some_and(|machine| machine.ready <= seconds);
            let group = made.key.as_str().split('/').nth(1)?;
            (up && !self.facts.nodes.contains_key(&made.node_name))
                .then(|| NodeGroupId::find(&self.catalogue.groups, group).map(|group| (made.as_ref(), group)))?
        })
    }

    /// The machines, each with its Node, where it has joined.
    pub(super) fn machines(&self) -> impl Iterator<Item = (&Machine, Option<&NodeFacts>)> {
        self.machines.values().filter_map(|(number, made)| {
            Some((self.cloud.machines().get(number)?, self.facts.nodes.get(&made.node_name).map(AsRef::as_ref)))
        })
    }

    /// Decides, checks and acts until nothing is left to do at this moment.
    pub(super) fn pass(&mut self) {
        let mut outcomes = BTreeMap::new();
        for _ in 0..MOST_PASSES {
            let mut snapshot = self.snapshot(std::mem::take(&mut outcomes));
            snapshot.drains = std::mem::take(&mut self.drains);
            let before = Before { memory: &self.memory, limits: &self.limits, accounts: &Accounts::default() };
            let made = step(&before, (&snapshot, &self.catalogue), (DecisionId(1), self.now), |_| ());
            self.again = made.next_change_at;
            match made.verified.sound() {
                Ok((plan, memory)) => {
                    self.memory = memory;
                    self.limits = plan.limits;
                    outcomes = self.act(&plan.actions);
                }
                Err(faults) => {
                    self.broken.extend(faults.iter().map(|fault| format!("{}: {fault}", self.now)));
                    return;
                }
            }
            if outcomes.is_empty() {
                return;
            }
        }
        self.broken.push(format!("{}: the decision does not come to rest", self.now));
    }

    fn snapshot(&self, outcomes: BTreeMap<LaunchKey, LaunchOutcome>) -> Snapshot {
        let instances = self.machines.iter().map(|(id, (_, made))| (id.clone(), Arc::clone(made))).collect();
        let inventory = Observation::complete(self.now, instances);
        Snapshot {
            wall: Wall(self.now),
            suppliers: [(self.supplier.clone(), Some(Arc::new(inventory)))].into(),
            cluster: Some(Arc::clone(&self.facts)),
            outcomes,
            ..Snapshot::default()
        }
    }

    fn act(&mut self, actions: &[Action]) -> BTreeMap<LaunchKey, LaunchOutcome> {
        let mut outcomes = BTreeMap::new();
        for action in actions {
            match action {
                Action::Launch { request, .. } => {
                    outcomes.insert(request.key.clone(), self.launch(request));
                }
                Action::Terminate { instance, .. } => {
                    if let Some((number, made)) = self.machines.remove(instance) {
                        self.cloud.end(self.seconds(), number);
                        self.chores.push(Chore::Remove(made.node_name.to_string()));
                    }
                }
                Action::Hold { node, .. } => self.chores.push(Chore::Hold(node.to_string(), true)),
                Action::Release { node } => self.chores.push(Chore::Hold(node.to_string(), false)),
                Action::RemoveNode { node, .. } => self.chores.push(Chore::Remove(node.to_string())),
                Action::Drain { node, provider_id, evict, gone_by, .. } => {
                    self.chores.push(Chore::Drain(node.clone(), provider_id.clone(), *evict, gone_by.is_some()));
                }
                Action::Uncordon { node, .. } => self.chores.push(Chore::Uncordon(node.to_string())),
            }
        }
        outcomes
    }

    fn launch(&mut self, request: &LaunchRequest) -> LaunchOutcome {
        let refused = |kind, message: &str| LaunchOutcome::Refused(Refusal::of_market(kind, message));
        let Some((zone, shape)) = sold::indices(&request.market.place) else {
            return refused(RefusalKind::Config, "not sold here");
        };
        let spot = request.market.capacity_type == CapacityType::Spot;
        let seconds = self.seconds();
        let Some(number) = self.cloud.launch(seconds, shape, zone, spot) else {
            return refused(RefusalKind::OutOfCapacity, "no capacity");
        };
        let names = (ProviderId::new(format!("replay:///{number}")), NodeName::new(format!("node-{number:06}")));
        let (Ok(provider_id), Ok(node_name)) = names else { return refused(RefusalKind::Config, "no name") };
        let made = Instance {
            key: request.key.clone(),
            provider_id: provider_id.clone(),
            node_name,
            market: request.market.clone(),
            launched_at: self.now,
            state: Doing::Pending,
        };
        self.machines.insert(provider_id, (number, Arc::new(made.clone())));
        LaunchOutcome::Launched(made)
    }

    fn limits_of(&self, group: &str) -> Result<&GroupLimits, CaError> {
        NodeGroupId::find(&self.limits, group).ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))
    }

    fn id(group: &str) -> Result<NodeGroupId, CaError> {
        NodeGroupId::new(group).map_err(|error| CaError::new(INVALID, error.to_string()))
    }

    fn order(&mut self, id: &NodeGroupId, delta: i32) -> Result<(), CaError> {
        let before = self.memory.clone();
        let usage = Usage::count(&before, &self.catalogue, Wall(self.now));
        let snapshot = self.snapshot(BTreeMap::new());
        let now = self.now;
        let fresh = |group: &Group| is_fresh(&snapshot, group, now);
        let scales =
            Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times: Times::at(now) };
        let limits = self.limits.get(id).ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {id}")))?;
        let filed = orders::increase(&mut self.memory, &scales, limits, id, delta);
        filed.map_err(|why| CaError::new(PRECONDITION, why.to_string()))?;
        self.pass();
        Ok(())
    }
}

const INVALID: i32 = 3;
const NOT_FOUND: i32 = 5;
const PRECONDITION: i32 = 9;

fn doing(machine: &Machine, seconds: i64, start: Timestamp) -> Doing {
    match machine.reclaim {
        Some((notice, gone)) if notice <= seconds => {
            let at = start.saturating_add(SignedDuration::from_secs(gone)).unwrap_or(Timestamp::MAX);
            Doing::Reclaiming { at }
        }
        _ if machine.ready <= seconds => Doing::Running,
        _ => Doing::Pending,
    }
}

impl CaClient for Desk {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.owners.clear();
        for record in self.memory.records.values() {
            self.owners.insert(record.placeholder.to_string(), record.group.clone());
            if let Some(machine) = record.instance() {
                self.owners.insert(machine.to_string(), record.group.clone());
            }
        }
        self.listing = in_process::listing(&self.limits);
        Ok(())
    }

    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        Ok(in_process::groups(&self.listing, &self.limits))
    }

    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        Ok(self.owners.get(&node.provider_id).map(ToString::to_string))
    }

    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.limits_of(group).map(|limits| in_process::size(limits.target))
    }

    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let id = Self::id(group)?;
        self.order(&id, delta)
    }

    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let id = Self::id(group)?;
        let taken = orders::decrease(&mut self.memory, &id, delta, self.now);
        taken.map_err(|why| CaError::new(INVALID, why.to_string()))?;
        self.pass();
        Ok(())
    }

    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        let id = Self::id(group)?;
        let plain = |node: &NodeRef| orders::NodeRef { provider_id: node.provider_id.clone(), name: node.name.clone() };
        let nodes: Vec<orders::NodeRef> = nodes.iter().map(plain).collect();
        let gone = orders::delete(&mut self.memory, &self.catalogue, Some(&self.facts), &id, &nodes, self.now);
        gone.map_err(|why| CaError::new(PRECONDITION, why.to_string()))?;
        self.pass();
        Ok(())
    }

    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        Ok(in_process::instances(&self.memory, group))
    }

    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        let group = NodeGroupId::find(&self.catalogue.groups, group)
            .ok_or_else(|| CaError::new(NOT_FOUND, format!("no group {group}")))?;
        Ok(group.template.clone())
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
        Ok(in_process::best_options(options, &self.catalogue, &self.limits))
    }
}
