use std::sync::Arc;

use serde_json::{Value, json};
use stoker_core::plan::GroupLimits;
use stoker_proto::Bytes;

use super::*;
use crate::price_tables::PriceTables;
use crate::publish::view::GroupView;

/// The groups of the built-in example: pools inference, training and dev.
fn view() -> View {
    let now = "2026-11-01T00:00:00Z".parse().unwrap();
    let price_tables = PriceTables::load(None, None, now).unwrap();
    let catalogue = Arc::new(price_tables.catalogue(price_tables.policy(None).unwrap()));
    let mut view = View::starting(now, Arc::clone(&catalogue));
    for group in catalogue.groups.values() {
        let limits = GroupLimits {
            target: 0,
            min: 0,
            max: 0,
            busy: 0,
            paid: 0,
            free: stoker_core::plan::FreeNodes::default(),
            listed: true,
            next_price: None,
            lasting_price: None,
            supply: Vec::new(),
            closed: None,
        };
        let shown = GroupView { group: Arc::clone(group), limits, instances: Vec::new(), template: Bytes::new() };
        view.groups.insert(group.id.clone(), Arc::new(shown));
    }
    view
}

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
            json!({ pool: "inference", "nvidia.com/gpu.product": "NVIDIA-L4" }),
            "it selects nodes by the label nvidia.com/gpu.product, which no node group has: did you mean stoker.dev/gpu: L4?",
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
            "it selects nodes by the label nvidia.com/gpu.product, which no node group has: choose the GPU model by stoker.dev/gpu",
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
