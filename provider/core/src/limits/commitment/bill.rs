//! Bill, computed as the clouds do.
//!
//! Reserved capacity comes first, then discounts by count (zonal before regional), then savings
//! plans (of a family before those of a whole cloud), each on the usage with the greatest discount
//! first.

mod settle;

use std::cmp::Reverse;

use super::reach::{Reached, What};
use crate::base::engine_clock::Wall;
use crate::base::units::{Milli, UsdPerHour};
use crate::catalogue::reach::Reach;
use crate::market::offer::{CapacityType, InstanceSpec, Place};
use crate::policy::rules::commitment::{Commitment, Paid, Terms};

pub use settle::{PaidBy, RanNodes, Settled, settle};

/// The discounts in the order in which a bill applies them: by count (zonal, regional, by GPU), then plans (of a family, of a cloud).
pub(super) fn order(commitments: &[Commitment]) -> Vec<usize> {
    let class = |terms: &Terms| match terms {
        Terms::Nodes(nodes) => Some(u8::from(nodes.zone.is_none())),
        Terms::Gpus(_) => Some(2),
        Terms::Spend(spend) => Some(3 + u8::from(spend.family.is_none())),
        Terms::Capacity(_) => None,
    };
    let mut order: Vec<_> = commitments.iter().enumerate().filter_map(|(at, c)| Some((class(&c.terms)?, at))).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, at)| at).collect()
}

/// What usage worth `value` on demand takes of a plan with this discount; rounded up, so that no plan covers more than it can.
pub(super) fn at_plan_rate(value: i64, discount: Milli) -> i64 {
    let rest = 1000 - i64::from(discount.0.min(999));
    // Bills are worked out often, and wide numbers divide slowly.
    if let Some(thousandths) = value.checked_mul(rest).and_then(|product| product.checked_add(999)) {
        return thousandths / 1000;
    }
    i64::try_from((i128::from(value) * i128::from(rest) + 999) / 1000).unwrap_or(i64::MAX)
}

/// What usage a plan with this discount covers with `spend`, worth on demand; rounded down for the same reason.
fn worth_on_demand(spend: i64, discount: Milli) -> i64 {
    i64::try_from(i128::from(spend) * 1000 / i128::from(1000 - discount.0.min(999))).unwrap_or(i64::MAX)
}

/// An unused node of kept capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) gpus: u32,
    pub(super) price: UsdPerHour,
    pub(super) by: Reach,
}

/// What is due, and what the commitments paid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bill {
    /// What is left of each commitment, in its own unit.
    pub(super) left: Vec<i64>,
    /// The least discount of what each plan covers.
    pub(super) least: Vec<Option<Milli>>,
    /// What commitments pay of each line. What they pay of kept capacity is between them: its place is paid for already.
    pub(super) covers: Vec<Cover>,
    /// Kept capacity that is billed on demand, used or not.
    pub(super) kept: Vec<Kept>,
    /// What is due of the unused nodes of each commitment's kept capacity, beside what discounts pay of them.
    pub(super) idle_due: Vec<i64>,
    /// What all lines and all capacity billed on demand cost beside the commitments, in micro-dollars per hour.
    pub(super) due: i128,
}

impl Bill {
    /// The bill of these lines, with unused kept capacity `idle`.
    pub(super) fn of<'a>(
        commitments: &'a [Commitment],
        lines: impl Iterator<Item = &'a Reached>,
        idle: &'a [Option<Idle>],
        wall: Wall,
    ) -> Self {
        let mut billing = Billing::new(commitments, wall);
        billing.keep_capacity(lines, idle);
        for at in order(commitments) {
            billing.discount(at);
        }
        let due = billing.unkept + billing.rows.iter().map(|row| i128::from(row.open)).sum::<i128>();
        let mut unused = billing.rows.iter().filter(|row| row.line.is_none()).map(|row| row.open);
        let idle_due = idle.iter().map(|idle| idle.as_ref().and_then(|_| unused.next()).unwrap_or(0)).collect();
        let kept = billing.rows.into_iter().filter(|row| row.kept).map(|row| Kept {
            reach: row.by.0.iter().map(|(commitment, _)| *commitment).collect(),
            open: row.open > 0,
            paid_by: row.paid_by.into_iter().map(|(commitment, _)| commitment).collect(),
        });
        Self { left: billing.left, least: billing.least, covers: billing.covers, kept: kept.collect(), idle_due, due }
    }
}

/// Kept capacity that is billed on demand, and so open to discounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The commitments that reach it.
    pub(super) reach: Vec<usize>,
    /// Whether some of it is not covered.
    pub(super) open: bool,
    /// The discounts that pay some of it.
    pub(super) paid_by: Vec<usize>,
}

/// What one commitment pays of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) line: usize,
    pub(super) commitment: usize,
    pub(super) value: i64,
}

/// Usage that discounts can take.
struct Row<'a> {
    /// The line; `None` for kept capacity that is not used.
    line: Option<usize>,
    /// Whether it is kept capacity, paid for by its commitment whether used or not.
    kept: bool,
    by: &'a Reach,
    gpus: u32,
    price: UsdPerHour,
    /// GPUs not yet covered by count.
    open_gpus: u64,
    /// What is not yet covered, in micro-dollars per hour on demand.
    open: i64,
    /// Of kept capacity, the discounts that pay some of it, and how much.
    paid_by: Vec<(usize, i64)>,
}

impl Row<'_> {
    fn value(&self, gpus: u64) -> i64 {
        let value = i128::from(self.price.0) * i128::from(gpus) / i128::from(self.gpus.max(1));
        i64::try_from(value).unwrap_or(i64::MAX)
    }
}

/// A bill in the making.
struct Billing<'a> {
    commitments: &'a [Commitment],
    wall: Wall,
    rows: Vec<Row<'a>>,
    /// The rows that each commitment reaches, with its discount there.
    reached: Vec<Vec<(usize, Milli)>>,
    left: Vec<i64>,
    least: Vec<Option<Milli>>,
    covers: Vec<Cover>,
    /// Prices of nodes bought as reserved that no kept capacity has room for.
    unkept: i128,
}

impl<'a> Billing<'a> {
    fn new(commitments: &'a [Commitment], wall: Wall) -> Self {
        let left = commitments.iter().map(|c| if c.is_active(wall) { c.size() } else { 0 }).collect();
        let least = vec![None; commitments.len()];
        let reached = vec![Vec::new(); commitments.len()];
        Self { commitments, wall, rows: Vec::new(), reached, left, least, covers: Vec::new(), unkept: 0 }
    }

    fn push(&mut self, row: Row<'a>) {
        for &(commitment, discount) in row.by.0.iter() {
            if let Some(reached) = self.reached.get_mut(commitment) {
                reached.push((self.rows.len(), discount));
            }
        }
        self.rows.push(row);
    }

    /// Reserved nodes take kept capacity, in the policy's order; what takes nothing new comes last, so that a new node never seems to have
    /// gone where it cannot. What is billed on demand stays open to discounts, used or not, and the
    /// unused part comes last: AWS prefers running nodes too.
    fn keep_capacity(&mut self, lines: impl Iterator<Item = &'a Reached>, idle: &'a [Option<Idle>]) {
        for (at, line) in lines.enumerate() {
            let What { market, gpus, price, by, .. } = line.what.as_ref();
            let (gpus, price) = (*gpus, *price);
            let row = |kept, nodes: u32| Row {
                line: Some(at),
                kept,
                by,
                gpus,
                price,
                open_gpus: u64::from(nodes) * u64::from(gpus),
                open: price.times(nodes).0,
                paid_by: Vec::new(),
            };
            if market.capacity_type == CapacityType::OnDemand {
                self.push(row(false, line.nodes));
                continue;
            }
            let mut nodes = line.nodes;
            let kept = by.0.iter().filter_map(|&(at, _)| match self.commitments.get(at) {
                Some(c @ Commitment { terms: Terms::Capacity(capacity), .. }) => {
                    Some((c.shut(self.wall).is_some(), at, capacity))
                }
                _ => None,
            });
            let mut kept: Vec<_> = kept.collect();
            kept.sort_by_key(|(shut, at, _)| (*shut, *at));
            for (_, commitment, capacity) in kept {
                let Some(left) = self.left.get_mut(commitment) else { continue };
                let taken = u32::try_from(*left).unwrap_or(u32::MAX).min(nodes);
                if taken == 0 {
                    continue;
                }
                nodes -= taken;
                *left -= i64::from(taken);
                self.covers.push(Cover { line: at, commitment, value: price.times(taken).0 });
                if capacity.paid == Paid::OnDemand {
                    self.push(row(true, taken));
                }
            }
            self.unkept += i128::from(price.times(nodes).0);
        }
        for (at, idle) in idle.iter().enumerate() {
            let (Some(left), Some(Idle { gpus, price, by })) = (self.left.get(at), idle) else { continue };
            let nodes = u32::try_from(*left).unwrap_or(0);
            let (open_gpus, open) = (u64::from(nodes) * u64::from(*gpus), price.times(nodes).0);
            self.push(Row { line: None, kept: true, by, gpus: *gpus, price: *price, open_gpus, open, paid_by: Vec::new() });
        }
    }

    /// Applies the discount of one commitment.
    fn discount(&mut self, at: usize) {
        match self.commitments.get(at).map(|commitment| &commitment.terms) {
            Some(Terms::Spend(_)) => self.discount_spend(at),
            Some(terms) => self.discount_count(at, terms),
            None => {}
        }
    }

    /// A discount by count takes usage in the order of purchase: whole nodes, or as many GPUs of a node as are left.
    fn discount_count(&mut self, at: usize, terms: &Terms) {
        let (Some(left), Some(reached)) = (self.left.get_mut(at), self.reached.get(at)) else { return };
        // A zonal reserved instance brings capacity of its own, and pays for no other.
        let zonal = matches!(terms, Terms::Nodes(nodes) if nodes.zone.is_some());
        let unit_of = |row: &Row<'_>| if matches!(terms, Terms::Gpus(_)) { 1 } else { u64::from(row.gpus.max(1)) };
        for (row, _) in reached {
            let Some(row) = self.rows.get_mut(*row).filter(|row| !(zonal && row.kept)) else { continue };
            if *left == 0 {
                break;
            }
            let unit = unit_of(row);
            let taken = (*left).min(i64::try_from(row.open_gpus / unit).unwrap_or(i64::MAX));
            if taken == 0 {
                continue;
            }
            *left -= taken;
            row.open_gpus -= u64::try_from(taken).unwrap_or(0) * unit;
            let open = row.value(row.open_gpus);
            pay(&mut self.covers, row, at, row.open - open);
        }
    }

    /// A plan takes the usage with the greatest discount first, then, as AWS breaks that tie, that with the lowest rate.
    fn discount_spend(&mut self, at: usize) {
        let (Some(left), Some(least)) = (self.left.get_mut(at), self.least.get_mut(at)) else { return };
        let rows = &mut self.rows;
        let ranked = |&(row, discount): &(usize, Milli)| {
            let price = rows.get(row).filter(|row| row.open > 0)?.price;
            Some((Reverse(discount), at_plan_rate(price.0, discount), row))
        };
        let mut reached: Vec<_> = self.reached.get(at).into_iter().flatten().filter_map(ranked).collect();
        reached.sort_unstable();
        for (Reverse(discount), _, row) in reached {
            let Some(row) = rows.get_mut(row).filter(|_| *left > 0) else { break };
            let need = at_plan_rate(row.open, discount);
            let (taken, value) =
                if need <= *left { (need, row.open) } else { (*left, worth_on_demand(*left, discount).min(row.open)) };
            *left -= taken;
            *least = Some(discount);
            pay(&mut self.covers, row, at, value);
        }
    }
}

/// Nodes used at one place and billed on demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used<'a> {
    /// Where.
    pub(super) place: &'a Place,
    /// Whether in capacity that a commitment keeps.
    pub(super) kept: bool,
    /// What one is.
    pub(super) spec: &'a InstanceSpec,
    /// Advertised GPUs of one.
    pub(super) gpus: u32,
    /// What one costs without any commitment.
    pub(super) price: UsdPerHour,
    /// So many nodes.
    pub(super) nodes: u32,
}

/// What the discounts among the commitments leave to be paid of each, in micro-dollars per hour.
pub(super) fn left_due(commitments: &[Commitment], used: &[Used<'_>], wall: Wall) -> Vec<i64> {
    let reach: Vec<_> = used.iter().map(|one| Reach::of(commitments, one.place, one.spec)).collect();
    let mut billing = Billing::new(commitments, wall);
    for (at, (one, by)) in used.iter().zip(&reach).enumerate() {
        billing.push(Row {
            line: Some(at),
            kept: one.kept,
            by,
            gpus: one.gpus,
            price: one.price,
            open_gpus: u64::from(one.nodes) * u64::from(one.gpus),
            open: one.price.times(one.nodes).0,
            paid_by: Vec::new(),
        });
    }
    for at in order(commitments) {
        billing.discount(at);
    }
    billing.rows.iter().map(|row| row.open).collect()
}

/// A commitment pays `value` of a row.
fn pay(covers: &mut Vec<Cover>, row: &mut Row<'_>, commitment: usize, value: i64) {
    if value == 0 {
        return;
    }
    row.open -= value;
    if row.kept {
        row.paid_by.push((commitment, value));
    } else if let Some(line) = row.line {
        covers.push(Cover { line, commitment, value });
    }
}
