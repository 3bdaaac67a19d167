//! The search for the best filling of a problem that greed does not solve.
//!
//! The three goals are reached one after the other, each without giving up what the one before reached: most nodes, most of each class,
//! least cost. For each, prices on what is left of the limits (Lagrange multipliers) turn the problem into picking the offers that are worth most
//! after those prices, which bounds what any filling can reach; what the bound does not settle is searched, depth first. Whole
//! numbers throughout: the bound holds for any prices, so that rounding them costs strength and never truth.

use super::Gap;
use super::reduce::{Found, Item, Reduced, fits, take};

/// Steps of the search after which the best filling so far is taken: some 10 ms. Real pools, with a few quotas and a budget, need a
/// fraction of them.
pub(super) const MOST_STEPS: usize = 2_000_000;

/// Rounds in which prices are improved: after some sixty they hardly move.
const ROUNDS: usize = 80;

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
    for later in 0..items.len() {
        for earlier in 0..later {
            let (Some(a), Some(b)) = (items.get(earlier), items.get(later)) else { continue };
            let (Some(&had), Some(&moved)) = (nodes.get(earlier), nodes.get(later)) else { continue };
            let alike = (a.class, a.cost) == (b.class, b.cost) && a.takes.iter().zip(&b.takes).all(|(a, b)| a <= b);
            let moved = if alike { moved.min(a.most - had) } else { 0 };
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

/// The problem under prices on its limits.
struct Relaxed {
    prices: Vec<i128>,
    /// What a node of each offer is worth after the prices, scaled.
    worth: Vec<i128>,
    /// The nodes worth most.
    nodes: Vec<u32>,
    /// What no filling exceeds, scaled.
    bound: i128,
}

impl Goal<'_> {
    /// Improves `nodes`, which is one filling that keeps all limits and numbers. Returns how much more a better one could be worth at
    /// most: nought once this one is proven to be the best.
    fn reach(&self, nodes: &mut Vec<u32>, steps: &mut usize) -> i64 {
        let largest = self.value.iter().map(|v| v.unsigned_abs()).max().unwrap_or(1).max(1);
        let scale = 1_i128 << 44_u32.saturating_sub(largest.ilog2()).max(8);
        let mut best = self.worth_of(nodes);
        let relaxed = self.price(scale, nodes, &mut best, steps);
        let unsettled = |best: i128, bound: i128| bound.div_euclid(scale) - best;
        if unsettled(best, relaxed.bound) <= 0 {
            return 0;
        }
        let settled = Dive::begin(self, scale, &relaxed, best).is_none_or(|mut dive| {
            let settled = dive.descend(0, 0, steps);
            if let Some(found) = dive.found {
                *nodes = found;
                best = dive.best;
            }
            settled
        });
        if settled { 0 } else { i64::try_from(unsettled(best, relaxed.bound).max(0)).unwrap_or(i64::MAX) }
    }

    fn worth_of(&self, nodes: &[u32]) -> i128 {
        self.value.iter().zip(nodes).map(|(value, n)| i128::from(*value) * i128::from(*n)).sum()
    }

    /// Looks for the prices with the least bound, by subgradient steps, and for better fillings on the way.
    fn price(&self, scale: i128, nodes: &mut Vec<u32>, best: &mut i128, steps: &mut usize) -> Relaxed {
        let mut relaxed = self.relax(scale, vec![0; self.problem.left.len()]);
        let mut least = self.relax(scale, relaxed.prices.clone());
        // In thousandths.
        let (mut pace, mut patience) = (1_500_i128, PATIENCE);
        for _ in 0..ROUNDS {
            let cost = self.value.len() * (self.problem.left.len() + 8);
            *steps = steps.saturating_sub(cost);
            if let Some(found) = self.mend(&relaxed.worth) {
                let worth = self.worth_of(&found);
                if worth > *best {
                    (*best, *nodes) = (worth, found);
                }
            }
            if least.bound.div_euclid(scale) <= *best || *steps < cost {
                break;
            }
            let over = self.over(&relaxed);
            let length: i128 = over.iter().map(|over| over * over).sum();
            if length == 0 {
                break;
            }
            let stride = (relaxed.bound - *best * scale).max(scale) * pace / 1_000;
            let prices = relaxed.prices.iter().zip(&over).zip(&self.problem.left);
            let prices =
                prices.map(|((price, over), left)| (price + stride * over * UNIT / (length * i128::from(*left))).max(0));
            relaxed = self.relax(scale, prices.collect());
            if relaxed.bound < least.bound {
                patience = PATIENCE;
                least = Relaxed {
                    prices: relaxed.prices.clone(),
                    worth: relaxed.worth.clone(),
                    nodes: relaxed.nodes.clone(),
                    ..relaxed
                };
            } else {
                patience -= 1;
                if patience == 0 {
                    (pace, patience) = (pace / 2, PATIENCE);
                }
            }
        }
        least
    }

    /// By how much the nodes worth most take more of each limit than is left, as a share of what is left; nought where the price is nought and
    /// should not fall.
    fn over(&self, relaxed: &Relaxed) -> Vec<i128> {
        let taken = |row: usize| {
            let items = self.problem.items.iter().zip(&relaxed.nodes);
            items.map(|(item, n)| i128::from(item.takes.get(row).copied().unwrap_or(0)) * i128::from(*n)).sum::<i128>()
        };
        let rows = self.problem.left.iter().zip(&relaxed.prices).enumerate();
        rows.map(|(row, (left, price))| {
            let over = (taken(row) - i128::from(*left)) * UNIT / i128::from(*left);
            if *price == 0 && over < 0 { 0 } else { over.clamp(-(UNIT << 8), UNIT << 8) }
        })
        .collect()
    }

    fn relax(&self, scale: i128, prices: Vec<i128>) -> Relaxed {
        let items = &self.problem.items;
        let worth: Vec<i128> = items
            .iter()
            .zip(&self.value)
            .map(|(item, value)| {
                let paid: i128 = prices.iter().zip(&item.takes).map(|(price, takes)| price * i128::from(*takes)).sum();
                i128::from(*value) * scale - paid
            })
            .collect();
        let mut bound: i128 = prices.iter().zip(&self.problem.left).map(|(price, left)| price * i128::from(*left)).sum();
        let mut counts = self.counts.clone();
        let mut nodes = vec![0; items.len()];
        for at in by_worth(&worth) {
            let (Some(item), Some(worth), Some(slot)) = (items.get(at), worth.get(at), nodes.get_mut(at)) else { continue };
            let Some(count) = self.set.get(at).and_then(|set| counts.get_mut(*set)) else { continue };
            if *worth <= 0 && !self.exact {
                break;
            }
            *slot = item.most.min(*count);
            *count -= *slot;
            bound += worth * i128::from(*slot);
        }
        Relaxed { prices, worth, nodes, bound }
    }

    /// A filling that takes as much as fits of the offers worth most; `None` where it has not as many nodes as it must.
    fn mend(&self, worth: &[i128]) -> Option<Vec<u32>> {
        let (mut left, mut counts) = (self.problem.left.clone(), self.counts.clone());
        let mut nodes = vec![0; self.problem.items.len()];
        for at in by_worth(worth) {
            let (item, slot) = (self.problem.items.get(at)?, nodes.get_mut(at)?);
            let count = counts.get_mut(*self.set.get(at)?)?;
            *slot = fits(item, &left).min(*count);
            *count -= *slot;
            take(item, &mut left, *slot);
        }
        (!self.exact || counts.iter().all(|count| *count == 0)).then_some(nodes)
    }
}

/// One as a share.
const UNIT: i128 = 1 << 16;

/// The places of offers, from the one that is worth most.
fn by_worth(worth: &[i128]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by_key(|&at| (worth.get(at).map(|worth| -worth), at));
    order
}

/// A search, depth first, of what the prices leave open.
struct Dive<'a> {
    goal: &'a Goal<'a>,
    scale: i128,
    worth: &'a [i128],
    /// The offers whose number is open, the one with the most at stake first, with the fewest and the most nodes that can be better, and the number
    /// that the prices tell.
    open: Vec<Open>,
    /// The places in `open` of each set, from the one worth most.
    by_worth: Vec<Vec<usize>>,
    /// The bound less what the open offers add to it.
    base: i128,
    left: Vec<i64>,
    counts: Vec<u32>,
    nodes: Vec<u32>,
    best: i128,
    found: Option<Vec<u32>>,
}

struct Open {
    at: usize,
    set: usize,
    fewest: u32,
    most: u32,
    told: u32,
    at_stake: i128,
}

impl<'a> Dive<'a> {
    /// `None` where the prices settle everything: nothing better is left.
    fn begin(goal: &'a Goal<'a>, scale: i128, relaxed: &'a Relaxed, best: i128) -> Option<Self> {
        let items = &goal.problem.items;
        // What may be lost against the bound before a filling is no better than the best one known.
        let slack = relaxed.bound - (best + 1) * scale;
        let mut open = Vec::new();
        let mut dive = Self {
            goal,
            scale,
            worth: &relaxed.worth,
            open: Vec::new(),
            by_worth: vec![Vec::new(); goal.counts.len()],
            base: relaxed.prices.iter().zip(&goal.problem.left).map(|(price, left)| price * i128::from(*left)).sum(),
            left: goal.problem.left.clone(),
            counts: goal.counts.clone(),
            nodes: vec![0; items.len()],
            best,
            found: None,
        };
        let margins: Vec<Margin> = (0..goal.counts.len()).map(|set| Margin::of(goal, relaxed, set)).collect();
        for (at, item) in items.iter().enumerate() {
            let (worth, told, set) = (*relaxed.worth.get(at)?, *relaxed.nodes.get(at)?, *goal.set.get(at)?);
            let margin = margins.get(set)?;
            let (up, down) = (margin.loss_of_one_more(worth), margin.loss_of_one_less(worth, at));
            let steps = |loss: Option<i128>| match loss {
                None => 0,
                Some(..=0) => u32::MAX,
                Some(loss) => u32::try_from((slack.max(0)) / loss).unwrap_or(u32::MAX),
            };
            let most = told.saturating_add(steps(Some(up))).min(item.most);
            let fewest = told - told.min(steps(down));
            if most == fewest {
                take(item, &mut dive.left, told);
                let count = dive.counts.get_mut(set)?;
                *count = count.checked_sub(told)?;
                *dive.nodes.get_mut(at)? = told;
                dive.base += worth * i128::from(told);
            } else {
                let at_stake = if told == item.most {
                    down.unwrap_or(up)
                } else if told == 0 {
                    up
                } else {
                    0
                };
                open.push(Open { at, set, fewest, most, told, at_stake });
            }
        }
        if dive.left.iter().any(|left| *left < 0) {
            return None;
        }
        open.sort_by_key(|open| (-open.at_stake, open.at));
        for at in 0..open.len() {
            let set = open.get(at)?.set;
            dive.by_worth.get_mut(set)?.push(at);
        }
        for places in &mut dive.by_worth {
            places.sort_by_key(|&place| open.get(place).and_then(|open| Some((-relaxed.worth.get(open.at)?, open.at))));
        }
        dive.open = open;
        Some(dive)
    }

    /// Tries every number of nodes of the next open offer, the likeliest first. Whether all were tried.
    fn descend(&mut self, depth: usize, worth: i128, steps: &mut usize) -> bool {
        let cost = 4 + self.open.len() - depth;
        if *steps < cost {
            return false;
        }
        *steps -= cost;
        let Some(rest) = self.worth_of_rest(depth) else { return true };
        if self.base + worth + rest < (self.best + 1) * self.scale {
            return true;
        }
        let Some(&Open { at, set, fewest, most, told, .. }) = self.open.get(depth) else {
            let found = self.goal.worth_of(&self.nodes);
            if found > self.best {
                (self.best, self.found) = (found, Some(self.nodes.clone()));
            }
            return true;
        };
        let (Some(item), Some(&each), Some(&count)) =
            (self.goal.problem.items.get(at), self.worth.get(at), self.counts.get(set))
        else {
            return true;
        };
        let most = most.min(fits(item, &self.left)).min(count);
        if most < fewest {
            return true;
        }
        let told = told.clamp(fewest, most);
        let mut settled = true;
        // From the number that the prices tell away to both sides.
        for far in 0..=(most - told).max(told - fewest) {
            let below = told.checked_sub(far).filter(|n| far > 0 && *n >= fewest);
            for n in [told.checked_add(far).filter(|n| *n <= most), below].into_iter().flatten() {
                take(item, &mut self.left, n);
                self.set_nodes(at, set, n, count - n);
                settled &= self.descend(depth + 1, worth + each * i128::from(n), steps);
                self.set_nodes(at, set, 0, count);
                for (left, takes) in self.left.iter_mut().zip(&item.takes) {
                    *left += takes * i64::from(n);
                }
            }
            if !settled {
                return false;
            }
        }
        settled
    }

    fn set_nodes(&mut self, at: usize, set: usize, nodes: u32, count: u32) {
        if let Some(slot) = self.nodes.get_mut(at) {
            *slot = nodes;
        }
        if let Some(slot) = self.counts.get_mut(set) {
            *slot = count;
        }
    }

    /// What the open offers from `depth` on are worth at most; `None` where they cannot make up the numbers.
    fn worth_of_rest(&self, depth: usize) -> Option<i128> {
        let mut total = 0;
        for (places, count) in self.by_worth.iter().zip(&self.counts) {
            let mut count = *count;
            for open in places.iter().filter(|place| **place >= depth).filter_map(|place| self.open.get(*place)) {
                let worth = self.worth.get(open.at).copied().unwrap_or(0);
                if count == 0 || (worth <= 0 && !self.goal.exact) {
                    break;
                }
                let nodes = open.most.min(count);
                count -= nodes;
                total += worth * i128::from(nodes);
            }
            if count > 0 && self.goal.exact {
                return None;
            }
        }
        Some(total)
    }
}

/// What changing a set's nodes costs against the bound.
struct Margin {
    /// The worth of the least node taken; nought where there is room for one more.
    last: i128,
    /// The two best offers with a node not taken, with their worth.
    next: [Option<(usize, i128)>; 2],
    exact: bool,
}

impl Margin {
    fn of(goal: &Goal<'_>, relaxed: &Relaxed, set: usize) -> Self {
        let members = || by_worth_in(goal, relaxed, set);
        let taken: u32 = members().map(|(_, _, nodes, _)| nodes).sum();
        let full = goal.counts.get(set).is_some_and(|count| taken >= *count);
        let last = members().filter(|(_, _, nodes, _)| *nodes > 0).map(|(_, worth, _, _)| worth).min().unwrap_or(0);
        let mut next: Vec<(usize, i128)> =
            members().filter(|(_, _, nodes, most)| nodes < most).map(|(at, worth, _, _)| (at, worth)).collect();
        next.sort_by_key(|(at, worth)| (-worth, *at));
        let last = if full || goal.exact { last } else { 0 };
        Self { last, next: [next.first().copied(), next.get(1).copied()], exact: goal.exact }
    }

    /// One node of an offer more takes the place of the least one.
    fn loss_of_one_more(&self, worth: i128) -> i128 {
        self.last - worth
    }

    /// One node of an offer less gives its place to the best one that is not taken, or to none; `None` where it must stay.
    fn loss_of_one_less(&self, worth: i128, at: usize) -> Option<i128> {
        let next = self.next.iter().flatten().find(|(other, _)| *other != at).map(|(_, worth)| *worth);
        let next = if self.exact { next? } else { next.unwrap_or(0).max(0) };
        Some(worth - next)
    }
}

/// The offers of a set: place, worth, nodes taken, nodes at most.
fn by_worth_in<'a>(goal: &'a Goal<'_>, relaxed: &'a Relaxed, set: usize) -> impl Iterator<Item = (usize, i128, u32, u32)> + 'a {
    let items = goal.problem.items.iter().zip(&relaxed.worth).zip(&relaxed.nodes).enumerate();
    items
        .filter(move |(at, _)| goal.set.get(*at) == Some(&set))
        .map(|(at, ((item, worth), nodes))| (at, *worth, *nodes, item.most))
}
