//! Spend: what nodes cost while they were in each state, and who held them.
//!
//! A node's life is a row of [`Span`]s, each with one state and one pair of rates. [`roll_up`] splits the spans of a day over the pods that
//! held them and over the commitments that paid; its rows add up to the bill to the micro-dollar, whichever way they are grouped.

mod allocate;
pub mod billed;
mod day;
mod gpu_use;
mod kept;
mod lives;
mod packed;
mod pay;
mod rows;
mod tariff;
#[cfg(test)]
mod tests;
mod totals;
mod unit;
mod without_gpu;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stoker_core::base::ids::{GpuModel, NodeName, PoolName, ProviderId, RecordId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::Market;
use stoker_core::market::sharing::Slices;

use crate::rollup::PodLabels;

pub use day::{Bill, DayRow, Holder, RowKey, Use, roll_up};
pub use gpu_use::GpuUse;
pub use kept::{CommitmentCost, KeptDay, MOST_ROWS};
pub use lives::{End, Life, LifeTimes, Lives};
pub use packed::PackedRows;
pub use tariff::Tariff;
pub use totals::{By, Figures, Idle, grouped, spread, total};
pub use unit::UnitCost;
pub use without_gpu::{OnFreeNode, WithoutGpu, without_gpu};

/// Seconds in a day.
pub const DAY: i64 = 86_400;

/// Parts of a second, in which time is counted: every number of pods up to 16 divides a second of a node evenly, and so do sevenths of a GPU.
pub const PARTS: i64 = 720_720;

/// What a node did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Pods hold it.
    Held,
    /// No pod holds it, and nothing keeps it.
    Idle,
    /// No pod holds it, and the pool's warm floor keeps it.
    Warm,
    /// The machine exists, and was never Ready.
    Booting,
    /// It is being emptied.
    Draining,
    /// Its machine is being ended.
    Ending,
    /// Its machine did not join the cluster.
    Lost,
}

impl NodeState {
    /// Every state, in the order of tables.
    pub const ALL: [Self; 7] = [Self::Held, Self::Idle, Self::Warm, Self::Booting, Self::Draining, Self::Ending, Self::Lost];

    /// The word used in the journal and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Idle => "idle",
            Self::Warm => "warm",
            Self::Booting => "booting",
            Self::Draining => "draining",
            Self::Ending => "ending",
            Self::Lost => "lost",
        }
    }

    /// The state of that [word](Self::as_str).
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// Whether a pod can run on a node in this state.
    const fn takes_pods(self) -> bool {
        match self {
            Self::Held | Self::Idle | Self::Warm | Self::Draining | Self::Ending => true,
            Self::Booting | Self::Lost => false,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A time in which a node had one state and one pair of rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The node's record.
    pub record: RecordId,
    /// From then on, in Unix seconds.
    pub since: i64,
    /// Until then, not included, in Unix seconds.
    pub until: i64,
    /// Its pool.
    pub pool: PoolName,
    /// Its Node; `None` where it never joined the cluster.
    pub node: Option<NodeName>,
    /// Its machine.
    pub instance: ProviderId,
    /// Where and how it was bought.
    pub market: Market,
    /// The reservation that it was bought from; `None` where from none.
    pub reservation: Option<String>,
    /// Its GPU model.
    pub model: GpuModel,
    /// Its GPUs.
    pub gpus: u32,
    /// What it advertises to pods, in [units](units_of) of their own kind.
    pub units: u32,
    /// What it did.
    pub state: NodeState,
    /// The published on-demand price; `None` where no table told.
    pub list: Option<UsdPerHour>,
    /// What it cost without commitments.
    pub rate: UsdPerHour,
}

/// What a node advertises or a pod asks for, in units that compare on one node: whole GPUs and time slices count one each, MIG instances
/// as many as they have compute slices.
pub fn units_of(gpus: u32, slices: &Slices) -> u32 {
    let of = |(name, number): (&str, u64)| {
        let compute = name.split_once("mig-").and_then(|(_, profile)| profile.split_once('g')?.0.parse().ok());
        number.saturating_mul(compute.unwrap_or(1))
    };
    let all = slices.iter().map(of).fold(u64::from(gpus), u64::saturating_add);
    u32::try_from(all).unwrap_or(u32::MAX)
}

/// A pod that held GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTime {
    /// The node.
    pub node: Arc<str>,
    /// Since when, in Unix seconds.
    pub since: i64,
    /// Until when, not included, in Unix seconds.
    pub until: i64,
    /// How much of the node, in [units](units_of); `None` where it is not known, as of a resource claim.
    pub units: Option<u32>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// What made it.
    pub workload: Arc<str>,
    /// Its labels.
    pub labels: PodLabels,
}

/// Times that are known, in Unix seconds, in order and apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known(pub Vec<(i64, i64)>);

impl Known {
    /// Seconds that are known between two moments.
    pub fn seconds(&self, from: i64, until: i64) -> i64 {
        self.0.iter().map(|(since, to)| ((*to).min(until) - (*since).max(from)).max(0)).sum()
    }

    /// The last moment that is known before `at`, which is itself where it is known; `None` where nothing is.
    pub fn last_before(&self, at: i64) -> Option<i64> {
        self.0.iter().rev().find(|(since, _)| *since < at).map(|(_, until)| (*until).min(at))
    }
}
