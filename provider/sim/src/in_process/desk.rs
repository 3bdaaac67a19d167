//! The decision with its memory in front of a cloud: each change makes a pass of `decide` and `check`, whose actions the cloud carries out
//! at once.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{DecisionId, LaunchKey, NodeGroupId, NodeName, ProviderId, RecordId, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::catalogue::template::NodeTemplate;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::{is_fresh, orders};
use stoker_core::facts::snapshot::{ClusterFacts, Drained, NodeFacts, Snapshot};
use stoker_core::facts::supply::{
    Covered, Instance, InstanceState, LaunchOutcome, LaunchRequest, Observation, Refusal, RefusalKind,
};
use stoker_core::limits::usage::Usage;
use stoker_core::pass::{Before, step};
use stoker_core::plan::{Accounts, Action, Evict};
use stoker_core::state::memory::Memory;
use stoker_core::state::record::Record;

use super::Limits;
use super::cloud::{Cloud, Life};
use crate::model::{CaError, GroupInfo, InstanceInfo};

/// Passes of one moment before a decision that does not come to rest is a fault.
const MOST_PASSES: usize = 50;

/// All records of a memory.
pub(super) type Records = BTreeMap<RecordId, Arc<Record>>;

/// What the cluster has to do after a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chore {
    /// Set Stoker's hold on a node, or take it back.
    Hold(String, bool),
    /// Take a Node away: its machine ended or is gone.
    Remove(String),
    /// Close a node and tell those of its pods to go that may be told; in haste where the cloud takes it.
    Drain(NodeName, ProviderId, Evict, bool),
    /// Open a node again.
    Uncordon(String),
}

/// The decision with its memory, and the cloud that it buys in.
#[expect(clippy::struct_excessive_bools, reason = "each says of something else whether it is new")]
pub struct Desk<C> {
    /// The cloud.
    pub cloud: C,
    /// The cluster as it was last seen.
    pub(super) facts: Arc<ClusterFacts>,
    /// What the cluster still has to do.
    pub(super) chores: Vec<Chore>,
    /// What came of draining nodes since the last pass.
    drains: BTreeMap<NodeName, Drained>,
    /// Promises that were broken, in words.
    pub broken: Vec<String>,
    /// When the decision asked to be made again.
    pub(super) again: Option<Timestamp>,
    /// Passes made.
    pub passes: u64,
    pub(super) catalogue: Catalogue,
    pub(super) memory: Memory,
    supplier: SupplierName,
    pub(super) limits: Limits,
    /// How the decision stands with budgets and floors.
    pub accounts: Accounts,
    pub(super) listing: Vec<NodeGroupId>,
    /// The groups that are listed, as they were last told.
    pub(super) cached_groups: Option<Arc<[GroupInfo]>>,
    /// The group of each machine and placeholder, as of the last refresh.
    pub(super) owners: FxHashMap<String, NodeGroupId>,
    /// The records of those.
    pub(super) owned: Records,
    /// Machines that lost their group in the last refresh.
    pub(super) regrouped: BTreeSet<String>,
    /// Whether the memory changed since then.
    pub(super) remembers_anew: bool,
    /// The instances of groups, as far as they were asked for.
    pub(super) instances: FxHashMap<NodeGroupId, Arc<[InstanceInfo]>>,
    /// The records of those.
    pub(super) cached_records: Records,
    /// Whether the memory changed since then.
    pub(super) records_changed: bool,
    /// The groups' templates, as far as they were asked for.
    pub(super) templates: FxHashMap<String, Arc<NodeTemplate>>,
    /// The groups' ids by their names.
    pub(super) names: FxHashMap<String, NodeGroupId>,
    /// The number of each machine at the cloud.
    numbers: BTreeMap<ProviderId, u64>,
    /// When those machines change.
    lives: BTreeMap<u64, Life>,
    /// What the supplier lists.
    inventory: Arc<Observation>,
    /// When machines change by themselves.
    moments: BTreeSet<(i64, ProviderId)>,
    /// Machines that have booted and are no Nodes yet.
    boarding: BTreeSet<ProviderId>,
    /// Whether a pass is made whenever anything happens, also where no fact is new.
    pub(super) restless: bool,
    /// Whether any fact or order is newer than the last pass.
    news: bool,
    /// Whether the autoscaler would be told anything else than before.
    pub(super) answers_changed: bool,
    /// How often it changed which groups can be had, and for how much.
    pub(super) groups_changed: u64,
    start: Timestamp,
    pub(super) now: Timestamp,
}

impl<C: Cloud> Desk<C> {
    /// A decision that remembers nothing, in front of a cloud.
    pub fn new(cloud: C, catalogue: Catalogue, supplier: SupplierName, start: Timestamp) -> Self {
        let mut memory = Memory::default();
        orders::begin_session(&mut memory);
        let names = catalogue.groups.keys().map(|id| (id.to_string(), id.clone())).collect();
        let mut desk = Self {
            cloud,
            facts: Arc::default(),
            chores: Vec::new(),
            drains: BTreeMap::new(),
            broken: Vec::new(),
            again: None,
            passes: 0,
            catalogue,
            memory,
            supplier,
            limits: BTreeMap::new(),
            accounts: Accounts::default(),
            listing: Vec::new(),
            cached_groups: None,
            owners: FxHashMap::default(),
            owned: Records::new(),
            regrouped: BTreeSet::new(),
            remembers_anew: true,
            instances: FxHashMap::default(),
            cached_records: Records::new(),
            records_changed: false,
            templates: FxHashMap::default(),
            names,
            numbers: BTreeMap::new(),
            lives: BTreeMap::new(),
            inventory: Arc::new(Observation::complete(start, BTreeMap::new())),
            moments: BTreeSet::new(),
            boarding: BTreeSet::new(),
            restless: false,
            news: true,
            answers_changed: false,
            groups_changed: 0,
            start,
            now: start,
        };
        desk.pass();
        desk
    }

    /// The policy with its groups.
    pub const fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Whole seconds since the start.
    pub fn seconds(&self) -> i64 {
        self.now.duration_since(self.start).as_secs()
    }

    /// When a machine next changes by itself.
    pub(super) fn next_change(&self) -> Option<i64> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Lets time pass: machines boot, get their notice and go. Whether any did.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        self.now = now;
        let seconds = self.seconds();
        if self.next_change().is_none_or(|at| at > seconds) {
            return false;
        }
        self.cloud.reclaim(seconds);
        let mut due = BTreeSet::new();
        while let Some((at, id)) = self.moments.pop_first() {
            if at > seconds {
                self.moments.insert((at, id));
                break;
            }
            due.insert(id);
        }
        let mut changed = false;
        for id in due {
            let Some(number) = self.numbers.get(&id).copied() else { continue };
            let Some(life) = self.cloud.life(number) else {
                self.forget(&id, number);
                self.numbers.remove(&id);
                if let Some(made) = Arc::make_mut(&mut self.inventory).instances.remove(&id) {
                    self.chores.push(Chore::Remove(made.node_name.to_string()));
                }
                changed = true;
                continue;
            };
            let state = doing(life, seconds, self.start);
            let Some(made) = Arc::make_mut(&mut self.inventory).instances.get_mut(&id) else { continue };
            if life.ready <= seconds && !self.facts.nodes.contains_key(&made.node_name) {
                self.boarding.insert(id);
            }
            if made.state != state {
                Arc::make_mut(made).state = state;
                changed = true;
            }
        }
        self.news |= changed;
        changed
    }

    /// Forgets when a machine would have changed.
    fn forget(&mut self, id: &ProviderId, number: u64) {
        for at in self.lives.remove(&number).iter().flat_map(Life::moments) {
            self.moments.remove(&(at, id.clone()));
        }
        self.boarding.remove(id);
    }

    /// The machines that have booted and are no Nodes yet: what their Nodes are called and their group.
    pub(super) fn take_booted(&mut self) -> Vec<(Arc<Instance>, Arc<Group>)> {
        let booted = std::mem::take(&mut self.boarding);
        let known = booted.iter().filter_map(|id| {
            let made = self.inventory.instances.get(id)?;
            let group = made.key.as_str().split('/').nth(1)?;
            let group = NodeGroupId::find(&self.catalogue.groups, group)?;
            Some((Arc::clone(made), Arc::clone(group)))
        });
        known.collect()
    }

    /// The machines, each with its number and its Node, where it has joined.
    pub fn machines(&self) -> impl Iterator<Item = (u64, &Instance, Option<&NodeFacts>)> {
        self.numbers.iter().filter_map(|(id, number)| {
            let made = self.inventory.instances.get(id)?;
            Some((*number, made.as_ref(), self.facts.nodes.get(&made.node_name).map(AsRef::as_ref)))
        })
    }

    /// Takes in how a node of the cluster stands now; `None` where it is gone.
    pub(super) fn sees(&mut self, name: &str, node: Option<NodeFacts>) {
        let Ok(name) = NodeName::new(name) else { return };
        if self.facts.nodes.get(&name).map(AsRef::as_ref) == node.as_ref() {
            return;
        }
        self.news = true;
        let facts = Arc::make_mut(&mut self.facts);
        match node {
            Some(node) => drop(facts.nodes.insert(name, Arc::new(node))),
            None => drop(facts.nodes.remove(&name)),
        }
    }

    /// Takes in what came of a drain.
    pub(super) fn drained(&mut self, node: NodeName, drained: Drained) {
        self.news = true;
        self.drains.insert(node, drained);
    }

    /// Decides, checks and acts until nothing is left to do at this moment; nothing where nothing can differ.
    pub(super) fn pass(&mut self) {
        if !std::mem::take(&mut self.news) && !self.restless && self.again.is_none_or(|at| at > self.now) {
            return;
        }
        let mut outcomes = BTreeMap::new();
        for _ in 0..MOST_PASSES {
            self.passes += 1;
            let drains = std::mem::take(&mut self.drains);
            let snapshot = Snapshot { drains, ..self.snapshot(std::mem::take(&mut outcomes)) };
            let before = Before { memory: &self.memory, limits: &self.limits, accounts: &Accounts::default() };
            let made = step(&before, (&snapshot, &self.catalogue), (DecisionId(1), self.now), |_| ());
            drop(snapshot);
            self.again = made.next_change_at;
            match made.verified.sound() {
                Ok((plan, memory)) => {
                    self.answers_changed |= answers_differ((&self.memory, &self.limits), (&memory, &plan.limits));
                    self.groups_changed += u64::from(!sold_alike(&self.limits, &plan.limits));
                    if !listed_alike(&self.limits, &plan.limits) {
                        self.cached_groups = None;
                    }
                    self.memory = memory;
                    (self.remembers_anew, self.records_changed) = (true, true);
                    self.limits = plan.limits;
                    self.accounts = plan.accounts;
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

    fn snapshot(&mut self, outcomes: BTreeMap<LaunchKey, LaunchOutcome>) -> Snapshot {
        Arc::make_mut(&mut self.inventory).covered = Covered::Everywhere(self.now);
        Snapshot {
            wall: Wall(self.now),
            suppliers: [(self.supplier.clone(), Some(Arc::clone(&self.inventory)))].into(),
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
                    if let Some(number) = self.numbers.remove(instance) {
                        self.forget(instance, number);
                        self.cloud.end(self.seconds(), number);
                        self.news = true;
                        if let Some(made) = Arc::make_mut(&mut self.inventory).instances.remove(instance) {
                            self.chores.push(Chore::Remove(made.node_name.to_string()));
                        }
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
        let seconds = self.seconds();
        let number = match self.cloud.launch(seconds, &request.market) {
            Ok(number) => number,
            Err(refusal) => return LaunchOutcome::Refused(refusal),
        };
        let names = (ProviderId::new(format!("replay:///{number}")), NodeName::new(format!("node-{number:06}")));
        let ((Ok(provider_id), Ok(node_name)), Some(life)) = (names, self.cloud.life(number)) else {
            return LaunchOutcome::Refused(Refusal::of_market(RefusalKind::Config, "no name"));
        };
        let state = doing(life, seconds, self.start);
        let made = Instance {
            key: request.key.clone(),
            provider_id: provider_id.clone(),
            node_name,
            market: request.market.clone(),
            launched_at: self.now,
            state,
        };
        if state != InstanceState::Pending {
            self.boarding.insert(provider_id.clone());
        }
        self.moments.extend(life.moments().filter(|at| *at > seconds).map(|at| (at, provider_id.clone())));
        self.numbers.insert(provider_id.clone(), number);
        self.lives.insert(number, life);
        Arc::make_mut(&mut self.inventory).instances.insert(provider_id, Arc::new(made.clone()));
        LaunchOutcome::Launched(made)
    }

    /// Has the next pass made: an order changed the memory.
    pub(super) const fn ordered(&mut self) {
        (self.news, self.remembers_anew, self.records_changed) = (true, true, true);
    }

    /// Files an order of the autoscaler.
    pub(super) fn order(&mut self, id: &NodeGroupId, delta: i32) -> Result<(), CaError> {
        let before = self.memory.clone();
        let usage = Usage::count(&before, &self.catalogue, Wall(self.now));
        let snapshot = self.snapshot(BTreeMap::new());
        let now = self.now;
        let fresh = |group: &Group| is_fresh(&snapshot, group, now);
        let scales =
            Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times: Times::at(now) };
        let limits = self.limits.get(id).ok_or_else(|| CaError::new(super::NOT_FOUND, format!("no group {id}")))?;
        let filed = orders::increase(&mut self.memory, &scales, limits, id, delta);
        filed.map_err(|why| CaError::new(super::PRECONDITION, why.to_string()))?;
        (self.news, self.records_changed) = (true, true);
        drop(snapshot);
        self.pass();
        Ok(())
    }
}

/// Whether the autoscaler would be told anything else: sizes of groups, or the instances in them.
fn answers_differ((memory, limits): (&Memory, &Limits), (memory_now, limits_now): (&Memory, &Limits)) -> bool {
    let shown = |limits: &Limits, now: &Limits| {
        limits.len() == now.len()
            && limits.iter().zip(now).all(|((id, a), (other, b))| {
                id == other && (a.target, a.min, a.max, a.listed) == (b.target, b.min, b.max, b.listed) && a.supply == b.supply
            })
    };
    let records = memory.records.len() == memory_now.records.len()
        && memory.records.iter().zip(&memory_now.records).all(|((id, a), (other, b))| {
            id == other && (Arc::ptr_eq(a, b) || std::mem::discriminant(&a.state) == std::mem::discriminant(&b.state))
        });
    !records || !shown(limits, limits_now)
}

/// Whether the same groups are listed with the same ends.
fn listed_alike(limits: &Limits, now: &Limits) -> bool {
    limits.len() == now.len()
        && limits
            .iter()
            .zip(now)
            .all(|((id, a), (other, b))| id == other && (a.min, a.max, a.listed) == (b.min, b.max, b.listed))
}

/// The records that are not the same as before, each as it was and as it is.
pub(super) fn changed<'a>(
    before: &'a Records,
    now: &'a Records,
) -> impl Iterator<Item = (Option<&'a Arc<Record>>, Option<&'a Arc<Record>>)> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    let pairs = std::iter::from_fn(move || {
        let first = [before.peek(), now.peek()].into_iter().flatten().map(|(id, _)| **id).min()?;
        let of = |records: &mut std::iter::Peekable<btree_map::Iter<'a, RecordId, Arc<Record>>>| {
            records.next_if(|(id, _)| **id == first).map(|(_, record)| record)
        };
        Some((of(&mut before), of(&mut now)))
    });
    pairs.filter(|(before, now)| !before.zip(*now).is_some_and(|(before, now)| Arc::ptr_eq(before, now)))
}

/// Whether the same groups can be had for the same prices.
fn sold_alike(limits: &Limits, now: &Limits) -> bool {
    limits.len() == now.len()
        && limits.values().zip(now.values()).all(|(a, b)| (a.listed, a.lasting_price) == (b.listed, b.lasting_price))
}

fn doing(life: Life, seconds: i64, start: Timestamp) -> InstanceState {
    match life.reclaim {
        Some((notice, gone)) if notice <= seconds => {
            let at = start.saturating_add(SignedDuration::from_secs(gone)).unwrap_or(Timestamp::MAX);
            InstanceState::Reclaiming { at }
        }
        _ if life.ready <= seconds => InstanceState::Running,
        _ => InstanceState::Pending,
    }
}
