//! Allocation: from which offers to buy the nodes of a demand.
//!
//! The rules of the choice and all limits form one small integer problem. Its solution is listed in
//! the order of purchase. Passes and `stoker plan` both buy this way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::units::UsdPerHour;
use crate::catalogue::group::Group;
use crate::choose::candidate::{Barred, Candidate, OfferVerdict};
use crate::choose::rank::{Rank, Scales};
use crate::choose::solver::{Choice, Gap, Row, fill};
use crate::limits::usage::{Bound, Limit, Usage};
use crate::market::offer::{CapacityType, Market, Offer};

/// How good a choice of offers is known to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Proof {
    /// No other is better.
    #[default]
    Best,
    /// The search was given up; the best is better by this at most.
    Within(Gap),
    /// Commitments cover some of the nodes in part, and how much of each depends on all that are bought: they were chosen step by step,
    /// with the cover counted again after each.
    InSteps,
}

impl Proof {
    /// Whether no other choice is better.
    pub fn is_best(&self) -> bool {
        *self == Self::Best
    }
}

impl std::fmt::Display for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Best => f.write_str("proven to be the best choice"),
            Self::Within(Gap { nodes: n @ 1.., .. }) => {
                write!(f, "the search stopped early: at most {n} more nodes could be found")
            }
            Self::Within(Gap { preferred: n @ 1.., .. }) => {
                write!(f, "the search stopped early: at most {n} more of the nodes could be of a kind that the pool prefers")
            }
            Self::Within(Gap { cost, .. }) => {
                let cost = UsdPerHour(*cost);
                write!(
                    f,
                    "the search stopped early: prices per GPU or unit of work, summed over all nodes, could be at most \
                           {cost}/h lower"
                )
            }
            Self::InSteps => f.write_str(
                "commitments cover some of these nodes in part, so nodes were chosen one at a time: another combination may \
                 be better",
            ),
        }
    }
}

/// Nodes bought of one offer, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub group: &'a Group,
    pub offer: &'a Offer,
    pub price: UsdPerHour,
    pub nodes: u32,
}

/// What a demand is bought from.
#[derive(Debug)]
pub(crate) struct Allocation<'a> {
    /// In the order of purchase: as far as can be, no share is exceeded in between.
    pub runs: Vec<Run<'a>>,
    pub proof: Proof,
    /// What is used of every limit then.
    pub usage: Usage,
}

impl Allocation<'_> {
    /// Nodes found.
    pub(crate) fn found(&self) -> u32 {
        self.runs.iter().map(|run| run.nodes).sum()
    }

    /// Nodes by market, in the order of the first purchase.
    pub(crate) fn chosen(&self) -> Vec<(Market, u32)> {
        let mut chosen: Vec<(Market, u32)> = Vec::new();
        for run in &self.runs {
            match chosen.iter_mut().find(|(market, _)| *market == run.offer.market) {
                Some((_, n)) => *n += run.nodes,
                None => chosen.push((run.offer.market.clone(), run.nodes)),
            }
        }
        chosen
    }
}

/// Buys up to `wanted` nodes from the offers of `groups`, all of one pool, under every limit: most nodes, then most of what is paid for
/// already, then most of what the pool prefers, then least cost.
///
/// Spot that costs more than on-demand in the same group is admitted only once that has no room, so it gets what the rest leaves.
pub(crate) fn allocate<'a>(scales: &Scales<'a>, groups: &[&'a Group], wanted: u32) -> Allocation<'a> {
    let mut allocation = Allocation { runs: Vec::new(), proof: Proof::Best, usage: scales.usage.clone() };
    let mut left = wanted;
    while left > 0 {
        let now = Scales { usage: &allocation.usage, ..*scales };
        let mut round = Round::of(&now, groups, &allocation.runs, false);
        let (mut choices, mut rows): (Vec<Choice>, Vec<Row>) = round.problem();
        let mut filling = fill(left, &choices, &rows);
        if round.spot_only && filling.nodes.iter().all(|n| *n == 0) {
            round = Round::of(&now, groups, &allocation.runs, true);
            (choices, rows) = round.problem();
            filling = fill(1, &choices, &rows);
        }
        if filling.gap != Gap::NONE && allocation.proof == Proof::Best {
            allocation.proof = Proof::Within(filling.gap);
        }
        let (nodes, whole) = round.settled(filling.nodes, left);
        if !whole {
            allocation.proof = Proof::InSteps;
        }
        let bought: Vec<(usize, u32)> = in_turn(&choices, &rows, nodes);
        let runs: Vec<Run<'a>> = bought.iter().filter_map(|&(at, nodes)| round.run(groups, at, nodes)).collect();
        if runs.is_empty() {
            break;
        }
        for run in runs {
            left = left.saturating_sub(run.nodes);
            allocation.usage.add_bought(run.group, &run.offer.market, run.price, run.nodes, scales.catalogue);
            allocation.runs.push(run);
        }
    }
    allocation
}

/// What one filling chooses from.
struct Round<'s> {
    /// In the order of preference.
    tranches: Vec<Tranche<'s>>,
    rows: Vec<Row>,
    /// Whether a commitment could cover a part of a node.
    in_part: bool,
    /// Whether a budget limits the pool.
    budget: bool,
    /// Whether a part of one is kept for spot.
    spot_only: bool,
}

/// Nodes of an offer that all cost the same.
struct Tranche<'s> {
    /// Place of the group among those asked, and of the offer in it.
    at: (usize, usize),
    rank: Rank<'s>,
    price: UsdPerHour,
    /// Whether it adds nothing to the bill.
    free: bool,
    most: u32,
    takes: Vec<(usize, i64)>,
}

/// Nodes of one offer that add the same to the bill.
struct Kind<'s> {
    rank: Rank<'s>,
    cash: UsdPerHour,
    most: u32,
    /// The row of the commitment that covers them whole, and what one takes of it.
    covered: Option<(usize, i64)>,
}

/// What a row stands for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'s> {
    Limit(Limit<'s>),
    /// What is left of a commitment, by its place in the policy.
    Commitment(usize),
    /// What the market's own history allows of an offer, by its places.
    Offer(usize, usize),
}

impl<'s> Round<'s> {
    /// `last` is whether one node is bought that may begin to use what is kept for spot.
    fn of(scales: &Scales<'s>, groups: &[&'s Group], runs: &[Run<'_>], last: bool) -> Self {
        let mut round = Self { tranches: Vec::new(), rows: Vec::new(), in_part: false, budget: false, spot_only: false };
        let mut places: BTreeMap<Key<'s>, usize> = BTreeMap::new();
        let mut sizes: BTreeMap<usize, i64> = BTreeMap::new();
        for (g, group) in groups.iter().enumerate() {
            for (o, offer) in group.offers.iter().enumerate() {
                let Ok((own, _)) = scales.admit(group, offer) else { continue };
                // A market on trial takes one launch, which the records may not show yet.
                let tried = scales.memory.refusal(&offer.market, group, scales.catalogue).map_or(0, |refused| {
                    let tries = |run: &&Run<'_>| refused.is_tried_in(run.group, &run.offer.market, scales.catalogue);
                    runs.iter().filter(tries).map(|run| run.nodes).sum()
                });
                let most = own.room.saturating_sub(tried);
                let price = own.parts.quote.price;
                let covered = scales.usage.committed.tranches(scales.catalogue, group, &offer.market, price);
                round.in_part |= covered.in_part;
                let uncovered = own.parts.uncovered();
                let paying = Rank { pays: true, price: group.ranked_price(uncovered), per_node: uncovered, ..own.rank.clone() };
                let mut kinds: Vec<Kind<'s>> = Vec::new();
                for tranche in &covered.whole {
                    let left = Row { left: tranche.left, grows: 0 };
                    let row = round.row(&mut places, Key::Commitment(tranche.commitment), left);
                    // What nodes of several sizes share may end in a part of one.
                    round.in_part |= *sizes.entry(tranche.commitment).or_insert(tranche.takes) != tranche.takes;
                    let covered = Some((row, tranche.takes));
                    kinds.push(Kind { rank: own.rank.clone(), cash: UsdPerHour::ZERO, most, covered });
                }
                let part = own.parts.covered.is_some() && own.parts.cash > UsdPerHour::ZERO;
                if part {
                    kinds.push(Kind { rank: own.rank.clone(), cash: own.parts.cash, most: most.min(1), covered: None });
                }
                match offer.market.capacity_type {
                    CapacityType::OnDemand => kinds.push(Kind { rank: paying, cash: price, most, covered: None }),
                    CapacityType::Reserved | CapacityType::Spot => {
                        kinds.push(Kind { rank: own.rank, cash: own.parts.cash, most, covered: None })
                    }
                }
                let joint = (kinds.len() > 1 && most < u32::MAX)
                    .then(|| round.row(&mut places, Key::Offer(g, o), Row { left: i64::from(most), grows: 0 }));
                for Kind { rank, cash, most, covered } in kinds {
                    let mut takes: Vec<(usize, i64)> = joint.map(|row| (row, 1)).into_iter().chain(covered).collect();
                    let counted = scales.usage.each_limit(group, &offer.market, cash, scales.catalogue, |headroom| {
                        let spot_only = matches!(headroom.limit, Limit::SpotOnly { .. });
                        round.spot_only |= spot_only;
                        round.budget |= spot_only || matches!(headroom.limit, Limit::Budget { .. });
                        if spot_only && last && headroom.takes <= headroom.left {
                            return;
                        }
                        if headroom.takes > 0 {
                            let row = Row { left: headroom.left, grows: headroom.grows };
                            takes.push((round.row(&mut places, Key::Limit(headroom.limit), row), headroom.takes));
                        }
                    });
                    if counted.is_ok() {
                        round.tranches.push(Tranche { at: (g, o), rank, price, free: cash == UsdPerHour::ZERO, most, takes });
                    }
                }
            }
        }
        round.tranches.sort_by(|a, b| a.rank.cmp(&b.rank));
        round
    }

    fn row(&mut self, places: &mut BTreeMap<Key<'s>, usize>, key: Key<'s>, row: Row) -> usize {
        let at = *places.entry(key).or_insert_with(|| {
            self.rows.push(row);
            self.rows.len() - 1
        });
        // All offers see the same of a limit, but of what is kept for spot: there the last node counts for nothing, which is taken to be
        // the cheapest. What a more expensive one could still begin is bought by itself ([`allocate`]).
        if let Some(known) = self.rows.get_mut(at) {
            known.left = known.left.min(row.left);
        }
        at
    }

    fn problem(&self) -> (Vec<Choice>, Vec<Row>) {
        let mut classes: Vec<(bool, usize)> = self.tranches.iter().map(|t| (t.rank.pays, t.rank.preference)).collect();
        classes.dedup();
        let choice = |t: &Tranche<'_>| Choice {
            class: classes.iter().position(|class| *class == (t.rank.pays, t.rank.preference)).unwrap_or(classes.len()),
            cost: t.rank.price.0,
            most: t.most,
            takes: t.takes.clone(),
        };
        (self.tranches.iter().map(choice).collect(), self.rows.clone())
    }

    /// What can be bought before the cover of commitments has to be counted again, and whether that is all of the filling: everything
    /// where no node can be covered in part; else what is covered whole; else the most preferred.
    fn settled(&self, mut nodes: Vec<u32>, wanted: u32) -> (Vec<u32>, bool) {
        let free = |at: usize| self.tranches.get(at).is_some_and(|t| t.free);
        let all_free = nodes.iter().enumerate().all(|(at, n)| *n == 0 || free(at)) && nodes.iter().sum::<u32>() == wanted;
        // A part that is paid for is more than nothing to pay, and of a budget's room it could make more.
        if !self.in_part || (all_free && !self.budget) {
            return (nodes, true);
        }
        let any_free = nodes.iter().enumerate().any(|(at, n)| *n > 0 && free(at));
        let first = nodes.iter().position(|n| *n > 0);
        for (at, n) in nodes.iter_mut().enumerate() {
            if if any_free { !free(at) } else { Some(at) != first } {
                *n = 0;
            }
        }
        (nodes, false)
    }

    fn run<'a>(&self, groups: &[&'a Group], at: usize, nodes: u32) -> Option<Run<'a>> {
        let tranche = self.tranches.get(at)?;
        let group = groups.get(tranche.at.0)?;
        Some(Run { group, offer: group.offers.get(tranche.at.1)?, price: tranche.price, nodes })
    }
}

/// A filling in the order of purchase: the most preferred first whose shares allow one more, so that what fails on the way leaves no share
/// exceeded that need not be.
fn in_turn(choices: &[Choice], rows: &[Row], nodes: Vec<u32>) -> Vec<(usize, u32)> {
    let mut open: Vec<(usize, u32)> = nodes.into_iter().enumerate().filter(|(_, n)| *n > 0).collect();
    if rows.iter().all(|row| row.grows == 0) {
        return open;
    }
    let mut left: Vec<i64> = rows.iter().map(|row| row.left).collect();
    let mut turns: Vec<(usize, u32)> = Vec::new();
    while !open.is_empty() {
        for (left, row) in left.iter_mut().zip(rows) {
            *left += row.grows;
        }
        let takes = |at: usize| choices.get(at).map(|choice| choice.takes.as_slice()).unwrap_or_default();
        let fits = |at: usize| takes(at).iter().all(|(row, takes)| left.get(*row).is_some_and(|left| takes <= left));
        let next = open.iter().position(|(at, _)| fits(*at)).unwrap_or(0);
        let Some((at, n)) = open.get_mut(next) else { break };
        let at = *at;
        *n -= 1;
        if *n == 0 {
            open.remove(next);
        }
        for (row, takes) in takes(at) {
            if let Some(left) = left.get_mut(*row) {
                *left -= takes;
            }
        }
        match turns.last_mut() {
            Some((last, run)) if *last == at => *run += 1,
            _ => turns.push((at, 1)),
        }
    }
    turns
}

/// Whether a reason says more than a verdict does: one that barred an offer before is replaced by nothing but the same limit's figures.
/// A share is one of the nodes bought: once others are, it may be another limit that binds.
fn is_new(verdict: &OfferVerdict, why: &Barred) -> bool {
    match (verdict, why) {
        (OfferVerdict::Barred(Barred::Bound(before)), Barred::Bound(after)) => {
            let of_share = matches!(
                before,
                Bound::SpotShare { .. } | Bound::MarketShare { .. } | Bound::ZoneShare { .. } | Bound::ModelShare { .. }
            );
            of_share || std::mem::discriminant(before) == std::mem::discriminant(after)
        }
        (OfferVerdict::Barred(_), _) => false,
        _ => true,
    }
}

/// Says of the losers why they lost, where what was chosen used up their limits: of those that rank before the last of the chosen, or of all
/// where there were not enough. What barred others before is told with what is chosen counted.
pub(crate) fn tell_binding(candidates: &mut [Candidate], after: &Scales<'_>, short: bool) {
    let last = candidates.iter().rposition(|c| matches!(c.verdict, OfferVerdict::Chosen { .. })).unwrap_or(0);
    for (place, candidate) in candidates.iter_mut().enumerate() {
        let told = match &candidate.verdict {
            // The same limit, with what is held of it now.
            OfferVerdict::Barred(Barred::Bound(_)) => true,
            OfferVerdict::Chosen { .. } | OfferVerdict::Barred(_) => false,
            _ => short || place < last,
        };
        if !told {
            continue;
        }
        let group = after.catalogue.groups.get(&candidate.group);
        let offer = group.and_then(|group| group.offers.iter().find(|offer| offer.market == candidate.market));
        if let (Some(group), Some(offer)) = (group, offer)
            && let Err(why) = after.weigh(group, offer)
            && is_new(&candidate.verdict, &why)
        {
            candidate.verdict = OfferVerdict::Barred(why);
        }
    }
}
