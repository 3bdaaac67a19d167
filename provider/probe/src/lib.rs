//! Reads a node's GPUs by NVML and tells the provider. It reports, and never judges.

pub mod outbox;
pub mod stream;
