//! What no scene may break, watched from outside: from what pods, machines and probes truly do, by slow and obvious code, and not from
//! what the provider believes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use stoker_core::health::UnhealthyAction;
use stoker_core::ids::{NodeGroupId, PoolName};
use stoker_core::offer::CapacityType;
use stoker_core::policy::{Evidence, MoveBack, Pool};
use stoker_core::window::Window;

use crate::scene::Scene;

/// How long after a release nodes of the same shape are not bought again, unless demand rose.
const NOT_AGAIN_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// After so long without a reading a node's probe is silent; some seconds are left for it to be noticed.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// How long a floor may lack nodes while nothing keeps them from coming: a boot that fails and the next, and the time for which the
/// autoscaler leaves a group alone.
const FLOOR_FILLS_WITHIN: SignedDuration = SignedDuration::from_mins(45);

/// A node that was given up because nothing needed it.
#[derive(Debug, Clone)]
struct Released {
    at: Timestamp,
    group: NodeGroupId,
    /// What had been asked of its pool by then: pods that came, and nodes that its floor wants.
    asked: (u64, u32),
    /// Machines that had been lost by then.
    lost: u64,
    /// Whether a user had closed it.
    touched: bool,
}

/// What is known of the world and not of the provider.
#[derive(Debug)]
pub struct Truth {
    start: Timestamp,
    pub(crate) broken: Vec<String>,
    /// Nodes whose hardware is broken.
    pub(crate) sick: BTreeSet<String>,
    /// Since when nodes are without a pod.
    free_since: BTreeMap<String, Timestamp>,
    /// Since when probes speak.
    speaks_since: BTreeMap<String, Timestamp>,
    /// Since when probes are silent.
    silent_since: BTreeMap<String, Timestamp>,
    /// What had been asked of the pool when the autoscaler chose a node.
    chosen: BTreeMap<String, (u64, u32)>,
    /// How many pods each pool was asked to serve so far: those that came, and those that lost their node.
    pub(crate) came: BTreeMap<String, u64>,
    /// Nodes that were free when they were deleted.
    deleted_free: BTreeSet<String>,
    /// Nodes that a user cordoned or held.
    pub(crate) touched: BTreeSet<String>,
    /// When the provider last looked at nothing.
    pub(crate) blind_at: Option<Timestamp>,
    /// When the provider's clock last went ahead.
    pub(crate) jumped_at: Option<Timestamp>,
    released: Vec<Released>,
    /// Since when floors lack nodes although nothing keeps them from coming.
    lacking: BTreeMap<PoolName, Timestamp>,
    looked_at: usize,
    /// What happened, counted.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) asked: u64,
    lost: u64,
}

impl Truth {
    pub(crate) const fn new(start: Timestamp) -> Self {
        Self {
            start,
            broken: Vec::new(),
            sick: BTreeSet::new(),
            free_since: BTreeMap::new(),
            speaks_since: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            chosen: BTreeMap::new(),
            came: BTreeMap::new(),
            deleted_free: BTreeSet::new(),
            touched: BTreeSet::new(),
            jumped_at: None,
            blind_at: None,
            released: Vec::new(),
            lacking: BTreeMap::new(),
            looked_at: 0,
            counts: BTreeMap::new(),
            asked: 0,
            lost: 0,
        }
    }

    fn breaks(&mut self, at: Timestamp, what: &str) {
        self.broken.push(format!("{} {what}", crate::timeline::shown(at.duration_since(self.start)).trim_end()));
    }

    /// Whether a node may go before its window is over: it is not fit for work, a user has put a hand on it, or the provider's clock went
    /// ahead a short while ago, which no provider can tell from time that passed while it was away.
    fn is_excused(&self, node: &str, now: Timestamp) -> bool {
        // Nor does it see pods that come and go while its watch is cut or it is down.
        let lately = |at: Option<Timestamp>| at.is_some_and(|at| now.duration_since(at) < SignedDuration::from_hours(1));
        let jumped = lately(self.jumped_at) || lately(self.blind_at);
        self.sick.contains(node) || self.touched.contains(node) || jumped
    }

    /// How long a node has been without a pod.
    pub(crate) fn free_for(&self, node: &str, now: Timestamp) -> SignedDuration {
        self.free_since.get(node).map_or(SignedDuration::ZERO, |since| now.duration_since(*since))
    }

    /// Counts one more of something.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn joined(&mut self, node: &str, now: Timestamp) {
        self.free_since.insert(node.to_owned(), now);
        self.count("nodes joined");
    }

    pub(crate) fn removed(&mut self, node: &str) {
        self.free_since.remove(node);
        self.silent_since.remove(node);
        self.sick.remove(node);
        self.touched.remove(node);
        self.chosen.remove(node);
        self.deleted_free.remove(node);
    }

    pub(crate) fn evicted_by_autoscaler(&mut self, pod: &str, node: &str, now: Timestamp) {
        self.count("pods evicted by the autoscaler");
        self.breaks(now, &format!("the autoscaler's scale-down evicted {pod} from {node}"));
    }

    pub(crate) fn machine_gone(&mut self, node: &str, reclaimed: bool, pods: &[String], now: Timestamp) {
        if reclaimed {
            self.count("machines taken back");
            self.lost += 1;
        } else {
            self.count("machines ended");
            if !pods.is_empty() && self.deleted_free.contains(node) {
                // The autoscaler did not hear that its deletion was taken, opened the node again, and the scheduler was quick.
                self.count("machines ended under a pod that came after the deletion was taken");
            } else if !pods.is_empty() {
                self.breaks(now, &format!("the machine of {node} was ended under {}", pods.join(", ")));
            }
        }
        if self.sick.contains(node) {
            self.lost += 1;
        }
    }
}

impl Scene {
    fn pool_of_node(&self, node: &str) -> Option<(&Pool, NodeGroupId, CapacityType)> {
        let machine = self.desk().cloud.of_node(node)?;
        let group = machine.made.key.as_str().split('/').nth(1)?;
        let menu = &self.desk().menu;
        let group = menu.groups.get(group)?;
        Some((menu.policy.pool(&group.pool)?, group.id.clone(), machine.made.market.capacity_type))
    }

    /// A pod is told to go by us: only where its machine goes in any case, or the policy says so of such a node.
    pub(crate) fn evicted_by_us(&mut self, pod: &str, node: &str) {
        self.truth.count("pods told to go");
        let reclaimed = self.desk().cloud.of_node(node).is_none_or(|machine| machine.reclaim.is_some());
        let by_policy = self.pool_of_node(node).is_some_and(|(pool, _, bought)| {
            let sick = self.truth.sick.contains(node) && pool.unhealthy.action == UnhealthyAction::Drain;
            let back =
                pool.spot.as_ref().is_some_and(|spot| spot.move_back == MoveBack::Busy) && bought == CapacityType::OnDemand;
            let ends = bought == CapacityType::Reserved && !self.desk().menu.policy.commitments.is_empty();
            let forgotten = self.pods.get(pod).is_some_and(|pod| !pod.spec.works)
                && pool.off_hours.as_ref().is_some_and(|hours| hours.evict_held_after.is_some());
            sick || back || ends || forgotten
        });
        if !reclaimed && !by_policy {
            let now = self.now;
            self.truth.breaks(now, &format!("{pod} was told to leave {node}, and nothing excuses it"));
        }
    }

    /// The autoscaler takes a node for unneeded and marks it.
    pub(crate) fn chosen(&mut self, node: &str) {
        let Some(pool) = self.pool_of_node(node).map(|(pool, ..)| pool.name.clone()) else { return };
        let asked = self.asked_of(&pool);
        self.truth.chosen.insert(node.to_owned(), asked);
        self.window_is_over(node);
    }

    /// A node that the autoscaler chooses was free for its pool's window and has lived for its minimum, by the true clock and whatever
    /// restarted in between.
    fn window_is_over(&mut self, node: &str) {
        let now = self.now;
        let Some((pool, ..)) = self.pool_of_node(node) else { return };
        let Some(rules) = &pool.stabilization else { return };
        let Some(machine) = self.desk().cloud.of_node(node) else { return };
        let price = self.desk().memory.records.values().find(|record| record.instance() == Some(&machine.made.provider_id));
        let price = price.and_then(|record| record.purchase()).map_or(0, |purchase| purchase.price.0);
        let mut window = rules.scale_down;
        if rules.window == Window::EqualPay && price > 0 {
            // What 150 s of waiting cost, a minute at least.
            window = window.min(SignedDuration::from_secs((150 * pool.waiting.0 / price).max(60)));
        }
        let free = self.truth.free_for(node, now);
        let lived = now.duration_since(machine.made.launched_at) + SignedDuration::from_secs(15);
        // In off-hours nodes beyond their limit wait for nothing.
        let off = pool.off_hours.as_ref().is_some_and(|off| off.max_nodes.is_some() && off.at(now).0);
        let (least, excused) = (rules.minimum_life, off || self.truth.is_excused(node, now));
        if (free < window || lived < least) && !excused {
            let what = format!(
                "{node} is chosen after {} s free of {} s and {} s of life of {} s",
                free.as_secs(),
                window.as_secs(),
                lived.as_secs(),
                least.as_secs()
            );
            self.truth.breaks(now, &what);
        }
    }

    /// The autoscaler deleted a node through the door, and the provider took it.
    pub(crate) fn deleted(&mut self, node: &str) {
        let (now, pods) = (self.now, self.pods_on(node));
        self.truth.count("nodes deleted by the autoscaler");
        if pods.is_empty() {
            self.truth.deleted_free.insert(node.to_owned());
        } else {
            self.truth.breaks(now, &format!("{node} was deleted under {}", pods.join(", ")));
        }
        let Some((pool, group, _)) = self.pool_of_node(node) else { return };
        let (name, judged_by_probe) = (pool.name.clone(), pool.evidence == Evidence::Probe);
        // One that is heard again is believed after a minute.
        let long = |other: &String| {
            let since = self.truth.speaks_since.get(other);
            since.is_some_and(|since| now.duration_since(*since) > SignedDuration::from_secs(75))
        };
        // None of a pool's probes speaking is another matter: its pods tell then.
        let same_pool = |other: &String| self.pool_of_node(other).is_some_and(|(pool, ..)| pool.name == name);
        let others_speak =
            self.probes.iter().any(|(other, probe)| other != node && probe.online && long(other) && same_pool(other));
        let silent = self.truth.silent_since.get(node).is_some_and(|since| now.duration_since(*since) > SILENT_AFTER);
        // Broken hardware need not tell: what keeps it is what runs on it.
        if judged_by_probe && silent && others_speak && !self.truth.sick.contains(node) {
            self.truth.breaks(now, &format!("{node} was deleted while its probe was silent"));
        }
        let asked = self.truth.chosen.get(node).copied().unwrap_or_else(|| self.asked_of(&name));
        let (lost, touched) = (self.truth.lost, self.truth.touched.contains(node));
        self.truth.released.push(Released { at: now, group, asked, lost, touched });
    }

    /// Pods that came to a pool so far, and nodes that its floor wants.
    fn asked_of(&self, pool: &PoolName) -> (u64, u32) {
        let floors = self.desk().accounts.floors.iter().filter(|floor| floor.pool == *pool);
        (self.truth.came.get(pool.as_str()).copied().unwrap_or(0), floors.map(|floor| floor.wanted).sum())
    }

    /// Looks at the world after each step.
    pub(crate) fn truth_watches(&mut self) {
        let now = self.now;
        let busy: BTreeSet<String> = self.autoscaler.cluster().all_pods().filter_map(|pod| pod.node.clone()).collect();
        for (node, since) in &mut self.truth.free_since {
            if busy.contains(node) {
                *since = now;
            }
        }
        if !self.desk().works() {
            self.truth.blind_at = Some(now);
        }
        for (node, probe) in &self.probes {
            if probe.online {
                self.truth.silent_since.remove(node);
                self.truth.speaks_since.entry(node.clone()).or_insert(now);
            } else {
                self.truth.speaks_since.remove(node);
                self.truth.silent_since.entry(node.clone()).or_insert(now);
            }
        }
        self.floors_fill();
        let fresh = self.desk().bought.get(self.truth.looked_at..).unwrap_or_default().to_vec();
        self.truth.looked_at += fresh.len();
        for (at, group) in fresh {
            self.bought(at, &group);
        }
    }

    /// Nodes of a pool that a pod could begin on at once, as they truly are.
    fn truly_warm(&self, pool: &PoolName) -> usize {
        let nodes = self.autoscaler.cluster().all_nodes().filter(|node| node.ready() && !node.unschedulable);
        // One that is known to be broken is closed; of the others nobody knows.
        let nodes = nodes.filter(|node| !self.gone.contains_key(&node.name));
        let taken = |name: &str| self.autoscaler.cluster().all_pods().any(|pod| pod.node.as_deref() == Some(name));
        nodes
            .filter(|node| self.pool_of_node(&node.name).is_some_and(|(of, ..)| of.name == *pool) && !taken(&node.name))
            .count()
    }

    /// Whether a node of a pool is broken, or taken back, and so to be replaced.
    fn is_losing(&self, pool: &PoolName) -> bool {
        let lost = |machine: &&crate::cloud::Machine| machine.reclaim.is_some();
        let taken = self.desk().cloud.machines.values().filter(lost).map(|machine| machine.made.node_name.as_str());
        let mut losing = taken.chain(self.truth.sick.iter().map(String::as_str));
        losing.any(|node| self.pool_of_node(node).is_some_and(|(of, ..)| of.name == *pool))
    }

    /// Whether no more free nodes of a node's pool are held than its floor wants.
    pub(crate) fn keeps_floor(&self, node: &str) -> bool {
        let Some((pool, ..)) = self.pool_of_node(node) else { return false };
        let wanted = usize::try_from(self.asked_of(&pool.name).1).unwrap_or(usize::MAX);
        let of_pool = |node: &str| self.pool_of_node(node).is_some_and(|(of, ..)| of.name == pool.name);
        // Broken ones are kept for another reason, until they may be replaced.
        let fit = |node: &str| self.pods_on(node).is_empty() && self.verdict(node) != "unhealthy";
        let free = self.held.iter().filter(|node| of_pool(node) && fit(node));
        free.count() <= wanted
    }

    /// Floors that lack nodes, by what their pools always keep, with what the provider says keeps those from coming.
    pub(crate) fn floors_lack(&self) -> Vec<(PoolName, usize, u32, Option<String>)> {
        let pools = self.desk().menu.policy.pools.iter();
        let lacks = pools.filter_map(|pool| {
            let floor = pool.warm_floor.as_ref()?;
            if pool.off_hours.as_ref().is_some_and(|off| off.at(self.desk().ours()).0) {
                return None;
            }
            let warm = self.truly_warm(&pool.name);
            let stands = self.desk().accounts.floors.iter().find(|floor| floor.pool == pool.name);
            let blocked = stands.and_then(|stands| stands.blocked.clone());
            (u32::try_from(warm).unwrap_or(u32::MAX) < floor.nodes).then(|| (pool.name.clone(), warm, floor.nodes, blocked))
        });
        lacks.collect()
    }

    /// A floor lacks nodes only where the provider says what keeps them from coming, or where the world keeps it from filling.
    fn floors_fill(&mut self) {
        let now = self.now;
        let (jumped, faults) = (self.truth.jumped_at, &self.desk().faults);
        let lately = jumped.is_some_and(|at| now.duration_since(at) < FLOOR_FILLS_WITHIN);
        let troubled = faults.stale || faults.unclear || faults.unheard || self.desk().cloud.is_short();
        let disturbed = troubled || lately || !self.desk().works() || !self.scans || self.deaf;
        let silent = self.probes.values().any(|probe| !probe.online);
        let lack = if disturbed || silent { Vec::new() } else { self.floors_lack() };
        let lack: Vec<_> = lack.into_iter().filter(|(.., blocked)| blocked.is_none()).collect();
        self.truth.lacking.retain(|pool, _| lack.iter().any(|(other, ..)| other == pool));
        for (pool, warm, wanted, _) in lack {
            let since = *self.truth.lacking.entry(pool.clone()).or_insert(now);
            if now.duration_since(since) > FLOOR_FILLS_WITHIN {
                let minutes = FLOOR_FILLS_WITHIN.as_mins();
                self.truth.lacking.remove(&pool);
                self.truth.breaks(
                    now,
                    &format!("the floor of {pool} has {warm} of {wanted} nodes for {minutes} min, and nothing says why"),
                );
            }
        }
    }

    fn bought(&mut self, at: Timestamp, group: &NodeGroupId) {
        self.truth.count("nodes bought");
        let recent = |released: &&Released| released.group == *group && at.duration_since(released.at) < NOT_AGAIN_WITHIN;
        let Some(last) = self.truth.released.iter().rfind(recent).cloned() else { return };
        let Some(pool) = self.desk().menu.groups.get(group).map(|group| group.pool.clone()) else { return };
        let asked = self.asked_of(&pool);
        if asked.0 > last.asked.0 {
            self.truth.count("bought again: pods came");
        } else if asked.1 > last.asked.1 {
            self.truth.count("bought again: the floor rose");
        } else if last.touched {
            self.truth.count("bought again: a user had closed the node that went");
        } else if self.truth.lost > last.lost || self.is_losing(&pool) {
            self.truth.count("bought again: a node was lost");
        } else {
            self.truth.count("bought again: unexplained");
            let ago = at.duration_since(last.at).as_secs();
            let what =
                format!("{group} is bought again {ago} s after a node of it was given up, and nothing new was asked for");
            self.truth.breaks(at, &what);
        }
    }
}
