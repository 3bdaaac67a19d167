//! Advice that no decision needs: what workloads use, which GPUs they fit, what to commit to.

#![deny(clippy::float_arithmetic)]

pub mod before;
pub mod estimate;
pub mod fit;
pub mod rollup;
pub mod spend;
pub mod workload;
