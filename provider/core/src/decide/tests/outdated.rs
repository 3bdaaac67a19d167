//! Outdated nodes: which are, and how they are replaced.

use std::collections::BTreeSet;

use super::floors::{nodes, settle, with};
use super::world::{GROUP_A, World, minutes, seconds};
use super::*;
use crate::base::calendar::{Cron, Slot, Zone};
use crate::base::ids::{NodeClassName, RecordId};
use crate::facts::outdated::Outdated;
use crate::facts::snapshot::{Cordon, Hold, Stuck};
use crate::market::offer::CapacityType;
use crate::plan::Evict;
use crate::policy::rules::outdated::OutdatedRules;
use crate::policy::rules::stabilization::Stabilization;
use crate::state::disruption::{DrainReason, GIVE_UP_AFTER};

fn image() -> Outdated {
    Outdated::Image { runs: "ami-1".into(), now: "ami-2".into() }
}

/// The supplier makes nodes with another image from now on: all that there are now are outdated.
fn new_image(world: &mut World) {
    world.outdated = world.machines.keys().map(|machine| (machine.clone(), Some(image()))).collect();
    world.observe();
}

/// The pool replaces busy nodes so.
fn rules(world: &mut World, rules: OutdatedRules) {
    world.policy(|policy| policy.pools[0].outdated = rules);
}

/// A pool of so many nodes in use that buys on demand, in zone a.
pub(super) fn in_use(count: i32) -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::OnDemand]);
    world.pass();
    world.bring(count, minutes(5));
    world.pass();
    world.bind_pod();
    world.live(minutes(20));
    world
}

/// A floor of two warm nodes, both there.
fn two_warm() -> World {
    let mut world = with(nodes(2));
    settle(&mut world);
    assert_eq!(world.target(GROUP_A), 2);
    world.live(minutes(1));
    world
}

/// The autoscaler asks for what the floor lacks, and it comes: no more passes than that takes, as the next node is chosen soon.
fn come_back(world: &mut World) {
    for _ in 0..2 {
        world.enforce_minimums();
        world.pass();
        world.answer(|_| true);
        world.pass();
        world.observe();
        world.join_new();
        world.pass();
    }
}

/// Machines that ended because they are outdated.
fn ended(done: &[Action]) -> usize {
    let of = |action: &Action| match action {
        Action::Terminate { instance, why: Ending::Outdated, .. } => Some(instance.clone()),
        _ => None,
    };
    done.iter().filter_map(of).collect::<BTreeSet<_>>().len()
}

fn evicted(done: &[Action]) -> BTreeSet<Evict> {
    done.iter().filter_map(|a| if let Action::Drain { evict, .. } = a { Some(*evict) } else { None }).collect()
}

fn going(world: &World) -> Vec<RecordId> {
    world.memory.disruptions.iter().filter(|(_, going)| going.is_open()).map(|(id, _)| *id).collect()
}

fn daily(hour: u8) -> Slot {
    Slot { cron: Cron::parse(&format!("0 {hour} * * *")).unwrap(), time_zone: Zone::utc(), length: minutes(60) }
}

#[test]
fn nodes_of_another_image_are_told_of_once() {
    let mut world = in_use(2);
    new_image(&mut world);
    let plan = world.pass();
    let told: Vec<String> = plan.notes.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["pool pool: 2 nodes are outdated from now on: it runs image ami-1, and new nodes run ami-2"]);
    assert_eq!(world.memory.outdated.len(), 2);
    assert_eq!(world.pass().notes, []);
    // An inventory that cannot be had changes nothing.
    world.machines.clear();
    world.inventory.complete = false;
    world.inventory.instances.clear();
    world.pass();
    assert_eq!(world.memory.outdated.len(), 2);
}

#[test]
fn a_changed_label_taint_or_node_class_makes_nodes_outdated_until_it_is_changed_back() {
    let mut world = in_use(1);
    for change in [
        (|policy| drop(policy.pools[0].labels.insert("team".into(), "ml".into()))) as fn(&mut crate::policy::Policy),
        |policy| policy.pools[0].taints.clear(),
        |policy| policy.pools[0].node_class = Some(NodeClassName::new("gpu").unwrap()),
    ] {
        let before = world.policy.clone();
        world.policy(change);
        world.live(seconds(1));
        let why: Vec<_> = world.memory.outdated.values().map(|known| known.why.clone()).collect();
        assert_eq!(why, [Outdated::Template]);
        world.policy(|policy| *policy = before);
        world.live(seconds(1));
        assert!(world.memory.outdated.is_empty());
    }
    // How they are bought is no such change.
    world.policy(|policy| policy.pools[0].prefer = vec![CapacityType::Spot, CapacityType::OnDemand]);
    world.live(seconds(1));
    assert!(world.memory.outdated.is_empty());
    world.policy(|policy| policy.pools[0].limits.max_nodes = 11);
    world.live(seconds(1));
    assert!(world.memory.outdated.is_empty());
}

#[test]
fn the_nodes_of_a_floor_are_replaced_one_by_one_each_when_the_one_before_is_there() {
    let mut world = two_warm();
    new_image(&mut world);
    let done = world.live(minutes(1));
    assert_eq!((ended(&done), evicted(&done)), (1, [Evict::WithoutGpu].into()));
    // The other one stays until there is a second again.
    assert_eq!((world.target(GROUP_A), ended(&world.live(minutes(10)))), (1, 0));
    come_back(&mut world);
    assert_eq!(world.target(GROUP_A), 2);
    assert_eq!(ended(&world.live(minutes(1))), 1);
    come_back(&mut world);
    assert_eq!((world.target(GROUP_A), ended(&world.live(minutes(60)))), (2, 0));
    assert!(world.memory.outdated.is_empty());
}

#[test]
fn a_floor_keeps_its_nodes_while_their_market_sells_none_or_its_machines_do_not_join() {
    for kind in [RefusalKind::OutOfCapacity, RefusalKind::BootTimeout] {
        let mut world = two_warm();
        // A third is asked for, and not had.
        world.increase(GROUP_A, 1);
        world.pass();
        world.refuse_all(kind);
        world.pass();
        new_image(&mut world);
        assert_eq!(ended(&world.live(minutes(2))), 0, "{kind}");
    }
}

#[test]
fn a_free_node_stays_for_its_window() {
    let mut world = in_use(1);
    let window = Stabilization { scale_down: minutes(20), ..Stabilization::of(world.policy.pools[0].workload) };
    world.policy(|policy| policy.pools[0].stabilization = Some(window));
    new_image(&mut world);
    world.live(seconds(1));
    world.unbind_pod();
    assert_eq!(ended(&world.live(minutes(19))), 0);
    assert_eq!(ended(&world.live(minutes(3))), 1);
}

#[test]
fn nodes_with_pods_stay_by_default() {
    let mut world = in_use(2);
    new_image(&mut world);
    assert_eq!(ended(&world.live(minutes(60 * 24 * 30))), 0);
}

#[test]
fn nodes_with_pods_go_one_by_one_in_maintenance_times() {
    let mut world = in_use(3);
    // The world began at 00:00 and is at 00:25 now.
    rules(&mut world, OutdatedRules { maintenance: vec![daily(2)], ..OutdatedRules::default() });
    new_image(&mut world);
    assert_eq!(ended(&world.live(minutes(90))), 0, "01:55");
    let done = world.live(minutes(6));
    assert_eq!((ended(&done), evicted(&done)), (1, [Evict::Movable].into()));
    // Its pods' new node is asked for, and the next one goes once that is Ready.
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!(ended(&world.live(minutes(5))), 0, "it is being bought");
    world.answer(|_| true);
    world.live(minutes(1));
    assert_eq!(ended(&world.live(minutes(3))), 0, "it boots");
    world.join_new();
    world.bind_pod();
    assert_eq!(ended(&world.live(minutes(1))), 1);
    // Nobody asks for another: its pods fit elsewhere, and the next one waits for it no longer than a boot may take.
    assert_eq!(ended(&world.live(minutes(14))), 0);
    assert_eq!(ended(&world.live(minutes(3))), 1);
}

#[test]
fn nodes_with_pods_go_past_the_deadline() {
    let mut world = in_use(1);
    rules(&mut world, OutdatedRules { deadline: Some(minutes(60 * 24)), ..OutdatedRules::default() });
    new_image(&mut world);
    assert_eq!(ended(&world.live(minutes(60 * 24 - 1))), 0);
    assert_eq!(ended(&world.live(minutes(2))), 1);
}

/// It was ordered at 00:00, and it is 00:25.
#[test]
fn a_node_older_than_its_pool_allows_is_outdated() {
    let day = OutdatedRules { max_node_life: Some(minutes(24 * 60)), ..OutdatedRules::default() };
    let mut world = in_use(1);
    rules(&mut world, day.clone());
    world.live(minutes(24 * 60 - 26));
    assert!(world.memory.outdated.is_empty(), "23:59");
    world.live(minutes(2));
    let why: Vec<String> = world.memory.outdated.values().map(|known| known.why.to_string()).collect();
    assert_eq!(why, ["it is older than outdated.maxNodeLife 24h"]);
    // With its pods it stays, and without them it goes.
    assert_eq!(ended(&world.live(minutes(12 * 60))), 0);
    world.unbind_pod();
    assert_eq!(ended(&world.live(minutes(60))), 1);
    // Past the deadline it goes with its pods.
    let mut world = in_use(1);
    rules(&mut world, OutdatedRules { deadline: Some(minutes(8 * 60)), ..day });
    assert_eq!(ended(&world.live(minutes(32 * 60 - 26))), 0, "07:59");
    assert_eq!(ended(&world.live(minutes(3))), 1);
}

#[test]
fn past_the_deadline_the_next_node_waits_for_the_one_before_too() {
    let mut world = in_use(2);
    rules(&mut world, OutdatedRules { deadline: Some(minutes(60)), ..OutdatedRules::default() });
    new_image(&mut world);
    // An order that is never bought keeps none from going.
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!(ended(&world.live(minutes(62))), 1);
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!(ended(&world.live(minutes(14))), 0);
}

#[test]
fn nodes_for_which_there_would_be_no_room_stay() {
    let deadline = OutdatedRules { deadline: Some(minutes(60)), ..OutdatedRules::default() };
    // One of two nodes fits what is left of the limits once it is gone.
    for (change, gone) in [
        ((|policy| policy.pools[0].limits.max_nodes = 2) as fn(&mut crate::policy::Policy), 1),
        (|policy| policy.pools[0].limits.max_nodes = 1, 0),
        (|policy| policy.pools[0].limits.max_usd_per_hour = Some(crate::base::units::UsdPerHour(900_000)), 0),
        (|policy| policy.quotas[1].limit = 4, 0),
    ] {
        let mut world = in_use(2);
        rules(&mut world, deadline.clone());
        world.numbers(change);
        new_image(&mut world);
        assert_eq!(ended(&world.live(minutes(70))), gone);
    }
}

#[test]
fn a_supplier_that_cannot_tell_changes_nothing() {
    let mut world = in_use(1);
    new_image(&mut world);
    world.live(minutes(30));
    let known = world.memory.outdated.clone();
    world.outdated.values_mut().for_each(|why| *why = None);
    world.live(minutes(30));
    assert_eq!(world.memory.outdated, known);
    world.outdated.clear();
    world.live(minutes(1));
    assert!(world.memory.outdated.is_empty());
}

#[test]
fn nodes_that_min_nodes_keeps_go_one_by_one() {
    let mut world = in_use(2);
    world.policy(|policy| {
        policy.pools[0].limits.min_nodes = 2;
        policy.pools[0].stabilization = Some(Stabilization::of(policy.pools[0].workload));
    });
    new_image(&mut world);
    world.unbind_pod();
    assert_eq!(ended(&world.live(minutes(60))), 1, "the other one stays until there are two again");
}

#[test]
fn a_pause_stops_what_has_not_begun() {
    let mut world = two_warm();
    rules(&mut world, OutdatedRules { paused: true, ..OutdatedRules::default() });
    new_image(&mut world);
    assert_eq!(ended(&world.live(minutes(60))), 0);
    assert_eq!(world.memory.outdated.len(), 2, "they are listed all the same");
    rules(&mut world, OutdatedRules::default());
    assert_eq!(ended(&world.live(minutes(60))), 1);
}

#[test]
fn a_pod_that_comes_keeps_a_node_that_was_free() {
    let mut world = two_warm();
    new_image(&mut world);
    world.pass();
    world.advance(seconds(1));
    world.observe();
    world.pass();
    world.drain(Some(&Stuck::NotNow("default/pod was scheduled meanwhile".into())));
    let [id] = going(&world)[..] else { panic!("one goes") };
    let State::Registered { node: Some(node), .. } = world.memory.records[&id].state.clone() else { panic!("a node") };
    world.pods_on(node.as_str(), &["a/job"]);
    let plan = world.pass();
    assert!(plan.notes.iter().any(|note| note.to_string().ends_with("a pod has come to it")), "{:?}", plan.notes);
}

#[test]
fn a_node_whose_pods_may_not_be_evicted_is_left_and_another_goes() {
    let mut world = in_use(2);
    rules(&mut world, OutdatedRules { deadline: Some(minutes(60)), ..OutdatedRules::default() });
    new_image(&mut world);
    world.pass();
    world.advance(minutes(61));
    world.observe();
    world.pass();
    let mut ids = BTreeSet::new();
    for _ in 0..(2 * GIVE_UP_AFTER.as_secs() / 10 + 60) {
        world.advance(seconds(10));
        world.observe();
        world.pass();
        world.drain(Some(&Stuck::NotNow("a PodDisruptionBudget".into())));
        ids.extend(going(&world));
        assert!(going(&world).len() <= 1);
    }
    assert_eq!(ids.len(), 2);
}

#[test]
fn nodes_that_somebody_else_closed_or_keeps_are_let_alone() {
    for change in [(|world| world.close(Cordon::Theirs)) as fn(&mut World), |world| world.mark_node(Hold::Theirs)] {
        let mut world = two_warm();
        change(&mut world);
        new_image(&mut world);
        assert_eq!(ended(&world.live(minutes(60))), 0);
    }
}

#[test]
fn nothing_is_replaced_while_a_lost_journal_calls_for_caution() {
    let mut world = two_warm();
    world.memory.cautious_until = Some(world.now.saturating_add(minutes(10)).unwrap());
    new_image(&mut world);
    assert_eq!(ended(&world.live(minutes(9))), 0);
    assert_eq!(ended(&world.live(minutes(9))), 1);
}

#[test]
fn the_reason_says_what_differs() {
    let why = |why| DrainReason::Outdated { why, needed: false }.to_string();
    assert_eq!(why(image()), "it is outdated: it runs image ami-1, and new nodes run ami-2");
    let name = NodeClassName::new("gpu").unwrap();
    assert_eq!(why(Outdated::NodeClass { name }), "it is outdated: node class gpu was changed after it was launched");
}
