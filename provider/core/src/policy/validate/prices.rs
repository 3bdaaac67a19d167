//! Names that the price tables do not know. A misspelt one would not fail: it would buy nothing, forever.

mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Faults, budgets, grammar};
use crate::base::ids::GpuModel;
use crate::base::text::{nearest, quoted};
use crate::base::units::UsdPerHour;
use crate::market::offer::CapacityType;
use crate::market::price::{Entry, PriceBook};
use crate::policy::{Fault, Path, RawCommitment, RawDiscount, RawPolicy, RawPool, RawPrice, RawQuota, TypePattern};

/// Longest list of known names that a message repeats where none is near.
const MAX_LISTED: usize = 30;

/// A commitment whose node costs more than so many times the on-demand price is a slip: a price per month, or the whole term's. Prices
/// fall by up to 44 % at a time (p5 in AWS's cut of June 2025), so an old one may lie above today's on-demand price.
const MOST_TIMES_ON_DEMAND: u32 = 2;

/// Every GPU model, cloud, region, zone and instance type that the policy names and `book` does not, in file order, and every pool that
/// would share GPUs in a way that theirs cannot be; then budgets that cannot pay for the floors under them.
///
/// Names that break the grammar are reported here as unknown, and by [`super::Policy::try_from_raw`] as what they are.
pub fn check_against_prices(policy: &RawPolicy, book: &PriceBook) -> Vec<Fault> {
    let known = Known::of(book);
    let mut faults = Faults::default();
    let root = Path::root();
    let default = policy.defaults.data_region.as_deref();
    known.data_region(&mut faults, &root.key("defaults").key("dataRegion"), default);
    for (at, pool) in policy.pools.iter().enumerate() {
        let path = root.key("pools").index(at);
        known.pool(&mut faults, &path, pool);
        known.data(&mut faults, &path.key("where"), &pool.place, default, book);
        super::sharing::check_hardware(&mut faults, &path.key("sharing"), pool, book);
    }
    for (at, quota) in policy.quotas.iter().enumerate() {
        known.quota(&mut faults, &root.key("quotas").index(at), quota);
    }
    for (at, row) in policy.prices.iter().enumerate() {
        known.price(&mut faults, &root.key("prices").index(at), row);
    }
    for (at, commitment) in policy.commitments.iter().enumerate() {
        known.commitment(&mut faults, &root.key("commitments").index(at), commitment);
    }
    budgets::floors(&mut faults, &root, policy, book);
    faults.0
}

/// What is known of the markets of a type in a zone.
type Markets<'a> = BTreeMap<CapacityType, &'a Entry>;

/// What one cloud is known to have.
#[derive(Default)]
struct KnownCloud<'a> {
    /// Regions, each with those of its zones that a source tells.
    regions: BTreeMap<&'a str, BTreeSet<&'a str>>,
    types: BTreeSet<&'a str>,
    /// The sizes of memory in GiB that its GPUs of each model come with.
    sizes: BTreeMap<&'a str, BTreeSet<u64>>,
    /// By region and instance type the zones that are known to sell it, each with what is known of its markets.
    sold: BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, Markets<'a>>>,
    /// The types of each region whose zones no source tells.
    unzoned: BTreeSet<(&'a str, &'a str)>,
}

/// Every name in the price tables.
#[derive(Default)]
struct Known<'a> {
    models: BTreeSet<&'a str>,
    clouds: BTreeMap<&'a str, KnownCloud<'a>>,
}

impl<'a> Known<'a> {
    fn of(book: &'a PriceBook) -> Self {
        let mut known = Self::default();
        known.models.extend(book.gpu_models().map(GpuModel::as_str));
        for (market, entry) in book.entries() {
            let (place, cloud) = (&market.place, known.clouds.entry(market.place.cloud.as_str()).or_default());
            cloud.regions.entry(place.region.as_str()).or_default().insert(place.zone.as_str());
            cloud.types.insert(place.instance_type.as_str());
            let zones = cloud.sold.entry((place.region.as_str(), place.instance_type.as_str())).or_default();
            zones.entry(place.zone.as_str()).or_default().insert(market.capacity_type, entry);
        }
        for ((cloud, region, instance_type), _) in book.unzoned() {
            let cloud = known.clouds.entry(cloud.as_str()).or_default();
            cloud.regions.entry(region.as_str()).or_default();
            cloud.types.insert(instance_type.as_str());
            cloud.unzoned.insert((region.as_str(), instance_type.as_str()));
        }
        // A region without GPUs may still hold data.
        for (cloud, region) in book.transfers().regions() {
            known.clouds.entry(cloud.as_str()).or_default().regions.entry(region.as_str()).or_default();
        }
        for spec in book.specs() {
            known.models.insert(spec.gpu_model.as_str());
            let cloud = known.clouds.entry(spec.cloud.as_str()).or_default();
            cloud.types.insert(spec.instance_type.as_str());
            cloud.sizes.entry(spec.gpu_model.as_str()).or_default().insert(spec.gpu_memory.0 / 1024);
        }
        known
    }

    fn pool(&self, faults: &mut Faults, path: &Path, pool: &RawPool) {
        let place = path.key("where");
        self.models(faults, &path.key("gpu").key("models"), &pool.gpu.models);
        for (at, cloud) in pool.place.clouds.iter().enumerate() {
            self.cloud(faults, &place.key("clouds").index(at), cloud);
        }
        let clouds = Clouds(pool.place.clouds.iter().filter_map(|cloud| self.clouds.get_key_value(cloud.as_str())).collect());
        for (at, region) in pool.place.regions.iter().enumerate() {
            clouds.region(faults, &place.key("regions").index(at), region);
        }
        for (at, zone) in pool.place.zones.iter().enumerate() {
            clouds.zone(faults, &place.key("zones").index(at), &pool.place.regions, zone);
        }
        for (at, text) in pool.instance_types.iter().enumerate() {
            clouds.instance_type(faults, &path.key("instanceTypes").index(at), text);
        }
    }

    fn quota(&self, faults: &mut Faults, path: &Path, quota: &RawQuota) {
        let clouds = self.cloud(faults, &path.key("cloud"), &quota.cloud);
        if let Some(region) = &quota.region {
            clouds.region(faults, &path.key("region"), region);
        }
        self.models(faults, &path.key("models"), &quota.models);
    }

    fn price(&self, faults: &mut Faults, path: &Path, row: &RawPrice) {
        let before = faults.0.len();
        let clouds = self.cloud(faults, &path.key("cloud"), &row.cloud);
        clouds.region(faults, &path.key("region"), &row.region);
        if let Some(zone) = &row.zone {
            clouds.zone_id(faults, &path.key("zone"), &row.region, zone);
        }
        clouds.instance_type(faults, &path.key("instanceType"), &row.instance_type);
        if faults.0.len() > before {
            return;
        }
        if let Some(message) = clouds.without_effect(row) {
            faults.add(path, message);
        }
    }

    fn commitment(&self, faults: &mut Faults, path: &Path, raw: &RawCommitment) {
        let clouds = self.cloud(faults, &path.key("cloud"), &raw.cloud);
        if let Some(model) = &raw.model {
            self.model(faults, &path.key("model"), model);
        }
        if let Some(model) = &raw.model {
            clouds.memory(faults, path, raw, model);
        }
        let before = faults.0.len();
        if let Some(region) = &raw.region {
            clouds.region(faults, &path.key("region"), region);
            if let Some(zone) = &raw.zone {
                clouds.zone_id(faults, &path.key("zone"), region, zone);
            }
        }
        if let Some(name) = &raw.instance_type {
            clouds.instance_type(faults, &path.key("instanceType"), name);
        }
        if let Some(family) = &raw.family {
            clouds.family(faults, &path.key("family"), family);
        }
        if let Some(RawDiscount::ByType(by_type)) = &raw.discount {
            for pattern in by_type.keys() {
                clouds.instance_type(faults, &path.key("discount").key(pattern), pattern);
            }
        }
        if let (Some(region), Some(instance_type)) = (&raw.region, &raw.instance_type)
            && faults.0.len() == before
        {
            clouds.sold(faults, path, raw, region, instance_type);
        }
    }

    fn models(&self, faults: &mut Faults, path: &Path, models: &[String]) {
        for (at, model) in models.iter().enumerate() {
            self.model(faults, &path.index(at), model);
        }
    }

    fn model(&self, faults: &mut Faults, path: &Path, model: &str) {
        if !self.models.contains(model) {
            faults.add(path, format!("{} is not a known GPU model: {}", quoted(model), instead(model, &self.models)));
        }
    }

    /// Reports an unknown cloud; the cloud, if known.
    fn cloud(&self, faults: &mut Faults, path: &Path, cloud: &str) -> Clouds<'_, 'a> {
        let found = self.clouds.get_key_value(cloud);
        if found.is_none() {
            let message = format!("{} is not a known cloud: {}", quoted(cloud), instead(cloud, self.clouds.keys()));
            faults.add(path, message);
        }
        Clouds(found.into_iter().collect())
    }
}

/// The known ones of the clouds that a block names. With none of them known, nothing within them can be judged.
struct Clouds<'k, 'a>(Vec<(&'k &'a str, &'k KnownCloud<'a>)>);

impl Clouds<'_, '_> {
    fn names(&self) -> String {
        self.0.iter().map(|(name, _)| **name).collect::<Vec<_>>().join(" or ")
    }

    fn region(&self, faults: &mut Faults, path: &Path, region: &str) {
        let known: BTreeSet<&str> = self.0.iter().flat_map(|(_, cloud)| cloud.regions.keys().copied()).collect();
        if !known.is_empty() && !known.contains(region) {
            faults.add(
                path,
                format!("{} is not a known region of {}: {}", quoted(region), self.names(), instead(region, &known)),
            );
        }
    }

    /// The zones of a region that the tables tell.
    fn zones_of<'r>(&'r self, region: &'r str) -> impl Iterator<Item = &'r str> {
        self.0.iter().filter_map(move |(_, cloud)| cloud.regions.get(region)).flatten().copied()
    }

    /// A zone by id, or by name where names are each account's own.
    fn zone(&self, faults: &mut Faults, path: &Path, regions: &[String], zone: &str) {
        let known: BTreeSet<&str> = regions.iter().flat_map(|region| self.zones_of(region)).collect();
        let is_name = regions.iter().any(|region| self.is_aws_zone_name(region, zone));
        if !known.is_empty() && !known.contains(zone) && !is_name {
            let mut message = format!("{} is not a known zone of these regions: {}", quoted(zone), instead(zone, &known));
            let example = regions.iter().map(|region| format!("{region}a"));
            let example = example.zip(regions).find(|(name, region)| self.is_aws_zone_name(region, name));
            if let Some((name, _)) = example {
                let _ = write!(message, "; a zone's name, such as {name}, works too");
            }
            faults.add(path, message);
        }
    }

    /// A zone by id only.
    fn zone_id(&self, faults: &mut Faults, path: &Path, region: &str, zone: &str) {
        let known: BTreeSet<&str> = self.zones_of(region).collect();
        if known.is_empty() || known.contains(zone) {
            return;
        }
        let message = if self.is_aws_zone_name(region, zone) {
            let example = known.first().copied().unwrap_or_default();
            format!(
                "{} is a zone's name, which means another zone in each account: write its id, such as {example}",
                quoted(zone)
            )
        } else {
            format!("{} is not a known zone of {region}: {}", quoted(zone), instead(zone, &known))
        };
        faults.add(path, message);
    }

    /// The family of an instance type: what stands before its dot.
    fn family(&self, faults: &mut Faults, path: &Path, family: &str) {
        let types = self.0.iter().flat_map(|(_, cloud)| cloud.types.iter().copied());
        let known: BTreeSet<&str> = types.filter_map(|name| Some(name.split_once('.')?.0)).collect();
        if !known.is_empty() && !known.contains(family) {
            let message =
                format!("{} is not a known instance family of {}: {}", quoted(family), self.names(), instead(family, &known));
            faults.add(path, message);
        }
    }

    /// Whether it is clear which GPUs of a model are meant: some models come with several sizes of memory, each sold by itself.
    fn memory(&self, faults: &mut Faults, path: &Path, raw: &RawCommitment, model: &str) {
        let sizes: BTreeSet<u64> = self.0.iter().filter_map(|(_, cloud)| cloud.sizes.get(model)).flatten().copied().collect();
        let known = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
        match raw.memory_gib {
            None if sizes.len() > 1 => {
                faults.add(path, format!("has no memoryGiB, and {model} comes with several: write memoryGiB: {known}"));
            }
            Some(gib) if !sizes.is_empty() && !sizes.contains(&u64::from(gib)) => {
                faults.add(
                    &path.key("memoryGiB"),
                    format!("{gib} is not a memory size of {model} on {}: write {known}", self.names()),
                );
            }
            _ => {}
        }
    }

    /// Whether what is committed to is sold there, and at a price of the same order.
    fn sold(&self, faults: &mut Faults, path: &Path, raw: &RawCommitment, region: &str, instance_type: &str) {
        if self.0.is_empty() {
            return;
        }
        let zones = self.0.iter().filter_map(|(_, cloud)| cloud.sold.get(&(region, instance_type))).flatten();
        let on_demand = |markets: &Markets<'_>| match markets.get(&CapacityType::OnDemand) {
            Some(Entry::Price(quote)) => Some(quote.price),
            _ => None,
        };
        let sold: BTreeMap<&str, Option<UsdPerHour>> = zones.map(|(zone, markets)| (*zone, on_demand(markets))).collect();
        let there = |zone: &str| sold.contains_key(zone);
        if sold.is_empty() {
            let elsewhere = self.0.iter().flat_map(|(_, cloud)| cloud.sold.keys().filter(|(_, name)| *name == instance_type));
            let elsewhere: BTreeSet<&str> = elsewhere.map(|(region, _)| *region).take(MAX_LISTED).collect();
            let cure = if elsewhere.is_empty() {
                "no zone is known to sell it".to_owned()
            } else {
                format!("it is in {}", elsewhere.into_iter().collect::<Vec<_>>().join(", "))
            };
            faults.add(path, format!("is for {instance_type} in {region}, where it is not sold: {cure}"));
        } else if let Some(zone) = raw.zone.as_deref().filter(|zone| !there(zone)) {
            let zones = sold.keys().copied().collect::<Vec<_>>().join(", ");
            faults.add(path, format!("is for {instance_type} in {zone}, where it is not sold: it is in {zones}"));
        }
        let rate = raw.usd_per_hour.as_ref().and_then(|rate| grammar::rate(rate, "").ok());
        let Some((rate, nodes)) = rate.zip(raw.nodes.filter(|nodes| *nodes > 0)) else { return };
        let each = rate.per(nodes);
        if let Some(on_demand) = sold.values().flatten().max().filter(|price| each > price.times(MOST_TIMES_ON_DEMAND)) {
            let cure = "write what all of it costs per hour, with what was paid upfront spread over the term";
            let message =
                format!("{rate} is {each} for a node, more than {MOST_TIMES_ON_DEMAND} times on-demand ({on_demand}): {cure}");
            faults.add(&path.key("usdPerHour"), message);
        }
    }

    /// Why a price would have no effect: it opens no market that the tables deny, and one of a region none of which they say nothing.
    fn without_effect(&self, row: &RawPrice) -> Option<String> {
        let RawPrice { region, zone, instance_type, capacity_type, .. } = row;
        let key = (region.as_str(), instance_type.as_str());
        let zones = self.0.iter().find_map(|(_, cloud)| cloud.sold.get(&key));
        let Some(zones) = zones else {
            let unzoned = self.0.iter().any(|(_, cloud)| cloud.unzoned.contains(&key));
            return match zone {
                Some(_) if unzoned => None,
                None if unzoned => Some(format!(
                    "prices {instance_type} in {region}, and no table tells which of its zones sell it: name the zone by its id"
                )),
                _ => Some(format!("prices {instance_type} in {region}, where no zone is known to sell it: remove it")),
            };
        };
        let names = |zones: Vec<&str>| zones.join(" or ");
        let entry = |zone: &str| zones.get(zone).map(|markets| markets.get(capacity_type).copied());
        if let Some(zone) = zone {
            return match entry(zone) {
                None => {
                    let known = names(zones.keys().copied().collect());
                    Some(format!("prices {instance_type} in {zone}, which is not known to sell it: {known} is"))
                }
                Some(Some(entry @ Entry::NoSignal(why))) if !entry.is_sold() => {
                    Some(format!("prices {instance_type} {capacity_type} in {zone}, where it is not sold ({why}): remove it"))
                }
                Some(_) => None,
            };
        }
        if zones.values().filter_map(|markets| markets.get(capacity_type)).any(|entry| entry.is_sold()) {
            return None;
        }
        let silent: Vec<&str> = zones.iter().filter(|(_, m)| !m.contains_key(capacity_type)).map(|(zone, _)| *zone).collect();
        let cure = if silent.is_empty() {
            "remove it".to_owned()
        } else {
            format!("name the zone if you know better, such as {}", names(silent))
        };
        Some(format!("prices {instance_type} {capacity_type} in {region}, where the tables know no such market: {cure}"))
    }

    /// AWS names its zones by the region and a letter, shuffled per account; the tables have ids.
    fn is_aws_zone_name(&self, region: &str, zone: &str) -> bool {
        let letter = zone.strip_prefix(region).is_some_and(|rest| matches!(rest.as_bytes(), [b'a'..=b'z']));
        letter && self.0.iter().any(|(name, cloud)| **name == "aws" && cloud.regions.contains_key(region))
    }

    fn instance_type(&self, faults: &mut Faults, path: &Path, text: &str) {
        let known: BTreeSet<&str> = self.0.iter().flat_map(|(_, cloud)| cloud.types.iter().copied()).collect();
        if known.is_empty() {
            return;
        }
        let clouds = self.names();
        match grammar::type_pattern(text) {
            Ok(TypePattern::Prefix(prefix)) if !known.iter().any(|name| name.starts_with(&prefix)) => {
                // The nearest prefix of the same length, shown by a type that has it.
                let length = prefix.chars().count();
                let cut = |name: &'_ str| name.char_indices().nth(length).map_or(name.len(), |(end, _)| end);
                let near = nearest(&prefix, known.iter().map(|name| &name[..cut(name)]));
                let near = near.and_then(|near| known.iter().find(|name| name.starts_with(near)));
                let near = near.map_or_else(|| "none is near".to_owned(), |name| format!("nearest is {name}"));
                faults.add(path, format!("{} matches no instance type of {clouds}: {near}", quoted(text)));
            }
            Ok(TypePattern::Exact(name)) if !known.contains(name.as_str()) => {
                faults
                    .add(path, format!("{} is not a known instance type of {clouds}: {}", quoted(text), instead(text, &known)));
            }
            // A pattern that cannot be read is reported as that.
            Ok(_) | Err(_) => {}
        }
    }
}

/// What to write instead: the nearest name, else all of them where they are few.
fn instead<'a>(text: &str, known: impl IntoIterator<Item = &'a &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().copied().collect();
    match nearest(text, known.iter().copied()) {
        Some(name) => format!("nearest is {name}"),
        None if known.len() <= MAX_LISTED => format!("known are {}", known.join(", ")),
        None => format!("none of the {} known is near", known.len()),
    }
}
