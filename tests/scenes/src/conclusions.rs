//! Holds each decision against what the decider itself concluded: verdicts, windows, floors and reasons. A conclusion that does not lead to
//! what was decided is a mistake of the rules. The shipped checker does not read conclusions: it counts anew from facts.
//!
//! The core's own tests compile this file, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{NodeGroupId, NodeName, PoolName, ProviderId, RecordId};
use stoker_core::base::kinds::Evidence;
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::reading::seen::{Activity, Hearing};
use stoker_core::facts::snapshot::{Hold, Snapshot};
use stoker_core::plan::{Action, Decision, Plan, Proposed};
use stoker_core::policy::Pool;
use stoker_core::policy::rules::health::UnhealthyAction;
use stoker_core::policy::rules::stabilization::{Stabilization, Window};
use stoker_core::state::disruption::{Disruption, DrainReason};
use stoker_core::state::memory::Memory;
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_core::state::record::{Record, State};

/// Something that does not follow from what was concluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfounded {
    /// There are pods on a node, or nobody can tell, or it is unhealthy, and the autoscaler is not kept from it.
    NotHeld(NodeName),
    /// There are pods on a node that is called free.
    NotFree(NodeName),
    /// A free node is released that has not been free, or has not lived, for long enough.
    ReleasedEarly(RecordId),
    /// More free nodes of a pool are released within one window than its share allows.
    TooManyReleased {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: usize,
        /// How many may be.
        most: usize,
    },
    /// A node is released that does not count among those that were.
    ReleaseForgotten(RecordId),
    /// The hold on a free node is taken back that is not idle.
    OpensKept(NodeName),
    /// Free nodes that a warm floor wants are moved to spot at once, and not one by one.
    EmptiesFloor {
        /// The pool.
        pool: PoolName,
        /// Warm nodes that are left.
        left: u32,
        /// What the floor wants.
        wanted: u32,
    },
    /// A floor is grown beyond what it wants.
    FloorTooLarge {
        /// The pool.
        pool: PoolName,
        /// Warm nodes, and those on their way for the floor.
        nodes: u32,
        /// What the floor wants.
        wanted: u32,
    },
    /// The autoscaler would buy once more what was grown without it.
    GrownOpen(NodeGroupId),
    /// A node is let go for a reason that does not stand.
    NoReason(ProviderId),
    /// Unhealthy nodes are replaced although too many of their pool are unhealthy.
    ReplacesMany {
        /// The pool.
        pool: PoolName,
        /// Unhealthy nodes.
        unhealthy: usize,
    },
    /// A wanted node that nothing is said about.
    Unexplained(RecordId),
}

/// The records of each group.
type ByGroup<'a> = BTreeMap<&'a NodeGroupId, Vec<&'a Record>>;

/// Everything in a decision that does not follow from what it concluded.
pub(crate) fn judge(decision: &Decision, before: &Memory, snapshot: &Snapshot, catalogue: &Catalogue) -> Vec<Unfounded> {
    let Decision { plan, memory, .. } = decision;
    let mut found = Vec::new();
    let mut by_group = ByGroup::new();
    for record in memory.records.values() {
        by_group.entry(&record.group).or_default().push(record);
    }
    held(&plan.actions, memory, snapshot, catalogue, &mut found);
    reasons(before, memory, (catalogue, snapshot.wall), &mut found);
    own_growth(plan, before, memory, catalogue, &mut found);
    moved_at_once(plan, before, memory, catalogue, &mut found);
    windows(&plan.actions, before, memory, &by_group, (catalogue, snapshot), &mut found);
    for record in memory.records.values() {
        let said = || plan.explanations.iter().any(|e| e.order == record.order && e.group.as_ref() == Some(&record.group));
        if record.state == State::Wanted && !said() {
            found.push(Unfounded::Unexplained(record.id));
        }
    }
    found
}

fn pool_of<'a>(record: &Record, catalogue: &'a Catalogue, memory: &'a Memory) -> Option<&'a Pool> {
    catalogue.policy.pool(&catalogue.group_or_remembered(&record.group, memory)?.pool)
}

fn verdict(record: &Record) -> Option<Verdict> {
    record.judged.as_ref().map(|judged| judged.verdict)
}

/// Nodes that are unhealthy or of which nobody can tell are held, and none with pods is called free.
fn held(actions: &[Action], memory: &Memory, snapshot: &Snapshot, catalogue: &Catalogue, found: &mut Vec<Unfounded>) {
    let Some(cluster) = &snapshot.cluster else { return };
    // Without probes nothing is concluded of a node but by its pods.
    let any_probed = catalogue.policy.pools.iter().any(|pool| pool.evidence == Evidence::Probe);
    for record in memory.records.values() {
        let State::Registered { node: Some(name), instance, .. } = &record.state else { continue };
        let Some(node) = cluster.nodes.get(name).filter(|node| node.provider_id.as_ref() == Some(instance)) else { continue };
        let pool = pool_of(record, catalogue, memory);
        let nothing_tells = !any_probed && node.gpu_pods.is_empty();
        if nothing_tells || pool.is_some_and(|pool| pool.evidence == Evidence::None) {
            continue;
        }
        let verdict = verdict(record);
        let held = actions.iter().any(|action| matches!(action, Action::Hold { node, .. } if node == name));
        let guarded = matches!(verdict, Some(Verdict::Unknown | Verdict::Unhealthy));
        if guarded && node.scale_down_disabled == Hold::None && !held {
            found.push(Unfounded::NotHeld(name.clone()));
        }
        let seen = snapshot.seen.get(name).filter(|_| pool.is_some_and(|pool| pool.evidence == Evidence::Probe));
        let active = seen.is_some_and(|seen| {
            let heard = matches!(seen.hearing, Hearing::Heard { .. });
            let mut all = seen.gpus.values().flat_map(|gpu| gpu.instances.values().chain([&gpu.activity]));
            heard && all.any(|activity| matches!(activity, Activity::Active { .. }))
        });
        if (active || !node.gpu_pods.is_empty()) && verdict.is_some_and(Verdict::is_free) {
            found.push(Unfounded::NotFree(name.clone()));
        }
    }
}

/// What begins to go is unhealthy or held by what was concluded of it.
fn reasons(before: &Memory, memory: &Memory, (catalogue, wall): (&Catalogue, Wall), found: &mut Vec<Unfounded>) {
    let mut replaced: BTreeSet<&PoolName> = BTreeSet::new();
    for (id, disruption) in memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()) {
        let same = |known: &Arc<Disruption>| {
            known.is_open() && std::mem::discriminant(&known.why) == std::mem::discriminant(&disruption.why)
        };
        if before.disruptions.get(id).is_some_and(same) {
            continue;
        }
        let Some(record) = memory.records.get(id) else { continue };
        let pool = pool_of(record, catalogue, memory);
        let stands = match &disruption.why {
            DrainReason::BackToSpot { .. } | DrainReason::CapacityEnds { .. } | DrainReason::Reclaimed { .. } => true,
            DrainReason::Outdated { .. } => pool.is_some_and(|pool| !pool.outdated.paused) && memory.outdated.contains_key(id),
            DrainReason::Unhealthy { .. } => {
                replaced.extend(pool.map(|pool| &pool.name));
                pool.is_some_and(|pool| is_due(record, disruption, pool))
            }
            DrainReason::Held { announced, at } => {
                let told = before.announced.get(id).is_some_and(|told| (told.since, told.at) == (*announced, *at));
                let off = pool.and_then(|pool| pool.off_hours.as_ref());
                let grace = off.and_then(|off| off.evict_held_after);
                let waited = grace.is_some() && *at <= disruption.since;
                told && waited && verdict(record) == Some(Verdict::Held) && off.is_some_and(|off| off.at(wall.0).0)
            }
        };
        if let (false, Some(machine)) = (stands, record.instance()) {
            found.push(Unfounded::NoReason(machine.clone()));
        }
    }
    for name in replaced {
        let of_pool = |record: &&Arc<Record>| {
            let pool = pool_of(record, catalogue, memory);
            matches!(record.state, State::Registered { .. }) && pool.is_some_and(|pool| pool.name == *name)
        };
        let nodes: Vec<_> = memory.records.values().filter(of_pool).collect();
        let sick = |record: &&&Arc<Record>| {
            let going = memory.disruptions.get(&record.id).filter(|disruption| disruption.is_open());
            verdict(record) == Some(Verdict::Unhealthy)
                || going.is_some_and(|disruption| matches!(disruption.why, DrainReason::Unhealthy { .. }))
        };
        let unhealthy = nodes.iter().filter(sick).count();
        // A fifth of the nodes at once, rounded up.
        if 5 * unhealthy > nodes.len() + 4 {
            found.push(Unfounded::ReplacesMany { pool: name.clone(), unhealthy });
        }
    }
}

/// Whether a node has been unhealthy for long enough, and its pool replaces such nodes.
fn is_due(record: &Record, disruption: &Disruption, pool: &Pool) -> bool {
    let long = |since| disruption.since.duration_since(since) >= pool.unhealthy.after;
    let judged = record.judged.as_ref();
    let unhealthy = judged.is_some_and(|judged| judged.verdict == Verdict::Unhealthy && long(judged.since));
    unhealthy && pool.unhealthy.action != UnhealthyAction::Cordon
}

/// What this pass orders of its own accord is for a warm floor, no more of it than the floor wants, and its group is closed.
fn own_growth(plan: &Plan<Proposed>, before: &Memory, memory: &Memory, catalogue: &Catalogue, found: &mut Vec<Unfounded>) {
    // Records are numbered in their order, and those of machines that were found have no order.
    let own = memory.records.range(RecordId(before.next_record)..).map(|(_, record)| record.as_ref());
    let own: Vec<&Record> = own.filter(|record| record.order.is_some()).collect();
    let mut pools: BTreeSet<&PoolName> = BTreeSet::new();
    for record in own {
        if let Some(group) = catalogue.groups.get(&record.group) {
            pools.insert(&group.pool);
        }
        if plan.limits.get(&record.group).is_none_or(|limits| limits.max > limits.target) {
            found.push(Unfounded::GrownOpen(record.group.clone()));
        }
    }
    for pool in pools {
        let wanted = plan.accounts.floors.iter().find(|floor| floor.pool == *pool).map_or(0, |floor| floor.wanted);
        let of_pool = |record: &&Arc<Record>| catalogue.groups.get(&record.group).is_some_and(|group| group.pool == *pool);
        let there = memory.records.values().filter(of_pool).filter(|record| match (&record.state, &record.judged) {
            (State::Failed { .. } | State::Cancelled { .. } | State::Deleting { .. }, _) => false,
            (State::Registered { ready_at: Some(_), .. }, Some(judged)) => judged.verdict.is_free(),
            _ => record.floor,
        });
        let nodes = u32::try_from(there.count()).unwrap_or(u32::MAX);
        if nodes > wanted {
            found.push(Unfounded::FloorTooLarge { pool: pool.clone(), nodes, wanted });
        }
    }
}

/// What begins to go back to spot at once is more than the floor wants: of what it wants nodes go as work does, one at a time.
fn moved_at_once(plan: &Plan<Proposed>, before: &Memory, memory: &Memory, catalogue: &Catalogue, found: &mut Vec<Unfounded>) {
    let to_spot = |disruption: &Disruption| match disruption.why {
        DrainReason::BackToSpot { work, .. } if disruption.is_open() => Some(work),
        _ => None,
    };
    let of = |id: &RecordId| Some(&catalogue.group_or_remembered(&memory.records.get(id)?.group, memory)?.pool);
    let begun = memory.disruptions.iter().filter(|(id, disruption)| {
        to_spot(disruption) == Some(false) && before.disruptions.get(id).and_then(|known| to_spot(known)) != Some(false)
    });
    let pools: BTreeSet<&PoolName> = begun.filter_map(|(id, _)| of(id)).collect();
    for floor in plan.accounts.floors.iter().filter(|floor| pools.contains(&floor.pool)) {
        let stays = |id: &RecordId| {
            let disruption = memory.disruptions.get(id).filter(|disruption| disruption.is_open());
            disruption.is_none_or(|disruption| to_spot(disruption) == Some(true))
        };
        let warm = memory.records.values().filter(|record| {
            let free = record.judged.as_ref().is_some_and(|judged| judged.verdict.is_free());
            matches!(record.state, State::Registered { .. }) && free && stays(&record.id) && of(&record.id) == Some(&floor.pool)
        });
        let left = u32::try_from(warm.count()).unwrap_or(u32::MAX);
        if left < floor.wanted {
            found.push(Unfounded::EmptiesFloor { pool: floor.pool.clone(), left, wanted: floor.wanted });
        }
    }
}

/// Judges which free nodes the autoscaler may remove from now on.
fn windows(
    actions: &[Action],
    before: &Memory,
    memory: &Memory,
    by_group: &ByGroup<'_>,
    (catalogue, snapshot): (&Catalogue, &Snapshot),
    found: &mut Vec<Unfounded>,
) {
    let rules_of = |record: &Record| {
        let pool = pool_of(record, catalogue, memory)?;
        Some((pool, pool.stabilization.as_ref()?))
    };
    let is_idle = |record: &Record| record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Idle);
    // What was idle when somebody closed it, or when its kubelet went away, keeps its turn.
    let is_released = |record: &Record| is_idle(record) || record.judged.as_ref().is_some_and(was_released);
    let mut by_pool: BTreeMap<&str, (&Pool, &Stabilization, Vec<&Record>)> = BTreeMap::new();
    for record in memory.records.values().filter(|record| is_idle(record)) {
        if before.records.get(&record.id).is_some_and(|known| is_released(known)) {
            continue;
        }
        let Some((pool, rules)) = rules_of(record) else { continue };
        let at = released_at(record);
        let early = at.is_none_or(|at| at < earliest(record, pool, rules));
        // What off-hours leave no room for waits for no window.
        let off = at.is_some() && is_too_many(pool, snapshot.wall, by_group, memory, catalogue);
        if early && !off {
            found.push(Unfounded::ReleasedEarly(record.id));
        }
        by_pool.entry(pool.name.as_str()).or_insert((pool, rules, Vec::new())).2.push(record);
    }
    for (pool, rules, new) in by_pool.into_values().filter(|(_, rules, _)| rules.max_removals.0 < 100) {
        let Some(now) = new.iter().filter_map(|record| released_at(record)).max() else { continue };
        let known = |memory: &Memory| memory.windows.get(&pool.name).map(|w| w.nodes.clone()).unwrap_or_default();
        let gone = |id: &RecordId| memory.records.get(id).is_none_or(|record| !record.counts());
        let within = |at: &Timestamp| after((*at).min(now), rules.scale_down) > now;
        let mut earlier = known(before);
        earlier.retain(|(id, at)| within(at) && (gone(id) || memory.records.get(id).is_some_and(|record| is_released(record))));
        let there = counted(pool, by_group, memory, catalogue);
        let nodes = there + earlier.iter().filter(|(id, _)| gone(id)).count();
        let most = (nodes * usize::from(rules.max_removals.0) / 100).max(1);
        let all = earlier.len() + new.len();
        if all > most {
            found.push(Unfounded::TooManyReleased { pool: pool.name.clone(), nodes: all, most });
        }
        let remembered: BTreeSet<_> = known(memory).into_iter().map(|(id, _)| id).collect();
        let forgotten = new.iter().filter(|record| !remembered.contains(&record.id));
        found.extend(forgotten.map(|record| Unfounded::ReleaseForgotten(record.id)));
    }
    let opened: BTreeSet<&NodeName> =
        actions.iter().filter_map(|action| if let Action::Release { node } = action { Some(node) } else { None }).collect();
    if opened.is_empty() {
        return;
    }
    for record in memory.records.values() {
        let State::Registered { node: Some(node), .. } = &record.state else { continue };
        let warm = record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Warm);
        // The autoscaler keeps the nodes of a buffer by itself.
        let held =
            |(pool, _): &(&Pool, _)| !pool.warm_floor.as_ref().is_some_and(|floor| floor.is_kept_by_buffers(snapshot.buffers));
        if warm && opened.contains(node) && rules_of(record).as_ref().is_some_and(held) {
            found.push(Unfounded::OpensKept(node.clone()));
        }
    }
}

fn was_released(judged: &Judged) -> bool {
    match judged.verdict {
        Verdict::Draining => matches!(judged.why, Reason::Closed { released: true, .. }),
        Verdict::Booting => matches!(judged.why, Reason::Away { released: true, .. }),
        _ => false,
    }
}

/// The nodes of a pool that count.
fn counted(pool: &Pool, by_group: &ByGroup<'_>, memory: &Memory, catalogue: &Catalogue) -> usize {
    let here = by_group.iter().filter(|(id, _)| catalogue.group_or_remembered(id, memory).is_some_and(|g| g.pool == pool.name));
    here.flat_map(|(_, records)| records.iter()).filter(|record| record.counts()).count()
}

/// Whether a pool has more nodes than its off-hours allow at that moment.
fn is_too_many(pool: &Pool, wall: Wall, by_group: &ByGroup<'_>, memory: &Memory, catalogue: &Catalogue) -> bool {
    let off = pool.off_hours.as_ref().filter(|off| off.at(wall.0).0).and_then(|off| off.max_nodes);
    off.is_some_and(|most| counted(pool, by_group, memory, catalogue) > usize::try_from(most).unwrap_or(usize::MAX))
}

fn released_at(record: &Record) -> Option<Timestamp> {
    record.judged.as_ref().map(|judged| judged.since)
}

/// The earliest moment at which a free node may be released, by its own windows.
fn earliest(record: &Record, pool: &Pool, rules: &Stabilization) -> Timestamp {
    let free_since = match record.judged.as_ref().map(|judged| &judged.why) {
        Some(Reason::WindowOver { free_since }) => *free_since,
        _ => return Timestamp::MAX,
    };
    let price = record.purchase().map_or(0, |purchase| purchase.price.0);
    let free_for = match rules.window {
        Window::EqualCost if price > 0 => {
            let seconds = i128::from(pool.waiting.0) * 150 / i128::from(price);
            let least = rules.scale_down.as_secs().min(60);
            SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).clamp(least, rules.scale_down.as_secs()))
        }
        Window::EqualCost | Window::Fixed => rules.scale_down,
    };
    after(free_since, free_for).max(after(free_since.min(record.ordered_at), rules.minimum_life))
}

fn after(at: Timestamp, length: SignedDuration) -> Timestamp {
    at.saturating_add(length).unwrap_or(Timestamp::MAX)
}
