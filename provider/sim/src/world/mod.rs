//! A simulated cloud: what it sells, how its machines boot, and how it takes them back.
//!
//! The world is pure and synchronous, and its time is whatever the caller says. A [`WorldConfig`] tells how it behaves; the same
//! configuration, price book and start and the same calls make the same world.
//!
//! # Guarantees
//! * A launch key makes one machine at most, for ever.
//! * What becomes of a machine is settled when it is made, from the seed, its key and its market alone: neither other machines and
//!   markets nor the order of calls shift it. [`StoredInstance`] holds all of it, so a restored world goes on as if nothing had been.
//! * Time never goes back: an earlier `now` is taken for the latest one seen.
//!
//! # Caveats
//! Markets are independent: real ones of a region run dry together more often than not (correlation 0.43). Old spot machines are as
//! likely to be taken as young ones; real ones are safer.

mod config;
pub(crate) mod draw;
mod facts;
mod machines;
mod rules;
mod spells;
mod store;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, ClusterName, LaunchKey, ProviderId};
use stoker_core::facts::supply::{Instance, LaunchOutcome, LaunchRequest, MarketFacts, Observation, Refusal, RefusalKind};
use stoker_core::market::offer::Market;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Fault;

pub use config::{
    ApiConfig, BootConfig, Dollars, LatencyConfig, MarketConfig, MarketMatch, QuotaConfig, ReclaimConfig, ReservationConfig,
    SpellConfig, SpellLength, StockConfig, StockOutConfig, WorldConfig,
};
use draw::{Seed, Stream};
use machines::Machines;
use rules::{Rule, ZoneNames};
pub use store::{StoredInstance, Window};

/// Share of machines that a partial listing leaves out: a page of three.
const LEFT_OUT: f64 = 1.0 / 3.0;

/// The simulated clouds and everything that runs in them.
#[derive(Debug, Clone)]
pub struct World {
    config: WorldConfig,
    seed: Seed,
    start: Timestamp,
    now: Timestamp,
    rules: BTreeMap<Market, Rule>,
    zones: ZoneNames,
    clouds: BTreeSet<Cloud>,
    source: Arc<str>,
    machines: Machines,
    dirty: BTreeMap<LaunchKey, StoredInstance>,
}

impl World {
    /// A world without machines that begins at `start` and sells what `book` has.
    ///
    /// # Errors
    /// Every fault of the configuration, and every row of it that means no market of the book.
    pub fn new(config: WorldConfig, book: &PriceBook, start: Timestamp) -> Result<Self, Vec<Fault>> {
        let zones = facts::zone_names(book);
        let rules = rules::rules(&config, book, &zones)?;
        let clouds = rules.keys().map(|market| market.place.cloud.clone()).collect();
        Ok(Self {
            seed: Seed(config.seed),
            config,
            start,
            now: start,
            rules,
            zones,
            clouds,
            source: Arc::from(facts::SOURCE),
            machines: Machines::default(),
            dirty: BTreeMap::new(),
        })
    }

    /// The world that wrote `rows`, as of the last row. `start` is when it first began: stock-outs and reclaims count from there.
    ///
    /// A changed configuration or price book holds for machines made from now on; those in `rows` keep their fate.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn restore(
        config: WorldConfig,
        book: &PriceBook,
        start: Timestamp,
        rows: Vec<StoredInstance>,
    ) -> Result<Self, Vec<Fault>> {
        let mut world = Self::new(config, book, start)?;
        world.now = rows.iter().map(StoredInstance::written_at).fold(start, Ord::max);
        // A key has one row; should a store hand out two, the one written last counts.
        let rows: BTreeMap<LaunchKey, StoredInstance> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        for row in rows.into_values() {
            world.machines.insert(row, world.now);
        }
        Ok(world)
    }

    /// The rows that are new or changed since the last call. Write them before telling anybody what the mutation answered.
    pub fn take_dirty(&mut self) -> Vec<(LaunchKey, StoredInstance)> {
        std::mem::take(&mut self.dirty).into_iter().collect()
    }

    /// Launches machines, in the order asked; the answers are in the same order.
    pub fn launch(
        &mut self,
        now: Timestamp,
        cluster: &ClusterName,
        requests: &[LaunchRequest],
    ) -> Vec<(LaunchKey, LaunchOutcome)> {
        self.advance(now);
        requests.iter().map(|request| (request.key.clone(), self.launch_one(cluster, request))).collect()
    }

    fn launch_one(&mut self, cluster: &ClusterName, request: &LaunchRequest) -> LaunchOutcome {
        let mut stream = self.stream("launch", &draw::lot(&request.key));
        if stream.chance(self.config.api.error_rate) {
            if stream.chance(0.5) {
                // Carried out, and nobody hears of it; a refusal is lost as well.
                let _lost = self.make(cluster, request);
            }
            return LaunchOutcome::unclear("simulated API error: the answer to the launch was lost");
        }
        match self.make(cluster, request) {
            Ok(instance) => LaunchOutcome::Launched(instance.as_ref().clone()),
            Err(refusal) => LaunchOutcome::Refused(refusal),
        }
    }

    /// The machine of that key, made if there is none.
    fn make(&mut self, cluster: &ClusterName, request: &LaunchRequest) -> Result<Arc<Instance>, Refusal> {
        let LaunchRequest { key, group: _, market, zone_name, reservation: _ } = request;
        if let Some(instance) = self.machines.by_key(key) {
            return Ok(Arc::clone(instance));
        }
        let config = |message: String| Refusal::of_market(RefusalKind::Config, message);
        if self.machines.has_ended(key) {
            return Err(config(format!("launch key {key} was used by an instance that ended")));
        }
        let rule =
            self.rules.get(market).ok_or_else(|| config(format!("{market} is not sold: the price tables do not have it")))?;
        if !rule.orderable {
            return Err(config(format!("{market} cannot be ordered on demand")));
        }
        if let Some(why) = self.no_stock(market, rule) {
            let message =
                format!("no {} capacity for {} in {zone_name}: {why}", market.capacity_type, market.place.instance_type);
            return Err(Refusal::of_market(RefusalKind::OutOfCapacity, message));
        }
        let (provider_id, node_name) = self.machines.name(self.seed, request).map_err(|error| config(error.to_string()))?;
        let row = StoredInstance {
            key: key.clone(),
            cluster: cluster.clone(),
            provider_id,
            node_name,
            market: market.clone(),
            launched_at: self.now,
            ready_at: self.ready_at(key, rule),
            reclaim: self.reclaim(key, market, rule),
            stopping: None,
        };
        self.dirty.insert(key.clone(), row.clone());
        Ok(self.machines.insert(row, self.now))
    }

    /// Why a market has nothing to sell now; `None` where it has.
    fn no_stock(&self, market: &Market, rule: &Rule) -> Option<String> {
        let t = self.elapsed();
        let in_use = self.machines.in_use(market);
        if in_use >= rule.stock {
            return Some(format!("{in_use} of {} are running", rule.stock));
        }
        // A wave in the last so many seconds is the first after that moment that has come.
        let recently = t - i64::from(self.config.reclaims.stock_out_seconds);
        let reclaimed = rule.waves.and_then(|waves| waves.after(self.seed, market, recently)).is_some_and(|wave| wave <= t);
        let dry = rule.dry.iter().any(|(from, until)| (*from..*until).contains(&t))
            || (rule.alternates && spells::is_dry(self.seed, market, &self.config.spells, t));
        (reclaimed || dry).then(|| "none is offered now".to_owned())
    }

    fn ready_at(&self, key: &LaunchKey, rule: &Rule) -> Option<Timestamp> {
        if rule.broken {
            return None;
        }
        let mut stream = self.seed.stream("boot", &[&draw::lot(key)], 0);
        let seconds = stream.log_normal(f64::from(rule.boot_seconds), self.config.boot.sigma);
        Some(store::after(self.now, draw::whole(seconds)))
    }

    fn reclaim(&self, key: &LaunchKey, market: &Market, rule: &Rule) -> Option<Window> {
        let wave = rule.waves?.after(self.seed, market, self.elapsed())?;
        let spread = self.seed.stream("reclaim", &[&draw::lot(key)], 0).up_to(i64::from(self.config.reclaims.spread_seconds));
        let said_at = store::after(self.start, wave.saturating_add(spread));
        Some(Window { said_at, gone_at: store::after(said_at, i64::from(rule.notice_seconds)) })
    }

    /// What this cluster has.
    ///
    /// # Errors
    /// The simulated API's, in its words.
    pub fn observe(&mut self, now: Timestamp, cluster: &ClusterName) -> Result<Observation, String> {
        self.advance(now);
        let mut stream = self.stream("observe", cluster.as_str());
        if stream.chance(self.config.api.error_rate) {
            return Err("simulated API error: the listing failed".into());
        }
        let complete = !stream.chance(self.config.api.partial_listing_rate);
        let mut instances: BTreeMap<ProviderId, Arc<Instance>> =
            self.machines.of(cluster).map(|instance| (instance.provider_id.clone(), Arc::clone(instance))).collect();
        if !complete {
            let all = instances.len();
            instances.retain(|id, _| !self.stream("left out", id.as_str()).chance(LEFT_OUT));
            if instances.len() == all {
                instances.pop_last();
            }
        }
        let ended = self.machines.gone(self.now);
        Ok(Observation { complete, ended, ..Observation::complete(self.now, instances) })
    }

    /// Ends machines. One that is unknown or on its way out already is fine as it is.
    pub fn terminate(&mut self, now: Timestamp, ids: &[ProviderId]) -> Vec<(ProviderId, Result<(), String>)> {
        self.advance(now);
        ids.iter().map(|id| (id.clone(), self.terminate_one(id))).collect()
    }

    fn terminate_one(&mut self, id: &ProviderId) -> Result<(), String> {
        let mut stream = self.stream("terminate", id.as_str());
        let failed = stream.chance(self.config.api.error_rate);
        if !failed || stream.chance(0.5) {
            let gone_at = store::after(self.now, i64::from(self.config.stop_seconds));
            if let Some(row) = self.machines.stop(id, Window { said_at: self.now, gone_at }, self.now) {
                self.dirty.insert(row.key.clone(), row);
            }
        }
        if failed { Err("simulated API error: the answer to the termination was lost".into()) } else { Ok(()) }
    }

    /// Lets time pass: machines boot, get their notice and end. Says whether any did.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        self.now = self.now.max(now);
        self.machines.advance(self.now)
    }

    /// The earliest moment, not before `now`, at which a machine changes by itself; `None` where none will.
    pub fn next_event(&self, now: Timestamp) -> Option<Timestamp> {
        self.machines.next_change().map(|at| at.max(now))
    }

    /// What the clouds tell about their markets.
    pub fn market_facts(&self, now: Timestamp) -> MarketFacts {
        let now = self.now.max(now);
        let quotes = self.rules.iter().filter_map(|(market, rule)| {
            Some((market.clone(), facts::quote(self.seed, market, rule.spot?, &self.source, now)))
        });
        MarketFacts {
            clouds: self.clouds.clone(),
            zone_names: self.zones.clone(),
            quotes: quotes.collect(),
            regions: None,
            node_classes: Some(BTreeSet::new()),
            offered: BTreeMap::new(),
            machines: BTreeMap::new(),
            labels_capacity_type: false,
            quotas: self.config.quotas.iter().filter_map(|row| facts::quota(row, now).ok()).collect(),
            reservations: self.config.reservations.iter().filter_map(|row| facts::reservation(row, now).ok()).collect(),
        }
    }

    /// Whether the market can be ordered from at all.
    pub fn sells(&self, market: &Market) -> bool {
        self.rules.get(market).is_some_and(|rule| rule.orderable)
    }

    /// How many machines the market would sell now.
    pub fn stock_left(&self, market: &Market) -> u32 {
        match self.rules.get(market) {
            Some(rule) if rule.orderable && self.no_stock(market, rule).is_none() => rule.stock - self.machines.in_use(market),
            Some(_) | None => 0,
        }
    }

    /// Every machine of a cluster, on its way out or not. What the cloud itself would know: never partial, never an error.
    pub fn machines_of<'a>(&'a self, cluster: &'a ClusterName) -> impl Iterator<Item = &'a Arc<Instance>> {
        self.machines.of(cluster)
    }

    /// Whether a machine exists and has booted by then, whatever it does now.
    pub fn has_booted(&self, id: &ProviderId, now: Timestamp) -> bool {
        self.machines.has_booted(id, now)
    }

    /// The machine of that id, whichever cluster it is for; `None` once it is gone.
    pub fn instance(&self, id: &ProviderId) -> Option<&Arc<Instance>> {
        self.machines.by_id(id)
    }

    /// How long the clouds take to answer a call made at `now`. The world does not wait: its host does.
    pub fn answer_latency(&self, now: Timestamp, call: &str) -> Duration {
        let bounds = &self.config.api.latency_ms;
        let span = i64::from(bounds.max) - i64::from(bounds.min);
        let more = self.seed.stream("latency", &[call], now.as_microsecond()).up_to(span);
        Duration::from_millis(u64::from(bounds.min).saturating_add_signed(more))
    }

    /// How many launches may be under way at a time.
    pub fn max_in_flight(&self) -> u32 {
        self.config.api.max_in_flight
    }

    /// How it behaves.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// What happens to one call about one thing: asked again later, it may go otherwise.
    fn stream(&self, call: &str, about: &str) -> Stream {
        self.seed.stream(call, &[about], self.now.as_microsecond())
    }

    /// Whole seconds since the start.
    fn elapsed(&self) -> i64 {
        self.now.duration_since(self.start).as_secs()
    }
}
