//! From the levels that Prometheus gave to the reading of a GPU, the same as its probe would make.

use std::collections::{BTreeMap, HashMap};

use stoker_core::base::ids::GpuUuid;
use stoker_core::facts::reading::{Ecc, GpuReading, Measured, MemoryLevel, Mig, MigReading, Pcie, Permille, RemappedRows, Why};

use super::ask::{AskFailed, Row};
use super::dcgm::{Field, Level};
use super::labels::{Dropped, Drops, Of};

/// The answers of one round.
pub(super) struct Levels {
    /// By GPU or instance, in our units; absurd ones are unknown.
    rows: HashMap<Of, [Measured<u64>; Level::COUNT]>,
    /// Why nothing is known of a level, where it was not answered.
    failed: [Option<Why>; Level::COUNT],
}

impl Levels {
    pub(super) fn new() -> Self {
        Self { rows: HashMap::new(), failed: [None; Level::COUNT] }
    }

    /// Takes the answer to one question. Two series of the same, which only a proxy of several Prometheus can tell: the higher counts.
    pub(super) fn take(&mut self, field: &Field, answer: Result<&[Row], &AskFailed>, drops: &mut Drops) {
        let at = field.level as usize;
        let rows = match answer {
            Ok(rows) => rows,
            Err(failed) => {
                self.failed[at] = Some(failed.why());
                return;
            }
        };
        for row in rows {
            let Some(of) = Of::told_by(row) else {
                *drops.entry(Dropped::NoGpu).or_default() += 1;
                continue;
            };
            let level = field.read(row.number()).map_or(Measured::Unknown(Why::Absurd), Measured::Known);
            if level.known().is_none() {
                *drops.entry(Dropped::Absurd).or_default() += 1;
            }
            let levels = self.rows.entry(of).or_insert([Measured::Unknown(Why::NotReported); Level::COUNT]);
            levels[at] = most(level, levels[at]);
        }
    }

    fn get(&self, level: Level, of: &Of) -> Measured<u64> {
        match self.failed[level as usize] {
            Some(why) => Measured::Unknown(why),
            None => self.rows.get(of).map(|levels| levels[level as usize]).unwrap_or_default(),
        }
    }

    /// The last XID that a GPU had, where it is told; a GPU that is split may tell it by instance alone.
    pub(super) fn xid(&self, gpu: &GpuUuid, instances: &BTreeMap<u32, String>) -> Option<u32> {
        let whole = self.get(Level::Xid, &Of { gpu: gpu.clone(), instance: None });
        let told = |instance| self.get(Level::Xid, &Of { gpu: gpu.clone(), instance: Some(instance) });
        let xid = instances.keys().fold(whole, |xid, instance| first(xid, told(*instance)));
        xid.known().and_then(|xid| u32::try_from(*xid).ok())
    }

    /// The reading of a GPU with these instances (by number, with their profile); who it is, is left to the caller.
    pub(super) fn gpu(&self, gpu: &GpuUuid, instances: &BTreeMap<u32, String>) -> GpuReading {
        let of = Of { gpu: gpu.clone(), instance: None };
        let level = |level| self.get(level, &of);
        GpuReading {
            utilization: higher(level(Level::Utilization), level(Level::EngineActivity)),
            sm_activity: share(level(Level::SmActivity)),
            memory_bandwidth: share(level(Level::Bandwidth)),
            memory: self.memory(&of),
            power_mw: level(Level::Power),
            power_limit_mw: first(level(Level::PowerLimit), level(Level::PowerLimitAsked)),
            temperature_c: map(level(Level::Temperature), |celsius| i32::try_from(celsius).ok()),
            clocks_mhz: all([level(Level::SmClock), level(Level::MemoryClock)], |[sm, memory]| {
                Some((small(sm)?, small(memory)?))
            }),
            clock_limits: level(Level::ClockLimits),
            ecc: self.ecc(&of),
            remapped_rows: self.remapped_rows(&of),
            retired_pages_pending: map(level(Level::RetiredPending), |pages| Some(pages > 0)),
            recovery_action: map(level(Level::Recovery), |action| u8::try_from(action).ok()),
            pcie: self.pcie(&of),
            energy_mj: level(Level::Energy),
            mig: self.mig(&of, instances),
            persistence: map(level(Level::Persistence), |mode| Some(mode > 0)),
            codec: higher(level(Level::Encoder), level(Level::Decoder)),
            ..GpuReading::default()
        }
    }

    /// Where the exporter does not tell what the driver keeps, that is part of what is used, as older drivers count.
    fn memory(&self, of: &Of) -> Measured<MemoryLevel> {
        let level = |level| self.get(level, of);
        let reserved = level(Level::MemoryReserved).known().copied().unwrap_or(0);
        all([level(Level::MemoryUsed), level(Level::MemoryFree)], |[used, free]| {
            Some(MemoryLevel { used, total: used + free + reserved, reserved })
        })
    }

    /// An exporter tells no errors of a GPU that does not look for them.
    fn ecc(&self, of: &Of) -> Measured<Ecc> {
        let counts = [Level::EccUncorrected, Level::EccCorrected, Level::EccUncorrectedEver].map(|level| self.get(level, of));
        all(counts, |[uncorrected_volatile, corrected_volatile, uncorrected_aggregate]| {
            Some(Ecc { enabled: true, uncorrected_volatile, corrected_volatile, uncorrected_aggregate })
        })
    }

    fn remapped_rows(&self, of: &Of) -> Measured<RemappedRows> {
        let level = |level| self.get(level, of);
        let counts = [Level::RowsCorrectable, Level::RowsUncorrectable, Level::RowsFailed].map(level);
        all(counts, |[correctable, uncorrectable, failed]| {
            Some(RemappedRows {
                correctable: small(correctable)?,
                uncorrectable: small(uncorrectable)?,
                pending: map(level(Level::RowsPending), |rows| Some(rows > 0)),
                failed: failed > 0,
            })
        })
    }

    fn pcie(&self, of: &Of) -> Measured<Pcie> {
        let levels =
            [Level::PcieGeneration, Level::PcieWidth, Level::PcieMaxGeneration, Level::PcieMaxWidth, Level::PcieReplays];
        all(levels.map(|level| self.get(level, of)), |[generation, width, max_generation, max_width, replays]| {
            Some(Pcie {
                generation: small(generation)?,
                width: small(width)?,
                max_generation: small(max_generation)?,
                max_width: small(max_width)?,
                replays,
            })
        })
    }

    /// An instance is told by its GPU and its number: an exporter gives neither its own UUID nor its compute instance. Whether another
    /// mode waits for a reset is not told either.
    fn mig(&self, of: &Of, instances: &BTreeMap<u32, String>) -> Measured<Mig> {
        if instances.is_empty() {
            return map(self.get(Level::MigMode, of), |mode| Some(Mig { enabled: mode > 0, ..Mig::default() }));
        }
        let device = |(number, profile): (&u32, &String)| {
            let of = Of { gpu: of.gpu.clone(), instance: Some(*number) };
            let reading = MigReading {
                gpu_instance: *number,
                name: profile.clone(),
                memory: self.memory(&of),
                // Of a part of a GPU the engine's activity is told more often than the multiprocessors'.
                sm_activity: share(first(self.get(Level::SmActivity, &of), self.get(Level::EngineActivity, &of))),
                memory_bandwidth: share(self.get(Level::Bandwidth, &of)),
                ..MigReading::default()
            };
            // As drivers before 470 name one.
            GpuUuid::new(format!("MIG-{}/{number}/0", of.gpu)).ok().map(|uuid| (uuid, reading))
        };
        Measured::Known(Mig { enabled: true, pending_change: false, devices: instances.iter().filter_map(device).collect() })
    }
}

/// The higher of two; what is unknown gives way.
fn most(one: Measured<u64>, other: Measured<u64>) -> Measured<u64> {
    match (one, other) {
        (Measured::Known(one), Measured::Known(other)) => Measured::Known(one.max(other)),
        _ => first(one, other),
    }
}

/// The first that is known, or the reason that says more than that nothing was told.
fn first(one: Measured<u64>, other: Measured<u64>) -> Measured<u64> {
    match (one, other) {
        (Measured::Unknown(_), Measured::Known(_)) | (Measured::Unknown(Why::NotReported), _) => other,
        _ => one,
    }
}

fn higher(one: Measured<u64>, other: Measured<u64>) -> Measured<Permille> {
    share(most(one, other))
}

fn share(level: Measured<u64>) -> Measured<Permille> {
    map(level, |thousandths| u16::try_from(thousandths).ok().and_then(Permille::new))
}

fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn map<T>(level: Measured<u64>, read: impl FnOnce(u64) -> Option<T>) -> Measured<T> {
    all([level], |[level]| read(level))
}

/// What several levels make together; unknown for the first reason where one is.
fn all<const N: usize, T>(levels: [Measured<u64>; N], make: impl FnOnce([u64; N]) -> Option<T>) -> Measured<T> {
    let mut known = [0; N];
    for (slot, level) in known.iter_mut().zip(levels) {
        match level {
            Measured::Known(level) => *slot = level,
            Measured::Unknown(why) => return Measured::Unknown(why),
        }
    }
    make(known).map_or(Measured::Unknown(Why::Absurd), Measured::Known)
}
