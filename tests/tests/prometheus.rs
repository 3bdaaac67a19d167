//! The feed from Prometheus against a real one, which scrapes exporters shaped like DCGM's; and what one tells of the past.
//!
//! All need Debian's package `prometheus`, and are ignored unless asked for: `cargo test -p stoker-tests --test prometheus -- --ignored`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "prometheus/counted.rs"]
mod counted;
#[path = "prometheus/exporter.rs"]
mod exporter;
#[path = "prometheus/past.rs"]
mod past;
#[path = "prometheus/world.rs"]
mod world;

use jiff::SignedDuration;
use stoker_core::base::ids::SignalName;
use stoker_core::facts::reading::{
    DriverState, Ecc, GpuReading, Happening, Measured, MemoryLevel, Mig, MigReading, NodeReading, Pcie, Permille, RemappedRows,
    Source, Why,
};
use stoker_core::policy::rules::demand::{Amount, NoLevel, SignalLevel};

use exporter::{Names, dcgm, gpu, idle};
use world::{STALE_AFTER, World, within};

fn share(thousandths: u16) -> Measured<Permille> {
    Measured::Known(Permille::new(thousandths).unwrap())
}

/// A GPU at work, with everything that an exporter can be told to tell.
fn at_work(index: u32) -> GpuReading {
    GpuReading {
        utilization: share(830),
        sm_activity: share(612),
        memory_bandwidth: share(405),
        memory: Measured::Known(MemoryLevel { used: 61_000 << 20, total: 81_559 << 20, reserved: 551 << 20 }),
        power_mw: Measured::Known(612_345),
        power_limit_mw: Measured::Known(700_000),
        temperature_c: Measured::Known(71),
        clocks_mhz: Measured::Known((1_755, 2_619)),
        clock_limits: Measured::Known(0x4),
        ecc: Measured::Known(Ecc { enabled: true, uncorrected_volatile: 0, corrected_volatile: 3, uncorrected_aggregate: 1 }),
        remapped_rows: Measured::Known(RemappedRows {
            correctable: 2,
            uncorrectable: 1,
            pending: Measured::Known(false),
            failed: false,
        }),
        recovery_action: Measured::Known(0),
        pcie: Measured::Known(Pcie { generation: 5, width: 16, max_generation: 5, max_width: 16, replays: 4 }),
        energy_mj: Measured::Known(987_654_321_000),
        persistence: Measured::Known(true),
        mig: Measured::Known(Mig::default()),
        codec: share(120),
        ..idle(index)
    }
}

/// A GPU in two instances, of which one works.
fn split(index: u32) -> GpuReading {
    let device = |number: u32, used: u64, activity: u16| {
        let reading = MigReading {
            gpu_instance: number,
            name: "3g.40gb".to_owned(),
            memory: Measured::Known(MemoryLevel { used: used << 20, total: 40_448 << 20, reserved: 0 }),
            sm_activity: share(activity),
            memory_bandwidth: share(activity / 2),
            ..MigReading::default()
        };
        (stoker_core::base::ids::GpuUuid::new(format!("MIG-{}/{number}/0", gpu(index))).unwrap(), reading)
    };
    let devices = [device(1, 30_000, 900), device(2, 12, 0)].into();
    GpuReading {
        utilization: Measured::default(),
        memory: Measured::default(),
        power_mw: Measured::Known(300_000),
        mig: Measured::Known(Mig { enabled: true, pending_change: false, devices }),
        ..idle(index)
    }
}

/// What the probe on the node would have told, as far as an exporter tells it too: no processes, gates, links and fabric, and not how
/// many GPUs the driver counts.
fn probe(gpus: Vec<GpuReading>) -> NodeReading {
    NodeReading {
        arrived: jiff::Timestamp::UNIX_EPOCH,
        source: Source::Prometheus,
        driver: DriverState::Ready,
        counted: Measured::Unknown(Why::NotReported),
        gpus: gpus.into_iter().map(|reading| (gpu(reading.index), reading)).collect(),
        gates: [].into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn the_same_facts_give_the_same_readings_as_by_the_probe() {
    let told = probe(vec![at_work(0), idle(1), split(2)]);
    let world =
        World::start(&[("gpu-a", &dcgm("gpu-a", &told, Names::Usual)), ("gpu-b", &dcgm("gpu-b", &told_b(), Names::New))]).await;
    let read = within(10, "readings of both nodes", || {
        let seen = world.seen();
        let whole = |node: &str| seen.get(node).filter(|(reading, _)| reading.driver == DriverState::Ready).cloned();
        Some((whole("gpu-a")?, whole("gpu-b")?))
    })
    .await;
    let ((of_a, _), (of_b, _)) = read;
    assert!(of_a.arrived >= world.began && of_a.arrived <= jiff::Timestamp::now(), "{}", of_a.arrived);
    assert_eq!(NodeReading { arrived: told.arrived, ..of_a }, told);
    // The names that DCGM gives its fields now.
    assert_eq!(NodeReading { arrived: told.arrived, ..of_b }, told_b());
}

/// Another node's: its exporter gives the new names.
fn told_b() -> NodeReading {
    probe(vec![GpuReading { index: 7, ..at_work(7) }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn what_vanishes_becomes_unknown_in_time_and_its_errors_are_told_once() {
    let exporter = |celsius: i32, xid: u32| {
        let one = GpuReading { temperature_c: Measured::Known(celsius), ..idle(0) };
        format!("{}DCGM_FI_DEV_XID_ERRORS{{UUID=\"{}\"}} {xid}\n", dcgm("gpu-a", &probe(vec![one]), Names::Usual), gpu(0))
    };
    let mut world = World::start(&[("gpu-a", &exporter(50, 31))]).await;
    let celsius = |world: &World| {
        let (reading, _) = world.seen().get("gpu-a")?.clone();
        Some((reading.gpus.get(&gpu(0))?.temperature_c, reading.driver))
    };
    within(10, "the first reading", || celsius(&world).filter(|(level, _)| *level == Measured::Known(50))).await;
    world.exporters.set("gpu-a", Some(&exporter(55, 79)));
    within(10, "the next reading", || celsius(&world).filter(|(level, _)| *level == Measured::Known(55))).await;
    let events =
        within(10, "the error", || world.seen().get("gpu-a").map(|(_, events)| events.clone()).filter(|e| !e.is_empty())).await;
    // XID 31 was there before we came; 79 is new, and stays without being told again.
    let what: Vec<_> = events.iter().map(|event| event.what.clone()).collect();
    assert_eq!(what, [Happening::Xid { code: 79, gpu: Some(gpu(0)) }]);

    // The exporter goes. Its last levels count until they are too old, and then nothing is known.
    world.exporters.set("gpu-a", None);
    let gone = std::time::Instant::now();
    let silent = (Measured::Unknown(Why::NotReported), DriverState::Unknown);
    within(20, "it is unknown", || celsius(&world).filter(|seen| *seen == silent)).await;
    // Three seconds and an interval, and what a scrape and a round take on a busy machine.
    let took = gone.elapsed();
    println!("unknown {:.1} s after the exporter went; samples count for {} s", took.as_secs_f64(), STALE_AFTER.as_secs());
    assert!(took.as_secs_f64() > 1.0, "a single scrape that fails takes nothing away: {took:?}");
    world.exporters.set("gpu-a", Some(&exporter(45, 79)));
    within(10, "it is back", || celsius(&world).filter(|(level, _)| *level == Measured::Known(45))).await;
    assert_eq!(world.seen()["gpu-a"].1.len(), 1, "the old error is not told again");

    // Then Prometheus itself.
    world.stop_prometheus().await;
    within(20, "it is unknown again", || celsius(&world).filter(|seen| *seen == silent)).await;
    within(10, "the metrics tell of it", || {
        world.metric("stoker_prometheus_queries_total{kind=\"readings\",result=\"unreachable\"}").filter(|n| *n > 0.0)
    })
    .await;
    assert_eq!(world.metric("stoker_prometheus_gpus{state=\"silent\"}"), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn series_of_other_nodes_and_wrong_values_are_counted_and_not_taken() {
    let told = probe(vec![idle(0)]);
    let stranger = dcgm("not-ours", &probe(vec![idle(4)]), Names::Usual);
    let broken = format!("DCGM_FI_DEV_GPU_UTIL{{UUID=\"{}\",Hostname=\"gpu-a\"}} NaN\n", gpu(5));
    let exporter = format!("{}{stranger}{broken}", dcgm("gpu-a", &told, Names::Usual));
    let world = World::start(&[("gpu-a", &exporter)]).await;
    let (reading, _) = within(10, "a reading", || world.seen().get("gpu-a").cloned()).await;
    assert_eq!(world.seen().len(), 1, "{:?}", world.seen().keys());
    assert_eq!(reading.gpus[&gpu(0)].utilization, share(0));
    // It is there, and nothing is known of it.
    assert_eq!(reading.gpus[&gpu(5)].utilization, Measured::Unknown(Why::Absurd));
    for reason in ["unknown-node", "absurd"] {
        let count = world.metric(&format!("stoker_prometheus_dropped_total{{reason=\"{reason}\"}}"));
        assert!(count.is_some_and(|count| count >= 1.0), "{reason}: {count:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn demand_is_what_the_metrics_say_and_unknown_without_them() {
    let exporter = "queue_depth{pod=\"a\"} 20\nqueue_depth{pod=\"b\"} 5\n";
    let world = World::start(&[("app", exporter)]).await;
    let level = |name: &str| {
        let demand = world.demand.borrow();
        demand.values().next().and_then(|pool| SignalName::find(&pool.signals, name).cloned())
    };
    let known = |name: &str| match level(name) {
        Some(SignalLevel::Known { amount, replicas, at }) => Some((amount, replicas, at)),
        _ => None,
    };
    // 25 ÷ 10 × 1.2 = 3 exactly.
    let (amount, replicas, at) = within(10, "the queue", || known("queueDepth")).await;
    assert_eq!((amount, replicas), (Amount(25_000_000), 3));
    assert!(jiff::Timestamp::now().duration_since(at) < SignedDuration::from_secs(5), "{at}");
    let unknown = |name: &str| match level(name) {
        Some(SignalLevel::Unknown { why, .. }) => Some(why),
        _ => None,
    };
    assert_eq!(unknown("everyPod"), Some(NoLevel::SeveralSeries));
    assert_eq!(unknown("misspelt"), Some(NoLevel::NoData));
    within(5, "a metric of it", || {
        world
            .metric("stoker_demand_replicas{pool=\"inference\",signal=\"queueDepth\"}")
            .filter(|replicas| (2.9..3.1).contains(replicas))
    })
    .await;
    world.exporters.set("app", None);
    let why = within(20, "it is unknown", || unknown("queueDepth")).await;
    assert!(matches!(why, NoLevel::NoData | NoLevel::Stale), "{why}");
    assert_eq!(world.metric("stoker_demand_replicas{pool=\"inference\",signal=\"queueDepth\"}"), None);
}
