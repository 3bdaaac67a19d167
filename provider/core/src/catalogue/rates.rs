//! Rates of running nodes: what one costs now, at list and as paid.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::engine_clock::Wall;
use crate::base::ids::SupplierName;
use crate::base::units::UsdPerHour;
use crate::catalogue::derive::{OperatorPrices, live};
use crate::facts::supply::MarketFacts;
use crate::market::offer::{CapacityType, Market, Place};
use crate::market::price::{Entry, PriceBook, usable};
use crate::policy::Policy;

/// Prices of running nodes under one policy, price book and state of the markets.
#[derive(Debug)]
pub struct Rates<'a> {
    prices: &'a PriceBook,
    suppliers: &'a BTreeMap<SupplierName, MarketFacts>,
    operator: OperatorPrices,
    wall: Wall,
}

impl<'a> Rates<'a> {
    /// The prices that count at `wall`.
    pub fn new(policy: &Policy, prices: &'a PriceBook, suppliers: &'a BTreeMap<SupplierName, MarketFacts>, wall: Wall) -> Self {
        Self { prices, suppliers, operator: OperatorPrices::new(policy), wall }
    }

    /// The published on-demand price of a node there, whichever way it was bought; `None` where no table tells. Spot and reserved nodes
    /// are measured by it too, as clouds do in their own cost exports.
    pub fn list(&self, place: &Place) -> Option<UsdPerHour> {
        let on_demand = Market { place: place.clone(), capacity_type: CapacityType::OnDemand };
        match self.prices.entry(&on_demand) {
            Some(Entry::Price(quote)) => Some(quote.price),
            Some(Entry::NoSignal(_)) => None,
            None => self.prices.unzoned_quote(place).map(|quote| quote.price),
        }
    }

    /// What a node costs on demand there, by the policy's own price, else by the table's; `None` where neither tells.
    pub fn on_demand(&self, place: &Place) -> Option<UsdPerHour> {
        let market = Market { place: place.clone(), capacity_type: CapacityType::OnDemand };
        let listed = self.prices.entry(&market).cloned();
        let entry = self.operator.over(&market, listed);
        usable(entry.as_ref(), self.wall).ok().map(|quote| quote.price).or_else(|| self.list(place))
    }

    /// What a running node of that market costs now, without commitments: by the policy's own price, else by the market's or the table's.
    /// `None` where nobody tells any more; what was paid when it was chosen is the best guess then. A reserved node has no market price.
    pub fn paid(&self, market: &Market, supplier: &SupplierName) -> Option<UsdPerHour> {
        let listed = self.prices.entry(market);
        let quoted = self.suppliers.get(supplier).and_then(|facts| facts.quotes.get(market));
        let known = quoted.map(|quote| live(listed, quote)).or_else(|| listed.cloned());
        let entry = self.operator.over(market, known);
        usable(entry.as_ref(), self.wall).ok().map(|quote| quote.price)
    }

    /// What each market costs now: the price tables, with what the markets and the policy say in their place.
    pub fn book(&self) -> PriceBook {
        let mut book = self.prices.clone();
        for (market, quote) in self.suppliers.values().flat_map(|facts| &facts.quotes) {
            book.insert(market.clone(), live(self.prices.entry(market), quote));
        }
        let own = self.operator.markets().cloned();
        let markets: BTreeSet<Market> = book.entries().map(|(market, _)| market.clone()).chain(own).collect();
        for market in markets {
            if let Some(entry) = self.operator.over(&market, book.entry(&market).cloned()) {
                book.insert(market, entry);
            }
        }
        book
    }
}
