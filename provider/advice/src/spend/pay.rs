//! Commitments: what they pay of what ran, and what they cost while nothing used them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stoker_core::base::engine_clock::Wall;
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::commitment::{PaidBy, RanNodes, Settled, settle};
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::policy::rules::commitment::{Commitment, Terms};

use super::allocate::WHOLE;
use super::day::{Bill, RowKey, Use};
use super::rows::{Paid, Rows, Weight};

/// Seconds in an hour, by which clouds bill commitments.
const HOUR: i64 = 3_600;

/// What commitments see of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey<'a> {
    pub(super) market: &'a Market,
    pub(super) rate: UsdPerHour,
}

/// What ran of it in one time: seconds, and what each row has of them.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) node_seconds: i64,
    pub(super) rows: BTreeMap<usize, Weight>,
}

/// The times of a day in which commitments are the same, none longer than an hour; none where there are no commitments.
pub(super) fn times(bill: &Bill<'_>, begin: i64, end: i64) -> Vec<(i64, i64)> {
    if bill.commitments.is_empty() {
        return Vec::new();
    }
    let moments = bill.commitments.iter().flat_map(Commitment::moments).map(jiff::Timestamp::as_second);
    let known = bill.known.0.iter().flat_map(|(since, until)| [*since, *until]);
    let hours = (begin..=end).step_by(usize::try_from(HOUR).unwrap_or(1));
    let cuts: BTreeSet<i64> = hours.chain([end]).chain(moments).chain(known).filter(|at| (begin..=end).contains(at)).collect();
    cuts.iter().zip(cuts.iter().skip(1)).map(|(from, to)| (*from, *to)).collect()
}

/// Lets the commitments pay for what ran within a time in which they are the same.
pub(super) fn pay(rows: &mut Rows, (from, to): (i64, i64), lines: &BTreeMap<LineKey<'_>, Line>, bill: &Bill<'_>) {
    let Ok(at) = jiff::Timestamp::from_second(from) else { return };
    let is_known = bill.known.seconds(from, to) == to - from;
    let spec = |market: &Market| bill.prices.spec(&market.place.cloud, &market.place.instance_type);
    // What no table knows, no commitment is known to reach.
    let ran: Vec<(RanNodes<'_>, (&LineKey<'_>, &Line))> = lines
        .iter()
        .filter_map(|(key, time)| {
            let node_seconds = u32::try_from(time.node_seconds).unwrap_or(u32::MAX);
            Some((RanNodes { market: key.market, spec: spec(key.market)?, price: key.rate, node_seconds }, (key, time)))
        })
        .collect();
    let price_of = |place: &Place| -> Option<(&InstanceSpec, UsdPerHour)> {
        let market = Market { place: place.clone(), capacity_type: CapacityType::OnDemand };
        Some((spec(&market)?.as_ref(), *bill.on_demand.get(place)?))
    };
    let seconds = u32::try_from(to - from).unwrap_or(0);
    let used: Vec<RanNodes<'_>> = ran.iter().map(|(one, _)| one.clone()).collect();
    let settled = if is_known || !used.is_empty() {
        settle(bill.commitments, &used, seconds, Wall(at), price_of)
    } else {
        Settled::default()
    };
    for (((_, (key, time)), effective), paid) in ran.iter().zip(&settled.lines).zip(&settled.paid) {
        let mut left = Paid { effective: *effective, covered: paid.iter().map(|paid| paid.value).sum() };
        for PaidBy { commitment, value, share } in paid.iter().filter(|_| bill.by_instance) {
            let Some(commitment) = bill.commitments.get(*commitment) else { continue };
            if matches!(commitment.terms, Terms::Capacity(_)) {
                continue;
            }
            let whole = i128::from(key.rate.0) * i128::from(time.node_seconds);
            let parts = time.rows.iter().map(|(from, weight)| (*from, weight.part(*value, whole)));
            let parts: Vec<(usize, Weight)> = parts.filter(|(_, part)| part.amount.node > 0).collect();
            if parts.is_empty() {
                continue;
            }
            let part = Paid { effective: *share, covered: *value };
            left = Paid { effective: left.effective - part.effective, covered: left.covered - part.covered };
            let name: Arc<str> = commitment.name.as_str().into();
            let moved = parts.into_iter().map(|(from, part)| (rows.move_to(from, &name, part), part));
            let moved: BTreeMap<usize, Weight> = moved.collect();
            rows.share(&moved, part);
        }
        rows.share(&time.rows, left);
    }
    for (key, time) in lines.iter().filter(|(key, _)| spec(key.market).is_none()) {
        let effective = i128::from(key.rate.0) * i128::from(time.node_seconds);
        rows.share(&time.rows, Paid { effective, covered: 0 });
    }
    for (commitment, unused) in bill.commitments.iter().zip(&settled.unused).filter(|(_, unused)| **unused != 0) {
        let at = rows.at(RowKey { of: Use::Unused { commitment: commitment.name.clone() }, instance: None, paid_by: None });
        rows.of(at).effective += unused * WHOLE;
    }
}
