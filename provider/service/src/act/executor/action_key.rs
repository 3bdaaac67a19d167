//! What is done to machines and Nodes, as far as one change is told from another.

use jiff::Timestamp;
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::plan::{Action, Evict};

/// A termination or a change to a Node, for telling repetitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ActionKey {
    Terminate(ProviderId),
    Hold(NodeName),
    Release(NodeName),
    Drain(NodeName, Evict, Lane),
    Uncordon(NodeName),
    RemoveNode(NodeName),
}

/// Whether a node is emptied because the cloud takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lane {
    Normal,
    Urgent,
}

impl Lane {
    pub(super) const fn of(gone_by: Option<Timestamp>) -> Self {
        if gone_by.is_some() { Self::Urgent } else { Self::Normal }
    }
}

impl ActionKey {
    /// The machine or node it is done to.
    pub(super) fn about(&self) -> &str {
        match self {
            Self::Terminate(instance) => instance.as_str(),
            Self::Hold(node) | Self::Release(node) | Self::Drain(node, ..) | Self::Uncordon(node) | Self::RemoveNode(node) => {
                node.as_str()
            }
        }
    }

    /// What is done.
    pub(super) const fn verb(&self) -> &'static str {
        match self {
            Self::Terminate(_) => "terminate",
            Self::Hold(_) => "hold",
            Self::Release(_) => "release",
            Self::Drain(..) => "drain",
            Self::Uncordon(_) => "uncordon",
            Self::RemoveNode(_) => "remove-node",
        }
    }

    /// Whether it is to empty a node that the cloud takes.
    pub(super) const fn is_urgent(&self) -> bool {
        matches!(self, Self::Drain(_, _, Lane::Urgent))
    }
}

/// Which pods are told to go, and by when they must be gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pods {
    pub(super) evict: Evict,
    pub(super) gone_by: Option<Timestamp>,
}

/// A change to a Node, with what it takes to do it.
pub(super) enum NodeChange {
    Hold(NodeName),
    Release(NodeName),
    Drain(NodeName, ProviderId, Pods),
    Uncordon(NodeName, ProviderId),
    Remove(NodeName, ProviderId),
}

impl NodeChange {
    /// Whether it is to empty a node that the cloud takes.
    pub(super) const fn lane(&self) -> Lane {
        match self {
            Self::Drain(_, _, Pods { gone_by, .. }) => Lane::of(*gone_by),
            Self::Hold(_) | Self::Release(_) | Self::Uncordon(..) | Self::Remove(..) => Lane::Normal,
        }
    }

    /// The Node.
    pub(super) const fn node(&self) -> &NodeName {
        match self {
            Self::Hold(node)
            | Self::Release(node)
            | Self::Drain(node, ..)
            | Self::Uncordon(node, _)
            | Self::Remove(node, _) => node,
        }
    }
}

/// What an action does to a machine or a Node; `None` of a launch, which its key keeps from being done twice.
pub(super) fn action_key(action: &Action) -> Option<ActionKey> {
    match action {
        Action::Launch { .. } => None,
        Action::Terminate { instance, .. } => Some(ActionKey::Terminate(instance.clone())),
        Action::Hold { node, .. } => Some(ActionKey::Hold(node.clone())),
        Action::Release { node } => Some(ActionKey::Release(node.clone())),
        Action::Drain { node, evict, gone_by, .. } => Some(ActionKey::Drain(node.clone(), *evict, Lane::of(*gone_by))),
        Action::Uncordon { node, .. } => Some(ActionKey::Uncordon(node.clone())),
        Action::RemoveNode { node, .. } => Some(ActionKey::RemoveNode(node.clone())),
    }
}
