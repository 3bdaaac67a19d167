use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use stoker_core::policy::Policy;

use super::cluster::NodeSeen;
use super::*;
use crate::kube::pending::PendingRow;

fn node(name: &str, machine: &str, labels: &Value, taints: &Value, capacity: &Value) -> NodeSeen {
    let mut all = json!({ "topology.kubernetes.io/region": "us-east-1" });
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    let object = json!({
        "metadata": { "name": name, "labels": all },
        "spec": { "providerID": machine, "taints": taints },
        "status": { "capacity": capacity },
    });
    NodeSeen::of(serde_json::from_value::<Node>(object).unwrap())
}

fn pod(name: &str, spec: Value) -> PendingRow {
    let mut spec = spec;
    spec["containers"] = json!([{ "name": "m", "resources": { "requests": { "nvidia.com/gpu": 1 } } }]);
    serde_json::from_value(json!({ "metadata": { "namespace": "ml", "name": name }, "spec": spec })).unwrap()
}

fn node_pool(name: &str, requirements: &Value) -> DynamicObject {
    let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu" });
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": { "template": { "spec": { "nodeClassRef": class, "requirements": requirements } } },
    }))
    .unwrap()
}

fn tried(source: Source, cluster: &Cluster) -> Result<(Policy, String), InitError> {
    let book = stoker_pricing::embedded().unwrap();
    let drafted = draft(source, &ClusterName::new("c").unwrap(), cluster, &book, Timestamp::UNIX_EPOCH)?;
    let policy = policy_file::parse("p", &drafted.text, Some(&book)).unwrap();
    Ok((policy, drafted.text))
}

fn one_gpu() -> Value {
    json!({ "nvidia.com/gpu": "1" })
}

#[test]
fn nodes_that_are_alike_become_one_pool_and_names_stay_apart() {
    let of = |name: &str, group: &str, labels: Value| {
        let mut labels = labels;
        labels["eks.amazonaws.com/nodegroup"] = json!(group);
        node(name, "aws:///us-east-1a/i", &labels, &json!(null), &one_gpu())
    };
    let nodes = vec![
        of("a", "GPU_Nodes", json!({ "node.kubernetes.io/instance-type": "g5.xlarge" })),
        of("b", "gpu-nodes", json!({ "node.kubernetes.io/instance-type": "g6.xlarge" })),
        of("c", "gpu-nodes", json!({ "node.kubernetes.io/instance-type": "g6.2xlarge" })),
        of(
            "d",
            "gpu-nodes",
            json!({ "node.kubernetes.io/instance-type": "g6.xlarge", "nvidia.com/mig.config": "all-disabled" }),
        ),
    ];
    let (policy, text) = tried(Source::Nodes, &Cluster::of(nodes, Vec::new(), Vec::new(), &[])).unwrap();
    let names: Vec<&str> = policy.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["gpu-nodes", "gpu-nodes-a10g", "gpu-nodes-l4"], "{text}");
    assert!(text.contains("# The cluster calls it GPU_Nodes."), "{text}");
    assert!(
        text.contains("instanceTypes: [g6.2xlarge, g6.xlarge]") && text.contains("maxNodes: 2 }   # what runs today"),
        "{text}"
    );
}

#[test]
fn layouts_attached_gpus_and_capacity_types_are_read_off_the_labels() {
    let labels = json!({
        "node.kubernetes.io/instance-type": "p4d.24xlarge", "nvidia.com/mig.config": "all-1g.5gb",
        "karpenter.sh/nodepool": "split", "karpenter.sh/capacity-type": "reserved",
    });
    let split = node("a", "aws:///us-east-1a/i", &labels, &json!(null), &json!({ "nvidia.com/mig-1g.5gb": "56" }));
    let labels = json!({
        "node.kubernetes.io/instance-type": "n1-standard-4", "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
        "topology.kubernetes.io/region": "us-central1", "cloud.google.com/gke-nodepool": "t4", "cloud.google.com/gke-spot": "true",
    });
    let attached = node("b", "gce://p/z/b", &labels, &json!(null), &one_gpu());
    let labels = json!({
        "node.kubernetes.io/instance-type": "Standard_NC4as_T4_v3", "topology.kubernetes.io/region": "eastus",
        "agentpool": "aks", "kubernetes.azure.com/scalesetpriority": "spot",
    });
    let taint = json!([{ "key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule" }]);
    let aks = node("c", "azure:///subscriptions/s", &labels, &taint, &one_gpu());
    let (policy, text) = tried(Source::Nodes, &Cluster::of(vec![split, attached, aks], Vec::new(), Vec::new(), &[])).unwrap();
    for (pool, holds) in [
        ("split", "instanceTypes: [p4d.24xlarge]\n  capacity: { prefer: [reserved] }\n  sharing: { mig: all-1g.5gb }"),
        ("t4", "instanceTypes: [n1-standard-4+1xt4]\n  capacity: { prefer: [spot] }"),
        ("aks", "instanceTypes: [Standard_NC4as_T4_v3]\n  capacity: { prefer: [spot] }"),
    ] {
        assert!(policy.pools.iter().any(|one| one.name.as_str() == pool) && text.contains(holds), "{pool}: {text}");
    }
}

/// Whatever stands in the cluster, the policy holds: what cannot be said is left out with a comment, and no text ends a comment.
#[test]
fn what_a_policy_refuses_is_left_out_with_a_comment() {
    let labels = json!({
        "node.kubernetes.io/instance-type": "g6.xlarge", "karpenter.sh/nodepool": "x\n- name: y", "odd": "a b", "stoker.dev/x": "1",
    });
    let taints =
        json!([{ "key": "a: b", "value": "#", "effect": "NoSchedule" }, { "key": "ok", "value": "no", "effect": "NoExecute" }]);
    let mut unknown = labels.clone();
    unknown["node.kubernetes.io/instance-type"] = json!("z9.huge");
    unknown["nvidia.com/gpu.product"] = json!("Quantum-1");
    let nodes = vec![
        node("a\nb", "aws:///z/i", &labels, &taints, &one_gpu()),
        node("u", "aws:///z/i", &unknown, &json!(null), &one_gpu()),
        node("nowhere", "", &json!({ "node.kubernetes.io/instance-type": "g6.xlarge" }), &json!(null), &one_gpu()),
    ];
    let pods = vec![pod("p\nq", json!({ "nodeSelector": { "odd": "a b", "stoker.dev/x": "1" } }))];
    let (policy, text) = tried(Source::Nodes, &Cluster::of(nodes, pods, Vec::new(), &[])).unwrap();
    assert_eq!((policy.pools.len(), policy.pools[0].name.as_str()), (1, "x---name--y"), "{text}");
    let taints: Vec<String> = policy.pools[0].taints.iter().map(|taint| format!("{}={}", taint.key, taint.value)).collect();
    assert_eq!(taints, ["ok=no"], "{text}");
    let flat = text.replace("\n# ", " ");
    for says in
        ["template.labels.odd \"a b\" is not a label value", "\"Quantum-1\" is not a known GPU model", "as where.clouds[0]"]
    {
        assert!(flat.contains(says), "{says}: {text}");
    }
}

#[test]
fn a_node_pool_counts_where_it_names_gpus() {
    let one = |key: &str, operator: &str, values: Value| json!([{ "key": key, "operator": operator, "values": values }]);
    let pools = vec![
        node_pool("amd", &one("kubernetes.io/arch", "In", json!(["amd64"]))),
        node_pool("none", &one("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist", json!(null))),
        node_pool("not-c", &one("karpenter.k8s.aws/instance-category", "NotIn", json!(["c"]))),
        node_pool("vendor", &one("karpenter.k8s.aws/instance-gpu-manufacturer", "In", json!(["nvidia"]))),
        node_pool("family", &one("karpenter.k8s.aws/instance-family", "In", json!(["g6"]))),
        node_pool("many", &one("karpenter.k8s.aws/instance-gpu-count", "Gte", json!(["8"]))),
        node_pool("far", &one("node.kubernetes.io/instance-type", "In", json!(["p6-b300.48xlarge-x"]))),
    ];
    let nodes = vec![node("cpu", "aws:///us-east-1a/i", &json!({}), &json!(null), &json!({}))];
    let (policy, text) = tried(Source::Karpenter, &Cluster::of(nodes, Vec::new(), pools, &[])).unwrap();
    let names: Vec<&str> = policy.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["vendor", "family", "many"], "{text}");
    assert!(text.contains("instanceTypes: [g6.*]"), "{text}");
    for left in ["amd", "not-c"] {
        assert!(text.contains(&format!("# Left out: NodePool {left} names no GPU type")), "{left}: {text}");
    }
    let none = tried(Source::Karpenter, &Cluster::default()).unwrap_err();
    assert!(matches!(none, InitError::Nothing { .. }), "{none}");
}

#[test]
fn a_node_pool_that_stoker_steers_is_read_as_it_was_before() {
    let requirements = json!([{ "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6"] }]);
    let mut pool = node_pool("gpu", &requirements);
    pool.metadata.annotations = Some(
        [
            ("stoker.dev/limits", r#"{"set":{"cpu":24,"nvidia.com/gpu":2},"was":{"nvidia.com/gpu":"64"}}"#),
            ("stoker.dev/consolidate-after", r#"{"set":"900s","was":"30s"}"#),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    pool.data["spec"]["limits"] = json!({ "cpu": "24", "nvidia.com/gpu": "2" });
    pool.data["spec"]["disruption"] = json!({ "consolidateAfter": "900s" });
    let home = vec![node("cpu", "aws:///us-east-1a/i", &json!({}), &json!(null), &json!({}))];
    let (_, text) = tried(Source::Karpenter, &Cluster::of(home, Vec::new(), vec![pool], &[])).unwrap();
    assert!(text.contains("# limit nvidia.com/gpu: 64, at 8 a node"), "{text}");
    assert!(text.contains(r#"disruption {"consolidateAfter":"30s"}"#) && !text.contains("limits.cpu"), "{text}");
}

#[test]
fn a_cloud_that_nothing_tells_is_asked_for() {
    let requirements = json!([{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.xlarge"] }]);
    let mut pool = node_pool("gpu", &requirements);
    pool.data["spec"]["template"]["spec"]["nodeClassRef"]["group"] = json!("karpenter.kwok.sh");
    let told = tried(Source::Karpenter, &Cluster::of(Vec::new(), Vec::new(), vec![pool], &[])).unwrap_err();
    let InitError::Nothing { what, left_out, .. } = told else { panic!("{told}") };
    assert_eq!(what, "NodePool that can become a pool");
    assert!(left_out[0].contains("NodePool gpu is of a cloud that nothing tells: label it stoker.dev/cloud"), "{left_out:?}");
}

#[test]
fn each_pod_that_could_run_nowhere_is_told_what_stands_in_the_way() {
    let taint = json!([{ "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule" }]);
    let labels = json!({ "node.kubernetes.io/instance-type": "g6.xlarge", "agentpool": "gpu", "team": "ml" });
    let nodes = vec![node("a", "aws:///us-east-1a/i", &labels, &taint, &one_gpu())];
    let tolerations = json!([{ "operator": "Exists" }]);
    let affinity = |key: &str| {
        let terms = json!([{ "matchExpressions": [{ "key": key, "operator": "Exists" }] }]);
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
    };
    let pods = vec![
        pod("runs", json!({ "tolerations": tolerations, "nodeSelector": { "team": "ml" } })),
        pod("bare", json!({})),
        pod("other", json!({ "tolerations": tolerations, "nodeSelector": { "team": "x" } })),
        pod("disk", json!({ "tolerations": tolerations, "affinity": affinity("disk") })),
        pod("pinned", json!({ "tolerations": tolerations, "nodeSelector": { "agentpool": "gpu" } })),
    ];
    let (_, text) = tried(Source::Nodes, &Cluster::of(nodes, pods, Vec::new(), &[])).unwrap();
    let flat = text.replace("\n#   ", " ");
    for says in [
        "# Could run here: 1 GPU pod (ml/runs).",
        "(ml/bare): does not tolerate nvidia.com/gpu=true:NoSchedule of pool gpu.",
        "(ml/other): selects team: x, which no node of pool gpu has.",
        "(ml/disk): has a node affinity on disk that holds on no node of pool gpu.",
        "(ml/pinned): selects agentpool, which no node of Stoker's has: select stoker.dev/pool: gpu instead.",
    ] {
        assert!(flat.contains(says), "{says}: {text}");
    }
}

#[test]
fn a_cluster_s_name_that_is_none_is_refused_by_itself() {
    let nodes =
        vec![node("a", "aws:///z/i", &json!({ "node.kubernetes.io/instance-type": "g6.xlarge" }), &json!(null), &one_gpu())];
    let book = stoker_pricing::embedded().unwrap();
    let name = ClusterName::new("Prod").unwrap();
    let cluster = Cluster::of(nodes, Vec::new(), Vec::new(), &[]);
    let refused = draft(Source::Nodes, &name, &cluster, &book, Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(matches!(&refused, InitError::Name(why) if why.contains("lower-case")), "{refused}");
}
