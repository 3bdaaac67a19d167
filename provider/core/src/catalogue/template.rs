//! Node template of a group: the empty Node that the autoscaler simulates with, equal to each node
//! of the group.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{ClusterName, NodeGroupId, ZoneName};
use crate::base::kinds::Taint;
use crate::base::sabotage;
use crate::base::units::MiB;
use crate::catalogue::isolation::shape_taint;
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

/// Root disk, and what the kubelet leaves of it to pods: its default eviction threshold is a tenth.
const DISK: MiB = MiB::from_gib(100);
/// Memory that the hypervisor and the kernel take before the kubelet counts, in thousandths. Karpenter's default for AWS.
const VM_OVERHEAD_MILLI: u64 = 75;
/// The kubelet's default hard eviction threshold for memory.
const EVICTION: MiB = MiB(100);

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
fn reserved_memory(cloud: &str, memory: MiB) -> MiB {
    if cloud == "aws" {
        return MiB(255 + 11 * u64::from(PODS));
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
    let kept = reserved_memory(spec.cloud.as_str(), memory).0 + EVICTION.0;
    let capacity = Resources { milli_cpu: vcpus * 1000, memory, ephemeral: DISK, pods: PODS, gpus: spec.advertised_gpus() };
    let allocatable = Resources {
        milli_cpu: capacity.milli_cpu.saturating_sub(reserved_milli_cpu(vcpus)),
        memory: MiB(memory.0.saturating_sub(kept)),
        ephemeral: MiB(DISK.0 - DISK.0 / 10),
        ..capacity
    };
    Some((capacity, allocatable))
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
        // EKS: 255 + 11 × 110 = 1465 MiB, whatever the size.
        assert_eq!(reserved_memory("aws", MiB::from_gib(16)), MiB(1465));
        // GKE at 16 GiB: 1024 + 819.2 + 819.2, each step rounded up.
        assert_eq!(reserved_memory("gcp", MiB::from_gib(16)), MiB(1024 + 820 + 820));
    }

    #[test]
    fn label_values_are_legal() {
        assert_eq!(label_value("n1-standard-4+1xt4"), "n1-standard-4-1xt4");
        assert_eq!(label_value("+x+"), "x");
    }
}
