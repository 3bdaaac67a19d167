//! What the region sells, as the decision is told: a price book, a policy, and the groups that follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, GpuModel, IdError, InstanceType, Region, SupplierName, ZoneId};
use stoker_core::base::units::{MiB, Milli};
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::{Entry, PriceBook, Quote, QuoteKind};
use stoker_core::policy::Policy;

use super::cloud::{SHAPES, SPOT_MILLI, spot_price};

pub(super) const CLOUD: &str = "aws";
pub(super) const REGION: &str = "us-west-2";
pub(super) const POOL: &str = "training";
pub(super) const MODEL: &str = "V100";
/// Ids of the zones.
const ZONES: [&str; SPOT_MILLI.len()] = ["usw2-az1", "usw2-az2", "usw2-az3"];

/// The only supplier.
pub(super) fn supplier() -> Result<SupplierName, IdError> {
    SupplierName::new("replay")
}

/// The index of a zone and of a shape, as [`super::cloud`] has them.
pub(super) fn indices(place: &Place) -> Option<(usize, usize)> {
    let zone = ZONES.iter().position(|zone| *zone == place.zone.as_str())?;
    let shape = SHAPES.iter().position(|shape| shape.name == place.instance_type.as_str())?;
    Some((zone, shape))
}

/// The groups of a policy here.
pub(super) fn catalogue(policy: Policy, start: Timestamp) -> Result<Catalogue, IdError> {
    let facts = MarketFacts { clouds: [Cloud::new(CLOUD)?].into(), ..MarketFacts::default() };
    Ok(Catalogue::derive(&Arc::new(policy), &book(start)?, &BTreeMap::from([(supplier()?, facts)])))
}

fn book(start: Timestamp) -> Result<PriceBook, IdError> {
    let mut book = PriceBook::new();
    let cloud = Cloud::new(CLOUD)?;
    for shape in &SHAPES {
        let instance_type = InstanceType::new(shape.name)?;
        book.insert_spec(InstanceSpec {
            cloud: cloud.clone(),
            instance_type: instance_type.clone(),
            gpu_model: GpuModel::new(MODEL)?,
            gpus: Milli(shape.gpus * 1000),
            gpu_memory: MiB::from_gib(16),
            vcpus: Some(shape.vcpus),
            memory: Some(MiB::from_gib(shape.memory_gib)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        for (zone, id) in ZONES.iter().enumerate() {
            let (region, id) = (Region::new(REGION)?, ZoneId::new(id)?);
            let place = Place { cloud: cloud.clone(), region, zone: id, instance_type: instance_type.clone() };
            let prices = [(CapacityType::Spot, spot_price(shape, zone)), (CapacityType::OnDemand, shape.on_demand)];
            for (capacity_type, price) in prices {
                // Of a kind that does not lapse, as the month's prices stay what they are.
                let quote = Quote { price, kind: QuoteKind::Operator, as_of: Some(start), source: Arc::from("replay") };
                book.insert(Market { place: place.clone(), capacity_type }, Entry::Price(quote));
            }
        }
    }
    Ok(book)
}
