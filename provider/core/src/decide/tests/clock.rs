//! Walls that jump, and restarts on one that stands elsewhere than it should.

use serde_json::Value;

use super::oracle::Dice;
use super::world::{GROUP_A, World, minutes, seconds, start};
use super::*;
use crate::facts::snapshot::Cordon;
use crate::state::disruption::{Disruption, DrainReason, Stage};

const AHEAD: SignedDuration = SignedDuration::from_hours(240);

#[test]
fn a_market_that_refused_in_the_future_is_left_alone_for_what_was_left() {
    let mut world = World::in_zone_a();
    world.advance(AHEAD);
    world.observe();
    world.increase(GROUP_A, 1);
    for _ in 0..2 {
        world.pass();
        world.refuse_all(RefusalKind::OutOfCapacity);
    }
    world.pass();
    assert!(world.limits(GROUP_A).closed.is_some());
    world.pass_after(minutes(1));
    world.restart(-AHEAD);
    world.observe();
    world.pass();
    let latest = world.memory.refused.values().map(|backoff| backoff.until).max();
    assert_eq!(latest, Some(world.now + minutes(2)), "of three minutes one is over");
    world.pass_after(minutes(2));
    assert_eq!(world.limits(GROUP_A).closed, None);
}

#[test]
fn a_machine_that_was_to_end_in_the_future_and_is_gone_is_forgotten() {
    let mut world = World::with_node(GROUP_A, true);
    world.advance(AHEAD);
    world.observe();
    world.pass();
    let node = world.node_name();
    world.delete(GROUP_A, &[&node]).unwrap();
    world.pass();
    world.end_terminated();
    world.restart(-AHEAD);
    for _ in 0..2 {
        world.pass_after(seconds(30));
    }
    assert_eq!(world.records(GROUP_A).count(), 0);
}

/// The cloud's clock is hours behind ours, and its inventory has not been read since the order: it does not list the machine, which is
/// counted all the same.
#[test]
fn a_machine_of_a_cloud_whose_clock_is_behind_is_not_lost_by_an_old_inventory() {
    let mut world = World::in_zone_a();
    let launched_at = world.now;
    world.advance(SignedDuration::from_hours(2));
    world.observe();
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    for record in world.memory.records.values_mut() {
        let State::Booting { purchase, instance, .. } = record.state.clone() else { panic!("{record:?}") };
        Arc::make_mut(record).state = State::Booting { purchase, instance, launched_at };
    }
    let plan = world.pass();
    assert_eq!(world.target(GROUP_A), 1, "{:?}", plan.notes);
}

#[test]
fn a_machine_that_was_launched_in_the_future_has_its_time_to_boot_and_no_more() {
    let mut world = World::in_zone_a();
    world.advance(AHEAD);
    world.observe();
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.restart(-AHEAD);
    let deadline = world.catalogue.policy.boot_deadline;
    assert!(world.pass_after(deadline - seconds(1)).notes.is_empty());
    let notes = world.pass_after(seconds(1)).notes;
    assert!(matches!(&notes[..], [Note::BootTimeout { instance: Some(_), .. }]), "{notes:?}");
}

/// A world in which much happens.
fn eventful() -> World {
    let mut world = World::in_zone_a();
    world.policy(|policy| {
        let rules = crate::policy::rules::stabilization::Stabilization::of(crate::base::kinds::Workload::Training);
        policy.pools[0].stabilization =
            Some(crate::policy::rules::stabilization::Stabilization { max_removals: crate::base::units::Percent(50), ..rules });
    });
    world
}

/// Something happens to it.
fn happens(world: &mut World, what: u64, wait: SignedDuration) {
    world.advance(wait);
    world.observe();
    match what {
        0 | 1 => drop(world.try_increase(GROUP_A, 1)),
        2 => world.unclear(),
        3 => world.refuse_all(RefusalKind::OutOfCapacity),
        4 => world.answer(|_| true),
        5 => world.join_new(),
        6 => world.reclaim(0),
        7 => world.close(Cordon::Theirs),
        _ => world.close(Cordon::None),
    }
}

fn drawn(dice: &mut Dice) -> (u64, SignedDuration) {
    (dice.roll(9), seconds(1 + i64::try_from(dice.roll(400)).unwrap()))
}

#[test]
fn a_wall_that_jumps_changes_no_decision() {
    for seed in 1..=40_u64 {
        let mut dice = Dice::new(seed);
        let (mut steady, mut jumping) = (eventful(), eventful());
        for step in 0..40 {
            let (what, wait) = drawn(&mut dice);
            // Less than makes the prices of a table count no more.
            jumping.wall_ahead = minutes(i64::try_from(dice.roll(8_640)).unwrap() - 4_320);
            for world in [&mut steady, &mut jumping] {
                happens(world, what, wait);
            }
            assert_eq!(jumping.pass(), steady.pass(), "seed {seed}, step {step}");
            assert_eq!(jumping.memory, steady.memory, "seed {seed}, step {step}");
            for world in [&mut steady, &mut jumping] {
                world.drain(None);
            }
        }
    }
}

/// Every moment that is written in a memory, with where it stands.
fn moments(at: &str, value: &Value, into: &mut Vec<(String, Timestamp)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| moments(&format!("{at}/{name}"), value, into)),
        Value::Array(values) => values.iter().enumerate().for_each(|(n, value)| moments(&format!("{at}/{n}"), value, into)),
        Value::String(text) => into.extend(text.parse().ok().map(|moment| (at.to_owned(), moment))),
        _ => {}
    }
}

fn all_moments(memory: &Memory) -> Vec<(String, Timestamp)> {
    let mut all = Vec::new();
    moments("", &serde_json::to_value(memory).unwrap(), &mut all);
    all
}

#[test]
fn whatever_is_remembered_moves_with_the_wall_but_for_prices() {
    let mut seen = BTreeSet::new();
    for seed in 1..=40_u64 {
        let mut dice = Dice::new(seed);
        let mut world = eventful();
        for _ in 0..20 {
            let (what, wait) = drawn(&mut dice);
            happens(&mut world, what, wait);
            world.pass();
            world.drain(None);
        }
        let moved = world.memory.rebased(-AHEAD).unwrap();
        let (before, after) = (all_moments(&world.memory), all_moments(&moved));
        assert_eq!(before.len(), after.len());
        for ((place, before), (same, after)) in before.into_iter().zip(after) {
            assert_eq!(place, same);
            let is_price = place.contains("/group/");
            assert_eq!(after, if is_price { before } else { before - AHEAD }, "seed {seed}: {place}");
            seen.insert(place);
        }
        assert_eq!(moved.rebased(AHEAD).unwrap(), world.memory, "seed {seed}");
    }
    for part in ["/windows/", "/spot/", "/refused/", "/reclaims/", "/free/", "/state/retry_at", "/closed/freeSince", "/group/"]
    {
        assert!(seen.iter().any(|place| place.contains(part)), "{part}");
    }
}

#[test]
fn the_end_of_a_commitment_does_not_move() {
    let (since, at) = (start(), start() + AHEAD);
    let why = DrainReason::CapacityEnds { commitment: "block".into(), at };
    let disruption = Disruption { why: why.clone(), since, stage: Stage::Closing, asked: false, pods: BTreeSet::new() };
    let memory = Memory { disruptions: [(RecordId(1), Arc::new(disruption))].into(), ..Memory::default() };
    let moved = memory.rebased(AHEAD).unwrap();
    let disruption = &moved.disruptions[&RecordId(1)];
    assert_eq!((&disruption.why, disruption.since), (&why, since + AHEAD));
}
