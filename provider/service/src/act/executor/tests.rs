use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use stoker_core::base::engine_clock::Wall;
use stoker_core::facts::supply::{MarketFacts, Observation};
use stoker_core::plan::Evict;
use stoker_fake_apiserver as fake;

use stoker_journal::state_lock::StateLock;

use super::nodes::KUBE_DRAINS;
use super::*;
use crate::kube::leader::Leader;
use crate::suppliers::{Supplier, SupplierError};

fn node(n: usize) -> NodeName {
    NodeName::new(format!("n{n}")).unwrap()
}

/// A permit, of a replica where there are several.
fn permit(leader: Option<Leader>) -> (tempfile::TempDir, Arc<Permit>) {
    let dir = tempfile::tempdir().unwrap();
    let lock = StateLock::take(dir.path()).unwrap();
    (dir, Arc::new(Permit::new(lock, leader)))
}

/// A replica that was paused does nothing of what it knew before.
#[tokio::test]
async fn who_leads_no_more_does_nothing() {
    let asked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let server = fake::client(move |call| {
        seen.lock().unwrap().insert(call.path);
        std::future::pending()
    });
    let mut executor = Executor::new(Clock::system(), &[], Some(Arc::new(KubeAct::new(&server, "default"))), Arc::default());
    let (_dir, permit) = permit(Some(Leader::lost_it()));
    let hold = Action::Hold { node: node(1), why: stoker_core::plan::HoldFor::Pods };
    executor.act(&permit, &[hold], Timestamp::now(), |_, _| None);
    // Nor what waited for its turn.
    executor.on_cluster(&permit, NodeChange::Hold(node(2)));
    executor.finish().await;
    assert!(asked.lock().unwrap().is_empty() && executor.under_way().changing.is_empty());
}

#[tokio::test(start_paused = true)]
async fn slow_drains_keep_no_node_from_being_held() {
    let (_dir, permit) = permit(None);
    let asked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let silent = fake::client(move |call| {
        seen.lock().unwrap().insert(call.path);
        std::future::pending()
    });
    let kube = Cluster::new(Arc::new(KubeAct::new(&silent, "default")));
    let mut executor = Executor::new(Clock::system(), &[], None, Arc::default());
    executor.kube = Some(kube);
    for n in 0..20 {
        let machine = ProviderId::new(format!("sim://{n}")).unwrap();
        executor.on_cluster(&permit, NodeChange::Drain(node(n), machine, Pods { evict: Evict::Movable, gone_by: None }));
    }
    executor.on_cluster(&permit, NodeChange::Hold(node(20)));
    let machine = ProviderId::new("sim://21").unwrap();
    let in_haste = Pods { evict: Evict::All, gone_by: Some(Timestamp::now()) };
    executor.on_cluster(&permit, NodeChange::Drain(node(21), machine, in_haste));
    tokio::time::sleep(Duration::from_secs(1)).await;
    {
        let asked = asked.lock().unwrap();
        assert!(asked.contains("/api/v1/nodes/n20"), "{asked:?}");
        assert!(asked.contains("/api/v1/nodes/n21"), "nor one that the cloud takes from being emptied: {asked:?}");
        assert_eq!(asked.len(), KUBE_DRAINS + 2);
    }
    // The cloud takes one that waits for its turn.
    let now = Timestamp::now();
    let taken = || vec![drain(10, Evict::All, Some(now))];
    assert_eq!(executor.fresh(vec![drain(10, Evict::All, None)], now).0, []);
    assert_eq!(executor.fresh(taken(), now).0.len(), 1);
    let machine = ProviderId::new("sim://10").unwrap();
    executor.on_cluster(&permit, NodeChange::Drain(node(10), machine, in_haste));
    assert_eq!(executor.fresh(taken(), now).0, [], "it is under way");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(asked.lock().unwrap().contains("/api/v1/nodes/n10"));
}

fn drain(n: usize, evict: Evict, gone_by: Option<Timestamp>) -> Action {
    let provider_id = ProviderId::new(format!("sim://{n}")).unwrap();
    Action::Drain { record: stoker_core::base::ids::RecordId(1), node: node(n), provider_id, evict, gone_by }
}

/// An executor that has just done that.
fn after(action: &Action, now: Timestamp) -> Executor {
    let mut executor = Executor::new(Clock::system(), &[], None, Arc::default());
    executor.done_lately.extend(action_key(action).map(|key| (key.about().to_owned(), (key, now))));
    executor
}

#[tokio::test]
async fn telling_more_pods_to_go_or_in_haste_is_no_repetition() {
    let now = Timestamp::now();
    let told = drain(1, Evict::Nobody, None);
    let mut executor = after(&told, now);
    assert_eq!(executor.fresh(vec![told], now).0, []);
    let told = drain(1, Evict::All, None);
    assert_eq!(executor.fresh(vec![told.clone()], now).0.len(), 1);
    let mut executor = after(&told, now);
    assert_eq!(executor.fresh(vec![told], now).0, []);
    assert_eq!(executor.fresh(vec![drain(1, Evict::All, Some(now))], now).0.len(), 1);
}

#[tokio::test]
async fn what_was_done_a_moment_ago_is_not_done_again() {
    let now = Timestamp::now();
    let hold = Action::Hold { node: node(1), why: stoker_core::plan::HoldFor::Pods };
    let mut executor = after(&hold, now);
    assert_eq!(executor.fresh(vec![hold.clone()], now + SignedDuration::from_secs(4)).0, []);
    assert_eq!(executor.fresh(vec![hold.clone()], now + REPEAT_AFTER).0, [hold]);
}

#[tokio::test]
async fn what_is_done_ten_times_and_still_asked_for_has_no_effect() {
    let now = Timestamp::now();
    let hold = Action::Hold { node: node(1), why: stoker_core::plan::HoldFor::Pods };
    let mut executor = Executor::new(Clock::system(), &[], None, Arc::default());
    let (_dir, permit) = permit(None);
    let machine = ProviderId::new("aws:///zone/i-1").unwrap();
    let end = Action::Terminate {
        supplier: SupplierName::new("test").unwrap(),
        instance: machine.clone(),
        why: stoker_core::plan::Ending::Deleted,
    };
    let mut turn = 0;
    let mut pass = |executor: &mut Executor, asked: &[Action], terminating: &BTreeSet<ProviderId>| {
        // What is under way is asked for again before anything is repeated.
        turn += i32::from(terminating.is_empty());
        let told = executor.without_effect(asked, terminating);
        let now = now + REPEAT_AFTER * turn;
        let (fresh, _) = executor.fresh(asked.to_vec(), now);
        executor.act(&permit, &fresh, now, |_, _| None);
        told
    };
    let (both, none) = ([hold, end], BTreeSet::new());
    for _ in 1..10 {
        assert_eq!(pass(&mut executor, &both, &none), (0, vec![]));
        // A plan leaves out what is under way: that is no effect.
        assert_eq!(pass(&mut executor, &both[..1], &[machine.clone()].into()), (0, vec![]));
    }
    assert_eq!(pass(&mut executor, &both, &none), (0, vec![]));
    let (stuck, notes) = pass(&mut executor, &both, &none);
    let told: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert!(stuck == 2 && told[0].starts_with("terminate aws:///zone/i-1 was done 10 times"), "{told:?}");
    assert_eq!(pass(&mut executor, &both, &none), (2, vec![]), "once");
    assert_eq!(pass(&mut executor, &[], &none), (0, vec![]), "it had its effect");
    assert_eq!(pass(&mut executor, &both, &none), (0, vec![]));
}

async fn falls_over(_: fake::Call) -> fake::Answer {
    panic!("as code of others may")
}

#[tokio::test]
async fn a_change_that_falls_over_leaves_its_node_to_the_next() {
    let (_dir, permit) = permit(None);
    let broken = fake::client(falls_over);
    let mut executor = Executor::new(Clock::system(), &[], Some(Arc::new(KubeAct::new(&broken, "default"))), Arc::default());
    executor.on_cluster(&permit, NodeChange::Hold(node(1)));
    assert!(executor.under_way().changing.contains(&node(1)));
    assert!(executor.finish().await);
    assert!(executor.under_way().changing.is_empty());
}

/// A supplier whose machines' consoles nobody can read in time, or that say why a machine did not join.
struct WithConsoles {
    name: SupplierName,
    hangs: bool,
    /// What was asked of it, in order.
    asked: Mutex<Vec<String>>,
}

impl Supplier for WithConsoles {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        1
    }

    fn launch(&self, _: Timestamp, _: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        ready(Vec::new()).boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        ready(Ok(Observation::complete(now, BTreeMap::new()))).boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.asked.lock().unwrap().push("end".to_owned());
        ready(ids.into_iter().map(|id| (id, Ok(()))).collect()).boxed()
    }

    fn terminate_late(
        &self,
        _: Timestamp,
        ids: Vec<ProviderId>,
    ) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        self.asked.lock().unwrap().push("end late".to_owned());
        ready(ids.into_iter().map(|id| (id, Ok(()))).collect()).boxed()
    }

    fn console(&self, id: ProviderId) -> BoxFuture<'_, Result<Option<String>, SupplierError>> {
        self.asked.lock().unwrap().push(format!("console of {id}"));
        if self.hangs {
            return std::future::pending().boxed();
        }
        ready(Ok(Some("Linux\nno route to host\n".to_owned()))).boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        ready(Ok(MarketFacts::default())).boxed()
    }
}

/// What such a supplier is asked when two machines end, one of which did not join, and what its console said.
async fn consoles(hangs: bool) -> (Vec<String>, BTreeMap<ProviderId, String>) {
    let name = SupplierName::new("test").unwrap();
    let supplier = Arc::new(WithConsoles { name: name.clone(), hangs, asked: Mutex::default() });
    let mut executor = Executor::new(Clock::system(), &[LimitedSupplier::new(supplier.clone())], None, Arc::default());
    let (_dir, permit) = permit(None);
    let end = |id: &str, why| Action::Terminate { supplier: name.clone(), instance: ProviderId::new(id).unwrap(), why };
    let both = [end("test:///1", Ending::BootTimeout), end("test:///2", Ending::Deleted)];
    for _ in 0..2 {
        executor.act(&permit, &both, Timestamp::now(), |_, _| None);
        assert!(executor.finish().await);
    }
    let asked = supplier.asked.lock().unwrap().clone();
    (asked, executor.consoles())
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_did_not_join_is_asked_why_once_as_it_ends() {
    let (asked, said) = consoles(false).await;
    assert_eq!(asked, ["console of test:///1", "end", "end late", "end", "end late"]);
    assert_eq!(said, [(ProviderId::new("test:///1").unwrap(), "Linux | no route to host".to_owned())].into());
}

#[tokio::test(start_paused = true)]
async fn a_console_that_cannot_be_read_keeps_no_machine() {
    let begun = tokio::time::Instant::now();
    let (asked, said) = consoles(true).await;
    assert_eq!(asked.iter().filter(|what| *what == "end late").count(), 2, "{asked:?}");
    assert!(said.is_empty() && begun.elapsed().is_zero(), "{:?}", begun.elapsed());
}
