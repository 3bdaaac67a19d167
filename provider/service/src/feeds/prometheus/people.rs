//! What people are shown of Prometheus's answers, beside what decisions rest on: the signals of the policy as they answer now.
//!
//! Whoever looks asks Prometheus again, so answers are kept for a moment: a page that many have open is one question. No decision sees
//! what is kept here.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use moka::future::Cache;
use serde::Serialize;
use serde_json::json;
use stoker_core::policy::Policy;
use tokio::sync::watch;

use super::ask::{AskFailed, Asker};
use super::metrics::{Metrics, Series};
use crate::clock::Clock;

/// How long an answer is shown again: shorter than anybody waits for a change, longer than a page takes to reload.
const KEPT: Duration = Duration::from_secs(10);

/// Answers kept: of every signal of a large policy.
const MOST_ANSWERS: u64 = 256;

/// Series of an answer that are shown; the right answer has one.
const MOST_SERIES: usize = 20;

/// Shows how the signals of the policy answer.
#[derive(Clone)]
pub struct People {
    asker: Option<Asker>,
    policy: watch::Receiver<Arc<Policy>>,
    answers: Cache<String, Arc<Shown>>,
    metrics: Metrics,
    clock: Clock,
}

/// One answer as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// When it was asked.
    asked_at: Timestamp,
    /// The first series of the answer, with their labels.
    series: Vec<serde_json::Value>,
    /// How many there are.
    count: usize,
    /// Why there is none.
    failed: Option<String>,
}

impl People {
    /// Nothing asked yet. Without a Prometheus it says so.
    pub fn new(asker: Option<Asker>, policy: watch::Receiver<Arc<Policy>>, metrics: Metrics, clock: Clock) -> Self {
        let answers = Cache::builder().max_capacity(MOST_ANSWERS).time_to_live(KEPT).build();
        Self { asker, policy, answers, metrics, clock }
    }

    /// Every signal of the policy with its query and what that answers, at most ten seconds old. Only the policy's own queries are asked.
    pub async fn signals(&self) -> serde_json::Value {
        let policy = Arc::clone(&self.policy.borrow());
        let signals = policy.pools.iter().flat_map(|pool| pool.signals.iter().map(move |signal| (pool, signal)));
        // All at once: a Prometheus that hangs takes as long for many as for one.
        let shown = signals.map(|(pool, signal)| async move {
            let answer = self.answer(&signal.query).await;
            json!({
                "pool": pool.name,
                "signal": signal.name,
                "query": signal.query,
                "perReplica": signal.per_replica.to_string(),
                "answer": *answer,
            })
        });
        json!(join_all(shown).await)
    }

    async fn answer(&self, query: &str) -> Arc<Shown> {
        // Those who ask for the same at once wait for one answer.
        self.answers.get_with_by_ref(query, async { Arc::new(self.ask(query).await) }).await
    }

    async fn ask(&self, query: &str) -> Shown {
        let asked_at = self.clock.now();
        let none = |why: String| Shown { asked_at, series: Vec::new(), count: 0, failed: Some(why) };
        let Some(asker) = &self.asker else { return none("no Prometheus is configured: give --prometheus-url".to_owned()) };
        let answer = asker.ask(query).await;
        self.metrics.asked(Series::People, &answer);
        match answer {
            Ok(rows) => {
                let series = rows.iter().take(MOST_SERIES).map(|row| json!({ "labels": row.metric, "value": row.value.1 }));
                Shown { asked_at, series: series.collect(), count: rows.len(), failed: None }
            }
            Err(why) => none(AskFailed::to_string(&why)),
        }
    }
}
