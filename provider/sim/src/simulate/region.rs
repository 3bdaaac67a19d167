//! The cloud that is bought from: any instance types in any zones, on demand, reserved or as spot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::ZoneId;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::claims::Claim;
use stoker_core::facts::supply::{Refusal, RefusalKind};
use stoker_core::market::offer::{CapacityType, Market, Place};

use super::{START, Setup};
use crate::in_process::cloud::{Cloud, Life};
use crate::spot_month::availability::{Availability, ZoneLaw};
use crate::world::draw::{Seed, whole};

/// A machine is billed for a minute at least.
const LEAST_BILLED: i64 = 60;
/// All nodes of a zone get their notice within so many seconds (arXiv 2604.16457).
const SPREAD: i64 = 180;
/// From the notice to the end (AWS).
const NOTICE: i64 = 120;
/// A node that is released sooner after its request has flapped.
pub const FLAPS_WITHIN: i64 = 900;

/// How long machines take from request to Ready.
#[derive(Debug, Clone, PartialEq)]
pub enum Boot {
    /// Lognormal, in seconds.
    LogNormal {
        /// Median.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// These, in seconds, in the order of the launches; the last goes on. Launches of the start take theirs, and boot at once.
    Given(Vec<f64>),
}

impl Boot {
    /// What operators report of GPU nodes on AWS (kubernetes/autoscaler issue 3464).
    pub const MEASURED: Self = Self::LogNormal { median: 270.0, sigma: 0.4 };
}

/// Spot capacity that comes and goes.
#[derive(Debug, Clone)]
pub struct Spot {
    /// When each zone has it: the zone's place among those of its region.
    zones: BTreeMap<ZoneId, (Arc<Availability>, usize)>,
    /// Spot GPUs that a zone sells while it is open.
    zone_gpus: u32,
}

impl Spot {
    /// Draws so many seconds of the zones of those places, each region by itself. Whoever is compared on one seed has to be given the
    /// places of all: the same zone then has spot at the same times under every policy.
    pub fn draw<'a>(
        seed: u64,
        zone_law: &ZoneLaw,
        places: impl IntoIterator<Item = &'a Place>,
        seconds: i64,
        zone_gpus: u32,
    ) -> Self {
        let mut regions: BTreeMap<(&str, &str), BTreeSet<&ZoneId>> = BTreeMap::new();
        for place in places {
            regions.entry((place.cloud.as_str(), place.region.as_str())).or_default().insert(&place.zone);
        }
        let mut zones = BTreeMap::new();
        for ((cloud, region), of_region) in regions {
            let own = Seed(seed).stream("spot of a region", &[cloud, region], 0).up_to(i64::MAX - 1).unsigned_abs();
            let availability = Arc::new(Availability::draw(own, zone_law, of_region.len(), seconds));
            zones.extend(of_region.into_iter().enumerate().map(|(at, zone)| (zone.clone(), (Arc::clone(&availability), at))));
        }
        Self { zones, zone_gpus }
    }

    fn is_open(&self, zone: &ZoneId, at: i64) -> bool {
        self.zones.get(zone).is_some_and(|(availability, own)| availability.is_open(*own, at))
    }

    fn shuts_after(&self, zone: &ZoneId, at: i64) -> Option<i64> {
        self.zones.get(zone).and_then(|(availability, own)| availability.shuts_after(*own, at))
    }
}

/// A time without stock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The instance type.
    pub instance_type: String,
    /// How it is bought; `None` for every way.
    pub capacity_type: Option<CapacityType>,
    /// From when, in seconds.
    pub from: i64,
    /// Until when.
    pub until: i64,
}

/// What was paid, and for how much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bill {
    /// For reserved capacity, while it was used.
    pub reserved: UsdMicros,
    /// For on-demand.
    pub on_demand: UsdMicros,
    /// For spot.
    pub spot: UsdMicros,
    /// GPU-seconds that were paid for, as pods request GPUs: four for a second of a GPU on which four pods take turns.
    pub gpu_seconds: i64,
}

impl Bill {
    /// All of it.
    pub const fn total(&self) -> UsdMicros {
        self.reserved.plus(self.on_demand).plus(self.spot)
    }
}

/// What became of machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// Bought.
    pub launches: u64,
    /// Asked for and not had.
    pub refused: u64,
    /// Taken by the cloud.
    pub reclaimed: u64,
    /// Released within 15 min of their request.
    pub flaps: u64,
    /// Given up before they were Ready.
    pub given_up: u64,
}

/// A change of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) at: i64,
    /// The instance type, as an index into [`Region::types`].
    pub(super) of: usize,
    pub(super) bought: bool,
}

#[derive(Debug, Clone)]
struct Sold {
    of: usize,
    zone: usize,
    price: UsdPerHour,
    /// GPUs that the machine has.
    gpus: u32,
    /// GPUs that pods can request of it.
    offered: u32,
    claims: Vec<Claim>,
}

#[derive(Debug, Clone)]
struct Machine {
    market: Market,
    sold: Sold,
    launched: i64,
    life: Life,
}

/// The cloud of a simulation.
#[derive(Debug, Clone)]
pub struct Region {
    seed: Seed,
    ends: i64,
    boot: Boot,
    spot: Option<Spot>,
    shortages: Vec<Shortage>,
    refused_milli: u32,
    /// Instance types by name.
    pub(super) types: Vec<String>,
    markets: BTreeMap<Market, Sold>,
    machines: BTreeMap<u64, Machine>,
    asked: u64,
    /// What each quota of the policy leaves to this cluster, and what is used of it.
    quotas: Vec<(u64, u64)>,
    /// What was paid for machines that are gone.
    pub bill: Bill,
    /// What became of machines.
    pub fates: Fates,
    /// Launches above a quota.
    pub above_quota: u64,
    /// Nodes by instance type, as an index, and way of buying.
    pub(super) nodes: BTreeMap<(usize, CapacityType), u32>,
    /// What they cost now.
    pub(super) hourly: UsdPerHour,
    pub(super) changes: Vec<Change>,
}

impl Region {
    pub(super) fn new(setup: &Setup) -> Self {
        let Setup { catalogue, world, .. } = setup;
        let types: BTreeSet<&str> = catalogue.groups.values().map(|group| group.place.instance_type.as_str()).collect();
        let types: Vec<String> = types.into_iter().map(str::to_owned).collect();
        let policy = &catalogue.policy;
        Self {
            seed: Seed(setup.seed),
            ends: whole(setup.demand.seconds),
            boot: world.boot.clone(),
            spot: world.spot.clone(),
            shortages: world.shortages.clone(),
            refused_milli: world.refused_milli,
            markets: markets(catalogue, &types),
            types,
            machines: BTreeMap::new(),
            asked: 0,
            quotas: policy.quotas.iter().map(|quota| (quota.share(), 0)).collect(),
            bill: Bill::default(),
            fates: Fates::default(),
            above_quota: 0,
            nodes: BTreeMap::new(),
            hourly: UsdPerHour::ZERO,
            changes: Vec::new(),
        }
    }

    /// Ends what is left when the simulation is over.
    pub(super) fn close(&mut self) {
        for id in self.machines.keys().copied().collect::<Vec<_>>() {
            self.remove(self.ends, id);
        }
    }

    /// Why a market sells nothing now; `None` where it does.
    fn refuses(&mut self, now: i64, market: &Market, sold: &Sold) -> Option<&'static str> {
        let name = market.place.instance_type.as_str();
        let short = |shortage: &Shortage| {
            shortage.instance_type == name
                && shortage.capacity_type.is_none_or(|of| of == market.capacity_type)
                && (shortage.from..shortage.until).contains(&now)
        };
        if self.shortages.iter().any(short) {
            return Some("no stock");
        }
        if market.capacity_type == CapacityType::Spot
            && let Some(spot) = &self.spot
        {
            let of_zone =
                |machine: &&Machine| machine.market.capacity_type == CapacityType::Spot && machine.sold.zone == sold.zone;
            let used: u32 = self.machines.values().filter(of_zone).map(|machine| machine.sold.gpus).sum();
            if !spot.is_open(&market.place.zone, now) || spot.zone_gpus < used + sold.gpus {
                return Some("no spot capacity");
            }
        }
        let lot = i64::try_from(self.asked).unwrap_or(i64::MAX);
        self.asked += 1;
        let unlucky = self.refused_milli > 0
            && market.capacity_type == CapacityType::OnDemand
            && self.seed.stream("stock", &[name], lot).chance(f64::from(self.refused_milli) / 1000.0);
        unlucky.then_some("no stock")
    }

    fn boots_in(&self, number: u64, stream: &mut crate::world::draw::Stream) -> i64 {
        let seconds = match &self.boot {
            Boot::LogNormal { median, sigma } => stream.log_normal(*median, *sigma),
            Boot::Given(draws) => {
                let at = usize::try_from(number).unwrap_or(usize::MAX).min(draws.len().saturating_sub(1));
                draws.get(at).copied().unwrap_or(0.0)
            }
        };
        whole(seconds).max(1)
    }

    fn remove(&mut self, now: i64, id: u64) -> Option<Machine> {
        let machine = self.machines.remove(&id)?;
        let until = now.max(machine.launched + LEAST_BILLED).min(self.ends.max(machine.launched));
        let seconds = until - machine.launched;
        let paid = machine.sold.price.over_seconds(seconds);
        let part = match machine.market.capacity_type {
            CapacityType::Spot => &mut self.bill.spot,
            CapacityType::OnDemand => &mut self.bill.on_demand,
            CapacityType::Reserved => &mut self.bill.reserved,
        };
        *part = part.plus(paid);
        self.bill.gpu_seconds += seconds * i64::from(machine.sold.offered);
        self.hourly = self.hourly.minus(machine.sold.price);
        for claim in &machine.sold.claims {
            if let Some((_, used)) = self.quotas.get_mut(claim.quota) {
                *used -= claim.units.min(*used);
            }
        }
        let of = machine.sold.of;
        if let Some(nodes) = self.nodes.get_mut(&(of, machine.market.capacity_type)) {
            *nodes -= 1;
        }
        Some(machine)
    }
}

fn markets(catalogue: &Catalogue, types: &[String]) -> BTreeMap<Market, Sold> {
    let zones: BTreeSet<&ZoneId> = catalogue.groups.values().map(|group| &group.place.zone).collect();
    let mut markets = BTreeMap::new();
    for group in catalogue.groups.values() {
        let zone = zones.iter().position(|zone| **zone == group.place.zone).unwrap_or(0);
        let of = types.iter().position(|name| name == group.place.instance_type.as_str()).unwrap_or(0);
        let claims = catalogue.claims(group);
        for offer in &group.offers {
            let Ok(quote) = offer.quote(Wall(START)) else { continue };
            let claims = claims.under(offer.market.capacity_type).listed.clone();
            let (gpus, offered) = (group.spec.advertised_gpus(), group.template.allocatable.gpus);
            let sold = Sold { of, zone, price: quote.price, gpus, offered, claims };
            markets.insert(offer.market.clone(), sold);
        }
    }
    markets
}

impl Cloud for Region {
    fn launch(&mut self, now: i64, market: &Market) -> Result<u64, Refusal> {
        let Some(sold) = self.markets.get(market).cloned() else {
            return Err(Refusal::of_market(RefusalKind::Config, "not sold here"));
        };
        if let Some(why) = self.refuses(now, market, &sold) {
            self.fates.refused += 1;
            return Err(Refusal::of_market(RefusalKind::OutOfCapacity, why));
        }
        let id = self.fates.launches;
        self.fates.launches += 1;
        let mut stream = self.seed.stream("machine", &[], i64::try_from(id).unwrap_or(i64::MAX));
        let ready = now + if now <= 0 { 0 } else { self.boots_in(id, &mut stream) };
        let spot = self.spot.as_ref().filter(|_| market.capacity_type == CapacityType::Spot);
        let shuts = spot.and_then(|spot| spot.shuts_after(&market.place.zone, now));
        let reclaim = shuts.map(|shuts| {
            let notice = shuts + stream.up_to(SPREAD);
            (notice, notice + NOTICE)
        });
        self.hourly = self.hourly.plus(sold.price);
        for claim in &sold.claims {
            if let Some((share, used)) = self.quotas.get_mut(claim.quota) {
                *used += claim.units;
                self.above_quota += u64::from(*used > *share);
            }
        }
        *self.nodes.entry((sold.of, market.capacity_type)).or_default() += 1;
        self.changes.push(Change { at: now, of: sold.of, bought: true });
        let life = Life { ready, reclaim };
        self.machines.insert(id, Machine { market: market.clone(), sold, launched: now, life });
        Ok(id)
    }

    fn end(&mut self, now: i64, machine: u64) {
        let Some(gone) = self.remove(now, machine) else { return };
        let given_back = gone.life.reclaim.is_none_or(|(notice, _)| notice > now);
        if given_back {
            self.changes.push(Change { at: now, of: gone.sold.of, bought: false });
        }
        if gone.life.ready > now {
            self.fates.given_up += 1;
        } else if given_back && now - gone.launched < FLAPS_WITHIN {
            self.fates.flaps += 1;
        }
    }

    fn reclaim(&mut self, now: i64) {
        let due = |(_, machine): &(&u64, &Machine)| machine.life.reclaim.is_some_and(|(_, gone)| gone <= now);
        for id in self.machines.iter().filter(due).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.fates.reclaimed += 1;
            self.remove(now, id);
        }
    }

    fn life(&self, machine: u64) -> Option<Life> {
        self.machines.get(&machine).map(|machine| machine.life)
    }
}
