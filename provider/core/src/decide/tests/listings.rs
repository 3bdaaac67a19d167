//! What a listing says of regions by themselves, and why machines ended.

use super::reclaimed::on_spot;
use super::world::{GROUP_A, World, minutes, place};
use super::*;
use crate::base::ids::Region;
use crate::base::units::Milli;
use crate::facts::supply::EndedWhy;
use crate::state::spot_history::SpotHistory;

/// The region of the world's zones.
fn here() -> Region {
    place("zone-a").region
}

fn elsewhere() -> Region {
    Region::new("elsewhere").unwrap()
}

#[test]
fn a_region_that_is_not_listed_buys_nothing_and_loses_nothing() {
    let mut world = World::with_node(GROUP_A, true);
    let listed_at = world.now;
    world.advance(minutes(5));
    world.lose_machine();
    world.observe();
    world.covers([(here(), listed_at), (elsewhere(), world.now)]);
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 1, "an old listing does not say that a machine is gone");
    let limits = &plan.limits[&World::group(GROUP_A)];
    assert_eq!(limits.max, limits.target, "and what has come since would not be seen");
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::RemoveNode { .. })));
    // Once it is listed again, the machine is gone.
    world.observe();
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 0);
    assert!(plan.limits[&World::group(GROUP_A)].max > 0);
}

/// Somebody took it out of the supplier's configuration, and machines still run there.
#[test]
fn a_region_that_nobody_lists_loses_nothing_however_long_that_lasts() {
    let mut world = World::with_node(GROUP_A, true);
    world.lose_machine();
    for _ in 0..20 {
        world.advance(minutes(5));
        world.observe();
        world.covers([(elsewhere(), world.now)]);
        let plan = world.pass();
        assert_eq!(world.target(GROUP_A), 1, "a machine that nobody looks for is not gone");
        let limits = &plan.limits[&World::group(GROUP_A)];
        assert_eq!(limits.max, limits.target, "and nothing is bought where it would not be seen");
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::RemoveNode { .. })));
    }
    // The region is back in the configuration.
    world.observe();
    world.covers([(elsewhere(), world.now), (here(), world.now)]);
    world.pass();
    assert_eq!(world.target(GROUP_A), 0);
}

/// A journal was lost together with the region: no record holds the Node, and its machine runs.
#[test]
fn a_node_of_a_region_that_nobody_lists_is_not_removed() {
    let mut world = World::with_node(GROUP_A, true);
    let node = world.cluster_node(0).name.clone();
    world.edit_node(&node, |node| node.group = Some(World::group(GROUP_A)));
    world.memory.records.clear();
    world.lose_machine();
    let mut removed = Vec::new();
    for regions in [vec![elsewhere()], vec![elsewhere(), here()]] {
        world.advance(minutes(30));
        world.observe();
        let now = world.now;
        world.covers(regions.into_iter().map(|region| (region, now)));
        let plan = world.pass();
        removed.push(plan.actions.iter().filter(|action| matches!(action, Action::RemoveNode { .. })).count());
    }
    assert_eq!(removed, [0, 1]);
}

#[test]
fn a_region_that_is_not_listed_closes_no_other() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(minutes(5));
    world.lose_machine();
    world.observe();
    world.covers([(here(), world.now), (elsewhere(), Timestamp::UNIX_EPOCH)]);
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 0, "its machine is seen to be gone");
    assert!(plan.limits[&World::group(GROUP_A)].max > 0, "and it buys on");
    // The Node of a machine that nobody lists may be of a machine there.
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::RemoveNode { .. })));
}

#[test]
fn only_what_the_cloud_took_counts_as_a_reclaim() {
    for (why, reclaims, words) in [
        (Some(EndedWhy::Deleted), Milli(0), "disappeared unexpectedly: somebody deleted it"),
        (Some(EndedWhy::Broken), Milli(0), "disappeared unexpectedly: it stopped by itself"),
        (Some(EndedWhy::Reclaimed), Milli(1000), "disappeared unexpectedly: the cloud took it back"),
        // Most likely it did.
        (None, Milli(1000), "disappeared unexpectedly"),
    ] {
        let mut world = on_spot(1);
        let machine = world.machines.keys().next().unwrap().clone();
        world.lose_machine();
        world.observe();
        world.inventory.ended.extend(why.map(|why| (machine, why)));
        let plan = world.pass();
        let known = world.memory.spot.get(&place("zone-a")).map(|known| SpotHistory::clone(known)).unwrap();
        assert_eq!(known.reclaims, reclaims, "{why:?}");
        assert!(known.exposure > 0, "its hours count however it ended");
        let told: Vec<String> = plan.notes.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|note| note.ends_with(words)), "{why:?}: {told:?}");
    }
}
