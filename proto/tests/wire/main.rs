//! The wire against what each autoscaler release sends and reads.
//!
//! `vectors/*.hex` hold committed bytes with their arithmetic. [`hand`] writes and reads the same bytes with a few lines
//! of its own, so that no test merely shows the generated code to agree with itself.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic as tests do")]

mod decoders;
mod descriptor;
mod halves;
mod hand;
mod hostile;
mod releases;
mod requests;
mod responses;
mod vectors;
