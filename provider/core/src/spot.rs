//! Spot: how likely a reclaim is, what one costs, and what is remembered of those there were.
//!
//! A spot node is cheap while it runs and loses work when it is taken back, so its price is divided by the share of its time that is
//! useful. All of it is integer arithmetic: hazards in reclaims per 10⁹ node-hours, shares in millionths.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ids::ProviderId;
use crate::policy::MoveBack;
use crate::units::{Milli, Percent, Ppm, UsdPerHour};

/// How much a market's prior counts, in node-hours. Little, on purpose: published rates are some 100 times milder than what GPU
/// markets were measured to do ([`ASSUMED_HAZARD`]), so a day of one's own nodes outweighs them.
pub const PRIOR_NODE_HOURS: u64 = 10;

/// The prior where no table has a rate: the worst of the three good AWS zones that were measured (V100 in us-west-2, 0.16 reclaims per
/// node-hour: `SkyNomad`'s probes of 2023, github.com/andylizf/skynomad-artifact). Unknown is never taken for safe.
pub const ASSUMED_HAZARD: Hazard = Hazard(160_000_000);

/// How long a job runs where a pool saves no checkpoints, so that a reclaim loses half of it: the mean GPU job of the Philly trace,
/// 18,006 s (as `AcmeTrace` sums it up).
pub const UNSAVED_JOB: SignedDuration = SignedDuration::from_hours(5);

/// How often the node-hours of running machines are added to what is remembered: seldom enough to keep prices and journal still, often
/// enough that what a node ran after the last time it was counted (lost when it is deleted) hardly matters beside its life.
pub const EXPOSURE_STEP: SignedDuration = SignedDuration::from_mins(10);

/// After so long, what is remembered of a market counts half, so that it speaks of the last month or so.
pub const HALF_LIFE: SignedDuration = SignedDuration::from_hours(15 * 24);

/// Reclaims of one market within so long are one event: 92 % of the nodes of a type and zone that go together go within it
/// (arXiv 2604.16457).
pub const SIBLINGS_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// How long a market is left alone after a reclaim: its siblings have gone by then. A market that is empty for longer says so itself, and
/// is left alone for that ([`crate::memory::FIRST_BACKOFF`] and on).
pub const LEFT_ALONE: SignedDuration = SignedDuration::from_mins(5);

/// Reclaim events of one region within an hour above which its spot is left alone: markets of one region fail together (their
/// availability correlates with 0.43, against 0.14 across regions: `SkyNomad`'s probes).
pub const REGION_EVENTS: usize = 5;

/// How long a region's spot is left alone then: the mean time without capacity of the good measured zones is 54 min
/// (`SkyNomad`'s probes).
pub const REGION_LEFT_ALONE: SignedDuration = SignedDuration::from_hours(1);

/// Over how long a region's events are counted.
const REGION_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// The least useful share that is reckoned with: a node that hardly gets anything done is a hundred times dearer, and not infinitely.
const LEAST_USEFUL: Ppm = Ppm(10_000);

/// How often nodes of a spot market are reclaimed, in reclaims per 10⁹ node-hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hazard(pub u64);

impl Hazard {
    /// The constant hazard under which this share of nodes is reclaimed in a month: −ln(1 − p) ÷ 730 h. Nothing is certain: a share of
    /// one counts as 99.9 %.
    ///
    /// Exact to the unit: the logarithm is in 10⁻¹², each of its terms is cut by less than one of those, and there are fewer than 30.
    pub fn from_monthly(share: Milli) -> Self {
        const ONE: u128 = 1_000_000_000_000;
        const LN_2: u128 = 693_147_180_560;
        // q = 1 − p, scaled up by 2ᵏ to lie in (½, 1], so that the series below falls by at least 9 a term.
        let mut kept = u128::from(1000 - share.0.min(999)) * (ONE / 1000);
        let mut log = 0;
        while kept <= ONE / 2 {
            kept *= 2;
            log += LN_2;
        }
        // −ln q = 2 (y + y³/3 + y⁵/5 + …) with y = (1 − q) ÷ (1 + q).
        let y = (ONE - kept) * ONE / (ONE + kept);
        let (mut power, mut odd) = (y, 1);
        while power > 0 {
            log += 2 * power / odd;
            power = power * y / ONE * y / ONE;
            odd += 2;
        }
        // 10⁻¹² of a month's reclaims to 10⁻⁹ of an hour's.
        Self(u64::try_from((log + 365_000) / 730_000).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To two digits that count, as no estimate of a hazard has more; a published rate is some ten-thousandths.
        let digits = self.0.checked_ilog10().unwrap_or(0);
        let shown = 10_u64.pow(digits.saturating_sub(1));
        let rounded = (self.0 + shown / 2) / shown * shown;
        let text = format!("{}.{:09}", rounded / 1_000_000_000, rounded % 1_000_000_000);
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// What is believed of a spot market before any node of one's own ran there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prior {
    /// A table has a rate.
    Published {
        /// Share of nodes reclaimed per month.
        per_month: Milli,
        /// The same as a hazard.
        hazard: Hazard,
    },
    /// None has: [`ASSUMED_HAZARD`].
    Assumed,
}

impl Prior {
    /// The prior that follows from a table's rate, if there is one.
    pub fn of(per_month: Option<Milli>) -> Self {
        per_month.map_or(Self::Assumed, |per_month| Self::Published { per_month, hazard: Hazard::from_monthly(per_month) })
    }

    /// The hazard.
    pub const fn hazard(&self) -> Hazard {
        match self {
            Self::Published { hazard, .. } => *hazard,
            Self::Assumed => ASSUMED_HAZARD,
        }
    }
}

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
        write!(f, "{} reclaims/node-h: {} in {} node-h here, ", self.hazard, self.reclaims, self.node_hours)?;
        match self.prior {
            Prior::Published { per_month, .. } => write!(f, "{} a month published", percent(per_month)),
            Prior::Assumed => write!(f, "no published rate ({ASSUMED_HAZARD} assumed)"),
        }
    }
}

/// `7.5%`.
pub(crate) fn percent(share: Milli) -> String {
    match (share.0 / 10, share.0 % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, tenths) => format!("{whole}.{tenths}%"),
    }
}

/// Spot rules of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpotRules {
    /// Largest share of the pool's nodes that may be spot, in whole nodes rounded down: what stays when all of spot goes at once.
    pub max_share: Percent,
    /// Largest share of the pool's nodes in one spot market, in whole nodes rounded up: one is always allowed, and ⌈1 ÷ share⌉ markets
    /// always hold the whole demand.
    pub max_market_share: Percent,
    /// Highest published monthly rate of reclaims; `None` for any, known or not.
    pub max_interruption: Option<Percent>,
    /// What a reclaim leaves of the work.
    pub saving: Saving,
    /// From SIGTERM until a checkpoint is saved; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<SignedDuration>,
    /// From a new node to where the work stood, its boot not included.
    pub restart: SignedDuration,
    /// Which on-demand nodes are let go when spot is back and that pays.
    #[serde(default)]
    pub move_back: MoveBack,
}

/// What a reclaim leaves of the work that a node did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Saving {
    /// All up to the last checkpoint: on average half the time between two is lost.
    Checkpoints {
        /// Time between two.
        every: SignedDuration,
        /// Share of the time that goes into writing them.
        overhead: Percent,
    },
    /// Nothing: half of an [`UNSAVED_JOB`] is lost on average.
    Nothing,
    /// Requests leave nothing behind that could be lost.
    Stateless,
}

impl SpotRules {
    /// Whether the shares limit anything.
    pub fn limits_shares(&self) -> bool {
        self.max_share < Percent::ALL || self.max_market_share < Percent::ALL
    }

    /// Whether busy nodes may be let go when spot is back: their work goes on elsewhere from where it was saved.
    pub const fn moves_busy(&self) -> bool {
        matches!((self.move_back, self.saving), (MoveBack::Busy, Saving::Checkpoints { .. }))
    }

    /// Time lost on average when a node is reclaimed whose pods have so much time from the notice on ([`usable`](crate::interruption::usable)).
    ///
    /// Work that saves itself when it is told to go loses what the save takes, in which it does not go on. A save that is cut off leaves
    /// nothing, and while one is being written the last whole one is as old as the time between two, and older: all of that time is
    /// reckoned to be lost then, and half of it and the save where that is more.
    pub fn lost_per_reclaim(&self, usable: SignedDuration) -> SignedDuration {
        let work = match (self.saving, self.save) {
            (Saving::Checkpoints { .. }, Some(save)) if save <= usable => save,
            (Saving::Checkpoints { every, .. }, Some(save)) => every.max((every / 2).saturating_add(save)),
            (Saving::Checkpoints { every, .. }, None) => every / 2,
            (Saving::Nothing, _) => UNSAVED_JOB / 2,
            (Saving::Stateless, _) => SignedDuration::ZERO,
        };
        work.saturating_add(self.restart)
    }

    /// Time lost on average when pods are moved: they have all the time that they say they need.
    pub fn lost_per_move(&self) -> SignedDuration {
        self.lost_per_reclaim(SignedDuration::MAX)
    }

    /// The share of a node's time that is useful: 1 − λ × time lost per reclaim − time spent on checkpoints. First order, and so never
    /// too much: with an interval T the exact share is λT ÷ (e^λT − 1), which is at least 1 − λT ÷ 2.
    pub fn useful(&self, hazard: Hazard, usable: SignedDuration) -> Ppm {
        let lost_ms = u64::try_from(self.lost_per_reclaim(usable).as_millis()).unwrap_or(0);
        // 10⁻⁹ reclaims per hour × ms, to 10⁻⁶: ÷ 3,600,000 ms an hour, ÷ 1,000. What saturates is more than all.
        let lost = hazard.0.saturating_mul(lost_ms).div_ceil(3_600_000_000);
        let overhead = match self.saving {
            Saving::Checkpoints { overhead, .. } => u64::from(overhead.0) * 10_000,
            Saving::Nothing | Saving::Stateless => 0,
        };
        let useful = 1_000_000_u64.saturating_sub(lost).saturating_sub(overhead);
        Ppm(u32::try_from(useful).unwrap_or(1_000_000)).max(LEAST_USEFUL)
    }
}

/// What an hour of useful time costs, rounded up.
pub fn effective(cash: UsdPerHour, useful: Ppm) -> UsdPerHour {
    let micros = (i128::from(cash.0) * 1_000_000 + i128::from(useful.0) - 1) / i128::from(useful.0.max(1));
    UsdPerHour(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// How a share of nodes is made whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    Up,
}

impl Rounding {
    /// What rounding adds to a share, in hundredths of a node.
    pub(crate) const fn slack(self) -> i64 {
        match self {
            Self::Down => 0,
            Self::Up => 99,
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
    /// Machines that have had their notice, so that none counts again when it goes.
    pub noticed: BTreeSet<ProviderId>,
}

impl SpotHistory {
    /// Nothing seen yet.
    pub const fn begun(at: Timestamp) -> Self {
        Self { exposure: 0, reclaims: Milli(0), since: at, event_at: None, noticed: BTreeSet::new() }
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
        self.exposure == 0 && self.reclaims.0 == 0 && self.noticed.is_empty() && !alone
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
