use jiff::SignedDuration;
use serde_json::{Value, json};
use stoker_core::base::units::MiB;
use stoker_core::catalogue::template::{CLUSTER_LABEL, GROUP_LABEL};
use stoker_core::state::node_status;
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};

use super::super::{HELD, SCALE_DOWN_DISABLED, VERDICT};
use super::nodes::hold;
use super::pods::is_gpu;
use super::*;

fn node(value: Value) -> NodeRow {
    serde_json::from_value(value).unwrap()
}

fn pod(value: Value) -> PodRow {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_node_is_read_by_the_names_that_the_rest_of_stoker_writes() {
    let row = node(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { CLUSTER_LABEL: "prod", GROUP_LABEL: "a.b.c", "team": "x" },
            "annotations": { SCALE_DOWN_DISABLED: "true", HELD: "true", VERDICT: "busy", "big": "x" },
            "managedFields": [{ "manager": "kubelet" }],
        },
        "spec": { "providerID": "sim://1", "taints": [] },
        "status": { "conditions": [
            { "type": "DiskPressure", "status": "False" },
            { "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:05:00Z", "lastHeartbeatTime": null },
            { "type": node_status::CONDITION, "status": "False", "reason": "GpuBusy", "message": "GPU pods are bound to it",
              "lastTransitionTime": "2026-11-01T00:06:00Z", "lastHeartbeatTime": "2026-11-01T00:06:01Z" },
        ]},
    }));
    assert_eq!(row.cluster.as_deref(), Some("prod"));
    assert_eq!(row.group.as_deref(), Some("a.b.c"));
    assert_eq!(row.provider_id.as_deref(), Some("sim://1"));
    assert_eq!(row.created_at.unwrap().to_string(), "2026-11-01T00:00:00Z");
    assert_eq!(row.ready_since.unwrap().to_string(), "2026-11-01T00:05:00Z");
    assert_eq!((row.hold, row.marked), (Hold::Ours, true));
    let since = "2026-11-01T00:06:00Z".parse().unwrap();
    let busy = Judged { verdict: Verdict::Busy, why: Reason::Pods, since };
    assert_eq!(row.shown, ShownStatus::of(Some(&busy), since + SignedDuration::from_secs(1)));
    let kept = serde_json::to_value(&row.meta).unwrap();
    assert_eq!(kept, json!({ "name": "n1", "uid": "u", "resourceVersion": "7" }));
}

#[test]
fn what_a_node_leaves_to_pods_is_read_whole_or_not_at_all() {
    let read =
        |allocatable: Value| node(json!({ "metadata": { "name": "n" }, "status": { "allocatable": allocatable } })).allocatable;
    let all = json!({ "cpu": "3920m", "memory": "15056896Ki", "ephemeral-storage": "95551679124", "pods": "58", "nvidia.com/gpu": "1" });
    let (memory, ephemeral) = (MiB(15_056_896 / 1024), MiB(95_551_679_124 / 1024 / 1024));
    assert_eq!(read(all.clone()), Some(Allocatable { milli_cpu: 3920, memory, ephemeral, pods: 58 }));
    for (key, other) in [("memory", Value::Null), ("pods", json!("many")), ("cpu", json!("-1")), ("pods", json!("99999999999"))]
    {
        let mut bad = all.clone();
        bad[key] = other;
        assert_eq!(read(bad.clone()), None, "{bad}");
    }
}

#[test]
fn a_bare_node_is_read_too() {
    let row = node(json!({ "metadata": { "name": "n", "labels": null, "creationTimestamp": null } }));
    assert_eq!((row.created_at, row.ready_since, row.hold), (None, None, Hold::None));
    assert_eq!((row.provider_id, row.shown), (None, None));
}

#[test]
fn only_a_condition_that_is_true_makes_a_node_ready() {
    for (status, ready) in [("True", true), ("False", false), ("Unknown", false)] {
        let row = node(json!({
            "metadata": { "creationTimestamp": "2026-11-01T00:00:00Z" },
            "status": { "conditions": [{ "type": "Ready", "status": status }] },
        }));
        assert_eq!(row.ready_since.is_some(), ready, "{status}");
    }
}

#[test]
fn who_holds_a_node_is_told_by_value_and_marker() {
    assert_eq!(hold(None, false), Hold::None);
    assert_eq!(hold(None, true), Hold::None);
    assert_eq!(hold(Some("false"), true), Hold::None);
    assert_eq!(hold(Some("false"), false), Hold::Refused);
    assert_eq!(hold(Some("true"), false), Hold::Theirs);
    assert_eq!(hold(Some("true"), true), Hold::Ours);
}

fn gpu_pod() -> Value {
    json!({
        "metadata": { "namespace": "ml", "name": "train-0", "uid": "u", "resourceVersion": "9" },
        "spec": {
            "nodeName": "n1",
            "containers": [
                { "name": "side", "env": [{ "name": "TOKEN", "value": "hunter2" }] },
                { "name": "main", "resources": { "requests": { "cpu": "1", "nvidia.com/gpu": "1" } } },
            ],
        },
        "status": { "phase": "Running" },
    })
}

#[test]
fn a_bound_gpu_pod_holds_its_node_and_nothing_else_of_it_is_kept() {
    let row = pod(gpu_pod());
    assert_eq!(row.holds.as_deref(), Some("n1"));
    assert_eq!(row.key().as_deref(), Some("ml/train-0"));
    assert!(!format!("{row:?}").contains("hunter2"));
}

#[test]
fn a_gpu_pod_tells_whose_it_is_and_what_it_asked_for() {
    let claim = |change: fn(&mut Value)| {
        let mut value = gpu_pod();
        change(&mut value);
        let claim = pod(value).claim.unwrap();
        (claim.owner.to_string(), claim.units)
    };
    assert_eq!(claim(|_| ()), ("ml/train-0".to_owned(), Some(1)));
    let owned = |pod: &mut Value| {
        pod["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "recs" });
        pod["spec"]["containers"][0]["resources"] = json!({ "limits": { "nvidia.com/mig-1g.10gb": 2, "cpu": "500m" } });
        pod["spec"]["initContainers"] = json!([{ "resources": { "limits": { "nvidia.com/gpu": "2" } } }]);
    };
    assert_eq!(claim(owned), ("ml/recs".to_owned(), Some(3)), "an init container's GPUs are given back before");
    let by_job = |pod: &mut Value| {
        pod["metadata"]["ownerReferences"] =
            json!([{ "kind": "Node", "name": "x" }, { "kind": "Job", "name": "nightly-29385600", "controller": true }]);
        pod["spec"]["resourceClaims"] = json!([{ "name": "gpu" }]);
    };
    assert_eq!(claim(by_job), ("ml/nightly".to_owned(), None));
    assert_eq!(claim(|pod| pod["spec"]["containers"][1]["resources"]["requests"]["nvidia.com/gpu"] = json!("1k")).1, None);
    let mut labelled = gpu_pod();
    labelled["metadata"]["labels"] = json!({ "team": "vision", "pod-template-hash": "7d4b9c5f6d" });
    let labels = pod(labelled).claim.unwrap().labels;
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("team", "vision")]);
    let mut waiting = gpu_pod();
    waiting["spec"]["nodeName"] = json!(null);
    assert_eq!(pod(waiting).claim, None);
}

#[test]
fn what_a_gpu_pod_asks_for_and_when_it_came_is_kept_for_the_journal() {
    let mut value = gpu_pod();
    value["metadata"]["creationTimestamp"] = json!("2026-11-01T00:00:00Z");
    value["metadata"]["ownerReferences"] = json!([{ "kind": "ReplicaSet", "name": "recs-7d4b9c5f6d", "controller": true }]);
    value["spec"]["overhead"] = json!({ "cpu": "250m" });
    value["spec"]["containers"][1]["resources"] = json!({ "limits": { "memory": "2Gi", "nvidia.com/gpu": 2 } });
    value["spec"]["nodeSelector"] = json!({ "stoker.dev/pool": "serving", "zone": "a" });
    let terms = json!([{ "matchExpressions": [{ "key": "stoker.dev/gpu", "operator": "In", "values": ["L4", "A10G"] }] }]);
    value["spec"]["affinity"] =
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    value["status"]["conditions"] =
        json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T00:04:00Z" }]);
    let asks = |value: &Value| Arc::unwrap_or_clone(pod(value.clone()).claim.unwrap().asks);
    let requests = Requests { milli_cpu: 250, memory_bytes: 2 << 30, gpus: 2, ..Requests::default() };
    let at = |text: &str| Some(text.parse().unwrap());
    let expected = Asks {
        node: "n1".into(),
        owner_kind: Some("Deployment".into()),
        created: at("2026-11-01T00:00:00Z"),
        scheduled: at("2026-11-01T00:04:00Z"),
        requests: Some(requests),
        pool: Some("serving".into()),
        gpus: vec!["L4".into(), "A10G".into()],
    };
    assert_eq!(asks(&value), expected);
    // What no API server sends costs no more than itself.
    value["spec"]["affinity"] = json!({ "nodeAffinity": "odd" });
    value["spec"]["containers"][1]["resources"]["limits"]["memory"] = json!("much");
    assert_eq!(asks(&value), Asks { requests: None, gpus: Vec::new(), ..expected });
}

#[test]
fn a_pod_that_ended_or_waits_or_leaves_or_serves_the_node_holds_nothing() {
    let changes: [(&str, Value); 7] = [
        ("/spec/nodeName", json!(null)),
        ("/spec/nodeName", json!("")),
        ("/status/phase", json!("Succeeded")),
        ("/status/phase", json!("Failed")),
        ("/metadata/deletionTimestamp", json!("2026-11-01T00:00:00Z")),
        ("/metadata/ownerReferences", json!([{ "kind": "DaemonSet", "controller": true, "name": "d", "uid": "u" }])),
        ("/spec/containers", json!([{ "name": "main", "resources": { "requests": { "cpu": "1", "nvidia.com/gpu": "0" } } }])),
    ];
    for (path, value) in changes {
        let mut object = gpu_pod();
        let (parent, key) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(pod(object).holds, None, "{path}");
    }
}

#[test]
fn a_pod_that_claims_something_may_hold_a_gpu() {
    let mut claiming = gpu_pod();
    claiming["spec"]["containers"] = json!([{ "name": "train", "resources": { "requests": { "cpu": "1" } } }]);
    claiming["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "one" }]);
    let row = pod(claiming);
    assert_eq!((row.holds.as_deref(), row.guest_on), (Some("n1"), None));
}

#[test]
fn a_pod_without_gpu_is_a_guest_unless_the_cluster_needs_it_there() {
    let mut plain = gpu_pod();
    plain["spec"]["containers"] = json!([{ "name": "web", "resources": { "requests": { "cpu": "1" } } }]);
    let with = |path: &str, value: Value| {
        let mut object = plain.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        pod(object).guest_on
    };
    assert_eq!(pod(gpu_pod()).guest_on, None);
    assert_eq!(with("/spec/priority", json!(0)).as_deref(), Some("n1"));
    for (path, value) in [
        ("/spec/nodeName", json!(null)),
        ("/status/phase", json!("Succeeded")),
        ("/metadata/deletionTimestamp", json!("2026-11-01T00:00:00Z")),
        ("/metadata/ownerReferences", json!([{ "kind": "DaemonSet", "controller": true, "name": "d", "uid": "u" }])),
        ("/metadata/annotations", json!({ "kubernetes.io/config.mirror": "0123" })),
        ("/metadata/namespace", json!("kube-system")),
        ("/spec/resourceClaims", json!([{ "name": "gpu", "resourceClaimName": "one" }])),
    ] {
        assert_eq!(with(path, value), None, "{path}");
    }
}

#[test]
fn every_way_to_ask_for_a_gpu_counts() {
    for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb.shared"] {
        assert!(is_gpu(resource), "{resource}");
    }
    for resource in ["nvidia.com/gpuish", "nvidia.com/rdma", "amd.com/gpu", "cpu"] {
        assert!(!is_gpu(resource), "{resource}");
    }
    let mut object = gpu_pod();
    object["spec"]["containers"] = json!([{ "name": "main" }]);
    object["spec"]["initContainers"] =
        json!([{ "name": "warm", "resources": { "limits": { "nvidia.com/mig-1g.10gb": "1" } } }]);
    assert_eq!(pod(object).holds.as_deref(), Some("n1"));
}

#[test]
fn a_pod_has_started_once_all_its_containers_run_for_the_first_time() {
    let started = |containers: Value| {
        pod(json!({
            "metadata": { "name": "p", "namespace": "ml", "uid": "u" },
            "spec": { "nodeName": "n", "containers": [{ "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
            "status": {
                "phase": "Pending",
                "conditions": [{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z" }],
                "containerStatuses": containers,
            },
        }))
        .claim
        .unwrap()
        .started_after
    };
    let running = |at: &str, restarts: i64| json!({ "restartCount": restarts, "state": { "running": { "startedAt": at } } });
    let (first, second) = (running("2026-11-01T00:00:40Z", 0), running("2026-11-01T00:02:00Z", 0));
    let waits = json!({ "restartCount": 0, "state": { "waiting": { "reason": "ContainerCreating" } } });
    assert_eq!(started(json!([first, second])), Some(Duration::from_mins(2)));
    assert_eq!(started(json!([first, waits])), None);
    assert_eq!(started(json!([first, running("2026-11-01T05:00:00Z", 1)])), None, "that start is another");
    assert_eq!(started(json!([running("2026-10-31T23:59:59Z", 0)])), None, "the kubelet's clock is behind");
    assert_eq!(started(json!([])), None);
    assert_eq!(started(Value::Null), None);
}
