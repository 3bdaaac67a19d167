//! What is SQLite's alone: files that are cut, changed, copied or removed, and a disk that is full.

mod backup;
mod full;
mod loss;
mod private;
mod refuse;

use super::*;

#[tokio::test]
async fn a_log_torn_anywhere_gives_the_state_after_some_call() {
    let dir = tempdir().unwrap();
    let mut world = World::new();
    let (journal, _) = reopened(dir.path()).await;
    let mut states = vec![world.memory.clone()];
    world.pass(&journal).await.unwrap();
    for number in 0..12 {
        world.step(&journal, number).await.unwrap();
        states.push(world.memory.clone());
    }
    let copy = crash_copy(dir.path()).await;
    let log = fs::read(copy.path().join("journal.db-wal")).unwrap();
    let mut seen = 0;
    for part in 1..=40 {
        let torn = tempdir().unwrap();
        fs::copy(copy.path().join("journal.db"), torn.path().join("journal.db")).unwrap();
        fs::write(torn.path().join("journal.db-wal"), &log[..log.len() * part / 40 - 7]).unwrap();
        // The journal's tables themselves were made in the log, so that an early tear leaves an empty journal.
        let (_, restored) = reopened(torn.path()).await;
        let at = states.iter().rposition(|state| *state == restored.memory);
        let at = at.unwrap_or_else(|| panic!("torn at {part}/40: a state that never was"));
        assert!(at >= seen, "torn at {part}/40: less than from a shorter log");
        seen = at;
    }
    assert!(seen >= states.len() - 2, "{seen}");
}
