//! Node template of a group: the empty Node that the autoscaler simulates with, equal to each node
//! of the group.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{ClusterName, NodeGroupId, ZoneName};
use crate::base::kinds::Taint;
use crate::base::sabotage;
use crate::base::units::MiB;
use crate::catalogue::isolation::shape_taint;
use crate::facts::snapshot::Allocatable;
use crate::market::offer::PODS;
use crate::market::offer::{InstanceSpec, Place};
use crate::market::sharing::Shares;
use crate::market::sharing::Slices;
use crate::policy::Pool;

/// The label that only our nodes get, with the GPU model as value. It is what `GPULabel` answers: an unmanaged node that had
/// it without GPUs would block every scale-up.
pub const GPU_LABEL: &str = "stoker.dev/gpu";
/// The label that names the pool; pods choose a pool by it.
pub const POOL_LABEL: &str = "stoker.dev/pool";
/// The label that names the group.
pub const GROUP_LABEL: &str = "stoker.dev/group";
/// The label that names the cluster: nodes with it are ours to clean up.
pub const CLUSTER_LABEL: &str = "stoker.dev/cluster";
/// The annotation on a node with its capacity type, where the policy does not split groups by it.
pub const CAPACITY_TYPE_ANNOTATION: &str = "stoker.dev/capacity-type";

/// Root disk of a node. The kubelet's default eviction threshold is a tenth of it.
pub const DISK: MiB = MiB::from_gib(100);
/// Memory that the hypervisor and the kernel take before the kubelet counts, in thousandths. Karpenter's default for AWS.
const VM_OVERHEAD_MILLI: u64 = 75;
/// The kubelet's default hard eviction threshold for memory.
const EVICTION: MiB = MiB(100);

/// What the kubelet reserves of CPU and memory (`kubeReserved`). Its eviction threshold is extra.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserves {
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory.
    pub memory: MiB,
}

/// What the scheduler can count on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// CPU in thousandths of a core.
    pub milli_cpu: u64,
    /// Memory.
    pub memory: MiB,
    /// Disk for pods.
    pub ephemeral: MiB,
    /// Pods.
    pub pods: u32,
    /// Advertised `nvidia.com/gpu`.
    pub gpus: u32,
}

impl Resources {
    /// The same without GPUs, as a Node tells it.
    pub const fn without_gpus(&self) -> Allocatable {
        let Self { milli_cpu, memory, ephemeral, pods, gpus: _ } = *self;
        Allocatable { milli_cpu, memory, ephemeral, pods }
    }
}

/// The empty Node of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTemplate {
    /// Labels, without the host name.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// What the machine has.
    pub capacity: Resources,
    /// What the kubelet leaves to pods.
    pub allocatable: Resources,
    /// GPU resources under other names, all of them left to pods.
    #[serde(default, skip_serializing_if = "Slices::is_empty")]
    pub slices: Slices,
}

/// CPU that the kubelet and the system keep, in thousandths of a core: 6 % of the first core, 1 % of the second, half a percent
/// of the next two and a quarter percent of the rest, as GKE and EKS both document it.
const fn reserved_milli_cpu(vcpus: u64) -> u64 {
    let first = if vcpus >= 1 { 60 } else { 0 };
    let second = if vcpus >= 2 { 10 } else { 0 };
    let next = if vcpus >= 4 {
        10
    } else if vcpus == 3 {
        5
    } else {
        0
    };
    // A quarter percent is 2.5 thousandths; rounded up so that the template never promises more than the node has.
    let rest = if vcpus > 4 { ((vcpus - 4) * 5).div_ceil(2) } else { 0 };
    first + second + next + rest
}

/// Memory that the kubelet and the system keep. On AWS 255 MiB and 11 MiB a pod (EKS); elsewhere a quarter of the first 4 GiB, a
/// fifth of the next 4, a tenth of the next 8, 6 % of the next 112 and 2 % of the rest (GKE, AKS before 1.29).
///
/// EKS's image and Karpenter's `EC2NodeClass` count all addresses of the network, whatever
/// `maxPods` is. A node that reserves less has more memory than its template, which does no harm.
/// A node that reserves more is bought for pods that never fit.
fn reserved_memory(spec: &InstanceSpec, memory: MiB) -> MiB {
    if spec.cloud.as_str() == "aws" {
        return MiB(255 + 11 * u64::from(spec.network_pods()));
    }
    let steps: [(u64, u64); 4] = [(4, 25), (4, 20), (8, 10), (112, 6)];
    let mut left = memory.0;
    let mut kept = 0;
    for (gib, percent) in steps {
        let part = left.min(gib * 1024);
        kept += (part * percent).div_ceil(100);
        left -= part;
    }
    MiB(kept + (left * 2).div_ceil(100))
}

/// What a node of this type has and what it leaves to pods; `None` where the spec does not tell its CPUs or memory.
pub fn resources(spec: &InstanceSpec) -> Option<(Resources, Resources)> {
    let vcpus = u64::from(spec.vcpus?);
    let nominal = spec.memory?;
    let memory = MiB(nominal.0 - nominal.0 * VM_OVERHEAD_MILLI / 1000);
    let kept = reserved_memory(spec, memory).0 + EVICTION.0;
    let capacity = Resources {
        milli_cpu: vcpus * 1000,
        memory,
        ephemeral: DISK,
        pods: spec.network_pods().min(PODS),
        gpus: spec.advertised_gpus(),
    };
    let allocatable = Resources {
        milli_cpu: capacity.milli_cpu.saturating_sub(reserved_milli_cpu(vcpus)),
        memory: MiB(memory.0.saturating_sub(kept)),
        ephemeral: MiB(DISK.0 - DISK.0 / 10),
        ..capacity
    };
    Some((capacity, allocatable))
}

impl NodeTemplate {
    /// What the kubelet must reserve for a node to leave to pods what its template says.
    pub fn reserves(&self) -> Reserves {
        let Self { capacity, allocatable, .. } = self;
        let memory = capacity.memory.0.saturating_sub(allocatable.memory.0).saturating_sub(EVICTION.0);
        Reserves { milli_cpu: capacity.milli_cpu.saturating_sub(allocatable.milli_cpu), memory: MiB(memory) }
    }
}

/// The template of a group; `None` where the spec does not tell its CPUs or memory.
pub fn template(
    cluster: &ClusterName,
    pool: &Pool,
    group: &NodeGroupId,
    place: &Place,
    zone_name: &ZoneName,
    spec: &InstanceSpec,
) -> Option<NodeTemplate> {
    let (capacity, allocatable) = resources(spec)?;
    let mut labels: BTreeMap<String, String> = pool.labels.clone();
    let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    set("kubernetes.io/os", "linux");
    set("kubernetes.io/arch", spec.arch.as_str());
    set("node.kubernetes.io/instance-type", &label_value(place.instance_type.as_str()));
    set("topology.kubernetes.io/region", place.region.as_str());
    if !sabotage::on("template-bare") {
        set("topology.kubernetes.io/zone", zone_name.as_str());
    }
    set(CLUSTER_LABEL, cluster.as_str());
    set(POOL_LABEL, pool.name.as_str());
    set(GROUP_LABEL, group.as_str());
    set(GPU_LABEL, spec.gpu_model.as_str());
    let shape = pool.isolation.is_some().then(|| shape_taint(&place.instance_type));
    let taints = pool.taints.iter().cloned().chain(shape).collect();
    Some(NodeTemplate { labels, taints, capacity, allocatable, slices: Slices::default() })
}

/// `text` as a label value: what Kubernetes does not allow in one (`+` in `n1-standard-4+1xt4`) becomes `-`.
pub fn label_value(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .take(63)
        .collect();
    clean.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

impl Shares {
    /// Makes the template of a node with whole GPUs one of a node that shares them.
    ///
    /// A node that advertises no `nvidia.com/gpu` must not bear the GPU label: the autoscaler would wait for them forever and never
    /// count it as Ready. What the operator says of a label himself is left: his configurations may have names of their own.
    pub(crate) fn dress(&self, template: &mut NodeTemplate) {
        (template.capacity.gpus, template.allocatable.gpus) = (self.gpus, self.gpus);
        template.slices = self.named.clone();
        if self.gpus == 0 && !sabotage::on("gpu-label-without-gpus") {
            template.labels.remove(GPU_LABEL);
        }
        for (key, value) in &self.labels {
            template.labels.entry((*key).to_owned()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{Cloud, GpuModel, InstanceType};
    use crate::base::units::Milli;
    use crate::market::offer::{Arch, Network};

    #[test]
    fn reserved_cpu_follows_the_published_steps() {
        // 4 vCPU: 60 + 10 + 5 + 5 = 80 thousandths; EKS and GKE both print 3920m for it.
        assert_eq!(reserved_milli_cpu(4), 80);
        // 192 vCPU: 80 + 188 × 2.5 = 550.
        assert_eq!(reserved_milli_cpu(192), 550);
        assert_eq!(reserved_milli_cpu(0), 0);
    }

    #[test]
    fn reserved_memory_follows_the_published_steps() {
        // EKS: 255 + 11 × 110 = 1465 MiB where no source tells the pods.
        assert_eq!(reserved_memory(&spec("aws", 4, 16, None), MiB::from_gib(16)), MiB(1465));
        // GKE at 16 GiB: 1024 + 819.2 + 819.2, each step rounded up.
        assert_eq!(reserved_memory(&spec("gcp", 4, 16, None), MiB::from_gib(16)), MiB(1024 + 820 + 820));
    }

    fn spec(cloud: &str, vcpus: u32, gib: u64, pods: Option<u32>) -> InstanceSpec {
        InstanceSpec {
            cloud: Cloud::new(cloud).unwrap(),
            instance_type: InstanceType::new("t").unwrap(),
            gpu_model: GpuModel::new("L4").unwrap(),
            gpus: Milli(1000),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(gib)),
            arch: Arch::Amd64,
            network: pods.map(|pods| Network { pods, cards: 1, efa_interfaces: 0 }),
            local_disk: None,
        }
    }

    /// Pods of a node, and what its kubelet must reserve for it to equal its template.
    fn kubelet(spec: &InstanceSpec) -> (u32, Reserves) {
        let (capacity, allocatable) = resources(spec).unwrap();
        let (labels, taints, slices) = (BTreeMap::new(), Vec::new(), Slices::default());
        (allocatable.pods, NodeTemplate { labels, taints, capacity, allocatable, slices }.reserves())
    }

    #[test]
    fn a_kubelet_runs_no_more_pods_than_its_network_has_addresses_for() {
        let reserves = |milli_cpu, memory| Reserves { milli_cpu, memory: MiB(memory) };
        // g6.xlarge: 255 + 11 × 58.
        assert_eq!(kubelet(&spec("aws", 4, 16, Some(58))), (58, reserves(80, 893)));
        // No source tells: the kubelet's default.
        assert_eq!(kubelet(&spec("aws", 4, 16, None)), (110, reserves(80, 1465)));
    }

    /// p4d.24xlarge: 255 + 11 × 737, which EKS reserves whatever the kubelet's `maxPods` is.
    #[test]
    fn the_reserve_counts_pods_beyond_the_kubelets_default() {
        let reserves = Reserves { milli_cpu: 310, memory: MiB(8362) };
        assert_eq!(kubelet(&spec("aws", 96, 1152, Some(737))), (110, reserves));
    }

    #[test]
    fn label_values_are_legal() {
        assert_eq!(label_value("n1-standard-4+1xt4"), "n1-standard-4-1xt4");
        assert_eq!(label_value("+x+"), "x");
    }
}
