//! Rows of a day in the making, exact until they are rounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_core::base::shares::share_out;
use stoker_core::base::units::UsdMicros;

use super::allocate::WHOLE;
use super::day::{DayRow, RowKey};
use super::{Figures, Span};

/// Exact money: micro-dollars per hour × parts of a second. 2,594,592,000 of it are a micro-dollar.
const PER_MICRO: i128 = 3_600 * WHOLE;

/// Time of nodes, in parts of a second, and what it costs before commitments, in exact money.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Amount {
    pub(super) node: i128,
    pub(super) gpu: i128,
    /// Of `node`, what has no published price.
    pub(super) unlisted: i128,
    pub(super) list: i128,
    pub(super) contracted: i128,
}

impl Amount {
    /// So many parts of a second of a span.
    pub(super) fn of(span: &Span, parts: i128) -> Self {
        Self {
            node: parts,
            gpu: parts * i128::from(span.gpus),
            unlisted: if span.list.is_none() { parts } else { 0 },
            list: parts * i128::from(span.list.unwrap_or(span.rate).0),
            contracted: parts * i128::from(span.rate.0),
        }
    }

    fn map2(self, other: Self, of: impl Fn(i128, i128) -> i128) -> Self {
        Self {
            node: of(self.node, other.node),
            gpu: of(self.gpu, other.gpu),
            unlisted: of(self.unlisted, other.unlisted),
            list: of(self.list, other.list),
            contracted: of(self.contracted, other.contracted),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        *self = self.map2(other, |a, b| a + b);
    }

    fn take(&mut self, other: Self) {
        *self = self.map2(other, |a, b| a - b);
    }
}

/// What a row comes to, in exact money.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) amount: Amount,
    pub(super) effective: i128,
    pub(super) covered: i128,
    pub(super) read: i128,
    pub(super) wasted: i128,
}

/// What a row has of what commitments are asked to pay for: its time, and the parts of a second of that of which readings
/// tell and that were not used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    pub(super) amount: Amount,
    pub(super) read: i128,
    pub(super) wasted: i128,
}

impl Weight {
    /// So many `whole`ths of it, rounded down.
    pub(super) fn part(self, of: i128, whole: i128) -> Self {
        let part = |amount: i128| (amount * of).checked_div(whole).unwrap_or(0);
        Self {
            amount: self.amount.map2(self.amount, |amount, _| part(amount)),
            read: part(self.read),
            wasted: part(self.wasted),
        }
    }
}

/// What a line costs, and what of it commitments paid for: micro-dollars per hour × seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paid {
    pub(super) effective: i128,
    pub(super) covered: i128,
}

/// The rows of a day in the making, each at a place of its own.
#[derive(Debug, Default)]
pub(super) struct Rows {
    places: BTreeMap<RowKey, usize>,
    keys: Vec<RowKey>,
    sums: Vec<Sum>,
    none: Sum,
}

impl Rows {
    /// The place of a row.
    pub(super) fn at(&mut self, key: RowKey) -> usize {
        let next = self.sums.len();
        if let Some(at) = self.places.get(&key) {
            return *at;
        }
        self.keys.push(key.clone());
        self.sums.push(Sum::default());
        self.places.insert(key, next);
        next
    }

    /// What a row comes to.
    pub(super) fn of(&mut self, at: usize) -> &mut Sum {
        self.sums.get_mut(at).unwrap_or(&mut self.none)
    }

    /// Moves a part of a row to the row of what that discount paid for; where that is.
    pub(super) fn move_to(&mut self, from: usize, discount: &Arc<str>, part: Weight) -> usize {
        let Some(key) = self.keys.get(from) else { return from };
        let to = self.at(RowKey { paid_by: Some(Arc::clone(discount)), ..key.clone() });
        self.of(from).amount.take(part.amount);
        self.of(to).amount.add(part.amount);
        to
    }

    /// Splits what a line costs over its rows, by their time.
    pub(super) fn share(&mut self, parts: &BTreeMap<usize, Weight>, Paid { effective, covered }: Paid) {
        let weights: Vec<i128> = parts.values().map(|weight| weight.amount.node).collect();
        let shares = share_out(effective * WHOLE, &weights).into_iter().zip(share_out(covered * WHOLE, &weights));
        for ((at, weight), (share, covered)) in parts.iter().zip(shares) {
            let of = self.of(*at);
            of.effective += share;
            of.covered += covered;
            of.read += share * weight.read / weight.amount.node.max(1);
            of.wasted += share * weight.wasted / weight.amount.node.max(1);
        }
    }

    /// The rows, each kind of money rounded once.
    pub(super) fn rounded(mut self) -> Vec<DayRow> {
        // Of some rows discounts paid for all: nothing is left of them.
        let sums = std::mem::take(&mut self.sums);
        self.places.retain(|_, at| sums.get(*at).is_some_and(|of| of.amount.node != 0 || of.effective != 0));
        self.sums = sums;
        let of = |at: &usize| self.sums.get(*at).copied().unwrap_or_default();
        let exact: Vec<Sum> = self.places.values().map(of).collect();
        let money = |kind: fn(&Sum) -> i128| {
            let exact: Vec<i128> = exact.iter().map(kind).collect();
            rounded(&exact).into_iter().map(UsdMicros)
        };
        let (mut list, mut contracted) = (money(|sum| sum.amount.list), money(|sum| sum.amount.contracted));
        let mut effective = money(|sum| sum.effective);
        let (mut read, mut wasted) = (money(|sum| sum.read), money(|sum| sum.wasted));
        let mut covered = money(|sum| sum.covered);
        let parts = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
        let mut rows = Vec::with_capacity(exact.len());
        for (key, sum) in self.places.into_keys().zip(&exact) {
            let figures = Figures {
                node_parts: parts(sum.amount.node),
                gpu_parts: parts(sum.amount.gpu),
                list: list.next().unwrap_or_default(),
                contracted: contracted.next().unwrap_or_default(),
                effective: effective.next().unwrap_or_default(),
                unlisted_parts: parts(sum.amount.unlisted),
                read: read.next().unwrap_or_default(),
                wasted: wasted.next().unwrap_or_default(),
                covered: covered.next().unwrap_or_default(),
            };
            rows.push(DayRow { key, figures });
        }
        rows
    }
}

/// Amounts in micro-dollars whose sum is the exact sum, rounded to the nearest. Each is at most one away from its own exact value.
fn rounded(exact: &[i128]) -> Vec<i64> {
    let sum: i128 = exact.iter().sum();
    let total = (sum + PER_MICRO / 2).div_euclid(PER_MICRO);
    let mut whole: Vec<i128> = exact.iter().map(|amount| amount.div_euclid(PER_MICRO)).collect();
    let left = usize::try_from(total - whole.iter().sum::<i128>()).unwrap_or(0);
    let mut by_rest: Vec<(i128, usize)> =
        exact.iter().enumerate().map(|(at, amount)| (-amount.rem_euclid(PER_MICRO), at)).collect();
    by_rest.sort_unstable();
    for (_, at) in by_rest.iter().take(left) {
        if let Some(amount) = whole.get_mut(*at) {
            *amount += 1;
        }
    }
    whole.into_iter().map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)).collect()
}
