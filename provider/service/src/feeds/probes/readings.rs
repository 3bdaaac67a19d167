//! Every node's newest reading, and what has been seen of each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::digest::Digest;
use stoker_core::facts::reading::seen::{Hearing, Seen};
use stoker_core::facts::reading::{NodeEvent, NodeReading, Source};
use stoker_core::facts::snapshot::ClusterFacts;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::metrics::ProbeMetrics;
use super::reason::Reason;
use crate::clock::Clock;

/// How long changes are gathered before they are published together, as with those of the cluster.
const GATHER: Duration = Duration::from_millis(50);

/// Least time between two publications. Each wakes the loop, and a pass over 5,000 nodes takes some 20 ms: so a fleet in which something
/// changes all the time costs a twelfth of a core, not half of one.
const APART: Duration = Duration::from_millis(250);

/// How often silence is looked for.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// Periods without a reading after which a node is silent.
const MISSED: i32 = 3;

/// How often a node is read, where its source has not said.
const PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// How long a silent node is kept where nobody tells which nodes there are.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// What has been seen of each node.
pub type SeenNodes = BTreeMap<NodeName, Arc<Seen>>;

/// Something that was taken in.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
    /// The node.
    pub node: &'a NodeName,
    /// When it was read, by the node's clock: a probe that was cut off sends what it kept, minutes old. Not later than its arrival.
    pub at: Timestamp,
    /// The reading; `None` where only something happened.
    pub reading: Option<&'a Arc<NodeReading>>,
    /// What happened. A provider that restarted is told the last events of each node again.
    pub events: &'a [NodeEvent],
}

type Hook = Arc<dyn Fn(&Taken<'_>) + Send + Sync>;

/// Every node's newest reading, and what has been seen of each.
pub struct Readings {
    clock: Clock,
    wake: Arc<Notify>,
    cluster: Option<watch::Receiver<Option<Arc<ClusterFacts>>>>,
    /// Nodes of the cluster that are not Stoker's and are read all the same.
    others: ArcSwap<BTreeSet<NodeName>>,
    state: Mutex<State>,
    seen: watch::Sender<Arc<SeenNodes>>,
    seen_of_others: watch::Sender<Arc<SeenNodes>>,
    news: Notify,
    hooks: ArcSwap<Vec<Hook>>,
    metrics: ProbeMetrics,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").field("nodes", &self.state().nodes.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    nodes: HashMap<NodeName, Node>,
    /// What is to be published, and since when.
    changed: BTreeMap<NodeName, Instant>,
}

struct Node {
    digest: Digest,
    latest: Option<Arc<NodeReading>>,
    heard: Timestamp,
    periods: Periods,
}

/// How often each source reads a node: one that stands in for the other keeps to its own.
struct Periods {
    probe: SignedDuration,
    prometheus: SignedDuration,
}

impl Periods {
    const fn of(&self, source: Source) -> SignedDuration {
        match source {
            Source::Probe => self.probe,
            Source::Prometheus => self.prometheus,
        }
    }

    const fn set(&mut self, source: Source, period: SignedDuration) {
        match source {
            Source::Probe => self.probe = period,
            Source::Prometheus => self.prometheus = period,
        }
    }
}

impl Readings {
    /// Of no node yet. `cluster`: the nodes that there are; without it, any node is believed in. Wakes `wake` when something changed.
    pub fn new(
        clock: Clock,
        cluster: Option<watch::Receiver<Option<Arc<ClusterFacts>>>>,
        wake: Arc<Notify>,
        metrics: ProbeMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            wake,
            cluster,
            others: ArcSwap::default(),
            state: Mutex::default(),
            seen: watch::Sender::default(),
            seen_of_others: watch::Sender::default(),
            news: Notify::new(),
            hooks: ArcSwap::default(),
            metrics,
        })
    }

    /// Reads these nodes too, though they are not Stoker's; those that were named before and are not now are forgotten.
    pub fn take_also(&self, nodes: BTreeSet<NodeName>) {
        if **self.others.load() != nodes {
            self.others.store(Arc::new(nodes));
        }
    }

    /// Whether the cluster has that node.
    ///
    /// # Errors
    /// [`Reason::UnknownNode`] where it has not, [`Reason::NotReady`] where nothing is known of the cluster yet.
    pub fn knows(&self, node: &NodeName) -> Result<(), Reason> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        match cluster.borrow().as_ref() {
            Some(facts) if facts.nodes.contains_key(node) || self.others.load().contains(node) => Ok(()),
            Some(_) => Err(Reason::UnknownNode),
            None => Err(Reason::NotReady),
        }
    }

    /// A source begins to read a node, that often; of another boot than before, the node is seen anew.
    ///
    /// # Errors
    /// Those of [`knows`](Self::knows).
    pub fn expect(&self, node: &NodeName, source: Source, period: SignedDuration, boot: Option<&str>) -> Result<(), Reason> {
        self.knows(node)?;
        let now = self.clock.now();
        let mut state = self.state();
        let known = state.nodes.entry(node.clone()).or_insert_with(|| Node::new(source, now));
        known.periods.set(source, period);
        if outranked(known, source) {
            return Ok(());
        }
        if boot.is_some_and(|boot| known.digest.booted(boot, now)) {
            known.heard = now;
            state.note(node);
            self.news.notify_one();
        }
        Ok(())
    }

    /// Takes a reading and what happened beside it. Never waits.
    ///
    /// A reading by Prometheus of a node whose probe is heard is left: the probe knows better.
    ///
    /// # Errors
    /// [`Reason::UnknownNode`].
    #[expect(clippy::needless_pass_by_value, reason = "whoever takes readings hands them over")]
    pub fn take(&self, node: &NodeName, reading: NodeReading, events: Vec<NodeEvent>) -> Result<(), Reason> {
        let at = reading.arrived;
        self.take_at(node, at, Some(reading), &events)
    }

    /// [`take`](Self::take) of what was read at another time than it arrived, or of events alone.
    ///
    /// # Errors
    /// [`Reason::UnknownNode`].
    pub fn take_at(
        &self,
        node: &NodeName,
        at: Timestamp,
        reading: Option<NodeReading>,
        events: &[NodeEvent],
    ) -> Result<(), Reason> {
        let held = match &self.cluster {
            Some(cluster) => {
                let facts = cluster.borrow();
                match facts.as_ref().and_then(|facts| facts.nodes.get(node)) {
                    Some(known) => Some(known.is_busy()),
                    None if self.others.load().contains(node) => None,
                    None => return Err(self.reject(Reason::UnknownNode)),
                }
            }
            None => None,
        };
        let reading = reading.map(Arc::new);
        let source = reading.as_ref().map_or(Source::Probe, |reading| reading.source);
        {
            let mut state = self.state();
            let known = state.nodes.entry(node.clone()).or_insert_with(|| Node::new(source, self.clock.now()));
            if outranked(known, source) {
                return Ok(());
            }
            let mut changed = false;
            for event in events {
                changed |= known.digest.happened(event);
            }
            if let Some(reading) = &reading {
                // One that was never read is no news: every node begins so.
                if !known.is_heard() && known.latest.is_some() {
                    tracing::info!(node = %node, last = %known.heard, "it is read again");
                }
                changed |= known.digest.read(reading, held);
                known.heard = known.heard.max(reading.arrived);
                known.latest = Some(Arc::clone(reading));
            }
            if changed {
                state.note(node);
                self.news.notify_one();
            }
        }
        self.metrics.took(u64::from(reading.is_some()), events.len());
        let hooks = self.hooks.load();
        if !hooks.is_empty() {
            let at = reading.as_ref().map_or(at, |reading| at.min(reading.arrived));
            let taken = Taken { node, at, reading: reading.as_ref(), events };
            hooks.iter().for_each(|hook| hook(&taken));
        }
        Ok(())
    }

    /// Calls `hook` with all that is taken from now on, in the order of each node. It must not wait: the node's source waits for it.
    pub fn follow(&self, hook: impl Fn(&Taken<'_>) + Send + Sync + 'static) {
        let hook: Hook = Arc::new(hook);
        self.hooks.rcu(|hooks| hooks.iter().cloned().chain([Arc::clone(&hook)]).collect::<Vec<_>>());
    }

    /// The newest reading of each node, for people: of a silent node the last that came. Look at its `arrived`.
    pub fn latest(&self) -> BTreeMap<NodeName, Arc<NodeReading>> {
        let state = self.state();
        state.nodes.iter().filter_map(|(name, node)| Some((name.clone(), Arc::clone(node.latest.as_ref()?)))).collect()
    }

    /// What has been seen of each node, now and whenever it changes.
    pub fn seen(&self) -> watch::Receiver<Arc<SeenNodes>> {
        self.seen.subscribe()
    }

    /// The same of nodes that are read though they are not Stoker's. No decision goes by it, and none is woken.
    pub fn seen_of_others(&self) -> Arc<SeenNodes> {
        Arc::clone(&self.seen_of_others.borrow())
    }

    /// Whether anything is known of that node.
    pub fn has(&self, node: &NodeName) -> bool {
        self.state().nodes.contains_key(node)
    }

    /// Whether readings of that node come.
    pub fn hears(&self, node: &NodeName) -> bool {
        self.state().nodes.get(node).is_some_and(Node::is_heard)
    }

    /// What has been seen of one node up to now, not up to the last publication.
    pub fn seen_of(&self, node: &NodeName) -> Option<Seen> {
        self.state().nodes.get(node).map(|known| known.digest.seen().clone())
    }

    /// Publishes changes and looks for silence, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let next_look = |now: Timestamp| now.saturating_add(LOOK_EVERY).unwrap_or(Timestamp::MAX);
        let mut look_at = next_look(self.clock.now());
        let mut published = tokio::time::Instant::now();
        loop {
            look_at = look_at.min(next_look(self.clock.now()));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.news.notified() => {
                    let now = tokio::time::Instant::now();
                    tokio::time::sleep_until((now + GATHER).max(published + APART)).await;
                    self.publish();
                    published = tokio::time::Instant::now();
                }
                () = self.clock.sleep_until(look_at) => {
                    let now = self.clock.now();
                    self.look(now);
                    look_at = next_look(now);
                }
            }
        }
    }

    /// Finds the nodes that have fallen silent, and forgets those that the cluster has no more; without a cluster, those silent for a day.
    pub fn look(&self, now: Timestamp) {
        let facts = self.cluster.as_ref().map(|cluster| cluster.borrow().clone());
        let others = self.others.load_full();
        let mut state = self.state();
        let State { nodes, changed } = &mut *state;
        nodes.retain(|name, node| {
            let stays = match &facts {
                Some(Some(facts)) => facts.nodes.contains_key(name) || others.contains(name),
                // Nothing is known of the cluster yet.
                Some(None) => true,
                None => now.duration_since(node.heard) <= REMEMBERED,
            };
            if !stays {
                changed.entry(name.clone()).or_insert_with(Instant::now);
            }
            stays
        });
        let (mut silent, mut oldest) = (0, now);
        for (name, node) in nodes.iter_mut() {
            let late = now.duration_since(node.heard) > node.periods.of(node.digest.seen().source) * MISSED;
            if late && node.digest.silent(node.heard, now) {
                tracing::warn!(node = %name, last = %node.heard, "no more readings: its activity is unknown");
                changed.entry(name.clone()).or_insert_with(Instant::now);
            }
            silent += usize::from(!node.is_heard());
            oldest = oldest.min(node.heard);
        }
        self.metrics.standing(nodes.len(), silent, now.duration_since(oldest).try_into().unwrap_or_default());
        if !changed.is_empty() {
            self.news.notify_one();
        }
    }

    /// Publishes what has changed.
    pub fn publish(&self) {
        let mut state = self.state();
        let changed = std::mem::take(&mut state.changed);
        if changed.is_empty() {
            return;
        }
        let others = self.others.load();
        let (of_others, own): (Vec<_>, Vec<_>) = changed.keys().partition(|name| others.contains(*name));
        let published = |seen: &SeenNodes, names: &[&NodeName], of_theirs: &[&NodeName]| {
            let mut seen = seen.clone();
            for name in names {
                match state.nodes.get(*name) {
                    Some(node) => seen.insert((*name).clone(), Arc::new(node.digest.seen().clone())),
                    None => seen.remove(*name),
                };
            }
            // One that has changed sides is known on one alone.
            seen.retain(|name, _| !of_theirs.contains(&name));
            Arc::new(seen)
        };
        if !of_others.is_empty() || !self.seen_of_others.borrow().is_empty() {
            let seen = published(&self.seen_of_others.borrow(), &of_others, &own);
            self.seen_of_others.send_replace(seen);
        }
        if !own.is_empty() {
            let seen = published(&self.seen.borrow(), &own, &of_others);
            self.seen.send_replace(seen);
            self.wake.notify_one();
        }
        drop(state);
        for since in changed.values() {
            self.metrics.published(since.elapsed());
        }
    }

    /// Counts something that is not taken.
    pub fn reject(&self, reason: Reason) -> Reason {
        self.metrics.rejected(reason);
        reason
    }

    /// What is counted.
    pub const fn metrics(&self) -> &ProbeMetrics {
        &self.metrics
    }

    /// The time by which readings are aged, and what the wall shows.
    pub fn times(&self) -> Times {
        self.clock.times()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, node: &NodeName) {
        if !self.changed.contains_key(node) {
            self.changed.insert(node.clone(), Instant::now());
        }
    }
}

impl Node {
    const fn new(source: Source, now: Timestamp) -> Self {
        Self {
            digest: Digest::new(source, now),
            latest: None,
            heard: now,
            periods: Periods { probe: PERIOD, prometheus: PERIOD },
        }
    }

    const fn is_heard(&self) -> bool {
        matches!(self.digest.seen().hearing, Hearing::Heard { .. })
    }
}

/// Whether another source, which is heard, knows better.
const fn outranked(known: &Node, source: Source) -> bool {
    matches!((known.digest.seen().source, source), (Source::Probe, Source::Prometheus)) && known.is_heard()
}
