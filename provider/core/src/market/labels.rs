//! Labels of nodes that others set: pods that exist already choose nodes by them, so templates bear them.
//!
//! A label stands here only if its value follows with certainty from what is known of an instance type or of how it is bought: for a label
//! that its node then lacks, the autoscaler would buy node after node.

use std::collections::BTreeMap;

use crate::market::offer::{CapacityType, GpuSpec, InstanceSpec};
use crate::market::sharing::{PRODUCT_LABEL, Split};

/// Who sets a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setter {
    /// NVIDIA's GPU feature discovery, on every cloud.
    FeatureDiscovery,
    /// Karpenter itself, on every cloud.
    Karpenter,
    /// Karpenter's provider for AWS.
    KarpenterAws,
    /// Karpenter's provider for Azure.
    KarpenterAzure,
    /// Karpenter's provider for GCP.
    KarpenterGcp,
    /// EKS.
    Eks,
    /// GKE.
    Gke,
    /// AKS.
    Aks,
}

impl Setter {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FeatureDiscovery => "GPU feature discovery",
            Self::Karpenter => "Karpenter",
            Self::KarpenterAws => "Karpenter on AWS",
            Self::KarpenterAzure => "Karpenter on Azure",
            Self::KarpenterGcp => "Karpenter on GCP",
            Self::Eks => "EKS",
            Self::Gke => "GKE",
            Self::Aks => "AKS",
        }
    }

    /// Whether it is Karpenter or one of its providers.
    pub const fn is_karpenter(self) -> bool {
        matches!(self, Self::Karpenter | Self::KarpenterAws | Self::KarpenterAzure | Self::KarpenterGcp)
    }

    /// The one cloud whose nodes bear its labels; `None` where those of all do.
    pub const fn cloud(self) -> Option<&'static str> {
        match self {
            Self::FeatureDiscovery | Self::Karpenter => None,
            Self::KarpenterAws | Self::Eks => Some("aws"),
            Self::KarpenterAzure | Self::Aks => Some("azure"),
            Self::KarpenterGcp | Self::Gke => Some("gcp"),
        }
    }
}

/// What a label's value follows from; `None` from its function where it is not certain, or the node bears no such label.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// The machine.
    Machine(fn(&Machine<'_>) -> Option<String>),
    /// How it was bought: only in groups that are split by it.
    Bought(fn(CapacityType) -> Option<&'static str>),
}

/// What the labels of a machine follow from.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Its type.
    pub spec: &'a InstanceSpec,
    /// Its GPU; `None` where no table has it.
    pub gpu: Option<&'a GpuSpec>,
    /// How its GPUs are shared.
    pub split: Option<&'a Split>,
}

/// A label.
#[derive(Debug, Clone, Copy)]
pub struct NodeLabel {
    /// Its key.
    pub key: &'static str,
    /// Who sets it.
    pub setter: Setter,
    /// What its value follows from.
    pub value: Value,
    /// The same in words.
    pub means: &'static str,
    /// Who says so.
    pub source: &'static str,
}

const GFD: &str = "k8s-device-plugin 1b826ac (2026-08-19), internal/lm/resource.go";
const KAWS: &str = "karpenter-provider-aws 1d92708 (2026-08-21), pkg/providers/instancetype/types.go";
const KAZ: &str = "karpenter-provider-azure 352646f (2026-08-21), pkg/providers/instancetype/instancetype.go";
const KGCP: &str = "karpenter-provider-gcp 417f047 (2026-08-06), pkg/providers/instancetype/types.go";
const KARPENTER: &str = "karpenter 2266468 (2026-08-20), pkg/apis/v1/labels.go";
const EKS: &str = "EKS user guide, managed node groups";
const GKE: &str = "GKE documentation, Spot VMs and GPUs";
const AKS: &str = "AKS documentation, reserved labels";

const fn of(
    setter: Setter,
    key: &'static str,
    source: &'static str,
    means: &'static str,
    value: fn(&Machine<'_>) -> Option<String>,
) -> NodeLabel {
    NodeLabel { key, setter, value: Value::Machine(value), means, source }
}

const fn bought(
    setter: Setter,
    key: &'static str,
    source: &'static str,
    means: &'static str,
    value: fn(CapacityType) -> Option<&'static str>,
) -> NodeLabel {
    NodeLabel { key, setter, value: Value::Bought(value), means, source }
}

/// The labels, those of one setter together.
pub const LABELS: [NodeLabel; 35] = [
    of(
        Setter::FeatureDiscovery,
        PRODUCT_LABEL,
        GFD,
        "the GPU's product name; with -SHARED or -MIG-… where GPUs are shared",
        product,
    ),
    of(Setter::FeatureDiscovery, "nvidia.com/gpu.memory", GFD, "MiB of one GPU as drivers since 510 report them", |on| {
        on.whole_gpus()?.names.nvml_mib.map(|mib| mib.to_string())
    }),
    of(Setter::FeatureDiscovery, "nvidia.com/gpu.count", GFD, "GPUs", |on| on.whole_gpus().and_then(|_| count(on))),
    of(
        Setter::FeatureDiscovery,
        "nvidia.com/gpu.family",
        GFD,
        "the GPU's architecture, as releases since 0.17.2 name it",
        |on| on.whole_gpus().and_then(family).map(str::to_owned),
    ),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-family", KAWS, "`g6` of `g6.xlarge`", |on| {
        Some(on.aws_name()?.0.to_owned())
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-size", KAWS, "`xlarge` of `g6.xlarge`", |on| {
        Some(on.aws_name()?.1.to_owned())
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-category", KAWS, "`g` of `g6.xlarge`", |on| {
        Some(on.aws_scheme()?.0.to_owned())
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-generation", KAWS, "`6` of `g6.xlarge`", |on| {
        Some(on.aws_scheme()?.1.to_owned())
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-cpu", KAWS, "vCPUs", cpus),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-memory", KAWS, "MiB of main memory", memory),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-gpu-name", KAWS, "the GPU's name in EC2's API", |on| {
        on.gpu?.names.aws.clone()
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-gpu-count", KAWS, "GPUs", count),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-gpu-memory", KAWS, "MiB of one GPU in EC2's API", |on| {
        count(on).and(on.gpu?.names.aws_mib).map(|mib| mib.to_string())
    }),
    of(Setter::KarpenterAws, "karpenter.k8s.aws/instance-gpu-manufacturer", KAWS, "`nvidia`", nvidia),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-name", KAZ, "the size's name", |on| {
        Some(on.spec.instance_type.as_str().to_owned())
    }),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-family", KAZ, "`N`: sizes with GPUs", |on| {
        on.spec.instance_type.as_str().starts_with("Standard_N").then(|| "N".to_owned())
    }),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-cpu", KAZ, "vCPUs", cpus),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-memory", KAZ, "MiB of main memory", memory),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-gpu-name", KAZ, "the accelerator in the size's name", |on| {
        // The tables tell cards of the same name apart; the name of an old size has no accelerator in it.
        let named =
            |part: &&str| on.spec.gpu_model.as_str().strip_suffix("PCIe").unwrap_or(on.spec.gpu_model.as_str()) == *part;
        on.spec.instance_type.as_str().split('_').find(named).map(str::to_owned)
    }),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-gpu-count", KAZ, "GPUs", count),
    of(Setter::KarpenterAzure, "karpenter.azure.com/sku-gpu-manufacturer", KAZ, "`nvidia`", nvidia),
    of(Setter::KarpenterGcp, "karpenter.k8s.gcp/instance-family", KGCP, "`g2` of `g2-standard-4`", gcp_family),
    of(
        Setter::KarpenterGcp,
        "karpenter.k8s.gcp/instance-size",
        KGCP,
        "`4` of `g2-standard-4`, `8g` of `a3-highgpu-8g`",
        |on| {
            // With accelerators that are attached to an N1 machine it makes none.
            let parts: Vec<&str> = on.spec.instance_type.as_str().split('-').collect();
            let size = if parts.len() > 3 { parts.iter().nth_back(1) } else { parts.last() }?;
            (parts.len() > 1 && !size.contains('+')).then(|| (*size).to_owned())
        },
    ),
    of(Setter::KarpenterGcp, "karpenter.k8s.gcp/instance-cpu", KGCP, "vCPUs", cpus),
    of(Setter::KarpenterGcp, "karpenter.k8s.gcp/instance-memory", KGCP, "MiB of main memory", memory),
    of(Setter::KarpenterGcp, "karpenter.k8s.gcp/instance-gpu-name", KGCP, "the accelerator's name", gcp_accelerator),
    of(Setter::Gke, "cloud.google.com/gke-accelerator", GKE, "the accelerator's name", gcp_accelerator),
    of(Setter::Gke, "cloud.google.com/machine-family", GKE, "`g2` of `g2-standard-4`", gcp_family),
    of(Setter::Aks, "kubernetes.azure.com/accelerator", AKS, "`nvidia`", nvidia),
    bought(Setter::Karpenter, CAPACITY_TYPE_LABEL, KARPENTER, "`spot`, `on-demand` or `reserved`", |bought| {
        Some(bought.as_str())
    }),
    bought(Setter::Eks, "eks.amazonaws.com/capacityType", EKS, "`SPOT`, `ON_DEMAND` or `CAPACITY_BLOCK`", |bought| {
        Some(match bought {
            CapacityType::Spot => "SPOT",
            CapacityType::OnDemand => "ON_DEMAND",
            CapacityType::Reserved => "CAPACITY_BLOCK",
        })
    }),
    bought(Setter::Gke, "cloud.google.com/gke-provisioning", GKE, "`spot`, `standard` or `reservation`", |bought| {
        Some(match bought {
            CapacityType::Spot => "spot",
            CapacityType::OnDemand => "standard",
            CapacityType::Reserved => "reservation",
        })
    }),
    bought(Setter::Gke, "cloud.google.com/gke-spot", GKE, "`true` on spot, else none", |bought| {
        (bought == CapacityType::Spot).then_some("true")
    }),
    bought(
        Setter::Gke,
        "cloud.google.com/gke-preemptible",
        GKE,
        "none: Stoker makes no preemptible VMs, but reads the label",
        |_| None,
    ),
    bought(Setter::Aks, "kubernetes.azure.com/scalesetpriority", AKS, "`spot` or `regular`", |bought| {
        Some(if bought == CapacityType::Spot { "spot" } else { "regular" })
    }),
];

/// The label by which nodes of Karpenter's say how they were bought.
pub const CAPACITY_TYPE_LABEL: &str = "karpenter.sh/capacity-type";

impl<'a> Machine<'a> {
    /// What its nodes bear, `bought` only where groups are split by it.
    pub fn labels(self, bought: Option<CapacityType>) -> impl Iterator<Item = (&'static str, String)> {
        let here = move |label: &&NodeLabel| label.setter.cloud().is_none_or(|cloud| cloud == self.spec.cloud.as_str());
        LABELS.iter().filter(here).filter_map(move |label| {
            let value = match label.value {
                Value::Machine(value) => value(&self),
                Value::Bought(value) => bought.and_then(value).map(str::to_owned),
            };
            Some((label.key, value?))
        })
    }

    /// Its GPU where GPU feature discovery sees whole ones of it: of MIG instances it tells other names and sizes.
    fn whole_gpus(&self) -> Option<&'a GpuSpec> {
        let is_mig = matches!(self.split, Some(Split::Mig { .. }));
        self.gpu.filter(|_| !is_mig && self.spec.has_whole_gpus())
    }

    /// Family and size of a type of AWS.
    fn aws_name(&self) -> Option<(&'a str, &'a str)> {
        self.spec.instance_type.as_str().split_once('.')
    }

    /// Category and generation of a type of AWS: the letters and the digits that its name begins with.
    fn aws_scheme(&self) -> Option<(&'a str, &'a str)> {
        let (family, _) = self.aws_name()?;
        let (category, rest) = family.split_at(family.find(|c: char| !c.is_ascii_lowercase())?);
        let generation = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        (!category.is_empty() && !generation.is_empty()).then_some((category, generation))
    }
}

fn product(on: &Machine<'_>) -> Option<String> {
    // Shared GPUs are named where sharing is worked out.
    on.gpu.filter(|_| on.split.is_none()).and_then(|gpu| on.spec.product(gpu)).map(str::to_owned)
}

/// Its GPUs; `None` where it has a part of one, which some count as one and others as none.
fn count(on: &Machine<'_>) -> Option<String> {
    (on.spec.gpus.0 >= 1000).then(|| on.spec.advertised_gpus().to_string())
}

fn cpus(on: &Machine<'_>) -> Option<String> {
    on.spec.vcpus.map(|cpus| cpus.to_string())
}

fn memory(on: &Machine<'_>) -> Option<String> {
    on.spec.memory.map(|memory| memory.0.to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "a value of the table, as the others are")]
fn nvidia(_: &Machine<'_>) -> Option<String> {
    // The tables have no GPUs of anybody else.
    Some("nvidia".to_owned())
}

fn gcp_family(on: &Machine<'_>) -> Option<String> {
    on.spec.instance_type.as_str().split_once('-').map(|(family, _)| family.to_owned())
}

fn gcp_accelerator(on: &Machine<'_>) -> Option<String> {
    // Of two names for one GPU, the machine type with more network bandwidth has the one that says so.
    let is_mega = on.spec.instance_type.as_str().contains("megagpu");
    let mut names = on.gpu?.names.gke.iter().filter(|name| name.contains("-mega-") == is_mega);
    count(on).and(names.next()).cloned()
}

/// The architecture as GPU feature discovery names it. Before release 0.17.1 it took Ada for Ampere, and before 0.17.2 it did not know
/// Blackwell: a pod that asks for these by name is from a cluster with a later one.
fn family(gpu: &GpuSpec) -> Option<&'static str> {
    let capability = gpu.compute_capability?;
    match (capability.major, capability.minor) {
        (3, _) => Some("kepler"),
        (5, _) => Some("maxwell"),
        (6, _) => Some("pascal"),
        (7, 0..5) => Some("volta"),
        (7, _) => Some("turing"),
        (8, 0..9) => Some("ampere"),
        (8, _) => Some("ada-lovelace"),
        (9, _) => Some("hopper"),
        (10 | 12, _) => Some("blackwell"),
        _ => None,
    }
}

/// The table's line of a label.
pub fn label(key: &str) -> Option<&'static NodeLabel> {
    LABELS.iter().find(|label| label.key == key)
}

/// Whether a label says how a node was bought.
pub fn is_of_capacity_type(key: &str) -> bool {
    label(key).is_some_and(|label| matches!(label.value, Value::Bought(_)))
}

/// Whether every node of the label's cloud says by it how it was bought: groups that are split bear it, and nobody else may set it.
pub fn tells_each_capacity_type(key: &str) -> bool {
    label(key).is_some_and(|label| matches!(label.value, Value::Bought(value) if value(CapacityType::OnDemand).is_some()))
}

/// The domains of what the kubelet and the cloud's controllers set on every node.
pub const KUBERNETES_DOMAINS: [&str; 3] = ["kubernetes.io", "node.kubernetes.io", "topology.kubernetes.io"];

/// Whether nodes that Karpenter makes get a label without being told. A `NodeClaim` that said it would be refused or overrule Karpenter.
pub fn is_of_karpenter(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    KUBERNETES_DOMAINS.contains(&domain) || label(key).is_some_and(|label| label.setter.is_karpenter())
}

/// Adds what others set to the labels of a template. What an operator says of a label himself stands.
pub(crate) fn add(labels: &mut BTreeMap<String, String>, machine: Machine<'_>, bought: Option<CapacityType>) {
    for (key, value) in machine.labels(bought) {
        labels.entry(key.to_owned()).or_insert(value);
    }
}

#[cfg(test)]
mod tests;
