use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use crate::state_lock::StateLock;

/// A journal with something in it, closed, so that all of it is in one file.
async fn filled() -> (TempDir, std::path::PathBuf) {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..40 {
        world.step(&journal, number).await.unwrap();
    }
    journal.close().await;
    let file = dir.path().join("journal.db");
    (dir, file)
}

pub(super) async fn run(file: &Path, statement: &'static str) {
    let mut db = SqliteConnectOptions::new().filename(file).create_if_missing(true).connect().await.unwrap();
    sqlx::query(statement).execute(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
}

/// Opening is refused, for that reason, naming the file, and the file stays as it was.
async fn refused(dir: &Path, label: &str) -> String {
    let file = dir.join("journal.db");
    let before = fs::read(&file).unwrap();
    let error = Journal::open(dir).await.unwrap_err();
    assert_eq!(error.label(), label, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(file.to_str().unwrap()), "{text}");
    assert_eq!(fs::read(&file).unwrap(), before, "{label}: changed");
    assert_eq!(Journal::open_read_only(dir).await.unwrap_err().label(), label);
    text
}

#[tokio::test]
async fn a_newer_journal_is_refused_and_left_alone() {
    let (dir, file) = filled().await;
    run(
        &file,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'later', TRUE, x'00', 0)",
    )
    .await;
    let text = refused(dir.path(), "newer").await;
    assert!(text.contains("999") && text.contains("knows up to 12") && text.contains("start that release"), "{text}");
}

#[tokio::test]
async fn an_older_journal_is_not_read_but_brought_up_by_the_service() {
    let (dir, file) = filled().await;
    // As the release wrote it that did not count use yet.
    for statement in [
        "DROP TABLE known_hour",
        "DROP TABLE used_hour",
        "DROP TABLE clock",
        "DROP TABLE incarnation",
        "DROP TABLE leader",
        "DROP TABLE decided_by",
        "DROP TABLE pod",
        "DROP TABLE pod_known",
        "DROP TABLE spend_rows",
        "DROP TABLE node_span",
        "DROP TABLE node_life",
        "DROP TABLE spend_known",
        "DROP TABLE spend_day",
        "ALTER TABLE accepted DROP COLUMN checksum",
        "ALTER TABLE decision DROP COLUMN checksum",
        "ALTER TABLE decision DROP COLUMN engine",
        "DELETE FROM _sqlx_migrations WHERE version >= 2",
    ] {
        run(&file, statement).await;
    }
    let error = Journal::open_read_only(dir.path()).await.unwrap_err();
    assert_eq!(error.label(), "older");

    // A backup of it is restored: a newer release can be tried on it before the upgrade.
    let state = dir.path().join("restored");
    Journal::restore(&StateLock::take(&state).unwrap(), &file).await.unwrap();
    let tried = Journal::open_read_only(&state).await.unwrap();
    assert!(!tried.recent(5).await.unwrap().is_empty());

    let (journal, restored) = Journal::open(dir.path()).await.unwrap();
    assert_ne!(restored.memory, Memory::default());
    assert!(!journal.reader().recent(5).await.unwrap().is_empty(), "rows from before checksums are shown");
    Journal::open_read_only(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_journal_whose_memory_is_gone_is_refused_at_start() {
    for statement in ["DELETE FROM step WHERE stream = 'memory'", "DELETE FROM step"] {
        let (dir, file) = filled().await;
        run(&file, statement).await;
        let error = Journal::open(dir.path()).await.unwrap_err();
        assert_eq!(error.label(), "corrupt", "{error:?}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("of memory is not there"), "{cause}");
    }
}

#[tokio::test]
async fn a_pipe_in_the_journals_place_is_refused_and_nobody_waits_for_it() {
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let (dir, _) = filled().await;
        let pipe = dir.path().join(name);
        let _ = fs::remove_file(&pipe);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let opened = tokio::time::timeout(std::time::Duration::from_secs(5), Journal::open(dir.path())).await.unwrap();
        let error = opened.unwrap_err();
        assert_eq!(error.label(), "not-a-file", "{name}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(Journal::open_read_only(dir.path()).await.unwrap_err().label(), "not-a-file", "{name}");
    }
}

#[tokio::test]
async fn a_database_of_something_else_is_refused() {
    let dir = tempdir().unwrap();
    run(&dir.path().join("journal.db"), "CREATE TABLE cake (recipe TEXT)").await;
    refused(dir.path(), "foreign").await;
}

#[tokio::test]
async fn what_is_no_database_is_refused() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("journal.db"), "not a database, but longer than a header of one hundred bytes is: ".repeat(40))
        .unwrap();
    let text = refused(dir.path(), "corrupt").await;
    assert!(text.contains("restore a backup of it"), "{text}");
}

#[tokio::test]
async fn a_truncated_file_is_refused() {
    let (dir, file) = filled().await;
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    refused(dir.path(), "corrupt").await;
}

#[tokio::test]
async fn overwritten_pages_are_refused() {
    let (dir, file) = filled().await;
    let mut whole = fs::read(&file).unwrap();
    let pages = whole.len() / 4096;
    for page in pages / 3..pages / 3 + 3 {
        whole[page * 4096..(page + 1) * 4096].fill(0x5a);
    }
    fs::write(&file, &whole).unwrap();
    refused(dir.path(), "corrupt").await;
}

/// Changes rows behind the back of an index, which is hidden meanwhile: what a bit that flips on the disk does.
async fn change_beside(file: &Path, index: &str, change: &str) {
    let hide = format!(
        "PRAGMA writable_schema = ON; CREATE TABLE hidden AS SELECT * FROM sqlite_master WHERE name = '{index}'; \
         DELETE FROM sqlite_master WHERE name = '{index}'"
    );
    let show = format!("{change}; PRAGMA writable_schema = ON; INSERT INTO sqlite_master SELECT * FROM hidden");
    for statements in [hide, show] {
        let mut db = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut db).await.unwrap();
        sqlx::Connection::close(db).await.unwrap();
    }
}

/// By these a node's decisions are found, and they have no checksum.
#[tokio::test]
async fn a_changed_row_of_an_index_is_told_when_the_journal_is_opened() {
    for (index, change) in
        [("launch_record", "UPDATE launch SET record = record + 1"), ("launch_node", "UPDATE launch SET node = 'other'")]
    {
        let (dir, file) = filled().await;
        change_beside(&file, index, change).await;
        refused(dir.path(), "corrupt").await;
    }
}

#[tokio::test]
async fn a_large_journal_is_looked_through_while_it_is_in_use_and_not_at_the_start() {
    let (dir, file) = filled().await;
    let grow = || fs::File::options().write(true).open(&file).unwrap().set_len(65 << 20).unwrap();
    grow();
    Journal::open_read_only(dir.path()).await.unwrap().check_if_large().await.unwrap();
    change_beside(&file, "launch_record", "UPDATE launch SET record = record + 1").await;
    grow();
    let reader = Journal::open_read_only(dir.path()).await.unwrap();
    assert_eq!(reader.check_if_large().await.unwrap_err().label(), "corrupt");
}

#[tokio::test]
async fn a_changed_clock_is_told_when_the_journal_is_opened() {
    let (dir, file) = filled().await;
    let (journal, _) = Journal::open(dir.path()).await.unwrap();
    journal.keep_time(&Mark { now: World::new().now, boot: SignedDuration::ZERO, boot_id: None }).await.unwrap();
    journal.close().await;
    run(&file, "UPDATE clock SET now = REPLACE(now, '2026', '2036')").await;
    let error = Journal::open(dir.path()).await.unwrap_err();
    assert_eq!(error.label(), "corrupt");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("clock"), "{error:?}");
}

#[tokio::test]
async fn a_changed_step_is_told_from_the_one_that_was_written() {
    for statement in [
        "UPDATE step SET body = REPLACE(body, '\"next_record\":', '\"next_record\":1') WHERE stream = 'memory'",
        "DELETE FROM step WHERE stream = 'memory' AND seq = (SELECT MAX(base) FROM step WHERE stream = 'memory')",
        "UPDATE step SET seq = seq + 1 WHERE stream = 'memory' AND seq = (SELECT MAX(seq) FROM step WHERE stream = 'memory')",
    ] {
        let (dir, file) = filled().await;
        run(&file, statement).await;
        let error = Journal::open(dir.path()).await.unwrap_err();
        assert_eq!(error.label(), "corrupt", "{statement}: {error:?}");
    }
}

#[tokio::test]
async fn changed_content_is_told_when_it_is_read() {
    let (dir, file) = filled().await;
    run(&file, "UPDATE content SET body = REPLACE(body, '804800', '104800')").await;
    let reader = Journal::open_read_only(dir.path()).await.unwrap();
    let error = reader.replay_inputs(DecisionId(1)).await.unwrap_err();
    assert_eq!(error.label(), "corrupt", "{error:?}");
    assert!(reader.explain(DecisionId(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_changed_row_is_told_when_it_is_explained() {
    for statement in [
        "UPDATE decision SET notes = REPLACE(notes, '[', '[ ')",
        "UPDATE decision SET actions = '[]', explanations = '[]'",
        "UPDATE decision SET at = '2020-01-01T00:00:00Z'",
        "UPDATE decision SET memory_before = memory_after",
    ] {
        let (dir, file) = filled().await;
        run(&file, statement).await;
        let reader = Journal::open_read_only(dir.path()).await.unwrap();
        let error = reader.recent(40).await.unwrap_err();
        assert_eq!(error.label(), "corrupt", "{statement}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("decision d") && cause.ends_with("does not match its checksum"), "{cause}");
    }
    let (dir, file) = filled().await;
    run(&file, "UPDATE accepted SET body = REPLACE(body, '\"delta\":', '\"delta\":1')").await;
    let reader = Journal::open_read_only(dir.path()).await.unwrap();
    assert_eq!(reader.recent_calls(40).await.unwrap_err().label(), "corrupt");
}

#[tokio::test]
async fn reading_needs_a_journal() {
    let dir = tempdir().unwrap();
    let error = Journal::open_read_only(&dir.path().join("nowhere")).await.unwrap_err();
    assert_eq!(error.label(), "missing");
    assert!(!dir.path().join("nowhere").exists());
}

#[tokio::test]
async fn a_directory_that_cannot_be_is_refused_by_name() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = Journal::open(&dir.path().join("file/state")).await.unwrap_err();
    assert_eq!(error.label(), "directory");
    assert!(error.to_string().contains("file/state"), "{error}");
}

#[tokio::test]
async fn a_reader_sees_what_is_written_beside_it_and_never_half_of_it() {
    let (dir, _) = filled().await;
    let reader = Journal::open_read_only(dir.path()).await.unwrap();
    let (journal, restored) = reopened(dir.path()).await;
    let mut world = World::new();
    world.memory = restored.memory;
    world.next = restored.next_decision;
    let first = world.next;
    for _ in 0..20 {
        world.pass(&journal).await.unwrap();
        let last = reader.recent(1).await.unwrap().remove(0);
        assert_eq!(last.id.0, world.next.0 - 1);
        assert!(reader.replay_inputs(last.id).await.unwrap().is_some());
    }
    journal.close().await;
    assert!(reader.explain(first).await.unwrap().is_some());
}
