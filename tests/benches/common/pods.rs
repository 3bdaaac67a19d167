//! Pods as clusters have them: most of a Pod is what nobody here looks at.

use std::collections::BTreeMap;

use k8s_pb::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HttpGetAction,
    LocalObjectReference, Pod, PodCondition, PodSpec, PodStatus, Probe, ProbeHandler, ResourceRequirements, SecretKeySelector,
    Toleration, Volume, VolumeMount, VolumeSource,
};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_pb::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message as _;
use stoker_proto::Bytes;

#[expect(clippy::unnecessary_wraps, reason = "every field of these messages is optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity { string: text(amount) })).collect()
}

/// The `n`-th pending Pod as the autoscaler serialises it: two to four kilobytes.
pub(crate) fn protobuf(n: usize) -> Bytes {
    let secret = |n: usize| EnvVar {
        name: Some(format!("SERVICE_SECRET_{n}")),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                local_object_reference: Some(LocalObjectReference { name: text("model-server-secrets") }),
                key: Some(format!("secret-{n}")),
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let plain = |n: usize| EnvVar {
        name: Some(format!("MODEL_SERVER_OPTION_{n}")),
        value: Some(format!("--option-{n}=https://models.example.internal/v1/artifacts/{n:08x}")),
        ..EnvVar::default()
    };
    let mount = |name: &str, path: &str| VolumeMount { name: text(name), mount_path: text(path), ..VolumeMount::default() };
    let probe = |path: &str| Probe {
        handler: Some(ProbeHandler {
            http_get: Some(HttpGetAction {
                path: text(path),
                port: Some(IntOrString { int_val: Some(8080), ..IntOrString::default() }),
                scheme: text("HTTP"),
                ..HttpGetAction::default()
            }),
            ..ProbeHandler::default()
        }),
        period_seconds: Some(10),
        timeout_seconds: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    };
    let needs = amounts(&[("cpu", "3500m"), ("memory", "14Gi"), ("nvidia.com/gpu", "1")]);
    let main = Container {
        name: text("model-server"),
        image: text(
            "registry.example.internal/inference/model-server@sha256:8f3c1d8b5a0e4b0f9d7c6a5b4c3d2e1f8f3c1d8b5a0e4b0f9d7c6a5b4c3d2e1f",
        ),
        args: (0..6).map(|n| format!("--serve-model-shard={n}")).collect(),
        ports: vec![ContainerPort {
            name: text("http"),
            container_port: Some(8080),
            protocol: text("TCP"),
            ..ContainerPort::default()
        }],
        env: (0..10).map(plain).chain((0..5).map(secret)).collect(),
        resources: Some(ResourceRequirements { limits: needs.clone(), requests: needs, ..ResourceRequirements::default() }),
        volume_mounts: vec![
            mount("config", "/etc/model-server"),
            mount("scratch", "/scratch"),
            mount("token", "/var/run/secrets/token"),
        ],
        liveness_probe: Some(probe("/healthz")),
        readiness_probe: Some(probe("/readyz")),
        termination_message_path: text("/dev/termination-log"),
        termination_message_policy: text("File"),
        image_pull_policy: text("IfNotPresent"),
        ..Container::default()
    };
    let small = amounts(&[("cpu", "100m"), ("memory", "128Mi")]);
    let side = Container {
        name: text("metrics-agent"),
        image: text("registry.example.internal/platform/metrics-agent:v2.14.3"),
        env: (0..3).map(plain).collect(),
        resources: Some(ResourceRequirements { limits: small.clone(), requests: small, ..ResourceRequirements::default() }),
        volume_mounts: vec![mount("config", "/etc/agent")],
        ..Container::default()
    };
    let volume = |name: &str, source: VolumeSource| Volume { name: text(name), volume_source: Some(source) };
    let config = ConfigMapVolumeSource {
        local_object_reference: Some(LocalObjectReference { name: text("model-server-config") }),
        ..ConfigMapVolumeSource::default()
    };
    let toleration = |key: &str| Toleration {
        key: text(key),
        operator: text("Exists"),
        effect: text("NoSchedule"),
        ..Toleration::default()
    };
    let pod = Pod {
        metadata: Some(ObjectMeta {
            name: Some(format!("model-server-7d9c5b6f8-{n:05x}")),
            generate_name: text("model-server-7d9c5b6f8-"),
            namespace: text("inference"),
            uid: Some(format!("3b0c7c1e-5f0e-4a52-9b0b-{n:012x}")),
            resource_version: Some(format!("{}", 91_000_000 + n)),
            labels: map(&[
                ("app", "model-server"),
                ("pod-template-hash", "7d9c5b6f8"),
                ("team", "recommendations"),
                ("tier", "online"),
            ]),
            annotations: map(&[
                ("prometheus.io/scrape", "true"),
                ("prometheus.io/port", "8080"),
                ("checksum/config", "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"),
            ]),
            owner_references: vec![OwnerReference {
                api_version: text("apps/v1"),
                kind: text("ReplicaSet"),
                name: text("model-server-7d9c5b6f8"),
                uid: text("a9d7a6c1-92a1-4f0a-8f43-5a1c0c6c1e77"),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }],
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![main, side],
            volumes: vec![
                volume("config", VolumeSource { config_map: Some(config), ..VolumeSource::default() }),
                volume("scratch", VolumeSource { empty_dir: Some(EmptyDirVolumeSource::default()), ..VolumeSource::default() }),
            ],
            node_selector: map(&[("stoker.dev/pool", "p00")]),
            tolerations: ["nvidia.com/gpu", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
                .map(toleration)
                .into(),
            restart_policy: text("Always"),
            dns_policy: text("ClusterFirst"),
            service_account_name: text("model-server"),
            scheduler_name: text("default-scheduler"),
            termination_grace_period_seconds: Some(30),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: text("Pending"),
            conditions: vec![PodCondition {
                r#type: text("PodScheduled"),
                status: text("False"),
                reason: text("Unschedulable"),
                message: text(
                    "0/118 nodes are available: 118 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/118",
                ),
                ..PodCondition::default()
            }],
            qos_class: text("Burstable"),
            ..PodStatus::default()
        }),
    };
    Bytes::from(pod.encode_to_vec())
}
