//! The day itself: one event after the other, with the cluster and the autoscaler between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use indicatif::ProgressBar;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{NodeName, PoolName, ProviderId};
use stoker_core::base::kinds::QuotaUnit;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::catalogue::template::POOL_LABEL;
use stoker_core::check::quotas_of;
use stoker_core::facts::supply::{InstanceState, KeyParts};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market};
use stoker_core::policy::Policy;
use stoker_sim::model::{Autoscaler, MemoryCluster, NodeView, PodSpec, Scoring, Settings};
use stoker_sim::workload::{Kind, PodEvent};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use super::recording::Recording;
use super::told;
use crate::Simulation;
use crate::ca_client::GrpcCaClient;
use stoker_service::clock::VirtualClock;
use stoker_service::print::{NotWritten, count, say};

/// The clouds bill a machine for a minute at least.
const LEAST_BILLED: i64 = 60;

/// A machine as the bill knows it.
#[derive(Debug, Clone)]
struct Billed {
    pool: PoolName,
    market: Market,
    spec: Arc<InstanceSpec>,
    price: UsdPerHour,
    since: Timestamp,
}

/// What a day came to.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// What was paid, by pool and capacity type.
    pub(super) paid: BTreeMap<(PoolName, CapacityType), UsdMicros>,
    /// Machines bought, by pool and capacity type.
    pub(super) bought: BTreeMap<(PoolName, CapacityType), u32>,
    /// How long each pod waited for its node, in seconds.
    pub(super) waits: Vec<i64>,
    /// Pods still waiting at the end.
    pub(super) waiting: usize,
    /// Most nodes held at once, by pool.
    pub(super) most_nodes: BTreeMap<PoolName, u32>,
    /// Highest spend rate, by pool.
    pub(super) most_spend: BTreeMap<PoolName, UsdPerHour>,
    /// Most units used at once, by the quota's place in the policy: a name is one in every region.
    pub(super) most_quota: BTreeMap<usize, u64>,
    /// Machines that the cloud took back.
    pub(super) reclaimed: u32,
    /// What their pods had done and begin anew, in GPU-seconds.
    pub(super) lost_gpu_seconds: u64,
    /// Orders that one market could not serve.
    pub(super) refused: u32,
    /// Loops of the autoscaler.
    pub(super) loops: u32,
    /// Limits that were broken, in words. There is none.
    pub(super) broken: Vec<String>,
    /// The last node that was bought.
    pub(super) a_node: Option<NodeName>,
}

/// A day under way.
pub(super) struct Day {
    running: Simulation,
    clock: Arc<VirtualClock>,
    autoscaler: Autoscaler<GrpcCaClient, MemoryCluster>,
    policy: Policy,
    start: Timestamp,
    now: Timestamp,
    machines: BTreeMap<ProviderId, Billed>,
    /// When each running pod ends; set when it starts.
    ends: BTreeMap<String, Timestamp>,
    /// What each pod is, how long it runs, and on how many GPUs.
    lifetimes: BTreeMap<String, (Kind, SignedDuration, u32)>,
    arrived: BTreeMap<String, Timestamp>,
    told: told::Told,
    recording: Recording,
    /// Whole hours of the day that were reported.
    hours: i64,
    played: Played,
}

impl Day {
    /// Connects an autoscaler to a service that has just started.
    pub(super) async fn begin(
        running: Simulation,
        clock: Arc<VirtualClock>,
        settings: Settings,
        policy: Policy,
        start: Timestamp,
    ) -> anyhow::Result<Self> {
        let channel = |addr: std::net::SocketAddr| Endpoint::from_shared(format!("http://{addr}"));
        let provider = channel(running.provider)?.tcp_nodelay(true).connect().await?;
        let expander = channel(running.expander)?.tcp_nodelay(true).connect().await?;
        let door = GrpcCaClient::new(provider, expander);
        let cluster = MemoryCluster::new(Scoring::MostAllocated);
        running.handle.settle().await;
        Ok(Self {
            autoscaler: Autoscaler::new(door, cluster, settings),
            running,
            clock,
            policy,
            start,
            now: start,
            machines: BTreeMap::new(),
            ends: BTreeMap::new(),
            lifetimes: BTreeMap::new(),
            arrived: BTreeMap::new(),
            told: told::Told::default(),
            recording: Recording::default(),
            hours: 0,
            played: Played::default(),
        })
    }

    /// Plays the pods, from event to event: what lies between changes nothing and is skipped. Whether it came to the end; else it was
    /// stopped.
    pub(super) async fn play(
        &mut self,
        pods: &[PodEvent],
        length: SignedDuration,
        bar: Option<&ProgressBar>,
        stop: &CancellationToken,
    ) -> anyhow::Result<bool> {
        let end = self.start.saturating_add(length)?;
        let mut arrivals = pods.iter().peekable();
        while self.now < end {
            if stop.is_cancelled() {
                return Ok(false);
            }
            let due = arrivals.peek().and_then(|event| self.start.saturating_add(event.at).ok());
            let next = [
                due,
                self.ends.values().min().copied(),
                self.running.simulated.next_event(self.now).filter(|at| *at > self.now),
                self.autoscaler.next_loop(self.now, false),
            ];
            let next = next.into_iter().flatten().filter(|at| *at > self.now).min().unwrap_or(end).min(end);
            // An event of this very moment does not move the clock.
            let next = if due.is_some_and(|at| at <= self.now) { self.now } else { next };
            self.advance(next).await;
            self.tell_hour(bar)?;
            while let Some(event) = arrivals.next_if(|event| self.start.saturating_add(event.at).is_ok_and(|at| at <= self.now))
            {
                self.arrive(event);
            }
            self.step().await;
            let minutes = self.now.duration_since(self.start).as_mins();
            if let Some(bar) = bar {
                bar.set_position(minutes.unsigned_abs());
                bar.set_message(self.standing());
            }
        }
        Ok(true)
    }

    /// Ends the day: what still runs is billed until now, and the journal gets the pods.
    pub(super) async fn end(mut self) -> anyhow::Result<Played> {
        for (_, billed) in std::mem::take(&mut self.machines) {
            self.pay(&billed);
        }
        self.played.waiting = self.autoscaler.cluster().all_pods().filter(|pod| pod.node.is_none()).count();
        self.running.pods.write((self.start, self.now), &self.recording.changes()).await?;
        self.running.stop().await;
        Ok(self.played)
    }

    fn arrive(&mut self, event: &PodEvent) {
        let id = event.pod.id.clone();
        self.arrived.insert(id.clone(), self.now);
        self.lifetimes.insert(id.clone(), (event.kind, event.lifetime, event.pod.requests.gpus));
        if matches!(event.kind, Kind::Inference | Kind::Dev) {
            // A replica or a notebook is wanted until its hour, whenever it started.
            self.ends.insert(id, self.now.saturating_add(event.lifetime).unwrap_or(Timestamp::MAX));
        }
        let mut pod = event.pod.clone();
        self.name_slices(&mut pod);
        self.autoscaler.cluster_mut().add_pod(pod, self.now);
    }

    /// Has a pod ask for what its pool's nodes advertise: where that is no `nvidia.com/gpu`, as many of its smallest slice.
    fn name_slices(&self, pod: &mut PodSpec) {
        let view = self.running.handle.view();
        let mut templates = view.groups.values().map(|group| &group.group.template);
        let of_pool = templates.find(|template| template.labels.get(POOL_LABEL) == pod.node_selector.get(POOL_LABEL));
        let slice =
            of_pool.filter(|template| template.allocatable.gpus == 0).and_then(|template| template.slices.iter().next());
        if let Some((name, _)) = slice {
            pod.requests.slices.add(name, u64::from(std::mem::take(&mut pod.requests.gpus)));
        }
    }

    async fn advance(&mut self, to: Timestamp) {
        self.now = to;
        self.clock.advance_to(to);
        self.running.handle.settle().await;
    }

    /// Reports the hour that is over, if one is.
    fn tell_hour(&mut self, bar: Option<&ProgressBar>) -> Result<(), NotWritten> {
        let hours = self.now.duration_since(self.start).as_hours();
        if hours > self.hours {
            self.hours = hours;
            let line = format!("{}{}\n", self.standing(), self.told.hour());
            if let Some(bar) = bar {
                bar.suspend(|| say(&line))?;
            }
        }
        Ok(())
    }

    /// Everything that happens at one moment.
    async fn step(&mut self) {
        self.finish_pods();
        self.kubelets();
        self.schedule();
        let report = self.autoscaler.run_once(self.now).await;
        self.played.loops += 1;
        self.running.handle.settle().await;
        self.kubelets();
        self.schedule();
        let view = self.running.handle.view();
        self.told.note(&view, &report);
        self.played.refused = self.told.refused;
        drop(view);
        self.recording.look(self.now, self.autoscaler.cluster());
        self.watch_limits();
    }

    fn finish_pods(&mut self) {
        let over: Vec<String> = self.ends.iter().filter(|(_, at)| **at <= self.now).map(|(id, _)| id.clone()).collect();
        for id in over {
            self.ends.remove(&id);
            self.arrived.remove(&id);
            self.autoscaler.cluster_mut().finish_pod(&id);
        }
    }

    fn schedule(&mut self) {
        for (pod, _) in self.autoscaler.cluster_mut().schedule() {
            if let Some(arrived) = self.arrived.remove(&pod) {
                self.played.waits.push(self.now.duration_since(arrived).as_secs());
            }
            if let Some((Kind::Training | Kind::Batch, lifetime, _)) = self.lifetimes.get(&pod) {
                self.ends.entry(pod).or_insert(self.now.saturating_add(*lifetime).unwrap_or(Timestamp::MAX));
            }
        }
    }

    /// The kubelets' and the cloud's part: machines that booted are Nodes, machines that are gone are not, and each is billed.
    fn kubelets(&mut self) {
        let view = self.running.handle.view();
        let mut there = BTreeSet::new();
        let mut nodes = BTreeSet::new();
        for (machine, up) in self.running.simulated.machines(self.now) {
            there.insert(machine.provider_id.clone());
            let Ok(key) = machine.key.as_str().parse::<KeyParts>() else { continue };
            let Some(group) = view.catalogue.group_or_remembered(&key.group, &view.memory) else {
                self.played.broken.push(format!("{}: {} belongs to an unknown group", self.now, machine.provider_id));
                continue;
            };
            if !self.machines.contains_key(&machine.provider_id) {
                // What the market asks, not what the service says that it pays.
                let offer = group.offers.iter().find(|offer| offer.market == machine.market);
                let price =
                    offer.and_then(|offer| offer.quote(Wall(self.now)).ok()).map_or(UsdPerHour::ZERO, |quote| quote.price);
                if price == UsdPerHour::ZERO {
                    self.played.broken.push(format!("{}: {} was bought without a price", self.now, machine.provider_id));
                }
                let billed = Billed {
                    pool: group.pool.clone(),
                    market: machine.market.clone(),
                    spec: Arc::clone(&group.spec),
                    price,
                    since: machine.launched_at,
                };
                *self.played.bought.entry((billed.pool.clone(), billed.market.capacity_type)).or_default() += 1;
                self.played.a_node = Some(machine.node_name.clone());
                self.machines.insert(machine.provider_id.clone(), billed);
            }
            if !up || machine.state == InstanceState::Stopping {
                continue;
            }
            nodes.insert(machine.node_name.to_string());
            if self.autoscaler.cluster().node(machine.node_name.as_str()).is_none() {
                let mut labels = group.template.labels.clone();
                labels.insert("kubernetes.io/hostname".to_owned(), machine.node_name.to_string());
                self.autoscaler.cluster_mut().add_node(NodeView {
                    name: machine.node_name.to_string(),
                    provider_id: machine.provider_id.to_string(),
                    labels: Arc::new(labels),
                    annotations: Arc::default(),
                    taints: group.template.taints.clone(),
                    unschedulable: false,
                    ready_since: Some(self.now),
                    created_at: self.now,
                    allocatable: group.template.allocatable,
                    capacity: group.template.capacity,
                    slices: group.template.slices.clone(),
                });
            }
        }
        drop(view);
        let stale: Vec<String> =
            self.autoscaler.cluster().all_nodes().map(|n| n.name.clone()).filter(|name| !nodes.contains(name)).collect();
        for name in stale {
            let lost = self.autoscaler.cluster_mut().remove_node(&name, self.now);
            if !lost.is_empty() {
                // The autoscaler empties a node before it goes; one with pods on it was taken.
                self.played.reclaimed += 1;
            }
            for pod in lost {
                if let Some((Kind::Training | Kind::Batch, lifetime, gpus)) = self.lifetimes.get(&pod)
                    && let Some(end) = self.ends.remove(&pod)
                {
                    let ran = lifetime.as_secs() - end.duration_since(self.now).as_secs();
                    self.played.lost_gpu_seconds += u64::try_from(ran).unwrap_or(0) * u64::from(*gpus);
                }
                self.arrived.insert(pod, self.now);
            }
        }
        let gone: Vec<ProviderId> = self.machines.keys().filter(|id| !there.contains(*id)).cloned().collect();
        for id in gone {
            if let Some(billed) = self.machines.remove(&id) {
                self.pay(&billed);
            }
        }
    }

    fn pay(&mut self, billed: &Billed) {
        let seconds = self.now.duration_since(billed.since).as_secs().max(LEAST_BILLED);
        let paid = self.played.paid.entry((billed.pool.clone(), billed.market.capacity_type)).or_default();
        *paid = paid.plus(billed.price.over_seconds(seconds));
    }

    /// Counts nodes, spend and quotas from the simulated cloud's own machines, not from the service's word, and holds them against the
    /// policy. A machine on its way out is billed and fills its quota, but the pool may have its successor already.
    fn watch_limits(&mut self) {
        let stopping: BTreeSet<ProviderId> = self
            .running
            .simulated
            .machines(self.now)
            .into_iter()
            .filter(|(machine, _)| machine.state == InstanceState::Stopping)
            .map(|(machine, _)| machine.provider_id.clone())
            .collect();
        // Budgets count cash, which the machines' prices are as long as no commitment pays for some of it.
        let cash = self.policy.commitments.is_empty();
        let all = self.machines.values().fold(UsdPerHour::ZERO, |sum, m| sum.plus(m.price));
        if cash && self.policy.max_usd_per_hour.is_some_and(|limit| all > limit) {
            self.played.broken.push(format!("{}: all pools spend {all}/h", self.now));
        }
        for pool in &self.policy.pools {
            let of_pool = self.machines.iter().filter(|(_, m)| m.pool == pool.name);
            let spend = of_pool.clone().fold(UsdPerHour::ZERO, |sum, (_, m)| sum.plus(m.price));
            let staying = of_pool.filter(|(id, _)| !stopping.contains(*id)).count();
            let nodes = u32::try_from(staying).unwrap_or(u32::MAX);
            let most = self.played.most_nodes.entry(pool.name.clone()).or_default();
            *most = (*most).max(nodes);
            let highest = self.played.most_spend.entry(pool.name.clone()).or_default();
            *highest = (*highest).max(spend);
            if nodes > pool.limits.max_nodes {
                self.played
                    .broken
                    .push(format!("{}: {} has {nodes} nodes, more than {}", self.now, pool.name, pool.limits.max_nodes));
            }
            if cash && pool.limits.max_usd_per_hour.is_some_and(|limit| spend > limit) {
                self.played.broken.push(format!("{}: {} spends {spend}/h", self.now, pool.name));
            }
        }
        for (at, quota) in self.policy.quotas.iter().enumerate() {
            let counted = self.machines.values().filter(|m| quotas_of(&self.policy, &m.market, &m.spec).contains(&at));
            let used: u64 = match quota.unit {
                QuotaUnit::Vcpus => counted.map(|m| u64::from(m.spec.vcpus.unwrap_or_default())).sum(),
                QuotaUnit::Gpus => counted.map(|m| u64::from(m.spec.advertised_gpus())).sum(),
            };
            let most = self.played.most_quota.entry(at).or_default();
            *most = (*most).max(used);
            if used > quota.share() {
                self.played.broken.push(format!(
                    "{}: {used} of quota {} in use, more than {}",
                    self.now,
                    quota.name,
                    quota.share()
                ));
            }
        }
    }

    fn standing(&self) -> String {
        let spend = self.machines.values().fold(UsdPerHour::ZERO, |sum, m| sum.plus(m.price));
        format!("{}  {}, {spend}/h", self.now.strftime("%H:%M"), count(self.machines.len() as u64, "node"))
    }
}
