//! Controllers that read the published view and change objects of the cluster, beside the loop.

pub mod buffers;
pub mod guests;
pub mod kept_days;
pub mod pod_starts;
pub mod recorded_pods;
pub mod rollup;
pub mod tolerations;
