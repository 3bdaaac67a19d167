//! The warm floor: free and proven nodes that a pool keeps, whatever the demand.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::calendar::Slot;
use crate::ids::PoolName;
use crate::units::{Percent, UsdPerHour};

/// What a pool wants kept warm: the most that any of its parts asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmFloor {
    /// So many nodes.
    pub nodes: u32,
    /// So large a share of the nodes at work, in whole nodes rounded up.
    pub percent_of_busy: Option<Percent>,
    /// As many as came at once in the past.
    pub quantile: Option<Quantile>,
    /// So many nodes at set times.
    pub schedule: Vec<(Slot, u32)>,
    /// Whether the pool's demand signals ask for nodes.
    pub signals: bool,
    /// When a node counts as warm.
    pub warm_when: WarmWhen,
    /// How the autoscaler is asked for it.
    #[serde(default)]
    pub through: Through,
}

impl WarmFloor {
    /// Whether it has to be asked for by a raised `minSize`: it is to be, or the cluster serves no buffers.
    pub const fn raises_min_size(&self, buffers_served: bool) -> bool {
        match self.through {
            Through::MinSize => true,
            Through::CapacityBuffer => !buffers_served,
        }
    }
}

/// How the autoscaler is asked for a floor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Through {
    /// By the least size of groups.
    #[default]
    MinSize,
    /// By a `CapacityBuffer`, where the cluster serves them.
    CapacityBuffer,
}

/// Over how much history arrivals are counted where the policy does not say: two weeks, so that each day of the week counts twice.
pub const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Least history that a quantile is taken of: nights are not like days.
pub const SHORTEST_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// Longest history that is remembered.
pub const LONGEST_WINDOW: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A quantile of past arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantile {
    /// Which; `None` where it follows from what waiting costs and what a node costs.
    pub p: Option<Percent>,
    /// Over how much history.
    pub window: SignedDuration,
    /// Arrivals within how long; `None` where that is what boots of the pool take.
    pub horizon: Option<SignedDuration>,
}

/// When a node counts as warm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WarmWhen {
    /// Ready, with its gates passed.
    #[default]
    Ready,
    /// And the images that its pool's pods use are on it.
    ImagesPulled,
}

/// How a pool's warm floor stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FloorStands {
    /// The pool.
    pub pool: PoolName,
    /// Nodes wanted.
    pub wanted: u32,
    /// Which of its parts asks for that, in words.
    pub why: String,
    /// Warm nodes.
    pub warm: u32,
    /// On their way for it.
    pub coming: u32,
    /// What the wanted nodes cost.
    pub usd_per_hour: UsdPerHour,
    /// Since when some are missing; `None` while none is.
    pub unmet_since: Option<Timestamp>,
    /// What keeps the missing ones from being bought, in words; `None` while they are on their way or nothing does.
    pub blocked: Option<String>,
}
