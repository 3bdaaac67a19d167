//! What a pass tells: to logs, as Events, to whoever asks why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::aside::AsideFor;
use crate::budget::{Budget, BudgetOf, Stage};
use crate::ids::{NodeGroupId, NodeName, OrderId, PoolName, ProviderId};
use crate::leaving::LeaveFor;
use crate::offer::Market;
use crate::supply::RefusalKind;

/// What happened that people may want to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "note")]
pub enum Note {
    /// Nothing of an order could be had.
    OrderFailed {
        /// The order.
        order: Option<OrderId>,
        /// Its group.
        group: NodeGroupId,
        /// Nodes that could not be had.
        nodes: u32,
        /// Why, as a class.
        kind: RefusalKind,
        /// Why, in words.
        message: String,
    },
    /// A part of an order could not be had.
    OrderShort {
        /// The order.
        order: Option<OrderId>,
        /// Its group.
        group: NodeGroupId,
        /// Nodes that could not be had.
        nodes: u32,
        /// Why, in words.
        message: String,
    },
    /// A machine did not join the cluster in time.
    BootTimeout {
        /// Its group.
        group: NodeGroupId,
        /// The machine.
        instance: Option<ProviderId>,
    },
    /// A machine is gone that nobody asked to go.
    Lost {
        /// Its group.
        group: NodeGroupId,
        /// The machine.
        instance: ProviderId,
        /// Where it was bought.
        market: Market,
        /// When it was made.
        launched_at: Timestamp,
    },
    /// A machine of ours was found without a record, and has one now.
    Adopted {
        /// Its group.
        group: NodeGroupId,
        /// The machine.
        instance: ProviderId,
    },
    /// A machine carries our cluster's name, but a group that nobody knows.
    Orphan {
        /// The machine.
        instance: ProviderId,
        /// Its group, as its key says.
        group: NodeGroupId,
    },
    /// A group is frozen: no pod joined its last nodes.
    Frozen {
        /// The group.
        group: NodeGroupId,
        /// So many nodes in a row.
        nodes: u32,
    },
    /// A frozen group may grow again.
    Thawed {
        /// The group.
        group: NodeGroupId,
    },
    /// A node is being emptied, to be let go.
    Leaving {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: LeaveFor,
    },
    /// A node that was to go stays.
    Stays {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// A node takes no new pods, and is not let go for it.
    SetAside {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: AsideFor,
    },
    /// A node that took no new pods does again.
    TakesPods {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// A node that a pod holds and does nothing with will be emptied.
    WillBeEmptied {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// When.
        at: Timestamp,
    },
    /// Unhealthy nodes of a pool are not replaced any more: there are too many of them.
    ReplacementsStopped {
        /// The pool.
        pool: PoolName,
        /// Its unhealthy nodes.
        unhealthy: u32,
        /// All of its nodes.
        nodes: u32,
        /// Replaced within the last hour.
        replaced: u32,
    },
    /// None of a pool's probes is heard any more, so that its pods are the evidence.
    ProbesLapsed {
        /// The pool.
        pool: PoolName,
        /// Nodes whose probes were awaited.
        nodes: u32,
        /// Since when.
        since: Timestamp,
    },
    /// A pool's probes are heard again, and are the evidence.
    ProbesBack {
        /// The pool.
        pool: PoolName,
        /// Probes that are heard.
        heard: u32,
        /// Of so many.
        of: u32,
    },
    /// A group was grown for a warm floor without the autoscaler.
    FloorGrown {
        /// The group.
        group: NodeGroupId,
        /// By so many nodes.
        nodes: u32,
    },
    /// A budget narrows what is bought, or does so no more.
    Budget {
        /// How it stands now.
        budget: Budget,
        /// What it allowed before.
        before: Stage,
    },
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    /// A group.
    Group(&'a NodeGroupId),
    /// A pool.
    Pool(&'a PoolName),
    /// A budget.
    Budget(&'a BudgetOf),
}

impl Note {
    /// What it is about.
    pub const fn about(&self) -> About<'_> {
        match self {
            Self::OrderFailed { group, .. }
            | Self::OrderShort { group, .. }
            | Self::BootTimeout { group, .. }
            | Self::Lost { group, .. }
            | Self::Adopted { group, .. }
            | Self::Orphan { group, .. }
            | Self::Frozen { group, .. }
            | Self::Leaving { group, .. }
            | Self::Stays { group, .. }
            | Self::SetAside { group, .. }
            | Self::TakesPods { group, .. }
            | Self::WillBeEmptied { group, .. }
            | Self::FloorGrown { group, .. }
            | Self::Thawed { group } => About::Group(group),
            Self::ProbesLapsed { pool, .. } | Self::ProbesBack { pool, .. } | Self::ReplacementsStopped { pool, .. } => {
                About::Pool(pool)
            }
            Self::Budget { budget, .. } => About::Budget(&budget.of),
        }
    }

    /// Its kind as one word, for Events and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::OrderFailed { .. } => "OrderFailed",
            Self::OrderShort { .. } => "OrderShort",
            Self::BootTimeout { .. } => "BootTimeout",
            Self::Lost { .. } => "NodeLost",
            Self::Adopted { .. } => "NodeAdopted",
            Self::Orphan { .. } => "OrphanFound",
            Self::Frozen { .. } => "GroupFrozen",
            Self::Thawed { .. } => "GroupThawed",
            Self::Leaving { .. } => "NodeLeaving",
            Self::Stays { .. } => "NodeStays",
            Self::SetAside { .. } => "NodeClosed",
            Self::TakesPods { .. } => "NodeOpened",
            Self::WillBeEmptied { .. } => "NodeWillBeEmptied",
            Self::ReplacementsStopped { .. } => "ReplacementsStopped",
            Self::ProbesLapsed { .. } => "ProbesLapsed",
            Self::ProbesBack { .. } => "ProbesBack",
            Self::FloorGrown { .. } => "FloorGrown",
            Self::Budget { .. } => "BudgetStage",
        }
    }

    /// Whether somebody may have to act.
    pub const fn is_alarm(&self) -> bool {
        match self {
            Self::OrderFailed { .. }
            | Self::BootTimeout { .. }
            | Self::Orphan { .. }
            | Self::Frozen { .. }
            | Self::ReplacementsStopped { .. }
            | Self::FloorGrown { .. }
            | Self::ProbesLapsed { .. } => true,
            Self::SetAside { why, .. } => matches!(why, AsideFor::Unhealthy),
            Self::TakesPods { .. }
            | Self::WillBeEmptied { .. }
            | Self::OrderShort { .. }
            | Self::Lost { .. }
            | Self::Adopted { .. }
            | Self::Thawed { .. }
            | Self::Leaving { .. }
            | Self::Stays { .. }
            | Self::ProbesBack { .. } => false,
            Self::Budget { budget, before } => budget.stage as u8 > *before as u8,
        }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OrderFailed { group, nodes, kind, message, .. } => {
                write!(f, "{group}: none of {nodes} nodes could be had ({kind}): {message}")
            }
            Self::OrderShort { group, nodes, message, .. } => {
                write!(f, "{group}: {nodes} nodes of an order could not be had: {message}")
            }
            Self::BootTimeout { group, instance } => match instance {
                Some(instance) => write!(f, "{group}: {instance} did not join the cluster in time and is ended"),
                None => write!(f, "{group}: the supplier never said whether a machine was made"),
            },
            Self::Lost { group, instance, market, .. } => {
                write!(f, "{group}: {instance} ({market}) is gone without being asked to go")
            }
            Self::Adopted { group, instance } => write!(f, "{group}: {instance} was found without a record and is counted now"),
            Self::Orphan { instance, group } => write!(f, "{instance} carries our name, but no group {group} is known"),
            Self::Frozen { group, nodes } => {
                write!(
                    f,
                    "{group} is frozen: no pod joined its last {nodes} nodes within 15 min of Ready; compare pods' selectors and tolerations with its template"
                )
            }
            Self::Thawed { group } => write!(f, "{group} may grow again"),
            Self::Leaving { group, node, why } => write!(f, "{group}: {node} is emptied and let go: {why}"),
            Self::Stays { group, node, why } => write!(f, "{group}: {node} stays: {why}"),
            Self::SetAside { group, node, why } => write!(f, "{group}: {node} takes no new pods: {why}"),
            Self::TakesPods { group, node, why } => write!(f, "{group}: {node} takes pods again: {why}"),
            Self::WillBeEmptied { group, node, at } => {
                let at = at.strftime("%H:%MZ");
                write!(f, "{group}: {node} will be emptied at {at}: a pod holds it in off-hours and does nothing")
            }
            Self::ReplacementsStopped { pool, unhealthy, nodes, replaced, .. } => {
                write!(
                    f,
                    "pool {pool}: {unhealthy} of {nodes} nodes are unhealthy and {replaced} were replaced within an hour: no more are, \
                     in case it is their driver or their probe that is wrong; look at those that are left before you raise \
                     unhealthy.maxReplacements"
                )
            }
            Self::ProbesLapsed { pool, nodes, since } => write!(
                f,
                "pool {pool}: none of the probes of {nodes} nodes has been heard since {}; its pods are the evidence until they are back: look at the probes' DaemonSet",
                since.strftime("%Y-%m-%d %H:%M:%SZ")
            ),
            Self::ProbesBack { pool, heard, of } => {
                write!(f, "pool {pool}: {heard} of {of} probes are heard again, and are the evidence")
            }
            Self::FloorGrown { group, nodes } => write!(
                f,
                "{group} is grown by {nodes} for the warm floor: its minSize was above its target for 2 min and the autoscaler did not \
                 ask; give it --enforce-node-group-min-size. Until they are Ready, the groups for the same pods are closed, so that it \
                 does not buy them once more"
            ),
            Self::Budget { budget, .. } => write!(f, "budget of {budget}"),
        }
    }
}
