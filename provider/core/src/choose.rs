//! Choosing an offer: eligible, ranked, and why the others are not chosen. `plan`, the passes and the expander all choose here.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::commitment::{CoveredBy, Marginal, NoSlot};
use crate::group::{Group, Menu, Offer};
use crate::ids::{NodeGroupId, Region};
use crate::interruption::{notice, usable};
use crate::memory::Memory;
use crate::offer::{CapacityType, Market};
use crate::price::{Quote, Unpriced};
use crate::quota::Unlisted;
use crate::record::State;
use crate::spot::{self, Hazard, Prior, REGION_EVENTS, Risk};
use crate::supply::RefusalKind;
use crate::units::{Milli, Percent, Ppm, UsdPerHour};
use crate::usage::{Bound, Usage};

/// What an offer costs, in parts. In micro-dollars per node-hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceParts {
    /// The quote, with its age and source: the cash price, which bills and budgets count.
    pub quote: Quote,
    /// What its reclaims cost; `None` for capacity that nobody takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotParts>,
    /// What reading the pool's data from afar costs, spread over the hours between two readings; no part of the cash price, nor of budgets.
    /// `None` where none is moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<UsdPerHour>,
    /// What the choice ranks by, transfer included: for spot, what an hour of useful time costs.
    pub effective: UsdPerHour,
    /// What it adds to the bill: the quote less what commitments pay of it.
    pub cash: UsdPerHour,
    /// The commitment that covers it, in whole or in part.
    pub covered: Option<CoveredBy>,
    /// The effective price of one advertised GPU; of a physical one where the pool shares GPUs.
    pub per_gpu: UsdPerHour,
    /// The effective price of a slice; `None` where the pool shares no GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_slice: Option<UsdPerHour>,
    /// The effective price of a unit of work; `None` where the pool weighs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_work: Option<UsdPerHour>,
    /// Whether the quote is an old or undated list price, of which operators are warned.
    pub old: bool,
}

/// What a reclaim makes of a spot price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotParts {
    /// How likely one is, and by whose word.
    pub risk: Risk,
    /// The share of the time paid for that is useful.
    pub useful: Ppm,
}

impl std::fmt::Display for SpotParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} useful at {}", self.useful, self.risk)
    }
}

impl PriceParts {
    /// What the choice compares: the price of a unit of work where the pool weighs work, else of a slice where it shares GPUs, else of a GPU.
    pub fn per_unit(&self) -> UsdPerHour {
        self.per_work.or(self.per_slice).unwrap_or(self.per_gpu)
    }

    /// What a node costs that no commitment covers: its price and its data's, over the share of the time in which it is useful.
    pub fn uncovered(&self) -> UsdPerHour {
        let running = self.quote.price.plus(self.transfer.unwrap_or_default());
        self.spot.as_ref().map_or(running, |spot| spot::effective(running, spot.useful))
    }

    /// What one node of the group is ranked at.
    fn rank_at(&mut self, group: &Group, effective: UsdPerHour, least: UsdPerHour) {
        self.effective = effective;
        self.per_gpu = effective.per(group.spec.advertised_gpus()).max(least);
        self.per_slice = group.slices.map(|slices| effective.per(slices).max(least));
        self.per_work = group.work.map(|work| effective.per_work(work).max(least));
    }
}

/// Order among eligible offers: the fields are compared from top to bottom, and their order *is* the rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank<'a> {
    /// Whether it adds to the bill: what is paid for already is used first, whatever the pool prefers. What is paid for so far from its
    /// data that bringing that costs as much as the node counts as if it were not.
    pub pays: bool,
    /// Place of the capacity type in the pool's `prefer`.
    pub preference: usize,
    /// Effective price of a unit of work where the pool weighs work, else of one slice or advertised GPU.
    pub per_unit: UsdPerHour,
    /// Effective price of one node: of two shapes at the same price per unit the smaller step wins.
    pub per_node: UsdPerHour,
    /// Price of one GPU or slice without commitments: of two covered nodes, whose effective prices may both be a trifle, the cheaper wins.
    pub quoted: UsdPerHour,
    /// Breaks ties.
    pub market: &'a Market,
}

/// Why an offer may not be bought now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Barred {
    /// It has no price.
    #[error("{0}")]
    Unpriced(Unpriced),
    /// The market said no, and is left alone for a while.
    #[error("market said {code} at {}: left alone until {}", .since.strftime("%H:%M:%SZ"), .until.strftime("%H:%M:%SZ"))]
    BackedOff {
        /// Its code.
        code: String,
        /// When it said so.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
    },
    /// The market is being tried again by one launch.
    #[error("market is on trial with one launch after a refusal")]
    OnTrial,
    /// A node of this market was reclaimed just now.
    #[error("a node was reclaimed here at {}: left alone until {}", .since.strftime("%H:%M:%SZ"), .until.strftime("%H:%M:%SZ"))]
    Reclaimed {
        /// When.
        since: Timestamp,
        /// Until then.
        until: Timestamp,
    },
    /// The region's spot markets are being emptied.
    #[error("more than {REGION_EVENTS} reclaims within an hour in {region}: its spot is left alone until {}", .until.strftime("%H:%M:%SZ"))]
    RegionReclaims {
        /// The region.
        region: Region,
        /// Until then.
        until: Timestamp,
    },
    /// The pool accepts no market that is reclaimed so often.
    #[error("{}: capacity.spot.maxInterruption accepts {accepted}", published(*.per_month))]
    Interruption {
        /// The published share of nodes reclaimed per month; `None` where there is none.
        per_month: Option<Milli>,
        /// The highest that the pool accepts.
        accepted: Percent,
    },
    /// On-demand, which can be had in the same group, is cheaper.
    #[error("spot costs more than on-demand once reclaims are counted: {spot} against {on_demand}")]
    DearerThanOnDemand {
        /// The effective price of spot.
        spot: UsdPerHour,
        /// That of on-demand.
        on_demand: UsdPerHour,
    },
    /// A limit binds.
    #[error("{0}")]
    Bound(Bound),
    /// The capacity kept for us is used, or not open now.
    #[error("{0}")]
    NoSlot(NoSlot),
    /// The group is frozen.
    #[error("group is frozen: no pod joined its last {nodes} nodes")]
    Frozen {
        /// So many nodes.
        nodes: u32,
    },
    /// The supplier's inventory is stale or incomplete.
    #[error("supplier's inventory is stale or was never complete: its groups are frozen")]
    SupplierStale,
}

fn published(per_month: Option<Milli>) -> String {
    per_month.map_or_else(
        || "no monthly reclaim rate is published for this market".to_owned(),
        |share| format!("{} of nodes are reclaimed a month", spot::percent(share)),
    )
}

/// An offer as weighed at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The group that it would grow.
    pub group: NodeGroupId,
    /// The market.
    pub market: Market,
    /// Advertised GPUs of one node; physical ones where the pool shares them.
    pub gpus: u32,
    /// Slices of one node, where the pool shares GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// Place of its capacity type in the pool's `prefer`, from 0; not looked up for one that is barred.
    pub preference: usize,
    /// Its price, or why it has none.
    pub price: Result<PriceParts, Unpriced>,
    /// Quotas that it counts against, that the policy does not list and that are taken as unlimited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlimited: Vec<Unlisted>,
    /// What became of it.
    pub verdict: Verdict,
    /// For a chosen one: the limit but for which there would have been more of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<Bound>,
    /// The other limits that leave no room for one more, where it is not one alone that barred it or ended its choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Bound>,
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// So many nodes of it.
    Chosen {
        /// So many.
        nodes: u32,
    },
    /// May not be bought now.
    Barred(Barred),
    /// May be bought, but another capacity type is preferred by the pool.
    LessPreferred {
        /// The preferred one.
        than: CapacityType,
    },
    /// May be bought, but another offer is cheaper per GPU by so much.
    Dearer {
        /// So much per GPU and hour.
        by: UsdPerHour,
    },
    /// May be bought, but another offer is cheaper per slice by so much.
    DearerSlice {
        /// So much per slice and hour.
        by: UsdPerHour,
    },
    /// May be bought, but another offer is cheaper per unit of work by so much.
    DearerWork {
        /// So much per unit of work and hour.
        by: UsdPerHour,
    },
    /// May be bought at the same price per GPU, slice or unit of work, but a node of it is a larger step.
    LargerStep,
    /// As good as the winner; the tie went by name.
    Tied,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Chosen { nodes } => write!(f, "CHOSEN × {nodes}"),
            Self::Barred(why) => write!(f, "{why}"),
            Self::LessPreferred { than } => write!(f, "the pool prefers {than}"),
            Self::Dearer { by } => write!(f, "{} per GPU and hour", dearer(*by)),
            Self::DearerSlice { by } => write!(f, "{} per slice and hour", dearer(*by)),
            Self::DearerWork { by } => write!(f, "{} per unit of work and hour", dearer(*by)),
            Self::LargerStep => write!(f, "same price per GPU, but a larger step"),
            Self::Tied => write!(f, "costs the same; the tie went by name"),
        }
    }
}

/// A difference that is less than what prices are shown to is none to a reader, though it decided.
fn dearer(by: UsdPerHour) -> String {
    if by.to_string() == UsdPerHour::ZERO.to_string() {
        "costs the same to a hundredth of a cent, and less than that more,".to_owned()
    } else {
        format!("dearer by {by}")
    }
}

/// What a choice weighs offers against.
#[derive(Clone, Copy)]
pub struct Scales<'a> {
    /// The menu.
    pub menu: &'a Menu,
    /// What is remembered of markets and groups.
    pub memory: &'a Memory,
    /// What is used of every limit.
    pub usage: &'a Usage,
    /// Whether the supplier's inventory can be trusted.
    pub fresh: &'a dyn Fn(&Group) -> bool,
    /// The time.
    pub now: Timestamp,
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

/// The price of an offer in parts, as if no commitment covered it.
///
/// # Errors
/// Says why it has none.
pub fn price_parts(menu: &Menu, memory: &Memory, group: &Group, offer: &Offer, now: Timestamp) -> Result<PriceParts, Unpriced> {
    let quote = offer.quote(now)?;
    let rules = || menu.policy.pool(&group.pool)?.spot.as_ref();
    let spot = offer.prior.and_then(|prior| {
        let risk = Risk::estimate(prior, memory.spot.get(&offer.market.place).map(AsRef::as_ref));
        let usable = usable(notice(&offer.market.place.cloud));
        Some(SpotParts { useful: rules()?.useful(risk.hazard, usable), risk })
    });
    let hazard = spot.as_ref().map_or(Hazard(0), |spot| spot.risk.hazard);
    let transfer = group.transfer.map(|transfer| transfer.per_hour(hazard));
    let mut parts = PriceParts {
        quote: quote.clone(),
        spot,
        transfer,
        effective: quote.price,
        cash: quote.price,
        covered: None,
        per_gpu: quote.price,
        per_slice: None,
        per_work: None,
        old: quote.is_old(now),
    };
    parts.rank_at(group, parts.uncovered(), UsdPerHour::ZERO);
    Ok(parts)
}

impl<'a> Scales<'a> {
    /// Whether an offer may be bought now, how it ranks, and how many nodes of it there is room for.
    ///
    /// # Errors
    /// Says what bars it.
    pub fn weigh(&self, group: &'a Group, offer: &'a Offer) -> Result<Eligible<'a>, Barred> {
        let (mut admitted, next) = self.admit(group, offer)?;
        let nodes = self.usage.nodes_left(group, offer, &next, self.menu).map_err(Barred::Bound)?;
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
        let market_room = self.market_room(&offer.market)?;
        let next = self.next(group, offer, parts.quote.price);
        let kept_room = self.kept_room(&offer.market)?;
        let preference = group_preference(self.menu, group, offer.market.capacity_type).unwrap_or(usize::MAX);
        if next.by.is_some() {
            let effective = next.effective().plus(parts.transfer.unwrap_or_default());
            parts.rank_at(group, effective, UsdPerHour(1));
        }
        (parts.cash, parts.covered) = (next.cash, next.by.clone());
        let rank = Rank {
            pays: parts.cash > UsdPerHour::ZERO || parts.transfer.is_some_and(|transfer| transfer >= parts.quote.price),
            preference,
            per_unit: parts.per_unit(),
            per_node: parts.effective,
            quoted: parts.quote.price.per(group.units()),
            market: &offer.market,
        };
        let unlimited = self.menu.unlimited(&group.id, offer.market.capacity_type);
        let room = market_room.min(kept_room);
        Ok((Eligible { group, offer, rank, parts, room, alike: next.alike, unlimited }, next))
    }

    /// What one more node of this offer, quoted at `price`, would cost with all commitments counted.
    fn next(&self, group: &Group, offer: &Offer, price: UsdPerHour) -> Marginal {
        self.usage.committed.marginal(self.menu, group, &offer.market, price)
    }

    /// How many nodes the capacity kept for us has room for, where it is what the offer buys from.
    fn kept_room(&self, market: &Market) -> Result<u32, Barred> {
        if market.capacity_type != CapacityType::Reserved {
            return Ok(u32::MAX);
        }
        match self.usage.committed.slot(&self.menu.policy.commitments, &market.place) {
            // The operator's own price for reserved capacity that no commitment describes.
            None => Ok(u32::MAX),
            Some(slot) => slot.map(|(_, nodes)| nodes).map_err(Barred::NoSlot),
        }
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
            Some(remembered) if remembered.frozen_since.is_some() => Err(Barred::Frozen { nodes: remembered.barren }),
            _ => Ok(()),
        }
    }

    fn price(&self, group: &Group, offer: &Offer) -> Result<PriceParts, Unpriced> {
        price_parts(self.menu, self.memory, group, offer, self.now)
    }

    /// Whether reclaims and the pool's spot rules allow a spot offer.
    fn spot_open(&self, group: &'a Group, offer: &'a Offer, parts: &PriceParts) -> Result<(), Barred> {
        let place = &offer.market.place;
        if let Some(known) = self.memory.spot.get(place)
            && let (Some(since), Some(until)) = (known.event_at, known.left_alone_until())
            && self.now < until
        {
            return Err(Barred::Reclaimed { since, until });
        }
        // The map is empty in quiet times, and then no key is made.
        if !self.memory.reclaims.is_empty()
            && let Some(region) = self.memory.reclaims.get(&(place.cloud.clone(), place.region.clone()))
            && let Some(until) = region.left_alone_until.filter(|until| self.now < *until)
        {
            return Err(Barred::RegionReclaims { region: place.region.clone(), until });
        }
        let rules = self.menu.policy.pool(&group.pool).and_then(|pool| pool.spot.as_ref());
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
        let cheaper = |offer: &&Offer| offer.quote(self.now).is_ok_and(|quote| quote.price.plus(transfer) < parts.effective);
        if let Some(on_demand) = on_demand.filter(cheaper)
            && let Ok(on_demand) = self.weigh(group, on_demand)
        {
            let on_demand = on_demand.parts.effective;
            return Err(Barred::DearerThanOnDemand { spot: parts.effective, on_demand });
        }
        Ok(())
    }

    /// How many launches a market's own history allows: none while it is left alone, one while it is on trial.
    fn market_room(&self, market: &Market) -> Result<u32, Barred> {
        let Some(backoff) = self.memory.refused.get(market) else { return Ok(u32::MAX) };
        if self.now < backoff.until {
            return Err(Barred::BackedOff { code: backoff.kind.code().to_owned(), since: backoff.since, until: backoff.until });
        }
        let on_trial = self.memory.records.values().any(|record| match &record.state {
            State::Launching { purchase, .. } => purchase.market == *market,
            // Selling was never the trouble of a market whose machines did not boot: the trial ends when one has.
            State::Booting { purchase, .. } => backoff.kind == RefusalKind::BootTimeout && purchase.market == *market,
            _ => false,
        });
        if on_trial { Err(Barred::OnTrial) } else { Ok(1) }
    }

    /// The limit that binds the next node of a group, over all of its offers; `None` where no limit does.
    pub fn binding(&self, group: &Group) -> Option<Bound> {
        let rooms = group.offers.iter().filter_map(|offer| {
            let price = offer.quote(self.now).ok()?.price;
            Some(self.usage.room(group, offer, &self.next(group, offer, price), self.menu))
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
            ..candidate(e.group, e.offer, e.rank.preference, Ok(e.parts.clone()), Verdict::Tied)
        });
        let shut = barred.iter().map(|(group, offer, why)| {
            candidate(group, offer, usize::MAX, self.price(group, offer), Verdict::Barred(why.clone()))
        });
        retell(open.chain(shut).collect(), chosen)
    }
}

/// The place of a capacity type in the preference of the group's pool; `None` where the pool is gone or does not name it.
fn group_preference(menu: &Menu, group: &Group, capacity_type: CapacityType) -> Option<usize> {
    menu.policy.pool(&group.pool)?.prefer.iter().position(|&c| c == capacity_type)
}

/// The same candidates, in rank order, with the verdicts that follow from what was chosen.
pub fn retell(mut candidates: Vec<Candidate>, chosen: &[(Market, u32)]) -> Vec<Candidate> {
    let taken = |market: &Market| chosen.iter().find(|(m, _)| m == market).map(|(_, n)| *n);
    // What the losers are compared with: the best that was chosen, or the best that could have been.
    let open = |c: &&Candidate| !matches!(c.verdict, Verdict::Barred(_));
    let best = candidates.iter().find(|c| taken(&c.market).is_some()).or_else(|| candidates.iter().find(open)).cloned();
    for candidate in &mut candidates {
        if let Some(nodes) = taken(&candidate.market) {
            candidate.verdict = Verdict::Chosen { nodes };
            continue;
        }
        let (Some(best), Ok(own)) = (&best, &candidate.price) else { continue };
        let (Ok(best_price), false) = (&best.price, matches!(candidate.verdict, Verdict::Barred(_))) else { continue };
        candidate.verdict = match own.per_unit().cmp(&best_price.per_unit()) {
            _ if candidate.market.capacity_type != best.market.capacity_type && candidate.preference > best.preference => {
                Verdict::LessPreferred { than: best.market.capacity_type }
            }
            std::cmp::Ordering::Greater => {
                let by = own.per_unit().minus(best_price.per_unit());
                match (own.per_work, own.per_slice) {
                    (Some(_), _) => Verdict::DearerWork { by },
                    (None, Some(_)) => Verdict::DearerSlice { by },
                    (None, None) => Verdict::Dearer { by },
                }
            }
            _ if own.effective > best_price.effective => Verdict::LargerStep,
            _ => Verdict::Tied,
        };
    }
    candidates
}
