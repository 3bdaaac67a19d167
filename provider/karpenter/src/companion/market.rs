//! The price tables by region and type.

use std::collections::HashMap;

use stoker_core::base::ids::{Cloud, InstanceType, Region};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{self, CapacityType, InstanceSpec, Place};
use stoker_core::market::price::{Entry, PriceBook};

use super::reach::Makes;

/// What the tables say of a type in a region.
#[derive(Debug, Default)]
pub(super) struct Sold {
    pub(super) on_demand: Vec<(Place, UsdPerHour)>,
    pub(super) spot: Vec<Place>,
}

/// What is sold, by region and type.
#[derive(Debug, Default)]
pub(super) struct Market(HashMap<(Cloud, Region, InstanceType), Sold>);

impl Market {
    pub(super) fn of(book: &PriceBook) -> Self {
        let mut sold: HashMap<_, Sold> = HashMap::new();
        for (market, entry) in book.entries() {
            let Place { cloud, region, instance_type, .. } = market.place.clone();
            let sold = sold.entry((cloud, region, instance_type)).or_default();
            match (market.capacity_type, entry) {
                (CapacityType::OnDemand, Entry::Price(quote)) => sold.on_demand.push((market.place.clone(), quote.price)),
                (CapacityType::Spot, _) => sold.spot.push(market.place.clone()),
                _ => {}
            }
        }
        Self(sold)
    }

    /// What is sold of a type wherever nodes may be made.
    pub(super) fn sold<'a>(&'a self, makes: &'a Makes, spec: &'a InstanceSpec) -> impl Iterator<Item = &'a Sold> {
        let key = |region: &Region| (makes.cloud.clone(), region.clone(), spec.instance_type.clone());
        makes.regions.iter().filter_map(move |region| self.0.get(&key(region)))
    }

    /// The markets of a type in which nodes may be made, but for reserved capacity: the tables do not have it.
    pub(super) fn markets<'a>(&'a self, makes: &'a Makes, spec: &'a InstanceSpec) -> impl Iterator<Item = offer::Market> {
        let may = |of: CapacityType| makes.capacity_types.contains(&of);
        self.sold(makes, spec).flat_map(move |sold| {
            let on_demand = sold.on_demand.iter().map(|(place, _)| (place, CapacityType::OnDemand));
            let spot = sold.spot.iter().map(|place| (place, CapacityType::Spot));
            let made = on_demand.chain(spot).filter(move |(_, of)| may(*of));
            made.map(|(place, capacity_type)| offer::Market { place: place.clone(), capacity_type })
        })
    }

    /// The highest price on demand of what a `NodePool` may make; `None` where none is known.
    pub(super) fn dearest(&self, makes: &Makes) -> Option<UsdPerHour> {
        let sold = makes.types.iter().flat_map(|spec| self.sold(makes, spec));
        sold.flat_map(|sold| &sold.on_demand).map(|(_, price)| *price).max()
    }
}
