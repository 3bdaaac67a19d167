//! Whether a watch stands, and since when not.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// How long a watch may be broken before the feed counts as unhealthy: a restart of one API server behind a load balancer is over
/// by then.
const GRACE: Duration = Duration::from_secs(30);

/// How old the last sign of life may be: a watch that stands gives one each half minute, and a request that is not answered fails
/// before this.
const STALE: Duration = Duration::from_secs(90);

/// What a watch follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchedKind {
    /// Nodes.
    Nodes,
    /// Pods.
    Pods,
    /// Karpenter's `NodeClaims`.
    NodeClaims,
    /// Events of `NodeClaims`.
    Events,
    /// Karpenter's `NodePools`.
    NodePools,
    /// Karpenter's `NodeOverlays`.
    NodeOverlays,
}

impl WatchedKind {
    /// The word used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::NodeClaims => "nodeclaims",
            Self::Events => "events",
            Self::NodePools => "nodepools",
            Self::NodeOverlays => "nodeoverlays",
        }
    }
}

impl fmt::Display for WatchedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A watch that does not stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the watch of {watched} is broken since {since}: {error}")]
pub struct Broken {
    /// What it follows.
    pub watched: WatchedKind,
    /// Since when.
    pub since: Timestamp,
    /// What the last attempt met.
    pub error: String,
}

/// The signs of life of one watch.
#[derive(Debug)]
pub struct WatchHealth {
    watched: WatchedKind,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    heard: Instant,
    broken: Option<(Instant, Broken)>,
}

impl WatchHealth {
    /// A watch that was begun now.
    pub fn new(watched: WatchedKind) -> Self {
        Self { watched, state: Mutex::new(State { heard: Instant::now(), broken: None }) }
    }

    pub(super) const fn watched(&self) -> WatchedKind {
        self.watched
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server told a part of what is followed.
    pub(super) fn heard(&self) {
        self.state().heard = Instant::now();
    }

    /// The watch stands; returns how long it did not.
    pub(super) fn stands(&self) -> Option<Duration> {
        let mut state = self.state();
        state.heard = Instant::now();
        state.broken.take().map(|(since, _)| since.elapsed())
    }

    /// An attempt failed; tells whether the watch stood until now.
    pub(super) fn broke(&self, error: String) -> bool {
        let mut state = self.state();
        if let Some((_, broken)) = &mut state.broken {
            broken.error = error;
            return false;
        }
        state.broken = Some((Instant::now(), Broken { watched: self.watched, since: Timestamp::now(), error }));
        true
    }

    /// How long ago the server was last heard of; before that, how long ago the watch was begun.
    pub fn age(&self) -> Duration {
        self.state().heard.elapsed()
    }

    /// Why the watch does not stand; `None` while it does.
    pub fn broken(&self) -> Option<Broken> {
        self.state().broken.as_ref().map(|(_, broken)| broken.clone())
    }

    /// Whether it has not been broken for long, and gave a sign of life lately.
    pub(crate) fn stands_well(&self) -> bool {
        self.broken_for() <= GRACE && self.age() <= STALE
    }

    /// How long the watch has been broken; nought while it stands.
    pub(super) fn broken_for(&self) -> Duration {
        self.state().broken.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }
}
