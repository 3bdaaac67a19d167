//! What is concluded of a node: whether it is at work, free, forgotten, broken or not known.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What is concluded of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is not Ready yet, or a gate of its start is not passed.
    Booting,
    /// Free, healthy and ready for a pod.
    Warm,
    /// Free for so long that it need not be kept: its window is over.
    Idle,
    /// At work.
    Busy,
    /// A pod holds its GPUs and does nothing with them: a forgotten notebook.
    Held,
    /// Its hardware is not fit for work.
    Unhealthy,
    /// It is being let go.
    Draining,
    /// What it does cannot be told. Never taken for idle.
    Unknown,
}

impl Verdict {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] =
        [Self::Booting, Self::Warm, Self::Idle, Self::Busy, Self::Held, Self::Unhealthy, Self::Draining, Self::Unknown];

    /// The word used in tables, annotations and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Warm => "warm",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::Unknown => "unknown",
        }
    }

    /// Whether nobody may take the node away: there is, or may be, work on it.
    pub const fn is_guarded(self) -> bool {
        matches!(self, Self::Busy | Self::Held | Self::Unknown)
    }

    /// Whether a pod that comes now can begin on it at once.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Warm | Self::Idle)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// What is concluded.
    pub verdict: Verdict,
    /// From what.
    pub why: Reason,
    /// Since when the verdict is this one; a reason that changes alone does not begin it anew.
    pub since: Timestamp,
}

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// Its machine has not joined the cluster.
    NotJoined,
    /// Its Node has not been Ready yet.
    NotReady,
    /// GPU pods are bound to it.
    Pods,
    /// No GPU pod is bound to it.
    NoPods,
    /// It is being let go.
    Leaving,
    /// It has been free for so long that its window is over.
    WindowOver {
        /// Since when it is free.
        free_since: Timestamp,
    },
}

impl Judged {
    /// Since when the node is free; `None` where it is not.
    pub const fn free_since(&self) -> Option<Timestamp> {
        match (self.verdict, &self.why) {
            (Verdict::Idle, Reason::WindowOver { free_since }) => Some(*free_since),
            (Verdict::Warm | Verdict::Idle, _) => Some(self.since),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJoined => f.write_str("its machine has not joined the cluster"),
            Self::NotReady => f.write_str("its Node has not been Ready yet"),
            Self::Pods => f.write_str("GPU pods are bound to it"),
            Self::NoPods => f.write_str("no GPU pod is bound to it"),
            Self::Leaving => f.write_str("it is being let go"),
            Self::WindowOver { free_since } => {
                write!(f, "it is free since {}, and its window is over", free_since.strftime("%H:%MZ"))
            }
        }
    }
}
