//! Notes of a pass, for logs, Events and `stoker explain`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{NodeGroupId, NodeName, OrderId, PoolName, ProviderId};
use crate::facts::outdated::Outdated;
use crate::facts::supply::{EndedWhy, RefusalKind};
use crate::limits::budget::Budget;
use crate::market::offer::Market;
use crate::state::budget::{BudgetOf, Stage};
use crate::state::cordon::CordonReason;
use crate::state::disruption::DrainReason;
use crate::state::paused::{Pause, StandingFault};
use crate::state::shortfall::NodeShortfall;

/// What happened that people may want to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "note")]
pub enum Note {
    /// The wall clock of Stoker's machine was set.
    ClockJumped {
        /// By how much.
        by: SignedDuration,
        /// Whether Stoker's own times followed, as they do over a restart.
        followed: bool,
        /// What it shows now.
        wall: Wall,
    },
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
    /// What a machine that did not join in time wrote to its console last.
    BootConsole {
        /// Its group.
        group: NodeGroupId,
        /// The machine.
        instance: ProviderId,
        /// The last lines.
        tail: String,
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
        /// Why it is gone; `None` where its supplier does not know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<EndedWhy>,
    },
    /// A machine of Stoker's was found without a record, and has one now.
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
    /// A group is suspended: no pod joined its last nodes.
    Suspended {
        /// The group.
        group: NodeGroupId,
        /// So many nodes in a row.
        nodes: u32,
    },
    /// A suspended group may grow again.
    Resumed {
        /// The group.
        group: NodeGroupId,
    },
    /// A node is being emptied, to be let go.
    Disruption {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: DrainReason,
    },
    /// A node that was to go stays.
    DrainAbandoned {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: String,
    },
    /// A node takes no new pods, and is not let go for it.
    NodeCordoned {
        /// Its group.
        group: NodeGroupId,
        /// The node.
        node: NodeName,
        /// Why.
        why: CordonReason,
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
    /// Nodes of a pool have become outdated.
    Outdated {
        /// The pool.
        pool: PoolName,
        /// So many, in this pass.
        nodes: u32,
        /// How; of several ways, that of the first node.
        why: Outdated,
    },
    /// A node leaves less to pods than its group's template promises.
    LessThanPromised {
        /// Its group.
        group: NodeGroupId,
        /// What it lacks.
        lacks: Arc<NodeShortfall>,
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
    /// Nodes of a pool are not drained although their probes announce a reclaim: there are too many that nothing confirms.
    ReclaimsUnconfirmed {
        /// The pool.
        pool: PoolName,
        /// Nodes that are not drained.
        nodes: u32,
        /// All of its nodes.
        of: u32,
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
    /// An action was done again and again, and still has to be.
    NoEffect {
        /// What is done, e.g. `terminate`.
        action: String,
        /// The machine or Node.
        about: String,
        /// So many times.
        times: u32,
    },
    /// The internal consistency check failed: nothing is bought for the pool, or for any.
    CheckFailed {
        /// What was found.
        fault: StandingFault,
    },
    /// The internal consistency check passes again.
    CheckPassed {
        /// What it failed for, and since which decision.
        pause: Pause,
    },
    /// Something is wrong with the journal or its disk.
    Journal {
        /// What.
        fault: JournalFault,
        /// In words.
        message: String,
        /// Until when nothing is ended or drained for it but what the cloud takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The journal can be written again. What was done meanwhile stands in no other decision.
    JournalWritten {
        /// Since when it could not be.
        since: Timestamp,
        /// Nodes that were kept from the autoscaler.
        held: BTreeSet<NodeName>,
        /// Nodes that were drained because the cloud takes them.
        drained: BTreeSet<NodeName>,
    },
    /// A budget narrows what is bought, or does so no more.
    Budget {
        /// How it stands now.
        budget: Budget,
        /// What it allowed before.
        before: Stage,
    },
}

/// What is wrong with the journal or its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalFault {
    /// Nothing can be written: orders are refused.
    Unwritable,
    /// The disk is full, and what is kept in reserve for the journal is in use.
    ReserveUsed,
    /// The journal that was here is gone, whole or in part.
    Lost,
    /// A part of its file is damaged.
    Damaged,
}

impl JournalFault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unwritable, Self::ReserveUsed, Self::Lost, Self::Damaged];

    /// A stable word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unwritable => "unwritable",
            Self::ReserveUsed => "reserve-used",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }
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
    /// Stoker itself.
    Stoker,
}

impl Note {
    /// What it is about.
    pub const fn about(&self) -> About<'_> {
        match self {
            Self::OrderFailed { group, .. }
            | Self::OrderShort { group, .. }
            | Self::BootTimeout { group, .. }
            | Self::BootConsole { group, .. }
            | Self::Lost { group, .. }
            | Self::Adopted { group, .. }
            | Self::Orphan { group, .. }
            | Self::Suspended { group, .. }
            | Self::Disruption { group, .. }
            | Self::DrainAbandoned { group, .. }
            | Self::NodeCordoned { group, .. }
            | Self::TakesPods { group, .. }
            | Self::WillBeEmptied { group, .. }
            | Self::LessThanPromised { group, .. }
            | Self::FloorGrown { group, .. }
            | Self::Resumed { group } => About::Group(group),
            Self::ProbesLapsed { pool, .. }
            | Self::ProbesBack { pool, .. }
            | Self::ReclaimsUnconfirmed { pool, .. }
            | Self::Outdated { pool, .. }
            | Self::ReplacementsStopped { pool, .. } => About::Pool(pool),
            Self::Budget { budget, .. } => About::Budget(&budget.of),
            Self::NoEffect { .. }
            | Self::ClockJumped { .. }
            | Self::CheckFailed { .. }
            | Self::CheckPassed { .. }
            | Self::Journal { .. }
            | Self::JournalWritten { .. } => About::Stoker,
        }
    }

    /// Its kind as one word, for Events and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::OrderFailed { .. } => "OrderFailed",
            Self::OrderShort { .. } => "OrderShort",
            Self::BootTimeout { .. } => "BootTimeout",
            Self::BootConsole { .. } => "BootConsole",
            Self::Lost { .. } => "NodeLost",
            Self::Adopted { .. } => "NodeAdopted",
            Self::Orphan { .. } => "OrphanFound",
            Self::Suspended { .. } => "GroupSuspended",
            Self::Resumed { .. } => "GroupResumed",
            Self::Disruption { .. } => "NodeLeaving",
            Self::DrainAbandoned { .. } => "NodeStays",
            Self::NodeCordoned { .. } => "NodeClosed",
            Self::TakesPods { .. } => "NodeOpened",
            Self::WillBeEmptied { .. } => "NodeWillBeEmptied",
            Self::Outdated { .. } => "NodesOutdated",
            Self::LessThanPromised { .. } => "NodeSmallerThanPromised",
            Self::ReplacementsStopped { .. } => "ReplacementsStopped",
            Self::ReclaimsUnconfirmed { .. } => "ReclaimsUnconfirmed",
            Self::ProbesLapsed { .. } => "ProbesLapsed",
            Self::ProbesBack { .. } => "ProbesBack",
            Self::FloorGrown { .. } => "FloorGrown",
            Self::Budget { .. } => "BudgetStage",
            Self::CheckFailed { .. } => "ConsistencyCheckFailed",
            Self::ClockJumped { .. } => "ClockJumped",
            Self::NoEffect { .. } => "ActionHasNoEffect",
            Self::CheckPassed { .. } => "ConsistencyCheckPassed",
            Self::Journal { fault: JournalFault::Unwritable, .. } => "JournalUnwritable",
            Self::Journal { fault: JournalFault::ReserveUsed, .. } => "DiskFull",
            Self::Journal { fault: JournalFault::Lost, .. } => "JournalLost",
            Self::Journal { fault: JournalFault::Damaged, .. } => "JournalDamaged",
            Self::JournalWritten { .. } => "JournalWritten",
        }
    }

    /// Whether somebody may have to act.
    pub const fn is_alarm(&self) -> bool {
        match self {
            Self::OrderFailed { .. }
            | Self::BootTimeout { .. }
            | Self::BootConsole { .. }
            | Self::Orphan { .. }
            | Self::Suspended { .. }
            | Self::ReplacementsStopped { .. }
            | Self::LessThanPromised { .. }
            | Self::ReclaimsUnconfirmed { .. }
            | Self::FloorGrown { .. }
            | Self::CheckFailed { .. }
            | Self::ClockJumped { .. }
            | Self::NoEffect { .. }
            | Self::Journal { .. }
            | Self::ProbesLapsed { .. } => true,
            Self::NodeCordoned { why, .. } => matches!(why, CordonReason::Unhealthy | CordonReason::ReclaimUnconfirmed),
            Self::TakesPods { .. }
            | Self::Outdated { .. }
            | Self::WillBeEmptied { .. }
            | Self::OrderShort { .. }
            | Self::Lost { .. }
            | Self::Adopted { .. }
            | Self::Resumed { .. }
            | Self::Disruption { .. }
            | Self::DrainAbandoned { .. }
            | Self::CheckPassed { .. }
            | Self::JournalWritten { .. }
            | Self::ProbesBack { .. } => false,
            Self::Budget { budget, before } => budget.stage as u8 > *before as u8,
        }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OrderFailed { group, nodes, kind, message, .. } => {
                write!(f, "{group}: none of {nodes} nodes could be launched ({kind}): {message}")
            }
            Self::OrderShort { group, nodes, message, .. } => {
                write!(f, "{group}: {nodes} nodes of an order could not be launched: {message}")
            }
            Self::BootTimeout { group, instance } => match instance {
                Some(instance) => write!(f, "{group}: {instance} did not join the cluster in time and is terminated"),
                None => write!(f, "{group}: the supplier never reported whether a machine was created"),
            },
            Self::BootConsole { group, instance, tail } => {
                write!(f, "{group}: {instance} did not join in time; its console ends: {tail}")
            }
            Self::Lost { group, instance, market, why, .. } => {
                write!(f, "{group}: {instance} ({market}) disappeared unexpectedly")?;
                why.map_or(Ok(()), |why| write!(f, ": {}", why.in_words()))
            }
            Self::Adopted { group, instance } => {
                write!(f, "{group}: {instance} was found without a record; it is counted from now on")
            }
            Self::Orphan { instance, group } => {
                write!(f, "{instance} carries this cluster's name, but group {group} is unknown")
            }
            Self::Suspended { group, nodes } => {
                write!(
                    f,
                    "{group} is suspended: no pod was scheduled on its last {nodes} nodes within 15 min of Ready; compare \
                     the selectors and tolerations of your pods with its template"
                )
            }
            Self::Resumed { group } => write!(f, "{group} may grow again"),
            Self::Disruption { group, node, why } => write!(f, "{group}: {node} is being drained and released: {why}"),
            Self::DrainAbandoned { group, node, why } => write!(f, "{group}: {node} is no longer drained: {why}"),
            Self::NodeCordoned { group, node, why } => write!(f, "{group}: {node} is cordoned: {why}"),
            Self::TakesPods { group, node, why } => write!(f, "{group}: {node} is uncordoned: {why}"),
            Self::WillBeEmptied { group, node, at } => {
                let at = at.strftime("%H:%MZ");
                write!(f, "{group}: {node} will be drained at {at}: a pod occupies it in off-hours and does nothing")
            }
            Self::LessThanPromised { group, lacks } => write!(
                f,
                "{group}: {} leaves less to pods than its template promises: {lacks}; groups of its pool and instance type promise no more for six \
                 hours; correct the reserves or the disk of its image or node class",
                lacks.node
            ),
            Self::Outdated { pool, nodes, why } => {
                let are = if *nodes == 1 { "node is" } else { "nodes are" };
                write!(f, "pool {pool}: {nodes} {are} outdated from now on: {why}")
            }
            Self::ReplacementsStopped { pool, unhealthy, nodes, replaced, .. } => {
                write!(
                    f,
                    "pool {pool}: {unhealthy} of {nodes} nodes are unhealthy and {replaced} were replaced within an hour: \
                     replacements are paused, because the driver or the probe may be at fault; look at the remaining nodes \
                     before you raise unhealthy.maxReplacements"
                )
            }
            Self::ReclaimsUnconfirmed { pool, nodes, of } => write!(
                f,
                "pool {pool}: only the probes on {nodes} of {of} nodes say that the cloud reclaims them: these nodes are cordoned and \
                 not drained until the supplier confirms it, because the probe or the metadata that it reads may be at fault; look \
                 at the probes' log"
            ),
            Self::ProbesLapsed { pool, nodes, since } => write!(
                f,
                "pool {pool}: none of the probes on {nodes} nodes has reported since {}; until they do, only pods show which \
                 nodes are in use: look at the probes' DaemonSet",
                since.strftime("%Y-%m-%d %H:%M:%SZ")
            ),
            Self::ProbesBack { pool, heard, of } => {
                write!(f, "pool {pool}: {heard} of {of} probes report again, and show which nodes are in use")
            }
            Self::FloorGrown { group, nodes } => write!(
                f,
                "{group} grows by {nodes} for the warm floor: its minSize was above its target for 2 min and the autoscaler \
                 requested nothing; start it with --enforce-node-group-min-size. Until the nodes are Ready, groups for the \
                 same pods are closed, so that they are not bought twice"
            ),
            Self::Budget { budget, .. } => write!(f, "budget of {budget}"),
            Self::CheckFailed { fault } => write!(f, "{fault}"),
            Self::NoEffect { action, about, times } => write!(
                f,
                "{action} {about} was done {times} times and still has to be done: look at Stoker's log, the supplier and the API server"
            ),
            Self::ClockJumped { by, followed, wall } => {
                let way = if by.is_negative() { "back" } else { "forward" };
                let by = SignedDuration::from_secs(by.abs().as_secs());
                let shows = wall.0.strftime("%Y-%m-%d %H:%M:%SZ");
                write!(f, "the wall clock of Stoker's machine was set {way} by {by:#} and shows {shows}: ")?;
                f.write_str(if *followed {
                    "what is remembered moved with it, and no wait got longer or shorter"
                } else {
                    "waits and deadlines go on by elapsed time, and schedules, prices and commitments by the wall; once the wall is \
                     right, restart Stoker so that the times it reports follow"
                })
            }
            Self::Journal { fault: JournalFault::Lost, message, until: Some(until) } => write!(
                f,
                "{message}: orders, windows, drains and spot history may be forgotten; until {} nothing is ended or drained but what the \
                 cloud takes; look at what happened to the state directory, and restore a backup if that is better (stoker restore)",
                until.strftime("%H:%MZ")
            ),
            Self::Journal { message, .. } => f.write_str(message),
            Self::JournalWritten { since, held, drained } => {
                write!(f, "the journal is written again; from {} on nothing could be", since.strftime("%Y-%m-%d %H:%M:%SZ"))?;
                let named = |f: &mut std::fmt::Formatter<'_>, what: &str, nodes: &BTreeSet<NodeName>| {
                    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
                    if names.is_empty() { Ok(()) } else { write!(f, "; {what}: {}", names.join(", ")) }
                };
                named(f, "held meanwhile", held)?;
                named(f, "drained meanwhile, because the cloud takes them", drained)
            }
            Self::CheckPassed { pause: Pause { concern, decision } } => {
                write!(
                    f,
                    "Internal consistency check passes again for {concern}; scale-up was paused since decision {decision}"
                )
            }
        }
    }
}
