//! Condensed readings of a node: the same value from round to round until something changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DriverState, Gate, GateResult, Interruption, Measured, Source, Why, XidClass};
use crate::base::ids::GpuUuid;

/// What has been seen of a node.
///
/// It holds moments of change and no levels, so that a fleet that goes on as before leaves the snapshot as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Who reads it.
    pub source: Source,
    /// The boot that all this is of, where the source tells: a machine that boots is seen again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Whether readings come.
    pub hearing: Hearing,
    /// How the driver stood at the last reading.
    pub driver: Measured<DriverState>,
    /// How many GPUs the driver counted, lost ones among them.
    pub counted: Measured<u32>,
    /// Every GPU seen since the boot. One that is no longer told of stays, unknown: it may be at work.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<GpuUuid, SeenGpu>,
    /// The conditions of a started node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<Gate, GateResult>,
    /// Errors that the driver reported.
    #[serde(default, skip_serializing_if = "Xids::is_empty")]
    pub xids: Xids,
    /// That the cloud will take the machine away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
}

/// Whether readings of a node come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hearing {
    /// They do.
    Heard {
        /// The first after the node was silent, or of all.
        since: Timestamp,
    },
    /// None came for three periods; nothing about what the node does now is known.
    Silent {
        /// The last that came; before the first, when one was first awaited.
        since: Timestamp,
    },
}

/// What has been seen of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenGpu {
    /// As the driver names it; empty where it does not.
    pub name: String,
    /// Whether it is at work. Of a GPU that is split: whether any of its instances is, or itself.
    pub activity: Activity,
    /// Its MIG instances.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instances: BTreeMap<GpuUuid, Activity>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ailments: BTreeSet<Ailment>,
}

/// Whether a GPU or an instance is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Activity {
    /// It is, or holds what a process left there: one reading is enough.
    Active {
        /// From when on.
        since: Timestamp,
    },
    /// No sign of work in any reading since, for at least [`SETTLED`](super::digest::SETTLED).
    Quiet {
        /// The first reading without a sign of work.
        since: Timestamp,
    },
    /// It cannot be told. Never taken for quiet.
    Unknown {
        /// Why.
        why: Why,
        /// From when on.
        since: Timestamp,
    },
}

/// A fact about a GPU's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HealthFact {
    /// What the driver wants done.
    RecoveryAction,
    /// Rows of memory replaced.
    RemappedRows,
    /// Pages of memory given up.
    RetiredPages,
    /// Memory errors.
    Ecc,
    /// How it is split.
    Mig,
    /// What holds its clocks down.
    Clocks,
}

impl HealthFact {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecoveryAction => "what the driver wants done",
            Self::RemappedRows => "which rows of its memory were replaced",
            Self::RetiredPages => "which pages of its memory were given up",
            Self::Ecc => "its memory errors",
            Self::Mig => "how it is split",
            Self::Clocks => "what throttles its clocks",
        }
    }
}

/// Something that is wrong with a GPU, or that cannot be told of it although its kind can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ailment {
    /// The driver wants it: 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.
    RecoveryAction(u8),
    /// A row waits for a reset to be replaced.
    RemapPending,
    /// A row could not be replaced: for life.
    RemapFailed,
    /// A page waits for a reset to be given up.
    RetirementPending,
    /// Memory errors that were not corrected, since the driver was loaded.
    UncorrectedErrors(u64),
    /// The MIG mode changes at the next reset, which is owed.
    MigChangePending,
    /// Heat or a want of power has held its clocks down in every reading of a minute.
    SlowedDown,
    /// It cannot be read, and should.
    Unread(HealthFact, Why),
}

impl Ailment {
    /// The fact that it is told by.
    pub const fn fact(&self) -> HealthFact {
        match self {
            Self::RecoveryAction(_) => HealthFact::RecoveryAction,
            Self::RemapPending | Self::RemapFailed => HealthFact::RemappedRows,
            Self::RetirementPending => HealthFact::RetiredPages,
            Self::UncorrectedErrors(_) => HealthFact::Ecc,
            Self::MigChangePending => HealthFact::Mig,
            Self::SlowedDown => HealthFact::Clocks,
            Self::Unread(fact, _) => *fact,
        }
    }
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecoveryAction(1) => f.write_str("the driver wants it reset"),
            Self::RecoveryAction(2) => f.write_str("the driver wants the machine rebooted"),
            Self::RecoveryAction(3) => f.write_str("the driver wants its links to other GPUs left unused"),
            Self::RecoveryAction(4) => f.write_str("the driver wants it emptied and reset"),
            Self::RecoveryAction(other) => write!(f, "the driver wants recovery action {other}"),
            Self::RemapPending => f.write_str("a row of its memory waits for a reset to be replaced"),
            Self::RemapFailed => f.write_str("a row of its memory could not be replaced"),
            Self::RetirementPending => f.write_str("a page of its memory waits for a reset to be given up"),
            Self::UncorrectedErrors(count) => write!(f, "{count} memory errors were not corrected"),
            Self::MigChangePending => f.write_str("its MIG mode changes at the next reset"),
            Self::SlowedDown => f.write_str("heat or too little power throttles its clocks"),
            Self::Unread(fact, why) => write!(f, "{} cannot be read: {why}", fact.as_str()),
        }
    }
}

/// The XIDs of one node since its boot, as far as they fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Xids {
    /// One entry for each code on each GPU, in the order in which each first came.
    pub kinds: Vec<SeenXid>,
    /// XIDs of which the entry had to make room for a worse one or a later one.
    #[serde(default)]
    pub left_out: u64,
}

/// Most entries of [`Xids`]: eight GPUs with two codes each. A GPU that fails gives a handful of codes over and over.
pub const MOST_XIDS: usize = 16;

/// One XID on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenXid {
    /// Its number.
    pub code: u32,
    /// The GPU, where the driver could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// How often.
    pub count: u32,
    /// When it first came, by the node's clock and not later than it reached us.
    pub first: Timestamp,
    /// When it last did.
    pub last: Timestamp,
}

impl SeenXid {
    /// What to make of it, where the driver asks for nothing itself.
    pub const fn class(&self) -> XidClass {
        XidClass::of(self.code)
    }
}

impl Xids {
    /// Whether there were none.
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.left_out == 0
    }

    /// Counts one more.
    pub(super) fn add(&mut self, code: u32, gpu: Option<&GpuUuid>, at: Timestamp) {
        if let Some(known) = self.kinds.iter_mut().find(|kind| kind.code == code && kind.gpu.as_ref() == gpu) {
            known.count = known.count.saturating_add(1);
            known.first = known.first.min(at);
            known.last = known.last.max(at);
            return;
        }
        self.kinds.push(SeenXid { code, gpu: gpu.cloned(), count: 1, first: at, last: at });
        if self.kinds.len() > MOST_XIDS {
            let least = self.kinds.iter().enumerate().min_by_key(|(place, kind)| (kind.class(), kind.last, *place));
            if let Some(place) = least.map(|(place, _)| place) {
                let gone = self.kinds.remove(place);
                self.left_out = self.left_out.saturating_add(u64::from(gone.count));
            }
        }
    }
}

/// That the cloud will take a machine away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// How; never [`Interruption::Withdrawn`].
    pub kind: Interruption,
    /// When, where the cloud says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When it reached us.
    pub since: Timestamp,
}
