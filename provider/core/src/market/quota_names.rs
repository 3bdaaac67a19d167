//! The clouds' own quotas: what each is called, what it counts and in which unit. Read in September 2026
//! from AWS's quota codes in several public repositories, GCP's compute v1 API and Cloud Quotas ids, and karpenter-azure.
//!
//! Not here, and so to be written out in the policy where they bind: AWS's quotas of Trainium, Inferentia and DL machines (no NVIDIA
//! GPU), GCP's vCPU quotas by machine family (`A2_CPUS`) and of workstations (`_VWS_`), Azure's families of M60 machines.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::base::ids::Cloud;
use crate::base::kinds::QuotaUnit;
use crate::base::units::MiB;
use crate::market::offer::CapacityType::{self, OnDemand, Reserved, Spot};
use crate::market::offer::InstanceSpec;

/// A quota that a cloud is known to have.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// As the cloud spells it.
    pub name: &'static str,
    /// The cloud.
    pub cloud: &'static str,
    /// What the cloud's quota page calls it, where the name tells nothing.
    pub title: Option<&'static str>,
    /// What its numbers mean.
    pub unit: QuotaUnit,
    /// Whether it counts every region together; else each region has its own.
    pub global: bool,
    /// Another quota that counts these nodes where this one was never granted, which is where the policy does not list it.
    pub fallback: Option<&'static str>,
    /// Whether nothing is bought on demand under it until the policy lists it. So it is for the GPUs that AWS sells as P (V100, A100,
    /// H100 and their like) in every cloud: a new account may run none of them, and one node costs from $3 to over $100 an hour.
    pub must_be_listed: bool,
    capacity_types: &'static [CapacityType],
    members: Members,
}

/// Which instance types a quota counts.
#[derive(Debug, PartialEq, Eq)]
enum Members {
    /// Every one of the cloud.
    All,
    /// AWS: the letters that the type begins with, and the generation that follows: `p4de` is p, 4.
    Class(&'static [&'static str], RangeInclusive<u8>),
    /// GCP: the GPU model, of one memory size in GiB where it comes in two.
    Gpu(&'static str, Option<u64>),
    /// Azure: the series, which is the size without `Standard_` and its first number, squeezed: `NC24ads_A100_v4` is `ncadsa100v4`.
    Series(&'static [&'static str]),
}

impl Known {
    /// Whether it counts a node of this type bought so, in a region that it is for.
    pub fn counts(&self, spec: &InstanceSpec, capacity_type: CapacityType) -> bool {
        let name = spec.instance_type.as_str();
        self.cloud == spec.cloud.as_str()
            && self.capacity_types.contains(&capacity_type)
            && match &self.members {
                Members::All => true,
                Members::Class(letters, generations) => class(name)
                    .is_some_and(|(letter, generation)| letters.contains(&letter) && generations.contains(&generation)),
                Members::Gpu(model, gib) => {
                    spec.gpu_model.as_str() == *model && gib.is_none_or(|gib| spec.gpu_memory == MiB::from_gib(gib))
                }
                Members::Series(all) => all.contains(&series(name).as_str()),
            }
    }
}

/// A quota of the catalogue. Written as its name, which no two share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KnownQuota(&'static Known);

impl std::ops::Deref for KnownQuota {
    type Target = Known;

    fn deref(&self) -> &Known {
        self.0
    }
}

impl KnownQuota {
    /// The quota of that name. Clouds spell their own quotas in several ways, so case, spaces and punctuation do not count; nor does
    /// the `-per-project-region` that ends GCP's Cloud Quotas ids.
    pub fn find(name: &str) -> Option<Self> {
        let name = bare(name);
        Self::all().find(|known| bare(known.name) == name)
    }

    /// The quota that a cloud's answer names; of several, that with the longest name, which may have another's in it. Azure's `cores` is
    /// not looked for: answers about its other quotas have the word as well.
    pub fn named_in(answer: &str) -> Option<Self> {
        let answer = answer.to_lowercase();
        let is_named = |known: &Self| known.name != "cores" && answer.contains(&known.name.to_lowercase());
        Self::all().filter(is_named).max_by_key(|known| known.name.len())
    }

    /// Every one.
    pub fn all() -> impl Iterator<Item = Self> {
        AWS.iter().chain(GCP).chain(AZURE).map(Self)
    }

    /// The names of one cloud's.
    pub fn names_of(cloud: &Cloud) -> impl Iterator<Item = &'static str> {
        Self::all().filter(move |known| known.0.cloud == cloud.as_str()).map(|known| known.0.name)
    }
}

impl From<KnownQuota> for String {
    fn from(known: KnownQuota) -> Self {
        known.name.to_owned()
    }
}

impl TryFrom<String> for KnownQuota {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::find(&name).ok_or_else(|| format!("{name:?} is not a known quota"))
    }
}

/// The text without what clouds write one time so and one time otherwise.
fn squeezed(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn bare(name: &str) -> String {
    squeezed(name).replace("perprojectregion", "").replace("perproject", "")
}

/// The letters and the generation of an AWS type.
fn class(name: &str) -> Option<(&str, u8)> {
    let (letters, rest) = name.split_at_checked(name.find(|c: char| !c.is_ascii_lowercase())?)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((letters, rest.get(..digits)?.parse().ok()?))
}

/// The series of an Azure size.
fn series(name: &str) -> String {
    let name = squeezed(name);
    let name = name.strip_prefix("standard").unwrap_or(&name);
    let rest = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = name.strip_suffix(rest).unwrap_or_default();
    format!("{letters}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

const fn known(
    cloud: &'static str,
    name: &'static str,
    unit: QuotaUnit,
    capacity_types: &'static [CapacityType],
    members: Members,
) -> Known {
    Known { name, cloud, title: None, unit, global: false, fallback: None, must_be_listed: false, capacity_types, members }
}

const SPOT: &[CapacityType] = &[Spot];
/// A node in an on-demand capacity reservation counts like one bought on demand.
const NOT_SPOT: &[CapacityType] = &[Reserved, OnDemand];
const ANY: &[CapacityType] = &[Reserved, Spot, OnDemand];

const fn aws(
    name: &'static str,
    title: &'static str,
    capacity_types: &'static [CapacityType],
    letters: &'static [&'static str],
    generations: RangeInclusive<u8>,
) -> Known {
    let members = Members::Class(letters, generations);
    Known { title: Some(title), ..known("aws", name, QuotaUnit::Vcpus, capacity_types, members) }
}

const G: &[&str] = &["g", "gr", "vt"];
const P: &[&str] = &["p"];

/// AWS: vCPUs of one account in one region, on demand and spot apart (Service Quotas, service `ec2`). What a capacity reservation holds
/// counts on demand, filled or not; a capacity block does not count, which the ledger sees to: a market does not tell the two apart.
static AWS: &[Known] = &[
    aws("L-DB2E81BA", "Running On-Demand G and VT instances", NOT_SPOT, G, 0..=u8::MAX),
    Known { must_be_listed: true, ..aws("L-417A185B", "Running On-Demand P instances", NOT_SPOT, P, 0..=u8::MAX) },
    aws("L-3819A6DF", "All G and VT Spot Instance Requests", SPOT, G, 0..=u8::MAX),
    // Widely quoted as "All P Spot", its old name: it does not cover P5.
    aws("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", SPOT, P, 2..=4),
    // That P6 counts here is the word of two repositories, not AWS's.
    aws("L-C4BD4855", "All P5 Spot Instance Requests", SPOT, P, 5..=6),
];

const fn gcp(name: &'static str, model: &'static str, gib: Option<u64>) -> Known {
    known("gcp", name, QuotaUnit::Gpus, NOT_SPOT, Members::Gpu(model, gib))
}

const fn preemptible(name: &'static str, model: &'static str, gib: Option<u64>, fallback: &'static str) -> Known {
    Known { fallback: Some(fallback), ..known("gcp", name, QuotaUnit::Gpus, SPOT, Members::Gpu(model, gib)) }
}

const fn listed(known: Known) -> Known {
    Known { must_be_listed: true, ..known }
}

/// GCP: GPUs of one project in one region, by model, with a twin for spot that counts only where it was granted; and all GPUs of the
/// project together. Models without a quota of their own are counted by family, spot too where no twin is known. That the mega H100
/// counts as `NVIDIA_H100` is unconfirmed.
static GCP: &[Known] = &[
    Known { global: true, ..known("gcp", "GPUS_ALL_REGIONS", QuotaUnit::Gpus, ANY, Members::All) },
    gcp("NVIDIA_T4_GPUS", "T4", None),
    gcp("NVIDIA_P4_GPUS", "P4", None),
    gcp("NVIDIA_L4_GPUS", "L4", None),
    listed(gcp("NVIDIA_K80_GPUS", "K80", None)),
    listed(gcp("NVIDIA_P100_GPUS", "P100", None)),
    listed(gcp("NVIDIA_V100_GPUS", "V100", None)),
    listed(gcp("NVIDIA_A100_GPUS", "A100", Some(40))),
    listed(gcp("NVIDIA_A100_80GB_GPUS", "A100", Some(80))),
    preemptible("PREEMPTIBLE_NVIDIA_T4_GPUS", "T4", None, "NVIDIA_T4_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_P4_GPUS", "P4", None, "NVIDIA_P4_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_L4_GPUS", "L4", None, "NVIDIA_L4_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_K80_GPUS", "K80", None, "NVIDIA_K80_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_P100_GPUS", "P100", None, "NVIDIA_P100_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_V100_GPUS", "V100", None, "NVIDIA_V100_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_A100_GPUS", "A100", Some(40), "NVIDIA_A100_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_A100_80GB_GPUS", "A100", Some(80), "NVIDIA_A100_80GB_GPUS"),
    preemptible("PREEMPTIBLE_NVIDIA_H100_GPUS", "H100", None, "GPUS-PER-GPU-FAMILY/NVIDIA_H100"),
    listed(gcp("GPUS-PER-GPU-FAMILY/NVIDIA_H100", "H100", None)),
    listed(Known { capacity_types: ANY, ..gcp("GPUS-PER-GPU-FAMILY/NVIDIA_H200", "H200", None) }),
    listed(Known { capacity_types: ANY, ..gcp("GPUS-PER-GPU-FAMILY/NVIDIA_B200", "B200", None) }),
    Known { capacity_types: ANY, ..gcp("GPUS-PER-GPU-FAMILY/NVIDIA_RTX_PRO_6000", "RTXPRO6000", None) },
];

const fn family(name: &'static str, series: &'static [&'static str]) -> Known {
    known("azure", name, QuotaUnit::Vcpus, NOT_SPOT, Members::Series(series))
}

/// Azure: vCPUs of one subscription in one region (`Microsoft.Compute` usages). On demand, the family and the region's total both count;
/// spot counts against one pool of the region, whatever the family.
static AZURE: &[Known] = &[
    known("azure", "cores", QuotaUnit::Vcpus, NOT_SPOT, Members::All),
    known("azure", "lowPriorityCores", QuotaUnit::Vcpus, SPOT, Members::All),
    family("Standard NCASv3_T4 Family", &["ncast4v3"]),
    family("StandardNCADSA10v4Family", &["ncadsa10v4"]),
    family("StandardNVADSA10v5Family", &["nvadsa10v5", "nvadmsa10v5"]),
    // That the sizes with less memory (`lds`) count here too is unconfirmed.
    family("StandardNCdsRTXPRO6000BSEv6XLFamily", &["ncdsxlrtxpro6000bsev6", "ncldsxlrtxpro6000bsev6"]),
    listed(family("standardNCSv3Family", &["ncsv3", "ncrsv3"])),
    listed(family("standardNDSv2Family", &["ndrsv2"])),
    listed(family("StandardNCADSA100v4Family", &["ncadsa100v4"])),
    listed(family("Standard NDASv4_A100 Family", &["ndasrv4"])),
    listed(family("standard NDAMSv4_A100Family", &["ndamsra100v4", "ndamsa100v4"])),
    listed(family("StandardNCadsH100v5Family", &["ncadsh100v5", "ncadish100v5"])),
    listed(family("StandardNCCads2023Family", &["nccadsh100v5"])),
    listed(family("standardNDSH100v5Family", &["ndisrh100v5"])),
    listed(family("standardNDISRH200V5Family", &["ndisrh200v5"])),
    listed(family("standardNDISRGB200V6NDRFamily", &["ndisrndrgb200v6"])),
    listed(family("standardNDISRGB300V6Family", &["ndisrgb300v6"])),
];
