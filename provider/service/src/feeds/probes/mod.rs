//! What is read of nodes, from arrival to the snapshot.
//!
//! * [`Readings`]: every node's newest reading and what has been seen of it. Whoever reads nodes, by probes or by Prometheus, hands in
//!   through [`Readings::take`]; decisions see [`Readings::seen`], people [`Readings::latest`], and a store [`Readings::follow`].
//! * [`Streams`]: which probe speaks for which node, and questions to it.
//! * [`identity`]: for which node a peer may speak. The stream itself is `grpc::probe`.
//!
//! Nothing here waits or writes: a reading is taken in while its sender waits for the acknowledgement, and 5,000 probes wake the loop
//! only when something changed.

pub mod convert;
pub mod identity;
mod metrics;
mod pace;
mod readings;
mod reason;
mod streams;
pub(crate) mod tokens;

#[cfg(test)]
pub(crate) mod tests;

pub use metrics::ProbeMetrics;
pub use readings::{Readings, SeenNodes, Taken};
pub use reason::Reason;
pub use streams::{Command, NotConfirmed, Numbered, Streams, Ticket};
pub use tokens::{REVIEW_AGAIN, Reviewer, ServiceAccount};
