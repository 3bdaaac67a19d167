//! Back to spot: whether an on-demand node, bought when spot could not be had, should go so that a spot node takes its place.
//!
//! The node is emptied first, and the autoscaler asks for what its pods need: its work waits for the new node's boot. So a move costs
//! the new node's boot and the work that is done again on it, and that time's waiting.

use jiff::{SignedDuration, Timestamp};

use crate::choose::{Eligible, Scales};
use crate::commitment::release_order;
use crate::memory::LONGEST_BACKOFF;
use crate::offer::{CapacityType, Market};
use crate::policy::{MoveBack, Pool};
use crate::record::{Record, State};
use crate::spot::SpotRules;
use crate::units::{UsdMicros, UsdPerHour};
use crate::usage::{Usage, group_of};

/// How long a market that reclaimed must have been open before it is moved to. Of measured markets with capacity 96 % had it ten minutes later, of those
/// without 13 % (`policy-benchmark` §2): one that stayed open for ten minutes is one of the former.
pub const DWELL: SignedDuration = SignedDuration::from_mins(10);

/// How likely a market has room that nothing of ours runs in, in percent: the measured share of the time, 59 % for H100 and 64 % for
/// V100 (`policy-benchmark` §2). One in which something of ours runs counts as open.
const OPEN_UNSEEN: i64 = 60;

/// What a move comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where the spot node would be bought.
    pub market: Market,
    /// What it saves over the time that it can be expected to serve, times the chance that the market has room.
    pub gain: UsdMicros,
    /// What the move costs: the new node's boot, the work that is done again on it, and what the pool says that waiting for both costs.
    pub cost: UsdMicros,
}

/// The spot rules of a pool whose nodes move back at all.
pub fn moves_back(pool: &Pool) -> Option<&SpotRules> {
    pool.spot.as_ref().filter(|rules| rules.move_back > MoveBack::Never)
}

/// Whether a spot market can be counted on: it is `DWELL` since one of its nodes was last left alone after a reclaim, and it has not
/// refused. One that refused is open again when it has sold, or has been quiet until its refusal is forgotten.
pub fn has_settled(scales: &Scales<'_>, market: &Market) -> bool {
    let past = |at: Timestamp, by| at.saturating_add(by).is_ok_and(|until: Timestamp| until <= scales.now);
    let refused = scales.memory.refused.get(market);
    let reclaimed = scales.memory.spot.get(&market.place).and_then(|known| known.left_alone_until());
    market.capacity_type == CapacityType::Spot
        && refused.is_none_or(|backoff| past(backoff.until, LONGEST_BACKOFF))
        && reclaimed.is_none_or(|at| past(at, DWELL))
}

/// What moving the work of one node back to spot comes to; `None` where it must not move, or does not pay.
///
/// A node is moved to a spot market of its own instance type and pool. `busy` is whether pods run on it: they move only where the pool
/// says so. `work` is whether another node must take its place: for pods, or for a floor. Without, nothing is lost and nothing
/// waited for. A node is expected to serve on for as long as it has served (job lengths have heavy tails: what ran long runs on,
/// `policy-benchmark` §1), and no longer than a spot node can be expected to live. One that commitments pay for saves nothing by going.
pub fn weigh(scales: &Scales<'_>, pool: &Pool, record: &Record, busy: bool, work: bool) -> Option<Move> {
    let rules = moves_back(pool)?;
    let State::Registered { purchase, launched_at, ready_at: Some(ready), .. } = &record.state else { return None };
    if purchase.market.capacity_type != CapacityType::OnDemand || (busy && !rules.moves_busy()) {
        return None;
    }
    let group = group_of(record, scales.memory, scales.menu).filter(|group| group.pool == pool.name)?;
    let alike = || scales.menu.pool_groups(&pool.name).filter(|other| other.spec == group.spec);
    let settled = |offer: &crate::group::Offer| has_settled(scales, &offer.market);
    if !alike().any(|other| other.offers.iter().any(settled)) {
        return None;
    }
    // Its own room becomes free.
    let mut usage = Usage::clone(scales.usage);
    usage.remove(record, group, scales.menu, scales.now);
    let without = Scales { usage: &usage, ..*scales };
    let (eligible, _) = without.rank(alike().map(AsRef::as_ref));
    // Rank order: the cheapest comes first.
    let to = eligible.iter().find(|e| has_settled(scales, &e.offer.market))?;
    let (_, saved) = release_order(&[record], 1, scales.usage, scales.memory, scales.menu).pop()?;
    let hazard = to.parts.spot.as_ref()?.risk.hazard;
    let life = i64::try_from(3_600_000_000_000 / hazard.0.max(1)).unwrap_or(i64::MAX);
    let serves = scales.now.duration_since(*ready).as_secs().min(life);
    let gain = saved.minus(to.parts.effective).over_seconds(serves);
    let gain = if is_seen_open(scales, to) { gain } else { UsdMicros(gain.0 / 100 * OPEN_UNSEEN) };
    let mut late = SignedDuration::ZERO;
    if work {
        // The new node boots as the old one did: they are of one type.
        late = ready.duration_since(*launched_at).clamp(SignedDuration::ZERO, purchase.boot_within);
    }
    if busy {
        late = late.saturating_add(rules.lost_per_reclaim());
    }
    let waiting = pool.isolation.map_or(UsdPerHour::ZERO, |isolation| isolation.waiting).times(group.spec.advertised_gpus());
    let rate = if busy { to.parts.quote.price.plus(waiting) } else { to.parts.quote.price };
    let cost = rate.over_seconds(late.as_secs());
    (gain > cost).then(|| Move { market: to.offer.market.clone(), gain, cost })
}

/// Whether something of ours runs in the market.
fn is_seen_open(scales: &Scales<'_>, to: &Eligible<'_>) -> bool {
    let runs = |record: &Record| match &record.state {
        State::Booting { purchase, .. } | State::Registered { purchase, .. } => purchase.market == to.offer.market,
        _ => false,
    };
    scales.memory.records.values().any(|record| runs(record))
}
