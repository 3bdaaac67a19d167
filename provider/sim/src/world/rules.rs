//! What holds in each market of the price book: the world file applied to it.

use std::collections::{BTreeMap, BTreeSet};

use stoker_core::base::ids::{Cloud, ZoneId, ZoneName};
use stoker_core::base::text::{nearest, quoted};
use stoker_core::base::units::{MiB, UsdPerHour};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market};
use stoker_core::market::price::{Entry, NoSignal, PriceBook};
use stoker_core::policy::{Fault, Path};

use super::config::{MarketMatch, StockConfig, WorldConfig};
use super::draw::Seed;
use super::spells::{Waves, alternates};
use super::validate::{Faults, dollars, time};

/// What accounts call zones that the tables know by id.
pub(super) type ZoneNames = BTreeMap<(Cloud, ZoneId), ZoneName>;

/// What holds in one market.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    /// Whether it can be ordered at all.
    pub(super) orderable: bool,
    /// Machines that can exist at a time.
    pub(super) stock: u32,
    /// Median boot time in seconds.
    pub(super) boot_seconds: u32,
    /// Whether its machines never finish booting.
    pub(super) broken: bool,
    /// When its machines are taken back; `None` for never.
    pub(super) waves: Option<Waves>,
    /// From the notice to the end, in seconds.
    pub(super) notice_seconds: u32,
    /// Whether its stock comes and goes.
    pub(super) alternates: bool,
    /// When it has nothing to sell: from, until, in seconds since the world's start.
    pub(super) dry: Vec<(i64, i64)>,
    /// The spot price around which it drifts, and the on-demand price that it never exceeds.
    pub(super) spot: Option<(UsdPerHour, Option<UsdPerHour>)>,
}

/// The rule of every market in the book.
pub(super) fn rules(config: &WorldConfig, book: &PriceBook, zones: &ZoneNames) -> Result<BTreeMap<Market, Rule>, Vec<Fault>> {
    let mut faults = Faults(config.faults());
    check_against(&mut faults, config, book, zones);
    if !faults.0.is_empty() {
        return Err(faults.0);
    }
    Ok(book.entries().map(|(market, entry)| (market.clone(), rule(config, book, zones, market, entry))).collect())
}

fn rule(config: &WorldConfig, book: &PriceBook, zones: &ZoneNames, market: &Market, entry: &Entry) -> Rule {
    let cloud = market.place.cloud.as_str();
    let is_spot = market.capacity_type == CapacityType::Spot;
    let by_cloud = |clouds: &BTreeMap<String, u32>, other: u32| clouds.get(cloud).copied().unwrap_or(other);
    let spells_share = match market.capacity_type {
        CapacityType::Reserved => 0.0,
        CapacityType::Spot => config.spells.spot_share,
        CapacityType::OnDemand => config.spells.on_demand_share,
    };
    let mut stock = match (market.capacity_type, entry) {
        (CapacityType::Reserved, _) | (_, Entry::NoSignal(NoSignal::PinnedAtOnDemand)) => 0,
        _ => stock(&config.stock, book.spec(&market.place.cloud, &market.place.instance_type).map(AsRef::as_ref)),
    };
    let mut boot_seconds = by_cloud(&config.boot.clouds, config.boot.median_seconds);
    let mut per_hour = config.reclaims.per_hour;
    let mut price = match entry {
        Entry::Price(quote) => Some(quote.price),
        Entry::NoSignal(_) => None,
    };
    for row in config.markets.iter().filter(|row| row.market.matches(market, zones)) {
        stock = row.stock.unwrap_or(stock);
        boot_seconds = row.boot_seconds.unwrap_or(boot_seconds);
        per_hour = row.reclaims_per_hour.unwrap_or(per_hour);
        price = row.spot_price.as_ref().and_then(|price| dollars(price).ok()).or(price);
    }
    let on_demand = || {
        let market = Market { place: market.place.clone(), capacity_type: CapacityType::OnDemand };
        match book.entry(&market) {
            Some(Entry::Price(quote)) => Some(quote.price),
            Some(Entry::NoSignal(_)) | None => None,
        }
    };
    Rule {
        orderable: !matches!(entry, Entry::NoSignal(NoSignal::ListOnly)),
        stock,
        boot_seconds,
        broken: config.broken_images.iter().any(|broken| broken.matches(market, zones)),
        waves: if is_spot { Waves::per_hour(per_hour) } else { None },
        notice_seconds: by_cloud(&config.reclaims.clouds, config.reclaims.notice_seconds),
        alternates: alternates(Seed(config.seed), market, spells_share),
        dry: dry(config, market, zones),
        spot: price.filter(|_| is_spot).map(|price| (price, on_demand())),
    }
}

/// When a market has nothing to sell by the file's word.
fn dry(config: &WorldConfig, market: &Market, zones: &ZoneNames) -> Vec<(i64, i64)> {
    let matching = config.stock_outs.iter().filter(|row| row.market.matches(market, zones));
    matching
        .filter_map(|row| {
            let from = time(&row.from).ok()?.as_secs();
            Some((from, from.saturating_add(time(&row.length).ok()?.as_secs())))
        })
        .collect()
}

/// Machines of a type that a market holds, from its stock of GPUs.
fn stock(stock: &StockConfig, spec: Option<&InstanceSpec>) -> u32 {
    let (gpus, per_node) = spec.map_or((stock.some, 1), |spec| {
        let gpus = match spec.gpu_memory {
            memory if memory <= MiB::from_gib(24) => stock.plenty,
            memory if memory <= MiB::from_gib(48) => stock.some,
            _ => stock.scarce,
        };
        (gpus, spec.advertised_gpus().max(1))
    });
    if gpus == 0 { 0 } else { (gpus / per_node).max(1) }
}

impl MarketMatch {
    /// Whether `market` is meant.
    pub(super) fn matches(&self, market: &Market, zones: &ZoneNames) -> bool {
        let place = &market.place;
        let is = |wanted: &Option<String>, have: &str| wanted.as_deref().is_none_or(|wanted| wanted == have);
        let zone = || {
            let wanted = self.zone.as_deref()?;
            let name = zones.get(&(place.cloud.clone(), place.zone.clone()));
            Some(wanted == place.zone.as_str() || name.is_some_and(|name| name.as_str() == wanted))
        };
        is(&self.cloud, place.cloud.as_str())
            && is(&self.region, place.region.as_str())
            && self.capacity_type.is_none_or(|wanted| wanted == market.capacity_type)
            && self.instance_type.as_deref().is_none_or(|pattern| type_matches(pattern, place.instance_type.as_str()))
            && zone().unwrap_or(true)
    }
}

fn type_matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

/// Reports rows that mean no market of the book, and clouds that nobody knows: they are slips, and would silently do nothing.
fn check_against(faults: &mut Faults, config: &WorldConfig, book: &PriceBook, zones: &ZoneNames) {
    let root = Path::root();
    let known = Known::new(book, zones);
    let rows = config.markets.iter().enumerate().map(|(at, row)| (root.key("markets").index(at).key("match"), &row.market));
    let broken = config.broken_images.iter().enumerate().map(|(at, row)| (root.key("brokenImages").index(at), row));
    let outs =
        config.stock_outs.iter().enumerate().map(|(at, row)| (root.key("stockOuts").index(at).key("match"), &row.market));
    for (path, row) in rows.chain(broken).chain(outs) {
        // Without a property a row means all markets, even where there are none.
        if *row != MarketMatch::default() && !book.entries().any(|(market, _)| row.matches(market, zones)) {
            known.explain(faults, &path, row);
        }
    }
    let usual = WorldConfig::default();
    let lists =
        [("boot", &config.boot.clouds, usual.boot.clouds), ("reclaims", &config.reclaims.clouds, usual.reclaims.clouds)];
    for (key, clouds, usual) in lists {
        for cloud in clouds.keys().filter(|cloud| !known.clouds.contains(cloud.as_str()) && !usual.contains_key(*cloud)) {
            let path = root.key(key).key("clouds").key(cloud);
            faults.add(&path, format!("is not a known cloud{}", hint(cloud, &known.clouds)));
        }
    }
}

/// What the book has, by property.
struct Known<'a> {
    clouds: BTreeSet<&'a str>,
    regions: BTreeSet<&'a str>,
    zones: BTreeSet<&'a str>,
    types: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn new(book: &'a PriceBook, zones: &'a ZoneNames) -> Self {
        let places = || book.entries().map(|(market, _)| &market.place);
        let ids = places().map(|place| place.zone.as_str());
        Self {
            clouds: places().map(|place| place.cloud.as_str()).collect(),
            regions: places().map(|place| place.region.as_str()).collect(),
            zones: ids.chain(zones.values().map(ZoneName::as_str)).collect(),
            types: places().map(|place| place.instance_type.as_str()).collect(),
        }
    }

    /// Says which property of a row that means nothing is unknown, or that they do not go together.
    fn explain(&self, faults: &mut Faults, path: &Path, row: &MarketMatch) {
        let mut found = false;
        let properties = [
            ("cloud", &row.cloud, &self.clouds),
            ("region", &row.region, &self.regions),
            ("zone", &row.zone, &self.zones),
            ("instanceType", &row.instance_type, &self.types),
        ];
        for (key, value, known) in properties {
            let Some(value) = value else { continue };
            if !known.iter().any(|name| type_matches(value, name)) {
                let message = format!("{} is not in the price tables{}", quoted(value), hint(value, known));
                faults.add(&path.key(key), message);
                found = true;
            }
        }
        if !found {
            faults.add(path, "matches no market of the price tables: these properties do not occur together");
        }
    }
}

fn hint(text: &str, known: &BTreeSet<&str>) -> String {
    nearest(text, known.iter().copied()).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}
