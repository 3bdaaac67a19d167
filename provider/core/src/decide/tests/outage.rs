//! A region that its supplier cannot list for ten minutes: nothing of it is lost or bought twice, and the others buy on.

use std::sync::Arc;

use super::world::{self, GROUP_A, World, minutes, seconds, start};
use crate::base::ids::Region;
use crate::market::offer::{CapacityType, Market};
use crate::market::price::{Entry, Quote, QuoteKind};
use crate::plan::Action;

/// The group of the far region.
const FAR: &str = "pool.gpu-1.zone-c";

/// A world of two regions.
fn world() -> World {
    let mut policy = world::policy();
    policy.pools[0].regions.insert(far());
    let mut book = world::book(start());
    for capacity_type in CapacityType::ALL {
        let price = crate::base::units::UsdPerHour(900_000);
        let quote = Quote { price, kind: QuoteKind::List, as_of: Some(start()), source: Arc::from("test") };
        book.insert(Market { place: place(), capacity_type }, Entry::Price(quote));
    }
    World::over(policy, book)
}

fn far() -> Region {
    Region::new("far").unwrap()
}

fn place() -> crate::market::offer::Place {
    crate::market::offer::Place { region: far(), ..world::place("zone-c") }
}

#[test]
fn a_region_that_is_not_listed_loses_nothing_buys_nothing_twice_and_holds_no_other_up() {
    let mut world = world();
    for group in [GROUP_A, FAR] {
        world.increase(group, 1);
    }
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.pass();
    // Its next machine is made, and nobody hears of it.
    world.increase(FAR, 1);
    let keys = World::launched_keys(&world.pass());
    assert_eq!(keys.len(), 1);
    world.make_silently();
    let (down, listed) = (world.now, world.inventory.instances.clone());

    let mut near = 0;
    while world.now < down + minutes(10) {
        world.advance(seconds(30));
        world.observe();
        world.covers([(world::place("zone-a").region, world.now), (far(), down)]);
        world.inventory.instances.retain(|id, made| made.market.place.region != far() || listed.contains_key(id));
        world.join_new();
        if world.try_increase(GROUP_A, 1).is_ok() {
            near += 1;
        }
        let plan = world.pass();
        let ends = plan.actions.iter().any(|action| matches!(action, Action::Terminate { .. }));
        assert!(!ends, "{:?}", plan.actions);
        // What was asked there once is asked again by the same key, which makes no second machine.
        let asked = World::launched_keys(&plan).into_iter().zip(World::launched_in(&plan));
        for (key, _) in asked.filter(|(_, market)| market.place.region == far()) {
            assert_eq!(key, keys[0], "something new is bought where nothing is seen");
        }
        world.answer(|_| true);
    }
    assert!(near >= 5, "the other region took {near} orders");
    assert_eq!((world.target(GROUP_A), world.target(FAR)), (1 + near, 2));

    world.advance(seconds(30));
    world.observe();
    world.join_new();
    world.pass();
    assert_eq!(World::launched_keys(&world.pass()), []);
    let there = world.machines.values().filter(|made| made.market.place.region == far()).count();
    assert_eq!((world.target(FAR), there), (2, 2), "the machine that nobody heard of is found, and no other was bought");
    assert!(world.records(FAR).all(|record| record.instance().is_some()));
}
