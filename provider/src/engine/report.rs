//! Who hears of passes and of calls, and what they hear.

use std::time::Duration;

use jiff::Timestamp;
use stoker_core::check::Fatal;
use stoker_core::ids::{DecisionId, NodeGroupId};
use stoker_core::memory::Memory;
use stoker_core::plan::{Action, Explanation, Note};
use stoker_core::snapshot::Snapshot;

use super::handle::CallRefused;
use crate::journal::JournalError;
use crate::view::View;

/// Hears of every pass: metrics, events for people, the demo.
pub trait Listener: Send + Sync + 'static {
    /// A pass was made, checked and written down.
    fn passed(&self, pass: &PassReport<'_>);
    /// A pass was not acted on, and why.
    fn failed(&self, why: &PassFailed);
    /// A mutating call on a group was answered.
    fn called(&self, call: Call, group: &NodeGroupId, result: Result<(), &CallRefused>);
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
    /// What happened that people may want to know.
    pub notes: &'a [Note],
    /// The memory that it was decided on.
    pub before: &'a Memory,
    /// The facts that it was decided on.
    pub snapshot: &'a Snapshot,
    /// What is being done.
    pub actions: &'a [Action],
    /// Why orders were supplied as they were.
    pub explanations: &'a [Explanation],
    /// The view that it published.
    pub view: &'a View,
}

/// Why a pass was not acted on.
#[derive(Debug, thiserror::Error)]
pub enum PassFailed {
    /// It would have broken a promise.
    #[error("the plan would break a promise and is not acted on: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unsound(Vec<Fatal>),
    /// It could not be written down.
    #[error("the journal cannot be written, so nothing is done")]
    Journal(#[source] JournalError),
}
