//! Backups, made while the journal is written, and what becomes of a restored one.

use super::*;
use crate::state_lock::StateLock;

async fn busy(dir: &Path) -> (Journal, World) {
    let (journal, _) = reopened(dir).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..30 {
        world.step(&journal, number).await.unwrap();
    }
    world.order(&journal, 3).await.unwrap();
    (journal, world)
}

#[tokio::test]
async fn a_backup_is_whole_private_and_never_written_over_another_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let (journal, mut world) = busy(dir.path()).await;
    let to = elsewhere.path().join("journal.backup");
    let reader = Journal::open_read_only(dir.path()).await.unwrap();
    reader.backup(&to).await.unwrap();
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    let then = world.memory.clone();
    world.order(&journal, 2).await.unwrap();
    let backup = Reader::open_backup(&to).await.unwrap();
    assert_eq!(backup.memory().await.unwrap(), then);
    assert_eq!(backup.recent(100).await.unwrap(), reader.recent(100).await.unwrap());
    assert_eq!(reader.backup(&to).await.unwrap_err().label(), "exists");
    let nowhere = reader.backup(&elsewhere.path().join("no/such/place")).await.unwrap_err();
    assert_eq!(nowhere.label(), "backup");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[tokio::test]
async fn a_restored_journal_keeps_its_machines_forgets_its_orders_and_has_a_name_of_its_own() {
    let (dir, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (journal, world) = busy(dir.path()).await;
    let to = other.path().join("backup");
    journal.reader().backup(&to).await.unwrap();
    let ordered = world.memory.records.values().filter(|record| record.instance().is_none()).count();
    assert!(ordered >= 3);

    let state = other.path().join("state");
    let lock = StateLock::take(&state).unwrap();
    Journal::restore(&lock, &to).await.unwrap();
    let (restored_journal, restored) = reopened(&state).await;
    assert_eq!(restored.loss, Some(Loss::Other), "the first start takes care");
    assert_ne!(restored.incarnation, journal.incarnation);
    let mut kept = world.memory.clone();
    kept.records.retain(|_, record| record.instance().is_some());
    assert_eq!((&restored.memory, restored.next_decision), (&kept, world.next));
    drop(restored_journal);
    assert_eq!(reopened(&state).await.1.loss, None);
}

#[tokio::test]
async fn nothing_is_restored_over_a_journal_nor_from_what_is_none() {
    let (dir, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (journal, _) = busy(dir.path()).await;
    let to = other.path().join("backup");
    journal.reader().backup(&to).await.unwrap();
    drop(journal);
    let before = fs::read(dir.path().join("journal.db")).unwrap();
    let lock = StateLock::take(dir.path()).unwrap();
    assert_eq!(Journal::restore(&lock, &to).await.unwrap_err().label(), "exists");
    assert_eq!(fs::read(dir.path().join("journal.db")).unwrap(), before);

    let state = other.path().join("state");
    let lock = StateLock::take(&state).unwrap();
    let missing = Journal::restore(&lock, &other.path().join("never")).await.unwrap_err();
    assert_eq!(missing.label(), "missing");
    let mut damaged = fs::read(&to).unwrap();
    let half = damaged.len() / 2;
    damaged[half..half + 9_000].fill(0x5a);
    fs::write(&to, damaged).unwrap();
    assert_eq!(Journal::restore(&lock, &to).await.unwrap_err().label(), "corrupt");
    let left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "nothing was changed");
}
