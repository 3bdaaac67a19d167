//! MIG: which instances a GPU can be split into.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Part;
use crate::market::offer::GpuSpec;

/// Longest name of an operator's own layout: it is a label's value.
const MAX_CONFIG: usize = 63;

/// A kind of MIG instance, written `1g.10gb`: compute slices, and memory in nominal GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MigProfile {
    /// Compute slices; from 1.
    pub compute: u32,
    /// Memory; from 1.
    pub gib: u32,
}

/// A text that is no MIG profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MIG profile: write it like 1g.10gb")]
pub struct NoProfile(pub String);

impl MigProfile {
    /// The resource that the device plugin advertises it as under the strategy `mixed`.
    pub fn resource(self) -> String {
        format!("{}{self}", super::MIG_RESOURCE)
    }
}

impl FromStr for MigProfile {
    type Err = NoProfile;

    fn from_str(text: &str) -> Result<Self, NoProfile> {
        let number = |digits: &str| -> Option<u32> {
            let plain =
                !digits.starts_with('0') && (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let read = || {
            let (compute, memory) = text.split_once("g.")?;
            Some(Self { compute: number(compute)?, gib: number(memory.strip_suffix("gb")?)? })
        };
        read().ok_or_else(|| NoProfile(text.to_owned()))
    }
}

impl TryFrom<String> for MigProfile {
    type Error = NoProfile;

    fn try_from(text: String) -> Result<Self, NoProfile> {
        text.parse()
    }
}

impl From<MigProfile> for String {
    fn from(profile: MigProfile) -> Self {
        profile.to_string()
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}g.{}gb", self.compute, self.gib))
    }
}

/// The MIG instances of every GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MigLayout {
    /// As many of one profile as the GPU takes: the MIG manager's configurations `all-1g.10gb` and their like.
    All(MigProfile),
    /// Small and large beside each other: the MIG manager's `all-balanced`.
    Balanced,
    /// The operator's own: so many of each profile; never empty, no number is zero.
    Own(BTreeMap<MigProfile, u32>),
}

impl MigLayout {
    /// Why a layout of the operator's own can have no configuration of its name; `None` where it can.
    pub fn too_long(own: &BTreeMap<MigProfile, u32>) -> Option<usize> {
        Some(Self::Own(own.clone()).config().len()).filter(|length| *length > MAX_CONFIG)
    }

    /// The MIG manager's configuration that makes it: of an operator's own layout `2x1g.10gb-1x3g.40gb`.
    pub fn config(&self) -> String {
        match self {
            Self::All(profile) => format!("all-{profile}"),
            Self::Balanced => "all-balanced".to_owned(),
            Self::Own(own) => own.iter().map(|(profile, number)| format!("{number}x{profile}")).collect::<Vec<_>>().join("-"),
        }
    }

    /// Whether all instances are alike, whatever the GPU.
    pub fn is_uniform(&self) -> bool {
        match self {
            Self::All(_) => true,
            Self::Balanced => false,
            Self::Own(own) => own.len() == 1,
        }
    }

    /// The instances that it makes of such a GPU.
    ///
    /// # Errors
    /// Says what the GPU lacks.
    pub fn on(&self, gpu: &Geometry) -> Result<BTreeMap<MigProfile, u32>, Misfit> {
        let instances = match self {
            Self::All(profile) => BTreeMap::from([(*profile, gpu.most(*profile)?)]),
            Self::Balanced => gpu.balanced().ok_or(Misfit::NotBalanced)?,
            Self::Own(own) => own.clone(),
        };
        for profile in instances.keys() {
            gpu.most(*profile)?;
        }
        let (compute, memory) = gpu.used(&instances);
        if compute.of > compute.whole || memory.of > memory.whole {
            return Err(Misfit::TooMany { compute: (compute.of, compute.whole), memory: (memory.of, memory.whole) });
        }
        Ok(instances)
    }
}

/// What a GPU can be split into: its profiles, and how many slices each takes of how many.
///
/// A GPU of seven compute slices has eight of memory, a smaller one as many as of compute, and an instance of `1g.20gb` on 80 GiB has two of
/// the eight: so the guide's tables of A30 and A100 say, and so the numbers of instances of every other GPU come out. Where a GPU's
/// slices suffice for both, the instances can also be placed beside each other (a test tries every placement of the guide).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// By profile, the memory slices that it takes.
    profiles: BTreeMap<MigProfile, u32>,
    compute: u32,
    memory: u32,
}

impl Geometry {
    /// That of a GPU.
    ///
    /// # Errors
    /// Says that it cannot be split, or that no source tells into what.
    pub fn of(gpu: &GpuSpec) -> Result<Self, Misfit> {
        match gpu.mig_max_instances {
            Some(0) => return Err(Misfit::NoMig),
            Some(_) => {}
            None => return Err(Misfit::Unknown),
        }
        let whole = gpu.mig_profiles.iter().max().ok_or(Misfit::Unknown)?;
        let compute = whole.compute;
        let memory = if compute == 7 { 8 } else { compute };
        // Names round the memory, by half a GiB of a slice's dozens: the nearest whole number of slices is meant.
        let slices = |profile: &MigProfile| ((2 * profile.gib * memory + whole.gib) / (2 * whole.gib)).max(1);
        let profiles = gpu.mig_profiles.iter().map(|profile| (*profile, slices(profile))).collect();
        Ok(Self { profiles, compute, memory })
    }

    /// The instances that it can be split into, smallest first.
    pub fn profiles(&self) -> impl Iterator<Item = MigProfile> {
        self.profiles.keys().copied()
    }

    /// How many instances of a profile fit on it.
    ///
    /// # Errors
    /// Says that it lacks the profile.
    pub fn most(&self, profile: MigProfile) -> Result<u32, Misfit> {
        let memory = self.profiles.get(&profile).ok_or_else(|| Misfit::Lacks { profile, has: self.profiles().collect() })?;
        Ok((self.compute / profile.compute).min(self.memory / memory))
    }

    /// The compute and memory slices that instances take.
    pub fn used(&self, instances: &BTreeMap<MigProfile, u32>) -> (Part, Part) {
        let sum = |of_one: &dyn Fn(&MigProfile) -> u32| {
            instances.iter().fold(0_u32, |sum, (profile, number)| sum.saturating_add(of_one(profile).saturating_mul(*number)))
        };
        let compute = sum(&|profile| profile.compute);
        let memory = sum(&|profile| self.profiles.get(profile).copied().unwrap_or(0));
        (Part { of: compute, whole: self.compute }, Part { of: memory, whole: self.memory })
    }

    /// What `all-balanced` makes of it: of seven slices two of the least, one of two and one of three; of four two and one.
    fn balanced(&self) -> Option<BTreeMap<MigProfile, u32>> {
        // Of a size there may be one with more memory; the plain one has as little as its size allows.
        let plain = |compute: u32| self.profiles.keys().find(|profile| profile.compute == compute).copied();
        let (one, two) = (plain(1)?, plain(2)?);
        match self.compute {
            7 => Some(BTreeMap::from([(one, 2), (two, 1), (plain(3)?, 1)])),
            4 => Some(BTreeMap::from([(one, 2), (two, 1)])),
            _ => None,
        }
    }
}

/// Why a GPU cannot be shared as the pool says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Misfit {
    /// It cannot be split.
    #[error("cannot be split by MIG")]
    NoMig,
    /// Nobody tells whether it can be split, or into what.
    #[error("it is unknown into which MIG instances it can be split")]
    Unknown,
    /// The node has a part of a GPU, which its cloud has split already.
    #[error("has a part of a GPU, which cannot be split again by MIG")]
    PartOfGpu,
    /// It has no such profile.
    #[error("has no MIG profile {profile}: it has {}", .has.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Lacks {
        /// The profile.
        profile: MigProfile,
        /// Those that it has.
        has: Vec<MigProfile>,
    },
    /// The instances do not fit on it together.
    #[error("has {} compute slices and {} of memory, and these MIG instances take {} and {}", .compute.1, .memory.1, .compute.0, .memory.0)]
    TooMany {
        /// Compute slices taken, and had.
        compute: (u32, u32),
        /// Memory slices taken, and had.
        memory: (u32, u32),
    },
    /// The MIG manager has no balanced layout for it.
    #[error("has no balanced MIG layout: name the instances")]
    NotBalanced,
}
