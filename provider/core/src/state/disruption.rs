//! Disruptions: nodes that Stoker drains, the reason, and the progress.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::units::UsdMicros;
use crate::facts::outdated::Outdated;
use crate::market::interruption::{NoticeSource, gone_by};
use crate::market::offer::Market;
use crate::state::node_verdict::Reason;

/// How long a node must have been without a GPU pod before it is let go because spot is back. The next pod of a pipeline comes within
/// seconds; and an emptied fallback node must be gone within a minute (in simulated training on spot a window of 60 s
/// instead of 300 s was worth 9 % of the bill), of which closing and ending it take the rest.
pub const FREE_FOR: SignedDuration = SignedDuration::from_secs(30);

/// How long a node has been closed before it counts as empty: a scheduler that had chosen it before has bound its pod by then. The
/// autoscaler waits as long between its taint and its deletion (`--node-delete-delay-after-taint`).
pub const CLOSED_FOR: SignedDuration = SignedDuration::from_secs(5);

/// How often a node that is not empty yet is looked at again, and the pods told that may go by then.
pub const TRY_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// How long after a node was emptied the pool's next busy one may be: the autoscaler holds a GPU pod for 30 s and looks every 10 s, so
/// by then it has asked for the moved pods' node, and that order stands in the way until it is bought. Once it is, as spot, nothing is left
/// to pause for.
pub const PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// How long pods may refuse to go (a disruption budget) before a node that needed not go is opened again.
pub const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// How long a node stays that could not be emptied, before it is tried again.
pub const STAYS_FOR: SignedDuration = SignedDuration::from_hours(1);

/// How long after a move an order tells how it went: whether spot was had or on-demand again. Pods may take their time to go, and
/// their successors are made as soon as they begin to.
pub const JUDGED_WITHIN: SignedDuration = GIVE_UP_AFTER;

/// How long a pool moves nothing after a move that ended on demand again while spot was there, doubling up to [`LONGEST_REST`]: a pod
/// that no spot market can serve (its volume lies in another zone) must not be restarted for nothing time and again.
pub const FIRST_REST: SignedDuration = SignedDuration::from_mins(30);

/// See [`FIRST_REST`].
pub const LONGEST_REST: SignedDuration = SignedDuration::from_hours(8);

/// Why a node is let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "for")]
pub enum DrainReason {
    /// It runs on demand, and spot is back.
    BackToSpot {
        /// Where the next node would be bought.
        market: Market,
        /// What the move saves, over the time that the node is expected to serve.
        gain: UsdMicros,
        /// What the move costs.
        cost: UsdMicros,
        /// Whether work moves: pods that run on it, or a floor that another node must keep.
        work: bool,
    },
    /// The capacity that it runs on ends.
    CapacityEnds {
        /// The commitment.
        commitment: String,
        /// When the cloud takes what is left.
        at: Timestamp,
    },
    /// The cloud takes its machine back.
    Reclaimed {
        /// When it will be gone.
        at: Timestamp,
        /// Who told.
        told_by: NoticeSource,
    },
    /// Its hardware is not fit for work.
    Unhealthy {
        /// What that rests on.
        why: Reason,
    },
    /// A pod holds it in off-hours and does nothing with it.
    Held {
        /// When that was announced.
        announced: Timestamp,
        /// From when on its pods are told to go.
        at: Timestamp,
    },
    /// It would be made differently today.
    Outdated {
        /// How.
        why: Outdated,
        /// Whether another node must take its place: for its pods, or because something keeps it.
        needed: bool,
    },
}

impl fmt::Display for DrainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BackToSpot { market, gain, cost, work: true } => {
                write!(f, "spot is available again in {market}: moving saves {gain:#} and costs {cost:#}")
            }
            Self::BackToSpot { market, work: false, .. } => {
                write!(f, "spot is available again in {market}, and no pod needs this node")
            }
            Self::CapacityEnds { commitment, at } => {
                write!(f, "commitment {commitment} ends at {}", at.strftime("%Y-%m-%d %H:%MZ"))
            }
            Self::Reclaimed { at, told_by: _ } => write!(f, "the cloud reclaims it at {}", at.strftime("%H:%M:%SZ")),
            Self::Unhealthy { why } => write!(f, "it is unhealthy: {why}"),
            Self::Held { announced, at: _ } => {
                write!(f, "a pod occupies it in off-hours and does nothing, as announced at {}", announced.strftime("%H:%MZ"))
            }
            Self::Outdated { why, needed: _ } => write!(f, "it is outdated: {why}"),
        }
    }
}

/// A node that is let go, or that was to go and stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Why.
    pub why: DrainReason,
    /// Since when.
    pub since: Timestamp,
    /// How far it has come.
    pub stage: Stage,
    /// Whether its pods were asked to go and nobody has heard yet what came of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// The GPU pods that were on it when that was decided, as `namespace/name`. Where its machine need not go, a pod that has come since
    /// takes the decision back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pods: BTreeSet<String>,
}

/// How far a node has come that is let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "is")]
pub enum Stage {
    /// To be closed to new pods.
    Closing,
    /// Closed, and its pods are told to go.
    Emptying {
        /// Closed since then, or before.
        closed_at: Timestamp,
        /// When its pods were last counted.
        counted_at: Timestamp,
        /// Pods that were still on it.
        left: u32,
        /// Whether any pod was told to go: from then on there is no way back.
        evicted: bool,
        /// Why not all were, in words.
        stuck: Option<String>,
    },
    /// Empty; its machine is ended.
    Ending,
    /// It could not be emptied, and is left alone for a while.
    DrainAbandoned {
        /// So long.
        until: Timestamp,
    },
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closing => write!(f, "it is being cordoned"),
            Self::Emptying { left, stuck, .. } => {
                let pods = if *left == 1 { "pod is" } else { "pods are" };
                write!(f, "{left} {pods} left on it")?;
                stuck.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
            }
            Self::Ending => write!(f, "it is empty, and its machine is being terminated"),
            Self::DrainAbandoned { until } => write!(f, "it stays until {}", until.strftime("%H:%MZ")),
        }
    }
}

impl Disruption {
    /// Whether it is on its way and not yet empty.
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Closing | Stage::Emptying { .. })
    }

    /// Whether a pod was told to go, or may be told at this moment.
    pub const fn may_have_evicted(&self) -> bool {
        self.asked || matches!(self.stage, Stage::Emptying { evicted: true, .. })
    }

    /// Whether its machine ends whatever becomes of its pods: nothing keeps it, and there is no giving up.
    pub const fn ends_anyway(&self) -> bool {
        matches!(self.why, DrainReason::CapacityEnds { .. } | DrainReason::Reclaimed { .. })
    }

    /// By when its pods must be gone, where there is so little time that it matters to how they are told.
    pub fn gone_by(&self) -> Option<Timestamp> {
        if let DrainReason::Reclaimed { at, .. } = self.why { Some(gone_by(at)) } else { None }
    }

    /// Whether it goes because spot is back, with work on it.
    pub const fn moves_work(&self) -> bool {
        matches!(self.why, DrainReason::BackToSpot { work: true, .. })
    }
}

/// How the last moves back to spot of a pool went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moves {
    /// When the last one began whose node is gone, while it is not known what took that node's place.
    pub began_at: Option<Timestamp>,
    /// Where its work was to go.
    #[serde(default)]
    pub aimed_at: Option<Market>,
    /// Nothing moves before.
    pub rests_until: Option<Timestamp>,
    /// Moves in a row that ended on demand again while spot was there.
    pub failed: u32,
}

impl Moves {
    /// What took the place of the last one was bought as spot, or on demand again.
    pub fn judge(&mut self, as_spot: bool, now: Timestamp) {
        self.began_at = None;
        if as_spot {
            self.failed = 0;
            // What the pause waits for is bought, so the next may go.
            self.rests_until = None;
            return;
        }
        let doublings = self.failed.min(8);
        self.failed = self.failed.saturating_add(1);
        let rest = SignedDuration::from_secs(FIRST_REST.as_secs() << doublings).min(LONGEST_REST);
        self.rests_until = Some(now.saturating_add(rest).unwrap_or(Timestamp::MAX));
    }
}
