//! How suppliers stand, as people see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{Cloud, NodeClassName, Region, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::derive::Exclusion;
use stoker_core::facts::supply::{MarketFacts, Observation, QuotaFact, ReservationFact};
use stoker_core::market::offer::Market;
use stoker_core::policy::QuotaKey;
use stoker_core::policy::rules::supplier::SupplierKind;
use stoker_core::state::memory::Memory;
use stoker_core::state::record::Purchase;
use tokio::sync::watch;

use super::{CallKind, LimitedSupplier, Went};
use crate::print::count;

/// The newest complete listing of a supplier; `None` before the first.
pub type Inventory = watch::Receiver<Option<Arc<Observation>>>;

/// Suppliers with what they said last.
#[derive(Debug, Clone)]
pub struct Standings {
    /// Each with its inventory.
    pub suppliers: Vec<(LimitedSupplier, Inventory)>,
    /// What each said of its markets.
    pub facts: watch::Receiver<Arc<BTreeMap<SupplierName, MarketFacts>>>,
}

/// How a supplier stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupplierStanding {
    /// Its name.
    pub name: SupplierName,
    /// How it is reached.
    pub kind: String,
    /// Where it can make nodes; `None` while it has not said.
    pub clouds: Option<Vec<Cloud>>,
    /// Regions of these; `None` where it does not say: they may be all.
    pub regions: Option<Vec<(Cloud, Region)>>,
    /// What it makes nodes with; `None` where it does not say.
    pub node_classes: Option<Vec<NodeClassName>>,
    /// How many machines it has; `None` while it has not listed them.
    pub machines: Option<usize>,
    /// When that was true.
    pub listed_at: Option<Timestamp>,
    /// What keeps it from making all that it might.
    pub faults: Vec<String>,
    /// How its calls went.
    pub calls: Vec<(CallKind, Went)>,
    /// What it tells of its account's quotas, those of the policy and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<(QuotaKey, QuotaFact)>,
    /// What it tells of its account's reservations, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<String, ReservationFact>,
}

impl Standings {
    /// How each supplier stands, for the policy of that catalogue, in which the simulated one need not be named.
    pub fn now(&self, catalogue: &Catalogue, memory: &Memory) -> Vec<SupplierStanding> {
        let rules = &catalogue.policy.suppliers;
        let facts = self.facts.borrow();
        let standing = |(supplier, listing): &(LimitedSupplier, Inventory)| {
            let name = supplier.name();
            let facts = facts.get(name);
            let listing = listing.borrow();
            let rule = rules.iter().find(|rule| rule.name == *name);
            SupplierStanding {
                name: name.clone(),
                kind: rule.map_or(&SupplierKind::Simulated, |rule| &rule.kind).as_str().to_owned(),
                clouds: facts.map(|facts| facts.clouds.iter().cloned().collect()),
                regions: facts.and_then(|facts| Some(facts.regions.as_ref()?.iter().cloned().collect())),
                node_classes: facts.and_then(|facts| Some(facts.node_classes.as_ref()?.iter().cloned().collect())),
                machines: listing.as_ref().map(|seen| seen.instances.len()),
                listed_at: listing.as_ref().map(|seen| seen.as_of()),
                faults: supplier
                    .faults()
                    .into_iter()
                    .chain(without_nodes(catalogue, name))
                    .chain(listing.as_deref().into_iter().flat_map(|seen| unlisted(seen, name, catalogue, memory)))
                    .collect(),
                calls: supplier.calls().iter().map(|(kind, went)| (*kind, went.clone())).collect(),
                quotas: facts.map(|facts| facts.quotas.clone().into_iter().collect()).unwrap_or_default(),
                reservations: facts.map(|facts| facts.reservations.clone()).unwrap_or_default(),
            }
        };
        self.suppliers.iter().map(standing).collect()
    }

    /// Regions that have machines on record and are not listed, each with its supplier, in words.
    pub fn unlisted(&self, catalogue: &Catalogue, memory: &Memory) -> Vec<(SupplierName, String)> {
        let of = |(supplier, listing): &(LimitedSupplier, Inventory)| {
            let name = supplier.name();
            let regions = listing.borrow().as_deref().map(|seen| unlisted(seen, name, catalogue, memory)).unwrap_or_default();
            regions.into_iter().map(|why| (name.clone(), why)).collect::<Vec<_>>()
        };
        self.suppliers.iter().flat_map(of).collect()
    }
}

/// Regions in which machines of that supplier are on record, and which its listing does not cover.
fn unlisted(seen: &Observation, name: &SupplierName, catalogue: &Catalogue, memory: &Memory) -> Vec<String> {
    let mut machines: BTreeMap<(&Cloud, &Region), usize> = BTreeMap::new();
    for record in memory.records.values() {
        let is_its = || catalogue.group_or_remembered(&record.group, memory).is_some_and(|group| group.supplier == *name);
        if let Some(Purchase { market: Market { place, .. }, .. }) = record.purchase()
            && seen.covered.region(place).is_none()
            && is_its()
        {
            *machines.entry((&place.cloud, &place.region)).or_default() += 1;
        }
    }
    let in_words = |((cloud, region), machines)| {
        let machines = count(machines, "machine");
        format!(
            "{cloud}/{region}: {machines} on record, and the supplier does not list that region any more. They may run on and cost, \
             and Stoker can neither see nor end them: put the region back into the supplier's configuration until they have ended"
        )
    };
    machines.into_iter().map(in_words).collect()
}

/// The pools that get no node because the supplier that would make them cannot, and why.
pub(crate) fn without_nodes(catalogue: &Catalogue, name: &SupplierName) -> BTreeSet<String> {
    let left_out = catalogue.left_out.iter().filter_map(|left_out| match &left_out.why {
        Exclusion::CannotMake { supplier, why } if supplier == name => Some((&left_out.pool, why)),
        _ => None,
    });
    let empty = left_out.filter(|(pool, _)| catalogue.pool_groups(pool).next().is_none());
    empty.map(|(pool, why)| format!("pool {pool} gets no node: {why}")).collect()
}
