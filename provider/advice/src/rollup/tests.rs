use super::*;
use stoker_core::base::ids::{Cloud, InstanceType, PoolName, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::reading::{DriverState, GpuProcess, MemoryLevel, Mig, MigReading, Permille, Source, Why};
use stoker_core::market::offer::{CapacityType, Market, Place};

const GIB: u64 = 1 << 30;

fn permille(level: u16) -> Permille {
    Permille::new(level).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// 1,800,000,000 s is a whole number of hours.
const FIRST: i64 = 500_000;

fn uuid(n: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-8f1c2b6e-0000-4000-8000-{n:012x}")).unwrap()
}

fn gpu(utilization: u16, gib: u64) -> GpuReading {
    GpuReading {
        utilization: Measured::Known(permille(utilization)),
        memory: Measured::Known(MemoryLevel { used: gib * GIB, total: 24 * GIB, reserved: 0 }),
        ..GpuReading::default()
    }
}

fn reading(second: i64, gpus: impl IntoIterator<Item = (GpuUuid, GpuReading)>) -> NodeReading {
    NodeReading {
        arrived: at(second),
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(1),
        gpus: gpus.into_iter().collect(),
        gates: BTreeMap::new(),
    }
}

fn node() -> NodeName {
    NodeName::new("n1").unwrap()
}

fn bought(units: u32) -> Bought {
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    };
    let market = Market { place, capacity_type: CapacityType::Spot };
    Bought { pool: PoolName::new("p").unwrap(), market, price: UsdPerHour(804_800), gpus: units, units }
}

fn pod(name: &str, units: Option<u32>) -> GpuPod {
    let owner = Owner::of("ml", name, None, None);
    let labels = PodLabels::of([("team", name)]);
    GpuPod {
        name: format!("ml/{name}").into(),
        uid: Some(format!("uid-{name}").into()),
        owner,
        labels,
        units,
        started_after: None,
    }
}

fn held_by(units: u32, pods: &[GpuPod]) -> Rollup {
    let mut rollup = Rollup::default();
    let context = NodeContext { bought: Some(bought(units)), pods: Some(pods.to_vec()) };
    rollup.follow([(node(), Arc::new(context))].into());
    rollup
}

fn name(holder: &Holder) -> String {
    match holder {
        Holder::Nobody => "nobody".to_owned(),
        Holder::Pod { name, .. } => name.to_string(),
        Holder::Unattributed(why) => why.as_str().to_owned(),
    }
}

#[test]
fn hundredths_are_exact_and_the_rest_is_rounded_up_by_less_than_one() {
    let mut hour = Histogram::default();
    for (level, seconds) in [(0, 50), (500, 30), (503, 15), (1000, 5)] {
        hour.add(permille(level), seconds);
    }
    let mut all = Distribution::default();
    all.add(&hour);
    // Of 100 s half were idle: the median is zero; 80 s were at most 50 %, 95 s at most 51 % (50.3 rounded up).
    let quantiles = [50, 51, 80, 95, 96].map(|q| all.quantile(q).unwrap().get());
    assert_eq!(quantiles, [0, 500, 500, 510, 1000]);
    assert_eq!((all.peak(), all.known()), (Some(permille(1000)), 100));
    assert_eq!(Distribution::default().quantile(50), None, "what is not known is not nought");
}

/// The quantile of every level against the sorted seconds themselves.
#[test]
fn merged_hours_tell_what_all_their_seconds_tell() {
    let (mut seconds, mut all, mut state) = (Vec::new(), Distribution::default(), 7_u32);
    for _ in 0..20 {
        let mut hour = Histogram::default();
        for _ in 0..60 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let level = u16::try_from((state >> 16) % 1001).unwrap();
            hour.add(permille(level), 60);
            seconds.extend([level; 60]);
        }
        let mut one = Distribution::default();
        one.add(&hour);
        all.merge(&one);
    }
    seconds.sort_unstable();
    for percent in 1..=100_u8 {
        let rank = (seconds.len() * usize::from(percent)).div_ceil(100);
        let exact = seconds[rank - 1];
        let told = all.quantile(percent).unwrap().get();
        assert!(exact <= told && told < exact + 10, "p{percent}: {exact} told as {told}");
    }
}

#[test]
fn a_reading_stands_for_the_time_since_the_last_and_no_longer_than_a_gap() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    let mut take = |second, level| rollup.take(&node(), at(second), &reading(second, [(uuid(1), gpu(level, 2))]));
    assert_eq!(take(10, 400), Tally::Begins);
    assert_eq!(take(40, 800), Tally::Counted);
    assert_eq!(take(40, 900), Tally::Stale);
    assert_eq!(take(20, 900), Tally::Stale);
    assert_eq!(take(40 + LONGEST_GAP + 1, 1000), Tally::Begins);
    assert_eq!(rollup.take(&NodeName::new("other").unwrap(), at(1), &reading(1, [])), Tally::UnknownNode);
    let batch = rollup.flush();
    let levels = &batch.hours[0].cells[0].levels;
    // 30 s at 800; the others stand for no time, and are samples and peaks all the same.
    assert_eq!((levels.seconds, levels.samples, levels.known, levels.worked), (30, 3, 3, 30));
    assert_eq!((levels.utilization.known(), levels.utilization.peak), (30, Some(permille(1000))));
    assert_eq!((levels.memory_peak, levels.memory_total), (2 * GIB, 24 * GIB));
}

#[test]
fn time_falls_to_the_hour_that_it_was_in() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    for second in [3_590, 3_620, 3_650] {
        rollup.take(&node(), at(second), &reading(second, [(uuid(1), gpu(500, 2))]));
    }
    let hours: Vec<_> = rollup
        .flush()
        .hours
        .iter()
        .map(|row| (row.hour - FIRST, row.cells[0].levels.seconds, row.cells[0].levels.samples))
        .collect();
    assert_eq!(hours, [(0, 10, 1), (1, 50, 2)]);
}

#[test]
fn what_is_not_known_is_left_out_and_is_not_idle() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    let dark = GpuReading { utilization: Measured::Unknown(Why::GpuLost), ..GpuReading::default() };
    for second in [0, 60, 120] {
        rollup.take(&node(), at(second), &reading(second, [(uuid(1), dark.clone())]));
    }
    let batch = rollup.flush();
    let levels = &batch.hours[0].cells[0].levels;
    assert_eq!((levels.seconds, levels.samples, levels.known), (120, 3, 0));
    assert_eq!(
        (levels.worked, levels.resident, levels.empty, levels.utilization.known(), levels.memory.known()),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(batch.latest[0].1.units[0].activity, Occupancy::Unknown);
}

#[test]
fn a_gpu_that_is_counted_and_not_read_is_unknown_and_is_not_left_out() {
    let mut rollup = held_by(2, &[pod("a", Some(2))]);
    for second in [0, 60, 120] {
        let second_one = GpuReading { index: 1, ..gpu(500, 1) };
        let two = NodeReading { counted: Measured::Known(2), ..reading(second, [(uuid(1), second_one)]) };
        rollup.take(&node(), at(second), &two);
    }
    let batch = rollup.flush();
    let units: Vec<_> = batch.latest[0].1.units.iter().map(|unit| (unit.index, unit.activity, unit.utilization)).collect();
    let failed = Measured::Unknown(Why::Failed);
    assert_eq!(units, [(1, Occupancy::Worked, Measured::Known(permille(500))), (0, Occupancy::Unknown, failed)]);
    let [_, dark] = batch.hours[0].cells.as_slice() else { panic!("{batch:?}") };
    assert_eq!((dark.unit.gpu.as_str(), name(&dark.holder)), ("unread-0", "ml/a".to_owned()));
    assert_eq!(
        (dark.levels.seconds, dark.levels.known, dark.levels.worked + dark.levels.resident + dark.levels.empty),
        (120, 0, 0)
    );
    // A node of which nothing but the count is known; and a driver that does not count.
    for (counted, shown) in [(Measured::Known(2), 2), (Measured::Known(1_000), 64), (Measured::default(), 0)] {
        let mut rollup = held_by(2, &[]);
        rollup.take(&node(), at(0), &NodeReading { counted, ..reading(0, []) });
        assert_eq!(rollup.flush().latest[0].1.units.len(), shown, "{counted:?}");
    }
}

#[test]
fn a_model_that_waits_is_resident_and_an_untouched_gpu_is_empty() {
    let doing = |gpu: &GpuReading| Sample::of_gpu(gpu, 0).activity();
    assert_eq!(
        [doing(&gpu(20, 0)), doing(&gpu(10, 4)), doing(&gpu(0, 0))],
        [Occupancy::Worked, Occupancy::Resident, Occupancy::Empty]
    );
    // 1 % of 24 GiB is 245 MiB, less than 256: what the driver and its tools take.
    let little =
        GpuReading { memory: Measured::Known(MemoryLevel { used: 250 << 20, total: 24 * GIB, reserved: 0 }), ..gpu(0, 0) };
    assert_eq!(doing(&little), Occupancy::Empty);
    let open = GpuReading {
        processes: Measured::Known(vec![GpuProcess { pid: 1, memory: None, container: None, pod_uid: None }]),
        ..little
    };
    assert_eq!(doing(&open), Occupancy::Resident);
    let by_sm = GpuReading {
        utilization: Measured::Unknown(Why::NotSupported),
        sm_activity: Measured::Known(permille(10)),
        ..gpu(0, 0)
    };
    assert_eq!(doing(&by_sm), Occupancy::Worked);
    // What the driver keeps is not among what is in use.
    let kept = MemoryLevel { used: 600 << 20, total: 24 * GIB, reserved: 500 << 20 };
    assert_eq!(doing(&GpuReading { memory: Measured::Known(kept), ..gpu(0, 0) }), Occupancy::Resident);
}

#[test]
fn nothing_is_called_empty_or_resident_while_a_reading_that_could_tell_otherwise_failed() {
    let doing = |gpu: &GpuReading| Sample::of_gpu(gpu, 0).activity();
    let listed =
        |processes| Measured::Known(vec![GpuProcess { pid: 1, memory: None, container: None, pod_uid: None }; processes]);
    for why in [Why::NotReported, Why::NotSupported, Why::Failed] {
        let blind = GpuReading { memory: Measured::Unknown(why), processes: listed(0), ..gpu(0, 0) };
        assert_eq!(doing(&blind), Occupancy::Unknown, "{why:?}");
        assert_eq!(doing(&GpuReading { processes: listed(1), ..blind.clone() }), Occupancy::Resident, "a process proves it");
        assert_eq!(doing(&GpuReading { utilization: Measured::Known(permille(500)), ..blind }), Occupancy::Worked);
    }
    let (failed, lacks) = (Measured::Unknown(Why::TimedOut), Measured::Unknown(Why::NotSupported));
    for gib in [0, 4] {
        let idle = gpu(0, gib);
        assert_eq!(doing(&GpuReading { sm_activity: failed, ..idle.clone() }), Occupancy::Unknown);
        assert_eq!(doing(&GpuReading { codec: failed, ..idle.clone() }), Occupancy::Unknown);
        assert_eq!(
            doing(&GpuReading { utilization: failed, sm_activity: Measured::Known(permille(0)), ..idle }),
            Occupancy::Unknown
        );
    }
    assert_eq!(doing(&GpuReading { sm_activity: lacks, codec: lacks, ..gpu(0, 0) }), Occupancy::Empty);
    assert_eq!(doing(&GpuReading { processes: Measured::Unknown(Why::Failed), ..gpu(0, 0) }), Occupancy::Unknown);
}

/// Processes tell; else the only pod, if it asked for all; else nobody can tell.
#[test]
fn a_gpu_is_held_by_the_pod_that_computes_on_it() {
    let computing = |pods: &[&str]| {
        let process = |pod: &&str| GpuProcess { pid: 1, memory: None, container: None, pod_uid: Some(format!("uid-{pod}")) };
        GpuReading { processes: Measured::Known(pods.iter().map(process).collect()), ..gpu(500, 2) }
    };
    let holder = |units, pods: &[GpuPod], gpu: &GpuReading| {
        let mut rollup = held_by(units, pods);
        rollup.take(&node(), at(0), &reading(0, [(uuid(1), gpu.clone())]));
        name(&rollup.flush().hours[0].cells[0].holder)
    };
    let (one, two) = ([pod("a", Some(1))], [pod("a", Some(1)), pod("b", Some(1))]);
    assert_eq!(holder(2, &[], &computing(&["a"])), "nobody");
    assert_eq!(holder(2, &two, &computing(&["b"])), "ml/b");
    assert_eq!(holder(2, &two, &computing(&["b", "a"])), "several pods share it");
    assert_eq!(holder(2, &two, &gpu(500, 2)), "its processes do not show which pod");
    assert_eq!(holder(1, &one, &gpu(0, 0)), "ml/a", "the only pod has all that there is");
    assert_eq!(holder(2, &one, &gpu(0, 0)), "its processes do not show which pod", "the other GPU may be free");
    assert_eq!(holder(1, &[pod("a", None)], &gpu(0, 0)), "its processes do not show which pod", "it may have asked for none");
    assert_eq!(holder(1, &one, &computing(&["gone"])), "ml/a");
    let mut unbought = Rollup::default();
    unbought.follow([(node(), Arc::new(NodeContext { bought: None, pods: Some(one.to_vec()) }))].into());
    unbought.take(&node(), at(0), &reading(0, [(uuid(1), gpu(0, 0))]));
    assert_eq!(name(&unbought.flush().hours[0].cells[0].holder), "its processes do not show which pod", "it may have more");
    let mut blind = Rollup::default();
    blind.follow([(node(), Arc::default())].into());
    blind.take(&node(), at(0), &reading(0, [(uuid(1), gpu(0, 0))]));
    assert_eq!(name(&blind.flush().hours[0].cells[0].holder), "no Kubernetes feed");
}

#[test]
fn a_workload_is_called_by_what_made_its_pods() {
    let of = |pod, controller, label| Owner::of("ml", pod, controller, label).name.to_string();
    assert_eq!(of("recs-7d4b9c5f6d-x2x7z", Some(("ReplicaSet", "recs-7d4b9c5f6d")), Some("other")), "recs");
    assert_eq!(of("nightly-29385600-abcde", Some(("Job", "nightly-29385600")), None), "nightly");
    assert_eq!(of("train-1-x", Some(("Job", "train-1")), None), "train-1");
    assert_eq!(of("db-0", Some(("StatefulSet", "db")), None), "db");
    assert_eq!(of("solo", None, Some("notebook")), "notebook");
    assert_eq!(of("recs-7d4b9c5f6d-x2x7z", None, None), "recs");
    assert_eq!(of("llama-server", None, None), "llama-server", "a word is no hash");
}

#[test]
fn a_split_gpu_is_counted_by_its_instances() {
    let device = MigReading {
        name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".to_owned(),
        sm_activity: Measured::Known(permille(700)),
        memory: Measured::Known(MemoryLevel { used: 5 * GIB, total: 10 * GIB, reserved: 0 }),
        ..MigReading::default()
    };
    let mig = GpuUuid::new("MIG-8f1c2b6e-0000-4000-8000-0000000000aa").unwrap();
    let split = GpuReading {
        mig: Measured::Known(Mig { enabled: true, pending_change: false, devices: [(mig.clone(), device)].into() }),
        ..gpu(0, 0)
    };
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    for second in [0, 30] {
        rollup.take(&node(), at(second), &reading(second, [(uuid(1), split.clone())]));
    }
    let batch = rollup.flush();
    let [cell] = batch.hours[0].cells.as_slice() else { panic!("{batch:?}") };
    assert_eq!((cell.unit.mig.as_ref(), cell.unit.profile.map(|p| p.to_string())), (Some(&mig), Some("1g.10gb".to_owned())));
    assert_eq!((cell.levels.worked, cell.levels.sm.known(), cell.levels.utilization.known()), (30, 30, 0));
}

#[test]
fn energy_is_counted_in_whole_joules_and_a_driver_that_counts_anew_adds_none() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    for (second, millijoules) in [(0, 1_500), (5, 2_900), (10, 4_100), (15, 100), (20, 2_100)] {
        let gpu = GpuReading { energy_mj: Measured::Known(millijoules), ..gpu(0, 0) };
        rollup.take(&node(), at(second), &reading(second, [(uuid(1), gpu)]));
    }
    // 1 → 2 → 4 J, again from 0 to 2.
    assert_eq!(rollup.flush().hours[0].cells[0].levels.joules, 1 + 2 + 2);
}

#[test]
fn a_written_hour_is_let_go_and_one_that_changed_meanwhile_is_not() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    for second in [3_500, 3_560] {
        rollup.take(&node(), at(second), &reading(second, [(uuid(1), gpu(500, 2))]));
    }
    let first = rollup.flush();
    assert_eq!(first, rollup.flush(), "nothing is forgotten before it is written");
    rollup.take(&node(), at(3_610), &reading(3_610, [(uuid(1), gpu(500, 2))]));
    rollup.written(&first, at(3_610));
    let second = rollup.flush();
    assert_eq!(second.hours.iter().map(|row| row.cells[0].levels.seconds).collect::<Vec<_>>(), [100, 10]);
    rollup.written(&second, at(3_611));
    assert!(rollup.flush().is_empty(), "what is written is not written again");
    // After a restart the open hour goes on from what was written of it.
    let mut restarted = held_by(1, &[pod("a", Some(1))]);
    restarted.restore(second.hours.into_iter().filter(|row| row.hour == FIRST + 1).collect());
    assert!(restarted.flush().is_empty());
    for at in [3_700, 3_760] {
        restarted.take(&node(), self::at(at), &reading(at, [(uuid(1), gpu(500, 2))]));
    }
    assert_eq!(restarted.flush().hours[0].cells[0].levels.seconds, 10 + 60);
}

#[test]
fn what_a_probe_kept_while_it_was_cut_off_is_counted_where_it_belongs_as_long_as_its_hour_is_open() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    rollup.take(&node(), at(3_300), &reading(3_300, [(uuid(1), gpu(500, 2))]));
    rollup.written(&rollup.flush(), at(3_700));
    // Cut off for ten minutes; then all at once.
    for second in (3_360..=3_900).step_by(60) {
        assert_eq!(rollup.take(&node(), at(second), &reading(3_900, [(uuid(1), gpu(500, 2))])), Tally::Counted);
    }
    let seconds = |batch: Batch| batch.hours.iter().map(|row| row.cells[0].levels.seconds).collect::<Vec<_>>();
    assert_eq!(seconds(rollup.flush()), [300, 300]);
    rollup.written(&rollup.flush(), at(3_600 + OPEN_AFTER));
    // The first hour is closed and written: what came now would replace it.
    assert_eq!(rollup.take(&node(), at(4_000), &reading(4_001 + OPEN_AFTER, [(uuid(1), gpu(500, 2))])), Tally::Stale);
}

#[test]
fn a_node_that_comes_back_goes_on_with_its_hour_and_stays_what_it_was() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    let take = |rollup: &mut Rollup, second| rollup.take(&node(), at(second), &reading(second, [(uuid(1), gpu(500, 2))]));
    take(&mut rollup, 0);
    take(&mut rollup, 60);
    let batch = rollup.flush();
    rollup.written(&batch, at(60));
    rollup.follow(BTreeMap::new());
    rollup.follow([(node(), Arc::new(NodeContext { bought: None, pods: Some(vec![pod("a", Some(1))]) }))].into());
    take(&mut rollup, 120);
    let batch = rollup.flush();
    assert_eq!((batch.hours[0].cells[0].levels.seconds, batch.hours[0].bought.as_ref()), (120, Some(&bought(1))));
    rollup.written(&batch, at(3_600 + OPEN_AFTER));
    rollup.follow(BTreeMap::new());
    assert!(rollup.is_empty(), "its hour is over and written");
}

#[test]
fn pods_beyond_the_bound_are_not_told_apart_and_their_time_counts() {
    let mut rollup = held_by(1, &[]);
    for n in 0..300 {
        let context = NodeContext { bought: Some(bought(1)), pods: Some(vec![pod(&format!("p{n}"), Some(1))]) };
        rollup.follow([(node(), Arc::new(context))].into());
        rollup.take(&node(), at(n), &reading(n, [(uuid(1), gpu(500, 2))]));
    }
    let batch = rollup.flush();
    let cells = &batch.hours[0].cells;
    assert_eq!(cells.len(), MOST_CELLS + 1);
    assert_eq!(cells.iter().map(|cell| cell.levels.seconds).sum::<u32>(), 299);
    assert!(cells.iter().any(|cell| cell.holder == Holder::Unattributed(Unattributed::TooMany)));
}

/// A probe that makes up a GPU each round, 64 at a time: neither cells nor what is kept from one reading to the next grows with them.
#[test]
fn gpus_that_are_new_each_round_take_bounded_room() {
    let mut rollup = held_by(1, &[pod("a", Some(1))]);
    for round in 0..20_u32 {
        let gpus = (0..64).map(|n| (uuid(round * 64 + n), GpuReading { energy_mj: Measured::Known(5_000), ..gpu(500, 2) }));
        let second = i64::from(round) * 10;
        rollup.take(&node(), at(second), &reading(second, gpus));
    }
    let batch = rollup.flush();
    assert_eq!((batch.hours.len(), batch.hours[0].cells.len()), (1, 2 * MOST_CELLS));
    assert_eq!(rollup.nodes[&node()].energy.len(), 64);
    // What has its cell goes on being counted.
    rollup.take(&node(), at(200), &reading(200, [(uuid(0), gpu(500, 2))]));
    let of = |batch: &Batch| batch.hours[0].cells.iter().find(|cell| cell.unit.gpu == uuid(0)).unwrap().levels.samples;
    assert_eq!((of(&batch), of(&rollup.flush())), (1, 2));
}

#[test]
fn an_hour_comes_back_from_its_bytes_and_broken_ones_are_refused() {
    let mut rollup = held_by(2, &[pod("a", Some(1)), pod("b", Some(1))]);
    let odd = GpuUuid::new("gpu zero").unwrap();
    for second in 0..50_i64 {
        let level = u16::try_from(second * 19 % 1001).unwrap();
        let mine = GpuReading { energy_mj: Measured::Known(second.unsigned_abs() * 70_000), ..gpu(level, 3) };
        rollup.take(&node(), at(second * 60), &reading(second * 60, [(uuid(1), mine), (odd.clone(), gpu(0, 0))]));
    }
    for row in rollup.flush().hours {
        let bytes = row.encode();
        assert_eq!(NodeHour::decode(row.hour, node(), &bytes).as_ref(), Ok(&row));
        for cut in 0..bytes.len() {
            assert_eq!(NodeHour::decode(row.hour, node(), &bytes[..cut]), Err(Damaged), "{cut} of {} bytes", bytes.len());
        }
        // Any byte may be wrong: what comes out is refused or a row, never a panic.
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0xff;
            let _ = NodeHour::decode(row.hour, node(), &wrong);
        }
    }
    // The form before had no labels: without their length, and by its own number.
    let held = |labels| {
        let holder = Holder::Pod { name: "ml/a".into(), owner: Owner::of("ml", "owner", None, None), labels };
        let cells = vec![Cell { unit: Unit::whole(&uuid(1)), holder, levels: Levels::default() }];
        NodeHour { hour: 1, node: node(), bought: None, cells }
    };
    let mut older = held(PodLabels::default()).encode();
    let end = older.windows(6).position(|bytes| bytes == b"\x05owner").unwrap() + 6;
    assert_eq!((older.remove(end), older[0]), (0, 2));
    older[0] = 1;
    assert_eq!(NodeHour::decode(1, node(), &older), Ok(held(PodLabels::default())));
    let labelled = held(PodLabels::of([("team", "vision")]));
    assert_eq!(NodeHour::decode(1, node(), &labelled.encode()), Ok(labelled));
    let nothing = NodeHour { hour: 1, node: node(), bought: None, cells: Vec::new() };
    assert_eq!(NodeHour::decode(1, node(), &nothing.encode()), Ok(nothing));
}
