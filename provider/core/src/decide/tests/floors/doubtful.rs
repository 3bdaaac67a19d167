//! Nodes of which nobody can tell whether a pod could use them.

use super::super::verdicts::Shown;
use super::*;
use crate::base::ids::RecordId;
use crate::base::kinds::Evidence;
use crate::state::node_verdict::Verdict;

/// The world of such a floor whose nodes have probes, and what those of new nodes show.
fn probed(floor: WarmFloor, shown: Option<Shown>) -> World {
    let mut world = with_policy(|policy| {
        policy.pools[0].warm_floor = Some(floor);
        policy.pools[0].evidence = Evidence::Probe;
    });
    world.probes = shown;
    world
}

fn rise(world: &World) -> u32 {
    let (a, b) = rises(world);
    a + b
}

fn verdict(world: &World) -> Verdict {
    world.memory.records[&RecordId(0)].judged.as_ref().unwrap().verdict
}

#[test]
fn one_that_is_unknown_for_a_moment_is_not_bought_for_again_and_one_that_stays_so_is() {
    let mut world = probed(nodes(2), Some(Shown::Idle));
    settle(&mut world);
    world.show(0, Shown::Unreadable);
    world.pass_after(seconds(15));
    assert_eq!(verdict(&world), Verdict::Unknown);
    let since = world.now;
    let next = super::super::decide(&world.snapshot(), &world.memory, &world.catalogue, since).next_change_at;
    assert!(next.is_some_and(|next| next <= since + minutes(10)), "{next:?}");
    world.pass_after(minutes(10) - seconds(1));
    assert_eq!((rise(&world), stands(&world)), (0, (2, 1, 0)));
    let why = "1 node is unhealthy, cordoned, or silent for less than 10 min, and is not replaced while it stays so";
    assert_eq!(world.floor().blocked.as_deref(), Some(why));
    world.pass_after(seconds(1));
    assert_eq!((rise(&world), world.floor().blocked.as_deref()), (1, None));
    settle(&mut world);
    assert_eq!((world.target(GROUP_A) + world.target(GROUP_B), stands(&world)), (3, (2, 2, 0)));
    // It is heard again, and is one more than is wanted.
    world.show(0, Shown::Idle);
    world.pass();
    world.pass_after(minutes(1));
    assert_eq!((rise(&world), stands(&world)), (0, (2, 3, 0)));
}

#[test]
fn one_that_is_not_ready_any_more_is_bought_for_after_ten_minutes_too() {
    let mut world = with(nodes(1));
    settle(&mut world);
    world.set_ready(0, None);
    world.pass();
    world.pass_after(minutes(10) - seconds(1));
    assert_eq!(rise(&world), 0);
    world.pass_after(seconds(1));
    assert_eq!(rise(&world), 1);
}

/// It counts for the floor while its kubelet is away, so it is there for it when that is back: else it went, and another came.
#[test]
fn one_that_is_not_ready_for_a_moment_is_kept_from_the_autoscaler() {
    let mut world = with(nodes(1));
    settle(&mut world);
    let held = |world: &mut World| {
        world.pass();
        let ours = world.limits(GROUP_A).free.floor;
        (ours, world.limits(GROUP_A).min)
    };
    assert_eq!(held(&mut world), (1, 1));
    world.set_ready(0, None);
    assert_eq!(held(&mut world), (1, 1));
    world.advance(minutes(10));
    world.observe();
    assert_eq!(held(&mut world).0, 0);

    // One that may go, and whose floor comes to need it while its kubelet is away, goes no more.
    let mut world = with(nodes(0));
    world.increase(GROUP_A, 1);
    settle(&mut world);
    assert_eq!(verdict(&world), Verdict::Idle);
    world.set_ready(0, None);
    assert_eq!(held(&mut world).0, 0);
    world.policy(|policy| policy.pools[0].warm_floor = Some(nodes(1)));
    assert_eq!((held(&mut world), rise(&world)), ((1, 1), 0));
    world.set_ready(0, Some(world.now));
    assert_eq!((held(&mut world), verdict(&world)), ((1, 1), Verdict::Warm));
}

/// A node whose probe is never heard is on its way for ten minutes, as far as can be told: from the first on somebody may want to know.
#[test]
fn one_that_is_ready_and_not_warm_says_what_it_waits_for() {
    let mut world = probed(nodes(1), None);
    settle(&mut world);
    let since = world.now;
    let next = super::super::decide(&world.snapshot(), &world.memory, &world.catalogue, since).next_change_at;
    assert!(next.is_some_and(|next| next <= since + minutes(1)), "{next:?}");
    assert_eq!((rise(&world), stands(&world), world.floor().blocked.as_deref()), (0, (1, 0, 1), None));
    world.pass_after(minutes(1));
    assert_eq!((rise(&world), stands(&world)), (0, (1, 0, 1)));
    let why = "1 node is Ready and not warm yet: its GPUs have not been read yet";
    assert_eq!(world.floor().blocked.as_deref(), Some(why));
}

/// As a broken probe in the image does.
#[test]
fn a_fault_that_takes_every_new_node_has_a_floor_bought_twice_and_no_more() {
    let mut world = probed(nodes(2), Some(Shown::Unreadable));
    for _ in 0..6 {
        settle(&mut world);
        // Unknown when it has not started within its time, and missed when it stays so.
        world.pass_after(minutes(10));
        world.pass_after(minutes(10));
    }
    assert_eq!((world.target(GROUP_A) + world.target(GROUP_B), stands(&world)), (4, (2, 0, 0)));
    let why = "4 nodes no longer report, and at most 2 of them are replaced";
    assert_eq!(world.floor().blocked.as_deref(), Some(why));
}

/// What is broken is replaced by its pool's own rule.
#[test]
fn unhealthy_nodes_and_those_that_somebody_closed_count_while_they_stay() {
    let mut world = probed(nodes(1), Some(Shown::Idle));
    settle(&mut world);
    world.show(0, Shown::Broken);
    world.numbers(|policy| policy.pools[0].unhealthy.action = crate::policy::rules::health::UnhealthyAction::Cordon);
    world.pass();
    world.pass_after(minutes(600));
    assert_eq!(rise(&world), 0);
}
