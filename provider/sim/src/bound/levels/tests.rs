//! The optimum beside a dynamic program over all fleets, and worked by hand.

use super::*;
use crate::world::draw::Seed;

const HOUR: UsdPerHour = UsdPerHour(3_000_000);

/// The cheapest way to have at least the needed nodes on in every step, over all numbers of nodes in every step.
fn over_all_fleets(demand: &Replicas, node: &Node) -> i64 {
    let peak = *demand.needed.iter().max().unwrap();
    let (step, boot) = (i64::from(demand.step_seconds), i64::from(node.boot_seconds));
    // Of each number of nodes, what it cost to get there, in seconds of one node.
    let mut costs: Vec<(i64, i64)> = vec![(0, 0)];
    for needed in &demand.needed {
        let reach = |nodes: i64| {
            let from = costs.iter().map(|(before, cost)| cost + (nodes - before).max(0) * boot);
            (nodes, from.min().unwrap() + nodes * step)
        };
        costs = (i64::from(*needed)..=i64::from(peak)).map(reach).collect();
    }
    let seconds = costs.iter().map(|(_, cost)| cost).min().unwrap();
    seconds * node.hourly.0 / 3600
}

#[test]
fn it_is_the_cheapest_of_all_fleets() {
    for seed in 0..30 {
        let mut stream = Seed(seed).stream("levels", &[], 0);
        let needed = (0..60).map(|_| u32::try_from(stream.up_to(5)).unwrap()).collect();
        let demand = Replicas { needed, step_seconds: 60 };
        let node = Node { hourly: HOUR, boot_seconds: 300, reserved: None };
        assert_eq!(optimum(&demand, &node).total.0, over_all_fleets(&demand, &node), "seed {seed}");
    }
}

/// With so many nodes reserved, the rest of the demand is served on demand. The optimum tries every such number.
#[test]
fn it_reserves_the_cheapest_number() {
    for seed in 0..30 {
        let mut stream = Seed(seed).stream("levels", &[], 1);
        let needed: Vec<u32> = (0..60).map(|_| u32::try_from(stream.up_to(5)).unwrap()).collect();
        let node = Node { hourly: HOUR, boot_seconds: 300, reserved: Some(Milli(620)) };
        let on_demand = Node { reserved: None, ..node };
        let with = |reserved: u32| {
            let rest = needed.iter().map(|needed| needed.saturating_sub(reserved)).collect();
            let rest = optimum(&Replicas { needed: rest, step_seconds: 60 }, &on_demand).total.0;
            (rest + i64::from(reserved) * HOUR.0 * 620 / 1000, reserved)
        };
        let cheapest = (0..=5).map(with).min().unwrap();
        let found = optimum(&Replicas { needed: needed.clone(), step_seconds: 60 }, &node);
        assert_eq!((found.total.0, found.reserved), cheapest, "seed {seed}");
    }
}

#[test]
fn by_hand() {
    let node = Node { hourly: UsdPerHour(3_600_000_000), boot_seconds: 120, reserved: None };
    let costs = |needed: &[u32]| {
        let found = optimum(&Replicas { needed: needed.to_vec(), step_seconds: 60 }, &node);
        (found.total.0 / 1_000_000, found.boots)
    };
    assert_eq!(costs(&[]), (0, 0));
    assert_eq!(costs(&[0, 0]), (0, 0));
    // One boot, two steps.
    assert_eq!(costs(&[1, 1]), (240, 1));
    // A gap as long as a boot is bridged, a longer one is not.
    assert_eq!(costs(&[1, 0, 0, 1]), (360, 1));
    assert_eq!(costs(&[1, 0, 0, 0, 1]), (360, 2));
}
