//! Exact optimum for replicas that each fill one node of one type, with none late.
//!
//! Level `k` must be on while the demand is at least `k`. Within a level, an idle gap no longer than a boot is cheaper
//! to keep on than to boot again after. Levels are independent, since a lower level is on whenever a higher one is, so
//! the sum of the cheapest levels is the optimum. A level is reserved for the whole time where that costs less.
//!
//! One pass over the demand per level: O(steps × peak).

use stoker_core::base::units::{Milli, UsdMicros, UsdPerHour};

use crate::demand::Replicas;

/// What a replica's node costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// On-demand price.
    pub hourly: UsdPerHour,
    /// Time from request to ready, which is paid.
    pub boot_seconds: u32,
    /// Price of a node reserved for the whole time, as a share of the on-demand price; none where none is sold.
    pub reserved: Option<Milli>,
}

/// Optimum over all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optimum {
    /// Cost of all levels.
    pub total: UsdMicros,
    /// Levels that are reserved, from the lowest up.
    pub reserved: u32,
    /// Boots of the levels that are not.
    pub boots: u64,
}

/// Computes the optimum.
pub fn optimum(demand: &Replicas, node: &Node) -> Optimum {
    let peak = demand.needed.iter().copied().max().unwrap_or(0);
    let steps = i64::try_from(demand.needed.len()).unwrap_or(i64::MAX);
    let whole_time = steps * i64::from(demand.step_seconds);
    // In thousandths of a paid on-demand second.
    let reserved_costs = node.reserved.map(|share| whole_time * i64::from(share.0));
    let (mut paid, mut reserved, mut boots) = (0_i128, 0, 0);
    for level in 1..=peak {
        let (seconds, started) = on_demand(demand, level, i64::from(node.boot_seconds));
        if let Some(costs) = reserved_costs.filter(|costs| *costs < seconds * 1000) {
            paid += i128::from(costs);
            reserved += 1;
        } else {
            paid += i128::from(seconds) * 1000;
            boots += started;
        }
    }
    let micros = paid * i128::from(node.hourly.0) / 3_600_000;
    Optimum { total: UsdMicros(i64::try_from(micros).unwrap_or(i64::MAX)), reserved, boots }
}

/// Seconds that a level pays for on demand, and how often it boots.
fn on_demand(demand: &Replicas, level: u32, boot: i64) -> (i64, u64) {
    let step = i64::from(demand.step_seconds);
    let (mut paid, mut boots) = (0, 0);
    // Length of the current gap; none before the first boot.
    let mut gap = None;
    for needed in &demand.needed {
        if *needed >= level {
            match gap {
                Some(idle) if idle <= boot => paid += idle,
                _ => {
                    paid += boot;
                    boots += 1;
                }
            }
            paid += step;
            gap = Some(0);
        } else if let Some(idle) = &mut gap {
            *idle += step;
        }
    }
    (paid, boots)
}

#[cfg(test)]
mod tests;
