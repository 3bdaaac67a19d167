//! Machines and Node objects that the records do not expect.

use super::world::{GROUP_A, World, minutes, seconds};
use super::*;

fn removes(plan: &Plan<Checked>) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::RemoveNode { .. }))
}

fn ends(plan: &Plan<Checked>) -> bool {
    plan.actions.iter().any(|action| matches!(action, Action::Terminate { .. }))
}

/// The answer was lost, the order was taken back, and the machine came all the same: before anybody could tell, pods were on it.
#[test]
fn a_machine_that_was_cancelled_stays_if_pods_hold_it_when_it_is_found() {
    for busy in [true, false] {
        let mut world = World::in_zone_a();
        world.increase(GROUP_A, 1);
        world.pass();
        world.make_silently();
        world.decrease(GROUP_A, -1);
        world.pass();
        assert_eq!(world.target(GROUP_A), 0);
        world.join(true);
        if busy {
            world.bind_pod();
        }
        let plan = world.pass_after(seconds(30));
        assert_eq!((world.target(GROUP_A), ends(&plan)), if busy { (1, false) } else { (0, true) });
    }
}

/// A machine that joined too late is ended; a pod that came to its Node meanwhile keeps neither the record nor the Node.
#[test]
fn a_node_of_a_failed_machine_that_is_gone_is_removed_and_may_be_deleted() {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    let deadline = world.catalogue.policy.boot_deadline;
    world.pass_after(deadline);
    world.join(true);
    assert!(ends(&world.pass_after(seconds(1))));
    world.end_terminated();
    world.pass_after(seconds(30));
    world.bind_pod();
    let plan = world.pass_after(minutes(1));
    assert!(removes(&plan), "{:?}", plan.actions);
    assert!(matches!(world.records(GROUP_A).next().unwrap().state, State::Failed { purchase: None, .. }));
    let node = world.node_name();
    world.delete(GROUP_A, &[&node]).unwrap();
    assert_eq!(world.target(GROUP_A), 0);
}

/// A machine that is late beside one that may still join ends as one that did not join, and not as one that the autoscaler deleted; unless
/// a pod has come to it after all, which is the autoscaler's word alone to end.
#[test]
fn a_late_machine_ends_as_one_that_did_not_join() {
    let why = |plan: &Plan<Checked>| {
        plan.actions.iter().find_map(|action| match action {
            Action::Terminate { why, .. } => Some(*why),
            _ => None,
        })
    };
    for late_pod in [false, true] {
        let mut world = World::in_zone_a();
        world.increase(GROUP_A, 1);
        world.pass();
        world.answer(|_| true);
        world.pass_after(minutes(5));
        world.increase(GROUP_A, 1);
        world.pass();
        world.answer(|_| true);
        world.pass();
        let left = world.catalogue.policy.boot_deadline.checked_sub(minutes(5)).unwrap();
        assert_eq!(why(&world.pass_after(left)), Some(Ending::BootTimeout), "beside one that may still join");
        if late_pod {
            world.join(true);
            world.bind_pod();
        }
        let again = if late_pod { Ending::Deleted } else { Ending::BootTimeout };
        assert_eq!(why(&world.pass_after(seconds(6))), Some(again));
    }
}
