//! Marginal cost of a node: what covers it, and why reserved capacity takes none.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::units::{Milli, UsdPerHour};

/// A covered node costs this share of its price: near nothing, but in the same order, and never zero, which would be an unknown
/// price. Karpenter divides the price of a reservation by the same.
const TRIFLE: i64 = 10_000_000;

/// What one more node in a market would cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marginal {
    /// What it costs without any commitment.
    pub price: UsdPerHour,
    /// What it adds to the bill: zero while a commitment covers it, a part of its price where one covers it in part.
    pub cash: UsdPerHour,
    /// What covers it.
    pub by: Option<CoveredBy>,
    /// How many nodes from here on cost the same, at least one.
    pub alike: u32,
}

/// The commitment that covers a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredBy {
    /// Its name.
    pub name: String,
    /// How much of the node's price is saved, in thousandths.
    pub share: Milli,
}

impl fmt::Display for CoveredBy {
    /// `covered by commitment ri`; a half-covered node is `0.500 covered by commitment sp`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            Milli(1000) => write!(f, "covered by commitment {}", self.name),
            share => write!(f, "{share} covered by commitment {}", self.name),
        }
    }
}

/// Why no node can be bought from kept capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum NoSlot {
    /// All of it is used.
    #[error("commitment {name} is full: {nodes} of {nodes} nodes used")]
    Full {
        /// Its name.
        name: String,
        /// Its nodes.
        nodes: u32,
    },
    /// It has not begun.
    #[error("commitment {name} starts at {}", .from.strftime("%Y-%m-%d %H:%MZ"))]
    NotBegun {
        /// Its name.
        name: String,
        /// When it begins.
        from: Timestamp,
    },
    /// It is over, or so near its end that nodes must leave.
    #[error("commitment {name} covers no new nodes from {} on", .since.strftime("%Y-%m-%d %H:%MZ"))]
    Ending {
        /// Its name.
        name: String,
        /// Since when.
        since: Timestamp,
    },
}

impl Marginal {
    /// A node that nothing covers.
    pub const fn uncovered(price: UsdPerHour) -> Self {
        Self { price, cash: price, by: None, alike: u32::MAX }
    }

    /// What the choice ranks by: the cash, or a trifle of the price where no cash is due.
    pub fn effective(&self) -> UsdPerHour {
        self.cash.max(UsdPerHour(self.price.0 / TRIFLE)).max(UsdPerHour(1))
    }

    /// How many such nodes may be bought, one by one, while something of `left` is left before each.
    pub fn startable(&self, left: UsdPerHour) -> u32 {
        let nodes = |left: UsdPerHour, each: UsdPerHour| {
            let each = each.0.max(1);
            u32::try_from((left.0.max(0).saturating_add(each - 1)) / each).unwrap_or(u32::MAX)
        };
        if self.cash == self.price {
            return nodes(left, self.price);
        }
        let first = self.cash.times(self.alike);
        if self.cash > UsdPerHour::ZERO && left <= first {
            return nodes(left, self.cash);
        }
        self.alike.saturating_add(nodes(left.minus(first), self.price))
    }

    /// How many such nodes `left` pays for: those that cost the same as the next one, and then others at the full price.
    pub fn affordable(&self, left: UsdPerHour) -> u32 {
        // A price of zero would be an unknown one; the tables and the policy refuse it, and `max` keeps the division safe.
        let whole = |left: UsdPerHour| u32::try_from(left.0.max(0) / self.price.0.max(1)).unwrap_or(u32::MAX);
        if self.cash == self.price {
            return whole(left);
        }
        let first = self.cash.times(self.alike);
        // What costs nothing more needs nothing left.
        if self.cash > UsdPerHour::ZERO && left < first { 0 } else { self.alike.saturating_add(whole(left.minus(first))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn next(cash: i64, alike: u32) -> Marginal {
        Marginal { price: UsdPerHour(100), cash: UsdPerHour(cash), by: None, alike }
    }

    /// One node may start while anything is left, so the last may step over; the nodes paid for always may.
    #[test]
    fn nodes_start_while_something_is_left() {
        let start =
            |next: &Marginal, left: &[i64]| left.iter().map(|left| next.startable(UsdPerHour(*left))).collect::<Vec<_>>();
        assert_eq!(start(&Marginal::uncovered(UsdPerHour(100)), &[-5, 0, 1, 100, 101]), [0, 0, 1, 1, 2]);
        // Two are covered whole: they cost nothing and need nothing left.
        assert_eq!(start(&next(0, 2), &[-5, 0, 1, 100, 101]), [2, 2, 3, 3, 4]);
        // One is covered to 70 %: after it 70 are left of 100, so a second may start.
        assert_eq!(start(&next(30, 1), &[-5, 0, 1, 30, 31, 130, 131]), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn what_is_left_pays_for_whole_nodes() {
        let pays =
            |next: &Marginal, left: &[i64]| left.iter().map(|left| next.affordable(UsdPerHour(*left))).collect::<Vec<_>>();
        assert_eq!(pays(&Marginal::uncovered(UsdPerHour(100)), &[-5, 99, 100, 250]), [0, 0, 1, 2]);
        assert_eq!(pays(&next(0, 2), &[-5, 99, 100]), [2, 2, 3]);
        assert_eq!(pays(&next(30, 1), &[-5, 29, 30, 129, 130]), [0, 0, 1, 1, 2]);
    }
}
