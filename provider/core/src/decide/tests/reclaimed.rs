//! Nodes that the cloud takes back, or will maintain.

use super::back::fallen_back;
use super::world::{GROUP_A, World, minutes, place, seconds};
use super::*;
use crate::base::ids::NodeName;
use crate::base::units::Milli;
use crate::facts::reading::digest::Digest;
use crate::facts::reading::seen::{Hearing, Notice, Seen};
use crate::facts::reading::{Interruption, Source};
use crate::facts::snapshot::Stuck;
use crate::plan::Evict;
use crate::state::disruption::DrainReason;

/// Busy spot nodes in zone a.
pub(super) fn on_spot(nodes: i32) -> World {
    let mut world = World::in_zone_a();
    if nodes > 10 {
        world.policy(|policy| {
            policy.pools[0].limits.max_nodes = nodes.unsigned_abs();
            policy.quotas.clear();
        });
    }
    world.increase(GROUP_A, nodes);
    assert_eq!(World::launched_markets(&world.pass()), vec!["spot"; usize::try_from(nodes).unwrap()]);
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(5));
    world.observe();
    world.join(true);
    world.bind_pod();
    world.pass();
    for node in 0..nodes {
        hear(&mut world, node, None);
    }
    world.advance(minutes(10));
    world.observe();
    world.pass();
    world
}

fn node(n: i32) -> NodeName {
    NodeName::new(format!("node-{n}")).unwrap()
}

/// The probe on a node is heard from now on, and says that.
fn hear(world: &mut World, n: i32, notice: Option<Notice>) {
    let mut seen: Seen = Digest::new(Source::Probe, world.now).seen().clone();
    seen.hearing = Hearing::Heard { since: world.seen.get(&node(n)).map_or(world.now, |seen| heard_since(seen)) };
    seen.notice = notice;
    world.seen.insert(node(n), Arc::new(seen));
}

fn heard_since(seen: &Seen) -> Timestamp {
    let (Hearing::Heard { since } | Hearing::Silent { since }) = seen.hearing;
    since
}

/// A notice of now.
fn notice(world: &World, kind: Interruption, after: Option<SignedDuration>) -> Notice {
    Notice { kind, deadline: after.map(|after| later(world, after)), since: world.now }
}

fn later(world: &World, by: SignedDuration) -> Timestamp {
    world.now.saturating_add(by).unwrap()
}

pub(super) fn reclaim(world: &mut World, n: i32) {
    let told = notice(world, Interruption::Reclaim, Some(minutes(2)));
    hear(world, n, Some(told));
}

/// The nodes that are told to go, which pods, and by when.
fn drains(actions: &[Action]) -> Vec<(String, Evict, Option<Timestamp>)> {
    let drain = |action: &Action| match action {
        Action::Drain { node, evict, gone_by, .. } => Some((node.to_string(), *evict, *gone_by)),
        _ => None,
    };
    actions.iter().filter_map(drain).collect()
}

fn endings(actions: &[Action]) -> Vec<Ending> {
    actions.iter().filter_map(|a| if let Action::Terminate { why, .. } = a { Some(*why) } else { None }).collect()
}

fn reclaims(world: &World) -> Milli {
    world.memory.spot.get(&place("zone-a")).map_or(Milli(0), |known| known.reclaims)
}

fn region_events(world: &World) -> usize {
    world.memory.reclaims.values().map(|region| region.events.len()).sum()
}

#[test]
fn a_notice_empties_its_node_at_once_and_closes_its_market() {
    let mut world = on_spot(2);
    reclaim(&mut world, 1);
    let gone_by = later(&world, seconds(110));
    let plan = world.pass();
    assert_eq!(drains(&plan.actions), [("node-1".to_owned(), Evict::All, Some(gone_by))]);
    assert!(matches!(&plan.notes[..], [Note::Disruption { why: DrainReason::Reclaimed { .. }, .. }]));
    assert_eq!((reclaims(&world), region_events(&world)), (Milli(1000), 1));
    assert_eq!(world.target(GROUP_A), 2, "the autoscaler counts the node as long as it is registered");
    // The pods went, and so does the machine.
    world.drain(None);
    let done = world.live(seconds(15));
    assert_eq!(endings(&done), [Ending::Reclaimed]);
    assert_eq!(world.target(GROUP_A), 1);
    assert!(!done.iter().any(|a| matches!(a, Action::Launch { .. })), "the autoscaler asks, and not we");
    // What is sold next is not sold there.
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
    world.live(minutes(2));
    assert_eq!((reclaims(&world), region_events(&world)), (Milli(1000), 1), "it does not count again when it is gone");
}

#[test]
fn what_the_supplier_lists_as_taken_back_goes_too_and_counts_once_beside_the_probe() {
    let mut world = on_spot(1);
    let at = later(&world, minutes(2));
    world.set_machine_state(InstanceState::Reclaiming { at });
    world.observe();
    let gone_by = later(&world, seconds(110));
    assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::All, Some(gone_by))]);
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    reclaim(&mut world, 0);
    world.advance(seconds(10));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::All, Some(gone_by))], "the same end");
    assert_eq!(reclaims(&world), Milli(1000));
}

#[test]
fn a_cloud_that_names_no_time_gives_its_usual_notice() {
    let mut world = on_spot(1);
    let told = notice(&world, Interruption::Reclaim, None);
    hear(&mut world, 0, Some(told));
    let gone_by = later(&world, seconds(110));
    world.advance(seconds(1));
    assert_eq!(
        drains(&world.pass().actions),
        [("node-0".to_owned(), Evict::All, Some(gone_by))],
        "AWS: 120 s of which 10 are kept"
    );
}

/// The cloud's clock is hours before ours. What it says is believed as far as a notice of that market can be.
#[test]
fn a_clock_that_is_behind_gives_no_pod_more_time_than_there_is() {
    for by_probe in [true, false] {
        let mut world = on_spot(1);
        let hear_of_it = |world: &mut World, at: Timestamp| {
            if by_probe {
                let told = Notice { kind: Interruption::Reclaim, deadline: Some(at), since: world.now };
                hear(world, 0, Some(told));
            } else {
                world.set_machine_state(InstanceState::Reclaiming { at });
            }
            world.observe();
        };
        let at = later(&world, minutes(3 * 60 + 2));
        hear_of_it(&mut world, at);
        let gone_by = later(&world, seconds(110));
        let told = vec![("node-0".to_owned(), Evict::All, Some(gone_by))];
        assert_eq!(drains(&world.pass().actions), told, "{by_probe}");
        world.drain(Some(&Stuck::NotNow("a budget".into())));
        world.advance(seconds(20));
        // A service that restarted is told again, and that begins nothing again.
        let memory = serde_json::to_string(&world.memory).unwrap();
        world.memory = serde_json::from_str(&memory).unwrap();
        hear_of_it(&mut world, at);
        assert_eq!(drains(&world.pass().actions), told, "{by_probe}");
    }
}

#[test]
fn a_wave_over_a_market_is_one_event_and_every_node_of_it_is_told_in_the_pass_that_hears_of_it() {
    let mut world = on_spot(6);
    (0..4).for_each(|n| world.list_reclaimed(n));
    world.observe();
    assert_eq!(drains(&world.pass().actions).len(), 4);
    world.drain(None);
    world.advance(seconds(170));
    world.list_reclaimed(4);
    world.observe();
    let told = drains(&world.pass().actions);
    assert!(told.iter().any(|(name, ..)| name == "node-4"), "{told:?}");
    assert_eq!((reclaims(&world), region_events(&world)), (Milli(5000), 1));
    world.drain(None);
    world.advance(seconds(20));
    world.list_reclaimed(5);
    world.observe();
    world.pass();
    assert_eq!((reclaims(&world), region_events(&world)), (Milli(6000), 2), "three minutes after the first it is another");
}

#[test]
fn pods_that_will_not_go_are_told_again_until_the_machine_is_gone_and_its_node_is_removed_then() {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    let gone_by = later(&world, seconds(110));
    for _ in 0..12 {
        let plan = world.pass();
        assert_eq!(drains(&plan.actions), [("node-0".to_owned(), Evict::All, Some(gone_by))]);
        assert_eq!(endings(&plan.actions), [], "never while pods are on it");
        world.drain(Some(&Stuck::Never("no controller".into())));
        world.advance(seconds(10));
        world.observe();
    }
    world.lose_machine();
    world.observe();
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 0, "at once");
    assert!(plan.actions.iter().any(|a| matches!(a, Action::RemoveNode { .. })), "{:?}", plan.actions);
    assert_eq!(reclaims(&world), Milli(1000), "the notice counted");
    assert!(world.memory.disruptions.is_empty());
}

#[test]
fn a_node_that_is_emptied_for_less_is_emptied_for_its_reclaim_from_the_notice_on() {
    // An on-demand node that moves back to spot; a budget keeps its pod.
    let mut world = fallen_back(1);
    world.live(minutes(28) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::Movable, None)]);
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    world.pass();
    world.advance(seconds(2));
    world.list_reclaimed(0);
    world.observe();
    let gone_by = later(&world, seconds(110));
    assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::All, Some(gone_by))], "and not 8 s later");
    assert_eq!(reclaims(&world), Milli(0), "it was no spot node");
    world.drain(None);
    assert_eq!(endings(&world.live(seconds(20))), [Ending::Reclaimed]);
    assert!(world.memory.moves.is_empty(), "and it says nothing of moves");
}

#[test]
fn a_notice_that_is_withdrawn_before_a_pod_was_told_is_taken_back() {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    world.pass();
    // Its pods are being told: nobody knows yet whether one was.
    hear(&mut world, 0, None);
    assert_eq!(world.pass().notes, []);
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    let plan = world.pass();
    assert!(matches!(&plan.notes[..], [Note::DrainAbandoned { .. }]), "{:?}", plan.notes);
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
    assert_eq!((reclaims(&world), world.memory.disruptions.len()), (Milli(0), 0));
    // Told again, it goes again.
    reclaim(&mut world, 0);
    assert_eq!(drains(&world.pass().actions).len(), 1);
    assert_eq!(reclaims(&world), Milli(1000));
    world.drain(None);
    hear(&mut world, 0, None);
    assert_eq!(endings(&world.live(seconds(20))), [Ending::Reclaimed], "from the first pod on there is no way back");
}

/// Its pods were evicted, and nothing can tell any more that it is free.
#[test]
fn a_node_whose_gpu_is_lost_ends_although_its_notice_is_withdrawn() {
    use super::verdicts::{quiet, seen};
    use crate::base::kinds::Evidence;
    use crate::facts::reading::Why;
    use crate::facts::reading::seen::Activity;

    let mut world = on_spot(1);
    world.policy(|policy| policy.pools[0].evidence = Evidence::Probe);
    reclaim(&mut world, 0);
    world.pass();
    world.drain(None);
    let since = world.now;
    let mut lost = seen(since, [quiet(since); 2]);
    lost.gpus.values_mut().for_each(|gpu| gpu.activity = Activity::Unknown { why: Why::GpuLost, since });
    world.seen.insert(node(0), Arc::new(lost));
    assert_eq!(endings(&world.live(minutes(5))), [Ending::Reclaimed]);
}

#[test]
fn a_probe_that_is_silent_or_has_just_begun_takes_no_notice_back() {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    world.pass();
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    // The provider restarts: it has heard no probe yet.
    let seen = std::mem::take(&mut world.seen);
    let memory = serde_json::to_string(&world.memory).unwrap();
    world.memory = serde_json::from_str(&memory).unwrap();
    world.pass();
    let stands = |world: &World| world.memory.disruptions.values().any(|disruption| disruption.is_open());
    assert!(stands(&world));
    // The probe speaks, and tells its events a moment later.
    hear(&mut world, 0, None);
    world.pass();
    assert!(stands(&world));
    world.seen = seen;
    world.advance(seconds(20));
    world.observe();
    assert_eq!(drains(&world.pass().actions).len(), 1);
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    // Silent since.
    let mut silent = Seen::clone(&world.seen[&node(0)]);
    (silent.notice, silent.hearing) = (None, Hearing::Silent { since: world.now });
    world.seen.insert(node(0), Arc::new(silent));
    world.advance(minutes(1));
    world.pass();
    assert!(stands(&world));
}

/// AWS gives 120 s at the longest. A provider that hears of it a second too late would tell pods that have no time left, for a machine that
/// is gone or stays after all.
#[test]
fn a_notice_whose_longest_time_is_over_begins_nothing() {
    for (deadline, waited, begins) in [(Some(minutes(2)), 120, true), (Some(minutes(2)), 121, false), (None, 121, false)] {
        let mut world = on_spot(1);
        let told = notice(&world, Interruption::Reclaim, deadline);
        world.advance(seconds(waited));
        world.observe();
        hear(&mut world, 0, Some(told));
        let plan = world.pass();
        let begun = (drains(&plan.actions).len(), plan.notes.len(), world.memory.disruptions.len());
        assert_eq!(begun, if begins { (1, 1, 1) } else { (0, 0, 0) }, "{deadline:?} {waited}");
        assert_eq!(reclaims(&world), Milli(if begins { 1000 } else { 0 }), "{deadline:?} {waited}");
    }
    // What was begun in time goes on.
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    world.pass();
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    world.advance(seconds(121));
    world.observe();
    assert_eq!(drains(&world.pass().actions).len(), 1);
    assert!(world.memory.disruptions.values().any(|disruption| disruption.is_open()));
}

#[test]
fn a_crash_between_the_notice_and_its_outcome_goes_on_with_the_same_end() {
    let mut world = on_spot(1);
    reclaim(&mut world, 0);
    let gone_by = later(&world, seconds(110));
    world.pass();
    // Nothing of it was done, and nobody hears of it.
    let memory = serde_json::to_string(&world.memory).unwrap();
    world.memory = serde_json::from_str(&memory).unwrap();
    world.seen.clear();
    world.advance(seconds(30));
    world.observe();
    assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::All, Some(gone_by))]);
    world.drain(None);
    assert_eq!(endings(&world.live(seconds(20))), [Ending::Reclaimed]);
    assert_eq!(reclaims(&world), Milli(1000));
}

/// A bad release of the probe announces the end of every node.
#[test]
fn probes_alone_drain_three_of_a_small_pool_and_the_supplier_lets_the_others_go() {
    let mut world = on_spot(6);
    (0..6).for_each(|n| reclaim(&mut world, n));
    let plan = world.pass();
    let told: Vec<Evict> = drains(&plan.actions).into_iter().map(|(_, evict, _)| evict).collect();
    assert_eq!(told.iter().filter(|evict| **evict == Evict::All).count(), 3);
    assert_eq!(told.iter().filter(|evict| **evict == Evict::Nobody).count(), 3, "the others are cordoned");
    let stopped = |note: &&Note| matches!(note, Note::ReclaimsUnconfirmed { nodes: 3, of: 6, .. }) && note.is_alarm();
    assert_eq!(plan.notes.iter().filter(stopped).count(), 1);
    assert_eq!(reclaims(&world), Milli(3000), "what is not believed says nothing of the market");
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    // The supplier says so too.
    world.advance(seconds(10));
    (0..6).for_each(|n| world.list_reclaimed(n));
    world.observe();
    let plan = world.pass();
    assert!(!plan.notes.iter().any(|note| matches!(note, Note::ReclaimsUnconfirmed { .. })), "{:?}", plan.notes);
    assert_eq!(drains(&plan.actions).iter().filter(|(_, evict, _)| *evict == Evict::All).count(), 6);
    assert_eq!(reclaims(&world), Milli(6000));
}

#[test]
fn probes_alone_drain_a_fifth_of_a_large_pool_within_five_minutes() {
    let mut world = on_spot(21);
    (0..10).for_each(|n| reclaim(&mut world, n));
    let all = |plan: &Plan<Checked>| drains(&plan.actions).iter().filter(|(_, evict, _)| *evict == Evict::All).count();
    assert_eq!(all(&world.pass()), 5);
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    // Another one each minute: none of them goes, and the time begins anew with each.
    for n in 10..18 {
        world.advance(minutes(1));
        world.observe();
        reclaim(&mut world, n);
        let plan = world.pass();
        assert!(plan.notes.iter().all(|note| !matches!(note, Note::Disruption { .. })), "{:?}", plan.notes);
    }
    world.advance(minutes(5));
    world.observe();
    reclaim(&mut world, 20);
    assert!(drains(&world.pass().actions).iter().any(|(node, evict, _)| node == "node-20" && *evict == Evict::All));
}

#[test]
fn an_on_demand_node_is_not_drained_on_the_word_of_its_probe_alone() {
    let mut world = fallen_back(1);
    reclaim(&mut world, 0);
    let plan = world.pass();
    assert_eq!(drains(&plan.actions), [("node-0".to_owned(), Evict::Nobody, None)]);
    assert!(plan.notes.iter().any(|note| matches!(note, Note::NodeCordoned { .. }) && note.is_alarm()), "{:?}", plan.notes);
    world.drain(None);
    assert_eq!(world.pass().notes, [], "it is said once");
    // Its probe takes that back, and is heard for long enough to have said all.
    hear(&mut world, 0, None);
    world.advance(seconds(20));
    world.observe();
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
}

/// A pod that fakes the notice on each node that follows.
#[test]
fn probes_alone_close_a_market_at_most_once_an_hour() {
    let mut world = on_spot(4);
    let closed = |world: &World| {
        let known = world.memory.spot.get(&place("zone-a")).and_then(|known| known.left_alone_until());
        known.is_some_and(|until| until > world.now)
    };
    reclaim(&mut world, 0);
    world.pass();
    assert!(closed(&world));
    for (n, minute) in [(1, 20), (2, 40)] {
        world.advance(minutes(20));
        world.observe();
        reclaim(&mut world, n);
        world.pass();
        assert!(!closed(&world), "{minute} min");
    }
    assert_eq!((reclaims(&world), region_events(&world)), (Milli(1000), 1));
    // The cloud did take the second: that counts.
    world.reclaim(1);
    world.observe();
    world.pass();
    assert!(closed(&world));
    world.advance(minutes(21));
    world.observe();
    reclaim(&mut world, 3);
    world.pass();
    assert!(closed(&world), "an hour later");
}

#[test]
fn what_is_only_likelier_to_be_taken_back_goes_on_as_it_is() {
    let mut world = on_spot(1);
    let told = notice(&world, Interruption::Rebalance, None);
    hear(&mut world, 0, Some(told));
    assert_eq!(world.live(minutes(10)), []);
    assert_eq!(reclaims(&world), Milli(0));
}

#[test]
fn a_node_that_will_be_maintained_takes_no_new_pods_and_keeps_those_that_it_has() {
    for busy in [true, false] {
        let mut world = on_spot(1);
        if !busy {
            world.unbind_pod();
        }
        let told = notice(&world, Interruption::Maintenance, Some(minutes(15)));
        hear(&mut world, 0, Some(told));
        let plan = world.pass();
        assert_eq!(drains(&plan.actions), [("node-0".to_owned(), Evict::Nobody, None)]);
        assert!(matches!(&plan.notes[..], [Note::NodeCordoned { .. }]));
        world.drain(None);
        // The provider restarts meanwhile, and hears the probe late.
        let seen = std::mem::take(&mut world.seen);
        assert_eq!(world.live(minutes(1)), []);
        world.seen = seen;
        assert_eq!(world.live(minutes(30)), []);
        hear(&mut world, 0, None);
        let done = world.live(seconds(1));
        assert!(matches!(&done[..], [Action::Uncordon { .. }]), "{done:?}");
        assert!(world.memory.cordons.is_empty());
        assert_eq!(reclaims(&world), Milli(0));
    }
}

#[test]
fn a_clock_that_is_set_back_over_a_restart_gives_what_was_told_the_time_that_was_left() {
    // Pods are gone ten seconds before its end.
    for (left, gone_in) in [(minutes(2), seconds(110)), (-seconds(5), -seconds(15))] {
        let mut world = on_spot(1);
        let told = notice(&world, Interruption::Reclaim, Some(left));
        hear(&mut world, 0, Some(told));
        world.pass();
        world.drain(Some(&Stuck::NotNow("a budget".into())));
        world.pass();
        world.restart(-minutes(60));
        world.observe();
        let gone_by = later(&world, gone_in);
        assert_eq!(drains(&world.pass().actions), [], "{left}");
        world.advance(seconds(10));
        world.observe();
        assert_eq!(drains(&world.pass().actions), [("node-0".to_owned(), Evict::All, Some(gone_by))], "{left}");
    }
}
