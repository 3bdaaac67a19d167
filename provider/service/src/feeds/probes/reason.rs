//! Why something that a probe sent was not taken.

use std::fmt;

/// Why something that a probe sent was not taken; the label of `stoker_probe_rejected_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The node is not of this cluster's feed. The stream is refused; the probe tries again.
    UnknownNode,
    /// Nothing is known of the cluster yet: we have just begun. The stream is refused; the probe tries again.
    NotReady,
    /// The identity is good and names another node, or is none of a probe's. The stream is refused.
    WrongIdentity,
    /// Nothing says who speaks. The stream is refused.
    NoIdentity,
    /// The API server could not be asked who speaks. New streams are refused, those that stand stay.
    ReviewUnavailable,
    /// What proved the identity counts no more: the token has expired, or its pod is gone. The stream ends; the probe comes back with
    /// another.
    Lapsed,
    /// A newer process speaks for the node. The stream is refused.
    OldSession,
    /// A round or event that was taken before. Left out.
    Replayed,
    /// A round or event older than one that was taken. Left out.
    OutOfOrder,
    /// By its clock the node is ahead of us. A round is left out, so that the node falls silent; an event is taken as of its arrival.
    Future,
    /// A level beyond what hardware can have, or GPUs that go by one UUID: unknown from then on.
    Absurd,
    /// More bytes or more parts than a node has. The stream ends before any of it is decoded.
    TooLarge,
    /// Not what the protocol says. The stream ends, or the round is left out.
    Malformed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::UnknownNode,
        Self::NotReady,
        Self::WrongIdentity,
        Self::NoIdentity,
        Self::ReviewUnavailable,
        Self::Lapsed,
        Self::OldSession,
        Self::Replayed,
        Self::OutOfOrder,
        Self::Future,
        Self::Absurd,
        Self::TooLarge,
        Self::Malformed,
    ];

    /// The label's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownNode => "unknown_node",
            Self::NotReady => "not_ready",
            Self::WrongIdentity => "wrong_identity",
            Self::NoIdentity => "no_identity",
            Self::ReviewUnavailable => "review_unavailable",
            Self::Lapsed => "lapsed",
            Self::OldSession => "old_session",
            Self::Replayed => "replayed",
            Self::OutOfOrder => "out_of_order",
            Self::Future => "future",
            Self::Absurd => "absurd",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
