//! What is not to be taken: each has its answer, and is counted.

use super::*;
use stoker_core::base::ids::{GpuUuid, NodeName};

#[tokio::test]
async fn what_was_taken_is_left_out_the_second_time_and_what_lies_ahead_at_all() {
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    hand.round(round(3)).await;
    let newest = served.readings.latest()[&node("a")].arrived;
    assert_eq!(hand.round(round(3)).await.round, 3);
    assert_eq!(hand.round(round(2)).await.round, 3);
    assert_eq!(hand.round(Round { at: now(3600), ..round(4) }).await.round, 4);
    assert_eq!(hand.round(Round { at: None, ..round(5) }).await.round, 5);
    assert_eq!(served.readings.latest()[&node("a")].arrived, newest);
    let counts =
        [Reason::Replayed, Reason::OutOfOrder, Reason::Future, Reason::Malformed].map(|reason| served.rejected(reason));
    assert_eq!(counts, [1; 4]);
}

#[tokio::test]
async fn events_are_taken_once_and_in_order_and_none_is_lost_to_a_clock() {
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    let mut send = async |number: u64, at: Option<stoker_proto::Timestamp>, code: u32, gpu_uuid: &str| {
        let xid = event::Kind::Xid(Xid { code, gpu_uuid: gpu_uuid.to_owned(), ..Xid::default() });
        hand.send(from_probe::Kind::Event(Event { number, at, kind: Some(xid) })).await;
        hand.ack().await.event
    };
    assert_eq!(send(2, now(0), 31, "GPU-a").await, 2);
    assert_eq!(send(2, now(0), 43, "GPU-a").await, 2, "replayed");
    assert_eq!(send(1, now(0), 44, "GPU-a").await, 2, "out of order");
    assert_eq!(send(3, now(3600), 79, "GPU-a").await, 3, "an hour ahead");
    assert_eq!(send(4, None, 45, "GPU-a").await, 4, "without a time");
    assert_eq!(send(5, now(0), 46, &"x".repeat(300)).await, 5, "of no GPU");
    let counts =
        [Reason::Replayed, Reason::OutOfOrder, Reason::Future, Reason::Malformed].map(|reason| served.rejected(reason));
    assert_eq!(counts, [1, 1, 1, 2]);
    served.readings.publish();
    let seen = served.readings.seen();
    let seen = seen.borrow();
    let xids = &seen[&NodeName::new("a").unwrap()].xids.kinds;
    assert_eq!(xids.iter().map(|xid| xid.code).collect::<Vec<_>>(), [31, 79]);
    assert!(xids.iter().all(|xid| xid.last <= Timestamp::now()));
}

#[tokio::test]
async fn a_node_that_the_cluster_has_not_is_refused_and_one_that_goes_ends_its_stream() {
    let (cluster, followed) = watch::channel(None);
    let served = Served::among(Some(followed), Security::Plaintext, Identity::Unproven).await;
    let code = async |node: &str| Hand::open(served.channel().await, hello(node, 1)).await.err().map(|status| status.code());
    // Of the cluster nothing is known yet; then it has another node.
    assert_eq!(code("a").await, Some(Code::Unavailable));
    cluster.send_replace(facts(&["a"]));
    assert_eq!(code("b").await, Some(Code::NotFound));
    assert_eq!([Reason::NotReady, Reason::UnknownNode].map(|reason| served.rejected(reason)), [1, 1]);
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    hand.round(round(1)).await;
    cluster.send_replace(facts(&["b"]));
    hand.send(from_probe::Kind::Round(round(2))).await;
    assert_eq!(hand.next().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(served.rejected(Reason::UnknownNode), 2);
    served.readings.look(Timestamp::now());
    assert!(served.readings.latest().is_empty() && !served.readings.hears(&node("a")));
}

#[tokio::test]
async fn absurd_levels_become_unknown() {
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    let mut absurd = round(1);
    absurd.gpus[0].memory = Some(Memory { used_bytes: 2, total_bytes: 1, reserved_bytes: 0 });
    absurd.gpus[0].utilization = Some(5000);
    hand.round(absurd).await;
    let latest = served.readings.latest();
    let gpu = latest[&node("a")].gpus.values().next().unwrap();
    assert_eq!(gpu.memory, Measured::Unknown(Why::Absurd));
    assert_eq!(gpu.utilization, Measured::Unknown(Why::Absurd));
    assert_eq!(served.rejected(Reason::Absurd), 2);
}

#[tokio::test]
async fn two_gpus_of_one_uuid_cost_the_node_nothing_but_their_levels() {
    let served = Served::plaintext().await;
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    let mut doubled = round(1);
    doubled.gpus.push(doubled.gpus[0].clone());
    hand.round(Round { gpus_counted: Some(2), ..doubled }).await;
    let latest = served.readings.latest();
    let reading = &latest[&node("a")];
    assert_eq!(
        (reading.counted, reading.gpus[&GpuUuid::new("GPU-a").unwrap()].memory),
        (Measured::Known(2), Measured::Unknown(Why::Absurd))
    );
    assert_eq!([Reason::Absurd, Reason::Malformed].map(|reason| served.rejected(reason)), [1, 0]);
}

#[tokio::test]
async fn messages_larger_or_of_more_parts_than_a_node_has_end_the_stream() {
    let served = Served::plaintext().await;
    let huge = Gpu { name: "x".repeat(300 << 10), ..Gpu::default() };
    for gpus in [vec![Gpu::default(); 100_000], vec![huge]] {
        let (mut hand, _) = Hand::speak(&served, "a", 1).await;
        hand.send(from_probe::Kind::Round(Round { gpus, ..round(1) })).await;
        let code = hand.next().await.unwrap_err().code();
        assert!(matches!(code, Code::ResourceExhausted | Code::OutOfRange), "{code:?}");
    }
    assert_eq!(served.rejected(Reason::TooLarge), 2);
    assert!(served.readings.latest().is_empty());
}

#[tokio::test]
async fn a_stream_begins_with_a_hello_that_makes_sense_and_has_one() {
    let served = Served::plaintext().await;
    let open = async |first: FromProbe| Hand::open(served.channel().await, first).await.err().unwrap().code();
    assert_eq!(open(FromProbe { kind: Some(from_probe::Kind::Round(round(1))) }).await, Code::InvalidArgument);
    assert_eq!(open(FromProbe::default()).await, Code::InvalidArgument);
    let with = |change: fn(&mut Hello)| {
        let mut first = hello("a", 1);
        if let Some(from_probe::Kind::Hello(hello)) = &mut first.kind {
            change(hello);
        }
        first
    };
    for bad in [
        with(|hello| hello.node.clear()),
        with(|hello| hello.node = "x".repeat(300)),
        with(|hello| hello.boot_id.clear()),
        with(|hello| hello.period_ms = 0),
        with(|hello| hello.period_ms = u32::MAX),
    ] {
        assert_eq!(open(bad).await, Code::InvalidArgument);
    }
    let (mut hand, _) = Hand::speak(&served, "a", 1).await;
    hand.up.send(hello("b", 1)).await.unwrap();
    assert_eq!(hand.next().await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(served.rejected(Reason::Malformed), 8);
}
