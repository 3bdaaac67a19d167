use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
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

    fn market_facts(&self, _: Timestamp) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
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
async fn an_answer_that_was_overtaken_is_left_and_one_of_before_the_clock_was_set_back_is_not_kept() {
    let (supplier, latest) = (supplier(), Latest::new(None));
    let as_of = || latest.borrow().as_ref().map(|last| last.as_of);
    ask(&supplier, &latest, at(3_600)).await;
    ask(&supplier, &latest, at(3_570)).await;
    assert_eq!(as_of(), Some(at(3_600)));
    ask(&supplier, &latest, at(0)).await;
    assert_eq!(as_of(), Some(at(0)));
}

#[tokio::test]
async fn an_inventory_does_not_become_new_when_a_clock_that_was_set_back_is_there_again() {
    let suppliers: [Arc<dyn Supplier>; 1] = [Arc::new(supplier())];
    let feeds = Feeds::new(&suppliers, None);
    feeds.poll(at(3_600)).await;
    feeds.set_back(at(3_700), at(0));
    let as_of = feeds.pollers()[0].1.borrow().as_ref().map(|last| last.as_of);
    assert_eq!(as_of, Some(at(-100)));
    // The next answer may be there before the pass that finds the clock set back.
    feeds.poll(at(10)).await;
    feeds.set_back(at(3_700), at(12));
    let as_of = feeds.pollers()[0].1.borrow().as_ref().map(|last| last.as_of);
    assert_eq!(as_of, Some(at(10)));
}

#[tokio::test]
async fn markets_are_asked_for_every_five_minutes_and_at_once_when_the_clock_was_set_back() {
    let supplier = Arc::new(supplier());
    let suppliers: [Arc<dyn Supplier>; 1] = [Arc::<Empty>::clone(&supplier)];
    let feed = MarketFeed::new(&suppliers);
    for (now, asked) in [(3_600, 1), (3_899, 1), (3_900, 2), (0, 3), (299, 3), (300, 4)] {
        feed.refresh(at(now)).await;
        assert_eq!(supplier.markets.load(Ordering::Relaxed), asked, "{now}");
    }
}
