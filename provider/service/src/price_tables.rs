//! What can be bought and for how much: the price tables, a simulated market's live quotes, and the catalogue that a policy makes of both.
//!
//! The one-shot commands stand on it; the service has the same facts from its feeds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{IdError, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::rates::Rates;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::offer::Market;
use stoker_core::market::price::{Entry, NoSignal, PriceBook};
use stoker_core::policy::rules::supplier::{SupplierKind, SupplierRule};
use stoker_core::policy::{Fault, Policy};
use stoker_pricing::TableFaults;
use stoker_sim::world::{World, WorldConfig};

use crate::feeds::policy_watch::PolicyError;
use crate::files;
use crate::policy_file;
use crate::suppliers::SIMULATED;
use crate::unmatched::{Unmatched, unmatched};
use crate::yaml::{self, Faults};

/// What the built-in policy is called in faults and reports.
pub const EXAMPLE: &str = "the built-in example policy";

/// Why the price tables cannot be used. Each message names the file and the cure.
#[derive(Debug, thiserror::Error)]
pub enum PriceTablesError {
    /// The price tables do not hold.
    #[error("{0}")]
    Tables(TableFaults),
    /// The policy does not hold.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The world file cannot be read.
    #[error("{}: cannot be read", path.display())]
    ReadWorld {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The world file does not hold.
    #[error("{0}")]
    World(Faults),
    /// The default world does not hold with these price tables.
    #[error("the world file does not fit these price tables: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    DefaultWorld(Vec<Fault>),
    /// The supplier's name is no id.
    #[error(transparent)]
    Name(#[from] IdError),
}

/// Prices and market facts as of one moment.
#[derive(Debug, Clone)]
pub struct PriceTables {
    /// The price tables.
    pub prices: Arc<PriceBook>,
    /// What the suppliers tell of their markets: zone names and live quotes.
    pub facts: BTreeMap<SupplierName, MarketFacts>,
    /// What an account of AWS told just now; `None` where none was asked.
    pub asked: Option<MarketFacts>,
}

impl PriceTables {
    /// The tables and markets at `now`: the built-in tables or those of a folder, and the simulated world of a file or the default one.
    pub fn load(prices_dir: Option<&Path>, world_file: Option<&Path>, now: Timestamp) -> Result<Self, PriceTablesError> {
        let prices = prices(prices_dir, now)?;
        let config = world_config(world_file, &prices, now)?;
        let world = World::new(config, &prices, now).map_err(PriceTablesError::DefaultWorld)?;
        let supplier = SupplierName::new(SIMULATED)?;
        let facts = BTreeMap::from([(supplier, world.market_facts(now))]);
        Ok(Self { prices: Arc::new(prices), facts, asked: None })
    }

    /// The same with what an account of AWS told: its prices, quotas and types replace what is simulated there.
    #[must_use]
    pub fn with_asked(mut self, asked: MarketFacts) -> Self {
        for facts in self.facts.values_mut() {
            facts.quotes.extend(asked.quotes.clone());
            facts.zone_names.extend(asked.zone_names.clone());
            facts.quotas.extend(asked.quotas.clone());
            facts.offered.extend(asked.offered.clone());
            facts.machines.extend(asked.machines.clone());
        }
        self.asked = Some(asked);
        self
    }

    /// The policy of a file, or the built-in example; names that the tables do not know are faults.
    pub fn policy(&self, file: Option<&Path>) -> Result<Policy, PriceTablesError> {
        policy(file, &self.prices)
    }

    /// What a policy makes of it.
    pub fn catalogue(&self, policy: Policy) -> Catalogue {
        let facts = self.facts_for(&policy);
        Catalogue::derive(&Arc::new(policy), &self.prices, &facts)
    }

    /// What each market costs under a policy: the tables, with the suppliers' `latest` facts in place of what is
    /// simulated of them, and with the policy's own prices.
    pub fn quoted(&self, policy: &Policy, latest: BTreeMap<SupplierName, MarketFacts>, now: Timestamp) -> PriceBook {
        let mut facts = self.facts_for(policy).into_owned();
        facts.extend(latest);
        Rates::new(policy, &self.prices, &facts, Wall(now)).book()
    }

    /// What is known of the suppliers of a policy. Nobody outside of this process is asked here: such a supplier is taken to make all that
    /// the policy would have it make.
    fn facts_for(&self, policy: &Policy) -> Cow<'_, BTreeMap<SupplierName, MarketFacts>> {
        let is_outside = |rule: &&SupplierRule| rule.kind != SupplierKind::Simulated;
        let mut outside = policy.suppliers.iter().filter(is_outside).peekable();
        if outside.peek().is_none() {
            return Cow::Borrowed(&self.facts);
        }
        let clouds = self.prices.entries().map(|(market, _)| market.place.cloud.clone()).collect();
        let all = MarketFacts { clouds, ..MarketFacts::default() };
        let mut facts = self.facts.clone();
        facts.extend(outside.map(|rule| {
            if let (SupplierKind::Aws { .. }, Some(asked)) = (&rule.kind, &self.asked) {
                return (rule.name.clone(), asked.clone());
            }
            let labels_capacity_type = rule.kind.labels_capacity_type();
            (rule.name.clone(), MarketFacts { labels_capacity_type, ..all.clone() })
        }));
        Cow::Owned(facts)
    }

    /// Names in the catalogue's policy that yield no group.
    pub fn unmatched(&self, catalogue: &Catalogue) -> Vec<Unmatched> {
        unmatched(catalogue, &self.prices, &self.facts)
    }

    /// What is said of a market: a live quote where there is one, else the table's word. A live quote cannot make orderable what is
    /// only listed.
    pub fn entry(&self, market: &Market) -> Option<Entry> {
        let table = self.prices.entry(market);
        if let Some(Entry::NoSignal(NoSignal::ListOnly)) = table {
            return table.cloned();
        }
        let live = self.facts.values().find_map(|facts| facts.quotes.get(market));
        live.map(|quote| Entry::Price(quote.clone())).or_else(|| table.cloned())
    }
}

/// The price tables: the built-in ones, or those of a folder, no figure of which may be of a day after `now`.
pub fn prices(dir: Option<&Path>, now: Timestamp) -> Result<PriceBook, PriceTablesError> {
    dir.map_or_else(stoker_pricing::embedded, |dir| stoker_pricing::load_dir(dir, now, files::read))
        .map_err(PriceTablesError::Tables)
}

/// The policy of a file, or the built-in example.
pub fn policy(file: Option<&Path>, prices: &PriceBook) -> Result<Policy, PriceTablesError> {
    let read = match file {
        Some(path) => policy_file::parse(&files::shown(path), &policy_text(path)?, Some(prices)),
        None => policy_file::parse(EXAMPLE, policy_file::example(), Some(prices)),
    };
    Ok(read.map_err(PolicyError::Faults)?)
}

/// The text of a policy file, or of standard input where it is called `-`.
pub fn policy_text(path: &Path) -> Result<String, PolicyError> {
    files::read_text_or_stdin(path).map_err(|source| PolicyError::Read(path.to_owned(), source))
}

/// How the simulated world behaves: as a file says, or by default. Rows of the file that mean no market of the tables are faults.
pub fn world_config(file: Option<&Path>, prices: &PriceBook, start: Timestamp) -> Result<WorldConfig, PriceTablesError> {
    let Some(path) = file else { return Ok(WorldConfig::default()) };
    let text = files::read_text(path).map_err(|source| PriceTablesError::ReadWorld { path: path.to_owned(), source })?;
    let rules = |raw: &WorldConfig| World::new(raw.clone(), prices, start).map(|_| raw.clone());
    let read = yaml::load_checked(&path.display().to_string(), &text, rules);
    read.map(|read| read.value).map_err(PriceTablesError::World)
}

#[cfg(test)]
mod tests {
    use stoker_core::base::units::UsdPerHour;

    use super::*;

    /// What is sold as spot has no price in the tables: its markets have one, and the latest of the service comes first.
    #[test]
    fn quotes_of_the_markets_stand_in_the_book() {
        let now = "2026-11-30T00:00:00Z".parse().unwrap();
        let tables = PriceTables::load(None, None, now).unwrap();
        let policy = tables.policy(None).unwrap();
        let (supplier, facts) = tables.facts.first_key_value().unwrap();
        let simulated = tables.quoted(&policy, BTreeMap::new(), now);
        let market = facts.quotes.keys().find(|market| simulated.quote(market, Wall(now)).is_ok()).unwrap();
        let mut latest = facts.clone();
        latest.quotes.get_mut(market).unwrap().price = UsdPerHour(123_456);
        let book = tables.quoted(&policy, BTreeMap::from([(supplier.clone(), latest)]), now);
        assert_eq!(book.quote(market, Wall(now)).unwrap().price, UsdPerHour(123_456));
        assert_ne!(tables.prices.quote(market, Wall(now)).map(|quote| quote.price).ok(), Some(UsdPerHour(123_456)));
    }
}
