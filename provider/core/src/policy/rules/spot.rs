//! Spot rules of a pool: shares, and what a reclaim costs.
//!
//! A spot node is cheap while it runs and loses work when it is reclaimed, so its price is divided
//! by the useful share of its time. All of it is integer arithmetic, in millionths.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::base::kinds::ReturnToSpot;
use crate::base::units::{Percent, Ppm, UsdPerHour};
use crate::market::hazard::Hazard;

/// What a reclaim loses where a pool saves no checkpoints: all that the job has done, 5 h on average. The mean GPU job of the Philly trace
/// takes that long (18,006 s, as `AcmeTrace` sums it up), and where lengths are spread exponentially, what runs at any moment is as old as
/// jobs are long. Traces spread further: in Alibaba's openb of 2023 jobs take 1.0 h, and those that run are 11.5 h old.
pub const UNSAVED_WORK: SignedDuration = SignedDuration::from_hours(5);

/// The least useful share that is counted: a node that hardly gets anything done is a hundred times more expensive, and not infinitely.
const LEAST_USEFUL: Ppm = Ppm(10_000);

/// Spot rules of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpotRules {
    /// Largest share of the pool's nodes that may be spot, in whole nodes rounded down: what stays when all of spot goes at once.
    pub max_share: Percent,
    /// Largest share of the pool's nodes in one spot market, in whole nodes rounded up: one is always allowed, and ⌈1 ÷ share⌉ markets
    /// always hold the whole demand.
    pub max_market_share: Percent,
    /// Highest published monthly rate of reclaims; `None` for any, known or not.
    pub max_interruption: Option<Percent>,
    /// What a reclaim leaves of the work.
    pub saving: Saving,
    /// From SIGTERM until a checkpoint is saved; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<SignedDuration>,
    /// From a new node to where the work stood, its boot not included.
    pub restart: SignedDuration,
    /// Which on-demand nodes are let go when spot is back and that pays.
    #[serde(default)]
    pub return_to_spot: ReturnToSpot,
}

/// What a reclaim leaves of the work that a node did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Saving {
    /// All up to the last checkpoint: on average half the time between two is lost.
    Checkpoints {
        /// Time between two.
        every: SignedDuration,
        /// Share of the time that goes into writing them.
        overhead: Percent,
    },
    /// Nothing: [`UNSAVED_WORK`] is lost on average.
    Nothing,
    /// Requests leave nothing behind that could be lost.
    Stateless,
}

impl SpotRules {
    /// Whether the shares limit anything.
    pub fn limits_shares(&self) -> bool {
        self.max_share < Percent::ALL || self.max_market_share < Percent::ALL
    }

    /// Whether busy nodes may be let go when spot is back: their work goes on elsewhere from where it was saved.
    pub const fn moves_busy(&self) -> bool {
        matches!((self.return_to_spot, self.saving), (ReturnToSpot::Busy, Saving::Checkpoints { .. }))
    }

    /// Time lost on average when a node is reclaimed whose pods have so much time from the notice on ([`usable`](crate::market::interruption::usable)).
    ///
    /// Work that saves itself when it is told to go loses what the save takes, in which it does not go on. A save that is cut off leaves
    /// nothing, and while one is being written the last whole one is as old as the time between two, and older: all of that time is
    /// reckoned to be lost then, and half of it and the save where that is more.
    pub fn lost_per_reclaim(&self, usable: SignedDuration) -> SignedDuration {
        let work = match (self.saving, self.save) {
            (Saving::Checkpoints { .. }, Some(save)) if save <= usable => save,
            (Saving::Checkpoints { every, .. }, Some(save)) => every.max((every / 2).saturating_add(save)),
            (Saving::Checkpoints { every, .. }, None) => every / 2,
            (Saving::Nothing, _) => UNSAVED_WORK,
            (Saving::Stateless, _) => SignedDuration::ZERO,
        };
        work.saturating_add(self.restart)
    }

    /// Time lost on average when pods are moved: they have all the time that they say they need.
    pub fn lost_per_move(&self) -> SignedDuration {
        self.lost_per_reclaim(SignedDuration::MAX)
    }

    /// The share of a node's time that is useful: 1 − λ × time lost per reclaim − time spent on checkpoints. First order, and so never
    /// too much: with an interval T the exact share is λT ÷ (e^λT − 1), which is at least 1 − λT ÷ 2.
    pub fn useful(&self, hazard: Hazard, usable: SignedDuration) -> Ppm {
        let lost_ms = u64::try_from(self.lost_per_reclaim(usable).as_millis()).unwrap_or(0);
        // 10⁻⁹ reclaims per hour × ms, to 10⁻⁶: ÷ 3,600,000 ms an hour, ÷ 1,000. What saturates is more than all.
        let lost = hazard.0.saturating_mul(lost_ms).div_ceil(3_600_000_000);
        let overhead = match self.saving {
            Saving::Checkpoints { overhead, .. } => u64::from(overhead.0) * 10_000,
            Saving::Nothing | Saving::Stateless => 0,
        };
        let useful = 1_000_000_u64.saturating_sub(lost).saturating_sub(overhead);
        Ppm(u32::try_from(useful).unwrap_or(1_000_000)).max(LEAST_USEFUL)
    }
}

/// What an hour of useful time costs, rounded up.
pub fn effective(cash: UsdPerHour, useful: Ppm) -> UsdPerHour {
    let micros = (i128::from(cash.0) * 1_000_000 + i128::from(useful.0) - 1) / i128::from(useful.0.max(1));
    UsdPerHour(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// How a share of nodes is made whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    Up,
}

impl Rounding {
    /// What rounding adds to a share, in hundredths of a node.
    pub(crate) const fn slack(self) -> i64 {
        match self {
            Self::Down => 0,
            Self::Up => 99,
        }
    }
}
