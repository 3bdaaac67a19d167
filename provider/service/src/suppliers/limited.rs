//! A supplier whose every call ends.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{LaunchKey, ProviderId, SupplierName};
use stoker_core::facts::supply::{LaunchOutcome, MarketFacts, Observation};
use tokio::time::timeout;

use super::{Launch, Supplier, SupplierError};

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
pub struct LimitedSupplier(Arc<dyn Supplier>);

impl LimitedSupplier {
    /// Limits the calls to `supplier`.
    pub fn new(supplier: Arc<dyn Supplier>) -> Self {
        Self(supplier)
    }

    /// What it is called in records and logs.
    pub fn name(&self) -> &SupplierName {
        self.0.name()
    }

    /// How many calls it takes at once; at least one.
    pub fn max_in_flight(&self) -> usize {
        self.0.max_in_flight().max(1)
    }

    /// Makes machines. A launch that the answer leaves out has an unknown outcome; without an answer
    /// that is each of them.
    pub async fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> Vec<(LaunchKey, LaunchOutcome)> {
        let answer = ended(CHANGED_WITHIN, self.0.launch(now, batch)).await;
        answer.unwrap_or_else(|why| {
            tracing::warn!(supplier = %self.name(), call = "launch", "{why}");
            Vec::new()
        })
    }

    /// Lists machines.
    ///
    /// # Errors
    /// What the supplier says, or that it did not answer in time.
    pub async fn observe(&self, now: Timestamp) -> Result<Observation, SupplierError> {
        ended(READ_WITHIN, self.0.observe(now)).await.unwrap_or_else(|why| Err(self.error(&why)))
    }

    /// Ends machines. Those that the answer leaves out may or may not have ended.
    pub async fn terminate(&self, now: Timestamp, ids: Vec<ProviderId>) -> Vec<(ProviderId, Result<(), SupplierError>)> {
        let answer = ended(CHANGED_WITHIN, self.0.terminate(now, ids)).await;
        answer.unwrap_or_else(|why| {
            tracing::warn!(supplier = %self.name(), call = "terminate", "{why}");
            Vec::new()
        })
    }

    /// What it knows of its markets.
    ///
    /// # Errors
    /// What the supplier says, or that it did not answer in time.
    pub async fn market_facts(&self, wall: Wall) -> Result<MarketFacts, SupplierError> {
        ended(READ_WITHIN, self.0.market_facts(wall)).await.unwrap_or_else(|why| Err(self.error(&why)))
    }

    fn error(&self, why: &Unanswered) -> SupplierError {
        SupplierError { supplier: self.name().clone(), message: why.to_string() }
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
