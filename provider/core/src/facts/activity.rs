//! GPU activity of a node, from its probe: the one rule for verdicts and for the check before a
//! deletion.

use jiff::{SignedDuration, Timestamp};

use crate::base::ids::GpuUuid;
use crate::facts::reading::seen::{Activity, Hearing, Seen};
use crate::facts::reading::{Measured, Why};

/// How long a GPU may not be told of, or a probe be silent, before what the node does is unknown: three rounds.
pub const UNTOLD_FOR: SignedDuration = SignedDuration::from_secs(15);

/// The same where nothing has come yet: after a restart of this service, its probes come back within their longest wait (30 s) and
/// tell of quiet 15 s later. Until then verdicts stand, and nothing is ended that they do not prove.
pub const AWAITED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Whether a node's GPUs are at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuActivity<'a> {
    /// One is, or an instance of one.
    Active(&'a GpuUuid),
    /// None is, which is proven of each; since then.
    Quiet(Timestamp),
    /// It cannot be told.
    Unclear(Unclear<'a>),
}

impl Default for GpuActivity<'_> {
    fn default() -> Self {
        Self::Unclear(Unclear::Unread)
    }
}

/// Why it cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclear<'a> {
    /// Nobody reads it.
    Unread,
    /// It has not been read for long enough.
    NotYet,
    /// Its probe is silent since then.
    Silent(Timestamp),
    /// Of one GPU it cannot, since then.
    Gpu(&'a GpuUuid, Why, Timestamp),
    /// A GPU that the driver counts was never shown, or none at all.
    Missing,
}

impl<'a> GpuActivity<'a> {
    /// By what has been seen of the node; `None` where nobody reads it.
    pub fn of(seen: Option<&'a Seen>) -> Self {
        let Some(seen) = seen else { return Self::default() };
        if let Hearing::Silent { since } = seen.hearing {
            return Self::Unclear(Unclear::Silent(since));
        }
        let mut untold: Option<Unclear<'a>> = None;
        let mut quiet: Option<Timestamp> = None;
        for (uuid, gpu) in &seen.gpus {
            // An instance that is at work makes its GPU so, and names it better.
            let instance = gpu.instances.iter().find(|(_, activity)| matches!(activity, Activity::Active { .. }));
            match (instance, gpu.activity) {
                (Some((instance, _)), _) => return Self::Active(instance),
                (None, Activity::Active { .. }) => return Self::Active(uuid),
                (None, Activity::Unknown { why: Why::NotYet, .. }) => {
                    untold.get_or_insert(Unclear::NotYet);
                }
                (None, Activity::Unknown { why, since }) => {
                    // What is wrong with one says more than that another was not read for long.
                    if untold.is_none_or(|known| known == Unclear::NotYet) {
                        untold = Some(Unclear::Gpu(uuid, why, since));
                    }
                }
                (None, Activity::Quiet { since }) => quiet = quiet.max(Some(since)),
            }
        }
        if let Some(untold) = untold {
            return Self::Unclear(untold);
        }
        let fewer = matches!(seen.counted, Measured::Known(count) if (count as usize) > seen.gpus.len());
        match quiet {
            Some(since) if !fewer => Self::Quiet(since),
            _ => Self::Unclear(Unclear::Missing),
        }
    }
}

impl Unclear<'_> {
    /// From when on the node counts as unknown, of which nothing has been told since `since`.
    pub fn unknown_from(self, since: Timestamp) -> Timestamp {
        let after = |at: Timestamp, length: SignedDuration| at.saturating_add(length).unwrap_or(Timestamp::MAX);
        match self {
            Self::Unread | Self::NotYet => after(since, AWAITED_FOR),
            Self::Silent(at) | Self::Gpu(_, _, at) => after(at, UNTOLD_FOR),
            Self::Missing => after(since, UNTOLD_FOR),
        }
    }
}
