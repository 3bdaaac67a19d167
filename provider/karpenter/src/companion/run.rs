//! The companion at work: it watches, looks, and writes.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher::Event;
use stoker_core::base::engine_clock::Times;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::karpenter::{BesideKarpenter, Lever};
use stoker_service::kube::act::{About, KubeAct, Severity};
use stoker_service::kube::feed::{WatchHealth, WatchedKind, config, follow};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::faults::{Faults, Known, Said};
use super::floors::FloorKeeper;
use super::marks::{FIELD_MANAGER, Field};
use super::repair::{self, Probed};
use super::tables::Tables;
use super::write::{NodeChange, Part, PoolChange, Writer};
use super::{Companion, Inputs, Look, State, Used, prices};
use crate::objects::{NODE_POOL, Node, NodeClaim, NodeOverlay, NodePool, name};

/// How often it is looked what is to be written.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// `NodePools` are written in one go, and not sooner again: each write has Karpenter look at all of its nodes anew.
const BURST_EVERY: Duration = Duration::from_secs(30);

/// How often the Lease is renewed.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// Most Nodes written in one look: a fleet is protected in a minute, and the API server does not notice.
const MOST_NODES: usize = 100;

/// How long the Nodes of one look may be written; the next goes on.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Most Nodes of one look whose change may fail.
const MOST_FAILED: usize = 5;

/// How long prices of commitments stand while it is not known what is used.
const BLIND_FOR: Duration = Duration::from_mins(1);

/// Nothing is written where the Lease could not be renewed for so long.
const UNATTENDED_AFTER: Duration = Duration::from_mins(1);

impl Companion {
    /// Steers for ever, from when the policy first asks.
    pub async fn run(self) {
        while !(self.view)().catalogue.policy.karpenter.steers() {
            sleep(LOOK_EVERY).await;
        }
        let health =
            [WatchedKind::NodePools, WatchedKind::NodeClaims, WatchedKind::Nodes].map(|kind| Arc::new(WatchHealth::new(kind)));
        let [of_pools, of_claims, of_nodes] = health.clone();
        let of_overlays = Arc::new(WatchHealth::new(WatchedKind::NodeOverlays));
        let mut overlays = pin!(follow::<NodeOverlay>(&self.client, config(), Arc::clone(&of_overlays)));
        let mut pools = pin!(follow::<NodePool>(&self.client, config(), of_pools));
        let mut claims = pin!(follow::<NodeClaim>(&self.client, config(), of_claims));
        let mut nodes = pin!(follow::<Node>(&self.client, config().labels(NODE_POOL), of_nodes));
        let mut running = Running::new(&self.client, self.replicas.as_ref());
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = pools.next() => running.tables.pools.take(event),
                Some(event) = claims.next() => running.tables.claims.take(event),
                Some(event) = nodes.next() => running.tables.nodes.take(event),
                Some(event) = overlays.next() => running.tables.overlays.take(event),
                _ = tick.tick() => {
                    let has_no_overlays = of_overlays.broken().is_some();
                    let mut faults = running.turn(&self, &health, has_no_overlays).await;
                    // Not every Karpenter has them.
                    let prices = (self.view)().catalogue.policy.karpenter.has(Lever::Prices);
                    if let Some(broken) = of_overlays.broken().filter(|_| prices) {
                        let cure = "apply manifests/karpenter/steering.yaml; it needs Karpenter 1.7 or later";
                        faults.add("the watch of NodeOverlays", format!("{broken}: {cure}"));
                    }
                    self.metrics.not_steered(faults.0.len());
                    running.tell(&self.act, faults).await;
                }
            }
        }
    }
}

/// A companion at work.
struct Running {
    tables: Tables,
    state: State,
    writer: Writer,
    holder: String,
    /// When `NodePools` were last written.
    burst: Option<Instant>,
    /// What that burst has left to write, by `NodePool`.
    unfinished: BTreeSet<(String, Part)>,
    /// When prices were.
    priced: Option<Instant>,
    beat: Option<Instant>,
    /// Since when it is not known what is used, or what Karpenter has.
    blind: Option<Instant>,
    /// Why prices could not be written, until they are written again.
    unpriced: Faults,
    /// Why `NodePools` could not be written, until they are written again.
    refused: Faults,
    /// What was wrong at the last look.
    known: Known,
    floors: FloorKeeper,
}

impl Running {
    fn new(client: &Client, replicas: Option<&String>) -> Self {
        // A pod's own; a container of it that is started again is the same.
        let pod = || std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        let holder = replicas.cloned().or_else(pod).unwrap_or_else(|| format!("{FIELD_MANAGER}-{}", std::process::id()));
        Self {
            tables: Tables::default(),
            state: State::default(),
            writer: Writer::new(client, false),
            holder,
            burst: None,
            unfinished: BTreeSet::new(),
            priced: None,
            beat: None,
            blind: None,
            unpriced: Faults::default(),
            refused: Faults::default(),
            known: Known::default(),
            floors: FloorKeeper::new(client),
        }
    }

    /// Looks, tells the decisions, and writes; what is wrong.
    async fn turn(&mut self, companion: &Companion, health: &[Arc<WatchHealth>], has_no_overlays: bool) -> Faults {
        let view = (companion.view)();
        let (policy, now) = (&view.catalogue.policy, Instant::now());
        let mut faults = Faults::default();
        for broken in health.iter().filter_map(|health| health.broken()) {
            let why =
                format!("{broken}: apply manifests/karpenter/steering.yaml; it needs Karpenter 1.0 or later (karpenter.sh/v1)");
            faults.add(format!("the watch of {}", broken.watched), why);
        }
        let writes = !policy.karpenter.dry_run && policy.karpenter.steers();
        let all_stand = faults.0.is_empty();
        let is_blind = !all_stand || view.ready.is_err();
        self.blind = if is_blind { self.blind.or(Some(now)) } else { None };
        let long_blind = self.blind.is_some_and(|since| now.duration_since(since) >= BLIND_FOR);
        if writes && !long_blind && self.beat.is_none_or(|at| now.duration_since(at) >= BEAT_EVERY) {
            match self.writer.beat(&self.holder, Timestamp::now()).await {
                Ok(()) => self.beat = Some(now),
                Err(why) => faults.add("Lease", why),
            }
        }
        if !policy.karpenter.promises() {
            companion.promised.send_if_modified(|known| known.take().is_some());
        }
        // What was known last stands, and nothing is changed in the dark; but a price that may have no room any more is worse than none.
        if long_blind && self.beat.is_some() {
            let covered: Vec<String> = self.tables.facts().into_iter().flat_map(prices::covered).map(str::to_owned).collect();
            self.remove(&covered).await;
            faults.add_all(&self.unpriced);
            self.in_the_dark(&mut faults).await;
        }
        let Some(facts) = self.tables.facts().filter(|_| all_stand) else {
            faults.add_all(&self.known.of_objects());
            return faults;
        };
        let occupied = companion.feed.occupied().borrow().clone().filter(|_| companion.feed.healthy());
        let used = Used::of(&view.memory, &view.catalogue, Times { now: view.at, wall: view.wall });
        let (book, used, occupied) = (companion.book.as_ref(), used.as_ref(), occupied.as_deref());
        // In a dry run nothing is wanted, so what was written before is given back.
        let live = view.catalogue.policy_at(view.wall);
        let nothing = live.karpenter.dry_run.then(|| Policy { karpenter: BesideKarpenter::default(), ..live.as_ref().clone() });
        let policy = nothing.as_ref().unwrap_or(&live);
        let seen = companion.readings.seen_of_others();
        let probed = Some(Probed { seen: &seen, now: companion.readings.times().now });
        let floors = view.ready.is_ok().then_some(view.accounts.floors.as_slice());
        let mut look = self.state.look(&Inputs { facts, policy, book, used, occupied, floors, has_no_overlays, probed, now });
        faults.add_all(&look.faults);
        companion.readings.take_also(std::mem::take(&mut look.watched));
        if let Some(promised) = look.promised.take().filter(|_| policy.karpenter.promises()) {
            companion.promised.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&promised);
                *known = Some(promised);
                changed
            });
        }
        // What nobody looks after is cleaned up by others: nothing new is written then.
        let is_attended = self.beat.is_some_and(|at| now.duration_since(at) < UNATTENDED_AFTER);
        if writes && !is_attended {
            return faults;
        }
        // Before the first decision nobody knows what Stoker's own nodes are.
        if view.ready.is_ok() {
            self.write_pools(&look, now).await;
            faults.add_all(&self.refused);
            self.write_prices(&look, now).await;
            faults.add_all(&self.unpriced);
            faults.add_all(self.floors.keep(&look.floors, &self.writer, now).await);
        }
        let guards = look.nodes.iter().map(|(name, change)| (name, NodeChange::Guard(change))).collect();
        self.write_nodes(guards, &mut faults).await;
        let conditions = look.repairs.iter().map(|(name, change)| (name, NodeChange::Condition(change))).collect();
        self.write_nodes(conditions, &mut faults).await;
        faults
    }

    async fn write_pools(&mut self, look: &Look, now: Instant) {
        let due = self.burst.is_none_or(|at| now.duration_since(at) >= BURST_EVERY);
        // What has been promised to a NodePool by its weight may be gone: that is taken back at once.
        let at_once = |change: &PoolChange<'_>| matches!(change, PoolChange::Back(Field::Weight, _));
        let limits = look.limits.iter().map(|(name, mark)| (name, PoolChange::Limits(mark)));
        let limits = limits.chain(look.given_back.iter().map(|(name, mark)| (name, PoolChange::LimitsBack(mark))));
        let set = look.fields.set.iter().map(|(name, field, mark)| (name, PoolChange::Set(*field, mark)));
        let back = look.fields.given_back.iter().map(|(name, field, mark)| (name, PoolChange::Back(*field, mark)));
        let changes: Vec<_> = limits.chain(set).chain(back).collect();
        let none = changes.is_empty();
        if due || none {
            self.refused = Faults::default();
        }
        let unfinished = std::mem::take(&mut self.unfinished);
        if due && !none {
            self.burst = Some(now);
        }
        let is_now = |(name, change): &(&String, PoolChange<'_>)| {
            due || at_once(change) || unfinished.contains(&((*name).clone(), change.part()))
        };
        let changes: Vec<_> = changes.into_iter().filter(is_now).collect();
        for (name, change) in changes {
            let Some(pool) = self.tables.facts().and_then(|facts| facts.pools.get(name)) else { continue };
            match self.writer.change(pool, change).await {
                Ok(Some(written)) => {
                    tracing::info!(node_pool = name, "{change}");
                    match change {
                        PoolChange::Limits(_) => self.state.rewrites.entry(name.clone()).or_default().wrote(),
                        PoolChange::LimitsBack(_) => self.state.rewrites.entry(name.clone()).or_default().gave_back(),
                        PoolChange::Set(field, _) => {
                            self.state.field_rewrites.entry((field, name.clone())).or_default().wrote();
                        }
                        PoolChange::Back(field, _) => {
                            self.state.field_rewrites.entry((field, name.clone())).or_default().gave_back();
                        }
                    }
                    self.tables.pools.take(Event::Apply(written));
                }
                // Somebody else has changed it meanwhile, as Karpenter does after each change of ours: the next look goes on with it.
                Ok(None) => drop(self.unfinished.insert((name.clone(), change.part()))),
                Err(why) => self.refused.add(format!("NodePool {name}"), why),
            }
        }
    }

    /// Gives back what does harm while nobody sees: the weights of `NodePools` that a commitment covered, and the conditions of Nodes to which
    /// pods may have come.
    async fn in_the_dark(&mut self, faults: &mut Faults) {
        let facts = self.tables.facts();
        let first: Vec<NodePool> = facts
            .into_iter()
            .flat_map(|facts| facts.pools.values())
            .filter(|pool| prices::comes_first(pool))
            .cloned()
            .collect();
        let unfit: Vec<Node> = facts
            .into_iter()
            .flat_map(|facts| facts.nodes.values())
            .filter(|node| repair::own_condition(node).is_some())
            .take(MOST_FAILED)
            .cloned()
            .collect();
        for pool in first {
            let name = name(&pool.meta).to_owned();
            match self.writer.field_back(&pool, Field::Weight).await {
                None => {
                    self.state.field_rewrites.entry((Field::Weight, name.clone())).or_default().gave_back();
                    self.state.prices.stepped_back(&name, Instant::now());
                    if let Some(seen) = self.tables.pools.get_mut(&name) {
                        seen.meta.annotations.get_or_insert_default().remove(Field::Weight.mark());
                    }
                }
                Some(why) => faults.add(format!("NodePool {name}"), why),
            }
        }
        for node in unfit {
            let name = name(&node.meta).to_owned();
            match self.writer.clear_condition(&node).await {
                None => {
                    if let Some(seen) = self.tables.nodes.get_mut(&name) {
                        seen.status.conditions.retain(|condition| condition.reason != repair::REASON);
                    }
                }
                Some(why) => faults.add(format!("Node {name}"), why),
            }
        }
    }

    /// Takes back at once the prices of commitments that have no more room; all others change in one go.
    async fn write_prices(&mut self, look: &Look, now: Instant) {
        let (covered, others): (Vec<_>, Vec<_>) = look.unpriced.iter().cloned().partition(|name| prices::is_covered(name));
        let due = self.priced.is_none_or(|at| now.duration_since(at) >= BURST_EVERY);
        if due || look.unpriced.is_empty() && look.overlays.is_empty() {
            self.unpriced = Faults::default();
        }
        self.remove(&covered).await;
        if !due || others.is_empty() && look.overlays.is_empty() {
            return;
        }
        self.priced = Some(now);
        for (name, overlay) in &look.overlays {
            let seen = self.tables.facts().and_then(|facts| facts.overlays?.get(name));
            match self.writer.set_overlay(name, seen, overlay).await {
                Ok(Some(written)) => {
                    tracing::info!(overlay = name, why = overlay.why, "set a price");
                    self.state.prices.wrote(name, &overlay.spec);
                    self.tables.overlays.take(Event::Apply(written));
                }
                Ok(None) => {}
                Err(why) => self.unpriced.add(format!("NodeOverlay {name}"), why),
            }
        }
        // A surcharge on spot goes when the one in its place is there.
        self.remove(&others).await;
    }

    async fn remove(&mut self, overlays: &[String]) {
        for name in overlays {
            let Some(overlay) = self.tables.facts().and_then(|facts| facts.overlays?.get(name)) else { continue };
            match self.writer.remove_overlay(overlay).await {
                Ok(()) => tracing::info!(overlay = name, "took a price back"),
                Err(why) => self.unpriced.add(format!("NodeOverlay {name}"), why),
            }
        }
    }

    /// Writes Nodes, changes of one kind: those that fail keep no others from being written.
    async fn write_nodes(&mut self, changes: Vec<(&String, NodeChange<'_>)>, faults: &mut Faults) {
        let (mut failed, begun) = (0, Instant::now());
        for (name, change) in changes.into_iter().take(MOST_NODES) {
            // Where a right is missing all would fail alike; and a slow server must not keep the Lease waiting.
            if failed >= MOST_FAILED || begun.elapsed() >= MOST_TIME {
                return;
            }
            let Some(node) = self.tables.facts().and_then(|facts| facts.nodes.get(name)) else { continue };
            match self.writer.change_node(node, change).await {
                Ok(Some(written)) => {
                    if let NodeChange::Condition(change) = change {
                        tracing::info!(node = name, "{change}");
                    }
                    self.tables.nodes.take(Event::Apply(written));
                }
                Ok(None) => {}
                Err(why) => {
                    faults.add(format!("Node {name}"), why);
                    failed += 1;
                }
            }
        }
    }

    /// Says once what is wrong, in the log and in an Event.
    async fn tell(&mut self, act: &KubeAct, faults: Faults) {
        for (object, said) in self.known.note(faults, Instant::now()) {
            match said {
                Said::Wrong(why) => {
                    tracing::warn!(object, "Karpenter is not steered as it should be: {why}");
                    let about = object.strip_prefix("NodePool ").map_or(About::Stoker, About::NodePool);
                    let told = if why.starts_with(&object) { why } else { format!("{object}: {why}") };
                    act.event(about, Severity::Warning, "SteeringFailed", &told).await;
                }
                Said::Right => tracing::info!(object, "Karpenter is steered again"),
            }
        }
    }
}
