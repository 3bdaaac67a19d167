//! Use by the hour: counted once, across hours, gaps, restarts and clocks that ran ahead.

use stoker_core::limits::commitment::UsedHour;
use stoker_core::market::offer::CapacityType;

use super::*;

fn at(text: &str) -> Timestamp {
    format!("2026-11-01T{text}Z").parse().unwrap()
}

async fn used(journal: &Journal, until: &str) -> Vec<(u32, u64)> {
    let hours = journal.reader().used_between(at("00:00:00"), at(until)).await.unwrap();
    hours.iter().map(|hour| (hour.known, hour.node_seconds.values().sum())).collect()
}

/// So many spot nodes of one market.
fn nodes(nodes: u64) -> Memory {
    let mut world = World::new();
    world.populate(nodes);
    world.memory
}

#[tokio::test]
async fn what_is_held_counts_from_one_count_to_the_next() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    // Two nodes for 20 min of the first hour, then three: 5 min in it, 5 in the next. What was before the first count is not known.
    for (moment, held) in [("00:35:00", 9), ("00:45:00", 2), ("00:55:00", 2), ("01:05:00", 3)] {
        journal.count_use(at(moment), &nodes(held)).await.unwrap();
    }
    assert_eq!(used(&journal, "02:00:00").await, [(1_500, 2 * 1_200 + 3 * 300), (300, 3 * 300)]);
    let hours = journal.reader().used_between(at("00:00:00"), at("01:00:00")).await.unwrap();
    assert!(hours[0].node_seconds.contains_key(&world::market(CapacityType::Spot)), "{hours:?}");
    // Only whole hours are told: one begins at 01:00, and 02:00 to 02:59 is not over.
    assert_eq!(journal.reader().used_between(at("00:00:01"), at("02:59:00")).await.unwrap().len(), 1);
}

/// The same moment again is a retry, an earlier one was overtaken: neither counts twice. After more than 15 min nobody knows.
#[tokio::test]
async fn nothing_counts_twice_and_a_gap_is_unknown() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    for moment in ["00:00:00", "00:10:00", "00:10:00", "00:02:00", "00:08:00", "00:20:00", "00:40:00", "00:50:00"] {
        journal.count_use(at(moment), &nodes(1)).await.unwrap();
    }
    assert_eq!(used(&journal, "01:00:00").await, [(1_800, 1_800)]);
}

/// The wall ran two days ahead, and is right again after a restart: what it counted meanwhile is forgotten, and counting goes on at once.
#[tokio::test]
async fn hours_to_come_are_forgotten() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let ahead = |text: &str| at(text) + SignedDuration::from_hours(48);
    for moment in [at("00:00:00"), at("00:10:00"), ahead("00:15:00"), ahead("00:25:00")] {
        journal.count_use(moment, &nodes(1)).await.unwrap();
    }
    let mark = Mark { now: at("00:20:00"), boot: SignedDuration::ZERO, boot_id: None };
    journal.rebase(&nodes(1), &mark).await.unwrap();
    for moment in ["00:20:00", "00:30:00"] {
        journal.count_use(at(moment), &nodes(1)).await.unwrap();
    }
    assert_eq!(used(&journal, "01:00:00").await, [(1_800, 1_800)], "from 00:10 on nothing is missing");
    let later = journal.reader().used_between(at("01:00:00"), ahead("12:00:00")).await.unwrap();
    assert!(later.iter().all(|hour| hour.known == 0), "{later:?}");
}

/// A crash after each count, with the files as the disk has them: the next process counts as soon as it starts, and goes on from there.
#[tokio::test]
async fn a_crash_neither_loses_a_count_nor_repeats_it() {
    let mut dir = tempdir().unwrap();
    let mut journal = reopened(dir.path()).await.0;
    for minute in (0..60).step_by(5) {
        journal.count_use(at(&format!("03:{minute:02}:00")), &nodes(4)).await.unwrap();
        let copy = crash_copy(dir.path()).await;
        journal = reopened(copy.path()).await.0;
        dir = copy;
        journal.count_use(at(&format!("03:{minute:02}:00")), &nodes(4)).await.unwrap();
        journal.count_use(at(&format!("03:{minute:02}:30")), &nodes(4)).await.unwrap();
    }
    journal.count_use(at("04:00:00"), &nodes(4)).await.unwrap();
    assert_eq!(used(&journal, "04:00:00").await[3], (3_600, 4 * 3_600));
}

#[tokio::test]
async fn an_idle_hour_is_known_and_old_ones_are_forgotten() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    for moment in ["00:00:00", "00:15:00", "00:30:00", "00:45:00", "01:00:00"] {
        journal.count_use(at(moment), &Memory::default()).await.unwrap();
    }
    let known = UsedHour { known: 3_600, node_seconds: [].into() };
    let read = || async { journal.reader().used_between(at("00:00:00"), at("02:00:00")).await.unwrap() };
    assert_eq!(read().await, [known, UsedHour::default()]);
    journal.prune(at("01:00:00"), KEPT).await.unwrap();
    assert_eq!(read().await[0].known, 3_600, "kept for longer than decisions");
    journal.prune(at("02:00:00") + USE_KEPT, KEPT).await.unwrap();
    assert_eq!(read().await, [UsedHour::default(), UsedHour::default()]);
}
