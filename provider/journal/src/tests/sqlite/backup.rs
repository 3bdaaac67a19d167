//! Backups, made while the journal is written, and what becomes of a restored one.

use super::refuse::run;
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
    let mark = Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None };
    restored_journal.keep_time(&mark).await.unwrap();
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
    let never = other.path().join("never");
    let missing = Journal::restore(&lock, &never).await.unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("backup {}: is not there; give the file that `stoker backup` wrote", never.display())
    );
    let mut damaged = fs::read(&to).unwrap();
    let half = damaged.len() / 2;
    damaged[half..half + 9_000].fill(0x5a);
    fs::write(&to, damaged).unwrap();
    assert_eq!(Journal::restore(&lock, &to).await.unwrap_err().label(), "bad-backup");
    let left: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "nothing was changed");
}

#[tokio::test]
async fn a_backup_of_which_any_row_was_changed_is_not_restored() {
    let (dir, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (journal, _) = busy(dir.path()).await;
    let whole = other.path().join("whole");
    journal.reader().backup(&whole).await.unwrap();
    for (n, (statement, what)) in [
        ("UPDATE content SET body = REPLACE(body, '804800', '104800')", "content "),
        ("UPDATE step SET body = REPLACE(body, '\"covered\":', '\"covered\": ') WHERE stream = 'snapshot'", "step "),
        ("UPDATE decision SET notes = REPLACE(notes, '[', '[ ')", "decision d"),
        ("UPDATE accepted SET body = REPLACE(body, '\"delta\":', '\"delta\":1')", "accepted call "),
        ("DELETE FROM step WHERE stream = 'memory' AND seq = (SELECT MAX(base) FROM step WHERE stream = 'memory')", "step "),
        ("DROP TABLE touched", "index "),
        ("CREATE TRIGGER t AFTER INSERT ON decision BEGIN DELETE FROM launch; END", "trigger t "),
    ]
    .into_iter()
    .enumerate()
    {
        let changed = other.path().join(format!("changed-{n}"));
        fs::copy(&whole, &changed).unwrap();
        run(&changed, statement).await;
        let lock = StateLock::take(&other.path().join(format!("state-{n}"))).unwrap();
        let error = Journal::restore(&lock, &changed).await.unwrap_err();
        assert!(error.to_string().ends_with("is damaged, and nothing was changed; give an earlier one"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(what), "{statement}: {cause}");
    }
}
