//! From opening the driver to losing it.

use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use stoker_proto::probe::driver::State;
use stoker_proto::probe::{Driver, Gpu, Round, Signal, Why};

use super::gpu::{Due, Reader, Shared, identity};
use super::kept::unknown_gpu;
use super::trust::Trust;
use super::{Answered, Ask, Depth, Identity, Settings, Thread, events, now, refusal};
use crate::gate;

/// Clocks, power and the like are read in every so manyth round.
const OFTEN: u64 = 3;
/// Errors, links and modes.
const SELDOM: u64 = 12;

/// Why a session ended.
pub(super) enum End {
    /// Nobody asks any more.
    Stopped,
    /// The driver no longer answers; the question is still open.
    Lost(Ask, Driver),
    /// There are other GPUs than before, which are opened and listened to anew; the question is still open.
    Changed(Ask),
}

/// Why a round was not read.
enum Broken {
    Lost(NvmlError),
    Changed,
}

/// Answers questions until the driver is lost.
pub(super) fn run(nvml: &Nvml, first: Ask, thread: &mut Thread) -> End {
    let mut session = match Session::open(nvml, thread) {
        Ok(session) => session,
        Err(error) => return End::Lost(first, refusal::driver(&error)),
    };
    let shared = events::Shared::default();
    let listeners = session.slots.iter().map(|slot| {
        (
            slot.index,
            slot.reader.as_ref().map(|reader| (&reader.device, reader.kept.gpu().uuid.as_str())).ok_or(slot.fault.as_str()),
        )
    });
    let set = events::listen(nvml, listeners, &shared);
    std::thread::scope(|scope| {
        // The scope waits for the other thread, which would else never end if this one panics.
        let _until = events::Until(&shared);
        if let Some(set) = set {
            let (happened, shared) = (&thread.happened, &shared);
            let spawned = std::thread::Builder::new()
                .name("nvml-events".to_owned())
                .spawn_scoped(scope, move || events::run(&set, happened, shared));
            if let Err(error) = spawned {
                tracing::error!(%error, "no thread for events");
            }
        }
        let mut ask = first;
        let end = loop {
            match session.round(ask.depth, &thread.settings, &mut thread.trust, &shared, &thread.answered) {
                // Whoever asked may have given up.
                Ok(round) => {
                    thread.pause = Duration::ZERO;
                    drop(ask.answer.send(round));
                }
                Err(Broken::Lost(error)) => break End::Lost(ask, refusal::driver(&error)),
                Err(Broken::Changed) => break End::Changed(ask),
            }
            match thread.asked.recv() {
                Ok(next) => ask = next,
                Err(_) => break End::Stopped,
            }
        };
        thread.seen_last = session.slots.iter().map(|slot| slot.identity.clone()).collect();
        end
    })
}

/// A GPU that the driver counts.
struct Slot<'nvml> {
    index: u32,
    identity: Identity,
    /// Absent where it cannot be opened.
    reader: Option<Reader<'nvml>>,
    why: Why,
    /// What the driver said when it could not be opened; else empty.
    fault: String,
}

impl<'nvml> Slot<'nvml> {
    /// A GPU that was seen at this place before and now cannot be asked is taken for the same one.
    fn open(nvml: &'nvml Nvml, index: u32, seen_last: Identity) -> Self {
        let opened = nvml.device_by_index(index).and_then(|device| Ok((identity(&device)?, device)));
        match opened {
            Ok((identity, device)) => Self {
                index,
                identity: identity.clone(),
                reader: Some(Reader::new(index, device, identity)),
                why: Why::NotYet,
                fault: String::new(),
            },
            Err(error) => {
                Self { index, identity: seen_last, reader: None, why: refusal::why(&error), fault: error.to_string() }
            }
        }
    }

    /// Whether a GPU that could not be opened, or was lost, can be used again.
    fn is_back(&self, nvml: &Nvml) -> bool {
        let again = || nvml.device_by_index(self.index).and_then(|device| identity(&device).and(device.memory_info()));
        self.reader.is_none() && again().is_ok()
    }

    fn read(&mut self, due: Due, shared: &mut Shared<'_>) -> Gpu {
        if let Some(reader) = &mut self.reader {
            let gpu = reader.read(due, shared);
            if !is_lost(&gpu) {
                return gpu;
            }
            // What was read before is no longer so, and the handle is of no use.
            self.reader = None;
            self.why = Why::GpuLost;
        }
        self.unknown()
    }

    fn unknown(&self) -> Gpu {
        let Identity { uuid, name, pci_bus_id, architecture } = self.identity.clone();
        unknown_gpu(&Gpu { index: self.index, uuid, name, pci_bus_id, architecture, ..Gpu::default() }, self.why)
    }
}

struct Session<'nvml> {
    nvml: &'nvml Nvml,
    driver: Driver,
    slots: Vec<Slot<'nvml>>,
    rounds: u64,
}

impl<'nvml> Session<'nvml> {
    fn open(nvml: &'nvml Nvml, thread: &Thread) -> Result<Self, NvmlError> {
        let driver = Driver {
            state: State::Ready.into(),
            driver_version: nvml.sys_driver_version().unwrap_or_default(),
            nvml_version: nvml.sys_nvml_version().unwrap_or_default(),
            cuda_version: nvml
                .sys_cuda_driver_version()
                .ok()
                .and_then(|version| u32::try_from(version).ok())
                .unwrap_or_default(),
            detail: String::new(),
        };
        tracing::info!(driver = driver.driver_version, nvml = driver.nvml_version, "NVML is open");
        let count = nvml.device_count()?;
        let known = |index: u32| {
            if thread.seen_last.len() == count as usize { thread.seen_last.get(index as usize).cloned() } else { None }
        };
        let open = |index| {
            let slot = Slot::open(nvml, index, known(index).unwrap_or_default());
            thread.answered.now();
            slot
        };
        let slots = (0..count).map(open).collect();
        Ok(Self { nvml, driver, slots, rounds: 0 })
    }

    fn round(
        &mut self,
        depth: Depth,
        settings: &Settings,
        trust: &mut Trust,
        events: &events::Shared,
        answered: &Answered,
    ) -> Result<Round, Broken> {
        let began = Instant::now();
        let count = self.nvml.device_count().map_err(Broken::Lost)?;
        if count as usize != self.slots.len() || self.slots.iter().any(|slot| slot.is_back(self.nvml)) {
            return Err(Broken::Changed);
        }
        let due = Due {
            often: depth == Depth::Full || self.rounds.is_multiple_of(OFTEN),
            seldom: depth == Depth::Full || self.rounds.is_multiple_of(SELDOM),
        };
        let mut shared = Shared { proc: &settings.proc, trust };
        let read = |slot: &mut Slot<'_>| {
            let gpu = slot.read(due, &mut shared);
            answered.now();
            gpu
        };
        let gpus: Vec<Gpu> = self.slots.iter_mut().map(read).collect();
        self.rounds += 1;
        Ok(Round {
            at: Some(now()),
            gpus_counted: Some(count),
            gates: gate::gates(&settings.expected, &self.driver, Some(count), &gpus, &events.listening()),
            gpus,
            driver: Some(self.driver.clone()),
            took_us: u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX),
            ..Round::default()
        })
    }
}

/// A GPU is off the bus when even its memory says so.
fn is_lost(gpu: &Gpu) -> bool {
    gpu.unknown.iter().any(|unknown| unknown.signal() == Signal::Memory && unknown.why() == Why::GpuLost)
}
