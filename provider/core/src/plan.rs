//! Plan of a pass: actions that leave the executor no choice, the limits for the autoscaler, and
//! the reasons.

mod note;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{NodeGroupId, NodeName, ProviderId, RecordId, SupplierName};
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::catalogue::isolation::Shape;
use crate::choose::candidate::Barred;
use crate::choose::explanation::Explanation;
use crate::choose::parts::price_parts;
use crate::choose::score::Step;
use crate::facts::supply::LaunchRequest;
use crate::limits::budget::Budget;
use crate::limits::commitment::Use;
use crate::market::offer::Market;
use crate::policy::rules::warm_floor::FloorStands;
use crate::state::memory::Memory;
use crate::state::node_status::StatusUpdate;
use crate::state::paused::Pause;

pub use note::{About, JournalFault, Note};

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
    /// How budgets and commitments stand after it.
    pub accounts: Accounts,
    /// What happened that people may want to know.
    pub notes: Vec<Note>,
    /// Why each order was supplied as it was.
    pub explanations: Vec<Explanation>,
    /// What Nodes are to be told of their verdicts, the most pressing first. No action: it changes nothing that runs and is not written
    /// down, and what is not told now is found again by the next pass.
    pub tells: Vec<StatusUpdate>,
    state: PhantomData<S>,
}

impl Plan<Proposed> {
    pub(crate) const fn new(
        actions: Vec<Action>,
        limits: BTreeMap<NodeGroupId, GroupLimits>,
        accounts: Accounts,
        notes: Vec<Note>,
        explanations: Vec<Explanation>,
        tells: Vec<StatusUpdate>,
    ) -> Self {
        Self { actions, limits, accounts, notes, explanations, tells, state: PhantomData }
    }

    pub(crate) fn into_checked(self) -> Plan<Checked> {
        Plan {
            actions: self.actions,
            limits: self.limits,
            accounts: self.accounts,
            notes: self.notes,
            explanations: self.explanations,
            tells: self.tells,
            state: PhantomData,
        }
    }
}

/// How budgets and commitments stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Every budget of the policy.
    pub budgets: Vec<Budget>,
    /// Every commitment, in the policy's order.
    pub commitments: Vec<Use>,
    /// Every warm floor, in the policy's order.
    pub floors: Vec<FloorStands>,
    /// Every free node that is kept from the autoscaler, and why, in the order of their records.
    pub kept: Vec<(RecordId, HoldFor)>,
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
        /// For this reason.
        #[serde(default)]
        why: HoldFor,
    },
    /// Take back our own hold.
    Release {
        /// From this one.
        node: NodeName,
    },
    /// Close a node to new pods, under our mark, and tell its pods to go. Done again until nothing is left on it.
    Drain {
        /// Its record.
        record: RecordId,
        /// This one.
        node: NodeName,
        /// Only if it is still of this machine.
        provider_id: ProviderId,
        /// Which pods are told to go.
        evict: Evict,
        /// By when they must be gone, where the cloud takes the machine: none is given longer than that, and a disruption budget whose
        /// next word would come too late for a pod to end in its own time is not waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gone_by: Option<Timestamp>,
    },
    /// Open a node again that we closed.
    Uncordon {
        /// This one.
        node: NodeName,
        /// Only if it is still of this machine.
        provider_id: ProviderId,
    },
    /// Remove the Node object of a machine that is gone.
    RemoveNode {
        /// This one.
        node: NodeName,
        /// Only if it is still of this machine.
        provider_id: ProviderId,
    },
}

/// Why the autoscaler is kept from removing a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum HoldFor {
    /// GPU pods hold it.
    #[default]
    #[error("GPU pods are on it")]
    Pods,
    /// GPU pods hold it, and have done nothing with it for long.
    #[error("GPU pods occupy it, and its GPUs have been idle for long")]
    Held,
    /// A GPU is at work on it without a pod, or was a moment ago.
    #[error("one of its GPUs is busy without a pod, or was a moment ago")]
    Active,
    /// What it does cannot be told.
    #[error("its activity is unknown")]
    Unknown,
    /// It is unhealthy: it stays until its pool's rule for such nodes lets it go.
    #[error("it is unhealthy, and stays until its pool's rule for unhealthy nodes releases it")]
    Unhealthy,
    /// Commitments pay for it, and another free node of its pool costs money.
    #[error("commitments pay for it, and another free node of its pool costs money")]
    Paid,
    /// It has not been free for long enough.
    #[error("it is free, and its window ends at {}", .until.strftime("%H:%MZ"))]
    Window {
        /// When the window is over.
        until: Timestamp,
    },
    /// It has not lived for long enough.
    #[error("it is free, and its minimum life ends at {}", .until.strftime("%H:%MZ"))]
    MinimumLife {
        /// When that is over.
        until: Timestamp,
    },
    /// Its pool grew a short while ago.
    #[error("it is free, and no node of its pool is released until {}, because the pool grew", .until.strftime("%H:%MZ"))]
    Growth {
        /// Until when nothing goes.
        until: Timestamp,
    },
    /// As many of its pool's nodes were released within one window as may be.
    #[error("it is free, and the next node of its pool may be released at {}", .until.strftime("%H:%MZ"))]
    Removals {
        /// When its turn comes.
        until: Timestamp,
    },
    /// A journal was lost a moment ago.
    #[error("it is free, and nothing is released until {}, because the journal was lost", .until.strftime("%H:%MZ"))]
    Caution {
        /// Until when nothing goes.
        until: Timestamp,
    },
    /// Its pool would have fewer nodes than it keeps.
    #[error("it is free, and its pool is at its minimum")]
    Floor,
}

impl HoldFor {
    /// When the reason is over by itself; `None` where that is not known.
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Window { until }
            | Self::MinimumLife { until }
            | Self::Growth { until }
            | Self::Removals { until }
            | Self::Caution { until } => Some(*until),
            Self::Pods | Self::Held | Self::Active | Self::Unknown | Self::Unhealthy | Self::Paid | Self::Floor => None,
        }
    }
}

/// Which pods a drain tells to go. Those of `DaemonSet`s and mirror pods never are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evict {
    /// None: the node is closed, and its pods stay.
    Nobody,
    /// Those without a GPU that may be moved: one with a GPU that has come meanwhile keeps the node.
    WithoutGpu,
    /// Those that may be moved: one that nothing would make again, or that says so, keeps the node.
    Movable,
    /// All: the machine ends in any case.
    All,
}

impl Evict {
    /// A stable word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::WithoutGpu => "without-gpu",
            Self::Movable => "movable",
            Self::All => "all",
        }
    }
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
    #[error("its launch was abandoned")]
    Superseded,
    /// It is ours by its key, but its group is unknown and nothing runs on it.
    #[error("its group is unknown and nothing runs on it")]
    Orphaned,
    /// Its pods went because spot is back.
    #[error("spot is available again, and its pods have left")]
    BackToSpot,
    /// Its pods went because the capacity that it runs on ends.
    #[error("the capacity that it runs on ends, and its pods have left")]
    CapacityEnds,
    /// Its pods went because the cloud takes it back.
    #[error("the cloud reclaims it, and its pods have left")]
    Reclaimed,
    /// Its pods went because it is unhealthy.
    #[error("its hardware is faulty, and its pods have left")]
    Unhealthy,
    /// Its pods were told to go because they held it in off-hours and did nothing.
    #[error("its pods occupied it in off-hours, did nothing, and have left")]
    Held,
    /// Its pods went because it is outdated.
    #[error("it is outdated, and its pods have left")]
    Outdated,
}

/// What the autoscaler is shown of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Records that count.
    pub target: u32,
    /// `minSize`.
    pub min: u32,
    /// `maxSize`.
    pub max: u32,
    /// Nodes that nobody may take away: GPU pods hold them, a GPU is at work, what they do cannot be told, or they are
    /// unhealthy.
    pub busy: u32,
    /// Free nodes that the autoscaler is kept from removing, because commitments pay for them and another free one costs money.
    pub paid: u32,
    /// Its other free nodes.
    #[serde(default)]
    pub free: FreeNodes,
    /// Whether it is worth listing: not empty, or undominated and with a price.
    pub listed: bool,
    /// Effective price of the next node; `None` while the group is closed.
    pub next_price: Option<UsdPerHour>,
    /// What that node adds to the bill: without what its reclaims and its data cost, and less what commitments
    /// pay of it.
    #[serde(default)]
    pub next_paid: Option<UsdPerHour>,
    /// The effective price as if no commitment covered it: what nodes here cost once commitments are full.
    #[serde(default)]
    pub lasting_price: Option<UsdPerHour>,
    /// What its next nodes cost, as far as it may grow now; empty while it is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supply: Vec<Step>,
    /// Why it may not grow; `None` while it may.
    pub closed: Option<Closed>,
}

impl GroupLimits {
    /// The group as isolation sees it: for the price of a node without commitments; `None` where it has none.
    pub fn shape<'g>(&self, group: &'g Group, catalogue: &Catalogue, memory: &Memory, wall: Wall) -> Option<Shape<'g>> {
        let price = |offer| price_parts(catalogue, memory, group, offer, wall).ok().map(|parts| parts.effective);
        let cheapest = || group.offers.iter().filter_map(price).min();
        let open = self.listed && self.lasting_price.is_some();
        Some(Shape { group, price: self.lasting_price.or_else(cheapest)?, open })
    }

    /// Closes the group to growth. `target` is the count of its records.
    pub fn close(&mut self, target: u32, why: Closed) {
        self.target = target;
        self.max = target;
        self.min = self.min.min(target);
        self.next_price = None;
        self.next_paid = None;
        self.lasting_price = None;
        self.supply.clear();
        self.closed = Some(why);
    }
}

/// Free nodes of a group, by what becomes of them. Those that [`GroupLimits::paid`] counts are not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreeNodes {
    /// Inside their windows: the autoscaler is kept from removing them.
    pub window: u32,
    /// Kept because the pool would have too few nodes without them.
    pub floor: u32,
    /// Their windows are over: the autoscaler may remove them.
    pub idle: u32,
    /// When the first of those inside their windows may go.
    pub goes_at: Option<Timestamp>,
}

/// Why a group may not grow now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Closed {
    /// Every offer is barred.
    #[error("{}", .0.iter().map(|(m, why)| format!("{}: {why}", m.capacity_type)).collect::<Vec<_>>().join("; "))]
    Offers(Vec<(Market, Barred)>),
    /// Capacity is booting that the autoscaler may not count on: growth now could buy it twice.
    #[error(
        "scale-up paused: Cluster Autoscaler may not know that {nodes} {} still booting",
        if *nodes == 1 { "node is" } else { "nodes are" }
    )]
    Uncredited {
        /// So many.
        nodes: u32,
    },
    /// The plan for its pool, or for the fleet, would have broken a promise.
    #[error(transparent)]
    Paused(Pause),
    /// Decisions cannot be written down.
    #[error("the journal cannot be written, so nothing is bought (/readyz says why)")]
    Journal,
    /// Its pool is not in the policy any more, or the pool's supplier does not make such nodes any more.
    #[error(
        "it is listed until it is empty, as the policy no longer has it, or its supplier cannot make it any more (see stoker suppliers)"
    )]
    Removed,
}
