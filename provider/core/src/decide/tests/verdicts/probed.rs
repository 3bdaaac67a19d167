//! One node whose probe is the evidence.

use super::*;
use crate::base::kinds::Workload;
use crate::facts::reading::seen::{Ailment, HealthFact};
use crate::facts::reading::{Gate, GateResult};
use crate::facts::snapshot::Cordon;
use crate::policy::rules::stabilization::Stabilization;
use crate::state::node_verdict::Reason;

fn after(moment: Timestamp, length: SignedDuration) -> Timestamp {
    moment.saturating_add(length).unwrap()
}

#[test]
fn a_node_boots_until_it_is_ready_its_gates_are_passed_and_every_gpu_is_proven_quiet() {
    let mut world = World::probed(1);
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Booting, "its GPUs have not been read yet"));
    world.see(0, |now| {
        let mut seen = seen(now, [untold(Why::NotYet, now); 2]);
        seen.gates.insert(Gate::GpuCount, GateResult::Failed("1 GPUs, 2 expected".to_owned()));
        seen
    });
    world.pass();
    let why = "the start-up check of the number of GPUs failed: 1 GPUs, 2 expected";
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Booting, why));
    world.sees(0, |seen, _| {
        seen.gates.insert(Gate::GpuCount, GateResult::Passed);
    });
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Booting);
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = quiet(now));
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Booting);
    world.set_ready(0, None);
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-1")).unwrap().activity = quiet(now));
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Booting, "its Node is not Ready"));
    world.set_ready(0, Some(world.now));
    world.pass();
    assert_eq!(world.judged(0).since, world.now);
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Warm, "no GPU pod is bound to it, and its GPUs are idle"));
}

#[test]
fn a_gate_that_is_not_passed_ten_minutes_after_ready_is_a_fault_and_deafness_to_xids_is_none() {
    let mut world = World::probed(2);
    for (n, gate) in [(0, Gate::DriverVersion), (1, Gate::Events)] {
        world.see(n, |now| {
            let mut seen = seen(now, [quiet(now); 2]);
            seen.gates.insert(gate, GateResult::Failed("so".to_owned()));
            seen
        });
    }
    world.wait(seconds(599));
    assert_eq!((world.verdict(0), world.verdict(1)), (Verdict::Booting, Verdict::Booting));
    // Late from 600 s on, and a fault when it has lasted 30 s.
    world.wait(seconds(30));
    assert_eq!((world.verdict(0), world.verdict(1)), (Verdict::Booting, Verdict::Booting));
    world.wait(seconds(1));
    assert_eq!((world.verdict(0), world.verdict(1)), (Verdict::Unhealthy, Verdict::Booting));
    assert_eq!(world.why(0), "the start-up check of the driver's version failed: so");
}

#[test]
fn a_node_of_which_nothing_was_ever_heard_is_unknown_ten_minutes_after_ready() {
    let mut world = World::probed(1);
    world.wait(seconds(599));
    assert_eq!(world.verdict(0), Verdict::Booting);
    world.wait(seconds(1));
    assert_eq!(world.verdict(0), Verdict::Unknown);
}

#[test]
fn work_counts_at_once_and_a_node_is_free_again_after_a_minute_of_quiet_since_that_quiet_began() {
    let mut world = World::warm();
    world.wait(minutes(5));
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-1")).unwrap().activity = active(now));
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Busy, "GPU GPU-1 is busy without a pod"));
    world.wait(minutes(5));
    let ended = world.now;
    // Told when it has lasted 15 s.
    world.wait(seconds(15));
    world.sees(0, |seen, _| seen.gpus.get_mut(&uuid("GPU-1")).unwrap().activity = quiet(ended));
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Busy, "its GPUs have been idle for less than 60 s"));
    world.wait(seconds(44));
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.wait(seconds(1));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, ended));
}

#[test]
fn an_instance_at_work_makes_its_node_busy_and_is_named() {
    let mut world = World::warm();
    world.sees(0, |seen, now| {
        let gpu = seen.gpus.get_mut(&uuid("GPU-0")).unwrap();
        gpu.instances = [(uuid("MIG-a"), quiet(now)), (uuid("MIG-b"), active(now))].into();
        gpu.activity = active(now);
    });
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Busy, "GPU MIG-b is busy without a pod"));
}

#[test]
fn pods_that_do_nothing_hold_a_node_after_the_time_that_the_pool_allows_and_another_pod_begins_anew() {
    let mut world = World::warm();
    world.wait(minutes(90));
    world.set_pods(0, &["dev/notebook"]);
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Busy, "GPU pods are bound to it"));
    // The GPUs were quiet long before: the pod has its 2 h all the same.
    world.wait(minutes(119));
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.set_pods(0, &["dev/another", "dev/notebook"]);
    world.pass();
    world.wait(minutes(119));
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.wait(minutes(1));
    assert_eq!(world.verdict(0), Verdict::Held);
    assert_eq!(world.why(0), "dev/another and 1 more pods occupy its GPUs and do nothing with them");
    // It works again: busy at once, and held no sooner than 2 h after its next quiet.
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = active(now));
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = quiet(now));
    world.pass();
    world.wait(minutes(119));
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.wait(minutes(1));
    assert_eq!(world.verdict(0), Verdict::Held);
    // When its pods go, nothing was at work for long: free at once.
    world.set_pods(0, &[]);
    world.pass();
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, world.now));
}

/// A node that a notebook holds.
fn held() -> World {
    let mut world = World::warm();
    world.set_pods(0, &["dev/notebook"]);
    world.wait(minutes(121));
    assert_eq!(world.verdict(0), Verdict::Held);
    world
}

#[test]
fn a_round_that_is_not_read_changes_no_verdict_of_a_held_node() {
    let mut world = held();
    let before = world.judged(0).clone();
    for why in [Why::TimedOut, Why::NotYet, Why::GpuLost] {
        world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = untold(why, now));
        world.pass();
        world.wait(seconds(5));
        assert_eq!(*world.judged(0), before, "{why}");
        // It is quiet since then, as far as the probe can tell.
        world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = quiet(now));
        world.wait(seconds(30));
        assert_eq!(*world.judged(0), before, "{why}");
    }
    world.sees(0, |seen, now| seen.gpus.get_mut(&uuid("GPU-0")).unwrap().activity = active(now));
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Busy, "work ends it at once");
}

#[test]
fn a_held_node_whose_probe_is_silent_for_long_is_unknown_until_it_is_heard_or_another_pod_comes() {
    let mut world = held();
    world.silence(0);
    world.wait(seconds(14));
    assert_eq!(world.verdict(0), Verdict::Held);
    world.wait(seconds(1));
    assert_eq!(world.verdict(0), Verdict::Unknown);
    // Two minutes of silence prove no work: it goes on.
    world.wait(minutes(2));
    let back = world.now;
    world.see(0, |_| seen(back, [quiet(back); 2]));
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Held);
    // In ten the pod may have worked.
    world.silence(0);
    world.wait(minutes(10));
    assert_eq!(world.verdict(0), Verdict::Unknown);
    let mut other = world.clone();
    other.set_pods(0, &["dev/another"]);
    other.pass();
    assert_eq!((other.verdict(0), other.why(0).as_str()), (Verdict::Busy, "GPU pods are bound to it"));
    let back = world.now;
    world.see(0, |_| seen(back, [quiet(back); 2]));
    world.wait(minutes(119));
    assert_eq!(world.verdict(0), Verdict::Busy);
    world.wait(minutes(1));
    assert_eq!(world.verdict(0), Verdict::Held);
}

#[test]
fn a_pod_that_comes_to_an_unknown_node_makes_it_busy() {
    let mut world = World::warm();
    world.silence(0);
    world.wait(seconds(20));
    assert_eq!(world.verdict(0), Verdict::Unknown);
    world.set_pods(0, &["dev/notebook"]);
    world.wait(minutes(10));
    assert_eq!(world.verdict(0), Verdict::Busy);
}

#[test]
fn a_silent_probe_makes_its_node_unknown_after_three_rounds_and_quiet_that_was_not_watched_does_not_count() {
    let mut world = World::warm();
    let began = world.now;
    world.wait(minutes(30));
    world.silence(0);
    world.wait(seconds(14));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, began));
    world.wait(seconds(1));
    assert_eq!(world.verdict(0), Verdict::Unknown);
    assert_eq!(world.why(0), "its probe has not reported since 2026-11-01 00:30:00Z");
    // Ten minutes later it is heard again, and quiet since then.
    world.wait(minutes(10));
    let back = world.now;
    world.see(0, |now| seen(now, [untold(Why::NotReported, now); 2]));
    world.wait(seconds(15));
    world.see(0, |_| seen(back, [quiet(back); 2]));
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Unknown, "its GPUs have been idle for less than 60 s"));
    world.wait(seconds(45));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, back));
}

#[test]
fn a_lapse_of_one_probe_never_frees_its_node() {
    let mut world = World::probed(3);
    for n in 0..3 {
        world.see(n, |now| seen(now, [quiet(now); 2]));
    }
    world.wait(minutes(1));
    world.silence(1);
    let plans = world.wait(minutes(6 * 60));
    assert_eq!((world.verdict(0), world.verdict(1), world.verdict(2)), (Verdict::Warm, Verdict::Unknown, Verdict::Warm));
    let told = plans.iter().flat_map(|plan| &plan.notes).filter(|note| note.reason() == "ProbesLapsed");
    assert_eq!(told.count(), 0);
}

#[test]
fn a_restart_changes_nothing_by_itself() {
    let mut world = World::warm();
    let began = world.now;
    world.wait(minutes(30));
    // Down for 90 s. Then nobody reads it, the probe comes back, and quiet is told when it has lasted 15 s.
    world.seen.clear();
    world.advance(seconds(90));
    world.pass();
    world.wait(seconds(35));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, began));
    let back = world.now;
    world.see(0, |now| Seen { hearing: Hearing::Silent { since: now }, gpus: BTreeMap::new(), ..seen(now, [quiet(now); 2]) });
    world.wait(seconds(2));
    world.see(0, |now| seen(now, [untold(Why::NotYet, now); 2]));
    world.wait(seconds(15));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, began));
    world.see(0, |_| seen(back, [quiet(back); 2]));
    world.wait(minutes(5));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, began));
}

#[test]
fn quiet_before_a_long_gap_does_not_count_after_it() {
    let mut world = World::warm();
    world.wait(minutes(30));
    // Down for an hour, and back with a probe that says nothing of the time before.
    world.advance(minutes(60));
    let back = world.now;
    world.seen.clear();
    world.pass();
    world.see(0, |now| seen(now, [quiet(now); 2]));
    world.wait(minutes(1));
    assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, back));
}

#[test]
fn time_in_which_nobody_watches_is_no_proof() {
    for hours in [3, 30] {
        let mut world = World::warm();
        world.wait(minutes(30));
        world.set_pods(0, &["dev/notebook"]);
        world.wait(minutes(30));
        world.advance(SignedDuration::from_hours(hours));
        world.wait(minutes(100));
        assert_eq!(world.verdict(0), Verdict::Busy, "{hours}");
        world.wait(minutes(30));
        assert_eq!(world.verdict(0), Verdict::Held, "{hours}");
        world.set_pods(0, &[]);
        world.pass();
        world.wait(minutes(20));
        world.advance(SignedDuration::from_hours(hours));
        world.pass();
        assert_eq!((world.verdict(0), world.judged(0).since), (Verdict::Warm, world.now), "{hours}");
    }
}

#[test]
fn errors_that_ask_for_a_reset_or_a_replacement_make_a_node_unhealthy_at_once_and_those_of_programs_do_not() {
    for (code, verdict) in
        [(79, Verdict::Unhealthy), (48, Verdict::Unhealthy), (31, Verdict::Warm), (63, Verdict::Warm), (121, Verdict::Warm)]
    {
        let mut world = World::warm();
        world.sees(0, |seen, now| seen.xids.kinds.push(xid(code, 1, now, now)));
        world.pass();
        assert_eq!(world.verdict(0), verdict, "{code}");
        if verdict == Verdict::Unhealthy {
            assert_eq!(world.why(0), format!("XID {code} on GPU GPU-0"));
            world.wait(minutes(6 * 60));
            assert_eq!(world.verdict(0), verdict, "it stays until the node boots");
        }
    }
}

#[test]
fn of_several_errors_the_gravest_is_named() {
    let mut world = World::warm();
    world.sees(0, |seen, now| {
        seen.xids.kinds.extend([31, 48, 79, 54].map(|code| xid(code, 1, now, now)));
    });
    world.pass();
    assert_eq!(world.why(0), "XID 79 on GPU GPU-0");
}

#[test]
fn a_suspect_error_counts_when_another_fault_comes_within_a_day() {
    let moment = |length| after(start(), length);
    let (day, second) = (SignedDuration::from_hours(24), seconds(1));
    let other = |code, gpu: &str, at| SeenXid { gpu: Some(uuid(gpu)), ..xid(code, 1, at, at) };
    let cases: [(&str, Vec<SeenXid>, bool); 7] = [
        ("two in a day", vec![xid(94, 2, start(), moment(day))], true),
        ("two in more", vec![xid(94, 2, start(), moment(day + second))], false),
        ("a burst", vec![xid(94, 5, start(), moment(seconds(30)))], false),
        ("three in two days", vec![xid(94, 3, start(), moment(day + day))], true),
        ("two codes of one fault", vec![xid(94, 1, start(), start()), other(63, "GPU-0", moment(second))], false),
        ("two codes a minute apart", vec![xid(94, 1, start(), start()), other(63, "GPU-0", moment(minutes(1)))], true),
        ("two GPUs", vec![xid(94, 1, start(), start()), other(63, "GPU-1", moment(minutes(1)))], false),
    ];
    for (what, kinds, counts) in cases {
        let mut world = World::warm();
        world.sees(0, |seen, _| seen.xids.kinds = kinds);
        world.pass();
        let verdict = if counts { Verdict::Unhealthy } else { Verdict::Warm };
        assert_eq!(world.verdict(0), verdict, "{what}");
    }
}

#[test]
fn what_the_driver_says_of_a_gpu_counts_as_far_as_it_really_is_broken() {
    let cases = [
        (Ailment::RecoveryAction(1), Verdict::Unhealthy, Verdict::Unhealthy),
        (Ailment::RemapFailed, Verdict::Unhealthy, Verdict::Unhealthy),
        (Ailment::UncorrectedErrors(1), Verdict::Unhealthy, Verdict::Unhealthy),
        (Ailment::SlowedDown, Verdict::Unhealthy, Verdict::Unhealthy),
        // It works on, and is not to begin anything new before a reset.
        (Ailment::RemapPending, Verdict::Unhealthy, Verdict::Busy),
        (Ailment::RetirementPending, Verdict::Unhealthy, Verdict::Busy),
        (Ailment::MigChangePending, Verdict::Unhealthy, Verdict::Busy),
        (Ailment::Unread(HealthFact::Ecc, Why::TimedOut), Verdict::Warm, Verdict::Busy),
    ];
    for (ailment, free, at_work) in cases {
        for (pods, verdict) in [(&[][..], free), (&["ml/train"][..], at_work)] {
            let mut world = World::warm();
            world.set_pods(0, pods);
            world.sees(0, |seen, _| {
                seen.gpus.get_mut(&uuid("GPU-1")).unwrap().ailments.insert(ailment);
            });
            world.pass();
            world.wait(seconds(30));
            assert_eq!(world.verdict(0), verdict, "{ailment} {pods:?}");
            if verdict == Verdict::Unhealthy {
                assert_eq!(world.why(0), format!("GPU GPU-1: {ailment}"));
            }
        }
    }
}

#[test]
fn a_gpu_that_is_not_shown_for_a_moment_is_not_lost_and_one_that_comes_back_is_trusted_after_five_minutes() {
    let mut world = World::warm();
    let lose = |seen: &mut Seen, now| seen.gpus.get_mut(&uuid("GPU-1")).unwrap().activity = untold(Why::GpuLost, now);
    let find = |seen: &mut Seen, now| seen.gpus.get_mut(&uuid("GPU-1")).unwrap().activity = quiet(now);
    world.sees(0, lose);
    world.wait(seconds(10));
    world.sees(0, find);
    world.wait(minutes(1));
    assert_eq!(world.verdict(0), Verdict::Warm);
    world.sees(0, lose);
    world.pass();
    world.wait(seconds(30));
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Unhealthy, "GPU GPU-1 is off the bus"));
    world.sees(0, find);
    world.pass();
    world.wait(seconds(299));
    assert_eq!(world.verdict(0), Verdict::Unhealthy);
    // While it is silent nothing tells that it is well.
    world.silence(0);
    world.wait(minutes(30));
    assert_eq!(world.verdict(0), Verdict::Unhealthy);
    world.see(0, |now| seen(now, [quiet(now); 2]));
    world.pass();
    world.wait(minutes(5));
    assert_eq!(world.verdict(0), Verdict::Warm);
}

#[test]
fn a_gpu_that_was_lost_while_nobody_watched_makes_its_node_unhealthy() {
    let mut world = World::warm();
    // This service was down for an hour, and of two GPUs that are counted the driver shows one.
    world.advance(minutes(60));
    let half = |now| {
        let mut seen = seen(now, [quiet(now); 2]);
        seen.gpus.remove(&uuid("GPU-1"));
        seen
    };
    world.see(0, half);
    world.pass();
    world.wait(seconds(29));
    assert_eq!(world.verdict(0), Verdict::Unknown);
    world.wait(seconds(1));
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Unhealthy, "its driver shows fewer GPUs than it has"));
    // On a node that starts it is waited for.
    let mut world = World::probed(1);
    world.see(0, half);
    world.pass();
    world.wait(minutes(9));
    assert_eq!(world.verdict(0), Verdict::Booting);
    world.wait(minutes(2));
    assert_eq!(world.verdict(0), Verdict::Unhealthy);
    // Where the driver is not there, nothing tells how many there are.
    let mut world = World::warm();
    world.see(0, |now| Seen { driver: Measured::Known(DriverState::Hung), ..half(now) });
    world.pass();
    world.wait(minutes(5));
    assert_eq!(world.verdict(0), Verdict::Unknown);
}

/// It is due after five minutes, and then trusted again in one more.
#[test]
fn a_node_that_is_well_again_is_not_replaced_before_that_is_known() {
    let mut world = World::warm();
    world.policy(|policy| policy.pools[0].unhealthy.action = UnhealthyAction::Wait);
    let tells = |is: GateResult| move |seen: &mut Seen, _| drop(seen.gates.insert(Gate::Driver, is));
    world.sees(0, tells(GateResult::Failed("not loaded".to_owned())));
    world.pass();
    world.wait(seconds(90));
    assert_eq!(world.verdict(0), Verdict::Unhealthy);
    world.sees(0, tells(GateResult::Passed));
    world.pass();
    world.wait(seconds(299));
    assert_eq!((world.verdict(0), world.cluster_node(0).cordon), (Verdict::Unhealthy, Cordon::Ours));
    world.wait(seconds(1));
    assert_eq!((world.verdict(0), world.cluster_node(0).cordon), (Verdict::Warm, Cordon::None));
    // What stays broken goes.
    world.sees(0, tells(GateResult::Failed("not loaded".to_owned())));
    world.pass();
    world.wait(minutes(6));
    assert_eq!(world.verdict(0), Verdict::Draining);
}

#[test]
fn a_gate_that_fails_while_a_driver_is_reloaded_is_no_fault_before_it_has_lasted() {
    let mut world = World::warm();
    let gate = |result: GateResult| move |seen: &mut Seen, _| drop(seen.gates.insert(Gate::Driver, result));
    world.sees(0, gate(GateResult::Failed("not loaded".to_owned())));
    world.wait(seconds(29));
    assert_eq!(world.verdict(0), Verdict::Warm);
    world.sees(0, gate(GateResult::Passed));
    world.wait(seconds(29));
    world.sees(0, gate(GateResult::Failed("not loaded".to_owned())));
    world.pass();
    world.wait(seconds(29));
    assert_eq!(world.verdict(0), Verdict::Warm);
    world.wait(seconds(1));
    assert_eq!(
        (world.verdict(0), world.why(0).as_str()),
        (Verdict::Unhealthy, "the start-up check of the driver failed: not loaded")
    );
}

#[test]
fn a_node_that_no_pod_can_begin_on_is_not_warm() {
    let mut world = World::warm();
    world.set_ready(0, None);
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Booting);
    world.set_ready(0, Some(world.now));
    world.close(Cordon::Theirs);
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Draining, "somebody has cordoned it"));
    world.set_pods(0, &["ml/train"]);
    world.pass();
    assert_eq!(world.verdict(0), Verdict::Busy);
}

#[test]
fn a_node_whose_window_is_over_stays_idle_while_it_is_free() {
    let mut world = World::warm();
    world.policy(|policy| policy.pools[0].stabilization = Some(Stabilization::of(Workload::Training)));
    world.wait(minutes(15));
    let idle =
        Judged { verdict: Verdict::Idle, why: Reason::WindowOver { free_since: start() }, since: after(start(), minutes(15)) };
    assert_eq!(*world.judged(0), idle);
    world.wait(minutes(5));
    assert_eq!(*world.judged(0), idle);
    // Nobody watched meanwhile, so nothing is proven of that time: what was proven before it holds.
    world.advance(minutes(30));
    world.pass();
    world.wait(minutes(1));
    assert_eq!(*world.judged(0), idle);
    // Closed and opened again by somebody, it goes on.
    world.close(Cordon::Theirs);
    world.pass();
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Draining, "somebody has cordoned it"));
    world.close(Cordon::None);
    world.pass();
    assert_eq!((world.verdict(0), world.judged(0).free_since()), (Verdict::Idle, Some(start())));
    // And so it does when its kubelet was away for a moment.
    world.set_ready(0, None);
    world.wait(seconds(20));
    assert_eq!((world.verdict(0), world.why(0).as_str()), (Verdict::Booting, "its Node is not Ready"));
    world.set_ready(0, Some(world.now));
    world.pass();
    assert_eq!((world.verdict(0), world.judged(0).free_since()), (Verdict::Idle, Some(start())));
    world.set_pods(0, &["ml/train"]);
    world.pass();
    world.set_pods(0, &[]);
    world.wait(minutes(2));
    assert_eq!(world.verdict(0), Verdict::Warm);
}
