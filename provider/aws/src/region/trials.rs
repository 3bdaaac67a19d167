//! Launches tried as dry runs: EC2 says whether it would make the machine, and makes none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{
    Cloud, IdError, InstanceType, LaunchKey, NodeClassName, NodeGroupId, PoolName, Region, ZoneId, ZoneName,
};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::derive::Exclusion;
use stoker_core::catalogue::group::Group;
use stoker_core::facts::supply::{LaunchRequest, MarketFacts};
use stoker_core::market::offer::{Arch, CapacityType, InstanceSpec, Market, Offer, Place};
use stoker_core::market::price::{Entry, NoSignal, PriceBook, Quote};
use stoker_service::suppliers::Launch;
use tokio::time::sleep;

use super::launching::{AGAIN_AFTER, class_of, named_reservation};
use super::{LookedUp, RegionSupplier};
use crate::answers::Done;
use crate::check::{Finding, OfPolicy};
use crate::config::Config;
use crate::launch::token;
use crate::refusal::Meaning;
use crate::wire::{Class, Failure, Form};

/// The error that says that a launch would be allowed.
const WOULD_WORK: &str = "DryRunOperation";

/// Most launches that are tried in a region: EC2 takes two a second, and people wait.
const MOST: usize = 40;

/// What launches are chosen by.
pub(super) struct Sold<'a> {
    pub(super) book: &'a PriceBook,
    pub(super) looked: &'a LookedUp,
    /// Types and the zones with a subnet that sell them.
    pub(super) types: &'a BTreeSet<(InstanceType, ZoneId)>,
    /// Spot prices by type and the zone's name; empty where EC2 tells none.
    pub(super) prices: &'a BTreeMap<(InstanceType, String), Quote>,
}

/// A launch to try, and for what.
pub(super) struct Trial {
    what: String,
    pub(super) launch: Launch,
}

impl Trial {
    /// The class and architecture that its image is of.
    pub(super) fn image<'a>(&self, config: &'a Config) -> Option<(&'a NodeClassName, Arch)> {
        let (name, _) = class_of(config, self.launch.node_class.as_ref()).ok()?;
        Some((name, self.launch.spec.as_ref()?.arch))
    }
}

impl RegionSupplier {
    /// A launch of each class on demand and by Spot, and the classes for which nothing is sold.
    pub(super) fn trials_of_classes(&self, config: &Config, sold: &Sold<'_>) -> (Vec<Trial>, Vec<Finding>) {
        let (mut trials, mut findings) = (Vec::new(), Vec::new());
        for name in config.classes.keys() {
            let specs = || sold.types.iter().filter_map(|(name, zone)| Some((spec(sold.book, name)?, zone)));
            let boots = |(spec, _): &(&Arc<InstanceSpec>, _)| sold.looked.image(name, spec.arch).is_ok();
            let first = specs().find(boots).or_else(|| specs().next());
            for bought in [CapacityType::OnDemand, CapacityType::Spot] {
                let what = format!("launch {name}, {bought}");
                let none = || Err("no GPU type is sold in a zone with a subnet".to_owned());
                match first.map_or_else(none, |(spec, zone)| self.of_class(name, spec, zone, sold.looked, bought)) {
                    Ok(launch) => trials.push(Trial { what, launch }),
                    Err(why) => findings.push(self.finding(&what, Err(why))),
                }
            }
        }
        (trials, findings)
    }

    fn of_class(
        &self,
        class: &NodeClassName,
        spec: &Arc<InstanceSpec>,
        zone: &ZoneId,
        looked: &LookedUp,
        bought: CapacityType,
    ) -> Result<Launch, String> {
        let name = looked.subnets.get(zone).and_then(|subnets| subnets.first()).map(|subnet| subnet.availability_zone.as_str());
        let in_words = |error: IdError| error.to_string();
        let place = Place {
            cloud: spec.cloud.clone(),
            region: self.name.clone(),
            zone: zone.clone(),
            instance_type: spec.instance_type.clone(),
        };
        let group = NodeGroupId::new("check").map_err(in_words)?;
        let request = LaunchRequest {
            key: self.trial_key(&group)?,
            group,
            market: Market { place, capacity_type: bought },
            zone_name: ZoneName::new(name.unwrap_or_default()).map_err(in_words)?,
            reservation: None,
        };
        Ok(Launch { spec: Some(Arc::clone(spec)), node_class: Some(class.clone()), ..request.into() })
    }

    fn trial_key(&self, group: &NodeGroupId) -> Result<LaunchKey, String> {
        LaunchKey::new(format!("{}/{group}/00000000/0/1", self.cluster)).map_err(|error| error.to_string())
    }

    /// For each pool and market the cheapest launch in each zone, of each architecture; and the markets that nothing can be bought in.
    /// The first zone of all comes before the second of any.
    pub(super) fn trials_of_policy(
        &self,
        config: &Config,
        sold: &Sold<'_>,
        OfPolicy { policy, supplier }: &OfPolicy,
    ) -> (Vec<Trial>, Vec<Finding>) {
        let (mut trials, mut findings) = (BTreeMap::new(), Vec::new());
        let Ok(cloud) = Cloud::new("aws") else { return (Vec::new(), findings) };
        let facts = BTreeMap::from([(supplier.clone(), self.facts_of(&cloud, config, sold))]);
        let catalogue = Catalogue::derive(policy, sold.book, &facts);
        let is_served = |pool: &Option<_>| pool.as_ref().is_none_or(|name| name == supplier);
        let pools = policy.pools.iter().filter(|pool| pool.clouds.contains(&cloud) && pool.regions.contains(&self.name));
        let mut pools = pools.filter(|pool| is_served(&pool.supplier)).peekable();
        if pools.peek().is_none() {
            findings.push(self.works("pools", "none of the policy buys here".to_owned()));
        }
        for pool in pools {
            for &bought in &pool.prefer {
                let what = format!("launch for {}, {bought}", pool.name);
                let cheapest = cheapest(&catalogue, &pool.name, bought);
                if cheapest.is_empty() && bought != CapacityType::Reserved {
                    findings.push(self.finding(&what, Err(why_none(&catalogue, &pool.name, &self.name))));
                }
                let mut zones: BTreeMap<Arch, usize> = BTreeMap::new();
                for ((arch, _), (group, offer)) in cheapest {
                    let place = &offer.market.place;
                    let paid = policy.commitments.iter().find(|one| one.capacity_at(place).is_some());
                    let request = self.trial_key(&group.id).map(|key| LaunchRequest {
                        key,
                        group: group.id.clone(),
                        market: offer.market.clone(),
                        zone_name: group.zone_name.clone(),
                        reservation: paid.filter(|_| bought == CapacityType::Reserved).map(|one| one.name.clone()),
                    });
                    match request {
                        Ok(request) => {
                            let at = zones.entry(arch).or_default();
                            *at += 1;
                            let launch = Launch::of(request, group, Timestamp::UNIX_EPOCH);
                            trials.insert((*at, trials.len()), Trial { what: what.clone(), launch });
                        }
                        Err(why) => findings.push(self.finding(&what, Err(why))),
                    }
                }
            }
        }
        (trials.into_values().collect(), findings)
    }

    /// What the region would tell the service, as far as launches go by it.
    fn facts_of(&self, cloud: &Cloud, config: &Config, sold: &Sold<'_>) -> MarketFacts {
        let place = |(instance_type, zone): (&InstanceType, &ZoneId)| Place {
            cloud: cloud.clone(),
            region: self.name.clone(),
            zone: zone.clone(),
            instance_type: instance_type.clone(),
        };
        let quotes = sold.prices.iter().filter_map(|((name, zone), quote)| {
            let market = Market { place: place((name, &sold.looked.zone_id(zone)?)), capacity_type: CapacityType::Spot };
            Some((market, quote.clone()))
        });
        let named = |(name, id): (String, ZoneId)| Some(((cloud.clone(), id), ZoneName::new(name).ok()?));
        MarketFacts {
            clouds: [cloud.clone()].into(),
            regions: Some([(cloud.clone(), self.name.clone())].into()),
            node_classes: Some(config.classes.keys().cloned().collect()),
            offered: [(
                (cloud.clone(), self.name.clone()),
                sold.types.iter().map(|(name, zone)| place((name, zone))).collect(),
            )]
            .into(),
            zone_names: sold.looked.zones().filter_map(named).collect(),
            quotes: quotes.collect(),
            labels_capacity_type: true,
            ..MarketFacts::default()
        }
    }

    /// Tries launches. Those that EC2 would carry out are one row for a pool or class, a market and a type.
    pub(super) async fn try_out(&self, config: &Config, looked: &LookedUp, trials: Vec<Trial>) -> Vec<Finding> {
        let (mut allowed, mut failed): (Vec<(&str, &InstanceType, Vec<&str>)>, _) = (Vec::new(), Vec::new());
        for Trial { what, launch } in trials.iter().take(MOST) {
            let Place { zone, instance_type, .. } = &launch.request.market.place;
            match self.try_one(config, looked, launch).await {
                Ok(()) => match allowed.iter_mut().find(|(of, name, _)| of == what && *name == instance_type) {
                    Some((_, _, zones)) => zones.push(zone.as_str()),
                    None => allowed.push((what, instance_type, vec![zone.as_str()])),
                },
                Err(why) => failed.push(self.finding(&format!("{what}, {zone}"), Err(why))),
            }
        }
        let row = |(what, name, zones): (&str, &InstanceType, Vec<&str>)| {
            self.works(what, format!("allowed in {}, tried with {name}", zones.join(", ")))
        };
        let mut found: Vec<Finding> = allowed.into_iter().map(row).chain(failed).collect();
        let left: Vec<String> =
            trials.iter().skip(MOST).map(|one| format!("{} in {}", one.what, one.launch.request.market.place.zone)).collect();
        if !left.is_empty() {
            let told = format!("{} of {}, as one run tries {MOST}: {}", left.len(), trials.len(), left.join("; "));
            found.push(self.works("launches not tried", told));
        }
        found
    }

    async fn try_one(&self, config: &Config, looked: &LookedUp, launch: &Launch) -> Result<(), String> {
        if launch.request.market.capacity_type == CapacityType::Reserved {
            self.know_reservations(named_reservation(launch)).await.map_err(|failure| failure.with_cure())?;
        }
        let prepared = self.prepared(config, launch, looked).map_err(Meaning::into_message)?;
        let zone = &launch.request.market.place.zone;
        let subnet = looked.subnets.get(zone).and_then(|subnets| subnets.first()).ok_or("no subnet")?;
        let token = token(&looked.account, self.api.region(), &launch.request.key);
        let form = self.form(launch, &token, &prepared, looked, &subnet.subnet_id)?.with("DryRun", "true");
        match self.ask_dry(&form).await {
            Err(failure) if failure.code() == Some(WOULD_WORK) => Ok(()),
            Err(failure) => Err(failure.with_cure()),
            Ok(_) => Err("EC2 did not understand that this is a trial".to_owned()),
        }
    }

    /// Asks at the pace that EC2 takes, and once more where that is too fast: others may launch too.
    async fn ask_dry(&self, form: &Form) -> Result<Done, Failure> {
        self.turns.wait(self.pace()).await;
        match self.api.change::<Done>(form).await {
            Err(failure) if failure.class() == Class::Throttled => {
                sleep(AGAIN_AFTER).await;
                self.api.change::<Done>(form).await
            }
            other => other,
        }
    }
}

/// What the price tables say of a type of AWS's.
fn spec<'a>(book: &'a PriceBook, name: &InstanceType) -> Option<&'a Arc<InstanceSpec>> {
    book.spec(&Cloud::new("aws").ok()?, name)
}

/// The cheapest group of a pool in each zone and architecture that can be bought so, with its offer.
fn cheapest<'a>(
    catalogue: &'a Catalogue,
    pool: &PoolName,
    bought: CapacityType,
) -> BTreeMap<(Arch, &'a ZoneId), (&'a Group, &'a Offer)> {
    let mut cheapest: BTreeMap<_, (&Group, &Offer)> = BTreeMap::new();
    for group in catalogue.pool_groups(pool) {
        let of_market = |offer: &&Offer| offer.market.capacity_type == bought && rank(offer).is_some();
        for offer in group.offers.iter().filter(of_market) {
            let best = cheapest.entry((group.spec.arch, &group.place.zone)).or_insert((group, offer));
            if rank(offer) < rank(best.1) {
                *best = (group, offer);
            }
        }
    }
    cheapest
}

/// How dear an offer is, those of unknown price last; `None` where it cannot be bought at all.
fn rank(offer: &Offer) -> Option<(bool, i64)> {
    match offer.entry.as_ref()? {
        Entry::Price(quote) => Some((false, quote.price.0)),
        Entry::NoSignal(NoSignal::ListOnly | NoSignal::Unreserved) => None,
        Entry::NoSignal(NoSignal::PinnedAtOnDemand | NoSignal::Floor) => Some((true, 0)),
    }
}

/// Why a pool gets nothing in a region: what leaves out most of what it may buy, the supplier's own reasons first.
fn why_none(catalogue: &Catalogue, pool: &PoolName, region: &Region) -> String {
    let mut reasons: BTreeMap<(bool, String), usize> = BTreeMap::new();
    for left in catalogue.left_out.iter().filter(|left| left.pool == *pool && left.place.region == *region) {
        *reasons.entry((matches!(left.why, Exclusion::CannotMake { .. }), left.why.to_string())).or_default() += 1;
    }
    let most = reasons.into_iter().max_by_key(|((is_suppliers, _), count)| (*is_suppliers, *count));
    let why = most.map_or_else(|| "no price of it is known here".to_owned(), |((_, why), _)| why);
    format!("nothing that the pool may buy is sold here: {why}")
}
