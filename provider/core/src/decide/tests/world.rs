//! A hand-moved world for the tests: it holds the facts, makes passes through `decide` and `check`, and answers launches as told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::verdicts::Shown;
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::DecisionId;
use crate::base::ids::{
    Cloud, GpuModel, InstanceType, LaunchKey, NodeGroupId, NodeName, ProviderId, Region, SupplierName, ZoneId,
};
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::check::{Verified, check};
use crate::choose::rank::Scales;
use crate::conclusions;
use crate::decide::orders::{self, DeleteRefused, NodeRef, OrderRefused};
use crate::decide::{decide, is_fresh};
use crate::facts::foreign::Foreign;
use crate::facts::outdated::Outdated;
use crate::facts::reading::seen::Seen;
use crate::facts::snapshot::{ClusterFacts, Cordon, Drained, Hold, NodeFacts, Snapshot, Stuck};
use crate::facts::supply::{
    Covered, Instance, InstanceState, LaunchOutcome, MarketFacts, Observation, Refusal, RefusalKind, RefusalScope,
};
use crate::limits::usage::Usage;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::plan::{Action, Checked, Decision, Evict, GroupLimits, Plan};
use crate::policy::rules::demand::Demand;
use crate::policy::rules::warm_floor::FloorStands;
use crate::policy::{Policy, RawPolicy};
use crate::state::memory::Memory;
use crate::state::record::Record;

pub(super) const GROUP_A: &str = "pool.gpu-1.zone-a";
pub(super) const GROUP_B: &str = "pool.gpu-1.zone-b";

pub(super) const fn seconds(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}

pub(super) const fn minutes(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) now: Timestamp,
    /// By how much the wall is ahead.
    pub(super) wall_ahead: SignedDuration,
    pub(super) memory: Memory,
    pub(super) catalogue: Catalogue,
    pub(super) policy: Policy,
    book: PriceBook,
    pub(super) machines: BTreeMap<ProviderId, Arc<Instance>>,
    pub(super) inventory: Observation,
    /// Machines that their supplier calls outdated.
    pub(super) outdated: BTreeMap<ProviderId, Option<Outdated>>,
    /// What the cloud calls impaired; `None` while it does not say.
    pub(super) impaired: Option<BTreeMap<ProviderId, String>>,
    cluster: ClusterFacts,
    pub(super) outcomes: BTreeMap<LaunchKey, LaunchOutcome>,
    launching: BTreeSet<LaunchKey>,
    pub(super) drains: BTreeMap<NodeName, Drained>,
    /// What probes have seen of nodes.
    pub(super) seen: BTreeMap<NodeName, Arc<Seen>>,
    /// What the probe of each node that joins shows; `None` for nodes that no probe reports on.
    pub(super) probes: Option<Shown>,
    pub(super) demand: Demand,
    /// Whether the cluster serves buffers.
    pub(super) buffers: Option<bool>,
    /// The nodes that are not Stoker's.
    pub(super) foreign: Option<Arc<Foreign>>,
    last: Option<Plan<Checked>>,
    asked: Vec<(LaunchKey, Market)>,
    /// Machines ever made.
    made: usize,
}

pub(super) fn place(zone: &str) -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("r").unwrap(),
        zone: ZoneId::new(zone).unwrap(),
        instance_type: InstanceType::new("gpu.1").unwrap(),
    }
}

pub(super) fn supplier() -> SupplierName {
    SupplierName::new("test").unwrap()
}

pub(super) fn policy() -> Policy {
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "pools": [{
            "name": "pool", "workload": "training",
            "gpu": { "models": ["L4"] },
            "where": { "clouds": ["aws"], "regions": ["r"] },
            "capacity": { "prefer": ["spot", "on-demand"] },
            "limits": { "maxNodes": 10, "maxUsdPerHour": 100 },
        }],
        "quotas": [
            { "name": "Q-SPOT", "cloud": "aws", "region": "r", "capacityTypes": ["spot"], "vcpus": 64 },
            { "name": "Q-OD", "cloud": "aws", "region": "r", "capacityTypes": ["on-demand"], "vcpus": 64 },
        ],
    }))
    .unwrap();
    let mut policy = Policy::try_from_raw(&raw).unwrap();
    // What holds free nodes has tests of its own.
    policy.pools[0].stabilization = None;
    policy
}

pub(super) fn book(now: Timestamp) -> PriceBook {
    let mut book = PriceBook::new();
    book.insert_spec(InstanceSpec {
        cloud: Cloud::new("aws").unwrap(),
        instance_type: InstanceType::new("gpu.1").unwrap(),
        gpu_model: GpuModel::new("L4").unwrap(),
        gpus: Milli(1000),
        gpu_memory: MiB::from_gib(24),
        vcpus: Some(4),
        memory: Some(MiB::from_gib(16)),
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    });
    for (zone, spot, od) in [("zone-a", 300_000, 800_000), ("zone-b", 200_000, 800_000)] {
        for (capacity_type, price) in [(CapacityType::Spot, spot), (CapacityType::OnDemand, od)] {
            let market = Market { place: place(zone), capacity_type };
            let quote = Quote { price: UsdPerHour(price), kind: QuoteKind::List, as_of: Some(now), source: Arc::from("test") };
            book.insert(market, Entry::Price(quote));
        }
    }
    book
}

pub(super) fn catalogue(policy: &Policy, book: &PriceBook) -> Catalogue {
    let clouds = ["aws", "gcp", "azure"].map(|cloud| Cloud::new(cloud).unwrap());
    let facts = MarketFacts { clouds: clouds.into(), ..MarketFacts::default() };
    Catalogue::derive(&Arc::new(policy.clone()), book, &[(supplier(), facts)].into())
}

/// When every world begins.
pub(super) fn start() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

impl World {
    pub(super) fn new() -> Self {
        Self::over(policy(), book(start()))
    }

    /// The world of a pool that may use zone a alone.
    pub(super) fn in_zone_a() -> Self {
        let mut policy = policy();
        policy.pools[0].zones = ["zone-a".to_owned()].into();
        Self::over(policy, book(start()))
    }

    /// The world of another policy and other prices.
    pub(super) fn over(policy: Policy, book: PriceBook) -> Self {
        let now = start();
        let mut memory = Memory::default();
        orders::begin_session(&mut memory);
        let catalogue = catalogue(&policy, &book);
        let inventory = Observation::complete(now, BTreeMap::new());
        let mut world = Self {
            now,
            wall_ahead: SignedDuration::ZERO,
            memory,
            catalogue,
            policy,
            book,
            machines: BTreeMap::new(),
            inventory,
            outdated: BTreeMap::new(),
            impaired: Some(BTreeMap::new()),
            cluster: ClusterFacts::default(),
            outcomes: BTreeMap::new(),
            launching: BTreeSet::new(),
            drains: BTreeMap::new(),
            seen: BTreeMap::new(),
            probes: None,
            demand: Demand::new(),
            buffers: Some(false),
            foreign: None,
            last: None,
            asked: Vec::new(),
            made: 0,
        };
        world.pass();
        world
    }

    /// One node of the group, launched; joined and Ready if so told.
    pub(super) fn with_node(group: &str, joined: bool) -> Self {
        let mut world = Self::new();
        world.increase(group, 1);
        world.pass();
        world.answer(|_| true);
        world.pass();
        world.observe();
        if joined {
            world.join(true);
        }
        world.pass();
        world
    }

    pub(super) fn group(id: &str) -> NodeGroupId {
        NodeGroupId::new(id).unwrap()
    }

    pub(super) fn policy(&mut self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.policy);
        self.catalogue = catalogue(&self.policy, &self.book);
    }

    /// Changes numbers of the policy alone, so that the groups need not be derived again.
    pub(super) fn numbers(&mut self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.policy);
        self.catalogue.policy = Arc::new(self.policy.clone());
    }

    /// A table says how many of a zone's spot nodes are reclaimed a month.
    pub(super) fn reclaims(&mut self, zone: &str, per_month: Milli) {
        self.book.insert_reclaims(place(zone), per_month);
        self.catalogue = catalogue(&self.policy, &self.book);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            wall: Wall(self.now + self.wall_ahead),
            suppliers: [(supplier(), Some(Arc::new(self.inventory.clone())))].into(),
            cluster: Some(Arc::new(self.cluster.clone())),
            outcomes: self.outcomes.clone(),
            launching: self.launching.clone(),
            terminating: BTreeSet::new(),
            drains: self.drains.clone(),
            seen: self.seen.clone(),
            demand: self.demand.clone(),
            buffers: self.buffers,
            foreign: self.foreign.clone(),
            ..Snapshot::default()
        }
    }

    /// Decides, checks, and takes the memory over. A plan that breaks a promise fails the test.
    pub(super) fn pass(&mut self) -> Plan<Checked> {
        let snapshot = self.snapshot();
        let decision = decide(&snapshot, &self.memory, &self.catalogue, self.now);
        let unfounded = conclusions::judge(&decision, &self.memory, &snapshot, &self.catalogue);
        assert_eq!(unfounded, [], "{:?}", decision.plan);
        let (plan, memory) = self.checked(decision, &self.memory, &snapshot).sound().unwrap();
        self.memory = memory;
        self.outcomes.clear();
        self.drains.clear();
        for action in &plan.actions {
            if let Action::Launch { request, .. } = action {
                self.asked.retain(|(key, _)| *key != request.key);
                self.asked.push((request.key.clone(), request.market.clone()));
            }
        }
        self.last = Some(plan.clone());
        plan
    }

    /// What the checker makes of a decision.
    pub(super) fn checked(&self, decision: Decision, before: &Memory, snapshot: &Snapshot) -> Verified {
        check(decision, before, snapshot, &self.catalogue, (DecisionId(1), self.now))
    }

    /// A pass so much later, over what the supplier has by then.
    pub(super) fn pass_after(&mut self, length: SignedDuration) -> Plan<Checked> {
        self.advance(length);
        self.observe();
        self.pass()
    }

    pub(super) fn try_increase(&mut self, group: &str, delta: i32) -> Result<(), OrderRefused> {
        let id = Self::group(group);
        let before = self.memory.clone();
        let usage = Usage::count(&before, &self.catalogue, Wall(self.now));
        let snapshot = self.snapshot();
        let now = self.now;
        let fresh = |group: &Group| is_fresh(&snapshot, group, now);
        let scales =
            Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times: Times::at(now) };
        let limits = self.last.as_ref().unwrap().limits.get(&id).ok_or(OrderRefused::UnknownGroup(id.clone()))?;
        orders::increase(&mut self.memory, &scales, limits, &id, delta).map(drop)
    }

    pub(super) fn increase(&mut self, group: &str, delta: i32) {
        self.try_increase(group, delta).unwrap();
    }

    pub(super) fn decrease(&mut self, group: &str, delta: i32) {
        let id = Self::group(group);
        orders::decrease(&mut self.memory, &id, delta, self.now).unwrap();
    }

    pub(super) fn delete(&mut self, group: &str, ids: &[&str]) -> Result<usize, DeleteRefused> {
        let id = Self::group(group);
        let nodes: Vec<NodeRef> =
            ids.iter().map(|id| NodeRef { provider_id: (*id).to_owned(), name: (*id).to_owned() }).collect();
        let cluster = self.cluster.clone();
        orders::delete(&mut self.memory, &self.catalogue, Some(&cluster), &id, &nodes, self.now).map(|gone| gone.len())
    }

    pub(super) fn records(&self, group: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.memory.records.values().filter(move |r| r.group.as_str() == group)
    }

    pub(super) fn target(&self, group: &str) -> u32 {
        self.memory.target(&Self::group(group))
    }

    pub(super) fn launched_markets(plan: &Plan<Checked>) -> Vec<&'static str> {
        plan.actions
            .iter()
            .filter_map(|a| match a {
                Action::Launch { request, .. } => Some(request.market.capacity_type.as_str()),
                _ => None,
            })
            .collect()
    }

    pub(super) fn launched_in(plan: &Plan<Checked>) -> Vec<Market> {
        let launch = |action: &Action| match action {
            Action::Launch { request, .. } => Some(request.market.clone()),
            _ => None,
        };
        plan.actions.iter().filter_map(launch).collect()
    }

    pub(super) fn launched_keys(plan: &Plan<Checked>) -> Vec<LaunchKey> {
        plan.actions
            .iter()
            .filter_map(|a| match a {
                Action::Launch { request, .. } => Some(request.key.clone()),
                _ => None,
            })
            .collect()
    }

    /// The launches asked are under way until they are answered.
    pub(super) fn start_launches(&mut self) {
        self.launching = self.asked.iter().map(|(key, _)| key.clone()).collect();
    }

    fn make(&mut self, key: &LaunchKey, market: &Market) -> Instance {
        // One key never makes two machines.
        if let Some(made) = self.machines.values().find(|made| made.key == *key) {
            return made.as_ref().clone();
        }
        let n = self.made;
        self.made += 1;
        let made = Instance {
            key: key.clone(),
            provider_id: ProviderId::new(format!("test:///{}/i-{n}", market.place.zone)).unwrap(),
            node_name: NodeName::new(format!("node-{n}")).unwrap(),
            market: market.clone(),
            launched_at: self.now,
            state: InstanceState::Pending,
        };
        self.machines.insert(made.provider_id.clone(), Arc::new(made.clone()));
        made
    }

    /// Answers the launches asked: the n-th is made if `yes(n)`, else there is no stock.
    pub(super) fn answer(&mut self, yes: impl Fn(usize) -> bool) {
        self.launching.clear();
        for (n, (key, market)) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            let outcome = if yes(n) {
                LaunchOutcome::Launched(self.make(&key, &market))
            } else {
                LaunchOutcome::Refused(Refusal::of_market(RefusalKind::OutOfCapacity, "no stock"))
            };
            self.outcomes.insert(key, outcome);
        }
    }

    pub(super) fn refuse_all(&mut self, kind: RefusalKind) {
        self.refuse_scope(kind, &RefusalScope::Market, None);
    }

    /// Refuses the launches asked, for all of that.
    pub(super) fn refuse_scope(&mut self, kind: RefusalKind, scope: &RefusalScope, retry_after: Option<SignedDuration>) {
        self.launching.clear();
        for (key, _) in std::mem::take(&mut self.asked) {
            let (scope, message) = (scope.clone(), "no".into());
            self.outcomes.insert(key, LaunchOutcome::Refused(Refusal { kind, scope, message, retry_after }));
        }
    }

    pub(super) fn unclear(&mut self) {
        for (key, _) in std::mem::take(&mut self.asked) {
            self.outcomes.insert(key, LaunchOutcome::unclear("time-out"));
        }
    }

    /// The machines are made, and nobody hears of it.
    pub(super) fn make_silently(&mut self) {
        for (key, market) in std::mem::take(&mut self.asked) {
            self.make(&key, &market);
        }
    }

    /// The machines are made, and the answers do not say so.
    pub(super) fn make_unclear(&mut self) {
        for (key, market) in std::mem::take(&mut self.asked) {
            self.make(&key, &market);
            self.outcomes.insert(key, LaunchOutcome::unclear("time-out"));
        }
    }

    pub(super) fn observe(&mut self) {
        self.inventory = Observation::complete(self.now, self.machines.clone()).happened_by(self.now);
        self.inventory.outdated.clone_from(&self.outdated);
        match &self.impaired {
            Some(impaired) => self.inventory.impaired.clone_from(impaired),
            None => drop(self.inventory.unsure.insert((place("zone-a").cloud, place("zone-a").region))),
        }
    }

    /// The listing covers these regions and no other, each as of its moment.
    pub(super) fn covers(&mut self, regions: impl IntoIterator<Item = (Region, Timestamp)>) {
        let cloud = place("zone-a").cloud;
        let regions = regions.into_iter().map(|(region, as_of)| ((cloud.clone(), region), as_of)).collect();
        self.inventory.covered = Covered::Regions(regions);
    }

    pub(super) fn observe_partly(&mut self) {
        self.observe();
        self.inventory.complete = false;
    }

    /// The machines that the last plan ends are gone.
    pub(super) fn end_terminated(&mut self) {
        for action in self.last.iter().flat_map(|plan| &plan.actions) {
            if let Action::Terminate { instance, .. } = action {
                self.machines.remove(instance);
            }
        }
    }

    /// What the cloud holds or is asked for: the markets of its machines, and of launches that were not answered.
    pub(super) fn at_the_cloud(&self) -> impl Iterator<Item = &Market> {
        let asked = self.asked.iter().filter(|(key, _)| !self.machines.values().any(|made| made.key == *key));
        self.machines.values().map(|made| &made.market).chain(asked.map(|(_, market)| market))
    }

    /// Does what the last plan says of nodes: their pods go at once, but for `stuck` where one will not.
    pub(super) fn drain(&mut self, stuck: Option<&Stuck>) {
        for action in self.last.iter().flat_map(|plan| plan.actions.clone()) {
            match action {
                Action::Drain { node, provider_id, evict: Evict::Nobody, .. } => {
                    let facts = Arc::make_mut(self.cluster.nodes.get_mut(&node).unwrap());
                    facts.cordon = Cordon::Ours;
                    let left = u32::try_from(facts.gpu_pods.len()).unwrap();
                    let drained = Drained { machine: provider_id, at: self.now, evicted: 0, left, stuck: None };
                    self.drains.insert(node, drained);
                }
                Action::Drain { node, provider_id, .. } => {
                    let Some(facts) = self.cluster.nodes.get_mut(&node).map(Arc::make_mut) else { continue };
                    facts.cordon = Cordon::Ours;
                    let there = u32::try_from(facts.gpu_pods.len()).unwrap();
                    let (evicted, left) = if stuck.is_some() { (0, there) } else { (there, 0) };
                    if stuck.is_none() {
                        facts.gpu_pods.clear();
                    }
                    let drained = Drained { machine: provider_id, at: self.now, evicted, left, stuck: stuck.cloned() };
                    self.drains.insert(node, drained);
                }
                Action::Hold { node, .. } => {
                    Arc::make_mut(self.cluster.nodes.get_mut(&node).unwrap()).scale_down_disabled = Hold::Ours;
                }
                Action::Release { node } => {
                    Arc::make_mut(self.cluster.nodes.get_mut(&node).unwrap()).scale_down_disabled = Hold::None;
                }
                Action::Uncordon { node, .. } => {
                    Arc::make_mut(self.cluster.nodes.get_mut(&node).unwrap()).cordon = Cordon::None;
                }
                _ => {}
            }
        }
    }

    /// Passes, and does what each says of closing nodes, whenever something may differ, for so long. What was done.
    pub(super) fn live(&mut self, length: SignedDuration) -> Vec<Action> {
        let until = self.now.saturating_add(length).unwrap();
        let mut done = Vec::new();
        loop {
            self.observe();
            let decision = decide(&self.snapshot(), &self.memory, &self.catalogue, self.now);
            let next = decision.next_change_at.filter(|at| *at <= until);
            let plan = self.pass();
            done.extend(plan.actions.into_iter().filter(|a| !matches!(a, Action::Hold { .. } | Action::Release { .. })));
            self.drain(None);
            self.end_terminated();
            match next {
                _ if !self.drains.is_empty() => {}
                Some(at) => self.now = at,
                None => break,
            }
        }
        self.now = until;
        done
    }

    /// The cloud takes its n-th machine back.
    pub(super) fn reclaim(&mut self, n: usize) {
        if let Some(id) = self.machines.keys().nth(n).cloned() {
            self.machines.remove(&id);
        }
    }

    /// The supplier lists its n-th machine as one that the cloud takes back.
    pub(super) fn list_reclaimed(&mut self, n: usize) {
        let at = self.now.saturating_add(minutes(2)).unwrap();
        let machine = self.machines.values_mut().nth(n).expect("so many machines");
        Arc::make_mut(machine).state = InstanceState::Reclaiming { at };
    }

    pub(super) fn lose_machine(&mut self) {
        self.machines.clear();
    }

    pub(super) fn set_machine_state(&mut self, state: InstanceState) {
        for made in self.machines.values_mut() {
            Arc::make_mut(made).state = state;
        }
    }

    pub(super) fn advance(&mut self, by: SignedDuration) {
        self.now = self.now.saturating_add(by).unwrap();
    }

    /// The service begins again, and the wall stands elsewhere than it should by so much.
    pub(super) fn restart(&mut self, by: SignedDuration) {
        self.memory = self.memory.rebased(by).unwrap();
        self.advance(by);
        // Nobody is heard yet.
        self.seen.clear();
        let now = self.now;
        self.change_node(|node| *node = node.clone().happened_by(now, None));
    }

    /// Every machine joins the cluster.
    pub(super) fn join(&mut self, ready: bool) {
        for made in self.machines.values() {
            let facts = NodeFacts {
                name: made.node_name.clone(),
                provider_id: Some(made.provider_id.clone()),
                group: None,
                created_at: self.now,
                ready_since: ready.then_some(self.now),
                gpu_pods: BTreeSet::new(),
                scale_down_disabled: Hold::None,
                cordon: Cordon::None,
                allocatable: None,
                shown: None,
            };
            self.cluster.nodes.insert(made.node_name.clone(), Arc::new(facts));
            if let Some(shown) = self.probes {
                self.seen.entry(made.node_name.clone()).or_insert_with(|| Arc::new(shown.seen(self.now)));
            }
        }
    }

    /// So many nodes are ordered in zone a, bought, and join after that time.
    pub(super) fn bring(&mut self, nodes: i32, boot: SignedDuration) {
        self.increase(GROUP_A, nodes);
        self.pass();
        self.answer(|_| true);
        self.pass();
        self.advance(boot);
        self.observe();
        self.join_new();
    }

    /// Those that have not yet do.
    pub(super) fn join_new(&mut self) {
        let known = self.cluster.nodes.clone();
        self.join(true);
        self.cluster.nodes.extend(known);
    }

    fn change_node(&mut self, change: impl Fn(&mut NodeFacts)) {
        for node in self.cluster.nodes.values_mut() {
            change(Arc::make_mut(node));
        }
    }

    pub(super) fn bind_pod(&mut self) {
        self.change_node(|n| n.gpu_pods = ["default/pod".to_owned()].into());
    }

    pub(super) fn unbind_pod(&mut self) {
        self.change_node(|n| n.gpu_pods.clear());
    }

    /// A pod comes to that node.
    pub(super) fn bind(&mut self, node: &str) {
        Arc::make_mut(self.cluster.nodes.get_mut(&NodeName::new(node).unwrap()).unwrap()).gpu_pods =
            ["default/pod".to_owned()].into();
    }

    /// And goes.
    pub(super) fn unbind(&mut self, node: &str) {
        Arc::make_mut(self.cluster.nodes.get_mut(&NodeName::new(node).unwrap()).unwrap()).gpu_pods.clear();
    }

    /// The machine and Node of that name are gone.
    pub(super) fn forget_node(&mut self, node: &str) {
        self.cluster.nodes.remove(&NodeName::new(node).unwrap());
        self.machines.retain(|_, made| made.node_name.as_str() != node);
    }

    pub(super) fn mark_node(&mut self, hold: Hold) {
        self.change_node(|n| n.scale_down_disabled = hold);
    }

    pub(super) fn hold(&mut self, node: &str, hold: Hold) {
        Arc::make_mut(self.cluster.nodes.get_mut(&NodeName::new(node).unwrap()).unwrap()).scale_down_disabled = hold;
    }

    pub(super) fn close(&mut self, cordon: Cordon) {
        self.change_node(|n| n.cordon = cordon);
    }

    /// Changes what is known of a Node.
    pub(super) fn edit_node(&mut self, node: &NodeName, change: impl FnOnce(&mut NodeFacts)) {
        change(Arc::make_mut(self.cluster.nodes.get_mut(node).unwrap()));
    }

    pub(super) fn cluster_node(&self, n: usize) -> &NodeFacts {
        NodeName::find(&self.cluster.nodes, format!("node-{n}").as_str()).unwrap()
    }

    pub(super) fn set_pods(&mut self, n: usize, pods: &[&str]) {
        let node = self.cluster.nodes.get_mut(&NodeName::new(format!("node-{n}").as_str()).unwrap()).unwrap();
        Arc::make_mut(node).gpu_pods = pods.iter().map(|pod| (*pod).to_owned()).collect();
    }

    pub(super) fn set_ready(&mut self, n: usize, since: Option<Timestamp>) {
        let node = self.cluster.nodes.get_mut(&NodeName::new(format!("node-{n}").as_str()).unwrap()).unwrap();
        Arc::make_mut(node).ready_since = since;
    }

    pub(super) fn node_name(&self) -> String {
        self.cluster.nodes.keys().next().unwrap().to_string()
    }

    pub(super) fn bought(&self) -> impl Iterator<Item = (&Record, &Market)> {
        self.memory.records.values().filter_map(|r| r.purchase().map(|p| (r.as_ref(), &p.market)))
    }

    /// A market has another price from now on.
    pub(super) fn price(&mut self, zone: &str, capacity_type: CapacityType, price: UsdPerHour) {
        let market = Market { place: place(zone), capacity_type };
        let quote = Quote { price, kind: QuoteKind::List, as_of: Some(self.now), source: Arc::from("test") };
        self.book.insert(market, Entry::Price(quote));
        self.catalogue = catalogue(&self.policy, &self.book);
    }

    /// These pods, and no others, are bound to a node.
    pub(super) fn pods_on(&mut self, node: &str, pods: &[&str]) {
        let facts = Arc::make_mut(self.cluster.nodes.get_mut(&NodeName::new(node).unwrap()).unwrap());
        facts.gpu_pods = pods.iter().map(|pod| (*pod).to_owned()).collect();
    }

    /// The nodes of machines that are gone are removed.
    pub(super) fn leave(&mut self) {
        let machines = &self.machines;
        self.cluster.nodes.retain(|_, node| node.provider_id.as_ref().is_some_and(|id| machines.contains_key(id)));
    }

    /// The nodes, by name, with how many pods each has.
    pub(super) fn nodes(&self) -> BTreeMap<String, usize> {
        self.cluster.nodes.iter().map(|(name, node)| (name.to_string(), node.gpu_pods.len())).collect()
    }

    /// The autoscaler asks for every group that is below its `minSize`.
    pub(super) fn enforce_minimums(&mut self) {
        let limits = self.last.as_ref().unwrap().limits.clone();
        for (id, limit) in limits.iter().filter(|(_, limit)| limit.target < limit.min) {
            // What has closed since it was published is refused.
            let _ = self.try_increase(id.as_str(), i32::try_from(limit.min - limit.target).unwrap());
        }
    }

    /// The limits of a group as they were last published.
    pub(super) fn limits(&self, group: &str) -> &GroupLimits {
        &self.last.as_ref().unwrap().limits[&Self::group(group)]
    }

    /// How the pool's warm floor stood after the last pass.
    pub(super) fn floor(&self) -> &FloorStands {
        self.last.as_ref().unwrap().accounts.floors.first().unwrap()
    }
}
