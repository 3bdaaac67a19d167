//! From readings to what has been seen: a fold over one node's rounds and events, whoever read them.
//!
//! The facts of a GPU or instance, and their thresholds: memory above a learnt baseline by more than 256 MiB or 1 % of the total; a
//! process; multiprocessors busy for 1 %; any kernel for 2 % of the time; the codec. One of them in one reading makes it active. Without
//! its memory it is never quiet, because that is the one fact that shows under MIG and across PID namespaces.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::seen::{Activity, Ailment, HealthFact, Hearing, Notice, Seen, SeenGpu, Xids};
use super::{
    DriverState, GpuProcess, GpuReading, Happening, Interruption, Measured, MemoryLevel, NodeEvent, NodeReading, Permille,
    Source, Why,
};
use crate::ids::GpuUuid;
use crate::units::MiB;

/// How long nothing must be at work before that is told, with when it began: short work that comes and goes then changes the snapshot
/// a few times a minute, and not each round. Nothing counts a node as warm in less than a minute.
pub const SETTLED: SignedDuration = SignedDuration::from_secs(15);

/// How long the least use of memory is looked for.
const LEARNING: SignedDuration = SignedDuration::from_mins(1);
/// What a driver keeps for itself at most.
const MOST_BASELINE: u64 = MiB(1024).bytes();
/// Use above the baseline that proves nothing.
const MEMORY_SLACK: u64 = MiB(256).bytes();
/// Multiprocessor activity that is work, in thousandths.
const SM_WORK: u16 = 10;
/// Utilization that is work, in thousandths. A stray sample of an idle GPU may read one percent.
const UTILIZATION_WORK: u16 = 20;
/// Most GPUs kept of one node: more than any machine has, even after some were replaced without a boot.
const MOST_GPUS: usize = 64;

/// The fold of one node.
#[derive(Debug, Clone)]
pub struct Digest {
    seen: Seen,
    tracks: BTreeMap<GpuUuid, Track>,
}

/// What is kept of a GPU or instance beside what is told.
#[derive(Debug, Clone, Default)]
struct Track {
    baseline: Baseline,
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
                let since = *since.get_or_insert(at);
                *least = (*least).min(used);
                if at.duration_since(since) >= LEARNING {
                    *self = Self::Learnt(*least);
                }
            }
        }
    }
}

/// What one reading says of one GPU or instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Active,
    Quiet,
    Unknown(Why),
}

/// The facts of one GPU or instance.
struct Facts<'a> {
    memory: Measured<MemoryLevel>,
    processes: &'a Measured<Vec<GpuProcess>>,
    /// Shares of time, each with what is work.
    shares: [(Measured<Permille>, u16); 3],
    /// Whether it could be told how the GPU is split.
    split: Option<Why>,
}

impl Facts<'_> {
    fn now(&self, baseline: u64) -> Now {
        let over = |memory: &MemoryLevel| memory.used.saturating_sub(baseline) > MEMORY_SLACK.max(memory.total / 100);
        let works = self.memory.known().is_some_and(over)
            || self.processes.known().is_some_and(|listed| !listed.is_empty())
            || self.shares.iter().any(|(share, work)| share.known().is_some_and(|share| share.get() >= *work));
        if works {
            return Now::Active;
        }
        if let Measured::Unknown(why) = self.memory {
            return Now::Unknown(why);
        }
        let others = [unread(self.processes), self.split].into_iter().chain(self.shares.iter().map(|(share, _)| unread(share)));
        others.flatten().next().map_or(Now::Quiet, Now::Unknown)
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

/// Why something that this hardware and source do read was not read this time; `None` where it was, or never is.
const fn unread<T>(level: &Measured<T>) -> Option<Why> {
    match level {
        Measured::Known(_) | Measured::Unknown(Why::NotReported | Why::NotSupported | Why::NoPermission | Why::NotTrusted) => {
            None
        }
        Measured::Unknown(why) => Some(*why),
    }
}

impl Digest {
    /// A node of which nothing has come yet.
    pub const fn new(source: Source, at: Timestamp) -> Self {
        let seen = Seen {
            source,
            boot: None,
            hearing: Hearing::Silent { since: at },
            driver: Measured::Unknown(Why::NotReported),
            counted: Measured::Unknown(Why::NotReported),
            gpus: BTreeMap::new(),
            gates: BTreeMap::new(),
            xids: Xids { kinds: Vec::new(), left_out: 0 },
            notice: None,
        };
        Self { seen, tracks: BTreeMap::new() }
    }

    /// What has been seen so far.
    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The source speaks of that boot. Another one than before begins anew; whether it did.
    pub fn booted(&mut self, boot: &str, at: Timestamp) -> bool {
        if self.seen.boot.as_deref() == Some(boot) {
            return false;
        }
        *self = Self::new(self.seen.source, at);
        self.seen.boot = Some(boot.to_owned());
        true
    }

    /// Takes a reading in; whether anything changed. `held`: whether pods hold the node, `None` where nobody tells.
    ///
    /// Readings are taken in the order in which they arrive.
    pub fn read(&mut self, reading: &NodeReading, held: Option<bool>) -> bool {
        let NodeReading { arrived, source, driver, counted, gpus, gates } = reading;
        let at = *arrived;
        let mut changed = set(&mut self.seen.source, *source);
        if let Hearing::Silent { .. } = self.seen.hearing {
            self.seen.hearing = Hearing::Heard { since: at };
            changed = true;
        }
        changed |= set(&mut self.seen.driver, Measured::Known(*driver));
        changed |= set(&mut self.seen.counted, *counted);
        if self.seen.gates != *gates {
            self.seen.gates.clone_from(gates);
            changed = true;
        }
        for (uuid, gpu) in gpus {
            changed |= self.gpu(uuid, gpu, held, at);
        }
        let why = absent(*driver);
        for (uuid, gpu) in &mut self.seen.gpus {
            if !gpus.contains_key(uuid) {
                changed |= lose(gpu, &mut self.tracks, uuid, why, at);
            }
        }
        changed | self.bound()
    }

    /// Takes an event in; whether anything changed.
    pub fn happened(&mut self, event: &NodeEvent) -> bool {
        let at = event.arrived;
        match &event.what {
            Happening::Xid { code, gpu } => {
                self.seen.xids.add(*code, gpu.as_ref(), at);
                true
            }
            Happening::Interruption { kind: Interruption::Withdrawn, deadline: _ } => self.seen.notice.take().is_some(),
            Happening::Interruption { kind, deadline } => {
                let told = self.seen.notice;
                let graver = told.is_none_or(|told| rank(*kind) >= rank(told.kind));
                let other = told.is_none_or(|told| (told.kind, told.deadline) != (*kind, *deadline));
                if graver && other {
                    self.seen.notice = Some(Notice { kind: *kind, deadline: *deadline, since: at });
                }
                graver && other
            }
        }
    }

    /// No reading has come since `since`, for longer than one may be late; whether that is news.
    pub fn silent(&mut self, since: Timestamp, now: Timestamp) -> bool {
        if let Hearing::Silent { .. } = self.seen.hearing {
            return false;
        }
        self.seen.hearing = Hearing::Silent { since };
        for (uuid, gpu) in &mut self.seen.gpus {
            lose(gpu, &mut self.tracks, uuid, Why::NotReported, now);
        }
        true
    }

    fn gpu(&mut self, uuid: &GpuUuid, reading: &GpuReading, held: Option<bool>, at: Timestamp) -> bool {
        let seen = self.seen.gpus.entry(uuid.clone()).or_insert_with(|| SeenGpu {
            name: String::new(),
            activity: fresh(at),
            instances: BTreeMap::new(),
            ailments: BTreeSet::new(),
        });
        let mut changed = false;
        if !reading.name.is_empty() && seen.name != reading.name {
            seen.name.clone_from(&reading.name);
            changed = true;
        }
        if let Measured::Known(mig) = &reading.mig {
            let gone: Vec<GpuUuid> = seen
                .instances
                .keys()
                .filter(|instance| !mig.enabled || !mig.devices.contains_key(*instance))
                .cloned()
                .collect();
            let fresh_ones = mig.enabled && mig.devices.keys().any(|instance| !seen.instances.contains_key(instance));
            if !gone.is_empty() || fresh_ones {
                // Split otherwise: what the driver keeps for itself is another amount.
                self.tracks.remove(uuid);
                changed = true;
            }
            for instance in gone {
                seen.instances.remove(&instance);
                self.tracks.remove(&instance);
            }
        }
        let mut inner = Vec::new();
        match &reading.mig {
            Measured::Known(mig) if mig.enabled => {
                for (instance, level) in &mig.devices {
                    let facts = Facts {
                        memory: level.memory,
                        processes: &level.processes,
                        shares: [(level.sm_activity, SM_WORK), (NEVER, 0), (NEVER, 0)],
                        split: None,
                    };
                    let activity = seen.instances.entry(instance.clone()).or_insert_with(|| fresh(at));
                    let track = self.tracks.entry(instance.clone()).or_default();
                    let now = track.judge(&facts, held, at);
                    inner.push(now);
                    changed |= track.tell(activity, now, at);
                }
            }
            Measured::Known(_) => {}
            Measured::Unknown(why) => {
                for (instance, activity) in &mut seen.instances {
                    let track = self.tracks.entry(instance.clone()).or_default();
                    inner.push(Now::Unknown(*why));
                    changed |= track.tell(activity, Now::Unknown(*why), at);
                }
            }
        }
        let facts = Facts {
            memory: reading.memory,
            processes: &reading.processes,
            shares: [(reading.sm_activity, SM_WORK), (reading.utilization, UTILIZATION_WORK), (reading.codec, 1)],
            split: unread(&reading.mig),
        };
        let track = self.tracks.entry(uuid.clone()).or_default();
        let now = inner.into_iter().fold(track.judge(&facts, held, at), worst);
        changed |= track.tell(&mut seen.activity, now, at);
        let ailing = ailments(reading, &seen.ailments);
        changed | set(&mut seen.ailments, ailing)
    }

    /// Forgets lost GPUs where more are kept than a machine has.
    fn bound(&mut self) -> bool {
        let lost = |gpu: &SeenGpu| matches!(gpu.activity, Activity::Unknown { why: Why::GpuLost, .. });
        let mut changed = false;
        while self.seen.gpus.len() > MOST_GPUS {
            let oldest = self.seen.gpus.iter().find(|(_, gpu)| lost(gpu)).map(|(uuid, _)| uuid.clone());
            let Some(uuid) = oldest.or_else(|| self.seen.gpus.keys().next_back().cloned()) else { break };
            if let Some(gpu) = self.seen.gpus.remove(&uuid) {
                self.tracks.retain(|track, _| *track != uuid && !gpu.instances.contains_key(track));
            }
            changed = true;
        }
        changed
    }
}

/// A share that an instance does not have.
const NEVER: Measured<Permille> = Measured::Unknown(Why::NotSupported);

impl Track {
    fn judge(&mut self, facts: &Facts<'_>, held: Option<bool>, at: Timestamp) -> Now {
        if let Measured::Known(memory) = facts.memory {
            self.baseline.learn(memory.used, at, facts.is_free(held));
        }
        facts.now(self.baseline.bytes())
    }

    /// Tells what a reading says; whether that is news.
    fn tell(&mut self, told: &mut Activity, now: Now, at: Timestamp) -> bool {
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
                let since = *self.quiet_since.get_or_insert(at);
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
const fn worst(one: Now, other: Now) -> Now {
    match (one, other) {
        (Now::Active, _) | (_, Now::Active) => Now::Active,
        (Now::Unknown(why), _) | (_, Now::Unknown(why)) => Now::Unknown(why),
        (Now::Quiet, Now::Quiet) => Now::Quiet,
    }
}

/// A GPU or instance of which there is one reading at most.
const fn fresh(at: Timestamp) -> Activity {
    Activity::Unknown { why: Why::NotYet, since: at }
}

/// Marks a GPU that was not told of; whether that is news.
fn lose(gpu: &mut SeenGpu, tracks: &mut BTreeMap<GpuUuid, Track>, uuid: &GpuUuid, why: Why, at: Timestamp) -> bool {
    let mut changed = tracks.entry(uuid.clone()).or_default().tell(&mut gpu.activity, Now::Unknown(why), at);
    for (instance, activity) in &mut gpu.instances {
        changed |= tracks.entry(instance.clone()).or_default().tell(activity, Now::Unknown(why), at);
    }
    changed
}

/// Why a GPU that was there before is not told of.
const fn absent(driver: DriverState) -> Why {
    match driver {
        DriverState::Ready => Why::GpuLost,
        DriverState::NoPermission => Why::NoPermission,
        DriverState::Hung => Why::TimedOut,
        DriverState::LibraryMissing | DriverState::DriverNotLoaded | DriverState::VersionMismatch | DriverState::Failed => {
            Why::Failed
        }
    }
}

/// How grave a notice is: a machine that ends is not forgotten for one that may.
const fn rank(kind: Interruption) -> u8 {
    match kind {
        Interruption::Reclaim => 2,
        Interruption::Maintenance => 1,
        Interruption::Rebalance | Interruption::Withdrawn => 0,
    }
}

/// What is wrong with a GPU. What is not read each time stands as it was last read.
fn ailments(reading: &GpuReading, before: &BTreeSet<Ailment>) -> BTreeSet<Ailment> {
    let mut ailments = BTreeSet::new();
    let mut add = |fact: HealthFact, why: Option<Why>, found: Vec<Ailment>| match why {
        None | Some(Why::NotSupported | Why::NoPermission) => ailments.extend(found),
        Some(Why::NotReported | Why::NotYet) => ailments.extend(before.iter().filter(|ailment| ailment.fact() == fact)),
        Some(why) => {
            ailments.insert(Ailment::Unread(fact, why));
        }
    };
    let action = found(&reading.recovery_action, |action| (*action > 0).then_some(Ailment::RecoveryAction(*action)));
    add(HealthFact::RecoveryAction, why(&reading.recovery_action), action);
    let pending = found(&reading.remapped_rows, |rows| rows.pending.then_some(Ailment::RemapPending));
    let failed = found(&reading.remapped_rows, |rows| rows.failed.then_some(Ailment::RemapFailed));
    add(HealthFact::RemappedRows, why(&reading.remapped_rows), [pending, failed].concat());
    let retired = found(&reading.retired_pages_pending, |pending| pending.then_some(Ailment::RetirementPending));
    add(HealthFact::RetiredPages, why(&reading.retired_pages_pending), retired);
    let errors = |count: u64| (count > 0).then_some(Ailment::UncorrectedErrors(count));
    add(HealthFact::Ecc, why(&reading.ecc), found(&reading.ecc, |ecc| errors(ecc.uncorrected_volatile)));
    let owed = found(&reading.mig, |mig| mig.pending_change.then_some(Ailment::MigChangePending));
    add(HealthFact::Mig, why(&reading.mig), owed);
    ailments
}

fn found<T>(level: &Measured<T>, of: impl Fn(&T) -> Option<Ailment>) -> Vec<Ailment> {
    level.known().and_then(of).into_iter().collect()
}

const fn why<T>(level: &Measured<T>) -> Option<Why> {
    match level {
        Measured::Known(_) => None,
        Measured::Unknown(why) => Some(*why),
    }
}

/// Puts a value where another was; whether it differs.
fn set<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changed = *place != value;
    *place = value;
    changed
}

#[cfg(test)]
mod tests;
