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
use stoker_core::facts::reading::seen::Hearing;
use stoker_core::policy::rules::health::{HealthRules, UnhealthyAction};
use stoker_core::policy::rules::karpenter::Lever;
use stoker_core::state::probe_history::{CLEAN_FOR, FAULT_LASTS};
use stoker_service::feeds::probes::SeenNodes;

use super::Inputs;
use super::faults::Faults;
use super::marks::is_steered;
use super::reach::Made;
use crate::objects::{NODE_POOL, Node, NodeCondition, label};

/// The reason of a condition that is Stoker's.
pub(crate) const REASON: &str = "StokerGpuUnhealthy";

/// The conditions by which Karpenter's providers repair a node for its GPUs, by cloud.
pub(crate) const CONDITIONS: [(&str, &str); 2] =
    [("aws", "AcceleratedHardwareReady"), ("azure", "kubernetes.azure.com/NodeHealthy")];

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
    Condemn { condition: &'static str, why: String },
    /// It loses Stoker's.
    Acquit { condition: &'static str },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condemn { condition, why } => write!(f, "set condition {condition} to False: {why}"),
            Self::Acquit { condition } => write!(f, "took condition {condition} back"),
        }
    }
}

/// How the GPUs of Nodes were lately.
#[derive(Debug, Default)]
pub(crate) struct Repair(BTreeMap<String, Health>);

/// How those of one Node were.
#[derive(Debug, Default)]
struct Health {
    /// Since when something is wrong that a look may be wrong about.
    faulty: Option<Timestamp>,
    /// Since when it is unhealthy.
    unfit: Option<Timestamp>,
    /// Since when nothing is wrong with it any more.
    clean: Option<Timestamp>,
}

impl Health {
    /// Whether a fault counts, and since when: at once where one look is enough, and for a while after it is gone.
    fn unhealthy(&mut self, certain: Option<bool>, heard: bool, now: Timestamp) -> Option<Timestamp> {
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

impl Repair {
    /// Which conditions are to be set, and which taken back.
    pub(super) fn plan(&mut self, inputs: &Inputs<'_>, made: &Made, faults: &mut Faults) -> Vec<(String, Change)> {
        let mut changes = Vec::new();
        let repairs = inputs.policy.karpenter.has(Lever::Repair);
        let mut there = HashSet::new();
        let steered: Vec<_> = if repairs { steered(inputs).collect() } else { Vec::new() };
        for (name, node, pool) in steered {
            let Some(Probed { seen, now }) = inputs.probed else { return changes };
            // A NodePool that cannot be read is named by the other levers.
            let Some(Ok(makes)) = made.get(pool) else { continue };
            let cloud = makes.cloud.as_str();
            let Some(condition) = CONDITIONS.iter().find(|(of, _)| *of == cloud).map(|(_, condition)| *condition) else {
                let why = "its nodes are not repaired: Karpenter repairs none for its GPUs there, as on AWS and Azure";
                faults.add(format!("NodePool {pool}"), why);
                continue;
            };
            there.insert(name);
            let (Ok(node_name), stands) = (NodeName::new(name), node.status.condition(condition)) else { continue };
            let rules = inputs.facts.pools.get(pool).map_or(Ok(None), |pool| inputs.rules_of(pool));
            let rules = match rules {
                Ok(rules) => rules.map_or_else(HealthRules::default, |pool| pool.unhealthy),
                Err(why) => {
                    faults.add(format!("NodePool {pool}"), format!("its nodes are not repaired: {why}"));
                    continue;
                }
            };
            let busy = inputs.occupied.is_none_or(|occupied| occupied.contains(&node_name));
            let seen = seen.get(&node_name);
            let fault = seen.and_then(|seen| hardware_fault(seen, !busy, node.status.ready_since(), now));
            let heard = seen.is_some_and(|seen| matches!(seen.hearing, Hearing::Heard { .. }));
            let is_ours = stands.is_some_and(is_ours);
            let health = self.0.entry(name.to_owned()).or_default();
            if is_ours {
                // It was so before a restart, too.
                health.unfit.get_or_insert(now);
            }
            let since = health.unhealthy(fault.as_ref().map(|fault| fault.certain), heard, now);
            let is_due = since.is_some_and(|since| now.duration_since(since) >= rules.after) || is_ours && since.is_some();
            let may = match rules.action {
                UnhealthyAction::Cordon => false,
                UnhealthyAction::Wait => !busy,
                UnhealthyAction::Drain => true,
            };
            match (stands, is_due && may) {
                (Some(stands), true) if !is_ours && stands.status != "False" => {
                    let why = fault.map_or_else(String::new, |fault| format!(": {}", fault.why));
                    let why = format!(
                        "its GPUs are unhealthy{why}; somebody else keeps its condition {condition}, so replace it by hand"
                    );
                    faults.add(format!("Node {name}"), why);
                }
                (None, true) => {
                    let why = fault.map_or_else(|| "its GPUs are unhealthy".to_owned(), |fault| fault.why.to_string());
                    changes.push((name.to_owned(), Change::Condemn { condition, why }));
                }
                (Some(_), false) if is_ours => changes.push((name.to_owned(), Change::Acquit { condition })),
                _ => {}
            }
        }
        self.0.retain(|name, _| there.contains(name.as_str()));
        let left = inputs.facts.nodes.iter().filter(|(name, _)| !there.contains(name.as_str()));
        changes.extend(left.filter_map(|(name, node)| Some((name.clone(), Change::Acquit { condition: condemned(node)? }))));
        changes
    }
}

/// Whether a condition is Stoker's.
fn is_ours(condition: &NodeCondition) -> bool {
    condition.reason == REASON
}

/// The condition that Stoker has set on a Node; `None` where it has set none.
pub(super) fn condemned(node: &Node) -> Option<&'static str> {
    let all = CONDITIONS.iter().map(|(_, condition)| *condition);
    all.into_iter().find(|condition| node.status.condition(condition).is_some_and(is_ours))
}
