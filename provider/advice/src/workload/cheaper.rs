//! The cheapest GPUs, or parts of one, that do what a workload was measured to need.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::Inputs;
use super::class::{Measure, Used};
use super::observed::{Kind, Workload, month};
use crate::fit::Power;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{GpuModel, InstanceType, PoolName, SupplierName};
use stoker_core::base::kinds::Workload as Runs;
use stoker_core::base::units::{MiB, Milli, UsdMicros, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{CapacityType, GpuFeature, GpuSpec, InstanceSpec, Market};
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::{Acknowledgement, Geometry, MigLayout, MigProfile, Part, Split};
use stoker_core::policy::{Policy, Pool, Throughput};

/// Most pods that are advised to take turns on a GPU: each turn costs a switch of contexts, and none may wait for more than seven others.
const MOST_TURNS: u32 = 8;

/// How pods get GPUs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Whole.
    Whole,
    /// Each a MIG instance, so many of which a GPU has.
    Mig(MigProfile, u32),
    /// So many take turns.
    TimeSlicing(u32),
}

impl Layout {
    /// Pods that a GPU has room for.
    const fn per_gpu(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Mig(_, number) | Self::TimeSlicing(number) => number,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.pad("whole"),
            Self::Mig(profile, number) => f.pad(&format!("mig {profile}, {number} a GPU")),
            Self::TimeSlicing(replicas) => f.pad(&format!("time-slicing {replicas}")),
        }
    }
}

/// What a policy would have to say about a pool so that it gives such GPUs in such a way. Its text is that of a person's note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Allows that model.
    Model(GpuModel),
    /// Allows nodes with so many GPUs.
    Count(u32),
    /// Allows that type.
    InstanceType(InstanceType),
    /// Asks no GPU for more memory than so much, in GiB.
    LeastMemory(u64),
    /// Asks no node for more GPU memory than so much, in GiB.
    LeastNodeMemory(u64),
    /// Shares GPUs so.
    Share(Layout),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => write!(f, "gpu.models: add {model}"),
            Self::Count(gpus) => write!(f, "gpu.count: add {gpus}"),
            Self::InstanceType(name) => write!(f, "instanceTypes: add {name}"),
            Self::LeastMemory(gib) => write!(f, "gpu.minMemoryGiB: at most {gib}"),
            Self::LeastNodeMemory(gib) => write!(f, "gpu.minMemoryPerNodeGiB: at most {gib}"),
            Self::Share(Layout::Whole) => f.write_str("sharing: remove it"),
            Self::Share(Layout::Mig(profile, _)) => write!(f, "sharing: {{ mig: all-{profile} }}"),
            Self::Share(Layout::TimeSlicing(n)) => write!(f, "sharing: {{ timeSlicing: {n} }}"),
        }
    }
}

/// What a workload runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// Instance types, the most used first.
    pub instance_types: Vec<InstanceType>,
    /// How most of its time was bought.
    pub capacity_type: CapacityType,
    /// GPUs, or instances, of one pod.
    pub gpus: u32,
    /// Pods on average, in thousandths.
    pub pods: Milli,
    /// Seconds that all its pods together held their GPUs.
    pub pod_seconds: u64,
    /// Hours over which averages are taken: those with any reading.
    pub hours: usize,
    /// What the GPUs of a pod cost.
    pub per_pod: UsdPerHour,
    /// What they all cost a month.
    pub per_month: UsdMicros,
}

/// What would do the same for less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// Where.
    pub market: Market,
    /// GPUs, or parts of one, of one pod.
    pub gpus: u32,
    /// How.
    pub layout: Layout,
    /// Price of a node there.
    pub node: UsdPerHour,
    /// Pods that a node has room for.
    pub pods_per_node: u32,
    /// Price of a pod.
    pub per_pod: UsdPerHour,
    /// Price of all of them a month.
    pub per_month: UsdMicros,
    /// What it saves a month.
    pub saved: UsdMicros,
    /// What the policy would have to say for it; empty where it says so already.
    pub changes: Vec<Change>,
    /// What a pod needs, headroom included.
    pub need: Power,
    /// What its GPUs have.
    pub has: Power,
}

/// Why nothing is suggested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Stay {
    /// Its memory was not read, on some of its GPUs at least.
    #[error("its memory was not read, so it is unknown which GPUs have enough")]
    MemoryUnknown,
    /// No data sheet tells what some of its GPUs can do, or no reading what it used of them.
    #[error("no data sheet covers some of its GPUs, or no reading shows how much of them it used")]
    PowerUnknown,
    /// Its pool is gone.
    #[error("its pool is no longer in the policy")]
    PoolGone,
    /// Nothing that fits costs less.
    #[error("nothing that fits with headroom costs less")]
    NothingCheaper,
}

/// Every GPU that is sold where the pools may buy, whichever models, counts, types and sharing they name: what else could be said in the
/// policy.
pub fn everything(policy: &Policy, prices: &PriceBook, suppliers: &BTreeMap<SupplierName, MarketFacts>) -> Catalogue {
    let mut wide = policy.clone();
    let models: BTreeSet<_> = prices.gpu_models().cloned().collect();
    for pool in &mut wide.pools {
        pool.models.clone_from(&models);
        pool.gpu_counts.clear();
        pool.instance_types.clear();
        (pool.min_gpu_memory, pool.min_node_gpu_memory) = (MiB(0), MiB(0));
        (pool.sharing, pool.isolation) = (None, None);
        pool.throughput = Throughput::Alike;
    }
    Catalogue::derive(&Arc::new(wide), prices, suppliers)
}

/// What a workload runs on; `None` where no record told what that costs.
pub(super) fn now(workload: &Workload, hours: usize) -> Option<Now> {
    let gpus = workload.gpus_per_pod().max(1);
    let seconds: u64 = workload.bought.values().map(|(seconds, _)| seconds).sum();
    let cost: u128 = workload.bought.values().map(|(_, cost)| cost).sum();
    let (capacity_type, _) = workload.bought.iter().max_by_key(|(_, (seconds, _))| *seconds)?;
    let per_pod = (cost * u128::from(gpus)).checked_div(u128::from(seconds))?;
    let mut types: BTreeMap<&InstanceType, u64> = BTreeMap::new();
    for (kind, on) in &workload.on {
        *types.entry(&kind.instance_type).or_insert(0) += on.seconds;
    }
    let mut types: Vec<_> = types.into_iter().collect();
    types.sort_by_key(|(name, seconds)| (std::cmp::Reverse(*seconds), *name));
    let pod_seconds = seconds / u64::from(gpus);
    let pods = u128::from(pod_seconds) * 1_000 / (3_600 * hours.max(1) as u128);
    Some(Now {
        instance_types: types.into_iter().map(|(name, _)| name.clone()).collect(),
        capacity_type: *capacity_type,
        gpus,
        pods: Milli(u32::try_from(pods).unwrap_or(u32::MAX)),
        pod_seconds,
        hours,
        per_pod: UsdPerHour(i64::try_from(per_pod).unwrap_or(i64::MAX)),
        per_month: workload.per_month(|_| true, hours),
    })
}

/// What is found for a workload.
pub(super) struct Found {
    /// The cheapest that fits.
    pub(super) cheapest: Result<Suggestion, Stay>,
    /// The cheapest as the policy stands, where that is another one.
    pub(super) as_it_stands: Option<Suggestion>,
    /// The cheapest for what serves, if it needed half of the memory; `None` where that saves no more.
    pub(super) quantized: Option<Suggestion>,
}

/// The cheapest that fits, by several measures.
pub(super) fn find(workload: &Workload, levels: &Used, now: &Now, pool: &PoolName, inputs: &Inputs<'_>) -> Found {
    let stays = |why| Found { cheapest: Err(why), as_it_stands: None, quantized: None };
    let Some(pool) = inputs.catalogue.policy.pool(pool) else { return stays(Stay::PoolGone) };
    let need = match need(workload, levels, inputs) {
        Ok(need) => need,
        Err(why) => return stays(why),
    };
    let found = fitting(need.times(now.gpus), now, pool, inputs);
    let as_it_stands = found.iter().find(|one| one.changes.is_empty()).cloned();
    let cheapest = found.into_iter().next().ok_or(Stay::NothingCheaper);
    let halved = Power { memory: need.memory.div_ceil(2), ..need };
    let of_half = || fitting(halved.times(now.gpus), now, pool, inputs).into_iter().next();
    let quantized = (pool.workload == Runs::Inference).then(of_half).flatten();
    let saves_more = |one: &Suggestion| cheapest.as_ref().map_or(true, |known| one.saved > known.saved);
    Found {
        as_it_stands: as_it_stands.filter(|one| cheapest.as_ref().ok() != Some(one)),
        quantized: quantized.filter(saves_more),
        cheapest,
    }
}

/// What costs less and has what a pod needs, cheapest first.
fn fitting(need: Power, now: &Now, pool: &Pool, inputs: &Inputs<'_>) -> Vec<Suggestion> {
    let mut found: Vec<Suggestion> = Vec::new();
    for group in inputs.wide.pool_groups(&pool.name) {
        let Some(gpu) = inputs.book.gpu_of(&group.spec) else { continue };
        let quote = group.offers.iter().find(|offer| offer.market.capacity_type == now.capacity_type);
        let Some((market, Ok(quote))) = quote.map(|offer| (&offer.market, offer.quote(Wall(inputs.now)))) else { continue };
        for (layout, gpus, has) in ways(pool, group, gpu, now.gpus) {
            let has = has.times(gpus);
            let same = layout == Layout::Whole && gpus == now.gpus && now.instance_types.contains(&group.place.instance_type);
            let pods_per_node = group.spec.advertised_gpus() / gpus * layout.per_gpu();
            let per_pod = quote.price.per(pods_per_node.max(1));
            // The same GPUs in another zone are a matter of the choice, not of the size.
            if same || pods_per_node == 0 || !need.within(&has) || per_pod >= now.per_pod {
                continue;
            }
            let cost = u128::from(now.pod_seconds) * u128::from(per_pod.0.unsigned_abs());
            let per_month = UsdMicros(i64::try_from(month(cost, now.hours)).unwrap_or(i64::MAX));
            let changes = changes(pool, &group.spec, layout);
            let (market, node) = (market.clone(), quote.price);
            let saved = UsdMicros(now.per_month.0.saturating_sub(per_month.0));
            found.push(Suggestion { market, gpus, layout, node, pods_per_node, per_pod, per_month, saved, changes, need, has });
        }
    }
    // Of what costs the same, what asks least of the policy, then whole GPUs before parts.
    found.sort_by(|a, b| {
        (a.per_pod, a.changes.len(), a.layout, &a.market).cmp(&(b.per_pod, b.changes.len(), b.layout, &b.market))
    });
    found
}

/// What one of its GPUs needs: the most that it used on any kind of them, headroom included. A kind that is not known could have been the
/// one that needs most.
fn need(workload: &Workload, levels: &Used, inputs: &Inputs<'_>) -> Result<Power, Stay> {
    if levels.memory.is_none() {
        return Err(Stay::MemoryUnknown);
    }
    let headroom = inputs.catalogue.policy.advise.headroom;
    let mut most: Option<Power> = None;
    // What readings stand for no time of, it did not run on.
    for (kind, on) in workload.on.iter().filter(|(_, on)| on.seconds > 0) {
        if on.memory_peak == 0 {
            return Err(Stay::MemoryUnknown);
        }
        // Not each kind reads what most of them do.
        let compute = [levels.by, Measure::Utilization, Measure::SmActivity].into_iter().find_map(|measure| on.by(measure));
        let (Some(compute), Some(power)) = (compute, power(kind, inputs.book)) else { return Err(Stay::PowerUnknown) };
        let used = power.used(compute.p95, on.bandwidth().map(|level| level.p95), on.memory_peak, headroom);
        most = Some(most.map_or(used, |most| most.max(used)));
    }
    most.ok_or(Stay::PowerUnknown)
}

/// What one GPU or instance of a kind has; `None` where no source tells.
fn power(kind: &Kind, book: &PriceBook) -> Option<Power> {
    let spec = book.spec(&kind.cloud, &kind.instance_type)?;
    let gpu = book.gpu_of(spec)?;
    if kind.split { instance(gpu, kind.profile?) } else { whole(spec, gpu) }
}

fn whole(spec: &InstanceSpec, gpu: &GpuSpec) -> Option<Power> {
    let share = Part { of: spec.gpus.0.min(1_000), whole: 1_000 };
    Power::of(gpu, share, share, spec.memory_per_advertised_gpu())
}

fn instance(gpu: &GpuSpec, profile: MigProfile) -> Option<Power> {
    let (compute, memory) = Geometry::of(gpu).ok()?.used(&BTreeMap::from([(profile, 1)]));
    Power::of(gpu, compute, memory, MiB::from_gib(profile.gib.into()))
}

/// The ways in which a pod that has so many GPUs now could get some of this group: as many or an even part of them, since its work is
/// divided so already; and a part of one where it has one.
fn ways(pool: &Pool, group: &Group, gpu: &GpuSpec, gpus: u32) -> Vec<(Layout, u32, Power)> {
    let spec = &group.spec;
    let Some(all) = whole(spec, gpu) else { return Vec::new() };
    let counts = (1..=gpus).filter(|n| gpus.is_multiple_of(*n));
    let mut ways: Vec<_> = counts.map(|n| (Layout::Whole, n, all)).collect();
    if gpus == 1 && spec.gpus.0 >= 1_000 {
        if may_split(pool)
            && let Ok(geometry) = Geometry::of(gpu)
        {
            let parts = geometry.profiles().filter_map(|profile| {
                let number = geometry.most(profile).ok().filter(|number| *number > 1)?;
                Some((Layout::Mig(profile, number), 1, instance(gpu, profile)?))
            });
            ways.extend(parts);
        }
        if may_take_turns(pool) {
            let turn = |n: u32| {
                let n_th = |whole: u128| whole / u128::from(n);
                Power { megaflops: n_th(all.megaflops), mb_s: n_th(all.mb_s), memory: n_th(all.memory) }
            };
            ways.extend((2..=MOST_TURNS).map(|n| (Layout::TimeSlicing(n), 1, turn(n))));
        }
    }
    ways
}

/// MIG instances cannot talk over NVLink, and a pool that shares its GPUs in another way has its reasons.
fn may_split(pool: &Pool) -> bool {
    !pool.needs.contains(&GpuFeature::Nvlink)
        && pool.sharing.as_ref().is_none_or(|sharing| matches!(sharing.split, Split::Mig { .. }))
}

/// Time-slicing is refused for inference unless the pool takes it on by name.
fn may_take_turns(pool: &Pool) -> bool {
    match &pool.sharing {
        None => pool.workload != Runs::Inference,
        Some(sharing) => {
            matches!(sharing.split, Split::TimeSlicing { .. })
                && (pool.workload != Runs::Inference || sharing.acknowledged.contains(&Acknowledgement::TimeSlicedInference))
        }
    }
}

fn changes(pool: &Pool, spec: &InstanceSpec, layout: Layout) -> Vec<Change> {
    let mut changes = Vec::new();
    if !pool.models.contains(&spec.gpu_model) {
        changes.push(Change::Model(spec.gpu_model.clone()));
    }
    let gpus = spec.advertised_gpus();
    if !pool.gpu_counts.is_empty() && !pool.gpu_counts.contains(&gpus) {
        changes.push(Change::Count(gpus));
    }
    if !pool.instance_types.is_empty() && !pool.instance_types.iter().any(|pattern| pattern.matches(&spec.instance_type)) {
        changes.push(Change::InstanceType(spec.instance_type.clone()));
    }
    let memory = spec.memory_per_advertised_gpu();
    let least = match layout {
        Layout::Mig(profile, _) => MiB::from_gib(profile.gib.into()),
        Layout::Whole | Layout::TimeSlicing(_) => memory,
    };
    if least < pool.min_gpu_memory {
        changes.push(Change::LeastMemory(least.0 / 1_024));
    }
    let of_node = memory.0.saturating_mul(gpus.into());
    if MiB(of_node) < pool.min_node_gpu_memory {
        changes.push(Change::LeastNodeMemory(of_node / 1_024));
    }
    let is_shared_so = match (layout, pool.sharing.as_ref().map(|sharing| &sharing.split)) {
        (Layout::Whole, sharing) => sharing.is_none(),
        (Layout::Mig(profile, _), Some(Split::Mig { layout: MigLayout::All(known), .. })) => *known == profile,
        (Layout::TimeSlicing(n), Some(Split::TimeSlicing { replicas, .. })) => *replicas == n,
        (Layout::Mig(..) | Layout::TimeSlicing(_), _) => false,
    };
    if !is_shared_so {
        changes.push(Change::Share(layout));
    }
    changes
}
