//! What a refusal closes: what it names, once for all groups that it concerns, and nothing wider.

use super::world::{GROUP_A, GROUP_B, World, minutes};
use crate::facts::supply::{RefusalKind, RefusalScope};

/// What the plan launches: each one's zone and capacity type.
fn launched(world: &mut World) -> Vec<String> {
    let plan = world.pass();
    let markets = World::launched_in(&plan);
    markets.iter().map(|market| format!("{} {}", market.place.zone, market.capacity_type)).collect()
}

/// One node of a group is ordered, and spot of it refused.
fn refused(scope: &RefusalScope) -> World {
    let mut world = World::new();
    world.increase(GROUP_A, 1);
    assert_eq!(launched(&mut world), ["zone-a spot"]);
    world.refuse_scope(RefusalKind::OutOfCapacity, scope, None);
    world
}

#[test]
fn a_refusal_closes_what_it_names_and_nothing_wider() {
    for (scope, open, bought) in [
        (RefusalScope::Market, 2, &["zone-a on-demand", "zone-b spot"][..]),
        (RefusalScope::TypeInZone, 1, &["zone-b spot"]),
        (RefusalScope::Zone, 1, &["zone-b spot"]),
        // Nowhere is spot left for the first order, so it is on demand too.
        (RefusalScope::CapacityTypeInRegion, 2, &["zone-a on-demand", "zone-a on-demand", "zone-b on-demand"]),
        (RefusalScope::Quota("Q-SPOT".to_owned()), 2, &["zone-a on-demand", "zone-a on-demand", "zone-b on-demand"]),
        // Nobody knows this quota, and the other does not count spot.
        (RefusalScope::Quota("Q-ALL".to_owned()), 2, &["zone-a on-demand", "zone-b spot"]),
        (RefusalScope::Quota("Q-OD".to_owned()), 2, &["zone-a on-demand", "zone-b spot"]),
        (RefusalScope::Region, 0, &[]),
        (RefusalScope::Account, 0, &[]),
    ] {
        let mut world = refused(&scope);
        world.pass();
        // A group that can buy nothing is closed.
        let accepted = [GROUP_A, GROUP_B].map(|group| world.try_increase(group, 1).is_ok());
        assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), open, "{scope:?}");
        assert_eq!(launched(&mut world), bought, "{scope:?}");
    }
}

#[test]
fn one_launch_tries_all_of_an_area_and_a_sale_opens_it() {
    let mut world = refused(&RefusalScope::Region);
    world.pass();
    world.advance(minutes(4));
    world.observe();
    world.pass();
    for group in [GROUP_A, GROUP_B] {
        world.increase(group, 1);
    }
    assert_eq!(launched(&mut world).len(), 1, "both zones are of that region");
    world.answer(|_| true);
    assert_eq!(launched(&mut world).len(), 1, "the region sells, and the other order has its turn");
    assert!(world.memory.refused_areas.is_empty());
}

#[test]
fn a_supplier_is_left_alone_for_as_long_as_it_asks_and_no_longer_than_a_day() {
    for (asked_for, waits) in [(1, 3), (20, 20), (100_000, 24 * 60)] {
        let mut world = World::new();
        world.increase(GROUP_A, 1);
        world.pass();
        let from = world.now;
        world.refuse_scope(RefusalKind::OutOfCapacity, &RefusalScope::Zone, Some(minutes(asked_for)));
        world.pass();
        let until = world.memory.refused_areas.values().next().unwrap().until;
        assert_eq!(until.duration_since(from), minutes(waits));
    }
}
