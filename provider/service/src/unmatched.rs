//! Names in a policy that match nothing: a zone or an instance type that a pool lists and that yields it no group. Each is allowed, since
//! tables and accounts change, and each is told, since a misspelt one would buy nothing, for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use stoker_core::base::ids::{InstanceType, PoolName, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::derive::{Exclusion, LeftOut};
use stoker_core::catalogue::group::Group;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::Place;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::{Pool, TypePattern};

/// Reasons told of one name: a prefix may fit many types, each left out for a reason of its own.
const REASONS: usize = 3;

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `where.zones`.
    Zone,
    /// `instanceTypes`.
    InstanceType,
}

/// A name that a pool lists and that yields it no group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// The pool.
    pub pool: PoolName,
    /// What is named.
    pub kind: Kind,
    /// The name, as written.
    pub name: String,
    /// Why there is no group.
    pub reason: String,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zone => "zone",
            Self::InstanceType => "instance type",
        })
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, kind, name, reason } = self;
        write!(f, "pool {pool} gets no group for {kind} {name}: {reason}")
    }
}

/// Every name in the policy that yields no group, pool by pool in file order. `facts` are those that the catalogue was derived with.
pub fn unmatched(catalogue: &Catalogue, prices: &PriceBook, facts: &BTreeMap<SupplierName, MarketFacts>) -> Vec<Unmatched> {
    // Until a supplier has told of its markets, no place has anybody to make nodes in it, and every name would be told.
    if facts.is_empty() {
        return Vec::new();
    }
    let mut told = Vec::new();
    for pool in &catalogue.policy.pools {
        let groups: Vec<&Group> = catalogue.pool_groups(&pool.name).map(AsRef::as_ref).collect();
        let left: Vec<&LeftOut> = catalogue.left_out.iter().filter(|left| left.pool == pool.name).collect();
        let of = |kind, name: String, reason| Unmatched { pool: pool.name.clone(), kind, name, reason };
        for zone in &pool.zones {
            if !groups.iter().any(|g| g.zone_name.as_str() == zone || g.place.zone.as_str() == zone) {
                told.push(of(Kind::Zone, zone.clone(), why_zone(zone, pool, &left, prices, facts)));
            }
        }
        for pattern in &pool.instance_types {
            if !groups.iter().any(|group| pattern.matches(&group.place.instance_type)) {
                told.push(of(Kind::InstanceType, written(pattern), why_type(pattern, pool, &left, prices)));
            }
        }
    }
    told
}

/// A pattern as the policy has it.
fn written(pattern: &TypePattern) -> String {
    match pattern {
        TypePattern::Exact(name) => name.to_string(),
        TypePattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

fn regions(pool: &Pool) -> String {
    pool.regions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn is_within(pool: &Pool, place: &Place) -> bool {
    pool.clouds.contains(&place.cloud) && pool.regions.contains(&place.region)
}

fn why_zone(
    zone: &str,
    pool: &Pool,
    left: &[&LeftOut],
    prices: &PriceBook,
    facts: &BTreeMap<SupplierName, MarketFacts>,
) -> String {
    let is_it = |place: &Place| {
        let key = (place.cloud.clone(), place.zone.clone());
        let name = facts.values().find_map(|facts| facts.zone_names.get(&key));
        place.zone.as_str() == zone || name.is_some_and(|name| name.as_str() == zone)
    };
    let known = prices.entries().any(|(market, _)| is_within(pool, &market.place) && is_it(&market.place));
    if !known {
        return format!("no price table has a zone of that name in {}", regions(pool));
    }
    let there: BTreeSet<&Exclusion> = left.iter().filter(|left| is_it(&left.place)).map(|left| &left.why).collect();
    match &there.iter().filter(|why| ***why != Exclusion::InstanceType).collect::<Vec<_>>()[..] {
        [] if there.is_empty() => "no instance type with the pool's gpu.models is sold there".to_owned(),
        [] => "none of the pool's instanceTypes is sold there".to_owned(),
        reasons => listed(reasons.iter().map(ToString::to_string)),
    }
}

fn why_type(pattern: &TypePattern, pool: &Pool, left: &[&LeftOut], prices: &PriceBook) -> String {
    let why = left.iter().filter(|left| pattern.matches(&left.place.instance_type)).map(|left| &left.why);
    let why: BTreeSet<&Exclusion> = why.collect();
    if !why.is_empty() {
        return listed(why.iter().map(ToString::to_string));
    }
    let places = || prices.entries().map(|(market, _)| &market.place).filter(|place| pattern.matches(&place.instance_type));
    let types: BTreeSet<&InstanceType> = places().filter(|place| is_within(pool, place)).map(|p| &p.instance_type).collect();
    if !types.is_empty() {
        // Sold there, and yet of no concern to the pool: its GPU is another.
        let spec = |name: &&InstanceType| pool.clouds.iter().find_map(|cloud| prices.spec(cloud, name));
        let models: BTreeSet<String> = types.iter().filter_map(spec).map(|spec| spec.gpu_model.to_string()).collect();
        return match models.into_iter().collect::<Vec<_>>().join(" or ") {
            models if models.is_empty() => "it is unknown which GPUs it has".to_owned(),
            models => format!("it has {models}, which the pool's gpu.models do not name"),
        };
    }
    let unzoned = prices.unzoned().any(|((cloud, region, instance_type), _)| {
        pool.clouds.contains(cloud) && pool.regions.contains(region) && pattern.matches(instance_type)
    });
    if unzoned {
        return format!("zones unknown: no price table says in which zones of {} it is sold", regions(pool));
    }
    format!("not known to be sold in {}", regions(pool))
}

/// Reasons in one line; of many, the first.
fn listed(reasons: impl ExactSizeIterator<Item = String>) -> String {
    let more = reasons.len().saturating_sub(REASONS);
    let text = reasons.take(REASONS).collect::<Vec<_>>().join("; ");
    if more == 0 { text } else { format!("{text}; and {more} more reasons") }
}
