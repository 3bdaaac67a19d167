//! Karpenter's consolidation: underutilized nodes are emptied, or replaced by a cheaper one.

use super::fleet::give;
use super::policy::Looks;
use super::report::Wait;
use super::run::Run;
use crate::demand::Service;

/// Nodes that are looked at together, at most.
const TOGETHER: usize = 8;
/// Part of its price below which a replacement counts as cheaper.
const CHEAPER: f64 = 1.0 - 1e-6;

impl Run<'_> {
    /// Empties or replaces some nodes, if any can be.
    pub(super) fn consolidate(&mut self, now: f64) {
        let Some(consolidation) = self.policy.consolidation else { return };
        if consolidation.looks == Looks::OnDemandNodes {
            return self.return_to_spot(now);
        }
        let busy: Vec<usize> = self.replaced.iter().flat_map(|(_, old)| old).copied().collect();
        if busy.len() >= (self.fleet.live.len() / 10).max(1) || !self.waiting.is_empty() {
            return;
        }
        let is_replacement = |node: &usize| self.replaced.iter().any(|(by, _)| by == node);
        let ready: Vec<usize> = self.fleet.ready(now).filter(|node| !busy.contains(node) && !is_replacement(node)).collect();
        let may_move = |(job, since): &(usize, f64)| {
            let job = &self.jobs.all[*job];
            let moves = match job.service {
                Service::LatencySensitive => true,
                Service::BestEffort => consolidation.moves_best_effort,
                Service::Other => false,
            };
            moves && now - since >= consolidation.after
        };
        let runs = |node: &usize| &self.fleet.nodes[*node].runs;
        let mut candidates: Vec<usize> =
            ready.iter().copied().filter(|node| !runs(node).is_empty() && runs(node).iter().all(may_move)).collect();
        let price = |node: &usize| self.price(*node);
        candidates.sort_by(|a, b| runs(a).len().cmp(&runs(b).len()).then_with(|| price(b).total_cmp(&price(a))));
        let together = candidates.len().min(TOGETHER);
        let tries = (2..=together).rev().map(|some| &candidates[..some]).chain(candidates.chunks(1));
        for nodes in tries {
            if self.consolidates(nodes, &ready, now) {
                return;
            }
        }
    }

    /// Empties the nodes, or buys their replacement.
    fn consolidates(&mut self, nodes: &[usize], ready: &[usize], now: f64) -> bool {
        let others: Vec<usize> = ready.iter().copied().filter(|node| !nodes.contains(node)).collect();
        let moving: Vec<usize> = self.jobs_on(nodes);
        let (placed, rest) = self.fleet.place(&moving, &others, &self.jobs);
        if rest.is_empty() {
            self.move_all(nodes, &placed, now);
            return true;
        }
        let total: f64 = nodes.iter().map(|node| self.price(*node)).sum();
        let types = self.types_for(&rest);
        let may_use_spot = rest.iter().all(|job| self.jobs.all[*job].may_use_spot);
        let spot = may_use_spot && nodes.iter().all(|node| self.fleet.nodes[*node].pool.is_none());
        let by_spot = if spot { self.cheaper_spot(&types, total, now) } else { None };
        let by = if let Some(by) = by_spot {
            by
        } else {
            let Some(cheapest) = types.first().filter(|kind| self.jobs.sold[**kind].price < total * CHEAPER) else {
                return false;
            };
            self.buy(*cheapest, now)
        };
        // Such a purchase holds no release back.
        self.last_purchase = f64::NEG_INFINITY;
        self.replaced.push((by, nodes.to_vec()));
        true
    }

    /// Buys a spot node of one of the three cheapest types, if a pool has room and it costs less than `total` per hour.
    fn cheaper_spot(&mut self, types: &[usize], total: f64, now: f64) -> Option<usize> {
        for kind in types.iter().take(3) {
            let sold = self.jobs.sold[*kind];
            let pool = self.used.pick(&self.market, *kind, sold.room.gpus, now);
            if pool.is_some_and(|pool| sold.price * self.market.pools[pool].share() < total * CHEAPER) {
                return self.buys_spot(*kind, now);
            }
        }
        None
    }

    /// Moves all jobs off the nodes that are being replaced, unless they no longer fit.
    pub(super) fn replace(&mut self, old: &[usize], now: f64) {
        let old_live: Vec<usize> = old.iter().copied().filter(|node| self.fleet.is_live(*node)).collect();
        let is_other = |node: &usize| !old.contains(node) && !self.replaced.iter().any(|(by, _)| by == node);
        let others: Vec<usize> = self.fleet.ready(now).filter(is_other).collect();
        let (placed, rest) = self.fleet.place(&self.jobs_on(&old_live), &others, &self.jobs);
        if rest.is_empty() {
            self.move_all(&old_live, &placed, now);
        }
    }

    fn jobs_on(&self, nodes: &[usize]) -> Vec<usize> {
        nodes.iter().flat_map(|node| &self.fleet.nodes[*node].runs).map(|(job, _)| *job).collect()
    }

    /// Moves the jobs of the nodes to where they were placed, and gives the nodes back.
    fn move_all(&mut self, nodes: &[usize], placed: &[(usize, usize)], now: f64) {
        let restart = self.policy.consolidation.map_or(0.0, |of| of.restart);
        for node in nodes {
            for (job, _) in std::mem::take(&mut self.fleet.nodes[*node].runs) {
                let asks = self.jobs.asks(job);
                give(&mut self.fleet.nodes[*node].free, asks);
                let moved = &mut self.jobs.all[job];
                let ran = now - moved.started.unwrap_or(now);
                moved.left = (moved.left - ran).max(1.0) + restart;
                moved.was_stopped = true;
                self.moves += 1;
                self.waits.push(Wait { gpus: asks.gpus, seconds: restart, is_first: false });
                if let Some((_, to)) = placed.iter().find(|(of, _)| *of == job) {
                    self.start(job, *to, now);
                }
            }
            self.release(*node, now);
        }
    }
}
