//! Thresholds by which workloads are classified.

use serde::{Deserialize, Serialize};

use crate::base::units::Percent;

/// From where on a workload is called what, and what is kept above what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Thresholds {
    /// What is kept above the p95 of arithmetic and bandwidth and above the peak of memory.
    pub headroom: Percent,
    /// Over-provisioned below this p95 of arithmetic, where it is bound by neither of the two below.
    pub over_provisioned_below: Percent,
    /// Memory-bound from this peak of memory, or p95 of bandwidth, on.
    pub memory_bound_from: Percent,
    /// Compute-bound from this p95 of arithmetic on.
    pub compute_bound_from: Percent,
}

impl Default for Thresholds {
    /// Headroom as that of `stoker fit`; below 40 % and above 85 % and 95 % are where dashboards and
    /// alerts of GPU fleets begin to speak.
    fn default() -> Self {
        Self {
            headroom: Percent(20),
            over_provisioned_below: Percent(40),
            memory_bound_from: Percent(85),
            compute_bound_from: Percent(95),
        }
    }
}
