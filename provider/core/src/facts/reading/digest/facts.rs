//! What one reading says of one GPU or instance, and what is kept of it from one reading to the next.

use jiff::{SignedDuration, Timestamp};

use super::{SETTLED, set};
use crate::base::units::MiB;
use crate::facts::reading::seen::Activity;
use crate::facts::reading::work::{Shares, is_somebodys};
use crate::facts::reading::{GpuProcess, Measured, MemoryLevel, Why};

/// How long the least use of memory is looked for.
const LEARNING: SignedDuration = SignedDuration::from_mins(1);
/// What a driver keeps for itself at most.
const MOST_BASELINE: u64 = MiB(1024).bytes();

/// The bits of `nvmlClocksEventReasons` that no healthy GPU shows for long: hardware slowdown, thermal slowdown by software or hardware,
/// power brake. The others (idle, set clocks, power cap, sync boost, display) are as it should be.
const SLOWED_DOWN: u64 = 0x8 | 0x20 | 0x40 | 0x80;
/// How long every reading must say so, or that it is over: hardware slowdown flashes when the performance state changes.
const SLOWED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// What is kept of a GPU or instance beside what is told.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    baseline: Baseline,
    /// Whether its clocks are held down as no healthy GPU's are, and since when every reading says that.
    slow: Option<(bool, Timestamp)>,
    /// The first of the readings without a sign of work.
    quiet_since: Option<Timestamp>,
}

/// Memory that is in use where nothing runs.
#[derive(Debug, Clone, Copy)]
enum Baseline {
    /// The least so far. Nothing counts as baseline yet: what is in use may be work.
    Learning { since: Option<Timestamp>, least: u64 },
    /// In bytes.
    Learnt(u64),
}

impl Default for Baseline {
    fn default() -> Self {
        Self::Learning { since: None, least: MOST_BASELINE }
    }
}

impl Baseline {
    const fn bytes(self) -> u64 {
        match self {
            Self::Learning { .. } => 0,
            Self::Learnt(bytes) => bytes,
        }
    }

    /// Takes one reading into account; `free` where it is known that nothing holds the GPU.
    fn learn(&mut self, used: u64, at: Timestamp, free: bool) {
        match self {
            // Less than the least is no work, whoever holds it.
            Self::Learnt(bytes) => *bytes = (*bytes).min(used),
            Self::Learning { .. } if !free => *self = Self::default(),
            Self::Learning { since, least } => {
                let began = *since.get_or_insert(at);
                *least = (*least).min(used);
                if at.duration_since(began) >= LEARNING {
                    *self = Self::Learnt(*least);
                }
            }
        }
    }
}

/// What one reading says of one GPU or instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    Active,
    Quiet,
    Unknown(Why),
}

/// The facts of one GPU or instance.
pub(super) struct Facts<'a> {
    pub(super) memory: Measured<MemoryLevel>,
    pub(super) processes: &'a Measured<Vec<GpuProcess>>,
    pub(super) shares: Shares,
    /// Whether it could be told how the GPU is split.
    pub(super) split: Option<Why>,
}

impl Facts<'_> {
    fn now(&self, baseline: u64) -> Now {
        let works = self.memory.known().is_some_and(|memory| is_somebodys(memory, baseline))
            || self.processes.known().is_some_and(|listed| !listed.is_empty())
            || self.shares.work();
        if works {
            return Now::Active;
        }
        if let Measured::Unknown(why) = self.memory {
            return Now::Unknown(why);
        }
        let unread = self.processes.unread().or(self.split).or_else(|| self.shares.unread());
        unread.map_or(Now::Quiet, Now::Unknown)
    }

    /// Whether nothing holds it, by what pods hold the node (where that is known) and by its own processes.
    fn is_free(&self, held: Option<bool>) -> bool {
        let listed = self.processes.known().map(Vec::is_empty);
        match held {
            Some(held) => !held && listed.unwrap_or(true),
            None => listed.unwrap_or(false),
        }
    }
}

impl Track {
    pub(super) fn judge(&mut self, facts: &Facts<'_>, held: Option<bool>, at: Timestamp) -> Now {
        if let Measured::Known(memory) = facts.memory {
            self.baseline.learn(memory.used, at, facts.is_free(held));
        }
        facts.now(self.baseline.bytes())
    }

    /// Whether its clocks count as held down, of which `told` was so before. What is not read each time stands.
    pub(super) fn slowed_down(&mut self, limits: Measured<u64>, told: bool, at: Timestamp) -> bool {
        let Measured::Known(bits) = limits else { return told };
        let slow = bits & SLOWED_DOWN != 0;
        let since = self.slow.filter(|(before, _)| *before == slow).map_or(at, |(_, since)| since);
        self.slow = Some((slow, since));
        if at.duration_since(since) >= SLOWED_FOR { slow } else { told }
    }

    /// Tells what a reading says; whether that is news.
    pub(super) fn tell(&mut self, told: &mut Activity, now: Now, at: Timestamp) -> bool {
        let next = match now {
            Now::Active => match *told {
                Activity::Active { .. } => None,
                _ => Some(Activity::Active { since: at }),
            },
            Now::Unknown(why) => match *told {
                Activity::Unknown { why: known, .. } if known == why => None,
                _ => Some(Activity::Unknown { why, since: at }),
            },
            Now::Quiet => {
                let since = self.quiet_since.unwrap_or(at);
                self.quiet_since = Some(since);
                let settled = at.duration_since(since) >= SETTLED;
                let known = matches!(told, Activity::Quiet { .. });
                (settled && !known).then_some(Activity::Quiet { since })
            }
        };
        if now != Now::Quiet {
            self.quiet_since = None;
        }
        next.is_some_and(|next| set(told, next))
    }
}

/// The one of two that matters more: work, then what cannot be told.
pub(super) const fn worst(one: Now, other: Now) -> Now {
    match (one, other) {
        (Now::Active, _) | (_, Now::Active) => Now::Active,
        (Now::Unknown(why), _) | (_, Now::Unknown(why)) => Now::Unknown(why),
        (Now::Quiet, Now::Quiet) => Now::Quiet,
    }
}
