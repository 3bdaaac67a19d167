//! A hand-moved world that journals all that happens in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{
    Cloud, ClusterName, DecisionId, GpuModel, InstanceType, LaunchKey, NodeGroupId, NodeName, PoolName, ProviderId, RecordId,
    Region, SupplierName, ZoneId, ZoneName,
};
use stoker_core::base::kinds::{Evidence, ReturnToSpot, Taint, TaintEffect, Workload};
use stoker_core::base::units::{MiB, Milli, Percent, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::check::{Verified, check};
use stoker_core::choose::rank::Scales;
use stoker_core::decide::orders;
use stoker_core::decide::{decide, is_fresh};
use stoker_core::facts::outdated::Outdated;
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts, Snapshot};
use stoker_core::facts::supply::{
    Covered, EndedWhy, Instance, InstanceState, LaunchOutcome, LaunchRequest, MachineFact, MarketFacts, Observation, QuotaFact,
    Refusal, RefusalKind, ReservationFact,
};
use stoker_core::limits::usage::Usage;
use stoker_core::market::offer::{Arch, CapacityType, GpuNames, GpuSpec, InstanceSpec, Market, Network, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::market::transfer::{Data, DataSet, MaxDistance, Site};
use stoker_core::plan::{Action, GroupLimits, Note};
use stoker_core::policy::rules::spot::{Saving, SpotRules};
use stoker_core::policy::{Limits, Policy, Pool, QuotaKey, Throughput};
use stoker_core::state::memory::Memory;
use stoker_core::state::record::{PodsSeen, Purchase, Record, State};

use crate::{AcceptedCall, DecisionEntry, Facts, Journal, JournalError};

pub(super) const GROUP: &str = "infer.g6-xlarge.us-east-1a";

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) policy: Arc<Policy>,
    pub(super) prices: Arc<PriceBook>,
    pub(super) facts: Arc<Facts>,
    pub(super) snapshot: Snapshot,
    pub(super) memory: Memory,
    pub(super) next: DecisionId,
    limits: BTreeMap<NodeGroupId, GroupLimits>,
}

fn supplier() -> SupplierName {
    SupplierName::new("simulated").unwrap()
}

pub(super) fn group_id() -> NodeGroupId {
    NodeGroupId::new(GROUP).unwrap()
}

fn place() -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az6").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    }
}

pub(super) fn market(capacity_type: CapacityType) -> Market {
    Market { place: place(), capacity_type }
}

fn quote(micros: i64, kind: QuoteKind, as_of: Timestamp) -> Quote {
    Quote { price: UsdPerHour(micros), kind, as_of: Some(as_of), source: Arc::from("test@2026-11-01") }
}

pub(super) fn policy(max_nodes: u32) -> Policy {
    let pool = Pool {
        name: PoolName::new("infer").unwrap(),
        workload: Workload::Inference,
        models: [GpuModel::new("L4").unwrap()].into(),
        gpu_counts: [1].into(),
        min_gpu_memory: MiB::from_gib(16),
        min_node_gpu_memory: MiB(0),
        min_compute_capability: None,
        needs: [].into(),
        throughput: Throughput::Given([(GpuModel::new("L4").unwrap(), Milli(1500))].into()),
        clouds: [Cloud::new("aws").unwrap()].into(),
        regions: [Region::new("us-east-1").unwrap()].into(),
        zones: ["us-east-1a".to_owned()].into(),
        data: Some(Data {
            at: Site { cloud: Cloud::new("aws").unwrap(), region: Region::new("us-east-1").unwrap(), zone: None },
            within: MaxDistance::Region,
            set: Some(DataSet { gib: 100, every: SignedDuration::from_hours(24) }),
        }),
        max_zone_share: None,
        max_model_share: [].into(),
        instance_types: Vec::new(),
        prefer: vec![CapacityType::Spot, CapacityType::OnDemand],
        supplier: None,
        node_class: None,
        spot: Some(SpotRules {
            max_share: Percent::ALL,
            max_market_share: Percent::ALL,
            max_interruption: None,
            saving: Saving::Stateless,
            save: None,
            restart: SignedDuration::from_mins(2),
            return_to_spot: ReturnToSpot::Idle,
        }),
        limits: Limits {
            min_nodes: 0,
            max_nodes,
            max_usd_per_hour: Some(UsdPerHour(90_000_000_000)),
            month: None,
            guaranteed: UsdPerHour::ZERO,
        },
        evidence: Evidence::None,
        split_capacity_type: false,
        labels: BTreeMap::new(),
        taints: vec![Taint { key: "nvidia.com/gpu".into(), value: "true".into(), effect: TaintEffect::NoSchedule }],
        isolation: None,
        waiting: stoker_core::policy::DEFAULT_WAITING,
        sharing: None,
        signals: Vec::new(),
        warm_floor: None,
        stabilization: None,
        off_hours: None,
        held_after: stoker_core::policy::DEFAULT_HELD_AFTER,
        unhealthy: stoker_core::policy::rules::health::HealthRules::default(),
        outdated: stoker_core::policy::rules::outdated::OutdatedRules::default(),
    };
    Policy {
        cluster: ClusterName::new("prod").unwrap(),
        boot_deadline: SignedDuration::from_mins(10),
        max_usd_per_hour: None,
        month: None,
        suppliers: Vec::new(),
        pools: vec![pool],
        quotas: Vec::new(),
        unknown_quota: None,
        prices: Vec::new(),
        commitments: Vec::new(),
        advise: stoker_core::policy::rules::advise::Thresholds::default(),
        prometheus: stoker_core::policy::Prometheus::default(),
        karpenter: stoker_core::policy::rules::karpenter::BesideKarpenter::default(),
    }
}

pub(super) fn prices(now: Timestamp) -> PriceBook {
    let mut book = PriceBook::new();
    book.insert_spec(InstanceSpec {
        cloud: Cloud::new("aws").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
        gpu_model: GpuModel::new("L4").unwrap(),
        gpus: Milli(1000),
        gpu_memory: MiB::from_gib(24),
        vcpus: Some(4),
        memory: Some(MiB::from_gib(16)),
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    });
    book.insert_gpu(GpuSpec {
        model: GpuModel::new("L4").unwrap(),
        memory: MiB::from_gib(24),
        bandwidth_gb_s: Some(300),
        fp16_gflops: Some(121_000),
        fp8_gflops: None,
        compute_capability: "8.9".parse().ok(),
        mig_max_instances: Some(0),
        mig_profiles: Vec::new(),
        nvlink_gb_s: Some(0),
        names: GpuNames::default(),
    });
    book.insert(market(CapacityType::Spot), Entry::Price(quote(300_000, QuoteKind::Spot, now)));
    book.insert(market(CapacityType::OnDemand), Entry::Price(quote(804_800, QuoteKind::List, now)));
    let elsewhere = (Cloud::new("lambda").unwrap(), Region::new("europe").unwrap(), InstanceType::new("gpu_1x_l4").unwrap());
    book.insert_unzoned(elsewhere.0, elsewhere.1, elsewhere.2, quote(1, QuoteKind::List, now));
    book.insert_reclaims(place(), Milli(50));
    book
}

pub(super) fn facts(live_micros: i64, now: Timestamp) -> Facts {
    let zone = (Cloud::new("aws").unwrap(), ZoneId::new("use1-az6").unwrap());
    let quota = QuotaKey { name: "Q".to_owned(), cloud: Cloud::new("aws").unwrap(), region: None };
    let reservation = ReservationFact { place: place(), total: 2, free: None, ends: Some(now), as_of: now };
    let network = Some(Network { pods: 58, cards: 1, efa_interfaces: 0 });
    let (memory, local_disk) = (MiB::from_gib(16), Some(MiB::from_gib(250)));
    let machine = MachineFact { vcpus: 4, memory, gpus: Some(1), network, local_disk, as_of: now };
    let facts = MarketFacts {
        clouds: [Cloud::new("aws").unwrap()].into(),
        zone_names: [(zone, ZoneName::new("us-east-1a").unwrap())].into(),
        quotes: [(market(CapacityType::Spot), quote(live_micros, QuoteKind::Live, now))].into(),
        quotas: [(quota, QuotaFact { limit: 1_000, used: Some(0), as_of: now })].into(),
        reservations: [("cr-0a1b".to_owned(), reservation)].into(),
        machines: [((place().cloud, place().instance_type), machine)].into(),
        ..MarketFacts::default()
    };
    [(supplier(), facts)].into()
}

impl World {
    pub(super) fn new() -> Self {
        let now: Timestamp = "2026-11-01T00:00:00.123456789Z".parse().unwrap();
        let inventory = Observation::complete(now, BTreeMap::new());
        Self {
            now,
            policy: Arc::new(policy(10_000)),
            prices: Arc::new(prices(now)),
            facts: Arc::new(facts(250_000, now)),
            snapshot: Snapshot {
                wall: Wall(now),
                suppliers: [(supplier(), Some(Arc::new(inventory)))].into(),
                cluster: Some(Arc::default()),
                ..Snapshot::default()
            },
            memory: Memory::default(),
            next: DecisionId(1),
            limits: BTreeMap::new(),
        }
    }

    pub(super) fn catalogue(&self) -> Catalogue {
        Catalogue::derive(&self.policy, &self.prices, &self.facts)
    }

    /// Lets time pass, with an inventory that stays fresh.
    pub(super) fn wait(&mut self, time: SignedDuration) {
        self.now = self.now.saturating_add(time).unwrap();
        let now = self.now;
        let other = ProviderId::new("aws:///use1-az1/i-other").unwrap();
        self.inventory(|inventory| {
            inventory.covered = Covered::Everywhere(now);
            // Of no record: it is kept, and decides nothing.
            inventory.outdated = [(other.clone(), Some(Outdated::Template))].into();
            inventory.impaired = [(other, format!("its host fails at {now}"))].into();
            inventory.unsure = [(place().cloud, Region::new("elsewhere").unwrap())].into();
        });
        self.facts = Arc::new(facts(250_000, now));
    }

    fn inventory(&mut self, change: impl FnOnce(&mut Observation)) {
        let inventory = self.snapshot.suppliers.get_mut(&supplier()).unwrap().as_mut().unwrap();
        change(Arc::make_mut(inventory));
    }

    fn cluster(&mut self, change: impl FnOnce(&mut ClusterFacts)) {
        change(Arc::make_mut(self.snapshot.cluster.as_mut().unwrap()));
    }

    /// The autoscaler begins a session.
    pub(super) async fn session(&mut self, journal: &Journal) -> Result<(), JournalError> {
        let mut after = self.memory.clone();
        let session = orders::begin_session(&mut after);
        self.accept(journal, &AcceptedCall::Session { session }, after).await
    }

    /// The autoscaler asks for nodes, which are to be had.
    pub(super) async fn order(&mut self, journal: &Journal, delta: i32) -> Result<(), JournalError> {
        assert!(self.try_order(journal, delta).await?, "refused");
        Ok(())
    }

    /// The autoscaler asks for nodes; whether it was accepted.
    async fn try_order(&mut self, journal: &Journal, delta: i32) -> Result<bool, JournalError> {
        let (catalogue, group) = (self.catalogue(), group_id());
        let mut after = self.memory.clone();
        let usage = Usage::count(&self.memory, &catalogue, Wall(self.now));
        let fresh = |group: &Group| is_fresh(&self.snapshot, group, self.now);
        let scales =
            Scales { catalogue: &catalogue, memory: &self.memory, usage: &usage, fresh: &fresh, times: Times::at(self.now) };
        let Ok((order, _)) = orders::increase(&mut after, &scales, &self.limits[&group], &group, delta) else {
            return Ok(false);
        };
        self.accept(journal, &AcceptedCall::Increase { group, delta, order }, after).await?;
        Ok(true)
    }

    /// The autoscaler deletes the node of a record.
    pub(super) async fn delete(&mut self, journal: &Journal, record: RecordId) -> Result<(), JournalError> {
        let (catalogue, group) = (self.catalogue(), group_id());
        let name = self.memory.records[&record].shown_id().to_string();
        let mut after = self.memory.clone();
        let nodes = [orders::NodeRef { provider_id: name.clone(), name: name.clone() }];
        let cluster = self.snapshot.cluster.as_deref();
        let records = orders::delete(&mut after, &catalogue, cluster, &group, &nodes, self.now).unwrap();
        self.accept(journal, &AcceptedCall::Delete { group, nodes: vec![name], records }, after).await
    }

    async fn accept(&mut self, journal: &Journal, call: &AcceptedCall, after: Memory) -> Result<(), JournalError> {
        journal.accept(self.now, call, &self.memory, &after).await?;
        self.memory = after;
        Ok(())
    }

    /// What is decided, as the checker leaves it.
    pub(super) fn decided(&self) -> Verified {
        let decision = decide(&self.snapshot, &self.memory, &self.catalogue(), self.now);
        check(decision, &self.memory, &self.snapshot, &self.catalogue(), (self.next, self.now))
    }

    /// One pass: decided, checked, written down, taken over. What is to be done.
    pub(super) async fn pass(&mut self, journal: &Journal) -> Result<Vec<Action>, JournalError> {
        let Verified { plan, memory, .. } = self.decided();
        let entry = DecisionEntry {
            id: self.next,
            at: self.now,
            policy: &self.policy,
            prices: &self.prices,
            market_facts: &self.facts,
            snapshot: &self.snapshot,
            before: &self.memory,
            after: &memory,
            actions: &plan.actions,
            notes: &plan.notes,
            explanations: &plan.explanations,
            withheld: &[],
            added_notes: 0,
        };
        journal.decide(&entry).await?;
        self.memory = memory;
        self.limits = plan.limits;
        self.next = DecisionId(self.next.0 + 1);
        self.snapshot.outcomes.clear();
        Ok(plan.actions)
    }

    /// The supplier answers these launches: a machine each, or "no capacity" where `stock` is out.
    pub(super) fn answer(&mut self, actions: &[Action], stock: bool) {
        for action in actions {
            let Action::Launch { request, .. } = action else { continue };
            let outcome = if stock {
                let instance = self.machine(request);
                LaunchOutcome::Launched(instance)
            } else {
                LaunchOutcome::Refused(Refusal::of_market(RefusalKind::OutOfCapacity, "no stock"))
            };
            self.snapshot.outcomes.insert(request.key.clone(), outcome);
        }
    }

    fn machine(&mut self, request: &LaunchRequest) -> Instance {
        let number = request.key.as_str().split('/').nth(2).unwrap();
        let instance = Instance {
            key: request.key.clone(),
            provider_id: ProviderId::new(format!("aws:///us-east-1a/i-{number}")).unwrap(),
            node_name: NodeName::new(format!("ip-{number}")).unwrap(),
            market: request.market.clone(),
            launched_at: self.now,
            state: InstanceState::Running,
        };
        let listed = Arc::new(instance.clone());
        self.inventory(|inventory| {
            inventory.instances.insert(listed.provider_id.clone(), listed);
        });
        instance
    }

    /// Every machine joins the cluster, Ready.
    pub(super) fn join(&mut self) {
        let inventory = self.snapshot.suppliers[&supplier()].clone().unwrap();
        let now = self.now;
        self.cluster(|cluster| {
            for machine in inventory.instances.values() {
                let node = NodeFacts {
                    name: machine.node_name.clone(),
                    provider_id: Some(machine.provider_id.clone()),
                    group: Some(group_id()),
                    created_at: now,
                    ready_since: Some(now),
                    gpu_pods: std::collections::BTreeSet::new(),
                    scale_down_disabled: Hold::None,
                    cordon: Cordon::None,
                    allocatable: None,
                    shown: None,
                };
                cluster.nodes.entry(machine.node_name.clone()).or_insert_with(|| Arc::new(node));
            }
        });
    }

    /// Machines that were told to end are gone, and their nodes.
    pub(super) fn end(&mut self, actions: &[Action]) {
        for action in actions {
            let Action::Terminate { instance, .. } = action else { continue };
            self.inventory(|inventory| {
                inventory.instances.remove(instance);
            });
            self.cluster(|cluster| cluster.nodes.retain(|_, node| node.provider_id.as_ref() != Some(instance)));
        }
    }

    /// The cloud takes every machine back, without a notice: it is not listed any more, and its node is gone.
    pub(super) fn reclaim(&mut self) {
        self.inventory(|inventory| {
            let taken: Vec<ProviderId> = std::mem::take(&mut inventory.instances).into_keys().collect();
            inventory.ended = taken.into_iter().map(|instance| (instance, EndedWhy::Reclaimed)).collect();
        });
        self.cluster(|cluster| cluster.nodes.clear());
    }

    /// Gives a node a GPU pod, or takes it away: one small fact.
    pub(super) fn toggle_pod(&mut self, node: &str) {
        self.cluster(|cluster| {
            let node = Arc::make_mut(cluster.nodes.get_mut(&NodeName::new(node).unwrap()).unwrap());
            if !node.gpu_pods.remove("jobs/train-0") {
                node.gpu_pods.insert("jobs/train-0".into());
            }
        });
    }

    /// The cluster shows the holds that were asked for.
    pub(super) fn guard(&mut self, actions: &[Action]) {
        for action in actions {
            let (node, hold) = match action {
                Action::Hold { node, .. } => (node, Hold::Ours),
                Action::Release { node } => (node, Hold::None),
                _ => continue,
            };
            self.cluster(|cluster| Arc::make_mut(cluster.nodes.get_mut(node).unwrap()).scale_down_disabled = hold);
        }
    }

    /// So many registered nodes out of nowhere, in memory, inventory and cluster.
    pub(super) fn populate(&mut self, nodes: u64) {
        let group = Arc::clone(&self.catalogue().groups[&group_id()]);
        for number in 0..nodes {
            let key = LaunchKey::new(format!("prod/{GROUP}/{number}/1")).unwrap();
            let request = LaunchRequest {
                key: key.clone(),
                group: group.id.clone(),
                market: market(CapacityType::Spot),
                zone_name: group.zone_name.clone(),
                reservation: None,
            };
            let machine = self.machine(&request);
            let record = Record {
                id: RecordId(number),
                group: group.id.clone(),
                order: None,
                ordered_at: self.now,
                credited_to: None,
                floor: false,
                attempts: 1,
                placeholder: ProviderId::new(format!("stoker://prod/{GROUP}/{number}")).unwrap(),
                pods: PodsSeen::Seen,
                judged: None,
                state: State::Registered {
                    purchase: Purchase {
                        key,
                        market: request.market,
                        price: UsdPerHour(250_000),
                        boot_within: SignedDuration::from_mins(10),
                        reservation: None,
                    },
                    instance: machine.provider_id,
                    launched_at: self.now,
                    node: Some(machine.node_name),
                    at: self.now,
                    ready_at: Some(self.now),
                },
            };
            self.memory.records.insert(record.id, Arc::new(record));
        }
        self.memory.next_record = nodes;
        self.join();
    }

    /// A life of many small events, one step each; every kind of call and fact comes up.
    pub(super) async fn step(&mut self, journal: &Journal, number: u32) -> Result<(), JournalError> {
        self.wait(SignedDuration::from_secs(20));
        match number % 7 {
            0 if number.is_multiple_of(5) => self.session(journal).await,
            1 => self.try_order(journal, 2).await.map(drop),
            2 => {
                let actions = self.pass(journal).await?;
                self.answer(&actions, !number.is_multiple_of(3));
                Ok(())
            }
            3 => self.pass(journal).await.map(drop),
            4 => {
                self.join();
                self.pass(journal).await.map(drop)
            }
            5 => {
                let held =
                    self.memory.records.values().filter(|r| matches!(r.state, State::Registered { .. })).map(|r| r.id).next();
                match held {
                    Some(record) if self.memory.records.len() > 4 => self.delete(journal, record).await,
                    _ => self.pass(journal).await.map(drop),
                }
            }
            _ => {
                let actions = self.pass(journal).await?;
                self.end(&actions);
                Ok(())
            }
        }
    }

    /// A note to store, of a machine.
    pub(super) fn note(instance: &str) -> Note {
        Note::Orphan { instance: ProviderId::new(instance).unwrap(), group: group_id() }
    }
}
