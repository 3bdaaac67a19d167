#![expect(clippy::unnecessary_wraps, reason = "as the fields that they fill have it")]

use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::GpuUuid;
use stoker_proto::probe::{Gpu, Round};

use super::*;

fn times() -> Times {
    Times::at(now())
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn seconds(second: i64) -> Option<stoker_proto::Timestamp> {
    Some(stoker_proto::Timestamp { seconds: 1_800_000_000 + second, nanos: 0 })
}

fn driver() -> Option<wire::Driver> {
    Some(wire::Driver { state: wire::driver::State::Ready.into(), ..wire::Driver::default() })
}

fn of(gpu: Gpu) -> Round {
    let gpu = Gpu { uuid: "GPU-a".to_owned(), ..gpu };
    Round { at: seconds(0), driver: driver(), gpus_counted: Some(1), gpus: vec![gpu], ..Round::default() }
}

/// The GPU as it is taken, and how much of it was absurd.
fn gpu(gpu: Gpu) -> (GpuReading, u32) {
    let Converted { mut reading, at: _, absurd } = round(of(gpu), times()).unwrap();
    (reading.gpus.pop_first().unwrap().1, absurd)
}

#[test]
fn absurd_levels_are_unknown_and_counted_and_never_nought() {
    let absurd = Gpu {
        utilization: Some(1001),
        sm_activity: Some(u32::MAX),
        memory: Some(wire::Memory { used_bytes: 2, total_bytes: 1, reserved_bytes: 0 }),
        power_mw: Some(u64::MAX),
        temperature_c: Some(5000),
        clocks: Some(wire::Clocks { sm_mhz: 1_000_000, memory_mhz: 1 }),
        recovery_action: Some(256),
        codec: Some(70_000),
        nvlink: Some(wire::NvLink { active_links: 1_000_000, errors: 0 }),
        pcie: Some(wire::Pcie { width: 1_000, ..wire::Pcie::default() }),
        ..Gpu::default()
    };
    let (taken, count) = gpu(absurd);
    assert_eq!(count, 10);
    let share = Measured::Unknown(Why::Absurd);
    assert_eq!([taken.utilization, taken.sm_activity, taken.codec], [share; 3]);
    assert_eq!(taken.memory, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.power_mw, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.temperature_c, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.clocks_mhz, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.recovery_action, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.nvlink, Measured::Unknown(Why::Absurd));
    assert_eq!(taken.pcie, Measured::Unknown(Why::Absurd));
    for total in [0, limits::MEMORY + 1] {
        let memory = Some(wire::Memory { used_bytes: 0, total_bytes: total, reserved_bytes: 0 });
        assert_eq!(gpu(Gpu { memory, ..Gpu::default() }).1, 1, "{total}");
    }
    // What the probe calls so is, whatever stands beside it.
    let absurd = wire::Unknown { signal: Signal::Power.into(), why: wire::Why::Absurd.into() };
    let (taken, count) = gpu(Gpu { power_mw: Some(1), unknown: vec![absurd], ..Gpu::default() });
    assert_eq!((taken.power_mw, count), (Measured::Unknown(Why::Absurd), 1));
    let huge = wire::Process { pid: 1, memory_bytes: Some(u64::MAX), ..wire::Process::default() };
    let (taken, count) = gpu(Gpu { processes: Some(wire::Processes { compute: vec![huge] }), ..Gpu::default() });
    // The process is there all the same.
    assert_eq!((taken.processes.known().unwrap()[0].memory, count), (None, 1));
}

#[test]
fn the_machines_own_helpers_are_no_work_and_a_pods_process_is_whatever_its_name() {
    let process = |pid, name: &str, pod_uid: &str| wire::Process {
        pid,
        name: name.to_owned(),
        pod_uid: pod_uid.to_owned(),
        ..wire::Process::default()
    };
    let compute = vec![
        process(1, "nv-hostengine", ""),
        process(2, "nvidia-cuda-mps", ""),
        process(3, "nvidia-cuda-mps-server", ""),
        process(4, "nv-hostengine", "uid"),
        process(5, "nv-hostengine2", ""),
        process(6, "", ""),
        process(7, "nvidia-cuda-mp\u{e9}", ""),
    ];
    let (taken, _) = gpu(Gpu { processes: Some(wire::Processes { compute }), ..Gpu::default() });
    assert_eq!(taken.processes.known().unwrap().iter().map(|process| process.pid).collect::<Vec<_>>(), [4, 5, 6, 7]);
}

#[test]
fn what_is_not_set_is_not_reported_and_who_says_both_knows_nothing() {
    let named = |why: wire::Why| wire::Unknown { signal: Signal::Memory.into(), why: why.into() };
    let memory = Some(wire::Memory { used_bytes: 0, total_bytes: 1 << 34, reserved_bytes: 0 });
    assert_eq!(gpu(Gpu::default()).0.memory, Measured::Unknown(Why::NotReported));
    let both = Gpu { memory, unknown: vec![named(wire::Why::TimedOut)], ..Gpu::default() };
    assert_eq!(gpu(both).0.memory, Measured::Unknown(Why::TimedOut));
    // A reason that this release does not know.
    let newer = wire::Unknown { signal: Signal::Memory.into(), why: 99 };
    assert_eq!(gpu(Gpu { unknown: vec![newer], ..Gpu::default() }).0.memory, Measured::Unknown(Why::Failed));
    let nobody = Round { driver: None, ..of(Gpu::default()) };
    assert_eq!(round(nobody, times()).unwrap().reading.driver, DriverState::Failed);
}

#[test]
fn a_round_that_makes_no_sense_is_not_taken() {
    let refused = |round: Round| super::round(round, times()).unwrap_err();
    assert_eq!(refused(Round { at: None, ..of(Gpu::default()) }), Reason::Malformed);
    assert_eq!(refused(Round { at: seconds(61), ..of(Gpu::default()) }), Reason::Future);
    let endless = Some(stoker_proto::Timestamp { seconds: i64::MAX, nanos: -1 });
    assert_eq!(refused(Round { at: endless, ..of(Gpu::default()) }), Reason::Malformed);
    let many = |count: usize| (0..count).map(|n| Gpu { uuid: format!("GPU-{n}"), ..Gpu::default() }).collect();
    assert_eq!(refused(Round { gpus: many(65), ..of(Gpu::default()) }), Reason::TooLarge);
    assert!(round(Round { gpus: many(64), ..of(Gpu::default()) }, times()).is_ok());
    let split = |count: usize| {
        let device = |n| wire::MigDevice { uuid: format!("MIG-{n}"), ..wire::MigDevice::default() };
        of(Gpu { mig: Some(wire::Mig { devices: (0..count).map(device).collect(), ..wire::Mig::default() }), ..Gpu::default() })
    };
    assert_eq!(refused(split(17)), Reason::TooLarge);
    assert!(round(split(16), times()).is_ok());
    for uuid in ["x".repeat(129), "GPU-\u{1b}[2J".to_owned()] {
        let gpus = vec![Gpu { uuid, ..Gpu::default() }];
        assert_eq!(refused(Round { gpus, ..of(Gpu::default()) }), Reason::Malformed);
    }
}

#[test]
fn two_gpus_of_one_uuid_are_unknown_and_the_others_are_read() {
    let busy = |uuid: &str| Gpu { uuid: uuid.to_owned(), utilization: Some(900), sm_activity: Some(900), ..Gpu::default() };
    let gpus = vec![busy("GPU-a"), busy("GPU-b"), busy("GPU-a")];
    let taken = round(Round { gpus_counted: Some(3), gpus, ..of(Gpu::default()) }, times()).unwrap();
    assert_eq!((taken.reading.gpus.len(), taken.reading.counted, taken.absurd), (2, Measured::Known(3), 1));
    let of = |uuid: &str| {
        (
            taken.reading.gpus[&GpuUuid::new(uuid).unwrap()].utilization,
            taken.reading.gpus[&GpuUuid::new(uuid).unwrap()].sm_activity,
        )
    };
    assert_eq!(of("GPU-a"), (Measured::Unknown(Why::Absurd), Measured::Unknown(Why::Absurd)));
    assert_eq!(of("GPU-b").0, Measured::Known(Permille::new(900).unwrap()));
}

#[test]
fn clocks_may_differ_a_little_and_a_node_behind_us_is_believed() {
    let at = |second: i64| round(Round { at: seconds(second), ..of(Gpu::default()) }, times()).unwrap().at;
    assert_eq!(at(60), now());
    assert_eq!(at(-600), now() - SignedDuration::from_mins(10));
    assert_eq!(round(of(Gpu::default()), times()).unwrap().reading.arrived, now());
}

#[test]
fn texts_are_bounded_and_nothing_in_them_is_obeyed() {
    let (taken, _) = gpu(Gpu { name: format!("NVIDIA\u{1b}[2J {}", "é".repeat(1000)), ..Gpu::default() });
    assert!(taken.name.starts_with("NVIDIA[2J é") && taken.name.len() <= MOST_NAME, "{}", taken.name);
    let gate = wire::Gate { kind: wire::gate::Kind::GpuCount.into(), result: 2, detail: "x".repeat(1 << 16) };
    let gates = round(Round { gates: vec![gate], ..of(Gpu::default()) }, times()).unwrap().reading.gates;
    assert_eq!(gates[&Gate::GpuCount], GateResult::Failed("x".repeat(MOST_WORDS)));
}

#[test]
fn events_say_what_happened_and_kinds_of_a_newer_probe_are_passed_over() {
    let xid =
        |uuid: &str| Some(wire::event::Kind::Xid(wire::Xid { code: 79, gpu_uuid: uuid.to_owned(), ..wire::Xid::default() }));
    let of = |kind| event(&wire::Event { number: 1, at: seconds(-5), kind }, times());
    let taken = of(xid("")).unwrap().unwrap();
    assert_eq!(taken.what, Happening::Xid { code: 79, gpu: None });
    assert_eq!((taken.arrived, taken.at), (now(), now() - SignedDuration::from_secs(5)));
    assert_eq!(of(xid(&"x".repeat(129))).unwrap_err(), Reason::Malformed);
    assert_eq!(of(None).unwrap(), None);
    let newer = wire::Interruption { kind: 77, ..wire::Interruption::default() };
    assert_eq!(of(Some(wire::event::Kind::Interruption(newer))).unwrap(), None);
    let future = wire::Event { number: 1, at: seconds(61), kind: xid("") };
    assert!(is_ahead(future.at.as_ref(), times()) && !is_ahead(seconds(60).as_ref(), times()) && !is_ahead(None, times()));
    assert_eq!(event(&future, times()).unwrap().unwrap().at, now());
}

/// Stoker started on a wall that was hours off, or its wall is off now: the node's clock is right, and it is heard.
#[test]
fn a_node_is_heard_whichever_of_our_clocks_is_off() {
    let at = |second: i64, times| round(Round { at: seconds(second), ..of(Gpu::default()) }, times).map(|taken| taken.at);
    for hours in [-3, 3] {
        let off = now() + SignedDuration::from_hours(hours);
        let wall_is_off = Times { now: now(), wall: Wall(off) };
        assert_eq!(at(-20, wall_is_off), Ok(now() - SignedDuration::from_secs(20)), "{hours}");
        let ours_is_off = Times { now: off, wall: Wall(now()) };
        assert_eq!(at(-20, ours_is_off), Ok(off - SignedDuration::from_secs(20)), "{hours}");
    }
    let ahead_of_both = Times { now: now(), wall: Wall(now() - SignedDuration::from_hours(3)) };
    assert_eq!(at(61, ahead_of_both), Err(Reason::Future));
}

/// The end that a notice tells is as far from the notice as the node says.
#[test]
fn a_deadline_moves_with_its_notice() {
    let notice =
        wire::Interruption { kind: wire::interruption::Kind::Reclaim.into(), deadline: seconds(100), ..Default::default() };
    let told = wire::Event { number: 1, at: seconds(-20), kind: Some(wire::event::Kind::Interruption(notice)) };
    let off = now() - SignedDuration::from_hours(3);
    let event = event(&told, Times { now: off, wall: Wall(now()) }).unwrap().unwrap();
    let Happening::Interruption { deadline, .. } = event.what else { panic!("{event:?}") };
    assert_eq!((event.at, deadline), (off - SignedDuration::from_secs(20), Some(off + SignedDuration::from_secs(100))));
}
