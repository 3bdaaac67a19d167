//! GPU nodes of the cluster that are not Stoker's, followed by watches of their own while the policy counts them.
//!
//! A machine of Karpenter's counts from when it is launched, by its `NodeClaim`; any other once it is a Node.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::ListParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::units::{MiB, Milli};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::foreign::{Foreign, ForeignKind, Promises};
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market};
use stoker_core::market::price::{Entry, PriceBook};
use stoker_core::policy::Policy;
use stoker_core::policy::rules::karpenter::BesideKarpenter;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, interval, sleep_until};

use super::AllMarketFacts;
use crate::kube::client::in_words;
use crate::kube::feed::{WatchHealth, WatchedKind, config, follow};
use crate::kube::gpu_labels::{GPU_LABELS, model_of};
use crate::kube::node_labels::{INSTANCE_TYPE, REGION, ZONE, ZONE_ID, bought_as, spec_of};
use crate::kube::thin::{ClaimRow, Machine, OtherRow};

/// How long changes are gathered before they are published together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How often it is looked whether the watch still stands.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the nodes are told by.
pub struct ForeignFeed {
    /// The way to the cluster.
    pub client: Client,
    /// What instance types are made of.
    pub book: Arc<PriceBook>,
    /// Whether they count.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// What suppliers call zones.
    pub facts: watch::Receiver<Arc<AllMarketFacts>>,
    /// What Karpenter was promised of the quotas; `None` until that is known.
    pub promised: watch::Receiver<Option<Promises>>,
    /// Where the nodes are published; `None` while they are not known or not asked for.
    pub known: watch::Sender<Option<Arc<Foreign>>>,
    /// Is told whenever they change.
    pub wake: Arc<Notify>,
}

impl ForeignFeed {
    /// Follows the nodes whenever the policy counts them.
    pub async fn run(mut self) {
        let mut policy = self.policy.clone();
        while policy.wait_for(|policy| policy.karpenter.counts_nodes()).await.is_ok() {
            tokio::select! {
                () = self.follow() => {}
                () = async { drop(policy.wait_for(|policy| !policy.karpenter.counts_nodes()).await) } => {}
            }
            self.publish(None);
        }
        // Whoever told of the policy stops with the service.
        std::future::pending().await
    }

    async fn follow(&mut self) {
        let cluster = self.policy.borrow().cluster.clone();
        let config = config().labels(&format!("{CLUSTER_LABEL}!={cluster}"));
        let [of_nodes, of_claims] = [WatchedKind::Nodes, WatchedKind::NodeClaims].map(|kind| Arc::new(WatchHealth::new(kind)));
        let mut rows = pin!(follow::<OtherRow>(&self.client, config.clone(), Arc::clone(&of_nodes)));
        let mut claims = pin!(follow::<ClaimRow>(&self.client, config, Arc::clone(&of_claims)));
        let mut nodes = Gathered::default();
        let mut has_karpenter = None;
        let mut look = interval(LOOK_EVERY);
        let mut due = None;
        loop {
            let changed = tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    let stand_well = of_nodes.stands_well() && (has_karpenter == Some(false) || of_claims.stands_well());
                    let told = if stand_well { self.told(&mut nodes) } else { None };
                    self.publish(told);
                    continue;
                }
                event = rows.next() => match event {
                    Some(event) => nodes.apply(event, &self.book),
                    None => return,
                },
                event = claims.next(), if has_karpenter == Some(true) => match event {
                    Some(event) => nodes.apply_claim(event, &self.book),
                    None => return,
                },
                Ok(()) = self.facts.changed() => true,
                Ok(()) = self.promised.changed() => true,
                _ = look.tick() => {
                    if has_karpenter != Some(true) {
                        has_karpenter = serves_claims(&self.client).await;
                        if has_karpenter == Some(false) {
                            nodes.claims.get_or_insert_default();
                        }
                    }
                    true
                }
            };
            if changed && due.is_none() {
                due = Some(Instant::now() + DEBOUNCE);
            }
        }
    }

    /// What is known now; `None` until all that the policy asks for is.
    fn told(&mut self, nodes: &mut Gathered) -> Option<Foreign> {
        let told = nodes.told(&self.book, &self.facts.borrow_and_update())?;
        let promised = self.promised.borrow_and_update().clone();
        if self.policy.borrow().karpenter.promises() { Some(Foreign { promised: promised?, ..told }) } else { Some(told) }
    }

    fn publish(&self, told: Option<Foreign>) {
        let changed = self.known.send_if_modified(|known| {
            let changed = known.as_deref() != told.as_ref();
            if changed {
                *known = told.map(Arc::new);
            }
            changed
        });
        if changed {
            self.wake.notify_one();
        }
    }
}

/// The nodes now, without promises; `None` where nobody tells.
pub async fn nodes_now(client: &Client, book: Arc<PriceBook>, policy: &Policy) -> Option<Arc<Foreign>> {
    let counts = BesideKarpenter { count_nodes: true, ..BesideKarpenter::default() };
    let policy = watch::Sender::new(Arc::new(Policy { karpenter: counts, ..policy.clone() }));
    let (facts, promised) = (watch::Sender::default(), watch::Sender::default());
    let known = watch::Sender::new(None);
    let mut told = known.subscribe();
    let feed = ForeignFeed {
        client: client.clone(),
        book,
        policy: policy.subscribe(),
        facts: facts.subscribe(),
        promised: promised.subscribe(),
        known,
        wake: Arc::default(),
    };
    tokio::select! {
        known = told.wait_for(Option::is_some) => known.ok()?.clone(),
        () = feed.run() => None,
    }
}

/// Whether the cluster has `NodeClaims` of Karpenter's; `None` where that cannot be told.
async fn serves_claims(client: &Client) -> Option<bool> {
    match Api::<ClaimRow>::all(client.clone()).list(&ListParams::default().limit(1)).await {
        Ok(_) => Some(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(false),
        Err(error) => {
            tracing::warn!("it cannot be told whether the cluster has NodeClaims: {}", in_words(&error));
            None
        }
    }
}

/// Machines by the name of the object that tells of them.
type Machines = BTreeMap<String, Machine>;

/// The nodes while they are gathered: only those with GPUs are kept.
#[derive(Default)]
struct Gathered {
    /// `None` until they were listed.
    nodes: Option<Machines>,
    listing: Machines,
    /// Those of claims; `None` until they were listed.
    claims: Option<Machines>,
    listing_claims: Machines,
    /// Those of which a warning was logged.
    unclear: BTreeSet<String>,
}

impl Gathered {
    /// Applies an event; tells whether anything changed.
    fn apply(&mut self, event: Event<OtherRow>, book: &PriceBook) -> bool {
        let kept = |row: OtherRow| Some((row.meta.name?, Some(row.machine).filter(|machine| has_gpus(machine, book))));
        take(event, &mut self.nodes, &mut self.listing, kept)
    }

    /// The same for a `NodeClaim`.
    fn apply_claim(&mut self, event: Event<ClaimRow>, book: &PriceBook) -> bool {
        let kept = |row: ClaimRow| Some((row.meta.name?, row.machine.filter(|machine| has_gpus(machine, book))));
        take(event, &mut self.claims, &mut self.listing_claims, kept)
    }

    /// The nodes by kind; `None` until they were listed.
    fn told(&mut self, book: &PriceBook, facts: &AllMarketFacts) -> Option<Foreign> {
        let (nodes, claims) = (self.nodes.as_ref()?, self.claims.as_ref()?);
        let joined: HashSet<&str> = nodes.values().map(|machine| machine.provider_id.as_str()).collect();
        let launched = claims.iter().filter(|(_, machine)| !joined.contains(machine.provider_id.as_str()));
        let mut foreign = Foreign::default();
        let mut unclear = BTreeSet::new();
        for (name, machine) in nodes.iter().chain(launched) {
            let kind = kind_of(machine, book, facts);
            if kind.place().is_none() {
                if !self.unclear.contains(name) {
                    tracing::warn!(
                        node = name,
                        "its cloud, region, instance type or GPU model is not told, so it counts against every quota that it \
                         may be under"
                    );
                }
                unclear.insert(name.clone());
            }
            let nodes = foreign.nodes.entry(kind).or_default();
            *nodes = nodes.saturating_add(1);
        }
        self.unclear = unclear;
        for instance_type in claims.values().filter_map(|machine| InstanceType::new(machine.label(INSTANCE_TYPE)?).ok()) {
            *foreign.claims.entry(instance_type).or_default() += 1;
        }
        Some(foreign)
    }
}

/// Applies an event to what is known by name, of which `kept` tells the name and what is kept of it; tells whether anything changed.
fn take<K, V: PartialEq>(
    event: Event<K>,
    known: &mut Option<BTreeMap<String, V>>,
    listing: &mut BTreeMap<String, V>,
    kept: impl Fn(K) -> Option<(String, Option<V>)>,
) -> bool {
    match event {
        Event::Init => listing.clear(),
        Event::InitApply(row) => {
            if let Some((name, Some(value))) = kept(row) {
                listing.insert(name, value);
            }
        }
        Event::InitDone => {
            *known = Some(std::mem::take(listing));
            return true;
        }
        Event::Apply(row) => {
            let (Some(known), Some((name, value))) = (known, kept(row)) else { return false };
            let Some(value) = value else { return known.remove(&name).is_some() };
            let changed = known.get(&name) != Some(&value);
            known.insert(name, value);
            return changed;
        }
        Event::Delete(row) => {
            return known.as_mut().zip(kept(row)).is_some_and(|(known, (name, _))| known.remove(&name).is_some());
        }
    }
    false
}

/// Whether it has GPUs, by its type, its labels or what it advertises: its driver may not run yet.
fn has_gpus(machine: &Machine, book: &PriceBook) -> bool {
    machine.gpus > 0
        || machine.has_slices
        || GPU_LABELS.iter().any(|key| machine.label(key).is_some())
        || cloud_of(machine, book).is_some_and(|cloud| spec_of(book, &cloud, &machine.labels, 0).is_some())
}

/// The cloud of a machine: by its provider id, else by its type, if one cloud alone has that.
fn cloud_of(machine: &Machine, book: &PriceBook) -> Option<Cloud> {
    if let Some(cloud) = &machine.cloud {
        return Cloud::new(cloud.as_str()).ok();
    }
    let instance_type = machine.label(INSTANCE_TYPE)?;
    let mut clouds = book.specs().filter(|spec| spec.instance_type.as_str() == instance_type).map(|spec| &spec.cloud);
    let first = clouds.next()?;
    clouds.all(|other| other == first).then(|| first.clone())
}

/// What a machine tells of its market.
fn kind_of(machine: &Machine, book: &PriceBook, facts: &AllMarketFacts) -> ForeignKind {
    let cloud = cloud_of(machine, book);
    let of_tables = cloud.as_ref().and_then(|cloud| spec_of(book, cloud, &machine.labels, machine.gpus.into())).cloned();
    let spec = of_tables.or_else(|| spec_by_labels(machine, cloud.clone()?, book));
    let capacity_type = bought_as(&machine.labels).or_else(|| {
        // GKE and AKS label what is not bought on demand; elsewhere no label tells nothing.
        let by_default = ["gcp", "azure"].contains(&cloud.as_ref()?.as_str());
        by_default.then_some(CapacityType::OnDemand)
    });
    let mut kind = ForeignKind {
        region: machine.label(REGION).and_then(|region| Region::new(region).ok()),
        zone: cloud.as_ref().and_then(|cloud| zone_of(machine, cloud, facts)),
        cloud,
        capacity_type,
        gpus: spec.as_ref().map_or(machine.gpus, InstanceSpec::advertised_gpus).max(1),
        vcpus: spec.as_ref().and_then(|spec| spec.vcpus).unwrap_or(machine.vcpus),
        spec,
        price: None,
    };
    kind.price =
        kind.place().and_then(|(place, _)| match book.entry(&Market { place, capacity_type: CapacityType::OnDemand })? {
            Entry::Price(quote) => Some(quote.price),
            Entry::NoSignal(_) => None,
        });
    kind
}

/// The id of its zone: by its label, else by what suppliers call it, and on GCP its name. On AWS and Azure a zone has another name in each
/// account, and the tables of other clouds know none.
fn zone_of(machine: &Machine, cloud: &Cloud, facts: &AllMarketFacts) -> Option<ZoneId> {
    let told = machine.label(ZONE_ID).and_then(|id| ZoneId::new(id).ok());
    let name = machine.label(ZONE);
    let by_name = || {
        let mut all = facts.values().flat_map(|told| &told.zone_names);
        all.find(|((of, _), known)| of == cloud && Some(known.as_str()) == name).map(|((_, id), _)| id.clone())
    };
    told.or_else(by_name).or_else(|| name.filter(|_| cloud.as_str() == "gcp").and_then(|name| ZoneId::new(name).ok()))
}

/// What a machine is made of whose type no table has, by what it says itself; `None` where it does not say its type or GPU model.
fn spec_by_labels(machine: &Machine, cloud: Cloud, book: &PriceBook) -> Option<InstanceSpec> {
    let values = || GPU_LABELS.iter().filter_map(|key| machine.label(key));
    let known = values().find_map(|value| model_of(book, value));
    let gpu_model = known.map(|(model, _)| model.clone()).or_else(|| values().find_map(|value| GpuModel::new(value).ok()))?;
    let memory = known.and_then(|(_, memory)| memory).or_else(|| book.gpu(&gpu_model).first().map(|gpu| gpu.memory));
    Some(InstanceSpec {
        cloud,
        instance_type: InstanceType::new(machine.label(INSTANCE_TYPE)?).ok()?,
        gpu_model,
        gpus: Milli(machine.gpus.max(1).saturating_mul(1000)),
        gpu_memory: memory.unwrap_or(MiB(0)),
        vcpus: Some(machine.vcpus),
        memory: None,
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    })
}

#[cfg(test)]
mod tests;
