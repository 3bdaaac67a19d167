//! Unhealthy nodes: closed, waited for or emptied, and replaced as far as their pool allows.

use std::collections::BTreeMap;

use super::oracle::Dice;
use super::verdicts::Shown;
use super::world::{GROUP_A, World, minutes, seconds};
use super::*;
use crate::base::ids::{NodeName, RecordId};
use crate::base::kinds::Evidence;
use crate::facts::snapshot::{Cordon, Stuck};
use crate::plan::Evict;
use crate::policy::rules::health::{HealthRules, UnhealthyAction};
use crate::state::disruption::STAYS_FOR;
use crate::state::node_verdict::Verdict;
use crate::state::probe_history::CLEAN_FOR;

/// Nodes of a pool with that rule, busy ones, as their probes say. They are on demand, and nothing moves them.
pub(super) fn fleet(nodes: i32, action: UnhealthyAction) -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        let pool = &mut policy.pools[0];
        pool.prefer = vec![crate::market::offer::CapacityType::OnDemand];
        pool.limits.max_nodes = 20;
        pool.evidence = Evidence::Probe;
        pool.unhealthy = HealthRules { action, ..HealthRules::default() };
        policy.quotas.clear();
    });
    world.pass();
    world.increase(GROUP_A, nodes);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.probes = Some(Shown::Working);
    world.join(true);
    world.bind_pod();
    world.pass();
    world
}

fn drains(actions: &[Action]) -> Vec<Evict> {
    actions.iter().filter_map(|a| if let Action::Drain { evict, .. } = a { Some(*evict) } else { None }).collect()
}

fn endings(actions: &[Action]) -> Vec<Ending> {
    actions.iter().filter_map(|a| if let Action::Terminate { why, .. } = a { Some(*why) } else { None }).collect()
}

/// As after a restart: what is not written down is gone.
fn restart(world: &mut World) {
    let memory = serde_json::to_string(&world.memory).unwrap();
    world.memory = serde_json::from_str(&memory).unwrap();
    world.drains.clear();
}

#[test]
fn an_unhealthy_node_is_closed_at_once_and_ended_when_its_pods_have_gone() {
    let mut world = fleet(2, UnhealthyAction::Wait);
    world.show(0, Shown::Broken);
    let plan = world.pass();
    assert_eq!(drains(&plan.actions), [Evict::Nobody]);
    assert!(plan.notes.iter().any(|note| matches!(note, Note::NodeCordoned { .. }) && note.is_alarm()), "{:?}", plan.notes);
    world.drain(None);
    restart(&mut world);
    assert_eq!(world.live(minutes(60)), [], "its pod works on, and decides when it goes");
    world.unbind_pod();
    let done = world.live(seconds(30));
    assert_eq!(drains(&done), [Evict::WithoutGpu; 2]);
    assert_eq!(endings(&done)[0], Ending::Unhealthy);
    assert_eq!(world.target(GROUP_A), 1);
    assert!(!done.iter().any(|a| matches!(a, Action::Launch { .. })), "the autoscaler asks, and not we");
    world.live(minutes(2));
    assert!(world.memory.cordons.is_empty() && world.memory.disruptions.is_empty());
}

#[test]
fn a_pool_that_drains_empties_a_busy_one_after_its_time() {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.show(0, Shown::Broken);
    assert_eq!(drains(&world.live(minutes(5) - seconds(1))), [Evict::Nobody]);
    restart(&mut world);
    let done = world.live(seconds(20));
    assert_eq!(drains(&done), [Evict::Movable; 2]);
    assert_eq!(endings(&done), [Ending::Unhealthy]);
}

#[test]
fn a_pool_that_cordons_ends_none() {
    let mut world = fleet(1, UnhealthyAction::Cordon);
    world.unbind_pod();
    world.show(0, Shown::Broken);
    assert_eq!(drains(&world.live(minutes(600))), [Evict::Nobody]);
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn a_node_that_is_well_again_takes_pods_again_and_one_of_which_nobody_knows_does_not() {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.unbind_pod();
    world.show(0, Shown::Broken);
    world.live(minutes(4));
    world.show(0, Shown::Unreadable);
    assert_eq!(world.live(minutes(30)), [], "what cannot be read clears no fault, and ends no node");
    let verdict = world.memory.records[&RecordId(0)].judged.as_ref().map(|judged| judged.verdict);
    assert_eq!(verdict, Some(Verdict::Unknown));
    world.show(0, Shown::Working);
    let done = world.live(seconds(1));
    assert!(matches!(&done[..], [Action::Uncordon { .. }]), "{done:?}");
    // Broken once more, its time begins again.
    world.show(0, Shown::Broken);
    assert_eq!(drains(&world.live(minutes(4))), [Evict::Nobody]);
}

#[test]
fn what_somebody_else_closed_is_left_alone_and_what_somebody_opened_stays_open_for_an_hour() {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.close(Cordon::Theirs);
    world.show(0, Shown::Broken);
    assert_eq!(world.live(minutes(600)), []);
    world.show(0, Shown::Working);
    assert_eq!(world.live(CLEAN_FOR), []);
    world.show(0, Shown::Broken);
    world.close(Cordon::None);
    assert_eq!(drains(&world.live(seconds(1))), [Evict::Nobody]);
    // Opened by hand before anything was told to go.
    world.close(Cordon::MarkLeft);
    let done = world.live(STAYS_FOR - seconds(1));
    assert!(matches!(&done[..], [Action::Uncordon { .. }]), "only our mark is taken off: {done:?}");
    let done = world.live(seconds(2));
    assert_eq!(drains(&done)[0], Evict::Nobody);
}

#[test]
fn a_pod_that_came_before_its_node_was_closed_is_waited_for() {
    let mut world = fleet(1, UnhealthyAction::Wait);
    world.unbind_pod();
    world.show(0, Shown::Broken);
    world.live(minutes(5) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [Evict::WithoutGpu]);
    world.drain(Some(&Stuck::NotNow("default/pod was scheduled meanwhile".into())));
    world.bind_pod();
    let done = world.live(minutes(60));
    assert_eq!(done, [], "it stays closed, and is not ended");
    world.unbind_pod();
    assert_eq!(endings(&world.live(seconds(30))), [Ending::Unhealthy]);
}

#[test]
fn a_pod_that_may_not_be_moved_keeps_its_node_which_stays_closed() {
    let mut world = fleet(1, UnhealthyAction::Drain);
    world.show(0, Shown::Broken);
    world.live(minutes(5) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    world.drain(Some(&Stuck::Never("default/pod has no controller that would recreate it".into())));
    assert_eq!(world.live(STAYS_FOR - seconds(1)), []);
    // It is asked again in an hour. Two of an hour are allowed, and the first is past it.
    assert_eq!(drains(&world.live(seconds(20)))[0], Evict::Movable);
}

/// Ten nodes, of which two may be replaced within an hour and a fifth may be unhealthy at once.
#[test]
fn so_many_are_replaced_within_an_hour_across_a_restart_and_the_next_waits() {
    let mut world = fleet(10, UnhealthyAction::Drain);
    world.show(3, Shown::Broken);
    world.show(4, Shown::Broken);
    let done = world.live(minutes(6));
    assert_eq!(endings(&done), [Ending::Unhealthy; 2]);
    let begun = world.now;
    restart(&mut world);
    world.show(5, Shown::Broken);
    let mut told = 0;
    // The first two began a minute ago.
    for _ in 0..58 {
        world.advance(minutes(1));
        world.observe();
        let plan = world.pass();
        told += plan
            .notes
            .iter()
            .filter(|note| matches!(note, Note::ReplacementsStopped { unhealthy: 1, nodes: 8, replaced: 2, .. }))
            .count();
        assert_eq!(endings(&plan.actions), []);
        assert!(drains(&plan.actions).iter().all(|evict| *evict == Evict::Nobody));
        world.drain(None);
    }
    assert_eq!(told, 1, "once, and loudly");
    let done = world.live(minutes(2));
    assert_eq!(endings(&done), [Ending::Unhealthy]);
    assert_eq!(world.now.duration_since(begun), minutes(60));
    assert_eq!(world.target(GROUP_A), 7);
}

#[test]
fn a_roll_out_that_breaks_a_third_of_the_pool_ends_no_node_of_it() {
    let mut world = fleet(10, UnhealthyAction::Drain);
    for record in 0..3 {
        world.show(record, Shown::Broken);
    }
    let done = world.live(minutes(5) - seconds(1));
    assert_eq!(drains(&done), [Evict::Nobody; 3], "closed, so that no pod begins on them");
    world.advance(seconds(1));
    world.observe();
    let plan = world.pass();
    let stopped = |note: &&Note| matches!(note, Note::ReplacementsStopped { unhealthy: 3, nodes: 10, replaced: 0, .. });
    assert_eq!(plan.notes.iter().filter(stopped).count(), 1);
    assert_eq!(world.live(minutes(600)), []);
    // One of them is repaired: two of ten may be broken at once.
    world.show(1, Shown::Working);
    let done = world.live(CLEAN_FOR + minutes(2));
    assert_eq!(endings(&done), [Ending::Unhealthy; 2]);
    assert_eq!(world.target(GROUP_A), 8);
}

#[test]
fn nodes_without_pods_are_replaced_before_busy_ones() {
    let mut world = fleet(10, UnhealthyAction::Drain);
    world.numbers(|policy| policy.pools[0].unhealthy.max_replacements = 1);
    world.show(2, Shown::Broken);
    world.live(minutes(1));
    world.show(7, Shown::Broken);
    world.live(minutes(3));
    let idle = NodeName::new("node-7").unwrap();
    world.unbind(idle.as_str());
    world.advance(minutes(6));
    world.observe();
    let plan = world.pass();
    let told = plan.actions.iter().find_map(|a| if let Action::Drain { node, .. } = a { Some(node.clone()) } else { None });
    // The first to break was due two minutes before the second, and would be replaced had it not been passed over.
    assert_eq!(told, Some(idle));
}

/// Whatever breaks and recovers, whoever restarts and answers: no more are replaced within any hour than the pool allows, none while more
/// than a fifth is broken, and no pod of a pool that waits is told to go. `pass` runs the checker beside.
#[test]
fn the_breaker_holds_in_random_weather() {
    let (mut begun_at_all, mut stopped) = (0, 0);
    for seed in 1..=60_u64 {
        let mut dice = Dice::new(seed);
        let action = [UnhealthyAction::Wait, UnhealthyAction::Drain][usize::try_from(dice.roll(2)).unwrap()];
        let mut world = fleet(10, action);
        let mut begun: Vec<Timestamp> = Vec::new();
        let mut open = std::collections::BTreeSet::new();
        for _ in 0..80 {
            let node = usize::try_from(dice.roll(10)).unwrap();
            match dice.roll(8) {
                0 | 1 => world.show(node, Shown::Broken),
                2 => world.show(node, Shown::Working),
                3 => world.show(node, Shown::Unreadable),
                4 => restart(&mut world),
                5 => world.unbind_pod(),
                6 => world.bind_pod(),
                _ => world.advance(minutes(i64::try_from(dice.roll(30)).unwrap())),
            }
            world.advance(seconds(i64::try_from(dice.roll(60)).unwrap()));
            world.observe();
            let nodes = world.memory.records.values().filter(|r| matches!(r.state, State::Registered { .. })).count();
            let plan = world.pass();
            let broken = world.memory.records.values().filter(|r| matches!(r.state, State::Registered { .. })).filter(|r| {
                let goes = world.memory.disruptions.get(&r.id).is_some_and(|disruption| disruption.is_open());
                goes || r.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Unhealthy)
            });
            let broken = broken.count();
            stopped += plan.notes.iter().filter(|note| matches!(note, Note::ReplacementsStopped { .. })).count();
            for (id, _) in world.memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()) {
                if open.insert(*id) {
                    assert!(5 * broken <= nodes + 4, "seed {seed}: {broken} of {nodes}");
                    begun.push(world.now);
                    begun_at_all += 1;
                }
            }
            open.retain(|id| world.memory.disruptions.get(id).is_some_and(|disruption| disruption.is_open()));
            for action_done in &plan.actions {
                if let Action::Drain { evict, .. } = action_done {
                    assert!(action == UnhealthyAction::Drain || *evict != Evict::Movable, "seed {seed}");
                }
            }
            let stuck = Stuck::NotNow("a budget".into());
            world.drain((dice.roll(3) == 0).then_some(&stuck));
            world.end_terminated();
        }
        for at in &begun {
            let within = begun.iter().filter(|other| **other <= *at && at.duration_since(**other) < minutes(60)).count();
            assert!(within <= 2, "seed {seed}: {within} within an hour");
        }
    }
    assert!(begun_at_all > 40 && stopped > 20, "{begun_at_all} replaced, stopped {stopped} times");
}

const FAILS: &str = "EC2's system status check fails since 2026-11-02 12:00:00Z";

/// The cloud calls the first machine impaired from now on, or not any more, or does not say.
fn call(world: &mut World, impaired: Option<bool>) {
    let first = world.machines.keys().next().unwrap().clone();
    let of = |impaired| if impaired { [(first, FAILS.to_owned())].into() } else { BTreeMap::new() };
    world.impaired = impaired.map(of);
    world.observe();
}

/// A pool whose evidence is its pods knows of hardware by its supplier alone.
#[test]
fn a_machine_that_its_cloud_calls_impaired_is_replaced_as_one_that_its_probe_calls_so() {
    for evidence in [Evidence::Pods, Evidence::Probe] {
        let mut world = fleet(2, UnhealthyAction::Drain);
        world.policy(|policy| policy.pools[0].evidence = evidence);
        world.live(minutes(10));
        call(&mut world, Some(true));
        assert_eq!(drains(&world.live(minutes(4))), [Evict::Nobody], "{evidence:?}");
        let judged = world.memory.records[&RecordId(0)].judged.clone().unwrap();
        assert_eq!((judged.verdict, judged.why.to_string().as_str()), (Verdict::Unhealthy, FAILS));
        // With its pods the work goes, which its probe would show.
        world.show(0, Shown::Idle);
        assert_eq!(endings(&world.live(minutes(2))), [Ending::Unhealthy], "{evidence:?}");
        assert_eq!(world.target(GROUP_A), 1);
    }
}

/// Unknown is neither: it makes no machine unhealthy, and none well again, also over a restart.
#[test]
fn what_a_cloud_does_not_say_changes_no_verdict() {
    for evidence in [Evidence::Pods, Evidence::Probe] {
        let mut world = fleet(1, UnhealthyAction::Cordon);
        world.policy(|policy| policy.pools[0].evidence = evidence);
        world.unbind_pod();
        world.show(0, Shown::Idle);
        world.live(minutes(2));
        let verdict = |world: &World| world.memory.records[&RecordId(0)].judged.as_ref().unwrap().verdict;
        call(&mut world, None);
        world.live(minutes(10));
        assert!(verdict(&world).is_free(), "{evidence:?}");
        call(&mut world, Some(true));
        world.live(minutes(1));
        call(&mut world, None);
        restart(&mut world);
        world.live(minutes(30));
        assert_eq!(verdict(&world), Verdict::Unhealthy, "{evidence:?}");
        call(&mut world, Some(false));
        let done = world.live(CLEAN_FOR + seconds(1));
        assert!(matches!(&done[..], [Action::Uncordon { .. }]), "{evidence:?}: {done:?}");
        assert!(verdict(&world).is_free(), "{evidence:?}");
    }
}
