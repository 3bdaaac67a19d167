//! What was read of one GPU or MIG instance, summed over time.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use stoker_core::facts::reading::work::{NEVER, Shares, is_somebodys};
use stoker_core::facts::reading::{GpuProcess, GpuReading, Measured, MemoryLevel, MigReading, Permille};

/// What a GPU was doing, as far as anybody can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occupancy {
    /// Kernels ran.
    Worked,
    /// None ran, and something lies in its memory or has it open: a model that waits for requests, a notebook left open.
    Resident,
    /// Nothing ran and nothing lay there.
    Empty,
    /// Not told.
    Unknown,
}

/// One reading of a GPU or an instance, as far as it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    pub(super) utilization: Measured<Permille>,
    pub(super) sm: Measured<Permille>,
    pub(super) bandwidth: Measured<Permille>,
    pub(super) memory: Measured<MemoryLevel>,
    pub(super) processes: &'a Measured<Vec<GpuProcess>>,
    codec: Measured<Permille>,
    /// Since the reading before.
    joules: u64,
}

impl<'a> Sample<'a> {
    pub(super) fn of_gpu(gpu: &'a GpuReading, joules: u64) -> Self {
        Self {
            utilization: gpu.utilization,
            sm: gpu.sm_activity,
            bandwidth: gpu.memory_bandwidth,
            memory: gpu.memory,
            processes: &gpu.processes,
            codec: gpu.codec,
            joules,
        }
    }

    /// The driver tells no utilization of an instance, and no energy.
    pub(super) fn of_instance(device: &'a MigReading) -> Self {
        Self {
            utilization: NEVER,
            sm: device.sm_activity,
            bandwidth: device.memory_bandwidth,
            memory: device.memory,
            processes: &device.processes,
            codec: NEVER,
            joules: 0,
        }
    }

    /// What it was doing. Without utilization and SM activity, or where one of them failed this time, nobody knows, unless something else
    /// proves work; and nobody knows that nothing lies in memory that was not read.
    pub(super) fn activity(&self) -> Occupancy {
        let shares = Shares { sm: self.sm, utilization: self.utilization, codec: self.codec };
        if shares.work() {
            return Occupancy::Worked;
        }
        let never = self.utilization.known().is_none() && self.sm.known().is_none();
        if never || shares.unread().is_some() {
            return Occupancy::Unknown;
        }
        let held = |level: &MemoryLevel| is_somebodys(level, 0);
        if self.processes.known().is_some_and(|list| !list.is_empty()) || self.memory.known().is_some_and(held) {
            return Occupancy::Resident;
        }
        let told = self.memory.known().is_some() && self.processes.unread().is_none();
        if told { Occupancy::Empty } else { Occupancy::Unknown }
    }
}

/// What readings of one GPU or instance come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// Seconds that readings stand for.
    pub seconds: u32,
    /// Readings.
    pub samples: u32,
    /// Those among them that tell what it was doing.
    pub known: u32,
    /// Share of time in which any kernel ran.
    pub utilization: Histogram,
    /// Share of its memory in use.
    pub memory: Histogram,
    /// Share of its multiprocessors at work.
    pub sm: Histogram,
    /// Share of its memory's bandwidth in use.
    pub bandwidth: Histogram,
    /// Most memory in use, in bytes.
    pub memory_peak: u64,
    /// Memory that it has, in bytes; zero where no reading told.
    pub memory_total: u64,
    /// Seconds in which kernels ran.
    pub worked: u32,
    /// Seconds in which none ran and something lay in its memory.
    pub resident: u32,
    /// Seconds in which nothing ran and nothing lay there. What is left of `seconds` is unknown.
    pub empty: u32,
    /// Energy, in joules.
    pub joules: u64,
}

impl Levels {
    /// Adds a sample that stands for so many seconds; `whole` where it was taken within them, so that its energy and itself count here.
    pub(super) fn add(&mut self, sample: &Sample<'_>, seconds: u32, whole: bool) {
        let activity = sample.activity();
        self.seconds = self.seconds.saturating_add(seconds);
        if whole {
            self.samples = self.samples.saturating_add(1);
            self.known = self.known.saturating_add(u32::from(activity != Occupancy::Unknown));
            self.joules = self.joules.saturating_add(sample.joules);
        }
        let of = match activity {
            Occupancy::Worked => Some(&mut self.worked),
            Occupancy::Resident => Some(&mut self.resident),
            Occupancy::Empty => Some(&mut self.empty),
            Occupancy::Unknown => None,
        };
        if let Some(of) = of {
            *of = of.saturating_add(seconds);
        }
        let levels =
            [(&mut self.utilization, sample.utilization), (&mut self.sm, sample.sm), (&mut self.bandwidth, sample.bandwidth)];
        for (histogram, level) in levels {
            if let Measured::Known(level) = level {
                histogram.add(level, seconds);
            }
        }
        if let Measured::Known(level) = sample.memory
            && let Some(share) = share(level.used, level.total)
        {
            self.memory.add(share, seconds);
            self.memory_peak = self.memory_peak.max(level.used);
            self.memory_total = self.memory_total.max(level.total);
        }
    }
}

/// A part of a whole, rounded up; `None` of nothing.
fn share(part: u64, whole: u64) -> Option<Permille> {
    let thousandths = (u128::from(part) * 1000).checked_div(u128::from(whole))?;
    let exact = thousandths * u128::from(whole) == u128::from(part) * 1000;
    Permille::new(u16::try_from(thousandths + u128::from(!exact)).unwrap_or(1000).min(1000))
}
