//! Zone spread: how the share of one zone binds, and that a plan beyond it does not pass.

use super::oracle::Dice;
use super::world::{GROUP_A, GROUP_B, World};
use super::*;
use crate::base::engine_clock::Times;
use crate::base::ids::PoolName;
use crate::base::units::Percent;
use crate::choose::candidate::OfferVerdict;
use crate::choose::what_if::what_if;
use crate::market::offer::CapacityType;

/// A world whose pool may have so much of its nodes in one zone.
fn spread(percent: u8) -> World {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].max_zone_share = (percent < 100).then_some(Percent(percent));
        policy.pools[0].limits.max_nodes = 60;
        policy.pools[0].limits.max_usd_per_hour = None;
        policy.quotas.clear();
    });
    world.pass();
    world
}

/// How many nodes of a group can be bought when so many are asked for at once; none where the order is refused.
fn buys(world: &mut World, group: &str, nodes: u32) -> u32 {
    if world.try_increase(group, i32::try_from(nodes).unwrap()).is_err() {
        return 0;
    }
    let plan = world.pass();
    let bought = World::launched_markets(&plan).len();
    world.answer(|_| true);
    world.pass();
    u32::try_from(bought).unwrap()
}

fn max(world: &mut World, group: &str) -> u32 {
    let plan = world.pass();
    plan.limits[&World::group(group)].max
}

#[test]
fn half_in_a_zone_grows_two_zones_in_turn() {
    let mut world = spread(50);
    // The first node can always be bought, the second only in the other zone.
    assert_eq!((max(&mut world, GROUP_A), max(&mut world, GROUP_B)), (1, 1));
    assert_eq!(buys(&mut world, GROUP_A, 1), 1);
    let refused = world.try_increase(GROUP_A, 1).unwrap_err().to_string();
    assert!(refused.contains("where.maxZoneShare 50%: 1 of 1 nodes are in zone zone-a"), "{refused}");
    // Of three, rounded up, two may be in one zone.
    assert_eq!((max(&mut world, GROUP_A), max(&mut world, GROUP_B)), (1, 2));
    assert_eq!(buys(&mut world, GROUP_B, 2), 2);
    assert_eq!(buys(&mut world, GROUP_A, 1), 1);
}

#[test]
fn capacity_types_of_one_zone_count_together() {
    let mut world = spread(50);
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::OnDemand]);
    world.pass();
    assert_eq!(buys(&mut world, GROUP_A, 1), 1);
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::Spot]);
    assert_eq!(max(&mut world, GROUP_A), 1);
}

#[test]
fn what_is_asked_of_the_pool_is_spread_evenly() {
    let world = spread(50);
    let told = what_if(&world.catalogue, &world.memory, &PoolName::new("pool").unwrap(), None, 6, Times::at(world.now));
    let mut zones = std::collections::BTreeMap::new();
    for candidate in &told.candidates {
        if let OfferVerdict::Chosen { nodes } = candidate.verdict {
            *zones.entry(candidate.market.place.zone.to_string()).or_insert(0) += nodes;
        }
    }
    assert_eq!(zones, [("zone-a".to_owned(), 3), ("zone-b".to_owned(), 3)].into());
}

#[test]
fn zones_are_filled_as_trying_node_by_node_does() {
    for seed in 1..=500_u64 {
        let mut dice = Dice::new(seed);
        let share = dice.roll(100) + 1;
        let mut world = spread(u8::try_from(share).unwrap());
        let (mut held, mut nodes) = ([0_u64; 2], 0_u64);
        for _ in 0..=dice.roll(6) {
            let zone = usize::try_from(dice.roll(2)).unwrap();
            let asked = dice.roll(5) + 1;
            // The oracle: one more at a time, as long as the zone then has no more than its share, rounded up.
            let fits = |m: u64| held[zone] + m <= (share * (nodes + m)).div_ceil(100);
            let room = (1..=60).take_while(|m| fits(*m)).count() as u64;
            let got = buys(&mut world, [GROUP_A, GROUP_B][zone], u32::try_from(asked).unwrap());
            // An order beyond the room is refused whole.
            let expected = if asked <= room { asked } else { 0 };
            assert_eq!(u64::from(got), expected, "seed {seed}: {asked} in zone {zone} at {share}%, {held:?} held");
            held[zone] += expected;
            nodes += expected;
        }
    }
}

/// Both zones have the same model: it is the model that is limited, and not the zone.
#[test]
fn a_model_has_no_more_than_its_share_of_the_pool() {
    let mut world = spread(100);
    world.policy(|policy| {
        let model = policy.pools[0].models.first().unwrap().clone();
        policy.pools[0].max_model_share = [(model, Percent(50))].into();
    });
    world.pass();
    assert_eq!((max(&mut world, GROUP_A), max(&mut world, GROUP_B)), (1, 1));
    assert_eq!(buys(&mut world, GROUP_A, 1), 1);
    let refused = world.try_increase(GROUP_B, 1).unwrap_err().to_string();
    assert!(refused.contains("gpu.maxShare 50% of L4: 1 of 1 nodes have L4"), "{refused}");
}

#[test]
fn a_plan_with_more_in_a_zone_than_the_share_does_not_pass_the_check() {
    let mut world = World::new();
    world.increase(GROUP_A, 2);
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    let before = world.memory.clone();
    world.policy(|policy| policy.pools[0].max_zone_share = Some(Percent(50)));
    let faults = world.checked(decision, &before, &world.snapshot()).findings;
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["pool pool would have 2 of 2 nodes in aws/r/zone-a, more than 50%"]);
}
