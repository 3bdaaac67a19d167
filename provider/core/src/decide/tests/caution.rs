//! What is not done for ten minutes after a journal was lost.

use super::reclaimed::{on_spot, reclaim};
use super::world::{GROUP_A, World, minutes};
use super::*;
use crate::base::ids::Incarnation;
use crate::decide::orders::DeleteRefused;
use crate::facts::supply::KeyParts;
use crate::plan::{HoldFor, JournalFault};
use crate::state::memory::CAUTION;

/// A fleet of one free node whose journal is lost.
fn lost() -> World {
    let mut world = World::with_node(GROUP_A, true);
    world.memory = Memory::default();
    world
}

fn lost_notes(plan: &Plan<Checked>) -> usize {
    plan.notes.iter().filter(|note| matches!(note, Note::Journal { fault: JournalFault::Lost, .. })).count()
}

#[test]
fn machines_that_a_new_journal_does_not_know_are_an_alarm_and_ten_minutes_of_caution() {
    let mut world = lost();
    let plan = world.pass();
    let alarm = plan.notes.iter().find(|note| note.reason() == "JournalLost").expect("an alarm");
    assert!(alarm.is_alarm() && alarm.to_string().contains("1 machine of this cluster is running already"), "{alarm}");
    assert_eq!(world.memory.cautious_until, Some(world.now.saturating_add(CAUTION).unwrap()));
    world.advance(minutes(1));
    world.observe();
    assert_eq!(lost_notes(&world.pass()), 0, "it is told once");
    world.advance(CAUTION);
    world.observe();
    world.pass();
    assert_eq!(world.memory.cautious_until, None);
    // A first start on an account without machines is none.
    let mut first = World::new();
    assert_eq!((lost_notes(&first.pass()), first.memory.cautious_until), (0, None));
}

#[test]
fn in_caution_free_nodes_are_held_and_deletions_refused_until_it_is_over() {
    let mut world = lost();
    let plan = world.pass();
    let holds =
        |plan: &Plan<Checked>| plan.actions.iter().any(|a| matches!(a, Action::Hold { why: HoldFor::Caution { .. }, .. }));
    assert!(holds(&plan), "{:?}", plan.actions);
    let shown = world.records(GROUP_A).next().unwrap().shown_id().to_string();
    let refused = world.delete(GROUP_A, &[&shown]).unwrap_err();
    assert!(matches!(refused, DeleteRefused::Cautious { .. }), "{refused}");
    world.mark_node(Hold::Ours);
    world.advance(CAUTION);
    world.observe();
    let plan = world.pass();
    assert!(!holds(&plan), "{:?}", plan.actions);
    world.delete(GROUP_A, &[&shown]).unwrap();
    world.observe();
    assert!(world.pass().actions.iter().any(|a| matches!(a, Action::Terminate { why: Ending::Deleted, .. })));
}

#[test]
fn in_caution_no_machine_that_has_not_joined_is_ended() {
    let mut world = World::with_node(GROUP_A, false);
    world.advance(minutes(30));
    world.memory = Memory::default();
    world.observe();
    let ends = |plan: &Plan<Checked>| plan.actions.iter().any(|a| matches!(a, Action::Terminate { .. }));
    assert!(!ends(&world.pass()));
    world.advance(CAUTION);
    world.observe();
    assert!(ends(&world.pass()));
}

#[test]
fn in_caution_reclaimed_nodes_are_drained_all_the_same() {
    let mut world = on_spot(1);
    world.memory = Memory::default();
    world.pass();
    assert!(world.memory.cautious_until.is_some());
    reclaim(&mut world, 0);
    let plan = world.pass();
    assert!(plan.actions.iter().any(|a| matches!(a, Action::Drain { gone_by: Some(_), .. })), "{:?}", plan.actions);
}

#[test]
fn the_number_of_a_node_that_ended_before_the_journal_was_lost_makes_no_key_that_was_used() {
    let bought = |incarnation: &str| {
        let mut world = World::new();
        world.memory.incarnation = Some(Incarnation::new(incarnation).unwrap());
        world.increase(GROUP_A, 1);
        World::launched_keys(&world.pass()).remove(0)
    };
    let (before, after) = (bought("00c0ffee"), bought("0badcafe"));
    let [before, after] = [before, after].map(|key| key.as_str().parse::<KeyParts>().unwrap());
    assert_eq!((before.record, before.attempt), (after.record, after.attempt), "nothing living tells that the number was used");
    assert_ne!(before.key().unwrap(), after.key().unwrap());
}
