//! Shares and quantiles that demand is drawn from.

use crate::demand::Service;
use crate::world::draw::Stream;

/// GPUs of a pod.
pub(super) const GANGS: [(f64, u32); 4] = [(0.9880, 1), (0.0025, 2), (0.0025, 4), (0.0070, 8)];

/// Thousandths of a CPU and MiB per GPU.
pub(super) const SHAPES: [(f64, (u32, u32)); 10] = [
    (0.554, (7_600, 28_000)),
    (0.245, (3_152, 5_600)),
    (0.035, (7_600, 16_384)),
    (0.025, (4_000, 15_258)),
    (0.025, (4_000, 22_888)),
    (0.025, (7_600, 24_576)),
    (0.024, (4_000, 28_000)),
    (0.024, (4_152, 10_600)),
    (0.017, (4_000, 24_576)),
    (0.026, (6_000, 6_144)),
];

/// GPU models that a pod may run on; none means any.
pub(super) const CLASSES: [(f64, &[&str]); 10] = [
    (0.6648, &[]),
    (0.2190, &["T4"]),
    (0.0480, &["L4"]),
    (0.0235, &["V100", "V100-32GB"]),
    (0.0200, &["T4", "V100", "V100-32GB"]),
    (0.0125, &["L40S"]),
    (0.0057, &["L4", "T4", "V100", "V100-32GB"]),
    (0.0031, &["A10G", "L4", "T4", "V100", "V100-32GB"]),
    (0.0024, &["V100-32GB"]),
    (0.0010, &["A10G", "T4"]),
];

/// What owners promise.
pub(super) const SERVICES: [(f64, Service); 3] =
    [(0.577, Service::LatencySensitive), (0.406, Service::BestEffort), (0.017, Service::Other)];

/// Seconds that a pod of `mixed` runs, at shares of the pods.
pub(super) const MIXED_RUNS: [(f64, f64); 13] = [
    (0.0, 4.0),
    (0.05, 48.0),
    (0.1, 67.0),
    (0.25, 182.0),
    (0.5, 638.0),
    (0.75, 2_257.0),
    (0.9, 7_155.0),
    (0.95, 15_249.0),
    (0.98, 44_692.0),
    (0.99, 78_879.0),
    (0.995, 198_820.0),
    (0.999, 1_542_030.0),
    (1.0, 2_612_709.0),
];

/// The same of `churn`.
pub(super) const CHURN_RUNS: [(f64, f64); 13] = [
    (0.0, 4.0),
    (0.05, 47.0),
    (0.1, 66.0),
    (0.25, 180.0),
    (0.5, 622.0),
    (0.75, 2_153.0),
    (0.9, 6_333.0),
    (0.95, 12_851.0),
    (0.98, 27_864.0),
    (0.99, 49_252.0),
    (0.995, 64_315.0),
    (0.999, 78_164.0),
    (1.0, 82_936.0),
];

/// Hours that a pod of `mixed` still runs that ran at the start.
pub(super) const RESIDENT_HOURS: [(f64, f64); 5] = [(0.0, 8.0), (0.1, 40.0), (0.25, 284.0), (0.45, 1_000.0), (1.0, 3_000.0)];

/// One of the things, by its share.
pub(super) fn among<'a, T>(stream: &mut Stream, things: &'a [(f64, T)]) -> &'a T {
    let mut left = stream.unit();
    let mut at = 0;
    while at + 1 < things.len() && left >= things[at].0 {
        left -= things[at].0;
        at += 1;
    }
    &things[at].1
}

/// A number from its quantiles, log-linear between them.
pub(super) fn quantile(stream: &mut Stream, table: &[(f64, f64)]) -> f64 {
    let share = stream.unit();
    let above = table.partition_point(|(at, _)| *at <= share).clamp(1, table.len() - 1);
    let ((from, low), (to, high)) = (table[above - 1], table[above]);
    low * (high / low).powf((share - from) / (to - from))
}
