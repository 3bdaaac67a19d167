//! What pods take in the file.

use std::time::{Duration, Instant};

use super::super::pods::pod;
use super::*;

/// With a name of forty bytes and three labels; indices included. Fifty thousand a day are some 20 MB.
#[tokio::test]
async fn a_pod_takes_some_four_hundred_bytes() {
    let dir = tempdir().unwrap();
    let (journal, _) = reopened(dir.path()).await;
    let size = || async {
        let mut db = journal.store.read().await.unwrap();
        let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut *db).await.unwrap();
        pages * 4_096
    };
    let before = size().await;
    let pods: u32 = 10_000;
    let mut longest = Duration::ZERO;
    for first in (0..pods).step_by(MOST_PODS) {
        let came: Vec<RecordedPod> =
            (first..).take(MOST_PODS).map(|n| pod(n.wrapping_mul(2_654_435_761), i64::from(n) / 40)).collect();
        let begun = Instant::now();
        let ended = came.iter().map(|pod| (Arc::clone(&pod.uid), PodEnd { at: pod.bound, is_seen: true })).collect();
        journal
            .pods()
            .write((pod(0, 0).created, pod(0, 0).created), &PodChanges { came, ..PodChanges::default() })
            .await
            .unwrap();
        journal.pods().write((pod(0, 0).created, pod(0, 0).created), &PodChanges { came: Vec::new(), ended }).await.unwrap();
        longest = longest.max(begun.elapsed());
    }
    let each = (size().await - before) / i64::from(pods);
    println!("{each} bytes a pod; {MOST_PODS} of them took {longest:?} at most");
    assert!(each < 500, "{each} bytes a pod");
}
