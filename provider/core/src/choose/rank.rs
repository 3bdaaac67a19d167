//! Ranking of offers: which are eligible, in which order, and why the others lose.
//!
//! `stoker plan`, the passes and the expander all use this ranking.

use crate::base::engine_clock::Times;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::claims::Unlisted;
use crate::catalogue::group::Group;
use crate::facts::supply::{RefusalKind, RefusedArea};
use crate::limits::commitment::{Marginal, Reservations};
use crate::limits::usage::{Bound, Usage, group_of};
use crate::market::hazard::{Hazard, Prior};
use crate::market::offer::{CapacityType, Market, Offer};
use crate::market::price::Unpriced;
use crate::state::memory::{Backoff, Memory};
use crate::state::record::State;

use super::candidate::{Barred, Candidate, OfferVerdict};
use super::parts::{PriceParts, price_parts};

/// Order among eligible offers: the fields are compared from top to bottom, and their order *is* the rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank<'a> {
    /// Whether it adds to the bill: what is paid for already is used first, whatever the pool prefers. What is paid for so far from its
    /// data that bringing that costs as much as the node counts as if it were not.
    pub pays: bool,
    /// Place of the capacity type in the pool's `prefer`.
    pub preference: usize,
    /// Effective price of a unit of work where the pool weighs work, else of one node: an order or a floor asks for nodes, and pays for
    /// GPUs that it did not ask for.
    pub price: UsdPerHour,
    /// Effective price of one node: of two shapes at the same price per unit of work the smaller step wins.
    pub per_node: UsdPerHour,
    /// Price of one GPU or slice without commitments: of two covered nodes, whose effective prices may both be a trifle, the cheaper wins.
    pub quoted: UsdPerHour,
    /// Breaks ties.
    pub market: &'a Market,
}

/// What a choice weighs offers against.
#[derive(Clone, Copy)]
pub struct Scales<'a> {
    /// The catalogue.
    pub catalogue: &'a Catalogue,
    /// What is remembered of markets and groups.
    pub memory: &'a Memory,
    /// What is used of every limit.
    pub usage: &'a Usage,
    /// Whether the supplier's inventory can be trusted.
    pub fresh: &'a dyn Fn(&Group) -> bool,
    /// The time.
    pub times: Times,
}

/// One eligible offer.
#[derive(Debug, Clone)]
pub struct Eligible<'a> {
    /// Its group.
    pub group: &'a Group,
    /// The offer.
    pub offer: &'a Offer,
    /// Its rank.
    pub rank: Rank<'a>,
    /// Its price.
    pub parts: PriceParts,
    /// How many nodes of it may be bought.
    pub room: u32,
    /// How many nodes from here on have this price, at least one: beyond them a commitment is used up.
    pub alike: u32,
    /// Quotas that it counts against, that the policy does not list and that are taken as unlimited.
    pub unlimited: &'a [Unlisted],
}

impl<'a> Scales<'a> {
    /// Whether an offer may be bought now, how it ranks, and how many nodes of it there is room for.
    ///
    /// # Errors
    /// Says what bars it.
    pub fn weigh(&self, group: &'a Group, offer: &'a Offer) -> Result<Eligible<'a>, Barred> {
        let (mut admitted, next) = self.admit(group, offer)?;
        let nodes = self.usage.nodes_left(group, offer, &next, self.catalogue).map_err(Barred::Bound)?;
        admitted.room = admitted.room.min(nodes);
        Ok(admitted)
    }

    /// The same with no regard to limits that offers share: the room is what the market's own history and the capacity kept there
    /// allow. A share of spot may have no room for a node now and for several beside others.
    pub(crate) fn admit(&self, group: &'a Group, offer: &'a Offer) -> Result<(Eligible<'a>, Marginal), Barred> {
        let mut parts = self.price(group, offer).map_err(Barred::Unpriced)?;
        self.open(group)?;
        if offer.market.capacity_type == CapacityType::Spot {
            self.spot_open(group, offer, &parts)?;
        }
        let market_room = self.market_room(group, &offer.market)?;
        let mut next = self.next(group, offer, parts.quote.price);
        let (kept_room, reservation) = self.kept_room(&offer.market)?;
        if let (Some(by), Some(name)) = (&mut next.by, reservation) {
            name.clone_into(&mut by.name);
        }
        let preference = group_preference(self.catalogue, group, offer.market.capacity_type).unwrap_or(usize::MAX);
        if next.by.is_some() {
            let effective = next.effective().plus(parts.transfer.unwrap_or_default());
            parts.rank_at(group, effective, UsdPerHour(1));
        }
        (parts.cash, parts.covered) = (next.cash, next.by.clone());
        let rank = Rank {
            pays: parts.cash > UsdPerHour::ZERO || parts.transfer.is_some_and(|transfer| transfer >= parts.quote.price),
            preference,
            price: parts.ranked(),
            per_node: parts.effective,
            quoted: parts.quote.price.per(group.units()),
            market: &offer.market,
        };
        let unlimited = self.catalogue.unlimited(&group.id, offer.market.capacity_type);
        let room = market_room.min(kept_room);
        Ok((Eligible { group, offer, rank, parts, room, alike: next.alike, unlimited }, next))
    }

    /// What one more node of this offer, quoted at `price`, would cost with all commitments counted.
    fn next(&self, group: &Group, offer: &Offer, price: UsdPerHour) -> Marginal {
        self.usage.committed.marginal(self.catalogue, group, &offer.market, price)
    }

    /// How many nodes the capacity reserved has room for, where it is what the offer buys from, and what the policy calls the reservation
    /// that comes first, where suppliers refused another.
    fn kept_room(&self, market: &Market) -> Result<(u32, Option<&'a str>), Barred> {
        let (memory, commitments) = (self.memory, &self.catalogue.policy.commitments);
        if market.capacity_type != CapacityType::Reserved {
            return Ok((u32::MAX, None));
        }
        // The operator's own price for reserved capacity that no commitment describes.
        let Some(slot) = self.usage.committed.slot(commitments, &market.place) else { return Ok((u32::MAX, None)) };
        let (_, free) = slot.map_err(Barred::NoSlot)?;
        if !memory.refused_areas.keys().any(|area| matches!(area, RefusedArea::Reservation(of, _) if *of == market.place)) {
            return Ok((free, None));
        }
        let reservations = Reservations::at(&market.place, commitments, memory, self.times);
        let room = reservations.room(free).map_err(|refused| match refused {
            Some((area, backoff)) => Barred::backed_off(Some(area), backoff),
            None => Barred::OnTrial,
        })?;
        Ok((room, reservations.next()))
    }

    /// Whether the group may grow at all, whatever the offer.
    ///
    /// # Errors
    /// Says why not.
    pub fn open(&self, group: &Group) -> Result<(), Barred> {
        if !(self.fresh)(group) {
            return Err(Barred::SupplierStale);
        }
        match self.memory.groups.get(&group.id) {
            Some(remembered) if remembered.suspended_since.is_some() => Err(Barred::Suspended { nodes: remembered.unused }),
            _ => Ok(()),
        }
    }

    fn price(&self, group: &Group, offer: &Offer) -> Result<PriceParts, Unpriced> {
        price_parts(self.catalogue, self.memory, group, offer, self.times.wall)
    }

    /// Whether reclaims and the pool's spot rules allow a spot offer.
    fn spot_open(&self, group: &'a Group, offer: &'a Offer, parts: &PriceParts) -> Result<(), Barred> {
        let place = &offer.market.place;
        if let Some(known) = self.memory.spot.get(place)
            && let (Some(since), Some(until)) = (known.event_at, known.left_alone_until())
            && self.times.now < until
        {
            return Err(Barred::Reclaimed { since, until });
        }
        // The map is empty in quiet times, and then no key is made.
        if !self.memory.reclaims.is_empty()
            && let Some(region) = self.memory.reclaims.get(&(place.cloud.clone(), place.region.clone()))
            && let Some(until) = region.left_alone_until.filter(|until| self.times.now < *until)
        {
            return Err(Barred::RegionReclaims { region: place.region.clone(), until });
        }
        let rules = self.catalogue.policy.pool(&group.pool).and_then(|pool| pool.spot.as_ref());
        if let Some(accepted) = rules.and_then(|rules| rules.max_interruption) {
            let per_month = match offer.prior {
                Some(Prior::Published { per_month, .. }) => Some(per_month),
                Some(Prior::Assumed) | None => None,
            };
            if per_month.is_none_or(|share| share.0 > u32::from(accepted.0) * 10) {
                return Err(Barred::Interruption { per_month, accepted });
            }
        }
        let on_demand = group.offers.iter().find(|offer| offer.market.capacity_type == CapacityType::OnDemand);
        let transfer = group.transfer.map_or(UsdPerHour::ZERO, |transfer| transfer.per_hour(Hazard(0)));
        let cheaper =
            |offer: &&Offer| offer.quote(self.times.wall).is_ok_and(|quote| quote.price.plus(transfer) < parts.effective);
        if let Some(on_demand) = on_demand.filter(cheaper)
            && let Ok(on_demand) = self.weigh(group, on_demand)
        {
            let on_demand = on_demand.parts.effective;
            return Err(Barred::DearerThanOnDemand { spot: parts.effective, on_demand });
        }
        Ok(())
    }

    /// How many launches a market's own history allows: none while it is left alone, one while it is on trial.
    fn market_room(&self, group: &Group, market: &Market) -> Result<u32, Barred> {
        let Some(refused) = self.memory.refusal(market, group, self.catalogue) else { return Ok(u32::MAX) };
        let Backoff { kind, until, .. } = refused.backoff;
        if self.times.now < *until {
            return Err(Barred::backed_off(refused.area, refused.backoff));
        }
        let on_trial = self.memory.records.values().any(|record| match &record.state {
            State::Launching { purchase, .. } => group_of(record, self.memory, self.catalogue)
                .is_some_and(|group| refused.is_tried_in(group, &purchase.market, self.catalogue)),
            // Selling was never the trouble of a market whose machines did not boot: the trial ends when one has.
            State::Booting { purchase, .. } => *kind == RefusalKind::BootTimeout && purchase.market == *market,
            _ => false,
        });
        if on_trial { Err(Barred::OnTrial) } else { Ok(1) }
    }

    /// The limit that binds the next node of a group, over all of its offers; `None` where no limit does.
    pub fn binding(&self, group: &Group) -> Option<Bound> {
        let rooms = group.offers.iter().filter_map(|offer| {
            let price = offer.quote(self.times.wall).ok()?.price;
            Some(self.usage.room(group, offer, &self.next(group, offer, price), self.catalogue))
        });
        rooms.max_by_key(|room| room.nodes)?.bound
    }

    /// Every offer of `groups`, weighed; the eligible ones in rank order first, then the barred ones in market order.
    pub fn rank(
        &self,
        groups: impl IntoIterator<Item = &'a Group>,
    ) -> (Vec<Eligible<'a>>, Vec<(&'a Group, &'a Offer, Barred)>) {
        let mut eligible = Vec::new();
        let mut barred = Vec::new();
        for group in groups {
            for offer in &group.offers {
                match self.weigh(group, offer) {
                    Ok(e) => eligible.push(e),
                    Err(why) => barred.push((group, offer, why)),
                }
            }
        }
        eligible.sort_by(|a, b| a.rank.cmp(&b.rank));
        barred.sort_by(|a, b| a.1.market.cmp(&b.1.market));
        (eligible, barred)
    }

    /// Turns a weighing into an explanation: what was chosen, and for every other offer why not.
    pub fn explain(
        &self,
        eligible: &[Eligible<'_>],
        barred: &[(&Group, &Offer, Barred)],
        chosen: &[(Market, u32)],
    ) -> Vec<Candidate> {
        let candidate = |group: &Group, offer: &Offer, preference, price, verdict| Candidate {
            preference,
            group: group.id.clone(),
            market: offer.market.clone(),
            gpus: group.spec.advertised_gpus(),
            slices: group.slices,
            price,
            unlimited: Vec::new(),
            verdict,
            ended_by: None,
            also: Vec::new(),
        };
        // Until it is told what was chosen, an eligible offer is as good as any.
        let open = eligible.iter().map(|e| Candidate {
            unlimited: e.unlimited.to_vec(),
            ..candidate(e.group, e.offer, e.rank.preference, Ok(e.parts.clone()), OfferVerdict::Tied)
        });
        let shut = barred.iter().map(|(group, offer, why)| {
            candidate(group, offer, usize::MAX, self.price(group, offer), OfferVerdict::Barred(why.clone()))
        });
        retell(open.chain(shut).collect(), chosen)
    }
}

/// The place of a capacity type in the preference of the group's pool; `None` where the pool is gone or does not name it.
fn group_preference(catalogue: &Catalogue, group: &Group, capacity_type: CapacityType) -> Option<usize> {
    catalogue.policy.pool(&group.pool)?.prefer.iter().position(|&c| c == capacity_type)
}

/// The same candidates, in rank order, with the verdicts that follow from what was chosen.
pub fn retell(mut candidates: Vec<Candidate>, chosen: &[(Market, u32)]) -> Vec<Candidate> {
    let taken = |market: &Market| chosen.iter().find(|(m, _)| m == market).map(|(_, n)| *n);
    // What the losers are compared with: the best that was chosen, or the best that could have been.
    let open = |c: &&Candidate| !matches!(c.verdict, OfferVerdict::Barred(_));
    let best = candidates.iter().find(|c| taken(&c.market).is_some()).or_else(|| candidates.iter().find(open)).cloned();
    for candidate in &mut candidates {
        if let Some(nodes) = taken(&candidate.market) {
            candidate.verdict = OfferVerdict::Chosen { nodes };
            continue;
        }
        let (Some(best), Ok(own)) = (&best, &candidate.price) else { continue };
        let (Ok(best_price), false) = (&best.price, matches!(candidate.verdict, OfferVerdict::Barred(_))) else { continue };
        candidate.verdict = match own.ranked().cmp(&best_price.ranked()) {
            _ if candidate.market.capacity_type != best.market.capacity_type && candidate.preference > best.preference => {
                OfferVerdict::LessPreferred { than: best.market.capacity_type }
            }
            std::cmp::Ordering::Greater => {
                let by = own.ranked().minus(best_price.ranked());
                if own.per_work.is_some() { OfferVerdict::DearerWork { by } } else { OfferVerdict::Dearer { by } }
            }
            _ if own.effective > best_price.effective => OfferVerdict::LargerStep,
            _ => OfferVerdict::Tied,
        };
    }
    candidates
}
