//! Digest: a fold over one node's readings and events, from any source.
//!
//! A GPU or instance is active if one reading shows one of these: memory above a learnt baseline by
//! more than 256 MiB or 1 % of the total; a process; multiprocessors busy for 1 %; any kernel for 2
//! % of the time; the codec. Without its memory level it is never quiet, because memory is the one
//! fact that shows under MIG and across PID namespaces.

mod ailments;
mod facts;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::seen::{Activity, Ailment, Hearing, Notice, Seen, SeenGpu, Xids};
use super::work::{NEVER, Shares};
use super::{DriverState, GpuReading, Happening, Interruption, Measured, NodeEvent, NodeReading, Source, Why};
use crate::base::ids::GpuUuid;
use ailments::ailments;
use facts::{Facts, Now, Track, worst};

/// How long nothing must be at work before that is told, with when it began: short work that comes and goes then changes the snapshot
/// a few times a minute, and not each round. Nothing counts a node as warm in less than a minute.
pub const SETTLED: SignedDuration = SignedDuration::from_secs(15);

/// Most GPUs kept of one node: more than any machine has, even after some were replaced without a boot.
const MOST_GPUS: usize = 64;

/// The fold of one node.
#[derive(Debug, Clone)]
pub struct Digest {
    seen: Seen,
    tracks: BTreeMap<GpuUuid, Track>,
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

    /// The source speaks of that boot. Another one than before begins again; whether it did.
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
                // A probe tells the last ones again to a provider that restarted: they are as old as they were.
                self.seen.xids.add(*code, gpu.as_ref(), at.min(event.at));
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
                        shares: Shares { sm: level.sm_activity, utilization: NEVER, codec: NEVER },
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
            shares: Shares { sm: reading.sm_activity, utilization: reading.utilization, codec: reading.codec },
            split: reading.mig.unread(),
        };
        let track = self.tracks.entry(uuid.clone()).or_default();
        let now = inner.into_iter().fold(track.judge(&facts, held, at), worst);
        changed |= track.tell(&mut seen.activity, now, at);
        let mut ailing = ailments(reading, &seen.ailments);
        if track.slowed_down(reading.clock_limits, seen.ailments.contains(&Ailment::SlowedDown), at) {
            ailing.insert(Ailment::SlowedDown);
        }
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
        DriverState::Unknown => Why::NotReported,
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

/// Puts a value where another was; whether it differs.
fn set<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changed = *place != value;
    *place = value;
    changed
}

#[cfg(test)]
mod tests;
