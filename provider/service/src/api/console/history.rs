//! What nodes cost in the last hour, kept in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::CapacityType;

use crate::publish::picture::Picture;

/// How often it is looked.
pub(super) const EVERY: Duration = Duration::from_secs(30);

/// How many looks are kept: an hour of them.
const KEPT: usize = 120;

/// What nodes cost at one moment, at their prices when they were chosen, by [`CapacityType::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    pub(super) rates: [UsdPerHour; 3],
}

impl Sample {
    pub(super) fn of(picture: &Picture) -> Self {
        let rate = |of: CapacityType| {
            let nodes = picture.nodes.iter().filter(|node| node.capacity_type == Some(of));
            nodes.filter_map(|node| node.rate).fold(UsdPerHour::ZERO, UsdPerHour::plus)
        };
        Self { at: picture.now, rates: CapacityType::ALL.map(rate) }
    }
}

/// The last hour, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<VecDeque<Sample>>);

impl History {
    pub(super) fn add(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept() {
        let history = History::default();
        for second in 0..500 {
            history.add(Sample { at: Timestamp::from_second(second).unwrap(), rates: [UsdPerHour::ZERO; 3] });
        }
        let samples = history.samples();
        assert_eq!((samples.len(), samples[0].at.as_second(), samples[KEPT - 1].at.as_second()), (KEPT, 380, 499));
    }
}
