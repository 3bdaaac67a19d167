//! Instance types as plain numbers, from a catalogue and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{self, Cloud, GpuModel, IdError, SupplierName, ZoneId};
use stoker_core::base::units::{MiB, Milli, UsdMicros, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::policy::Policy;

use super::{InstanceType, Resources};

/// The supplier that makes the nodes of a simulation; catalogues have to name it.
pub const SUPPLIER: &str = "simulated";

/// When a simulation begins.
pub const START: Timestamp = Timestamp::UNIX_EPOCH;

/// Where instance types made of numbers are sold.
pub const CLOUD: &str = "aws";
/// Their region.
pub const REGION: &str = "us-east-1";
/// Their only zone.
pub const ZONE: &str = "use1-az1";

/// The instance types of a catalogue by name: what a node leaves to pods as its template says, for its on-demand price in the cheapest zone.
/// A type without one is left out.
pub fn instance_types(catalogue: &Catalogue) -> Vec<InstanceType> {
    listed(catalogue, |_| true, |of| of == CapacityType::OnDemand)
}

/// The instance types of a pool, as [`instance_types`] has them.
pub fn instance_types_of(catalogue: &Catalogue, pool: &str) -> Vec<InstanceType> {
    listed(catalogue, |group| group.pool.as_str() == pool, |of| of == CapacityType::OnDemand)
}

/// The instance types of a pool, each for the least that any way of buying it costs which the pool takes.
///
/// No fleet of the pool pays less for a node, so bounds on its bill are made of these.
pub fn cheapest_of(catalogue: &Catalogue, pool: &str) -> Vec<InstanceType> {
    listed(catalogue, |group| group.pool.as_str() == pool, |_| true)
}

fn listed(catalogue: &Catalogue, counts: impl Fn(&Group) -> bool, bought: impl Fn(CapacityType) -> bool) -> Vec<InstanceType> {
    let mut types: BTreeMap<&str, InstanceType> = BTreeMap::new();
    for group in catalogue.groups.values().filter(|group| counts(group)) {
        let offers = group.offers.iter().filter(|offer| bought(offer.market.capacity_type));
        let quotes = offers.filter_map(|offer| offer.quote(Wall(START)).ok());
        let Some(price) = quotes.map(|quote| quote.price).min() else { continue };
        let room = &group.template.allocatable;
        let name = group.place.instance_type.as_str();
        let of = types.entry(name).or_insert_with(|| InstanceType {
            name: name.to_owned(),
            model: group.spec.gpu_model.to_string(),
            allocatable: Resources {
                gpus: room.gpus,
                milli_cpu: u32::try_from(room.milli_cpu).unwrap_or(u32::MAX),
                memory_mib: u32::try_from(room.memory.0).unwrap_or(u32::MAX),
            },
            hourly: UsdMicros(price.0),
        });
        of.hourly = of.hourly.min(UsdMicros(price.0));
    }
    types.into_values().collect()
}

/// A price book of those types, in one zone and on demand.
///
/// A node's template is made of its CPUs and memory, from which the kubelet's reserve goes off; those here are what comes nearest to what
/// the types leave to pods. [`catalogue`] has them to the unit.
///
/// # Errors
/// When a name or a model is no id.
pub fn price_book(types: &[InstanceType]) -> Result<PriceBook, IdError> {
    let mut book = PriceBook::new();
    let (cloud, region, zone) = (Cloud::new(CLOUD)?, ids::Region::new(REGION)?, ZoneId::new(ZONE)?);
    for of in types {
        let instance_type = ids::InstanceType::new(&of.name)?;
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: instance_type.clone(),
            gpu_model: GpuModel::new(&of.model)?,
            gpus: Milli(of.allocatable.gpus * 1000),
            gpu_memory: MiB::from_gib(16),
            vcpus: Some(of.allocatable.milli_cpu.div_ceil(1000)),
            memory: Some(MiB(memory_that_leaves(of.allocatable.memory_mib.into()))),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let place = Place { cloud: cloud.clone(), region: region.clone(), zone: zone.clone(), instance_type };
        // Of a kind that does not lapse.
        let (price, kind) = (UsdPerHour(of.hourly.0), QuoteKind::Operator);
        let quote = Quote { price, kind, as_of: Some(Timestamp::UNIX_EPOCH), source: Arc::from("simulation") };
        book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
    }
    Ok(book)
}

/// The memory of a machine that leaves so much to pods: a thirteenth goes to the hypervisor, 1,465 MiB to the kubelet, 100 to its eviction
/// threshold.
const fn memory_that_leaves(mib: u64) -> u64 {
    ((mib + 1_565) * 1_000).div_ceil(925)
}

/// The groups of a policy from a price book, made by the simulation's supplier.
///
/// # Errors
/// Never for the names that are built in.
pub fn derive(policy: &Arc<Policy>, book: &PriceBook) -> Result<Catalogue, IdError> {
    let clouds = policy.pools.iter().flat_map(|pool| pool.clouds.iter().cloned()).collect();
    let facts = MarketFacts { clouds, ..MarketFacts::default() };
    Ok(Catalogue::derive(policy, book, &BTreeMap::from([(SupplierName::new(SUPPLIER)?, facts)])))
}

/// The groups of a policy from types made of numbers; their nodes leave to pods just what the types say.
///
/// # Errors
/// When a name or a model is no id.
pub fn catalogue(policy: &Arc<Policy>, types: &[InstanceType]) -> Result<Catalogue, IdError> {
    let mut catalogue = derive(policy, &price_book(types)?)?;
    let by_name: BTreeMap<&str, &InstanceType> = types.iter().map(|of| (of.name.as_str(), of)).collect();
    for group in catalogue.groups.values_mut() {
        let Some(of) = by_name.get(group.place.instance_type.as_str()) else { continue };
        let room = &mut Arc::make_mut(group).template.allocatable;
        room.milli_cpu = of.allocatable.milli_cpu.into();
        room.memory = MiB(of.allocatable.memory_mib.into());
    }
    Ok(catalogue)
}
