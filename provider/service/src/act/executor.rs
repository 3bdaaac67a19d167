//! Does what a checked plan says, and nothing else. It has no choice to make: what to buy, where and under which key is settled.

mod action_key;
mod nodes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{LaunchKey, NodeGroupId, NodeName, ProviderId, RecordId, SupplierName};
use stoker_core::catalogue::group::Group;
use stoker_core::facts::snapshot::{Drained, Snapshot};
use stoker_core::facts::supply::LaunchOutcome;
use stoker_core::plan::{Action, Ending, Note};
use stoker_core::state::node_status::StatusUpdate;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use self::action_key::{ActionKey, NodeChange, Pods, action_key};
use self::nodes::{Cluster, InFlightGuard, drain};
use super::permit::Permit;
use super::status_writer::StatusWriter;
use crate::clock::Clock;
use crate::failpoints;
use crate::kube::act::KubeAct;
use crate::suppliers::{Launch, LimitedSupplier};

/// Launches in one call to a supplier: a failed call then makes at most so many launches unclear.
const LAUNCH_BATCH: usize = 20;

/// A termination or a change to a Node is not repeated sooner: feeds need a moment to show that it was done.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// So many times an action is done before it is told that it has no effect: over a minute, in which any feed shows one.
const NO_EFFECT: u32 = 10;

/// What is under way, and what came of what was.
#[derive(Debug, Clone, Default)]
pub struct UnderWay {
    /// How launches ended, until a pass has absorbed it.
    pub outcomes: BTreeMap<LaunchKey, LaunchOutcome>,
    /// Launches asked and not answered.
    pub launching: BTreeSet<LaunchKey>,
    /// Terminations asked and not answered.
    pub terminating: BTreeSet<ProviderId>,
    /// What came of draining nodes, until a pass has absorbed it.
    pub drains: BTreeMap<NodeName, Drained>,
    /// Nodes that are being changed.
    pub changing: BTreeSet<NodeName>,
    /// Nodes that are being emptied because the cloud takes them. A lesser change may be under way beside that.
    pub emptying_urgently: BTreeSet<NodeName>,
    /// What machines that did not join wrote to their consoles last, until somebody is told.
    pub consoles: BTreeMap<ProviderId, String>,
}

impl UnderWay {
    /// Whether a change has to wait for another on the same node: what that comes to is seen before the next is done. What the cloud takes
    /// waits for no lesser one, which may be long in its turn.
    fn is_in_the_way_of(&self, key: &ActionKey) -> bool {
        let is_of = |node: &NodeName| node.as_str() == key.about();
        self.emptying_urgently.iter().any(is_of) || (!key.is_urgent() && self.changing.iter().any(is_of))
    }
}

/// How often an action was done that plans ask for all the time.
#[derive(Default)]
struct Done {
    times: u32,
    /// Whether somebody was told that it has no effect.
    told: bool,
}

/// Does the actions of checked plans.
pub struct Executor {
    clock: Clock,
    suppliers: BTreeMap<SupplierName, (LimitedSupplier, Arc<Semaphore>)>,
    kube: Option<Cluster>,
    status_writer: Option<StatusWriter>,
    wake: Arc<Notify>,
    under_way: Arc<Mutex<UnderWay>>,
    /// The last change on each machine or node, so that the opposite change is never taken for a repetition.
    done_lately: HashMap<String, (ActionKey, Timestamp)>,
    /// How often each action was done that plans ask for all the time.
    repeated: BTreeMap<ActionKey, Done>,
    tasks: JoinSet<()>,
    /// Looks at consoles, which nobody waits for.
    looks: JoinSet<()>,
}

impl Executor {
    /// An executor that talks to these suppliers, and to the cluster where there is one.
    pub fn new(clock: Clock, suppliers: &[LimitedSupplier], kube: Option<Arc<KubeAct>>, wake: Arc<Notify>) -> Self {
        let suppliers =
            suppliers.iter().map(|s| (s.name().clone(), (s.clone(), Arc::new(Semaphore::new(s.max_in_flight()))))).collect();
        let status_writer = kube.clone().map(|act| StatusWriter::new(act, clock.clone()));
        let kube = kube.map(Cluster::new);
        Self {
            clock,
            suppliers,
            kube,
            status_writer,
            wake,
            under_way: Arc::default(),
            done_lately: HashMap::new(),
            repeated: BTreeMap::new(),
            tasks: JoinSet::new(),
            looks: JoinSet::new(),
        }
    }

    /// What is under way now.
    pub fn under_way(&self) -> UnderWay {
        lock(&self.under_way).clone()
    }

    /// The outcomes in `snapshot` have been absorbed and written down.
    pub fn absorbed(&self, snapshot: &Snapshot) {
        if !snapshot.outcomes.is_empty() {
            failpoints::point("outcome.noted");
        }
        let mut under_way = lock(&self.under_way);
        for (key, absorbed) in &snapshot.outcomes {
            if under_way.outcomes.get(key) == Some(absorbed) {
                under_way.outcomes.remove(key);
            }
        }
        under_way.drains.retain(|node, told| snapshot.drains.get(node) != Some(told));
    }

    /// The actions that were not done a moment ago, and the others.
    pub fn fresh(&mut self, actions: Vec<Action>, now: Timestamp) -> (Vec<Action>, Vec<Action>) {
        self.done_lately.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_AFTER);
        let under_way = lock(&self.under_way);
        let repeated = |action: &Action| {
            action_key(action).is_some_and(|key| {
                under_way.is_in_the_way_of(&key) || self.done_lately.get(key.about()).is_some_and(|(last, _)| *last == key)
            })
        };
        actions.into_iter().partition(|action| !repeated(action))
    }

    /// Actions that were done ten times or more and still have to be, and what to tell of those that nobody was told of. What the plan does
    /// not ask for any more has had its effect, but for terminations under way, which it leaves out.
    pub fn without_effect(&mut self, asked: &[Action], terminating: &BTreeSet<ProviderId>) -> (usize, Vec<Note>) {
        let asked: HashSet<ActionKey> = asked.iter().filter_map(action_key).collect();
        let under_way = |key: &ActionKey| matches!(key, ActionKey::Terminate(machine) if terminating.contains(machine));
        self.repeated.retain(|key, _| asked.contains(key) || under_way(key));
        let stuck = || self.repeated.iter().filter(|(_, done)| done.times >= NO_EFFECT);
        let notes = stuck().filter(|(_, done)| !done.told).map(|(key, done)| Note::NoEffect {
            action: key.verb().to_owned(),
            about: key.about().to_owned(),
            times: done.times,
        });
        (stuck().count(), notes.collect())
    }

    /// What machines that did not join wrote to their consoles last; each once.
    pub fn consoles(&self) -> BTreeMap<ProviderId, String> {
        std::mem::take(&mut lock(&self.under_way).consoles)
    }

    /// Begins to do the actions, if this process still may.
    /// `first_asked` knows the group that a record's launch is for, and when it was first asked for.
    pub fn act(
        &mut self,
        permit: &Arc<Permit>,
        actions: &[Action],
        now: Timestamp,
        first_asked: impl Fn(RecordId, &NodeGroupId) -> Option<(Arc<Group>, Timestamp)>,
    ) {
        if !permit.is_valid() {
            tracing::warn!(actions = actions.len(), "another replica may lead: nothing of the plan is done");
            return;
        }
        while self.tasks.try_join_next().is_some() {}
        while self.looks.try_join_next().is_some() {}
        // What was to be told is written down by now.
        self.repeated.values_mut().filter(|done| done.times >= NO_EFFECT).for_each(|done| done.told = true);
        let mut launches: BTreeMap<&SupplierName, Vec<Launch>> = BTreeMap::new();
        let mut endings: BTreeMap<(&SupplierName, bool), Vec<ProviderId>> = BTreeMap::new();
        for action in actions {
            let mut is_first = false;
            if let Some(key) = action_key(action) {
                // A drain takes as long as its pods do, and is given up by rules of its own.
                if !matches!(key, ActionKey::Drain(..)) {
                    let done = self.repeated.entry(key.clone()).or_default();
                    done.times += 1;
                    is_first = done.times == 1;
                }
                self.done_lately.insert(key.about().to_owned(), (key, now));
            }
            match action {
                Action::Launch { record, supplier, request, .. } => {
                    if let Some((group, first_asked)) = first_asked(*record, &request.group) {
                        launches.entry(supplier).or_default().push(Launch::of(request.clone(), &group, first_asked));
                    } else {
                        // A node without its labels and taints would take pods that are not for it.
                        tracing::error!(group = %request.group, "a plan launches for a group that nobody knows; it waits");
                    }
                }
                Action::Terminate { supplier, instance, why } => {
                    let late = *why == Ending::BootTimeout;
                    if late && is_first {
                        self.look_at_console(supplier, instance);
                    }
                    endings.entry((supplier, late)).or_default().push(instance.clone());
                }
                Action::Hold { node, .. } => self.on_cluster(permit, NodeChange::Hold(node.clone())),
                Action::Release { node } => self.on_cluster(permit, NodeChange::Release(node.clone())),
                Action::Drain { node, provider_id, evict, gone_by, .. } => {
                    let pods = Pods { evict: *evict, gone_by: *gone_by };
                    self.on_cluster(permit, NodeChange::Drain(node.clone(), provider_id.clone(), pods));
                }
                Action::Uncordon { node, provider_id } => {
                    self.on_cluster(permit, NodeChange::Uncordon(node.clone(), provider_id.clone()));
                }
                Action::RemoveNode { node, provider_id } => {
                    self.on_cluster(permit, NodeChange::Remove(node.clone(), provider_id.clone()));
                }
            }
        }
        for (supplier, requests) in launches {
            for batch in requests.chunks(LAUNCH_BATCH) {
                self.launch(permit, supplier, batch.to_vec());
            }
        }
        for ((supplier, late), ids) in endings {
            self.terminate(permit, supplier, ids, late);
        }
    }

    /// Begins to tell Nodes their verdicts. Nothing waits for that.
    pub fn tell(&mut self, permit: &Permit, tells: Vec<StatusUpdate>, now: Timestamp) {
        if let Some(status_writer) = self.status_writer.as_mut().filter(|_| permit.is_valid()) {
            status_writer.tell(tells, now);
        }
    }

    /// Waits until nothing is under way; whether anything was.
    pub async fn finish(&mut self) -> bool {
        let mut any = false;
        while self.tasks.join_next().await.is_some() {
            any = true;
        }
        any
    }

    /// Gives up all that is under way: another replica goes on with it.
    pub fn abandon(&mut self) {
        self.tasks.abort_all();
        self.looks.abort_all();
    }

    fn launch(&mut self, permit: &Arc<Permit>, supplier: &SupplierName, batch: Vec<Launch>) {
        let Some((supplier, permits)) = self.suppliers.get(supplier).cloned() else {
            tracing::error!(%supplier, "a plan names a supplier that is not configured; its launches wait");
            return;
        };
        lock(&self.under_way).launching.extend(batch.iter().map(|launch| launch.request.key.clone()));
        let permit = Arc::clone(permit);
        let (under_way, wake, clock) = (Arc::clone(&self.under_way), Arc::clone(&self.wake), self.clock.clone());
        self.tasks.spawn(async move {
            // The semaphore is never closed.
            let _turn = permits.acquire().await;
            let keys: Vec<LaunchKey> = batch.iter().map(|launch| launch.request.key.clone()).collect();
            failpoints::point("launch.before");
            // It may have waited for long.
            let outcomes = if permit.is_valid() { supplier.launch(clock.now(), batch).await } else { Vec::new() };
            failpoints::point("launch.after");
            let mut under_way = lock(&under_way);
            for key in &keys {
                under_way.launching.remove(key);
            }
            let now = clock.now();
            let outcomes = outcomes.into_iter().map(|(key, outcome)| (key, outcome.happened_by(now)));
            let mut answered: BTreeMap<LaunchKey, LaunchOutcome> = outcomes.collect();
            for key in keys {
                let outcome = answered
                    .remove(&key)
                    .unwrap_or_else(|| LaunchOutcome::unclear("the supplier's answer does not mention this launch"));
                if let LaunchOutcome::Unclear { message, .. } = &outcome {
                    tracing::warn!(%key, message, "launch outcome unknown; retrying with the same key");
                }
                under_way.outcomes.insert(key, outcome);
            }
            drop(under_way);
            wake.notify_one();
        });
    }

    /// Asks what a machine wrote last before it goes. Its end does not wait for that: consoles can be read for a while after it.
    fn look_at_console(&mut self, supplier: &SupplierName, machine: &ProviderId) {
        let Some((supplier, _)) = self.suppliers.get(supplier).cloned() else { return };
        let (under_way, wake, machine) = (Arc::clone(&self.under_way), Arc::clone(&self.wake), machine.clone());
        self.looks.spawn(async move {
            let Some(tail) = supplier.console(&machine).await else { return };
            lock(&under_way).consoles.insert(machine, tail);
            wake.notify_one();
        });
    }

    fn terminate(&mut self, permit: &Arc<Permit>, supplier: &SupplierName, ids: Vec<ProviderId>, late: bool) {
        let Some((supplier, permits)) = self.suppliers.get(supplier).cloned() else { return };
        lock(&self.under_way).terminating.extend(ids.iter().cloned());
        let permit = Arc::clone(permit);
        let (under_way, wake, clock) = (Arc::clone(&self.under_way), Arc::clone(&self.wake), self.clock.clone());
        self.tasks.spawn(async move {
            let _turn = permits.acquire().await;
            failpoints::point("terminate.before");
            let (now, all) = (clock.now(), ids.clone());
            let results = match (permit.is_valid(), late) {
                (false, _) => Vec::new(),
                (true, true) => supplier.terminate_late(now, all).await,
                (true, false) => supplier.terminate(now, all).await,
            };
            failpoints::point("terminate.after");
            for (instance, result) in results {
                if let Err(error) = result {
                    tracing::warn!(%instance, %error, "termination failed; retrying");
                }
            }
            let mut under_way = lock(&under_way);
            for id in &ids {
                under_way.terminating.remove(id);
            }
            drop(under_way);
            wake.notify_one();
        });
    }

    fn on_cluster(&mut self, permit: &Arc<Permit>, change: NodeChange) {
        let Some(cluster) = &self.kube else { return };
        let (kube, permits) = (Arc::clone(&cluster.act), Arc::clone(cluster.permits(&change)));
        let (under_way, wake, clock) = (Arc::clone(&self.under_way), Arc::clone(&self.wake), self.clock.clone());
        let in_flight = InFlightGuard::new(&under_way, &change, wake);
        let permit = Arc::clone(permit);
        self.tasks.spawn(async move {
            let _in_flight = in_flight;
            let _turn = permits.acquire().await;
            if !permit.is_valid() {
                return;
            }
            let (node, done) = match &change {
                NodeChange::Hold(node) => (node, kube.hold(node).await.map(drop)),
                NodeChange::Release(node) => (node, kube.release(node).await.map(drop)),
                NodeChange::Drain(node, machine, pods) => (node, drain(&kube, node, machine, *pods, &clock, &under_way).await),
                NodeChange::Uncordon(node, machine) => (node, kube.uncordon(node, machine).await.map(drop)),
                NodeChange::Remove(node, provider_id) => (node, kube.delete_node(node, provider_id).await.map(drop)),
            };
            if let Err(error) = done {
                tracing::warn!(%node, %error, "changing the Node failed; retrying");
            }
        });
    }
}

/// What is under way is plain data that each holder leaves whole, so a holder's panic does not spoil it.
fn lock(under_way: &Mutex<UnderWay>) -> MutexGuard<'_, UnderWay> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
