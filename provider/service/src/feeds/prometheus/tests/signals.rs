use std::sync::atomic::{AtomicI64, Ordering};

use jiff::SignedDuration;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::demand::{Amount, Demand, Need, NoLevel, SignalLevel};
use tokio::sync::watch;

use super::super::ask::Row;
use super::super::{Metrics, People, Signals};
use super::*;
use crate::clock::{Clock, VirtualClock};

/// The example policy with these signals in its first pool, by name and query, 8 a replica.
fn policy(signals: &[(&str, &str)]) -> Arc<Policy> {
    let mut policy = crate::policy_file::parse("policy.yaml", crate::policy_file::example(), None).unwrap();
    policy.pools[0].signals = signals
        .iter()
        .map(|(name, query)| stoker_core::policy::rules::demand::DemandSignal {
            name: stoker_core::base::ids::SignalName::new(name).unwrap(),
            query: (*query).to_owned(),
            per_replica: Amount(8_000_000),
            per_second: None,
        })
        .collect();
    Arc::new(policy)
}

/// What the one signal of a round says.
fn only(demand: &Demand) -> SignalLevel {
    demand.values().next().unwrap().signals.values().next().unwrap().clone()
}

fn unlabelled(value: &str) -> Row {
    row(&[], 0.0, &value)
}

#[tokio::test]
async fn a_signal_is_known_only_where_it_is_one_number_that_rests_on_young_samples() {
    // The newest sample of `queue` is so many seconds old.
    let age = Arc::new(AtomicI64::new(30));
    let aged = Arc::clone(&age);
    let prometheus = Prometheus::start(Arc::new(move |query| {
        let stamp = |selector: &str| row(&[("selector", selector)], 0.0, &theirs(-(aged.load(Ordering::SeqCst) as f64)));
        match query {
            _ if query.starts_with("label_replace") && query.contains("(gone)") && query.contains("(queue)") => {
                vector(&[stamp("1")])
            }
            _ if query.starts_with("label_replace") && query.contains("(gone)") => vector(&[]),
            _ if query.starts_with("label_replace") => vector(&[stamp("0")]),
            "sum(queue)" => vector(&[unlabelled("24")]),
            "queue" => vector(&[row(&[("pod", "a")], 0.0, &1), row(&[("pod", "b")], 0.0, &2)]),
            "queue > 100" => vector(&[]),
            "queue / 0" => vector(&[unlabelled("+Inf")]),
            "queue % 0" => vector(&[unlabelled("NaN")]),
            "-queue" => vector(&[unlabelled("-3")]),
            "sum(gone) or vector(0)" | "sum(queue) + (sum(gone) or vector(0))" => vector(&[unlabelled("0")]),
            "vector(3)" => vector(&[unlabelled("3")]),
            "broken(queue)" => (422, r#"{"status":"error","errorType":"execution","error":"no"}"#.to_owned()),
            _ => (200, "?".to_owned()),
        }
    }))
    .await;
    let clock = Clock::Virtual(VirtualClock::new(at(0)));
    let says = async |query: &str| {
        let policy = policy(&[("queueDepth", query)]);
        let (_keep, receiver) = watch::channel(Arc::clone(&policy));
        let signals = Signals::new(Some(prometheus.asker()), receiver, Metrics::default(), clock.clone());
        only(&signals.round(&policy).await)
    };
    let unknown = |why| SignalLevel::Unknown { why, since: at(0) };
    // 24 ÷ 8 × 1.2 = 3.6, sampled 30 s ago.
    let known = SignalLevel::Known { amount: Amount(24_000_000), replicas: 4, at: at(-30) };
    assert_eq!(says("sum(queue)").await, known);
    assert_eq!(says("vector(3)").await, SignalLevel::Known { amount: Amount(3_000_000), replicas: 1, at: at(0) });
    assert_eq!(says("queue").await, unknown(NoLevel::SeveralSeries));
    assert_eq!(says("queue > 100").await, unknown(NoLevel::NoData));
    for query in ["queue / 0", "queue % 0", "-queue"] {
        assert_eq!(says(query).await, unknown(NoLevel::Absurd), "{query}");
    }
    // Nought that rests on nothing is not nought.
    assert_eq!(says("sum(gone) or vector(0)").await, unknown(NoLevel::NoData));
    assert_eq!(says("sum(queue) + (sum(gone) or vector(0))").await, unknown(NoLevel::Stale));
    assert_eq!(says("sum(other)").await, unknown(NoLevel::Malformed));
    // Prometheus answers with samples of up to five minutes ago.
    age.store(91, Ordering::SeqCst);
    assert_eq!(says("sum(queue)").await, unknown(NoLevel::Stale));
    age.store(90, Ordering::SeqCst);
    assert!(matches!(says("sum(queue)").await, SignalLevel::Known { .. }));
}

#[tokio::test]
async fn a_slow_answer_is_as_old_as_its_question() {
    let moved = VirtualClock::new(at(0));
    let slow = Arc::clone(&moved);
    let prometheus = Prometheus::start(Arc::new(move |query| {
        if query.starts_with("label_replace") {
            slow.advance_to(at(10));
            return vector(&[row(&[("selector", "0")], 0.0, &theirs(-30.0))]);
        }
        vector(&[unlabelled("24")])
    }))
    .await;
    let policy = policy(&[("queueDepth", "sum(queue)")]);
    let (_keep, receiver) = watch::channel(Arc::clone(&policy));
    let signals = Signals::new(Some(prometheus.asker()), receiver, Metrics::default(), Clock::Virtual(moved));
    let SignalLevel::Known { at: sampled, .. } = only(&signals.round(&policy).await) else { panic!("unknown") };
    assert_eq!(sampled, at(-30));
}

#[tokio::test]
async fn a_signal_that_stays_unknown_is_so_since_the_first_time() {
    let moved = VirtualClock::new(at(0));
    let clock = Clock::Virtual(Arc::clone(&moved));
    let policy = policy(&[("queueDepth", "sum(queue)"), ("qps", "vector(1)")]);
    let (_keep, receiver) = watch::channel(Arc::clone(&policy));
    // Nobody is named: every signal is unknown, and the pool with it.
    let signals = Signals::new(None, receiver.clone(), Metrics::default(), clock.clone());
    let demand = signals.demand();
    assert_eq!(only(&demand.borrow()), SignalLevel::Unknown { why: NoLevel::NotAsked, since: at(0) });
    assert_eq!(demand.borrow().values().next().unwrap().need(), Need::Unknown);
    moved.advance_to(at(60));
    assert_eq!(only(&signals.round(&policy).await), SignalLevel::Unknown { why: NoLevel::NotAsked, since: at(0) });
    // Another reason is another time.
    let down = Connection { url: "http://127.0.0.1:1".to_owned(), token_file: None, ca: None };
    crate::listener::install_crypto();
    let signals = Signals::new(Some(Asker::new(&down).unwrap()), receiver, Metrics::default(), clock);
    // Before the first answer that is what is so.
    assert_eq!(only(&signals.demand().borrow()), SignalLevel::Unknown { why: NoLevel::Awaited, since: at(60) });
    moved.advance_to(at(90));
    assert_eq!(only(&signals.round(&policy).await), SignalLevel::Unknown { why: NoLevel::Unreachable, since: at(90) });
}

#[tokio::test]
async fn people_see_what_a_query_answers_and_many_who_look_are_one_question() {
    let asked = Arc::new(AtomicI64::new(0));
    let count = Arc::clone(&asked);
    let prometheus = Prometheus::start(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        vector(&(0..30).map(|pod| row(&[("pod", &pod.to_string())], 0.0, &pod)).collect::<Vec<_>>())
    }))
    .await;
    let (_keep, receiver) = watch::channel(policy(&[("queueDepth", "queue")]));
    let clock = Clock::Virtual(VirtualClock::new(at(0)));
    let people = People::new(Some(prometheus.asker()), receiver.clone(), Metrics::default(), clock.clone());
    let (one, other) = tokio::join!(people.signals(), people.signals());
    assert_eq!(one, other);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let shown = &one[0];
    assert_eq!((shown["signal"].as_str(), shown["query"].as_str()), (Some("queueDepth"), Some("queue")));
    // Enough to see what is wrong, and no more.
    assert_eq!((shown["answer"]["count"].as_u64(), shown["answer"]["series"].as_array().map(Vec::len)), (Some(30), Some(20)));
    let nobody = People::new(None, receiver, Metrics::default(), clock).signals().await;
    assert_eq!(nobody[0]["answer"]["failed"], "no Prometheus is configured: give --prometheus-url");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_signals_are_asked_at_once() {
    let count = Arc::new(AtomicI64::new(0));
    // Says whether the other was asked before this was answered.
    let prometheus = Prometheus::start(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let both = || count.load(Ordering::SeqCst) == 2;
        let waited = std::time::Instant::now();
        // In place, so that this worker's other tasks move on to the next: the second question may be among them.
        tokio::task::block_in_place(|| {
            while !both() && waited.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        vector(&[row(&[], 0.0, &both())])
    }))
    .await;
    let (_keep, receiver) = watch::channel(policy(&[("queueDepth", "queue"), ("requests", "rate")]));
    let clock = Clock::Virtual(VirtualClock::new(at(0)));
    let asker = Asker::within(&prometheus.connection(), Duration::from_secs(20)).unwrap();
    let shown = People::new(Some(asker), receiver, Metrics::default(), clock).signals().await;
    let names_and_values = [0, 1].map(|n| (shown[n]["signal"].clone(), shown[n]["answer"]["series"][0]["value"].clone()));
    assert_eq!(names_and_values, [("queueDepth".into(), "true".into()), ("requests".into(), "true".into())]);
}

#[test]
fn the_policy_of_the_tests_keeps_signals_for_ninety_seconds() {
    assert_eq!(policy(&[]).prometheus.stale_after, SignedDuration::from_secs(90));
}
