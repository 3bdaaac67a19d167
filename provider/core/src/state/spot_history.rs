//! Spot history of markets and regions, and the estimate of their hazard.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::ids::ProviderId;
use crate::base::units::Milli;
use crate::market::hazard::{ASSUMED_HAZARD, Hazard, Prior, percent};
use crate::state::probe_reclaims::CLOSES_AGAIN_AFTER;

/// How much a market's prior counts, in node-hours. Little, on purpose: it is a guess, and a day of one's own nodes outweighs it.
pub const PRIOR_NODE_HOURS: u64 = 10;

/// How often the node-hours of running machines are added to what is remembered: seldom enough to keep prices and journal still, often
/// enough that what a node ran after the last time it was counted (lost when it is deleted) hardly matters beside its life.
pub const EXPOSURE_STEP: SignedDuration = SignedDuration::from_mins(10);

/// After so long, what is remembered of a market counts half, so that it speaks of the last month or so.
pub const HALF_LIFE: SignedDuration = SignedDuration::from_hours(15 * 24);

/// Reclaims of one market within so long are one event: 92 % of the nodes of a type and zone that go together go within it
/// (arXiv 2604.16457).
pub const SIBLINGS_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// How long a market is left alone after a reclaim: its siblings have gone by then. A market that is empty for longer says so itself, and
/// is left alone for that ([`crate::state::memory::FIRST_BACKOFF`] and on).
pub const LEFT_ALONE: SignedDuration = SignedDuration::from_mins(5);

/// Reclaim events of one region within an hour above which its spot is left alone: markets of one region fail together (their
/// availability correlates with 0.43, against 0.14 across regions: `SkyNomad`'s probes).
pub const REGION_EVENTS: usize = 5;

/// How long a region's spot is left alone then: the mean time without capacity of the good measured zones is 54 min
/// (`SkyNomad`'s probes).
pub const REGION_LEFT_ALONE: SignedDuration = SignedDuration::from_hours(1);

/// Over how long a region's events are counted.
const REGION_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// How likely a reclaim is in a market, and by whose word.
///
/// It is the mean over all nodes that ran there. Measured hazards fall with age: of AWS spot nodes 37 % lived another hour when new and
/// 87 % at eight hours (`SkyNomad`'s probes), so a running node is safer than this says, and its place is never taken by a new one
/// for the hazard alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Risk {
    /// The estimate.
    pub hazard: Hazard,
    /// What was believed beforehand.
    pub prior: Prior,
    /// Own nodes reclaimed there, in thousandths: older ones count less.
    pub reclaims: Milli,
    /// Hours that own nodes ran there; older ones count less.
    pub node_hours: u64,
}

impl Risk {
    /// The shrinkage estimate: (own reclaims + the prior's) ÷ (own node-hours + [`PRIOR_NODE_HOURS`]).
    pub fn estimate(prior: Prior, history: Option<&SpotHistory>) -> Self {
        let (exposure, reclaims) = history.map_or((0, Milli(0)), |h| (h.exposure, h.reclaims));
        // In 10⁻⁹ of a reclaim, and in seconds.
        let events = u128::from(reclaims.0) * 1_000_000 + u128::from(prior.hazard().0) * u128::from(PRIOR_NODE_HOURS);
        let seconds = u128::from(exposure) + u128::from(PRIOR_NODE_HOURS) * 3_600;
        let hazard = Hazard(u64::try_from(events * 3_600 / seconds).unwrap_or(u64::MAX));
        Self { hazard, prior, reclaims, node_hours: exposure / 3_600 }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reclaims/node-h: ", self.hazard)?;
        match self.prior {
            Prior::Published { per_month, .. } => write!(f, "published {}/month, ", percent(per_month))?,
            Prior::Assumed => write!(f, "no published rate, {ASSUMED_HAZARD} assumed, ")?,
        }
        match self.reclaims {
            Milli(0) => write!(f, "none observed in {} node-h", self.node_hours),
            reclaims => write!(f, "{reclaims} observed in {} node-h", self.node_hours),
        }
    }
}

/// What is remembered of a spot market.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpotHistory {
    /// Seconds that own nodes ran here.
    pub exposure: u64,
    /// Own nodes that were reclaimed here, in thousandths. Each node counts, siblings too: the hazard is per node.
    pub reclaims: Milli,
    /// When the two were last halved, or began.
    pub since: Timestamp,
    /// When the last event began: a reclaim that was no sibling of one before.
    pub event_at: Option<Timestamp>,
    /// When probes alone last closed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by_probe_at: Option<Timestamp>,
    /// Machines that have had their notice, so that none counts again when it goes.
    pub noticed: BTreeSet<ProviderId>,
}

impl SpotHistory {
    /// Nothing seen yet.
    pub const fn begun(at: Timestamp) -> Self {
        Self { exposure: 0, reclaims: Milli(0), since: at, event_at: None, closed_by_probe_at: None, noticed: BTreeSet::new() }
    }

    /// Halves what is old. Whether anything changed.
    pub fn age(&mut self, now: Timestamp) -> bool {
        let mut aged = false;
        while let Some(at) = self.since.checked_add(HALF_LIFE).ok().filter(|at| *at <= now) {
            self.exposure /= 2;
            self.reclaims.0 /= 2;
            // Where nothing is left to halve, the rest of the time is skipped.
            self.since = if self.exposure == 0 && self.reclaims.0 == 0 { now } else { at };
            aged = true;
        }
        aged
    }

    /// Counts a reclaimed node; whether it begins a new event.
    pub fn reclaimed(&mut self, now: Timestamp) -> bool {
        self.reclaims.0 = self.reclaims.0.saturating_add(1000);
        let sibling = self.event_at.is_some_and(|at| now < later(at, SIBLINGS_WITHIN));
        if !sibling {
            self.event_at = Some(now);
        }
        !sibling
    }

    /// Until when the market is left alone after its last event; `None` where there was none.
    pub fn left_alone_until(&self) -> Option<Timestamp> {
        self.event_at.map(|at| later(at, LEFT_ALONE))
    }

    /// Whether it says nothing any more.
    pub fn is_spent(&self, now: Timestamp) -> bool {
        let alone = self.left_alone_until().is_some_and(|until| until > now);
        let closed = self.closed_by_probe_at.is_some_and(|at| later(at, CLOSES_AGAIN_AFTER) > now);
        self.exposure == 0 && self.reclaims.0 == 0 && self.noticed.is_empty() && !alone && !closed
    }
}

/// What is remembered of a region's reclaims.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionReclaims {
    /// When the latest events began, oldest first: no more than decide whether there are too many.
    pub events: Vec<Timestamp>,
    /// Its spot is left alone until then.
    pub left_alone_until: Option<Timestamp>,
}

impl RegionReclaims {
    /// Counts an event.
    pub fn event(&mut self, now: Timestamp) {
        self.forget(now);
        self.events.push(now);
        if self.events.len() > REGION_EVENTS {
            self.events.remove(0);
            self.left_alone_until = Some(later(now, REGION_LEFT_ALONE));
        }
    }

    /// Drops what is past; whether anything is left.
    pub fn forget(&mut self, now: Timestamp) -> bool {
        self.events.retain(|at| later(*at, REGION_WINDOW) > now);
        self.left_alone_until = self.left_alone_until.filter(|until| *until > now);
        !self.events.is_empty() || self.left_alone_until.is_some()
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
