//! Who hears of passes and of calls, and what they hear.

use std::time::Duration;

use jiff::Timestamp;
use stoker_core::base::ids::{DecisionId, NodeGroupId};
use stoker_core::check::Finding;
use stoker_core::choose::explanation::Explanation;
use stoker_core::decide::orders::{DeleteRefused, OrderRefused};
use stoker_core::facts::snapshot::Snapshot;
use stoker_core::plan::{Action, JournalFault, Note};
use stoker_core::state::memory::Memory;

use crate::publish::view::NotReady;
use crate::publish::view::View;
use stoker_journal::JournalError;

/// Hears of every pass: metrics, events for people, the demo.
pub trait Listener: Send + Sync + 'static {
    /// A pass was made, checked and written down.
    fn passed(&self, pass: &PassReport<'_>);
    /// A pass could not be written down: only nodes at work were held, and nodes that the cloud
    /// takes drained.
    fn failed(&self, why: &JournalError);
    /// How the journal stands: what is wrong in this respect, or `None` where nothing is.
    fn journal(&self, fault: JournalFault, why: Option<String>);
    /// A mutating call on a group was answered.
    fn called(&self, call: Call, group: &NodeGroupId, result: Result<(), &CallRefused>);
}

/// Why a mutating call did nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallRefused {
    /// The order makes no sense or does not fit.
    #[error(transparent)]
    Order(#[from] OrderRefused),
    /// A node must not go.
    #[error(transparent)]
    Delete(#[from] DeleteRefused),
    /// The view is not whole yet.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The engine has stopped.
    #[error("shutting down")]
    Stopped,
}

/// A mutating call, as a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `NodeGroupIncreaseSize`.
    Increase,
    /// `NodeGroupDecreaseTargetSize`.
    Decrease,
    /// `NodeGroupDeleteNodes`.
    Delete,
}

impl Call {
    /// What the autoscaler calls it.
    pub const fn rpc(self) -> &'static str {
        match self {
            Self::Increase => "NodeGroupIncreaseSize",
            Self::Decrease => "NodeGroupDecreaseTargetSize",
            Self::Delete => "NodeGroupDeleteNodes",
        }
    }
}

/// What a pass did.
#[derive(Debug)]
pub struct PassReport<'a> {
    /// Its number in the journal; `None` where nothing was decided.
    pub decision: Option<DecisionId>,
    /// When.
    pub at: Timestamp,
    /// How long it took on the machine's own clock.
    pub took: Duration,
    /// The promises that the decision would have broken. What belongs to them is not done.
    pub findings: &'a [Finding],
    /// What happened that people may want to know.
    pub notes: &'a [Note],
    /// The memory that it was decided on.
    pub before: &'a Memory,
    /// The facts that it was decided on.
    pub snapshot: &'a Snapshot,
    /// What is being done.
    pub actions: &'a [Action],
    /// How many actions have had no effect for long.
    pub stuck: usize,
    /// Why orders were supplied as they were.
    pub explanations: &'a [Explanation],
    /// The view that it published.
    pub view: &'a View,
}
