//! What of a floor goes back to spot.

use super::super::back::fallen_back;
use super::*;
use crate::plan::Action;
use crate::state::disruption::PAUSE;

/// So many free nodes on demand in a pool with that floor, at the moment at which the first begins to go back to spot, or after 80 min in which
/// none does; those that go then.
fn free_again(there: i32, floor: Option<WarmFloor>) -> (World, Vec<String>) {
    let mut world = fallen_back(there);
    world.policy(|policy| policy.pools[0].warm_floor = floor);
    world.unbind_pod();
    for _ in 0..480 {
        world.advance(seconds(10));
        world.observe();
        let going = closing(&world.pass().actions);
        if !going.is_empty() {
            return (world, going);
        }
    }
    (world, Vec::new())
}

fn closing(actions: &[Action]) -> Vec<String> {
    let node = |action: &Action| if let Action::Drain { node, .. } = action { Some(node.to_string()) } else { None };
    actions.iter().filter_map(node).collect()
}

/// How many of those that go are surplus, and how many the floor waits for.
fn surplus_and_wanted(world: &World) -> (usize, usize) {
    let wanted = world.memory.disruptions.values().filter(|disruption| disruption.moves_work()).count();
    (world.memory.disruptions.len() - wanted, wanted)
}

#[test]
fn what_a_floor_does_not_want_goes_back_to_spot_at_once() {
    let half = WarmFloor { percent_of_busy: Some(Percent(50)), ..nodes(0) };
    let cases =
        [(None, (4, 0)), (Some(half), (4, 0)), (Some(nodes(1)), (3, 1)), (Some(nodes(3)), (1, 1)), (Some(nodes(9)), (0, 0))];
    for (floor, going) in cases {
        let (world, drained) = free_again(4, floor);
        assert_eq!((surplus_and_wanted(&world), drained.len()), (going, going.0 + going.1));
    }
}

/// What is wanted in the pass in which nodes go counts, and not what was wanted before: the checker goes by that.
#[test]
fn what_a_floor_wants_from_this_pass_on_does_not_go_at_once() {
    let signals = WarmFloor { signals: true, ..WarmFloor::default() };
    let mut world = fallen_back(4);
    world.policy(|policy| policy.pools[0].warm_floor = Some(signals));
    world.unbind_pod();
    let before = loop {
        world.advance(seconds(10));
        world.observe();
        let before = world.clone();
        if !closing(&world.pass().actions).is_empty() {
            break before;
        }
    };
    assert_eq!(surplus_and_wanted(&world), (4, 0));
    let mut world = before;
    says(&mut world, SignalLevel::Known { amount: Amount(0), replicas: 3, at: start() });
    world.pass();
    assert_eq!(surplus_and_wanted(&world), (1, 1));
}

#[test]
fn what_a_floor_wants_goes_back_to_spot_one_by_one() {
    let (mut world, going) = free_again(2, Some(nodes(2)));
    assert_eq!((surplus_and_wanted(&world), going), ((0, 1), vec!["node-0".to_owned()]));
    world.drain(None);
    world.live(seconds(15));
    assert_eq!(world.target(GROUP_A), 1);
    // Its successor boots, far longer than work pauses for: the floor lacks one, and the other stays.
    world.pass();
    world.enforce_minimums();
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    world.answer(|_| true);
    world.pass();
    world.live(PAUSE + minutes(6));
    assert_eq!((world.target(GROUP_A), world.memory.disruptions.len()), (2, 0));
    // It is there: the other may go.
    world.observe();
    world.join_new();
    world.pass();
    assert_eq!(stands(&world), (2, 2, 0));
    let mut going = Vec::new();
    for _ in 0..60 {
        world.advance(seconds(10));
        world.observe();
        going.extend(closing(&world.pass().actions));
        world.drain(None);
        world.end_terminated();
    }
    going.dedup();
    assert_eq!(going, ["node-1"]);
}
