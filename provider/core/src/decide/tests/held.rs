//! Nodes that a forgotten notebook holds in off-hours.

use super::verdicts::{Shown, quiet, seen};
use super::world::{GROUP_A, World, minutes, seconds, start};
use super::*;
use crate::base::calendar::{Cron, OffHours, Slot, Zone};
use crate::base::ids::NodeName;
use crate::base::kinds::Evidence;
use crate::facts::reading::seen::{Hearing, Seen};
use crate::facts::snapshot::{Cordon, Stuck};
use crate::plan::Evict;

/// Two nodes with pods, of which the first has not used its GPUs since midnight. Their pool is not worked with from one o'clock to noon,
/// counts a node as held after 10 min, and gives it up 15 min after it says so. It is half past twelve at night.
fn overnight() -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        let pool = &mut policy.pools[0];
        pool.prefer = vec![crate::market::offer::CapacityType::OnDemand];
        pool.evidence = Evidence::Probe;
        pool.held_after = minutes(10);
        let slot = Slot { cron: Cron::parse("0 1 * * *").unwrap(), time_zone: Zone::utc(), length: minutes(11 * 60) };
        pool.off_hours = Some(OffHours { slots: vec![slot], max_nodes: None, evict_held_after: Some(minutes(15)) });
    });
    world.pass();
    world.increase(GROUP_A, 2);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.bind_pod();
    world.show(0, Shown::Idle);
    world.show(1, Shown::Working);
    world.live(minutes(30));
    world
}

fn drains(actions: &[Action]) -> Vec<Evict> {
    actions.iter().filter_map(|a| if let Action::Drain { evict, .. } = a { Some(*evict) } else { None }).collect()
}

fn endings(actions: &[Action]) -> Vec<Ending> {
    actions.iter().filter_map(|a| if let Action::Terminate { why, .. } = a { Some(*why) } else { None }).collect()
}

#[test]
fn a_held_node_is_announced_when_off_hours_begin_and_emptied_after_its_grace_across_a_restart() {
    let mut world = overnight();
    assert_eq!(world.live(minutes(30) - seconds(1)), [], "people are at work");
    world.advance(seconds(1));
    world.observe();
    let plan = world.pass();
    let told: Vec<String> = plan.notes.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["pool.gpu-1.zone-a: node-0 will be drained at 01:15Z: a pod occupies it in off-hours and does nothing"]);
    let memory = serde_json::to_string(&world.memory).unwrap();
    world.memory = serde_json::from_str(&memory).unwrap();
    assert_eq!(world.live(minutes(15) - seconds(1)), [], "there is time to save");
    // At 01:15 it is closed, and its pods are told 5 s later.
    let done = world.live(seconds(20));
    assert_eq!(drains(&done), [Evict::Nobody, Evict::Movable]);
    assert_eq!(endings(&done)[0], Ending::Held);
    assert_eq!(world.target(GROUP_A), 1, "the node at work stays");
}

#[test]
fn a_pod_that_works_again_or_the_end_of_off_hours_takes_it_back() {
    let mut world = overnight();
    world.live(minutes(40));
    assert_eq!(world.memory.announced.len(), 1);
    // What a GPU does is unknown when it could not be read for 15 s.
    for (shown, after) in [(Shown::Working, seconds(0)), (Shown::Unreadable, seconds(15))] {
        world.show(0, shown);
        let plan = world.pass_after(after);
        assert!(matches!(&plan.notes[..], [Note::DrainAbandoned { .. }]), "{:?}", plan.notes);
        assert!(world.memory.announced.is_empty());
        world.show(0, Shown::Idle);
        assert_eq!(world.live(minutes(10)), []);
        assert_eq!(world.memory.announced.len(), 1, "announced anew, with all of its grace");
    }
    world.show(0, Shown::Working);
    let noon = start() + minutes(12 * 60);
    world.live(noon.duration_since(world.now) - minutes(20));
    // Held again ten minutes before noon.
    world.show(0, Shown::Idle);
    world.live(minutes(10));
    assert_eq!(world.memory.announced.len(), 1);
    let done = world.live(minutes(300));
    assert_eq!(drains(&done), []);
    assert!(world.memory.announced.is_empty());
}

#[test]
fn what_somebody_closed_or_wants_kept_and_what_pools_without_that_rule_hold_stays() {
    for case in 0..3 {
        let mut world = overnight();
        match case {
            0 => world.close(Cordon::Theirs),
            1 => world.mark_node(Hold::Theirs),
            _ => world.policy(|policy| policy.pools[0].off_hours.as_mut().unwrap().evict_held_after = None),
        }
        assert_eq!(world.live(minutes(600)), [], "{case}");
    }
}

#[test]
fn a_pod_that_may_not_be_moved_keeps_its_node_for_an_hour() {
    let mut world = overnight();
    told(&mut world);
    world.drain(Some(&Stuck::Never("default/pod has no controller that would recreate it".into())));
    let plan = world.pass();
    assert!(matches!(&plan.notes[..], [Note::DrainAbandoned { .. }]), "{:?}", plan.notes);
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
    world.drain(None);
    assert_eq!(world.live(minutes(59)), []);
}

/// On to the moment at which the pods of the held node are told to go: 15 min after the announcement it is closed, and 5 s after that.
fn told(world: &mut World) {
    world.live(minutes(45) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [Evict::Nobody]);
    world.drain(None);
    world.pass();
    world.advance(seconds(5));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [Evict::Movable]);
}

/// The scheduler had chosen the node before it was closed.
#[test]
fn a_pod_that_binds_while_its_node_is_being_closed_keeps_it() {
    let mut world = overnight();
    world.live(minutes(45) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [Evict::Nobody]);
    world.set_pods(0, &["default/pod", "dev/newcomer"]);
    world.drain(None);
    let plan = world.pass();
    assert!(matches!(&plan.notes[..], [Note::DrainAbandoned { why, .. }] if why == "it is in use again"), "{:?}", plan.notes);
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Uncordon { .. })));
    assert!(world.memory.disruptions.is_empty());
}

/// A disruption budget forbids to tell its pod, and meanwhile the pod works again, another one has come, or one of its two has gone.
#[test]
fn one_whose_pods_were_not_told_yet_stays_when_it_is_used_again() {
    for case in 0..4 {
        let mut world = overnight();
        if case == 3 {
            world.set_pods(0, &["default/pod", "dev/second"]);
        }
        told(&mut world);
        world.drain(Some(&Stuck::NotNow("a disruption budget forbids it".into())));
        world.pass();
        world.advance(seconds(5));
        world.observe();
        match case {
            0 => world.show(0, Shown::Working),
            1 => world.set_pods(0, &["dev/another"]),
            3 => world.set_pods(0, &["dev/second"]),
            _ => {}
        }
        let plan = world.pass();
        let opened = plan.actions.iter().any(|action| matches!(action, Action::Uncordon { .. }));
        assert_eq!((opened, world.memory.disruptions.is_empty()), (case < 2, case < 2), "{case}: {:?}", plan.actions);
    }
}

/// A probe that is silent at the moment does not say that the pod does nothing.
#[test]
fn pods_of_which_nothing_is_known_are_not_told_before_it_is() {
    let mut world = overnight();
    let name = |n: usize| NodeName::new(format!("node-{n}")).unwrap();
    world.live(minutes(45));
    let quiet_since = seen(world.now, [quiet(world.now - minutes(75)); 2]);
    let silent = Hearing::Silent { since: world.now };
    world.seen.insert(name(0), Arc::new(Seen { hearing: silent, ..quiet_since.clone() }));
    let done = drains(&world.live(seconds(25)));
    assert!(done.len() > 1 && done.iter().all(|evict| *evict == Evict::Nobody), "{done:?}");
    world.seen.insert(name(0), Arc::new(quiet_since));
    assert!(drains(&world.live(seconds(10))).contains(&Evict::Movable));
}

/// One that tolerates closed nodes, or names its node, comes after the others were told to go: it is none of those that were announced.
#[test]
fn a_pod_that_comes_after_the_others_were_told_is_not_told_itself() {
    let mut world = overnight();
    told(&mut world);
    world.drain(None);
    world.set_pods(0, &["dev/newcomer"]);
    world.pass();
    world.advance(seconds(10));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [Evict::Nobody]);
    world.drain(None);
    world.set_pods(0, &[]);
    assert!(endings(&world.live(seconds(30))).contains(&Ending::Held));
}
