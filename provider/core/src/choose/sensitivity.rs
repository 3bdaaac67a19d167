//! Sensitivity: which single limit is worth raising.
//!
//! For a choice it is the limit without which the same capacity would cost less. For a refusal it
//! is the limit without which the missing nodes could be bought.
//!
//! Each limit is lifted in turn and the choice is repeated, so the next binding limit shows. A
//! journalled choice has only its reasons, not the policy of that moment: its figures are upper
//! bounds.

mod constraint;
mod outcome;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Times;
use crate::base::ids::{NodeGroupId, PoolName};
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::candidate::{Barred, Candidate, OfferVerdict};
use crate::choose::explanation::Explanation;
use crate::choose::rank::Scales;
use crate::choose::what_if::what_if;
use crate::limits::usage::{Bound, Usage};
use crate::market::offer::{Market, Offer};
use crate::policy::Policy;
use crate::state::memory::Memory;

use constraint::raised;
use outcome::Outcome;

pub use constraint::{Constraint, Level};

/// What lifting one limit would bring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lift {
    /// The limit.
    pub limit: Constraint,
    /// Where it stands, where it has a height.
    pub from: Option<Level>,
    /// How high it would have to be, at least.
    pub to: Option<Level>,
    /// Nodes that would be found, of those asked for.
    pub found: u32,
    /// How many more those are.
    pub more: u32,
    /// What the nodes found would add to the bill together.
    pub cost: UsdPerHour,
    /// How much less the capacity found under the limit would cost then, its data included; zero where more nodes would be found, or nothing
    /// was found to compare with.
    pub gain: UsdPerHour,
    /// Whether the choice was made again without the limit; else this is the most that it could bring, and another limit may bind next.
    pub exact: bool,
}

/// What is left to say of candidates once the choice is made: a chosen offer of which there would have been more but for a limit says
/// which, and so does one that a limit barred. `after` has all that was chosen in its count.
///
/// Where as many nodes were found as were asked for, a limit is in the way of one more only if it would be so in place of the last that was
/// chosen: that some limit is just used up by all of them together keeps nothing away.
pub fn mark_ends(after: &Scales<'_>, candidates: &mut [Candidate], short: bool) {
    let last = candidates.iter().rposition(is_chosen);
    let instead_of = last.filter(|_| !short).and_then(|last| {
        let Candidate { group, market, price, .. } = candidates.get(last)?;
        let (group, offer) = offered(after.catalogue, group, market)?;
        Some(after.usage.takes(group, &offer.market, price.as_ref().ok()?.cash, after.catalogue))
    });
    for (place, candidate) in candidates.iter_mut().enumerate() {
        let barred = match &candidate.verdict {
            OfferVerdict::Barred(Barred::Bound(bound)) => Some(bound),
            OfferVerdict::Chosen { .. } if short || Some(place) != last => None,
            _ => continue,
        };
        let Some((group, offer)) = offered(after.catalogue, &candidate.group, &candidate.market) else { continue };
        let Ok((_, next)) = after.admit(group, offer) else { continue };
        let mut bounds = after.usage.bounds(group, &offer.market, next.cash, after.catalogue, instead_of.as_ref());
        // What a reason names already is not told again.
        let named = barred.and_then(|named| bounds.iter().position(|bound| bound.is_of_the_same_limit(named)));
        match (barred, named) {
            (Some(_), Some(named)) => {
                bounds.remove(named);
            }
            _ if bounds.is_empty() => {}
            (Some(_), None) => candidate.verdict = OfferVerdict::Barred(Barred::Bound(bounds.remove(0))),
            (None, _) => candidate.ended_by = Some(bounds.remove(0)),
        }
        candidate.also = bounds;
    }
}

/// The group and the offer of a candidate.
fn offered<'m>(catalogue: &'m Catalogue, group: &NodeGroupId, market: &Market) -> Option<(&'m Group, &'m Offer)> {
    let group = catalogue.groups.get(group)?;
    Some((group, group.offers.iter().find(|offer| offer.market == *market)?))
}

/// The limits worth lifting, the best first: that which leaves the fewest nodes missing, and of those the one that brings the cheapest.
/// `made` is the choice of [`what_if`] with the same arguments.
pub fn lifts(
    catalogue: &Catalogue,
    memory: &Memory,
    (pool, group): (&PoolName, Option<&NodeGroupId>),
    made: &Explanation,
    times: Times,
) -> Vec<Lift> {
    let before = Outcome::of(catalogue, memory, made, times.wall);
    let groups = catalogue.pool_groups(pool).map(AsRef::as_ref).filter(|own: &&Group| group.is_none_or(|id| own.id == *id));
    // Where several limits bind the same offer not all are named, so whatever could bind is tried.
    let mut limits =
        Constraint::that_could_bind(&Usage::count(memory, catalogue, times.wall), catalogue, groups, made.asked, times.wall);
    limits.extend(reasons(made).into_iter().map(|(limit, _)| limit));
    let anew = |catalogue: &Catalogue| {
        Outcome::of(catalogue, memory, &what_if(catalogue, memory, pool, group, made.asked, times), times.wall)
    };
    let mut lifts: Vec<Lift> = limits
        .into_iter()
        .filter_map(|limit| {
            let lifted = catalogue.under(Arc::new(limit.lifted(&catalogue.policy, pool)?));
            let after = anew(&lifted);
            let gain = before.gain(&after)?;
            let as_good = |policy: Policy| anew(&catalogue.under(Arc::new(policy))).is_as_good_as(&after);
            Some(Lift {
                from: limit.level(&catalogue.policy, pool),
                to: limit.needed(&catalogue.policy, pool, (&after.usage, &lifted.policy), as_good),
                limit,
                found: after.found,
                more: after.found.saturating_sub(before.found),
                cost: after.cash,
                gain,
                exact: true,
            })
        })
        .collect();
    let best = |lift: &Lift| {
        let each = lift.cost.minus(before.cash).per(lift.more);
        (made.asked.saturating_sub(lift.found), (lift.more > 0).then_some(each), Reverse(lift.gain), lift.limit.clone())
    };
    lifts.sort_by_cached_key(best);
    lifts
}

/// The limits that an explanation names and that may be worth lifting, the best first, as far as it tells: an offer that a limit barred is
/// taken to have room for all.
pub fn lifts_told(made: &Explanation) -> Vec<Lift> {
    let missing = made.asked.saturating_sub(made.found);
    let mut lifts: Vec<Lift> = Vec::new();
    for (limit, by) in reasons(made) {
        let priced = by.iter().filter_map(|(candidate, bound)| Some((candidate, bound, candidate.price.as_ref().ok()?)));
        let Some((freed, bound, price)) = priced.min_by_key(|(candidate, _, price)| (price.ranked(), &candidate.market)) else {
            continue;
        };
        let dearer = made.candidates.iter().filter(|other| other.market != freed.market).filter_map(|other| {
            let (OfferVerdict::Chosen { nodes }, Ok(own)) = (&other.verdict, &other.price) else { return None };
            (own.effective > price.effective && own.cash > price.cash).then(|| (*nodes, own.cash.minus(price.cash)))
        });
        let (moved, gain) = if missing > 0 {
            (missing, UsdPerHour::ZERO)
        } else {
            dearer.fold((0, UsdPerHour::ZERO), |(moved, gain), (nodes, each)| (moved + nodes, gain.plus(each.times(nodes))))
        };
        if moved == 0 {
            continue;
        }
        let paid = made.candidates.iter().filter_map(|candidate| match (&candidate.verdict, &candidate.price) {
            (OfferVerdict::Chosen { nodes }, Ok(price)) => Some(price.cash.times(*nodes)),
            _ => None,
        });
        let before = paid.fold(UsdPerHour::ZERO, UsdPerHour::plus);
        let (from, to) = bound.map_or((None, None), |bound| raised(bound, moved));
        let cost = before.plus(price.cash.times(missing)).minus(gain);
        lifts.push(Lift { limit, from, to, found: made.asked, more: missing, cost, gain, exact: false });
    }
    lifts.sort_by(|a, b| (a.cost, &a.limit).cmp(&(b.cost, &b.limit)));
    lifts
}

const fn is_chosen(candidate: &Candidate) -> bool {
    matches!(candidate.verdict, OfferVerdict::Chosen { .. })
}

/// The candidates that a limit stands in the way of, and the words for it where it is a bound.
type Named<'a> = Vec<(&'a Candidate, Option<&'a Bound>)>;

/// The limits that the reasons name, each once, in their own order.
fn reasons(made: &Explanation) -> Vec<(Constraint, Named<'_>)> {
    let named: Vec<(Constraint, &Candidate, Option<&Bound>)> =
        made.candidates.iter().filter_map(|c| Constraint::of(c).map(|(limit, bound)| (limit, c, bound))).collect();
    let limits: BTreeSet<&Constraint> = named.iter().map(|(limit, ..)| limit).collect();
    let of =
        |wanted: &Constraint| named.iter().filter(|(limit, ..)| limit == wanted).map(|(_, c, bound)| (*c, *bound)).collect();
    limits.into_iter().map(|limit| (limit.clone(), of(limit))).collect()
}
