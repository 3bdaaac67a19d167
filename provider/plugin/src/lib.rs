//! Anybody's cloud: suppliers over the plugin protocol (`proto/proto/supplier.proto`).
//!
//! * [`client`]: a plugin as a supplier of the service;
//! * [`dial`]: how a plugin is reached;
//! * [`server`]: any supplier served as a plugin, such as the simulated one: reference and test peer in one;
//! * [`check`]: whether a plugin keeps the rules of the protocol;
//! * `convert`: messages to values and back. What a message leaves out is unknown, never zero.

pub mod check;
pub mod client;
mod convert;
pub mod dial;
pub mod server;

/// Newest version of the protocol that this release speaks.
pub const PROTOCOL: u32 = 1;
