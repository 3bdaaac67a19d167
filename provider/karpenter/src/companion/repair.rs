//! The condition of Nodes with unfit GPUs by which Karpenter's node repair replaces them.
//!
//! Karpenter's provider names the condition and how long it waits; it goes by force, whatever holds the node. So the condition is set by
//! the rules for unhealthy nodes of the pool that `stoker.dev/rules-of` names, and where a pod is to be waited for, only while none is there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::decide::hardware_fault;
use stoker_core::facts::activity::GpuActivity;
use stoker_core::facts::reading::seen::Hearing;
use stoker_core::policy::rules::health::{HealthRules, REPLACED_WITHIN, UnhealthyAction, at_once};
use stoker_core::policy::rules::karpenter::Lever;
use stoker_core::state::probe_history::{CLEAN_FOR, FAULT_LASTS};
use stoker_service::feeds::probes::SeenNodes;

use super::Inputs;
use super::faults::Faults;
use super::marks::is_steered;
use super::protect;
use super::reach::Made;
use crate::objects::{Condition, NODE_POOL, Node, label};

/// The reason of a condition that is Stoker's.
pub(crate) const REASON: &str = "StokerGpuUnhealthy";

/// The conditions by which Karpenter's providers repair a node for its GPUs, by cloud.
pub(crate) const CONDITIONS: [(&str, &str); 2] =
    [("aws", "AcceleratedHardwareReady"), ("azure", "kubernetes.azure.com/NodeHealthy")];

/// How long nothing has to run on a Node until it counts as free.
const FREE_FOR: SignedDuration = SignedDuration::from_secs(protect::FREE_FOR.as_secs().cast_signed());

/// What probes have seen, and when that is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probed<'a> {
    pub(crate) seen: &'a SeenNodes,
    pub(crate) now: Timestamp,
}

/// What is done to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It gets the condition, with why.
    Set { condition: &'static str, why: String },
    /// It loses Stoker's.
    Clear { condition: &'static str },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { condition, why } => write!(f, "set condition {condition} to False: {why}"),
            Self::Clear { condition } => write!(f, "took condition {condition} back"),
        }
    }
}

/// How the GPUs of Nodes were lately.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    nodes: BTreeMap<String, Health>,
    /// The Nodes that got the condition within [`REPLACED_WITHIN`], with their `NodePools`, also where they are gone since.
    lately: BTreeMap<String, (String, Timestamp)>,
}

/// How those of one Node were.
#[derive(Debug, Default)]
struct Health {
    /// Since when something is wrong that a look may be wrong about.
    faulty: Option<Timestamp>,
    /// Since when it is unhealthy.
    unfit: Option<Timestamp>,
    /// Since when nothing is wrong with it any more.
    clean: Option<Timestamp>,
    /// Since when nothing runs on it.
    free: Option<Timestamp>,
}

impl Health {
    /// Whether a fault counts, and since when: at once where one look is enough, and for a while after it is gone.
    fn unfit(&mut self, certain: Option<bool>, heard: bool, now: Timestamp) -> Option<Timestamp> {
        let is_over = |since: Timestamp, length: SignedDuration| now.duration_since(since) >= length;
        if let Some(certain) = certain {
            self.clean = None;
            let since = *self.faulty.get_or_insert(now);
            if certain || self.unfit.is_some() || is_over(since, FAULT_LASTS) {
                self.unfit.get_or_insert(now);
            }
        } else {
            self.faulty = None;
            // What nobody hears is not well again for that.
            self.clean = if heard { Some(self.clean.unwrap_or(now)) } else { None };
            if self.clean.is_some_and(|since| is_over(since, CLEAN_FOR)) {
                self.unfit = None;
            }
        }
        self.unfit
    }
}

/// The Nodes of steered `NodePools` whose probes are to be heard.
pub(super) fn watched(inputs: &Inputs<'_>) -> BTreeSet<NodeName> {
    if !inputs.policy.karpenter.has(Lever::Repair) {
        return BTreeSet::new();
    }
    steered(inputs).filter_map(|(name, _, _)| NodeName::new(name).ok()).collect()
}

/// Nodes of Karpenter's own that are steered, and their `NodePools`.
fn steered<'a>(inputs: &Inputs<'a>) -> impl Iterator<Item = (&'a str, &'a Node, &'a str)> + use<'a> {
    let facts = inputs.facts;
    let nodes = facts
        .nodes
        .iter()
        .filter(|(_, node)| label(&node.meta, CLUSTER_LABEL).is_none() && node.meta.deletion_timestamp.is_none());
    nodes.filter_map(move |(name, node)| {
        let pool = label(&node.meta, NODE_POOL)?;
        facts.pools.get(pool).filter(|pool| is_steered(pool))?;
        Some((name.as_str(), node, pool))
    })
}

/// A Node that may get the condition now.
struct Due<'a> {
    name: &'a str,
    condition: &'static str,
    why: String,
}

/// A `NodePool` whose Nodes are repaired.
#[derive(Default)]
struct PoolHealth<'a> {
    nodes: u32,
    unfit: u32,
    due: Vec<Due<'a>>,
    /// Most that may get it within [`REPLACED_WITHIN`].
    most: u32,
}

impl Repair {
    /// Which conditions are to be set, and which taken back; these come first.
    pub(super) fn plan(&mut self, inputs: &Inputs<'_>, made: &Made, faults: &mut Faults) -> Vec<(String, Change)> {
        let mut there = HashSet::new();
        let mut changes = Vec::new();
        let mut wards = BTreeMap::<&str, PoolHealth<'_>>::new();
        let repairs = inputs.policy.karpenter.has(Lever::Repair);
        let all: Vec<_> = if repairs { steered(inputs).collect() } else { Vec::new() };
        for (name, node, pool) in all {
            there.insert(name);
            // What is not known keeps what stands.
            let (Some(probed), Some(occupied)) = (inputs.probed, inputs.occupied) else { continue };
            let (care, condition) = match care_of(inputs, made, pool) {
                Ok(Some(care)) => care,
                Ok(None) => continue,
                Err(why) => {
                    faults.add(format!("NodePool {pool}"), format!("its nodes are not repaired: {why}"));
                    continue;
                }
            };
            let ward = wards.entry(pool).or_default();
            (ward.nodes, ward.most) = (ward.nodes + 1, care.max_replacements);
            let found = self.judge((name, node, pool), condition, occupied, probed);
            let Some(Unfit { since, free, why }) = found else {
                if own(node, condition).is_some() {
                    changes.push((name.to_owned(), Change::Clear { condition }));
                }
                continue;
            };
            ward.unfit += 1;
            let is_due = probed.now.duration_since(since) >= care.after;
            let may = match care.action {
                UnhealthyAction::Cordon => false,
                UnhealthyAction::Wait => free,
                UnhealthyAction::Drain => true,
            };
            match node.status.condition(condition) {
                Some(stands) if is_ours(stands) && !may => changes.push((name.to_owned(), Change::Clear { condition })),
                None if is_due && may => ward.due.push(Due { name, condition, why }),
                None if is_due => {
                    let why = format!("its GPUs are unhealthy ({why}), and it is not repaired while pods use it: cordon it");
                    faults.add(format!("Node {name}"), why);
                }
                Some(stands) if is_due && !is_ours(stands) && stands.status != "False" => {
                    let why = format!(
                        "its GPUs are unhealthy ({why}), and somebody else keeps its condition {condition}: replace it by hand"
                    );
                    faults.add(format!("Node {name}"), why);
                }
                _ => {}
            }
        }
        self.nodes.retain(|name, _| there.contains(name.as_str()));
        if let Some(Probed { now, .. }) = inputs.probed {
            self.lately.retain(|_, (_, at)| now.duration_since(*at) < REPLACED_WITHIN);
        }
        let left = inputs.facts.nodes.iter().filter(|(name, _)| !there.contains(name.as_str()));
        changes.extend(left.filter_map(|(name, node)| Some((name.clone(), Change::Clear { condition: own_condition(node)? }))));
        for (pool, ward) in wards {
            changes.extend(self.set_some(pool, ward, faults));
        }
        changes
    }

    /// What is wrong with a Node, if anything is.
    fn judge(
        &mut self,
        (name, node, pool): (&str, &Node, &str),
        condition: &'static str,
        occupied: &BTreeSet<NodeName>,
        Probed { seen, now }: Probed<'_>,
    ) -> Option<Unfit> {
        let health = self.nodes.entry(name.to_owned()).or_default();
        let node_name = NodeName::new(name).ok()?;
        let seen = seen.get(&node_name);
        let busy = occupied.contains(&node_name) || matches!(GpuActivity::of(seen.map(AsRef::as_ref)), GpuActivity::Active(_));
        health.free = if busy { None } else { Some(health.free.unwrap_or(now)) };
        if let Some(stands) = own(node, condition) {
            // It was so before a restart, too.
            let at = stands.last_transition_time.as_ref().map_or(now, |time| time.0.min(now));
            health.unfit.get_or_insert(at);
            self.lately.insert(name.to_owned(), (pool.to_owned(), at));
        }
        let fault = seen.and_then(|seen| hardware_fault(seen, !busy, node.status.ready_since(), now));
        let heard = seen.is_some_and(|seen| matches!(seen.hearing, Hearing::Heard { .. }));
        let since = health.unfit(fault.as_ref().map(|fault| fault.certain), heard, now)?;
        // The next pod of a job is often there within a minute.
        let is_over = |free: Timestamp| now.duration_since(free) >= FREE_FOR;
        let free = !busy && (own(node, condition).is_some() || health.free.is_some_and(is_over));
        let why = fault.map_or_else(|| "they were a moment ago".to_owned(), |fault| fault.why.to_string());
        Some(Unfit { since, free, why })
    }

    /// Those of a `NodePool` that get the condition now: a bad driver or a faulty probe makes many unhealthy at once, and must not cost the fleet.
    fn set_some(&mut self, pool: &str, ward: PoolHealth<'_>, faults: &mut Faults) -> Vec<(String, Change)> {
        let PoolHealth { nodes, unfit, due, most } = ward;
        if due.is_empty() {
            return Vec::new();
        }
        let lately = self.lately.values().filter(|(of, _)| of == pool).count();
        let left = if unfit > at_once(nodes) { 0 } else { (most as usize).saturating_sub(lately) };
        if due.len() > left {
            let why = format!("{unfit} of its {nodes} nodes are unhealthy, {lately} were given up lately: the others wait");
            faults.add(format!("NodePool {pool}"), why);
        }
        let now = due.into_iter().take(left);
        now.map(|due| (due.name.to_owned(), Change::Set { condition: due.condition, why: due.why })).collect()
    }
}

/// A Node with unfit GPUs.
struct Unfit {
    since: Timestamp,
    /// Whether nothing has run on it for a while.
    free: bool,
    why: String,
}

/// The rules by which the Nodes of a `NodePool` are repaired, and the condition by which its provider does that; `None` while what it makes is
/// not known, which other levers tell.
///
/// # Errors
/// Why they are not repaired.
fn care_of(inputs: &Inputs<'_>, made: &Made, pool: &str) -> Result<Option<(HealthRules, &'static str)>, String> {
    let (Some(Ok(makes)), Some(pool)) = (made.get(pool), inputs.facts.pools.get(pool)) else { return Ok(None) };
    let condition = CONDITIONS.iter().find(|(cloud, _)| *cloud == makes.cloud.as_str()).map(|(_, condition)| *condition);
    let condition = condition.ok_or("Karpenter replaces none for its GPUs there, as on AWS and Azure")?;
    let rules = inputs.rules_of(pool)?.map_or_else(HealthRules::default, |pool| pool.unhealthy);
    Ok(Some((rules, condition)))
}

/// A condition of a Node, where it is Stoker's.
fn own<'a>(node: &'a Node, condition: &str) -> Option<&'a Condition> {
    node.status.condition(condition).filter(|condition| is_ours(condition))
}

/// Whether a condition is Stoker's.
fn is_ours(condition: &Condition) -> bool {
    condition.reason == REASON
}

/// The condition that Stoker has set on a Node; `None` where it has set none.
pub(super) fn own_condition(node: &Node) -> Option<&'static str> {
    let all = CONDITIONS.iter().map(|(_, condition)| *condition);
    all.into_iter().find(|condition| node.status.condition(condition).is_some_and(is_ours))
}
