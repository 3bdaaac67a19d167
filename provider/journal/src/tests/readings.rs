//! Readings by the hour: written again and again, kept for a month and within a bound.

use std::collections::BTreeMap;
use std::time::Instant;

use stoker_advice::rollup::{Bought, GpuPod, HOUR, NodeContext, NodeHour, Owner, PodLabels, Rollup};
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::reading::{DriverState, GpuReading, Measured, MemoryLevel, NodeReading, Permille, Source};

use super::super::readings::forget;
use super::super::store::{READINGS, Store};
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// The hour of `at(0)`.
const FIRST: i64 = 1_800_000_000 / HOUR;

fn name(n: u32) -> NodeName {
    NodeName::new(format!("ip-10-0-{}-{}.ec2.internal", n / 256, n % 256)).unwrap()
}

/// So many nodes of so many GPUs, each held by a pod of its own.
fn fleet(nodes: u32, gpus: u32) -> Rollup {
    let context = |n: u32| {
        let owner = Owner::of("ml", &format!("train-{n}"), None, None);
        let labels = PodLabels::of([("app", "trainer"), ("team", "vision"), ("app.kubernetes.io/part-of", "recommendations")]);
        let pod =
            GpuPod { name: format!("ml/train-{n}").into(), uid: None, owner, labels, units: Some(gpus), started_after: None };
        let market = world::market(stoker_core::market::offer::CapacityType::Spot);
        let bought = Bought { pool: "p".to_owned().try_into().unwrap(), market, price: UsdPerHour(1), gpus, units: gpus };
        (name(n), Arc::new(NodeContext { bought: Some(bought), pods: Some(vec![pod]) }))
    };
    let mut rollup = Rollup::default();
    rollup.follow((0..nodes).map(context).collect());
    rollup
}

/// A reading of each node at that second, whose levels wander as a training's do.
fn take(rollup: &mut Rollup, nodes: u32, gpus: u32, second: i64) {
    for n in 0..nodes {
        let gpu = |g: u32| {
            let step = u64::try_from(second).unwrap() / 15 + u64::from(n * 31 + g * 7);
            let level = |base: u64, spread: u64| {
                Measured::Known(Permille::new(u16::try_from(base + step * 37 % spread).unwrap()).unwrap())
            };
            let memory = MemoryLevel { used: (60 << 30) + ((step % 3) << 28), total: 80 << 30, reserved: 1 << 29 };
            let reading = GpuReading {
                utilization: level(900, 100),
                sm_activity: level(600, 150),
                memory_bandwidth: level(400, 150),
                memory: Measured::Known(memory),
                energy_mj: Measured::Known(u64::try_from(second).unwrap() * 500_000),
                ..GpuReading::default()
            };
            (GpuUuid::new(format!("GPU-8f1c2b6e-{g:04x}-4000-8000-{n:012x}")).unwrap(), reading)
        };
        let reading = NodeReading {
            arrived: at(second),
            source: Source::Probe,
            driver: DriverState::Ready,
            counted: Measured::Known(gpus),
            gpus: (0..gpus).map(gpu).collect(),
            gates: BTreeMap::new(),
        };
        rollup.take(&name(n), at(second), &reading);
    }
}

/// Writes a reading of one node.
pub(super) async fn write_some(journal: &Journal) {
    try_write_some(journal).await.unwrap();
}

pub(super) async fn try_write_some(journal: &Journal) -> Result<(), JournalError> {
    let mut rollup = fleet(1, 1);
    for second in [0, 60] {
        take(&mut rollup, 1, 1, second);
    }
    journal.readings().write(&rollup.flush()).await
}

async fn hours(journal: &Journal) -> Vec<NodeHour> {
    let mut hours = Vec::new();
    journal.reader().each_reading_hour(0, i64::MAX, |hour| hours.push(hour)).await.unwrap();
    hours
}

#[tokio::test]
async fn hours_come_back_as_they_were_written_and_a_crash_loses_what_came_after() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut rollup = fleet(2, 2);
    for second in (0..=3_000).step_by(60) {
        take(&mut rollup, 2, 2, second);
    }
    let first = rollup.flush();
    journal.readings().write(&first).await.unwrap();
    journal.readings().write(&first).await.unwrap();
    assert_eq!(hours(&journal).await, first.hours, "written twice, there once");
    rollup.written(&first, at(3_000));
    let copy = crash_copy(dir.path()).await;
    take(&mut rollup, 2, 2, 3_060);

    let (journal, _) = reopened(copy.path()).await;
    let mut again = fleet(2, 2);
    again.restore(hours(&journal).await);
    for second in (3_120..=3_660).step_by(60) {
        take(&mut again, 2, 2, second);
    }
    journal.readings().write(&again.flush()).await.unwrap();
    let seconds: Vec<_> = hours(&journal).await.iter().map(|row| (row.hour - FIRST, row.cells[0].levels.seconds)).collect();
    // 3,000 s before the crash; the minute after it and the one before the first reading are unknown; 480 s to the hour's end.
    assert_eq!(seconds, [(0, 3_480), (0, 3_480), (1, 60), (1, 60)]);
    let latest = journal.reader().latest_readings().await.unwrap();
    assert_eq!((latest.len(), latest[&name(1)].at, latest[&name(1)].units.len()), (2, at(3_660), 2));
}

#[tokio::test]
async fn hours_go_when_they_are_a_month_old_or_too_many() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut rollup = fleet(3, 1);
    for minute in 0..=10 * 60 {
        take(&mut rollup, 3, 1, minute * 60);
    }
    journal.readings().write(&rollup.flush()).await.unwrap();
    let left = async || hours(&journal).await.iter().map(|row| row.hour - FIRST).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(left().await.len(), 11);
    let month = READINGS_KEPT.as_secs();
    // Two hours a call: of the three that are past their time one is left for the next.
    assert!(journal.readings().forget(at(month + 3 * HOUR)).await.unwrap());
    assert_eq!(left().await, (2..=10).collect());
    journal.readings().forget(at(month + 3 * HOUR)).await.unwrap();
    assert_eq!(left().await, (3..=10).collect());
    assert!(journal.reader().latest_readings().await.unwrap().is_empty());
    let store = Store::open(&place(dir.path()).await, &READINGS).await.unwrap();
    let mut db = store.write().await.unwrap();
    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT nodes, bytes FROM reading_size ORDER BY hour").fetch_all(&mut *db).await.unwrap();
    let own = |(nodes, bytes): &(i64, i64)| nodes * 150 + bytes;
    let newest: i64 = rows[rows.len() - 2..].iter().map(own).sum();
    while forget(&mut db, at(0), newest).await.unwrap() {}
    db.commit().await.unwrap();
    assert_eq!(left().await, [9, 10].into(), "the newest that fit are kept");
}

/// `cargo test --release -p stoker-journal --lib a_flush_of_five_thousand -- --ignored --nocapture` prints what it costs.
#[tokio::test]
#[ignore = "a measurement; it means something with --release only"]
async fn a_flush_of_five_thousand_nodes_is_measured() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let (nodes, gpus) = (5_000, 8);
    let mut rollup = fleet(nodes, gpus);
    let begun = Instant::now();
    let seconds: Vec<i64> = (0..3_600).step_by(15).collect();
    for second in &seconds {
        take(&mut rollup, nodes, gpus, *second);
    }
    let taken = begun.elapsed() / u32::try_from(seconds.len()).unwrap() / nodes;
    let begun = Instant::now();
    let batch = rollup.flush();
    let copied = begun.elapsed();
    let bytes: usize = batch.hours.iter().map(|row| row.encode().len()).sum();
    for round in 0..3 {
        let begun = Instant::now();
        journal.readings().write(&batch).await.unwrap();
        println!("write {round}: {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    let mut read = 0;
    journal.reader().each_reading_hour(0, i64::MAX, |_| read += 1).await.unwrap();
    let file = fs::metadata(dir.path().join("readings.db")).unwrap().len();
    println!(
        "{nodes} nodes x {gpus} GPUs: a reading {taken:?} (its making included), a copy {copied:?}, {} bytes a node and hour; {read} rows \
         read in {:?}; the file {} MiB; a month {} GiB",
        bytes / usize::try_from(nodes).unwrap(),
        begun.elapsed(),
        file >> 20,
        ((u64::try_from(bytes).unwrap() + u64::from(nodes) * 150) * 720) >> 30,
    );
    assert_eq!(read, nodes);
}
