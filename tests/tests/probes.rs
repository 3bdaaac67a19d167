//! Probes' streams as they are in production, over connections that break, to a service that restarts. What a sampler would read is made
//! up here, and the stream, its buffer and the service's door are real.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "probes/tls.rs"]
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::Happening;
use stoker_core::facts::reading::seen::Hearing;
use stoker_probe::outbox::{Confirm, Outbox};
use stoker_probe::stream::{self, Access, Backoff, Settings, Status};
use stoker_proto::probe::{Driver, Event, Gpu, Memory, Round, Xid, driver, event};
use stoker_service::certs::{Tryout, write_tryout};
use stoker_service::feeds::probes::NotConfirmed;
use stoker_service::serve::{ListenerOptions, Options, ProbeListenerOptions};
use stoker_simulated::{Simulation, WorldOptions, start};
use stoker_tests::market;
use stoker_tests::policy::{Pool, policy};
use stoker_tests::relay::Relay;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const PROBES: usize = 24;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// What a service took, over all its lives: the moments of each node's rounds, and its XIDs.
#[derive(Debug, Default)]
struct Books {
    rounds: BTreeMap<NodeName, BTreeSet<Timestamp>>,
    xids: BTreeMap<NodeName, BTreeSet<u32>>,
}

async fn service(dir: &Path, listener: ListenerOptions, books: &Arc<Mutex<Books>>) -> Simulation {
    let probes = Some(ProbeListenerOptions { listener, ..ProbeListenerOptions::loopback() });
    let options = Options { probes, ..market::options(policy(&[Pool::new("p")]), dir) };
    let running = start(options, WorldOptions::default()).await.unwrap();
    let books = Arc::clone(books);
    running.readings.follow(move |taken| {
        let mut books = books.lock().unwrap();
        if taken.reading.is_some() {
            books.rounds.entry(taken.node.clone()).or_default().insert(taken.at);
        }
        for event in taken.events {
            if let Happening::Xid { code, .. } = event.what {
                books.xids.entry(taken.node.clone()).or_default().insert(code);
            }
        }
    });
    running
}

/// A probe whose sampler is the test.
struct Probe {
    node: NodeName,
    outbox: Outbox,
    status: Status,
    /// The moments of the rounds that were left for the provider.
    left: BTreeSet<Timestamp>,
    next: Timestamp,
}

fn at(moment: Timestamp) -> stoker_proto::Timestamp {
    stoker_proto::Timestamp { seconds: moment.as_second(), nanos: 0 }
}

fn round(moment: Timestamp) -> Round {
    let memory = Some(Memory { used_bytes: 0, total_bytes: 80 << 30, reserved_bytes: 0 });
    let gpus = (0..8).map(|n| Gpu { uuid: format!("GPU-{n}"), memory, utilization: Some(0), ..Gpu::default() });
    let driver = Some(Driver { state: driver::State::Ready.into(), ..Driver::default() });
    Round { at: Some(at(moment)), driver, gpus_counted: Some(8), gpus: gpus.collect(), ..Round::default() }
}

impl Probe {
    /// The rounds of so many periods of 5 s.
    fn sample(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.outbox.round(round(self.next));
            self.left.insert(self.next);
            self.next += SignedDuration::from_secs(5);
        }
    }

    fn xid(&self, code: u32) {
        let kind = Some(event::Kind::Xid(Xid { code, gpu_uuid: "GPU-0".to_owned(), ..Xid::default() }));
        self.outbox.event(Event { number: 0, at: Some(at(self.next)), kind });
    }
}

fn settings(node: &str, provider: &str, access: Access) -> Settings {
    Settings {
        provider: provider.parse().unwrap(),
        node: node.to_owned(),
        boot_id: "boot".to_owned(),
        session: 1,
        period: Duration::from_secs(5),
        access,
        backoff: Backoff::new(Duration::from_millis(50), Duration::from_millis(400)),
        look_every: Duration::from_millis(100),
    }
}

/// Opens a probe's stream; `answers` says what its sampler does when asked.
fn probe(
    tasks: &mut JoinSet<()>,
    settings: Settings,
    stop: &CancellationToken,
    answers: impl Fn(Confirm) + Send + 'static,
) -> Probe {
    let (outbox, status) = (Outbox::new(), Status::default());
    let (confirms, mut asked) = mpsc::channel(4);
    let node = NodeName::new(&settings.node).unwrap();
    tasks.spawn(stream::run(settings, outbox.clone(), confirms, status.clone(), stop.clone()));
    tasks.spawn(async move {
        while let Some(confirm) = asked.recv().await {
            answers(confirm);
        }
    });
    // Two hours ago, to the second: every round has a moment of its own, and none lies ahead.
    let next = Timestamp::from_second(Timestamp::now().as_second() - 7200).unwrap();
    Probe { node, outbox, status, left: BTreeSet::new(), next }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() <= LONG, "{what}: not within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn all_taken(probes: &[Probe]) -> bool {
    probes.iter().all(|probe| probe.outbox.fill().rounds == 0 && probe.outbox.fill().events == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_streams_break_and_the_service_is_away_for_ten_minutes() {
    let books = Arc::new(Mutex::new(Books::default()));
    let dir = TempDir::new().unwrap();
    let relay = Relay::start().await.unwrap();
    let running = service(dir.path(), ListenerOptions::loopback(), &books).await;
    relay.lead(running.probes);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let url = format!("http://{}", relay.addr);
    let mut probes: Vec<Probe> = (0..PROBES)
        .map(|n| probe(&mut tasks, settings(&format!("node-{n}"), &url, Access::Plaintext), &stop, |_| {}))
        .collect();

    // Broken again and again, in the middle of whatever is on its way.
    for broken in 0..10 {
        for probe in &mut probes {
            probe.sample(12);
            probe.xid(1000 + broken);
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        relay.cut();
    }
    until("what was left before the restart", || all_taken(&probes)).await;
    assert!(probes.iter().any(|probe| probe.status.opened() > 1), "no stream was broken");

    // Away for ten minutes, in which every probe goes on.
    running.stop().await;
    relay.lead(None);
    relay.cut();
    for probe in &mut probes {
        probe.sample(120);
        probe.xid(2000);
    }
    let running = service(dir.path(), ListenerOptions::loopback(), &books).await;
    relay.lead(running.probes);
    until("what was left while the service was away", || all_taken(&probes)).await;
    assert!(probes.iter().all(|probe| probe.outbox.fill().thinned == 0 && probe.outbox.fill().dropped == 0));

    {
        let books = books.lock().unwrap();
        for probe in &probes {
            assert_eq!(books.rounds[&probe.node], probe.left, "{}", probe.node);
            let wanted: BTreeSet<u32> = (1000..1010).chain([2000]).collect();
            assert_eq!(books.xids[&probe.node], wanted, "{}", probe.node);
        }
    }
    // The restarted service was told the XIDs of the time before it, and sees every node.
    running.readings.publish();
    let seen = Arc::clone(&running.readings.seen().borrow());
    assert_eq!(seen.len(), PROBES);
    for node in seen.values() {
        assert!(matches!(node.hearing, Hearing::Heard { .. }));
        assert_eq!((node.gpus.len(), node.xids.kinds.len()), (8, 11));
    }
    stop.cancel();
    running.stop().await;
    while tasks.join_next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_confirmed_over_a_real_stream_or_said_not_to_be() {
    let books = Arc::default();
    let dir = TempDir::new().unwrap();
    let running = service(dir.path(), ListenerOptions::loopback(), &books).await;
    let url = format!("http://{}", running.probes.unwrap());
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let good = probe(&mut tasks, settings("good", &url, Access::Plaintext), &stop, |confirm| {
        let _ = confirm.answer.send(round(Timestamp::now()));
    });
    let kept: Mutex<Vec<Confirm>> = Mutex::default();
    let hung = probe(&mut tasks, settings("hung", &url, Access::Plaintext), &stop, move |confirm| {
        kept.lock().unwrap().push(confirm);
    });
    until("both streams", || good.status.connected() && hung.status.connected()).await;
    let (confirmed, unread) =
        tokio::join!(running.streams.confirm_quiet(&good.node), running.streams.confirm_quiet(&hung.node));
    assert_eq!(confirmed.unwrap().gpus.len(), 8);
    // Its sampler hangs; the probe itself says so, before we would give up.
    assert_eq!(unread, Err(NotConfirmed::Unread));
    stop.cancel();
    running.stop().await;
    while tasks.join_next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_with_a_certificate_speaks_for_its_node_and_for_no_other() {
    stoker_service::listener::install_crypto();
    let certs = TempDir::new().unwrap();
    write_tryout(certs.path(), &[], "probe:node-a").unwrap();
    let file = |name: &str| certs.path().join(name);
    let tls = stoker_service::listener::TlsFiles {
        cert: file("server.crt"),
        key: file("server.key"),
        client_ca: Some(file("ca.crt")),
        denied_serials: None,
    };
    let books = Arc::default();
    let dir = TempDir::new().unwrap();
    let running = service(dir.path(), ListenerOptions { tls: Some(tls), ..ListenerOptions::loopback() }, &books).await;
    let url = format!("https://localhost:{}", running.probes.unwrap().port());
    let access = Access::Certificate { ca: file("ca.crt"), cert: file("client.crt"), key: file("client.key") };
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let mut own = probe(&mut tasks, settings("node-a", &url, access.clone()), &stop, |_| {});
    let mut other = probe(&mut tasks, settings("node-b", &url, access), &stop, |_| {});
    own.sample(3);
    other.sample(3);
    until("the node's own rounds", || own.outbox.fill().rounds == 0).await;
    until("refusals", || other.status.failed() > 1).await;
    assert_eq!((other.status.opened(), other.outbox.fill().rounds), (0, 3));
    assert!(!running.readings.latest().contains_key(&other.node));

    // Renewed by another authority on both sides: the probe comes back with what is on disk now, and is believed.
    let renew = Tryout {
        dir: certs.path(),
        server_names: &[],
        client_names: &["probe:node-a"],
        address: "localhost:8086",
        force: true,
    };
    renew.write().unwrap();
    until("a stream with the new certificate", || own.status.opened() > 1).await;
    own.sample(3);
    until("rounds by the new stream", || own.outbox.fill().rounds == 0).await;
    stop.cancel();
    running.stop().await;
    while tasks.join_next().await.is_some() {}
}
