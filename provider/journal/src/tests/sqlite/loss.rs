//! A journal that is lost, emptied, cut or exchanged, and one that is removed under a running
//! service.

use super::*;

/// A journal of forty steps, closed, with its marker up to date.
async fn filled(dir: &Path) -> Restored {
    let (journal, _) = reopened(dir).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..40 {
        world.step(&journal, number).await.unwrap();
    }
    journal.keep_time(&Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None }).await.unwrap();
    journal.close().await;
    let (journal, restored) = reopened(dir).await;
    journal.close().await;
    restored
}

async fn loss_after(spoil: impl FnOnce(&Path)) -> (Restored, Restored) {
    let dir = tempdir().unwrap();
    let before = filled(dir.path()).await;
    assert_eq!(before.loss, None);
    spoil(dir.path());
    let (_, after) = reopened(dir.path()).await;
    let (journal, again) = reopened(dir.path()).await;
    assert_eq!(again.loss.is_some(), after.loss.is_some(), "who was told first may have ended at once");
    journal.keep_time(&Mark { now: World::new().now, boot: SignedDuration::ZERO, boot_id: None }).await.unwrap();
    assert_eq!(reopened(dir.path()).await.1.loss, None, "it is remembered by who was told");
    (before, after)
}

fn remove(dir: &Path) {
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = fs::remove_file(dir.join(file));
    }
}

#[tokio::test]
async fn a_lost_or_emptied_journal_is_told_and_its_launch_keys_are_never_used_again() {
    let (before, after) = loss_after(remove).await;
    assert_eq!((after.loss, after.memory), (Some(Loss::Gone), Memory::default()));
    assert_ne!(before.incarnation, after.incarnation);
    let emptied = |dir: &Path| {
        remove(dir);
        fs::write(dir.join("journal.db"), "").unwrap();
    };
    let (before, after) = loss_after(emptied).await;
    assert_eq!(after.loss, Some(Loss::Gone));
    assert_ne!(before.incarnation, after.incarnation);
}

#[tokio::test]
async fn a_journal_that_ends_before_it_did_is_told() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    let early = crash_copy(dir.path()).await;
    for number in 0..10 {
        world.step(&journal, number).await.unwrap();
    }
    journal.keep_time(&Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None }).await.unwrap();
    drop(journal);
    remove(dir.path());
    for file in ["journal.db", "journal.db-wal"] {
        fs::copy(early.path().join(file), dir.path().join(file)).unwrap();
    }
    let (_, restored) = reopened(dir.path()).await;
    assert!(matches!(restored.loss, Some(Loss::Cut { found, marked }) if found < marked), "{:?}", restored.loss);
}

#[tokio::test]
async fn another_journal_than_the_one_that_was_here_is_told() {
    let other = tempdir().unwrap();
    filled(other.path()).await;
    let exchange = |dir: &Path| {
        fs::copy(other.path().join("journal.db"), dir.join("journal.db")).map(drop).unwrap();
    };
    let (_, after) = loss_after(exchange).await;
    assert_eq!(after.loss, Some(Loss::Other));
}

#[tokio::test]
async fn a_journal_from_before_markers_is_no_loss_and_gets_a_name() {
    let (before, after) = loss_after(|dir| fs::remove_file(dir.join("journal.marker")).unwrap()).await;
    assert_eq!((after.loss, after.incarnation), (None, before.incarnation));
}

#[tokio::test]
async fn each_new_journal_has_a_name_of_its_own() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let names = [reopened(a.path()).await.1.incarnation, reopened(b.path()).await.1.incarnation];
    assert_ne!(names[0], names[1]);
    assert!(names.iter().all(|name| name.as_str().len() == 8));
    assert_eq!(reopened(a.path()).await.1.incarnation, names[0]);
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_state_directory_is_gone() {
    let dir = tempdir().unwrap();
    let state = dir.path().join("state");
    let (journal, _) = reopened(&state).await;
    let mut world = World::new();
    world.session(&journal).await.unwrap();
    journal.in_place().unwrap();
    fs::remove_dir_all(&state).unwrap();
    assert_eq!(journal.in_place().unwrap_err().label(), "gone");
    let error = world.session(&journal).await.unwrap_err();
    assert!(error.label() == "gone" && error.to_string().contains("state/journal.db"), "{error}");
    // Another in its place is not the one that is written to.
    let (_other, _) = reopened(&state).await;
    assert_eq!(world.session(&journal).await.unwrap_err().label(), "gone");
}
