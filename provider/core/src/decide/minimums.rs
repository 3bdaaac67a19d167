//! `minSize`: how many nodes of each group the autoscaler must keep, and how many it is to ask for.
//!
//! It counts nodes that are occupied by pods, within windows, or warm nodes of a floor. A pool's
//! `minNodes` come on top. They go first to groups whose nodes are kept in any case, then to others
//! that have nodes, so that existing nodes stay.
//!
//! Missing nodes of a warm floor raise open groups above their target, chosen under every limit
//! like any purchase. When a group is closed, another is raised at once: the autoscaler would wait
//! for the first in its own back-off of 5 min and try no other.

mod ledger;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::floors::{self, BLIND, Count, Filled, UNCALLED, count};
use super::pass::{Changes, Pass, after};
use crate::base::ids::NodeGroupId;
use crate::base::sabotage;
use crate::base::units::UsdPerHour;
use crate::catalogue::group::Group;
use crate::choose::candidate::Barred;
use crate::limits::usage::Usage;
use crate::plan::{Closed, GroupLimits};
use crate::policy::Pool;
use crate::policy::rules::warm_floor::{ASKED_WITHIN, DOUBTED_FOR, FloorStands, LOOK_EVERY, Places, Unasked, Wanted};
use ledger::Ledger;

type Limits = BTreeMap<NodeGroupId, GroupLimits>;

/// Sets `minSize` of every group, never above its `maxSize`. Free nodes that are kept because they are paid for are held by annotation alone.
/// It is above the target only where nodes are missing of `minNodes` or of a warm floor: an autoscaler that raises groups to it buys them.
pub(super) fn set<'a>(pass: &Pass<'a>, changes: &mut Changes<'a>, usage: &Usage, limits: &mut Limits) {
    for limit in limits.values_mut() {
        let held = limit.busy.saturating_add(limit.free.window).saturating_add(limit.free.floor);
        limit.min = if sabotage::on("min-without-busy") { 0 } else { held.min(limit.target) };
    }
    let policy = Arc::clone(&pass.catalogue.policy);
    let floors = changes.floors.iter().any(Option::is_some);
    if !floors && policy.pools.iter().all(|pool| pool.limits.min_nodes == 0) {
        return;
    }
    let counts = if floors { count(pass, changes) } else { Vec::new() };
    let mut ledger = Ledger::new(pass, usage);
    let rising: Vec<BTreeMap<NodeGroupId, u32>> =
        policy.pools.iter().map(|pool| min_nodes(pass, changes, pool, &mut ledger, limits)).collect();
    let pools = policy.pools.iter().zip(rising).enumerate();
    let mut turns: Vec<_> = pools.map(|(at, (pool, rising))| (at, pool, rising)).collect();
    // What stands raised goes first: the autoscaler may be about to ask for it.
    turns.sort_by_key(|(_, pool, _)| changes.memory.floors.get(&pool.name).is_none_or(|known| known.raised.is_empty()));
    let mut stands = Vec::new();
    for (at, pool, rising) in turns {
        let wanted = changes.floors.get(at).cloned().flatten();
        if let (Some(wanted), Some(count)) = (wanted, counts.get(at)) {
            stands.push((at, warm(pass, changes, pool, &wanted, count, (usage, &mut ledger, &rising), limits)));
        }
    }
    stands.sort_by_key(|(at, _)| *at);
    changes.floors_stand.extend(stands.into_iter().map(|(_, stands)| stands));
}

/// Keeps `minNodes` of a pool. By how many nodes which groups are raised above the target for them.
fn min_nodes(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    pool: &Pool,
    ledger: &mut Ledger<'_>,
    limits: &mut Limits,
) -> BTreeMap<NodeGroupId, u32> {
    let mut rising = BTreeMap::new();
    let mut left = pool.limits.min_nodes;
    if left == 0 {
        return rising;
    }
    let mut order: Vec<(bool, i64, NodeGroupId)> = pass
        .catalogue
        .pool_groups(&pool.name)
        .filter_map(|group| {
            let limit = limits.get(&group.id)?;
            let price = limit.next_price.map_or(i64::MAX, |price| group.ranked_price(price).0);
            Some((limit.target == 0, price, group.id.clone()))
        })
        .collect();
    order.sort();
    let mut floors: BTreeMap<NodeGroupId, u32> = BTreeMap::new();
    for (_, _, id) in &order {
        let held = limits.get(id).map_or(0, |l| l.min).min(left);
        left -= held;
        floors.insert(id.clone(), held);
    }
    for (_, _, id) in &order {
        let (Some(floor), Some(limit)) = (floors.get_mut(id), limits.get(id)) else { continue };
        let here = limit.target.saturating_sub(*floor).min(left);
        left -= here;
        *floor += here;
    }
    order.sort_by(|a, b| (a.1, &a.2).cmp(&(b.1, &b.2)));
    if sabotage::on("floor-stays") {
        order.sort_by(|a, b| b.2.cmp(&a.2));
        order.truncate(1);
    }
    for (_, _, id) in &order {
        let Some(limit) = limits.get(id).filter(|l| l.listed) else { continue };
        let more = ledger.take(&changes.memory, id, limit.max.saturating_sub(limit.target).min(left));
        left -= more;
        if more > 0 {
            rising.insert(id.clone(), more);
        }
        if let Some(floor) = floors.get_mut(id) {
            *floor += more;
        }
    }
    for (id, floor) in floors {
        raise(limits, &id, floor);
    }
    rising
}

fn raise(limits: &mut Limits, group: &NodeGroupId, min: u32) {
    if let Some(limit) = limits.get_mut(group).filter(|_| !sabotage::on("floor-not-shown")) {
        limit.min = limit.min.max(min).min(limit.max);
    }
}

/// Keeps the free nodes of a pool's warm floor, and raises groups for those that are missing; `rising` of them come for `minNodes`.
fn warm<'a>(
    pass: &Pass<'a>,
    changes: &mut Changes<'a>,
    pool: &Pool,
    wanted: &Wanted,
    count: &Count<'_>,
    (usage, ledger, rising): (&Usage, &mut Ledger<'_>, &BTreeMap<NodeGroupId, u32>),
    limits: &mut Limits,
) -> FloorStands {
    let blind = pass.snapshot.cluster.is_none();
    let filled = count.fill(wanted);
    keep(pass, filled.not_free.clone(), count, limits);
    let mut places = if blind { Places::default() } else { filled.missing.clone() };
    for (id, nodes) in rising {
        if let Some(group) = pass.group(id) {
            places.fill(&group.place.instance_type, *nodes);
        }
    }
    let missing = places.len();
    // Buffers ask for what is missing where they are served: raised as well, it would be bought twice.
    let by_min_size = pool.warm_floor.as_ref().is_none_or(|floor| floor.raises_min_size(pass.snapshot.buffers));
    let raised = if by_min_size { share_out(pass, changes, pool, places, ledger, limits) } else { BTreeMap::new() };
    let mut price = UsdPerHour::ZERO;
    for (id, nodes) in &raised {
        if let Some(limit) = limits.get(id) {
            price = price.plus(limit.next_price.unwrap_or_default().times(*nodes));
            let min = limit.target.saturating_add(*nodes);
            raise(limits, id, min);
        }
    }
    let found: u32 = raised.values().sum();
    let now = pass.now;
    let unmet = filled.warm < wanted.nodes;
    // An autoscaler that comes is given its time from its first call on.
    let asks_at_all = changes.memory.session.is_some();
    floors::update(changes, &pool.name, |known| {
        known.unmet_since = unmet.then(|| known.unmet_since.unwrap_or(now));
        // It is shown another group: its time begins again, as it does with each order for a floor.
        let moved = raised.keys().any(|id| !known.raised.contains_key(id));
        known.unasked = (found > 0 && asks_at_all).then(|| Unasked::go_on(known.unasked.filter(|_| !moved), now));
        known.raised = raised;
    });
    let known = changes.memory.floors.get(&pool.name).cloned().unwrap_or_default();
    if let Some(unasked) = known.unasked {
        changes.look_again_at(after(unasked.since, ASKED_WITHIN));
        changes.look_again_at(after(unasked.seen, LOOK_EVERY));
    }
    let is_open = |group: &Arc<Group>| limits.get(&group.id).is_some_and(|limit| limit.closed.is_none());
    let barred = match by_min_size {
        true => missing.saturating_sub(found),
        // What the autoscaler asks for through buffers it cannot have while every group is closed.
        false if pass.catalogue.pool_groups(&pool.name).any(is_open) => 0,
        false => missing,
    };
    FloorStands {
        pool: pool.name.clone(),
        wanted: wanted.nodes,
        why: wanted.why.to_string(),
        // Those that it does not need are warm as well.
        warm: if unmet { filled.warm } else { count.free() },
        coming: filled.pulling + filled.coming,
        usd_per_hour: price.plus(count.cost(wanted)),
        unmet_since: known.unmet_since,
        blocked: blocked(
            pass,
            changes,
            (pool, wanted.nodes),
            unmet.then_some((barred, blind, &filled, count)),
            (usage, ledger),
            limits,
        ),
    }
}

/// The nodes on their way for the floor that it still needs. Free ones are held by annotation already, those whose going saves least.
fn keep(pass: &Pass<'_>, mut places: Places, count: &Count<'_>, limits: &mut Limits) {
    for (id, coming) in &count.coming_here {
        let Some(group) = pass.group(id) else { continue };
        let kept = places.fill(&group.place.instance_type, *coming);
        let Some(limit) = limits.get(*id).filter(|_| kept > 0) else { continue };
        let min = limit.min.saturating_add(kept).min(limit.target);
        raise(limits, id, min);
    }
}

/// By how many nodes which groups are raised. Those that were raised before stay so while they can: the autoscaler may be about to ask.
fn share_out(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    pool: &Pool,
    mut missing: Places,
    ledger: &mut Ledger<'_>,
    limits: &Limits,
) -> BTreeMap<NodeGroupId, u32> {
    let mut raised: BTreeMap<NodeGroupId, u32> = BTreeMap::new();
    let room = |id: &NodeGroupId| {
        let limit = limits.get(id).filter(|limit| limit.listed && limit.closed.is_none());
        limit.map_or(0, |limit| limit.max.saturating_sub(limit.target.max(limit.min)))
    };
    for (id, nodes) in changes.memory.floors.get(&pool.name).iter().flat_map(|known| &known.raised) {
        let Some(group) = pass.group(id) else { continue };
        let of = &group.place.instance_type;
        let nodes = ledger.take(&changes.memory, id, (*nodes).min(missing.left(of)).min(room(id)));
        if missing.fill(of, nodes) > 0 {
            raised.insert(id.clone(), nodes);
        }
    }
    let Places { by_type, any } = missing;
    let turns = by_type.into_iter().map(|(of, nodes)| (Some(of), nodes)).chain([(None, any)]);
    for (of, nodes) in turns.filter(|(_, nodes)| *nodes > 0) {
        let groups = pass.catalogue.pool_groups(&pool.name).map(AsRef::as_ref);
        let open = |group: &&Group| {
            of.as_ref().is_none_or(|of| group.place.instance_type == *of)
                && room(&group.id) > raised.get(&group.id).copied().unwrap_or(0)
        };
        let groups: Vec<&Group> = groups.filter(open).collect();
        if groups.is_empty() {
            continue;
        }
        for (id, nodes) in ledger.choose(&changes.memory, &groups, nodes) {
            *raised.entry(id).or_default() += nodes;
        }
    }
    for (id, nodes) in &mut raised {
        *nodes = (*nodes).min(room(id));
    }
    raised.retain(|_, nodes| *nodes > 0);
    raised
}

/// What keeps the missing nodes from coming, or from being warm, in words; `None` where nothing does.
fn blocked(
    pass: &Pass<'_>,
    changes: &Changes<'_>,
    (pool, wanted): (&Pool, u32),
    unmet: Option<(u32, bool, &Filled, &Count<'_>)>,
    (usage, ledger): (&Usage, &Ledger<'_>),
    limits: &Limits,
) -> Option<String> {
    let (barred, blind, filled, count) = unmet?;
    if blind {
        return Some(BLIND.to_owned());
    }
    if barred == 0 {
        let Filled { doubtful, pulling, replaced, unreplaced, .. } = *filled;
        if pulling > 0 && filled.warm + pulling >= wanted {
            return Some(if pulling == 1 {
                "1 node waits for images".to_owned()
            } else {
                format!("{pulling} nodes wait for images")
            });
        }
        if unreplaced > 0 {
            let all = replaced.saturating_add(unreplaced);
            return Some(format!("{all} nodes no longer report, and at most {replaced} of them are replaced"));
        }
        if let Some(why) = count.late_for.as_ref().filter(|_| doubtful == 0) {
            let nodes = if count.late == 1 { "1 node is".to_owned() } else { format!("{} nodes are", count.late) };
            return Some(format!("{nodes} Ready and not warm yet: {why}"));
        }
        let minutes = DOUBTED_FOR.as_mins();
        let [nodes, not, stay] =
            if doubtful == 1 { ["node is", "is not", "it stays"] } else { ["nodes are", "are not", "they stay"] };
        let why = format!(
            "{doubtful} {nodes} unhealthy, cordoned, or silent for less than {minutes} min, and {not} replaced while {stay} \
             so"
        );
        let uncalled = changes.memory.session.is_none().then(|| UNCALLED.to_owned());
        return (doubtful > 0).then_some(why).or(uncalled);
    }
    let mut limit = None;
    let mut market = None;
    let mut other = None;
    let lacks = |group: &&Arc<Group>| filled.missing.left(&group.place.instance_type) > 0;
    for group in pass.catalogue.pool_groups(&pool.name).filter(lacks) {
        match limits.get(&group.id).and_then(|limit| limit.closed.as_ref()) {
            Some(Closed::Offers(barred)) => {
                for (at, why) in barred {
                    match why {
                        Barred::Bound(bound) => limit = limit.or_else(|| Some(bound.to_string())),
                        why => market = market.or_else(|| Some(format!("{at}: {why}"))),
                    }
                }
            }
            Some(why) => other = other.or_else(|| Some(why.to_string())),
            // Open, and full after what was raised.
            None => limit = limit.or_else(|| ledger.binding(&changes.memory, group, usage)),
        }
    }
    Some(other.or(limit).or(market).unwrap_or_else(|| "no node group of what is missing can grow".to_owned()))
}
