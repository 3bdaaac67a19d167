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
