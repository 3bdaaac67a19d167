//! The checker: judges a decision by the promises, with code of its own. It shares nothing with `decide` but the types, so that one
//! mistake cannot both make and excuse a bad plan.

mod begun;
mod fatal;
mod floors;
mod guarded;
mod leaving;
mod membership;
mod spend;
mod windows;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use crate::group::{Group, Menu};
use crate::ids::{LaunchKey, NodeGroupId, PoolName, RecordId};
use crate::lookup::{Lookup, LookupSet};
use crate::memory::Memory;
use crate::offer::{CapacityType, Market, Place};
use crate::plan::{Action, Checked, Decision, Ending, Plan};
use crate::policy::{Quota, QuotaUnit};
use crate::record::{Purchase, Record, State};
use crate::snapshot::Snapshot;
use crate::supply::LaunchRequest;
use crate::units::Percent;

pub use fatal::Fatal;
pub use membership::quotas_of;
#[cfg(test)]
pub(crate) use membership::wanting;
use spend::Bought;

/// The records of each group.
type ByGroup<'a> = BTreeMap<&'a NodeGroupId, Vec<&'a Record>>;

/// Judges a decision against the memory `before` it.
///
/// # Errors
/// Every promise that it would break.
pub fn check(
    decision: Decision,
    before: &Memory,
    snapshot: &Snapshot,
    menu: &Menu,
) -> Result<(Plan<Checked>, Memory), Vec<Fatal>> {
    let mut faults = Vec::new();
    let Decision { plan, memory, .. } = decision;
    launches(&plan.actions, &memory, snapshot, &mut faults);
    endings(&plan.actions, &memory, snapshot, &mut faults);
    leaving::leaving(&plan.actions, before, &memory, snapshot, menu, &mut faults);
    let by_group = by_group(&memory);
    guarded::guarded(&plan.actions, before, &memory, &by_group, (snapshot, menu), &mut faults);
    floors::own_growth(&plan, before, &memory, menu, &mut faults);
    floors::moved_at_once(&plan, before, &memory, menu, &mut faults);
    windows::windows(&plan.actions, before, &memory, &by_group, (menu, snapshot.buffers), &mut faults);
    let growing: BTreeSet<RecordId> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            // Asking again with the same key buys nothing new.
            Action::Launch { record, request, .. } if !asked_before(before, *record, &request.key) => Some(*record),
            _ => None,
        })
        .collect();
    zones::shares(&growing, &by_group, &memory, menu, &mut faults);
    if !growing.is_empty() {
        spending(&growing, &by_group, (before, &memory), menu, &mut faults);
    }
    let spot_bought = plan.actions.iter().filter_map(|action| match action {
        Action::Launch { record, request, .. } if !asked_before(before, *record, &request.key) => Some(request),
        _ => None,
    });
    let spot_bought = spot_bought.filter(|r| r.market.capacity_type == CapacityType::Spot);
    spot_shares(spot_bought, &by_group, &memory, menu, &mut faults);
    if !menu.policy.commitments.is_empty() {
        let launched = plan.actions.iter().filter_map(|action| match action {
            Action::Launch { record, request, .. }
                if request.market.capacity_type == CapacityType::Reserved && !asked_before(before, *record, &request.key) =>
            {
                Some(&request.market.place)
            }
            _ => None,
        });
        kept(&launched.collect(), &memory, menu, &mut faults);
    }
    let mut machines = LookupSet::default();
    for machine in memory.records.values().filter_map(|record| record.instance()) {
        if !machines.insert(machine) {
            faults.push(Fatal::SharedMachine(machine.clone()));
        }
    }
    for record in memory.records.values() {
        let told = || plan.explanations.iter().any(|e| e.order == record.order && e.group.as_ref() == Some(&record.group));
        if record.state == State::Wanted && !told() {
            faults.push(Fatal::Unexplained(record.id));
        }
    }
    for (group, limits) in &plan.limits {
        let counting = |record: &&&Record| !matches!(record.state, State::Cancelled { .. } | State::Deleting { .. });
        let counted = by_group.get(group).map_or(0, |records| records.iter().filter(counting).count());
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        if limits.target != counted {
            faults.push(Fatal::WrongTarget { group: group.clone(), shown: limits.target, counted });
        }
        if limits.min > limits.max || limits.target > limits.max {
            let (min, target, max) = (limits.min, limits.target, limits.max);
            faults.push(Fatal::BadLimits { group: group.clone(), min, target, max });
        }
    }
    if faults.is_empty() { Ok((plan.into_checked(), memory)) } else { Err(faults) }
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
    menu: &Menu,
    faults: &mut Vec<Fatal>,
) {
    let pool_of = |group: &NodeGroupId| menu.group_or_remembered(group, memory).map(|g| &g.pool);
    let bought: BTreeSet<(&PoolName, &Market)> = bought.filter_map(|r| Some((pool_of(&r.group)?, &r.market))).collect();
    let pools: Vec<(Option<&PoolName>, &Vec<&Record>)> =
        if bought.is_empty() { Vec::new() } else { by_group.iter().map(|(id, records)| (pool_of(id), records)).collect() };
    for (name, market) in bought {
        let Some(rules) = menu.policy.pool(name).and_then(|pool| pool.spot.as_ref()) else { continue };
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
                faults.push(Fatal::TooMuchSpot { pool: name.clone(), spot, nodes, limit: share });
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

fn launches(actions: &[Action], memory: &Memory, snapshot: &Snapshot, faults: &mut Vec<Fatal>) {
    let mut keys = BTreeSet::new();
    for action in actions {
        let Action::Launch { record, request, price, .. } = action else { continue };
        if !keys.insert(&request.key) {
            faults.push(Fatal::KeyTwice(request.key.clone()));
        }
        if snapshot.launching.contains(&request.key) {
            faults.push(Fatal::UnderWay(request.key.clone()));
        }
        if price.0 <= 0 {
            faults.push(Fatal::NoPrice(request.key.clone()));
        }
        let said = memory.records.get(record).is_some_and(|r| {
            matches!(&r.state, State::Launching { purchase: Purchase { key, market, .. }, .. }
                if *key == request.key && *market == request.market && r.group == request.group)
        });
        if !said {
            faults.push(Fatal::LaunchWithoutRecord { record: *record, key: request.key.clone() });
        }
    }
}

fn endings(actions: &[Action], memory: &Memory, snapshot: &Snapshot, faults: &mut Vec<Fatal>) {
    for action in actions {
        let Action::Terminate { instance, why, .. } = action else { continue };
        let busy = snapshot.cluster.as_ref().is_some_and(|cluster| {
            cluster.nodes.values().any(|n| n.provider_id.as_ref() == Some(instance) && !n.gpu_pods.is_empty())
        });
        if busy && *why != Ending::Deleted {
            faults.push(Fatal::EndsBusy(instance.clone()));
        }
        let counts = memory.records.values().any(
            |r| matches!(&r.state, State::Booting { instance: i, .. } | State::Registered { instance: i, .. } if i == instance),
        );
        if counts {
            faults.push(Fatal::EndsCounted(instance.clone()));
        }
    }
}

/// Counts nodes, spend and quota units from the records, for the pools and quotas that this pass buys under. A limit that the operator
/// has lowered below what exists binds growth only: what exists is never ended for it.
fn spending(
    growing: &BTreeSet<RecordId>,
    by_group: &ByGroup<'_>,
    (before, memory): (&Memory, &Memory),
    menu: &Menu,
    faults: &mut Vec<Fatal>,
) {
    let group_of = |id: &NodeGroupId| -> Option<&Group> { menu.group_or_remembered(id, memory).map(AsRef::as_ref) };
    let pool_of = |id: &RecordId| group_of(&memory.records.get(id)?.group).map(|group| &group.pool);
    let growing_pools: BTreeSet<&PoolName> = growing.iter().filter_map(pool_of).collect();
    let mut nodes: BTreeMap<&PoolName, u64> = BTreeMap::new();
    let mut bought: Vec<Bought<'_>> = Vec::new();
    let tally = |quota| Tally { quota, units: 0, grows: false };
    let mut tallies: Vec<Tally<'_>> = menu.policy.quotas.iter().map(tally).collect();
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
            if bought_now && let Some(name) = membership::wanting(&menu.policy, &purchase.market, &group.spec) {
                faults.push(Fatal::QuotaUnlisted { name, key: purchase.key.clone() });
            }
            if !members.iter().any(|(market, _)| **market == purchase.market) {
                members.push((&purchase.market, quotas_of(&menu.policy, &purchase.market, &group.spec)));
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
    for pool in menu.policy.pools.iter().filter(|pool| growing_pools.contains(&pool.name)) {
        let held = nodes.get(&pool.name).copied().unwrap_or(0);
        let limit = floors::max_nodes(pool, growing, memory);
        if held > u64::from(limit) {
            faults.push(Fatal::TooManyNodes { pool: pool.name.clone(), nodes: held, limit });
        }
    }
    spend::judge(&menu.policy, &bought, &before.budgets, faults);
    for Tally { quota, units, .. } in tallies.into_iter().filter(|tally| tally.grows) {
        let others = u64::from(quota.used) + u64::from(quota.safety);
        if units + others > u64::from(quota.limit) {
            let share = u64::from(quota.limit).saturating_sub(others);
            faults.push(Fatal::QuotaExceeded { name: quota.name.clone(), units, share });
        }
    }
}

/// No more nodes are bought from kept capacity than there are. A commitment that ended or shrank binds growth only.
fn kept(launched: &BTreeSet<&Place>, memory: &Memory, menu: &Menu, faults: &mut Vec<Fatal>) {
    for place in launched {
        let limits = menu.policy.commitments.iter().filter_map(|c| c.capacity_at(place)).map(|kept| u64::from(kept.nodes));
        let Some(limit) = limits.reduce(|a, b| a + b) else { continue };
        let held = memory.records.values().filter_map(|record| record.purchase());
        let held = held.filter(|p| p.market.capacity_type == CapacityType::Reserved && p.market.place == **place);
        let nodes = held.count() as u64;
        if nodes > limit {
            faults.push(Fatal::MoreThanKept { place: (*place).clone(), nodes, limit });
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
