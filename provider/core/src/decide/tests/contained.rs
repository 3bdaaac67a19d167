//! What is done of a plan with a fault, pool by pool.

use super::alarms::Forged;
use super::back::fallen_back;
use super::budgets::{OTHER, two_pools};
use super::floors;
use super::reclaimed::{on_spot, reclaim};
use super::unhealthy::fleet;
use super::verdicts::Shown;
use super::*;
use crate::base::ids::{DecisionId, PoolName};
use crate::base::units::UsdPerHour;
use crate::check::Verified;
use crate::plan::Evict;
use crate::policy::rules::health::UnhealthyAction;
use crate::state::disruption::DrainReason;
use crate::state::paused::{Concern, StandingFault};

fn pool(name: &str) -> Concern {
    Concern::Pool(PoolName::new(name).unwrap())
}

/// A world of two pools, each with an order of one node.
fn ordered() -> World {
    let mut world = World::new();
    world.policy(two_pools);
    world.pass();
    world.increase(GROUP_A, 1);
    world.increase(OTHER, 1);
    world
}

/// Launches of a pool lose their price.
fn spoil(forged: &mut Forged, group: &str) {
    for action in &mut forged.decision.plan.actions {
        if let Action::Launch { request, price, .. } = action
            && request.group.as_str() == group
        {
            *price = UsdPerHour(0);
        }
    }
}

/// The least limit of a group is above its largest.
fn twist(forged: &mut Forged, group: &str) {
    forged.decision.plan.limits.get_mut(&World::group(group)).unwrap().min = 1000;
}

fn launched(verified: &Verified) -> Vec<&str> {
    let actions = verified.plan.actions.iter();
    actions.filter_map(|a| if let Action::Launch { request, .. } = a { Some(request.group.as_str()) } else { None }).collect()
}

fn drained(verified: &Verified) -> Vec<(&str, Evict)> {
    let actions = verified.plan.actions.iter();
    actions
        .filter_map(|a| if let Action::Drain { node, evict, .. } = a { Some((node.as_str(), *evict)) } else { None })
        .collect()
}

fn told(verified: &Verified) -> Vec<String> {
    let of_check = |note: &&Note| matches!(note, Note::CheckFailed { .. } | Note::CheckPassed { .. });
    verified.plan.notes.iter().filter(of_check).map(ToString::to_string).collect()
}

#[test]
fn a_fault_of_one_pool_stops_its_growth_and_no_other() {
    let mut forged = Forged::of(ordered());
    spoil(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert_eq!(launched(&verified), [OTHER]);
    let record = |memory: &Memory, group: &str| memory.records.values().find(|r| r.group.as_str() == group).unwrap().clone();
    let (paused, bought) = (record(&verified.memory, GROUP_A), record(&verified.memory, OTHER));
    assert_eq!((paused.state.clone(), paused.attempts), (State::Wanted, 0));
    assert!(matches!(bought.state, State::Launching { .. }));
    let said = "Internal consistency check failed for pool pool; scale-up is paused (decision d1)";
    let key = format!("launch test/{GROUP_A}/{}/1 has no price", paused.id.0);
    assert_eq!(told(&verified), [format!("{said}: {key}")]);
    for group in [GROUP_A, GROUP_B] {
        let limits = &verified.plan.limits[&World::group(group)];
        let target = u32::from(group == GROUP_A);
        assert_eq!((limits.target, limits.max, limits.next_price), (target, target, None));
        assert_eq!(limits.closed.as_ref().unwrap().to_string(), said);
    }
    assert_eq!(verified.plan.limits[&World::group(OTHER)].closed, None);

    // The next decision is sound: what waited is bought, under the key that was not used.
    let mut world = forged.world;
    world.memory = verified.memory;
    let next = Forged::of(world).checked();
    assert!(launched(&next).contains(&GROUP_A));
    assert_eq!(record(&next.memory, GROUP_A).attempts, 1);
    assert_eq!(told(&next), ["Internal consistency check passes again for pool pool; scale-up was paused since decision d1"]);
    assert_eq!(next.memory.faults, []);
}

#[test]
fn a_fault_that_stands_changes_nothing_and_keeps_its_first_decision() {
    let mut world = ordered();
    let mut first: Option<Memory> = None;
    for id in 7..10 {
        let mut forged = Forged::of(world.clone());
        spoil(&mut forged, GROUP_A);
        spoil(&mut forged, OTHER);
        let Forged { world: before, snapshot, decision } = forged;
        let verified =
            crate::check::check(decision, &before.memory, &snapshot, &before.catalogue, (DecisionId(id), before.now));
        assert_eq!(told(&verified).len(), if id == 7 { 2 } else { 0 });
        let since: Vec<_> =
            verified.memory.faults.iter().map(|StandingFault { concern, decision, .. }| (concern, *decision)).collect();
        assert_eq!(since, [(&pool("other"), DecisionId(7)), (&pool("pool"), DecisionId(7))]);
        assert_eq!(first.get_or_insert_with(|| verified.memory.clone()), &verified.memory);
        world.memory = verified.memory;
        world.advance(seconds(20));
        world.observe();
    }
    let written = serde_json::to_string(&world.memory).unwrap();
    assert_eq!(serde_json::from_str::<Memory>(&written).unwrap(), world.memory);
}

#[test]
fn a_fault_of_the_fleet_stops_all_growth() {
    let mut world = ordered();
    world.increase(OTHER, 1);
    let mut forged = Forged::of(world);
    forged.world.numbers(|policy| policy.max_usd_per_hour = Some(UsdPerHour(700_000)));
    let verified = forged.checked();
    assert_eq!(launched(&verified), [""; 0]);
    assert!(verified.memory.records.values().all(|record| record.state == State::Wanted));
    assert!(verified.plan.limits.values().all(|limits| limits.max == limits.target));
    let said = "Internal consistency check failed for the fleet; scale-up is paused (decision d1): \
                all pools would spend 900000 micro-dollars an hour, more than 700000";
    assert_eq!(told(&verified), [said]);
}

/// A reclaim leaves no time: the node is emptied whatever is wrong with its pool, or with all.
#[test]
fn what_the_cloud_takes_is_emptied_under_any_fault() {
    for of_fleet in [false, true] {
        let mut world = on_spot(1);
        reclaim(&mut world, 0);
        let mut forged = Forged::of(world);
        twist(&mut forged, GROUP_A);
        if of_fleet {
            let twin = Record { id: RecordId(99), ..Record::clone(forged.decision.memory.records.values().next().unwrap()) };
            forged.decision.memory.records.insert(twin.id, Arc::new(twin));
        }
        let verified = forged.checked();
        assert!(verified.findings.iter().any(|finding| (finding.concern == Concern::Fleet) == of_fleet));
        assert_eq!(drained(&verified), [("node-0", Evict::All)]);
        assert!(verified.memory.disruptions.values().any(|disruption| matches!(disruption.why, DrainReason::Reclaimed { .. })));
        // What is learnt of the market is kept.
        assert_eq!(verified.memory.spot, forged.decision.memory.spot);
    }
}

#[test]
fn the_autoscalers_own_deletion_goes_on() {
    let mut world = World::with_node(GROUP_A, true);
    world.delete(GROUP_A, &["node-0"]).unwrap();
    let mut forged = Forged::of(world);
    twist(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert!(matches!(&verified.plan.actions[..], [Action::Terminate { why: Ending::Deleted, .. }]), "{:?}", verified.plan);
}

#[test]
fn a_move_to_spot_does_not_begin_and_one_under_way_goes_on() {
    let begins = Forged::draining(fallen_back(1), 1);
    let mut forged = Forged::draining(fallen_back(1), 1);
    twist(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert_eq!((drained(&verified), verified.memory.disruptions.len()), (vec![], 0));
    assert!(!verified.plan.notes.iter().any(|note| matches!(note, Note::Disruption { .. })));

    let Forged { mut world, decision, .. } = begins;
    world.memory = decision.memory;
    let mut forged = Forged::of(world);
    twist(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert_eq!((drained(&verified), verified.memory.disruptions.len()), (vec![("node-0", Evict::Movable)], 1));
}

#[test]
fn an_unhealthy_node_is_closed_and_not_replaced() {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.show(0, Shown::Broken);
    let mut closes = Forged::of(world.clone());
    twist(&mut closes, GROUP_A);
    assert_eq!(drained(&closes.checked()), [("node-0", Evict::Nobody)]);
    let mut forged = Forged::draining(world, 1);
    assert_eq!(forged.decision.memory.replaced.values().next().unwrap().at.len(), 1);
    twist(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert!(drained(&verified).iter().all(|(_, evict)| *evict == Evict::Nobody), "{verified:?}");
    assert_eq!(verified.memory.disruptions.len(), 0);
    assert!(verified.memory.replaced.values().all(|lately| lately.at.is_empty()), "it does not count as replaced");
}

/// What would break a promise by itself is not done, and goes on from where it was once the plan is sound.
#[test]
fn an_ending_that_is_wrong_is_left_out_and_its_node_counts_again() {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    world.pass();
    let mut forged = Forged::of(world);
    let before = forged.world.memory.clone();
    let (id, record) = forged.decision.memory.records.first_key_value().map(|(id, r)| (*id, Record::clone(r))).unwrap();
    let (purchase, instance) = (record.purchase().unwrap().clone(), record.instance().unwrap().clone());
    let supplier = forged.world.catalogue.groups[&record.group].supplier.clone();
    let state = State::Deleting { purchase, instance: instance.clone(), since: forged.world.now, late: false };
    forged.decision.memory.records.insert(id, Arc::new(Record { state, ..record }));
    Arc::make_mut(forged.decision.memory.disruptions.get_mut(&id).unwrap()).stage = crate::state::disruption::Stage::Ending;
    forged.decision.plan.actions = vec![Action::Terminate { supplier, instance, why: Ending::Reclaimed }];
    let verified = forged.checked();
    assert_eq!(verified.plan.actions, []);
    assert_eq!(verified.memory.records[&id].state, before.records[&id].state);
    assert_eq!(verified.memory.disruptions[&id], before.disruptions[&id]);
}

#[test]
fn growth_for_a_floor_is_taken_back_and_waits_anew() {
    let mut world = floors::with(floors::nodes(1));
    world.pass();
    let mut forged = loop {
        world.advance(seconds(20));
        world.observe();
        let forged = Forged::of(world.clone());
        if forged.decision.plan.notes.iter().any(|note| matches!(note, Note::FloorGrown { .. })) {
            break forged;
        }
        world.pass();
    };
    twist(&mut forged, GROUP_A);
    let verified = forged.checked();
    assert_eq!((launched(&verified), verified.memory.records.len()), (vec![], 0));
    assert!(!verified.plan.notes.iter().any(|note| matches!(note, Note::FloorGrown { .. })));
    let floor = verified.memory.floors.values().next().unwrap();
    assert_eq!((floor.raised.len(), floor.unasked), (0, None));
    assert_eq!(verified.memory.next_record, forged.decision.memory.next_record, "no number is used twice");
}
