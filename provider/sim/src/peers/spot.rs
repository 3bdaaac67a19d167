//! Purchases on spot, interruptions, and ways back from on-demand nodes.

use super::events::Event;
use super::fleet::give;
use super::policy::{Looks, WithoutRoom};
use super::run::Run;
use crate::demand::{Resources, Service};

/// Seconds between two looks for spot while nothing else happens.
const RETRY: f64 = 120.0;
/// Seconds between two looks at whether a job may leave its on-demand node.
const LOOK: f64 = 300.0;
/// Seconds that a job runs on demand at least, and that it still has to run, before it may leave.
const STAYS: f64 = 600.0;
const WORTH_MOVING: f64 = 3600.0;
/// Seconds by which a pod may always end later.
const GRACE: f64 = 600.0;

impl Run<'_> {
    /// Buys spot nodes for the jobs, and returns those that are to run on demand.
    pub(super) fn buy_spot(&mut self, jobs: Vec<usize>, now: f64) -> Vec<usize> {
        let Some(spot) = self.policy.spot else { return jobs };
        if jobs.is_empty() {
            return jobs;
        }
        let has_room = self.used.has_room(&self.market, now);
        let groups = if has_room {
            super::buy::pack(jobs, self.policy.buys, &self.jobs)
        } else {
            jobs.into_iter().map(|job| (0, vec![job])).collect()
        };
        let mut on_demand = Vec::new();
        for (kind, group) in groups {
            if has_room && self.buys_spot(kind, now).is_some() {
                continue;
            }
            for job in group {
                match spot.without_room {
                    WithoutRoom::Waits => self.retry(now),
                    WithoutRoom::UniformProgress { .. } if !self.is_behind(job, now, 0.0) => self.retry(now),
                    WithoutRoom::UniformProgress { .. } => {
                        on_demand.push(job);
                        self.events.add(now + LOOK, Event::MayLeave(job));
                    }
                    WithoutRoom::OnDemand => on_demand.push(job),
                }
            }
        }
        on_demand
    }

    /// Buys a spot node of the type, if a pool has room.
    pub(super) fn buys_spot(&mut self, kind: usize, now: f64) -> Option<usize> {
        let gpus = self.jobs.sold[kind].room.gpus;
        let pool = self.used.pick(&self.market, kind, gpus, now)?;
        self.used.gpus[pool] += gpus;
        let node = self.buy(kind, now);
        let bought = &mut self.fleet.nodes[node];
        bought.pool = Some(pool);
        bought.price *= self.market.pools[pool].share();
        Some(node)
    }

    fn retry(&mut self, now: f64) {
        if !self.retry_is_due {
            self.retry_is_due = true;
            self.events.add(now + RETRY, Event::Retry);
        }
    }

    /// Whether the job ends too late for its slack.
    pub(super) fn is_late(&self, job: usize, now: f64) -> bool {
        let job = &self.jobs.all[job];
        now > job.arrives + job.runs * (1.0 + self.market.slack) + GRACE
    }

    /// Whether the job has done less than its part of the time until its deadline, by more than `margin` seconds, or has
    /// to start now to be safe.
    fn is_behind(&self, job: usize, now: f64, margin: f64) -> bool {
        let Some(WithoutRoom::UniformProgress { safe_boots }) = self.policy.spot.map(|spot| spot.without_room) else {
            return true;
        };
        let job = &self.jobs.all[job];
        let until = job.runs * (1.0 + self.market.slack) + GRACE;
        let done = job.runs + job.lost - job.left;
        let needs = job.left + safe_boots * self.boots.median();
        (now - job.arrives) * job.runs / until > done + margin || job.arrives + until - now <= needs
    }

    /// Moves the job from its on-demand node to a new spot node, if its progress allows. One that waits for its on-demand node
    /// to boot is looked at again, like one that may not leave yet.
    pub(super) fn may_leave(&mut self, job: usize, now: f64) {
        let runs = |node: &usize| self.fleet.nodes[*node].runs.iter().any(|(other, _)| *other == job);
        let node = self.fleet.live.iter().copied().find(runs);
        let of = &self.jobs.all[job];
        if of.has_ended || node.is_some_and(|node| self.fleet.nodes[node].pool.is_some()) {
            return;
        }
        let margin = 2.0 * self.boots.median() + 300.0;
        if let (Some(node), Some(started)) = (node, of.started)
            && now - started > STAYS
            && !self.is_behind(job, now, margin)
        {
            let left = (of.left - (now - started)).max(1.0);
            let kind = self.jobs.cheapest_for(job);
            let gpus = self.jobs.sold[kind].room.gpus;
            let has_room = self.used.pick(&self.market, kind, gpus, now).is_some();
            if has_room && left > WORTH_MOVING {
                self.moves += 1;
                self.stop(job, node, left, now);
                if self.fleet.nodes[node].runs.is_empty() {
                    self.goes_idle(node, now);
                }
                self.waiting.push(job);
                self.buys_spot(kind, now);
                return;
            }
        }
        self.events.add(now + LOOK, Event::MayLeave(job));
    }

    /// Takes the job off its node. It starts again with `left` seconds to run.
    fn stop(&mut self, job: usize, node: usize, left: f64, now: f64) {
        let asks = self.jobs.asks(job);
        let on = &mut self.fleet.nodes[node];
        give(&mut on.free, asks);
        on.runs.retain(|(other, _)| *other != job);
        let stopped = &mut self.jobs.all[job];
        stopped.left = left;
        stopped.starts += 1;
        stopped.was_stopped = true;
        stopped.waits_since = now;
    }

    /// Reclaims nodes of the pool until the rest has room.
    pub(super) fn room_falls(&mut self, pool: usize, now: f64) {
        // A little later, as the step of its first moment is a matter of rounding.
        let room = self.market.pools[pool].room_at(now + 1e-6);
        let mut over = i64::from(self.used.gpus[pool]) - i64::from(room);
        if over <= 0 {
            return;
        }
        let of_pool = |node: &usize| self.fleet.nodes[*node].pool == Some(pool);
        let mut nodes: Vec<usize> = self.fleet.live.iter().copied().filter(of_pool).collect();
        self.market.shuffle(&mut nodes);
        for node in nodes {
            if over <= 0 {
                break;
            }
            over -= i64::from(self.jobs.sold[self.fleet.nodes[node].kind].room.gpus);
            for (job, _) in self.fleet.nodes[node].runs.clone() {
                self.interrupt(job, node, now);
            }
            self.release(node, now);
        }
        if !self.waiting.is_empty() {
            self.schedule(now);
        }
        if !self.waiting.is_empty() {
            self.request_scan(now);
        }
    }

    fn interrupt(&mut self, job: usize, node: usize, now: f64) {
        let of = &self.jobs.all[job];
        let ran = now - of.started.unwrap_or(now);
        let (left, saves) = (of.left, of.service == Service::LatencySensitive);
        let lost = if saves { 0.0 } else { ran.min(self.market.checkpoint * self.market.unit()) };
        self.interruptions += 1;
        self.lost += lost * f64::from(self.jobs.asks(job).gpus) / 3600.0;
        self.jobs.all[job].lost += lost;
        self.stop(job, node, (left - ran + lost).max(1.0), now);
        self.waiting.push(job);
    }

    /// Replaces every on-demand node whose jobs may all run on spot by the cheapest spot node for them.
    pub(super) fn return_to_spot(&mut self, now: f64) {
        let Some(consolidation) = self.policy.consolidation.filter(|of| of.looks == Looks::OnDemandNodes) else { return };
        let replaced: Vec<usize> = self.replaced.iter().flat_map(|(_, old)| old).copied().collect();
        for node in self.fleet.ready(now).collect::<Vec<_>>() {
            let of = &self.fleet.nodes[node];
            let may = |(job, since): &(usize, f64)| self.jobs.all[*job].may_use_spot && now - since >= consolidation.after;
            if of.pool.is_some() || of.runs.is_empty() || replaced.contains(&node) || !of.runs.iter().all(may) {
                continue;
            }
            let jobs: Vec<usize> = of.runs.iter().map(|(job, _)| *job).collect();
            let Some(kind) = self.types_for(&jobs).into_iter().next() else { continue };
            if let Some(by) = self.buys_spot(kind, now) {
                self.replaced.push((by, vec![node]));
            }
        }
    }

    /// Types that hold all of the jobs at once, by price.
    pub(super) fn types_for(&self, jobs: &[usize]) -> Vec<usize> {
        let mut asks = Resources::default();
        for job in jobs {
            give(&mut asks, self.jobs.asks(*job));
        }
        let fits = |kind: &usize| {
            let allowed = jobs.iter().all(|job| self.jobs.class(*job).may_use(*kind));
            self.jobs.sold[*kind].room.holds(&asks) && allowed
        };
        let mut types: Vec<usize> = (0..self.jobs.sold.len()).filter(fits).collect();
        types.sort_by(|a, b| self.jobs.sold[*a].price.total_cmp(&self.jobs.sold[*b].price));
        types
    }
}
