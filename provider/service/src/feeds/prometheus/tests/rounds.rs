use stoker_core::facts::reading::{DriverState, Happening, Measured, NodeEvent, NodeReading, Source, Why};
use stoker_core::policy::Prometheus as Rules;
use tokio::sync::watch;

use super::super::book::{Book, Round, Told};
use super::super::labels::{Dropped, Drops, Nodes};
use super::super::levels::Levels;
use super::super::{GpuFeed, KnownNodes, Metrics};
use super::*;
use crate::clock::{Clock, VirtualClock};

/// One GPU as a round tells of it: node, number, seconds at which it was sampled, temperature.
type Sample = (&'static str, u32, f64, f64);

/// A feed, and what it dropped.
struct Feed {
    book: Book,
    drops: Drops,
}

impl Feed {
    fn new() -> Self {
        Self { book: Book::default(), drops: Drops::new() }
    }

    /// A round at that second, with levels and errors beside the samples.
    fn round_with(&mut self, second: i64, stamps: &[Row], levels: &Levels, xids: Option<&[Row]>) -> Vec<Told> {
        let nodes = Nodes::new(["a", "b"].map(node).to_vec());
        let round = Round { stamps, levels, xids, asked: at(second) };
        let labels = Rules::default().node_labels;
        self.book.take(Some(&round), (&nodes, &labels), STALE, at(second), &mut self.drops)
    }

    fn round(&mut self, second: i64, samples: &[Sample]) -> Vec<Told> {
        let mut levels = Levels::new();
        let mut stamps = Vec::new();
        for (name, number, sampled, celsius) in samples {
            let uuid = gpu(*number).to_string();
            stamps.push(stamp(second, name, *number, *sampled));
            levels.take(field(Level::Temperature), Ok(&[row(&[("UUID", &uuid)], 0.0, &celsius)]), &mut self.drops);
        }
        self.round_with(second, &stamps, &levels, Some(&[]))
    }

    /// A round that Prometheus did not answer.
    fn silence(&mut self, second: i64) -> Vec<Told> {
        let nodes = Nodes::new(Vec::new());
        self.book.take(None, (&nodes, &[]), STALE, at(second), &mut self.drops)
    }
}

fn stamp(second: i64, name: &str, number: u32, sampled: f64) -> Row {
    let labels = [
        ("UUID", &*gpu(number).to_string()),
        ("Hostname", name),
        ("gpu", &*number.to_string()),
        ("modelName", "NVIDIA L4"),
        ("pci_bus_id", "00000000:01:00.0"),
    ];
    row(&labels, second as f64, &theirs(sampled))
}

/// The one reading that a round told.
fn only(told: &[Told]) -> &NodeReading {
    let [(_, reading, _)] = told else { panic!("{told:?}") };
    reading
}

#[test]
fn a_reading_is_as_old_as_its_sample_by_our_clock() {
    let mut feed = Feed::new();
    // Prometheus's clock is ten minutes ahead of ours, and the sample is 20 s old by its own.
    let told = feed.round(100, &[("a", 0, 80.0, 40.0), ("a", 1, 75.0, 50.0)]);
    let reading = only(&told);
    assert_eq!((told[0].0.as_str(), reading.arrived, reading.source), ("a", at(80), Source::Prometheus));
    assert_eq!((reading.driver, reading.counted), (DriverState::Ready, Measured::Unknown(Why::NotReported)));
    let first = &reading.gpus[&gpu(0)];
    assert_eq!((first.index, first.name.as_str(), first.pci_bus_id.as_str()), (0, "NVIDIA L4", "00000000:01:00.0"));
    assert_eq!(first.temperature_c, Measured::Known(40));
    assert_eq!(reading.gpus[&gpu(1)].temperature_c, Measured::Known(50));
    // The same samples again are no news; a new one is.
    assert_eq!(feed.round(115, &[("a", 0, 80.0, 40.0), ("a", 1, 75.0, 50.0)]), []);
    let told = feed.round(130, &[("a", 0, 110.0, 41.0), ("a", 1, 75.0, 50.0)]);
    assert_eq!((only(&told).arrived, only(&told).gpus[&gpu(0)].temperature_c), (at(110), Measured::Known(41)));
    // Nor is an older one that some proxy gives.
    assert_eq!(feed.round(140, &[("a", 0, 95.0, 39.0)]), []);
    assert_eq!(feed.drops, Drops::new());
}

#[test]
fn what_is_told_no_more_is_unknown_after_the_time_and_never_idle() {
    let mut feed = Feed::new();
    feed.round(0, &[("a", 0, 0.0, 40.0), ("a", 1, 0.0, 40.0)]);
    // One of the two GPUs falls away: the node goes on, and must not look like one with a single GPU.
    for second in [30, 60, 90] {
        let told = feed.round(second, &[("a", 0, second as f64, 40.0)]);
        assert_eq!(only(&told).gpus[&gpu(1)].temperature_c, Measured::Known(40), "{second}");
    }
    let told = feed.round(91, &[("a", 0, 90.0, 40.0)]);
    let lost = &only(&told).gpus[&gpu(1)];
    assert_eq!((lost.temperature_c, lost.index, lost.name.as_str()), (Measured::Unknown(Why::NotReported), 1, "NVIDIA L4"));
    assert_eq!(only(&told).gpus[&gpu(0)].temperature_c, Measured::Known(40));
    assert_eq!((only(&told).driver, only(&told).arrived), (DriverState::Ready, at(90)));
    // Then Prometheus itself is away: 90 s after the last sample the rest is unknown too, told once.
    assert_eq!(feed.silence(180), []);
    let told = feed.silence(181);
    assert_eq!((only(&told).driver, only(&told).arrived), (DriverState::Unknown, at(181)));
    assert_eq!(only(&told).gpus.len(), 2);
    assert!(only(&told).gpus.values().all(|gpu| gpu.temperature_c == Measured::Unknown(Why::NotReported)));
    assert_eq!(feed.silence(196), []);
    assert_eq!(feed.book.count(), (0, 2));
    // It comes back as if nothing had been.
    let told = feed.round(300, &[("a", 0, 295.0, 42.0)]);
    assert_eq!((only(&told).driver, only(&told).arrived), (DriverState::Ready, at(295)));
    assert_eq!(feed.book.count(), (1, 1));
    // An hour after its last sample a GPU is forgotten.
    feed.silence(3_601);
    assert_eq!(feed.book.count(), (0, 1));
    feed.silence(90 + 3_601 + 600);
    assert_eq!(feed.book.count(), (0, 0));
}

#[test]
fn samples_that_cannot_be_are_dropped_and_counted() {
    let mut feed = Feed::new();
    let unlabelled = row(&[("Hostname", "a")], 100.0, &theirs(100.0));
    let stamps = [
        stamp(100, "a", 0, 9.0),
        stamp(100, "a", 1, 102.0),
        stamp(100, "z", 2, 100.0),
        unlabelled,
        // Two nodes claim one GPU: neither has it.
        stamp(100, "a", 3, 100.0),
        stamp(100, "b", 3, 100.0),
        stamp(100, "a", 4, f64::NAN),
        stamp(100, "b", 5, 100.0),
    ];
    let told = feed.round_with(100, &stamps, &Levels::new(), None);
    assert_eq!(told.iter().map(|(node, reading, _)| (node.as_str(), reading.gpus.len())).collect::<Vec<_>>(), [("b", 1)]);
    let expected = [
        (Dropped::NoGpu, 1),
        (Dropped::UnknownNode, 1),
        (Dropped::Conflict, 1),
        (Dropped::Stale, 1),
        (Dropped::Future, 1),
        (Dropped::Absurd, 1),
    ];
    assert_eq!(feed.drops, Drops::from(expected));
}

/// A round at that second in which GPU 0 of node `a` tells this last error, and so many of each where the exporter counts.
fn errors(feed: &mut Feed, second: i64, last: u32, counts: &[(u32, u64)]) -> Vec<u32> {
    let mut levels = Levels::new();
    let gpu = ("UUID", "GPU-0");
    levels.take(field(Level::Xid), Ok(&[row(&[gpu], 0.0, &last)]), &mut Drops::new());
    let counted: Vec<_> = counts.iter().map(|(code, count)| row(&[gpu, ("xid", &code.to_string())], 0.0, &count)).collect();
    let told = feed.round_with(second, &[stamp(second, "a", 0, second as f64)], &levels, Some(&counted));
    let [(_, _, events)] = told.as_slice() else { panic!("{told:?}") };
    let code = |event: &NodeEvent| match &event.what {
        Happening::Xid { code, gpu: Some(of) } if *of == super::gpu(0) && event.at == at(second) => *code,
        other => panic!("{other:?} at {}", event.at),
    };
    events.iter().map(code).collect()
}

#[test]
fn an_error_that_stays_is_told_once_and_one_from_before_is_not() {
    let mut feed = Feed::new();
    // It was there when we came: nobody knows since when.
    assert_eq!(errors(&mut feed, 0, 79, &[]), [] as [u32; 0]);
    assert_eq!(errors(&mut feed, 30, 79, &[]), [] as [u32; 0]);
    assert_eq!(errors(&mut feed, 60, 31, &[]), [31]);
    assert_eq!(errors(&mut feed, 90, 31, &[]), [] as [u32; 0]);
    // A driver that was loaded anew has none; the same error after that is another one.
    assert_eq!(errors(&mut feed, 120, 0, &[]), [] as [u32; 0]);
    assert_eq!(errors(&mut feed, 150, 31, &[]), [31]);
}

#[test]
fn where_the_exporter_counts_errors_repeats_are_told() {
    let mut feed = Feed::new();
    assert_eq!(errors(&mut feed, 0, 31, &[(31, 2)]), [] as [u32; 0]);
    // Two more of one, and another one; the last error would tell only one of them.
    assert_eq!(errors(&mut feed, 30, 48, &[(31, 4), (48, 1)]), [31, 31, 48]);
    // The window moves on: fewer are no new ones.
    assert_eq!(errors(&mut feed, 60, 48, &[(31, 1), (48, 1)]), [] as [u32; 0]);
    assert_eq!(errors(&mut feed, 90, 48, &[]), [] as [u32; 0]);
    // A flood is told as one.
    assert_eq!(errors(&mut feed, 120, 48, &[(48, 1_000)]), [48; 8]);
}

#[tokio::test]
async fn a_slow_answer_makes_no_sample_younger() {
    let moved = VirtualClock::new(at(0));
    let slow = Arc::clone(&moved);
    let prometheus = Prometheus::start(Arc::new(move |query| {
        if query.contains("timestamp(") {
            slow.advance_to(at(10));
            return vector(&[stamp(0, "a", 1, -20.0)]);
        }
        vector(&[])
    }))
    .await;
    let policy = crate::policy_file::parse("policy.yaml", crate::policy_file::example(), None).unwrap();
    let (_keep, policy) = watch::channel(Arc::new(policy));
    let nodes: KnownNodes = Arc::new(|| vec![node("a")]);
    let mut feed =
        GpuFeed::new(prometheus.asker(), policy, nodes, Arc::new(|_, _, _| ()), Metrics::default(), Clock::Virtual(moved));
    assert_eq!(only(&feed.round().await).arrived, at(-20));
}
