//! Distance from a pool's places to its data, and the cost of the transfer. Computed once per
//! region.

use std::collections::BTreeMap;

use super::Exclusion;
use crate::base::ids::{Cloud, Region};
use crate::market::offer::Place;
use crate::market::transfer::{Data, MaxDistance, Site, Transfer, TransferPrices};
use crate::policy::Pool;

/// What stands between a pool's data and the regions that the pool names.
pub(super) struct Distances<'a> {
    data: &'a Data,
    prices: &'a TransferPrices,
    /// Of the other regions that the pool names.
    away: BTreeMap<&'a Cloud, BTreeMap<&'a Region, Result<Option<Transfer>, Exclusion>>>,
}

impl<'a> Distances<'a> {
    /// `None` where the pool has no data.
    pub(super) fn of(pool: &'a Pool, prices: &'a TransferPrices) -> Option<Self> {
        let mut reach = Self { data: pool.data.as_ref()?, prices, away: BTreeMap::new() };
        for cloud in &pool.clouds {
            let away = pool.regions.iter().filter(|region| !reach.is_home(cloud, region));
            let away = away.map(|region| (region, reach.weigh(cloud, region))).collect();
            reach.away.insert(cloud, away);
        }
        Some(reach)
    }

    /// A region other than the data's own.
    fn weigh(&self, cloud: &Cloud, region: &Region) -> Result<Option<Transfer>, Exclusion> {
        let site = Site { cloud: cloud.clone(), region: region.clone(), zone: None };
        let continent = |site: &Site| {
            self.prices.continent(&site.cloud, &site.region).ok_or_else(|| Exclusion::UnknownContinent(site.clone()))
        };
        let near = match self.data.within {
            MaxDistance::Any => true,
            MaxDistance::Continent => continent(&self.data.at)? == continent(&site)?,
            MaxDistance::Region => false,
        };
        if near { self.transfer(site) } else { Err(Exclusion::TooFar { data: self.data.at.clone(), within: self.data.within }) }
    }

    fn is_home(&self, cloud: &Cloud, region: &Region) -> bool {
        self.data.at.cloud == *cloud && self.data.at.region == *region
    }

    fn transfer(&self, to: Site) -> Result<Option<Transfer>, Exclusion> {
        let Some(set) = self.data.set else { return Ok(None) };
        match self.prices.price(&self.data.at, &to) {
            Some(price) => Ok(Some(Transfer { per_read: price.of(set.gib), every: set.every })),
            None => Err(Exclusion::NoTransferPrice { from: self.data.at.clone(), to }),
        }
    }

    /// What reading the data costs a node there; `None` where it lies there, or nothing is read.
    pub(super) fn to(&self, place: &Place) -> Result<Option<Transfer>, Exclusion> {
        if self.is_home(&place.cloud, &place.region) {
            let elsewhere = self.data.at.zone.as_ref().is_some_and(|zone| *zone != place.zone);
            let here = || Site { cloud: place.cloud.clone(), region: place.region.clone(), zone: Some(place.zone.clone()) };
            return if elsewhere { self.transfer(here()) } else { Ok(None) };
        }
        let known = self.away.get(&place.cloud).and_then(|regions| regions.get(&place.region));
        known.map_or_else(|| self.weigh(&place.cloud, &place.region), Clone::clone)
    }
}
