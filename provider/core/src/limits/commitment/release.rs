//! Release order: the order in which nodes should go, so that the most money is saved first.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::cover::Committed;
use super::reach::Reached;
use crate::base::ids::{PoolName, RecordId};
use crate::base::index::Lookup;
use crate::base::units::UsdPerHour;
use crate::catalogue::Catalogue;
use crate::limits::usage::{Usage, group_of};
use crate::market::offer::{CapacityType, Market};
use crate::policy::rules::commitment::Commitment;
use crate::state::memory::Memory;
use crate::state::record::{Purchase, Record};

/// The first `count` of `records` that should go, each with what its going takes off the bill, given that those before it are gone.
///
/// Releasing a committed node saves nothing, so those go last; and of two nodes under one commitment that is full, the first to go makes
/// room for another, so it saves that one's price. Where two save the same, kept capacity stays (it may not come back), and the younger
/// node goes: the older has proven itself, and of spot nodes the old ones are reclaimed less
/// ([`crate::state::spot_history::Risk`]).
///
/// Whether a node is busy is not asked here: name only records that may go. One without a purchase saves nothing and is left out.
pub fn release_order(
    records: &[&Record],
    count: usize,
    usage: &Usage,
    memory: &Memory,
    catalogue: &Catalogue,
) -> Vec<(RecordId, UsdPerHour)> {
    let mut committed = Cow::Borrowed(&usage.committed);
    let commitments = &catalogue.policy.commitments;
    let mut open: Vec<(&Record, &Purchase)> = records.iter().filter_map(|record| Some((*record, record.purchase()?))).collect();
    // Youngest first: of nodes bought alike, the first to be found is the one to go.
    open.sort_by_key(|(record, _)| Reverse(record.id));
    let mut going = Vec::new();
    while going.len() < count {
        let mut kinds: Vec<(&Market, UsdPerHour)> = Vec::new();
        let mut best: Option<(UsdPerHour, bool, usize)> = None;
        for (at, (_, purchase)) in open.iter().enumerate() {
            if kinds.contains(&(&purchase.market, purchase.price)) {
                continue;
            }
            kinds.push((&purchase.market, purchase.price));
            let saved = committed.saved_without(commitments, &purchase.market, purchase.price).unwrap_or(purchase.price);
            let better = (saved, purchase.market.capacity_type != CapacityType::Reserved);
            if best.is_none_or(|(most, unkept, _)| better > (most, unkept)) {
                best = Some((better.0, better.1, at));
            }
        }
        let Some((saved, _, at)) = best else { break };
        let (record, purchase) = open.remove(at);
        going.push((record.id, saved));
        if going.len() < count
            && let Some(group) = group_of(record, memory, catalogue)
        {
            let rest = committed.to_mut();
            rest.note(catalogue, group, &purchase.market, purchase.price, -1);
            rest.recount(commitments);
        }
    }
    going
}

/// What commitments pay of the lines of a count, looked up once for many nodes.
#[derive(Debug)]
pub struct PaidFor<'a> {
    commitments: &'a [Commitment],
    committed: &'a Committed,
    lines: Lookup<(Option<&'a PoolName>, &'a Market, UsdPerHour), usize>,
    /// By line: what is not covered, in micro-dollars per hour, and the commitments that cover the rest.
    open: Vec<i64>,
    by: Vec<Vec<usize>>,
}

impl<'a> PaidFor<'a> {
    /// Of this count.
    pub fn of(usage: &'a Usage, catalogue: &'a Catalogue) -> Self {
        let committed = &usage.committed;
        let all = committed.lines.iter().chain(&committed.foreign);
        let mut open: Vec<i64> = all.map(|line| line.what.price.times(line.nodes).0).collect();
        let mut by = vec![Vec::new(); open.len()];
        for cover in &committed.bill.covers {
            if let (Some(open), Some(by)) = (open.get_mut(cover.line), by.get_mut(cover.line)) {
                *open -= cover.value;
                by.push(cover.commitment);
            }
        }
        let place = |(at, line): (usize, &'a Reached)| ((line.what.pool.as_ref(), &line.what.market, line.what.price), at);
        let lines = committed.lines.iter().enumerate().map(place).collect();
        Self { commitments: &catalogue.policy.commitments, committed, lines, open, by }
    }

    /// Those of a pool's `records` whose going saves nothing once the others that commitments do not pay for are gone.
    ///
    /// This is [`release_order`] without the amounts, and without a bill for each node: a node saves something if what covers it could
    /// cover something that is not covered, or take over from what could. Where that is only possible it is taken for granted.
    pub fn among(&self, pool: &PoolName, records: &[&Record]) -> Vec<RecordId> {
        let mut open = self.open.clone();
        let mut covered: Vec<(RecordId, usize)> = Vec::new();
        for record in records {
            let Some(purchase) = record.purchase() else { continue };
            let Some(&at) = self.lines.get(&(Some(pool), &purchase.market, purchase.price)) else { continue };
            match open.get_mut(at) {
                // A node that is covered in part goes with that part.
                Some(left) if *left > 0 => *left = (*left - purchase.price.0).max(0),
                _ => covered.push((record.id, at)),
            }
        }
        if covered.is_empty() {
            return Vec::new();
        }
        let wanted = self.wanted(&open);
        let is_wanted = |commitment: &usize| wanted.get(*commitment).copied().unwrap_or(true);
        let saves = |at: usize| self.by.get(at).is_none_or(|by| by.is_empty() || by.iter().any(is_wanted));
        covered.into_iter().filter(|(_, at)| !saves(*at)).map(|(id, _)| id).collect()
    }

    /// Of each commitment, whether more of it would be used were there more.
    fn wanted(&self, open: &[i64]) -> Vec<bool> {
        let mut wanted = vec![false; self.commitments.len()];
        let is_discount = |at: usize| self.commitments.get(at).is_some_and(Commitment::is_discount);
        loop {
            let before = wanted.clone();
            let any_wanted = |paid_by: &[usize]| paid_by.iter().any(|at| before.get(*at).copied().unwrap_or(false));
            let mut want = |at: usize| {
                if let Some(wanted) = wanted.get_mut(at) {
                    *wanted = true;
                }
            };
            let all = self.committed.lines.iter().chain(&self.committed.foreign);
            for ((line, open), paid_by) in all.zip(open).zip(&self.by) {
                if *open > 0 || any_wanted(paid_by) {
                    let on_demand = line.what.market.capacity_type == CapacityType::OnDemand;
                    line.what.by.0.iter().map(|(at, _)| *at).filter(|at| is_discount(*at) == on_demand).for_each(&mut want);
                }
            }
            for kept in self.committed.bill.kept.iter().filter(|kept| kept.open || any_wanted(&kept.paid_by)) {
                kept.reach.iter().copied().filter(|at| is_discount(*at)).for_each(&mut want);
            }
            if wanted == before {
                return wanted;
            }
        }
    }
}
