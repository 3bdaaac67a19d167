//! The checker: judges a decision by the promises, with code of its own. It shares nothing with `decide` but the types, so that one
//! mistake cannot both make and excuse a bad plan.
//!
//! A promise that would be broken is a fault of a pool, or of the fleet. What is done of the plan then is in the module `contain`: the pool does
//! not grow and begins no disruption of its own, and every other pool goes on.

mod begun;
mod busy;
mod contain;
mod disruption;
mod fallback;
mod found;
mod freshness;
mod membership;
mod spend;
mod spread;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{DecisionId, LaunchKey, NodeGroupId, PoolName, RecordId};
use crate::base::index::{Lookup, LookupSet};
use crate::base::kinds::QuotaUnit;
use crate::base::units::Percent;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::foreign::Foreign;
use crate::facts::snapshot::Snapshot;
use crate::facts::supply::LaunchRequest;
use crate::market::offer::{CapacityType, Market, Place};
use crate::plan::{Action, Checked, Decision, Ending, Plan, Proposed};
use crate::policy::{Pool, Quota};
use crate::state::memory::Memory;
use crate::state::record::{Purchase, Record, State};
use jiff::Timestamp;
use rustc_hash::FxBuildHasher;

pub use fallback::without_decision;
use found::Found;
pub use membership::quotas_of;
#[cfg(test)]
pub(crate) use membership::wanting;
use spend::Bought;
pub use violation::{Finding, Violation};

/// The records of each group.
type ByGroup<'a> = BTreeMap<&'a NodeGroupId, Vec<&'a Record>>;

/// A decision as the checker leaves it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// What may be done.
    pub plan: Plan<Checked>,
    /// What to remember.
    pub memory: Memory,
    /// The promises that the decision would have broken. Without any, plan and memory are as they were decided.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// The plan and the memory, where no promise would have been broken.
    ///
    /// # Errors
    /// Every promise that would.
    pub fn sound(self) -> Result<(Plan<Checked>, Memory), Vec<Finding>> {
        if self.findings.is_empty() { Ok((self.plan, self.memory)) } else { Err(self.findings) }
    }
}

/// Judges decision number `id`, which was made at `now` on the memory `before`, and takes out of it what belongs to a fault.
pub fn check(
    decision: Decision,
    before: &Memory,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    (id, now): (DecisionId, Timestamp),
) -> Verified {
    let Decision { mut plan, mut memory, .. } = decision;
    let mut found = Found::new(catalogue);
    let times = Times { now, wall: snapshot.wall };
    judge(&plan, &memory, before, (snapshot, catalogue, times), &mut found);
    contain::contain(&mut plan, &mut memory, before, catalogue, &found);
    contain::remember(&mut plan, &mut memory, before, &found, (id, now));
    Verified { plan: plan.into_checked(), memory, findings: found.findings }
}

/// Finds every promise that a decision would break.
fn judge(
    plan: &Plan<Proposed>,
    memory: &Memory,
    before: &Memory,
    (snapshot, catalogue, times): (&Snapshot, &Catalogue, Times),
    found: &mut Found<'_>,
) {
    launches(&plan.actions, memory, snapshot, found);
    endings(&plan.actions, memory, snapshot, found);
    disruption::leaving(&plan.actions, before, memory, snapshot, catalogue, found);
    let by_group = by_group(memory);
    busy::guarded(&plan.actions, before, memory, &by_group, (snapshot, catalogue), found);
    let asked = plan.actions.iter().filter_map(|action| match action {
        // Asking again with the same key buys nothing new.
        Action::Launch { record, request, .. } if !asked_before(before, *record, &request.key) => Some((*record, request)),
        _ => None,
    });
    let bought: Vec<(RecordId, &LaunchRequest)> = asked.collect();
    if !bought.is_empty() {
        let growing: BTreeSet<RecordId> = bought.iter().map(|(id, _)| *id).collect();
        let of = |capacity| bought.iter().map(|(_, request)| *request).filter(move |r| r.market.capacity_type == capacity);
        freshness::known_now(&bought, snapshot, catalogue, times, found);
        spread::shares(&growing, &by_group, memory, catalogue, found);
        let foreign = foreign(before, snapshot, catalogue);
        if foreign.is_none() && catalogue.policy.karpenter.counts_nodes() {
            found.fleet(Violation::ForeignUnknown);
        }
        spending(&growing, &by_group, (before, memory, foreign), (catalogue, times.wall), found);
        spot_shares(of(CapacityType::Spot), &by_group, memory, catalogue, found);
        if !catalogue.policy.commitments.is_empty() {
            let places = of(CapacityType::Reserved).map(|request| &request.market.place).collect();
            kept(&places, (memory, foreign), catalogue, found);
        }
    }
    let mut machines = LookupSet::with_capacity_and_hasher(memory.records.len(), FxBuildHasher);
    for machine in memory.records.values().filter_map(|record| record.instance()) {
        if !machines.insert(machine) {
            found.fleet(Violation::SharedMachine(machine.clone()));
        }
    }
    for (group, limits) in &plan.limits {
        let counting = |record: &&&Record| !matches!(record.state, State::Cancelled { .. } | State::Deleting { .. });
        let counted = by_group.get(group).map_or(0, |records| records.iter().filter(counting).count());
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        if limits.target != counted {
            found.group(group, memory, Violation::WrongTarget { group: group.clone(), shown: limits.target, counted });
        }
        if limits.min > limits.max || limits.target > limits.max {
            let (min, target, max) = (limits.min, limits.target, limits.max);
            found.group(group, memory, Violation::BadLimits { group: group.clone(), min, target, max });
        }
    }
}

/// The nodes that are not Stoker's, where they count and anybody knows them.
fn foreign<'a>(before: &'a Memory, snapshot: &'a Snapshot, catalogue: &Catalogue) -> Option<&'a Foreign> {
    let known = snapshot.foreign.as_deref().or(before.foreign.as_deref());
    known.filter(|_| catalogue.policy.karpenter.counts_nodes())
}

fn by_group(memory: &Memory) -> ByGroup<'_> {
    let mut known: Lookup<&NodeGroupId, usize> = Lookup::default();
    let mut groups: Vec<(&NodeGroupId, Vec<&Record>)> = Vec::new();
    for record in memory.records.values() {
        let at = *known.entry(&record.group).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, records)) => records.push(record),
            None => groups.push((&record.group, vec![record])),
        }
    }
    groups.into_iter().collect()
}

/// Counts the shares of spot from the records, for the pools and markets in which this pass buys spot.
fn spot_shares<'a>(
    bought: impl Iterator<Item = &'a LaunchRequest>,
    by_group: &ByGroup<'_>,
    memory: &Memory,
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    let pool_of = |group: &NodeGroupId| catalogue.group_or_remembered(group, memory).map(|g| &g.pool);
    let bought: BTreeSet<(&PoolName, &Market)> = bought.filter_map(|r| Some((pool_of(&r.group)?, &r.market))).collect();
    let pools: Vec<(Option<&PoolName>, &Vec<&Record>)> =
        if bought.is_empty() { Vec::new() } else { by_group.iter().map(|(id, records)| (pool_of(id), records)).collect() };
    for (name, market) in bought {
        let Some(rules) = catalogue.policy.pool(name).and_then(|pool| pool.spot.as_ref()) else { continue };
        if rules.max_share.0 == 100 && rules.max_market_share.0 == 100 {
            continue;
        }
        let (mut nodes, mut spot, mut here) = (0_u64, 0_u64, 0_u64);
        let own = pools.iter().filter(|(pool, _)| *pool == Some(name));
        for record in own.flat_map(|(_, records)| records.iter()) {
            let Some(purchase) = record.purchase() else { continue };
            if matches!(record.state, State::Cancelled { .. } | State::Deleting { .. }) {
                continue;
            }
            nodes += 1;
            spot += u64::from(purchase.market.capacity_type == CapacityType::Spot);
            here += u64::from(purchase.market == *market);
        }
        let mut allow = |spot: u64, share: Percent, slack: u64| {
            if 100 * spot > nodes * u64::from(share.0) + slack {
                found.pool(name, Violation::TooMuchSpot { pool: name.clone(), spot, nodes, limit: share });
            }
        };
        allow(spot, rules.max_share, 0);
        // One market's share is rounded up to whole nodes.
        allow(here, rules.max_market_share, 99);
    }
}

fn asked_before(before: &Memory, record: RecordId, asked: &LaunchKey) -> bool {
    before
        .records
        .get(&record)
        .is_some_and(|r| matches!(&r.state, State::Launching { purchase: Purchase { key, .. }, .. } if key == asked))
}

fn launches(actions: &[Action], memory: &Memory, snapshot: &Snapshot, found: &mut Found<'_>) {
    let mut keys: BTreeMap<&LaunchKey, &NodeGroupId> = BTreeMap::new();
    for action in actions {
        let Action::Launch { record, request, price, .. } = action else { continue };
        let LaunchRequest { key, group, .. } = request;
        if let Some(other) = keys.insert(key, group) {
            // Of two pools that use one key, nobody can tell whose it is.
            for group in BTreeSet::from([group, other]) {
                found.group(group, memory, Violation::KeyTwice(key.clone()));
            }
        }
        if snapshot.launching.contains(key) {
            found.group(group, memory, Violation::UnderWay(key.clone()));
        }
        if price.0 <= 0 {
            found.group(group, memory, Violation::NoPrice(key.clone()));
        }
        let said = memory.records.get(record).is_some_and(|r| {
            matches!(&r.state, State::Launching { purchase, .. }
                if purchase.key == *key
                    && purchase.market == request.market
                    && purchase.reservation == request.reservation
                    && r.group == *group)
        });
        if !said {
            found.group(group, memory, Violation::LaunchWithoutRecord { record: *record, key: key.clone() });
        }
    }
}

fn endings(actions: &[Action], memory: &Memory, snapshot: &Snapshot, found: &mut Found<'_>) {
    for (at, action) in actions.iter().enumerate() {
        let Action::Terminate { instance, why, .. } = action else { continue };
        let record = || memory.records.values().find(|record| record.instance() == Some(instance)).map(|record| record.id);
        let busy = snapshot.cluster.as_ref().is_some_and(|cluster| {
            cluster.nodes.values().any(|n| n.provider_id.as_ref() == Some(instance) && !n.gpu_pods.is_empty())
        });
        if busy && *why != Ending::Deleted {
            found.action(at, record(), memory, Violation::EndsBusy(instance.clone()));
        }
        let counts = memory.records.values().any(
            |r| matches!(&r.state, State::Booting { instance: i, .. } | State::Registered { instance: i, .. } if i == instance),
        );
        if counts {
            found.action(at, record(), memory, Violation::EndsCounted(instance.clone()));
        }
    }
}

/// Counts nodes, spend and quota units from the records, for the pools and quotas that this pass buys under. A limit that the operator
/// has lowered below what exists binds growth only: what exists is never ended for it.
fn spending(
    growing: &BTreeSet<RecordId>,
    by_group: &ByGroup<'_>,
    (before, memory, foreign): (&Memory, &Memory, Option<&Foreign>),
    (catalogue, wall): (&Catalogue, Wall),
    found: &mut Found<'_>,
) {
    let group_of = |id: &NodeGroupId| -> Option<&Group> { catalogue.group_or_remembered(id, memory).map(AsRef::as_ref) };
    let pool_of = |id: &RecordId| group_of(&memory.records.get(id)?.group).map(|group| &group.pool);
    let growing_pools: BTreeSet<&PoolName> = growing.iter().filter_map(pool_of).collect();
    let mut nodes: BTreeMap<&PoolName, u64> = BTreeMap::new();
    let mut bought: Vec<Bought<'_>> = Vec::new();
    let tally = |quota| Tally { quota, units: 0, grows: false };
    let mut tallies: Vec<Tally<'_>> = catalogue.policy.quotas.iter().map(tally).collect();
    for (group, records) in by_group.iter().filter_map(|(id, records)| Some((group_of(id)?, records))) {
        // The nodes of a group are of few markets: which quotas count each is asked once, and those bought alike are one entry.
        let mut members: Vec<(&Market, Vec<usize>)> = Vec::new();
        let first = bought.len();
        for record in records {
            // What is only wanted or could not be had is no machine: a limit that was lowered meanwhile keeps it from being bought.
            let machine = !matches!(record.state, State::Wanted | State::Cancelled { .. } | State::Deleting { .. });
            if machine && record.purchase().is_some() {
                *nodes.entry(&group.pool).or_default() += 1;
            }
            let Some(purchase) = record.purchase() else { continue };
            let bought_now = growing.contains(&record.id);
            let same = |one: &&mut Bought<'_>| {
                one.now == bought_now && one.purchase.price == purchase.price && one.purchase.market == purchase.market
            };
            match bought.iter_mut().skip(first).find(same) {
                Some(alike) => alike.nodes += 1,
                None => bought.push(Bought { purchase, group, now: bought_now, nodes: 1 }),
            }
            if bought_now && let Some(name) = membership::wanting(&catalogue.policy, &purchase.market, &group.spec) {
                found.pool(&group.pool, Violation::QuotaUnlisted { name, key: purchase.key.clone() });
            }
            if !members.iter().any(|(market, _)| **market == purchase.market) {
                members.push((&purchase.market, quotas_of(&catalogue.policy, &purchase.market, &group.spec)));
            }
            let inside = members.iter().find(|(market, _)| **market == purchase.market).map(|(_, inside)| inside);
            for at in inside.into_iter().flatten() {
                let Some(tally) = tallies.get_mut(*at) else { continue };
                tally.grows |= bought_now;
                tally.units += match tally.quota.unit {
                    QuotaUnit::Vcpus => group.spec.vcpus.map_or(u64::from(u32::MAX), u64::from),
                    QuotaUnit::Gpus => (u64::from(group.spec.gpus.0) / 1000).max(1),
                };
            }
        }
    }
    for (kind, nodes) in foreign.iter().flat_map(|foreign| &foreign.nodes) {
        for at in membership::quotas_of_foreign(&catalogue.policy, kind) {
            let Some(tally) = tallies.get_mut(at) else { continue };
            let each = match tally.quota.unit {
                QuotaUnit::Vcpus => kind.vcpus,
                QuotaUnit::Gpus => kind.gpus,
            };
            tally.units += u64::from(each.max(1)) * u64::from(*nodes);
        }
    }
    for tally in &mut tallies {
        tally.units += foreign.map_or(0, |foreign| foreign.promised_of(tally.quota));
    }
    for pool in catalogue.policy.pools.iter().filter(|pool| growing_pools.contains(&pool.name)) {
        let held = nodes.get(&pool.name).copied().unwrap_or(0);
        let limit = max_nodes(pool, wall);
        if held > u64::from(limit) {
            found.pool(&pool.name, Violation::TooManyNodes { pool: pool.name.clone(), nodes: held, limit });
        }
    }
    spend::judge(&catalogue.policy, &bought, (&before.budgets, &memory.months), found);
    for (at, Tally { quota, units, .. }) in tallies.into_iter().enumerate().filter(|(_, tally)| tally.grows) {
        let others = u64::from(quota.used) + u64::from(quota.safety);
        let (limit, _) = catalogue.quota_limit(at, wall);
        if units + others > u64::from(limit) {
            let share = u64::from(limit).saturating_sub(others);
            found.fleet(Violation::QuotaExceeded { name: quota.name.clone(), units, share });
        }
    }
}

/// The most nodes that a pool may have: at off-hours fewer.
fn max_nodes(pool: &Pool, wall: Wall) -> u32 {
    let off = pool.off_hours.as_ref().filter(|off| off.at(wall.0).0);
    off.and_then(|off| off.max_nodes).unwrap_or(u32::MAX).min(pool.limits.max_nodes)
}

/// No more nodes are bought from kept capacity than there are. A commitment that ended or shrank binds growth only.
fn kept(
    launched: &BTreeSet<&Place>,
    (memory, foreign): (&Memory, Option<&Foreign>),
    catalogue: &Catalogue,
    found: &mut Found<'_>,
) {
    for place in launched {
        let limits = catalogue.policy.commitments.iter().filter_map(|c| c.capacity_at(place)).map(|kept| u64::from(kept.nodes));
        let Some(limit) = limits.reduce(|a, b| a + b) else { continue };
        let held = memory.records.values().filter_map(|record| record.purchase());
        let held = held.filter(|p| p.market.capacity_type == CapacityType::Reserved && p.market.place == **place);
        // Where others' nodes only may be, it is up to the decider.
        let others = foreign.iter().flat_map(|foreign| &foreign.nodes).filter(|(kind, _)| {
            kind.zone.is_some()
                && kind.capacity_type == Some(CapacityType::Reserved)
                && kind.place().is_some_and(|(there, _)| there == **place)
        });
        let nodes = held.count() as u64 + others.map(|(_, nodes)| u64::from(*nodes)).sum::<u64>();
        if nodes > limit {
            found.fleet(Violation::MoreThanKept { place: (*place).clone(), nodes, limit });
        }
    }
}

/// What is held of one quota.
struct Tally<'a> {
    quota: &'a Quota,
    units: u64,
    /// Whether this pass buys under it.
    grows: bool,
}
