//! What a workload is called for what it used.

use serde::{Deserialize, Serialize};

use crate::rollup::Distribution;
use stoker_core::base::units::Percent;
use stoker_core::facts::reading::Permille;
use stoker_core::policy::rules::advise::Thresholds;

/// What a workload is, by what it used of its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It uses little of their arithmetic, and neither memory nor bandwidth is why.
    OverProvisioned,
    /// It uses them well.
    Fits,
    /// Memory, or its bandwidth, is what it runs out of first.
    MemoryBound,
    /// Arithmetic is what it runs out of first.
    ComputeBound,
    /// It uses little of their arithmetic, and whether memory is why nobody knows: it was not read.
    Unknown,
}

impl Class {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OverProvisioned => "over-provisioned",
            Self::Fits => "fits",
            Self::MemoryBound => "memory-bound",
            Self::ComputeBound => "compute-bound",
            Self::Unknown => "unknown",
        }
    }
}

/// By what the use of arithmetic is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// SM activity: the share of multiprocessors at work.
    SmActivity,
    /// Utilization, which is never below it: one busy multiprocessor reads as all.
    Utilization,
}

impl Measure {
    /// The words for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SmActivity => "SM activity",
            Self::Utilization => "utilization",
        }
    }
}

/// A median, a 95th percentile and the highest sample. The first two are rounded up to whole hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// Half of the time it was at most this.
    pub p50: Permille,
    /// All but a twentieth of the time it was at most this.
    pub p95: Permille,
    /// It was never more.
    pub peak: Permille,
}

impl Spread {
    /// Of a distribution; `None` where nothing is known.
    pub fn of(levels: &Distribution) -> Option<Self> {
        Some(Self { p50: levels.quantile(50)?, p95: levels.quantile(95)?, peak: levels.peak()? })
    }
}

/// What a workload used of its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Utilization; `None` where it was not read.
    pub utilization: Option<Spread>,
    /// Memory; `None` where it was not read.
    pub memory: Option<Spread>,
    /// SM activity; `None` where it was not read.
    pub sm: Option<Spread>,
    /// Bandwidth; `None` where it was not read.
    pub bandwidth: Option<Spread>,
    /// By which of the two its arithmetic is told.
    pub by: Measure,
}

impl Used {
    /// How much of the arithmetic it used.
    pub fn compute(&self) -> Option<Spread> {
        match self.by {
            Measure::SmActivity => self.sm,
            Measure::Utilization => self.utilization,
        }
    }
}

/// Memory before arithmetic: what runs out of memory fails, what runs out of arithmetic is late.
pub(super) fn of(levels: &Used, thresholds: Thresholds) -> Class {
    let from = |level: Option<Permille>, percent: Percent| level.is_some_and(|level| level.get() >= u16::from(percent.0) * 10);
    let p95 = levels.compute().map(|compute| compute.p95);
    let memory = levels.memory.map(|memory| memory.peak);
    let bandwidth = levels.bandwidth.map(|bandwidth| bandwidth.p95);
    if from(memory, thresholds.memory_bound_from) || from(bandwidth, thresholds.memory_bound_from) {
        Class::MemoryBound
    } else if from(p95, thresholds.compute_bound_from) {
        Class::ComputeBound
    } else if p95.is_some() && !from(p95, thresholds.over_provisioned_below) {
        if memory.is_some() { Class::OverProvisioned } else { Class::Unknown }
    } else {
        Class::Fits
    }
}
