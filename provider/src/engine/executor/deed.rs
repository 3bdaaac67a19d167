//! What is done to machines and Nodes, as far as one deed is told from another.

use jiff::Timestamp;
use stoker_core::ids::{NodeName, ProviderId};
use stoker_core::plan::{Action, Evict};

/// A termination or a change to a Node, for telling repetitions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    Terminate(ProviderId),
    Hold(NodeName),
    Release(NodeName),
    Drain(NodeName, Evict, Haste),
    Uncordon(NodeName),
    RemoveNode(NodeName),
}

/// Whether a node is emptied because the cloud takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Haste {
    No,
    Yes,
}

impl Haste {
    pub(super) const fn of(gone_by: Option<Timestamp>) -> Self {
        if gone_by.is_some() { Self::Yes } else { Self::No }
    }
}

impl Deed {
    /// The machine or node it is done to.
    pub(super) fn about(&self) -> &str {
        match self {
            Self::Terminate(instance) => instance.as_str(),
            Self::Hold(node) | Self::Release(node) | Self::Drain(node, ..) | Self::Uncordon(node) | Self::RemoveNode(node) => {
                node.as_str()
            }
        }
    }

    /// Whether it is to empty a node that the cloud takes.
    pub(super) const fn is_in_haste(&self) -> bool {
        matches!(self, Self::Drain(_, _, Haste::Yes))
    }
}

/// Which pods are told to go, and by when they must be gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pods {
    pub(super) evict: Evict,
    pub(super) gone_by: Option<Timestamp>,
}

/// A change to a Node, with what it takes to do it.
pub(super) enum KubeDeed {
    Hold(NodeName),
    Release(NodeName),
    Drain(NodeName, ProviderId, Pods),
    Uncordon(NodeName, ProviderId),
    Remove(NodeName, ProviderId),
}

impl KubeDeed {
    /// Whether it is to empty a node that the cloud takes.
    pub(super) const fn haste(&self) -> Haste {
        match self {
            Self::Drain(_, _, Pods { gone_by, .. }) => Haste::of(*gone_by),
            Self::Hold(_) | Self::Release(_) | Self::Uncordon(..) | Self::Remove(..) => Haste::No,
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
pub(super) fn deed(action: &Action) -> Option<Deed> {
    match action {
        Action::Launch { .. } => None,
        Action::Terminate { instance, .. } => Some(Deed::Terminate(instance.clone())),
        Action::Hold { node, .. } => Some(Deed::Hold(node.clone())),
        Action::Release { node } => Some(Deed::Release(node.clone())),
        Action::Drain { node, evict, gone_by, .. } => Some(Deed::Drain(node.clone(), *evict, Haste::of(*gone_by))),
        Action::Uncordon { node, .. } => Some(Deed::Uncordon(node.clone())),
        Action::RemoveNode { node, .. } => Some(Deed::RemoveNode(node.clone())),
    }
}
