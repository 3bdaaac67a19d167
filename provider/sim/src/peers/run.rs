//! The run of one policy.

use super::Boots;
use super::events::{Event, Events};
use super::fleet::{Fleet, Node, give, take};
use super::jobs::Jobs;
use super::market::{Market, Use};
use super::policy::Policy;
use super::report::{Report, Wait};
use crate::demand::Demand;

/// State of a run.
pub(super) struct Run<'a> {
    pub(super) policy: &'a Policy,
    pub(super) boots: Boots,
    pub(super) market: Market,
    /// What is used of the market.
    pub(super) used: Use,
    /// End in seconds.
    pub(super) end: f64,
    pub(super) jobs: Jobs,
    pub(super) fleet: Fleet,
    pub(super) events: Events,
    /// Jobs that wait, and those that were never placed last.
    pub(super) waiting: Vec<usize>,
    pub(super) waits: Vec<Wait>,
    /// Whether a look at the waiting jobs is due.
    scan_is_due: bool,
    /// Whether spot is asked again soon.
    pub(super) retry_is_due: bool,
    /// When a node was bought last.
    pub(super) last_purchase: f64,
    /// Nodes that are being replaced, by their replacement, in the order of purchase.
    pub(super) replaced: Vec<(usize, Vec<usize>)>,
    /// Floors by type.
    pub(super) floors: Vec<(usize, u32)>,
    pub(super) moves: usize,
    pub(super) interruptions: usize,
    /// GPU-hours of work that interruptions lost.
    pub(super) lost: f64,
    /// Number of jobs that ended.
    pub(super) ended: usize,
    /// Number of those that ended too late.
    pub(super) late: usize,
}

impl<'a> Run<'a> {
    /// A run with floors by type.
    pub(super) fn new(demand: &Demand, policy: &'a Policy, boots: Boots, market: Market, floors: Vec<(usize, u32)>) -> Self {
        let mut events = Events::default();
        let jobs = Jobs::of(demand, policy);
        for (number, job) in jobs.all.iter().enumerate() {
            events.add(job.arrives, Event::Arrives(number));
        }
        for (number, pool) in market.pools.iter().enumerate() {
            for at in pool.falls(demand.seconds) {
                events.add(at, Event::RoomFalls(number));
            }
        }
        let types: Vec<&str> = demand.types.iter().map(|of| of.name.as_str()).collect();
        let used = Use::of(&market, &types);
        if let Some(consolidation) = policy.consolidation {
            events.add(consolidation.after + 60.0, Event::Consolidate);
        }
        Self {
            policy,
            boots,
            market,
            used,
            end: demand.seconds,
            jobs,
            fleet: Fleet::default(),
            events,
            waiting: Vec::new(),
            waits: Vec::new(),
            scan_is_due: false,
            retry_is_due: false,
            last_purchase: f64::NEG_INFINITY,
            replaced: Vec::new(),
            floors,
            moves: 0,
            interruptions: 0,
            lost: 0.0,
            ended: 0,
            late: 0,
        }
    }

    /// Plays all events and closes the books.
    pub(super) fn play(mut self) -> Report {
        while let Some((now, event)) = self.events.next(self.end) {
            self.happens(now, event);
        }
        for node in self.fleet.live.clone() {
            self.release(node, self.end);
        }
        Report::of(&self, self.boots.used())
    }

    fn happens(&mut self, now: f64, event: Event) {
        match event {
            Event::Arrives(job) => self.arrives(job, now),
            Event::Ready(node) => self.is_ready(node, now),
            Event::Ends { job, start, node } => self.ends(job, start, node, now),
            Event::Scan | Event::ScanHeld => {
                if event == Event::Scan {
                    self.scan_is_due = false;
                }
                self.schedule(now);
                self.provision(now);
                self.hold_floors(now);
            }
            Event::Idle { node, since } => self.is_idle(node, since, now),
            Event::Consolidate => {
                self.consolidate(now);
                self.events.add(now + 60.0, Event::Consolidate);
            }
            Event::Retry => {
                self.retry_is_due = false;
                if !self.waiting.is_empty() {
                    self.request_scan(now);
                }
            }
            Event::MayLeave(job) => self.may_leave(job, now),
            Event::RoomFalls(pool) => self.room_falls(pool, now),
        }
    }

    fn arrives(&mut self, job: usize, now: f64) {
        if self.bind(job, now) {
            self.hold_floors(now);
            return;
        }
        self.waiting.push(job);
        self.request_scan(now);
    }

    /// Sees to it that the waiting jobs are looked at.
    pub(super) fn request_scan(&mut self, now: f64) {
        if !self.scan_is_due {
            self.scan_is_due = true;
            // What is there at the start is served at once.
            let at = if now <= 0.0 { 0.0 } else { now + self.policy.scan };
            self.events.add(at, Event::Scan);
        }
    }

    fn is_ready(&mut self, node: usize, now: f64) {
        let replaces = self.replaced.iter().position(|(by, _)| *by == node).map(|at| self.replaced.remove(at));
        if !self.fleet.is_live(node) {
            return;
        }
        if let Some((_, old)) = replaces {
            self.replace(&old, now);
            // Jobs that counted on the room of the replacement while it booted may find it taken.
            if !self.waiting.is_empty() {
                self.request_scan(now);
            }
        }
        self.schedule(now);
        let ready = &self.fleet.nodes[node];
        if ready.runs.is_empty() && ready.idle.is_none() {
            self.goes_idle(node, now);
        }
    }

    fn ends(&mut self, job: usize, start: u32, node: usize, now: f64) {
        let ended = &mut self.jobs.all[job];
        if ended.starts != start || ended.has_ended || !self.fleet.is_live(node) {
            return;
        }
        ended.has_ended = true;
        self.ended += 1;
        self.late += usize::from(self.is_late(job, now));
        let asks = self.jobs.asks(job);
        let on = &mut self.fleet.nodes[node];
        give(&mut on.free, asks);
        on.runs.retain(|(other, _)| *other != job);
        if on.runs.is_empty() {
            self.goes_idle(node, now);
        }
        if !self.waiting.is_empty() {
            self.schedule(now);
        }
    }

    pub(super) fn goes_idle(&mut self, node: usize, now: f64) {
        let of = &mut self.fleet.nodes[node];
        of.idle = Some(now);
        let seconds = self.policy.idle.seconds(of.price);
        self.events.add(now + seconds, Event::Idle { node, since: now });
    }

    /// Gives the node back, or looks again when something else allows it.
    fn is_idle(&mut self, node: usize, since: f64, now: f64) {
        let of = &self.fleet.nodes[node];
        if of.gone.is_some() || of.idle != Some(since) || !of.runs.is_empty() {
            return;
        }
        let lives = of.bought + self.policy.least_life;
        let settles = self.last_purchase + self.policy.after_purchase;
        let again = if self.policy.least_life > 0.0 && now < lives {
            lives + 1.0
        } else if self.policy.after_purchase > 0.0 && now < settles {
            settles + 1.0
        } else if self.floor_needs(of.kind) {
            now + 600.0
        } else {
            self.release(node, now);
            return;
        };
        self.events.add(again, Event::Idle { node, since });
    }

    pub(super) fn price(&self, node: usize) -> f64 {
        self.fleet.nodes[node].price
    }

    /// Gives the node back.
    pub(super) fn release(&mut self, node: usize, now: f64) {
        let of = &self.fleet.nodes[node];
        if let Some(pool) = of.pool {
            self.used.gpus[pool] -= self.jobs.sold[of.kind].room.gpus;
        }
        self.fleet.remove(node, now, self.end);
    }

    pub(super) fn buy(&mut self, kind: usize, now: f64) -> usize {
        let ready = if now <= 0.0 { 0.0 } else { now + self.boots.seconds() };
        let sold = self.jobs.sold[kind];
        let node = Node {
            kind,
            pool: None,
            price: sold.price,
            bought: now,
            ready,
            free: sold.room,
            runs: Vec::new(),
            idle: None,
            gone: None,
        };
        let node = self.fleet.add(node);
        self.last_purchase = now;
        self.events.add(ready, Event::Ready(node));
        node
    }

    /// Starts the job on a ready node with room, if there is one.
    fn bind(&mut self, job: usize, now: f64) -> bool {
        let Some(node) = self.fleet.choose(job, now, &self.jobs, self.policy.scheduler) else { return false };
        let of = &self.jobs.all[job];
        let (seconds, is_first) = (now - of.waits_since, !of.was_stopped);
        self.waits.push(Wait { gpus: self.jobs.asks(job).gpus, seconds, is_first });
        self.start(job, node, now);
        true
    }

    pub(super) fn start(&mut self, job: usize, node: usize, now: f64) {
        let asks = self.jobs.asks(job);
        let on = &mut self.fleet.nodes[node];
        take(&mut on.free, asks);
        on.runs.push((job, now));
        on.idle = None;
        let started = &mut self.jobs.all[job];
        started.started = Some(now);
        started.starts += 1;
        let start = started.starts;
        self.events.add(now + started.left, Event::Ends { job, start, node });
    }

    /// Starts what can be started, in the order of waiting.
    pub(super) fn schedule(&mut self, now: f64) {
        let waiting = std::mem::take(&mut self.waiting);
        for job in waiting {
            if !self.bind(job, now) {
                self.waiting.push(job);
            }
        }
    }
}
