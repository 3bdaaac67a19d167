//! Stabilization windows: how long need must stay low before capacity is released.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::ids::RecordId;
use crate::base::kinds::Workload;
use crate::base::units::{Percent, UsdPerHour};

/// How much waiting a free node may cost, before it goes, of one GPU: what c is in *idle seconds = c / price*.
///
/// A pod that finds no free node waits for a boot, some 5 min; but only some free nodes get a pod before they go, so a window is worth
/// less than the boot that it may save. How much less was measured on a trace of a mixed GPU cluster (Alibaba gpu-v2023): of windows that grow from
/// 1 to 5 min the last saves a GPU-hour of waiting for $2.5, from 5 to 10 min for $5.5, so at the default of $2 a window of some 5 min at $1 an hour
/// is as long as pays, half a boot. It gives each window $0.083 (c = 300 s × $/h), with which windows of equal cost cost as much as
/// the shortest fixed ones there and had half of the waiting.
const WORTH_OF_WAITING: SignedDuration = SignedDuration::from_secs(150);

/// The shortest window of equal cost: the next pod of a pipeline comes within seconds, even to the dearest node.
pub const SHORTEST_EQUAL_COST: SignedDuration = SignedDuration::from_mins(1);

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Window {
    /// Each waits the whole window.
    #[default]
    Fixed,
    /// Each may idle for the same money: dear ones wait shorter.
    EqualCost,
}

/// What bounds how many nodes of a pool go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// When the last order of the pool was placed that came to a machine; `None` where nothing asks for it.
    pub grew_at: Option<Timestamp>,
    /// The nodes released within the last window, in the order of their release; those that pods came to since are not among them.
    pub nodes: Vec<(RecordId, Timestamp)>,
}

impl Stabilization {
    /// How long a node at this price stays free, in a pool where a GPU-hour of waiting costs so much.
    pub fn window_of(&self, price: UsdPerHour, waiting: UsdPerHour) -> SignedDuration {
        if self.window == Window::Fixed || price.0 <= 0 {
            return self.scale_down;
        }
        let pay = waiting.0.saturating_mul(WORTH_OF_WAITING.as_secs());
        SignedDuration::from_secs(pay / price.0).max(SHORTEST_EQUAL_COST).min(self.scale_down)
    }

    /// The shortest time that a node of the pool stays free, whatever it costs.
    pub fn shortest(&self) -> SignedDuration {
        match self.window {
            Window::Fixed => self.scale_down,
            Window::EqualCost => self.scale_down.min(SHORTEST_EQUAL_COST),
        }
    }

    /// How many of a pool's `nodes` may be released within one window; `None` where any may.
    pub fn most_of(&self, nodes: usize) -> Option<usize> {
        let share = usize::from(self.max_removals.0);
        (self.max_removals < Percent::ALL).then(|| (nodes.saturating_mul(share) / 100).max(1))
    }

    /// What holds where the policy says nothing. That a pool grew holds nothing by itself: the new nodes have their minimum life, and
    /// the others had no pod before.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_shorter_than_the_shortest_and_the_dearest_node_has_it() {
        for (window, shortest) in [(Window::Fixed, 600), (Window::EqualCost, 60)] {
            let rules = Stabilization { window, ..Stabilization::of(Workload::Batch) };
            assert_eq!(rules.shortest(), SignedDuration::from_secs(shortest));
            let of = |price| rules.window_of(UsdPerHour(price), UsdPerHour(2_000_000));
            assert!([0, 100_000, 1_000_000, 4_000_000].into_iter().all(|price| of(price) >= rules.shortest()));
            // $2 of waiting make 300 s at $1 an hour, so 3 s at $98.
            assert_eq!(of(98_000_000), rules.shortest());
        }
        let brief =
            Stabilization { scale_down: SignedDuration::ZERO, window: Window::EqualCost, ..Stabilization::of(Workload::Batch) };
        assert_eq!(brief.shortest(), SignedDuration::ZERO);
    }
}
