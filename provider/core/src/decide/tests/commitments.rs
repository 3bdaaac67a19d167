//! Commitments in whole passes: two nodes kept in zone a, one reserved instance, and spot and on-demand beside them.

use super::alarms::violations;
use super::*;
use crate::base::ids::{Cloud, InstanceType, Region};
use crate::base::units::UsdPerHour;
use crate::check::Violation;
use crate::facts::supply::RefusalScope;
use crate::market::offer::CapacityType;
use crate::plan::HoldFor;
use crate::policy::rules::commitment::{Capacity, Commitment, CommittedNodes, Paid, Terms};

fn commitment(name: &str, terms: Terms) -> Commitment {
    Commitment { name: name.into(), cloud: Cloud::new("aws").unwrap(), from: None, until: None, terms }
}

/// Two nodes kept in zone a, and as many reserved instances.
fn world(reserved_instances: u32) -> World {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Spot, CapacityType::Reserved, CapacityType::OnDemand];
        let kept = Capacity { place: world::place("zone-a"), nodes: 2, paid: Paid::OnDemand };
        policy.commitments = vec![commitment("kept", Terms::Capacity(kept))];
        if reserved_instances > 0 {
            let terms = CommittedNodes {
                instance_type: InstanceType::new("gpu.1").unwrap(),
                region: Region::new("r").unwrap(),
                zone: None,
                nodes: reserved_instances,
                rate: UsdPerHour(500_000),
            };
            policy.commitments.push(commitment("ri", Terms::Nodes(terms)));
        }
    });
    world.pass();
    world
}

#[test]
fn an_order_uses_what_is_paid_for_first_and_counts_again_after_each_node() {
    // Of three reserved instances two pay for the kept nodes, so one on-demand node is free.
    let mut world = world(3);
    world.increase(GROUP_A, 5);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), ["reserved", "reserved", "on-demand", "spot", "spot"]);
    let told: Vec<String> = plan.explanations[0].candidates.iter().map(|c| c.verdict.to_string()).collect();
    assert_eq!(told, ["CHOSEN × 2", "CHOSEN × 1", "CHOSEN × 2"]);
    world.increase(GROUP_A, 1);
    let plan = world.pass();
    let reasons: Vec<String> = plan.explanations[0].candidates.iter().map(|c| c.verdict.to_string()).collect();
    assert_eq!(reasons, ["CHOSEN × 1", "the pool prefers spot", "commitment kept is full: 2 of 2 nodes used"]);
}

#[test]
fn kept_capacity_that_refuses_is_left_alone_like_any_market() {
    let mut world = world(0);
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), ["spot"]);
}

#[test]
fn the_autoscaler_is_shown_a_trifle_while_a_commitment_covers_the_next_node() {
    let mut world = world(0);
    let price = |plan: &Plan<crate::plan::Checked>| plan.limits[&World::group(GROUP_A)].next_price;
    let lasting = |plan: &Plan<crate::plan::Checked>| plan.limits[&World::group(GROUP_A)].lasting_price;
    // What shapes are compared by does not fall to a trifle because two nodes are paid for.
    let plan = world.pass();
    assert_eq!((price(&plan), lasting(&plan)), (Some(UsdPerHour(1)), Some(UsdPerHour(800_000))));
    world.increase(GROUP_A, 2);
    let plan = world.pass();
    assert_eq!((price(&plan), lasting(&plan)), (Some(UsdPerHour(327_273)), Some(UsdPerHour(327_273))));
}

/// What ranks a spot node has the work that reclaims cost in it; who pays for it does not pay that.
#[test]
fn the_price_that_is_paid_is_told_beside_the_price_that_ranks() {
    let mut world = world(0);
    let next = |plan: &Plan<crate::plan::Checked>| {
        let limits = &plan.limits[&World::group(GROUP_A)];
        (limits.next_paid, limits.next_price)
    };
    assert_eq!(next(&world.pass()), (Some(UsdPerHour::ZERO), Some(UsdPerHour(1))));
    world.increase(GROUP_A, 2);
    assert_eq!(next(&world.pass()), (Some(UsdPerHour(300_000)), Some(UsdPerHour(327_273))));
}

#[test]
fn the_loop_wakes_when_a_window_opens() {
    let mut world = world(0);
    let opens = world.now.saturating_add(minutes(7)).unwrap();
    world.policy(|policy| policy.commitments[0].from = Some(opens));
    world.observe();
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    assert!(decision.next_change_at.is_some_and(|at| at <= opens));
    world.advance(minutes(1));
    world.increase(GROUP_A, 1);
    world.observe();
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
}

/// Two nodes bought where two are kept, and judged where one is.
pub(super) fn more_than_kept() -> Vec<Violation> {
    let mut world = world(0);
    world.increase(GROUP_A, 2);
    let snapshot = world.snapshot();
    let decision = decide(&snapshot, &world.memory, &world.catalogue, world.now);
    let before = world.memory.clone();
    world.policy(|policy| {
        let Terms::Capacity(kept) = &mut policy.commitments[0].terms else { panic!("kept capacity") };
        kept.nodes = 1;
    });
    violations(world.checked(decision, &before, &snapshot))
}

#[test]
fn the_checker_stops_a_plan_that_buys_more_than_is_kept() {
    let told = Violation::MoreThanKept { place: world::place("zone-a"), nodes: 2, limit: 1 };
    assert_eq!(more_than_kept(), [told]);
}

/// A budget of $1.60 an hour at $0.80 a node: two kept nodes are no new cash, so they and two more fit, and a fifth does not.
#[test]
fn a_budget_counts_the_cash_of_a_whole_order() {
    let mut world = world(0);
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::OnDemand];
        policy.pools[0].limits.max_usd_per_hour = Some(UsdPerHour(1_600_000));
    });
    world.pass();
    world.increase(GROUP_A, 2);
    assert_eq!(World::launched_markets(&world.pass()), ["reserved", "reserved"]);
    world.increase(GROUP_A, 2);
    assert_eq!(World::launched_markets(&world.pass())[2..], ["on-demand", "on-demand"]);
    assert!(world.try_increase(GROUP_A, 1).is_err());
}

fn held(actions: &[Action]) -> Vec<(String, HoldFor)> {
    let held = |a: &Action| if let Action::Hold { node, why } = a { Some((node.to_string(), *why)) } else { None };
    actions.iter().filter_map(held).collect()
}

/// Two kept nodes and one on demand, all idle: the kept ones stay until the other has gone.
fn idle_kept_and_paid() -> World {
    let mut world = world(0);
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::OnDemand]);
    world.pass();
    world.increase(GROUP_A, 3);
    assert_eq!(World::launched_markets(&world.pass()), ["reserved", "reserved", "on-demand"]);
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.bind_pod();
    world.pass();
    world.unbind_pod();
    world
}

#[test]
fn idle_nodes_that_are_paid_for_stay_while_one_that_costs_money_may_go() {
    let mut world = idle_kept_and_paid();
    let plan = world.pass();
    assert_eq!(held(&plan.actions), [("node-0".to_owned(), HoldFor::Paid), ("node-1".to_owned(), HoldFor::Paid)]);
    assert_eq!(plan.limits[&World::group(GROUP_A)].paid, 2);
    assert_eq!(plan.limits[&World::group(GROUP_A)].min, 0, "held by name, not by number");
    world.drain(None);
    assert_eq!(world.pass().actions, []);
    world.delete(GROUP_A, &["node-2"]).unwrap();
    let released = |plan: &Plan<Checked>| plan.actions.iter().filter(|a| matches!(a, Action::Release { .. })).count();
    assert_eq!(released(&world.pass()), 0, "a deletion may fail");
    world.end_terminated();
    world.forget_node("node-2");
    world.advance(minutes(1));
    world.observe();
    assert_eq!(released(&world.pass()), 2, "nothing is left that costs money");
}

#[test]
fn nothing_is_held_for_a_node_that_does_not_go() {
    // The autoscaler leaves it for an hour: it has reasons of its own.
    let mut world = idle_kept_and_paid();
    world.pass();
    world.drain(None);
    world.advance(minutes(60));
    world.observe();
    let released = world.pass().actions.iter().filter(|a| matches!(a, Action::Release { .. })).count();
    assert_eq!(released, 2);
    // A floor that needs all of them.
    let mut world = idle_kept_and_paid();
    world.policy(|policy| policy.pools[0].limits.min_nodes = 3);
    assert_eq!(held(&world.pass().actions), []);
    // A user holds the one that costs money.
    let mut world = idle_kept_and_paid();
    world.hold("node-2", crate::facts::snapshot::Hold::Theirs);
    assert_eq!(held(&world.pass().actions), []);
}

#[test]
fn of_two_nodes_under_one_reserved_instance_one_stays() {
    let mut world = world(3);
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::OnDemand]);
    world.policy(|policy| drop(policy.commitments.remove(0)));
    world.pass();
    world.increase(GROUP_A, 4);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.bind_pod();
    world.pass();
    world.unbind_pod();
    // Three reserved instances, four nodes: the youngest goes, and the others are paid for.
    let kept: Vec<String> = held(&world.pass().actions).into_iter().map(|(node, _)| node).collect();
    assert_eq!(kept, ["node-0", "node-1", "node-2"]);
}

/// Two reservations in zone a, the first of two nodes and the second of one, and on-demand beside them.
fn two_reservations() -> World {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::OnDemand];
        let kept = |nodes| Terms::Capacity(Capacity { place: world::place("zone-a"), nodes, paid: Paid::OnDemand });
        policy.commitments = vec![commitment("cr-1", kept(2)), commitment("cr-2", kept(1))];
    });
    world.pass();
    world
}

/// What each launch is bought from: its reservation, else how it is bought.
fn bought_from(plan: &Plan<crate::plan::Checked>) -> Vec<String> {
    let from = |action: &Action| match action {
        Action::Launch { request, .. } => {
            Some(request.reservation.clone().unwrap_or_else(|| request.market.capacity_type.to_string()))
        }
        _ => None,
    };
    plan.actions.iter().filter_map(from).collect()
}

fn refuse(world: &mut World, name: &str) {
    world.refuse_scope(RefusalKind::OutOfCapacity, &RefusalScope::Reservation(name.to_owned()), None);
}

#[test]
fn a_node_is_bought_from_the_first_reservation_with_room() {
    let mut world = two_reservations();
    world.increase(GROUP_A, 4);
    assert_eq!(bought_from(&world.pass()), ["cr-1", "cr-1", "cr-2", "on-demand"]);
    // Asked again, a launch is the same.
    world.unclear();
    world.pass();
    assert_eq!(bought_from(&world.pass_after(minutes(1))), ["cr-1", "cr-1", "cr-2", "on-demand"]);
}

#[test]
fn a_refusal_of_a_reservation_leaves_the_other_of_its_place_open() {
    let mut world = two_reservations();
    world.increase(GROUP_A, 1);
    assert_eq!(bought_from(&world.pass()), ["cr-1"]);
    refuse(&mut world, "cr-1");
    let plan = world.pass();
    assert_eq!(bought_from(&plan), ["cr-2"]);
    let covered = plan.explanations[0].candidates[0].price.as_ref().unwrap().covered.as_ref().unwrap();
    assert_eq!(covered.name, "cr-2");
    world.answer(|_| true);
    world.pass();
    world.increase(GROUP_A, 1);
    let plan = world.pass();
    assert_eq!(bought_from(&plan), ["on-demand"], "the first is left alone and the second is full");
    let why = plan.explanations[0].candidates.last().unwrap().verdict.to_string();
    assert!(why.starts_with("reservation cr-1 returned OUT_OF_CAPACITY at "), "{why}");
}

#[test]
fn one_launch_tries_a_refused_reservation_and_a_sale_opens_it() {
    let mut world = two_reservations();
    world.increase(GROUP_A, 1);
    world.pass();
    refuse(&mut world, "cr-1");
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(4));
    world.observe();
    world.increase(GROUP_A, 2);
    assert_eq!(bought_from(&world.pass()), ["cr-1", "on-demand"]);
    world.answer(|_| true);
    world.pass();
    assert!(world.memory.refused_areas.is_empty());
    world.increase(GROUP_A, 1);
    assert_eq!(bought_from(&world.pass()), ["cr-1"]);
}

#[test]
fn a_refusal_of_a_reservation_that_nobody_knows_closes_its_market_alone() {
    let mut world = two_reservations();
    world.increase(GROUP_A, 1);
    world.pass();
    refuse(&mut world, "cr-9");
    assert_eq!(bought_from(&world.pass()), ["on-demand"]);
    assert!(world.memory.refused_areas.is_empty());
}
