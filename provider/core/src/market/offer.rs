//! Offers: instance types, the markets that sell them, and their GPUs.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::engine_clock::Wall;
use crate::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use crate::base::units::{MiB, Milli};
use crate::market::hazard::Prior;
use crate::market::price::{Entry, Quote, Unpriced, usable};
use crate::market::sharing::MigProfile;

/// How capacity is bought.
///
/// The declared order is the stable order of explanations, not of preference: that is the pool's `capacity.prefer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Capacity or spend already committed to.
    Reserved,
    /// Spare capacity that the cloud may take back at short notice.
    Spot,
    /// Pay per second at the list price.
    OnDemand,
}

impl CapacityType {
    /// Every capacity type, in declared order.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// The word used in policies, labels, metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// The capacity type of that [word](Self::as_str).
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where one instance type is sold: cloud × region × zone × type. Capacity is bought here under a [`CapacityType`].
///
/// Clouds that do not tell zones have one zone a region, named like the region.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The cloud.
    pub cloud: Cloud,
    /// The region.
    pub region: Region,
    /// The zone, by id.
    pub zone: ZoneId,
    /// The instance type.
    pub instance_type: InstanceType,
}

/// Where a price, a stock and a reclaim risk live: instance type × zone × capacity type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Market {
    /// Where, and which type.
    #[serde(flatten)]
    pub place: Place,
    /// How it is bought.
    pub capacity_type: CapacityType,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cloud, self.zone, self.instance_type)
    }
}

impl fmt::Display for Market {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.capacity_type)
    }
}

/// Processor architecture, as in the label `kubernetes.io/arch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit Arm (Graviton, Grace).
    Arm64,
}

impl Arch {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Most pods that a node runs: the kubelet's default.
pub const PODS: u32 = 110;

/// The network interfaces of an instance type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Network {
    /// Most pods that get an address of their own. A kubelet may still run fewer.
    pub pods: u32,
    /// Network cards.
    pub cards: u32,
    /// Interfaces of the Elastic Fabric Adapter; 0 where the type has none.
    pub efa_interfaces: u32,
}

/// What one instance type is made of; the same in every zone that sells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The cloud.
    pub cloud: Cloud,
    /// The instance type.
    pub instance_type: InstanceType,
    /// The GPU model.
    pub gpu_model: GpuModel,
    /// Physical GPUs in thousandths: a sixth of an A10 is `Milli(167)`.
    pub gpus: Milli,
    /// Memory of one physical GPU.
    pub gpu_memory: MiB,
    /// Virtual CPUs; `None` where the source does not tell, and then no template can be built.
    pub vcpus: Option<u32>,
    /// Main memory; `None` where the source does not tell.
    pub memory: Option<MiB>,
    /// Processor architecture.
    pub arch: Arch,
    /// Network interfaces; `None` where no source names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Size of all its local disks (the instance store).
    /// `None` where it has none, or no source names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_disk: Option<MiB>,
}

impl InstanceSpec {
    /// Pods that its network has addresses for; the kubelet's default where no source tells.
    pub fn network_pods(&self) -> u32 {
        self.network.map_or(PODS, |network| network.pods)
    }

    /// GPUs as the node advertises them: a fraction of a GPU is one `nvidia.com/gpu`.
    pub const fn advertised_gpus(&self) -> u32 {
        if self.gpus.0 < 1000 { 1 } else { self.gpus.0 / 1000 }
    }

    /// GPU memory that one advertised GPU has: all of a whole GPU, or the slice's share of a fractional one.
    pub const fn memory_per_advertised_gpu(&self) -> MiB {
        if self.gpus.0 < 1000 { MiB(self.gpu_memory.0 * self.gpus.0 as u64 / 1000) } else { self.gpu_memory }
    }

    /// Whether its driver sees whole GPUs. Parts of one are vGPUs, which are named and sized by their profile, and so are whole ones where
    /// a cloud gives them no other driver: Azure's A10 is an `A10-24Q` with 24,512 MiB.
    pub fn has_whole_gpus(&self) -> bool {
        let are_virtual = self.cloud.as_str() == "azure" && ["A10", "RTXPRO6000"].contains(&self.gpu_model.as_str());
        self.gpus.0 >= 1000 && !are_virtual
    }

    /// The product name that its driver reports for its GPUs; `None` where that is not certain.
    pub fn product<'g>(&self, gpu: &'g GpuSpec) -> Option<&'g str> {
        // The tables have the SXM form of these; under the same name some clouds sell the PCIe form, as Azure does in its NC sizes.
        let has_forms = ["A100", "V100"].contains(&self.gpu_model.as_str());
        let is_sxm = || match self.cloud.as_str() {
            "aws" | "gcp" => true,
            "azure" => self.instance_type.as_str().starts_with("Standard_ND"),
            _ => false,
        };
        gpu.names.product.as_deref().filter(|_| self.has_whole_gpus() && (!has_forms || is_sxm()))
    }
}

/// What one GPU model can do. Figures are per physical GPU; `None` is "no figure found", never nought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSpec {
    /// The model.
    pub model: GpuModel,
    /// Its memory. One model may come in two sizes (A100 40 and 80 GiB).
    pub memory: MiB,
    /// Memory bandwidth in GB/s.
    pub bandwidth_gb_s: Option<u32>,
    /// Dense FP16 in gigaflops (so that 18.7 TFLOPS stays an integer).
    pub fp16_gflops: Option<u64>,
    /// Dense FP8 in gigaflops.
    pub fp8_gflops: Option<u64>,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// MIG instances it can be split into at most; nought where it cannot be split.
    pub mig_max_instances: Option<u32>,
    /// MIG profiles it can be split into, as far as they are known.
    pub mig_profiles: Vec<MigProfile>,
    /// NVLink bandwidth in GB/s; nought where it has none.
    pub nvlink_gb_s: Option<u32>,
    /// What others call it.
    pub names: GpuNames,
}

/// What others call a GPU and its memory, as labels of nodes have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuNames {
    /// Its product name, which GPU feature discovery takes from the driver.
    pub product: Option<String>,
    /// MiB of memory that the driver (NVML) reports.
    pub nvml_mib: Option<u64>,
    /// Its name in the API of AWS, in lower case.
    pub aws: Option<String>,
    /// MiB of memory that the API of AWS reports.
    pub aws_mib: Option<u64>,
    /// Its names on GKE.
    pub gke: Vec<String>,
}

impl GpuSpec {
    /// Least compute capability with FP8 arithmetic: Ada's, 8.9, as NVIDIA's tuning guides say; Hopper and Blackwell are above it.
    pub const LEAST_FP8: ComputeCapability = ComputeCapability { major: 8, minor: 9 };

    /// One of its figures, in a unit of the figure's own; `None` where no source tells.
    pub fn figure(&self, figure: GpuFigure) -> Option<u64> {
        match figure {
            GpuFigure::Bandwidth => self.bandwidth_gb_s.map(u64::from),
            GpuFigure::Fp16 => self.fp16_gflops,
            GpuFigure::Fp8 => self.fp8_gflops,
        }
    }

    /// Whether it has a feature; `None` where no source tells.
    pub fn has(&self, feature: GpuFeature) -> Option<bool> {
        match feature {
            GpuFeature::Nvlink => self.nvlink_gb_s.map(|gb_s| gb_s > 0),
            GpuFeature::Fp8 => self.compute_capability.map(|capability| capability >= Self::LEAST_FP8),
            GpuFeature::Mig => self.mig_max_instances.map(|instances| instances > 0),
        }
    }
}

/// A figure of a GPU that bounds how fast it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GpuFigure {
    /// Memory bandwidth: bounds generating answers from a language model.
    Bandwidth,
    /// Dense 16-bit arithmetic: bounds training, embedding and reading prompts.
    Fp16,
    /// Dense eight-bit arithmetic: the same, in FP8.
    Fp8,
}

impl fmt::Display for GpuFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "memory bandwidth",
            Self::Fp16 => "FP16 arithmetic",
            Self::Fp8 => "FP8 arithmetic",
        })
    }
}

/// What some GPU models can do and others cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GpuFeature {
    /// The GPUs of a node talk to each other over NVLink. Tables tell it by GPU model: some cards have it by a bridge, which not
    /// every instance type fits. A node with one GPU has nothing to link.
    Nvlink,
    /// Arithmetic in eight-bit floating point.
    Fp8,
    /// It can be split into MIG instances.
    Mig,
}

impl GpuFeature {
    /// Every feature, in declared order.
    pub const ALL: [Self; 3] = [Self::Nvlink, Self::Fp8, Self::Mig];
}

impl fmt::Display for GpuFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nvlink => "NVLink",
            Self::Fp8 => "FP8",
            Self::Mig => "MIG",
        })
    }
}

/// A CUDA compute capability: which instructions a GPU has. Written `8.9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// Architecture: 8 is Ampere and Ada, 9 Hopper, 10 and 12 Blackwell.
    pub major: u8,
    /// Its revision, one digit.
    pub minor: u8,
}

/// A text that is no compute capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a compute capability: write it like 8.9")]
pub struct NoCapability(pub String);

impl FromStr for ComputeCapability {
    type Err = NoCapability;

    fn from_str(text: &str) -> Result<Self, NoCapability> {
        let read = || {
            let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
            let digits = |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            let sound = digits(major, 2) && digits(minor, 1);
            sound.then_some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        read().ok_or_else(|| NoCapability(text.to_owned()))
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = NoCapability;

    fn try_from(text: String) -> Result<Self, NoCapability> {
        text.parse()
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> Self {
        capability.to_string()
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

/// One way to buy a node of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Where and how.
    pub market: Market,
    /// What the price book holds of it.
    pub entry: Option<Entry>,
    /// What is believed of its reclaims before any own node ran there; `None` for capacity that nobody takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<Prior>,
}

impl Offer {
    /// Its price at `wall`.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn quote(&self, wall: Wall) -> Result<&Quote, Unpriced> {
        usable(self.entry.as_ref(), wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Journals of before know nothing of network and disks.
    #[test]
    fn a_type_that_was_written_without_its_network_reads_and_writes_the_same() {
        let written = r#"{"cloud":"aws","instance_type":"g6.xlarge","gpu_model":"L4","gpus":1000,"gpu_memory":24576,"vcpus":4,"memory":16384,"arch":"amd64"}"#;
        let mut spec: InstanceSpec = serde_json::from_str(written).unwrap();
        assert_eq!((spec.network, spec.local_disk, spec.network_pods()), (None, None, PODS));
        assert_eq!(serde_json::to_string(&spec).unwrap(), written);
        spec.network = Some(Network { pods: 58, cards: 1, efa_interfaces: 0 });
        spec.local_disk = Some(MiB(238_418));
        let again = serde_json::from_str::<InstanceSpec>(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!((again.network_pods(), again), (58, spec));
    }

    #[test]
    fn capabilities_compare_as_versions() {
        let of = |text: &str| text.parse::<ComputeCapability>().ok();
        assert!(of("10.0") > of("9.0") && of("8.9") > of("8.6"));
        assert_eq!((of("9"), of("12.0").map(|c| c.to_string())), (of("9.0"), Some("12.0".to_owned())));
        for text in ["", ".", "8.", ".9", "8.90", "8.9.1", "-8.9", "8.x", "100.0", "8,9"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
