//! What a pass decided: actions that leave the executor no choice, the limits that the autoscaler is shown, and the reasons.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::choose::{Barred, Candidate};
use crate::ids::{NodeGroupId, NodeName, OrderId, ProviderId, RecordId, SupplierName};
use crate::memory::Memory;
use crate::offer::Market;
use crate::score::Step;
use crate::supply::{LaunchRequest, RefusalKind};
use crate::units::UsdPerHour;

/// A plan that `check` has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposed;

/// A plan that `check` found sound. Only this may be acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked;

/// What a pass decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<S> {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// What the autoscaler is shown of each group.
    pub limits: BTreeMap<NodeGroupId, GroupLimits>,
    /// What happened that people may want to know.
    pub notes: Vec<Note>,
    /// Why each order was supplied as it was.
    pub explanations: Vec<Explanation>,
    state: PhantomData<S>,
}

impl Plan<Proposed> {
    pub(crate) const fn new(
        actions: Vec<Action>,
        limits: BTreeMap<NodeGroupId, GroupLimits>,
        notes: Vec<Note>,
        explanations: Vec<Explanation>,
    ) -> Self {
        Self { actions, limits, notes, explanations, state: PhantomData }
    }

    pub(crate) fn into_checked(self) -> Plan<Checked> {
        Plan {
            actions: self.actions,
            limits: self.limits,
            notes: self.notes,
            explanations: self.explanations,
            state: PhantomData,
        }
    }
}

/// A decision: the plan, the memory that goes with it, and when something can differ without a new fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What to do.
    pub plan: Plan<Proposed>,
    /// What to remember.
    pub memory: Memory,
    /// The next moment at which the same facts could lead to another plan; `None` where none is known.
    pub next_change_at: Option<Timestamp>,
}

/// One thing to do. Each is idempotent: done twice, it changes nothing the second time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Action {
    /// Buy one node.
    Launch {
        /// For this record.
        record: RecordId,
        /// From this supplier.
        supplier: SupplierName,
        /// Just so.
        request: LaunchRequest,
        /// At this price, which budgets have counted, less what commitments pay of it.
        price: UsdPerHour,
    },
    /// End one machine.
    Terminate {
        /// At this supplier.
        supplier: SupplierName,
        /// This one.
        instance: ProviderId,
        /// For this reason.
        why: Ending,
    },
    /// Keep the autoscaler from removing a node.
    Hold {
        /// This one.
        node: NodeName,
    },
    /// Take back our own hold.
    Release {
        /// From this one.
        node: NodeName,
    },
    /// Remove the Node object of a machine that is gone.
    RemoveNode {
        /// This one.
        node: NodeName,
        /// Only if it is still of this machine.
        provider_id: ProviderId,
    },
}

/// Why a machine is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The autoscaler deleted the node.
    #[error("the autoscaler deleted the node")]
    Deleted,
    /// It did not join the cluster in time.
    #[error("it did not join in time")]
    BootTimeout,
    /// Its record was cancelled while it was being launched.
    #[error("its order was cancelled")]
    Cancelled,
    /// It carries the key of an attempt that was given up.
    #[error("it belongs to an attempt that was given up")]
    Superseded,
    /// It is ours by its key, but its group is unknown and nothing runs on it.
    #[error("its group is unknown and nothing runs on it")]
    Orphaned,
}

/// What the autoscaler is shown of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Records that count.
    pub target: u32,
    /// `minSize`.
    pub min: u32,
    /// `maxSize`.
    pub max: u32,
    /// Nodes that GPU pods hold.
    pub busy: u32,
    /// Whether it is worth listing: not empty, or undominated and with a price.
    pub listed: bool,
    /// Effective price of the next node; `None` while the group is closed.
    pub next_price: Option<UsdPerHour>,
    /// What its next nodes cost, as far as it may grow now; empty while it is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supply: Vec<Step>,
    /// Why it may not grow; `None` while it may.
    pub closed: Option<Closed>,
}

/// Why a group may not grow now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Closed {
    /// Every offer is barred.
    #[error("{}", .0.iter().map(|(m, why)| format!("{}: {why}", m.capacity_type)).collect::<Vec<_>>().join("; "))]
    Offers(Vec<(Market, Barred)>),
    /// Capacity is booting that the autoscaler may not count on: growth now could buy it twice.
    #[error("{nodes} nodes are booting that the autoscaler may not count on; closed until they are Ready")]
    Uncredited {
        /// So many.
        nodes: u32,
    },
    /// The plans of the last passes would have broken a promise.
    #[error("the last plan would have broken a promise and was not acted on; nothing grows until one is sound")]
    Unsound,
    /// Its pool is not in the policy any more.
    #[error("the policy has no such group any more; listed until it is empty")]
    Removed,
}

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
}

impl Note {
    /// The group it is about.
    pub const fn group(&self) -> &NodeGroupId {
        match self {
            Self::OrderFailed { group, .. }
            | Self::OrderShort { group, .. }
            | Self::BootTimeout { group, .. }
            | Self::Lost { group, .. }
            | Self::Adopted { group, .. }
            | Self::Orphan { group, .. }
            | Self::Frozen { group, .. }
            | Self::Thawed { group } => group,
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
        }
    }

    /// Whether somebody may have to act.
    pub const fn is_alarm(&self) -> bool {
        match self {
            Self::OrderFailed { .. } | Self::BootTimeout { .. } | Self::Orphan { .. } | Self::Frozen { .. } => true,
            Self::OrderShort { .. } | Self::Lost { .. } | Self::Adopted { .. } | Self::Thawed { .. } => false,
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
        }
    }
}

/// Why an order was supplied as it was in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The order; `None` in a what-if.
    pub order: Option<OrderId>,
    /// The group; `None` where a whole pool was asked.
    pub group: Option<NodeGroupId>,
    /// Nodes asked for in this pass.
    pub asked: u32,
    /// Nodes that an offer was found for.
    pub found: u32,
    /// Every offer weighed.
    pub candidates: Vec<Candidate>,
}
