//! A clock that runs ahead and is set back.

use serde_json::Value;

use super::oracle::Dice;
use super::world::{GROUP_A, World, minutes, seconds};
use super::*;
use crate::facts::snapshot::Cordon;
use crate::state::disruption::LONGEST_REST;
use crate::state::memory::LONGEST_BACKOFF;

const AHEAD: SignedDuration = SignedDuration::from_hours(240);

#[test]
fn a_market_that_refused_in_the_future_is_left_alone_no_longer_than_from_now() {
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
    world.advance(-AHEAD);
    world.observe();
    world.pass();
    let latest = world.memory.refused.values().map(|backoff| backoff.until).max();
    assert_eq!(latest, Some(world.now + minutes(3)), "the first wait, from now on");
    world.advance(minutes(3));
    world.observe();
    world.pass();
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
    world.advance(-AHEAD);
    for _ in 0..2 {
        world.advance(seconds(30));
        world.observe();
        world.pass();
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

/// Nor is a machine lost by an inventory that was read before the clock was set back.
#[test]
fn an_inventory_from_the_future_loses_nothing() {
    let mut world = World::in_zone_a();
    world.advance(AHEAD);
    world.observe();
    world.advance(-AHEAD);
    let old = world.inventory.clone();
    world.observe();
    world.increase(GROUP_A, 1);
    world.pass();
    world.answer(|_| true);
    world.pass();
    world.advance(minutes(3));
    world.join(true);
    world.inventory = old;
    for _ in 0..3 {
        let plan = world.pass();
        assert!(!plan.actions.iter().any(|action| matches!(action, Action::RemoveNode { .. })), "{:?}", plan.actions);
        world.advance(minutes(1));
    }
    assert_eq!(world.target(GROUP_A), 1);
}

/// Where the cloud's clock is ahead of Stoker's, or ours is set back while a machine boots, its boot ends all the same.
#[test]
fn a_machine_that_was_launched_in_the_future_has_its_time_to_boot_and_no_more() {
    for set_back_first in [true, false] {
        let mut world = World::in_zone_a();
        world.increase(GROUP_A, 1);
        world.pass();
        world.advance(AHEAD);
        world.answer(|_| true);
        if set_back_first {
            world.advance(-AHEAD);
        }
        world.observe();
        world.pass();
        if !set_back_first {
            world.pass_after(-AHEAD);
        }
        let deadline = world.menu.policy.boot_deadline;
        assert!(world.pass_after(deadline - seconds(1)).notes.is_empty());
        let notes = world.pass_after(seconds(1)).notes;
        assert!(matches!(&notes[..], [Note::BootTimeout { instance: Some(_), .. }]), "{notes:?}");
    }
}

/// Every moment that is written in a memory, with where it stands.
fn moments(at: &str, value: &Value, into: &mut Vec<(String, Timestamp)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| moments(&format!("{at}/{name}"), value, into)),
        Value::Array(values) => values.iter().for_each(|value| moments(at, value, into)),
        Value::String(text) => into.extend(text.parse().ok().map(|moment| (at.to_owned(), moment))),
        _ => {}
    }
}

/// Whether a cloud or the API server says it, or it is only compared with others.
fn is_not_waited_for(at: &str) -> bool {
    ["launched_at", "ready_at", "ordered_at", "watched_at"].iter().any(|name| at.ends_with(name))
}

#[test]
fn nothing_that_is_remembered_lies_further_ahead_than_the_longest_wait() {
    let longest = LONGEST_BACKOFF.max(LONGEST_REST);
    let mut seen = BTreeSet::new();
    for seed in 1..=40_u64 {
        let mut dice = Dice::new(seed);
        let mut world = World::in_zone_a();
        world.policy(|policy| {
            let rules = crate::policy::rules::stabilization::Stabilization::of(crate::base::kinds::Workload::Training);
            policy.pools[0].stabilization = Some(crate::policy::rules::stabilization::Stabilization {
                max_removals: crate::base::units::Percent(50),
                ..rules
            });
        });
        world.advance(AHEAD);
        for _ in 0..20 {
            world.advance(seconds(1 + i64::try_from(dice.roll(400)).unwrap()));
            world.observe();
            match dice.roll(8) {
                0 | 1 => drop(world.try_increase(GROUP_A, 1)),
                2 => world.unclear(),
                3 => world.refuse_all(RefusalKind::OutOfCapacity),
                4 => world.answer(|_| true),
                5 => world.join_new(),
                6 => world.reclaim(0),
                _ => world.close(if dice.roll(2) == 0 { Cordon::Theirs } else { Cordon::None }),
            }
            world.pass();
            world.drain(None);
        }
        world.advance(-AHEAD);
        world.observe();
        world.pass();
        let mut all = Vec::new();
        moments("", &serde_json::to_value(&world.memory).unwrap(), &mut all);
        for (name, at) in all.into_iter().filter(|(name, _)| !is_not_waited_for(name)) {
            assert!(at <= world.now + longest, "seed {seed}: {name} is {at}, and now is {}", world.now);
            seen.insert(name);
        }
    }
    for part in ["/windows/", "/spot/", "/refused/", "/reclaims/", "/idle/", "/state/retry_at", "/closed/freeSince"] {
        assert!(seen.iter().any(|name| name.contains(part)), "{part}");
    }
}
