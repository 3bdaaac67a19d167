//! How busy multiprocessors and memory bandwidth are, by GPM (Hopper and later): between two samples, of which the older is kept.

use std::time::{Duration, Instant};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{GpmSample, Nvml};
use stoker_proto::probe::Why;

use super::refusal::why;

/// Two samples closer than this say nothing.
const APART: Duration = Duration::from_millis(100);

/// Thousandths of multiprocessors and of memory bandwidth.
pub(crate) type Activity = (Result<u32, Why>, Result<u32, Why>);

/// The older sample.
#[derive(Debug, Default)]
pub(crate) struct Gpm<'nvml> {
    last: Option<(Instant, GpmSample<'nvml>)>,
}

impl<'nvml> Gpm<'nvml> {
    /// What happened since the last call that was far enough away, by a sample that `take` takes.
    pub(crate) fn read(&mut self, nvml: &'nvml Nvml, take: impl FnOnce() -> Result<GpmSample<'nvml>, NvmlError>) -> Activity {
        let both = |why: Why| (Err(why), Err(why));
        // The wrapper's sample panics in its drop where the library cannot free it.
        if nvml.lib().nvmlGpmSampleFree.is_err() {
            return both(Why::NotSupported);
        }
        if self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < APART) {
            return both(Why::NotYet);
        }
        let sample = match take() {
            Ok(sample) => sample,
            Err(error) => {
                self.last = None;
                return both(why(&error));
            }
        };
        let Some((_, before)) = self.last.replace((Instant::now(), sample)) else { return both(Why::NotYet) };
        let Some((_, sample)) = &self.last else { return both(Why::NotYet) };
        match gpm_metrics_get(nvml, &before, sample, &[GpmMetricId::SmUtil, GpmMetricId::DramBwUtil]) {
            Ok(answers) => {
                let mut levels = answers
                    .into_iter()
                    .map(|answer| answer.map_err(|error| why(&error)).and_then(|metric| thousandths(metric.value)));
                (levels.next().unwrap_or(Err(Why::Failed)), levels.next().unwrap_or(Err(Why::Failed)))
            }
            Err(error) => both(why(&error)),
        }
    }
}

/// What is not a share is no level.
fn thousandths(percent: f64) -> Result<u32, Why> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Why::Absurd);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    Ok((percent * 10.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_is_a_level() {
        assert_eq!([0.0, 0.04, 42.17, 100.0].map(thousandths), [Ok(0), Ok(0), Ok(422), Ok(1000)]);
        assert_eq!([-1.0, 100.5, f64::NAN].map(thousandths), [Err(Why::Absurd); 3]);
    }
}
