//! GPU pods: written once, ended once, kept as long as decisions, and cheap.

use std::collections::BTreeMap;

use stoker_advice::rollup::{Owner, PodLabels};
use stoker_advice::spend::Known;
use stoker_core::market::sharing::Slices;

use super::*;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + minute * 60).unwrap()
}

/// A pod that was created at that minute and got its node two minutes later.
pub(super) fn pod(n: u32, minute: i64) -> RecordedPod {
    let name = format!("recommendations/ranker-7d4b9c5f6d-{n:05}");
    RecordedPod {
        uid: format!("8f1c2b6e-44d0-4000-8000-{n:012x}").into(),
        owner_kind: Some("Deployment".into()),
        owner: Owner { namespace: "recommendations".into(), name: "ranker".into() },
        labels: PodLabels::of([("app", "ranker"), ("team", "vision"), ("app.kubernetes.io/part-of", "recommendations")]),
        name: name.into(),
        pool: Some("inference".to_owned()),
        models: vec!["L4".to_owned(), "A10G".to_owned()],
        gpus: Some(1),
        slices: Slices::default(),
        milli_cpu: 3_000,
        memory_mib: 12_288,
        node: format!("ip-10-0-{}-{}.ec2.internal", n / 256 % 256, n % 256),
        created: at(minute),
        bound: at(minute + 2),
        end: None,
    }
}

/// A pod of which little is known.
fn odd(minute: i64) -> RecordedPod {
    RecordedPod {
        owner_kind: None,
        labels: PodLabels::default(),
        pool: None,
        models: Vec::new(),
        gpus: None,
        slices: [("nvidia.com/gpu.shared", 2), ("nvidia.com/mig-1g.10gb", 1)].into_iter().collect(),
        ..pod(9_999, minute)
    }
}

fn ended(pods: &[&RecordedPod], at: Timestamp, is_seen: bool) -> PodChanges {
    let ended = pods.iter().map(|pod| (Arc::clone(&pod.uid), PodEnd { at, is_seen }));
    PodChanges { came: Vec::new(), ended: ended.collect() }
}

fn came(pods: &[&RecordedPod]) -> PodChanges {
    PodChanges { came: pods.iter().map(|pod| (*pod).clone()).collect(), ended: BTreeMap::new() }
}

async fn between(journal: &Journal, since: i64, until: i64) -> Vec<RecordedPod> {
    let mut pods = Vec::new();
    journal.reader().each_pod(at(since), at(until), |pod| pods.push(pod)).await.unwrap();
    pods
}

/// When pods were recorded, in minutes.
async fn known(journal: &Journal) -> Vec<(i64, i64)> {
    let minute = |second: i64| (second - at(0).as_second()) / 60;
    let Known(known) = journal.reader().pods_known().await.unwrap();
    known.into_iter().map(|(since, until)| (minute(since), minute(until))).collect()
}

#[tokio::test]
async fn a_pod_is_read_back_as_it_was_written_and_ends_once() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    assert_eq!(journal.reader().pods_known().await.unwrap(), Known::default());
    let (plain, odd, late) = (pod(1, 0), odd(1), pod(2, 50));
    journal.pods().write((at(3), at(3)), &came(&[&plain, &odd])).await.unwrap();
    // Once more, as after an answer that was lost.
    journal.pods().write((at(4), at(4)), &came(&[&plain, &late])).await.unwrap();
    assert_eq!(between(&journal, 0, 100).await, [plain.clone(), odd.clone(), late.clone()]);
    assert_eq!(journal.reader().running_pods().await.unwrap().len(), 3);
    journal.pods().write((at(30), at(30)), &ended(&[&odd], at(30), true)).await.unwrap();
    journal.pods().write((at(40), at(40)), &ended(&[&plain], at(40), false)).await.unwrap();
    // A look is ten minutes after another, or a quarter of an hour and a minute.
    assert_eq!(known(&journal).await, [(3, 4), (30, 40)]);
    let odd = RecordedPod { end: Some(PodEnd { at: at(30), is_seen: true }), ..odd };
    let plain = RecordedPod { end: Some(PodEnd { at: at(40), is_seen: false }), ..plain };
    assert_eq!(between(&journal, 0, 50).await, [plain.clone(), odd]);
    // What had ended by then is not of that time, nor what came after it.
    assert_eq!(between(&journal, 30, 50).await, [plain]);
    assert_eq!(between(&journal, 40, 100).await, std::slice::from_ref(&late));
    // A restart goes on with those that run.
    drop(journal);
    let (journal, _) = reopened(dir.path()).await;
    assert_eq!(journal.reader().running_pods().await.unwrap(), [Arc::clone(&late.uid)].into());
}

/// A copy has them, and so has a backup.
#[tokio::test]
async fn pods_are_copied_and_backed_up() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let pods = [pod(1, 0), odd(1)];
    journal.pods().write((at(3), at(3)), &came(&[&pods[0], &pods[1]])).await.unwrap();
    let copy = tempdir().unwrap();
    let to = place(copy.path()).await;
    journal.reader().copy(&to).await.unwrap();
    let (copied, _) = reopened(copy.path()).await;
    assert_eq!(between(&copied, 0, 100).await, pods);
    assert_eq!(known(&copied).await, known(&journal).await);
    let backup = copy.path().join("backup");
    journal.reader().backup(&backup).await.unwrap();
    let backup = Reader::open_backup(&backup).await.unwrap();
    assert_eq!(backup.running_pods().await.unwrap().len(), 2);
    backup.close().await;
}

#[tokio::test]
async fn old_pods_go_with_old_decisions_and_running_ones_stay() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let pods: Vec<RecordedPod> = (0..2_500).map(|n| pod(n, 0)).collect();
    journal.pods().write((at(2), at(2)), &came(&pods.iter().collect::<Vec<_>>())).await.unwrap();
    let old: Vec<&RecordedPod> = pods.iter().take(2_300).collect();
    journal.pods().write((at(10), at(10)), &ended(&old, at(10), true)).await.unwrap();
    journal.pods().write((at(60), at(60)), &ended(&[&pods[2_300]], at(60), true)).await.unwrap();
    let now = at(30) + KEPT;
    let mut gone = 0;
    loop {
        let pruned = journal.prune(now, KEPT).await.unwrap();
        gone += pruned.pods;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(gone, 2_300);
    assert_eq!(between(&journal, 0, 100).await.len(), 200);
    // Before that some are missing.
    assert_eq!(known(&journal).await, [(60, 60)]);
}

/// However soon decisions are forgotten, a day that is not summed up yet has its pods.
#[tokio::test]
async fn pods_are_kept_for_three_days_at_least() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let pod = pod(1, 0);
    journal.pods().write((at(2), at(2)), &came(&[&pod])).await.unwrap();
    journal.pods().write((at(10), at(10)), &ended(&[&pod], at(10), true)).await.unwrap();
    let soon = SignedDuration::from_hours(1);
    let pruned = |after: i64| {
        let journal = &journal;
        async move { journal.prune(at(10) + SignedDuration::from_hours(after), soon).await.unwrap().pods }
    };
    assert_eq!((pruned(72).await, pruned(73).await), (0, 1));
}

/// A wall clock that ran two days ahead: no pod ends later than it is.
#[tokio::test]
async fn ends_to_come_are_moved_back() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let pod = pod(1, 0);
    journal.pods().write((at(2), at(2)), &came(&[&pod])).await.unwrap();
    journal.pods().write((at(2_880), at(2_880)), &ended(&[&pod], at(2_880), true)).await.unwrap();
    let mark = Mark { now: at(20), boot: SignedDuration::ZERO, boot_id: None };
    journal.rebase(&Memory::default(), &mark).await.unwrap();
    let [read] = between(&journal, 0, 100).await.try_into().unwrap();
    assert_eq!(read.end, Some(PodEnd { at: at(20), is_seen: true }));
    assert_eq!(known(&journal).await, [(2, 2)]);
}

/// Decisions are written meanwhile, and who does not lead any more writes no pod.
#[tokio::test]
async fn pods_are_written_beside_decisions_and_by_the_leader_alone() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let mut world = World::new();
    world.pass(&journal).await.unwrap();
    let pods: Vec<RecordedPod> = (0..1_000).map(|n| pod(n, 0)).collect();
    let all: Vec<&RecordedPod> = pods.iter().collect();
    let (writer, changes) = (journal.pods(), came(&all));
    let (written, ordered) = tokio::join!(writer.write((at(2), at(2)), &changes), world.order(&journal, 1));
    written.unwrap();
    ordered.unwrap();
    if let Place::Database(_) = place(dir.path()).await {
        let (_new, _) = reopened(dir.path()).await;
        let error = writer.write((at(3), at(3)), &ended(&all, at(3), true)).await.unwrap_err();
        assert_eq!(error.label(), "fenced", "{error:?}");
    }
    drop(journal);
    let (journal, restored) = reopened(dir.path()).await;
    assert_eq!(restored.memory, world.memory);
    assert_eq!(journal.reader().running_pods().await.unwrap().len(), 1_000);
}
