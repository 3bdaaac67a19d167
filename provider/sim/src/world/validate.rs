//! The rules of the world file: every fault at once, each with its field and the cure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::text::quoted;
use stoker_core::base::units::{MoneyError, UsdPerHour};
use stoker_core::market::offer::CapacityType;
use stoker_core::policy::{Fault, Path};

use super::config::{Dollars, MarketConfig, SpellLength, StockOutConfig, WorldConfig};
use super::facts;

/// Longest boot, notice or pause: a week. Whatever takes longer does not happen to a node.
const MAX_SECONDS: u32 = 7 * 24 * 3600;
/// Widest spread of a lognormal: at 3, one draw in twenty is off by a factor of 350.
const MAX_SIGMA: f64 = 3.0;
/// Most reclaim waves an hour: one a minute, with which no machine boots.
const MAX_WAVES_PER_HOUR: f64 = 60.0;
/// Shortest and longest median of a spell, in hours: three minutes, the memory of a refused market, and the longest spell there is.
const SPELL_HOURS: (f64, f64) = (0.05, 240.0);
/// Longest answer: a minute, by which every client has hung up.
const MAX_LATENCY_MS: u32 = 60_000;
/// Longest time to or in a stock-out: ten years.
const MAX_WINDOW: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);

/// Every fault found so far.
#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.0.push(Fault { path: path.clone(), message: message.into() });
    }

    fn between(&mut self, path: &Path, value: f64, low: f64, high: f64) {
        if !(low..=high).contains(&value) {
            self.add(path, format!("is {value}: give a number from {low} to {high}"));
        }
    }

    fn share(&mut self, path: &Path, value: f64) {
        self.between(path, value, 0.0, 1.0);
    }

    fn seconds(&mut self, path: &Path, value: u32) {
        if value > MAX_SECONDS {
            self.add(path, format!("is {value}, more than a week: give at most {MAX_SECONDS}"));
        }
    }

    fn clouds(&mut self, path: &Path, clouds: &BTreeMap<String, u32>) {
        for (cloud, seconds) in clouds {
            self.seconds(&path.key(cloud), *seconds);
        }
    }

    fn spell(&mut self, path: &Path, length: SpellLength) {
        self.between(&path.key("medianHours"), length.median_hours, SPELL_HOURS.0, SPELL_HOURS.1);
        self.between(&path.key("sigma"), length.sigma, 0.0, MAX_SIGMA);
    }

    fn market(&mut self, path: &Path, row: &MarketConfig) {
        let MarketConfig { market, stock, boot_seconds, reclaims_per_hour, spot_price } = row;
        if stock.is_none() && boot_seconds.is_none() && reclaims_per_hour.is_none() && spot_price.is_none() {
            self.add(path, "changes nothing: name stock, bootSeconds, reclaimsPerHour or spotPrice");
        }
        if let Some(seconds) = boot_seconds {
            self.seconds(&path.key("bootSeconds"), *seconds);
        }
        if let Some(rate) = reclaims_per_hour {
            self.between(&path.key("reclaimsPerHour"), *rate, 0.0, MAX_WAVES_PER_HOUR);
        }
        if let Some(Err(message)) = spot_price.as_ref().map(dollars) {
            self.add(&path.key("spotPrice"), message);
        }
        let never_spot = market.capacity_type.is_some_and(|capacity| capacity != CapacityType::Spot);
        for (key, named) in [("reclaimsPerHour", reclaims_per_hour.is_some()), ("spotPrice", spot_price.is_some())] {
            if named && never_spot {
                self.add(&path.key(key), "applies to spot markets, and match.capacityType names another: remove one of them");
            }
        }
    }

    fn stock_out(&mut self, path: &Path, row: &StockOutConfig) {
        if let Err(message) = time(&row.from) {
            self.add(&path.key("from"), message);
        }
        match time(&row.length) {
            Err(message) => self.add(&path.key("for"), message),
            Ok(length) if length < SignedDuration::from_secs(1) => self.add(&path.key("for"), "is zero: give at least 1s"),
            Ok(_) => {}
        }
    }
}

/// An amount of dollars above nought.
pub(super) fn dollars(text: &Dollars) -> Result<UsdPerHour, String> {
    match UsdPerHour::parse_usd(&text.to_string()) {
        Ok(UsdPerHour::ZERO) => Err("is 0: give the price of a node-hour".into()),
        Ok(price) => Ok(price),
        Err(MoneyError::Negative(text)) => Err(format!("{} is negative: give the price of a node-hour", quoted(&text))),
        Err(MoneyError::TooLarge(text)) => Err(format!("{} is more than a rate can hold: lower it", quoted(&text))),
        Err(MoneyError::NotANumber(text)) => Err(format!("{} is not plain dollars: write it like 0.25", quoted(&text))),
    }
}

/// A length of time.
pub(super) fn time(text: &str) -> Result<SignedDuration, String> {
    let time: SignedDuration =
        text.parse().map_err(|_| format!("{} is not a length of time: write it like 10m, 1h30m or 90s", quoted(text)))?;
    if time.is_negative() {
        return Err(format!("{} is negative: count from the world's start", quoted(text)));
    }
    if time > MAX_WINDOW {
        return Err(format!("{} is more than ten years: shorten it", quoted(text)));
    }
    Ok(time)
}

impl WorldConfig {
    /// Every fault that shows without price tables, in file order; none where the file is sound.
    pub fn faults(&self) -> Vec<Fault> {
        let Self {
            seed: _, stock: _, boot, stop_seconds, reclaims, spells, api, markets, broken_images: _, stock_outs, ..
        } = self;
        let Self { quotas, reservations, .. } = self;
        let root = Path::root();
        let mut faults = Faults::default();

        let at = root.key("boot");
        faults.seconds(&at.key("medianSeconds"), boot.median_seconds);
        faults.between(&at.key("sigma"), boot.sigma, 0.0, MAX_SIGMA);
        faults.clouds(&at.key("clouds"), &boot.clouds);

        faults.seconds(&root.key("stopSeconds"), *stop_seconds);

        let at = root.key("reclaims");
        faults.between(&at.key("perHour"), reclaims.per_hour, 0.0, MAX_WAVES_PER_HOUR);
        faults.seconds(&at.key("noticeSeconds"), reclaims.notice_seconds);
        faults.clouds(&at.key("clouds"), &reclaims.clouds);
        faults.seconds(&at.key("spreadSeconds"), reclaims.spread_seconds);
        faults.seconds(&at.key("stockOutSeconds"), reclaims.stock_out_seconds);

        let at = root.key("spells");
        faults.share(&at.key("spotShare"), spells.spot_share);
        faults.share(&at.key("onDemandShare"), spells.on_demand_share);
        faults.spell(&at.key("inStock"), spells.in_stock);
        faults.spell(&at.key("outOfStock"), spells.out_of_stock);

        let now = Timestamp::UNIX_EPOCH;
        for (at, row) in quotas.iter().enumerate() {
            if let Err(error) = facts::quota(row, now) {
                faults.add(&root.key("quotas").index(at), error.to_string());
            }
        }
        for (at, row) in reservations.iter().enumerate() {
            if let Err(error) = facts::reservation(row, now) {
                faults.add(&root.key("reservations").index(at), error.to_string());
            }
        }

        let at = root.key("api");
        faults.share(&at.key("errorRate"), api.error_rate);
        if api.latency_ms.max > MAX_LATENCY_MS {
            faults.add(&at.key("latencyMs").key("max"), format!("is {}: give at most {MAX_LATENCY_MS}", api.latency_ms.max));
        }
        if api.latency_ms.min > api.latency_ms.max {
            let message = format!("is {}, above max {}: swap them", api.latency_ms.min, api.latency_ms.max);
            faults.add(&at.key("latencyMs").key("min"), message);
        }
        faults.share(&at.key("partialListingRate"), api.partial_listing_rate);
        if api.max_in_flight == 0 {
            faults.add(&at.key("maxInFlight"), "is 0, so that nothing could be launched: give at least 1");
        }

        for (index, row) in markets.iter().enumerate() {
            faults.market(&root.key("markets").index(index), row);
        }
        for (index, row) in stock_outs.iter().enumerate() {
            faults.stock_out(&root.key("stockOuts").index(index), row);
        }
        faults.0
    }
}
