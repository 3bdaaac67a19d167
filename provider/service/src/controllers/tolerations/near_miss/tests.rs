use serde_json::{Value, json};

use super::*;
use crate::controllers::tolerations::tests::view;

#[test]
fn a_selector_that_misses_by_spelling_is_told_what_was_meant() {
    let view = view();
    let told = |spec: Value| {
        let pod = json!({ "metadata": { "namespace": "ml", "name": "p" }, "spec": spec });
        near_miss(&serde_json::from_value(pod).unwrap(), &view)
    };
    let selects = |labels: Value| told(json!({ "nodeSelector": labels }));
    let pool = "stoker.dev/pool";
    for (labels, says) in [
        (
            json!({ pool: "inferense" }),
            "it selects nodes by stoker.dev/pool: \"inferense\", which no node group has: did you mean inference?",
        ),
        (
            json!({ pool: "inference", "stoker.dev/gpu": "L4S" }),
            "it selects nodes by stoker.dev/gpu: \"L4S\", which no node group has: did you mean L4?",
        ),
        (
            json!({ pool: "inference", "stoker.dev/gpu": "NVIDIA-L4" }),
            "it selects nodes by stoker.dev/gpu: \"NVIDIA-L4\", which no node group has: did you mean L4?",
        ),
        (
            json!({ pool: "inference", "stoker.dev/gpu-model": "L4" }),
            "it selects nodes by the label stoker.dev/gpu-model, which no node group has: did you mean stoker.dev/gpu: L4?",
        ),
        (
            json!({ "stoker.dev/gpus": "L4" }),
            "it selects nodes by the label stoker.dev/gpus, which no node group has: did you mean stoker.dev/gpu: L4?",
        ),
        // The key and the value are both misspelt.
        (
            json!({ "stoker.dev/pol": "inferense" }),
            "it selects nodes by the label stoker.dev/pol, which no node group has: did you mean stoker.dev/pool: inference?",
        ),
        (
            json!({ "stocker.dev/pool": "inference" }),
            "it selects nodes by the label stocker.dev/pool, which no node group has: did you mean stoker.dev/pool: inference?",
        ),
        (
            json!({ "stoker.dev/pools": "zzz" }),
            "it selects nodes by the label stoker.dev/pools, which no node group has: did you mean stoker.dev/pool, of which there are dev, inference, training?",
        ),
        // Some group has each, and none has both.
        (
            json!({ pool: "inference", "stoker.dev/gpu": "A100" }),
            "it selects nodes by stoker.dev/gpu: \"A100\", which no node group of stoker.dev/pool: \"inference\" has: there are A10G, L4, L40S",
        ),
        (
            json!({ pool: "dev", "node.kubernetes.io/instance-type": "p4d.24xlarge" }),
            "it selects nodes by node.kubernetes.io/instance-type: \"p4d.24xlarge\", which no node group of stoker.dev/pool: \"dev\" has: there are g5.xlarge, g6.xlarge",
        ),
        (
            json!({ pool: "inference", "nvidia.com/gpu-product": "NVIDIA-L4" }),
            "it selects nodes by the label nvidia.com/gpu-product, which no node group has: did you mean stoker.dev/gpu: L4?",
        ),
        (
            json!({ pool: "inference", "cloud.google.com/gke-accelerator": "nvidia-l4" }),
            "it selects nodes by the label cloud.google.com/gke-accelerator, which no node group has: did you mean stoker.dev/gpu: L4?",
        ),
        (
            json!({ pool: "inference", "nvidia.com/gpu.product": "Tesla-K80" }),
            "it selects nodes by nvidia.com/gpu.product: \"Tesla-K80\", which no node group has: there are NVIDIA-A100-SXM4-40GB, NVIDIA-A10G, NVIDIA-L4, NVIDIA-L40S",
        ),
    ] {
        assert_eq!(selects(labels.clone()).as_deref(), Some(says), "{labels}");
    }
    // What a node affinity requires is a selector too: none of the values must be there.
    let requires = |values: Value| {
        let expressions = json!([
            { "key": pool, "operator": "In", "values": ["inference"] },
            { "key": "stoker.dev/gpu", "operator": "In", "values": values },
        ]);
        let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": expressions }] });
        told(json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } }))
    };
    let says = "it selects nodes by stoker.dev/gpu: \"L44\", \"L5\", which no node group has: did you mean L4?";
    assert_eq!(requires(json!(["L44", "L5"])).as_deref(), Some(says));
    assert_eq!(requires(json!(["L44", "L4"])), None);
    // What is right, or nothing of ours, or a label that chooses no GPU.
    for labels in [
        json!({ pool: "inference", "stoker.dev/gpu": "L4" }),
        json!({ "nvidia.com/gpu.product": "NVIDIA-L4" }),
        json!({ pool: "inference", "example.com/team": "recs" }),
        // Another's label that resembles ours, with a value that is nothing of ours.
        json!({ "worker.dev/pool": "zzz" }),
        json!({}),
    ] {
        assert_eq!(selects(labels.clone()), None, "{labels}");
    }
}
