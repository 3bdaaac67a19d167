//! All probes of a pool fall silent.

use super::*;
use crate::plan::Note;

fn heard(nodes: usize) -> World {
    let mut world = World::probed(nodes);
    for n in 0..nodes {
        world.see(n, |now| seen(now, [quiet(now); 2]));
    }
    world.wait(minutes(1));
    world
}

fn notes(plans: &[Plan<Checked>]) -> Vec<(&'static str, bool)> {
    plans.iter().flat_map(|plan| &plan.notes).map(|note| (note.reason(), note.is_alarm())).collect()
}

#[test]
fn when_all_probes_fall_silent_together_pods_are_the_evidence_and_it_is_told_once_when_it_begins_and_ends() {
    let mut world = heard(3);
    world.set_pods(2, &["ml/train"]);
    (0..3).for_each(|n| world.silence(n));
    let plans = world.wait(seconds(299));
    assert_eq!((world.verdict(0), world.verdict(2)), (Verdict::Unknown, Verdict::Busy));
    assert_eq!(notes(&plans), []);
    let mut plans = world.wait(seconds(1));
    plans.extend(world.wait(minutes(60)));
    assert_eq!((world.verdict(0), world.verdict(2)), (Verdict::Warm, Verdict::Busy));
    assert_eq!(notes(&plans), [("ProbesLapsed", true)]);
    let text = plans.iter().flat_map(|plan| &plan.notes).next().unwrap().to_string();
    assert_eq!(
        text,
        "pool pool: none of the probes on 3 nodes has reported since 2026-11-01 00:01:00Z; until they do, only pods show \
         which nodes are in use: look at the probes' DaemonSet"
    );
    assert_eq!(world.why(0), "no GPU pod is bound to it, and no probe of its pool reports");
    // A probe that crashes at once ends nothing.
    world.see(0, |now| seen(now, [untold(Why::NotYet, now); 2]));
    world.wait(seconds(30));
    world.silence(0);
    assert_eq!(notes(&world.wait(minutes(10))), []);
    // Two of three for a minute do. The third is unknown then.
    for n in 0..2 {
        world.see(n, |now| seen(now, [quiet(now); 2]));
    }
    assert_eq!(notes(&world.wait(seconds(59))), []);
    let plans = world.wait(seconds(1));
    assert_eq!(notes(&plans), [("ProbesBack", false)]);
    assert!(matches!(plans.last().unwrap().notes[0], Note::ProbesBack { heard: 2, of: 3, .. }));
    assert_eq!((world.verdict(0), world.verdict(2)), (Verdict::Warm, Verdict::Busy));
    world.set_pods(2, &[]);
    world.pass();
    assert_eq!(world.verdict(2), Verdict::Unknown);
}

#[test]
fn what_was_at_work_without_pods_when_all_probes_fell_silent_is_free_since_then_and_not_since_its_last_pod() {
    let mut world = heard(3);
    let quiet_since = start();
    world.wait(minutes(120));
    let at_work = world.now;
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = active(now));
    world.sees(1, |seen, now| seen.gpus.values_mut().for_each(|gpu| gpu.activity = active(now)));
    world.pass();
    world.wait(minutes(2));
    world.sees(1, |seen, now| seen.gpus.values_mut().for_each(|gpu| gpu.activity = quiet(now)));
    let quiet_again = world.now;
    world.wait(seconds(30));
    (0..3).for_each(|n| world.silence(n));
    let silent = world.now;
    assert!(at_work < quiet_again && quiet_again < silent);
    world.wait(minutes(20));
    for (n, since) in [(0, silent), (1, quiet_again), (2, quiet_since)] {
        assert_eq!((world.verdict(n).is_free(), world.judged(n).free_since()), (true, Some(since)), "{n}");
    }
}

#[test]
fn probes_that_fall_silent_one_by_one_have_no_common_cause() {
    let mut world = heard(2);
    world.silence(0);
    world.wait(minutes(11));
    world.silence(1);
    let plans = world.wait(minutes(60));
    assert_eq!((world.verdict(0), world.verdict(1), notes(&plans)), (Verdict::Unknown, Verdict::Unknown, vec![]));
}

#[test]
fn a_pool_of_one_node_has_no_other_probe_to_tell_a_broken_image_from_a_broken_node() {
    let mut world = heard(1);
    world.silence(0);
    world.wait(minutes(60));
    assert_eq!(world.verdict(0), Verdict::Unknown);
}

#[test]
fn a_probe_that_fell_silent_by_itself_before_goes_on_to_make_its_node_unknown() {
    let mut world = heard(4);
    world.silence(3);
    world.wait(minutes(30));
    (0..3).for_each(|n| world.silence(n));
    let plans = world.wait(minutes(10));
    assert_eq!(notes(&plans), [("ProbesLapsed", true)]);
    assert_eq!((world.verdict(0), world.verdict(3)), (Verdict::Warm, Verdict::Unknown));
}

#[test]
fn probes_that_never_came_up_are_a_lapse_when_they_are_late() {
    let mut world = World::probed(2);
    let plans = world.wait(seconds(599));
    assert_eq!((world.verdict(0), notes(&plans)), (Verdict::Booting, vec![]));
    let plans = world.wait(seconds(1));
    assert_eq!((world.verdict(0), notes(&plans)), (Verdict::Warm, vec![("ProbesLapsed", true)]));
}

#[test]
fn a_lapse_goes_on_over_a_restart() {
    let mut world = heard(2);
    (0..2).for_each(|n| world.silence(n));
    world.wait(minutes(10));
    assert_eq!(world.verdict(0), Verdict::Warm);
    world.seen.clear();
    world.advance(minutes(30));
    let plan = world.pass();
    assert_eq!((world.verdict(0), plan.notes.len()), (Verdict::Warm, 0));
}

#[test]
fn probes_that_were_silent_when_the_service_stopped_have_their_time_to_come_back() {
    let mut world = heard(3);
    (0..3).for_each(|n| world.silence(n));
    world.wait(seconds(20));
    world.seen.clear();
    world.advance(minutes(20));
    let lapsed = |plans: &[Plan<Checked>]| notes(plans).contains(&("ProbesLapsed", true));
    let plan = world.pass();
    assert_eq!((world.verdict(0), lapsed(&[plan])), (Verdict::Unknown, false));
    let plans = world.wait(minutes(6));
    assert_eq!((world.verdict(0), lapsed(&plans)), (Verdict::Warm, true), "none has come back");
}
