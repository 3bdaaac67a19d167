mod pods;
mod postgres;
mod prune;
mod readings;
mod replay;
mod seen;
mod size;
mod spend;
mod sqlite;
mod used;
mod world;

use std::fs;
use std::future::poll_fn;
use std::ops::AddAssign as _;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::*;
use world::World;

/// Where the journal of that directory is: in its files, or in a schema of the PostgreSQL that `STOKER_TEST_POSTGRES` names, which
/// `tests/postgres.sh` starts.
async fn place(dir: &Path) -> Place {
    let Ok(server) = std::env::var("STOKER_TEST_POSTGRES") else { return Place::from(dir) };
    let schema = format!("t{}", &blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex()[..16]);
    sqlx::any::install_default_drivers();
    let mut db = <sqlx::AnyConnection as sqlx::Connection>::connect(&server).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {schema}"))).execute(&mut db).await.unwrap();
    Place::Database(format!("{server}?options=-csearch_path%3D{schema}").parse().unwrap())
}

async fn reopened(dir: &Path) -> (Journal, Restored) {
    Journal::open(place(dir).await).await.unwrap()
}

/// The journal as a crash leaves it: of SQLite the database and its write-ahead log, without the shared index.
async fn crash_copy(dir: &Path) -> TempDir {
    let copy = tempdir().unwrap();
    if let from @ Place::Database(_) = place(dir).await {
        let reader = Journal::open_read_only(from).await.unwrap();
        reader.copy(&place(copy.path()).await).await.unwrap();
        return copy;
    }
    for file in ["journal.db", "journal.db-wal", "readings.db", "readings.db-wal"] {
        if dir.join(file).exists() {
            fs::copy(dir.join(file), copy.path().join(file)).unwrap();
        }
    }
    copy
}

#[tokio::test]
async fn a_new_journal_remembers_nothing_and_counts_from_one() {
    let dir = tempdir().unwrap();
    let (_journal, restored) = reopened(&dir.path().join("a/b")).await;
    let Restored { memory, next_decision, mark, incarnation: _, loss } = restored;
    assert_eq!((memory, next_decision, mark, loss), (Memory::default(), DecisionId(1), None, None));
}

#[tokio::test]
async fn a_restart_knows_where_decision_time_stood() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    let (journal, restored) = reopened_after(journal, dir.path()).await;
    // Of no note of the time the last decision tells.
    let decided = Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None };
    assert_eq!(restored.mark, Some(decided));
    let begun = world.now;
    let mark = |seconds| Mark {
        now: begun + SignedDuration::from_secs(seconds),
        boot: SignedDuration::from_secs(7 + seconds),
        boot_id: Some("boot".into()),
    };
    journal.keep_time(&mark(-3)).await.unwrap();
    let (journal, restored) = reopened_after(journal, dir.path()).await;
    assert_eq!(restored.mark, Some(mark(-3)), "of what was written before the note it tells alone");
    for number in 0..3 {
        world.step(&journal, number).await.unwrap();
    }
    let (journal, restored) = reopened_after(journal, dir.path()).await;
    let Mark { now, boot, .. } = restored.mark.unwrap();
    assert!(now > mark(-3).now, "what was written since is later");
    assert_eq!(boot - mark(-3).boot, now.duration_since(mark(-3).now), "by the boot-time clock as well");
    journal.keep_time(&mark(60)).await.unwrap();
    let (journal, restored) = reopened_after(journal, dir.path()).await;
    assert_eq!(restored.mark, Some(mark(60)));
    // The wall had run an hour ahead: what was written by it advances the time no more.
    let moved = restored.memory.rebased(-SignedDuration::from_hours(1)).unwrap();
    journal.rebase(&moved, &mark(-3_600)).await.unwrap();
    for _ in 0..2 {
        let (_, restored) = reopened(dir.path()).await;
        assert_eq!((restored.mark, &restored.memory), (Some(mark(-3_600)), &moved));
    }
}

async fn reopened_after(journal: Journal, dir: &Path) -> (Journal, Restored) {
    drop(journal);
    reopened(dir).await
}

#[tokio::test]
async fn a_restart_remembers_exactly_whatever_came_before_it() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (mut journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    for number in 0..70 {
        world.step(&journal, number).await.unwrap();
        // Dropped, not closed: as a process that is killed.
        drop(journal);
        let (again, restored) = reopened(dir.path()).await;
        assert_eq!(restored.memory, world.memory, "after step {number}");
        assert_eq!(restored.next_decision, world.next, "after step {number}");
        journal = again;
    }
    assert!(world.memory.records.len() > 10 && world.memory.next_record > 15, "{} records", world.memory.records.len());
}

#[tokio::test]
async fn a_restart_remembers_exactly_across_many_bases() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    for number in 0..300 {
        world.step(&journal, number).await.unwrap();
    }
    let mut db = journal.store.read().await.unwrap();
    let bases: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM step WHERE seq = base AND stream = 'memory'")
        .fetch_one(&mut *db)
        .await
        .unwrap();
    assert!(bases > 2, "{bases} bases");
    drop(db);
    drop(journal);
    let (_, restored) = reopened(dir.path()).await;
    assert_eq!(restored.memory, world.memory);
}

#[tokio::test]
async fn a_crash_copy_holds_all_that_was_acknowledged() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    for number in 0..30 {
        world.step(&journal, number).await.unwrap();
        let copy = crash_copy(dir.path()).await;
        let (_, restored) = reopened(copy.path()).await;
        assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next), "after step {number}");
    }
}

#[tokio::test]
async fn what_an_unacknowledged_write_left_is_put_right_by_the_next() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    world.session(&journal).await.unwrap();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 3).await.unwrap();
    let before = (world.memory.clone(), world.snapshot.clone(), world.next);
    world.pass(&journal).await.unwrap();
    // As if the acknowledgement of that decision had been lost: the engine goes on from before, under the same number.
    let mut desk = journal.desk.lock().await;
    *desk = Desk { writer: None, next_decision: before.2 };
    drop(desk);
    (world.memory, world.snapshot, world.next) = before;
    world.order(&journal, 1).await.unwrap();
    world.pass(&journal).await.unwrap();
    drop(journal);
    let (journal, restored) = reopened(dir.path()).await;
    assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next));
    let inputs = journal.reader().replay_inputs(DecisionId(3)).await.unwrap().unwrap();
    assert_eq!(inputs.memory.records.len(), 4);
}

#[tokio::test]
async fn an_abandoned_write_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    let (mut unfinished, mut done) = (0, 0);
    for round in 0..40 {
        // The first polls are where a write is cut in the middle, however fast the disk: each several times.
        let polls = if round < 16 { round / 4 + 1 } else { round };
        let mut other = World::new();
        other.memory = world.memory.clone();
        other.next = world.next;
        other.memory.next_order += 1;
        // Polled so many times and dropped, as when a caller gives up.
        let ended = poll(
            async { if round % 2 == 0 { other.session(&journal).await } else { other.pass(&journal).await.map(drop) } },
            polls,
        )
        .await;
        (if ended { &mut done } else { &mut unfinished }).add_assign(1);
        world.next = if ended && round % 2 == 1 { other.next } else { world.next };
        world.session(&journal).await.unwrap();
        world.pass(&journal).await.unwrap();
        let copy = crash_copy(dir.path()).await;
        let (_, restored) = reopened(copy.path()).await;
        assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next), "after {polls} polls");
    }
    assert!(unfinished >= 4 && done >= 4, "{unfinished} unfinished, {done} done");
}

/// Polls at most so many times, each time after the database had a moment to answer; whether it ended.
async fn poll<T>(future: impl Future<Output = T>, times: u32) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        std::thread::sleep(std::time::Duration::from_micros(200));
        if poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        // Else the runtime never looks at the sockets, and no answer of PostgreSQL arrives.
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_number_is_not_used_twice() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    world.next = DecisionId(1);
    let refused = world.pass(&journal).await.unwrap_err();
    assert!(matches!(refused, JournalError::OutOfOrder { got: DecisionId(1), next: DecisionId(2), .. }), "{refused}");
    world.next = DecisionId(2);
    world.pass(&journal).await.unwrap();
}

#[tokio::test]
async fn two_journals_in_two_directories_know_nothing_of_each_other() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (mut one, mut two) = (World::new(), World::new());
    let (first, _) = reopened(a.path()).await;
    let (second, _) = reopened(b.path()).await;
    one.pass(&first).await.unwrap();
    two.pass(&second).await.unwrap();
    one.order(&first, 5).await.unwrap();
    two.order(&second, 2).await.unwrap();
    drop((first, second));
    assert_eq!(reopened(a.path()).await.1.memory.records.len(), 5);
    assert_eq!(reopened(b.path()).await.1.memory.records.len(), 2);
}

#[tokio::test]
async fn accepted_calls_are_kept_as_they_were() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    world.pass(&journal).await.unwrap();
    world.session(&journal).await.unwrap();
    world.order(&journal, 2).await.unwrap();
    let calls = journal.reader().recent_calls(10).await.unwrap();
    assert_eq!(calls.len(), 2);
    assert!(matches!(&calls[0].call, AcceptedCall::Increase { delta: 2, .. }), "{calls:?}");
    assert_eq!(calls[0].at, world.now);
    assert_eq!(calls[1].call, AcceptedCall::Session { session: SessionId(1) });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Memories that follow on each other in no way that a pass would make: each is remembered all the same.
    #[test]
    fn any_memory_after_any_other_is_restored(rounds in prop::collection::vec(prop::collection::btree_set(0_u64..40, 0..30), 1..10)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let dir = tempdir().unwrap();
            let mut whole = World::new();
            whole.populate(40);
            let (mut journal, _) = reopened(dir.path()).await;
            let mut before = Memory::default();
            for (round, keep) in rounds.iter().enumerate() {
                let mut after = whole.memory.clone();
                after.records.retain(|id, _| keep.contains(&id.0));
                after.next_order = round as u64;
                after.session = keep.first().copied().map(SessionId);
                journal.accept(whole.now, &AcceptedCall::Session { session: SessionId(1) }, &before, &after).await.unwrap();
                drop(journal);
                let (again, restored) = reopened(dir.path()).await;
                assert_eq!(restored.memory, after);
                journal = again;
                // Every other round the caller believes something that was never written.
                before = if round % 2 == 0 { after } else { whole.memory.clone() };
            }
        });
    }
}
