//! From what a probe sends to readings: where the wire ends.
//!
//! What hardware cannot have becomes unknown, [`Why::Absurd`], and is counted, whether the probe says so or we see it; the rest of the round stands. A round that does not say
//! which GPU it means, or when it was read, is not taken at all.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Times;
use stoker_core::base::ids::GpuUuid;
use stoker_core::facts::reading::{
    DriverState, Ecc, Gate, GateResult, GpuProcess, GpuReading, Happening, Interruption, Measured, MemoryLevel, Mig,
    MigReading, NodeEvent, NodeReading, NvLink, Pcie, Permille, RemappedRows, Source, Why,
};
use stoker_proto::limits;
use stoker_proto::probe as wire;
use stoker_proto::probe::Signal;

use super::reason::Reason;

/// How far a node's clock may be ahead of ours.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);
/// Most GPUs of one node. The largest machines have 16.
const MOST_GPUS: usize = 64;
/// Most MIG devices of one GPU. None has more than 7.
const MOST_INSTANCES: usize = 16;
/// Most GPUs that a driver may count.
const MOST_COUNTED: u32 = 1024;
/// Longest name, UUID or container id, in bytes.
const MOST_NAME: usize = 128;
/// Processes of the machine's own that compute nothing, by what the kernel keeps of their names, 15 bytes: `nv-hostengine` and
/// `nvidia-cuda-mps-server`.
const HELPERS: [&str; 2] = ["nv-hostengine", "nvidia-cuda-mps"];
/// Longest explanation, in bytes.
const MOST_WORDS: usize = 256;

/// A reading, when it was taken by the node's clock, and how many of its levels were absurd.
#[derive(Debug)]
pub struct Converted {
    /// The reading.
    pub reading: NodeReading,
    /// When it was taken.
    pub at: Timestamp,
    /// Levels that were left out, and GPUs whose UUID another has as well.
    pub absurd: u32,
}

/// A round as a reading that arrives now.
///
/// # Errors
/// [`Reason::Malformed`], [`Reason::Future`] or [`Reason::TooLarge`]: nothing of it is to be taken.
pub fn round(round: wire::Round, times: Times) -> Result<Converted, Reason> {
    let at = moment(round.at.as_ref(), times)?;
    if round.gpus.len() > MOST_GPUS {
        return Err(Reason::TooLarge);
    }
    let mut absurd = Absurd(0);
    let driver = match round.driver.as_ref().map(wire::Driver::state) {
        Some(wire::driver::State::Ready) => DriverState::Ready,
        Some(wire::driver::State::LibraryMissing) => DriverState::LibraryMissing,
        Some(wire::driver::State::DriverNotLoaded) => DriverState::DriverNotLoaded,
        Some(wire::driver::State::VersionMismatch) => DriverState::VersionMismatch,
        Some(wire::driver::State::NoPermission) => DriverState::NoPermission,
        Some(wire::driver::State::Hung) => DriverState::Hung,
        // Also what a newer probe may call it.
        Some(wire::driver::State::Failed | wire::driver::State::Unspecified) | None => DriverState::Failed,
    };
    let mut gpus = BTreeMap::new();
    for gpu in round.gpus {
        // One that could not even be asked who it is: it is among those counted.
        if gpu.uuid.is_empty() {
            continue;
        }
        let uuid = uuid(&gpu.uuid)?;
        let index = gpu.index;
        let reading = absurd.gpu(gpu)?;
        match gpus.entry(uuid) {
            Entry::Vacant(place) => {
                place.insert(reading);
            }
            // Nobody can tell whose levels are whose; the other GPUs' are as good as ever.
            Entry::Occupied(mut place) => {
                absurd.0 += 1;
                place.insert(doubled(index));
            }
        }
    }
    let counted = match round.gpus_counted {
        Some(count) => absurd.known(count, count <= MOST_COUNTED),
        None => Measured::default(),
    };
    let gates = round.gates.iter().filter_map(|gate| Some((kind(gate.kind())?, result(gate)))).collect();
    let reading = NodeReading { arrived: times.now, source: Source::Probe, driver, counted, gpus, gates };
    Ok(Converted { reading, at, absurd: absurd.0 })
}

/// Whether that moment of a node's clock lies too far ahead of ours.
pub fn is_ahead(at: Option<&stoker_proto::Timestamp>, times: Times) -> bool {
    moment(at, times) == Err(Reason::Future)
}

/// An event that arrives now; `None` for a kind that a newer probe may have. One that [`is_ahead`] happened now: unlike a reading it is
/// told once, and that a machine will go or a GPU failed is so whatever the node's clock says.
///
/// # Errors
/// [`Reason::Malformed`].
pub fn event(event: &wire::Event, times: Times) -> Result<Option<NodeEvent>, Reason> {
    let told = event.at.as_ref().and_then(timestamp).ok_or(Reason::Malformed)?;
    let at = moment(event.at.as_ref(), times).unwrap_or(times.now);
    // As far from the event as the node says.
    let by_ours = |due: Timestamp| due.saturating_add(at.duration_since(told)).unwrap_or(due);
    let what = match &event.kind {
        Some(wire::event::Kind::Xid(xid)) => {
            let gpu = if xid.gpu_uuid.is_empty() { None } else { Some(uuid(&xid.gpu_uuid)?) };
            Happening::Xid { code: xid.code, gpu }
        }
        Some(wire::event::Kind::Interruption(notice)) => {
            let kind = match notice.kind() {
                wire::interruption::Kind::Reclaim => Interruption::Reclaim,
                wire::interruption::Kind::Rebalance => Interruption::Rebalance,
                wire::interruption::Kind::Maintenance => Interruption::Maintenance,
                wire::interruption::Kind::Withdrawn => Interruption::Withdrawn,
                wire::interruption::Kind::Unspecified => return Ok(None),
            };
            Happening::Interruption { kind, deadline: notice.deadline.as_ref().and_then(timestamp).map(by_ours) }
        }
        None => return Ok(None),
    };
    Ok(Some(NodeEvent { arrived: times.now, at, what }))
}

fn timestamp(at: &stoker_proto::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// When something was of which the node's clock tells; a little ahead of ours is now. Where somebody set the wall since Stoker started, one of
/// its clocks is off from the node's: that by which the moment is nearest is believed, and nobody falls silent.
fn moment(at: Option<&stoker_proto::Timestamp>, times: Times) -> Result<Timestamp, Reason> {
    let at = at.and_then(timestamp).ok_or(Reason::Malformed)?;
    let [ours, walls] = [times.now, times.wall.0].map(|clock| clock.duration_since(at));
    let by_the_wall = ours.saturating_sub(walls).abs() > AHEAD && walls >= -AHEAD && (ours < -AHEAD || walls < ours);
    if by_the_wall {
        return Ok(times.now.saturating_sub(walls.max(SignedDuration::ZERO)).unwrap_or(times.now));
    }
    if ours < -AHEAD { Err(Reason::Future) } else { Ok(at.min(times.now)) }
}

fn uuid(text: &str) -> Result<GpuUuid, Reason> {
    if text.len() > MOST_NAME {
        return Err(Reason::Malformed);
    }
    GpuUuid::new(text).map_err(|_| Reason::Malformed)
}

/// A text for people: of bounded length, and nothing in it that a terminal obeys.
fn words(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if kept.len() + c.len_utf8() > most {
            break;
        }
        kept.push(c);
    }
    kept
}

const fn kind(kind: wire::gate::Kind) -> Option<Gate> {
    Some(match kind {
        wire::gate::Kind::Driver => Gate::Driver,
        wire::gate::Kind::DriverVersion => Gate::DriverVersion,
        wire::gate::Kind::GpuCount => Gate::GpuCount,
        wire::gate::Kind::GpuModel => Gate::GpuModel,
        wire::gate::Kind::GpuMemory => Gate::GpuMemory,
        wire::gate::Kind::Events => Gate::Events,
        wire::gate::Kind::Unspecified => return None,
    })
}

fn result(gate: &wire::Gate) -> GateResult {
    match gate.result() {
        wire::gate::Result::Passed => GateResult::Passed,
        wire::gate::Result::Failed => GateResult::Failed(words(&gate.detail, MOST_WORDS)),
        wire::gate::Result::Unknown | wire::gate::Result::Unspecified => GateResult::Unknown(words(&gate.detail, MOST_WORDS)),
    }
}

/// Whether it is a helper of the machine's own: a pod may give its processes any name.
fn is_helper(process: &wire::Process) -> bool {
    let kept = process.name.get(..15).unwrap_or(&process.name);
    process.pod_uid.is_empty() && HELPERS.contains(&kept)
}

/// Which signals are unknown, and why.
struct Unknowns<'a>(&'a [wire::Unknown]);

impl Unknowns<'_> {
    /// The level, unless it is named as unknown: who says both knows nothing.
    fn level<T>(&self, signal: Signal, value: Option<T>) -> Result<T, Why> {
        let named = self.0.iter().find(|unknown| unknown.signal() == signal);
        match (named.map(wire::Unknown::why), value) {
            (None, Some(value)) => Ok(value),
            (None, None) => Err(Why::NotReported),
            (Some(wire::Why::NotSupported), _) => Err(Why::NotSupported),
            (Some(wire::Why::NoPermission), _) => Err(Why::NoPermission),
            (Some(wire::Why::GpuLost), _) => Err(Why::GpuLost),
            (Some(wire::Why::TimedOut), _) => Err(Why::TimedOut),
            (Some(wire::Why::NotYet), _) => Err(Why::NotYet),
            (Some(wire::Why::NotTrusted), _) => Err(Why::NotTrusted),
            (Some(wire::Why::Absurd), _) => Err(Why::Absurd),
            // Also what a newer probe may call it.
            (Some(wire::Why::Failed | wire::Why::Unspecified), _) => Err(Why::Failed),
        }
    }
}

/// What is known of GPUs that go by one UUID: nothing.
fn doubled(index: u32) -> GpuReading {
    let why = Why::Absurd;
    GpuReading {
        index,
        utilization: Measured::Unknown(why),
        sm_activity: Measured::Unknown(why),
        memory_bandwidth: Measured::Unknown(why),
        memory: Measured::Unknown(why),
        processes: Measured::Unknown(why),
        mig: Measured::Unknown(why),
        codec: Measured::Unknown(why),
        ..GpuReading::default()
    }
}

/// Counts absurd levels.
struct Absurd(u32);

impl Absurd {
    /// Counts what the probe itself calls so.
    fn told(&mut self, unknown: &[wire::Unknown]) {
        let absurd = unknown.iter().filter(|unknown| unknown.why() == wire::Why::Absurd).count();
        self.0 = self.0.saturating_add(u32::try_from(absurd).unwrap_or(u32::MAX));
    }

    fn known<T>(&mut self, level: T, sane: bool) -> Measured<T> {
        if sane {
            return Measured::Known(level);
        }
        self.0 += 1;
        Measured::Unknown(Why::Absurd)
    }

    fn level<T>(&mut self, level: Result<T, Why>, sane: impl FnOnce(&T) -> bool) -> Measured<T> {
        match level {
            Ok(level) => {
                let sane = sane(&level);
                self.known(level, sane)
            }
            Err(why) => Measured::Unknown(why),
        }
    }

    fn share(&mut self, level: Result<u32, Why>) -> Measured<Permille> {
        let share = |thousandths: u32| u16::try_from(thousandths).ok().and_then(Permille::new);
        match level {
            Ok(thousandths) => match share(thousandths) {
                Some(share) => Measured::Known(share),
                None => self.known(Permille::default(), false),
            },
            Err(why) => Measured::Unknown(why),
        }
    }

    fn memory(&mut self, level: Result<wire::Memory, Why>) -> Measured<MemoryLevel> {
        let level = level.map(|m| MemoryLevel { used: m.used_bytes, total: m.total_bytes, reserved: m.reserved_bytes });
        self.level(level, |m| m.used <= m.total && m.reserved <= m.total && (1..=limits::MEMORY).contains(&m.total))
    }

    fn processes(&mut self, level: Result<wire::Processes, Why>) -> Measured<Vec<GpuProcess>> {
        let mut one = |process: wire::Process| {
            let memory = process.memory_bytes.filter(|bytes| *bytes <= limits::MEMORY);
            self.0 += u32::from(memory != process.memory_bytes);
            let id = |text: String| (!text.is_empty()).then(|| words(&text, MOST_NAME));
            GpuProcess { pid: process.pid, memory, container: id(process.container_id), pod_uid: id(process.pod_uid) }
        };
        match level {
            Ok(listed) => {
                Measured::Known(listed.compute.into_iter().filter(|process| !is_helper(process)).map(&mut one).collect())
            }
            Err(why) => Measured::Unknown(why),
        }
    }

    fn gpu(&mut self, gpu: wire::Gpu) -> Result<GpuReading, Reason> {
        self.told(&gpu.unknown);
        let unknown = Unknowns(&gpu.unknown);
        let of = |signal, value| unknown.level(signal, value);
        let clocks = gpu.clocks.map(|clocks| (clocks.sm_mhz, clocks.memory_mhz));
        let ecc = gpu.ecc.map(|ecc| Ecc {
            enabled: ecc.enabled,
            uncorrected_volatile: ecc.uncorrected_volatile,
            corrected_volatile: ecc.corrected_volatile,
            uncorrected_aggregate: ecc.uncorrected_aggregate,
        });
        let rows = gpu.remapped_rows.map(|rows| RemappedRows {
            correctable: rows.correctable,
            uncorrectable: rows.uncorrectable,
            pending: Measured::Known(rows.pending),
            failed: rows.failed,
        });
        let pcie = gpu.pcie.map(|pcie| Pcie {
            generation: pcie.generation,
            width: pcie.width,
            max_generation: pcie.max_generation,
            max_width: pcie.max_width,
            replays: pcie.replays,
        });
        let action = unknown.level(Signal::RecoveryAction, gpu.recovery_action);
        let recovery_action = match action.map(u8::try_from) {
            Ok(Ok(action)) => Measured::Known(action),
            Ok(Err(_)) => self.known(0, false),
            Err(why) => Measured::Unknown(why),
        };
        let mig = match unknown.level(Signal::Mig, gpu.mig) {
            Ok(mig) => Measured::Known(self.mig(mig)?),
            Err(why) => Measured::Unknown(why),
        };
        Ok(GpuReading {
            index: gpu.index,
            name: words(&gpu.name, MOST_NAME),
            pci_bus_id: words(&gpu.pci_bus_id, MOST_NAME),
            utilization: self.share(unknown.level(Signal::Utilization, gpu.utilization)),
            sm_activity: self.share(unknown.level(Signal::SmActivity, gpu.sm_activity)),
            memory_bandwidth: self.share(unknown.level(Signal::MemoryBandwidth, gpu.memory_bandwidth)),
            memory: self.memory(unknown.level(Signal::Memory, gpu.memory)),
            power_mw: self.level(of(Signal::Power, gpu.power_mw), |power| *power <= limits::POWER_MW),
            power_limit_mw: self.level(of(Signal::PowerLimit, gpu.power_limit_mw), |power| *power <= limits::POWER_MW),
            temperature_c: self
                .level(unknown.level(Signal::Temperature, gpu.temperature_c), |t| limits::TEMPERATURE_C.contains(t)),
            clocks_mhz: self.level(unknown.level(Signal::Clocks, clocks), |(sm, mem)| (*sm).max(*mem) <= limits::CLOCK_MHZ),
            clock_limits: self.level(of(Signal::ClockLimits, gpu.clock_limits), |_| true),
            ecc: self.level(unknown.level(Signal::Ecc, ecc), |_| true),
            remapped_rows: self.level(unknown.level(Signal::RemappedRows, rows), |_| true),
            retired_pages_pending: self.level(unknown.level(Signal::RetiredPages, gpu.retired_pages_pending), |_| true),
            recovery_action,
            nvlink: self.level(
                unknown.level(Signal::Nvlink, gpu.nvlink.map(|n| NvLink { active: n.active_links, errors: n.errors })),
                |nvlink| nvlink.active <= limits::NVLINKS,
            ),
            pcie: self.level(unknown.level(Signal::Pcie, pcie), |pcie| {
                pcie.generation.max(pcie.max_generation) <= limits::PCIE_GENERATION
                    && pcie.width.max(pcie.max_width) <= limits::PCIE_LANES
            }),
            processes: self.processes(unknown.level(Signal::Processes, gpu.processes)),
            energy_mj: self.level(of(Signal::Energy, gpu.energy_mj), |_| true),
            mig,
            fabric: self.level(unknown.level(Signal::Fabric, gpu.fabric.map(|f| (f.state, f.status, f.health_mask))), |_| true),
            persistence: self.level(unknown.level(Signal::Persistence, gpu.persistence), |_| true),
            codec: self.share(unknown.level(Signal::Codec, gpu.codec)),
        })
    }

    fn mig(&mut self, mig: wire::Mig) -> Result<Mig, Reason> {
        if mig.devices.len() > MOST_INSTANCES {
            return Err(Reason::TooLarge);
        }
        let mut devices = BTreeMap::new();
        for device in mig.devices {
            self.told(&device.unknown);
            let unknown = Unknowns(&device.unknown);
            let reading = MigReading {
                gpu_instance: device.gpu_instance,
                compute_instance: device.compute_instance,
                name: words(&device.name, MOST_NAME),
                memory: self.memory(unknown.level(Signal::Memory, device.memory)),
                sm_activity: self.share(unknown.level(Signal::SmActivity, device.sm_activity)),
                memory_bandwidth: self.share(unknown.level(Signal::MemoryBandwidth, device.memory_bandwidth)),
                processes: self.processes(unknown.level(Signal::Processes, device.processes)),
            };
            if devices.insert(uuid(&device.uuid)?, reading).is_some() {
                return Err(Reason::Malformed);
            }
        }
        Ok(Mig { enabled: mig.enabled, pending_change: mig.pending_change, devices })
    }
}

#[cfg(test)]
mod tests;
