use stoker_core::decide::decide;

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn count(journal: &Journal, statement: &'static str) -> i64 {
    let mut db = journal.store.read().await.unwrap();
    sqlx::query_scalar(statement).fetch_one(&mut *db).await.unwrap()
}

async fn prune_all(journal: &Journal, world: &World, keep: SignedDuration) -> Pruned {
    let mut sum = Pruned::default();
    loop {
        let pruned = journal.prune(world.now, keep).await.unwrap();
        sum = Pruned {
            decisions: sum.decisions + pruned.decisions,
            calls: sum.calls + pruned.calls,
            steps: sum.steps + pruned.steps,
            pods: sum.pods + pruned.pods,
            more: false,
        };
        if !pruned.more {
            return sum;
        }
    }
}

#[tokio::test]
async fn what_is_old_goes_and_a_restart_and_the_rest_stay_whole() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..400 {
        world.step(&journal, number).await.unwrap();
        if number == 200 {
            world.policy = Arc::new(world::policy(60));
            world.wait(DAY);
        }
    }
    let first_kept = world.next;
    let steps = count(&journal, "SELECT COUNT(*) FROM step").await;
    world.wait(DAY * 40);
    for number in 401..430 {
        world.step(&journal, number).await.unwrap();
    }
    let pruned = prune_all(&journal, &world, KEPT).await;
    assert_eq!(pruned.decisions, first_kept.0 - 1);
    assert!(pruned.calls > 50 && pruned.steps > 300, "{pruned:?}");
    assert!(count(&journal, "SELECT COUNT(*) FROM step").await < steps / 2);
    assert_eq!(count(&journal, "SELECT COUNT(*) FROM touched WHERE decision NOT IN (SELECT id FROM decision)").await, 0);
    // The first policy is used by no decision any more; the second and the prices are.
    assert_eq!(count(&journal, "SELECT COUNT(*) FROM content").await, 2);

    let reader = journal.reader();
    assert_eq!(reader.explain(DecisionId(first_kept.0 - 1)).await.unwrap(), None);
    for id in first_kept.0..world.next.0 {
        let inputs = reader.replay_inputs(DecisionId(id)).await.unwrap().unwrap();
        let again = decide(&inputs.snapshot, &inputs.memory, &inputs.catalogue(), inputs.now);
        assert_eq!(again.plan.actions, reader.explain(DecisionId(id)).await.unwrap().unwrap().actions);
    }
    // Still the same journal to write to, and after a restart.
    for number in 430..450 {
        world.step(&journal, number).await.unwrap();
    }
    drop(journal);
    let (journal, restored) = reopened(dir.path()).await;
    assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next));
    world.pass(&journal).await.unwrap();
}

#[tokio::test]
async fn even_when_all_is_old_a_restart_keeps_what_it_needs() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..100 {
        world.step(&journal, number).await.unwrap();
    }
    world.wait(DAY * 400);
    prune_all(&journal, &world, SignedDuration::ZERO).await;
    assert_eq!(count(&journal, "SELECT COUNT(*) FROM decision").await, 1);
    assert_eq!(prune_all(&journal, &world, SignedDuration::ZERO).await, Pruned::default());
    drop(journal);
    let (journal, restored) = reopened(dir.path()).await;
    assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next));
    world.step(&journal, 101).await.unwrap();
    world.pass(&journal).await.unwrap();
    drop(journal);
    assert_eq!(reopened(dir.path()).await.1.memory, world.memory);
}

/// The policy changed in between: each moment has that of the last decision before it.
#[tokio::test]
async fn a_moment_has_the_policy_of_its_time() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let begun = world.now;
    world.pass(&journal).await.unwrap();
    let first = Arc::clone(&world.policy);
    world.wait(DAY);
    Arc::make_mut(&mut world.policy).pools[0].limits.max_nodes += 1;
    world.pass(&journal).await.unwrap();
    let reader = journal.reader();
    let before = async |moment: Timestamp| reader.policy_before(moment).await.unwrap();
    assert_eq!(before(begun).await, None);
    assert_eq!(before(world.now).await.as_ref(), Some(&*first));
    assert_eq!(before(world.now + DAY).await.as_ref(), Some(&*world.policy));
    assert_eq!(reader.last_policy().await.unwrap().as_ref(), Some(&*world.policy));
}

#[tokio::test]
async fn one_call_forgets_a_bounded_piece() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    for _ in 0..1_100 {
        world.now = world.now.saturating_add(SignedDuration::from_secs(1)).unwrap();
        world.pass(&journal).await.unwrap();
    }
    world.wait(DAY * 40);
    world.pass(&journal).await.unwrap();
    let first = journal.prune(world.now, KEPT).await.unwrap();
    assert_eq!((first.decisions, first.more), (500, true));
    assert_eq!(journal.prune(world.now, KEPT).await.unwrap().decisions, 500);
    let last = journal.prune(world.now, KEPT).await.unwrap();
    assert_eq!((last.decisions, last.more), (100, false));
}

#[tokio::test]
async fn a_launch_is_forgotten_with_the_last_that_knew_it() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 1..300 {
        world.step(&journal, number).await.unwrap();
    }
    let launches = count(&journal, "SELECT COUNT(*) FROM launch").await;
    let alive = count(&journal, "SELECT COUNT(*) FROM launch WHERE ended IS NULL").await;
    assert!(launches > alive + 20, "{launches} launches, {alive} alive");
    world.wait(DAY * 40);
    world.pass(&journal).await.unwrap();
    // A base may be older than the oldest decision: what it knows stays until another takes its place.
    prune_all(&journal, &world, KEPT).await;
    assert!(count(&journal, "SELECT COUNT(*) FROM launch").await < launches);
    let still = count(&journal, "SELECT COUNT(*) FROM launch WHERE ended IS NULL").await;
    assert!(still <= alive && still > 0);
}
