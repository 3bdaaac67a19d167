//! Stabilization windows: which free nodes are protected from scale-down, and until when. No other
//! rule protects a free node.
//!
//! A node's windows are over when it has been free for long enough, has reached its minimum life,
//! and its pool has not just grown. Among those, the pool's floor keeps the nodes whose removal
//! saves least. A committed node stays while another that costs cash can go. Of the rest, at most
//! the pool's share is released within one window, those with the largest savings first. A released
//! node is idle until a pod comes or another rule protects it.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::floors;
use super::pass::{Changes, Pass, after};
use crate::base::ids::{InstanceType, RecordId};
use crate::base::index::LookupSet;
use crate::base::units::UsdPerHour;
use crate::facts::snapshot::{Cordon, Hold};
use crate::limits::commitment::PaidFor;
use crate::limits::usage::Usage;
use crate::market::offer::CapacityType;
use crate::plan::HoldFor;
use crate::policy::Pool;
use crate::policy::rules::stabilization::{Released, Stabilization};
use crate::policy::rules::warm_floor::{Places, Wanted};
use crate::state::node_verdict::{Judged, Reason, Verdict};
use crate::state::record::{Phase, Record, State};

/// How long an idle node that costs money stands in the way of others at most: six times what the autoscaler waits by default
/// (`--scale-down-unneeded-time`). One that is idle for longer is not removed for reasons of its own, and nothing is held for it.
const GOES_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// A free node.
struct Free {
    id: RecordId,
    /// Since when, and never later than now.
    since: Timestamp,
    /// When it was ordered.
    ordered_at: Timestamp,
    /// Since when it is idle; `None` where it is not.
    idle_since: Option<Timestamp>,
    /// Whether it is ready for a pod. One that is not yet cannot be idle.
    proven: bool,
    /// Until when it counts for its floor although it is not ready for a pod: one that was free when its kubelet went away.
    doubted_until: Option<Timestamp>,
    /// Whether nobody but us keeps it from the autoscaler.
    ours: bool,
    /// Whether somebody else closed it to new pods, and so may want it as it is.
    closed: bool,
    price: UsdPerHour,
    capacity: CapacityType,
    instance_type: InstanceType,
}

/// What matters of a pool's nodes to its windows.
#[derive(Default)]
struct FreeNodes {
    free: Vec<Free>,
    /// Those that are on their way out, and on the bill until they are gone; each with how long others wait for it.
    going: Vec<(RecordId, Timestamp)>,
    /// Ready nodes that stay whatever is decided here.
    others: u32,
    /// When the last order was placed that came to a machine.
    grew_at: Option<Timestamp>,
}

/// What becomes of a pool's free nodes.
#[derive(Default)]
struct Fate {
    kept: Vec<(RecordId, HoldFor)>,
    idle: LookupSet<RecordId>,
    look_again_at: Option<Timestamp>,
}

/// Every free node that is kept from the autoscaler, in the order of their records. The others are idle from here on.
pub(super) fn kept<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, usage: &Usage) -> Vec<(RecordId, HoldFor)> {
    let catalogue = pass.catalogue;
    let policy = &catalogue.policy;
    let stocks = stocks(pass, changes);
    changes.memory.windows.retain(|name, _| policy.pool(name).is_some_and(|pool| pool.stabilization.is_some()));
    let paid_for = LazyCell::new(|| PaidFor::of(usage, catalogue));
    let mut kept = Vec::new();
    for (pool, stock) in policy.pools.iter().zip(stocks) {
        let paid = paid(pass, changes, &paid_for, pool, &stock);
        let mut released =
            changes.memory.windows.get(&pool.name).map_or_else(Released::default, |known| Released::clone(known));
        let fate = fate(pass, changes, usage, pool, &stock, &paid, &mut released);
        if let Some(at) = fate.look_again_at {
            changes.look_again_at(at);
        }
        judge(pass, changes, &stock, &fate);
        kept.extend(fate.kept);
        if released == Released::default() {
            changes.memory.windows.remove(&pool.name);
        } else if changes.memory.windows.get(&pool.name).is_none_or(|known| **known != released) {
            changes.memory.windows.insert(pool.name.clone(), Arc::new(released));
        }
    }
    kept.sort_unstable_by_key(|(id, _)| *id);
    kept
}

/// The free nodes of each pool of the policy, and what is beside them.
fn stocks(pass: &Pass<'_>, changes: &Changes<'_>) -> Vec<FreeNodes> {
    let mut stocks: Vec<FreeNodes> = pass.catalogue.policy.pools.iter().map(|_| FreeNodes::default()).collect();
    for (record, entry) in changes.indexed() {
        let Some((stock, pool)) = entry.pool().and_then(|(at, pool)| Some((stocks.get_mut(at)?, pool))) else { continue };
        if entry.phase == Phase::Deleting {
            stock.going.push((entry.id, Timestamp::MAX));
        }
        let (State::Booting { purchase, .. } | State::Registered { purchase, .. }) = &record.state else { continue };
        if record.order.is_some() && pool.stabilization.as_ref().is_some_and(|rules| !rules.after_scale_up.is_zero()) {
            stock.grew_at = stock.grew_at.max(Some(record.ordered_at));
        }
        let State::Registered { ready_at: Some(ready_at), .. } = &record.state else { continue };
        let Some(judged) = &record.judged else { continue };
        let proven = judged.free_since();
        let since = match (judged.verdict, proven) {
            // Somebody closed what may go: the autoscaler closes what it deletes.
            (Verdict::Draining, Some(_)) if judged.is_released() => {
                stock.going.push((record.id, after(judged.since, GOES_WITHIN)));
                continue;
            }
            // What may go and is not Ready goes, unless its floor comes to need it.
            (Verdict::Booting, Some(since)) if judged.is_released() => {
                stock.going.push((record.id, after(judged.since, GOES_WITHIN)));
                since
            }
            (Verdict::Draining, None) => {
                stock.going.push((record.id, Timestamp::MAX));
                continue;
            }
            (Verdict::Unhealthy, _) => continue,
            // One that was free when its kubelet went away stays so; of another nobody knows what it did.
            (Verdict::Booting, since) => since.unwrap_or_else(|| judged.since.max(*ready_at)),
            (_, Some(since)) => since,
            (_, None) => {
                stock.others += 1;
                continue;
            }
        };
        let Some(hold) = entry.hold() else { continue };
        let away = judged.verdict == Verdict::Booting && proven.is_some();
        stock.free.push(Free {
            id: record.id,
            since,
            ordered_at: record.ordered_at,
            idle_since: (judged.verdict == Verdict::Idle || away && judged.is_released()).then_some(judged.since),
            proven: proven.is_some() && !away,
            doubted_until: floors::doubted_until(record).filter(|_| away),
            ours: hold != Hold::Theirs,
            closed: entry.cordon() == Cordon::Theirs,
            price: purchase.price,
            capacity: purchase.market.capacity_type,
            instance_type: purchase.market.place.instance_type.clone(),
        });
    }
    stocks
}

/// Of a pool's free nodes, those whose going saves nothing once the others are gone that commitments do not pay for.
fn paid<'a>(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    paid_for: &LazyCell<PaidFor<'a>, impl FnOnce() -> PaidFor<'a>>,
    pool: &Pool,
    stock: &FreeNodes,
) -> LookupSet<RecordId> {
    let committed = |free: &&Free| free.proven && free.capacity != CapacityType::Spot;
    if pass.catalogue.policy.commitments.is_empty()
        || stock.free.len() + stock.going.len() < 2
        || !stock.free.iter().any(|free| committed(&free))
    {
        return LookupSet::default();
    }
    // The youngest first: of nodes bought alike it is the one to go.
    let free = stock.free.iter().rev().filter(committed).map(|free| &free.id);
    let records = stock.going.iter().map(|(id, _)| id).chain(free).filter_map(|id| changes.memory.records.get(id));
    let records: Vec<&Record> = records.map(AsRef::as_ref).collect();
    paid_for.among(&pool.name, &records).into_iter().collect()
}

/// What keeps a free node by itself, and until when: of several, what lasts longest. One that was released stays so, whatever a reload
/// says of its windows now, but for its pool's growth.
fn own_windows(free: &Free, rules: &Stabilization, grew_at: Option<Timestamp>, waiting: UsdPerHour) -> Option<HoldFor> {
    let window = after(free.since, rules.window_of(free.price, waiting));
    let life = after(free.ordered_at, rules.minimum_life);
    let growth = grew_at.map(|at| after(at, rules.after_scale_up));
    match growth.filter(|growth| free.idle_since.is_some() || *growth > window.max(life)) {
        Some(until) => Some(HoldFor::Growth { until }),
        None if free.idle_since.is_some() => None,
        None if life > window => Some(HoldFor::MinimumLife { until: life }),
        None => Some(HoldFor::Window { until: window }),
    }
}

/// A free node, and what keeps it by itself.
type Window<'s> = (&'s Free, Option<HoldFor>);

/// What becomes of a pool's free nodes: those that the floor wants stay, then those whose windows are open, and of the others as many go
/// as may go at a time.
fn fate(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    usage: &Usage,
    pool: &Pool,
    stock: &FreeNodes,
    paid: &LookupSet<RecordId>,
    released: &mut Released,
) -> Fate {
    let now = pass.now;
    let mut fate = Fate::default();
    let Some(rules) = &pool.stabilization else { return without_windows(usage, pool, stock, paid, now) };
    released.grew_at = released.grew_at.max(stock.grew_at);
    released.grew_at = released.grew_at.filter(|at| after(*at, rules.after_scale_up) > now);
    let windows = |free: &Free| own_windows(free, rules, released.grew_at, pool.waiting).filter(|why| why.until() > Some(now));
    let (mut order, doubtful) = by_saving(stock, paid, windows);
    let mut lacking = keep_floor(pass, changes, pool, stock, &mut order, &mut fate);
    let doubted = keep_doubtful(doubtful, &mut lacking, now, &mut fate);
    let paid_wait_until = paid_wait_until(stock, &order, paid, now);
    let surplus = floors::surplus(usage, &pool.name);
    let due = keep_windows(order, paid, paid_wait_until.is_some(), surplus, &mut fate);
    fate.look_again_at = paid_wait_until.filter(|at| *at < Timestamp::MAX && !paid.is_empty());
    release(pass, changes, usage, (pool, rules, stock), due, released, &mut fate);
    let moments = fate.kept.iter().filter_map(|(_, why)| why.until()).chain(fate.look_again_at).chain(doubted);
    fate.look_again_at = moments.min();
    fate
}

/// What becomes of the free nodes of a pool without windows: what is paid for waits until what costs money has gone.
fn without_windows(usage: &Usage, pool: &Pool, stock: &FreeNodes, paid: &LookupSet<RecordId>, now: Timestamp) -> Fate {
    let mut fate = Fate::default();
    let floor_needs_all = usage.nodes.get(&pool.name).is_none_or(|nodes| *nodes <= pool.limits.min_nodes);
    let goes = |free: &&Free| !paid.contains(&free.id) && free.ours && !free.closed;
    let waits_for = stock.free.iter().filter(goes).map(|free| after(free.since, GOES_WITHIN));
    let last = waits_for.chain(going(stock, paid, now)).max();
    if let Some(last) = last.filter(|at| *at > now && !floor_needs_all && !paid.is_empty()) {
        fate.kept = stock.free.iter().filter(|free| paid.contains(&free.id)).map(|free| (free.id, HoldFor::Paid)).collect();
        fate.look_again_at = (last < Timestamp::MAX).then_some(last);
    }
    fate
}

/// Until when others wait for the nodes that cost money and are on their way out: each is gone when its record is.
fn going(stock: &FreeNodes, paid: &LookupSet<RecordId>, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    stock.going.iter().filter(move |(id, until)| *until > now && !paid.contains(id)).map(|(_, until)| *until)
}

/// The free nodes of Stoker's, what saves most first; and those that nobody can tell to be free.
///
/// Of equals, kept capacity stays, which may not come back, and then the older, which has proven itself.
fn by_saving<'s>(
    stock: &'s FreeNodes,
    paid: &LookupSet<RecordId>,
    windows: impl Fn(&Free) -> Option<HoldFor>,
) -> (Vec<Window<'s>>, Vec<Window<'s>>) {
    let ours = stock.free.iter().filter(|free| free.ours).map(|free| (free, windows(free)));
    let (mut order, doubtful): (Vec<Window<'_>>, Vec<_>) = ours.partition(|(free, _)| free.proven);
    order.sort_by_key(|(free, _)| {
        (paid.contains(&free.id), Reverse(free.price), free.capacity == CapacityType::Reserved, Reverse(free.id))
    });
    (order, doubtful)
}

/// What a pool's floor and its `minNodes` lack: a node that is kept for one counts for the other too.
struct Lacking {
    floor: Places,
    min_nodes: u32,
}

impl Lacking {
    /// Keeps a node for the floor, where that has a place for it.
    fn fill(&mut self, instance_type: &InstanceType) -> bool {
        let kept = self.floor.fill(instance_type, 1) > 0;
        self.min_nodes -= u32::from(kept).min(self.min_nodes);
        kept
    }

    /// Keeps a node for either.
    fn keep(&mut self, instance_type: &InstanceType) -> bool {
        if self.fill(instance_type) {
            return true;
        }
        let kept = self.min_nodes > 0;
        self.min_nodes -= u32::from(kept);
        kept
    }
}

/// Keeps what the floor wants, and takes it out of `order`: what saves least, and what no pod can use only for want of others. What they
/// still lack.
fn keep_floor(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    pool: &Pool,
    stock: &FreeNodes,
    order: &mut Vec<Window<'_>>,
    fate: &mut Fate,
) -> Lacking {
    let floor = floors::wanted(pass, changes, &pool.name).map(Wanted::places).unwrap_or_default();
    let min_nodes = pool.limits.min_nodes.saturating_sub(stock.others);
    let mut lacking = Lacking { floor, min_nodes };
    for theirs in stock.free.iter().filter(|free| free.proven && !free.ours) {
        lacking.keep(&theirs.instance_type);
    }
    let open = order.iter().rev().filter(|(free, _)| !free.closed);
    let by_use: Vec<&Free> = open.chain(order.iter().rev().filter(|(free, _)| free.closed)).map(|(free, _)| *free).collect();
    let mut of_floor = LookupSet::default();
    of_floor.extend(by_use.iter().filter(|free| lacking.fill(&free.instance_type)).map(|free| free.id));
    // The floor has its nodes now: what is kept of the others is for `minNodes`.
    for free in by_use {
        if !of_floor.contains(&free.id) && lacking.keep(&free.instance_type) {
            of_floor.insert(free.id);
        }
    }
    let buffered = pool.warm_floor.as_ref().is_some_and(|floor| floor.is_kept_by_buffers(pass.snapshot.buffers));
    order.retain(|(free, why)| {
        let kept = of_floor.contains(&free.id);
        if kept {
            // What the autoscaler keeps by itself is held for its windows all the same.
            fate.kept.push((free.id, why.filter(|_| buffered).unwrap_or(HoldFor::Floor)));
        }
        !kept
    });
    lacking
}

/// Keeps what counts for the floor while it is not Ready: else it went when it is back, and another came. Until when it counts.
fn keep_doubtful(doubtful: Vec<Window<'_>>, lacking: &mut Lacking, now: Timestamp, fate: &mut Fate) -> Vec<Timestamp> {
    let mut doubted = Vec::new();
    for (free, why) in doubtful {
        let until = free.doubted_until.filter(|until| *until > now && lacking.keep(&free.instance_type));
        doubted.extend(until);
        fate.kept.extend(why.or(until.map(|_| HoldFor::Floor)).map(|why| (free.id, why)));
    }
    doubted
}

/// Until when what is paid for waits: for what costs money and is yet to go, or was released and may be removed at any moment.
fn paid_wait_until(stock: &FreeNodes, order: &[Window<'_>], paid: &LookupSet<RecordId>, now: Timestamp) -> Option<Timestamp> {
    let yet_to_go = |(free, _): &Window<'_>| match free.idle_since {
        _ if free.closed || paid.contains(&free.id) => None,
        Some(since) => Some(after(since, GOES_WITHIN)).filter(|at| *at > now),
        None => Some(Timestamp::MAX),
    };
    order.iter().filter_map(yet_to_go).chain(going(stock, paid, now)).max()
}

/// Keeps the nodes whose windows are open, and what is paid for as long as it waits for others. The rest, which is due to go.
fn keep_windows<'s>(
    order: Vec<Window<'s>>,
    paid: &LookupSet<RecordId>,
    paid_waits: bool,
    mut surplus: u32,
    fate: &mut Fate,
) -> Vec<&'s Free> {
    let mut due = Vec::new();
    for (free, why) in order {
        let paid = paid.contains(&free.id);
        let why = if surplus > 0 && !paid {
            surplus -= 1;
            None
        } else {
            (paid_waits && paid).then_some(HoldFor::Paid).or(why)
        };
        match why {
            Some(why) => fate.kept.push((free.id, why)),
            None => due.push(free),
        }
    }
    due
}

/// Releases those whose turn it is, of nodes whose windows are over, in this order.
fn release(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    usage: &Usage,
    (pool, rules, stock): (&Pool, &Stabilization, &FreeNodes),
    due: Vec<&Free>,
    released: &mut Released,
    fate: &mut Fate,
) {
    let now = pass.now;
    if rules.most_of(0).is_none() {
        released.nodes.clear();
        fate.idle.extend(due.into_iter().map(|free| free.id));
        return;
    }
    let idle = due.iter().filter(|free| free.idle_since.is_some()).map(|free| free.id);
    // One that was released and is on its way keeps its turn: given to the next, it would go beside it.
    let idle: LookupSet<RecordId> = idle.chain(stock.going.iter().map(|(id, _)| *id)).collect();
    let gone = |id: &RecordId| changes.memory.records.get(id).is_none_or(|record| !record.counts());
    released.nodes.retain(|(id, at)| after(*at, rules.scale_down) > now && (gone(id) || idle.contains(id)));
    let gone = released.nodes.iter().filter(|(id, _)| gone(id)).count();
    let there = usage.nodes.get(&pool.name).and_then(|nodes| usize::try_from(*nodes).ok()).unwrap_or(0);
    let most = rules.most_of(there.saturating_add(gone)).unwrap_or(usize::MAX);
    // When each took or will take its turn. A turn comes when the one that was taken so many turns ago is a window old.
    let mut turns: Vec<Timestamp> = released.nodes.iter().map(|(_, at)| *at).collect();
    for free in due {
        if free.idle_since.is_some() {
            fate.idle.insert(free.id);
            continue;
        }
        let at = turns.len().checked_sub(most).and_then(|at| turns.get(at)).map(|at| after(*at, rules.scale_down));
        if let Some(until) = at.filter(|until| *until > now) {
            fate.kept.push((free.id, HoldFor::Removals { until }));
        } else {
            fate.idle.insert(free.id);
            released.nodes.push((free.id, now));
        }
        turns.push(at.map_or(now, |at| at.max(now)));
    }
}

/// Writes down which free nodes are idle, and which are so no more.
fn judge<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, stock: &FreeNodes, fate: &Fate) {
    for free in stock.free.iter().filter(|free| free.proven) {
        let Some(judged) = changes.memory.records.get(&free.id).and_then(|record| record.judged.as_ref()) else { continue };
        let idle = fate.idle.contains(&free.id);
        let (verdict, why, since) = match (free.closed, idle) {
            (true, _) => (Verdict::Draining, Reason::Closed { free_since: free.since, released: idle }, judged.since),
            (false, true) => {
                let since = free.idle_since.unwrap_or(pass.now);
                (Verdict::Idle, Reason::WindowOver { free_since: free.since }, since)
            }
            (false, false) if judged.verdict == Verdict::Warm => continue,
            (false, false) => (Verdict::Warm, Reason::NoPods, free.since),
        };
        if judged.verdict == verdict && judged.since == since && judged.why == why {
            continue;
        }
        changes.edit(pass, free.id, |record| record.judged = Some(Judged { verdict, why, since }));
    }
}
