//! One GPU: what is read of it in each round.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{Clock, Sampling, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use stoker_proto::limits;
use stoker_proto::probe::{Clocks, Gpu, Memory, Process, Processes, Signal, Why};

use super::gpm::Gpm;
use super::kept::{Kept, permille, sane};
use super::mig::Instances;
use super::refusal::why;
use super::trust::Trust;
use super::{Identity, health};
use crate::processes::Proc;

/// How long utilization reads high after the driver has begun, while it scrubs the memory.
const SCRUBBING: Duration = Duration::from_secs(30);

/// What is due in a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// Clocks, power, temperature, recovery action.
    pub(super) often: bool,
    /// The rest.
    pub(super) seldom: bool,
}

/// What all GPUs share in a round.
pub(super) struct Shared<'a> {
    pub(super) proc: &'a Proc,
    pub(super) trust: &'a mut Trust,
}

/// A GPU that was opened, and what was read of it last.
#[derive(Debug)]
pub(super) struct Reader<'nvml> {
    pub(super) device: Device<'nvml>,
    pub(super) kept: Kept,
    gpm: Gpm<'nvml>,
    /// `None` until answered.
    has_gpm: Option<bool>,
    instances: Instances<'nvml>,
    /// Of the driver's buffer of utilization samples, in microseconds.
    last_sample: Option<u64>,
    /// The driver has begun with our opening it.
    begun: Option<Instant>,
    /// Nothing was read yet: everything is due.
    fresh: bool,
}

impl<'nvml> Reader<'nvml> {
    pub(super) fn new(index: u32, device: Device<'nvml>, identity: Identity) -> Self {
        // Without persistence the driver begins when its first client comes, and we may be that.
        let begun = matches!(device.is_in_persistent_mode(), Ok(false)).then(Instant::now);
        Self {
            kept: Kept::of(index, identity),
            device,
            gpm: Gpm::default(),
            has_gpm: None,
            instances: Instances::default(),
            last_sample: None,
            begun,
            fresh: true,
        }
    }

    pub(super) fn read(&mut self, due: Due, shared: &mut Shared<'_>) -> Gpu {
        let gpm = self.gpm();
        self.activity(gpm);
        let memory = memory(&self.device);
        let processes = processes(&self.device, shared.proc);
        let mig = self.instances.read(&self.device, gpm, shared);
        let split = mig.as_ref().is_ok_and(|mig| mig.enabled);
        // Of a GPU that is split, the whole list is for the privileged only: its instances' lists are weighed instead.
        if let (Ok(memory), Ok(list), false) = (&memory, &processes, split) {
            shared.trust.weigh(&self.kept.gpu().uuid, list.compute.len(), memory.used_bytes);
        }
        self.kept.put(Signal::Memory, memory, |gpu, level| gpu.memory = level);
        self.kept.put(Signal::Processes, trusted(processes, shared.trust), |gpu, level| gpu.processes = level);
        self.kept.put(Signal::Mig, mig, |gpu, level| gpu.mig = level);
        let fresh = std::mem::take(&mut self.fresh);
        if due.often || fresh {
            self.running();
        }
        if due.seldom || fresh {
            health::read(&self.device, &mut self.kept);
        }
        self.kept.reading()
    }

    /// Whether it has GPM, and why that is of no use where it has not. An answer stands; a failure is of this round alone.
    fn gpm(&mut self) -> Result<(), Why> {
        let has_gpm = match self.has_gpm {
            Some(has_gpm) => has_gpm,
            None => *self.has_gpm.insert(self.device.gpm_support().map_err(|error| why(&error))?),
        };
        if has_gpm { Ok(()) } else { Err(Why::NotSupported) }
    }

    /// How busy it is.
    fn activity(&mut self, gpm: Result<(), Why>) {
        let utilization = if self.begun.is_some_and(|begun| begun.elapsed() < SCRUBBING) {
            Err(Why::NotTrusted)
        } else {
            self.utilization().map_err(|error| why(&error)).and_then(permille)
        };
        self.kept.put(Signal::Utilization, utilization, |gpu, level| gpu.utilization = level);

        let (sm, bandwidth) = match gpm {
            Ok(()) => {
                let device = &self.device;
                self.gpm.read(device.nvml(), || device.gpm_sample())
            }
            Err(why) => (Err(why), Err(why)),
        };
        self.kept.put(Signal::SmActivity, sm, |gpu, level| gpu.sm_activity = level);
        self.kept.put(Signal::MemoryBandwidth, bandwidth, |gpu, level| gpu.memory_bandwidth = level);

        let codec = self
            .device
            .encoder_utilization()
            .and_then(|encoder| Ok(encoder.utilization.max(self.device.decoder_utilization()?.utilization)));
        let codec = codec.map_err(|error| why(&error)).and_then(permille);
        self.kept.put(Signal::Codec, codec, |gpu, level| gpu.codec = level);
    }

    /// The highest sample since the last look. Where the buffer has nothing new, which is not nought, the driver's last value.
    fn utilization(&mut self) -> Result<u32, NvmlError> {
        let samples = match self.device.samples(Sampling::GpuUtilization, self.last_sample) {
            Ok(samples) => samples,
            // `InsufficientSize`: there are more by now than when they were counted.
            Err(NvmlError::NotFound | NvmlError::NotSupported | NvmlError::InsufficientSize(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        self.last_sample = samples.iter().map(|sample| sample.timestamp).max().or(self.last_sample);
        let highest = samples
            .iter()
            .filter_map(|sample| if let SampleValue::U32(percent) = sample.value { Some(percent) } else { None })
            .max();
        match highest {
            Some(percent) => Ok(percent),
            None => self.device.utilization_rates().map(|rates| rates.gpu),
        }
    }

    /// How it runs.
    fn running(&mut self) {
        let Self { device, kept, .. } = self;
        // NVML has no sign: what it got wrong below nought is as much too much.
        let power = |level: &u32| u64::from(*level) <= limits::POWER_MW;
        kept.read_sane(Signal::Power, device.power_usage(), power, |gpu, level| gpu.power_mw = level.map(u64::from));
        kept.read_sane(Signal::PowerLimit, device.enforced_power_limit(), power, |gpu, level| {
            gpu.power_limit_mw = level.map(u64::from)
        });
        kept.read(Signal::Energy, device.total_energy_consumption(), |gpu, level| gpu.energy_mj = level);
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let temperature = temperature.map_err(|error| why(&error)).and_then(|celsius| {
            sane(i32::try_from(celsius).unwrap_or(i32::MAX), |celsius| limits::TEMPERATURE_C.contains(celsius))
        });
        kept.put(Signal::Temperature, temperature, |gpu, level| gpu.temperature_c = level);
        let clocks = device
            .clock_info(Clock::SM)
            .and_then(|sm_mhz| Ok(Clocks { sm_mhz, memory_mhz: device.clock_info(Clock::Memory)? }));
        let clock = |clocks: &Clocks| clocks.sm_mhz.max(clocks.memory_mhz) <= limits::CLOCK_MHZ;
        kept.read_sane(Signal::Clocks, clocks, clock, |gpu, level| gpu.clocks = level);
        kept.read(Signal::ClockLimits, device.current_throttle_reasons(), |gpu, level| {
            gpu.clock_limits = level.map(|bits| bits.bits())
        });
        kept.put(Signal::RecoveryAction, health::recovery_action(device), |gpu, level| gpu.recovery_action = level);
    }
}

/// Who it is.
pub(super) fn identity(device: &Device<'_>) -> Result<Identity, NvmlError> {
    Ok(Identity {
        uuid: device.uuid()?,
        name: device.name().unwrap_or_default(),
        pci_bus_id: device.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        architecture: device.architecture().ok().map(|architecture| architecture.as_c()),
    })
}

/// Memory in use, of a GPU or an instance; absurd where it is more than there is.
pub(super) fn memory(device: &Device<'_>) -> Result<Memory, Why> {
    let info = device.memory_info().map_err(|error| why(&error))?;
    sane(Memory { used_bytes: info.used, total_bytes: info.total, reserved_bytes: info.reserved }, |memory| {
        memory.used_bytes.max(memory.reserved_bytes) <= memory.total_bytes && (1..=limits::MEMORY).contains(&memory.total_bytes)
    })
}

/// The processes that compute on a GPU or an instance, clients of an MPS server among them, by number.
pub(super) fn processes(device: &Device<'_>, proc: &Proc) -> Result<Processes, Why> {
    // More may come between counting and listing than there is room for. Once more, then it is unknown.
    let twice = |list: &dyn Fn() -> Result<Vec<ProcessInfo>, NvmlError>| match list() {
        Err(NvmlError::InsufficientSize(_)) => list(),
        answer => answer,
    };
    let mut found = twice(&|| device.running_compute_processes()).map_err(|error| why(&error))?;
    match twice(&|| device.mps_running_compute_processes()) {
        Ok(clients) => found.extend(clients),
        // Not every driver and mode has MPS.
        Err(NvmlError::InvalidArg) => {}
        // A list that lacks those who work would be an empty one where a server of theirs is all that it shows.
        Err(error) => match why(&error) {
            Why::NotSupported => {}
            why => return Err(why),
        },
    }
    found.sort_by_key(|process| process.pid);
    found.dedup_by_key(|process| process.pid);
    let process = |info: ProcessInfo| {
        let owner = proc.owner(info.pid);
        Process {
            pid: info.pid,
            memory_bytes: match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
            container_id: owner.container_id.unwrap_or_default(),
            pod_uid: owner.pod_uid.unwrap_or_default(),
            name: proc.name(info.pid),
        }
    };
    Ok(Processes { compute: found.into_iter().map(process).collect() })
}

/// A list only where lists are trusted.
pub(super) fn trusted(list: Result<Processes, Why>, trust: &Trust) -> Result<Processes, Why> {
    list.and_then(|list| if trust.trusted() { Ok(list) } else { Err(Why::NotTrusted) })
}
