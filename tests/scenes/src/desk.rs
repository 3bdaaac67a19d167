//! The provider in process: passes of the real `decide` and `check` over the facts, and what becomes of the actions, each with its delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::{EngineClock, JUMP, Mark, Resumed, Times, Wall};
use stoker_core::base::ids::DecisionId;
use stoker_core::base::ids::{LaunchKey, NodeGroupId, NodeName, ProviderId, RecordId};
use stoker_core::catalogue::Catalogue;
use stoker_core::decide::orders;
use stoker_core::facts::images::NodeImages;
use stoker_core::facts::reading::seen::Seen;
use stoker_core::facts::snapshot::{ClusterFacts, Drained, Snapshot};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest, Observation};
use stoker_core::market::price::PriceBook;
use stoker_core::pass::{Before, step};
use stoker_core::plan::{Accounts, Action, Evict, GroupLimits};
use stoker_core::policy::rules::demand::Demand;
use stoker_core::state::memory::Memory;

use crate::cloud::Cloud;
use crate::conclusions;
use crate::market;
use crate::timeline::Timeline;

mod door;
mod news;
mod told;
mod written;

pub(crate) use news::Taken;
pub use written::WrittenDecision;

/// Passes of one moment before a decision that does not come to rest is a fault.
const MOST_PASSES: usize = 30;

/// How long a supplier takes to answer, and the API server to take a change.
const ANSWERS_IN: SignedDuration = SignedDuration::from_secs(2);
const WRITES_IN: SignedDuration = SignedDuration::from_secs(1);

/// Its machine is never booted again.
const BOOT: &str = "boot";

/// How soon a machine is told again to end that was told before.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Which pods are told to go, and by when, by the provider's clock, they must be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pods {
    pub(crate) evict: Evict,
    pub(crate) gone_by: Option<Timestamp>,
}

/// What the cluster has to do after a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chore {
    Hold(NodeName),
    Release(NodeName),
    Remove(NodeName),
    Drain(NodeName, ProviderId, Pods),
    Uncordon(NodeName),
}

impl Chore {
    pub(crate) const fn node(&self) -> &NodeName {
        match self {
            Self::Hold(node) | Self::Release(node) | Self::Remove(node) | Self::Drain(node, ..) | Self::Uncordon(node) => node,
        }
    }
}

/// How a launch that is under way will be answered.
#[derive(Debug, Clone)]
struct Asked {
    due: Timestamp,
    request: LaunchRequest,
}

/// What is wrong with the provider or what it is told.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// It does not run.
    pub(crate) down: bool,
    /// Its watch of Kubernetes is cut.
    pub(crate) blind: bool,
    /// The supplier does not answer when asked what there is.
    pub(crate) stale: bool,
    /// Answers of launches get lost.
    pub(crate) unclear: bool,
    /// Deletions are asked for twice.
    pub(crate) repeated: bool,
    /// The autoscaler does not hear that it was given what it asked for.
    pub(crate) unheard: bool,
}

/// The provider, and the clouds that it buys in.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) cloud: Cloud,
    /// What the watch shows of the cluster; `None` from a restart to its first look.
    pub(crate) facts: Option<Arc<ClusterFacts>>,
    pub(crate) seen: BTreeMap<NodeName, Arc<Seen>>,
    pub(crate) demand: Demand,
    /// The images of nodes that list them.
    pub(crate) images: BTreeMap<NodeName, Arc<NodeImages>>,
    /// Whether the cluster serves buffers.
    pub(crate) buffers: bool,
    pub(crate) chores: Vec<(Timestamp, Chore)>,
    pub(crate) drains: BTreeMap<NodeName, Drained>,
    pub(crate) faults: Faults,
    pub(crate) line: Timeline,
    /// Promises that were broken, in words.
    pub(crate) broken: Vec<String>,
    /// When the decision asked to be made again, by the true clock.
    pub(crate) again: Option<Timestamp>,
    pub(crate) catalogue: Catalogue,
    pub(crate) memory: Memory,
    pub(crate) limits: BTreeMap<NodeGroupId, GroupLimits>,
    pub(crate) accounts: Accounts,
    /// By how much the wall clock of the provider's machine is ahead.
    skew: SignedDuration,
    /// The provider's clock, and what it shows.
    clock: EngineClock,
    times: Times,
    /// Where it stood when the process ended.
    mark: Option<Mark>,
    /// Nodes that were released, and nodes that were taken although something holds them, since somebody last looked.
    pub(crate) released: Vec<NodeName>,
    /// Nodes that were released and are so no more.
    pub(crate) kept_again: Vec<NodeName>,
    pub(crate) taken: Vec<Taken>,
    /// When each record was ordered, by the true clock.
    pub(crate) ordered: BTreeMap<RecordId, Timestamp>,
    pub(crate) passes: u64,
    /// What a journal would get; `None` where nobody keeps one.
    pub(crate) written: Option<Vec<WrittenDecision>>,
    book: Arc<PriceBook>,
    asked: Vec<Asked>,
    outcomes: BTreeMap<LaunchKey, LaunchOutcome>,
    /// Terminations asked and not answered, and those asked a moment ago: they are not asked again.
    ending: BTreeMap<ProviderId, Timestamp>,
    ended_lately: BTreeMap<ProviderId, Timestamp>,
    inventory: Observation,
    /// Whether it was read since the process began: before that nothing is decided.
    read: bool,
    listing: Vec<NodeGroupId>,
    owners: BTreeMap<String, NodeGroupId>,
    told: told::Told,
    start: Timestamp,
    now: Timestamp,
}

impl Desk {
    pub(crate) fn new(policy: &str, start: Timestamp) -> Self {
        let mut memory = Memory::default();
        orders::begin_session(&mut memory);
        let book = Arc::new(market::book(start));
        let catalogue = market::catalogue(market::policy(policy), &book);
        let mut desk = Self {
            cloud: Cloud::new(),
            facts: Some(Arc::default()),
            seen: BTreeMap::new(),
            demand: Demand::new(),
            images: BTreeMap::new(),
            buffers: false,
            chores: Vec::new(),
            drains: BTreeMap::new(),
            faults: Faults::default(),
            line: Timeline::new(start),
            broken: Vec::new(),
            again: None,
            catalogue,
            memory,
            limits: BTreeMap::new(),
            accounts: Accounts::default(),
            skew: SignedDuration::ZERO,
            clock: EngineClock::starting(SignedDuration::ZERO, Wall(start)),
            times: Times::at(start),
            mark: None,
            start,
            released: Vec::new(),
            kept_again: Vec::new(),
            taken: Vec::new(),
            ordered: BTreeMap::new(),
            passes: 0,
            written: None,
            book,
            asked: Vec::new(),
            outcomes: BTreeMap::new(),
            ending: BTreeMap::new(),
            ended_lately: BTreeMap::new(),
            inventory: Observation::complete(start, BTreeMap::new()),
            read: false,
            listing: Vec::new(),
            owners: BTreeMap::new(),
            told: told::Told::default(),
            now: start,
        };
        desk.pass();
        desk
    }

    /// The provider's decision time.
    pub(crate) const fn ours(&self) -> Timestamp {
        self.times.now
    }

    /// What the wall clock of its machine shows.
    pub(crate) const fn wall(&self) -> Wall {
        self.times.wall
    }

    /// The wall clock of the provider's machine is set.
    pub(crate) fn jump(&mut self, by: SignedDuration) {
        self.skew += by;
        self.tick();
    }

    /// The boot-time clock, which runs as true time does, and the wall.
    fn clocks(&self) -> (SignedDuration, Wall) {
        (self.now.duration_since(self.start), Wall(self.now + self.skew))
    }

    fn tick(&mut self) {
        let (boot, wall) = self.clocks();
        self.times = self.clock.advance(boot, wall);
    }

    /// The true time of a moment to come by the provider's clock, unless that runs slower: then it looks once more.
    fn truly(&self, at: Timestamp) -> Timestamp {
        let wait = at.duration_since(self.ours());
        let off = self.wall().0.duration_since(self.ours()).abs();
        let least = SignedDuration::from_secs(i64::from(!off.is_zero() && off <= JUMP));
        self.now.saturating_add(wait.max(least)).unwrap_or(Timestamp::MAX)
    }

    /// Takes up another policy.
    pub(crate) fn reload(&mut self, policy: &str) {
        self.catalogue = market::catalogue(market::policy(policy), &self.book);
    }

    /// Lets time pass; the machines that are gone by now, and whether the provider has anything new to decide on.
    pub(crate) fn advance(&mut self, now: Timestamp) -> (Vec<crate::cloud::Machine>, bool) {
        self.now = now;
        self.tick();
        self.line.now(now);
        let gone = self.cloud.advance(now);
        let mut news = !gone.is_empty();
        let (due, later) = std::mem::take(&mut self.asked).into_iter().partition(|asked| asked.due <= now);
        self.asked = later;
        let due: Vec<Asked> = due;
        for Asked { request, .. } in due {
            news = true;
            let outcome = self.cloud.launch(&request, now);
            // A provider that does not run hears nothing, and one that began anew has forgotten whom it asked.
            if !self.faults.down {
                let unclear = self.faults.unclear.then(|| LaunchOutcome::unclear("time-out"));
                self.outcomes.insert(request.key, unclear.unwrap_or(outcome));
            }
        }
        let before = self.ending.len();
        self.ending.retain(|_, until| *until > now);
        self.ended_lately.retain(|_, until| *until > now);
        news |= self.ending.len() != before;
        (gone, news)
    }

    /// The next moment at which the clouds or the answers under way change anything.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        let asked = self.asked.iter().map(|asked| asked.due);
        let own = asked.chain(self.ending.values().copied()).chain(self.chores.iter().map(|(at, _)| *at));
        own.chain(self.cloud.next_change(self.now)).min()
    }

    /// Whether it decides at all.
    pub(crate) const fn works(&self) -> bool {
        !self.faults.down && !self.faults.blind && (self.read || !self.faults.stale)
    }

    /// Decides, checks and acts until nothing is left to do at this moment.
    pub(crate) fn pass(&mut self) {
        if !self.works() {
            return;
        }
        for _ in 0..MOST_PASSES {
            let snapshot = self.snapshot();
            self.passes += 1;
            let ours = self.ours();
            let (mut unfounded, id) = (Vec::new(), DecisionId(self.passes));
            let before = Before { memory: &self.memory, limits: &self.limits, accounts: &self.accounts };
            let made = step(&before, (&snapshot, &self.catalogue), (id, ours), |decision| {
                unfounded = conclusions::judge(decision, &self.memory, &snapshot, &self.catalogue);
            });
            self.again = made.next_change_at.map(|at| self.truly(at));
            let at = self.line.clock();
            self.broken.extend(unfounded.iter().map(|what| format!("{at} unfounded: {what:?}")));
            match made.verified.sound() {
                Ok((plan, memory)) => {
                    self.outcomes.clear();
                    self.drains.clear();
                    self.write_down(id, &snapshot, &plan, &memory);
                    let before = std::mem::replace(&mut self.memory, memory);
                    self.tell(&before, &plan);
                    self.note(&before, false);
                    self.limits = plan.limits;
                    self.accounts = plan.accounts;
                    let acted = self.act(plan.actions);
                    if !acted && self.memory == before {
                        return;
                    }
                }
                Err(faults) => {
                    self.broken.extend(faults.iter().map(|fault| format!("{at} unsound: {fault}")));
                    return;
                }
            }
        }
        let at = self.line.clock();
        self.broken.push(format!("{at} the decision does not come to rest"));
    }

    fn snapshot(&mut self) -> Snapshot {
        let Times { now: ours, wall } = self.times;
        if !self.faults.stale {
            self.read = true;
            let instances = self.cloud.machines.iter().map(|(id, m)| (id.clone(), Arc::clone(&m.made))).collect();
            self.inventory = Observation::complete(ours, instances).happened_by(ours);
        }
        Snapshot {
            wall,
            suppliers: [(market::supplier(), Some(Arc::new(self.inventory.clone())))].into(),
            cluster: self.facts.clone(),
            outcomes: self.outcomes.iter().map(|(key, outcome)| (key.clone(), outcome.clone().happened_by(ours))).collect(),
            launching: self.asked.iter().map(|asked| asked.request.key.clone()).collect(),
            terminating: self.ending.keys().cloned().collect(),
            drains: self.drains.clone(),
            seen: self.seen.clone(),
            demand: self.demand.clone(),
            images: self.images.clone(),
            buffers: Some(self.buffers),
            foreign: None,
        }
    }

    /// Begins to do the actions; whether any is new.
    fn act(&mut self, actions: Vec<Action>) -> bool {
        let busy: BTreeSet<NodeName> = self.chores.iter().map(|(_, chore)| chore.node().clone()).collect();
        let mut acted = false;
        for action in actions {
            let chore = match action {
                Action::Launch { request, .. } => {
                    self.asked.push(Asked { due: self.now + ANSWERS_IN, request });
                    acted = true;
                    continue;
                }
                Action::Terminate { instance, .. } => {
                    if !self.ended_lately.contains_key(&instance) {
                        self.ending.insert(instance.clone(), self.now + ANSWERS_IN);
                        self.ended_lately.insert(instance.clone(), self.now + REPEAT_AFTER);
                        self.cloud.end(&instance, self.now);
                        acted = true;
                    }
                    continue;
                }
                Action::Hold { node, .. } => Chore::Hold(node),
                Action::Release { node } => Chore::Release(node),
                Action::RemoveNode { node, .. } => Chore::Remove(node),
                Action::Drain { node, provider_id, evict, gone_by, .. } => {
                    Chore::Drain(node, provider_id, Pods { evict, gone_by })
                }
                Action::Uncordon { node, .. } => Chore::Uncordon(node),
            };
            // One change to a node at a time: what it comes to is seen before the next is made.
            if !busy.contains(chore.node()) && !self.chores.iter().any(|(_, other)| other.node() == chore.node()) {
                self.chores.push((self.now + WRITES_IN, chore));
            }
        }
        acted
    }

    /// Deletes nodes, as the service does once a probe has not objected.
    pub(crate) fn delete(&mut self, group: &NodeGroupId, nodes: &[orders::NodeRef]) -> Result<(), orders::DeleteRefused> {
        let (now, facts) = (self.ours(), self.facts.clone());
        let before = self.memory.clone();
        let gone = orders::delete(&mut self.memory, &self.catalogue, facts.as_deref(), group, nodes, now).map(drop);
        self.note(&before, true);
        gone
    }

    /// The process ends, with all that it had only in memory.
    pub(crate) fn die(&mut self) {
        self.faults.down = true;
        self.mark = Some(self.clock.mark(Some(BOOT.to_owned())));
        // What was asked of the supplier is done, and nobody hears of it.
        for Asked { request, .. } in std::mem::take(&mut self.asked) {
            let _: LaunchOutcome = self.cloud.launch(&request, self.now);
        }
        self.outcomes.clear();
        self.drains.clear();
        self.ending.clear();
        self.ended_lately.clear();
        self.chores.clear();
        self.seen.clear();
        self.facts = None;
        self.read = false;
        self.again = None;
    }

    /// The process begins again, with the memory as it was written down.
    pub(crate) fn live(&mut self) {
        self.faults.down = false;
        let written = serde_json::to_string(&self.memory).unwrap();
        let read: Memory = serde_json::from_str(&written).unwrap();
        if read != self.memory {
            let at = self.line.clock();
            self.broken.push(format!("{at} the memory that was written is not the one that is read"));
        }
        self.memory = read;
        let (boot, wall) = self.clocks();
        if let Some(mark) = self.mark.take() {
            let Resumed { clock, rebase, .. } = EngineClock::resume(&mark, boot, Some(BOOT), wall);
            self.clock = clock;
            self.tick();
            if let Some(by) = rebase {
                self.memory = self.memory.rebased(by).unwrap();
            }
        }
    }
}
