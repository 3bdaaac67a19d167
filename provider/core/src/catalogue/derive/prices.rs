//! Price overrides from the policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ids::Cloud;
use crate::market::offer::{CapacityType, Market, Place};
use crate::market::price::{Entry, Quote, QuoteKind};
use crate::policy::Policy;

/// The policy's own prices, ready to be looked up.
#[derive(Debug)]
pub(crate) struct OperatorPrices {
    zoned: BTreeMap<Market, Quote>,
    regional: BTreeMap<(Cloud, String, String, CapacityType), Quote>,
}

impl OperatorPrices {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut prices = Self { zoned: BTreeMap::new(), regional: BTreeMap::new() };
        for row in &policy.prices {
            let quote = Quote { price: row.price, kind: QuoteKind::Operator, as_of: None, source: Arc::from("policy prices") };
            if let Some(zone) = &row.zone {
                let place = Place {
                    cloud: row.cloud.clone(),
                    region: row.region.clone(),
                    zone: zone.clone(),
                    instance_type: row.instance_type.clone(),
                };
                prices.zoned.insert(Market { place, capacity_type: row.capacity_type }, quote);
            } else {
                let key = (row.cloud.clone(), row.region.to_string(), row.instance_type.to_string(), row.capacity_type);
                prices.regional.insert(key, quote);
            }
        }
        prices
    }

    /// The operator's price of a market of which the tables and the market itself say `known`.
    ///
    /// A row of a region prices what is sold there. A row of a zone opens a market of which nobody says anything, too. Neither opens one
    /// that is known not to exist.
    fn entry(&self, market: &Market, known: Option<&Entry>) -> Option<Entry> {
        if self.zoned.is_empty() && self.regional.is_empty() {
            return None;
        }
        let place = &market.place;
        let regional = || {
            let key = (place.cloud.clone(), place.region.to_string(), place.instance_type.to_string(), market.capacity_type);
            self.regional.get(&key)
        };
        let quote = match known {
            Some(entry) if !entry.is_sold() => None,
            Some(_) => self.zoned.get(market).or_else(regional),
            None => self.zoned.get(market),
        };
        quote.cloned().map(Entry::Price)
    }

    /// The operator's price where there is one, else what is `known`.
    pub(crate) fn over(&self, market: &Market, known: Option<Entry>) -> Option<Entry> {
        self.entry(market, known.as_ref()).or(known)
    }

    /// The markets for which a row names the zone.
    pub(crate) fn markets(&self) -> impl Iterator<Item = &Market> {
        self.zoned.keys()
    }

    /// Their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.markets().map(|market| &market.place)
    }
}
