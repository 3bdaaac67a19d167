//! Which single limit is worth lifting: for a choice, the one without which the same capacity would cost less; for a refusal, the one
//! without which the missing nodes could be had.
//!
//! Each limit is lifted in turn and the choice made anew, so that what binds next is seen. Of a choice in
//! the journal only the reasons are known, not the policy of that moment: what is told of it is an upper bound.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::budget::{BudgetOf, SPOT_ONLY_AT};
use crate::choose::{Barred, Candidate, Scales, Verdict};
use crate::group::Menu;
use crate::ids::{Cloud, NodeGroupId, PoolName, Region};
use crate::memory::Memory;
use crate::offer::CapacityType;
use crate::plan::Explanation;
use crate::policy::{Counts, Policy, Pool, Quota, QuotaUnit};
use crate::quota::{KnownQuota, Unlisted, in_region};
use crate::units::{Percent, UsdPerHour};
use crate::usage::{Bound, Usage};
use crate::whatif::what_if;

/// A limit, by where it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// A quota that the policy lists.
    Quota {
        /// Its name.
        name: String,
        /// Its cloud.
        cloud: Cloud,
        /// The region; `None` where it counts all of them.
        region: Option<Region>,
    },
    /// A quota that the policy does not list, and that is taken as nought.
    Unlisted {
        /// Its cloud.
        cloud: Cloud,
        /// Which one.
        quota: Unlisted,
    },
    /// The pool's `limits.maxNodes`.
    MaxNodes,
    /// The pool's `limits.maxUsdPerHour`.
    Budget,
    /// The `limits.maxUsdPerHour` of all pools together.
    OverallBudget,
    /// The pool's `where.maxZoneShare`.
    ZoneShare,
    /// The pool's `capacity.spot.maxShare`.
    SpotShare,
    /// The pool's `capacity.spot.maxMarketShare`.
    MarketShare,
    /// The pool's `capacity.spot.maxInterruption`.
    MaxInterruption,
    /// The pool's order of `capacity.prefer`, in which this capacity type is not the first.
    Preference(CapacityType),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { name, region, cloud: _ } => write!(f, "quota {name}{}", in_region(region.as_ref())),
            Self::Unlisted { quota, cloud: _ } => write!(f, "{quota}, which the policy does not list,"),
            Self::MaxNodes => f.write_str("limits.maxNodes"),
            Self::Budget => f.write_str("limits.maxUsdPerHour"),
            Self::OverallBudget => f.write_str("limits.maxUsdPerHour of all pools"),
            Self::ZoneShare => f.write_str("where.maxZoneShare"),
            Self::SpotShare => f.write_str("capacity.spot.maxShare"),
            Self::MarketShare => f.write_str("capacity.spot.maxMarketShare"),
            Self::MaxInterruption => f.write_str("capacity.spot.maxInterruption"),
            Self::Preference(first) => write!(f, "capacity.prefer with {first} first"),
        }
    }
}

/// How high a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Nodes.
    Nodes(u32),
    /// A rate of spend.
    Rate(UsdPerHour),
    /// A share.
    Share(Percent),
    /// Units of a quota.
    Units(u64, QuotaUnit),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(f, "{nodes}"),
            Self::Rate(rate) => write!(f, "{rate}/h"),
            Self::Share(share) => write!(f, "{share}"),
            Self::Units(units, unit) => write!(f, "{units} {unit}"),
        }
    }
}

/// What lifting one limit would bring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lift {
    /// The limit.
    pub limit: Limit,
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
    /// How much less the capacity found under the limit would cost then, its data included; nought where more nodes would be found, or nothing
    /// was found to compare with.
    pub gain: UsdPerHour,
    /// Whether the choice was made anew without the limit; else this is the most that it could bring, and another limit may bind next.
    pub exact: bool,
}

/// What is left to say of candidates once the choice is made: a chosen offer of which there would have been more but for a limit says
/// which. `after` has all that was chosen in its count. Only where the choice had to go on elsewhere, or fell short.
pub fn mark_ends(after: &Scales<'_>, candidates: &mut [Candidate], short: bool) {
    let last = candidates.iter().rposition(is_chosen);
    for (place, candidate) in candidates.iter_mut().enumerate().filter(|(_, candidate)| is_chosen(candidate)) {
        if !short && Some(place) == last {
            continue;
        }
        let Some(group) = after.menu.groups.get(&candidate.group) else { continue };
        let Some(offer) = group.offers.iter().find(|offer| offer.market == candidate.market) else { continue };
        if let Err(Barred::Bound(bound)) = after.weigh(group, offer) {
            candidate.ended_by = Some(bound);
        }
    }
}

/// The limits worth lifting, the best first: that which leaves the fewest nodes missing, and of those the one that brings the cheapest.
/// `made` is the choice of [`what_if`] with the same arguments.
pub fn lifts(
    menu: &Menu,
    memory: &Memory,
    (pool, group): (&PoolName, Option<&NodeGroupId>),
    made: &Explanation,
    now: Timestamp,
) -> Vec<Lift> {
    let before = Outcome::of(menu, memory, made, now);
    // Where two limits bind the same offer only one is named, so those with a height are all tried.
    let mut limits = Limit::with_height(menu, pool);
    limits.extend(reasons(made).into_iter().map(|(limit, _)| limit));
    let mut lifts: Vec<Lift> = limits
        .into_iter()
        .filter_map(|limit| {
            let lifted = menu.under(Arc::new(limit.lifted(&menu.policy, pool)?));
            let anew = what_if(&lifted, memory, pool, group, made.asked, now);
            let after = Outcome::of(&lifted, memory, &anew, now);
            let gain = before.gain(&after)?;
            Some(Lift {
                from: limit.level(&menu.policy, pool),
                to: limit.needed(&menu.policy, &lifted.policy, pool, &after.usage),
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
        let Some((freed, bound, price)) = priced.min_by_key(|(candidate, _, price)| (price.per_unit(), &candidate.market))
        else {
            continue;
        };
        let dearer = made.candidates.iter().filter(|other| other.market != freed.market).filter_map(|other| {
            let (Verdict::Chosen { nodes }, Ok(own)) = (&other.verdict, &other.price) else { return None };
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
            (Verdict::Chosen { nodes }, Ok(price)) => Some(price.cash.times(*nodes)),
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
    matches!(candidate.verdict, Verdict::Chosen { .. })
}

/// The candidates that a limit stands in the way of, and the words for it where it is a bound.
type Named<'a> = Vec<(&'a Candidate, Option<&'a Bound>)>;

/// The limits that the reasons name, each once, in their own order.
fn reasons(made: &Explanation) -> Vec<(Limit, Named<'_>)> {
    let named: Vec<(Limit, &Candidate, Option<&Bound>)> =
        made.candidates.iter().filter_map(|c| Limit::of(c).map(|(limit, bound)| (limit, c, bound))).collect();
    let limits: BTreeSet<&Limit> = named.iter().map(|(limit, ..)| limit).collect();
    let of = |wanted: &Limit| named.iter().filter(|(limit, ..)| limit == wanted).map(|(_, c, bound)| (*c, *bound)).collect();
    limits.into_iter().map(|limit| (limit.clone(), of(limit))).collect()
}

impl Limit {
    /// The limit that stands in a candidate's way, if one does that can be lifted.
    fn of(candidate: &Candidate) -> Option<(Self, Option<&Bound>)> {
        let bound = match &candidate.verdict {
            Verdict::Barred(Barred::Bound(bound)) => bound,
            Verdict::Barred(Barred::Interruption { .. }) => return Some((Self::MaxInterruption, None)),
            Verdict::LessPreferred { .. } => return Some((Self::Preference(candidate.market.capacity_type), None)),
            Verdict::Chosen { .. } => candidate.ended_by.as_ref()?,
            Verdict::Barred(_)
            | Verdict::Dearer { .. }
            | Verdict::DearerSlice { .. }
            | Verdict::DearerWork { .. }
            | Verdict::LargerStep
            | Verdict::Tied => return None,
        };
        let cloud = || candidate.market.place.cloud.clone();
        let limit = match bound {
            Bound::MaxNodes { .. } => Self::MaxNodes,
            Bound::Budget { .. } | Bound::SpotOnly { of: BudgetOf::Pool(_), .. } => Self::Budget,
            Bound::OverallBudget { .. } | Bound::SpotOnly { of: BudgetOf::All, .. } => Self::OverallBudget,
            Bound::ZoneShare { .. } => Self::ZoneShare,
            Bound::Quota { name, region, .. } => Self::Quota { name: name.clone(), cloud: cloud(), region: region.clone() },
            Bound::QuotaUnlisted(quota) => Self::Unlisted { cloud: cloud(), quota: quota.clone() },
            Bound::SpotShare { .. } => Self::SpotShare,
            Bound::MarketShare { .. } => Self::MarketShare,
            Bound::PoolGone => return None,
        };
        Some((limit, Some(bound)))
    }

    /// Every limit on what a pool may buy that is a number.
    fn with_height(menu: &Menu, pool: &PoolName) -> BTreeSet<Self> {
        let mut places = BTreeSet::new();
        for group in menu.pool_groups(pool) {
            let claims = menu.claims(group);
            places.extend(CapacityType::ALL.iter().flat_map(|c| claims.under(*c).listed.iter().map(|claim| claim.quota)));
        }
        let quotas = places.into_iter().filter_map(|at| menu.policy.quotas.get(at)).map(|quota| Self::Quota {
            name: quota.name.clone(),
            cloud: quota.cloud.clone(),
            region: quota.region.clone(),
        });
        let own = [Self::MaxNodes, Self::Budget, Self::OverallBudget, Self::SpotShare, Self::MarketShare, Self::ZoneShare];
        own.into_iter().filter(|limit| limit.level(&menu.policy, pool).is_some()).chain(quotas).collect()
    }

    /// The policy without it; `None` where the policy has no such limit.
    fn lifted(&self, policy: &Policy, pool: &PoolName) -> Option<Policy> {
        let mut policy = policy.clone();
        match self {
            Self::Quota { .. } => {
                let quota = policy.quotas.iter_mut().find(|quota| self.is(quota))?;
                (quota.limit, quota.used, quota.safety) = (u32::MAX, 0, 0);
            }
            Self::Unlisted { cloud, quota } => {
                let known = KnownQuota::find(&quota.name)?;
                policy.quotas.push(Quota {
                    name: quota.name.clone(),
                    cloud: cloud.clone(),
                    region: quota.region.clone(),
                    counts: Counts::Known(known),
                    unit: known.unit,
                    limit: u32::MAX,
                    used: 0,
                    safety: 0,
                });
            }
            Self::MaxNodes => own(&mut policy, pool)?.limits.max_nodes = u32::MAX,
            Self::Budget => own(&mut policy, pool)?.limits.max_usd_per_hour = None,
            Self::OverallBudget => policy.max_usd_per_hour = None,
            Self::ZoneShare => own(&mut policy, pool)?.max_zone_share = None,
            Self::SpotShare => own(&mut policy, pool)?.spot.as_mut()?.max_share = Percent::ALL,
            Self::MarketShare => own(&mut policy, pool)?.spot.as_mut()?.max_market_share = Percent::ALL,
            Self::MaxInterruption => own(&mut policy, pool)?.spot.as_mut()?.max_interruption = None,
            Self::Preference(first) => own(&mut policy, pool)?.prefer.sort_by_key(|own| own != first),
        }
        Some(policy)
    }

    fn is(&self, quota: &Quota) -> bool {
        match self {
            Self::Quota { name, cloud, region } | Self::Unlisted { cloud, quota: Unlisted { name, region, .. } } => {
                (name, cloud, region) == (&quota.name, &quota.cloud, &quota.region)
            }
            _ => false,
        }
    }

    /// How high it is.
    fn level(&self, policy: &Policy, pool: &PoolName) -> Option<Level> {
        let pool = policy.pool(pool)?;
        match self {
            Self::OverallBudget => policy.max_usd_per_hour.map(Level::Rate),
            Self::ZoneShare => pool.max_zone_share.map(Level::Share),
            Self::Quota { .. } => {
                let quota = policy.quotas.iter().find(|quota| self.is(quota))?;
                Some(Level::Units(quota.limit.into(), quota.unit))
            }
            Self::MaxNodes => Some(Level::Nodes(pool.limits.max_nodes)),
            Self::Budget => pool.limits.max_usd_per_hour.map(Level::Rate),
            Self::SpotShare => pool.spot.as_ref().map(|spot| Level::Share(spot.max_share)),
            Self::MarketShare => pool.spot.as_ref().map(|spot| Level::Share(spot.max_market_share)),
            Self::MaxInterruption => pool.spot.as_ref()?.max_interruption.map(Level::Share),
            Self::Unlisted { .. } | Self::Preference(_) => None,
        }
    }

    /// How high it must be for what `usage` counts; `None` where that is no number.
    fn needed(&self, policy: &Policy, lifted: &Policy, pool: &PoolName, usage: &Usage) -> Option<Level> {
        let share = |part: u32, of: u32| (u64::from(part) * 100).div_ceil(u64::from(of.max(1))).min(100);
        match self {
            Self::Quota { .. } | Self::Unlisted { .. } => {
                let at = lifted.quotas.iter().position(|quota| self.is(quota))?;
                let (quota, held) = (lifted.quotas.get(at)?, usage.quotas.get(at)?);
                let others = policy.quotas.get(at).map_or(0, |quota| u64::from(quota.used) + u64::from(quota.safety));
                Some(Level::Units(held.units.saturating_add(others), quota.unit))
            }
            Self::MaxNodes => usage.nodes.get(pool).copied().map(Level::Nodes),
            Self::Budget => Some(Level::Rate(ample(usage.cash(pool), policy.pool(pool)?))),
            Self::OverallBudget => Some(Level::Rate(ample(usage.total_cash(), policy.pool(pool)?))),
            Self::ZoneShare => {
                let nodes = usage.zones.get(pool)?;
                let most = nodes.zones.values().copied().max()?;
                u8::try_from(share(most, nodes.bought)).ok().map(|share| Level::Share(Percent(share)))
            }
            Self::SpotShare => {
                let nodes = usage.spot.get(pool)?;
                u8::try_from(share(nodes.spot, nodes.bought)).ok().map(|share| Level::Share(Percent(share)))
            }
            Self::MarketShare => {
                let nodes = usage.spot.get(pool)?;
                let most = nodes.markets.values().copied().max()?;
                u8::try_from(share(most, nodes.bought)).ok().map(|share| Level::Share(Percent(share)))
            }
            Self::MaxInterruption | Self::Preference(_) => None,
        }
    }
}

/// A budget that pays for so much, also where its last part is kept for spot.
fn ample(cash: UsdPerHour, pool: &Pool) -> UsdPerHour {
    let whole = |cash: i64| (i128::from(cash) * 100 + 99) / i128::from(SPOT_ONLY_AT.0);
    if pool.may_buy_spot() { UsdPerHour(i64::try_from(whole(cash.0)).unwrap_or(i64::MAX)) } else { cash }
}

fn own<'a>(policy: &'a mut Policy, pool: &PoolName) -> Option<&'a mut Pool> {
    policy.pools.iter_mut().find(|own| own.name == *pool)
}

/// Where a bound stands, and how high it must be for so many nodes more.
fn raised(bound: &Bound, nodes: u32) -> (Option<Level>, Option<Level>) {
    match bound {
        Bound::MaxNodes { held, limit } => {
            (Some(Level::Nodes(*limit)), Some(Level::Nodes((*limit).max(held.saturating_add(nodes)))))
        }
        Bound::Budget { spent, limit, price } | Bound::OverallBudget { spent, limit, price } => {
            (Some(Level::Rate(*limit)), Some(Level::Rate((*limit).max(spent.plus(price.times(nodes))))))
        }
        Bound::Quota { left, limit, need, unit, .. } => {
            let limit = u64::from(*limit);
            let more = need.saturating_mul(nodes.into()).saturating_sub(*left);
            (Some(Level::Units(limit, *unit)), Some(Level::Units(limit.saturating_add(more), *unit)))
        }
        Bound::SpotOnly { limit, .. } => (Some(Level::Rate(*limit)), None),
        Bound::SpotShare { limit, .. } | Bound::MarketShare { limit, .. } | Bound::ZoneShare { limit, .. } => {
            (Some(Level::Share(*limit)), None)
        }
        Bound::QuotaUnlisted(_) | Bound::PoolGone => (None, None),
    }
}

/// What a choice comes to.
struct Outcome {
    /// Nodes.
    found: u32,
    /// What they do, in millionths: units of work where the pool weighs work, else GPUs.
    useful: u64,
    /// What they add to the bill, all commitments counted.
    cash: UsdPerHour,
    /// The same with what their data costs.
    with_data: UsdPerHour,
    /// The same with what their reclaims cost too.
    effective: UsdPerHour,
    /// What is used of every limit with them.
    usage: Usage,
}

impl Outcome {
    fn of(menu: &Menu, memory: &Memory, made: &Explanation, now: Timestamp) -> Self {
        let mut usage = Usage::count(memory, menu, now);
        let before = usage.total_cash();
        let (mut useful, mut data, mut beyond) = (0_u64, UsdPerHour::ZERO, UsdPerHour::ZERO);
        for candidate in &made.candidates {
            let (Verdict::Chosen { nodes }, Ok(price)) = (&candidate.verdict, &candidate.price) else { continue };
            let Some(group) = menu.groups.get(&candidate.group) else { continue };
            usage.add_bought(group, &candidate.market, price.quote.price, *nodes, menu);
            let each = group.work.map_or_else(|| u64::from(group.units()) * 1_000_000, |work| work.0);
            useful = useful.saturating_add(each.saturating_mul(u64::from(*nodes)));
            data = data.plus(price.transfer.unwrap_or_default().times(*nodes));
            beyond = beyond.plus(price.uncovered().minus(price.quote.price).times(*nodes));
        }
        let cash = usage.total_cash().minus(before);
        Self { found: made.found, useful, cash, with_data: cash.plus(data), effective: cash.plus(beyond), usage }
    }

    /// How much less this capacity would cost at the other one's price, data included: nought where it finds more nodes; `None` where it is no
    /// better.
    fn gain(&self, other: &Self) -> Option<UsdPerHour> {
        if other.found > self.found {
            return Some(UsdPerHour::ZERO);
        }
        let less = |here: UsdPerHour, there: UsdPerHour| {
            let alike = (i128::from(there.0) * i128::from(self.useful)).checked_div(i128::from(other.useful))?;
            i64::try_from(alike).ok().map(|alike| here.minus(UsdPerHour(alike)))
        };
        let (paid, effective) = (less(self.with_data, other.with_data)?, less(self.effective, other.effective)?);
        (other.found == self.found && paid > UsdPerHour::ZERO && effective > UsdPerHour::ZERO).then_some(paid)
    }
}
