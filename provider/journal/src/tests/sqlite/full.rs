//! A full disk. SQLite's own limit of a database's size stands for it: it gives the same error.

use super::*;

/// Lets the journal grow by no more than so many pages.
async fn fill_disk(journal: &Journal, more: i64) {
    let Some(writer) = journal.store.writer_pool() else { unreachable!("it is open for writing") };
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&writer).await.unwrap();
    journal.store.limit_pages(pages + more);
}

/// Orders until one is refused; how many were accepted.
async fn order_until_full(world: &mut World, journal: &Journal) -> (usize, JournalError) {
    for accepted in 0..10_000 {
        let before = world.memory.clone();
        if let Err(error) = world.order(journal, 50).await {
            world.memory = before;
            return (accepted, error);
        }
    }
    panic!("it was never full");
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_that_was_accepted_is_lost() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    fill_disk(&journal, 30).await;
    let (accepted, error) = order_until_full(&mut world, &journal).await;
    assert!(accepted > 0);
    assert_eq!(error.label(), "full", "{error:?}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(!dir.path().join("reserve").exists(), "it was given up before an order was refused");
    let copy = crash_copy(dir.path()).await;
    assert_eq!(reopened(copy.path()).await.1.memory, world.memory);
    // Room again: what was refused is accepted.
    fill_disk(&journal, 10_000).await;
    world.order(&journal, 50).await.unwrap();
    let copy = crash_copy(dir.path()).await;
    assert_eq!(reopened(copy.path()).await.1.memory, world.memory);
}

#[tokio::test]
async fn readings_go_first_and_then_the_reserve() {
    let dir = tempdir().unwrap();
    let (reserve, readings) = (dir.path().join("reserve"), dir.path().join("readings.db"));
    let (journal, _) = reopened(dir.path()).await;
    readings::write_some(&journal).await;
    assert!(reserve.exists() && readings.exists());
    let full = || {
        let source = StoreError::Damaged { what: "as if".to_owned() };
        JournalError::Full { at: Location::File(dir.path().join("journal.db")), source }
    };
    journal.make_room(full()).await.unwrap();
    assert!(reserve.exists() && !readings.exists());
    assert!(journal.renew_reserve());
    journal.make_room(full()).await.unwrap();
    assert!(!reserve.exists());
    assert_eq!(journal.make_room(full()).await.unwrap_err().label(), "full", "nothing is left to give up");
    let refused = readings::try_write_some(&journal).await.unwrap_err();
    assert_eq!(refused.label(), "full", "what is left is the journal's");
    // This disk has room, so the reserve is made again, and readings are taken again.
    assert!(journal.renew_reserve() && reserve.exists());
    readings::write_some(&journal).await;
    assert_eq!(journal.reader().latest_readings().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_full_disk_costs_neither_readings_nor_reserve() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let error = JournalError::Gone { path: dir.path().join("journal.db") };
    assert_eq!(journal.make_room(error).await.unwrap_err().label(), "gone");
    assert!(dir.path().join("reserve").exists());
}

#[tokio::test]
async fn a_transaction_that_could_not_be_ended_takes_nothing_that_is_accepted_later_with_it() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    let Some(writer) = journal.store.writer_pool() else { unreachable!("it is open for writing") };
    let mut connection = writer.acquire().await.unwrap();
    // A rollback that fails, as on a full disk, leaves the connection like this.
    std::mem::forget(sqlx::Connection::begin(&mut *connection).await.unwrap());
    drop(connection);
    world.order(&journal, 1).await.unwrap();
    let copy = crash_copy(dir.path()).await;
    assert_eq!(reopened(copy.path()).await.1.memory, world.memory);
}
