//! Which free nodes are kept, and until when. Nodes are of zone a: $0.80 an hour on demand, $0.30 on spot.

use std::collections::BTreeMap;

use super::oracle::Dice;
use super::world::{GROUP_A, World, minutes, place, seconds};
use super::*;
use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, InstanceType, NodeName, Region};
use crate::base::kinds::Workload;
use crate::base::units::{Percent, UsdPerHour};
use crate::conclusions::{Unfounded, judge};
use crate::limits::commitment::release_order;
use crate::market::offer::CapacityType;
use crate::plan::{FreeNodes, HoldFor};
use crate::policy::rules::commitment::{Capacity, Commitment, CommittedNodes, Paid, Terms};
use crate::policy::rules::stabilization::{Stabilization, Window};
use crate::state::node_verdict::Verdict;
use crate::state::record::Record;

fn at(minutes_in: i64) -> Timestamp {
    world::start().saturating_add(minutes(minutes_in)).unwrap()
}

/// A pool with those windows and `nodes` in zone a, ordered at 00:00 and Ready at 00:05.
fn world_with(nodes: i32, rules: Stabilization, prefer: &[CapacityType]) -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        policy.pools[0].stabilization = Some(rules);
        policy.pools[0].prefer = prefer.to_vec();
        policy.pools[0].spot.as_mut().unwrap().return_to_spot = crate::base::kinds::ReturnToSpot::Never;
    });
    world.pass();
    if nodes > 0 {
        more_nodes(&mut world, nodes);
    }
    world
}

/// That many more nodes, booted in 5 min.
fn more_nodes(world: &mut World, nodes: i32) {
    world.bring(nodes, minutes(5));
    step(world);
}

fn windows(scale_down: i64, minimum_life: i64) -> Stabilization {
    Stabilization {
        scale_down: minutes(scale_down),
        minimum_life: minutes(minimum_life),
        ..Stabilization::of(Workload::Training)
    }
}

/// All nodes get a pod, and lose it a minute later.
fn free_together(world: &mut World) {
    world.bind_pod();
    step(world);
    world.advance(minutes(1));
    world.unbind_pod();
    step(world);
}

/// A pass whose annotations are written.
fn step(world: &mut World) -> Plan<Checked> {
    world.observe();
    let plan = world.pass();
    world.drain(None);
    world.end_terminated();
    plan
}

fn step_at(world: &mut World, minutes_in: i64) -> Plan<Checked> {
    world.now = at(minutes_in);
    step(world)
}

/// What keeps each node, and which are idle.
fn kept(plan: &Plan<Checked>) -> Vec<(u64, HoldFor)> {
    plan.accounts.kept.iter().map(|(id, why)| (id.0, *why)).collect()
}

fn idle(world: &World) -> Vec<u64> {
    let idle = |record: &&Arc<Record>| record.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Idle);
    world.memory.records.values().filter(idle).map(|record| record.id.0).collect()
}

fn free_of_a(plan: &Plan<Checked>) -> (FreeNodes, u32) {
    let limits = &plan.limits[&World::group(GROUP_A)];
    (limits.free, limits.min)
}

const OD: [CapacityType; 1] = [CapacityType::OnDemand];

#[test]
fn a_free_node_is_kept_until_its_window_is_over_and_counts_in_the_net_below() {
    let mut world = world_with(1, windows(10, 0), &OD);
    // Ready at 00:05 and free from then on.
    let until = at(15);
    let plan = step(&mut world);
    assert_eq!(kept(&plan), [(0, HoldFor::Window { until })]);
    assert_eq!(free_of_a(&plan), (FreeNodes { window: 1, goes_at: Some(until), ..FreeNodes::default() }, 1));
    world.observe();
    let decision = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now);
    assert!(decision.next_change_at.is_some_and(|next| next <= until));
    world.now = at(15).saturating_sub(seconds(1)).unwrap();
    assert_eq!(step(&mut world).actions, []);
    let plan = step_at(&mut world, 15);
    assert!(matches!(plan.actions[..], [Action::Release { .. }]), "{:?}", plan.actions);
    assert_eq!((kept(&plan), idle(&world)), (vec![], vec![0]));
    assert_eq!(free_of_a(&plan), (FreeNodes { idle: 1, ..FreeNodes::default() }, 0));
    let judged = world.memory.records.values().next().unwrap().judged.clone().unwrap();
    assert_eq!((judged.since, judged.free_since()), (at(15), Some(at(5))));
    assert_eq!(judged.why.to_string(), "it has been free since 00:05Z, and its window has ended");
    // So it stays.
    assert_eq!(step_at(&mut world, 55).actions, []);
    assert_eq!(idle(&world), [0]);
}

#[test]
fn a_pod_that_comes_begins_the_window_anew() {
    let mut world = world_with(1, windows(10, 0), &OD);
    world.bind_pod();
    assert_eq!(kept(&step_at(&mut world, 14)), []);
    world.unbind_pod();
    assert_eq!(kept(&step_at(&mut world, 20)), [(0, HoldFor::Window { until: at(30) })]);
    step_at(&mut world, 30);
    assert_eq!(idle(&world), [0]);
    // Also one that comes to a node that may go.
    world.bind_pod();
    let plan = step_at(&mut world, 31);
    assert!(matches!(plan.actions[..], [Action::Hold { why: HoldFor::Pods, .. }]), "{:?}", plan.actions);
    world.unbind_pod();
    assert_eq!(kept(&step_at(&mut world, 40)), [(0, HoldFor::Window { until: at(50) })]);
}

#[test]
fn a_kubelet_that_is_away_for_a_moment_begins_no_window_anew() {
    let mut world = world_with(1, windows(10, 0), &OD);
    let away = |world: &mut World| {
        world.set_ready(0, None);
        let plan = step(world);
        let verdict = world.memory.records[&RecordId(0)].judged.as_ref().map(|judged| judged.verdict);
        assert_eq!(verdict, Some(Verdict::Booting));
        world.advance(seconds(20));
        world.set_ready(0, Some(world.now));
        (kept(&plan), step(world))
    };
    // Free from 00:08 on, after a pod.
    world.bind_pod();
    step_at(&mut world, 7);
    world.unbind_pod();
    step_at(&mut world, 8);
    world.now = at(16);
    let in_window = vec![(0, HoldFor::Window { until: at(18) })];
    let (kept_while_away, back) = away(&mut world);
    assert_eq!((kept_while_away, kept(&back)), (in_window.clone(), in_window));
    step_at(&mut world, 18);
    assert_eq!(idle(&world), [0]);
    // What may go stays so.
    world.now = at(19);
    let (kept_while_away, back) = away(&mut world);
    assert_eq!((kept_while_away, back.actions.len(), idle(&world)), (vec![], 0, vec![0]));
    // A pod that comes meanwhile begins it again.
    world.set_ready(0, None);
    world.bind_pod();
    step_at(&mut world, 20);
    world.unbind_pod();
    world.set_ready(0, Some(at(21)));
    assert_eq!(kept(&step_at(&mut world, 21)), [(0, HoldFor::Window { until: at(31) })]);
}

/// A quarter of eight nodes is two.
#[test]
fn a_node_that_is_away_for_a_moment_gives_its_turn_to_no_other() {
    let rules = Stabilization { max_removals: Percent(25), ..windows(10, 0) };
    let mut world = world_with(8, rules, &OD);
    step_at(&mut world, 15);
    assert_eq!(idle(&world), [6, 7]);
    world.set_ready(7, None);
    step_at(&mut world, 16);
    assert_eq!(idle(&world), [6]);
    world.set_ready(7, Some(at(17)));
    step_at(&mut world, 17);
    assert_eq!(idle(&world), [6, 7]);
}

#[test]
fn a_node_lives_for_its_minimum_from_its_order_on() {
    let mut world = world_with(1, windows(1, 15), &OD);
    assert_eq!(kept(&step(&mut world)), [(0, HoldFor::MinimumLife { until: at(15) })]);
    step_at(&mut world, 15);
    assert_eq!(idle(&world), [0]);
}

/// At $2 a GPU-hour, 150 s of waiting cost $0.083: 375 s of a node at $0.80, 1,000 s of one at $0.30, of which the window allows 600.
#[test]
fn of_windows_of_equal_pay_the_dearer_is_the_shorter() {
    let rules = Stabilization { window: Window::EqualCost, ..windows(10, 0) };
    let of = |micros, waiting| rules.window_of(UsdPerHour(micros), UsdPerHour(waiting)).as_secs();
    assert_eq!([of(1_000_000, 2_000_000), of(800_000, 2_000_000), of(300_000, 2_000_000)], [300, 375, 600]);
    // Five times the price of waiting is five times the window; the most expensive node has a minute, and who could pay forever the whole one.
    assert_eq!([of(4_000_000, 10_000_000), of(98_000_000, 2_000_000), of(1, i64::MAX), of(0, 2_000_000)], [375, 60, 600, 600]);
    let mut world = world_with(1, rules.clone(), &OD);
    let until = at(5).saturating_add(seconds(375)).unwrap();
    assert_eq!(kept(&step(&mut world)), [(0, HoldFor::Window { until })]);
    world.now = until;
    step(&mut world);
    assert_eq!(idle(&world), [0]);
    let mut world = world_with(1, rules, &[CapacityType::Spot]);
    assert_eq!(kept(&step(&mut world)), [(0, HoldFor::Window { until: at(15) })]);
}

#[test]
fn after_a_pool_grew_nothing_of_it_goes_for_a_while() {
    let rules = Stabilization { after_scale_up: minutes(20), ..windows(10, 0) };
    let mut world = world_with(1, rules, &OD);
    assert_eq!(kept(&step(&mut world)), [(0, HoldFor::Growth { until: at(20) })]);
    step_at(&mut world, 20);
    assert_eq!(idle(&world), [0]);
    // A second node is ordered at 00:21: the first, which was let go, is kept again.
    world.now = at(21);
    more_nodes(&mut world, 1);
    assert_eq!(kept(&step(&mut world)), [(0, HoldFor::Growth { until: at(41) }), (1, HoldFor::Growth { until: at(41) })]);
    assert_eq!(idle(&world), [0; 0]);
    let free_since = world.memory.records.values().next().unwrap().judged.as_ref().unwrap().free_since();
    assert_eq!(free_since, Some(at(5)), "it is free as long as before");
    // The growth is remembered when its node has gone.
    world.delete(GROUP_A, &["node-1"]).unwrap();
    step(&mut world);
    world.end_terminated();
    world.forget_node("node-1");
    assert_eq!(kept(&step_at(&mut world, 40)), [(0, HoldFor::Growth { until: at(41) })]);
    step_at(&mut world, 41);
    assert_eq!(idle(&world), [0]);
}

/// A quarter of eight nodes is two. All are free from 00:05 on, so two may go at 00:15, 00:25, 00:35 and 00:45; the youngest first.
#[test]
fn no_more_go_within_one_window_than_the_share() {
    let rules = Stabilization { max_removals: Percent(25), ..windows(10, 0) };
    let mut world = world_with(8, rules, &OD);
    let plan = step_at(&mut world, 15);
    assert_eq!(idle(&world), [6, 7]);
    let turn = |minutes_in| HoldFor::Removals { until: at(minutes_in) };
    assert_eq!(kept(&plan), [(0, turn(45)), (1, turn(45)), (2, turn(35)), (3, turn(35)), (4, turn(25)), (5, turn(25))]);
    assert_eq!(free_of_a(&plan).0, FreeNodes { window: 6, idle: 2, goes_at: Some(at(25)), floor: 0 });
    // One goes, and still counts: of the eight nodes that there were.
    world.delete(GROUP_A, &["node-7"]).unwrap();
    step_at(&mut world, 16);
    assert_eq!(idle(&world), [6]);
    // A pod comes to the other, which gives its turn back: an eighth of them is the next to go.
    world.bind("node-6");
    step_at(&mut world, 17);
    assert_eq!(idle(&world), [5]);
    step_at(&mut world, 24);
    assert_eq!(idle(&world), [5]);
    // The first turn is a window old; a quarter of seven nodes is one.
    step_at(&mut world, 25);
    assert_eq!(idle(&world), [5]);
    step_at(&mut world, 27);
    assert_eq!(idle(&world), [4, 5]);
}

#[test]
fn at_least_one_may_go_and_with_all_allowed_nothing_is_counted() {
    let one = Stabilization { max_removals: Percent(1), ..windows(10, 0) };
    assert_eq!([one.most_of(0), one.most_of(10), one.most_of(250)], [Some(1), Some(1), Some(2)]);
    let mut world = world_with(3, one, &OD);
    step_at(&mut world, 15);
    assert_eq!(idle(&world), [2]);
    let mut world = world_with(3, windows(10, 0), &OD);
    step_at(&mut world, 15);
    assert_eq!(idle(&world), [0, 1, 2]);
    assert!(world.memory.windows.is_empty());
}

fn commitment(name: &str, terms: Terms) -> Commitment {
    Commitment { name: name.into(), cloud: Cloud::new("aws").unwrap(), from: None, until: None, terms }
}

/// Two kept nodes at zero, two on demand at $0.80 and two on spot at $0.30, one of them let go in each window.
#[test]
fn what_saves_most_goes_first_and_what_is_paid_for_last() {
    let rules = Stabilization { max_removals: Percent(1), ..windows(10, 0) };
    let mut world = world_with(1, rules, &[CapacityType::Spot]);
    more_nodes(&mut world, 1);
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::OnDemand];
        let kept = Capacity { place: place("zone-a"), nodes: 2, paid: Paid::OnDemand };
        policy.commitments = vec![commitment("kept", Terms::Capacity(kept))];
    });
    world.pass();
    more_nodes(&mut world, 4);
    free_together(&mut world);
    let mut order = Vec::new();
    for minutes_in in (26..=76).step_by(10) {
        let plan = step_at(&mut world, minutes_in);
        let new = idle(&world);
        let paid = plan.accounts.kept.iter().filter(|(_, why)| *why == HoldFor::Paid).count();
        assert_eq!(paid, if order.len() < 4 { 2 } else { 0 }, "{minutes_in}: {:?}", kept(&plan));
        for id in new {
            order.push(id);
            world.delete(GROUP_A, &[&format!("node-{id}")]).unwrap();
        }
        // What is paid for waits until the others are gone.
        step_at(&mut world, minutes_in + 1);
        step_at(&mut world, minutes_in + 2);
    }
    // 2 and 3 are kept capacity, 4 and 5 on demand, 0 and 1 spot.
    assert_eq!(order, [5, 4, 1, 0, 3, 2]);
}

/// The order against the exact one, which makes a new bill for each node.
#[test]
fn the_order_of_release_saves_as_much_as_the_exact_one() {
    let mut paid_for = 0;
    for seed in 1..=60_u64 {
        let mut dice = Dice::new(seed);
        let reserved = u32::try_from(dice.roll(4)).unwrap();
        let rules = Stabilization { max_removals: Percent(1), ..windows(10, 0) };
        let mut world = world_with(1 + i32::try_from(dice.roll(2)).unwrap(), rules, &[CapacityType::Spot]);
        world.policy(|policy| {
            policy.pools[0].prefer = vec![CapacityType::OnDemand];
            if reserved > 0 {
                let terms = CommittedNodes {
                    instance_type: InstanceType::new("gpu.1").unwrap(),
                    region: Region::new("r").unwrap(),
                    zone: None,
                    nodes: reserved,
                    rate: UsdPerHour(500_000),
                };
                policy.commitments = vec![commitment("ri", Terms::Nodes(terms))];
            }
        });
        more_nodes(&mut world, 1 + i32::try_from(dice.roll(4)).unwrap());
        free_together(&mut world);
        let usage = Usage::count(&world.memory, &world.catalogue, Wall(world.now));
        let records: Vec<&Record> = world.memory.records.values().map(AsRef::as_ref).collect();
        let exact = release_order(&records, records.len(), &usage, &world.memory, &world.catalogue);
        let saved_by: BTreeMap<RecordId, UsdPerHour> = exact.iter().copied().collect();
        let mut saved = Vec::new();
        let mut minutes_in = 21;
        while saved.len() < exact.len() {
            step_at(&mut world, minutes_in);
            for id in idle(&world) {
                saved.push(saved_by[&RecordId(id)]);
                world.delete(GROUP_A, &[&format!("node-{id}")]).unwrap();
            }
            minutes_in += 10;
            assert!(minutes_in < 200, "seed {seed}");
        }
        paid_for += u32::from(reserved > 0);
        let exact: Vec<UsdPerHour> = exact.into_iter().map(|(_, saved)| saved).collect();
        assert_eq!(saved, exact, "seed {seed}");
    }
    assert!(paid_for > 30);
}

/// One of three is the floor: it is the one whose going saves least, and the net below keeps it by name and by number.
#[test]
fn the_floor_keeps_what_saves_least() {
    let mut world = world_with(1, windows(10, 0), &[CapacityType::Spot]);
    world.policy(|policy| {
        policy.pools[0].prefer = OD.to_vec();
        policy.pools[0].limits.min_nodes = 1;
    });
    world.pass();
    more_nodes(&mut world, 2);
    assert_eq!(kept(&step(&mut world))[0], (0, HoldFor::Floor));
    let plan = step_at(&mut world, 30);
    assert_eq!((kept(&plan), idle(&world)), (vec![(0, HoldFor::Floor)], vec![1, 2]));
    assert_eq!(free_of_a(&plan), (FreeNodes { floor: 1, idle: 2, ..FreeNodes::default() }, 1));
    // A node at work keeps the floor too.
    world.bind("node-2");
    let plan = step_at(&mut world, 31);
    assert_eq!((kept(&plan), idle(&world)), (vec![], vec![0, 1]));
    assert_eq!(free_of_a(&plan).1, 1);
}

/// A user's own annotation is their word: the node is never idle, takes nobody's turn, and stands in nobody's way.
#[test]
fn what_a_user_keeps_is_not_ours_to_release() {
    let rules = Stabilization { max_removals: Percent(1), ..windows(10, 0) };
    let mut world = world_with(2, rules, &OD);
    world.hold("node-1", Hold::Theirs);
    let plan = step_at(&mut world, 15);
    assert_eq!((kept(&plan), idle(&world)), (vec![], vec![0]));
}

/// That a node may go is a user's word, too: it is not written over, and `minSize` alone keeps what the window does.
#[test]
fn what_a_user_lets_go_is_not_held_by_annotation() {
    let mut world = world_with(2, windows(10, 0), &OD);
    world.hold("node-0", Hold::None);
    world.hold("node-1", Hold::Refused);
    let plan = step_at(&mut world, 5);
    let held: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|a| if let Action::Hold { node, .. } = a { Some(node.as_str()) } else { None })
        .collect();
    assert_eq!((held, free_of_a(&plan).1), (vec!["node-0"], 2));
}

/// The autoscaler closes what it deletes: too late for our word, and none of Stoker's to take back.
#[test]
fn a_node_that_somebody_closed_is_kept_as_ever() {
    let mut world = world_with(1, windows(10, 15), &OD);
    world.close(crate::facts::snapshot::Cordon::Theirs);
    let plan = step_at(&mut world, 10);
    assert_eq!((plan.actions.as_slice(), kept(&plan)), (&[][..], vec![(0, HoldFor::Window { until: at(15) })]));
    let plan = step_at(&mut world, 15);
    assert!(matches!(plan.actions[..], [Action::Release { .. }]), "{:?}", plan.actions);
    // Open again, it is as free as it was, and its window as over.
    assert_eq!((kept(&step_at(&mut world, 16)), idle(&world)), (vec![], vec![]));
    world.close(crate::facts::snapshot::Cordon::None);
    assert_eq!((kept(&step_at(&mut world, 17)), idle(&world)), (vec![], vec![0]));
    assert_eq!(world.memory.records[&RecordId(0)].judged.as_ref().unwrap().free_since(), Some(at(5)));
}

/// The autoscaler closes a node, and its deletion comes a moment later.
#[test]
fn a_node_that_is_closed_to_be_deleted_keeps_its_turn() {
    let rules = Stabilization { max_removals: Percent(50), ..windows(10, 0) };
    let mut world = world_with(2, rules, &OD);
    step_at(&mut world, 15);
    assert_eq!(idle(&world), [1]);
    world.edit_node(&NodeName::new("node-1").unwrap(), |node| node.cordon = crate::facts::snapshot::Cordon::Theirs);
    let plan = step_at(&mut world, 16);
    assert_eq!((kept(&plan), idle(&world)), (vec![(0, HoldFor::Removals { until: at(25) })], vec![]));
    world.delete(GROUP_A, &["node-1"]).unwrap();
    assert_eq!(kept(&step_at(&mut world, 17)), [(0, HoldFor::Removals { until: at(25) })]);
}

/// Of two nodes one is paid for. It waits for the other until that is gone: a deletion may fail.
#[test]
fn what_is_paid_for_waits_until_the_other_is_gone() {
    let mut world = world_with(2, windows(10, 0), &OD);
    world.policy(|policy| {
        let nodes = CommittedNodes {
            instance_type: InstanceType::new("gpu.1").unwrap(),
            region: Region::new("r").unwrap(),
            zone: None,
            nodes: 1,
            rate: UsdPerHour(500_000),
        };
        policy.commitments = vec![commitment("ri", Terms::Nodes(nodes))];
    });
    let plan = step_at(&mut world, 15);
    assert_eq!((kept(&plan), idle(&world)), (vec![(0, HoldFor::Paid)], vec![1]));
    world.edit_node(&NodeName::new("node-1").unwrap(), |node| node.cordon = crate::facts::snapshot::Cordon::Theirs);
    assert_eq!(kept(&step_at(&mut world, 16)), [(0, HoldFor::Paid)]);
    world.delete(GROUP_A, &["node-1"]).unwrap();
    assert_eq!(kept(&step_at(&mut world, 17)), [(0, HoldFor::Paid)]);
    world.end_terminated();
    world.forget_node("node-1");
    assert_eq!((kept(&step_at(&mut world, 18)), idle(&world)), (vec![], vec![0]));
}

/// Nobody can use what somebody closed: the floor keeps another, though that saves no less.
#[test]
fn a_floor_is_kept_by_nodes_that_pods_can_use() {
    let mut world = world_with(2, windows(10, 0), &OD);
    world.policy(|policy| policy.pools[0].limits.min_nodes = 1);
    world.edit_node(&NodeName::new("node-0").unwrap(), |node| node.cordon = crate::facts::snapshot::Cordon::Theirs);
    let plan = step_at(&mut world, 15);
    assert_eq!((kept(&plan), idle(&world)), (vec![(1, HoldFor::Floor)], vec![]));
}

#[test]
fn a_deletion_that_came_before_the_annotation_is_not_refused() {
    let mut world = world_with(1, windows(10, 15), &OD);
    assert_eq!(world.delete(GROUP_A, &["node-0"]), Ok(1));
    let limits = &step(&mut world).limits[&World::group(GROUP_A)];
    assert_eq!((limits.target, limits.min), (0, 0), "and what is gone holds no number up");
}

#[test]
fn an_emptied_fallback_node_is_gone_within_a_minute_whatever_its_windows() {
    let mut world = super::back::fallen_back(1);
    world.numbers(|policy| policy.pools[0].stabilization = Some(windows(600, 1_200)));
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().saving = crate::policy::rules::spot::Saving::Stateless);
    world.live(minutes(60));
    world.unbind_pod();
    let done = world.live(minutes(1));
    assert!(done.iter().any(|a| matches!(a, Action::Terminate { why: Ending::BackToSpot, .. })), "{done:?}");
}

/// What is remembered goes through the journal's own form, in the middle of windows.
#[test]
fn a_restart_in_a_window_changes_nothing() {
    let rules = Stabilization { max_removals: Percent(25), after_scale_up: minutes(12), ..windows(10, 15) };
    let mut world = world_with(8, rules, &OD);
    let mut other = world.clone();
    for minutes_in in 10..60 {
        world.now = at(minutes_in);
        other.now = at(minutes_in);
        let text = serde_json::to_string(&other.memory).unwrap();
        other.memory = serde_json::from_str(&text).unwrap();
        let (plan, again) = (step(&mut world), step(&mut other));
        assert_eq!(plan, again, "minute {minutes_in}");
    }
    assert_eq!(idle(&world).len(), 8);
}

#[test]
fn where_nothing_tells_or_nobody_is_watched_nothing_is_kept() {
    let mut world = world_with(2, windows(10, 15), &OD);
    world.policy(|policy| policy.pools[0].evidence = crate::base::kinds::Evidence::None);
    let plan = step(&mut world);
    assert_eq!((kept(&plan), idle(&world)), (vec![], vec![]));
}

#[test]
fn releases_are_counted_from_what_was_concluded() {
    let rules = Stabilization { max_removals: Percent(25), ..windows(10, 15) };
    let mut world = world_with(8, rules, &OD);
    world.now = at(15);
    world.observe();
    let snapshot = world.snapshot();
    let faults = |change: &dyn Fn(&mut crate::plan::Decision)| {
        let mut decision = decide(&snapshot, &world.memory, &world.catalogue, world.now);
        change(&mut decision);
        judge(&decision, &world.memory, &snapshot, &world.catalogue)
    };
    assert_eq!(faults(&|_| {}), []);
    let release = |decision: &mut crate::plan::Decision, id: u64, since: Timestamp| {
        let judged = decision.memory.records[&RecordId(7)].judged.clone().unwrap();
        let record = Arc::make_mut(decision.memory.records.get_mut(&RecordId(id)).unwrap());
        record.judged = Some(crate::state::node_verdict::Judged { since, ..judged });
        let pool = decision.memory.windows.values_mut().next().unwrap();
        Arc::make_mut(pool).nodes.push((RecordId(id), since));
    };
    let pool = world.policy.pools[0].name.clone();
    let told = Unfounded::TooManyReleased { pool, nodes: 3, most: 2 };
    assert_eq!(faults(&|decision| release(decision, 1, at(15))), [told]);
    let early = |decision: &mut crate::plan::Decision| release(decision, 7, at(14));
    assert_eq!(faults(&early), [Unfounded::ReleasedEarly(RecordId(7))]);
    let forgets = |decision: &mut crate::plan::Decision| decision.memory.windows.clear();
    assert_eq!(faults(&forgets), [6, 7].map(|id| Unfounded::ReleaseForgotten(RecordId(id))));
    let node = crate::base::ids::NodeName::new("node-2").unwrap();
    let opens = |decision: &mut crate::plan::Decision| {
        decision.plan.actions.push(Action::Release { node: node.clone() });
    };
    assert_eq!(faults(&opens), [Unfounded::OpensKept(node.clone())]);
}

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Asked,
    Bought,
    Free,
    Busy,
    Released,
    /// It is kept again.
    Kept,
    Gone,
}

/// All that ever happened, and from it again at each moment who may go.
#[derive(Clone, Default)]
struct History(Vec<(Timestamp, u64, Event)>);

impl History {
    fn of(&self, node: u64) -> impl DoubleEndedIterator<Item = (Timestamp, Event)> {
        self.0.iter().filter(move |(_, of, _)| *of == node).map(|(at, _, what)| (*at, *what))
    }

    fn last(&self, node: u64) -> Event {
        self.of(node).last().unwrap().1
    }

    fn last_at(&self, node: u64, what: Event) -> Timestamp {
        self.of(node).rev().find(|(_, known)| *known == what).unwrap().0
    }

    fn nodes(&self) -> Vec<u64> {
        let nodes: BTreeSet<u64> = self.0.iter().map(|(_, node, _)| *node).collect();
        nodes.into_iter().collect()
    }

    fn idle(&self) -> Vec<u64> {
        self.nodes().into_iter().filter(|node| self.last(*node) == Event::Released).collect()
    }

    /// When a node was released that is free since then, or has gone.
    fn released_at(&self, node: u64) -> Option<Timestamp> {
        self.of(node).fold(None, |released, (at, what)| match what {
            Event::Released => Some(at),
            Event::Gone => released,
            _ => None,
        })
    }

    /// Notes which are released at this moment, and which are kept again.
    fn release(&mut self, now: Timestamp, rules: &Stabilization, price: &dyn Fn(u64) -> i64) {
        let passed = |from: Timestamp, length: SignedDuration| from.saturating_add(length).unwrap() <= now;
        let grew = self.0.iter().filter(|(.., what)| *what == Event::Bought).map(|(at, ..)| *at).max();
        if grew.is_some_and(|at| !passed(at, rules.after_scale_up)) {
            let again = self.idle();
            self.0.extend(again.into_iter().map(|node| (now, node, Event::Kept)));
            return;
        }
        let mut due = self.nodes();
        due.retain(|node| {
            let free_for = match rules.window {
                Window::Fixed => rules.scale_down,
                Window::EqualCost => seconds((2_000_000 * 150 / price(*node)).max(60)).min(rules.scale_down),
            };
            matches!(self.last(*node), Event::Free | Event::Kept)
                && passed(self.last_at(*node, Event::Free), free_for)
                && passed(self.last_at(*node, Event::Bought), rules.minimum_life)
        });
        due.sort_by_key(|node| (-price(*node), std::cmp::Reverse(*node)));
        for node in due {
            let nodes = self.nodes();
            let recent = |of: &&u64| self.released_at(**of).is_some_and(|at| !passed(at, rules.scale_down));
            let gone = |of: &&u64| self.last(**of) == Event::Gone;
            let there = nodes.iter().filter(|of| !gone(of) || recent(of)).count();
            let most = (there * usize::from(rules.max_removals.0) / 100).max(1);
            if nodes.iter().filter(recent).count() < most || rules.max_removals == Percent::ALL {
                self.0.push((now, node, Event::Released));
            }
        }
    }
}

#[test]
fn what_may_go_is_what_the_whole_history_says() {
    let (mut released, mut waited) = (0, 0);
    for seed in 1..=60_u64 {
        let mut dice = Dice::new(seed);
        let mut roll = |sides: u64| i64::try_from(dice.roll(sides)).unwrap();
        let rules = Stabilization {
            scale_down: seconds(60 + roll(600)),
            window: if roll(2) == 0 { Window::Fixed } else { Window::EqualCost },
            minimum_life: seconds(roll(3) * roll(600)),
            after_scale_up: seconds(roll(2) * roll(300)),
            max_removals: [Percent(10), Percent(25), Percent(50), Percent::ALL][usize::try_from(roll(4)).unwrap()],
        };
        let mut world = world_with(0, rules.clone(), &OD);
        let mut history = History::default();
        let mut prices: Vec<i64> = Vec::new();
        for turn in 0..60 {
            world.advance(seconds(roll(200)));
            world.observe();
            let nodes = history.nodes();
            let pick =
                if nodes.is_empty() { None } else { nodes.get(usize::try_from(roll(nodes.len() as u64)).unwrap()).copied() };
            match (roll(6), pick) {
                (0, _) if world.target(GROUP_A) < 10 => {
                    let spot = roll(2) == 0;
                    world.policy(|policy| {
                        policy.pools[0].prefer = vec![if spot { CapacityType::Spot } else { CapacityType::OnDemand }];
                    });
                    // A group whose nodes were deleted before any pod came is suspended.
                    if world.try_increase(GROUP_A, 1).is_err() {
                        continue;
                    }
                    let id = u64::try_from(prices.len()).unwrap();
                    prices.push(if spot { 300_000 } else { 800_000 });
                    step(&mut world);
                    history.0.push((world.now, id, Event::Asked));
                    history.release(world.now, &rules, &|node| prices[usize::try_from(node).unwrap()]);
                    world.answer(|_| true);
                    step(&mut world);
                    history.0.push((world.now, id, Event::Bought));
                    history.release(world.now, &rules, &|node| prices[usize::try_from(node).unwrap()]);
                    world.observe();
                    world.join_new();
                    history.0.push((world.now, id, Event::Free));
                }
                (1 | 2, Some(node)) if matches!(history.last(node), Event::Free | Event::Released | Event::Kept) => {
                    world.bind(&format!("node-{node}"));
                    history.0.push((world.now, node, Event::Busy));
                }
                (1 | 2, Some(node)) if history.last(node) == Event::Busy => {
                    world.unbind(&format!("node-{node}"));
                    history.0.push((world.now, node, Event::Free));
                }
                (3, Some(node)) if history.last(node) == Event::Released => {
                    world.delete(GROUP_A, &[&format!("node-{node}")]).unwrap();
                    history.0.push((world.now, node, Event::Gone));
                }
                (4, _) => world.memory = serde_json::from_str(&serde_json::to_string(&world.memory).unwrap()).unwrap(),
                _ => {}
            }
            step(&mut world);
            let price = |node: u64| prices[usize::try_from(node).unwrap()];
            history.release(world.now, &rules, &price);
            assert_eq!(idle(&world), history.idle(), "seed {seed}, turn {turn}, {}, {rules:?}, {:?}", world.now, history.0);
            // Nothing of it changes before the moment that was told.
            world.observe();
            let next = decide(&world.snapshot(), &world.memory, &world.catalogue, world.now).next_change_at;
            if let Some(before) = next.map(|at| at.saturating_sub(seconds(1)).unwrap()).filter(|at| *at > world.now) {
                let mut ahead = history.clone();
                ahead.release(before, &rules, &price);
                assert_eq!(ahead.idle(), history.idle(), "seed {seed}, turn {turn}: released before {before}");
            }
            waited +=
                usize::from(step(&mut world).accounts.kept.iter().any(|(_, why)| matches!(why, HoldFor::Removals { .. })));
        }
        released += history.0.iter().filter(|(.., what)| *what == Event::Released).count();
    }
    assert!(released > 200 && waited > 50, "{released} released, {waited} moments at which some had to wait for their turn");
}
