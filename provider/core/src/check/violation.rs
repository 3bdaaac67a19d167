//! Faults: the promises that a decision may break.

use crate::base::ids::{GpuModel, LaunchKey, NodeGroupId, NodeName, PoolName, ProviderId, RecordId, SupplierName};
use crate::base::units::Percent;
use crate::market::offer::Place;
use crate::plan::Evict;
use crate::state::paused::Concern;

/// A promise that the plan would break, and what it concerns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{violation}")]
pub struct Finding {
    /// What it concerns.
    pub concern: Concern,
    /// The promise.
    pub violation: Violation,
}

/// A promise that the plan would break.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A launch that its record does not say.
    #[error("launch {key} does not match record {record}")]
    LaunchWithoutRecord {
        /// The record.
        record: RecordId,
        /// The key.
        key: LaunchKey,
    },
    /// One key twice.
    #[error("launch key {0} is used twice")]
    KeyTwice(LaunchKey),
    /// A launch that is under way.
    #[error("launch {0} is under way already")]
    UnderWay(LaunchKey),
    /// A price of zero or below.
    #[error("launch {0} has no price")]
    NoPrice(LaunchKey),
    /// A price that was not known when the node was bought, or is past its time.
    #[error("launch {0} has no current price")]
    StalePrice(LaunchKey),
    /// What its supplier has was not known when the node was bought.
    #[error("launch {key}: the inventory of supplier {supplier} is unknown or stale")]
    StaleInventory {
        /// The key.
        key: LaunchKey,
        /// The supplier.
        supplier: SupplierName,
    },
    /// More nodes than the pool allows.
    #[error("pool {pool} would have {nodes} nodes, more than {limit}")]
    TooManyNodes {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: u64,
        /// The limit.
        limit: u32,
    },
    /// More spend than the pool allows.
    #[error("pool {pool} would spend {micros} micro-dollars an hour, more than {limit}")]
    TooMuchSpend {
        /// The pool.
        pool: PoolName,
        /// Micro-dollars per hour.
        micros: i128,
        /// The limit.
        limit: i64,
    },
    /// More spend than all pools together are allowed.
    #[error("all pools would spend {micros} micro-dollars an hour, more than {limit}")]
    TooMuchSpendOverall {
        /// Micro-dollars per hour.
        micros: i128,
        /// The limit.
        limit: i64,
    },
    /// A pool spends what is kept for others of the budget of all pools.
    #[error(
        "all pools would spend {micros} micro-dollars an hour and {kept} are kept for others than pool {pool}, together more than {limit}"
    )]
    TakesGuaranteed {
        /// The pool that buys.
        pool: PoolName,
        /// Micro-dollars per hour of all pools.
        micros: i128,
        /// What others do not use of their guarantees.
        kept: i128,
        /// The limit.
        limit: i64,
    },
    /// Something else than spot is bought with the part of a budget that is kept for spot.
    #[error("{micros} of {limit} micro-dollars an hour are spent, and something other than spot would be bought")]
    NotSpot {
        /// Micro-dollars per hour.
        micros: i128,
        /// The limit.
        limit: i64,
    },
    /// More than a quota allows.
    #[error("{units} of quota {name} would be in use, more than this cluster's share of {share}")]
    QuotaExceeded {
        /// The quota.
        name: String,
        /// Units.
        units: u64,
        /// What this cluster may have.
        share: u64,
    },
    /// A purchase under a quota that the policy does not list, where it says that nothing be bought then.
    #[error("launch {key} needs quota {name}, which the policy does not list")]
    QuotaUnlisted {
        /// The quota.
        name: String,
        /// The key.
        key: LaunchKey,
    },
    /// A purchase while nodes that are not Stoker's count, and nobody knows them.
    #[error("nodes would be bought while it is unknown which GPU nodes of the cluster others bought")]
    ForeignUnknown,
    /// More spot than the pool's share allows.
    #[error("pool {pool} would have {spot} spot nodes of {nodes}, more than {limit}")]
    TooMuchSpot {
        /// The pool.
        pool: PoolName,
        /// Spot nodes: all of the pool's, or those in one market.
        spot: u64,
        /// Nodes.
        nodes: u64,
        /// The largest share.
        limit: Percent,
    },
    /// More nodes in one zone than the pool's share allows.
    #[error("pool {pool} would have {here} of {nodes} nodes in {zone}, more than {limit}")]
    TooMuchInZone {
        /// The pool.
        pool: PoolName,
        /// The zone.
        zone: String,
        /// Nodes in it.
        here: u64,
        /// Nodes.
        nodes: u64,
        /// The largest share.
        limit: Percent,
    },
    /// More nodes of one GPU model than the pool's share allows.
    #[error("pool {pool} would have {here} of {nodes} nodes with {model}, more than {limit}")]
    TooMuchOfModel {
        /// The pool.
        pool: PoolName,
        /// The model.
        model: GpuModel,
        /// Nodes of it.
        here: u64,
        /// Nodes.
        nodes: u64,
        /// The largest share.
        limit: Percent,
    },
    /// More nodes than the capacity reserved.
    #[error("{place} would have {nodes} reserved nodes, more than the {limit} that commitments reserve")]
    MoreThanKept {
        /// Where.
        place: Place,
        /// Nodes.
        nodes: u64,
        /// Kept.
        limit: u64,
    },
    /// A machine that pods hold would end without the autoscaler's word.
    #[error("{0} is busy and would be terminated")]
    EndsBusy(ProviderId),
    /// There is work on a node, and the autoscaler is not kept from it.
    #[error("{0} is busy, and its scale-down is not blocked")]
    NotHeld(NodeName),
    /// A machine that counts would end.
    #[error("{0} counts in its group's target and would be terminated")]
    EndsCounted(ProviderId),
    /// A node would be closed or opened that is none of Stoker's, or that is not let go.
    #[error("node {0} would be cordoned or uncordoned without a recorded reason")]
    DrainsUnasked(NodeName),
    /// Pods would be told to go that must not be moved.
    #[error("node {0} must not be moved to spot")]
    MustNotMove(NodeName),
    /// More than one node of a pool would move at once.
    #[error("{nodes} nodes of pool {pool} would be moved to spot at the same time")]
    MovesTogether {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: usize,
    },
    /// Other pods would be told to go than the reason allows, or in another haste.
    #[error("node {node}: its pods would be evicted ({}), which the reason of its drain does not allow", evict.as_str())]
    TellsWrongPods {
        /// The node.
        node: NodeName,
        /// Which.
        evict: Evict,
    },
    /// All pods of a node would be told to go for a reclaim of which neither its supplier nor its probe knows.
    #[error("{0} would be drained for a reclaim, and no notice says that the cloud takes it back")]
    NoReclaim(ProviderId),
    /// A node would be drained for a reclaim that only its probe announces: it is not spot, or there are too many in its pool.
    #[error("{0} would be drained for a reclaim that only its probe announces")]
    UnconfirmedReclaim(ProviderId),
    /// More unhealthy nodes of a pool would be replaced than it allows.
    #[error("{nodes} unhealthy nodes of pool {pool} would be replaced within an hour, more than {limit}")]
    ReplacesTooMany {
        /// The pool.
        pool: PoolName,
        /// Nodes, with those before.
        nodes: usize,
        /// How many may be.
        limit: u32,
    },
    /// A node would be replaced as outdated that is not, or whose pods may not be evicted now.
    #[error("{0} would be replaced as outdated, which it is not, or outside the times for nodes with pods")]
    NotOutdated(ProviderId),
    /// More than one outdated node of a pool would be replaced at once.
    #[error("{nodes} outdated nodes of pool {pool} would be replaced at the same time")]
    ReplacesTogether {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: usize,
    },
    /// A machine would end by Stoker's own decision that was not seen empty.
    #[error("{0} would be terminated and was not seen empty")]
    EndsFull(ProviderId),
    /// Limits that make no sense.
    #[error("{group}: min {min}, target {target} and max {max} contradict each other")]
    BadLimits {
        /// The group.
        group: NodeGroupId,
        /// `minSize`.
        min: u32,
        /// Target.
        target: u32,
        /// `maxSize`.
        max: u32,
    },
    /// A target that is not the count of the records.
    #[error("{group}: target {shown} is published, and {counted} records count towards it")]
    WrongTarget {
        /// The group.
        group: NodeGroupId,
        /// Shown.
        shown: u32,
        /// Counted.
        counted: u32,
    },
    /// No decision could be made: a rule panicked.
    #[error("a rule panicked: {0}")]
    Panicked(String),
    /// Two records for one machine.
    #[error("{0} has two records")]
    SharedMachine(ProviderId),
}

impl Violation {
    /// Its kind as one word, for metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::LaunchWithoutRecord { .. } => "launch-without-record",
            Self::KeyTwice(_) => "key-twice",
            Self::UnderWay(_) => "under-way",
            Self::NoPrice(_) => "no-price",
            Self::StalePrice(_) => "stale-price",
            Self::StaleInventory { .. } => "stale-inventory",
            Self::TooManyNodes { .. } => "too-many-nodes",
            Self::TooMuchSpend { .. } => "too-much-spend",
            Self::TooMuchSpendOverall { .. } => "too-much-spend-overall",
            Self::TakesGuaranteed { .. } => "takes-guaranteed",
            Self::NotSpot { .. } => "not-spot",
            Self::QuotaExceeded { .. } => "quota-exceeded",
            Self::QuotaUnlisted { .. } => "quota-unlisted",
            Self::ForeignUnknown => "foreign-unknown",
            Self::TooMuchSpot { .. } => "too-much-spot",
            Self::TooMuchInZone { .. } => "too-much-in-zone",
            Self::TooMuchOfModel { .. } => "too-much-of-model",
            Self::MoreThanKept { .. } => "more-than-kept",
            Self::EndsBusy(_) => "ends-busy",
            Self::NotHeld(_) => "not-held",
            Self::EndsCounted(_) => "ends-counted",
            Self::DrainsUnasked(_) => "drains-unasked",
            Self::MustNotMove(_) => "must-not-move",
            Self::MovesTogether { .. } => "moves-together",
            Self::TellsWrongPods { .. } => "tells-wrong-pods",
            Self::NoReclaim(_) => "no-reclaim",
            Self::UnconfirmedReclaim(_) => "unconfirmed-reclaim",
            Self::ReplacesTooMany { .. } => "replaces-too-many",
            Self::NotOutdated(_) => "not-outdated",
            Self::ReplacesTogether { .. } => "replaces-together",
            Self::EndsFull(_) => "ends-full",
            Self::BadLimits { .. } => "bad-limits",
            Self::WrongTarget { .. } => "wrong-target",
            Self::Panicked(_) => "panicked",
            Self::SharedMachine(_) => "shared-machine",
        }
    }
}
