use super::*;

/// Bytes of all that is stored.
async fn stored(journal: &Journal) -> i64 {
    let mut db = journal.store.read().await.unwrap();
    let mut sum = 0;
    for statement in [
        "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM step",
        "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM content",
        "SELECT COALESCE(SUM(LENGTH(body)), 0) FROM accepted",
        "SELECT COALESCE(SUM(LENGTH(actions) + LENGTH(notes) + LENGTH(explanations)), 0) FROM decision",
        "SELECT COALESCE(SUM(LENGTH(subject)), 0) FROM touched",
    ] {
        let bytes: i64 = sqlx::query_scalar(statement).fetch_one(&mut *db).await.unwrap();
        sum += bytes;
    }
    sum
}

#[tokio::test]
async fn what_is_written_grows_with_the_changes_not_with_the_nodes() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.populate(5_000);
    world.pass(&journal).await.unwrap();
    let base = stored(&journal).await;
    assert!(base > 3_000_000, "{base} bytes for 5,000 nodes");
    for number in 0..60 {
        // One pod comes or goes: one fact, one action.
        world.toggle_pod(&format!("ip-{}", number * 7));
        let actions = world.pass(&journal).await.unwrap();
        world.guard(&actions);
    }
    world.session(&journal).await.unwrap();
    for _ in 0..20 {
        world.order(&journal, 1).await.unwrap();
        let actions = world.pass(&journal).await.unwrap();
        world.answer(&actions, true);
        world.join();
    }
    let grown = stored(&journal).await - base;
    // A fact and an action, or a record, its machine, its node and its explanation: none is a kilobyte.
    assert!(grown < 100 * 2_000, "{grown} bytes for 101 calls");
    drop(journal);
    let (_, restored) = reopened(dir.path()).await;
    assert_eq!(restored.memory, world.memory);
}

#[tokio::test]
async fn a_pass_that_changes_nothing_writes_next_to_nothing() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.populate(1_000);
    world.pass(&journal).await.unwrap();
    let before = stored(&journal).await;
    for _ in 0..10 {
        // As after a reload of the same files: new allocations, the same content.
        world.policy = Arc::new(Policy::clone(&world.policy));
        world.prices = Arc::new(PriceBook::clone(&world.prices));
        world.facts = Arc::new(Facts::clone(&world.facts));
        world.pass(&journal).await.unwrap();
    }
    let grown = stored(&journal).await - before;
    assert!(grown < 10 * 20, "{grown} bytes");
}
