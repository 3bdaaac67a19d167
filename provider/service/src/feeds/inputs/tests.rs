use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use stoker_core::base::engine_clock::{Times, Wall};
use stoker_core::base::ids::{LaunchKey, ProviderId};
use stoker_core::facts::supply::LaunchOutcome;

use super::*;
use crate::suppliers::{Launch, Supplier, SupplierError};

/// A supplier that has nothing and says so as of whenever it is asked; it counts how often it is asked for its markets.
#[derive(Clone)]
struct Empty {
    name: SupplierName,
    markets: Arc<AtomicUsize>,
    does: watch::Sender<Does>,
}

/// What a supplier does when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Answer,
    Hang,
    Panic,
}

impl Empty {
    /// Answers, unless it does something else.
    fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'_, T> {
        let does = *self.does.borrow();
        async move {
            match does {
                Does::Answer => answer,
                Does::Hang => std::future::pending().await,
                Does::Panic => panic!("as code of others may"),
            }
        }
        .boxed()
    }
}

impl Supplier for Empty {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        1
    }

    fn launch(&self, _: Timestamp, _: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        self.answer(Vec::new())
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        self.answer(Ok(Observation::complete(now, BTreeMap::new())))
    }

    fn terminate(&self, _: Timestamp, _: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.answer(Vec::new())
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        self.markets.fetch_add(1, Ordering::Relaxed);
        self.answer(Ok(MarketFacts::default()))
    }
}

fn named(name: &str) -> Empty {
    Empty { name: SupplierName::new(name).unwrap(), markets: Arc::default(), does: watch::Sender::new(Does::Answer) }
}

fn supplier() -> Empty {
    named("empty")
}

fn limited(supplier: &Empty) -> LimitedSupplier {
    LimitedSupplier::new(Arc::new(supplier.clone()))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

#[tokio::test]
async fn an_answer_that_was_overtaken_is_left() {
    let (supplier, latest) = (limited(&supplier()), Latest::new(None));
    let as_of = || latest.borrow().as_ref().map(|last| last.as_of());
    ask(&supplier, &latest, at(3_600)).await;
    ask(&supplier, &latest, at(3_570)).await;
    assert_eq!(as_of(), Some(at(3_600)));
    ask(&supplier, &latest, at(3_602)).await;
    assert_eq!(as_of(), Some(at(3_602)));
}

#[tokio::test]
async fn markets_are_asked_for_every_five_minutes() {
    let supplier = supplier();
    let feed = MarketFeed::new(&[limited(&supplier)]);
    for (now, asked) in [(3_600, 1), (3_899, 1), (3_900, 2)] {
        feed.refresh(Times::at(at(now))).await;
        assert_eq!(supplier.markets.load(Ordering::Relaxed), asked, "{now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_supplier_that_hangs_or_panics_is_given_up_and_its_inventory_goes_on_when_it_answers_again() {
    let (supplier, latest) = (supplier(), Latest::new(None));
    let asked = limited(&supplier);
    let as_of = || latest.borrow().as_ref().map(|last| last.as_of());
    ask(&asked, &latest, at(0)).await;
    for (turn, does) in [(1, Does::Hang), (2, Does::Panic)] {
        supplier.does.send_replace(does);
        let ended = tokio::time::timeout(Duration::from_secs(31), ask(&asked, &latest, at(turn))).await;
        assert_eq!((ended, as_of()), (Ok(false), Some(at(0))), "what is known stays, and ages");
    }
    supplier.does.send_replace(Does::Answer);
    ask(&asked, &latest, at(3)).await;
    assert_eq!(as_of(), Some(at(3)));
}

#[tokio::test(start_paused = true)]
async fn a_supplier_that_hangs_ends_no_launch_and_no_termination_and_keeps_none_under_way() {
    let supplier = supplier();
    let asked = limited(&supplier);
    for does in [Does::Hang, Does::Panic] {
        supplier.does.send_replace(does);
        let minute = Duration::from_secs(61);
        assert_eq!(tokio::time::timeout(minute, asked.launch(at(0), Vec::new())).await, Ok(Vec::new()));
        assert_eq!(tokio::time::timeout(minute, asked.terminate(at(0), Vec::new())).await, Ok(Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_supplier_that_hangs_keeps_no_other_from_telling_of_its_markets_and_is_asked_again_soon() {
    let (hung, sound) = (named("hung"), named("sound"));
    let feed = MarketFeed::new(&[limited(&hung), limited(&sound)]);
    hung.does.send_replace(Does::Hang);
    let known = feed.facts();
    let asking = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move { feed.refresh(Times::at(at(0))).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(known.borrow().contains_key(&sound.name), "at once, not when the other was given up");
    assert!(tokio::time::timeout(Duration::from_secs(31), asking).await.unwrap().unwrap());
    hung.does.send_replace(Does::Answer);
    // Ten seconds later, as the feed does it: only the one that did not answer.
    assert!(feed.refresh(Times::at(at(40))).await);
    assert_eq!([&hung, &sound].map(|supplier| supplier.markets.load(Ordering::Relaxed)), [2, 1]);
    assert_eq!(known.borrow().len(), 2);
    assert!(!feed.refresh(Times::at(at(41))).await, "nothing is new");
}

#[tokio::test(start_paused = true)]
async fn a_supplier_that_never_answers_is_not_waited_for_where_it_may_be_absent_and_another_has_answered() {
    let (well, hung) = (named("well"), named("hung"));
    hung.does.send_replace(Does::Hang);
    let suppliers = [limited(&well), limited(&hung)];
    let feeds = Feeds::new(&suppliers, None);
    let of = |name: &str| Err(NotReady::Supplier(name.to_owned()));
    assert_eq!(feeds.ready(|_| true), of("well"), "all are silent");
    feeds.poll(at(0)).await;
    assert_eq!(feeds.ready(|_| false), of("hung"));
    assert_eq!(feeds.ready(|name| name.as_str() == "hung"), Ok(()));
}
