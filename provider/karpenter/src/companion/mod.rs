//! The companion: steers a Karpenter that runs next to Stoker, by the fields that do not make its nodes drift.
//!
//! - `tables`: Karpenter's objects, and what they have.
//! - `reach`: what a `NodePool` may make.
//! - `limits`, `prices`, `protect`, `windows`: what is to be written. Pure.
//! - `marks`: what was written, and what was there before.
//! - `write`: the only writer.
//! - `clean`: gives everything back.
//!
//! Only `NodePools` with the label `stoker.dev/steered: "true"` are steered, and their Nodes. What is promised to Karpenter is counted by
//! Stoker's decisions before a limit is raised, and for a while after it was lowered, so that both never buy the same of a quota.

mod clean;
mod limits;
mod marks;
mod prices;
mod protect;
mod reach;
mod tables;
#[cfg(test)]
mod tests;
mod windows;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::NodeName;
use stoker_core::base::kinds::QuotaUnit;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::foreign::Promises;
use stoker_core::limits::commitment::Committed;
use stoker_core::limits::usage::Usage;
use stoker_core::market::offer::Place;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::karpenter::Lever;
use stoker_core::state::memory::Memory;
use stoker_core::state::spot_history::SpotHistory;
use stoker_service::kube::act::{About, KubeAct, Severity};
use stoker_service::kube::feed::{KubeFeed, WatchHealth, WatchedKind, config, follow};
use stoker_service::publish::telemetry::Metrics;
use stoker_service::publish::view::View;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::claim::INSTANCE_TYPE;
use crate::objects::{Amounts, NODE_POOL, Node, NodeClaim, NodeOverlay, NodePool, amount, label};
use limits::{Pool, Units};
use marks::{Guard, LimitsMark, Rewrites, is_steered};
use prices::{Overlay, Prices};
use protect::{Change, Free, Seen};
use reach::{Made, Makes, Reach, resource};
use tables::{Facts, Tables};
use write::{Writer, with_cure};

pub use clean::{Cleaned, clean, unattended_for};
pub use marks::{FIELD_MANAGER, OWNER};

/// How often it is looked what is to be written.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Limits are written in one go, and not sooner again: each write has Karpenter look at all of its nodes anew.
const BURST_EVERY: Duration = Duration::from_secs(30);

/// How often the Lease is renewed.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// How long a promise counts after it was lowered: a claim made under it may still be on its way here.
const KEPT_FOR: Duration = Duration::from_secs(15);

/// Most Nodes written in one look: a fleet is protected in a minute, and the API server does not notice.
const MOST_NODES: usize = 100;

/// What the companion is started with.
pub struct Companion {
    /// The way to the cluster.
    pub client: Client,
    /// What Stoker's decisions count, and by which policy.
    pub view: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    /// Which Nodes GPU pods hold.
    pub feed: KubeFeed,
    /// Where Events go.
    pub act: Arc<KubeAct>,
    /// What instance types are made of.
    pub book: Arc<PriceBook>,
    /// Counts the objects that are not steered as they should be.
    pub metrics: Metrics,
    /// Where what it was promised of the quotas is told to the decisions.
    pub promised: watch::Sender<Option<Promises>>,
}

/// What a look goes by.
struct Inputs<'a> {
    facts: Facts<'a>,
    policy: &'a Policy,
    book: &'a PriceBook,
    /// What is used of the quotas; `None` until the decisions count Karpenter's nodes too.
    used: Option<&'a Used>,
    /// The Nodes that GPU pods hold; `None` where that is not known now.
    occupied: Option<&'a BTreeSet<NodeName>>,
    now: Instant,
}

/// What is used of the quotas and commitments, as the decisions count it.
#[derive(Debug, Clone, Default)]
pub struct Used {
    /// Units of each, in the policy's order, without promises: what Stoker and all others have, and what Stoker wants.
    held: Vec<u64>,
    /// What Karpenter was promised.
    promised: Promises,
    /// What the commitments pay for.
    committed: Committed,
    /// How Stoker's own spot nodes fared.
    spot: SpotHistories,
}

/// How Stoker's own spot nodes fared, by place.
type SpotHistories = BTreeMap<Place, Arc<SpotHistory>>;

impl Used {
    /// The same of a memory; `None` where it does not have the nodes of others.
    pub fn of(memory: &Memory, catalogue: &Catalogue, wall: Wall) -> Option<Self> {
        let foreign = memory.foreign.as_deref()?;
        let usage = Usage::count(memory, catalogue, wall);
        let held = usage.quotas.iter().zip(&catalogue.policy.quotas);
        let held = held.map(|(held, quota)| held.units.saturating_sub(foreign.promised_of(quota))).collect();
        Some(Self { held, promised: foreign.promised.clone(), committed: usage.committed, spot: memory.spot.clone() })
    }
}

/// What a look came to.
#[derive(Debug, Default)]
struct Look {
    /// What Karpenter is promised; `None` where that is not known.
    promised: Option<Promises>,
    /// The `NodePools` whose limits are to be set.
    limits: Vec<(String, LimitsMark)>,
    /// Those whose limits are to be given back.
    given_back: Vec<(String, LimitsMark)>,
    /// The `NodeOverlays` that are to be set.
    overlays: Vec<(String, Overlay)>,
    /// Those that are to be taken away.
    unpriced: Vec<String>,
    /// The windows that are to be set or given back.
    windows: windows::Plan,
    /// The Nodes that are to be changed.
    nodes: Vec<(String, Change)>,
    /// What is wrong, with the cure, by object.
    faults: BTreeMap<String, String>,
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
struct State {
    /// What each pool could buy at the last looks.
    lately: BTreeMap<String, VecDeque<(Instant, Units)>>,
    rewrites: BTreeMap<String, Rewrites>,
    window_rewrites: BTreeMap<String, Rewrites>,
    makes: reach::Known,
    prices: Prices,
    free: Free,
}

impl State {
    /// What is to be done now.
    fn look(&mut self, inputs: &Inputs<'_>) -> Look {
        let mut look = Look::default();
        let made = self.makes.of(&inputs.facts, inputs.book);
        self.limits(inputs, &made, &mut look);
        self.prices.plan(inputs, &made, &mut look);
        look.windows = windows::plan(inputs, &made, &mut self.window_rewrites, &mut look.faults);
        self.guards(inputs, &mut look);
        look
    }

    /// What Karpenter is promised, and which limits are to be changed.
    fn limits(&mut self, inputs: &Inputs<'_>, made: &Made, look: &mut Look) {
        let used = match inputs.facts.used(made.keys().map(String::as_str)) {
            Ok(used) => used,
            Err(why) => {
                let why = format!("what it runs cannot be told, so no limit is changed: {why}");
                look.faults.insert("Karpenter".to_owned(), why);
                return;
            }
        };
        let mut pools = Vec::new();
        for (name, pool) in inputs.facts.pools {
            let of = made.get(name).zip(used.get(name.as_str()));
            match self.pool((name, pool), of, inputs) {
                Ok(Some(read)) => pools.push(read),
                Ok(None) => {}
                Err(why) => drop(look.faults.insert(format!("NodePool {name}"), why)),
            }
            if pools.last().is_none_or(|read| read.name != *name) {
                self.lately.remove(name);
                let left_alone = self.rewrites.get(name).is_some_and(Rewrites::is_over);
                if let Ok(Some(mark)) = LimitsMark::of(pool)
                    && !left_alone
                {
                    look.given_back.push((name.clone(), mark));
                }
            }
        }
        // Until the decisions count its nodes it keeps the limits that it has.
        let plans = inputs.used.map_or_else(Vec::new, |used| limits::plan(inputs.policy, &used.held, &pools));
        let promised = limits::promises(inputs.policy, &pools, &plans);
        let counted = inputs.used.is_some_and(|used| limits::is_counted(&promised, &used.promised));
        for (pool, plan) in pools.iter().zip(&plans) {
            let mut most = pool.standing();
            for (resource, units) in &plan.promised {
                let known = most.entry(resource).or_default();
                *known = (*known).max(*units);
            }
            self.lately.entry(pool.name.clone()).or_default().push_back((inputs.now, most));
            let lowers =
                plan.limits.iter().all(|(resource, limit)| pool.stands.get(resource).is_some_and(|known| limit <= known));
            if plan.limits != pool.stands && (lowers || counted) {
                let mark = LimitsMark { set: plan.limits.clone(), was: pool.was.clone(), why: plan.why.clone() };
                look.limits.push((pool.name.clone(), mark));
            }
        }
        look.promised = Some(promised);
    }

    /// A steered `NodePool`, by what it may make and has; `None` where its limits are not to be steered.
    fn pool(
        &mut self,
        (name, pool): (&str, &NodePool),
        of: Option<(&Result<Arc<Makes>, String>, &Units)>,
        inputs: &Inputs<'_>,
    ) -> Result<Option<Pool>, String> {
        let Some((makes, used)) = of.filter(|_| inputs.policy.karpenter.has(Lever::Limits)) else {
            self.rewrites.remove(name);
            return Ok(None);
        };
        let (mark, limits) = (LimitsMark::of(pool)?, pool.spec.limits.as_ref());
        let stands = mark.as_ref().filter(|mark| mark.stands(limits));
        self.rewrites.entry(name.to_owned()).or_default().note(stands.is_some(), "spec.limits")?;
        let reach = Reach::of(makes.as_ref().map_err(String::clone)?, inputs.policy)?;
        let was = before(mark.as_ref(), limits);
        let stands = stands.map(|mark| mark.set.clone()).unwrap_or_default();
        let mut read = Pool { name: name.to_owned(), reach, used: used.clone(), stands, was, lately: Units::new() };
        let lately = self.lately.entry(name.to_owned()).or_default();
        lately.retain(|(at, _)| inputs.now.duration_since(*at) <= KEPT_FOR);
        for (resource, units) in lately.iter().flat_map(|(_, units)| units.clone()).chain(read.standing()) {
            let known = read.lately.entry(resource).or_default();
            *known = (*known).max(units);
        }
        Ok(Some(read))
    }

    /// Which Nodes are to be protected, or released.
    fn guards(&mut self, inputs: &Inputs<'_>, look: &mut Look) {
        let Some(occupied) = inputs.occupied else {
            let why = "it is not known which Nodes GPU pods hold, so none is protected or released".to_owned();
            look.faults.insert("Nodes".to_owned(), why);
            return;
        };
        let occupied: HashSet<&str> = occupied.iter().map(NodeName::as_str).collect();
        let protects = inputs.policy.karpenter.has(Lever::Protect);
        let steered = |node: &Node| {
            let pool = label(&node.meta, NODE_POOL).and_then(|pool| inputs.facts.pools.get(pool));
            protects && pool.is_some_and(is_steered)
        };
        // Stoker's own are held otherwise.
        let nodes = inputs.facts.nodes.iter().filter(|(_, node)| label(&node.meta, CLUSTER_LABEL).is_none());
        let seen = |(name, node)| {
            let busy = occupied.contains(String::as_str(name));
            Seen { name, steered: steered(node), guard: Guard::of(node), busy }
        };
        let seen: Vec<Seen<'_>> = nodes.filter(|(_, node)| node.meta.deletion_timestamp.is_none()).map(seen).collect();
        look.nodes = self.free.changes(&seen, inputs.now);
    }
}

/// The limits that there would be without Stoker, of the resources that it sets: what its mark says, but for what somebody has changed
/// since.
fn before(mark: Option<&LimitsMark>, limits: Option<&Amounts>) -> Option<Amounts> {
    let mut was = Amounts::new();
    for resource in [resource(QuotaUnit::Vcpus), resource(QuotaUnit::Gpus)] {
        let now = limits.and_then(|limits| limits.get(resource));
        let of_mark =
            mark.and_then(|mark| Some((mark.set.get(resource)?, mark.was.as_ref().and_then(|was| was.get(resource)))));
        let value = match of_mark {
            Some((set, was)) if now.and_then(amount) == Some(*set) => was,
            _ => now,
        };
        was.extend(value.map(|value| (resource.to_owned(), value.clone())));
    }
    let had_none = mark.map_or(limits.is_none(), |mark| mark.was.is_none());
    (!(had_none && was.is_empty())).then_some(was)
}

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
        // Overlays are looked at from when prices are first steered: not every Karpenter has them.
        let mut prices = false;
        let mut pools = pin!(follow::<NodePool>(&self.client, config(), of_pools));
        let mut claims = pin!(follow::<NodeClaim>(&self.client, config(), of_claims));
        let mut nodes = pin!(follow::<Node>(&self.client, config().labels(NODE_POOL), of_nodes));
        let mut running = Running::new(&self.client);
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = pools.next() => running.tables.pools.take(event),
                Some(event) = claims.next() => running.tables.claims.take(event),
                Some(event) = nodes.next() => running.tables.nodes.take(event),
                Some(event) = overlays.next(), if prices => running.tables.overlays.take(event),
                _ = tick.tick() => {
                    prices |= (self.view)().catalogue.policy.karpenter.has(Lever::Prices);
                    let mut faults = running.turn(&self, &health).await;
                    if let Some(broken) = of_overlays.broken().filter(|_| prices) {
                        let cure = "apply manifests/karpenter/steering.yaml; it needs Karpenter 1.7 or later";
                        faults.insert("the watch of NodeOverlays".to_owned(), format!("{broken}: {cure}"));
                    }
                    self.metrics.not_steered(faults.len());
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
    /// When limits were last written.
    burst: Option<Instant>,
    /// When prices were.
    priced: Option<Instant>,
    beat: Option<Instant>,
    /// Why limits could not be written, until they are written again.
    refused: BTreeMap<String, String>,
    /// What was wrong at the last look.
    told: BTreeMap<String, String>,
}

impl Running {
    fn new(client: &Client) -> Self {
        let holder = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| FIELD_MANAGER.to_owned());
        Self {
            tables: Tables::default(),
            state: State::default(),
            writer: Writer::new(client),
            holder,
            burst: None,
            priced: None,
            beat: None,
            refused: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Looks, tells the decisions, and writes; what is wrong, by object.
    async fn turn(&mut self, companion: &Companion, health: &[Arc<WatchHealth>]) -> BTreeMap<String, String> {
        let view = (companion.view)();
        let (policy, now) = (&view.catalogue.policy, Instant::now());
        let mut faults = BTreeMap::new();
        for broken in health.iter().filter_map(|health| health.broken()) {
            let why =
                format!("{broken}: apply manifests/karpenter/steering.yaml; it needs Karpenter 1.0 or later (karpenter.sh/v1)");
            faults.insert(format!("the watch of {}", broken.watched), why);
        }
        let writes = !policy.karpenter.dry_run && policy.karpenter.steers();
        if writes && self.beat.is_none_or(|at| now.duration_since(at) >= BEAT_EVERY) {
            match self.writer.beat(&self.holder, Timestamp::now()).await {
                Ok(()) => self.beat = Some(now),
                Err(why) => drop(faults.insert("Lease".to_owned(), why)),
            }
        }
        if !policy.karpenter.promises() {
            companion.promised.send_if_modified(|known| known.take().is_some());
        }
        let Some(facts) = self.tables.facts() else { return faults };
        // What was known last stands; nothing is changed in the dark.
        if health.iter().any(|health| health.broken().is_some()) {
            return faults;
        }
        let occupied = companion.feed.occupied().borrow().clone().filter(|_| companion.feed.healthy());
        let used = Used::of(&view.memory, &view.catalogue, view.wall);
        let (book, used, occupied) = (companion.book.as_ref(), used.as_ref(), occupied.as_deref());
        let mut look = self.state.look(&Inputs { facts, policy, book, used, occupied, now });
        faults.append(&mut look.faults);
        if let Some(promised) = look.promised.take().filter(|_| policy.karpenter.promises()) {
            companion.promised.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&promised);
                *known = Some(promised);
                changed
            });
        }
        if policy.karpenter.dry_run {
            return faults;
        }
        // Before the first decision nobody knows what Stoker's own nodes are.
        if view.ready.is_ok() {
            self.write_pools(&look, now).await;
            faults.extend(self.refused.clone());
            self.write_prices(&look, now, &mut faults).await;
        }
        self.write_nodes(&look, &mut faults).await;
        faults
    }

    async fn write_pools(&mut self, look: &Look, now: Instant) {
        let due = self.burst.is_none_or(|at| now.duration_since(at) >= BURST_EVERY);
        let windows = &look.windows;
        let none = [look.limits.is_empty(), look.given_back.is_empty(), windows.set.is_empty(), windows.given_back.is_empty()]
            .iter()
            .all(|none| *none);
        if due || none {
            self.refused.clear();
        }
        if !due || none {
            return;
        }
        self.burst = Some(now);
        for (name, mark) in &look.limits {
            let Some(pool) = self.pool(name) else { continue };
            let written = self.writer.limit(pool, mark).await;
            self.wrote(name, written, &format!("set spec.limits {:?}, {}", mark.set, mark.why));
        }
        for (name, mark) in &look.given_back {
            let Some(pool) = self.pool(name) else { continue };
            let written = self.writer.give_back(pool, mark).await;
            self.wrote(name, written, "gave spec.limits back");
        }
        for (name, mark) in &windows.set {
            let Some(pool) = self.pool(name) else { continue };
            let written = self.writer.set_window(pool, mark).await;
            self.wrote(name, written, &format!("set consolidateAfter {}", mark.set));
        }
        for (name, mark) in &windows.given_back {
            let Some(pool) = self.pool(name) else { continue };
            let written = self.writer.give_window_back(pool, mark).await;
            self.wrote(name, written, "gave consolidateAfter back");
        }
    }

    fn pool(&self, name: &str) -> Option<&NodePool> {
        self.tables.facts()?.pools.get(name)
    }

    /// Takes note of a `NodePool` as it was written.
    fn wrote(&mut self, name: &str, written: Result<Option<NodePool>, String>, what: &str) {
        match written {
            Ok(Some(written)) => {
                tracing::info!(node_pool = name, "{what}");
                self.tables.pools.take(Event::Apply(written));
            }
            Ok(None) => {}
            Err(why) => drop(self.refused.insert(format!("NodePool {name}"), why)),
        }
    }

    /// Takes prices back at once, and sets others in one go.
    async fn write_prices(&mut self, look: &Look, now: Instant, faults: &mut BTreeMap<String, String>) {
        for name in &look.unpriced {
            let Some(overlay) = self.tables.facts().and_then(|facts| facts.overlays?.get(name)) else { continue };
            match self.writer.remove_overlay(overlay).await {
                Ok(()) => tracing::info!(overlay = name, "took a price back"),
                Err(why) => drop(faults.insert(format!("NodeOverlay {name}"), why)),
            }
        }
        let due = self.priced.is_none_or(|at| now.duration_since(at) >= BURST_EVERY);
        if look.overlays.is_empty() || !due {
            return;
        }
        self.priced = Some(now);
        for (name, overlay) in &look.overlays {
            match self.writer.set_overlay(name, overlay).await {
                Ok(Some(written)) => {
                    tracing::info!(overlay = name, why = overlay.why, "set a price");
                    self.tables.overlays.take(Event::Apply(written));
                }
                Ok(None) => {}
                Err(why) => drop(faults.insert(format!("NodeOverlay {name}"), why)),
            }
        }
    }

    async fn write_nodes(&mut self, look: &Look, faults: &mut BTreeMap<String, String>) {
        for (name, change) in look.nodes.iter().take(MOST_NODES) {
            let Some(node) = self.tables.facts().and_then(|facts| facts.nodes.get(name)) else { continue };
            let written = match change {
                Change::Protect => self.writer.protect(node).await,
                Change::Release(guard) => self.writer.release(node, *guard).await,
            };
            match written {
                Ok(Some(written)) => self.tables.nodes.take(Event::Apply(written)),
                Ok(None) => {}
                Err(why) => {
                    // The next one would fail alike.
                    faults.insert(format!("Node {name}"), why);
                    return;
                }
            }
        }
    }

    /// Says once what is wrong, in the log and in an Event.
    async fn tell(&mut self, act: &KubeAct, faults: BTreeMap<String, String>) {
        for (object, why) in faults.iter().filter(|(object, why)| self.told.get(*object) != Some(*why)) {
            tracing::warn!(object, "Karpenter is not steered as it should be: {why}");
            let about = object.strip_prefix("NodePool ").map_or(About::Stoker, About::NodePool);
            act.event(about, Severity::Warning, "SteeringFailed", &format!("{object}: {why}")).await;
        }
        for object in self.told.keys().filter(|object| !faults.contains_key(*object)) {
            tracing::info!(object, "Karpenter is steered again");
        }
        self.told = faults;
    }
}

/// What would be written now, a line each, and what stands in the way.
///
/// # Errors
/// What cannot be read, and the cure.
pub async fn diff(
    client: &Client,
    (policy, book): (&Policy, &PriceBook),
    used: &Used,
    occupied: &BTreeSet<NodeName>,
) -> Result<Vec<String>, String> {
    let mut tables = Tables::default();
    listed(client, &ListParams::default(), &mut tables.pools).await?;
    listed(client, &ListParams::default(), &mut tables.claims).await?;
    listed(client, &ListParams::default().labels(NODE_POOL), &mut tables.nodes).await?;
    if policy.karpenter.has(Lever::Prices) {
        listed(client, &ListParams::default(), &mut tables.overlays).await?;
    }
    let facts = tables.facts().ok_or("nothing was listed")?;
    let now = Instant::now();
    let look =
        |used: &Used| State::default().look(&Inputs { facts, policy, book, used: Some(used), occupied: Some(occupied), now });
    // As if the decisions counted whatever is promised.
    let promised = look(used).promised.unwrap_or_default();
    let look = look(&Used { promised, ..used.clone() });
    let mut lines = Vec::new();
    for (name, mark) in &look.limits {
        let now = facts.pools.get(name).and_then(|pool| pool.spec.limits.clone()).unwrap_or_default();
        for (resource, set) in &mark.set {
            let is = now
                .get(resource)
                .map_or_else(|| "none".to_owned(), |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            if is != set.to_string() {
                lines.push(format!("NodePool {name}: spec.limits.{resource} {is} -> {set}, {}", mark.why));
            }
        }
    }
    lines.extend(look.given_back.iter().map(|(name, _)| format!("NodePool {name}: spec.limits given back")));
    lines.extend(look.windows.set.iter().map(|(name, mark)| {
        let was = mark.was.as_deref().unwrap_or("none");
        format!("NodePool {name}: spec.disruption.consolidateAfter {was} -> {}", mark.set)
    }));
    lines.extend(
        look.windows.given_back.iter().map(|(name, _)| format!("NodePool {name}: spec.disruption.consolidateAfter given back")),
    );
    lines.extend(look.overlays.iter().map(|(name, Overlay { spec, why })| {
        let price = spec.price.as_deref().or(spec.price_adjustment.as_deref()).unwrap_or_default();
        let types = spec.requirements.iter().find(|one| one.key == INSTANCE_TYPE).and_then(|one| one.values.as_deref());
        format!("NodeOverlay {name}: {price} for {}, {why}", types.unwrap_or_default().join(", "))
    }));
    lines.extend(look.unpriced.iter().map(|name| format!("NodeOverlay {name}: taken back")));
    lines.extend(look.nodes.iter().map(|(name, change)| match change {
        Change::Protect => format!("Node {name}: {} true, GPU pods hold it", marks::DO_NOT_DISRUPT),
        Change::Release(_) => format!("Node {name}: {} given back", marks::DO_NOT_DISRUPT),
    }));
    lines.extend(look.faults.iter().map(|(object, why)| format!("{object}: not steered, {why}")));
    Ok(lines)
}

/// Lists all objects of a kind.
async fn listed<K>(client: &Client, params: &ListParams, table: &mut tables::Table<K>) -> Result<(), String>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(client.clone()).list(params).await.map_err(|error| with_cure(&error))?;
    table.take(Event::Init);
    all.items.into_iter().for_each(|object| table.take(Event::InitApply(object)));
    table.take(Event::InitDone);
    Ok(())
}
