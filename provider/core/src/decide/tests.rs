//! One pass at a time, over a small world: two zones, one type, spot and on-demand.

mod alarms;
mod back;
mod budgets;
mod caution;
mod clock;
mod commitments;
mod contained;
mod filling;
mod floors;
mod foreign;
mod held;
mod images;
mod leave;
mod leftovers;
mod listings;
mod oracle;
mod orders;
mod outage;
mod outdated;
mod promised;
mod quotas;
mod reclaimed;
mod scopes;
mod spot;
mod supply;
mod tell;
mod unhealthy;
mod verdicts;
mod windows;
mod world;
mod zones;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::base::ids::RecordId;
use crate::facts::snapshot::Hold;
use crate::facts::supply::{InstanceState, RefusalKind};
use crate::limits::usage::Usage;
use crate::plan::{Action, Checked, Closed, Ending, Note};
use crate::state::memory::FIRST_BACKOFF;
use crate::state::record::{PodsSeen, Record, State};
use world::{GROUP_A, GROUP_B, World, minutes, seconds};

#[test]
fn the_preferred_capacity_type_is_bought_and_the_choice_explained() {
    let mut world = World::new();
    world.increase(GROUP_A, 2);
    let plan = world.pass();
    let markets: Vec<_> = World::launched_markets(&plan);
    assert_eq!(markets, ["spot", "spot"]);
    let explanation = &plan.explanations[0];
    assert_eq!((explanation.asked, explanation.found), (2, 2));
    let told: Vec<String> =
        explanation.candidates.iter().map(|c| format!("{}: {}", c.market.capacity_type, c.verdict)).collect();
    assert_eq!(told, ["spot: CHOSEN × 2", "on-demand: the pool prefers spot"]);
}

#[test]
fn a_refusal_falls_back_to_the_next_capacity_type_in_the_same_order() {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), ["on-demand"]);
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn an_order_whose_spot_is_refused_is_for_another_zone_that_has_spot_before_it_is_for_on_demand() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), [""; 0]);
    assert!(matches!(plan.notes[..], [Note::OrderFailed { nodes: 1, .. }]), "{:?}", plan.notes);
    // The autoscaler asks the zone whose next node is cheapest now.
    let next = |group| plan.limits[&World::group(group)].next_price;
    assert!(next(GROUP_B) < next(GROUP_A));
    world.increase(GROUP_B, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    world.answer(|_| true);
    world.pass();
    // A pod that can only run in zone a asks again, and gets its node while that zone's spot is known to be shut.
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
}

#[test]
fn nothing_had_leaves_placeholders_with_an_error_and_a_closed_group() {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 2);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    let plan = world.pass();
    let failed =
        world.records(GROUP_A).filter(|r| matches!(r.state, State::Failed { kind: RefusalKind::OutOfCapacity, .. })).count();
    assert_eq!(failed, 2, "{:?}", world.memory.records);
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!((limits.target, limits.max), (2, 2));
    assert!(matches!(limits.closed, Some(Closed::Offers(_))));
}

#[test]
fn a_part_had_drops_the_rest_without_an_error() {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 3);
    world.pass();
    world.answer(|n| n == 0);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    let plan = world.pass();
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!((limits.target, limits.max), (1, 1), "{:?}", plan.notes);
    assert!(plan.notes.iter().any(|n| matches!(n, Note::OrderShort { nodes: 2, .. })));
    assert!(!world.records(GROUP_A).any(|r| matches!(r.state, State::Failed { .. })));
}

#[test]
fn a_market_that_refused_is_tried_again_by_one_launch_after_its_time() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.advance(FIRST_BACKOFF);
    world.observe();
    world.increase(GROUP_A, 1);
    let plan = world.pass();
    assert_eq!(World::launched_markets(&plan), ["spot"], "a half-open trial");
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    let backoff = world.memory.refused.values().find(|b| b.refusals == 2).unwrap();
    assert_eq!(backoff.until.duration_since(backoff.since), FIRST_BACKOFF * 2);
}

#[test]
fn an_unclear_answer_is_asked_again_with_the_same_key() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    let first = world.pass();
    world.unclear();
    let second = world.pass();
    assert!(World::launched_keys(&second).is_empty(), "not at once");
    world.advance(seconds(6));
    let third = world.pass();
    assert_eq!(World::launched_keys(&first), World::launched_keys(&third));
}

#[test]
fn a_launch_whose_answer_was_lost_is_found_in_the_inventory() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    world.pass();
    world.make_silently();
    world.observe();
    world.pass();
    assert!(world.records(GROUP_A).all(|r| matches!(r.state, State::Booting { .. })));
}

#[test]
fn a_machine_that_does_not_join_becomes_an_error_and_is_ended() {
    let mut world = World::with_node(GROUP_A, false);
    world.advance(minutes(10));
    world.observe();
    let plan = world.pass();
    let record = world.records(GROUP_A).next().unwrap();
    assert!(matches!(record.state, State::Failed { kind: RefusalKind::BootTimeout, .. }), "{record:?}");
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Terminate { why: Ending::BootTimeout, .. })));
    // The autoscaler deletes the errored id: the target falls once, however often it asks.
    let shown = record.shown_id().to_string();
    world.delete(GROUP_A, &[&shown]).unwrap();
    world.delete(GROUP_A, &[&shown]).unwrap();
    assert_eq!(world.target(GROUP_A), 0);
}

#[test]
fn a_market_whose_machines_do_not_boot_is_tried_by_one_until_that_has_joined() {
    let mut world = World::with_node(GROUP_A, false);
    world.advance(minutes(10));
    world.observe();
    world.pass();
    // Both capacity types of the group, so that nothing else is bought.
    world.policy(|policy| policy.pools[0].prefer.truncate(1));
    world.advance(minutes(4));
    world.observe();
    let open = world.pass();
    let room = |plan: &Plan<Checked>| {
        let limits = &plan.limits[&World::group(GROUP_A)];
        limits.max - limits.target
    };
    assert_eq!(room(&open), 1, "one launch may try");
    world.increase(GROUP_A, 1);
    world.pass();
    world.start_launches();
    world.answer(|_| true);
    let booting = world.pass();
    assert_eq!(room(&booting), 0, "sold, but selling was never its trouble");
}

#[test]
fn a_late_machine_beside_others_on_their_way_goes_without_an_error() {
    let mut world = World::with_node(GROUP_A, false);
    world.advance(minutes(9));
    world.observe();
    world.pass();
    world.increase(GROUP_A, 1);
    world.pass();
    world.start_launches();
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(2));
    world.observe();
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 1, "the other is still counted on");
    assert!(!world.records(GROUP_A).any(|r| matches!(r.state, State::Failed { .. })));
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Terminate { .. })));
}

#[test]
fn a_reload_with_a_shorter_deadline_ends_no_machine_that_boots() {
    let mut world = World::with_node(GROUP_A, false);
    world.policy(|policy| policy.boot_deadline = minutes(2));
    world.advance(minutes(5));
    world.observe();
    world.pass();
    assert!(world.records(GROUP_A).all(|r| matches!(r.state, State::Booting { .. })), "it had 10 min when it was bought");
}

#[test]
fn a_node_that_pods_hold_is_held_and_released_when_they_go() {
    let mut world = World::with_node(GROUP_A, true);
    world.bind_pod();
    let plan = world.pass();
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Hold { .. })));
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!((limits.min, limits.busy), (1, 1));
    world.mark_node(Hold::Ours);
    assert!(world.pass().actions.is_empty(), "held already");
    world.unbind_pod();
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Release { .. })));
    world.mark_node(Hold::Theirs);
    assert!(world.pass().actions.is_empty(), "a user's own annotation is never touched");
}

#[test]
fn a_busy_node_is_not_deleted() {
    let mut world = World::with_node(GROUP_A, true);
    world.bind_pod();
    world.pass();
    let node = world.node_name();
    let refused = world.delete(GROUP_A, &[&node]).unwrap_err();
    assert_eq!(refused.to_string(), format!("{node} is busy: default/pod uses its GPUs"));
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn capacity_that_a_new_session_does_not_know_of_closes_every_group_its_pods_could_use() {
    let mut world = World::with_node(GROUP_A, false);
    let before = world.pass();
    assert!(before.limits[&World::group(GROUP_A)].closed.is_none());
    crate::decide::orders::begin_session(&mut world.memory);
    let plan = world.pass();
    for group in [GROUP_A, GROUP_B] {
        let limits = &plan.limits[&World::group(group)];
        assert_eq!(limits.max, limits.target);
        assert!(matches!(limits.closed, Some(Closed::Uncredited { nodes: 1 })), "{limits:?}");
    }
    world.join(true);
    let after = world.pass();
    assert!(after.limits[&World::group(GROUP_A)].closed.is_none(), "open again once the node is Ready");
}

#[test]
fn a_lost_machine_lowers_the_target_and_its_node_goes() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(minutes(5));
    world.lose_machine();
    world.observe();
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 0);
    assert!(plan.notes.iter().any(|n| matches!(n, Note::Lost { .. })));
    assert!(plan.actions.iter().any(|a| matches!(a, Action::RemoveNode { .. })));
    assert!(!plan.actions.iter().any(|a| matches!(a, Action::Launch { .. })), "not refilled behind the autoscaler's back");
}

#[test]
fn an_incomplete_inventory_says_nothing_about_what_it_leaves_out() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(minutes(5));
    world.lose_machine();
    world.observe_partly();
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 1);
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!(limits.max, limits.target, "and stops the growth of the supplier's groups");
}

#[test]
fn a_machine_of_ours_without_a_record_is_adopted() {
    let mut world = World::with_node(GROUP_A, true);
    let lost = std::mem::take(&mut world.memory);
    let plan = world.pass();
    assert!(plan.notes.iter().any(|n| matches!(n, Note::Adopted { .. })));
    assert_eq!(world.target(GROUP_A), 1);
    assert!(world.memory.next_record >= lost.next_record, "its number is never given again");
}

#[test]
fn a_launch_cancelled_under_way_ends_the_machine_when_it_appears() {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    world.pass();
    world.start_launches();
    world.decrease(GROUP_A, -1);
    assert_eq!(world.target(GROUP_A), 0);
    world.answer(|_| true);
    let plan = world.pass();
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Terminate { why: Ending::Deleted, .. })));
    world.lose_machine();
    world.advance(seconds(31));
    world.observe();
    world.pass();
    assert!(world.memory.records.is_empty());
}

#[test]
fn three_nodes_in_a_row_without_a_pod_suspend_the_group() {
    let mut world = World::new();
    world.increase(GROUP_A, 3);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.join(true);
    world.pass();
    world.advance(UNUSED_AFTER);
    world.observe();
    let plan = world.pass();
    assert!(plan.notes.iter().any(|n| matches!(n, Note::Suspended { nodes: 3, .. })), "{:?}", plan.notes);
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!(limits.max, limits.target);
    assert!(world.records(GROUP_A).all(|r| r.pods == PodsSeen::TooLate));
    world.bind_pod();
    let plan = world.pass();
    assert!(plan.notes.iter().any(|n| matches!(n, Note::Resumed { .. })));
}

#[test]
fn the_floor_is_asked_for_where_it_is_cheapest_and_kept_where_nodes_are() {
    let mut world = World::new();
    world.policy(|policy| policy.pools[0].limits.min_nodes = 2);
    let plan = world.pass();
    // Zone b's spot is cheaper.
    assert_eq!(plan.limits[&World::group(GROUP_B)].min, 2);
    assert_eq!(plan.limits[&World::group(GROUP_A)].min, 0);
    world.increase(GROUP_A, 1);
    let plan = world.pass();
    assert_eq!(plan.limits[&World::group(GROUP_A)].min, 1);
    assert_eq!(plan.limits[&World::group(GROUP_B)].min, 1);
}

#[test]
fn a_removed_pool_is_listed_closed_until_it_is_empty() {
    let mut world = World::with_node(GROUP_A, true);
    world.policy(|policy| policy.pools[0].name = crate::base::ids::PoolName::new("other").unwrap());
    let plan = world.pass();
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert!(limits.listed && limits.target == 1 && limits.max == 1);
    assert!(!plan.actions.iter().any(|a| matches!(a, Action::Terminate { .. })), "a reload never ends a node by itself");
}

#[test]
fn the_same_inputs_give_the_same_decision() {
    let mut world = World::with_node(GROUP_A, true);
    world.increase(GROUP_B, 3);
    let one = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    let two = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    assert_eq!(one, two);
    assert!(one.next_change_at.is_some_and(|at| at > world.now));
}

#[test]
fn a_stopping_machine_is_not_ended_again() {
    let mut world = World::with_node(GROUP_A, true);
    let node = world.node_name();
    world.delete(GROUP_A, &[&node]).unwrap();
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Terminate { why: Ending::Deleted, .. })));
    world.set_machine_state(InstanceState::Stopping);
    world.observe();
    assert!(!world.pass().actions.iter().any(|a| matches!(a, Action::Terminate { .. })));
}
