//! Search for the best purchase where the greedy one is not proven best.
//!
//! The three goals are reached one after the other, each without giving up the one before: most
//! nodes, most of each class, least cost. Prices on the remaining limits (Lagrange multipliers)
//! turn the problem into picking the offers that are worth most after those prices. That bounds
//! what any purchase can reach. Where the bound leaves a gap, the number of nodes of one offer is
//! split into a lower and a higher half, and each half is priced again (branch and bound).
//!
//! All numbers are integers. A bound holds for any prices, so rounding them makes it weaker but
//! never wrong.

use super::Gap;
use super::reduce::{Found, Item, Reduced, fits, take, takes_no_more};

/// Steps of the search after which the best filling so far is taken: some 10 ms. Real pools, with a few quotas and a budget, need a
/// fraction of them.
pub(super) const MOST_STEPS: usize = 1_000_000;

/// Rounds in which prices are improved at first: after some sixty they hardly move.
const ROUNDS: usize = 80;

/// Rounds for each half of a split, which begins with the prices of the whole.
const ROUNDS_AFTER_SPLIT: usize = 12;

/// Rounds without a better bound after which prices move by half as much.
const PATIENCE: u32 = 4;

/// Finds the best filling. `steps` is what may still be spent on it.
pub(super) fn best(problem: &Reduced, steps: &mut usize) -> Found {
    let items = &problem.items;
    let mut nodes = problem.greedily().nodes;
    let mut gap = Gap::NONE;
    let mut classes: Vec<usize> = items.iter().map(|item| item.class).collect();
    classes.dedup();
    let all =
        Goal { problem, value: vec![1; items.len()], set: vec![0; items.len()], counts: vec![problem.wanted], exact: false };
    gap.nodes = u32::try_from(all.reach(&mut nodes, steps)).unwrap_or(u32::MAX);
    for (at, class) in classes.iter().enumerate() {
        let last = at + 1 == classes.len();
        // The classes before have their numbers; those after share the rest.
        let set: Vec<usize> =
            items.iter().map(|item| classes.iter().position(|c| *c == item.class).unwrap_or(at).min(at)).collect();
        let counts = (0..=at).map(|s| set.iter().zip(&nodes).filter(|(own, _)| **own == s).map(|(_, n)| *n).sum()).collect();
        let value = items.iter().map(|item| if last { -item.cost } else { i64::from(item.class == *class) }).collect();
        let more = Goal { problem, value, set, counts, exact: true }.reach(&mut nodes, steps);
        if gap == Gap::NONE {
            if last { gap.cost = more } else { gap.preferred = u32::try_from(more).unwrap_or(u32::MAX) }
        }
    }
    settle_ties(items, &mut nodes);
    Found { nodes, gap }
}

/// Of equals the earlier one is taken.
fn settle_ties(items: &[Item], nodes: &mut [u32]) {
    for (later, b) in items.iter().enumerate() {
        let first = items.partition_point(|a| (a.class, a.cost) < (b.class, b.cost));
        for earlier in first..later {
            let Some(a) = items.get(earlier) else { continue };
            let (Some(&had), Some(&moved)) = (nodes.get(earlier), nodes.get(later)) else { continue };
            let moved = if takes_no_more(a, b) { moved.min(a.most - had) } else { 0 };
            if let Some(slot) = nodes.get_mut(earlier) {
                *slot += moved;
            }
            if let Some(slot) = nodes.get_mut(later) {
                *slot -= moved;
            }
        }
    }
}

/// One goal: the greatest sum of values, with so many nodes of each set of offers.
struct Goal<'a> {
    problem: &'a Reduced,
    /// What a node of each offer is worth.
    value: Vec<i64>,
    /// The set of each offer.
    set: Vec<usize>,
    /// Nodes of each set.
    counts: Vec<u32>,
    /// Whether just so many, or at most.
    exact: bool,
}

/// The fewest and the most nodes of each offer that are looked at.
#[derive(Clone)]
struct Span {
    fewest: Vec<u32>,
    most: Vec<u32>,
}

/// The problem under prices on its limits.
#[derive(Clone)]
struct Relaxed {
    prices: Vec<i128>,
    /// What a node of each offer is worth after the prices, scaled.
    worth: Vec<i128>,
    /// The nodes worth most.
    nodes: Vec<u32>,
    /// What no filling exceeds, scaled.
    bound: i128,
}

/// One as a share.
const UNIT: i128 = 1 << 16;

impl Goal<'_> {
    /// Improves `nodes`, which is one filling that keeps all limits and numbers. Returns how much more a better one could be worth at
    /// most: zero once this one is proven to be the best.
    fn reach(&self, nodes: &mut Vec<u32>, steps: &mut usize) -> i64 {
        let largest = self.value.iter().map(|v| v.unsigned_abs()).max().unwrap_or(1).max(1);
        let scale = 1_i128 << 44_u32.saturating_sub(largest.ilog2()).max(8);
        let best = self.worth_of(nodes);
        let most = self.most_by_one_limit();
        if most.is_some_and(|most| most <= best) {
            return 0;
        }
        let mut hunt = Hunt { goal: self, scale, best, nodes, steps };
        let fewest = vec![0; self.value.len()];
        let span = Span { fewest, most: self.problem.items.iter().map(|item| item.most).collect() };
        let bound = hunt.split(span, vec![0; self.problem.left.len()], ROUNDS);
        let bound = most.map_or(bound, |most| bound.min(most));
        i64::try_from((bound - hunt.best).max(0)).unwrap_or(i64::MAX)
    }

    /// What no filling exceeds by any one limit alone, where nodes are counted: often the only one that binds, and then this settles it.
    fn most_by_one_limit(&self) -> Option<i128> {
        if self.value.iter().any(|value| !(0..=1).contains(value)) {
            return None;
        }
        let counted = || self.problem.items.iter().zip(&self.value).filter(|(_, value)| **value == 1).map(|(item, _)| item);
        let all: u64 = counted().map(|item| u64::from(item.most)).sum();
        let mut members: Vec<Vec<(i64, u32)>> = vec![Vec::new(); self.problem.left.len()];
        for item in counted() {
            for (row, takes) in &item.takes {
                members.get_mut(*row)?.push((*takes, item.most));
            }
        }
        let least = members.iter_mut().zip(&self.problem.left).map(|(members, left)| {
            members.sort_unstable();
            let (mut left, mut over) = (*left, 0_u64);
            for (takes, most) in members {
                let nodes = u32::try_from(left / *takes).unwrap_or(u32::MAX).min(*most);
                left -= *takes * i64::from(nodes);
                over += u64::from(*most - nodes);
            }
            all - over
        });
        Some(i128::from(least.min().unwrap_or(all)))
    }

    fn worth_of(&self, nodes: &[u32]) -> i128 {
        self.value.iter().zip(nodes).map(|(value, n)| i128::from(*value) * i128::from(*n)).sum()
    }

    /// What is left of each limit and of each set's number after the fewest nodes of a span; `None` where they are too many.
    fn after(&self, fewest: &[u32]) -> Option<(Vec<i64>, Vec<u32>)> {
        let (mut left, mut counts) = (self.problem.left.clone(), self.counts.clone());
        for ((item, set), n) in self.problem.items.iter().zip(&self.set).zip(fewest).filter(|(_, n)| **n > 0) {
            take(item, &mut left, *n);
            let count = counts.get_mut(*set)?;
            *count = count.checked_sub(*n)?;
        }
        left.iter().all(|left| *left >= 0).then_some((left, counts))
    }

    /// The nodes of a span that are worth most under these prices; `None` where the span has too few.
    fn relax(&self, scale: i128, span: &Span, counts: &[u32], prices: Vec<i128>) -> Option<Relaxed> {
        let items = &self.problem.items;
        let worth: Vec<i128> = items
            .iter()
            .zip(&self.value)
            .map(|(item, value)| {
                let paid = |(row, takes): &(usize, i64)| prices.get(*row).copied().unwrap_or(0) * i128::from(*takes);
                let paid: i128 = item.takes.iter().map(paid).sum();
                i128::from(*value) * scale - paid
            })
            .collect();
        let mut bound: i128 = prices.iter().zip(&self.problem.left).map(|(price, left)| price * i128::from(*left)).sum();
        bound += worth.iter().zip(&span.fewest).map(|(worth, n)| worth * i128::from(*n)).sum::<i128>();
        let mut counts = counts.to_vec();
        let mut nodes = span.fewest.clone();
        for at in by_worth(&worth) {
            let (worth, slot, count) = (*worth.get(at)?, nodes.get_mut(at)?, counts.get_mut(*self.set.get(at)?)?);
            if worth <= 0 && !self.exact {
                break;
            }
            let more = (*span.most.get(at)? - *slot).min(*count);
            *slot += more;
            *count -= more;
            bound += worth * i128::from(more);
        }
        (!self.exact || counts.iter().all(|count| *count == 0)).then_some(Relaxed { prices, worth, nodes, bound })
    }

    /// By how much the nodes worth most take more of each limit than is left, as a share of what is left; zero where the price is
    /// zero and should not fall.
    fn over(&self, relaxed: &Relaxed) -> Vec<i128> {
        let mut over: Vec<i128> = self.problem.left.iter().map(|left| -i128::from(*left)).collect();
        for (item, n) in self.problem.items.iter().zip(&relaxed.nodes).filter(|(_, n)| **n > 0) {
            for (row, takes) in &item.takes {
                if let Some(over) = over.get_mut(*row) {
                    *over += i128::from(*takes) * i128::from(*n);
                }
            }
        }
        for ((over, left), price) in over.iter_mut().zip(&self.problem.left).zip(&relaxed.prices) {
            let share = *over * UNIT / i128::from(*left);
            *over = if *price == 0 && share < 0 { 0 } else { share.clamp(-(UNIT << 8), UNIT << 8) };
        }
        over
    }

    /// A filling of a span that takes as much as fits of the offers worth most; `None` where it has not as many nodes as it must.
    fn mend(&self, worth: &[i128], span: &Span, left: &[i64], counts: &[u32]) -> Option<Vec<u32>> {
        let (mut left, mut counts) = (left.to_vec(), counts.to_vec());
        let mut nodes = span.fewest.clone();
        for at in by_worth(worth) {
            let (item, slot) = (self.problem.items.get(at)?, nodes.get_mut(at)?);
            let count = counts.get_mut(*self.set.get(at)?)?;
            let more = fits(item, &left).min(*count).min(*span.most.get(at)? - *slot);
            *slot += more;
            *count -= more;
            take(item, &mut left, more);
        }
        (!self.exact || counts.iter().all(|count| *count == 0)).then_some(nodes)
    }
}

/// The places of offers, from the one that is worth most.
fn by_worth(worth: &[i128]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by_key(|&at| (worth.get(at).map(|worth| -worth), at));
    order
}

/// A search for the best filling.
struct Hunt<'a> {
    goal: &'a Goal<'a>,
    scale: i128,
    /// What the best one known is worth.
    best: i128,
    nodes: &'a mut Vec<u32>,
    steps: &'a mut usize,
}

/// A span under its best prices.
struct Priced {
    relaxed: Relaxed,
    /// Nodes of each offer, summed over the rounds: what the prices waver about is no whole number of nodes.
    sums: Vec<u64>,
    rounds: u64,
}

impl Hunt<'_> {
    /// Looks for something better in a span. Returns what nothing in it exceeds, or the best that is known.
    fn split(&mut self, mut span: Span, prices: Vec<i128>, rounds: usize) -> i128 {
        let Some((left, counts)) = self.goal.after(&span.fewest) else { return self.best };
        for ((item, fewest), most) in self.goal.problem.items.iter().zip(&span.fewest).zip(&mut span.most) {
            *most = (*most).min(fewest.saturating_add(fits(item, &left)));
        }
        let Some(Priced { relaxed, sums, rounds }) = self.price(&span, &left, &counts, prices, rounds) else {
            return self.best;
        };
        let bound = relaxed.bound.div_euclid(self.scale);
        if bound <= self.best || *self.steps == 0 {
            return bound.max(self.best);
        }
        self.narrow(&mut span, &relaxed);
        // The offer whose number the prices leave most open.
        let open = span.fewest.iter().zip(&span.most).zip(&sums).enumerate().filter(|(_, ((fewest, most), _))| fewest < most);
        let wavering =
            open.max_by_key(|(at, (_, sum))| (((*sum) % rounds).min(rounds - (*sum) % rounds), std::cmp::Reverse(*at)));
        let Some((at, ((&fewest, &most), sum))) = wavering else {
            // One filling is left.
            if self.goal.after(&span.fewest).is_some_and(|(_, counts)| !self.goal.exact || counts.iter().all(|n| *n == 0)) {
                self.keep(span.fewest);
            }
            return self.best;
        };
        let cut = u32::try_from(sum / rounds).unwrap_or(u32::MAX).clamp(fewest, most - 1);
        let (mut lower, mut higher) = (span.clone(), span);
        if let (Some(most), Some(fewest)) = (lower.most.get_mut(at), higher.fewest.get_mut(at)) {
            (*most, *fewest) = (cut, cut + 1);
        }
        let halves = if sum % rounds * 2 >= rounds { [higher, lower] } else { [lower, higher] };
        let bounds = halves.map(|half| self.split(half, relaxed.prices.clone(), ROUNDS_AFTER_SPLIT));
        bounds.into_iter().fold(self.best, i128::max)
    }

    fn keep(&mut self, nodes: Vec<u32>) {
        let worth = self.goal.worth_of(&nodes);
        if worth > self.best {
            (self.best, *self.nodes) = (worth, nodes);
        }
    }

    /// Looks for the prices with the least bound, by subgradient steps, and for better fillings on the way. `None` where the span has
    /// none.
    fn price(&mut self, span: &Span, left: &[i64], counts: &[u32], prices: Vec<i128>, rounds: usize) -> Option<Priced> {
        let goal = self.goal;
        let cost = goal.problem.items.iter().map(|item| item.takes.len() + 10).sum::<usize>() + goal.problem.left.len();
        let mut relaxed = goal.relax(self.scale, span, counts, prices)?;
        let mut least = Priced { relaxed: relaxed.clone(), sums: vec![0; goal.value.len()], rounds: 0 };
        // In thousandths.
        let (mut pace, mut patience) = (1_500_i128, PATIENCE);
        for _ in 0..rounds {
            *self.steps = self.steps.saturating_sub(cost);
            for (sum, n) in least.sums.iter_mut().zip(&relaxed.nodes) {
                *sum += u64::from(*n);
            }
            least.rounds += 1;
            if let Some(found) = goal.mend(&relaxed.worth, span, left, counts) {
                self.keep(found);
            }
            if least.relaxed.bound.div_euclid(self.scale) <= self.best || *self.steps == 0 {
                break;
            }
            let over = goal.over(&relaxed);
            let length: i128 = over.iter().map(|over| over * over).sum();
            if length == 0 {
                break;
            }
            let stride = (relaxed.bound - self.best * self.scale).max(self.scale) * pace / 1_000;
            let prices = relaxed.prices.iter().zip(&over).zip(&goal.problem.left);
            let prices =
                prices.map(|((price, over), left)| (price + stride * over * UNIT / (length * i128::from(*left))).max(0));
            relaxed = goal.relax(self.scale, span, counts, prices.collect())?;
            if relaxed.bound < least.relaxed.bound {
                (patience, least.relaxed) = (PATIENCE, relaxed.clone());
            } else {
                patience -= 1;
                if patience == 0 {
                    (pace, patience) = (pace / 2, PATIENCE);
                }
            }
        }
        Some(least)
    }

    /// Leaves numbers of nodes out of a span with which the bound is no better than the best that is known: one node of an offer more
    /// takes the place of the one worth least, and one less gives its place to the best that is not taken.
    fn narrow(&self, span: &mut Span, relaxed: &Relaxed) {
        let goal = self.goal;
        let slack = relaxed.bound - (self.best + 1) * self.scale;
        let steps = |loss: i128| if loss <= 0 { u32::MAX } else { u32::try_from(slack / loss).unwrap_or(u32::MAX) };
        for (set, count) in goal.counts.iter().enumerate() {
            let of_set = || (0..goal.value.len()).filter(move |at| goal.set.get(*at) == Some(&set));
            let told = |at: usize| relaxed.nodes.get(at).copied().unwrap_or(0);
            let worth = |at: usize| relaxed.worth.get(at).copied().unwrap_or(0);
            let full = goal.exact || of_set().map(told).sum::<u32>() >= *count;
            let (fewest, most) = (span.fewest.clone(), span.most.clone());
            let spare = |at: usize| told(at) > fewest.get(at).copied().unwrap_or(0);
            let wanting = |at: usize| told(at) < most.get(at).copied().unwrap_or(0);
            let last = of_set().filter(|at| spare(*at)).map(worth).min();
            let mut next: Vec<usize> = of_set().filter(|at| wanting(*at)).collect();
            next.sort_by_key(|at| (-worth(*at), *at));
            for at in of_set() {
                let more = match last {
                    Some(last) if full => steps(last - worth(at)),
                    _ if full => 0,
                    _ => steps(-worth(at)),
                };
                let instead = next.iter().find(|other| **other != at).map(|other| worth(*other));
                let less = match instead {
                    Some(instead) if goal.exact => steps(worth(at) - instead),
                    None if goal.exact => 0,
                    instead => steps(worth(at) - instead.unwrap_or(0).max(0)),
                };
                if let (Some(fewest), Some(most)) = (span.fewest.get_mut(at), span.most.get_mut(at)) {
                    *most = told(at).saturating_add(more).min(*most);
                    *fewest = told(at).saturating_sub(less).max(*fewest);
                }
            }
        }
    }
}
