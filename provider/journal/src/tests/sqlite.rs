//! What is SQLite's alone: files that are cut, changed, copied or removed, and a disk that is full.

mod backup;
mod full;
mod loss;
mod pods;
mod private;
mod refuse;

use std::io::Read as _;

use stoker_core::state::record::State;

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

/// A journal as an earlier release left it, with nodes on their way, is what this one goes on from.
#[tokio::test]
async fn a_journal_of_an_earlier_release_is_gone_on_from() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/releases/0.1.0-schema-6.db.gz");
    let dir = tempdir().unwrap();
    let mut journal = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(file).unwrap()).read_to_end(&mut journal).unwrap();
    fs::write(dir.path().join("journal.db"), journal).unwrap();
    assert_eq!(Journal::open_read_only(dir.path()).await.unwrap_err().label(), "older");
    let (journal, restored) = reopened(dir.path()).await;
    let count = |is: fn(&State) -> bool| restored.memory.records.values().filter(|record| is(&record.state)).count();
    let (booting, launching) =
        (count(|state| matches!(state, State::Booting { .. })), count(|state| matches!(state, State::Launching { .. })));
    assert_eq!((restored.memory.records.len(), booting, launching, restored.next_decision), (8, 7, 1, DecisionId(6)));
    assert_eq!(restored.loss, None);
    // What it decided can be read, and made again from what it depended on.
    let reader = journal.reader();
    let last = DecisionId(restored.next_decision.0 - 1);
    assert!(!reader.explain(last).await.unwrap().unwrap().actions.is_empty());
    let inputs = reader.replay_inputs(last).await.unwrap().unwrap();
    assert!(!inputs.catalogue().groups.is_empty());
    // But it did not say what was left out of the plan, nor which release it was.
    let recorded = reader.replay().await.unwrap().read(last).await.unwrap().unwrap();
    assert_eq!((recorded.is_whole(), recorded.release.as_deref()), (false, None));
    assert!(recorded.again(&recorded.catalogue, |_| ()).is_err());
    reader.check().await.unwrap();
    // And it is written on.
    let mut world = World::new();
    (world.memory, world.next) = (restored.memory.clone(), restored.next_decision);
    world.session(&journal).await.unwrap();
    drop(journal);
    assert_eq!(reopened(dir.path()).await.1.memory.records, restored.memory.records);
}
