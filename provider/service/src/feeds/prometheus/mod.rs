//! Prometheus as a source of facts: readings of GPUs by way of a DCGM exporter, and the demand signals of the policy.
//!
//! Each question is one instant query over the whole cluster, never one a node; at most one of a kind is in flight. What cannot be had is
//! unknown for a reason that is counted, and nothing that is away, slow, old or wrong is taken for quiet.

mod ask;
mod book;
pub mod dcgm;
mod feed;
pub mod history;
mod labels;
mod levels;
mod metrics;
mod offline;
mod people;
mod signals;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::NodeName;
use stoker_core::facts::reading::{NodeEvent, NodeReading};
use tokio_util::sync::CancellationToken;

pub use ask::{Asker, NoAsker};
pub use feed::GpuFeed;
pub use metrics::{Metrics, Series};
pub use offline::Offline;
pub use people::People;
pub use signals::Signals;

use crate::clock::Clock;

/// Where Prometheus is and how to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its base URL, as a browser would open it.
    pub url: String,
    /// A file with a bearer token, read again for each round.
    pub token_file: Option<PathBuf>,
    /// Who signs its certificate; the system's authorities when absent.
    pub ca: Option<PathBuf>,
}

/// Takes a reading of a node, and what happened there since the last one.
pub type Tell = Arc<dyn Fn(NodeName, NodeReading, Vec<NodeEvent>) + Send + Sync>;

/// The nodes of this cluster, now.
pub type KnownNodes = Arc<dyn Fn() -> Vec<NodeName> + Send + Sync>;

/// Waits until the next round is due, one interval after the last began; not at all where that has passed.
async fn until_due(clock: &Clock, began: Timestamp, interval: SignedDuration, stop: &CancellationToken) {
    let due = began.saturating_add(interval).unwrap_or(Timestamp::MAX);
    stop.run_until_cancelled(clock.sleep_until(due)).await;
}
