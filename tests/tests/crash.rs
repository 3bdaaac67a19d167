//! Crash safety: the service is ended at every place between the acceptance of an order and its supply, and at random moments under
//! load. What was accepted is there afterwards, nothing is bought twice, and nothing leaks.
//!
//! `STOKER_CRASH_RUNS=100` makes more random moments than the usual ten, and `STOKER_CRASH_SEED` other ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers stand outside of it")]

#[path = "crash/load.rs"]
mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use stoker_service::failpoints::POINTS;
use stoker_sim::world::{BootConfig, WorldConfig};
use stoker_tests::client::registered;
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::process::{Home, Process};

use load::Load;

const BINARY: &str = env!("CARGO_BIN_EXE_stoker-under-test");

const GROUPS: [&str; 2] = ["p.g6-xlarge.us-east-1a", "q.g5-xlarge.us-east-1a"];

/// Two groups in a world where machines boot in a second and end at once, calls take a little time, and this share of them fails.
fn home(errors: f64) -> Home {
    let mut world = WorldConfig {
        boot: BootConfig { median_seconds: 1, sigma: 0.0, clouds: BTreeMap::new() },
        stop_seconds: 1,
        ..market::calm()
    };
    (world.api.latency_ms.min, world.api.latency_ms.max) = (5, 30);
    (world.api.error_rate, world.api.partial_listing_rate) = (errors, errors);
    let pools = [Pool { max_nodes: 60, ..Pool::new("p") }, Pool { models: "A10G", max_nodes: 60, ..Pool::new("q") }];
    Home::new(Path::new(BINARY), &policy(&pools), &world)
}

/// What became of a call: `Some` of whether it was accepted, `None` where the service died over it.
fn answered(result: &Result<(), tonic::Status>) -> Option<bool> {
    match result {
        Ok(()) => Some(true),
        Err(status) if status.message().starts_with("NodeGroup") => Some(false),
        Err(_) => None,
    }
}

/// After a restart: each group holds one of the numbers of nodes that its answered and unanswered calls allow, the cloud has exactly
/// these machines, and for no record more than one was ever made.
async fn compare(case: &str, home: &Home, expected: &[(&str, Vec<usize>)]) -> (Process, BTreeMap<String, BTreeSet<String>>) {
    let process = home.start(None).await.unwrap();
    process.ready().await;
    let settled = process.settled(&GROUPS).await;
    for (group, allowed) in expected {
        let running = &settled[*group];
        assert!(allowed.contains(&running.len()), "{case}: {group} has {} nodes, expected one of {allowed:?}", running.len());
        // What was deleted just before the crash is ended now.
        let matched = until(|| home.books().alive(group) == *running).await;
        assert!(matched, "{case}: {group}: {running:?} are listed, {:?} exist", home.books().alive(group));
    }
    let books = home.books();
    assert_eq!(books.bought_twice(), [], "{case}: records with more than one machine");
    (process, settled)
}

/// All nodes are deleted: no machine is left.
async fn empty(case: &str, home: &Home, process: Process, settled: BTreeMap<String, BTreeSet<String>>) {
    for (group, running) in settled {
        let nodes = running.iter().map(|id| registered(id, id)).collect();
        process.client.delete(&group, nodes).await.unwrap();
    }
    assert!(process.settled(&GROUPS).await.values().all(BTreeSet::is_empty), "{case}: nodes left");
    let ended = until(|| GROUPS.iter().all(|group| home.books().alive(group).is_empty())).await;
    let left = GROUPS.map(|group| home.books().alive(group));
    assert!(ended, "{case}: machines that nobody ended: {left:?}");
    process.kill().await;
}

/// Whether it holds within a time that is long for it: a call of the cloud that fails is made again after 5 to 15 s.
async fn until(holds: impl Fn() -> bool) -> bool {
    let polls = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), polls).await.is_ok()
}

/// Runs into a failpoint at its `nth` passage for an order or a deletion.
async fn at_failpoint(point: &str, nth: u32) {
    // The first refresh begins a session, which is journalled like an order.
    let passage = if point.starts_with("order.") { nth + 1 } else { nth };
    let case = format!("{point}:{passage}");
    let home = home(0.0);
    let mut process = home.start(Some(&case)).await.unwrap();
    process.ready().await;
    let mut expected = BTreeMap::from(GROUPS.map(|group| (group, vec![0])));
    let mut count = |group: &'static str, change: isize, answer: Option<bool>| {
        let before: Vec<usize> = expected.remove(group).unwrap();
        let changed: Vec<usize> = before.iter().map(|nodes| nodes.saturating_add_signed(change)).collect();
        let after = match answer {
            Some(true) => changed,
            Some(false) => before,
            None => before.into_iter().chain(changed).collect(),
        };
        expected.insert(group, after);
    };
    for (group, nodes) in [(GROUPS[0], 2), (GROUPS[1], 3), (GROUPS[0], 1)] {
        let answer = process.client.increase(group, nodes).await;
        count(group, isize::try_from(nodes).unwrap(), answered(&answer));
    }
    if point.starts_with("terminate.") {
        let settled = process.settled(&GROUPS).await;
        for group in GROUPS {
            let going = settled[group].first().unwrap();
            let answer = process.client.delete(group, vec![registered(going, going)]).await;
            count(group, -1, answered(&answer));
        }
    }
    let status = process.ended().await;
    assert_eq!(status.signal(), Some(6), "{case}: {status}");
    let expected: Vec<_> = expected.into_iter().collect();
    let (process, settled) = compare(&case, &home, &expected).await;
    empty(&case, &home, process, settled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_is_lost_or_bought_twice_at_any_failpoint() {
    let runs = POINTS.iter().flat_map(|point| [(*point, 1), (*point, 2)]);
    stream::iter(runs).map(|(point, nth)| at_failpoint(point, nth)).buffer_unordered(4).collect::<Vec<()>>().await;
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Kills one service after the other on the same state while orders and deletions run, over a cloud of which a tenth of the calls fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_is_lost_or_bought_twice_at_random_moments() {
    let (runs, seed) = (variable("STOKER_CRASH_RUNS", 10), variable("STOKER_CRASH_SEED", 1));
    println!("seed {seed}, {runs} moments; again with STOKER_CRASH_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let home = home(0.1);
    let mut loads = GROUPS.map(Load::new);
    for run in 0..runs {
        let process = home.start(None).await.unwrap();
        process.ready().await;
        let after = Duration::from_millis(rng.random_range(50..2_000));
        println!("moment {run}: {} ms", after.as_millis());
        for load in &mut loads {
            load.resolve(&process, &format!("seed {seed}, moment {run}")).await;
        }
        let seeds = [rng.random(), rng.random()];
        let [first, second] = &mut loads;
        let client = process.client.clone();
        let work = async { tokio::join!(first.run(&client, seeds[0]), second.run(&client, seeds[1])) };
        let killed = async {
            tokio::time::sleep(after).await;
            process.kill().await;
        };
        tokio::join!(work, killed);
    }
    let expected: Vec<_> = loads.iter().map(|load| (load.group, load.possible())).collect();
    let case = format!("seed {seed}");
    let (process, settled) = compare(&case, &home, &expected).await;
    let books = home.books();
    let told = |of: fn(&Load) -> usize| loads.iter().map(of).sum::<usize>();
    assert!(told(Load::asked) > 0 && told(|load| load.deleted.len()) > 0, "{case}: nothing happened");
    for load in &loads {
        let (made, asked) = (books.made(load.group), load.asked());
        assert!(made <= asked, "{case}: {}: {made} machines for {asked} nodes", load.group);
        assert!(load.deleted.is_disjoint(&settled[load.group]), "{case}: {}: a deleted node is there again", load.group);
        let (deleted, cut_off) = (load.deleted.len(), load.cut_off);
        println!("{}: {asked} nodes asked for, {made} made, {deleted} deleted; {cut_off} calls cut off", load.group);
    }
    empty(&case, &home, process, settled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_on_a_state_directory_refuses() {
    let home = home(0.0);
    let first = home.start(None).await.unwrap();
    first.ready().await;
    first.client.increase(GROUPS[0], 1).await.unwrap();
    let refused = home.start(None).await.unwrap_err();
    assert!(refused.contains("in use by another Stoker"), "{refused}");
    assert!(refused.contains(&format!("process {}", first.pid().unwrap())), "{refused}");
    assert_eq!(first.settled(&GROUPS).await[GROUPS[0]].len(), 1, "the first goes on");
    first.kill().await;
    let (process, settled) = compare("after a second one", &home, &[(GROUPS[0], vec![1]), (GROUPS[1], vec![0])]).await;
    empty("after a second one", &home, process, settled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_of_a_newer_release_is_refused_and_left_alone() {
    let home = home(0.0);
    home.start(None).await.unwrap().kill().await;
    let file = home.path("state/journal.db");
    let mut db = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'newer', TRUE, x'00', 0)";
    sqlx::query(newer).execute(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    let before = std::fs::read(&file).unwrap();
    let refused = home.start(None).await.unwrap_err();
    assert!(refused.contains("journal.db") && refused.contains("9999"), "{refused}");
    assert!(std::fs::read(&file).unwrap() == before, "it was changed");
}

/// A rule that is wrong for one pool stops the growth of that pool alone, and says so; a restart without it goes on where it stood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_plan_for_one_pool_stops_that_pool_alone() {
    let [p, q] = GROUPS;
    let home = home(0.0);
    let process = home.start(Some("plan.wrong:p")).await.unwrap();
    process.ready().await;
    let refused = process.client.increase(p, 1).await.unwrap_err();
    let said = "Internal consistency check failed for pool p; scale-up is paused (decision d1)";
    assert!(refused.message().contains(said), "{refused}");
    process.client.increase(q, 2).await.unwrap();
    assert_eq!(process.settled(&[q]).await[q].len(), 2);
    let ready = process.get("/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.contains(&format!("degraded  consistency check of pool p: {said}")),
        "{ready}"
    );
    let metrics = process.get("/metrics").await;
    assert!(metrics.contains("stoker_consistency_fault{pool=\"p\",fault=\"bad-limits\"} 1"), "{metrics}");
    process.kill().await;

    // The next process knows since when.
    let process = home.start(Some("plan.wrong:p")).await.unwrap();
    process.ready().await;
    assert!(process.client.increase(p, 1).await.unwrap_err().message().contains(said));
    process.kill().await;

    let process = home.start(None).await.unwrap();
    process.ready().await;
    process.client.increase(p, 1).await.unwrap();
    let settled = process.settled(&GROUPS).await;
    assert_eq!(GROUPS.map(|group| settled[group].len()), [1, 2]);
    assert!(!process.get("/readyz").await.contains("consistency"));
    assert_eq!(home.books().bought_twice(), []);
    process.kill().await;
}

/// A rule that panics is no loop of crashes: the nodes stay listed, what is deleted ends, and nothing is bought.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_rule_stops_growth_and_not_the_process() {
    let [p, q] = GROUPS;
    let home = home(0.0);
    let process = home.start(None).await.unwrap();
    process.ready().await;
    process.client.increase(p, 2).await.unwrap();
    let nodes = process.settled(&[p]).await.remove(p).unwrap();
    process.kill().await;

    let process = home.start(Some("plan.panics")).await.unwrap();
    process.ready().await;
    let said = "Internal consistency check failed for the fleet; scale-up is paused (decision d";
    let ready = process.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains(said) && ready.contains("failpoint plan.panics"), "{ready}");
    for group in [p, q] {
        let refused = process.client.increase(group, 1).await.unwrap_err();
        assert!(refused.message().contains(said), "{refused}");
    }
    assert_eq!(process.settled(&[p]).await[p], nodes);
    let gone = nodes.first().unwrap();
    process.client.delete(p, vec![registered(gone, gone)]).await.unwrap();
    assert!(until(|| !home.books().alive(p).contains(gone)).await, "what was deleted is not ended");
    assert_eq!(home.books().alive(p).len(), 1);
    process.kill().await;

    let process = home.start(None).await.unwrap();
    process.ready().await;
    process.client.increase(q, 1).await.unwrap();
    assert_eq!(process.settled(&[q]).await[q].len(), 1);
    process.kill().await;
}
