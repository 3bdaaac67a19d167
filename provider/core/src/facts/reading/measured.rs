//! Measured levels: known, or unknown for a reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A level, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measured<T> {
    /// It was read.
    Known(T),
    /// It was not.
    Unknown(Why),
}

impl<T> Measured<T> {
    /// The level, where there is one.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(level) => Some(level),
            Self::Unknown(_) => None,
        }
    }

    /// Why something that this hardware and source do read was not read this time; `None` where it was, or never is.
    pub const fn unread(&self) -> Option<Why> {
        match self {
            Self::Known(_) | Self::Unknown(Why::NotReported | Why::NotSupported | Why::NoPermission | Why::NotTrusted) => None,
            Self::Unknown(why) => Some(*why),
        }
    }
}

impl<T> Default for Measured<T> {
    fn default() -> Self {
        Self::Unknown(Why::NotReported)
    }
}

/// Why something is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The source says nothing of it.
    NotReported,
    /// The hardware, the driver or the MIG mode has no such reading.
    NotSupported,
    /// The probe may not read it.
    NoPermission,
    /// The GPU is off the bus or needs a reset.
    GpuLost,
    /// The driver did not answer in time.
    TimedOut,
    /// The driver answered with an error.
    Failed,
    /// The first of two samples that it needs.
    NotYet,
    /// It reads, and what it reads cannot be trusted.
    NotTrusted,
    /// What was sent is beyond what hardware can have.
    Absurd,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotReported => "no reason is given",
            Self::NotSupported => "there is no such reading",
            Self::NoPermission => "the probe has no permission to read it",
            Self::GpuLost => "the GPU is lost",
            Self::TimedOut => "the driver did not answer in time",
            Self::Failed => "the driver answered with an error",
            Self::NotYet => "it has not been read for long enough",
            Self::NotTrusted => "what it reads cannot be trusted",
            Self::Absurd => "it reads more than hardware can have",
        })
    }
}

/// A share in thousandths; never above 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Permille(u16);

impl Permille {
    /// The share, or `None` above the whole.
    pub const fn new(thousandths: u16) -> Option<Self> {
        if thousandths <= 1000 { Some(Self(thousandths)) } else { None }
    }

    /// In thousandths.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Permille {
    type Error = String;
    fn try_from(thousandths: u16) -> Result<Self, String> {
        Self::new(thousandths).ok_or_else(|| format!("{thousandths} thousandths are more than the whole"))
    }
}

impl From<Permille> for u16 {
    fn from(share: Permille) -> Self {
        share.0
    }
}
