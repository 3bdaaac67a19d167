//! What a listing says of regions by themselves, and why machines ended.

use super::reclaimed::on_spot;
use super::world::{GROUP_A, World, minutes, place};
use super::*;
use crate::base::ids::{Cloud, Region};
use crate::base::units::Milli;
use crate::facts::supply::EndedWhy;
use crate::state::spot_history::SpotHistory;

/// The region of the world's zones.
fn here() -> (Cloud, Region) {
    let place = place("zone-a");
    (place.cloud, place.region)
}

#[test]
fn a_region_that_is_not_listed_buys_nothing_and_loses_nothing() {
    let mut world = World::with_node(GROUP_A, true);
    let listed_at = world.now;
    world.advance(minutes(5));
    world.lose_machine();
    world.observe();
    world.inventory.older.insert(here(), listed_at);
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

#[test]
fn a_region_that_is_not_listed_closes_no_other() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(minutes(5));
    world.lose_machine();
    world.observe();
    let (cloud, _) = here();
    world.inventory.older.insert((cloud, Region::new("elsewhere").unwrap()), Timestamp::UNIX_EPOCH);
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
