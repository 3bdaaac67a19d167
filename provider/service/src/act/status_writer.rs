//! Tells Nodes their verdicts, at a rate that an API server does not notice. Nothing waits for it: what is left out now, or fails, the next
//! pass finds again, because the Node does not bear it yet.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::state::node_status::StatusUpdate;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::kube::act::KubeAct;

/// Nodes told at once.
const AT_ONCE: usize = 4;

/// Nodes told within [`WITHIN`] at most: 20 a second, so that a fleet of 5,000 that bears nothing yet is told in four minutes by 40 small
/// requests a second.
const MOST: usize = 200;
const WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// The same is not told to a Node again sooner: the feed needs a moment to show it, and what failed may go on failing.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Tells Nodes their verdicts.
pub(super) struct StatusWriter {
    act: Arc<KubeAct>,
    clock: Clock,
    permits: Arc<Semaphore>,
    /// Nodes that are being told.
    telling: Arc<Mutex<HashSet<NodeName>>>,
    /// What each was told lately, and when.
    lately: HashMap<NodeName, (StatusUpdate, Timestamp)>,
    /// Whether the last try failed: a right that is missing is logged once, not for every Node.
    failing: Arc<AtomicBool>,
    /// Dropped with this: what is not told before the end is told after the next start.
    tasks: JoinSet<()>,
}

impl StatusWriter {
    pub(super) fn new(act: Arc<KubeAct>, clock: Clock) -> Self {
        Self {
            act,
            clock,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            telling: Arc::default(),
            lately: HashMap::new(),
            failing: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Begins to tell the first of those that were not told the same a moment ago.
    pub(super) fn tell(&mut self, tells: Vec<StatusUpdate>, now: Timestamp) {
        while self.tasks.try_join_next().is_some() {}
        for tell in self.due(tells, now) {
            let (act, permits, clock) = (Arc::clone(&self.act), Arc::clone(&self.permits), self.clock.clone());
            let (telling, failing) = (Arc::clone(&self.telling), Arc::clone(&self.failing));
            lock(&telling).insert(tell.node.clone());
            self.tasks.spawn(async move {
                // The semaphore is never closed.
                let _permit = permits.acquire().await;
                match act.tell(&tell, clock.now()).await {
                    Ok(_) => failing.store(false, Ordering::Relaxed),
                    Err(error) if failing.swap(true, Ordering::Relaxed) => {
                        tracing::debug!(node = %tell.node, %error, "publishing a Node's verdict still fails");
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(node = %tell.node, error, "publishing a Node's verdict failed; retrying");
                    }
                }
                lock(&telling).remove(&tell.node);
            });
        }
    }

    /// Those that may be told now. They count as told.
    fn due(&mut self, tells: Vec<StatusUpdate>, now: Timestamp) -> Vec<StatusUpdate> {
        self.lately.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_AFTER);
        let told = self.lately.values().filter(|(_, at)| now.duration_since(*at) < WITHIN).count();
        let telling = lock(&self.telling);
        let fresh = |tell: &StatusUpdate| {
            !telling.contains(&tell.node) && self.lately.get(&tell.node).is_none_or(|(last, _)| last != tell)
        };
        let due: Vec<StatusUpdate> = tells.into_iter().filter(fresh).take(MOST.saturating_sub(told)).collect();
        drop(telling);
        self.lately.extend(due.iter().map(|tell| (tell.node.clone(), (tell.clone(), now))));
        due
    }
}

/// A set of names that each holder leaves whole.
fn lock(telling: &Mutex<HashSet<NodeName>>) -> MutexGuard<'_, HashSet<NodeName>> {
    telling.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
    use stoker_fake_apiserver as fake;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-01T00:00:00Z".parse().unwrap()
    }

    fn tell(n: usize, verdict: Verdict) -> StatusUpdate {
        let judged = Judged { verdict, why: Reason::Pods, since: now() };
        StatusUpdate { node: NodeName::new(format!("n{n}")).unwrap(), provider_id: None, verdict: Some(judged) }
    }

    fn status_writer(client: &kube::Client) -> StatusWriter {
        StatusWriter::new(Arc::new(KubeAct::new(client, "default")), Clock::system())
    }

    fn silent() -> kube::Client {
        fake::client(|_| std::future::pending())
    }

    #[tokio::test]
    async fn the_same_is_not_told_twice_within_a_minute_and_another_verdict_is() {
        let mut status_writer = status_writer(&silent());
        let at = |seconds| now() + SignedDuration::from_secs(seconds);
        let mut due = |verdict, seconds| status_writer.due(vec![tell(0, verdict)], at(seconds)).len();
        assert_eq!(due(Verdict::Warm, 0), 1);
        assert_eq!(due(Verdict::Warm, 59), 0);
        assert_eq!(due(Verdict::Busy, 59), 1);
        assert_eq!(due(Verdict::Busy, 60), 0);
        assert_eq!(due(Verdict::Busy, 119), 1);
    }

    #[tokio::test]
    async fn a_large_fleet_is_told_a_part_at_a_time_the_first_first() {
        let mut status_writer = status_writer(&silent());
        let all = || (0..1_000).map(|n| tell(n, Verdict::Warm)).collect::<Vec<_>>();
        let first = status_writer.due(all(), now());
        assert_eq!(first, all()[..200]);
        assert_eq!(status_writer.due(all(), now() + SignedDuration::from_secs(9)), []);
        assert_eq!(status_writer.due(all(), now() + SignedDuration::from_secs(10)), all()[200..400]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_being_told_is_not_told_beside_and_few_are_at_once() {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let mut status_writer = status_writer(&fake::client(move |call| {
            seen.lock().unwrap().push(call.path);
            std::future::pending()
        }));
        status_writer.tell((0..20).map(|n| tell(n, Verdict::Warm)).collect(), now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked.lock().unwrap().len(), AT_ONCE);
        assert_eq!(status_writer.due(vec![tell(0, Verdict::Busy)], now()), []);
        // Nobody answers: after its time each gives its place to the next.
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(asked.lock().unwrap().len(), 20);
        assert_eq!(status_writer.due(vec![tell(0, Verdict::Busy)], now()).len(), 1);
    }
}
