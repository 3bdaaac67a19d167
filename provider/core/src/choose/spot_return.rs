//! Return to spot: whether to replace an on-demand node, bought when spot was sold out, with a spot
//! node.
//!
//! The node is drained first, and the autoscaler asks for what its pods need: its work waits while
//! the new node boots. So a move costs the boot of the new node, the work that is repeated on it,
//! and the waiting.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::base::engine_clock::Times;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use crate::base::index::{Lookup, LookupSet};
use crate::base::kinds::ReturnToSpot;
use crate::base::units::{UsdMicros, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::parts::{PriceParts, price_parts};
use crate::choose::rank::Scales;
use crate::facts::supply::RefusalKind;
use crate::limits::commitment::release_order;
use crate::limits::usage::{Usage, group_of};
use crate::market::hazard::Hazard;
use crate::market::offer::{CapacityType, Market, Offer, Place};
use crate::market::transfer::Transfer;
use crate::policy::Pool;
use crate::policy::rules::spot::SpotRules;
use crate::state::memory::{Backoff, LONGEST_BACKOFF, Memory};
use crate::state::record::{Record, State};

/// How long a market that reclaimed must have been open before it is moved to. Of measured markets with capacity 96 % had it ten minutes later, of those
/// without 13 % (H100 on GCP, 2025: `SkyNomad`'s probes): one that stayed open for ten minutes is one of the former.
pub const DWELL: SignedDuration = SignedDuration::from_mins(10);

/// How likely a market has room that nothing of Stoker's runs in, in percent: the measured share of the time, 59 % for H100 and 64 % for
/// V100 (`SkyNomad`'s probes). It is as much where another size has room: nodes of eight V100 were to be had 48 and 47 % of the time, of
/// one 79 and 72 %. A market in which something of Stoker's runs, and that has not refused since, counts as open.
const OPEN_UNSEEN: i64 = 60;

/// What a move comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where the spot node would be bought.
    pub market: Market,
    /// What it saves over the time that it can be expected to serve, times the chance that the market has room.
    pub gain: UsdMicros,
    /// What the move costs: the new node's boot, the work that is done again on it, what the pool says that waiting for both costs, and
    /// the data that the new node reads.
    pub cost: UsdMicros,
}

/// The spot rules of a pool whose nodes move back at all.
pub(crate) fn moves_back(pool: &Pool) -> Option<&SpotRules> {
    pool.spot.as_ref().filter(|rules| rules.return_to_spot > ReturnToSpot::Never)
}

/// Whether a spot market can be counted on: it is [`DWELL`] since one of its nodes was last left alone after a reclaim, and it has not
/// refused. One that refused is open again when it has sold, or has been quiet until its refusal is forgotten; or as soon as it may be asked
/// again, when another size of its GPU was sold in its zone since it refused, at `sold_beside`. The move is its trial then.
///
/// Without the last, sizes that are seldom asked for stay on demand for up to an hour after their zone is back, as nothing but an order of
/// their own would tell.
pub fn has_settled(
    catalogue: &Catalogue,
    memory: &Memory,
    group: &Group,
    market: &Market,
    sold_beside: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    if market.capacity_type != CapacityType::Spot {
        return false;
    }
    let past = |at: Timestamp, by| at.saturating_add(by).is_ok_and(|until: Timestamp| until <= now);
    let is_open = |refused: &Backoff| {
        let beside = refused.kind == RefusalKind::OutOfCapacity && sold_beside.is_some_and(|at| at > refused.since);
        past(refused.until, if beside { SignedDuration::ZERO } else { LONGEST_BACKOFF })
    };
    let reclaimed = memory.spot.get(&market.place).and_then(|known| known.left_alone_until());
    memory.refusal(market, group, catalogue).is_none_or(|refused| is_open(refused.backoff))
        && reclaimed.is_none_or(|at| past(at, DWELL))
}

/// When spot of each GPU model was last sold in each zone, of the nodes that still run and whose market has taken none back since.
#[derive(Debug, Default)]
struct Sales<'a>(Lookup<SpotSupply<'a>, Timestamp>);

/// What the sizes of a GPU model are cut from in a zone.
type SpotSupply<'a> = (&'a Cloud, &'a Region, &'a ZoneId, &'a GpuModel);

fn supply_of(group: &Group) -> SpotSupply<'_> {
    let Place { cloud, region, zone, .. } = &group.place;
    (cloud, region, zone, &group.spec.gpu_model)
}

impl<'a> Sales<'a> {
    fn of(memory: &'a Memory, catalogue: &'a Catalogue) -> Self {
        let mut sales = Self::default();
        // Only markets that refused ask for it.
        let has_refused = memory.refused.keys().any(|market| market.capacity_type == CapacityType::Spot);
        if !has_refused && memory.refused_areas.is_empty() {
            return sales;
        }
        for record in memory.records.values() {
            let (State::Booting { purchase, launched_at, .. } | State::Registered { purchase, launched_at, .. }) =
                &record.state
            else {
                continue;
            };
            let Market { place, capacity_type } = &purchase.market;
            let taken_back = memory.spot.get(place).and_then(|known| known.event_at).is_some_and(|at| at >= *launched_at);
            if *capacity_type == CapacityType::Spot
                && !taken_back
                && let Some(group) = group_of(record, memory, catalogue)
            {
                let last = sales.0.entry(supply_of(group)).or_insert(*launched_at);
                *last = (*last).max(*launched_at);
            }
        }
        sales
    }

    /// The last one of the GPU and the zone of a group, of whichever size.
    fn beside(&self, group: &'a Group) -> Option<Timestamp> {
        self.0.get(&supply_of(group)).copied()
    }
}

/// An instance type: nodes move to spot of their own.
type Type<'a> = (&'a Cloud, &'a InstanceType);

fn type_of(group: &Group) -> Type<'_> {
    (&group.place.cloud, &group.place.instance_type)
}

/// The spot of one instance type that has settled.
#[derive(Default)]
struct Settled<'a> {
    /// The pool's groups with such a market.
    groups: Vec<&'a Group>,
    /// Those markets, at their prices now.
    targets: Vec<Target>,
}

/// What of Stoker's runs as spot: the same for all pools.
#[derive(Debug)]
pub struct Running<'a> {
    markets: LookupSet<&'a Market>,
    sales: Sales<'a>,
}

impl<'a> Running<'a> {
    /// As it is remembered.
    pub fn of(memory: &'a Memory, catalogue: &'a Catalogue) -> Self {
        let runs = |record: &'a Arc<Record>| match &record.state {
            State::Booting { purchase, .. } | State::Registered { purchase, .. } => Some(&purchase.market),
            _ => None,
        };
        let markets = memory.records.values().filter_map(runs).filter(|m| m.capacity_type == CapacityType::Spot);
        Self { markets: markets.collect(), sales: Sales::of(memory, catalogue) }
    }
}

/// Spot that nodes of a pool could move back to.
pub struct SpotReturn<'a> {
    pool: &'a Pool,
    rules: &'a SpotRules,
    /// What has settled of each instance type.
    settled: Lookup<Type<'a>, Settled<'a>>,
    running: &'a Running<'a>,
}

impl<'a> SpotReturn<'a> {
    /// `None` where the pool's nodes do not move back, or no market has settled.
    pub fn of(
        pool: &'a Pool,
        catalogue: &'a Catalogue,
        memory: &'a Memory,
        running: &'a Running<'a>,
        times: Times,
    ) -> Option<Self> {
        let rules = moves_back(pool)?;
        let mut settled: Lookup<_, Settled<'_>> = Lookup::default();
        for group in catalogue.pool_groups(&pool.name) {
            let sold_beside = running.sales.beside(group);
            let settled_at = |offer: &&Offer| has_settled(catalogue, memory, group, &offer.market, sold_beside, times.now);
            for offer in group.offers.iter().filter(settled_at) {
                let Settled { groups, targets } = settled.entry(type_of(group)).or_default();
                if groups.last().is_none_or(|last| last.id != group.id) {
                    groups.push(group);
                }
                let parts = price_parts(catalogue, memory, group, offer, times.wall).ok();
                targets.extend(parts.map(|parts| Target { market: offer.market.clone(), parts, transfer: group.transfer }));
            }
        }
        (!settled.is_empty()).then_some(Self { pool, rules, settled, running })
    }

    /// What moving the work of one node back to spot comes to; `None` where it must not move, or does not pay.
    ///
    /// A node is moved to a spot market of its own instance type. `work` is whether another node must take its place: for pods, which is
    /// `busy`, or for a floor. Without, nothing is lost and nothing waited for. A node is expected to serve on for as long as it has
    /// served (job lengths have heavy tails: what ran long runs on), and no longer than a spot node can be
    /// expected to live. One that commitments pay for saves nothing by going.
    pub fn weigh(&self, scales: &Scales<'a>, record: &Record, busy: bool, work: bool) -> Option<Move> {
        let State::Registered { purchase, launched_at, ready_at: Some(ready), .. } = &record.state else { return None };
        if purchase.market.capacity_type != CapacityType::OnDemand || (busy && !self.rules.moves_busy()) {
            return None;
        }
        let group = group_of(record, scales.memory, scales.catalogue).filter(|group| group.pool == self.pool.name)?;
        let mut late = SignedDuration::ZERO;
        if work {
            // The new node boots as the old one did: they are of one type.
            late = ready.duration_since(*launched_at).clamp(SignedDuration::ZERO, purchase.boot_within);
        }
        if busy {
            late = late.saturating_add(self.rules.lost_per_move());
        }
        let waiting = if busy && self.pool.isolation.is_some() { self.pool.waiting } else { UsdPerHour::ZERO };
        let waiting = waiting.times(group.spec.advertised_gpus());
        // On demand, the old node would have gone on reading at its pace.
        let reading = group.transfer.map_or(UsdPerHour::ZERO, |transfer| transfer.per_hour(Hazard(0)));
        // What a move there gains and costs, where its going saves so much; `None` where that does not pay.
        let worth = |Target { market, parts, transfer }: &Target, saved: UsdPerHour| {
            let hazard = parts.spot.as_ref()?.risk.hazard;
            let life = i64::try_from(3_600_000_000_000 / hazard.0.max(1)).unwrap_or(i64::MAX);
            let serves = scales.times.now.duration_since(*ready).as_secs().min(life);
            let read = transfer.filter(|_| work).map_or(UsdMicros(0), |transfer| transfer.per_read);
            let cost = parts.quote.price.plus(waiting).over_seconds(late.as_secs()).plus(read);
            let gain = saved.plus(reading).minus(parts.effective).over_seconds(serves);
            let pays = |gain| (gain > cost).then_some((gain, cost));
            // A market that may have no room gains less, so what runs there need not be known of one that does not pay anyway.
            pays(gain)?;
            // One that refused after it had sold may be full.
            let has_refused = scales.memory.refusal(market, group, scales.catalogue).is_some();
            let is_open = self.running.markets.contains(market) && !has_refused;
            pays(if is_open { gain } else { UsdMicros(gain.0 / 100 * OPEN_UNSEEN) })
        };
        // Its going saves no more than its price. Where that pays nowhere, the limits need not be counted without it.
        let settled = self.settled.get(&type_of(group))?;
        if !settled.targets.iter().any(|target| worth(target, purchase.price).is_some()) {
            return None;
        }
        let target = self.cheapest(scales, record, group, &settled.groups)?;
        worth(&target, purchase.price)?;
        // What its going saves is worked out from the whole bill.
        let (_, saved) = release_order(&[record], 1, scales.usage, scales.memory, scales.catalogue).pop()?;
        let (gain, cost) = worth(&target, saved)?;
        Some(Move { market: target.market, gain, cost })
    }

    /// The cheapest settled spot of `alike` groups for a node of this group, its own room being free.
    ///
    /// Where nothing is a share of the pool's nodes, the room there is with the old node is there without it, too: only where there is
    /// none the count is made without the node. A share shrinks with the node, so there it is never asked with it.
    fn cheapest(&self, scales: &Scales<'a>, record: &Record, group: &Group, alike: &[&Group]) -> Option<Target> {
        let shares = self.rules.limits_shares() || self.pool.max_zone_share.is_some() || !self.pool.max_model_share.is_empty();
        let with_it = if shares { None } else { self.first_settled(scales, alike) };
        with_it.or_else(|| {
            let mut usage = Usage::clone(scales.usage);
            usage.remove(record, group, scales.catalogue, scales.times.wall);
            self.first_settled(&Scales { usage: &usage, ..*scales }, alike)
        })
    }

    fn first_settled(&self, scales: &Scales<'_>, groups: &[&Group]) -> Option<Target> {
        // Rank order: the cheapest comes first.
        let (eligible, _) = scales.rank(groups.iter().copied());
        let settled = eligible.into_iter().find(|e| {
            let sold_beside = self.running.sales.beside(e.group);
            has_settled(scales.catalogue, scales.memory, e.group, &e.offer.market, sold_beside, scales.times.now)
        })?;
        let transfer = settled.group.transfer;
        Some(Target { market: settled.offer.market.clone(), parts: settled.parts, transfer })
    }
}

/// Where a node could move.
struct Target {
    market: Market,
    parts: PriceParts,
    /// What reading its data costs there.
    transfer: Option<Transfer>,
}
