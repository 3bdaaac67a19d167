//! What nodes did and cost: written as it happens, across gaps, restarts and clocks that ran ahead.

use std::collections::BTreeMap;

use stoker_advice::spend::{DAY, End, GpuUse, KeptDay, Life, NodeState, Span, Tariff};
use stoker_core::base::kinds::Evidence;
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::interruption::NoticeSource;
use stoker_core::state::disruption::{Disruption, DrainReason, Stage};
use stoker_core::state::record::State;

use super::*;
use crate::Spent;

/// Seconds after the world's beginning.
fn after(world: &World, seconds: i64) -> i64 {
    world.now.as_second() + seconds
}

async fn spent(journal: &Journal) -> Spent {
    journal.reader().spent(Timestamp::UNIX_EPOCH, Timestamp::MAX).await.unwrap()
}

async fn lives(journal: &Journal) -> Vec<Life> {
    journal.reader().lives(Timestamp::UNIX_EPOCH, Timestamp::MAX).await.unwrap()
}

/// Each span's record, begin after `zero`, end and state.
fn told(spans: &[Span], zero: i64) -> Vec<(u64, i64, i64, NodeState)> {
    spans.iter().map(|span| (span.record.0, span.since - zero, span.until - zero, span.state)).collect()
}

/// One node: ordered at 0, made by 10, joined by 70, held by a pod from 130 on, free from 190 on.
async fn one_node(world: &mut World, journal: &Journal) {
    let pass = SignedDuration::from_secs;
    Arc::make_mut(&mut world.policy).pools[0].evidence = Evidence::Pods;
    world.pass(journal).await.unwrap();
    world.order(journal, 1).await.unwrap();
    let actions = world.pass(journal).await.unwrap();
    world.wait(pass(10));
    world.answer(&actions, true);
    world.pass(journal).await.unwrap();
    world.wait(pass(60));
    world.join();
    world.pass(journal).await.unwrap();
    world.wait(pass(60));
    let node = world.snapshot.cluster.as_ref().unwrap().nodes.keys().next().unwrap().to_string();
    world.toggle_pod(&node);
    world.pass(journal).await.unwrap();
    world.wait(pass(60));
    world.toggle_pod(&node);
    world.pass(journal).await.unwrap();
}

#[tokio::test]
async fn a_life_is_a_row_of_spans_with_the_rates_of_its_market() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    one_node(&mut world, &journal).await;
    world.wait(SignedDuration::from_secs(60));
    journal.count_use(world.now, &world.memory).await.unwrap();

    let found = spent(&journal).await;
    assert_eq!(
        told(&found.spans, zero),
        [
            (0, 10, 70, NodeState::Booting),
            (0, 70, 130, NodeState::Idle),
            (0, 130, 190, NodeState::Held),
            (0, 190, 250, NodeState::Idle),
        ]
    );
    let held = &found.spans[2];
    // Paid is the live quote, list what a node costs on demand.
    assert_eq!((held.rate, held.list), (UsdPerHour(250_000), Some(UsdPerHour(804_800))));
    assert_eq!((held.gpus, held.units, held.model.as_str()), (1, 1, "L4"));
    assert!(held.node.is_some() && held.pool.as_str() == "infer");
    assert_eq!(found.known.0, [(zero, zero + 250)]);
    // Pods without GPU count where no pod with one was: of those from 80 to 140 and from 200 on, 80 to 130 and 200 to 250.
    let at = |second: i64| Timestamp::from_second(zero + second).unwrap();
    let pod = |n: u32, gpus: u32, since: i64, until: Option<i64>| RecordedPod {
        gpus: Some(gpus),
        node: held.node.as_ref().unwrap().to_string(),
        created: at(since),
        bound: at(since),
        end: until.map(|until| PodEnd { at: at(until), is_seen: true }),
        ..pods::pod(n, 0)
    };
    let came = vec![pod(0, 0, 80, Some(140)), pod(1, 0, 200, None), pod(2, 1, 100, Some(210))];
    journal.pods().write((at(250), at(250)), &PodChanges { came, ended: BTreeMap::new() }).await.unwrap();
    let times = journal.reader().pods_on_free_nodes(at(0), at(1_000)).await.unwrap();
    let mut times: Vec<_> = times.iter().map(|time| (time.since - zero, time.until - zero, time.rate)).collect();
    times.sort_unstable();
    assert_eq!(times, [(80, 130, UsdPerHour(250_000)), (200, 250, UsdPerHour(250_000))]);
    assert_eq!(journal.reader().pods_on_free_nodes(at(90), at(100)).await.unwrap().len(), 1);
    let life = lives(&journal).await.remove(0);
    assert_eq!((life.ordered - zero, life.ready.map(|ready| ready - zero), life.end), (0, Some(70), None));

    // The autoscaler deletes it, and it is gone: released.
    world.delete(&journal, RecordId(0)).await.unwrap();
    world.wait(SignedDuration::from_secs(10));
    let actions = world.pass(&journal).await.unwrap();
    world.end(&actions);
    while !world.memory.records.is_empty() {
        world.wait(SignedDuration::from_secs(60));
        world.pass(&journal).await.unwrap();
    }
    let (found, gone) = (spent(&journal).await, after(&world, 0));
    assert_eq!(told(&found.spans, zero)[4..], [(0, 250, gone - zero, NodeState::Ending)]);
    assert_eq!(lives(&journal).await[0].end, Some((End::Released, gone)));
}

/// A free node that the pool's floor keeps is warm; one that is being emptied is draining.
#[tokio::test]
async fn a_kept_node_is_warm_and_an_emptied_one_is_draining() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    one_node(&mut world, &journal).await;
    let at = |seconds| Timestamp::from_second(zero + seconds).unwrap();
    Arc::make_mut(world.memory.records.get_mut(&RecordId(0)).unwrap()).floor = true;
    journal.count_use(at(250), &world.memory).await.unwrap();
    drain(&mut world, DrainReason::CapacityEnds { commitment: "block".into(), at: at(3_600) });
    journal.count_use(at(310), &world.memory).await.unwrap();
    journal.count_use(at(370), &world.memory).await.unwrap();
    let found = spent(&journal).await;
    assert_eq!(
        told(&found.spans, zero)[3..],
        [(0, 190, 250, NodeState::Idle), (0, 250, 310, NodeState::Warm), (0, 310, 370, NodeState::Draining)]
    );
}

/// Begins to empty the node for that reason.
fn drain(world: &mut World, why: DrainReason) {
    let disruption = Disruption { why, since: world.now, stage: Stage::Closing, asked: false, pods: [].into() };
    world.memory.disruptions.insert(RecordId(0), disruption.into());
}

/// A machine that boots for longer than its deadline is lost: it costs until it is gone, and its life has failed.
#[tokio::test]
async fn a_machine_that_does_not_join_is_lost_and_has_failed() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    world.pass(&journal).await.unwrap();
    world.order(&journal, 1).await.unwrap();
    let actions = world.pass(&journal).await.unwrap();
    world.wait(SignedDuration::from_secs(10));
    world.answer(&actions, true);
    while !world.memory.records.values().any(|record| matches!(record.state, State::Failed { .. })) {
        assert!(after(&world, 0) - zero < 3_600, "{:?}", world.memory.records);
        world.pass(&journal).await.unwrap();
        world.wait(SignedDuration::from_secs(60));
    }
    // The autoscaler deletes what did not come, and the machine goes.
    journal.count_use(world.now, &world.memory).await.unwrap();
    world.delete(&journal, RecordId(0)).await.unwrap();
    while world.memory.records.contains_key(&RecordId(0)) {
        assert!(after(&world, 0) - zero < 7_200, "{:?}", world.memory.records);
        world.wait(SignedDuration::from_secs(60));
        let actions = world.pass(&journal).await.unwrap();
        world.end(&actions);
    }
    let found = spent(&journal).await;
    let states: Vec<NodeState> = found.spans.iter().filter(|span| span.record.0 == 0).map(|span| span.state).collect();
    assert_eq!(states[..2], [NodeState::Booting, NodeState::Lost]);
    // Nothing is missing between its spans, and it costs until it is gone.
    assert!(found.spans.iter().zip(found.spans.iter().skip(1)).all(|(one, next)| one.until == next.since), "{:?}", found.spans);
    assert_eq!(lives(&journal).await[0].end, Some((End::Failed, found.spans.last().unwrap().until)));
    assert_eq!(lives(&journal).await[0].ready, None);
}

/// The cloud takes a machine that holds a pod: without a notice it was taken when it was missed, with one when that was told.
#[tokio::test]
async fn a_machine_that_the_cloud_takes_is_reclaimed() {
    for told_before in [false, true] {
        let dir = tempdir().unwrap();
        let (journal, _) = reopened(dir.path()).await;
        let mut world = World::new();
        one_node(&mut world, &journal).await;
        let mut taken = after(&world, 60);
        if told_before {
            taken = after(&world, 0);
            let at = world.now + SignedDuration::from_mins(2);
            drain(&mut world, DrainReason::Reclaimed { at, told_by: NoticeSource::Supplier });
            journal.count_use(world.now, &world.memory).await.unwrap();
        }
        world.wait(SignedDuration::from_secs(60));
        world.reclaim();
        world.pass(&journal).await.unwrap();
        let (found, gone) = (spent(&journal).await, after(&world, 0));
        let life = lives(&journal).await.remove(0);
        assert_eq!((life.end, life.taken), (Some((End::Reclaimed, gone)), Some(taken)), "{told_before}");
        assert_eq!(found.spans.last().unwrap().until, gone);
    }
}

/// A price that changes begins a new span of every node that it concerns, and no other change of prices does.
#[tokio::test]
async fn a_changed_price_begins_a_span() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    one_node(&mut world, &journal).await;
    let before = told(&spent(&journal).await.spans, zero).len();
    world.wait(SignedDuration::from_secs(30));
    world.facts = Arc::new(world::facts(270_000, world.now));
    world.memory.next_order += 1;
    world.pass(&journal).await.unwrap();
    world.wait(SignedDuration::from_secs(30));
    journal.count_use(world.now, &world.memory).await.unwrap();
    let found = spent(&journal).await;
    assert_eq!(found.spans.len(), before + 2, "{:?}", told(&found.spans, zero));
    assert_eq!(found.spans.last().unwrap().rate, UsdPerHour(270_000));
}

/// After more than 15 minutes nobody knows: the span ends where somebody last looked, and another begins.
#[tokio::test]
async fn a_gap_is_unknown_and_a_short_absence_is_not() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    one_node(&mut world, &journal).await;
    let at = |seconds| Timestamp::from_second(zero + seconds).unwrap();
    journal.close().await;
    let (journal, _) = reopened(dir.path()).await;
    journal.count_use(at(190 + 900), &world.memory).await.unwrap();
    journal.count_use(at(190 + 900 + 901), &world.memory).await.unwrap();
    journal.count_use(at(2_800), &world.memory).await.unwrap();
    let found = spent(&journal).await;
    assert_eq!(told(&found.spans, zero)[3..], [(0, 190, 1_090, NodeState::Idle), (0, 1_991, 2_800, NodeState::Idle)]);
    assert_eq!(found.known.0, [(zero, zero + 1_090), (zero + 1_991, zero + 2_800)]);
    assert_eq!(found.known.seconds(zero + 1_000, zero + 2_000), 90 + 9);
}

/// A pod that is found gone after nobody looked held nothing from the last look on; a short gap, as of a restart, is none.
#[tokio::test]
async fn who_ended_unseen_held_nothing_while_nobody_looked() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let minute = |minute: i64| Timestamp::from_second(1_800_000_000 + minute * 60).unwrap();
    let look = async |time: (i64, i64), changes: PodChanges| {
        journal.pods().write((minute(time.0), minute(time.1)), &changes).await.unwrap();
    };
    let (lost, seen, restarted) = (pods::pod(1, 0), pods::pod(2, 0), pods::pod(3, 0));
    let end = |pod: &RecordedPod, at, is_seen| {
        let ended = [(Arc::clone(&pod.uid), PodEnd { at: minute(at), is_seen })].into();
        PodChanges { came: Vec::new(), ended }
    };
    look((2, 10), PodChanges { came: vec![lost.clone(), seen.clone(), restarted.clone()], ended: BTreeMap::new() }).await;
    look((60, 60), end(&lost, 60, false)).await;
    look((60, 70), end(&seen, 70, true)).await;
    look((80, 85), end(&restarted, 80, false)).await;
    let spent = journal.reader().spent(minute(0), minute(100)).await.unwrap();
    let until = |pod: &RecordedPod| (spent.pods[pod.node.as_str()][0].until - minute(0).as_second()) / 60;
    assert_eq!([&lost, &seen, &restarted].map(until), [10, 70, 80]);
    let known = [(2, 10), (60, 85)].map(|(since, until)| (minute(since).as_second(), minute(until).as_second()));
    assert_eq!(spent.pods_known.0, known);
}

/// A day is kept folded for 400 days, and for 70 as it was.
#[tokio::test]
async fn the_rows_of_a_day_are_kept_as_long_as_spans() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    one_node(&mut world, &journal).await;
    let reader = journal.reader();
    let day = world.now.as_second().div_euclid(DAY);
    let tariff = Tariff::new(Arc::clone(&world.policy), Arc::new(PriceBook::new()), world.now);
    let of_day = spent(&journal).await.day(&tariff, day, (day * DAY, (day + 1) * DAY), &GpuUse::default(), true);
    assert!(of_day.rows.iter().any(|row| row.key.instance.is_some()));
    assert_eq!(reader.kept_rows(day).await.unwrap(), None);
    keep(&journal, of_day.clone()).await;
    assert_eq!(reader.kept_rows(day).await.unwrap().as_ref(), Some(&of_day.rows));
    assert_eq!(reader.kept_days(day, day + 1).await.unwrap(), [of_day.clone().folded()]);
    let copy = tempdir().unwrap();
    reader.copy(&place(copy.path()).await).await.unwrap();
    let (copied, _) = reopened(copy.path()).await;
    assert_eq!(copied.reader().kept_rows(day).await.unwrap(), Some(of_day.rows.clone()));
    while journal.prune(world.now + crate::SPANS_KEPT + SignedDuration::from_hours(25), KEPT).await.unwrap().more {}
    assert_eq!(reader.kept_rows(day).await.unwrap(), None);
    assert_eq!(reader.kept_days(day, day + 1).await.unwrap(), [of_day.folded()]);
}

async fn keep(journal: &Journal, day: KeptDay) {
    let days = journal.days();
    days.write(&days.encode(day).unwrap()).await.unwrap();
}

/// The wall ran two days ahead: what it left is taken back, and spans go on at once.
#[tokio::test]
async fn spans_to_come_are_taken_back() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    let zero = world.now.as_second();
    one_node(&mut world, &journal).await;
    let ahead = world.now + SignedDuration::from_hours(48);
    journal.count_use(ahead, &world.memory).await.unwrap();
    journal.count_use(ahead + SignedDuration::from_mins(5), &world.memory).await.unwrap();
    let mark = Mark { now: world.now, boot: SignedDuration::ZERO, boot_id: None };
    // A day that is kept is one that is over.
    let today = zero.div_euclid(DAY);
    for day in [today - 1, today, today + 1] {
        let kept = KeptDay {
            day,
            known_seconds: 0,
            pods_known_seconds: 0,
            billed_by: Vec::new(),
            commitments: Vec::new(),
            rows: Vec::new(),
        };
        keep(&journal, kept).await;
    }
    journal.rebase(&world.memory, &mark).await.unwrap();
    let kept = journal.reader().kept_days(0, today + 9).await.unwrap();
    assert_eq!(kept.iter().map(|kept| kept.day).collect::<Vec<_>>(), [today - 1]);
    journal.count_use(world.now + SignedDuration::from_mins(5), &world.memory).await.unwrap();
    let found = spent(&journal).await;
    assert_eq!(told(&found.spans, zero).last(), Some(&(0, 190, 490, NodeState::Idle)));
    assert_eq!(found.known.0, [(zero, after(&world, 300))]);
}

/// Old spans, lives and known times go, a few at a time; what is open stays.
#[tokio::test]
async fn old_spans_are_forgotten() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    one_node(&mut world, &journal).await;
    journal.prune(world.now + crate::SPANS_KEPT, KEPT).await.unwrap();
    journal.count_use(world.now + SignedDuration::from_mins(5), &world.memory).await.unwrap();
    let zero = world.now.as_second() - 190;
    let (held, idle) = ((0, 130, 190, NodeState::Held), (0, 190, 490, NodeState::Idle));
    assert_eq!(told(&spent(&journal).await.spans, zero), [held, idle]);
    journal.prune(world.now + crate::SPANS_KEPT + SignedDuration::from_secs(1), KEPT).await.unwrap();
    assert_eq!(told(&spent(&journal).await.spans, zero), [idle]);
}

/// The next day to keep is the first that anything is known of, then the one after the last that is kept; days are kept for 400 days.
#[tokio::test]
async fn days_are_kept_in_order_and_for_400_days() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let reader = journal.reader();
    let mut world = World::new();
    let day = world.now.as_second().div_euclid(DAY);
    assert_eq!(reader.day_to_keep(day + 1).await.unwrap(), None);
    one_node(&mut world, &journal).await;
    // Then nobody looked for three days.
    let later = world.now + SignedDuration::from_hours(72);
    journal.count_use(later, &world.memory).await.unwrap();
    journal.count_use(later + SignedDuration::from_mins(5), &world.memory).await.unwrap();
    assert_eq!(reader.day_to_keep(day).await.unwrap(), None, "the day is not over");
    let kept = |day| KeptDay {
        day,
        known_seconds: 250,
        pods_known_seconds: 0,
        billed_by: Vec::new(),
        commitments: Vec::new(),
        rows: Vec::new(),
    };
    for expected in [day, day + 3] {
        assert_eq!(reader.day_to_keep(day + 4).await.unwrap(), Some(expected));
        keep(&journal, kept(expected)).await;
    }
    assert_eq!(reader.day_to_keep(day + 4).await.unwrap(), None);
    keep(&journal, KeptDay { known_seconds: 1, ..kept(day) }).await;
    assert_eq!(reader.kept_days(day, day + 4).await.unwrap(), [kept(day), kept(day + 3)], "what is kept stays");

    while journal.prune(world.now + SignedDuration::from_hours(402 * 24), KEPT).await.unwrap().more {}
    assert_eq!(reader.kept_days(day, day + 4).await.unwrap(), [kept(day + 3)]);
}
