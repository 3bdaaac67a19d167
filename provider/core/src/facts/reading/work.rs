//! Thresholds of GPU work, for activity now and for sums over hours. The thresholds are Stoker's.

use crate::base::units::MiB;
use crate::facts::reading::{Measured, MemoryLevel, Permille, Why};

/// Multiprocessor activity that is work, in thousandths. It is measured, not sampled.
const SM_WORK: u16 = 10;
/// Utilization that is work, in thousandths. A stray sample of a quiet GPU may read one percent.
const UTILIZATION_WORK: u16 = 20;
/// Use of encoder or decoder that is work, in thousandths.
const CODEC_WORK: u16 = 1;
/// Memory in use that proves nothing, where a hundredth of the GPU's is not more.
const MEMORY_SLACK: u64 = MiB(256).bytes();

/// A share that a MIG instance does not have.
pub const NEVER: Measured<Permille> = Measured::Unknown(Why::NotSupported);

/// The shares of time that tell of work.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// Multiprocessor activity.
    pub sm: Measured<Permille>,
    /// Utilization.
    pub utilization: Measured<Permille>,
    /// Use of encoder and decoder.
    pub codec: Measured<Permille>,
}

impl Shares {
    /// Whether one of them is work.
    pub fn work(&self) -> bool {
        let over = |share: &Measured<Permille>, work| share.known().is_some_and(|share| share.get() >= work);
        over(&self.sm, SM_WORK) || over(&self.utilization, UTILIZATION_WORK) || over(&self.codec, CODEC_WORK)
    }

    /// Why the first of them that could not be read this time was not.
    pub fn unread(&self) -> Option<Why> {
        [self.sm, self.utilization, self.codec].iter().find_map(Measured::unread)
    }
}

/// Whether so much is in use above the baseline that it is somebody's. What the driver keeps is told apart and is not among what is in use.
pub const fn is_somebodys(memory: &MemoryLevel, baseline: u64) -> bool {
    let hundredth = memory.total / 100;
    let slack = if hundredth > MEMORY_SLACK { hundredth } else { MEMORY_SLACK };
    memory.used.saturating_sub(baseline) > slack
}
