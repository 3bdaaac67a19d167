//! Moves back to spot: drains on-demand nodes because spot is available again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::index::IndexEntry;
use super::super::pass::{Changes, Pass, after};
use super::super::{floors, is_fresh};
use super::begin;
use crate::base::ids::{InstanceType, NodeGroupId, PoolName, RecordId};
use crate::base::index::InOrder;
use crate::catalogue::group::Group;
use crate::choose::rank::Scales;
use crate::choose::spot_return::{self, Move, Running, SpotReturn};
use crate::facts::snapshot::{Cordon, Hold};
use crate::limits::commitment::PaidFor;
use crate::market::offer::CapacityType;
use crate::policy::Pool;
use crate::policy::rules::warm_floor::Places;
use crate::state::disruption::{Disruption, DrainReason, FREE_FOR};
use crate::state::node_verdict::Verdict;
use crate::state::record::{Phase, PodsSeen, Record, State};

/// How often it is asked again whether a move pays that does not pay yet.
const WEIGH_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// A node that could move back to spot.
struct Candidate<'a> {
    record: Arc<Record>,
    pool: &'a Pool,
    busy: bool,
    /// Its instance type where it could keep a warm floor.
    warm: Option<&'a InstanceType>,
}

/// Whether a record's node may be let go for spot at all. `emptied`: whether its pods were told to go, whose memory may be left for a
/// moment.
fn candidate<'a>(changes: &Changes<'_>, record: &Arc<Record>, entry: &IndexEntry<'a>, emptied: bool) -> Option<Candidate<'a>> {
    // One that is new waits for its pods.
    if entry.phase != Phase::Started || entry.pods_seen == PodsSeen::NotYet || entry.capacity != Some(CapacityType::OnDemand) {
        return None;
    }
    let (_, pool) = entry.pool()?;
    let rules = spot_return::moves_back(pool)?;
    // Whoever closed a node, or wants it kept, wants it as it is.
    if entry.cordon() == Cordon::Theirs || entry.hold()? == Hold::Theirs || !entry.is_judged() {
        return None;
    }
    let busy = entry.is_busy();
    let may_go = if busy { rules.moves_busy() } else { emptied || changes.proves_free(entry) };
    let named = || matches!(&record.state, State::Registered { node: Some(_), .. });
    (may_go && named()).then(|| Candidate { record: Arc::clone(record), pool, busy, warm: warm(entry) })
}

/// Whether a node that is on its way back to spot may go on.
///
/// # Errors
/// Says why not.
pub(super) fn stands(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    record: &Arc<Record>,
    disruption: &Disruption,
) -> Result<(), &'static str> {
    // A pod that came to a free node has the last word.
    let candidate = changes.entry(record).and_then(|entry| candidate(changes, record, &entry, disruption.may_have_evicted()));
    let was_busy = disruption.moves_work() && !disruption.pods.is_empty();
    let candidate = candidate.filter(|candidate| !candidate.busy || was_busy);
    let candidate = candidate.ok_or("it may no longer be moved")?;
    // From the first pod that may have been told to go there is no way back.
    let goes_on = disruption.may_have_evicted() || still_pays(pass, changes, &candidate, disruption.moves_work());
    if goes_on { Ok(()) } else { Err("moving to spot would no longer save money") }
}

fn still_pays(pass: &Pass<'_>, changes: &Changes<'_>, candidate: &Candidate<'_>, work: bool) -> bool {
    let running = Running::of(&changes.memory, pass.catalogue);
    let Some(spot) = SpotReturn::of(candidate.pool, pass.catalogue, &changes.memory, &running, pass.times()) else {
        return false;
    };
    let (snapshot, now) = (pass.snapshot, pass.now);
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let scales = Scales {
        catalogue: pass.catalogue,
        memory: &changes.memory,
        usage: changes.usage(pass),
        fresh: &fresh,
        times: pass.times(),
    };
    spot.weigh(&scales, &candidate.record, candidate.busy, work).is_some()
}

/// What matters of a pool's nodes to those that could move back to spot.
#[derive(Default)]
struct PoolMoves<'a> {
    /// Those that could, in the order of their records.
    candidates: Vec<Candidate<'a>>,
    /// Those that go, or are about to: what is not open any more is ending, and on the bill until it has ended.
    going: Vec<Arc<Record>>,
    /// Whether anything is wanted or being bought.
    unbought: bool,
    /// Nodes that could keep `minNodes`: what is wanted, boots, leaves or could not be had keeps none.
    ready: u32,
    /// Instance types of those that keep a warm floor, whatever becomes of the candidates.
    warm: Vec<&'a InstanceType>,
}

/// The instance type of a node on which a pod could begin at once.
fn warm<'a>(entry: &IndexEntry<'a>) -> Option<&'a InstanceType> {
    let is_warm = entry.verdict.is_some_and(Verdict::is_free) && entry.node().is_some() && !entry.cordon().is_closed();
    entry.group().filter(|_| is_warm).map(|group| &group.place.instance_type)
}

/// On-demand nodes go when spot is back: free ones that no floor needs at once, the others one by one.
pub(super) fn back_to_spot<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>) {
    let pools = &pass.catalogue.policy.pools;
    if !pools.iter().any(|pool| spot_return::moves_back(pool).is_some()) {
        return;
    }
    let mut stocks: Vec<PoolMoves<'_>> = pools.iter().map(|_| PoolMoves::default()).collect();
    let mut due = Vec::new();
    let (mut disruptions, mut free) = (InOrder::of(&changes.memory.disruptions), InOrder::of(&changes.memory.free));
    for (record, entry) in changes.indexed() {
        let Some(stock) = entry.pool().and_then(|(at, _)| stocks.get_mut(at)) else { continue };
        let disruption = disruptions.next(&entry.id);
        let goes = disruption.is_some_and(|disruption| disruption.is_open());
        match entry.phase {
            Phase::Wanted | Phase::Launching => stock.unbought = true,
            Phase::Started if !goes => stock.ready += u32::from(entry.is_ready()),
            _ => {}
        }
        if goes || entry.phase == Phase::Deleting {
            stock.going.push(Arc::clone(record));
        }
        let candidate = candidate(changes, record, entry, false).filter(|_| disruption.is_none());
        // The next pod may come.
        let free_since = candidate.as_ref().and_then(|_| free.next(&entry.id)).map(|since| after(*since, FREE_FOR));
        let not_yet = free_since.filter(|due| *due > pass.now);
        due.extend(not_yet);
        match candidate.filter(|_| not_yet.is_none()) {
            Some(candidate) => stock.candidates.push(candidate),
            None if entry.phase == Phase::Started && !goes => stock.warm.extend(warm(entry)),
            None => {}
        }
    }
    if let Some(at) = due.into_iter().min() {
        changes.look_again_at(at);
    }
    if stocks.iter().all(|stock| stock.candidates.is_empty()) {
        return;
    }
    let wanted = floors::wanted_now(pass, changes);
    let mut stocks: Vec<_> = pools.iter().zip(stocks).zip(wanted).collect();
    stocks.retain(|((_, stock), _)| !stock.candidates.is_empty());
    stocks.sort_by_key(|((pool, _), _)| &pool.name);
    let (mut begun, mut again) = (Vec::new(), Vec::new());
    let running = Running::of(&changes.memory, pass.catalogue);
    for ((pool, stock), wanted) in stocks {
        let rests_until = changes.memory.moves.get(&pool.name).and_then(|moves| moves.rests_until);
        if let Some(until) = rests_until.filter(|until| *until > pass.now) {
            again.push(until);
            continue;
        }
        let going = let_go(pass, changes, pool, stock, wanted, &running);
        if going.is_empty() {
            again.push(after(pass.now, WEIGH_AGAIN));
        }
        begun.extend(going);
    }
    for at in again {
        changes.look_again_at(at);
    }
    for (id, why) in begun {
        begin(pass, changes, id, why);
    }
}

/// What commitments pay of a pool's nodes once those are gone that are on their way.
struct Paid<'a> {
    by: PaidFor<'a>,
    pool: &'a PoolName,
    /// Nodes of the pool that go, or are about to.
    going: Vec<Arc<Record>>,
}

impl Paid<'_> {
    /// Those of `records` that commitments pay for, in the order in which they would go.
    fn among(&self, records: &[&Record]) -> Vec<RecordId> {
        let all: Vec<&Record> = self.going.iter().map(AsRef::as_ref).chain(records.iter().copied()).collect();
        self.by.among(self.pool, &all)
    }

    fn pays_for(&self, record: &Record) -> bool {
        self.among(&[record]).contains(&record.id)
    }
}

/// Which of a pool's nodes begin to go. `wanted`: the free ones that its warm floor wants.
fn let_go(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    pool: &Pool,
    stock: PoolMoves<'_>,
    mut wanted: Places,
    running: &Running<'_>,
) -> Vec<(RecordId, DrainReason)> {
    let PoolMoves { candidates, going, unbought, ready, warm } = stock;
    let Some(spot) = SpotReturn::of(pool, pass.catalogue, &changes.memory, running, pass.times()) else { return Vec::new() };
    let (snapshot, now, usage) = (pass.snapshot, pass.now, changes.usage(pass));
    let fresh = |group: &Group| is_fresh(snapshot, group, now);
    let scales = Scales { catalogue: pass.catalogue, memory: &changes.memory, usage, fresh: &fresh, times: pass.times() };
    let records = &changes.memory.records;
    let of_pool = |record: &Record| pass.group(&record.group).is_some_and(|group| group.pool == pool.name);
    let open =
        |(id, disruption): &(&RecordId, &Arc<Disruption>)| disruption.is_open() && records.get(id).is_some_and(|r| of_pool(r));
    let moving = changes.memory.disruptions.iter().filter(open).any(|(_, disruption)| disruption.moves_work());
    let mut paid = Paid { by: PaidFor::of(usage, pass.catalogue), pool: &pool.name, going };
    let (busy, free): (Vec<_>, Vec<_>) = candidates.iter().partition(|candidate| candidate.busy);
    for of in warm {
        wanted.fill(of, 1);
    }
    // What a floor needs moves like work, and only from one that lacks nothing: it lacks one node at a time.
    let (mut floor, mut free): (Vec<_>, Vec<_>) =
        free.into_iter().rev().partition(|candidate| candidate.warm.is_some_and(|of| wanted.fill(of, 1) > 0));
    free.reverse();
    let spare = usize::try_from(ready.saturating_sub(pool.limits.min_nodes)).unwrap_or(usize::MAX);
    floor.extend(free.split_off(spare.min(free.len())));
    floor.sort_unstable_by_key(|candidate| candidate.record.id);
    if !wanted.is_empty() {
        floor.clear();
    }
    let mut begun = free_ones(&scales, &spot, &paid, &free);
    if !moving && !unbought {
        paid.going.extend(begun.iter().filter_map(|(id, _)| records.get(id)).cloned());
        begun.extend(one_with_work(&scales, &spot, &paid, busy.into_iter().chain(floor)));
    }
    begun
}

/// Free nodes that go because spot would be cheaper, should a pod come.
fn free_ones<'a>(
    scales: &Scales<'a>,
    spot: &SpotReturn<'a>,
    paid: &Paid<'_>,
    candidates: &[&Candidate<'_>],
) -> Vec<(RecordId, DrainReason)> {
    // The youngest first: of nodes bought alike it is the one to go.
    let free: Vec<&Record> = candidates.iter().rev().map(|candidate| candidate.record.as_ref()).collect();
    let stay = paid.among(&free);
    let mut known: Vec<(&NodeGroupId, Option<Move>)> = Vec::new();
    let mut going = Vec::new();
    for record in free.into_iter().filter(|record| !stay.contains(&record.id)) {
        // Without work nothing is lost: nodes of one group all pay, or none does.
        if !known.iter().any(|(group, _)| **group == record.group) {
            known.push((&record.group, spot.weigh(scales, record, false, false)));
        }
        let found = known.iter().find(|(group, _)| **group == record.group).and_then(|(_, found)| found.clone());
        going.extend(found.map(|found| (record.id, back_to(found, false))));
    }
    going
}

/// Of the nodes whose work must move, the one whose move pays most.
fn one_with_work<'a, 'c>(
    scales: &Scales<'a>,
    spot: &SpotReturn<'a>,
    paid: &Paid<'_>,
    candidates: impl Iterator<Item = &'c Candidate<'c>>,
) -> Option<(RecordId, DrainReason)> {
    // Nodes of one group differ in little but age, and the longer one has served the more its move pays: the oldest stands for all.
    let mut oldest: BTreeMap<(&NodeGroupId, bool), &Candidate<'_>> = BTreeMap::new();
    for candidate in candidates {
        let known = oldest.entry((&candidate.record.group, candidate.busy)).or_insert(candidate);
        if ready_at(&candidate.record) < ready_at(&known.record) {
            *known = candidate;
        }
    }
    let oldest = oldest.values().filter(|candidate| !paid.pays_for(&candidate.record));
    let found = oldest.filter_map(|c| Some((c.record.id, spot.weigh(scales, &c.record, c.busy, true)?)));
    let (id, found) = found.max_by_key(|(id, found)| (found.gain.0.saturating_sub(found.cost.0), Reverse(*id)))?;
    Some((id, back_to(found, true)))
}

fn back_to(Move { market, gain, cost }: Move, work: bool) -> DrainReason {
    DrainReason::BackToSpot { market, gain, cost, work }
}

const fn ready_at(record: &Record) -> Option<Timestamp> {
    match &record.state {
        State::Registered { ready_at, .. } => *ready_at,
        _ => None,
    }
}
