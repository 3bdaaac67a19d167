//! What is PostgreSQL's alone: several who would write, of which the newest counts, and a server that refuses, is gone or says nothing.
//! `tests/postgres.sh` runs these.

use std::time::{Duration, Instant};

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;

/// A connection of the test's own, to the schema of that directory's journal.
async fn connection(dir: &Path) -> AnyConnection {
    AnyConnection::connect(address(dir).await.with_password().as_str()).await.unwrap()
}

async fn address(dir: &Path) -> DatabaseUrl {
    match place(dir).await {
        Place::Database(url) => url,
        Place::Directory(_) => panic!("STOKER_TEST_POSTGRES names no server: run tests/postgres.sh"),
    }
}

async fn run(db: &mut AnyConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(db).await.unwrap();
}

async fn refused(place: Place, label: &str) -> String {
    let error = Journal::open(place.clone()).await.unwrap_err();
    assert_eq!(error.label(), label, "{error:?}");
    error.to_string()
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn of_two_that_write_only_the_newest_counts() {
    let dir = tempdir().unwrap();
    let (old, _) = reopened(dir.path()).await;
    let (mut before, mark) = (World::new(), Mark { now: World::new().now, boot: SignedDuration::ZERO, boot_id: None });
    before.pass(&old).await.unwrap();
    before.order(&old, 2).await.unwrap();
    before.pass(&old).await.unwrap();
    readings::write_some(&old).await;
    // Another takes over, and goes on from what the first has written.
    let (new, restored) = reopened(dir.path()).await;
    assert_eq!(restored.memory, before.memory);
    let told = before.memory.clone();
    let errors = [
        before.session(&old).await.unwrap_err(),
        before.pass(&old).await.unwrap_err(),
        old.keep_time(&mark).await.unwrap_err(),
        old.count_use(before.now, &told).await.unwrap_err(),
        old.prune(before.now, KEPT).await.unwrap_err(),
        old.rebase(&told, &mark).await.unwrap_err(),
        readings::try_write_some(&old).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.label(), "fenced", "{error:?}");
    }
    let mut after = World::new();
    (after.memory, after.next) = (restored.memory, restored.next_decision);
    after.session(&new).await.unwrap();
    after.pass(&new).await.unwrap();
    readings::write_some(&new).await;
    // What was read of it is not what the old one believed.
    assert_eq!(old.reader().memory().await.unwrap(), after.memory);
    before.session(&old).await.unwrap_err();
    assert_eq!(reopened(dir.path()).await.1.memory, after.memory);
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_leader_that_is_paused_inside_a_write_keeps_nobody_out_and_commits_nothing() {
    let dir = tempdir().unwrap();
    let (old, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&old).await.unwrap();
    let mut paused = old.store.write().await.unwrap();
    sqlx::query("INSERT INTO touched (subject, decision) VALUES ('record:9', 9)").execute(&mut *paused).await.unwrap();
    let begun = Instant::now();
    let (new, restored) = reopened(dir.path()).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(restored.memory, world.memory);
    paused.commit().await.unwrap_err();
    let mut db = new.store.read().await.unwrap();
    let written: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM touched WHERE subject = 'record:9'").fetch_one(&mut *db).await.unwrap();
    assert_eq!(written, 0);
}

/// Each migration is committed by itself.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_first_start_that_was_cut_short_is_gone_on_from() {
    let dir = tempdir().unwrap();
    reopened(dir.path()).await.0.close().await;
    let mut db = connection(dir.path()).await;
    let undo = "DROP TABLE leader; ALTER TABLE incarnation DROP COLUMN restored; DROP TABLE decided_by; \
                ALTER TABLE decision DROP COLUMN engine; DROP TABLE pod; DROP TABLE pod_known; DROP TABLE spend_rows; \
                DROP TABLE node_span; DROP TABLE node_life; DROP TABLE spend_known; DROP TABLE spend_day; \
                DELETE FROM _sqlx_migrations WHERE version >= 7";
    run(&mut db, undo).await;
    let (journal, _) = reopened(dir.path()).await;
    World::new().pass(&journal).await.unwrap();
}

/// Who lost the lead while it opened the journal keeps nobody from writing.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn who_may_not_lead_any_more_fences_nobody() {
    let dir = tempdir().unwrap();
    let (leader, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&leader).await.unwrap();
    let late = Journal::open_while(&place(dir.path()).await, &|| false).await.unwrap_err();
    assert_eq!(late.label(), "fenced", "{late:?}");
    world.order(&leader, 1).await.unwrap();
}

/// A server that took over without the newest entries gives a number out twice; and who led goes on from what it remembers.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_database_that_was_set_back_lets_nobody_of_before_in_and_loses_the_leader_nothing() {
    let dir = tempdir().unwrap();
    let (before, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&before).await.unwrap();
    world.session(&before).await.unwrap();
    let mut db = connection(dir.path()).await;
    let told = world.memory.clone();
    let of_number: i64 = sqlx::query_scalar("SELECT epoch FROM leader").fetch_one(&mut db).await.unwrap();
    run(&mut db, &format!("UPDATE leader SET epoch = {}, word = 'of before'", of_number - 1)).await;
    let (leader, _) = reopened(dir.path()).await;
    assert_eq!(before.count_use(world.now, &told).await.unwrap_err().label(), "fenced");
    // The newest step and call were acknowledged and are not there.
    world.order(&leader, 2).await.unwrap();
    run(&mut db, "DELETE FROM accepted WHERE seq = (SELECT MAX(seq) FROM accepted)").await;
    run(&mut db, "DELETE FROM step WHERE stream = 'memory' AND seq = (SELECT MAX(seq) FROM step WHERE stream = 'memory')")
        .await;
    world.session(&leader).await.unwrap();
    assert_eq!(reopened(dir.path()).await.1.memory, world.memory);
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_lost_connection_heals_by_itself() {
    let dir = tempdir().unwrap();
    // A database of its own: the connections of other tests stay.
    let mut other = connection(dir.path()).await;
    let name = format!("d{}", schema(&mut other).await);
    run(&mut other, &format!("CREATE DATABASE {name}")).await;
    let mut url = address(dir.path()).await.with_password().clone();
    url.set_path(&name);
    url.set_query(None);
    let own = Place::Database(url.as_str().parse().unwrap());
    Journal::ensure_alone(&own).await.unwrap();
    let (journal, _) = Journal::open(own.clone()).await.unwrap();
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    let error = Journal::ensure_alone(&own).await.unwrap_err();
    assert!(error.label() == "in-use" && error.to_string().contains("give both --lease"), "{error}");
    for _ in 0..3 {
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        run(&mut other, &end).await;
        let before = world.memory.clone();
        if world.order(&journal, 1).await.is_err() {
            world.memory = before;
            world.order(&journal, 1).await.unwrap();
        }
    }
    assert_eq!(Journal::open(own).await.unwrap().1.memory, world.memory);
}

/// The network swallows what is sent: the write ends with an error, and the next one takes another connection.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_server_that_says_nothing_is_given_up_and_asked_again() {
    let dir = tempdir().unwrap();
    let url = address(dir.path()).await;
    let (cut, is_cut) = watch::channel(false);
    let proxy = proxy(url.with_password().port().unwrap(), is_cut).await;
    let mut through = url.with_password().clone();
    through.set_port(Some(proxy)).unwrap();
    let through: DatabaseUrl = through.as_str().parse().unwrap();
    let (mut journal, _) = Journal::open(Place::Database(through)).await.unwrap();
    journal.store.hurry(Duration::from_secs(3));
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    cut.send_replace(true);
    let before = world.memory.clone();
    let begun = Instant::now();
    let error = world.order(&journal, 1).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(error.label(), "write", "{error:?}");
    assert!(error.to_string().contains("check that PostgreSQL answers"), "{error}");
    let (begun, told) = (Instant::now(), world.memory.clone());
    journal.count_use(world.now, &told).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(3), "while it is silent nobody waits for long: {:?}", begun.elapsed());
    cut.send_replace(false);
    world.memory = before;
    world.order(&journal, 1).await.unwrap();
    assert_eq!(reopened(dir.path()).await.1.memory, world.memory);
}

/// What a replica that waits asks before it relieves a leader that cannot write.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_replica_can_tell_whether_it_could_write_and_changes_nothing() {
    let dir = tempdir().unwrap();
    let own = place(dir.path()).await;
    let (journal, _) = reopened(dir.path()).await;
    Journal::try_write(&own).await.unwrap();
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 1).await.expect("the leader still writes");
    let (cut, is_cut) = watch::channel(true);
    let mut through = address(dir.path()).await.with_password().clone();
    through.set_port(Some(proxy(through.port().unwrap(), is_cut).await)).unwrap();
    let through = Place::Database(through.as_str().parse().unwrap());
    assert_eq!(Journal::try_write(&through).await.unwrap_err().label(), "open");
    drop(cut);
}

/// A port that leads to that server; while it is cut nothing passes, either way.
async fn proxy(server: u16, cut: watch::Receiver<bool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let pass =
        |mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, mut cut: watch::Receiver<bool>| {
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = tokio::io::AsyncReadExt::read(&mut from, &mut bytes).await {
                    if cut.wait_for(|is_cut| !is_cut).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
                        break;
                    }
                }
            })
        };
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
            let ((from, back), (answers, to)) = (client.into_split(), server.into_split());
            pass(from, to, cut.clone());
            pass(answers, back, cut.clone());
        }
    });
    port
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn what_is_no_journal_of_this_release_is_refused_with_its_cure_and_left_alone() {
    let dir = tempdir().unwrap();
    let mut db = connection(dir.path()).await;
    run(&mut db, "CREATE TABLE invoices (id BIGINT)").await;
    let text = refused(place(dir.path()).await, "foreign").await;
    assert!(text.contains("give a database of its own") && text.contains("postgres://stoker@127.0.0.1"), "{text}");
    run(&mut db, "DROP TABLE invoices").await;
    let mut nowhere = address(dir.path()).await.with_password().clone();
    nowhere.set_query(Some("options=-csearch_path%3Dnowhere"));
    let text = refused(Place::Database(nowhere.as_str().parse().unwrap()), "denied").await;
    assert!(text.contains("CREATE and USAGE on the schema"), "{text}");
    let query = address(dir.path()).await.with_password().query().unwrap().to_owned();
    nowhere.set_query(Some(&format!("{query}%20-cdefault_transaction_read_only%3Don")));
    let text = refused(Place::Database(nowhere.as_str().parse().unwrap()), "read-only").await;
    assert!(text.contains("give the address of the primary"), "{text}");
    assert_eq!(Journal::open_read_only(place(dir.path()).await).await.unwrap_err().label(), "missing");
    reopened(dir.path()).await;
    run(
        &mut db,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (999, 'later', TRUE, ''::BYTEA, 0)",
    )
    .await;
    let text = refused(place(dir.path()).await, "newer").await;
    assert!(text.contains("999") && text.contains("start that release"), "{text}");
    let url: DatabaseUrl = "postgres://stoker:secret@127.0.0.1:1/stoker".parse().unwrap();
    let text = refused(Place::Database(url), "open").await;
    assert!(text.contains("check that PostgreSQL runs there") && !text.contains("secret"), "{text}");
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_role_without_a_right_is_told_which_it_needs() {
    let dir = tempdir().unwrap();
    let (url, mut db) = (address(dir.path()).await, connection(dir.path()).await);
    let role = format!("r{}", &blake3::hash(dir.path().as_os_str().as_encoded_bytes()).to_hex()[..12]);
    run(
        &mut db,
        &format!(
            "CREATE ROLE {role} LOGIN; DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema() || ' TO {role}'; END $$"
        ),
    )
    .await;
    let mut other = url.with_password().clone();
    other.set_username(&role).unwrap();
    let as_role = || Place::Database(other.as_str().parse().unwrap());
    let text = refused(as_role(), "denied").await;
    assert!(text.contains("CREATE and USAGE on the schema"), "{text}");
    // It may read what another made, and write none of it.
    reopened(dir.path()).await;
    run(
        &mut db,
        &format!("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {role}", schema(&mut connection(dir.path()).await).await),
    )
    .await;
    refused(as_role(), "denied").await;
    Journal::open_read_only(as_role()).await.unwrap().memory().await.unwrap();
}

async fn schema(db: &mut AnyConnection) -> String {
    sqlx::query_scalar("SELECT current_schema()::TEXT").fetch_one(db).await.unwrap()
}

/// From SQLite to PostgreSQL and back: the same journal.
#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_copy_is_the_same_journal_and_replaces_none() {
    let (dir, target, back) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let (journal, first) = Journal::open(dir.path()).await.unwrap();
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..30 {
        world.step(&journal, number).await.unwrap();
    }
    world.order(&journal, 3).await.unwrap();
    journal.count_use(world.now, &world.memory).await.unwrap();
    readings::write_some(&journal).await;
    let to = place(target.path()).await;
    let reader = journal.reader();
    assert!(reader.copy(&to).await.unwrap() > 50);
    let again = reader.copy(&to).await.unwrap_err();
    assert_eq!(again.label(), "not-empty", "{again:?}");
    assert!(again.to_string().contains("give a database of its own"), "{again}");
    let there = Journal::open_read_only(to.clone()).await.unwrap();
    assert_eq!(there.recent(100).await.unwrap(), reader.recent(100).await.unwrap());
    assert_eq!(there.latest_readings().await.unwrap(), reader.latest_readings().await.unwrap());
    let (moved, restored) = Journal::open(to.clone()).await.unwrap();
    assert_eq!((&restored.memory, restored.next_decision), (&world.memory, world.next));
    assert_eq!((restored.incarnation, restored.loss), (first.incarnation, None), "keys go on where they were");
    world.order(&moved, 1).await.unwrap();
    there.copy(&Place::from(back.path())).await.unwrap();
    let (_, restored) = Journal::open(back.path()).await.unwrap();
    assert_eq!(restored.memory, world.memory);
}

#[tokio::test]
#[ignore = "tests/postgres.sh starts PostgreSQL"]
async fn a_backup_is_a_file_and_is_restored_into_an_empty_database() {
    let (dir, other, target) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let (journal, first) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    for number in 0..30 {
        world.step(&journal, number).await.unwrap();
    }
    let file = other.path().join("backup");
    journal.reader().backup(&file).await.unwrap();
    Reader::open_backup(&file).await.unwrap().close().await;
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1, "nothing else is left behind");
    let to = place(target.path()).await;
    Journal::restore_into(&to, &file).await.unwrap();
    assert_eq!(Journal::restore_into(&to, &file).await.unwrap_err().label(), "not-empty");
    let (restored_journal, restored) = Journal::open(to.clone()).await.unwrap();
    assert_eq!(restored.loss, Some(Loss::Other), "the first start takes care");
    assert_ne!(restored.incarnation, first.incarnation);
    let mut kept = world.memory.clone();
    kept.records.retain(|_, record| record.instance().is_some());
    assert_eq!(restored.memory, kept);
    drop(restored_journal);
    let (journal, again) = Journal::open(to.clone()).await.unwrap();
    assert_eq!(
        (again.loss, &again.incarnation),
        (Some(Loss::Other), &restored.incarnation),
        "who heard first may have ended at once"
    );
    journal.keep_time(&Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None }).await.unwrap();
    drop(journal);
    assert_eq!(Journal::open(to).await.unwrap().1.loss, None);
}
