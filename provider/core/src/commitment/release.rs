//! In which order nodes should go, so that the most money is saved first.

use std::cmp::Reverse;

use crate::group::Menu;
use crate::ids::RecordId;
use crate::memory::Memory;
use crate::offer::{CapacityType, Market};
use crate::record::{Purchase, Record};
use crate::units::UsdPerHour;
use crate::usage::{Usage, group_of};

/// The first `count` of `records` that should go, each with what its going takes off the bill, given that those before it are gone.
///
/// Releasing a committed node saves nothing, so those go last; and of two nodes under one commitment that is full, the first to go makes
/// room for another, so it saves that one's price. Where two save the same, kept capacity stays (it may not come back), and the younger
/// node goes: the older has proven itself, and of spot nodes the old ones are reclaimed less (`policy-benchmark` §2).
///
/// Whether a node is busy is not asked here: name only records that may go. One without a purchase saves nothing and is left out.
pub fn release_order(
    records: &[&Record],
    count: usize,
    usage: &Usage,
    memory: &Memory,
    menu: &Menu,
) -> Vec<(RecordId, UsdPerHour)> {
    let mut committed = usage.committed.clone();
    let commitments = &menu.policy.commitments;
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
        if let Some(group) = group_of(record, memory, menu) {
            committed.note(commitments, group, &purchase.market, purchase.price, -1);
            committed.recount(commitments);
        }
        going.push((record.id, saved));
    }
    going
}
