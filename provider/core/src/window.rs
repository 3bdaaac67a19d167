//! Stabilization windows: how long need must stay low before capacity goes.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::policy::Workload;
use crate::units::Percent;

/// How long a pool's capacity is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stabilization {
    /// How long a node must be free before it is idle.
    pub scale_down: SignedDuration,
    /// Whether every node of the pool waits that long.
    pub window: Window,
    /// How long a node is kept from its order on, whatever else.
    pub minimum_life: SignedDuration,
    /// How long nothing of a pool goes after it grew.
    pub after_scale_up: SignedDuration,
    /// The largest share of a pool's nodes that goes within one window.
    pub max_removals: Percent,
}

/// Whether every node of a pool waits alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Window {
    /// Each waits the whole window.
    Fixed,
    /// Each may idle for the same money: dear ones wait shorter.
    EqualPay,
}

impl Stabilization {
    /// What holds where the policy says nothing.
    pub const fn of(workload: Workload) -> Self {
        let scale_down = match workload {
            Workload::Inference => SignedDuration::from_mins(15),
            Workload::Training | Workload::Batch | Workload::Dev => SignedDuration::from_mins(10),
        };
        Self {
            scale_down,
            window: Window::Fixed,
            minimum_life: SignedDuration::from_mins(15),
            after_scale_up: SignedDuration::ZERO,
            max_removals: Percent::ALL,
        }
    }
}
