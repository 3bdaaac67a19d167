//! Nodes from Amazon EC2: one instance a launch, tagged and idempotent by its launch key.
//!
//! `aws.yaml` ([`config`]) says what machines are made with; the policy says which are bought.

mod answers;
pub mod check;
pub mod config;
mod launch;
mod machine;
mod outdated;
mod refusal;
mod region;
pub mod rights;
mod supplier;
#[cfg(test)]
mod testing;
mod user_data;
mod wire;

pub use region::MISSING;
pub use supplier::{Access, Aws};
pub use wire::{Answer, Endpoints, NoAnswer, Service, Transport, https};
