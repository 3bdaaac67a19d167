//! Derivation of the node groups from the policy and the prices.

mod data;
mod exclusion;
mod gpu;
mod prices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ids::{NodeGroupId, SupplierName, ZoneName};
use crate::base::kinds::TaintEffect;
use crate::base::sabotage;
use crate::base::units::MiB;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::isolation::SHAPE_TAINT;
use crate::catalogue::live::LiveQuotas;
use crate::catalogue::template::{self, label_value};
use crate::facts::supply::{CannotMake, MarketFacts};
use crate::market::hazard::Prior;
use crate::market::labels::{self, Machine};
use crate::market::offer::{CapacityType, InstanceSpec, Market, Offer, Place};
use crate::market::price::{Entry, NoSignal, PriceBook, Quote, QuoteKind};
use crate::market::sharing::{GPU_RESOURCE, Shares};
use crate::policy::rules::commitment::Paid;
use crate::policy::{Policy, Pool};

pub use exclusion::{Exclusion, LeftOut};
pub(crate) use prices::OperatorPrices;

impl Catalogue {
    /// Derives the groups.
    pub fn derive(policy: &Arc<Policy>, prices: &PriceBook, suppliers: &BTreeMap<SupplierName, MarketFacts>) -> Self {
        let from = Sources { policy, prices, operator: OperatorPrices::new(policy), suppliers };
        // One entry a place and its capacity types, gathered in one walk over the book.
        let mut places: BTreeMap<&Place, BTreeMap<CapacityType, &Entry>> = BTreeMap::new();
        for (market, entry) in prices.entries() {
            places.entry(&market.place).or_default().insert(market.capacity_type, entry);
        }
        // Of a type whose zones no table tells, the operator's word names them.
        for place in from.operator.places().filter(|place| prices.unzoned_quote(place).is_some()) {
            places.entry(place).or_default();
        }
        let known =
            |pool| Known { pool, slowest: gpu::slowest(pool, prices), reach: data::Distances::of(pool, prices.transfers()) };
        let pools: Vec<Known<'_>> = policy.pools.iter().map(known).collect();
        let (mut groups, mut left_out) = (BTreeMap::new(), Vec::new());
        for (place, entries) in places {
            let Some(spec) = prices.spec(&place.cloud, &place.instance_type) else { continue };
            for known in pools.iter().filter(|known| concerns(known.pool, place, spec)) {
                match build(&from, known, place, spec, &entries) {
                    Ok(built) => groups.extend(built.into_iter().map(|g| (g.id.clone(), Arc::new(g)))),
                    Err(why) => left_out.push(LeftOut { pool: known.pool.name.clone(), place: place.clone(), why }),
                }
            }
        }
        Self { live: LiveQuotas::of(policy, suppliers), ..Self::of(Arc::clone(policy), groups, left_out) }
    }
}

/// Whether the pool asks for this GPU in this place at all; what it does not ask for is not worth a reason.
fn concerns(pool: &Pool, place: &Place, spec: &InstanceSpec) -> bool {
    pool.models.contains(&spec.gpu_model) && pool.clouds.contains(&place.cloud) && pool.regions.contains(&place.region)
}

/// A pool, and what is worked out of it once for all places.
struct Known<'a> {
    pool: &'a Pool,
    /// What a GPU of its slowest model does.
    slowest: Option<u128>,
    /// What stands between it and its data; `None` where it has none.
    reach: Option<data::Distances<'a>>,
}

/// What groups are derived from, beside a pool and a place.
struct Sources<'a> {
    policy: &'a Policy,
    prices: &'a PriceBook,
    operator: OperatorPrices,
    suppliers: &'a BTreeMap<SupplierName, MarketFacts>,
}

/// The supplier that makes a pool's nodes in a place: the one that the pool names, else the first of the policy's that can; where the policy
/// names none, of those that there are.
fn maker<'a>(
    policy: &Policy,
    pool: &Pool,
    suppliers: &'a BTreeMap<SupplierName, MarketFacts>,
    place: &Place,
) -> Result<(&'a SupplierName, &'a MarketFacts), Exclusion> {
    let listed = policy.suppliers.iter().map(|one| &one.name);
    let any = suppliers.keys().filter(|_| policy.suppliers.is_empty());
    let mut first = None;
    for name in listed.chain(any).filter(|name| pool.supplier.as_ref().is_none_or(|wanted| wanted == *name)) {
        let Some((name, facts)) = suppliers.get_key_value(name) else { continue };
        match facts.can_make(place, pool.node_class.as_ref()) {
            Ok(()) => return Ok((name, facts)),
            Err(CannotMake::Cloud) => {}
            Err(why) => first = first.or(Some(Exclusion::CannotMake { supplier: name.clone(), why })),
        }
    }
    Err(first.unwrap_or(Exclusion::NoSupplier))
}

fn build(
    from: &Sources<'_>,
    Known { pool, slowest, reach }: &Known<'_>,
    place: &Place,
    spec: &Arc<InstanceSpec>,
    entries: &BTreeMap<CapacityType, &Entry>,
) -> Result<Vec<Group>, Exclusion> {
    let Sources { policy, prices, operator, suppliers } = from;
    let maker = maker(policy, pool, suppliers, place);
    let told = maker.as_ref().ok().and_then(|(_, facts)| facts.machine(place)).map(|told| told.corrected(spec));
    let spec = told.as_ref().unwrap_or(spec);
    if !pool.instance_types.is_empty() && !pool.instance_types.iter().any(|p| p.matches(&place.instance_type)) {
        return Err(Exclusion::InstanceType);
    }
    let gpus = spec.advertised_gpus();
    if !pool.gpu_counts.is_empty() && !pool.gpu_counts.contains(&gpus) {
        return Err(Exclusion::GpuCount { has: gpus, want: pool.gpu_counts.iter().copied().collect() });
    }
    let facts = prices.gpu_of(spec);
    let machine = Machine { spec, gpu: facts, split: pool.sharing.as_ref().map(|sharing| &sharing.split) };
    let shares = pool.sharing.as_ref().map(|sharing| Shares::of(&sharing.split, spec, facts).map_err(Exclusion::Sharing));
    let shares = shares.transpose()?;
    let memory = spec.memory_per_advertised_gpu();
    let least = shares.as_ref().and_then(Shares::least_memory).unwrap_or(memory);
    if least < pool.min_gpu_memory {
        return Err(Exclusion::GpuMemory { has: least.0, want: pool.min_gpu_memory.0 });
    }
    let of_node = MiB(memory.0.saturating_mul(u64::from(gpus)));
    if of_node < pool.min_node_gpu_memory {
        return Err(Exclusion::NodeGpuMemory { has: of_node.0, want: pool.min_node_gpu_memory.0 });
    }
    gpu::can_do(pool, spec, facts)?;
    let work = gpu::work(pool, spec, facts, *slowest, shares.as_ref())?;
    let (supplier, facts) = maker?;
    let zone_name = zone_name(facts, place);
    if !pool.zones.is_empty() && !pool.zones.contains(zone_name.as_str()) && !pool.zones.contains(place.zone.as_str()) {
        return Err(Exclusion::Zone);
    }
    let transfer = reach.as_ref().map_or(Ok(None), |reach| reach.to(place))?;
    let entry = |market: &Market| {
        let listed = entries.get(&market.capacity_type).copied();
        let known = facts.quotes.get(market).map(|quote| live(listed, quote)).or_else(|| listed.cloned());
        operator.over(market, known)
    };
    let offers: Vec<Offer> = pool
        .prefer
        .iter()
        .map(|&capacity_type| {
            let market = Market { place: place.clone(), capacity_type };
            let on_demand = || entry(&Market { capacity_type: CapacityType::OnDemand, ..market.clone() });
            let kept = || (capacity_type == CapacityType::Reserved).then(|| kept(policy, place, on_demand)).flatten();
            let entry = entry(&market).or_else(kept);
            let prior = (capacity_type == CapacityType::Spot).then(|| Prior::of(prices.reclaims(place)));
            Offer { market, entry, prior }
        })
        .collect();
    let split: Vec<(Option<CapacityType>, Vec<Offer>)> = if pool.split_capacity_type || facts.labels_capacity_type {
        offers.into_iter().map(|offer| (Some(offer.market.capacity_type), vec![offer])).collect()
    } else {
        vec![(None, offers)]
    };
    split
        .into_iter()
        .map(|(capacity_type, offers)| {
            let id = group_id(pool, place, &zone_name, capacity_type)?;
            let mut template =
                template::template(&policy.cluster, pool, &id, place, &zone_name, spec).ok_or(Exclusion::UnknownSize)?;
            if let Some(shares) = &shares {
                shares.dress(&mut template);
            }
            labels::add(&mut template.labels, machine, capacity_type);
            Ok(Group {
                id,
                pool: pool.name.clone(),
                place: place.clone(),
                zone_name: zone_name.clone(),
                spec: Arc::clone(spec),
                supplier: supplier.clone(),
                node_class: pool.node_class.clone(),
                template,
                slices: shares.as_ref().map(|shares| shares.slices),
                work,
                transfer,
                offers,
            })
        })
        .collect()
}

/// The price of capacity that a commitment keeps for us: what was paid ahead, else the on-demand price that it is billed at. Without a
/// commitment there is none to be had.
fn kept(policy: &Policy, place: &Place, on_demand: impl FnOnce() -> Option<Entry>) -> Option<Entry> {
    let Some(capacity) = policy.commitments.iter().find_map(|commitment| commitment.capacity_at(place)) else {
        return Some(Entry::NoSignal(NoSignal::Unreserved));
    };
    match capacity.paid {
        Paid::OnDemand => on_demand(),
        Paid::Ahead { rate, .. } => {
            let (kind, source) = (QuoteKind::Operator, Arc::from("policy commitments"));
            Some(Entry::Price(Quote { price: rate.per(capacity.nodes), kind, as_of: None, source }))
        }
    }
}

/// A live quote replaces a table's, but cannot make orderable what is only listed.
pub(crate) fn live(table: Option<&Entry>, quote: &Quote) -> Entry {
    match table {
        Some(Entry::NoSignal(NoSignal::ListOnly)) => Entry::NoSignal(NoSignal::ListOnly),
        _ => Entry::Price(quote.clone()),
    }
}

fn zone_name(facts: &MarketFacts, place: &Place) -> ZoneName {
    facts.zone_names.get(&(place.cloud.clone(), place.zone.clone())).cloned().unwrap_or_else(|| ZoneName::from(&place.zone))
}

/// The group's id. The autoscaler keeps a group's template for long, so what an operator can change of it (labels, taints, sharing)
/// and what its nodes are made with (the node class) is part of the id by a short digest; the defaults leave no mark.
///
/// Figures of the machine (CPUs, memory, pods) leave no mark. The autoscaler simulates a group that
/// had a node with a copy of that node, which has the machine's own figures whatever the tables say.
/// It simulates a group that had none with its current template.
fn group_id(pool: &Pool, place: &Place, zone_name: &ZoneName, split: Option<CapacityType>) -> Result<NodeGroupId, Exclusion> {
    let mut id = format!("{}.{}.{zone_name}", pool.name, label_value(place.instance_type.as_str()).replace('.', "-"));
    if let Some(capacity_type) = split {
        id.push('.');
        id.push_str(capacity_type.as_str());
    }
    if let Some(mark) = custom_mark(pool) {
        id.push('.');
        id.push_str(&mark);
    }
    // A group's id is a label of its nodes.
    if id.len() > 63 {
        return Err(Exclusion::IdTooLong(id));
    }
    NodeGroupId::new(&id).map_err(|_| Exclusion::IdTooLong(id))
}

fn custom_mark(pool: &Pool) -> Option<String> {
    let default_taint = matches!(
        pool.taints.as_slice(),
        [t] if t.key == GPU_RESOURCE && t.value == "true" && t.effect == TaintEffect::NoSchedule
    );
    let plain = pool.labels.is_empty() && default_taint && pool.isolation.is_none() && pool.sharing.is_none();
    if plain && pool.node_class.is_none() || sabotage::on("shape-keeps-id") {
        return None;
    }
    // FNV-1a: stable across releases and platforms, which the standard hasher does not promise.
    let mut hash: u32 = 0x811c_9dc5;
    let mut feed = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    };
    for (key, value) in &pool.labels {
        feed(key);
        feed(value);
    }
    for taint in &pool.taints {
        feed(&taint.key);
        feed(&taint.value);
        feed(taint.effect.as_str());
    }
    if pool.isolation.is_some() {
        feed(SHAPE_TAINT);
    }
    if let Some(sharing) = &pool.sharing {
        feed(&sharing.split.mark());
    }
    if let Some(class) = &pool.node_class {
        feed(class.as_str());
    }
    Some(format!("{:04x}", (hash >> 16) ^ (hash & 0xffff)))
}
