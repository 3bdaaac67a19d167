use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{LaunchKey, ProviderId};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest};

use super::*;
use crate::suppliers::SupplierError;

/// A supplier that has nothing and says so as of whenever it is asked; it counts how often it is asked for its markets.
struct Empty {
    name: SupplierName,
    markets: AtomicUsize,
}

impl Supplier for Empty {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        1
    }

    fn launch(&self, _: Timestamp, _: Vec<LaunchRequest>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        std::future::ready(Vec::new()).boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        std::future::ready(Ok(Observation { as_of: now, complete: true, instances: BTreeMap::new() })).boxed()
    }

    fn terminate(&self, _: Timestamp, _: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        std::future::ready(Vec::new()).boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        self.markets.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(MarketFacts::default())).boxed()
    }
}

fn supplier() -> Empty {
    Empty { name: SupplierName::new("empty").unwrap(), markets: AtomicUsize::new(0) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[tokio::test]
async fn an_answer_that_was_overtaken_is_left() {
    let (supplier, latest) = (supplier(), Latest::new(None));
    let as_of = || latest.borrow().as_ref().map(|last| last.as_of);
    ask(&supplier, &latest, at(3_600)).await;
    ask(&supplier, &latest, at(3_570)).await;
    assert_eq!(as_of(), Some(at(3_600)));
    ask(&supplier, &latest, at(3_602)).await;
    assert_eq!(as_of(), Some(at(3_602)));
}

#[tokio::test]
async fn markets_are_asked_for_every_five_minutes() {
    let supplier = Arc::new(supplier());
    let suppliers: [Arc<dyn Supplier>; 1] = [Arc::<Empty>::clone(&supplier)];
    let feed = MarketFeed::new(&suppliers);
    for (now, asked) in [(3_600, 1), (3_899, 1), (3_900, 2)] {
        feed.refresh(Times::at(at(now))).await;
        assert_eq!(supplier.markets.load(Ordering::Relaxed), asked, "{now}");
    }
}
