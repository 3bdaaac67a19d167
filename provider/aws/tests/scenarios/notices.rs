//! Notices: a machine that EC2 takes back is known in time, by a queue or without one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::ProviderId;
use stoker_core::facts::supply::InstanceState;
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Machine, Rule, events};
use stoker_service::suppliers::Supplier as _;
use tokio::time::{sleep, timeout};

use crate::bench::{Bench, file_with};
use crate::listing::another;

const QUEUE: &str = "stoker-prod";

async fn with_queue() -> Bench {
    let bench = Bench::with_file(&file_with("interruptionQueue: stoker-prod")).await;
    bench.world(|world| world.region("us-east-1").add_queue(QUEUE));
    bench
}

/// A Spot machine that runs.
async fn running(bench: &Bench, record: u64) -> (ProviderId, Machine) {
    let launch = bench.order(record, "g6.xlarge", "use1-az1", CapacityType::Spot);
    let made = bench.made(&launch).await;
    let id = bench.id_of(&launch);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.listed(&made.provider_id).await, Some(InstanceState::Running));
    (made.provider_id, bench.world(|world| world.machines[&id].clone()))
}

/// The whole second.
fn moment(bench: &Bench) -> Timestamp {
    Timestamp::from_second(bench.now().as_second()).unwrap()
}

fn messages(bench: &Bench) -> usize {
    bench.world(|world| world.region("us-east-1").queues[QUEUE].messages.len())
}

/// Scenario 17.
#[tokio::test(start_paused = true)]
async fn a_notice_of_the_queue_is_told_once_whatever_comes_with_it() {
    let bench = with_queue().await;
    let (id, machine) = running(&bench, 1).await;
    let at = moment(&bench);
    let later = events::spot_interruption(&machine, at + SignedDuration::from_secs(30));
    let foreign = Machine { id: "i-0123456789abcdef0".to_owned(), ..machine.clone() };
    let long_ago = Machine { id: "i-0123456789abcdef1".to_owned(), ..machine.clone() };
    for body in [
        "no event at all".to_owned(),
        "{\"detail-type\": 7}".to_owned(),
        events::rebalance(&machine, at),
        later,
        events::spot_interruption(&machine, at),
        events::spot_interruption(&machine, at),
        events::spot_interruption(&foreign, at),
        events::spot_interruption(&long_ago, at - SignedDuration::from_mins(10)),
    ] {
        bench.peer.send(QUEUE, &body);
    }
    let woken = timeout(Duration::from_secs(2), bench.aws.changed().unwrap().notified()).await;
    assert!(woken.is_ok(), "whoever lists machines is not woken");
    sleep(Duration::from_secs(1)).await;
    // The first word holds, in whichever order they come.
    let gone_by = at + SignedDuration::from_secs(120);
    assert_eq!(bench.listed(&id).await, Some(InstanceState::Reclaiming { at: gone_by }));
    assert_eq!(bench.list().await.unwrap().instances.len(), 1);
    assert_eq!(messages(&bench), 0, "junk and foreign notices are deleted too");
    assert_eq!(bench.faults(), "");
}

/// What is deleted does not keep what still waits in the queue from being told.
#[tokio::test(start_paused = true)]
async fn fifty_notices_at_once_are_told_within_a_second() {
    let bench = with_queue().await;
    let (_, machine) = running(&bench, 1).await;
    let ids: Vec<String> = (2..=50).map(|record| bench.world(|world| another(world, record, |_| {}))).collect();
    for action in ["ReceiveMessage", "DeleteMessage"] {
        bench.world(|world| world.fault(Rule::of(action, Fault::None).delay(Duration::from_millis(50))));
    }
    sleep(Duration::from_secs(25)).await;
    bench.list().await.unwrap();
    let at = moment(&bench);
    let machines = ids.into_iter().map(|id| Machine { id, ..machine.clone() }).chain([machine.clone()]);
    machines.for_each(|machine| bench.peer.send(QUEUE, &events::spot_interruption(&machine, at)));
    sleep(Duration::from_secs(1)).await;
    let listed = bench.list().await.unwrap().instances;
    let reclaimed = listed.values().filter(|made| matches!(made.state, InstanceState::Reclaiming { .. })).count();
    assert_eq!((reclaimed, messages(&bench)), (50, 0));
}

/// Scenario 17: without its queue it falls back to asking, says so, and goes back to the queue.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_gone_is_told_and_the_spot_requests_are_asked() {
    let bench = with_queue().await;
    let (id, machine) = running(&bench, 1).await;
    bench.world(|world| drop(world.region("us-east-1").queues.remove(QUEUE)));
    sleep(Duration::from_secs(25)).await;
    assert_eq!(bench.faults().matches("queue stoker-prod cannot be read").count(), 1, "{}", bench.faults());
    let at = bench.peer.now();
    bench.world(|world| world.reclaim(&machine.id, at));
    sleep(Duration::from_secs(11)).await;
    let state = bench.listed(&id).await;
    assert!(matches!(state, Some(InstanceState::Reclaiming { .. })), "{state:?}");
    bench.world(|world| world.region("us-east-1").add_queue(QUEUE));
    sleep(Duration::from_secs(35)).await;
    assert_eq!(bench.faults(), "");
}

/// Scenario 18.
#[tokio::test(start_paused = true)]
async fn without_a_queue_a_reclaim_is_known_within_ten_seconds() {
    let bench = Bench::new().await;
    let (id, machine) = running(&bench, 1).await;
    let (other, _) = running(&bench, 2).await;
    let at = bench.peer.now();
    bench.world(|world| world.reclaim(&machine.id, at));
    sleep(Duration::from_secs(10)).await;
    let Some(InstanceState::Reclaiming { at: gone_by }) = bench.listed(&id).await else {
        panic!("{:?}", bench.listed(&id).await)
    };
    assert!(gone_by.duration_since(at + SignedDuration::from_secs(120)).abs() < SignedDuration::from_secs(1));
    assert_eq!(bench.listed(&other).await, Some(InstanceState::Running));
    // Gone, and known to be taken back.
    sleep(Duration::from_mins(4)).await;
    let listed = bench.list().await.unwrap();
    assert_eq!(listed.instances.keys().collect::<Vec<_>>(), [&other]);
    assert_eq!(listed.ended[&id], stoker_core::facts::supply::EndedWhy::Reclaimed);
}

/// A machine that was ended by us is no reclaim, although its Spot request is closed.
#[tokio::test(start_paused = true)]
async fn a_spot_machine_that_was_ended_is_no_reclaim() {
    let bench = Bench::new().await;
    let (id, _) = running(&bench, 1).await;
    assert_eq!(bench.end(std::slice::from_ref(&id)).await[&id], Ok(()));
    for _ in 0..15 {
        sleep(Duration::from_secs(2)).await;
        let state = bench.listed(&id).await;
        assert!(!matches!(state, Some(InstanceState::Reclaiming { .. })), "{state:?}");
    }
}

/// A notice of a capacity block names its own time.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_block_is_told_with_its_own_time() {
    let bench = with_queue().await;
    let (id, machine) = running(&bench, 1).await;
    let (at, end) = (moment(&bench), moment(&bench) + SignedDuration::from_mins(40));
    bench.peer.send(QUEUE, &events::block_interruption(&machine, at, end));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.listed(&id).await, Some(InstanceState::Reclaiming { at: end }));
}

/// Maintenance is announced days ahead. The machine goes a while before it begins, and not before.
#[tokio::test(start_paused = true)]
async fn maintenance_takes_a_machine_shortly_before_it_begins() {
    let bench = with_queue().await;
    let (id, machine) = running(&bench, 1).await;
    let (at, start) = (moment(&bench), moment(&bench) + SignedDuration::from_hours(3));
    bench.peer.send(QUEUE, &events::scheduled_change(&machine, "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", at, start));
    sleep(Duration::from_mins(30)).await;
    assert_eq!(messages(&bench), 0);
    assert_eq!(bench.listed(&id).await, Some(InstanceState::Running));
    sleep(Duration::from_mins(140)).await;
    assert_eq!(bench.listed(&id).await, Some(InstanceState::Reclaiming { at: start }));
}

/// A state that changed by another hand is looked at within seconds, and not at the pace of a quiet region.
#[tokio::test(start_paused = true)]
async fn news_of_a_state_is_looked_at_at_once() {
    let bench = with_queue().await;
    let (id, machine) = running(&bench, 1).await;
    sleep(Duration::from_mins(6)).await;
    bench.list().await.unwrap();
    bench.world(|world| world.end_by(&machine.id, "Client.UserInitiatedShutdown"));
    bench.peer.send(QUEUE, &events::state_change(&machine, "terminated", moment(&bench)));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(bench.listed(&id).await, None);
}
