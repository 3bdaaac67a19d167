//! A group's template as Kubernetes objects: protobuf for the autoscaler, JSON for the API server. Both say the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as json;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_pb::api::core::v1 as proto;
use k8s_pb::apimachinery::pkg::api::resource::Quantity as ProtoQuantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta as ProtoMeta;
use prost::Message as _;
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::base::sabotage;
use stoker_core::catalogue::template::{GPU_LABEL, NodeTemplate, Resources};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::market::sharing::Slices;

use super::quantity;

/// The label with a node's own name.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
const OS_LABEL: &str = "kubernetes.io/os";
const ARCH_LABEL: &str = "kubernetes.io/arch";

/// The core/v1 Node protobuf that the autoscaler simulates with.
pub fn node_proto(template: &NodeTemplate, name: &NodeName) -> Vec<u8> {
    let amounts = |resources: &Resources| {
        amounts(resources, &template.slices)
            .map(|(name, text)| (name.to_owned(), ProtoQuantity { string: Some(text) }))
            .collect()
    };
    let ready = proto::NodeCondition { r#type: Some("Ready".into()), status: Some("True".into()), ..Default::default() };
    let taints = template
        .taints
        .iter()
        .map(|taint| proto::Taint {
            key: Some(taint.key.clone()),
            value: (!taint.value.is_empty()).then(|| taint.value.clone()),
            effect: Some(taint.effect.as_str().to_owned()),
            time_added: None,
        })
        .collect();
    proto::Node {
        metadata: Some(ProtoMeta { name: Some(name.to_string()), labels: labels(template, name), ..Default::default() }),
        spec: Some(proto::NodeSpec { taints, ..Default::default() }),
        status: Some(proto::NodeStatus {
            capacity: amounts(&template.capacity),
            allocatable: amounts(&template.allocatable),
            conditions: vec![ready],
            node_info: Some(proto::NodeSystemInfo {
                operating_system: label(template, OS_LABEL),
                architecture: label(template, ARCH_LABEL),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
    .encode_to_vec()
}

/// The same Node as an object to register, for that machine.
pub fn node_object(
    template: &NodeTemplate,
    name: &NodeName,
    provider_id: &ProviderId,
    annotations: BTreeMap<String, String>,
) -> json::Node {
    let amounts = |resources: &Resources| {
        Some(amounts(resources, &template.slices).map(|(name, text)| (name.to_owned(), Quantity(text))).collect())
    };
    let ready = json::NodeCondition { type_: "Ready".into(), status: "True".into(), ..Default::default() };
    let taints: Vec<_> = template
        .taints
        .iter()
        .map(|taint| json::Taint {
            key: taint.key.clone(),
            value: (!taint.value.is_empty()).then(|| taint.value.clone()),
            effect: taint.effect.as_str().to_owned(),
            time_added: None,
        })
        .collect();
    let mut labels = labels(template, name);
    if sabotage::on("gpu-label-late") {
        labels.remove(GPU_LABEL);
    }
    if sabotage::on("node-unlike-template") {
        labels.remove(OS_LABEL);
    }
    json::Node {
        metadata: ObjectMeta {
            name: Some(name.to_string()),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..Default::default()
        },
        spec: Some(json::NodeSpec {
            provider_id: Some(provider_id.to_string()),
            taints: (!taints.is_empty()).then_some(taints),
            ..Default::default()
        }),
        status: Some(json::NodeStatus {
            capacity: amounts(&template.capacity),
            allocatable: amounts(&template.allocatable),
            conditions: Some(vec![ready]),
            node_info: Some(json::NodeSystemInfo {
                operating_system: label(template, OS_LABEL).unwrap_or_default(),
                architecture: label(template, ARCH_LABEL).unwrap_or_default(),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

fn labels(template: &NodeTemplate, name: &NodeName) -> BTreeMap<String, String> {
    let mut labels = template.labels.clone();
    labels.insert(HOSTNAME_LABEL.to_owned(), name.to_string());
    labels
}

fn label(template: &NodeTemplate, key: &str) -> Option<String> {
    template.labels.get(key).cloned()
}

/// Resources under their Kubernetes names. What a node has none of is not named.
fn amounts<'a>(resources: &Resources, slices: &'a Slices) -> impl Iterator<Item = (&'a str, String)> + use<'a> {
    let gpus = (resources.gpus > 0).then(|| (GPU_RESOURCE, resources.gpus.to_string()));
    [
        ("cpu", quantity::cpu(resources.milli_cpu)),
        ("memory", quantity::memory(resources.memory)),
        ("ephemeral-storage", quantity::memory(resources.ephemeral)),
        ("pods", resources.pods.to_string()),
    ]
    .into_iter()
    .chain(gpus)
    .chain(slices.iter().map(|(name, number)| (name, number.to_string())))
}

#[cfg(test)]
mod tests {
    use stoker_core::base::kinds::{Taint, TaintEffect};
    use stoker_core::base::units::MiB;

    use super::*;

    fn template() -> NodeTemplate {
        let taint = |key: &str, value: &str, effect| Taint { key: key.into(), value: value.into(), effect };
        let capacity = Resources { milli_cpu: 4_000, memory: MiB(15_155), ephemeral: MiB::from_gib(100), pods: 110, gpus: 1 };
        NodeTemplate {
            labels: [(OS_LABEL, "linux"), (ARCH_LABEL, "amd64"), ("stoker.dev/gpu", "L4"), ("team", "recs")]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            taints: vec![taint(GPU_RESOURCE, "true", TaintEffect::NoSchedule), taint("bare", "", TaintEffect::NoExecute)],
            capacity,
            allocatable: Resources { milli_cpu: 3_920, memory: MiB(13_590), ephemeral: MiB::from_gib(90), ..capacity },
            slices: [("nvidia.com/mig-1g.10gb", 7)].into_iter().collect(),
        }
    }

    fn name() -> NodeName {
        NodeName::new("template-node").unwrap()
    }

    #[test]
    fn protobuf_and_object_say_the_same() {
        let annotations = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let machine = ProviderId::new("sim://1").unwrap();
        let wire = proto::Node::decode(node_proto(&template(), &name()).as_slice()).unwrap();
        let object = node_object(&template(), &name(), &machine, annotations.clone());

        let (wire_meta, meta) = (wire.metadata.unwrap(), object.metadata);
        assert_eq!(wire_meta.name, meta.name);
        assert_eq!(Some(wire_meta.labels), meta.labels);
        assert_eq!(meta.annotations, Some(annotations));

        let (wire_spec, spec) = (wire.spec.unwrap(), object.spec.unwrap());
        assert_eq!((wire_spec.provider_id, spec.provider_id.as_deref()), (None, Some("sim://1")));
        let wire_taints: Vec<_> = wire_spec.taints.into_iter().map(|t| (t.key, t.value, t.effect)).collect();
        let taints: Vec<_> = spec.taints.unwrap().into_iter().map(|t| (Some(t.key), t.value, Some(t.effect))).collect();
        assert_eq!(wire_taints, taints);

        let (wire_status, status) = (wire.status.unwrap(), object.status.unwrap());
        let plain = |map: BTreeMap<String, ProtoQuantity>| -> BTreeMap<String, Quantity> {
            map.into_iter().map(|(name, amount)| (name, Quantity(amount.string.unwrap()))).collect()
        };
        assert_eq!(Some(plain(wire_status.capacity)), status.capacity);
        assert_eq!(Some(plain(wire_status.allocatable)), status.allocatable);
        let wire_conditions: Vec<_> = wire_status.conditions.into_iter().map(|c| (c.r#type, c.status)).collect();
        let conditions: Vec<_> = status.conditions.unwrap().into_iter().map(|c| (Some(c.type_), Some(c.status))).collect();
        assert_eq!(wire_conditions, conditions);
        let (wire_info, info) = (wire_status.node_info.unwrap(), status.node_info.unwrap());
        assert_eq!(
            (wire_info.operating_system, wire_info.architecture),
            (Some(info.operating_system), Some(info.architecture))
        );
    }

    #[test]
    fn the_template_holds_what_the_scheduler_reads() {
        let wire = proto::Node::decode(node_proto(&template(), &name()).as_slice()).unwrap();
        let labels = wire.metadata.unwrap().labels;
        assert_eq!(labels.get(HOSTNAME_LABEL).map(String::as_str), Some("template-node"));
        assert_eq!(labels.get("team").map(String::as_str), Some("recs"));
        let allocatable = wire.status.unwrap().allocatable;
        for (resource, expected) in [
            ("cpu", "3920m"),
            ("memory", "13590Mi"),
            ("ephemeral-storage", "90Gi"),
            ("pods", "110"),
            (GPU_RESOURCE, "1"),
            ("nvidia.com/mig-1g.10gb", "7"),
        ] {
            assert_eq!(allocatable[resource].string.as_deref(), Some(expected), "{resource}");
        }
    }

    #[test]
    fn a_node_without_gpus_does_not_name_them() {
        let mut bare = template();
        bare.capacity.gpus = 0;
        let wire = proto::Node::decode(node_proto(&bare, &name()).as_slice()).unwrap();
        assert!(!wire.status.unwrap().capacity.contains_key(GPU_RESOURCE));
    }
}
