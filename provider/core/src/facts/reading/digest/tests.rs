use super::*;
use crate::facts::reading::seen::{Ailment, HealthFact, MOST_XIDS, SeenXid};
use crate::facts::reading::{Ecc, GpuProcess, MemoryLevel, Mig, MigReading, Permille, RemappedRows};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn uuid(text: &str) -> GpuUuid {
    GpuUuid::new(text).unwrap()
}

/// An idle 80 GiB GPU of which everything reads.
fn gpu(used: u64) -> GpuReading {
    let nought = Measured::Known(Permille::new(0).unwrap());
    GpuReading {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        memory: Measured::Known(MemoryLevel { used, total: 80 * GIB, reserved: 0 }),
        utilization: nought,
        sm_activity: nought,
        codec: nought,
        processes: Measured::Known(Vec::new()),
        mig: Measured::Known(Mig::default()),
        ..GpuReading::default()
    }
}

fn share(thousandths: u16) -> Measured<Permille> {
    Measured::Known(Permille::new(thousandths).unwrap())
}

fn process(pid: u32) -> GpuProcess {
    GpuProcess { pid, memory: None, container: None, pod_uid: None }
}

fn reading(second: i64, gpus: &[(&str, GpuReading)]) -> NodeReading {
    NodeReading {
        arrived: at(second),
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(u32::try_from(gpus.len()).unwrap()),
        gpus: gpus.iter().map(|(name, gpu)| (uuid(name), gpu.clone())).collect(),
        gates: BTreeMap::new(),
    }
}

/// A node whose only GPU reads so every 5 s, from second zero to `end`; how often something changed.
fn run(digest: &mut Digest, from: i64, end: i64, gpu: &GpuReading) -> usize {
    let seconds = (from..=end).step_by(5);
    seconds.filter(|second| digest.read(&reading(*second, &[("GPU-a", gpu.clone())]), Some(false))).count()
}

fn activity(digest: &Digest) -> Activity {
    digest.seen().gpus[&uuid("GPU-a")].activity
}

fn new() -> Digest {
    Digest::new(Source::Probe, at(0))
}

#[test]
fn a_quiet_gpu_is_told_quiet_once_it_has_been_for_three_rounds_and_then_changes_nothing() {
    let mut digest = new();
    assert_eq!(run(&mut digest, 0, 10, &gpu(0)), 1);
    assert_eq!(activity(&digest), Activity::Unknown { why: Why::NotYet, since: at(0) });
    assert_eq!(run(&mut digest, 15, 15, &gpu(0)), 1);
    assert_eq!(activity(&digest), Activity::Quiet { since: at(0) });
    // A day of it.
    assert_eq!(run(&mut digest, 20, 86_400, &gpu(0)), 0);
    assert_eq!(digest.seen().hearing, Hearing::Heard { since: at(0) });
}

#[test]
fn one_reading_of_any_fact_is_enough_to_be_active() {
    let busy: [(&str, GpuReading); 5] = [
        ("memory", gpu(GIB)),
        ("a process", GpuReading { processes: Measured::Known(vec![process(7)]), ..gpu(0) }),
        ("multiprocessors", GpuReading { sm_activity: share(10), ..gpu(0) }),
        ("samples", GpuReading { utilization: share(20), ..gpu(0) }),
        ("codec", GpuReading { codec: share(1), ..gpu(0) }),
    ];
    for (what, busy) in busy {
        let mut digest = new();
        run(&mut digest, 0, 120, &gpu(0));
        assert_eq!(activity(&digest), Activity::Quiet { since: at(0) }, "{what}");
        assert_eq!(run(&mut digest, 125, 125, &busy), 1, "{what}");
        assert_eq!(activity(&digest), Activity::Active { since: at(125) }, "{what}");
        // Quiet again from 130 on, told when that has lasted 15 s.
        assert_eq!(run(&mut digest, 130, 140, &gpu(0)), 0, "{what}");
        assert_eq!(run(&mut digest, 145, 145, &gpu(0)), 1, "{what}");
        assert_eq!(activity(&digest), Activity::Quiet { since: at(130) }, "{what}");
    }
}

#[test]
fn what_stays_below_every_threshold_is_no_work() {
    let mut digest = new();
    // Learnt: 300 MiB. Then 1 % of 80 GiB is 819.2 MiB, so 1119 MiB is not more than that above it, and 1120 MiB is.
    run(&mut digest, 0, 60, &gpu(300 * MIB));
    let faint = GpuReading { sm_activity: share(9), utilization: share(19), ..gpu(1119 * MIB) };
    run(&mut digest, 65, 120, &faint);
    assert_eq!(activity(&digest), Activity::Quiet { since: at(0) });
    run(&mut digest, 125, 125, &gpu(1120 * MIB));
    assert_eq!(activity(&digest), Activity::Active { since: at(125) });
}

#[test]
fn before_the_baseline_is_learnt_all_memory_in_use_may_be_work() {
    let mut digest = new();
    // 900 MiB are above 1 % of 80 GiB.
    run(&mut digest, 0, 55, &gpu(900 * MIB));
    assert_eq!(activity(&digest), Activity::Active { since: at(0) });
    // At 60 s the least of them is the baseline.
    run(&mut digest, 60, 75, &gpu(900 * MIB));
    assert_eq!(activity(&digest), Activity::Quiet { since: at(60) });
}

#[test]
fn a_model_that_is_loaded_is_never_learnt_as_baseline() {
    // A pod holds the node, and its processes cannot be listed.
    let blind = GpuReading { processes: Measured::Unknown(Why::NotTrusted), ..gpu(GIB) };
    let mut digest = new();
    for second in (0..600).step_by(5) {
        digest.read(&reading(second, &[("GPU-a", blind.clone())]), Some(true));
    }
    assert_eq!(activity(&digest), Activity::Active { since: at(0) });
    // Nobody knows of pods, and the list is not to be trusted: the same.
    let mut digest = new();
    for second in (0..600).step_by(5) {
        digest.read(&reading(second, &[("GPU-a", blind.clone())]), None);
    }
    assert_eq!(activity(&digest), Activity::Active { since: at(0) });
    // However little was in use while it was learnt, and whoever is away: a big model is above the most that a driver keeps.
    let mut digest = new();
    run(&mut digest, 0, 600, &GpuReading { processes: Measured::Unknown(Why::NotTrusted), ..gpu(40 * GIB) });
    assert_eq!(activity(&digest), Activity::Active { since: at(0) });
}

#[test]
fn unknown_is_never_quiet() {
    for why in [Why::NotSupported, Why::NoPermission, Why::NotReported, Why::GpuLost, Why::TimedOut, Why::Failed, Why::Absurd] {
        let mut digest = new();
        run(&mut digest, 0, 60, &gpu(0));
        run(&mut digest, 65, 600, &GpuReading { memory: Measured::Unknown(why), ..gpu(0) });
        assert_eq!(activity(&digest), Activity::Unknown { why, since: at(65) });
    }
    let mut digest = new();
    run(&mut digest, 0, 60, &gpu(0));
    run(&mut digest, 65, 65, &GpuReading { utilization: Measured::Unknown(Why::Failed), ..gpu(0) });
    assert_eq!(activity(&digest), Activity::Unknown { why: Why::Failed, since: at(65) });
    // Work shows all the same.
    run(&mut digest, 70, 70, &GpuReading { utilization: Measured::Unknown(Why::Failed), ..gpu(GIB) });
    assert_eq!(activity(&digest), Activity::Active { since: at(70) });
    // What this hardware never reads keeps nothing from being quiet.
    let old = GpuReading {
        sm_activity: NEVER,
        utilization: NEVER,
        codec: NEVER,
        processes: Measured::Unknown(Why::NotTrusted),
        mig: Measured::Unknown(Why::NotSupported),
        ..gpu(0)
    };
    let mut digest = new();
    run(&mut digest, 0, 15, &old);
    assert_eq!(activity(&digest), Activity::Quiet { since: at(0) });
}

#[test]
fn silence_makes_everything_unknown_once() {
    let mut digest = new();
    run(&mut digest, 0, 60, &gpu(0));
    assert!(digest.silent(at(60), at(75)));
    assert!(!digest.silent(at(60), at(80)));
    assert_eq!(digest.seen().hearing, Hearing::Silent { since: at(60) });
    assert_eq!(activity(&digest), Activity::Unknown { why: Why::NotReported, since: at(75) });
    // The first reading after it proves nothing about the time between.
    run(&mut digest, 100, 115, &gpu(0));
    assert_eq!(digest.seen().hearing, Hearing::Heard { since: at(100) });
    assert_eq!(activity(&digest), Activity::Quiet { since: at(100) });
}

#[test]
fn a_gpu_that_is_no_longer_told_of_stays_and_is_unknown() {
    let mut digest = new();
    for second in (0..60).step_by(5) {
        digest.read(&reading(second, &[("GPU-a", gpu(0)), ("GPU-b", gpu(0))]), Some(false));
    }
    run(&mut digest, 60, 60, &gpu(0));
    let lost = digest.seen().gpus[&uuid("GPU-b")].activity;
    assert_eq!(lost, Activity::Unknown { why: Why::GpuLost, since: at(60) });
    assert_eq!(activity(&digest), Activity::Quiet { since: at(0) });
    // A hung driver says nothing of any of them.
    let hung = NodeReading { driver: DriverState::Hung, ..reading(65, &[]) };
    assert!(digest.read(&hung, Some(false)));
    assert_eq!(activity(&digest), Activity::Unknown { why: Why::TimedOut, since: at(65) });
    // Another boot is another machine, as far as anybody can tell.
    assert!(digest.booted("b", at(70)));
    assert!(!digest.booted("b", at(71)));
    assert!(digest.seen().gpus.is_empty());
}

#[test]
fn the_gpus_of_one_node_are_bounded() {
    let mut digest = new();
    for number in 0..1000_i64 {
        digest.read(&reading(number, &[(&format!("GPU-{number:04}"), gpu(0))]), Some(false));
    }
    assert_eq!((digest.seen().gpus.len(), digest.tracks.len()), (MOST_GPUS, MOST_GPUS));
    assert!(digest.seen().gpus.contains_key(&uuid("GPU-0999")));
}

fn split(instances: &[(&str, MigReading)]) -> GpuReading {
    let devices = instances.iter().map(|(name, level)| (uuid(name), level.clone())).collect();
    let mig = Mig { enabled: true, pending_change: false, devices };
    GpuReading { utilization: NEVER, codec: NEVER, sm_activity: NEVER, mig: Measured::Known(mig), ..gpu(0) }
}

fn instance(used: u64) -> MigReading {
    let memory = Measured::Known(MemoryLevel { used, total: 10 * GIB, reserved: 0 });
    MigReading { memory, sm_activity: share(0), processes: Measured::Known(Vec::new()), ..MigReading::default() }
}

#[test]
fn a_split_gpu_is_quiet_only_where_every_instance_is() {
    let mut digest = new();
    run(&mut digest, 0, 15, &split(&[("MIG-1", instance(0)), ("MIG-2", instance(0))]));
    assert_eq!(activity(&digest), Activity::Quiet { since: at(0) });
    run(&mut digest, 20, 20, &split(&[("MIG-1", instance(0)), ("MIG-2", instance(GIB))]));
    let seen = &digest.seen().gpus[&uuid("GPU-a")];
    assert_eq!(seen.activity, Activity::Active { since: at(20) });
    assert_eq!(seen.instances[&uuid("MIG-1")], Activity::Quiet { since: at(0) });
    assert_eq!(seen.instances[&uuid("MIG-2")], Activity::Active { since: at(20) });
    // How it is split cannot be read: whatever ran in an instance may run on.
    run(&mut digest, 25, 25, &GpuReading { mig: Measured::Unknown(Why::TimedOut), ..gpu(0) });
    let seen = &digest.seen().gpus[&uuid("GPU-a")];
    assert_eq!(seen.instances[&uuid("MIG-1")], Activity::Unknown { why: Why::TimedOut, since: at(25) });
    assert_eq!(seen.activity, Activity::Unknown { why: Why::TimedOut, since: at(25) });
    // Split otherwise: the old instances are gone, and not lost.
    run(&mut digest, 30, 45, &split(&[("MIG-3", instance(0))]));
    let seen = &digest.seen().gpus[&uuid("GPU-a")];
    assert_eq!(seen.instances.keys().map(GpuUuid::as_str).collect::<Vec<_>>(), ["MIG-3"]);
    assert_eq!(seen.activity, Activity::Quiet { since: at(30) });
}

#[test]
fn work_that_comes_and_goes_changes_little() {
    let mut digest = new();
    run(&mut digest, 0, 60, &gpu(0));
    let works = |second: i64| if second % 10 == 0 { gpu(GIB) } else { gpu(0) };
    let changes =
        (65..665).step_by(5).filter(|second| digest.read(&reading(*second, &[("GPU-a", works(*second))]), Some(false)));
    assert_eq!(changes.count(), 1);
    assert_eq!(activity(&digest), Activity::Active { since: at(70) });
}

fn xid(second: i64, code: u32, gpu: &str) -> NodeEvent {
    let what = Happening::Xid { code, gpu: Some(uuid(gpu)) };
    NodeEvent { arrived: at(second), at: at(second), what }
}

#[test]
fn xids_are_counted_by_code_and_gpu_and_the_worst_are_kept() {
    let mut digest = new();
    assert!(digest.happened(&xid(1, 79, "GPU-a")));
    for second in 2..1000 {
        digest.happened(&xid(second, 31, "GPU-a"));
    }
    let kind = |code, count, first, last| SeenXid { code, gpu: Some(uuid("GPU-a")), count, first: at(first), last: at(last) };
    assert_eq!(digest.seen().xids.kinds, [kind(79, 1, 1, 1), kind(31, 998, 2, 999)]);
    // A hundred codes of the application's: the fatal one is still there.
    for code in 200..300 {
        digest.happened(&xid(1000 + i64::from(code), code, "GPU-a"));
    }
    let xids = &digest.seen().xids;
    assert_eq!((xids.kinds.len(), xids.kinds[0].code), (MOST_XIDS, 79));
    // 998 of the application's class went first, then the oldest of the 100 suspects, of which 15 are left.
    assert_eq!(xids.left_out, 998 + 85);
}

fn notice(second: i64, kind: Interruption) -> NodeEvent {
    NodeEvent { arrived: at(second), at: at(second), what: Happening::Interruption { kind, deadline: Some(at(600)) } }
}

#[test]
fn the_gravest_notice_stands_until_it_is_withdrawn() {
    let mut digest = new();
    assert!(digest.happened(&notice(1, Interruption::Rebalance)));
    assert!(!digest.happened(&notice(2, Interruption::Rebalance)));
    assert!(digest.happened(&notice(3, Interruption::Reclaim)));
    assert!(!digest.happened(&notice(4, Interruption::Maintenance)));
    let told = Notice { kind: Interruption::Reclaim, deadline: Some(at(600)), since: at(3) };
    assert_eq!(digest.seen().notice, Some(told));
    assert!(digest.happened(&notice(5, Interruption::Withdrawn)));
    assert!(!digest.happened(&notice(6, Interruption::Withdrawn)));
    assert_eq!(digest.seen().notice, None);
}

#[test]
fn ailments_stand_while_their_fact_is_not_read() {
    let rows = RemappedRows { correctable: 0, uncorrectable: 1, pending: Measured::Known(true), failed: false };
    let ecc = Ecc { enabled: true, uncorrected_volatile: 2, corrected_volatile: 9, uncorrected_aggregate: 2 };
    let ill = GpuReading {
        recovery_action: Measured::Known(1),
        remapped_rows: Measured::Known(rows),
        ecc: Measured::Known(ecc),
        ..gpu(0)
    };
    let mut digest = new();
    run(&mut digest, 0, 0, &ill);
    let of = |digest: &Digest| digest.seen().gpus[&uuid("GPU-a")].ailments.iter().copied().collect::<Vec<_>>();
    let all = [Ailment::RecoveryAction(1), Ailment::RemapPending, Ailment::UncorrectedErrors(2)];
    assert_eq!(of(&digest), all);
    // Read every minute only: the rounds between say nothing of it.
    run(&mut digest, 5, 55, &gpu(0));
    assert_eq!(of(&digest), all);
    run(
        &mut digest,
        60,
        60,
        &GpuReading { recovery_action: Measured::Known(0), ecc: Measured::Unknown(Why::Failed), ..gpu(0) },
    );
    assert_eq!(of(&digest), [Ailment::RemapPending, Ailment::Unread(HealthFact::Ecc, Why::Failed)]);
}

#[test]
fn what_was_seen_reads_back_from_json_and_is_small() {
    let mut digest = new();
    digest.booted("3f1c0c5e-0000-4000-8000-000000000000", at(0));
    let names: Vec<String> = (0..8).map(|n| format!("GPU-aaaaaaaa-bbbb-cccc-dddd-00000000000{n}")).collect();
    for second in (0..60).step_by(5) {
        let gpus: Vec<(&str, GpuReading)> = names.iter().map(|name| (name.as_str(), gpu(0))).collect();
        digest.read(&reading(second, &gpus), Some(false));
    }
    digest.happened(&xid(1, 79, "GPU-a"));
    let text = serde_json::to_string(digest.seen()).unwrap();
    assert_eq!(serde_json::from_str::<Seen>(&text).unwrap(), *digest.seen());
    assert!(text.len() < 1_800, "{} bytes for 8 GPUs", text.len());
}

#[test]
fn clocks_that_heat_holds_down_count_after_a_minute_and_until_a_minute_after() {
    let mut digest = new();
    let limited = |bits: u64| GpuReading { clock_limits: Measured::Known(bits), ..gpu(0) };
    let slow = |digest: &Digest| digest.seen().gpus[&uuid("GPU-a")].ailments.contains(&Ailment::SlowedDown);
    // Idle, power cap: as it should be. A flash of hardware slowdown is none.
    run(&mut digest, 0, 120, &limited(0x1 | 0x4));
    run(&mut digest, 125, 180, &limited(0x8));
    assert!(!slow(&digest));
    run(&mut digest, 185, 190, &limited(0));
    // Heat from second 195 on; the rounds between two readings of clocks say nothing.
    run(&mut digest, 195, 250, &limited(0x40));
    assert!(!slow(&digest));
    assert_eq!(run(&mut digest, 255, 255, &limited(0x40)), 1);
    assert!(slow(&digest));
    assert_eq!(run(&mut digest, 260, 600, &gpu(0)), 0);
    run(&mut digest, 605, 660, &limited(0));
    assert!(slow(&digest));
    assert_eq!(run(&mut digest, 665, 665, &limited(0)), 1);
    assert!(!slow(&digest));
}

#[test]
fn an_error_that_is_told_again_is_as_old_as_it_was() {
    let mut digest = new();
    let what = Happening::Xid { code: 94, gpu: Some(uuid("GPU-a")) };
    digest.happened(&NodeEvent { arrived: at(90_000), at: at(10), what: what.clone() });
    digest.happened(&NodeEvent { arrived: at(90_000), at: at(89_000), what });
    let xid = &digest.seen().xids.kinds[0];
    assert_eq!((xid.count, xid.first, xid.last), (2, at(10), at(89_000)));
}
