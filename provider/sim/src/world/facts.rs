//! What the simulated clouds tell about their markets: zone names and spot prices.

use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, IdError, InstanceType, Region, ZoneId, ZoneName};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::supply::{QuotaFact, ReservationFact};
use stoker_core::market::offer::{Market, Place};
use stoker_core::market::price::{PriceBook, Quote, QuoteKind};
use stoker_core::policy::QuotaKey;

use super::config::{QuotaConfig, ReservationConfig};
use super::draw::{Seed, whole};
use super::rules::ZoneNames;
use super::spells::names;

/// How often prices are looked up: they are the same for so many seconds.
const PRICE_PERIOD: i64 = 300;
/// How far a spot price drifts from the table's, in millionths: a tenth, what a fortnight of measured daily moves (0.1 to 0.9 % of
/// on-demand) comes to.
const DRIFT: f64 = 100_000.0;
/// Who says so.
pub(super) const SOURCE: &str = "simulated market";

/// What this account calls the zones that AWS knows by id: `use1-az1` is `us-east-1a`, `use1-az2` is `us-east-1b`, and so on, whichever
/// of them the tables have. Real accounts each have a mapping of their own; this one can be guessed. All other zones, Local Zones among
/// them, are called by their ids.
pub(super) fn zone_names(book: &PriceBook) -> ZoneNames {
    let mut names = ZoneNames::new();
    for (market, _) in book.entries() {
        let place = &market.place;
        let key = (place.cloud.clone(), place.zone.clone());
        if place.cloud.as_str() == "aws"
            && !names.contains_key(&key)
            && let Some(letter) = letter(&place.zone)
            && let Ok(name) = ZoneName::new(format!("{}{letter}", place.region))
        {
            names.insert(key, name);
        }
    }
    names
}

/// The letter of an id of the form `<region code>-az<N>`; a Local Zone's has a part more (`use1-atl2-az1`).
fn letter(id: &ZoneId) -> Option<char> {
    let (code, number) = id.as_str().split_once("-az")?;
    let at: usize = number.parse().ok()?;
    let is_region = !code.is_empty() && !code.contains('-');
    if is_region { ('a'..='z').nth(at.checked_sub(1)?) } else { None }
}

/// The last moment at which prices were looked up.
fn looked_up(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().div_euclid(PRICE_PERIOD) * PRICE_PERIOD).unwrap_or(now)
}

/// A quota, as of the last moment at which it was looked up.
pub(super) fn quota(row: &QuotaConfig, now: Timestamp) -> Result<(QuotaKey, QuotaFact), IdError> {
    let QuotaConfig { name, cloud, region, limit, used } = row;
    let region = region.as_ref().map(Region::new).transpose()?;
    let key = QuotaKey { name: name.clone(), cloud: Cloud::new(cloud)?, region };
    Ok((key, QuotaFact { limit: *limit, used: *used, as_of: looked_up(now) }))
}

/// A reservation, as of the last moment at which it was looked up.
pub(super) fn reservation(row: &ReservationConfig, now: Timestamp) -> Result<(String, ReservationFact), IdError> {
    let ReservationConfig { id, cloud, region, zone, instance_type, total, free } = row;
    let place = Place {
        cloud: Cloud::new(cloud)?,
        region: Region::new(region)?,
        zone: ZoneId::new(zone)?,
        instance_type: InstanceType::new(instance_type)?,
    };
    Ok((id.clone(), ReservationFact { place, total: *total, free: *free, ends: None, as_of: looked_up(now) }))
}

/// A spot market's price at `now`: `base`, drifting by the week, never above `on_demand`.
pub(super) fn quote(
    seed: Seed,
    market: &Market,
    (base, on_demand): (UsdPerHour, Option<UsdPerHour>),
    source: &Arc<str>,
    now: Timestamp,
) -> Quote {
    let as_of = looked_up(now);
    let drifted = i128::from(base.0) + i128::from(base.0) * i128::from(drift(seed, market, as_of)) / 1_000_000;
    let price = UsdPerHour(i64::try_from(drifted).unwrap_or(i64::MAX));
    let price = on_demand.map_or(price, |most| price.min(most));
    Quote { price, kind: QuoteKind::Simulated, as_of: Some(as_of), source: Arc::clone(source) }
}

/// How far a market's price is from its base, in millionths: a slow swing of one to three weeks and a small one of some days.
#[expect(clippy::cast_precision_loss, reason = "seconds of any real date fit an f64 exactly")]
fn drift(seed: Seed, market: &Market, at: Timestamp) -> i64 {
    let mut stream = seed.stream("price", &names(market), 0);
    let mut swing = |shortest_days: f64, longest_days: f64| {
        let days = shortest_days + (longest_days - shortest_days) * stream.unit();
        let phase = stream.unit();
        (std::f64::consts::TAU * (at.as_second() as f64 / (days * 86_400.0) + phase)).sin()
    };
    whole(DRIFT * (0.7 * swing(9.0, 21.0) + 0.3 * swing(2.0, 5.0)))
}
