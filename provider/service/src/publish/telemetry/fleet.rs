//! Gauges of single nodes, GPUs, quotas and prices: worked out from the facts of the last pass when somebody scrapes, so that no pass pays
//! for them. Dashboards and alerts join what GPU exporters tell of a node with these, by the label `node`.

mod floors;
pub(super) mod opencost;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{NodeName, PoolName};
use stoker_core::base::kinds::{QuotaUnit, Workload};
use stoker_core::base::units::UsdPerHour;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::group::Group;
use stoker_core::facts::snapshot::ClusterFacts;
use stoker_core::limits::usage::{Usage, group_of};
use stoker_core::market::offer::CapacityType;
use stoker_core::market::price::{Entry, Quote, QuoteKind, Unpriced};
use stoker_core::policy::Quota;
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::memory::Memory;
use stoker_core::state::record::{Record, State};

use super::labels::{GpuUse, OfferPrice};
use super::published::{dollars, gauges};

/// What a pass knew, as it was published; cheap to keep.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// What can be bought, and the policy.
    pub catalogue: Arc<Catalogue>,
    /// The records.
    pub memory: Arc<Memory>,
    /// The cluster's nodes; `None` without a Kubernetes feed, and then nobody knows what is in use.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// How the warm floors stood.
    pub floors: Vec<FloorStands>,
}

/// A node that has joined.
struct Node<'a> {
    /// The name of its Node; without a Kubernetes feed the machine's id, as there is no other.
    name: &'a str,
    group: &'a Group,
    record: &'a Record,
    /// Whether GPU pods hold it; `None` where nobody knows.
    busy: Option<bool>,
}

impl Fleet {
    /// The nodes that have joined, by name: no two of a name, or joins by it would fail.
    fn nodes(&self) -> BTreeMap<&str, Node<'_>> {
        let joined = self.memory.records.values().filter_map(|record| {
            let State::Registered { node, instance, .. } = &record.state else { return None };
            let group = group_of(record, &self.memory, &self.catalogue)?;
            let name = node.as_ref().map_or(instance.as_str(), |node| node.as_str());
            let facts = || self.cluster.as_ref()?.nodes.get(node.as_ref()?);
            let busy = facts().map(|facts| facts.is_busy());
            Some((name, Node { name, group, record, busy }))
        });
        joined.collect()
    }

    /// GPUs by pool, how they were bought and what they are used for. Each pool has a row for each of them, at nought where there is none:
    /// a share of what is not there could not be told from nought.
    fn gpus<'a>(&'a self, nodes: &BTreeMap<&str, Node<'a>>) -> BTreeMap<(&'a PoolName, CapacityType, GpuUse), i64> {
        let pools = self.catalogue.policy.pools.iter().map(|pool| &pool.name);
        let mut gpus: BTreeMap<_, i64> = pools.flat_map(every_use).map(|key| (key, 0)).collect();
        for Node { group, record, busy, .. } in nodes.values() {
            let Some(purchase) = record.purchase() else { continue };
            let used = match busy {
                Some(true) => GpuUse::Busy,
                Some(false) => GpuUse::Idle,
                None => GpuUse::Unknown,
            };
            *gpus.entry((&group.pool, purchase.market.capacity_type, used)).or_default() += count(group);
        }
        for record in self.memory.records.values().filter(|record| !matches!(record.state, State::Registered { .. })) {
            if let (Some(purchase), Some(group)) = (record.purchase(), group_of(record, &self.memory, &self.catalogue)) {
                *gpus.entry((&group.pool, purchase.market.capacity_type, GpuUse::Away)).or_default() += count(group);
            }
        }
        gpus
    }

    /// How many Ready nodes each pool has.
    fn ready(&self) -> BTreeMap<&PoolName, u32> {
        let mut ready = BTreeMap::new();
        for record in self.memory.records.values() {
            if matches!(record.state, State::Registered { ready_at: Some(_), .. })
                && let Some(group) = group_of(record, &self.memory, &self.catalogue)
            {
                *ready.entry(&group.pool).or_default() += 1;
            }
        }
        ready
    }

    /// What the nodes cost that no GPU pod uses and one of `guests` is on, by pool. Those keep the autoscaler from removing them.
    fn kept_by_guests(&self, nodes: &BTreeMap<&str, Node<'_>>, guests: &BTreeSet<NodeName>) -> BTreeMap<&PoolName, UsdPerHour> {
        let mut kept: BTreeMap<_, UsdPerHour> =
            self.catalogue.policy.pools.iter().map(|pool| (&pool.name, UsdPerHour::default())).collect();
        for name in guests {
            if let Some(Node { group, record, busy: Some(false), .. }) = nodes.get(name.as_str())
                && let (Some(kept), Some(purchase)) = (kept.get_mut(&group.pool), record.purchase())
            {
                *kept = kept.plus(purchase.price);
            }
        }
        kept
    }

    /// Writes every gauge. `guests` are the nodes that pods without GPU sit on.
    pub(super) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        now: Timestamp,
        guests: &BTreeSet<NodeName>,
    ) -> fmt::Result {
        let nodes = self.nodes();
        self.encode_nodes(encoder, &nodes)?;
        let workloads: BTreeMap<&PoolName, Workload> =
            self.catalogue.policy.pools.iter().map(|pool| (&pool.name, pool.workload)).collect();
        let gpus = self.gpus(&nodes);
        let gpus = gpus.iter().map(|((pool, capacity_type, used), gpus)| {
            let labels = [
                ("pool", pool.to_string()),
                ("workload", workloads.get(*pool).map(|workload| workload.as_str().to_owned()).unwrap_or_default()),
                ("capacity_type", capacity_type.to_string()),
                ("use", used.as_str().to_owned()),
            ];
            (labels, *gpus)
        });
        let help = "GPUs that are paid for: busy where GPU pods are on their node, idle where none is, unknown where that is \
                    not known, away while their node has not joined or is leaving";
        gauges(encoder, "gpus", help, None, gpus)?;
        if self.cluster.is_some() {
            let kept = self.kept_by_guests(&nodes, guests);
            let kept = kept.iter().map(|(pool, rate)| ([("pool", pool.to_string())], dollars(*rate)));
            let help = "Cost of nodes that no GPU pod uses and that a pod without a GPU request keeps, in US dollars per hour";
            let per_hour = Unit::Other("usd_per_hour".to_owned());
            gauges(encoder, "pods_without_gpu", help, Some(&per_hour), kept)?;
        }
        self.encode_verdicts(encoder)?;
        self.encode_outdated(encoder)?;
        self.encode_floors(encoder)?;
        self.encode_quotas(encoder, now)?;
        self.encode_prices(encoder, now)
    }

    fn encode_nodes(&self, encoder: &mut DescriptorEncoder<'_>, nodes: &BTreeMap<&str, Node<'_>>) -> fmt::Result {
        let info = nodes.values().filter_map(|Node { name, group, record, .. }| {
            let purchase = record.purchase()?;
            let workload = self.catalogue.policy.pool(&group.pool).map(|pool| pool.workload.as_str().to_owned());
            let labels = [
                ("node", (*name).to_owned()),
                ("pool", group.pool.to_string()),
                ("workload", workload.unwrap_or_default()),
                ("instance_type", purchase.market.place.instance_type.to_string()),
                ("zone", group.zone_name.to_string()),
                ("capacity_type", purchase.market.capacity_type.to_string()),
            ];
            Some((labels, 1_i64))
        });
        gauges(
            encoder,
            "node_info",
            "1 for each node that has joined; without a Kubernetes feed `node` is its machine",
            None,
            info,
        )?;
        let rates = nodes
            .values()
            .filter_map(|Node { name, record, .. }| Some(([("node", (*name).to_owned())], dollars(record.purchase()?.price))));
        let per_hour = Unit::Other("usd_per_hour".to_owned());
        let help = "Price at which a node was bought, in US dollars per hour, before commitments";
        gauges(encoder, "node", help, Some(&per_hour), rates)?;
        let gpus = nodes.values().map(|Node { name, group, .. }| ([("node", (*name).to_owned())], count(group)));
        gauges(encoder, "node_gpus", "GPUs that a node has", None, gpus)?;
        let busy =
            nodes.values().filter_map(|Node { name, busy, .. }| Some(([("node", (*name).to_owned())], i64::from((*busy)?))));
        gauges(encoder, "node_busy", "1 while GPU pods are on a node; absent where that is unknown", None, busy)
    }

    /// Outdated nodes, where each pool has a row, zero where it has none; and templates that promise too much.
    fn encode_outdated(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut nodes: BTreeMap<&PoolName, i64> = self.catalogue.policy.pools.iter().map(|pool| (&pool.name, 0)).collect();
        for record in self.memory.outdated.keys().filter_map(|id| self.memory.records.get(id)) {
            if let Some(group) = group_of(record, &self.memory, &self.catalogue) {
                *nodes.entry(&group.pool).or_default() += 1;
            }
        }
        let nodes = nodes.into_iter().map(|(pool, nodes)| ([("pool", pool.to_string())], nodes));
        let help = "Nodes that would be made differently today: with another image, node class, labels, taints or sharing";
        gauges(encoder, "outdated", help, Some(&Unit::Other("nodes".to_owned())), nodes)?;
        let smaller =
            self.memory.shortfalls.keys().map(|(pool, instance_type)| {
                ([("pool", pool.to_string()), ("instance_type", instance_type.to_string())], 1_i64)
            });
        let help = "1 for an instance type of which the last new node leaves less to pods than its template promises";
        gauges(encoder, "template_too_large", help, None, smaller)
    }

    fn encode_quotas(&self, encoder: &mut DescriptorEncoder<'_>, now: Timestamp) -> fmt::Result {
        let quotas = &self.catalogue.policy.quotas;
        if quotas.is_empty() {
            return Ok(());
        }
        let usage = Usage::count(&self.memory, &self.catalogue, Wall(now));
        let limits = quotas.iter().enumerate().map(|(at, quota)| {
            let (limit, _) = self.catalogue.quota_limit(at, Wall(now));
            (quota_labels(quota), i64::from(limit.saturating_sub(quota.safety)))
        });
        gauges(encoder, "quota_limit", "A cloud's quota less the policy's safety margin, in the quota's unit", None, limits)?;
        let used = quotas.iter().zip(&usage.quotas).map(|(quota, held)| {
            (quota_labels(quota), i64::try_from(held.units.saturating_add(u64::from(quota.used))).unwrap_or(i64::MAX))
        });
        let help = "Use of a quota, in its unit: nodes that run or boot here, and what the policy says runs elsewhere";
        gauges(encoder, "quota_used", help, None, used)
    }

    fn encode_prices(&self, encoder: &mut DescriptorEncoder<'_>, now: Timestamp) -> fmt::Result {
        let mut oldest: BTreeMap<(&PoolName, QuoteKind), f64> = BTreeMap::new();
        let mut standing: BTreeMap<(&PoolName, OfferPrice), i64> = BTreeMap::new();
        for pool in &self.catalogue.policy.pools {
            standing.extend(OfferPrice::ALL.iter().map(|price| ((&pool.name, *price), 0)));
        }
        for group in self.catalogue.groups.values() {
            for offer in &group.offers {
                if let Some(Entry::Price(quote)) = &offer.entry
                    && let Some(age) = quote.age(Wall(now))
                {
                    let age = age.as_secs_f64().max(0.0);
                    oldest.entry((&group.pool, quote.kind)).and_modify(|most| *most = most.max(age)).or_insert(age);
                }
                *standing.entry((&group.pool, price(&offer.quote(Wall(now))))).or_default() += 1;
            }
        }
        let ages = oldest.iter().map(|((pool, kind), age)| ([("pool", pool.to_string()), ("kind", kind.to_string())], *age));
        let help = "Age of the oldest dated price of a pool's offers, by kind of source, including expired prices, which are \
                    not used";
        gauges(encoder, "price_age", help, Some(&Unit::Seconds), ages)?;
        let offers = standing
            .iter()
            .map(|((pool, price), offers)| ([("pool", pool.to_string()), ("price", price.as_str().to_owned())], *offers));
        let help = "Offers of a pool by price: dated, undated, expired (not used), none";
        gauges(encoder, "offers", help, None, offers)
    }
}

/// How the price of an offer stands. An operator's own word needs no date.
const fn price(quote: &Result<&Quote, Unpriced>) -> OfferPrice {
    match quote {
        Ok(quote) if quote.as_of.is_some() || matches!(quote.kind, QuoteKind::Operator) => OfferPrice::Dated,
        Ok(_) => OfferPrice::Undated,
        Err(Unpriced::Lapsed { .. }) => OfferPrice::Lapsed,
        Err(Unpriced::Unknown | Unpriced::NoSignal(_)) => OfferPrice::Unknown,
    }
}

fn every_use(pool: &PoolName) -> impl Iterator<Item = (&PoolName, CapacityType, GpuUse)> {
    let uses = move |capacity_type| GpuUse::ALL.iter().map(move |used| (pool, capacity_type, *used));
    CapacityType::ALL.into_iter().flat_map(uses)
}

fn count(group: &Group) -> i64 {
    i64::from(group.spec.advertised_gpus())
}

/// An empty region is that of all regions together.
fn quota_labels(quota: &Quota) -> [(&'static str, String); 4] {
    let unit = match quota.unit {
        QuotaUnit::Vcpus => "vcpus",
        QuotaUnit::Gpus => "gpus",
    };
    let region = quota.region.as_ref().map(ToString::to_string).unwrap_or_default();
    [("quota", quota.name.clone()), ("cloud", quota.cloud.to_string()), ("region", region), ("unit", unit.to_owned())]
}
