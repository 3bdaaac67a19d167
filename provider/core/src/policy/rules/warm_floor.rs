//! Warm floor: free and proven nodes that a pool keeps, whatever the demand.

mod arrivals;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::calendar::{OffHours, Slot};
use crate::base::engine_clock::Wall;
use crate::base::ids::{InstanceType, NodeGroupId, PoolName};
use crate::base::units::{Percent, UsdPerHour};

pub use arrivals::{Arrivals, Share};

/// What a pool wants kept warm: the most that any of its parts asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WarmFloor {
    /// So many nodes.
    pub nodes: u32,
    /// So large a share of the nodes at work, in whole nodes rounded up.
    pub percent_of_busy: Option<Percent>,
    /// As many as came at once in the past.
    pub quantile: Option<Quantile>,
    /// So many nodes at set times.
    pub schedule: Vec<(Slot, u32)>,
    /// Whether the pool's demand signals ask for nodes.
    pub signals: bool,
    /// When a node counts as warm.
    pub warm_when: WarmWhen,
    /// How the autoscaler is asked for it.
    #[serde(default)]
    pub mechanism: Mechanism,
}

impl WarmFloor {
    /// Whether it has to be asked for by a raised `minSize`: it is to be, or the cluster serves no buffers. While nobody knows whether it
    /// does, nothing is asked for: what a buffer asks for already would be bought twice.
    pub const fn raises_min_size(&self, buffers_served: Option<bool>) -> bool {
        match self.mechanism {
            Mechanism::MinSize => true,
            Mechanism::CapacityBuffer => matches!(buffers_served, Some(false)),
        }
    }

    /// Whether the autoscaler keeps its nodes by itself, for the room that a buffer asks for. Which they are is its choice: others that were
    /// held would stay beside them.
    pub const fn is_kept_by_buffers(&self, buffers_served: Option<bool>) -> bool {
        matches!((self.mechanism, buffers_served), (Mechanism::CapacityBuffer, Some(true)))
    }
}

/// How the autoscaler is asked for a floor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mechanism {
    /// By the least size of groups.
    #[default]
    MinSize,
    /// By a `CapacityBuffer`, where the cluster serves them.
    CapacityBuffer,
}

/// Over how much history arrivals are counted where the policy does not say: two weeks, so that each day of the week counts twice.
pub const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Least history that a quantile is taken of: nights are not like days.
pub const SHORTEST_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// Longest history that is remembered.
pub const LONGEST_WINDOW: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A quantile of past arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantile {
    /// Which; `None` where it follows from what waiting costs and what a node costs.
    pub p: Option<Percent>,
    /// Over how much history.
    pub window: SignedDuration,
    /// Arrivals within how long; `None` where that is what boots of the pool take.
    pub horizon: Option<SignedDuration>,
}

/// When a node counts as warm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WarmWhen {
    /// Ready, with its gates passed.
    #[default]
    Ready,
    /// And the images that its pool's pods use are on it.
    ImagesPulled,
}

/// How a pool's warm floor stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FloorStands {
    /// The pool.
    pub pool: PoolName,
    /// Nodes wanted.
    pub wanted: u32,
    /// Which of its parts asks for that, in words.
    pub why: String,
    /// Warm nodes.
    pub warm: u32,
    /// On their way for it.
    pub coming: u32,
    /// What the wanted nodes cost.
    pub usd_per_hour: UsdPerHour,
    /// Since when some are missing; `None` while none is.
    pub unmet_since: Option<Timestamp>,
    /// What keeps the missing ones from being bought, or the bought ones from being warm, in words; `None` while they are on their way or
    /// nothing does.
    pub blocked: Option<String>,
}

/// Nodes of each instance type, the cheapest first.
pub type ByType = Vec<(InstanceType, u32)>;

/// What is remembered of a pool's floor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FloorMemory {
    /// Since when warm nodes are missing; `None` while none is.
    pub unmet_since: Option<Timestamp>,
    /// The groups whose `minSize` is above their target for it, and by how many nodes.
    pub raised: BTreeMap<NodeGroupId, u32>,
    /// How long the autoscaler has been shown that and has not asked; `None` while nothing is raised.
    pub unasked: Option<Unasked>,
    /// The replicas that the pool's signals asked for when all of them were last known.
    pub replicas: Option<u32>,
    /// What the quantile asked for of each instance type when it was last worked out: it is once in each stretch of the history.
    #[serde(default)]
    pub by_type: ByType,
    /// What came in the past; empty where the policy takes no quantile of it.
    #[serde(default)]
    pub history: Arrivals,
    /// Orders from this number on are not among the arrivals yet.
    pub orders_from: u64,
}

/// A raised `minSize` for which the autoscaler has not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unasked {
    /// Since when.
    pub since: Timestamp,
    /// When that was last so. Across a gap in which nobody could have asked, the wait begins anew.
    pub seen: Timestamp,
}

/// How long the autoscaler is given to ask for a raised `minSize` before the group is grown without it: twelve of its loops at the longest
/// (`--scan-interval` 10 s), and less than half of the 5 min for which it leaves a group alone that failed.
pub const ASKED_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// The longest that may lie between two looks at an [`Unasked`] raise for the time between to count.
const LOOKED_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// How often [`Unasked::seen`] is moved on: often enough for `LOOKED_WITHIN`, and seldom enough to write little down.
pub const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(20);

/// How soon after it is Ready a node of a floor is warm, or what it waits for is told: the start of its probe, 15 s in which that settles, and
/// some slack. Nothing else is done then: one whose driver is installed first takes minutes.
pub const WARM_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// How long a node that was warm and cannot be told of, or is not Ready any more, counts for its floor: a probe or kubelet that restarts
/// is back in seconds, a machine in some minutes. Of those that stay away longer a floor buys as many again as it wants, and no more: a
/// fault that takes every new node in turn would otherwise be bought nodes for until the pool is full.
pub const DOUBTED_FOR: SignedDuration = SignedDuration::from_mins(10);

impl Unasked {
    /// The raise as it stands `now`, where it stood like `before`.
    pub fn go_on(before: Option<Self>, now: Timestamp) -> Self {
        match before {
            Some(before) if now >= before.seen && now.duration_since(before.seen) <= LOOKED_WITHIN => {
                let moved = now.duration_since(before.seen) >= LOOK_EVERY;
                Self { since: before.since, seen: if moved { now } else { before.seen } }
            }
            _ => Self { since: now, seen: now },
        }
    }

    /// Whether the autoscaler has had its time, and somebody was there all the while.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.seen) <= LOOKED_WITHIN && now.duration_since(self.since) >= ASKED_WITHIN
    }
}

/// What a floor's parts are weighed against.
#[derive(Debug, Clone, Copy)]
pub struct Basis<'a> {
    /// Nodes at work.
    pub at_work: u32,
    /// What the quantile of past arrivals is, by instance type; empty while it is not known.
    pub quantile: &'a ByType,
    /// Nodes that the replicas would fill which the signals ask for and which do not run yet; `None` while no signal has been known.
    pub signals: Option<u32>,
    /// The pool's off-hours.
    pub off_hours: Option<&'a OffHours>,
    /// What its schedules are read by.
    pub wall: Wall,
}

/// What a floor wants now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// So many warm nodes.
    pub nodes: u32,
    /// How many of them have to be of an instance type: those of the quantile, as a node of another may be of no use to what comes. The
    /// rest may be of any.
    by_type: ByType,
    /// Which part asks for that.
    pub why: Why,
    /// When a schedule changes that, by the wall; `None` where none does.
    pub changes_at: Option<Timestamp>,
}

impl Wanted {
    /// All that is to be filled.
    pub fn places(&self) -> Places {
        Places { by_type: self.by_type.clone(), any: self.nodes.saturating_sub(sum(&self.by_type)) }
    }

    /// Whether there is a place for a node of an instance type.
    pub fn wants(&self, instance_type: &InstanceType) -> bool {
        self.nodes > sum(&self.by_type) || self.by_type.iter().any(|(of, nodes)| of == instance_type && *nodes > 0)
    }

    /// Leaves no more nodes than that, of types the cheapest first.
    fn cut(&mut self, most: u32) {
        self.nodes = self.nodes.min(most);
        let mut left = self.nodes;
        for (_, nodes) in &mut self.by_type {
            *nodes = take(&mut left, *nodes);
        }
    }

    /// Forgets of which instance types its nodes have to be.
    #[must_use]
    pub fn of_any_type(self) -> Self {
        Self { by_type: ByType::new(), ..self }
    }
}

/// What is to be filled of a floor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Nodes of each of these instance types.
    pub by_type: ByType,
    /// Nodes of any.
    pub any: u32,
}

impl Places {
    /// How many.
    pub fn len(&self) -> u32 {
        self.any.saturating_add(sum(&self.by_type))
    }

    /// Whether all is filled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many nodes of an instance type there is a place.
    pub fn left(&self, instance_type: &InstanceType) -> u32 {
        let of_type = self.by_type.iter().find(|(of, _)| of == instance_type);
        self.any.saturating_add(of_type.map_or(0, |(_, nodes)| *nodes))
    }

    /// Fills places with up to so many nodes of an instance type: first those that only it can fill. How many were filled.
    pub fn fill(&mut self, instance_type: &InstanceType, nodes: u32) -> u32 {
        let of_type = self.by_type.iter_mut().find(|(of, _)| of == instance_type);
        let filled = of_type.map_or(0, |(_, places)| take(places, nodes));
        filled + take(&mut self.any, nodes - filled)
    }
}

fn sum(by_type: &ByType) -> u32 {
    by_type.iter().fold(0, |sum, (_, nodes)| sum.saturating_add(*nodes))
}

/// Takes up to so many; how many were taken.
fn take(places: &mut u32, nodes: u32) -> u32 {
    let taken = nodes.min(*places);
    *places -= taken;
    taken
}

/// Which part of a floor asks for the most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its nodes.
    Nodes,
    /// Its share of the busy ones.
    Share(Percent, u32),
    /// Its quantile.
    Quantile,
    /// A slot of its schedule.
    Slot(Slot),
    /// The pool's demand signals.
    Signals,
    /// Off-hours, which allow no more, until then.
    OffHours(u32, Option<Timestamp>),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => f.write_str("nodes"),
            Self::Share(share, at_work) => write!(f, "percentOfBusy: {share} of {at_work} busy nodes"),
            Self::Quantile => f.write_str("quantile: as many were needed within its horizon"),
            Self::Slot(slot) => write!(f, "schedule {} {}", slot.cron, slot.time_zone.as_str()),
            Self::Signals => f.write_str("signals"),
            Self::OffHours(most, Some(until)) => {
                write!(f, "offHours.maxNodes {most} until {}", until.strftime("%Y-%m-%d %H:%MZ"))
            }
            Self::OffHours(most, None) => write!(f, "offHours.maxNodes {most}"),
        }
    }
}

impl WarmFloor {
    /// What it wants: the most that any of its parts asks for, and what off-hours leave of that. Of parts that ask for as much, the first
    /// is named.
    pub fn wanted(&self, basis: &Basis<'_>) -> Wanted {
        let Basis { at_work, quantile, signals, off_hours, wall } = *basis;
        let by_type = if self.quantile.is_some() { quantile.clone() } else { ByType::new() };
        let mut wanted = Wanted { nodes: self.nodes, by_type, why: Why::Nodes, changes_at: None };
        let of_quantile = sum(&wanted.by_type);
        let mut ask = |nodes: u32, why: Why| {
            if nodes > wanted.nodes {
                (wanted.nodes, wanted.why) = (nodes, why);
            }
        };
        if let Some(share) = self.percent_of_busy {
            let part = (u64::from(share.0) * u64::from(at_work)).div_ceil(100);
            ask(u32::try_from(part).unwrap_or(u32::MAX), Why::Share(share, at_work));
        }
        ask(of_quantile, Why::Quantile);
        let mut changes_at: Option<Timestamp> = None;
        for (slot, nodes) in &self.schedule {
            let (on, next) = slot.at(wall.0);
            changes_at = changes_at.into_iter().chain(next).min();
            if on {
                ask(*nodes, Why::Slot(slot.clone()));
            }
        }
        ask(signals.filter(|_| self.signals).unwrap_or(0), Why::Signals);
        if let Some(off) = off_hours
            && let Some(most) = off.max_nodes
        {
            let (on, next) = off.at(wall.0);
            changes_at = changes_at.into_iter().chain(next).min();
            let left = most.saturating_sub(at_work);
            if on && left < wanted.nodes {
                wanted.cut(left);
                wanted.why = Why::OffHours(most, next);
            }
        }
        wanted.changes_at = changes_at;
        wanted
    }
}
