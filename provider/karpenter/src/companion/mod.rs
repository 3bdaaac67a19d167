//! The companion: steers a Karpenter that runs next to Stoker, by the fields that do not make its nodes drift.
//!
//! - `tables`: Karpenter's objects, and what they have.
//! - `reach`, `market`: what a `NodePool` may make, and for what price that is sold.
//! - `limits`, `prices`, `fields`, `floors`, `protect`, `repair`: what is to be written. Pure.
//! - `marks`: what was written, and what was there before.
//! - `write`: the only writer.
//! - `run`: watches, looks and writes.
//! - `faults`: what stands in the way, and when it is said.
//! - `diff`, `clean`: show what would be written, and give everything back.
//!
//! Only `NodePools` with the label `stoker.dev/steered: "true"` are steered, and their Nodes. What is promised to Karpenter is counted by
//! Stoker's decisions before a limit is raised, and for a while after it was lowered, so that both never buy the same of a quota.

mod clean;
mod diff;
mod faults;
mod fields;
mod floors;
mod limits;
mod market;
mod marks;
mod prices;
mod protect;
mod reach;
mod repair;
mod run;
mod tables;
#[cfg(test)]
mod tests;
mod write;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::{InstanceType, NodeName};
use stoker_core::base::kinds::QuotaUnit;
use stoker_core::base::text::nearest;
use stoker_core::catalogue::Catalogue;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::facts::foreign::Promises;
use stoker_core::facts::supply::RefusalKind;
use stoker_core::limits::commitment::Committed;
use stoker_core::limits::usage::Usage;
use stoker_core::market::offer::{self, InstanceSpec, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::karpenter::{Lever, RULES_LABEL, STEERED_LABEL};
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::policy::{self, Policy};
use stoker_core::state::budget::{BudgetOf, Stage};
use stoker_core::state::memory::{Backoff, Memory};
use stoker_core::state::spot_history::SpotHistory;
use stoker_service::feeds::probes::Readings;
use stoker_service::kube::act::KubeAct;
use stoker_service::kube::feed::KubeFeed;
use stoker_service::publish::telemetry::Metrics;
use stoker_service::publish::view::View;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::objects::{Amounts, NODE_POOL, Node, NodePool, amount, label};
use faults::Faults;
use floors::Floor;
use limits::{Pool, Units};
use market::Market;
use marks::{Field, Guard, LimitsMark, Rewrites, is_steered};
use prices::{Overlay, Prices};
use protect::{Change, Free, Seen};
use reach::{Made, Makes, Reach, resource};
use repair::{Probed, Repair};
use tables::{Facts, Has, Launched};

pub use clean::{Cleaned, clean, unattended_for};
pub use diff::diff;
pub use marks::{FIELD_MANAGER, OWNER};
pub(crate) use repair::CONDITIONS;

/// How long a promise counts after it was lowered: a claim made under it may still be on its way here.
const KEPT_FOR: Duration = Duration::from_secs(15);

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
    /// What probes see.
    pub readings: Arc<Readings>,
    /// Where what it was promised of the quotas is told to the decisions.
    pub promised: watch::Sender<Option<Promises>>,
    /// The Lease of replicas that take turns: marks are looked after under its name, so that the next leader need not wait for the last.
    pub replicas: Option<String>,
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
    /// How floors of the policy's pools stand; `None` where that is not known.
    floors: Option<&'a [FloorStands]>,
    /// Whether the cluster has no `NodeOverlays`.
    has_no_overlays: bool,
    /// What probes have seen of Nodes; `None` where that is not known.
    probed: Option<Probed<'a>>,
    now: Instant,
}

impl<'a> Inputs<'a> {
    /// Those of a look that knows nothing but Karpenter's objects.
    fn of(facts: Facts<'a>, policy: &'a Policy, book: &'a PriceBook, now: Instant) -> Self {
        let (used, occupied, floors, probed) = (None, None, None, None);
        Self { facts, policy, book, used, occupied, floors, has_no_overlays: false, probed, now }
    }

    /// The pool of the policy whose rules hold for a `NodePool`; `None` where it names none.
    ///
    /// # Errors
    /// The policy has no such pool.
    fn rules_of(&self, pool: &'a NodePool) -> Result<Option<&'a policy::Pool>, String> {
        let Some(name) = label(&pool.meta, RULES_LABEL) else { return Ok(None) };
        let pools = || self.policy.pools.iter();
        let known = pools().find(|pool| pool.name.as_str() == name);
        known.map(Some).ok_or_else(|| {
            let near = nearest(name, pools().map(|pool| pool.name.as_str()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            format!("its label {RULES_LABEL} names {name}, which is no pool of the policy{near}")
        })
    }
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
    /// How many nodes of each type Karpenter has launched.
    claims: BTreeMap<InstanceType, u32>,
    /// Markets that are out of stock.
    sold_out: BTreeSet<offer::Market>,
    /// Budgets of which nothing is left.
    spent: BTreeSet<BudgetOf>,
}

/// How Stoker's own spot nodes fared, by place.
type SpotHistories = BTreeMap<Place, Arc<SpotHistory>>;

impl Used {
    /// The same of a memory; `None` where it does not have the nodes of others.
    pub fn of(memory: &Memory, catalogue: &Catalogue, times: Times) -> Option<Self> {
        let foreign = memory.foreign.as_deref()?;
        let usage = Usage::count(memory, catalogue, times.wall);
        let held = usage.quotas.iter().zip(&catalogue.policy.quotas);
        let held = held.map(|(held, quota)| held.units.saturating_sub(foreign.promised_of(quota))).collect();
        let (promised, claims, spot) = (foreign.promised.clone(), foreign.claims.clone(), memory.spot.clone());
        let is_sold_out = |refused: &Backoff| refused.kind == RefusalKind::OutOfCapacity && refused.until > times.now;
        let sold_out = memory.refused.iter().filter(|(_, refused)| is_sold_out(refused));
        let sold_out = sold_out.map(|(market, _)| market.clone()).collect();
        let spent = memory.budgets.iter().filter(|(_, stage)| **stage == Stage::Spent).map(|(of, _)| of.clone()).collect();
        Some(Self { held, promised, committed: usage.committed, spot, claims, sold_out, spent })
    }

    /// Why a `NodePool` is to make nothing more; `None` where it may. `rules`: the pool of the policy whose rules hold for it.
    fn closes(&self, rules: Option<&policy::Pool>, makes: &Makes, market: &Market) -> Option<String> {
        let is_own = |of: &BudgetOf| of.pool().is_none_or(|pool| rules.is_some_and(|rules| rules.name == *pool));
        if let Some(spent) = self.spent.iter().find(|of| is_own(of)) {
            return Some(format!("nothing is left of the budget of {spent}"));
        }
        let is_sold_out = |spec: &Arc<InstanceSpec>| {
            market.markets(makes, spec).is_some_and(|markets| markets.iter().all(|market| self.sold_out.contains(market)))
        };
        makes.types.iter().all(is_sold_out).then(|| "all that it may make is out of stock".to_owned())
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
    /// The other fields of `NodePools` that are to be set or given back.
    fields: fields::Plan,
    /// The floors of `NodePools`.
    floors: BTreeMap<String, Floor>,
    /// The Nodes whose condition is to be changed.
    repairs: Vec<(String, repair::Change)>,
    /// The Nodes whose probes are to be heard.
    watched: BTreeSet<NodeName>,
    /// The Nodes that are to be protected, or released.
    nodes: Vec<(String, Change)>,
    /// What is wrong.
    faults: Faults,
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
struct State {
    /// What each pool could buy at the last looks.
    lately: BTreeMap<String, VecDeque<(Instant, Units)>>,
    rewrites: BTreeMap<String, Rewrites>,
    field_rewrites: BTreeMap<(Field, String), Rewrites>,
    makes: reach::Known,
    /// What the tables say, from when it is first asked for: they do not change.
    market: OnceCell<Market>,
    prices: Prices,
    free: Free,
    repair: Repair,
}

impl State {
    /// What is to be done now.
    fn look(&mut self, inputs: &Inputs<'_>) -> Look {
        let mut look = Look::default();
        let made = self.makes.of(inputs);
        let uid = |name: &String| inputs.facts.pools.get(name).and_then(|pool| pool.meta.uid.as_deref());
        let is_there = |name: &String, known: &mut Rewrites| inputs.facts.pools.contains_key(name) && known.is_of(uid(name));
        self.rewrites.retain(|name, known| is_there(name, known));
        self.field_rewrites.retain(|(_, name), known| is_there(name, known));
        for (name, pool) in inputs.facts.pools {
            if let Some(other) = label(&pool.meta, STEERED_LABEL).filter(|value| !["true", "false"].contains(value)) {
                let why = format!("its label {STEERED_LABEL} is {other}: write true to have it steered, or take it off");
                look.faults.add(format!("NodePool {name}"), why);
            }
        }
        self.limits(inputs, &made, &mut look);
        let market = self.market.get_or_init(|| Market::of(inputs.book));
        let first = self.prices.plan(inputs, &made, market, &mut look);
        look.fields = fields::plan(inputs, (&made, market), &first, &mut self.field_rewrites, &mut look.faults);
        look.floors = floors::wanted(inputs, &made, &mut look.faults);
        look.watched = repair::watched(inputs);
        look.repairs = self.repair.plan(inputs, &made, &mut look.faults);
        self.guards(inputs, &mut look);
        look
    }

    /// What Karpenter is promised, and which limits are to be changed.
    fn limits(&mut self, inputs: &Inputs<'_>, made: &Made, look: &mut Look) {
        let used = inputs.facts.used(made.keys().map(String::as_str));
        let launched = inputs.facts.launched();
        let mut pools = Vec::new();
        for (name, pool) in inputs.facts.pools {
            let of = made.get(name).zip(used.get(name.as_str()));
            match self.pool((name, pool), of, &launched, inputs) {
                Ok(Some(mut read)) => {
                    let rules = inputs.rules_of(pool).unwrap_or_else(|why| {
                        look.faults.add(format!("NodePool {name}"), why);
                        None
                    });
                    let market = self.market.get_or_init(|| Market::of(inputs.book));
                    if let (Some(used), Some(Ok(makes))) = (inputs.used, made.get(name)) {
                        read.closed = used.closes(rules, makes, market);
                    }
                    pools.push(read);
                }
                Ok(None) => {}
                Err(why) => look.faults.add(format!("NodePool {name}"), why),
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
            // What the plan names no more goes back to its owner first; what there is to set is set on top of that.
            let leaves = pool.stands.keys().any(|resource| !plan.limits.contains_key(resource));
            if leaves && let Some(Ok(Some(mark))) = inputs.facts.pools.get(&pool.name).map(LimitsMark::of) {
                look.given_back.push((pool.name.clone(), mark));
            } else if plan.limits != pool.stands && (lowers || counted) {
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
        of: Option<(&Result<Arc<Makes>, String>, &Has)>,
        launched: &Launched<'_>,
        inputs: &Inputs<'_>,
    ) -> Result<Option<Pool>, String> {
        let Some((makes, has)) = of.filter(|_| inputs.policy.karpenter.has(Lever::Limits)) else {
            self.rewrites.remove(name);
            return Ok(None);
        };
        let (mark, limits) = (LimitsMark::of(pool)?, pool.spec.limits.as_ref());
        let stands = mark.as_ref().filter(|mark| mark.stands(limits));
        self.rewrites.entry(name.to_owned()).or_default().note(stands.is_some(), "spec.limits", inputs.now)?;
        let makes = makes.as_ref().map_err(String::clone)?;
        let reach = Reach::of(makes, inputs.policy)?;
        let was = before(mark.as_ref(), limits);
        let stands = stands.map(|mark| mark.set.clone()).unwrap_or_default();
        let mut uncounted = Units::new();
        for spec in &makes.types {
            let counted = inputs.used.and_then(|used| used.claims.get(&spec.instance_type)).copied().unwrap_or(0);
            let more = u64::from(launched.of(spec.instance_type.as_str()).saturating_sub(counted));
            *uncounted.entry(resource(QuotaUnit::Vcpus)).or_default() += more * u64::from(spec.vcpus.unwrap_or(0));
            *uncounted.entry(resource(QuotaUnit::Gpus)).or_default() += more * u64::from(spec.advertised_gpus());
        }
        let (used, lately) = (has.used.clone(), Units::new());
        let mut read = Pool { name: name.to_owned(), reach, used, uncounted, stands, was, lately, closed: None };
        let lately = self.lately.entry(name.to_owned()).or_default();
        lately.retain(|(at, _)| inputs.now.duration_since(*at) <= KEPT_FOR);
        for unit in [QuotaUnit::Vcpus, QuotaUnit::Gpus] {
            read.lately.insert(resource(unit), has.unlaunched * read.reach.sizes(unit).most);
        }
        for (resource, units) in lately.iter().flat_map(|(_, units)| units.clone()).chain(read.standing()) {
            let known = read.lately.entry(resource).or_default();
            *known = (*known).max(units);
        }
        Ok(Some(read))
    }

    /// Which Nodes are to be protected, or released.
    fn guards(&mut self, inputs: &Inputs<'_>, look: &mut Look) {
        let Some(occupied) = inputs.occupied else {
            look.faults.add("Nodes", "it is not known which Nodes GPU pods hold, so none is protected or released");
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
