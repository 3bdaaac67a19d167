//! A GPU's readings as they stand: each level is known or unknown for a reason, never both and never neither.

use std::collections::BTreeMap;

use nvml_wrapper::error::NvmlError;
use stoker_proto::probe::{Gpu, Signal, Unknown, Why};

use super::Identity;
use super::refusal::why;

/// Every signal of a GPU.
pub const SIGNALS: [Signal; 21] = [
    Signal::Utilization,
    Signal::SmActivity,
    Signal::MemoryBandwidth,
    Signal::Memory,
    Signal::Power,
    Signal::PowerLimit,
    Signal::Temperature,
    Signal::Clocks,
    Signal::ClockLimits,
    Signal::Ecc,
    Signal::RemappedRows,
    Signal::RetiredPages,
    Signal::RecoveryAction,
    Signal::Nvlink,
    Signal::Pcie,
    Signal::Processes,
    Signal::Energy,
    Signal::Mig,
    Signal::Fabric,
    Signal::Persistence,
    Signal::Codec,
];

/// A GPU of which nothing can be read but, perhaps, who it is.
pub fn unknown_gpu(like: &Gpu, why: Why) -> Gpu {
    Gpu {
        uuid: like.uuid.clone(),
        index: like.index,
        name: like.name.clone(),
        pci_bus_id: like.pci_bus_id.clone(),
        architecture: like.architecture,
        unknown: SIGNALS.iter().map(|signal| Unknown { signal: (*signal).into(), why: why.into() }).collect(),
        ..Gpu::default()
    }
}

/// What was read of a GPU last.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    gpu: Gpu,
    unknown: BTreeMap<Signal, Why>,
}

impl Kept {
    pub(crate) fn of(index: u32, identity: Identity) -> Self {
        let Identity { uuid, name, pci_bus_id, architecture } = identity;
        let gpu = Gpu { uuid, index, name, pci_bus_id, architecture, ..Gpu::default() };
        Self { gpu, unknown: SIGNALS.iter().map(|signal| (*signal, Why::NotYet)).collect() }
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Keeps a level, or why there is none: `set` then gets nothing, and clears what was there.
    pub(crate) fn put<T>(&mut self, signal: Signal, level: Result<T, Why>, set: impl FnOnce(&mut Gpu, Option<T>)) {
        match level {
            Ok(level) => {
                self.unknown.remove(&signal);
                set(&mut self.gpu, Some(level));
            }
            Err(why) => {
                self.unknown.insert(signal, why);
                set(&mut self.gpu, None);
            }
        }
    }

    /// [`Kept::put`] of what NVML answered.
    pub(crate) fn read<T>(&mut self, signal: Signal, answer: Result<T, NvmlError>, set: impl FnOnce(&mut Gpu, Option<T>)) {
        self.put(signal, answer.map_err(|error| why(&error)), set);
    }

    /// [`Kept::read`] of a level that hardware has only where it is `sane`.
    pub(crate) fn read_sane<T>(
        &mut self,
        signal: Signal,
        answer: Result<T, NvmlError>,
        is_sane: impl FnOnce(&T) -> bool,
        set: impl FnOnce(&mut Gpu, Option<T>),
    ) {
        self.put(signal, answer.map_err(|error| why(&error)).and_then(|level| sane(level, is_sane)), set);
    }

    /// As it is sent.
    pub(crate) fn reading(&self) -> Gpu {
        Gpu { unknown: unknown(&self.unknown), ..self.gpu.clone() }
    }
}

/// As they are sent.
pub(crate) fn unknown(signals: &BTreeMap<Signal, Why>) -> Vec<Unknown> {
    signals.iter().map(|(signal, why)| Unknown { signal: (*signal).into(), why: (*why).into() }).collect()
}

/// The level, unless no hardware has it: nobody knows what it was.
pub(crate) fn sane<T>(level: T, is_sane: impl FnOnce(&T) -> bool) -> Result<T, Why> {
    if is_sane(&level) { Ok(level) } else { Err(Why::Absurd) }
}

/// Percent as thousandths; more than the whole is no level.
pub(crate) fn permille(percent: u32) -> Result<u32, Why> {
    sane(percent, |percent| *percent <= 100).map(|percent| percent * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_whole_is_absurd() {
        assert_eq!([0, 100, 101, u32::MAX].map(permille), [Ok(0), Ok(1000), Err(Why::Absurd), Err(Why::Absurd)]);
    }
}
