use std::collections::BTreeSet;

use super::*;
use crate::base::ids::{Cloud, GpuModel, InstanceType};
use crate::base::units::{MiB, Milli};
use crate::market::offer::{Arch, GpuNames};

fn gpu(model: &str, capability: &str) -> GpuSpec {
    GpuSpec {
        model: GpuModel::new(model).unwrap(),
        memory: MiB::from_gib(80),
        bandwidth_gb_s: None,
        fp16_gflops: None,
        fp8_gflops: None,
        compute_capability: capability.parse().ok(),
        mig_max_instances: None,
        mig_profiles: Vec::new(),
        nvlink_gb_s: None,
        names: GpuNames {
            product: Some(format!("NVIDIA-{model}")),
            nvml_mib: Some(81_000),
            aws: Some(model.to_ascii_lowercase()),
            aws_mib: Some(81_920),
            gke: vec!["nvidia-h100-80gb".to_owned(), "nvidia-h100-mega-80gb".to_owned()],
        },
    }
}

fn spec(cloud: &str, instance_type: &str, model: &str, gpus: u32) -> InstanceSpec {
    InstanceSpec {
        cloud: Cloud::new(cloud).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
        gpu_model: GpuModel::new(model).unwrap(),
        gpus: Milli(gpus),
        gpu_memory: MiB::from_gib(80),
        vcpus: Some(192),
        memory: Some(MiB::from_gib(2048)),
        arch: Arch::Amd64,
        network: None,
        local_disk: None,
    }
}

fn borne(spec: &InstanceSpec, gpu: Option<&GpuSpec>, bought: Option<CapacityType>) -> String {
    let labels: Vec<String> =
        Machine { spec, gpu, split: None }.labels(bought).map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(" ")
}

#[test]
fn a_machine_bears_what_its_cloud_sets() {
    let h100 = gpu("H100", "9.0");
    assert_eq!(
        borne(&spec("aws", "p5.48xlarge", "H100", 8_000), Some(&h100), Some(CapacityType::Spot)),
        "nvidia.com/gpu.product=NVIDIA-H100 nvidia.com/gpu.memory=81000 nvidia.com/gpu.count=8 nvidia.com/gpu.family=hopper \
         karpenter.k8s.aws/instance-family=p5 karpenter.k8s.aws/instance-size=48xlarge karpenter.k8s.aws/instance-category=p \
         karpenter.k8s.aws/instance-generation=5 karpenter.k8s.aws/instance-cpu=192 karpenter.k8s.aws/instance-memory=2097152 \
         karpenter.k8s.aws/instance-gpu-name=h100 karpenter.k8s.aws/instance-gpu-count=8 \
         karpenter.k8s.aws/instance-gpu-memory=81920 karpenter.k8s.aws/instance-gpu-manufacturer=nvidia \
         karpenter.sh/capacity-type=spot eks.amazonaws.com/capacityType=SPOT"
    );
    assert_eq!(
        borne(&spec("gcp", "a3-megagpu-8g", "H100", 8_000), Some(&h100), Some(CapacityType::OnDemand)),
        "nvidia.com/gpu.product=NVIDIA-H100 nvidia.com/gpu.memory=81000 nvidia.com/gpu.count=8 nvidia.com/gpu.family=hopper \
         karpenter.k8s.gcp/instance-family=a3 karpenter.k8s.gcp/instance-size=8g karpenter.k8s.gcp/instance-cpu=192 \
         karpenter.k8s.gcp/instance-memory=2097152 karpenter.k8s.gcp/instance-gpu-name=nvidia-h100-mega-80gb \
         cloud.google.com/gke-accelerator=nvidia-h100-mega-80gb cloud.google.com/machine-family=a3 \
         karpenter.sh/capacity-type=on-demand cloud.google.com/gke-provisioning=standard"
    );
    assert_eq!(
        borne(&spec("azure", "Standard_NC40ads_H100_v5", "H100PCIe", 1_000), None, None),
        "karpenter.azure.com/sku-name=Standard_NC40ads_H100_v5 karpenter.azure.com/sku-family=N \
         karpenter.azure.com/sku-cpu=192 karpenter.azure.com/sku-memory=2097152 karpenter.azure.com/sku-gpu-name=H100 \
         karpenter.azure.com/sku-gpu-count=1 karpenter.azure.com/sku-gpu-manufacturer=nvidia \
         kubernetes.azure.com/accelerator=nvidia"
    );
}

#[test]
fn what_is_not_certain_is_left_out() {
    let part = borne(&spec("aws", "g6f.xlarge", "L4", 250), Some(&gpu("L4", "8.9")), None);
    for key in ["gpu.product", "gpu.memory", "gpu.count", "gpu.family", "instance-gpu-count", "instance-gpu-memory"] {
        assert!(!part.contains(key), "{key} of a part of a GPU: {part}");
    }
    // The driver of Azure's A10 sees an A10-24Q.
    let virtual_one = borne(&spec("azure", "Standard_NV36ads_A10_v5", "A10", 1_000), Some(&gpu("A10", "8.6")), None);
    assert!(!virtual_one.contains("nvidia.com"), "{virtual_one}");
    // The name of an old size has no accelerator in it.
    assert!(!borne(&spec("azure", "Standard_NC6s_v3", "V100", 1_000), None, None).contains("sku-gpu-name"));
    assert!(!borne(&spec("gcp", "a3-highgpu-8g", "H100", 8_000), None, Some(CapacityType::OnDemand)).contains("gke-spot"));
    let attached = borne(&spec("gcp", "n1-standard-4+1xt4", "T4", 1_000), None, None);
    assert!(!attached.contains("instance-size"), "{attached}");
}

#[test]
fn a_card_with_two_forms_is_named_where_its_form_is_known() {
    for (cloud, instance_type, model, is_named) in [
        ("aws", "p3.2xlarge", "V100", true),
        ("gcp", "a2-highgpu-1g", "A100", true),
        ("azure", "Standard_ND96asr_v4", "A100", true),
        ("azure", "Standard_NC6s_v3", "V100", false),
        ("lambda", "lambda-a100-pcie-40gb-on-demand", "A100", false),
        ("lambda", "lambda-h100-sxm-on-demand", "H100", true),
    ] {
        let labels = borne(&spec(cloud, instance_type, model, 1_000), Some(&gpu(model, "8.0")), None);
        assert_eq!(labels.contains(PRODUCT_LABEL), is_named, "{instance_type}: {labels}");
        assert!(labels.contains("gpu.memory"), "{instance_type}: {labels}");
    }
}

#[test]
fn families_are_named_as_gpu_feature_discovery_names_them() {
    let families = ["3.7", "5.2", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.3", "12.0", "99.0"];
    let named = families.map(|capability| family(&gpu("X", capability)).unwrap_or("-"));
    let expected = "kepler maxwell pascal volta turing ampere ampere ada-lovelace hopper blackwell blackwell -";
    assert_eq!(named.join(" "), expected);
}

#[test]
fn the_operators_own_label_stands() {
    let mut labels = BTreeMap::from([(PRODUCT_LABEL.to_owned(), "own".to_owned())]);
    add(
        &mut labels,
        Machine { spec: &spec("aws", "p5.48xlarge", "H100", 8_000), gpu: Some(&gpu("H100", "9.0")), split: None },
        None,
    );
    assert_eq!(labels[PRODUCT_LABEL], "own");
}

#[test]
fn the_table_names_each_label_once() {
    let keys: BTreeSet<&str> = LABELS.iter().map(|label| label.key).collect();
    assert_eq!(keys.len(), LABELS.len());
}

#[test]
fn what_karpenter_sets_is_not_for_its_claims() {
    for key in [CAPACITY_TYPE_LABEL, "karpenter.k8s.aws/instance-family", "topology.kubernetes.io/zone", "kubernetes.io/os"] {
        assert!(is_of_karpenter(key), "{key}");
    }
    // What the operator sets himself nobody else does, wherever it is.
    for key in
        [PRODUCT_LABEL, "eks.amazonaws.com/capacityType", "stoker.dev/pool", "team", "node-restriction.kubernetes.io/team"]
    {
        assert!(!is_of_karpenter(key), "{key}");
    }
}
