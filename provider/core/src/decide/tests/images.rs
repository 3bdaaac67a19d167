//! Which images are remembered of whom.

use super::*;
use crate::base::ids::NodeName;
use crate::facts::images::{ImageId, List, NodeImages, Pulled, pulled};
use crate::policy::rules::warm_floor::{WarmFloor, WarmWhen};

/// The facts, in which the one node runs that image and has no other.
fn snapshot(world: &World, image: &str) -> Snapshot {
    let used = [ImageId::of(image)];
    let images = NodeImages { has: used.into(), runs: used.into(), list: List::Whole };
    Snapshot { images: [(NodeName::new(world.node_name()).unwrap(), Arc::new(images))].into(), ..world.snapshot() }
}

fn world_that_asks() -> World {
    let mut world = World::with_node(GROUP_A, true);
    world.policy(|policy| {
        policy.pools[0].warm_floor = Some(WarmFloor { nodes: 1, warm_when: WarmWhen::ImagesPulled, ..WarmFloor::default() });
    });
    world
}

#[test]
fn images_are_remembered_for_pools_that_ask_for_them_and_judged_by_the_next_node() {
    let mut world = world_that_asks();
    let facts = snapshot(&world, "train:1");
    world.memory = decide(&facts, &world.memory, &world.catalogue, world.now).memory;
    let known = world.memory.images.values().next().unwrap();
    assert_eq!(known.images().collect::<Vec<_>>(), [ImageId::of("train:1")]);
    let bare = NodeImages { list: List::Whole, ..NodeImages::default() };
    assert_eq!(pulled(Some(&bare), Some(known)), Pulled::Missing(1));
    // The same again within ten minutes is no news: nothing of it is written.
    let later = world.now + minutes(9);
    assert!(Arc::ptr_eq(decide(&facts, &world.memory, &world.catalogue, later).memory.images.values().next().unwrap(), known));
}

#[test]
fn a_pool_that_no_longer_asks_is_forgotten() {
    let mut world = world_that_asks();
    let facts = snapshot(&world, "train:1");
    world.memory = decide(&facts, &world.memory, &world.catalogue, world.now).memory;
    world.policy(|policy| policy.pools[0].warm_floor = None);
    assert!(decide(&facts, &world.memory, &world.catalogue, world.now).memory.images.is_empty());
}

#[test]
fn a_free_node_that_waits_for_images_is_kept_once_and_told() {
    let mut world = world_that_asks();
    world.policy(|policy| {
        policy.pools[0].stabilization = Some(crate::policy::rules::stabilization::Stabilization::of(policy.pools[0].workload))
    });
    let facts = snapshot(&world, "train:1");
    world.memory = decide(&facts, &world.memory, &world.catalogue, world.now).memory;
    // A second one of the group boots, for pods.
    world.increase(GROUP_A, 1);
    world.pass();
    let bare = NodeImages { list: List::Whole, ..NodeImages::default() };
    let images = [(NodeName::new(world.node_name()).unwrap(), Arc::new(bare))].into();
    let facts = Snapshot { images, ..world.snapshot() };
    let plan = decide(&facts, &world.memory, &world.catalogue, world.now).plan;
    let (limits, floor) = (&plan.limits[&World::group(GROUP_A)], &plan.accounts.floors[0]);
    assert_eq!((floor.warm, floor.coming, floor.blocked.as_deref()), (0, 1, Some("1 node waits for images")));
    // The one that waits, and not the other.
    assert_eq!((limits.target, limits.min), (2, 1));
}
