//! A supplier whose every call ends, and of which is known how its calls went.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::{LaunchKey, ProviderId, SupplierName};
use stoker_core::facts::supply::{LaunchOutcome, MarketFacts, Observation};
use tokio::time::timeout;

use super::{Launch, Supplier, SupplierError, Turns, console};

/// How long a supplier may take to make or end machines. Clouds answer within seconds, and a launch
/// that is asked again under its key buys nothing twice.
const CHANGED_WITHIN: Duration = Duration::from_mins(1);

/// How long a supplier may take to list machines or markets: thousands of machines in pages take
/// some seconds. Well below the two minutes after which an inventory counts as unknown.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A supplier whose every call ends in time, with an answer or with an error.
///
/// The service's parts hold suppliers only in this form, so none of them can wait for ever for one
/// that hangs, or fall over with one that panics. Whoever asked asks again.
#[derive(Clone)]
pub struct LimitedSupplier {
    supplier: Arc<dyn Supplier>,
    calls: Arc<Mutex<BTreeMap<CallKind, Went>>>,
    turns: Arc<Turns>,
}

/// What a supplier is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// To make machines.
    Launch,
    /// To list machines.
    List,
    /// To end machines.
    Terminate,
    /// To tell of its markets.
    Markets,
}

impl CallKind {
    /// The word in logs.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::List => "list",
            Self::Terminate => "terminate",
            Self::Markets => "markets",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Launch => "launching",
            Self::List => "listing",
            Self::Terminate => "ending",
            Self::Markets => "telling of its markets",
        })
    }
}

/// How the calls of one kind to a supplier went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Went {
    /// When one was last answered; `None` while none was.
    pub answered_at: Option<Timestamp>,
    /// The last failure; `None` while there was none. It stays when later calls are answered.
    pub failed: Option<Failure>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// When it was made.
    pub at: Timestamp,
    /// Since when none was answered.
    pub since: Timestamp,
    /// What the supplier or the transport said.
    pub message: String,
}

impl LimitedSupplier {
    /// Limits the calls to `supplier`.
    pub fn new(supplier: Arc<dyn Supplier>) -> Self {
        Self { supplier, calls: Arc::default(), turns: Arc::default() }
    }

    /// How its calls went, by what was asked for.
    pub fn calls(&self) -> MutexGuard<'_, BTreeMap<CallKind, Went>> {
        // Plain data that each holder leaves whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: CallKind, at: Timestamp, failure: Option<&str>) {
        let mut calls = self.calls();
        let went = calls.entry(kind).or_default();
        match failure {
            None => went.answered_at = Some(at),
            Some(message) => {
                let still = went.failed.as_ref().filter(|failed| went.answered_at.is_none_or(|answered| answered < failed.at));
                let since = still.map_or(at, |failed| failed.since);
                went.failed = Some(Failure { at, since, message: message.to_owned() });
            }
        }
    }

    /// The answer to a call that makes or ends machines; nothing where there is none.
    async fn change<T>(&self, kind: CallKind, at: Timestamp, answer: impl Future<Output = Vec<T>>) -> Vec<T> {
        ended(CHANGED_WITHIN, answer).await.unwrap_or_else(|why| {
            let why = why.to_string();
            tracing::warn!(supplier = %self.name(), call = kind.as_str(), "{why}");
            self.note(kind, at, Some(&why));
            Vec::new()
        })
    }

    /// The answer to a call that changes nothing.
    async fn read<T>(
        &self,
        kind: CallKind,
        at: Timestamp,
        answer: impl Future<Output = Result<T, SupplierError>>,
    ) -> Result<T, SupplierError> {
        let error = |why: Unanswered| SupplierError { supplier: self.name().clone(), message: why.to_string() };
        let answer = ended(READ_WITHIN, answer).await.unwrap_or_else(|why| Err(error(why)));
        self.note(kind, at, answer.as_ref().err().map(|error| error.message.as_str()));
        answer
    }

    /// What it is called in records and logs.
    pub fn name(&self) -> &SupplierName {
        self.supplier.name()
    }

    /// How many calls it takes at once; at least one.
    pub fn max_in_flight(&self) -> usize {
        self.supplier.max_in_flight().max(1)
    }

    /// Waits until the supplier takes another call that makes or ends machines; what time it is then. The answer's time begins there.
    async fn turn(&self, now: Timestamp) -> Timestamp {
        let waited = self.turns.wait(self.supplier.pace()).await;
        now.saturating_add(waited).unwrap_or(now)
    }

    /// How often it wants to be asked for its markets.
    pub fn markets_every(&self) -> SignedDuration {
        self.supplier.markets_every()
    }

    /// Ends when it knows more of its machines than it said last; never where it does not tell.
    pub async fn changed(&self) {
        match self.supplier.changed() {
            Some(changed) => changed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// What keeps it from making all that it might, each with its cure.
    pub fn faults(&self) -> Vec<String> {
        self.supplier.faults()
    }

    /// Makes machines. A launch that the answer leaves out has an unknown outcome; without an answer
    /// that is each of them.
    pub async fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> Vec<(LaunchKey, LaunchOutcome)> {
        let now = self.turn(now).await;
        let outcomes = self.change(CallKind::Launch, now, self.supplier.launch(now, batch)).await;
        for (_, outcome) in &outcomes {
            let unclear = match outcome {
                // Not decided yet: the supplier says when to ask again.
                LaunchOutcome::Unclear { message, retry_after: None } => Some(message.as_str()),
                LaunchOutcome::Unclear { .. } | LaunchOutcome::Launched(_) | LaunchOutcome::Refused(_) => None,
            };
            self.note(CallKind::Launch, now, unclear);
        }
        outcomes
    }

    /// Lists machines.
    ///
    /// # Errors
    /// What the supplier says, or that it did not answer in time.
    pub async fn observe(&self, now: Timestamp) -> Result<Observation, SupplierError> {
        self.read(CallKind::List, now, self.supplier.observe(now)).await
    }

    /// Ends machines. Those that the answer leaves out may or may not have ended.
    pub async fn terminate(&self, now: Timestamp, ids: Vec<ProviderId>) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let now = self.turn(now).await;
        self.ended(now, self.supplier.terminate(now, ids)).await
    }

    /// The same of machines that did not join the cluster in time.
    pub async fn terminate_late(&self, now: Timestamp, ids: Vec<ProviderId>) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let now = self.turn(now).await;
        self.ended(now, self.supplier.terminate_late(now, ids)).await
    }

    async fn ended(
        &self,
        now: Timestamp,
        answer: impl Future<Output = Vec<(ProviderId, Result<(), SupplierError>)>>,
    ) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let ended = self.change(CallKind::Terminate, now, answer).await;
        for (_, result) in &ended {
            self.note(CallKind::Terminate, now, result.as_ref().err().map(|error| error.message.as_str()));
        }
        ended
    }

    /// The last lines that a machine wrote to its console, without what may be secret. `None` where there are none to be had: nothing rests
    /// on them.
    pub async fn console(&self, id: &ProviderId) -> Option<String> {
        let why = match ended(READ_WITHIN, self.supplier.console(id.clone())).await {
            Ok(Ok(text)) => return console::tail(&text?),
            Ok(Err(error)) => error.message,
            Err(why) => why.to_string(),
        };
        tracing::warn!(supplier = %self.name(), machine = %id, why, "the console of a machine that did not join cannot be read");
        None
    }

    /// What it knows of its markets.
    ///
    /// # Errors
    /// What the supplier says, or that it did not answer in time.
    pub async fn market_facts(&self, times: Times) -> Result<MarketFacts, SupplierError> {
        self.read(CallKind::Markets, times.now, self.supplier.market_facts(times.wall)).await
    }
}

impl fmt::Debug for LimitedSupplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitedSupplier").field(self.name()).finish()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the call panicked")]
    Panicked,
}

async fn ended<T>(within: Duration, answer: impl Future<Output = T>) -> Result<T, Unanswered> {
    match timeout(within, AssertUnwindSafe(answer).catch_unwind()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Unanswered::Panicked),
        Err(_) => Err(Unanswered::TimedOut(within)),
    }
}

#[cfg(test)]
mod tests;
