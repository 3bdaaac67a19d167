//! Floors that are asked for through buffers: the autoscaler buys for them as it does for pods.

use super::*;
use crate::decide::UNUSED_AFTER;
use crate::plan::{Action, Note};
use crate::policy::rules::warm_floor::Mechanism;

/// So many nodes are ordered as if for pods, and come; no pod does.
fn bought(world: &mut World, nodes: i32) {
    world.pass();
    world.bring(nodes, jiff::SignedDuration::ZERO);
    world.pass();
}

fn suspended(notes: &[Note]) -> bool {
    notes.iter().any(|note| matches!(note, Note::Suspended { .. }))
}

#[test]
fn free_nodes_of_a_floor_do_not_suspend_their_group_whoever_asked_for_them() {
    // Four asked where three are missing: the order is not for the floor alone.
    let mut world = with(nodes(3));
    bought(&mut world, 4);
    assert!(world.records(GROUP_A).all(|record| !record.floor));
    world.advance(UNUSED_AFTER);
    world.observe();
    assert!(!suspended(&world.pass().notes));
    // Nor do they when the floor is over: they stood free for it.
    world.policy(|policy| policy.pools[0].warm_floor = Some(nodes(0)));
    world.advance(UNUSED_AFTER);
    world.observe();
    assert!(!suspended(&world.pass().notes));
    assert!(world.limits(GROUP_A).closed.is_none(), "{:?}", world.limits(GROUP_A).closed);
    // Without a floor that wants any, they do.
    let mut world = with(nodes(0));
    bought(&mut world, 4);
    world.advance(UNUSED_AFTER);
    world.observe();
    assert!(suspended(&world.pass().notes));
}

#[test]
fn taking_back_free_nodes_of_a_pool_with_a_floor_does_not_suspend_their_group() {
    for (floor, suspends) in [(Some(nodes(1)), false), (None, true)] {
        let mut world = with_policy(|policy| policy.pools[0].warm_floor = floor);
        for node in 0..3 {
            // Two at once, so that the order is for more than the floor lacks; of one order the first counts.
            bought(&mut world, 2);
            let names = [format!("node-{}", 2 * node), format!("node-{}", 2 * node + 1)];
            world.delete(GROUP_A, &names.each_ref().map(String::as_str)).unwrap();
            let notes = world.pass().notes;
            assert_eq!(suspended(&notes), suspends && node == 2, "{node}: {notes:?}");
            world.end_terminated();
            world.observe();
            world.leave();
            world.pass();
        }
    }
}

/// What has come in this stretch of the history.
fn arrived(world: &World) -> u64 {
    let known = world.memory.floors.values().next().unwrap();
    serde_json::to_value(&known.history).unwrap()["open"]["arrived"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(serde_json::Value::as_u64)
        .sum()
}

#[test]
fn what_buffers_order_is_no_arrival_and_each_pod_is_one() {
    let quantile = Quantile { p: Some(Percent(90)), window: minutes(2 * 24 * 60), horizon: Some(minutes(60)) };
    let floor = WarmFloor { quantile: Some(quantile), mechanism: Mechanism::CapacityBuffer, ..nodes(2) };
    let mut world = with(floor);
    world.buffers = Some(true);
    // The first two for the floor.
    bought(&mut world, 2);
    assert_eq!((stands(&world).1, world.limits(GROUP_A).min, arrived(&world)), (2, 0, 0));
    // A pod takes one, which is bought again.
    world.pods_on("node-0", &["a/one"]);
    world.pass();
    assert_eq!(arrived(&world), 1);
    bought(&mut world, 1);
    assert_eq!((stands(&world).1, arrived(&world)), (2, 1));
    // It goes, and another comes to the same node: that is an arrival like any.
    world.pods_on("node-0", &[]);
    world.pass();
    world.pods_on("node-0", &["a/two"]);
    world.pass();
    assert_eq!(arrived(&world), 2);
    // One has its pod before it was ever seen free.
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join_new();
    world.pods_on("node-3", &["a/three"]);
    world.pass();
    assert_eq!(arrived(&world), 3);
    // Without buffers what is ordered for pods counts, and their coming does not.
    world.buffers = Some(false);
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!(arrived(&world), 4);
}

#[test]
fn which_nodes_a_buffer_keeps_is_the_autoscalers_choice() {
    let floor = |mechanism| WarmFloor { mechanism, ..nodes(2) };
    for (mechanism, min, kept) in [(Mechanism::MinSize, 2, 2), (Mechanism::CapacityBuffer, 0, 0)] {
        let mut world = with(floor(mechanism));
        world.buffers = Some(true);
        bought(&mut world, 3);
        // Of three free nodes whose windows are over the floor keeps two.
        world.advance(minutes(1));
        world.observe();
        let actions = world.pass().actions;
        let holds = actions.iter().filter(|action| matches!(action, Action::Hold { .. })).count();
        assert_eq!((stands(&world).1, world.limits(GROUP_A).min, holds), (3, min, kept), "{mechanism:?}");
    }
}

#[test]
fn until_it_is_known_whether_buffers_are_served_nothing_is_asked_for_twice() {
    let mut world = with(WarmFloor { mechanism: Mechanism::CapacityBuffer, ..nodes(2) });
    world.buffers = None;
    world.pass();
    assert_eq!((stands(&world).0, world.limits(GROUP_A).min), (2, 0));
    world.buffers = Some(false);
    world.pass();
    assert_eq!(world.limits(GROUP_A).min, 2);
}

/// What the autoscaler asks for through buffers it cannot have while every group is closed, and somebody may want to know why.
#[test]
fn a_floor_of_buffers_that_cannot_be_bought_says_why() {
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(WarmFloor { mechanism: Mechanism::CapacityBuffer, ..nodes(2) });
        policy.pools[0].limits.max_nodes = 1;
    });
    world.buffers = Some(true);
    world.pass();
    assert_eq!(world.floor().blocked, None);
    world.increase(GROUP_A, 1);
    world.pass();
    let blocked = world.floor().blocked.clone();
    assert!(blocked.as_ref().is_some_and(|why| why.starts_with("limits.maxNodes: 1 of 1 nodes in use")), "{blocked:?}");
}
