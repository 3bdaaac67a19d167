//! Back to spot: which on-demand node, bought when spot could not be had, a spot node should take the place of now.

use jiff::{SignedDuration, Timestamp};

use crate::choose::{Eligible, Scales};
use crate::group::Group;
use crate::ids::{NodeGroupId, RecordId};
use crate::offer::{CapacityType, Market};
use crate::policy::Pool;
use crate::record::{Record, State};
use crate::spot::{Hazard, Saving, SpotRules};
use crate::units::{UsdMicros, UsdPerHour};

/// How long a market must have been open before it is moved to. Of measured markets with capacity 96 % had it ten minutes later, of those
/// without 13 % (`policy-benchmark` §2): one that stayed open for ten minutes is one of the former.
pub const DWELL: SignedDuration = SignedDuration::from_mins(10);

/// One node that should move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The on-demand node.
    pub record: RecordId,
    /// The group that the spot node comes from.
    pub group: NodeGroupId,
    /// Where it is bought.
    pub market: Market,
    /// What it saves over the time that it can be expected to serve.
    pub gain: UsdMicros,
    /// What the move costs: both nodes while the new one boots, the work that is done again, and the data that is read again.
    pub cost: UsdMicros,
}

/// The move of a pool that pays most now; `None` where none does, or while a node of the pool is on its way: nodes move one by one.
///
/// A pool moves back only if it prefers spot to on-demand, and a busy node only if it saves checkpoints. A node is moved to a spot market
/// of its own instance type. It is expected to serve on for as long as it has served (job lengths have heavy tails: what ran long runs
/// on, `policy-benchmark` §1), and no longer than a spot node can be expected to live.
pub fn next_move(scales: &Scales<'_>, pool: &Pool, busy: impl Fn(&Record) -> bool) -> Option<Move> {
    let rules = pool.spot.as_ref()?;
    let place = |capacity_type| pool.prefer.iter().position(|c| *c == capacity_type);
    if place(CapacityType::Spot)? > place(CapacityType::OnDemand)? {
        return None;
    }
    let group_of = |record: &Record| scales.menu.groups.get(&record.group).filter(|group| group.pool == pool.name);
    let records = || scales.memory.records.values().filter(|record| group_of(record).is_some());
    if records().any(|record| record.is_coming()) {
        return None;
    }
    let (eligible, _) = scales.rank(scales.menu.pool_groups(&pool.name).map(AsRef::as_ref));
    let settled: Vec<&Eligible<'_>> = eligible.iter().filter(|e| has_settled(scales, e)).collect();
    let moves = records().filter_map(|record| {
        let group = group_of(record)?;
        // Rank order: the cheapest comes first.
        let to = settled.iter().find(|e| e.group.spec == group.spec)?;
        weigh(scales.now, (record, group), to, rules, busy(record))
    });
    moves.max_by_key(|m| (m.gain.0 - m.cost.0, std::cmp::Reverse(m.record)))
}

/// Whether a spot market has been open for [`DWELL`]: not refused since, and nothing of it reclaimed.
fn has_settled(scales: &Scales<'_>, offer: &Eligible<'_>) -> bool {
    let market = &offer.offer.market;
    let reclaimed = scales.memory.spot.get(&market.place).and_then(|known| known.left_alone_until());
    // A market that refused is remembered until it sells again or has been quiet for long.
    let refused = scales.memory.refused.get(market).map(|backoff| backoff.until);
    let open_since = reclaimed.max(refused);
    let dwelt = |at: Timestamp| at.saturating_add(DWELL).is_ok_and(|until| until <= scales.now);
    market.capacity_type == CapacityType::Spot && open_since.is_none_or(dwelt)
}

fn weigh(now: Timestamp, (record, from): (&Record, &Group), to: &Eligible<'_>, rules: &SpotRules, busy: bool) -> Option<Move> {
    let State::Registered { purchase, ready_at: Some(ready), .. } = &record.state else { return None };
    let saves = matches!(rules.saving, Saving::Checkpoints { .. });
    if purchase.market.capacity_type != CapacityType::OnDemand || (busy && !saves) {
        return None;
    }
    let hazard = to.parts.spot.as_ref()?.risk.hazard;
    let life = i64::try_from(3_600_000_000_000 / hazard.0.max(1)).unwrap_or(i64::MAX);
    let serves = now.duration_since(*ready).as_secs().min(life);
    let reading = from.transfer.map_or(UsdPerHour::ZERO, |transfer| transfer.per_hour(Hazard(0)));
    let cheaper_by = purchase.price.plus(reading).minus(to.parts.effective);
    // Both are paid while the new one boots: as long as it may take, for want of a better figure.
    let twice = over(to.parts.quote.price, purchase.boot_within);
    let again = if busy { over(purchase.price, rules.lost_per_reclaim()) } else { UsdMicros(0) };
    // The new node reads the data before its time.
    let moved = to.group.transfer.map_or(UsdMicros(0), |transfer| transfer.per_read);
    let (gain, cost) = (cheaper_by.over_seconds(serves), twice.plus(again).plus(moved));
    (gain > cost).then(|| Move { record: record.id, group: to.group.id.clone(), market: to.offer.market.clone(), gain, cost })
}

fn over(rate: UsdPerHour, time: SignedDuration) -> UsdMicros {
    rate.over_seconds(time.as_secs())
}
