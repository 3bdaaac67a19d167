//! Solver: how many nodes of which offer, as a small integer problem solved exactly.
//!
//! The best purchase within every limit supplies the most nodes. Among those it takes the most from
//! the most preferred class, then from the next. Among those it costs least. Ties go to the first
//! offer.
//!
//! Buying offer by offer in the order of price is not enough: a cheap offer may use up the quota
//! that two others could have shared.

mod reduce;
mod search;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use reduce::Reduced;

/// Classes of preference that are told apart; what comes after them counts as the last.
pub const CLASSES: usize = 7;

/// One offer to fill from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Class of preference; lower ones come first.
    pub class: usize,
    /// What one node costs, for the ranking.
    pub cost: i64,
    /// Nodes that may be bought of it at most.
    pub most: u32,
    /// What one node takes of the rows, each by its place, in the rows' order; never below zero.
    pub takes: Vec<(usize, i64)>,
}

/// A limit over several offers: what their nodes take of it together is no more than what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// What is left. Below zero nothing that takes of it is bought, and nothing else is stopped.
    pub left: i64,
    /// What every node bought, of whatever offer, adds to what is left; never below zero.
    pub grows: i64,
}

/// Nodes of each offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    /// In the offers' order.
    pub nodes: Vec<u32>,
    /// How much better another one could be at most: by nothing, where this one is proven to be the best. Where the search was given up,
    /// this is still a filling under every limit.
    pub gap: Gap,
}

/// How much better than what was found the best could be at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// By so many nodes more.
    pub nodes: u32,
    /// Where it has no more nodes: by so many nodes of a better class.
    pub preferred: u32,
    /// Where it has no more of those either: by so much less cost, in the unit of the costs.
    pub cost: i64,
}

impl Gap {
    /// Nothing is better.
    pub const NONE: Self = Self { nodes: 0, preferred: 0, cost: 0 };
}

/// Fills `wanted` nodes from `choices`, given in the order in which equals are preferred.
pub fn fill(wanted: u32, choices: &[Choice], rows: &[Row]) -> Filling {
    fill_within(wanted, choices, rows, search::MOST_STEPS)
}

/// The same with another number of steps after which the search is given up.
fn fill_within(wanted: u32, choices: &[Choice], rows: &[Row], mut steps: usize) -> Filling {
    // What is left grows with the nodes that are bought, so their number is tried from above. Fewer nodes leave less, so under the
    // limits that `size` nodes leave no filling of fewer has more of them than the best one here: those between need not be tried.
    let (mut size, mut reach) = (wanted, wanted);
    loop {
        let reduced = Reduced::of(size, choices, rows);
        let found = if reduced.is_greedy() { reduced.greedily() } else { search::best(&reduced, &mut steps) };
        let nodes = found.nodes.iter().fold(0_u32, |sum, n| sum.saturating_add(*n));
        if size == reach {
            reach = reach.min(nodes.saturating_add(found.gap.nodes));
        }
        if nodes == size || rows.iter().all(|row| row.grows == 0) {
            let gap = if reach > nodes { Gap { nodes: reach - nodes, ..Gap::NONE } } else { found.gap };
            return Filling { nodes: reduced.restore(&found.nodes, choices.len()), gap };
        }
        size = nodes;
    }
}
