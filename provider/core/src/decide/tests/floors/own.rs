//! Growth of our own.

use super::*;
use crate::plan::Note;

/// Passes every twenty seconds for so long; the notes.
fn wait(world: &mut World, length: jiff::SignedDuration) -> Vec<Note> {
    let until = world.now + length;
    let mut notes = Vec::new();
    while world.now < until {
        world.advance(seconds(20));
        world.observe();
        notes.extend(world.pass().notes);
    }
    notes
}

fn grown(notes: &[Note]) -> Vec<(&str, u32)> {
    let grown = |note| match note {
        &Note::FloorGrown { ref group, nodes } => Some((group.as_str(), nodes)),
        _ => None,
    };
    notes.iter().filter_map(grown).collect()
}

#[test]
fn what_the_autoscaler_does_not_ask_for_is_grown_after_two_minutes_and_the_pool_closed_meanwhile() {
    let mut world = with(nodes(2));
    world.pass();
    assert_eq!(grown(&wait(&mut world, seconds(100))), [("", 0); 0]);
    let notes = wait(&mut world, seconds(20));
    assert_eq!(grown(&notes), [(GROUP_A, 2)]);
    // Nobody is credited with them, so whatever could serve the same pods is closed: the autoscaler would buy them once more.
    assert!(world.records(GROUP_A).all(|record| record.floor && record.credited_to.is_none()));
    for (group, target) in [(GROUP_A, 2), (GROUP_B, 0)] {
        let limits = world.limits(group);
        assert_eq!((limits.target, limits.max), (target, target));
        assert!(matches!(limits.closed, Some(Closed::Uncredited { nodes: 2 })), "{group}: {:?}", limits.closed);
    }
    world.answer(|_| true);
    world.pass();
    assert_eq!(grown(&wait(&mut world, minutes(3))), [("", 0); 0]);
    world.join_new();
    world.pass();
    assert_eq!((stands(&world), world.target(GROUP_A) + world.target(GROUP_B)), ((2, 2, 0), 2));
    assert!(world.limits(GROUP_B).closed.is_none());
}

#[test]
fn an_autoscaler_that_asks_late_finds_it_asked_for() {
    let mut world = with(nodes(1));
    world.pass();
    wait(&mut world, seconds(120));
    // It read the limits before the group was grown.
    let refused = world.try_increase(GROUP_A, 1).unwrap_err().to_string();
    assert!(refused.contains("Cluster Autoscaler may not know that"), "{refused}");
    assert_eq!(world.target(GROUP_A), 1);
}

#[test]
fn an_autoscaler_that_asks_for_a_part_is_given_its_time_for_the_rest() {
    let mut world = with(nodes(2));
    world.pass();
    wait(&mut world, seconds(100));
    world.increase(GROUP_A, 1);
    world.pass();
    assert_eq!(grown(&wait(&mut world, seconds(100))), [("", 0); 0]);
    assert_eq!(grown(&wait(&mut world, seconds(40))), [(GROUP_A, 1)]);
}

#[test]
fn time_in_which_nobody_could_have_asked_does_not_count() {
    let mut world = with(nodes(1));
    world.pass();
    wait(&mut world, seconds(100));
    // The service is away for an hour: the wait begins again.
    world.advance(minutes(60));
    world.observe();
    assert_eq!(grown(&world.pass().notes), [("", 0); 0]);
    assert_eq!(grown(&wait(&mut world, seconds(100))), [("", 0); 0]);
    assert_eq!(grown(&wait(&mut world, seconds(20))), [(GROUP_A, 1)]);
}

#[test]
fn without_an_autoscaler_nothing_is_grown_that_nobody_would_take_away() {
    let mut world = with(nodes(1));
    world.memory.session = None;
    assert_eq!(grown(&wait(&mut world, minutes(10))), [("", 0); 0]);
    let lacks = world.pass().accounts.floors[0].blocked.clone();
    assert_eq!(lacks.as_deref(), Some("no autoscaler has called yet, and Stoker buys nothing before one does"));
    // The first that comes is given its time to ask, however long the floor was short before.
    crate::decide::orders::begin_session(&mut world.memory);
    let plan = world.pass();
    assert_eq!((grown(&plan.notes), plan.accounts.floors[0].blocked.clone()), (vec![], None));
    assert_eq!(grown(&wait(&mut world, seconds(100))), [("", 0); 0]);
    assert_eq!(grown(&wait(&mut world, seconds(20))), [(GROUP_A, 1)]);
}

#[test]
fn what_is_grown_and_cannot_be_had_moves_on_and_leaves_nothing_behind() {
    let mut world = with(nodes(1));
    world.pass();
    wait(&mut world, seconds(120));
    world.refuse_all(RefusalKind::OutOfCapacity);
    world.pass();
    // The autoscaler asked for nothing, so it is shown no failure; the other zone is raised.
    assert_eq!((world.target(GROUP_A), world.limits(GROUP_B).min), (0, 1));
    assert_eq!(grown(&wait(&mut world, seconds(140))), [(GROUP_B, 1)]);
}
