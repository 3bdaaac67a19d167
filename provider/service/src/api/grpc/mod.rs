//! The autoscaler's doors: the external provider and the expander, as gRPC services over the engine.
//!
//! * [`provider`]: the fifteen calls of `CloudProvider`. Reads answer from the published view and never wait; changes are handed to the
//!   engine, which answers once they are durable and visible.
//! * [`expander`]: `BestOptions`, the cheapest way to help the waiting pods.
//! * [`probe`]: the stream of each node's probe, behind a listener of its own.
//! * [`server`]: all behind their listeners, with health, reflection, limits and an orderly stop.
//!
//! The wire ends here: `convert` maps messages to our own types and back, `status` is the one table from what went wrong to a gRPC
//! status, `price` is where money becomes a float, and `shown` is what an autoscaler is shown of the view.

mod bounded;
mod convert;
mod counting;
pub mod expander;
mod intake;
mod price;
pub mod probe;
pub mod provider;
pub mod server;
mod shown;
mod status;
#[cfg(test)]
mod tests;

pub use bounded::Bounded;
