//! Validation: from a raw policy to a [`Policy`] that cannot be wrong, with every fault at once.

mod advise;
mod budgets;
pub(super) mod calendar;
mod commitments;
mod data;
mod floor;
mod gpu;
mod grammar;
mod health;
mod held;
mod karpenter;
mod outdated;
mod prices;
mod quotas;
mod sharing;
mod signals;
mod spot;
pub(super) mod stretches;
mod suppliers;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde_json::Number;

use super::{
    API_VERSION, DEFAULT_BOOT_DEADLINE, DEFAULT_WAITING, Fault, Isolation, Limits, Path, Policy, Pool, PriceRow, RawCommitment,
    RawLimits, RawPolicy, RawPool, RawPrice, RawTaint, RawTemplate, Tier, TypePattern,
};
use crate::base::calendar::Zone;
use crate::base::ids::{IdError, ZoneId};
use crate::base::kinds::{Evidence, Taint, TaintEffect, Workload};
use crate::base::sabotage;
use crate::base::text::{quoted, read_length};
use crate::base::units::{MiB, UsdPerHour};
use crate::market::offer::{CapacityType, NoCapability};

pub use commitments::percent as discount;
pub use grammar::{label_key, label_value};
pub use prices::check_against_prices;

/// Longest pool name: it is a label's value (at most 63), and leaves room in group ids for the instance type and the zone.
pub const MAX_POOL_NAME: usize = 40;
/// Longest cluster name: a label's value.
const MAX_CLUSTER_NAME: usize = 63;
/// Most nodes of a pool: above what any cluster holds, and below what the autoscaler's 32-bit sizes can.
const MAX_NODES: u32 = 100_000;
/// Shortest boot deadline: no machine joins faster, so a shorter one would give up every launch.
const MIN_BOOT_DEADLINE: SignedDuration = SignedDuration::from_mins(1);
/// Longest boot deadline: a dead launch would be waited for, and paid for, longer than it takes to notice by hand.
const MAX_BOOT_DEADLINE: SignedDuration = SignedDuration::from_mins(60);

/// Taints that the autoscaler sets itself, or takes for "still starting": templates lose them, and a node that bears one never counts as
/// Ready, so pods would be promised nodes that they cannot use.
const AUTOSCALER_TAINTS: [&str; 5] = [
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];

/// An id that a text may be.
trait Id: Ord + TryFrom<String, Error = IdError> {}

impl<T: Ord + TryFrom<String, Error = IdError>> Id for T {}

/// Every fault found so far.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.0.push(Fault { path: path.clone(), message: message.into() });
    }

    /// The value, or nothing and one more fault.
    fn keep<T>(&mut self, path: &Path, read: Result<T, String>) -> Option<T> {
        read.map_err(|message| self.add(path, message)).ok()
    }

    /// `text` as an id.
    fn id<T: Id>(&mut self, path: &Path, text: &str) -> Option<T> {
        self.keep(path, grammar::id(text))
    }

    /// A list of ids without repeats.
    fn ids<T: Id>(&mut self, path: &Path, texts: &[String]) -> BTreeSet<T> {
        self.unrepeated(path, texts, |text| quoted(text));
        texts.iter().enumerate().filter_map(|(at, text)| self.id(&path.index(at), text)).collect()
    }

    /// A list of ids without repeats that names at least one.
    fn some_ids<T: Id>(&mut self, path: &Path, texts: &[String], what: &str) -> BTreeSet<T> {
        if texts.is_empty() {
            self.add(path, format!("is empty: name at least one {what}"));
        }
        self.ids(path, texts)
    }

    /// Reports every element that stands in the list before.
    fn unrepeated<T: Ord>(&mut self, path: &Path, list: &[T], show: impl Fn(&T) -> String) {
        let mut seen = BTreeSet::new();
        for (at, element) in list.iter().enumerate() {
            if !seen.insert(element) {
                self.add(&path.index(at), format!("{} is listed twice: remove one", show(element)));
            }
        }
    }

    /// A rate above zero.
    fn rate(&mut self, path: &Path, number: &Number, cure: &str) -> Option<UsdPerHour> {
        self.keep(path, grammar::rate(number, cure))
    }
}

/// Applies every rule.
pub(super) fn policy(raw: &RawPolicy) -> Result<Policy, Vec<Fault>> {
    let mut faults = Faults::default();
    let read = file(&mut faults, raw);
    read.filter(|_| faults.0.is_empty()).ok_or(faults.0)
}

fn file(faults: &mut Faults, raw: &RawPolicy) -> Option<Policy> {
    let root = Path::root();
    if raw.api_version != API_VERSION {
        faults.add(
            &root.key("apiVersion"),
            format!("{} is not a supported version: write {API_VERSION}", quoted(&raw.api_version)),
        );
    }
    if raw.kind != "Policy" {
        faults.add(&root.key("kind"), format!("{} is not a supported kind: write Policy", quoted(&raw.kind)));
    }
    let cluster = faults.keep(&root.key("clusterName"), cluster_name(&raw.cluster_name));
    let boot_deadline = boot_deadline(faults, &root.key("defaults").key("bootDeadline"), raw.defaults.boot_deadline.as_deref());
    let kept = raw.commitments.iter().any(RawCommitment::keeps_capacity);
    let data_region =
        data::default_region(faults, &root.key("defaults").key("dataRegion"), raw.defaults.data_region.as_deref());
    let zone = calendar::default_zone(faults, &root.key("defaults").key("timeZone"), raw.defaults.time_zone.as_deref());
    let suppliers = suppliers::suppliers(faults, &root.key("suppliers"), &raw.suppliers);
    let common = Common { kept, data_region, zone };
    let pools = pools(faults, &root.key("pools"), &raw.pools, &common);
    suppliers::named(faults, &root.key("pools"), raw);
    let quotas = quotas::quotas(faults, &root.key("quotas"), &raw.quotas);
    let prices = price_rows(faults, &root.key("prices"), &raw.prices);
    let commitments = commitments::read(faults, &root.key("commitments"), &raw.commitments);
    let max_usd_per_hour = budgets::overall(faults, &root, raw);
    let month = budgets::overall_month(faults, &root, raw);
    budgets::guarantees(faults, &root, raw, month.flatten());
    let advise = advise::thresholds(faults, &root.key("advise"), &raw.advise);
    let prometheus = signals::prometheus(faults, &root.key("prometheus"), raw.prometheus.as_ref());
    let karpenter = karpenter::beside_karpenter(faults, &root.key("karpenter"), raw);
    Some(Policy {
        cluster: cluster?,
        boot_deadline: boot_deadline?,
        max_usd_per_hour: max_usd_per_hour?,
        month: month?,
        suppliers: suppliers?,
        pools: pools?,
        quotas: quotas?,
        unknown_quota: raw.defaults.unknown_quota,
        prices: prices?,
        commitments: commitments?,
        advise: advise?,
        prometheus: prometheus?,
        karpenter,
    })
}

fn boot_deadline(faults: &mut Faults, path: &Path, text: Option<&str>) -> Option<SignedDuration> {
    let Some(text) = text else { return Some(DEFAULT_BOOT_DEADLINE) };
    let length = faults.keep(path, read_length(text))?;
    if length < MIN_BOOT_DEADLINE {
        faults.add(path, format!("{text} is below 1m: no machine joins that fast, and every launch would be given up"));
    } else if length > MAX_BOOT_DEADLINE {
        faults.add(path, format!("{text} is above 60m: shorten it, a launch that failed is paid for until then"));
    }
    Some(length)
}

/// What the rest of the file says to every pool.
struct Common {
    /// Whether some commitment keeps capacity.
    kept: bool,
    /// Where data lies, for pools that do not say.
    data_region: data::DefaultRegion,
    /// The time zone of schedules that name none.
    zone: Zone,
}

/// Most pools: each makes a group of every type and zone that it may use, and an autoscaler is built for some hundred groups.
const MOST_POOLS: usize = 500;

fn pools(faults: &mut Faults, path: &Path, raw: &[RawPool], common: &Common) -> Option<Vec<Pool>> {
    if raw.is_empty() {
        faults.add(path, "is empty: describe at least one pool");
    }
    if raw.len() > MOST_POOLS {
        faults
            .add(path, format!("has {} pools, more than {MOST_POOLS}: let one pool allow several models and zones", raw.len()));
        return None;
    }
    let mut first = BTreeMap::new();
    let mut read = Vec::with_capacity(raw.len());
    for (at, one) in raw.iter().enumerate() {
        let path = path.index(at);
        if let Some(earlier) = first.get(one.name.as_str()) {
            faults.add(
                &path.key("name"),
                format!("{} is the name of pools[{earlier}] too: give each pool its own", quoted(&one.name)),
            );
        } else {
            first.insert(one.name.as_str(), at);
        }
        read.push(pool(faults, &path, one, common));
    }
    read.into_iter().collect()
}

fn pool(faults: &mut Faults, path: &Path, raw: &RawPool, common: &Common) -> Option<Pool> {
    let name = faults.keep(&path.key("name"), grammar::name(&raw.name, MAX_POOL_NAME));
    let (gpu_path, place) = (path.key("gpu"), path.key("where"));
    let models = faults.some_ids(&gpu_path.key("models"), &raw.gpu.models, "GPU model, such as L4");
    let gpu_counts = gpu::counts(faults, &gpu_path.key("count"), raw.gpu.count.as_ref());
    let min_compute_capability = optional(raw.gpu.min_compute_capability.as_ref(), |number| {
        let read = number.to_string().parse().map_err(|error: NoCapability| error.to_string());
        faults.keep(&gpu_path.key("minComputeCapability"), read)
    });
    let needs = gpu::needs(faults, &gpu_path.key("needs"), &raw.gpu.needs, &gpu_counts);
    let throughput = gpu::throughput(faults, &gpu_path, &raw.gpu, &models);
    let max_model_share = gpu::max_share(faults, &gpu_path.key("maxShare"), &raw.gpu, &models);
    let clouds = faults.some_ids(&place.key("clouds"), &raw.place.clouds, "cloud, such as aws");
    let regions = faults.some_ids(&place.key("regions"), &raw.place.regions, "region, such as us-east-1");
    let zones: BTreeSet<ZoneId> = faults.ids(&place.key("zones"), &raw.place.zones);
    let instance_types = type_patterns(faults, &path.key("instanceTypes"), &raw.instance_types);
    let data = data::data(faults, &place, &raw.place, &common.data_region);
    let max_zone_share = data::zone_share(faults, &place, &raw.place);
    let prefer = prefer(faults, &path.key("capacity").key("prefer"), raw, common.kept);
    let spot = spot::rules(faults, path, raw, &prefer);
    let limits = limits(faults, &path.key("limits"), &raw.limits);
    let labels = labels(faults, &path.key("template").key("labels"), &raw.template);
    let taints = taints(faults, &path.key("template").key("taints"), raw.template.taints.as_deref());
    let isolation = optional(raw.isolation.as_ref(), |isolation| {
        let max_cost_ratio =
            faults.keep(&path.key("isolation").key("maxCostRatio"), grammar::factor(&isolation.max_cost_ratio, 1, 100));
        Some(Isolation { max_cost_ratio: max_cost_ratio? })
    });
    let waiting = raw.waiting_usd_per_gpu_hour.as_ref().map_or(Some(DEFAULT_WAITING), |number| {
        faults.rate(&path.key("waitingUsdPerGpuHour"), number, "name what a waiting GPU-hour costs you")
    });
    let supplier = optional(raw.supplier.as_ref(), |name| faults.id(&path.key("supplier"), name));
    let node_class = optional(raw.node_class.as_ref(), |name| faults.id(&path.key("nodeClass"), name));
    let sharing = sharing::sharing(faults, &path.key("sharing"), raw);
    let signals = signals::signals(faults, path, raw);
    let warm_floor = floor::warm_floor(faults, path, raw, &common.zone);
    let off_hours = calendar::off_hours(faults, path, raw, &common.zone);
    floor::contradictions(
        faults,
        path,
        warm_floor.as_ref().and_then(Option::as_ref),
        off_hours.as_ref().and_then(Option::as_ref),
    );
    let held_after = held::after(faults, path, raw);
    let unhealthy = health::rules(faults, path, raw);
    let outdated = outdated::rules(faults, path, raw, &common.zone);
    let stabilization = windows::stabilization(faults, path, raw);
    Some(Pool {
        name: name?,
        workload: raw.workload,
        models,
        gpu_counts,
        min_gpu_memory: MiB::from_gib(u64::from(raw.gpu.min_memory_gib.unwrap_or(0))),
        min_node_gpu_memory: MiB::from_gib(u64::from(raw.gpu.min_memory_per_node_gib.unwrap_or(0))),
        min_compute_capability: min_compute_capability?,
        needs,
        throughput,
        clouds,
        regions,
        zones: zones.into_iter().map(String::from).collect(),
        data: data?,
        max_zone_share: max_zone_share?,
        max_model_share,
        instance_types: instance_types?,
        prefer,
        supplier: supplier?,
        node_class: node_class?,
        spot: spot?,
        limits: limits?,
        evidence: raw.evidence.unwrap_or(Evidence::Pods),
        split_capacity_type: raw.split_capacity_type.unwrap_or(false),
        labels,
        taints,
        isolation: isolation?,
        waiting: waiting?,
        sharing: sharing?,
        signals: signals?,
        warm_floor: warm_floor?,
        stabilization: stabilization?,
        off_hours: off_hours?,
        held_after: held_after?,
        unhealthy: unhealthy?,
        outdated: outdated?,
    })
}

/// Reads the name of a cluster, as `clusterName` of a policy takes it.
///
/// # Errors
/// What is wrong with it, and how to mend it.
pub fn cluster_name(text: &str) -> Result<crate::base::ids::ClusterName, String> {
    grammar::name(text, MAX_CLUSTER_NAME)
}

fn type_patterns(faults: &mut Faults, path: &Path, raw: &[String]) -> Option<Vec<TypePattern>> {
    faults.unrepeated(path, raw, |text| quoted(text));
    let read: Vec<_> =
        raw.iter().enumerate().map(|(at, text)| faults.keep(&path.index(at), grammar::type_pattern(text))).collect();
    read.into_iter().collect()
}

/// How a pool buys where it does not say: work that can be repeated takes spot first; serving people does not, unless that is best
/// effort, and neither does work that a reclaim would lose whole. Capacity that commitments keep is paid for, so nobody goes without it
/// by saying nothing.
fn default_prefer(raw: &RawPool, kept: bool) -> Vec<CapacityType> {
    let spot_first = match raw.workload {
        Workload::Inference => raw.tier == Some(Tier::BestEffort),
        Workload::Training | Workload::Batch | Workload::Dev => !spot::saves_nothing(raw),
    };
    let kept = kept.then_some(CapacityType::Reserved);
    kept.into_iter().chain(spot_first.then_some(CapacityType::Spot)).chain([CapacityType::OnDemand]).collect()
}

fn prefer(faults: &mut Faults, path: &Path, raw: &RawPool, kept: bool) -> Vec<CapacityType> {
    let Some(list) = &raw.capacity.prefer else { return default_prefer(raw, kept) };
    if list.is_empty() {
        faults.add(path, "is empty: name at least one of reserved, spot and on-demand, or leave it out");
    }
    faults.unrepeated(path, list, CapacityType::to_string);
    list.clone()
}

fn limits(faults: &mut Faults, path: &Path, raw: &RawLimits) -> Option<Limits> {
    let min_nodes = raw.min_nodes.unwrap_or(0);
    if min_nodes > raw.max_nodes {
        faults.add(path, format!("minNodes {min_nodes} is above maxNodes {}: lower minNodes or raise maxNodes", raw.max_nodes));
    }
    if raw.max_nodes > MAX_NODES {
        faults.add(
            &path.key("maxNodes"),
            format!("{} is above {MAX_NODES}, more than a cluster can have: lower it", raw.max_nodes),
        );
    }
    let rate = |faults: &mut Faults, key: &str, number: Option<&Number>, cure: &str| {
        optional(number, |number| faults.rate(&path.key(key), number, cure))
    };
    let max_usd_per_hour =
        rate(faults, "maxUsdPerHour", raw.max_usd_per_hour.as_ref(), "name a rate, or close the pool with maxNodes: 0")?;
    let guaranteed = rate(faults, "guaranteedUsdPerHour", raw.guaranteed_usd_per_hour.as_ref(), "name a rate, or remove it")?;
    let month = budgets::month(faults, path, raw.max_usd_per_month.as_ref(), raw.monthly_pace.as_ref())?;
    Some(Limits { min_nodes, max_nodes: raw.max_nodes, max_usd_per_hour, month, guaranteed: guaranteed.unwrap_or_default() })
}

fn labels(faults: &mut Faults, path: &Path, raw: &RawTemplate) -> BTreeMap<String, String> {
    for (key, value) in &raw.labels {
        let path = path.key(key);
        let _ = faults.keep(&path, grammar::label_key(key));
        let _ = faults.keep(&path, grammar::label_value(value));
    }
    raw.labels.clone()
}

fn taints(faults: &mut Faults, path: &Path, raw: Option<&[RawTaint]>) -> Vec<Taint> {
    let Some(raw) = raw else {
        return vec![Taint { key: "nvidia.com/gpu".into(), value: "true".into(), effect: TaintEffect::NoSchedule }];
    };
    let mut seen = BTreeSet::new();
    for (at, taint) in raw.iter().enumerate() {
        let path = path.index(at);
        let _ = faults.keep(&path.key("key"), grammar::label_key(&taint.key));
        let _ = faults.keep(&path.key("value"), grammar::label_value(&taint.value));
        if AUTOSCALER_TAINTS.iter().any(|own| taint.key.starts_with(own)) && !sabotage::on("startup-taint-allowed") {
            let why = "is reserved by the autoscaler, and a node that has it never counts as ready: choose another key";
            faults.add(&path.key("key"), format!("{} {why}", quoted(&taint.key)));
        }
        if !seen.insert((taint.key.as_str(), taint.effect)) {
            faults.add(&path, format!("{} with {} is listed twice: remove one", quoted(&taint.key), taint.effect.as_str()));
        }
    }
    raw.iter().map(|taint| Taint { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect }).collect()
}

fn price_rows(faults: &mut Faults, path: &Path, raw: &[RawPrice]) -> Option<Vec<PriceRow>> {
    let mut first = BTreeMap::new();
    let mut read = Vec::with_capacity(raw.len());
    for (at, one) in raw.iter().enumerate() {
        let path = path.index(at);
        let market = (&one.cloud, &one.region, &one.zone, &one.instance_type, one.capacity_type);
        if let Some(earlier) = first.get(&market) {
            faults.add(&path, format!("prices the same market as prices[{earlier}]: remove one"));
        } else {
            first.insert(market, at);
        }
        if one.capacity_type == CapacityType::Reserved {
            faults.add(&path.key("capacityType"), "reserved has no price of its own: the entry under commitments gives it");
        }
        read.push(price_row(faults, &path, one));
    }
    read.into_iter().collect()
}

fn price_row(faults: &mut Faults, path: &Path, raw: &RawPrice) -> Option<PriceRow> {
    let cloud = faults.id(&path.key("cloud"), &raw.cloud);
    let region = faults.id(&path.key("region"), &raw.region);
    let zone = optional(raw.zone.as_deref(), |text| faults.id(&path.key("zone"), text));
    let instance_type = faults.id(&path.key("instanceType"), &raw.instance_type);
    let price = faults.rate(&path.key("usdPerHour"), &raw.usd_per_hour, "name what one node costs per hour");
    Some(PriceRow {
        cloud: cloud?,
        region: region?,
        zone: zone?,
        instance_type: instance_type?,
        capacity_type: raw.capacity_type,
        price: price?,
    })
}

/// Reads what may be absent: `None` is a fault, `Some(None)` is absent.
#[expect(clippy::option_option, reason = "absent and wrong are different: one is a value, the other a fault already reported")]
fn optional<R, T>(raw: Option<R>, read: impl FnOnce(R) -> Option<T>) -> Option<Option<T>> {
    match raw {
        None => Some(None),
        Some(raw) => read(raw).map(Some),
    }
}
