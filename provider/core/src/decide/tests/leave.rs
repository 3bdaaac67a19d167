//! Nodes that are let go by Stoker's own decision.

use super::back::fallen_back;
use super::oracle::Dice;
use super::world::{GROUP_A, World, minutes, place, seconds};
use super::*;
use crate::base::ids::{Cloud, InstanceType, Region};
use crate::base::kinds::ReturnToSpot;
use crate::base::units::UsdPerHour;
use crate::facts::snapshot::{Cordon, Hold, Stuck};
use crate::market::offer::CapacityType;
use crate::plan::Evict;
use crate::policy::rules::commitment::{Capacity, Commitment, CommittedNodes, Paid, Terms};
use crate::policy::rules::spot::Saving;
use crate::state::disruption::{DrainReason, FIRST_REST, GIVE_UP_AFTER, PAUSE, STAYS_FOR, Stage};

/// When zone a's refusal is forgotten: 3 min of backoff and 30 of quiet, of which 5 are past. Where two were refused it is 3 min more.
const QUIET: SignedDuration = minutes(28);

fn drains(actions: &[Action]) -> Vec<Evict> {
    actions.iter().filter_map(|a| if let Action::Drain { evict, .. } = a { Some(*evict) } else { None }).collect()
}

fn endings(actions: &[Action]) -> Vec<Ending> {
    actions.iter().filter_map(|a| if let Action::Terminate { why, .. } = a { Some(*why) } else { None }).collect()
}

fn saves_nothing(world: &mut World) {
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().saving = Saving::Stateless);
}

#[test]
fn an_idle_fallback_node_is_gone_within_a_minute() {
    let mut world = fallen_back(1);
    saves_nothing(&mut world);
    assert_eq!(world.live(minutes(60)), [], "a busy node stays where nothing is saved");
    world.unbind_pod();
    let done = world.live(seconds(29));
    assert_eq!(done, [], "the next pod may come");
    let done = world.live(seconds(31));
    assert_eq!(drains(&done), [Evict::WithoutGpu; 2], "closed, and looked at again before it is ended");
    assert_eq!(endings(&done), [Ending::BackToSpot]);
    assert_eq!(world.target(GROUP_A), 0);
    world.advance(minutes(1));
    world.observe();
    world.pass();
    assert!(world.memory.disruptions.is_empty() && world.memory.free.is_empty() && world.memory.records.is_empty());
}

#[test]
fn a_pod_that_comes_in_time_keeps_its_idle_node() {
    let mut world = fallen_back(1);
    saves_nothing(&mut world);
    world.live(minutes(60));
    world.unbind_pod();
    world.live(seconds(29));
    world.advance(seconds(1));
    world.observe();
    let plan = world.pass();
    assert_eq!(drains(&plan.actions), [Evict::WithoutGpu]);
    assert!(matches!(&plan.notes[..], [Note::Disruption { why: DrainReason::BackToSpot { work: false, .. }, .. }]));
    // It was bound before the node was closed.
    world.drain(Some(&Stuck::NotNow("default/pod was scheduled meanwhile".into())));
    world.bind_pod();
    let plan = world.pass();
    assert!(matches!(&plan.notes[..], [Note::DrainAbandoned { .. }]), "{:?}", plan.notes);
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
    world.drain(None);
    assert_eq!(endings(&world.live(minutes(60))), []);
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn a_busy_node_that_saves_checkpoints_is_emptied_and_ended() {
    let mut world = fallen_back(1);
    let done = world.live(QUIET + minutes(1));
    assert_eq!(drains(&done), [Evict::Movable; 2]);
    assert_eq!(endings(&done), [Ending::BackToSpot]);
    assert_eq!(world.target(GROUP_A), 0);
    assert!(!done.iter().any(|a| matches!(a, Action::Launch { .. })), "the autoscaler asks, and not we");
}

#[test]
fn a_new_node_waits_for_its_pods() {
    let mut world = World::in_zone_a();
    world.increase(GROUP_A, 1);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    // Zone b's spot was never refused: it could move there at once.
    world.policy(|policy| policy.pools[0].zones.clear());
    assert_eq!(drains(&world.live(minutes(10))), []);
    world.bind_pod();
    world.live(seconds(1));
    world.unbind_pod();
    assert_eq!(endings(&world.live(minutes(1))), [Ending::BackToSpot]);
}

/// Twenty nodes are gone within half an hour, one by one: ten seconds to empty one, a minute until the next.
#[test]
fn busy_nodes_move_one_by_one_and_not_for_hours() {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        policy.pools[0].limits.max_nodes = 20;
        policy.pools[0].spot.as_mut().unwrap().return_to_spot = ReturnToSpot::Busy;
        policy.quotas.clear();
    });
    world.pass();
    world.increase(GROUP_A, 20);
    world.pass();
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(5));
    world.observe();
    world.join(true);
    world.bind_pod();
    world.policy(|policy| policy.pools[0].zones.clear());
    world.live(minutes(20));
    let mut last: Option<Timestamp> = None;
    let (begun, mut left) = (world.now, world.target(GROUP_A));
    while left > 0 {
        assert!(world.now.duration_since(begun) < minutes(30), "{left} are left");
        world.live(seconds(1));
        let gone = left - world.target(GROUP_A);
        if gone > 0 {
            assert!(gone == 1 && last.is_none_or(|last| world.now.duration_since(last) >= PAUSE), "two at once");
            (last, left) = (Some(world.now), left - gone);
        }
    }
}

#[test]
fn nothing_moves_while_an_order_is_not_bought() {
    let mut world = fallen_back(2);
    world.live(QUIET - seconds(1));
    world.increase(GROUP_A, 1);
    world.pass();
    world.start_launches();
    assert_eq!(drains(&world.live(minutes(5))), []);
    world.answer(|_| true);
    assert_eq!(drains(&world.live(minutes(1)))[0], Evict::Movable);
}

#[test]
fn a_market_that_shuts_before_the_first_pod_was_told_takes_it_back() {
    let mut world = fallen_back(1);
    world.live(QUIET - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    // Its pods are being told, and nobody has heard what came of it.
    let mut asked = world.clone();
    asked.policy(|policy| policy.pools[0].spot.as_mut().unwrap().max_interruption = Some(crate::base::units::Percent(1)));
    assert!(!asked.pass().actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
    assert!(!asked.memory.disruptions.is_empty());
    world.drain(Some(&Stuck::NotNow("a budget".into())));
    world.pass();
    assert!(
        world.memory.disruptions.values().all(|disruption| matches!(&disruption.stage, Stage::Emptying { evicted: false, .. }))
    );
    let before = world.clone();
    // Nothing of spot is acceptable any more.
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().max_interruption = Some(crate::base::units::Percent(1)));
    let plan = world.pass();
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })), "{:?}", plan.actions);
    assert!(world.memory.disruptions.is_empty());
    // Once a pod was told to go there is no way back.
    let mut world = before;
    world.advance(seconds(10));
    world.pass();
    world.drain(None);
    world.policy(|policy| policy.pools[0].spot.as_mut().unwrap().max_interruption = Some(crate::base::units::Percent(1)));
    assert_eq!(endings(&world.live(minutes(1))), [Ending::BackToSpot]);
}

#[test]
fn pods_that_will_not_go_keep_their_node_after_half_an_hour() {
    let mut world = fallen_back(1);
    world.live(QUIET - seconds(1));
    world.advance(seconds(1));
    let begun = world.now;
    let mut tries = 0;
    let opened = loop {
        world.observe();
        let plan = world.pass();
        tries += drains(&plan.actions).len();
        if plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })) {
            break world.now;
        }
        world.drain(Some(&Stuck::NotNow("default/pod: a budget".into())));
        world.advance(seconds(10));
    };
    assert_eq!(opened.duration_since(begun), GIVE_UP_AFTER);
    assert!(tries > 80, "asked all the time: {tries}");
    world.drain(None);
    assert_eq!(world.live(STAYS_FOR - seconds(1)), [], "left alone for a while");
    assert!(!drains(&world.live(minutes(2))).is_empty());
}

#[test]
fn a_pod_that_may_not_be_moved_keeps_its_node() {
    let mut world = fallen_back(1);
    world.live(QUIET - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    world.drain(Some(&Stuck::Never("default/pod has no controller that would recreate it".into())));
    let plan = world.pass();
    let [Note::DrainAbandoned { why, .. }] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert_eq!(why, "default/pod has no controller that would recreate it");
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
}

/// One of two nodes has moved, and the pod asks again.
fn moved() -> World {
    let mut world = fallen_back(2);
    world.live(QUIET + minutes(4));
    assert_eq!(world.target(GROUP_A), 1);
    world
}

#[test]
fn a_move_that_ends_on_demand_while_spot_is_there_makes_the_pool_rest_longer_each_time() {
    let mut world = moved();
    // Something else than the market's word keeps the pod from spot.
    world.numbers(|policy| policy.pools[0].spot.as_mut().unwrap().max_share = crate::base::units::Percent(0));
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
    world.answer(|_| true);
    world.pass();
    let moves = world.memory.moves.values().next().unwrap();
    let rests = moves.rests_until.unwrap().duration_since(world.now);
    assert_eq!((moves.failed, rests, moves.began_at), (1, FIRST_REST, None));
    let mut moves = crate::state::disruption::Moves::clone(moves);
    moves.judge(false, world.now);
    assert_eq!(moves.rests_until.unwrap().duration_since(world.now), FIRST_REST * 2);
    moves.judge(true, world.now);
    assert_eq!((moves.failed, moves.rests_until), (0, None));
}

/// Two busy nodes: the second goes when the first one's pod has its spot node, and need not wait for the minute to pass.
#[test]
fn the_next_node_goes_as_soon_as_the_last_one_s_work_has_its_spot_node() {
    for (bought, leaves) in [(true, 1), (false, 0)] {
        let mut world = fallen_back(2);
        let both = world.target(GROUP_A);
        while world.target(GROUP_A) == both {
            world.live(seconds(10));
        }
        let pause = world.memory.moves.values().next().unwrap().rests_until.unwrap();
        assert!(pause > world.now, "the pause has begun");
        if bought {
            world.increase(GROUP_A, 1);
            assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
            world.answer(|_| true);
        }
        world.pass();
        assert_eq!(world.memory.disruptions.values().filter(|disruption| disruption.is_open()).count(), leaves, "{bought}");
    }
}

#[test]
fn a_move_whose_market_shuts_meanwhile_does_not_count_as_failed() {
    let mut world = moved();
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    world.refuse_all(RefusalKind::OutOfCapacity);
    assert_eq!(World::launched_markets(&world.pass()), ["on-demand"]);
    world.answer(|_| true);
    world.pass();
    assert!(world.memory.moves.values().all(|moves| moves.failed == 0 && moves.began_at.is_none()));
    // The market itself is left alone all the same.
    world.bind_pod();
    assert_eq!(drains(&world.live(minutes(10))), []);
}

#[test]
fn what_somebody_else_closed_or_holds_is_left_alone() {
    for theirs in [true, false] {
        let mut world = fallen_back(1);
        if theirs {
            world.mark_node(Hold::Theirs)
        } else {
            world.close(Cordon::Theirs)
        }
        assert_eq!(world.live(minutes(120)), [], "{theirs}");
        world.unbind_pod();
        assert_eq!(drains(&world.live(minutes(120))), [], "{theirs}");
    }
}

#[test]
fn our_mark_on_a_node_that_does_not_go_is_taken_back() {
    let mut world = fallen_back(1);
    world.close(Cordon::Ours);
    // The state was lost: the machine is adopted, and nothing is remembered of why its node was closed.
    world.memory = Memory::default();
    world.pass();
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
}

#[test]
fn our_mark_is_taken_off_a_node_that_somebody_opened_after_us() {
    let mut world = fallen_back(1);
    world.close(Cordon::MarkLeft);
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Uncordon { .. })));
    world.drain(None);
    // What is closed from then on is somebody else's.
    world.close(Cordon::Theirs);
    assert_eq!(world.live(minutes(120)), []);
}

#[test]
fn a_crash_at_any_point_goes_on_from_what_is_remembered() {
    let mut world = fallen_back(1);
    world.live(QUIET - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    // The pods were told to go, and nobody heard of it.
    world.drain(None);
    world.drains.clear();
    let done = world.live(minutes(1));
    assert_eq!(drains(&done), [Evict::Movable; 2]);
    assert_eq!(endings(&done), [Ending::BackToSpot]);
}

#[test]
fn a_floor_is_kept_by_another_node_and_so_moves_one_by_one() {
    let mut world = fallen_back(2);
    world.policy(|policy| policy.pools[0].limits.min_nodes = 2);
    world.unbind_pod();
    world.live(QUIET + minutes(4));
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn a_node_that_is_not_ready_keeps_no_floor() {
    let mut world = fallen_back(1);
    world.policy(|policy| policy.pools[0].limits.min_nodes = 1);
    world.unbind_pod();
    world.live(minutes(10));
    world.increase(GROUP_A, 1);
    assert_eq!(World::launched_markets(&world.pass()), ["spot"]);
    world.answer(|_| true);
    // It boots. The other moves as one that the floor needs, and not as one too many.
    let done = world.live(seconds(1));
    assert_eq!(drains(&done), [Evict::WithoutGpu]);
    assert!(world.memory.disruptions.values().any(|disruption| disruption.moves_work()));
}

#[test]
fn a_pod_that_comes_to_a_free_node_which_moves_for_a_floor_keeps_it() {
    let mut world = fallen_back(2);
    world.policy(|policy| policy.pools[0].limits.min_nodes = 2);
    world.unbind_pod();
    let told = |world: &mut World| {
        world.advance(seconds(10));
        world.observe();
        drains(&world.pass().actions)
    };
    let first = (0..300).map(|_| told(&mut world)).find(|told| !told.is_empty());
    assert_eq!(first, Some(vec![Evict::WithoutGpu]), "no pod was on it when that was decided");
    // The scheduler had chosen it before it was closed. Work that saves checkpoints moves in this pool, but this has just begun.
    world.bind("node-0");
    world.drain(Some(&Stuck::NotNow("default/pod was scheduled meanwhile".into())));
    let plan = world.pass();
    assert!(
        plan.notes.iter().any(|note| matches!(note, Note::DrainAbandoned { node, .. } if node.as_str() == "node-0")),
        "{:?}",
        plan.notes
    );
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Uncordon { node, .. } if node.as_str() == "node-0")));
    world.drain(None);
    let done = world.live(seconds(59));
    assert!(!drains(&done).contains(&Evict::Movable), "nor is it told as work that moves, at once: {done:?}");
}

/// A block of two nodes in zone a from the start, of which nodes leave in an hour and which ends 40 min later.
fn on_a_block() -> World {
    let mut world = World::new();
    let at = |minutes_on| world.now.saturating_add(minutes(minutes_on)).unwrap();
    let (from, leave_at, until) = (world.now, at(60), at(100));
    world.policy(|policy| {
        policy.pools[0].prefer = vec![CapacityType::Reserved, CapacityType::Spot];
        let paid = Paid::Ahead { rate: UsdPerHour(1_000_000), leave_at };
        let terms = Terms::Capacity(Capacity { place: place("zone-a"), nodes: 2, paid });
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments = vec![Commitment { name: "block".into(), cloud, from: Some(from), until: Some(until), terms }];
    });
    world.pass();
    world.increase(GROUP_A, 2);
    assert_eq!(World::launched_markets(&world.pass()), ["reserved", "reserved"]);
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.bind_pod();
    world.pass();
    world
}

#[test]
fn nodes_of_a_block_are_all_emptied_before_it_ends() {
    let mut world = on_a_block();
    saves_nothing(&mut world);
    assert_eq!(drains(&world.live(minutes(60) - seconds(1))), []);
    let done = world.live(minutes(1));
    assert_eq!(drains(&done), [Evict::All; 4], "both at once, busy or not");
    assert_eq!(endings(&done), [Ending::CapacityEnds; 2]);
    assert_eq!(world.target(GROUP_A), 0);
}

#[test]
fn no_word_of_an_earlier_try_keeps_a_node_on_a_block_that_ends() {
    let mut world = on_a_block();
    world.live(minutes(60) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    world.drain(Some(&Stuck::Never("somebody uncordoned it again".into())));
    assert_eq!(endings(&world.live(minutes(2))), [Ending::CapacityEnds; 2]);
}

#[test]
fn a_block_that_is_extended_in_time_keeps_its_nodes() {
    let mut world = on_a_block();
    world.live(minutes(60) - seconds(1));
    world.advance(seconds(1));
    world.observe();
    world.pass();
    world.drain(Some(&Stuck::NotNow("default/pod: a budget".into())));
    world.pass();
    let later = world.now.saturating_add(minutes(600)).unwrap();
    world.policy(|policy| {
        let Terms::Capacity(kept) = &mut policy.commitments[0].terms else { panic!("kept capacity") };
        kept.paid = Paid::Ahead { rate: UsdPerHour(1_000_000), leave_at: later };
    });
    let plan = world.pass();
    assert_eq!(plan.actions.iter().filter(|a| matches!(a, Action::Uncordon { .. })).count(), 2);
}

#[test]
fn what_a_block_cannot_hold_goes_and_what_another_keeps_stays() {
    let mut world = on_a_block();
    world.policy(|policy| {
        let mut other = policy.commitments[0].clone();
        other.name = "reservation".into();
        other.until = None;
        let Terms::Capacity(kept) = &mut other.terms else { panic!("kept capacity") };
        (kept.nodes, kept.paid) = (1, Paid::OnDemand);
        policy.commitments.push(other);
    });
    let done = world.live(minutes(61));
    assert_eq!(endings(&done), [Ending::CapacityEnds]);
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn pods_that_will_not_leave_a_block_are_asked_until_the_cloud_takes_it() {
    let mut world = on_a_block();
    world.live(minutes(60) - seconds(1));
    world.advance(seconds(1));
    for _ in 0..200 {
        world.observe();
        let plan = world.pass();
        assert_eq!(endings(&plan.actions), [], "never while pods are on it");
        world.drain(Some(&Stuck::NotNow("default/pod: a budget".into())));
        world.advance(seconds(10));
    }
    assert_eq!(world.target(GROUP_A), 2);
    world.lose_machine();
    world.observe();
    world.pass();
    assert_eq!(world.target(GROUP_A), 0);
    assert!(world.memory.disruptions.is_empty());
}

/// Of four nodes half may be in one zone, and a fifth may make it three there. Without the block's two that is too much.
#[test]
fn an_order_counts_the_shares_without_the_nodes_that_end_in_its_pass() {
    let mut world = on_a_block();
    world.increase(GROUP_B, 2);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.observe();
    world.join(true);
    world.bind_pod();
    world.numbers(|policy| policy.pools[0].max_zone_share = Some(crate::base::units::Percent(50)));
    world.live(minutes(60) - seconds(1));
    for _ in 0..2 {
        world.advance(seconds(10));
        world.observe();
        assert_eq!(drains(&world.pass().actions).len(), 2);
        world.drain(None);
    }
    world.increase(GROUP_B, 1);
    let plan = world.pass();
    assert_eq!(endings(&plan.actions), [Ending::CapacityEnds; 2]);
    assert_eq!(World::launched_markets(&plan), <[&str; 0]>::default());
}

#[test]
fn an_idle_node_that_a_commitment_pays_for_stays() {
    let mut world = fallen_back(3);
    world.policy(|policy| {
        let terms = Terms::Nodes(CommittedNodes {
            instance_type: InstanceType::new("gpu.1").unwrap(),
            region: Region::new("r").unwrap(),
            zone: None,
            nodes: 1,
            rate: UsdPerHour(500_000),
        });
        let cloud = Cloud::new("aws").unwrap();
        policy.commitments = vec![Commitment { name: "ri".into(), cloud, from: None, until: None, terms }];
    });
    world.live(minutes(10));
    world.unbind_pod();
    let done = world.live(QUIET + minutes(60));
    assert_eq!(endings(&done), [Ending::BackToSpot; 2]);
    assert_eq!(world.target(GROUP_A), 1);
}

/// In random weather, with crashes between what is done and what is heard of it, and with pods that come back to closed nodes: pods of
/// a pool that saves nothing are never told to go, and no machine ends with pods on it. `pass` runs the checker, which judges the rest.
#[test]
fn no_pod_is_told_to_go_that_must_not_in_random_weather() {
    let (mut told, mut ended, mut opened) = (0, 0, 0);
    for seed in 1..=300_u64 {
        let mut dice = Dice::new(seed);
        let mut world = if dice.roll(4) == 0 { on_a_block() } else { fallen_back(3) };
        let block = !world.policy.commitments.is_empty();
        let mut saves = true;
        for _ in 0..60 {
            match dice.roll(12) {
                0 | 1 => world.bind_pod(),
                2 => world.unbind_pod(),
                3 => {
                    saves = !saves;
                    let saving = Saving::Checkpoints { every: minutes(30), overhead: crate::base::units::Percent(3) };
                    world.numbers(|policy| {
                        if let Some(rules) = policy.pools[0].spot.as_mut() {
                            rules.saving = if saves { saving } else { Saving::Stateless };
                        }
                    });
                }
                4 => drop(world.try_increase(GROUP_A, 1)),
                5 => {
                    world.answer(|_| true);
                    world.observe();
                    world.join(true);
                }
                6 => world.refuse_all(RefusalKind::OutOfCapacity),
                7 => world.drains.clear(),
                8 => world.drain(Some(&Stuck::NotNow("a budget".into()))),
                9 if dice.roll(4) == 0 => world.drain(Some(&Stuck::Never("a pod".into()))),
                9 | 10 => world.drain(None),
                _ => world.advance(minutes(i64::try_from(dice.roll(15)).unwrap())),
            }
            world.advance(seconds(i64::try_from(dice.roll(12)).unwrap()));
            world.observe();
            let busy = world.snapshot().cluster.unwrap();
            let plan = world.pass();
            for action in &plan.actions {
                match action {
                    Action::Drain { node, evict, .. } => {
                        told += 1;
                        let busy = busy.nodes[node].is_busy();
                        assert!(block || saves || !busy, "seed {seed}: {node}");
                        assert!(block || *evict != Evict::All, "seed {seed}");
                    }
                    Action::Terminate { instance, why: Ending::BackToSpot | Ending::CapacityEnds, .. } => {
                        ended += 1;
                        let on_it = busy.nodes.values().any(|n| n.provider_id.as_ref() == Some(instance) && n.is_busy());
                        assert!(!on_it, "seed {seed}: {instance}");
                    }
                    Action::Uncordon { .. } => opened += 1,
                    _ => {}
                }
            }
            world.end_terminated();
        }
    }
    // The weather was worth the name.
    assert!(told > 300 && ended > 100 && opened > 30, "{told} told, {ended} ended, {opened} opened");
}

/// The GPU of a node is lost, of which nobody can tell any more whether it works; the node is empty and goes with its block all the same.
#[test]
fn a_broken_node_on_a_block_that_ends_is_emptied_and_ended() {
    use super::verdicts::{quiet, seen};
    use crate::base::ids::NodeName;
    use crate::base::kinds::Evidence;
    use crate::facts::reading::Why;
    use crate::facts::reading::seen::Activity;

    let mut world = on_a_block();
    world.policy(|policy| {
        policy.pools[0].evidence = Evidence::Probe;
        policy.pools[0].unhealthy.action = crate::policy::rules::health::UnhealthyAction::Cordon;
    });
    let since = world.now;
    for node in ["node-0", "node-1"] {
        let mut seen = seen(since, [quiet(since); 2]);
        if node == "node-0" {
            seen.gpus.values_mut().for_each(|gpu| gpu.activity = Activity::Unknown { why: Why::GpuLost, since });
        }
        world.seen.insert(NodeName::new(node).unwrap(), Arc::new(seen));
    }
    world.unbind_pod();
    world.live(minutes(60) - seconds(1));
    let done = world.live(minutes(10));
    assert_eq!(endings(&done), [Ending::CapacityEnds; 2]);
}
