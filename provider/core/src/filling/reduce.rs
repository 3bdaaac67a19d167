//! The problem made small before anything is searched: without limits that cannot bind, and without offers that are never needed.

use std::cmp::Ordering;

use super::{CLASSES, Choice, Gap, Row};

/// What is left of a problem for one number of nodes.
#[derive(Debug)]
pub(super) struct Reduced {
    /// Nodes wanted.
    pub wanted: u32,
    /// Offers, from the most preferred.
    pub items: Vec<Item>,
    /// What is left of each limit that can bind; above nought.
    pub left: Vec<i64>,
}

/// An offer that may be needed.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Its place among the choices.
    at: usize,
    pub class: usize,
    pub cost: i64,
    /// Nodes of it that fit at most; above nought.
    pub most: u32,
    /// What one node takes of each limit.
    pub takes: Vec<i64>,
}

/// Nodes of each item.
#[derive(Debug)]
pub(super) struct Found {
    pub nodes: Vec<u32>,
    pub gap: Gap,
}

impl Reduced {
    /// What matters where `wanted` nodes are bought.
    pub(super) fn of(wanted: u32, choices: &[Choice], rows: &[Row]) -> Self {
        let left: Vec<i64> =
            rows.iter().map(|row| row.left.saturating_add(row.grows.saturating_mul(i64::from(wanted))).max(0)).collect();
        let alone = |choice: &Choice| {
            let fits =
                choice.takes.iter().filter(|(_, takes)| *takes > 0).filter_map(|(row, takes)| Some(left.get(*row)? / takes));
            let fits = fits.min().map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
            fits.min(choice.most).min(wanted)
        };
        let mut order: Vec<(usize, &Choice, u32)> = choices
            .iter()
            .enumerate()
            .map(|(at, choice)| (at, choice, alone(choice)))
            .filter(|(_, _, most)| *most > 0)
            .collect();
        order.sort_by_key(|(at, choice, _)| (choice.class.min(CLASSES - 1), choice.cost, *at));
        let binding = binding(wanted, &order, &left);
        let mut kept: Vec<Item> = Vec::new();
        for (at, choice, most) in order {
            let mut takes = vec![0; binding.len()];
            for (row, each) in &choice.takes {
                if let Some(slot) = binding.iter().position(|b| b == row).and_then(|b| takes.get_mut(b)) {
                    *slot = *each;
                }
            }
            // Every node of an offer could be one of those that come before it and take no more, as long as they have one to spare.
            let spares = |earlier: &&Item| earlier.takes.iter().zip(&takes).all(|(own, other)| own <= other);
            let mut spare = 0_u32;
            let needless = kept.iter().filter(spares).any(|earlier| {
                spare = spare.saturating_add(earlier.most);
                spare >= wanted
            });
            if !needless {
                kept.push(Item { at, class: choice.class.min(CLASSES - 1), cost: choice.cost, most, takes });
            }
        }
        let left = binding.iter().filter_map(|row| left.get(*row).copied()).collect();
        let mut reduced = Self { wanted, items: kept, left };
        reduced.drop_idle_rows();
        reduced
    }

    /// Once fewer offers are left, fewer limits can bind.
    fn drop_idle_rows(&mut self) {
        for row in (0..self.left.len()).rev() {
            let takes = |item: &Item| item.takes.get(row).copied().unwrap_or(0);
            let members = || self.items.iter().filter(|item| takes(item) > 0).map(|item| (takes(item), item.most));
            if !binds(self.wanted, members, self.left.get(row).copied().unwrap_or(0)) {
                self.left.remove(row);
                for item in &mut self.items {
                    item.takes.remove(row);
                }
            }
        }
    }

    /// Whether taking as much as fits of one offer after the other, from the most preferred, is the best filling: every limit takes the
    /// same of all of its offers, and of two limits one holds all offers of the other, or none. Such limits make a laminar matroid, and
    /// on a matroid greed is right.
    pub(super) fn is_greedy(&self) -> bool {
        let mut rows: Vec<Vec<usize>> = Vec::new();
        for row in 0..self.left.len() {
            let takes = |item: &Item| item.takes.get(row).copied().unwrap_or(0);
            let members: Vec<usize> = self.items.iter().enumerate().filter(|(_, i)| takes(i) > 0).map(|(at, _)| at).collect();
            let mut each = members.iter().filter_map(|at| self.items.get(*at)).map(takes);
            let first = each.next();
            if each.any(|takes| Some(takes) != first) {
                return false;
            }
            rows.push(members);
        }
        // From the largest: the members of each must lie within the same smallest one of those before.
        rows.sort_by_key(|members| std::cmp::Reverse(members.len()));
        let mut inside: Vec<Option<usize>> = vec![None; self.items.len()];
        for (row, members) in rows.iter().enumerate() {
            let mut around = members.iter().filter_map(|at| inside.get(*at));
            let first = around.next();
            if around.any(|other| Some(other) != first) {
                return false;
            }
            for at in members {
                if let Some(slot) = inside.get_mut(*at) {
                    *slot = Some(row);
                }
            }
        }
        true
    }

    /// As much as fits of one offer after the other, from the most preferred.
    pub(super) fn greedily(&self) -> Found {
        let (mut left, mut wanted) = (self.left.clone(), self.wanted);
        let nodes = self
            .items
            .iter()
            .map(|item| {
                let nodes = fits(item, &left).min(wanted);
                take(item, &mut left, nodes);
                wanted -= nodes;
                nodes
            })
            .collect();
        Found { nodes, gap: Gap::NONE }
    }

    /// The nodes of each choice, of which there are so many.
    pub(super) fn restore(&self, nodes: &[u32], choices: usize) -> Vec<u32> {
        let mut all = vec![0; choices];
        for (item, nodes) in self.items.iter().zip(nodes) {
            if let Some(slot) = all.get_mut(item.at) {
                *slot = *nodes;
            }
        }
        all
    }
}

/// How many nodes of an offer still fit.
pub(super) fn fits(item: &Item, left: &[i64]) -> u32 {
    let fits = left.iter().zip(&item.takes).filter(|(_, takes)| **takes > 0).map(|(left, takes)| left / takes);
    fits.min().map_or(item.most, |n| u32::try_from(n).unwrap_or(if n < 0 { 0 } else { u32::MAX }).min(item.most))
}

/// Takes nodes of an offer out of what is left.
pub(super) fn take(item: &Item, left: &mut [i64], nodes: u32) {
    for (left, takes) in left.iter_mut().zip(&item.takes) {
        *left -= takes * i64::from(nodes);
    }
}

/// The limits that can bind, by their place.
fn binding(wanted: u32, order: &[(usize, &Choice, u32)], left: &[i64]) -> Vec<usize> {
    let mut members: Vec<Vec<(i64, u32)>> = vec![Vec::new(); left.len()];
    for (_, choice, most) in order {
        for (row, takes) in choice.takes.iter().filter(|(_, takes)| *takes > 0) {
            if let Some(members) = members.get_mut(*row) {
                members.push((*takes, *most));
            }
        }
    }
    let rows = members.iter().zip(left).enumerate();
    rows.filter(|(_, (members, left))| binds(wanted, || members.iter().copied(), **left)).map(|(row, _)| row).collect()
}

/// Whether these nodes, given by what one takes and how many there are at most, could take more than is left. One offer alone cannot: how
/// many nodes of it fit has been seen to.
fn binds<I: Iterator<Item = (i64, u32)>>(wanted: u32, members: impl Fn() -> I, left: i64) -> bool {
    let total = members().fold(0_i64, |sum, (takes, most)| sum.saturating_add(takes.saturating_mul(i64::from(most))));
    let dearest = members().map(|(takes, _)| takes).max().unwrap_or(0);
    let most = total.min(dearest.saturating_mul(i64::from(wanted)));
    most.cmp(&left) == Ordering::Greater && members().nth(1).is_some()
}
