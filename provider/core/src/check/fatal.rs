//! The promises that a decision may break.

use crate::ids::{LaunchKey, NodeGroupId, NodeName, PoolName, ProviderId, RecordId};
use crate::offer::Place;
use crate::plan::Evict;
use crate::units::Percent;

/// A promise that the plan would break. The pass stops; nothing of it is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// A launch that its record does not say.
    #[error("launch {key} is not what record {record} says")]
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
    /// A price of nought or below.
    #[error("launch {0} has no price")]
    NoPrice(LaunchKey),
    /// More nodes than the pool allows.
    #[error("pool {pool} would hold {nodes} nodes, more than {limit}")]
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
    /// Something else than spot is bought with the part of a budget that is kept for spot.
    #[error("{micros} micro-dollars an hour of {limit} were spent, and more is bought that is not spot")]
    NotSpot {
        /// Micro-dollars per hour.
        micros: i128,
        /// The limit.
        limit: i64,
    },
    /// More than a quota allows.
    #[error("quota {name} would hold {units}, more than the {share} that this cluster may have of it")]
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
    /// More spot than the pool's share allows.
    #[error("pool {pool} would hold {spot} spot nodes of {nodes}, more than {limit}")]
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
    #[error("pool {pool} would hold {here} of {nodes} nodes in {zone}, more than {limit}")]
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
    /// More nodes than the capacity kept for us.
    #[error("{place} would hold {nodes} reserved nodes, more than the {limit} that commitments keep")]
    MoreThanKept {
        /// Where.
        place: Place,
        /// Nodes.
        nodes: u64,
        /// Kept.
        limit: u64,
    },
    /// A machine that pods hold would end without the autoscaler's word.
    #[error("{0} is busy and would be ended")]
    EndsBusy(ProviderId),
    /// There is work on a node, or nobody can tell, and the autoscaler is not kept from it.
    #[error("there is, or may be, work on {0}, and nothing holds it")]
    NotHeld(NodeName),
    /// There is work on a node that is called free.
    #[error("there is work on {0}, and it is called free")]
    NotFree(NodeName),
    /// A machine that counts would end.
    #[error("{0} counts in its group's target and would be ended")]
    EndsCounted(ProviderId),
    /// A node would be closed or opened that is none of ours, or that is not let go.
    #[error("node {0} would be closed or opened, and nothing of ours says so")]
    DrainsUnasked(NodeName),
    /// Pods would be told to go that must not be moved.
    #[error("node {0} must not be moved to spot")]
    MustNotMove(NodeName),
    /// More than one node of a pool would move at once.
    #[error("{nodes} nodes of pool {pool} would be moved to spot at once")]
    MovesTogether {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: u32,
    },
    /// Free nodes that a warm floor wants would be moved to spot at once, and not one by one.
    #[error("free nodes of pool {pool} would be moved to spot at once, and leave {left} of the {wanted} that its floor wants")]
    EmptiesFloor {
        /// The pool.
        pool: PoolName,
        /// Warm nodes that are left.
        left: u32,
        /// What the floor wants.
        wanted: u32,
    },
    /// Other pods would be told to go than the reason allows, or in another haste.
    #[error("node {node}: its pods would be told to go ({}), which its reason does not allow", evict.as_str())]
    TellsWrongPods {
        /// The node.
        node: NodeName,
        /// Which.
        evict: Evict,
    },
    /// A node would be let go for a reason that does not stand.
    #[error("{0} would be let go, and nothing says what it is let go for")]
    NoReason(ProviderId),
    /// More unhealthy nodes of a pool would be replaced than it allows.
    #[error("{nodes} unhealthy nodes of pool {pool} would be replaced within an hour, of {unhealthy} unhealthy ones")]
    ReplacesTooMany {
        /// The pool.
        pool: PoolName,
        /// Nodes, with those before.
        nodes: usize,
        /// Unhealthy nodes.
        unhealthy: usize,
    },
    /// A machine would end of our own decision that was not seen empty.
    #[error("{0} would be ended and was not seen empty")]
    EndsFull(ProviderId),
    /// A free node would be released that has not been free, or has not lived, for long enough.
    #[error("the node of record {0} would be released before its window is over")]
    ReleasedEarly(RecordId),
    /// More free nodes of a pool would be released within one window than its share allows.
    #[error("{nodes} nodes of pool {pool} would be released within one window, more than {most}")]
    TooManyReleased {
        /// The pool.
        pool: PoolName,
        /// Nodes.
        nodes: usize,
        /// How many may be.
        most: usize,
    },
    /// A node would be released that would not count among those that were.
    #[error("the node of record {0} would be released and forgotten")]
    ReleaseForgotten(RecordId),
    /// The hold on a free node would be taken back that is not idle.
    #[error("node {0} is kept, and its hold would be taken back")]
    OpensKept(NodeName),
    /// A floor would be grown beyond what it wants.
    #[error(
        "pool {pool} would be grown to {nodes} warm or coming nodes without the autoscaler, more than the {wanted} of its floor"
    )]
    FloorTooLarge {
        /// The pool.
        pool: PoolName,
        /// Warm nodes, and those on their way for the floor.
        nodes: u32,
        /// What the floor wants.
        wanted: u32,
    },
    /// The autoscaler would buy once more what was grown without it.
    #[error("{0} is grown without the autoscaler and stays open, so that its pods would be bought for twice")]
    GrownOpen(NodeGroupId),
    /// Limits that make no sense.
    #[error("{group}: min {min}, target {target}, max {max} do not fit together")]
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
    #[error("{group}: target {shown} is shown, {counted} records count")]
    WrongTarget {
        /// The group.
        group: NodeGroupId,
        /// Shown.
        shown: u32,
        /// Counted.
        counted: u32,
    },
    /// Two records for one machine.
    #[error("{0} has two records")]
    SharedMachine(ProviderId),
    /// A wanted node that nothing is said about.
    #[error("record {0} is wanted and nothing says why it is not bought")]
    Unexplained(RecordId),
}
