//! Advice that no decision needs: what workloads use, which GPUs they fit, what to commit to.

#![deny(clippy::float_arithmetic)]

pub mod fit;
pub mod rollup;
pub mod workload;
