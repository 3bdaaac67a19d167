//! A large cluster: its Nodes and Pods as an API server has them, and the machines of those nodes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoker_core::base::ids::{ClusterName, LaunchKey, NodeName, ProviderId};
use stoker_core::market::offer::CapacityType;
use stoker_fake_apiserver::ApiServer;
use stoker_sim::world::StoredInstance;
use stoker_tests::market;

use super::service::{CLUSTER, pool};

/// GPU pods on each node.
pub(crate) const PODS_PER_NODE: usize = 4;

/// Types and zones of a pool's groups, which are called `<pool>.<type>.<zone>`. A zone goes by id in the price book, by name elsewhere.
const TYPES: [&str; 3] = ["g6.xlarge", "g5.xlarge", "g6e.xlarge"];
const ZONES: [(&str, &str); 2] = [("use1-az1", "us-east-1a"), ("use1-az2", "us-east-1b")];

/// Pools whose groups the nodes are spread over.
const POOLS: usize = 25;
/// When every node came.
const HOURS_AGO: i64 = 2;

/// So many nodes, each full of pods.
pub(crate) struct Crowd {
    nodes: usize,
    joined: Timestamp,
}

impl Crowd {
    pub(crate) fn new(nodes: usize) -> Result<Self> {
        Ok(Self { nodes, joined: Timestamp::now().checked_sub(SignedDuration::from_hours(HOURS_AGO))? })
    }

    /// Puts all of it into a server, and says how many bytes one Pod has.
    pub(crate) fn fill(&self, server: &ApiServer) -> usize {
        let pod = pod(self.joined).to_string();
        for n in 0..self.nodes {
            let place = Place::of(n);
            server.seed(&format!("/api/v1/nodes/{}", place.name), node(n, self.joined));
            for n in n * PODS_PER_NODE..(n + 1) * PODS_PER_NODE {
                let text = pod.replace("@N@", &format!("{n:05}")).replace("@NODE@", &place.name);
                let path = format!("/api/v1/namespaces/inference/pods/model-server-7d9c5b6f8-{n:05}");
                server.seed(&path, serde_json::from_str(&text).unwrap_or_default());
            }
        }
        pod.len()
    }

    /// Writes the machines of its nodes, as the simulated world keeps them.
    pub(crate) fn write_machines(&self, path: &Path) -> Result<()> {
        let joined = self.joined;
        let mut text = format!("{}\n", json!({ "start": joined }));
        for n in 0..self.nodes {
            let node = Place::of(n);
            let row = StoredInstance {
                key: LaunchKey::new(format!("{CLUSTER}/{}/{n}/1", node.group))?,
                cluster: ClusterName::new(CLUSTER)?,
                provider_id: ProviderId::new(node.provider_id)?,
                node_name: NodeName::new(node.name)?,
                market: market::market(node.instance_type, node.zone_id, CapacityType::OnDemand),
                launched_at: joined,
                ready_at: Some(joined),
                reclaim: None,
                stopping: None,
            };
            writeln!(text, "{}", serde_json::to_string(&row)?)?;
        }
        fs::write(path, text)?;
        Ok(())
    }
}

/// Where the `n`-th node is, and what it is called.
struct Place {
    name: String,
    provider_id: String,
    group: String,
    pool: String,
    instance_type: &'static str,
    zone_id: &'static str,
    zone: &'static str,
}

impl Place {
    fn of(n: usize) -> Self {
        let (instance_type, (zone_id, zone)) = (TYPES[n % TYPES.len()], ZONES[n / TYPES.len() % ZONES.len()]);
        let pool = pool(n / (TYPES.len() * ZONES.len()) % POOLS);
        let dashed = instance_type.replace('.', "-");
        // As the simulated world names them: the node by the first eight digits of its machine.
        let bits = n * 0x1_0001;
        Self {
            name: format!("{dashed}-{bits:08x}"),
            provider_id: format!("sim:///{zone}/i-{bits:08x}0000"),
            group: format!("{pool}.{dashed}.{zone}"),
            pool,
            instance_type,
            zone_id,
            zone,
        }
    }
}

/// The `n`-th Node, Ready and held by us.
fn node(n: usize, joined: Timestamp) -> Value {
    let place = Place::of(n);
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|kind| {
            json!({
                "type": kind, "status": if kind == "Ready" { "True" } else { "False" }, "lastHeartbeatTime": joined,
                "lastTransitionTime": joined, "reason": format!("Kubelet{kind}"), "message": "kubelet says so",
            })
        })
        .into();
    let images: Vec<Value> = (0..20)
        .map(|image| {
            let digest = format!("{image:064x}");
            json!({ "names": [format!("registry.example.internal/team/image-{image}@sha256:{digest}")], "sizeBytes": 1_234_567_890 })
        })
        .collect();
    let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "58", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "4" });
    json!({
        "metadata": {
            "name": place.name, "uid": format!("6f1c9b3e-0000-4000-8000-{n:012x}"), "resourceVersion": "900", "creationTimestamp": joined,
            "labels": {
                "stoker.dev/cluster": CLUSTER, "stoker.dev/group": place.group, "stoker.dev/pool": place.pool,
                "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": place.name,
                "node.kubernetes.io/instance-type": place.instance_type, "topology.kubernetes.io/region": "us-east-1",
                "topology.kubernetes.io/zone": place.zone,
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", "stoker.dev/scale-down-blocked": "true",
                "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [{ "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:status": { "f:conditions": {} } } }],
        },
        "spec": { "providerID": place.provider_id, "taints": [{ "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule" }] },
        "status": {
            "conditions": conditions, "images": images, "capacity": amounts, "allocatable": amounts,
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0" },
        },
    })
}

/// A bound GPU Pod of about six kilobytes, as an API server tells of it: with `@N@` for its number and `@NODE@` for its node.
fn pod(joined: Timestamp) -> Value {
    let env: Vec<Value> = (0..24)
        .map(|n| json!({ "name": format!("MODEL_SERVER_OPTION_{n}"), "value": format!("--option-{n}=https://models.example.internal/v1/{n:08x}") }))
        .collect();
    let mounts: Vec<Value> = (0..4)
        .map(|n| json!({ "name": format!("volume-{n}"), "mountPath": format!("/mnt/volume-{n}"), "readOnly": true }))
        .collect();
    let volumes: Vec<Value> = (0..4)
        .map(|n| json!({ "name": format!("volume-{n}"), "configMap": { "name": format!("config-{n}"), "defaultMode": 420 } }))
        .collect();
    let fields = json!({ "f:metadata": { "f:labels": { ".": {}, "f:app": {}, "f:team": {} } }, "f:spec": { "f:containers": {
        "k:{\"name\":\"main\"}": { ".": {}, "f:args": {}, "f:env": {}, "f:image": {}, "f:resources": {}, "f:volumeMounts": {} },
    } } });
    let amounts = json!({ "cpu": "500m", "memory": "3Gi", "nvidia.com/gpu": "1" });
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": joined }))
        .into();
    json!({
        "metadata": {
            "name": "model-server-7d9c5b6f8-@N@", "generateName": "model-server-7d9c5b6f8-", "namespace": "inference",
            "uid": "3b0c7c1e-5f0e-4a52-9b0b-0000000@N@", "resourceVersion": "900", "creationTimestamp": joined,
            "labels": { "app": "model-server", "pod-template-hash": "7d9c5b6f8", "team": "recommendations" },
            "annotations": { "prometheus.io/scrape": "true", "checksum/config": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "model-server-7d9c5b6f8", "uid": "a9d7a6c1", "controller": true }],
            "managedFields": (0..3).map(|n| json!({ "manager": format!("manager-{n}"), "operation": "Update", "fieldsV1": fields })).collect::<Vec<_>>(),
        },
        "spec": {
            "nodeName": "@NODE@", "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "model-server",
            "containers": [{
                "name": "main", "image": format!("registry.example.internal/inference/model-server@sha256:{:064x}", 7), "env": env,
                "args": (0..8).map(|n| format!("--serve-model-shard={n}")).collect::<Vec<_>>(),
                "resources": { "requests": amounts, "limits": amounts }, "volumeMounts": mounts,
            }],
            "volumes": volumes,
            "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.2", "qosClass": "Guaranteed", "startTime": joined,
            "conditions": conditions,
            "containerStatuses": [{ "name": "main", "ready": true, "restartCount": 0, "image": "registry.example.internal/inference/model-server" }],
        },
    })
}
