//! Floors by quantile are of instance types: a node of another does not help what comes.

use super::*;
use crate::base::ids::NodeName;
use crate::policy::rules::warm_floor::{Arrivals, ByType, FloorMemory};
use crate::state::record::{Record, State};

/// A floor by quantile, whose history asks for so many nodes with one GPU and with four.
fn asking(small: u32, large: u32, change: impl FnOnce(&mut Policy)) -> World {
    let quantile = Quantile { p: None, window: minutes(2 * 24 * 60), horizon: Some(minutes(10)) };
    let mut world = with_book(with_large(2_000_000), |policy| {
        policy.pools[0].warm_floor = Some(WarmFloor { quantile: Some(quantile), ..WarmFloor::default() });
        change(policy);
    });
    let of = |name: &str, nodes: u32| (InstanceType::new(name).unwrap(), nodes);
    let by_type: ByType = [of("gpu.1", small), of("gpu.4", large)].into_iter().filter(|(_, nodes)| *nodes > 0).collect();
    let known = FloorMemory { by_type, ..FloorMemory::default() };
    world.memory.floors = [(PoolName::new("pool").unwrap(), Arc::new(known))].into();
    world
}

/// The first node of a group.
fn node_of(world: &World, group: &str) -> NodeName {
    let node = |record: &Arc<Record>| match &record.state {
        State::Registered { node, .. } => node.clone(),
        _ => None,
    };
    world.records(group).find_map(node).unwrap()
}

fn raised(world: &World) -> [u32; 2] {
    [GROUP_A, LARGE].map(|group| rise(world, group))
}

#[test]
fn each_instance_type_is_kept_in_the_number_that_its_own_history_asks_for() {
    let mut world = asking(2, 1, |_| ());
    world.pass();
    assert_eq!((stands(&world), raised(&world)), ((3, 0, 0), [2, 1]));
    // 2 × $0.80 and $2.
    assert_eq!(world.floor().usd_per_hour, UsdPerHour(3_600_000));
    settle(&mut world);
    assert_eq!((stands(&world), raised(&world)), ((3, 3, 0), [0, 0]));
    assert_eq!((world.target(GROUP_A), world.target(LARGE)), (2, 1));
}

#[test]
fn a_warm_node_of_one_type_does_not_stand_in_for_another() {
    let mut world = asking(1, 1, |_| ());
    settle(&mut world);
    assert_eq!(stands(&world), (2, 2, 0));
    // Two of the small ones are free, and the large one is taken.
    world.increase(GROUP_A, 1);
    settle(&mut world);
    let large = node_of(&world, LARGE);
    world.pods_on(large.as_str(), &["a/job"]);
    world.pass();
    assert_eq!((stands(&world), raised(&world)), ((2, 1, 0), [0, 1]));
    // The small one that is too many is not kept, though it costs least.
    assert_eq!(world.limits(GROUP_A).min, 1);
}

#[test]
fn other_parts_count_the_nodes_of_types_and_add_the_cheapest() {
    let mut world = asking(0, 1, |policy| policy.pools[0].warm_floor.as_mut().unwrap().nodes = 3);
    world.pass();
    assert_eq!((stands(&world), raised(&world)), ((3, 0, 0), [2, 1]));
    assert_eq!(world.floor().why, "nodes");
}

#[test]
fn off_hours_leave_the_cheapest_of_the_types_that_are_asked_for_and_no_other() {
    for (small, large, left) in [(1, 1, [1, 0]), (0, 2, [0, 1])] {
        let off = OffHours { slots: vec![slot("0 0 * * *", "UTC", 5)], max_nodes: Some(1), evict_held_after: None };
        let mut world = asking(small, large, |policy| policy.pools[0].off_hours = Some(off));
        world.pass();
        assert_eq!((stands(&world), raised(&world)), ((1, 0, 0), left));
    }
}

/// For a day one of each came in every ten minutes. A GPU of the large node costs less, the small node does.
#[test]
fn the_cheapest_of_types_is_the_cheapest_node() {
    let off = OffHours { slots: vec![slot("0 0 * * *", "UTC", 5)], max_nodes: Some(1), evict_held_after: None };
    let mut world = asking(0, 0, |policy| policy.pools[0].off_hours = Some(off));
    let mut history = Arrivals::default();
    for stretch in (1..=6 * 25).rev() {
        history.move_on(start() - minutes(10 * stretch), minutes(10), minutes(2 * 24 * 60));
        for name in ["gpu.1", "gpu.4"] {
            history.add(&InstanceType::new(name).unwrap());
        }
    }
    world.memory.floors =
        [(PoolName::new("pool").unwrap(), Arc::new(FloorMemory { history, ..FloorMemory::default() }))].into();
    world.pass();
    assert_eq!((stands(&world), raised(&world)), ((1, 0, 0), [1, 0]));
}

#[test]
fn a_closed_node_of_one_type_does_not_count_for_another() {
    let mut world = asking(1, 1, |_| ());
    settle(&mut world);
    let large = node_of(&world, LARGE);
    world.pods_on(large.as_str(), &["a/job"]);
    world.edit_node(&node_of(&world, GROUP_A), |node| node.cordon = Cordon::Theirs);
    world.pass();
    // The small one counts until it goes, and for small ones alone.
    assert_eq!((stands(&world), raised(&world)), ((2, 0, 0), [0, 1]));
}
