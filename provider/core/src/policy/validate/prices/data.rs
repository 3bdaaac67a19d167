//! Where data is said to lie, against the tables: a misspelt region would have no transfer price, and leave every place out.

use crate::base::ids::{Cloud, Region};
use crate::market::price::PriceBook;
use crate::market::transfer::{Continent, MaxDistance};
use crate::policy::validate::{Faults, data::site};
use crate::policy::{Path, RawWhere};

use super::Known;

impl Known<'_> {
    /// A `dataRegion`; one that cannot be read is reported as that by the rules.
    pub(super) fn data_region(&self, faults: &mut Faults, path: &Path, text: Option<&str>) {
        let Some(Ok(site)) = text.map(site) else { return };
        let clouds = self.cloud(faults, path, site.cloud.as_str());
        clouds.region(faults, path, site.region.as_str());
        if let Some(zone) = &site.zone {
            clouds.zone_id(faults, path, site.region.as_str(), zone.as_str());
        }
    }

    /// What a pool says of its data.
    pub(super) fn data(&self, faults: &mut Faults, path: &Path, raw: &RawWhere, default: Option<&str>, book: &PriceBook) {
        self.data_region(faults, &path.key("dataRegion"), raw.data_region.as_deref());
        let text = raw.data_region.as_deref().or(default);
        let (Some(MaxDistance::Continent), Some(Ok(home))) = (raw.max_distance, text.map(site)) else { return };
        let continents = book.transfers();
        let path = path.key("maxDistance");
        let Some(here) = continents.continent(&home.cloud, &home.region) else {
            // A region that no table knows is told already.
            if self.clouds.get(home.cloud.as_str()).is_some_and(|cloud| cloud.regions.contains_key(home.region.as_str())) {
                let message = format!("continent does not work for {home}, whose continent is unknown: write region or any");
                faults.add(&path, message);
            }
            return;
        };
        let named = raw.clouds.iter().flat_map(|cloud| raw.regions.iter().map(move |region| (cloud, region)));
        let named = named.filter_map(|(cloud, region)| {
            let (cloud, region) = (Cloud::new(cloud).ok()?, Region::new(region).ok()?);
            Some((continents.continent(&cloud, &region)?, format!("{cloud}/{region}")))
        });
        let named: Vec<(Continent, String)> = named.collect();
        if !named.is_empty() && named.iter().all(|(continent, _)| *continent != here) {
            let elsewhere: Vec<String> = named.iter().map(|(continent, name)| format!("{name} in {continent}")).collect();
            faults.add(
                &path,
                format!(
                    "continent allows only {here}, where {home} is, and the pool names only {}: name a region there, or \
                     write any",
                    elsewhere.join(", ")
                ),
            );
        }
    }
}
