//! Floors that are asked for through buffers: the autoscaler buys for them as it does for pods.

use super::*;
use crate::decide::BARREN_AFTER;
use crate::plan::Note;

/// So many nodes are ordered as if for pods, and come; no pod does.
fn bought(world: &mut World, nodes: i32) {
    world.pass();
    world.increase(GROUP_A, nodes);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join_new();
    world.pass();
}

fn frozen(notes: &[Note]) -> bool {
    notes.iter().any(|note| matches!(note, Note::Frozen { .. }))
}

#[test]
fn free_nodes_of_a_floor_do_not_freeze_their_group_whoever_asked_for_them() {
    // Four asked where three are missing: the order is not for the floor alone.
    let mut world = with(nodes(3));
    bought(&mut world, 4);
    assert!(world.records(GROUP_A).all(|record| !record.floor));
    world.advance(BARREN_AFTER);
    world.observe();
    assert!(!frozen(&world.pass().notes));
    // Nor do they when the floor is over: they stood free for it.
    world.policy(|policy| policy.pools[0].warm_floor = Some(nodes(0)));
    world.advance(BARREN_AFTER);
    world.observe();
    assert!(!frozen(&world.pass().notes));
    assert!(world.limits(GROUP_A).closed.is_none(), "{:?}", world.limits(GROUP_A).closed);
    // Without a floor that wants any, they do.
    let mut world = with(nodes(0));
    bought(&mut world, 4);
    world.advance(BARREN_AFTER);
    world.observe();
    assert!(frozen(&world.pass().notes));
}

#[test]
fn taking_back_free_nodes_of_a_pool_with_a_floor_does_not_freeze_their_group() {
    for (floor, freezes) in [(Some(nodes(1)), false), (None, true)] {
        let mut world = with_policy(|policy| policy.pools[0].warm_floor = floor);
        for node in 0..3 {
            // Two at once, so that the order is for more than the floor lacks; of one order the first counts.
            bought(&mut world, 2);
            let names = [format!("node-{}", 2 * node), format!("node-{}", 2 * node + 1)];
            world.delete(GROUP_A, &names.each_ref().map(String::as_str)).unwrap();
            let notes = world.pass().notes;
            assert_eq!(frozen(&notes), freezes && node == 2, "{node}: {notes:?}");
            world.end_terminated();
            world.observe();
            world.leave();
            world.pass();
        }
    }
}
