#![expect(clippy::unnecessary_wraps, reason = "as the fields that they fill have it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{GpuUuid, NodeName};
use stoker_core::facts::reading::seen::{Activity, Hearing};
use stoker_core::facts::reading::{
    DriverState, GpuReading, Happening, Measured, MemoryLevel, NodeEvent, NodeReading, Source, Why,
};
use stoker_core::facts::snapshot::{ClusterFacts, Cordon, Hold, NodeFacts};
use stoker_proto::probe::{Ack, Hello};
use tokio::sync::{Notify, watch};

use super::*;
use crate::clock::{Clock, VirtualClock};

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn after(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A cluster of these nodes.
pub(crate) fn facts(names: &[&str]) -> Option<Arc<ClusterFacts>> {
    let of = |name: &&str| NodeFacts {
        name: node(name),
        provider_id: None,
        group: None,
        created_at: start(),
        ready_since: None,
        gpu_pods: std::collections::BTreeSet::new(),
        scale_down_disabled: Hold::None,
        cordon: Cordon::None,
        allocatable: None,
        shown: None,
    };
    Some(Arc::new(ClusterFacts { nodes: names.iter().map(|name| (node(name), Arc::new(of(name)))).collect() }))
}

fn reading(at: Timestamp, used: u64) -> NodeReading {
    let memory = Measured::Known(MemoryLevel { used, total: 24 << 30, reserved: 0 });
    NodeReading {
        arrived: at,
        source: Source::Probe,
        driver: DriverState::Ready,
        counted: Measured::Known(1),
        gpus: BTreeMap::from([(GpuUuid::new("GPU-a").unwrap(), GpuReading { memory, ..GpuReading::default() })]),
        gates: BTreeMap::new(),
    }
}

struct Rig {
    clock: Arc<VirtualClock>,
    cluster: watch::Sender<Option<Arc<ClusterFacts>>>,
    wake: Arc<Notify>,
    readings: Arc<Readings>,
}

fn rig(names: &[&str]) -> Rig {
    let clock = VirtualClock::new(start());
    let (cluster, followed) = watch::channel(facts(names));
    let wake = Arc::new(Notify::new());
    let readings =
        Readings::new(Clock::Virtual(Arc::clone(&clock)), Some(followed), Arc::clone(&wake), ProbeMetrics::default());
    Rig { clock, cluster, wake, readings }
}

impl Rig {
    /// Whether the engine was woken since the last call.
    async fn woken(&self) -> bool {
        self.readings.publish();
        let soon = std::time::Duration::from_millis(1);
        tokio::time::timeout(soon, self.wake.notified()).await.is_ok()
    }

    fn activity(&self, name: &str) -> Activity {
        let seen = Arc::clone(&self.readings.seen().borrow());
        seen[&NodeName::new(name).unwrap()].gpus[&GpuUuid::new("GPU-a").unwrap()].activity
    }
}

#[tokio::test]
async fn rounds_that_change_nothing_wake_nobody() {
    let rig = rig(&["a"]);
    let a = node("a");
    for second in (0..=15).step_by(5) {
        rig.readings.take(&a, reading(after(second), 0), Vec::new()).unwrap();
    }
    assert!(rig.woken().await);
    assert_eq!(rig.activity("a"), Activity::Quiet { since: start() });
    let before = Arc::clone(&rig.readings.seen().borrow());
    for second in (20..3600).step_by(5) {
        rig.readings.take(&a, reading(after(second), 0), Vec::new()).unwrap();
    }
    assert!(!rig.woken().await);
    assert!(Arc::ptr_eq(&before, &rig.readings.seen().borrow()));
    // People see the newest all the same.
    assert_eq!(rig.readings.latest()[&a].arrived, after(3595));
    rig.readings.take(&a, reading(after(3600), 1 << 34), Vec::new()).unwrap();
    assert!(rig.woken().await);
    assert_eq!(rig.activity("a"), Activity::Active { since: after(3600) });
}

#[tokio::test]
async fn a_node_is_silent_after_three_periods_by_our_clock() {
    let rig = rig(&["a"]);
    let a = node("a");
    rig.readings.expect(&a, Source::Probe, SignedDuration::from_secs(5), Some("boot")).unwrap();
    for second in (0..=20).step_by(5) {
        rig.readings.take(&a, reading(after(second), 0), Vec::new()).unwrap();
    }
    rig.readings.look(after(35));
    assert!(rig.woken().await);
    assert_eq!(rig.activity("a"), Activity::Quiet { since: start() });
    rig.readings.look(after(36));
    assert!(rig.woken().await);
    assert_eq!(rig.activity("a"), Activity::Unknown { why: Why::NotReported, since: after(36) });
    assert_eq!(rig.readings.seen().borrow()[&NodeName::new("a").unwrap()].hearing, Hearing::Silent { since: after(20) });
    rig.readings.look(after(100));
    assert!(!rig.woken().await);
    assert!(!rig.readings.hears(&a));
}

#[tokio::test]
async fn nodes_that_the_cluster_does_not_have_are_not_taken_and_those_that_go_are_forgotten() {
    let rig = rig(&["a"]);
    assert_eq!(rig.readings.take(&node("b"), reading(start(), 0), Vec::new()), Err(Reason::UnknownNode));
    assert_eq!(rig.readings.metrics().rejections(Reason::UnknownNode), 1);
    rig.readings.take(&node("a"), reading(start(), 0), Vec::new()).unwrap();
    assert!(rig.woken().await);
    rig.cluster.send_replace(facts(&["c"]));
    rig.readings.look(after(1));
    assert!(rig.woken().await);
    assert!(rig.readings.seen().borrow().is_empty() && rig.readings.latest().is_empty());
    // Nothing is known of the cluster yet: nobody is believed in.
    rig.cluster.send_replace(None);
    assert_eq!(rig.readings.knows(&node("c")), Err(Reason::NotReady));
}

#[tokio::test]
async fn a_probe_that_is_heard_knows_better_than_prometheus() {
    let rig = rig(&["a"]);
    let a = node("a");
    let by_prometheus = |at, used| NodeReading { source: Source::Prometheus, ..reading(at, used) };
    rig.readings.take(&a, by_prometheus(start(), 1 << 34), Vec::new()).unwrap();
    assert!(rig.woken().await);
    assert_eq!(rig.readings.seen().borrow()[&NodeName::new("a").unwrap()].source, Source::Prometheus);
    rig.readings.take(&a, reading(after(5), 1 << 34), Vec::new()).unwrap();
    rig.readings.take(&a, by_prometheus(after(6), 0), Vec::new()).unwrap();
    assert_eq!(rig.readings.latest()[&a].source, Source::Probe);
    // Once it is silent, anybody is better than nobody.
    rig.readings.look(after(60));
    rig.readings.take(&a, by_prometheus(after(61), 0), Vec::new()).unwrap();
    assert_eq!(rig.readings.latest()[&a].source, Source::Prometheus);
}

#[tokio::test]
async fn each_source_is_silent_after_three_of_its_own_periods() {
    let rig = rig(&["a"]);
    let a = node("a");
    let by_prometheus = |second| NodeReading { source: Source::Prometheus, ..reading(after(second), 0) };
    let silent_at = |second| {
        rig.readings.look(after(second));
        !rig.readings.hears(&a)
    };
    rig.readings.expect(&a, Source::Probe, SignedDuration::from_secs(5), Some("boot")).unwrap();
    rig.readings.take(&a, reading(start(), 0), Vec::new()).unwrap();
    assert!(!silent_at(15) && silent_at(16));
    rig.readings.expect(&a, Source::Prometheus, SignedDuration::from_secs(30), None).unwrap();
    rig.readings.take(&a, by_prometheus(20), Vec::new()).unwrap();
    assert!(!silent_at(110));
    // The probe is back on the same stream, and Prometheus goes on beside it.
    rig.readings.take(&a, reading(after(111), 0), Vec::new()).unwrap();
    rig.readings.expect(&a, Source::Prometheus, SignedDuration::from_secs(30), None).unwrap();
    assert!(!silent_at(126) && silent_at(127));
}

#[tokio::test]
async fn without_a_cluster_a_node_is_forgotten_after_a_day_of_silence() {
    let clock = Clock::Virtual(VirtualClock::new(start()));
    let readings = Readings::new(clock, None, Arc::new(Notify::new()), ProbeMetrics::default());
    readings.take(&node("a"), reading(start(), 0), Vec::new()).unwrap();
    readings.take(&node("b"), reading(after(10), 0), Vec::new()).unwrap();
    let names = |second| {
        readings.look(after(second));
        readings.publish();
        readings.seen().borrow().keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(86_400), ["a", "b"]);
    assert_eq!(names(86_401), ["b"]);
    assert!(names(86_411).is_empty() && readings.latest().is_empty());
}

#[tokio::test]
async fn whoever_follows_hears_of_all_that_is_taken_and_when_it_was_read() {
    let rig = rig(&["a"]);
    let (count, minutes_old) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, old) = (Arc::clone(&count), Arc::clone(&minutes_old));
    rig.readings.follow(move |taken| {
        counted.fetch_add(1 + taken.events.len(), Ordering::Relaxed);
        if taken.reading.is_some_and(|reading| reading.arrived.duration_since(taken.at) >= SignedDuration::from_mins(9)) {
            old.fetch_add(1, Ordering::Relaxed);
        }
    });
    rig.clock.advance_to(after(600));
    let event = NodeEvent { arrived: after(600), at: after(600), what: Happening::Xid { code: 79, gpu: None } };
    rig.readings.take_at(&node("a"), after(30), Some(reading(after(600), 0)), &[]).unwrap();
    rig.readings.take(&node("a"), reading(after(600), 0), vec![event]).unwrap();
    assert_eq!((count.load(Ordering::Relaxed), minutes_old.load(Ordering::Relaxed)), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn changes_are_published_by_themselves_and_silence_is_found_by_a_timer() {
    let rig = rig(&["a"]);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn({
        let (readings, stop) = (Arc::clone(&rig.readings), stop.clone());
        async move { readings.run(stop).await }
    });
    let mut seen = rig.readings.seen();
    rig.readings.take(&node("a"), reading(start(), 0), Vec::new()).unwrap();
    seen.changed().await.unwrap();
    rig.wake.notified().await;
    rig.clock.advance_to(after(16));
    seen.changed().await.unwrap();
    assert_eq!(seen.borrow()[&NodeName::new("a").unwrap()].hearing, Hearing::Silent { since: start() });
    stop.cancel();
    running.await.unwrap();
}

/// Of the two seconds in which the pods of a machine that is taken back begin to be told.
#[tokio::test(start_paused = true)]
async fn a_notice_wakes_the_engine_within_a_third_of_a_second_even_among_other_changes() {
    let Rig { clock: _, cluster: _cluster, wake, readings } = rig(&["a", "b"]);
    let stop = tokio_util::sync::CancellationToken::new();
    let (running, until) = (Arc::clone(&readings), stop.clone());
    let task = tokio::spawn(async move { running.run(until).await });
    // Something else was published just now.
    readings.take(&node("a"), reading(start(), 0), Vec::new()).unwrap();
    wake.notified().await;
    let told = tokio::time::Instant::now();
    let what = Happening::Interruption { kind: stoker_core::facts::reading::Interruption::Reclaim, deadline: Some(after(120)) };
    readings.take_at(&node("b"), start(), None, &[NodeEvent { arrived: start(), at: start(), what }]).unwrap();
    wake.notified().await;
    assert!(told.elapsed() <= std::time::Duration::from_millis(330), "{:?}", told.elapsed());
    let seen = readings.seen().borrow().get(&node("b")).and_then(|seen| seen.notice);
    assert_eq!(seen.unwrap().deadline, Some(after(120)));
    stop.cancel();
    task.await.unwrap();
}

#[test]
fn every_reason_is_a_series_from_the_start() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = ProbeMetrics::register(&mut registry);
    metrics.rejected(Reason::Future);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("stoker_probe_rejected_total{reason=\"future\"} 1\n"), "{text}");
    assert!(text.contains("stoker_probe_rejected_total{reason=\"absurd\"} 0\n"), "{text}");
    for name in ["streams", "rounds_total", "events_total", "nodes", "silent_nodes", "oldest_reading_age_seconds"] {
        assert!(text.contains(&format!("\nstoker_probe_{name} 0")), "{name}: {text}");
    }
    assert!(text.contains("stoker_probe_reading_to_snapshot_seconds_bucket"), "{text}");
}

fn hello(session: u64) -> Hello {
    Hello { node: "a".to_owned(), boot_id: "b".to_owned(), session, version: String::new(), period_ms: 5000 }
}

#[tokio::test]
async fn the_newer_stream_of_a_node_wins() {
    let streams = Streams::new(ProbeMetrics::default());
    let a = node("a");
    let (mut first, known) = streams.admit(&a, &hello(1), true).unwrap();
    assert_eq!(known, Ack::default());
    assert_eq!(first.take(Numbered::Round(7)), Ok(()));
    assert_eq!(first.take(Numbered::Round(7)), Err(Reason::Replayed));
    assert_eq!(first.take(Numbered::Round(3)), Err(Reason::OutOfOrder));
    assert_eq!(first.take(Numbered::Event(1)), Ok(()));
    // The same process by another connection goes on where it was.
    let (second, known) = streams.admit(&a, &hello(1), true).unwrap();
    assert_eq!(known, Ack { round: 7, event: 1 });
    assert!(first.command().await.is_none());
    assert_eq!(first.take(Numbered::Round(8)), Err(Reason::OldSession));
    drop(first);
    assert_eq!(second.take(Numbered::Round(8)), Ok(()));
    // A later process begins anew, and an earlier one is refused while that one is heard.
    let (third, known) = streams.admit(&a, &hello(2), true).unwrap();
    assert_eq!(known, Ack::default());
    assert_eq!(streams.admit(&a, &hello(1), true).unwrap_err(), Reason::OldSession);
    assert!(streams.admit(&a, &hello(1), false).is_ok());
    drop(third);
}

#[tokio::test]
async fn a_node_of_others_is_read_where_it_is_named_and_wakes_nobody() {
    let rig = rig(&["a"]);
    let theirs = node("theirs");
    let take = |second| rig.readings.take(&theirs, reading(after(second), 0), Vec::new());
    assert_eq!(take(0), Err(Reason::UnknownNode));
    rig.readings.take_also([theirs.clone()].into());
    for second in (0..=15).step_by(5) {
        take(second).unwrap();
    }
    assert!(!rig.woken().await);
    assert!(rig.readings.seen().borrow().is_empty() && rig.readings.has(&theirs));
    assert!(rig.readings.seen_of_others().contains_key(&theirs));
    rig.readings.take_also(BTreeSet::new());
    rig.readings.look(after(20));
    rig.readings.publish();
    assert!(rig.readings.seen_of_others().is_empty() && !rig.readings.has(&theirs));
}
