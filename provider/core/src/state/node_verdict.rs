//! Node verdicts: booting, warm, idle, busy, held, unhealthy, draining or unknown, with the reason.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::GpuUuid;
use crate::facts::activity::Unclear;
use crate::facts::reading::seen::Ailment;
use crate::facts::reading::{Gate, Why};
use crate::state::probe_history::QUIET_FOR;

/// What is concluded of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is not Ready, or a gate of its start is not passed.
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
    /// Since when the verdict is this one; a reason that changes alone does not begin it again. Of a free node, warm or idle: since when it
    /// is free.
    pub since: Timestamp,
}

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// Its machine has not joined the cluster.
    NotJoined,
    /// Its Node is not Ready.
    NotReady,
    /// Its Node is not Ready any more, and nothing held it: its kubelet may be back in seconds.
    Away {
        /// Since when nothing holds it.
        free_since: Timestamp,
        /// Whether its window is over.
        released: bool,
    },
    /// A gate of its start is not passed.
    Gate {
        /// Which.
        gate: Gate,
        /// Why, in the probe's words.
        why: String,
    },
    /// GPU pods are bound to it.
    Pods,
    /// GPU pods are bound to it, and have done nothing for as long as the pool allows.
    Held {
        /// The first of them, as `namespace/name`.
        pod: String,
        /// How many there are beside it.
        others: u32,
    },
    /// No GPU pod is bound to it.
    NoPods,
    /// No GPU pod is bound to it, and no probe of its pool is heard that could tell more.
    NoPodsUnseen,
    /// No GPU pod is bound to it, and its GPUs are proven quiet.
    Quiet,
    /// A GPU is at work, or holds what a process left there, without a pod.
    Active {
        /// The GPU, or its MIG instance.
        gpu: GpuUuid,
    },
    /// Its GPUs have not been quiet for long.
    JustQuiet,
    /// Nothing has been heard of its GPUs yet.
    Awaited,
    /// Its probe has not been heard since then.
    Silent(Timestamp),
    /// It cannot be told whether a GPU is at work.
    Unclear {
        /// The GPU.
        gpu: GpuUuid,
        /// Why not.
        why: Why,
    },
    /// Its driver shows fewer GPUs than it has.
    Missing,
    /// The driver reported an error after which a GPU is not fit for work.
    Xid {
        /// Its number.
        code: u32,
        /// The GPU, where the driver could tell.
        gpu: Option<GpuUuid>,
    },
    /// The driver reported a suspect error for the second time within a day.
    XidAgain {
        /// The number of the later one.
        code: u32,
        /// The GPU, where the driver could tell.
        gpu: Option<GpuUuid>,
    },
    /// A GPU is off the bus.
    Lost {
        /// The GPU.
        gpu: GpuUuid,
    },
    /// Something is wrong with a GPU.
    Ails {
        /// The GPU.
        gpu: GpuUuid,
        /// What.
        ailment: Ailment,
    },
    /// Its cloud calls its machine impaired.
    Impaired {
        /// What is wrong, as a sentence.
        why: String,
    },
    /// Somebody else has closed it to new pods: who looks into it, or the autoscaler, which deletes it.
    Closed {
        /// Since when nothing holds it.
        free_since: Timestamp,
        /// Whether its window is over, so that the autoscaler may have taken it at its word.
        released: bool,
    },
    /// It is being let go.
    Disruption,
    /// It has been free for so long that its window is over.
    WindowOver {
        /// Since when it is free.
        free_since: Timestamp,
    },
}

impl Judged {
    /// Since when the node is free, or would be were it open and Ready; `None` where something holds it, or may.
    pub const fn free_since(&self) -> Option<Timestamp> {
        match (self.verdict, &self.why) {
            (Verdict::Idle, Reason::WindowOver { free_since })
            | (Verdict::Draining, Reason::Closed { free_since, .. })
            | (Verdict::Booting, Reason::Away { free_since, .. }) => Some(*free_since),
            (Verdict::Warm | Verdict::Idle, _) => Some(self.since),
            _ => None,
        }
    }

    /// Whether its Node is not Ready: not yet, or not any more.
    pub const fn is_not_ready(&self) -> bool {
        matches!(self.why, Reason::NotReady | Reason::Away { .. })
    }

    /// Whether its window is over, so that it may go: it is idle, or was when somebody closed it or its kubelet went away.
    pub const fn is_released(&self) -> bool {
        match (self.verdict, &self.why) {
            (Verdict::Idle, _) => true,
            (Verdict::Draining, Reason::Closed { released, .. }) | (Verdict::Booting, Reason::Away { released, .. }) => {
                *released
            }
            _ => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |gpu: &Option<GpuUuid>| gpu.as_ref().map_or_else(|| "a GPU".to_owned(), |gpu| format!("GPU {gpu}"));
        match self {
            Self::NotJoined => f.write_str("its machine has not joined the cluster"),
            Self::NotReady | Self::Away { .. } => f.write_str("its Node is not Ready"),
            Self::Gate { gate, why } => write!(f, "the start-up check of {gate} failed: {why}"),
            Self::Pods => f.write_str("GPU pods are bound to it"),
            Self::Held { pod, others: 0 } => write!(f, "{pod} occupies its GPUs and does nothing with them"),
            Self::Held { pod, others } => write!(f, "{pod} and {others} more pods occupy its GPUs and do nothing with them"),
            Self::NoPods => f.write_str("no GPU pod is bound to it"),
            Self::NoPodsUnseen => f.write_str("no GPU pod is bound to it, and no probe of its pool reports"),
            Self::Quiet => f.write_str("no GPU pod is bound to it, and its GPUs are idle"),
            Self::Active { gpu } => write!(f, "GPU {gpu} is busy without a pod"),
            Self::JustQuiet => write!(f, "its GPUs have been idle for less than {} s", QUIET_FOR.as_secs()),
            Self::Awaited => f.write_str("its GPUs have not been read yet"),
            Self::Silent(since) => write!(f, "its probe has not reported since {}", since.strftime("%Y-%m-%d %H:%M:%SZ")),
            Self::Unclear { gpu, why } => write!(f, "it is unknown whether GPU {gpu} is busy: {why}"),
            Self::Missing => f.write_str("its driver shows fewer GPUs than it has"),
            Self::Xid { code, gpu } => write!(f, "XID {code} on {}", of(gpu)),
            Self::XidAgain { code, gpu } => write!(f, "XID {code} on {}, the second suspect error within a day", of(gpu)),
            Self::Lost { gpu } => write!(f, "GPU {gpu} is off the bus"),
            Self::Ails { gpu, ailment } => write!(f, "GPU {gpu}: {ailment}"),
            Self::Impaired { why } => f.write_str(why),
            Self::Closed { .. } => f.write_str("somebody has cordoned it"),
            Self::Disruption => f.write_str("it is being drained"),
            Self::WindowOver { free_since } => {
                write!(f, "it has been free since {}, and its window has ended", free_since.strftime("%H:%MZ"))
            }
        }
    }
}

impl Unclear<'_> {
    /// The reason of a verdict that rests on it.
    pub fn reason(self) -> Reason {
        match self {
            Self::Unread | Self::NotYet => Reason::Awaited,
            Self::Silent(since) => Reason::Silent(since),
            Self::Gpu(gpu, why, _) => Reason::Unclear { gpu: gpu.clone(), why },
            Self::Missing => Reason::Missing,
        }
    }
}
