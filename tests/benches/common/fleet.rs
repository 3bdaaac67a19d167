//! A fleet of 5,000 nodes as the core sees it, and what is asked of it.
//!
//! Every rule that a pass weighs is on: shares of spot, of a market and of a zone, budgets of each pool and of all, the cloud's own quotas
//! and the operator's, commitments, data to bring from another region, work, floors, windows, what probes see of every node, moves back to
//! spot, isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::DecisionId;
use stoker_core::base::ids::{
    Cloud, GpuModel, GpuUuid, InstanceType, NodeName, ProviderId, RecordId, Region, SupplierName, ZoneId,
};
use stoker_core::base::units::{MiB, Milli, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::choose::rank::Scales;
use stoker_core::decide::is_fresh;
use stoker_core::decide::orders::{begin_session, increase, placeholder};
use stoker_core::facts::node_status::ShownStatus;
use stoker_core::facts::reading::seen::{Activity, Hearing, Seen, SeenGpu, Xids};
use stoker_core::facts::reading::{DriverState, Measured, Source};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts, Snapshot};
use stoker_core::facts::supply::{Covered, Instance, InstanceState, KeyParts, MarketFacts, Observation};
use stoker_core::limits::usage::Usage;
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::market::transfer::{Crossing, End, Hop, TransferPrices, UsdPerGiB};
use stoker_core::pass::{Before, step};
use stoker_core::plan::{Accounts, Action, Checked, Plan};
use stoker_core::policy::{Policy, RawPolicy};
use stoker_core::state::memory::{GroupMemory, Memory};
use stoker_core::state::node_status::StatusUpdate;
use stoker_core::state::record::{PodsSeen, Purchase, Record, State};

const NODES: u64 = 5_000;
const MARKETS: usize = 50_000;
const REGIONS: usize = 10;
const ZONES: usize = 10;
const TYPES: usize = 167;
/// Types of one pool, which has one region: so 50 groups a pool, and 500 in all.
const POOL_TYPES: usize = 5;

/// Orders that wait, and nodes of each.
pub(crate) const ORDERS: usize = 20;
/// Nodes of one order.
pub(crate) const ORDER: usize = 10;
/// Nodes that pods came to or left since the last pass: 1 %.
pub(crate) const CHANGED: usize = 50;

/// Longer than any window of the policy.
const WINDOWS: SignedDuration = SignedDuration::from_mins(20);

/// The facts of one pass.
pub(crate) struct Fleet {
    pub(crate) now: Timestamp,
    pub(crate) book: PriceBook,
    pub(crate) suppliers: BTreeMap<SupplierName, MarketFacts>,
    pub(crate) catalogue: Catalogue,
    pub(crate) memory: Memory,
    pub(crate) snapshot: Snapshot,
}

impl Fleet {
    /// The fleet after a pass that found nothing to do, with orders taken and nodes changed since.
    pub(crate) fn new() -> Result<Self> {
        let first = "2026-11-01T00:00:00Z".parse().context("a time")?;
        let book = book(first)?;
        let policy = Arc::new(policy()?);
        let facts = MarketFacts { clouds: [Cloud::new("aws")?].into(), ..MarketFacts::default() };
        let suppliers = BTreeMap::from([(SupplierName::new("bench")?, facts)]);
        let catalogue = Catalogue::derive(&policy, &book, &suppliers);
        ensure!(catalogue.groups.len() == 500, "{} groups", catalogue.groups.len());
        let mut fleet =
            Self { now: first, book, suppliers, catalogue, memory: Memory::default(), snapshot: Snapshot::default() };
        fleet.fill()?;
        let mut plan = fleet.settle()?;
        // Free nodes wait for the end of their window first. Across a longer gap than these nobody watched, and it begins anew.
        for _ in 0..WINDOWS.as_mins() {
            fleet.now = fleet.now.checked_add(SignedDuration::from_mins(1))?;
            fleet.list_anew()?;
            plan = fleet.settle()?;
        }
        fleet.order(&plan.limits)?;
        fleet.change();
        Ok(fleet)
    }

    /// Nodes in every group alike, half of them spot: registered, Ready, and most of them busy and held.
    fn fill(&mut self) -> Result<()> {
        let groups: Vec<&Arc<Group>> = self.catalogue.groups.values().collect();
        let joined = self.now.checked_sub(SignedDuration::from_hours(2))?;
        let mut instances = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        begin_session(&mut self.memory);
        for (n, group) in (0..NODES).zip(groups.iter().cycle()) {
            let cluster = self.catalogue.policy.cluster.clone();
            let (cluster, group_id) = (cluster.clone(), group.id.clone());
            let parts =
                KeyParts { cluster: cluster.clone(), group: group_id, incarnation: None, record: RecordId(n), attempt: 1 };
            let bought = if n / 500 % 2 == 0 { CapacityType::Spot } else { CapacityType::OnDemand };
            let offer = group.offers.iter().find(|offer| offer.market.capacity_type == bought).context("no such offer")?;
            let price = offer.quote(Wall(self.now)).map(|quote| quote.price)?;
            let instance = ProviderId::new(format!("bench:///{}/i-{:012x}", group.zone_name, n * 0x9E37_79B9))?;
            let name = NodeName::new(format!("node-{n:06}"))?;
            let busy = n % 5 != 0;
            let node = NodeFacts {
                name: name.clone(),
                provider_id: Some(instance.clone()),
                group: Some(group.id.clone()),
                created_at: joined,
                ready_since: Some(joined),
                gpu_pods: if busy { (0..4).map(|pod| format!("ml/train-{n}-{pod}")).collect() } else { BTreeSet::new() },
                scale_down_disabled: if busy { Hold::Ours } else { Hold::None },
                cordon: Cordon::None,
                allocatable: None,
                shown: None,
            };
            let made = Instance {
                key: parts.key()?,
                provider_id: instance.clone(),
                node_name: name.clone(),
                market: offer.market.clone(),
                launched_at: joined,
                state: InstanceState::Running,
            };
            let purchase = Purchase {
                key: made.key.clone(),
                market: offer.market.clone(),
                price,
                boot_within: self.catalogue.policy.boot_deadline,
                reservation: None,
            };
            let record = Record {
                id: RecordId(n),
                group: group.id.clone(),
                order: None,
                ordered_at: joined,
                credited_to: self.memory.session,
                floor: false,
                attempts: 1,
                placeholder: placeholder(&cluster, &group.id, RecordId(n)),
                pods: PodsSeen::Seen,
                judged: None,
                state: State::Registered {
                    purchase,
                    instance: instance.clone(),
                    launched_at: joined,
                    node: Some(name.clone()),
                    at: joined,
                    ready_at: Some(joined),
                },
            };
            self.memory.records.insert(record.id, Arc::new(record));
            let remembered = GroupMemory { group: Arc::clone(group), unused: 0, unused_order: None, suspended_since: None };
            self.memory.groups.entry(group.id.clone()).or_insert_with(|| Arc::new(remembered));
            self.snapshot.seen.insert(name.clone(), Arc::new(seen(n, busy, joined)?));
            instances.insert(instance, Arc::new(made));
            nodes.insert(name, Arc::new(node));
        }
        self.memory.next_record = NODES;
        let inventory = Observation::complete(self.now, instances);
        let supplier = SupplierName::new("bench")?;
        self.snapshot.suppliers.insert(supplier, Some(Arc::new(inventory)));
        self.snapshot.cluster = Some(Arc::new(ClusterFacts { nodes }));
        Ok(())
    }

    /// Every inventory is of now.
    fn list_anew(&mut self) -> Result<()> {
        for inventory in self.snapshot.suppliers.values_mut() {
            let inventory = inventory.as_mut().context("an inventory that is not known")?;
            Arc::make_mut(inventory).covered = Covered::Everywhere(self.now);
        }
        Ok(())
    }

    /// Passes, with what they ask of Nodes carried out, until one asks for nothing.
    fn settle(&mut self) -> Result<Plan<Checked>> {
        for _ in 0..5 {
            let (limits, accounts) = (BTreeMap::new(), Accounts::default());
            let before = Before { memory: &self.memory, limits: &limits, accounts: &accounts };
            let made = step(&before, (&self.snapshot, &self.catalogue), (DecisionId(1), self.now), |_| ());
            let (plan, memory) = made.verified.sound().map_err(|faults| anyhow!("{faults:?}"))?;
            self.memory = memory;
            if plan.actions.is_empty() && plan.tells.is_empty() {
                return Ok(plan);
            }
            let cluster = self.snapshot.cluster.as_mut().context("no cluster")?;
            let nodes = &mut Arc::make_mut(cluster).nodes;
            for action in &plan.actions {
                let (node, hold) = match action {
                    Action::Hold { node, .. } => (node, Hold::Ours),
                    Action::Release { node } => (node, Hold::None),
                    other => bail!("a settled fleet, and yet {other:?}"),
                };
                Arc::make_mut(nodes.get_mut(node).context("an unknown node")?).scale_down_disabled = hold;
            }
            for StatusUpdate { node, verdict, .. } in &plan.tells {
                let node = Arc::make_mut(nodes.get_mut(node).context("an unknown node")?);
                node.shown = ShownStatus::of(verdict.as_ref(), self.now).map(Arc::new);
            }
        }
        bail!("the fleet does not settle")
    }

    /// Takes the orders, as the engine does.
    fn order(&mut self, limits: &BTreeMap<stoker_core::base::ids::NodeGroupId, stoker_core::plan::GroupLimits>) -> Result<()> {
        let (snapshot, now) = (&self.snapshot, self.now);
        let fresh = |group: &Group| is_fresh(snapshot, group, now);
        for id in self.catalogue.groups.keys().step_by(self.catalogue.groups.len() / ORDERS).take(ORDERS) {
            let before = self.memory.clone();
            let usage = Usage::count(&before, &self.catalogue, Wall(now));
            let scales =
                Scales { catalogue: &self.catalogue, memory: &before, usage: &usage, fresh: &fresh, times: Times::at(now) };
            let limits = limits.get(id).with_context(|| format!("no limits of {id}"))?;
            increase(&mut self.memory, &scales, limits, id, i32::try_from(ORDER)?)?;
        }
        Ok(())
    }

    /// Pods come to idle nodes, and leave busy ones.
    fn change(&mut self) {
        let Some(cluster) = &mut self.snapshot.cluster else { return };
        let nodes = &mut Arc::make_mut(cluster).nodes;
        // Every fifth node is free; the stride is a multiple of five, so its neighbours are busy. The five more lead through all types: those
        // that a commitment pays for are held whether pods are on them or not.
        let stride = nodes.len() / (CHANGED / 2) + 5;
        for (n, node) in nodes.values_mut().enumerate() {
            let node = match n % stride {
                0 | 1 => Arc::make_mut(node),
                _ => continue,
            };
            if n % stride == 0 { node.gpu_pods = ["ml/new-0".to_owned()].into() } else { node.gpu_pods.clear() }
        }
    }
}

/// What a probe sees of a node.
fn seen(n: u64, busy: bool, since: Timestamp) -> Result<Seen> {
    let activity = if busy { Activity::Active { since } } else { Activity::Quiet { since } };
    let gpu = SeenGpu { name: "NVIDIA L4".to_owned(), activity, instances: BTreeMap::new(), ailments: BTreeSet::new() };
    Ok(Seen {
        source: Source::Probe,
        boot: None,
        hearing: Hearing::Heard { since },
        driver: Measured::Known(DriverState::Ready),
        counted: Measured::Known(1),
        gpus: [(GpuUuid::new(format!("GPU-{n:032x}"))?, gpu)].into(),
        gates: BTreeMap::new(),
        xids: Xids::default(),
        notice: None,
    })
}

fn region(n: usize) -> String {
    format!("region-{n}")
}

/// Of a family that AWS's quotas for GPUs of the G class count.
fn type_name(n: usize) -> String {
    format!("g{}.{}xlarge", n / 10, n % 10 + 1)
}

/// Whether spot is cheap in a region: there orders take it. Elsewhere it costs nearly as much as on-demand, so that each pass weighs every
/// on-demand node for a move to spot, and none pays: a fleet whose nodes are leaving would not stay as it is.
fn has_cheap_spot(region: usize) -> bool {
    region.is_multiple_of(2)
}

/// As many types in each zone as the number of markets allows, in three capacity types each.
fn book(now: Timestamp) -> Result<PriceBook> {
    let mut book = PriceBook::new();
    let cloud = Cloud::new("aws")?;
    for n in 0..TYPES {
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: InstanceType::new(type_name(n))?,
            gpu_model: GpuModel::new("L4")?,
            gpus: Milli(1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(8),
            memory: Some(MiB::from_gib(32)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
    }
    let source: Arc<str> = Arc::from("the bench's table");
    let places = (0..TYPES).flat_map(|t| (0..REGIONS).flat_map(move |r| (0..ZONES).map(move |z| (t, r, z))));
    let markets = places.flat_map(|place| CapacityType::ALL.map(|capacity_type| (place, capacity_type)));
    for (n, ((t, r, z), capacity_type)) in markets.take(MARKETS).enumerate() {
        let place = Place {
            cloud: cloud.clone(),
            region: Region::new(region(r))?,
            zone: ZoneId::new(format!("{}-az{z}", region(r)))?,
            instance_type: InstanceType::new(type_name(t))?,
        };
        let price = UsdPerHour(500_000 + i64::try_from(n * 7_919 % 1_000_003)?);
        let cheap = capacity_type == CapacityType::Spot && has_cheap_spot(r);
        let price = if cheap { UsdPerHour(price.0 * 2 / 5) } else { price };
        let quote = Quote { price, kind: QuoteKind::List, as_of: Some(now), source: Arc::clone(&source) };
        book.insert(Market { place, capacity_type }, Entry::Price(quote));
    }
    ensure!(book.entries().count() == MARKETS, "{} markets", book.entries().count());
    let mut transfers = TransferPrices::default();
    transfers.insert(Hop { cloud, crosses: Crossing::Region, from: End::Anywhere, to: End::Anywhere }, UsdPerGiB(20_000));
    book.set_transfers(transfers);
    Ok(book)
}

fn policy() -> Result<Policy> {
    let pool = |n: usize| -> Value {
        let types: Vec<String> = (n * POOL_TYPES..(n + 1) * POOL_TYPES).map(type_name).collect();
        json!({
            "name": format!("pool-{n}"), "workload": "training",
            "gpu": { "models": ["L4"], "throughput": { "L4": 1 } },
            "where": {
                "clouds": ["aws"], "regions": [region(n)], "maxZoneShare": "25%",
                "datasetGiB": 50, "dataRegion": format!("aws/{}", region(0)),
            },
            "instanceTypes": types,
            "capacity": {
                "prefer": ["reserved", "spot", "on-demand"],
                "spot": {
                    "maxShare": "80%", "maxMarketShare": "25%", "checkpoint": "30m", "restart": "5m",
                    "returnToSpot": if has_cheap_spot(n) { "never" } else { "busy" },
                },
            },
            "limits": { "minNodes": 100, "maxNodes": 2_000, "maxUsdPerHour": 1_000 },
            "isolation": { "maxCostRatio": 1.3 }, "waitingUsdPerGpuHour": 2,
            "evidence": "probe", "warmFloor": { "nodes": 20, "percentOfBusy": "1%" },
        })
    };
    // What is paid for in each region: nodes of its first type, kept capacity of its second, spend on its third.
    let paid = |n: usize| -> [Value; 3] {
        let [first, second, third] = [0, 1, 2].map(|k| n * POOL_TYPES + k);
        [
            json!({
                "name": format!("ri-{n}"), "cloud": "aws", "kind": "reserved-instance", "region": region(n),
                "instanceType": type_name(first), "nodes": 60, "usdPerHour": 30,
            }),
            json!({
                "name": format!("odcr-{n}"), "cloud": "aws", "kind": "capacity-reservation", "region": region(n),
                "zone": format!("{}-az0", region(n)), "instanceType": type_name(second), "nodes": 20,
            }),
            json!({
                "name": format!("plan-{n}"), "cloud": "aws", "kind": "ec2-savings-plan", "region": region(n),
                "family": format!("g{}", third / 10), "usdPerHour": 20, "discount": "28%",
            }),
        ]
    };
    let everywhere = json!({
        "name": "plan", "cloud": "aws", "kind": "compute-savings-plan", "usdPerHour": 100, "discount": "20%",
    });
    let commitments: Vec<Value> = (0..REGIONS).flat_map(paid).chain([everywhere]).collect();
    let quota = |(r, capacity_type): (usize, &str)| -> Value {
        json!({
            "name": format!("{capacity_type} in {}", region(r)), "cloud": "aws", "region": region(r),
            "capacityTypes": [capacity_type], "vcpus": 100_000,
        })
    };
    let own = (0..REGIONS).flat_map(|r| ["spot", "on-demand"].map(|c| quota((r, c))));
    let known = |r: usize| {
        ["L-DB2E81BA", "L-3819A6DF"].map(
            |name| json!({ "name": name, "cloud": "aws", "region": region(r), "limit": 50_000, "used": 1_000, "safety": 64 }),
        )
    };
    let quotas: Vec<Value> = (0..REGIONS).flat_map(known).chain(own).collect();
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "bench",
        "pools": (0..REGIONS).map(pool).collect::<Vec<_>>(),
        "limits": { "maxUsdPerHour": 10_000 }, "quotas": quotas, "commitments": commitments,
    }))?;
    Policy::try_from_raw(&raw).map_err(|faults| anyhow!("{faults:?}"))
}
