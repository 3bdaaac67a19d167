//! Reduction of the problem before the search: drops limits that cannot bind and offers that are
//! never needed.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{CLASSES, Choice, Gap, Row};

/// What is left of a problem for one number of nodes.
#[derive(Debug)]
pub(super) struct Reduced {
    /// Nodes wanted.
    pub wanted: u32,
    /// Offers, from the most preferred.
    pub items: Vec<Item>,
    /// What is left of each limit that can bind; above zero.
    pub left: Vec<i64>,
}

/// An offer that may be needed.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Its place among the choices.
    at: usize,
    pub class: usize,
    pub cost: i64,
    /// Nodes of it that fit at most; above zero.
    pub most: u32,
    /// What one node takes of the limits, each by its place, in their order; above zero.
    pub takes: Vec<(usize, i64)>,
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
        let mut slots: Vec<Option<usize>> = vec![None; rows.len()];
        for (slot, row) in binding.iter().enumerate() {
            if let Some(own) = slots.get_mut(*row) {
                *own = Some(slot);
            }
        }
        let left: Vec<i64> = binding.iter().filter_map(|row| left.get(*row).copied()).collect();
        let mut kept: Vec<Item> = Vec::new();
        // Those kept, by the last limit that they take of: only some of them are looked at for each that comes after.
        let mut by_last: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (at, choice, most) in order {
            let own = choice.takes.iter().filter(|(_, takes)| *takes > 0);
            let mut takes: Vec<(usize, i64)> = own.filter_map(|(row, each)| Some(((*slots.get(*row)?)?, *each))).collect();
            takes.sort_unstable();
            let item = Item { at, class: choice.class.min(CLASSES - 1), cost: choice.cost, most, takes };
            let lasts = std::iter::once(None).chain(item.takes.iter().map(|(slot, _)| Some(*slot)));
            let near = lasts.filter_map(|last| by_last.get(&last)).flatten().filter_map(|at| kept.get(*at));
            if !is_needless(&item, near.filter(|earlier| takes_no_more(earlier, &item)), wanted, &left) {
                by_last.entry(item.takes.last().map(|(slot, _)| *slot)).or_default().push(kept.len());
                kept.push(item);
            }
        }
        let mut reduced = Self { wanted, items: kept, left };
        reduced.drop_idle_rows();
        reduced
    }

    /// The offers that take of each limit, by their place.
    fn members(&self) -> Vec<Vec<(&Item, i64)>> {
        let mut members: Vec<Vec<(&Item, i64)>> = vec![Vec::new(); self.left.len()];
        for item in &self.items {
            for (row, takes) in &item.takes {
                if let Some(members) = members.get_mut(*row) {
                    members.push((item, *takes));
                }
            }
        }
        members
    }

    /// Once fewer offers are left, fewer limits can bind.
    fn drop_idle_rows(&mut self) {
        let wanted = self.wanted;
        let idle: Vec<bool> = self
            .members()
            .iter()
            .zip(&self.left)
            .map(|(members, left)| !binds(wanted, || members.iter().map(|(item, takes)| (*takes, item.most)), *left))
            .collect();
        let mut next = 0..;
        let slots: Vec<Option<usize>> = idle.iter().map(|idle| if *idle { None } else { next.next() }).collect();
        let mut own = idle.iter();
        self.left.retain(|_| own.next() != Some(&true));
        for item in &mut self.items {
            let kept = item.takes.iter().filter_map(|(row, takes)| Some(((*slots.get(*row)?)?, *takes)));
            item.takes = kept.collect();
        }
    }

    /// Whether taking as much as fits of one offer after the other, from the most preferred, is the best filling: every limit takes the
    /// same of all of its offers, and of two limits one holds all offers of the other, or none. Such limits make a laminar matroid, and
    /// on a matroid greed is right.
    pub(super) fn is_greedy(&self) -> bool {
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); self.left.len()];
        let mut each: Vec<Option<i64>> = vec![None; self.left.len()];
        for (at, item) in self.items.iter().enumerate() {
            for (row, takes) in &item.takes {
                let (Some(members), Some(each)) = (rows.get_mut(*row), each.get_mut(*row)) else { continue };
                if each.is_some_and(|each| each != *takes) {
                    return false;
                }
                *each = Some(*takes);
                members.push(at);
            }
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

/// Whether one node of an offer takes no more of any limit than one of another.
pub(super) fn takes_no_more(one: &Item, other: &Item) -> bool {
    let mut others = other.takes.iter();
    one.takes.iter().all(|(row, takes)| others.find(|(own, _)| own == row).is_some_and(|(_, most)| takes <= most))
}

/// Whether no best filling has a node of an offer. `before` are those that come before it and take no more: as long as one of them has a
/// node to spare, that would do as well. They have where all of their nodes beside one of the offer's are too many.
fn is_needless<'i>(item: &Item, before: impl Iterator<Item = &'i Item>, wanted: u32, left: &[i64]) -> bool {
    let (mut nodes, mut used) = (0_u32, item.takes.clone());
    for earlier in before {
        nodes = nodes.saturating_add(earlier.most);
        let mut taken = earlier.takes.iter().peekable();
        for (row, used) in &mut used {
            if let Some((_, takes)) = taken.next_if(|(own, _)| own == row) {
                *used = used.saturating_add(takes.saturating_mul(i64::from(earlier.most)));
            }
        }
        if nodes >= wanted || used.iter().any(|(row, used)| left.get(*row).is_some_and(|left| used > left)) {
            return true;
        }
    }
    false
}

/// How many nodes of an offer still fit.
pub(super) fn fits(item: &Item, left: &[i64]) -> u32 {
    let fits = item.takes.iter().filter_map(|(row, takes)| Some(left.get(*row)? / takes)).min();
    fits.map_or(item.most, |n| u32::try_from(n).unwrap_or(if n < 0 { 0 } else { u32::MAX }).min(item.most))
}

/// Takes nodes of an offer out of what is left.
pub(super) fn take(item: &Item, left: &mut [i64], nodes: u32) {
    for (row, takes) in &item.takes {
        if let Some(left) = left.get_mut(*row) {
            *left -= takes * i64::from(nodes);
        }
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
