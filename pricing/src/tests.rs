//! Tests of the built-in tables and of what the loader says of broken ones.

use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::PriceBook;

use crate::{EMBEDDED, embedded};

mod faults;
mod figures;
mod mutations;
mod transfers;

/// The built-in book; parsed anew by each test, which keeps them apart.
fn book() -> PriceBook {
    embedded().unwrap_or_else(|faults| panic!("{faults}"))
}

fn market(cloud: &str, region: &str, zone: &str, instance_type: &str, capacity_type: CapacityType) -> Market {
    Market { place: place(cloud, region, zone, instance_type), capacity_type }
}

fn place(cloud: &str, region: &str, zone: &str, instance_type: &str) -> Place {
    Place {
        cloud: Cloud::new(cloud).unwrap(),
        region: Region::new(region).unwrap(),
        zone: ZoneId::new(zone).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    }
}

/// A built-in table's text.
fn table(name: &str) -> &'static str {
    EMBEDDED.into_iter().find(|(path, _)| path.ends_with(&format!("/{name}"))).unwrap().1
}
