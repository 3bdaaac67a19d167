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
        makes.regions.iter().filter_map(move |region| self.sold_in(region, makes, spec))
    }

    fn sold_in(&self, region: &Region, makes: &Makes, spec: &InstanceSpec) -> Option<&Sold> {
        self.0.get(&(makes.cloud.clone(), region.clone(), spec.instance_type.clone()))
    }

    /// The markets of a type in which nodes may be made; `None` where the tables do not have all of them, as they have no reserved capacity.
    pub(super) fn markets(&self, makes: &Makes, spec: &InstanceSpec) -> Option<Vec<offer::Market>> {
        let mut markets = Vec::new();
        for region in &makes.regions {
            let sold = self.sold_in(region, makes, spec)?;
            for capacity_type in &makes.capacity_types {
                let places: Vec<&Place> = match capacity_type {
                    CapacityType::OnDemand => sold.on_demand.iter().map(|(place, _)| place).collect(),
                    CapacityType::Spot => sold.spot.iter().collect(),
                    CapacityType::Reserved => return None,
                };
                let of = |place: &Place| offer::Market { place: place.clone(), capacity_type: *capacity_type };
                markets.extend(places.into_iter().map(of));
            }
        }
        Some(markets).filter(|markets| !markets.is_empty())
    }

    /// The highest price on demand of what a `NodePool` may make; `None` where none is known.
    pub(super) fn dearest(&self, makes: &Makes) -> Option<UsdPerHour> {
        let sold = makes.types.iter().flat_map(|spec| self.sold(makes, spec));
        sold.flat_map(|sold| &sold.on_demand).map(|(_, price)| *price).max()
    }
}
