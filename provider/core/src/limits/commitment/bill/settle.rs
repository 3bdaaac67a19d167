//! Settlement of past use: what nodes that ran for a time cost once the commitments are counted.

use std::sync::Arc;

use super::super::reach::{Reached, What};
use super::{Billing, Idle, order};
use crate::base::engine_clock::Wall;
use crate::base::shares::share_out;
use crate::base::units::UsdPerHour;
use crate::catalogue::reach::Reach;
use crate::market::offer::{CapacityType, InstanceSpec, Market, Place};
use crate::policy::rules::commitment::{Capacity, Commitment, Paid, Terms};

/// Nodes of one market and price that ran within a time, and the commitments that reach them.
#[derive(Debug, Clone)]
pub struct RanNodes<'a> {
    /// Where and how they were bought.
    pub market: &'a Market,
    /// What one is.
    pub spec: &'a InstanceSpec,
    /// What one costs without any commitment.
    pub price: UsdPerHour,
    /// Seconds of all of them together.
    pub node_seconds: u32,
}

/// What a time of use costs once the commitments are counted. Amounts are rates times seconds: micro-dollars per hour × s, which are 3,600
/// to the micro-dollar, so that nothing is rounded before the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// What each use costs, in the order given: what is due beside the commitments, and its part of what they cost.
    pub lines: Vec<i128>,
    /// What commitments paid of each use, in the order given.
    pub paid: Vec<Vec<PaidBy>>,
    /// What each commitment costs that is not used, in the policy's order. Capacity billed on demand costs so much while it stands empty.
    pub unused: Vec<i128>,
    /// What each commitment costs in that time, used or not, in the policy's order; nothing for capacity billed on demand.
    pub cost: Vec<i128>,
}

/// What a commitment paid of a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaidBy {
    /// The commitment, by its place in the policy.
    pub commitment: usize,
    /// What that would have cost without it.
    pub value: i128,
    /// Its part of what the commitment costs, which is in the line's cost.
    pub share: i128,
}

/// What nodes that ran within `seconds` cost, by the rules of the bill. `wall` is the beginning of that time, within which no commitment
/// begins or ends. `price_of` is the on-demand price of a place and what is sold there.
pub fn settle<'a>(
    commitments: &[Commitment],
    ran: &[RanNodes<'a>],
    seconds: u32,
    wall: Wall,
    price_of: impl Fn(&Place) -> Option<(&'a InstanceSpec, UsdPerHour)>,
) -> Settled {
    let commitments: Vec<Commitment> = commitments.iter().map(|commitment| over(commitment, seconds)).collect();
    let reached = |one: &RanNodes<'_>| {
        let by = Reach::of(&commitments, &one.market.place, one.spec);
        let gpus = one.spec.advertised_gpus().max(1);
        let what = What { pool: None, market: one.market.clone(), gpus, price: one.price, by };
        Reached { what: Arc::new(what), nodes: one.node_seconds }
    };
    let lines: Vec<Reached> = ran.iter().map(reached).collect();
    // Spot nodes are on no bill of commitments.
    let billed: Vec<usize> =
        (0..).zip(ran).filter(|(_, one)| one.market.capacity_type != CapacityType::Spot).map(|(at, _)| at).collect();
    let idle = |commitment: &Commitment| match &commitment.terms {
        Terms::Capacity(capacity) if capacity.paid == Paid::OnDemand => {
            let (spec, price) = price_of(&capacity.place)?;
            Some(Idle { gpus: spec.advertised_gpus().max(1), price, by: Reach::of(&commitments, &capacity.place, spec) })
        }
        _ => None,
    };
    let idle: Vec<Option<Idle>> = commitments.iter().map(idle).collect();
    let mut billing = Billing::new(&commitments, wall);
    billing.keep_capacity(billed.iter().filter_map(|at| lines.get(*at)), &idle);
    for at in order(&commitments) {
        billing.discount(at);
    }
    billing.settled(ran, &billed, &idle)
}

/// A commitment of `seconds`, in the units of its use in them.
fn over(commitment: &Commitment, seconds: u32) -> Commitment {
    let mut commitment = commitment.clone();
    match &mut commitment.terms {
        Terms::Nodes(nodes) => {
            nodes.nodes = nodes.nodes.saturating_mul(seconds);
            nodes.rate = nodes.rate.times(seconds);
        }
        Terms::Gpus(gpus) => {
            gpus.gpus = gpus.gpus.saturating_mul(seconds);
            gpus.rate = gpus.rate.times(seconds);
        }
        Terms::Spend(spend) => spend.rate = spend.rate.times(seconds),
        Terms::Capacity(capacity) => {
            capacity.nodes = capacity.nodes.saturating_mul(seconds);
            if let Paid::Ahead { rate, .. } = &mut capacity.paid {
                *rate = rate.times(seconds);
            }
        }
    }
    commitment
}

impl Billing<'_> {
    /// What each use costs with its part of the commitments, and what of them is not used.
    fn settled(self, ran: &[RanNodes<'_>], billed: &[usize], idle: &[Option<Idle>]) -> Settled {
        let mut due: Vec<i128> = ran.iter().map(|one| i128::from(one.price.0) * i128::from(one.node_seconds)).collect();
        // What each commitment paid of each use, worth on demand; and of capacity that stood empty, by its commitment.
        let mut paid: Vec<Vec<(Payee, i128)>> = vec![Vec::new(); self.commitments.len()];
        let pay = |due: &mut Vec<i128>, line: usize, commitment: usize, value: i64, paid: &mut Vec<Vec<(Payee, i128)>>| {
            if let (Some(line_due), Some(paid)) = (due.get_mut(line), paid.get_mut(commitment)) {
                *line_due -= i128::from(value);
                paid.push((Payee::Line(line), i128::from(value)));
            }
        };
        let is_on_demand = |at: usize| {
            matches!(self.commitments.get(at).map(|c| &c.terms), Some(Terms::Capacity(Capacity { paid: Paid::OnDemand, .. })))
        };
        for cover in &self.covers {
            // Capacity billed on demand pays nothing of what runs in it.
            if let Some(line) = billed.get(cover.line).filter(|_| !is_on_demand(cover.commitment)) {
                pay(&mut due, *line, cover.commitment, cover.value, &mut paid);
            }
        }
        let mut unused = vec![0_i128; self.commitments.len()];
        let mut empty = (0..).zip(idle).filter(|(_, idle)| idle.is_some()).map(|(at, _)| at);
        for row in self.rows.iter().filter(|row| row.kept) {
            if let Some(line) = row.line.and_then(|line| billed.get(line)) {
                for (commitment, value) in &row.paid_by {
                    pay(&mut due, *line, *commitment, *value, &mut paid);
                }
            } else if let Some(of) = empty.next() {
                if let Some(unused) = unused.get_mut(of) {
                    *unused += i128::from(row.open);
                }
                for (commitment, value) in &row.paid_by {
                    if let Some(paid) = paid.get_mut(*commitment) {
                        paid.push((Payee::Empty(of), i128::from(*value)));
                    }
                }
            }
        }
        let mut cost = vec![0_i128; self.commitments.len()];
        let mut paid_by: Vec<Vec<PaidBy>> = vec![Vec::new(); ran.len()];
        for (at, commitment) in self.commitments.iter().enumerate().filter(|(_, commitment)| commitment.is_active(self.wall)) {
            let rate = match &commitment.terms {
                Terms::Nodes(nodes) => nodes.rate,
                Terms::Gpus(gpus) => gpus.rate,
                Terms::Spend(spend) => spend.rate,
                Terms::Capacity(Capacity { paid: Paid::Ahead { rate, .. }, .. }) => *rate,
                Terms::Capacity(Capacity { paid: Paid::OnDemand, .. }) => continue,
            };
            let (all, left) = (i128::from(commitment.size()), i128::from(self.left.get(at).copied().unwrap_or_default()));
            let rest = i128::from(rate.0) * left / all.max(1);
            let payees = paid.get(at).map(Vec::as_slice).unwrap_or_default();
            let weights: Vec<i128> = payees.iter().map(|(_, value)| *value).collect();
            let used = i128::from(rate.0) - rest;
            let shares = share_out(used, &weights);
            // What is used of it and pays for nothing of ours, it pays for nobody here.
            let mut not_shared = used - shares.iter().sum::<i128>();
            for ((payee, value), share) in payees.iter().zip(shares) {
                let to = match payee {
                    Payee::Line(line) => {
                        paid_by
                            .get_mut(*line)
                            .into_iter()
                            .for_each(|of| of.push(PaidBy { commitment: at, value: *value, share }));
                        due.get_mut(*line)
                    }
                    Payee::Empty(of) => unused.get_mut(*of),
                };
                match to {
                    Some(to) => *to += share,
                    None => not_shared += share,
                }
            }
            if let (Some(unused), Some(cost)) = (unused.get_mut(at), cost.get_mut(at)) {
                *unused += rest + not_shared;
                *cost += i128::from(rate.0);
            }
        }
        Settled { lines: due, paid: paid_by, unused, cost }
    }
}

/// What a commitment paid for.
#[derive(Debug, Clone, Copy)]
enum Payee {
    /// Use, by its place.
    Line(usize),
    /// Capacity that stood empty, by its commitment.
    Empty(usize),
}
