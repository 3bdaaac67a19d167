//! What the autoscaler expects of a provider, row by row: each with a test over the real wire, and with a switch in the service that
//! takes the defence away and must make the test fail (`tests/sabotage.sh`).
//!
//! The rows are those of the list of ten things that a naive provider gets wrong ([`ten`]), of what runs of real autoscalers added
//! ([`real_runs`]), and of the autoscaler's semantics: how capacity is taken back ([`taken_back`]), start-up time ([`startup`]),
//! instance errors and backoff ([`failures`]), scale-down, labels and taints ([`scale_down`]).
//!
//! Tests about what an autoscaler makes of the answers drive the model of one; the others make its calls one by one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers stand outside of it")]

mod failures;
mod real_runs;
mod rows;
mod scale_down;
mod startup;
mod taken_back;
mod ten;
mod world;
