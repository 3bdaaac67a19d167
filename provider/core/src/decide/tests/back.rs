//! Back to spot when it pays.

use super::world::{GROUP_A, World, minutes};
use crate::back::{DWELL, Move, next_move};
use crate::choose::Scales;
use crate::group::Group;
use crate::memory::FIRST_BACKOFF;
use crate::spot::Saving;
use crate::supply::RefusalKind;
use crate::transfer::Transfer;
use crate::units::UsdMicros;
use crate::usage::Usage;

/// A world with on-demand nodes in zone a that were bought when neither zone had spot.
fn fallen_back(nodes: i32) -> World {
    let mut world = World::new();
    world.increase(GROUP_A, nodes);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    assert_eq!(World::launched_markets(&world.pass()), vec!["on-demand"; usize::try_from(nodes).unwrap()]);
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    // Zone b's spot is cheaper, and out of the way of these tests.
    world.policy(|policy| policy.pools[0].zones = ["zone-a".to_owned()].into());
    world.pass();
    world
}

fn next(world: &World, busy: bool) -> Option<Move> {
    let usage = Usage::count(&world.memory, &world.menu, world.now);
    let fresh = |_: &Group| true;
    let scales = Scales { menu: &world.menu, memory: &world.memory, usage: &usage, fresh: &fresh, now: world.now };
    next_move(&scales, &world.menu.policy.pools[0], |_| busy)
}

fn wait(world: &mut World, mins: i64) {
    world.advance(minutes(mins));
    world.observe();
    world.pass();
}

#[test]
fn a_node_moves_when_what_it_saves_outweighs_the_move() {
    let mut world = fallen_back(1);
    // Spot is $0.30 and worth $0.3273 (0.16 reclaims an hour), on demand it is $0.80: $0.4727 an hour. Ten minutes of two nodes cost
    // $0.05, which 6.35 minutes of service earn; the market must have been open for ten.
    let open = (FIRST_BACKOFF + DWELL).as_mins();
    wait(&mut world, open - 1);
    assert_eq!(next(&world, false), None);
    wait(&mut world, 1);
    let found = next(&world, false).expect("it pays");
    // 13 minutes: $0.472727 × 13 ÷ 60.
    assert_eq!((found.gain, found.cost), (UsdMicros(102_424), UsdMicros(50_000)));
    assert_eq!(found.market.to_string(), "aws/zone-a/gpu.1/spot");
}

/// A node away from its data reads it for $0.06, once a day $0.0025 an hour. The spot node that takes its place reads at once, and with
/// every reclaim: 0.16 × $0.06 + $0.0025 = $0.0121 an hour, so spot is worth ($0.30 + $0.0121) ÷ 0.9167 = $0.3405, and saves $0.4620.
#[test]
fn data_that_the_new_node_reads_is_a_cost_of_the_move() {
    let mut world = fallen_back(1);
    let away = |world: &mut World| {
        let transfer = Transfer { per_read: UsdMicros(60_000), every: minutes(24 * 60) };
        std::sync::Arc::make_mut(world.menu.groups.get_mut(&World::group(GROUP_A)).unwrap()).transfer = Some(transfer);
    };
    wait(&mut world, 13);
    assert!(next(&world, false).is_some());
    away(&mut world);
    // 13 min save $0.1001, and the move costs $0.05 + $0.06.
    assert_eq!(next(&world, false), None);
    wait(&mut world, 2);
    let found = next(&world, false).expect("15 min save $0.1155");
    assert_eq!((found.gain, found.cost), (UsdMicros(115_507), UsdMicros(110_000)));
}

#[test]
fn a_busy_node_moves_only_where_checkpoints_are_saved_and_its_lost_work_is_a_cost() {
    let mut world = fallen_back(1);
    wait(&mut world, 13);
    // 30 min ÷ 2 + 5 min of $0.80 an hour are $0.2667 more.
    assert_eq!(next(&world, true), None);
    wait(&mut world, 47);
    let found = next(&world, true).expect("an hour has earned $0.47");
    assert_eq!(found.cost, UsdMicros(50_000 + 266_667));
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().saving = Saving::Stateless);
    assert_eq!(next(&world, true), None);
    assert!(next(&world, false).is_some());
}

#[test]
fn a_node_is_not_expected_to_live_longer_on_spot_than_spot_lives() {
    let mut world = fallen_back(1);
    wait(&mut world, 60 * 24);
    // 0.16 reclaims an hour: 6 h 15 min.
    assert_eq!(next(&world, false).unwrap().gain, UsdMicros(2_954_544));
}

#[test]
fn nodes_move_one_by_one() {
    let mut world = fallen_back(2);
    wait(&mut world, 30);
    assert_eq!(next(&world, false).map(|m| m.record.0), Some(0), "of equals the oldest");
    world.increase(GROUP_A, 1);
    assert_eq!(next(&world, false), None, "while one is on its way, no other moves");
}

#[test]
fn a_pool_that_prefers_on_demand_stays_there() {
    let mut world = fallen_back(1);
    wait(&mut world, 30);
    world.policy(|policy| policy.pools[0].prefer.reverse());
    assert_eq!(next(&world, false), None);
}
