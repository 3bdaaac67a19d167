//! Reads a node's GPUs by NVML and tells the provider. It reports, and never judges.
//!
//! * [`sample`]: one thread that owns NVML, and what it reads in each round;
//! * [`watch`]: when it is asked, and what is said when it does not answer;
//! * [`gate`]: the conditions of a started node;
//! * [`notice`]: what the cloud announces;
//! * [`metrics`]: the same for Prometheus, under DCGM's names;
//! * [`outbox`]: where it all goes, kept until the provider has it;
//! * [`stream`]: the stream that takes it there.
//!
//! What cannot be read is said so, with the reason: nothing absent means nought, quiet or healthy.

pub mod cli;
pub mod gate;
pub mod metrics;
pub mod notice;
mod once;
pub mod outbox;
pub mod print;
pub mod processes;
mod raw;
pub mod sample;
pub mod stream;
pub mod watch;
