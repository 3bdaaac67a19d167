//! What of a reading is work: one rule for what is seen now and for what is summed up over hours. The thresholds are ours.

use crate::reading::{Measured, MemoryLevel, Permille, Why};
use crate::units::MiB;

/// Multiprocessor activity that is work, in thousandths. It is measured, not sampled.
const SM_WORK: u16 = 10;
/// Utilization that is work, in thousandths. A stray sample of a quiet GPU may read one percent.
const UTILIZATION_WORK: u16 = 20;
/// Use of encoder or decoder that is work, in thousandths.
const CODEC_WORK: u16 = 1;
/// Memory in use that proves nothing, where a hundredth of the GPU's is not more.
const MEMORY_SLACK: u64 = MiB(256).bytes();

/// A share that a MIG instance does not have.
pub(crate) const NEVER: Measured<Permille> = Measured::Unknown(Why::NotSupported);

/// The shares of time that tell of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) sm: Measured<Permille>,
    pub(crate) utilization: Measured<Permille>,
    pub(crate) codec: Measured<Permille>,
}

impl Shares {
    /// Whether one of them is work.
    pub(crate) fn work(&self) -> bool {
        let over = |share: &Measured<Permille>, work| share.known().is_some_and(|share| share.get() >= work);
        over(&self.sm, SM_WORK) || over(&self.utilization, UTILIZATION_WORK) || over(&self.codec, CODEC_WORK)
    }

    /// Why the first of them that could not be read this time was not.
    pub(crate) fn unread(&self) -> Option<Why> {
        [self.sm, self.utilization, self.codec].iter().find_map(Measured::unread)
    }
}

/// Whether so much is in use above the baseline that it is somebody's. What the driver keeps is told apart and is not among what is in use.
pub(crate) const fn is_somebodys(memory: &MemoryLevel, baseline: u64) -> bool {
    let hundredth = memory.total / 100;
    let slack = if hundredth > MEMORY_SLACK { hundredth } else { MEMORY_SLACK };
    memory.used.saturating_sub(baseline) > slack
}
