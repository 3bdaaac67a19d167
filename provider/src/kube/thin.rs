//! Nodes and Pods as we read them: everything that we do not use is skipped while the JSON is read and never stored.
//!
//! Reading is lenient: what an API server can send never fails, because a failed read makes the client log the whole answer, and a
//! Pod's environment is no matter for a log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;
use stoker_core::rollup::Owner;
use stoker_core::sharing::Slices;
use stoker_core::snapshot::{Cordon, Hold};
use stoker_core::template::GPU_RESOURCE;
use stoker_core::told::{self, Borne, Condition};

/// A Node.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawNode")]
pub(super) struct NodeRow {
    /// Name, uid and resource version only.
    pub(super) meta: ObjectMeta,
    pub(super) cluster: Option<String>,
    pub(super) group: Option<String>,
    pub(super) provider_id: Option<String>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) ready_since: Option<Timestamp>,
    pub(super) hold: Hold,
    /// Whether it bears our marker, also where the annotation that it marks is not there.
    pub(super) marked: bool,
    pub(super) cordon: Cordon,
    /// What it bears of our verdict; `None` where that is nothing.
    pub(super) borne: Option<Borne>,
}

/// A Pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct PodRow {
    /// Namespace, name, uid and resource version only.
    pub(super) meta: ObjectMeta,
    /// The node that it holds: `None` where it is not bound, has ended, is being deleted, wants no GPU or is of a `DaemonSet`.
    pub(super) holds: Option<String>,
    /// The node that it sits on without wanting a GPU; `None` also for what every node or the cluster itself needs.
    pub(super) guest_on: Option<String>,
    /// Of one that holds a node, whose it is and what it asked for.
    pub(super) claim: Option<Claim>,
}

/// Whose a GPU pod is, and what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) owner: Owner,
    /// GPUs, or slices of any kind; `None` where it may get others by a resource claim.
    pub(super) units: Option<u32>,
}

macro_rules! row {
    ($row:ty, $of:ty, $scope:ty) => {
        impl kube::Resource for $row {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::KIND.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::VERSION.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$of as k8s_openapi::Resource>::URL_PATH_SEGMENT.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }
        }
    };
}

pub(super) use row;

row!(NodeRow, Node, ClusterResourceScope);
row!(PodRow, Pod, NamespaceResourceScope);

/// Who set [`SCALE_DOWN_DISABLED`](super::SCALE_DOWN_DISABLED), by its value and that of our marker.
fn hold(disabled: Option<&str>, marked: bool) -> Hold {
    match (disabled == Some("true"), marked) {
        (false, _) => Hold::None,
        (true, true) => Hold::Ours,
        (true, false) => Hold::Theirs,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(super) creation_timestamp: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<RawLabels>,
    pub(super) annotations: Option<RawAnnotations>,
    owner_references: Option<Vec<RawOwner>>,
}

impl RawMeta {
    pub(super) fn thin(&mut self) -> ObjectMeta {
        ObjectMeta {
            name: self.name.take(),
            namespace: self.namespace.take(),
            uid: self.uid.take(),
            resource_version: self.resource_version.take(),
            ..ObjectMeta::default()
        }
    }

    /// The kind of its controller.
    pub(super) fn owner(&self) -> Option<&str> {
        self.controller().and_then(|owner| owner.kind.as_deref())
    }

    fn controller(&self) -> Option<&RawOwner> {
        let owners = self.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whose it is, as a pod; `None` without a name and a namespace.
    fn whose(&self) -> Option<Owner> {
        let controller = self.controller().and_then(|owner| Some((owner.kind.as_deref()?, owner.name.as_deref()?)));
        let app = self.labels.as_ref().and_then(|labels| labels.app.as_deref());
        Some(Owner::of(self.namespace.as_deref()?, self.name.as_deref()?, controller, app))
    }

    /// Whether it is being deleted.
    pub(super) const fn is_leaving(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

#[derive(Deserialize, Default)]
struct RawLabels {
    #[serde(rename = "stoker.dev/cluster")]
    cluster: Option<String>,
    #[serde(rename = "stoker.dev/group")]
    group: Option<String>,
    #[serde(rename = "app.kubernetes.io/name")]
    app: Option<String>,
}

#[derive(Deserialize, Default)]
pub(super) struct RawAnnotations {
    #[serde(rename = "cluster-autoscaler.kubernetes.io/scale-down-disabled")]
    disabled: Option<String>,
    #[serde(rename = "stoker.dev/held")]
    held: Option<String>,
    #[serde(rename = "stoker.dev/draining")]
    draining: Option<String>,
    #[serde(rename = "stoker.dev/verdict")]
    verdict: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    pub(super) mirror: Option<IgnoredAny>,
    #[serde(rename = "cluster-autoscaler.kubernetes.io/safe-to-evict")]
    pub(super) safe_to_evict: Option<String>,
    #[serde(rename = "karpenter.sh/do-not-disrupt")]
    pub(super) do_not_disrupt: Option<String>,
}

#[derive(Deserialize)]
struct RawOwner {
    kind: Option<String>,
    name: Option<String>,
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct RawNode {
    metadata: RawMeta,
    spec: Option<RawNodeSpec>,
    status: Option<RawNodeStatus>,
}

#[derive(Deserialize, Default)]
struct RawNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize, Default)]
struct RawNodeStatus {
    conditions: Option<Vec<RawCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition {
    r#type: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<String>,
    last_heartbeat_time: Option<String>,
}

impl RawCondition {
    fn is(&self, kind: &str) -> bool {
        self.r#type.as_deref() == Some(kind)
    }

    fn borne(&self) -> Condition {
        let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        Condition {
            status: self.status.clone().unwrap_or_default(),
            reason: self.reason.clone().unwrap_or_default(),
            message: self.message.clone().unwrap_or_default(),
            since: time(&self.last_transition_time),
            told_at: time(&self.last_heartbeat_time),
        }
    }
}

impl From<RawNode> for NodeRow {
    fn from(mut raw: RawNode) -> Self {
        let labels = raw.metadata.labels.take().unwrap_or_default();
        let annotations = raw.metadata.annotations.take().unwrap_or_default();
        let marked = annotations.held.as_deref() == Some("true");
        let draining = annotations.draining.as_deref() == Some("true");
        let spec = raw.spec.unwrap_or_default();
        let created_at = raw.metadata.creation_timestamp.as_deref().and_then(|text| text.parse().ok());
        let conditions = raw.status.unwrap_or_default().conditions.unwrap_or_default();
        let borne = Borne {
            word: annotations.verdict,
            condition: conditions.iter().find(|c| c.is(told::CONDITION)).map(RawCondition::borne),
        };
        let ready_since = conditions
            .into_iter()
            .find(|c| c.is("Ready") && c.status.as_deref() == Some("True"))
            // Ready, but nobody knows since when: certainly not before it was created.
            .and_then(|c| c.last_transition_time.and_then(|text| text.parse().ok()).or(created_at));
        Self {
            meta: raw.metadata.thin(),
            cluster: labels.cluster,
            group: labels.group,
            provider_id: spec.provider_id.filter(|id| !id.is_empty()),
            created_at,
            ready_since,
            hold: hold(annotations.disabled.as_deref(), marked),
            marked,
            cordon: match (spec.unschedulable == Some(true), draining) {
                (false, false) => Cordon::None,
                (false, true) => Cordon::MarkLeft,
                (true, true) => Cordon::Ours,
                (true, false) => Cordon::Theirs,
            },
            borne: Some(borne).filter(|borne| !borne.is_empty()),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct RawPod {
    pub(super) metadata: RawMeta,
    spec: Option<RawPodSpec>,
    status: Option<RawPodStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawPodSpec {
    node_name: Option<String>,
    containers: Option<Vec<RawContainer>>,
    init_containers: Option<Vec<RawContainer>>,
    resource_claims: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize, Default)]
struct RawPodStatus {
    phase: Option<String>,
}

#[derive(Deserialize)]
struct RawContainer {
    resources: Option<RawResources>,
}

#[derive(Deserialize)]
struct RawResources {
    requests: Option<Amounts>,
    limits: Option<Amounts>,
}

type Amounts = BTreeMap<String, serde_json::Value>;

/// Whether a container may use that resource only on a GPU: whole GPUs, MIG slices, and either of them shared.
fn is_gpu(resource: &str) -> bool {
    resource == GPU_RESOURCE || Slices::is_slice(resource)
}

impl RawContainer {
    fn wants_gpu(&self) -> bool {
        let Some(resources) = &self.resources else { return false };
        [&resources.requests, &resources.limits]
            .into_iter()
            .flatten()
            .flatten()
            .any(|(name, amount)| is_gpu(name) && amount != "0" && *amount != 0)
    }

    /// GPUs, or slices of any kind; `None` where an amount is no whole number.
    fn units(&self) -> Option<u32> {
        let amounts = self.resources.as_ref().and_then(|resources| resources.limits.as_ref().or(resources.requests.as_ref()));
        let number = |amount: &serde_json::Value| match amount {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        let mut of_gpus = amounts.into_iter().flatten().filter(|(name, _)| is_gpu(name));
        of_gpus.try_fold(0_u32, |sum, (_, amount)| sum.checked_add(number(amount)?))
    }
}

impl RawPod {
    /// Whether it may use a GPU: a container of it wants one, or it claims something, which may be one.
    pub(super) fn wants_gpu(&self) -> bool {
        let of = |spec: &RawPodSpec| {
            let claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
            claims || [&spec.containers, &spec.init_containers].into_iter().flatten().flatten().any(RawContainer::wants_gpu)
        };
        self.spec.as_ref().is_some_and(of)
    }
}

impl RawPodSpec {
    /// GPUs, or slices of any kind, that its containers ask for together.
    fn units(&self) -> Option<u32> {
        if self.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
            return None;
        }
        let of =
            |list: &Option<Vec<RawContainer>>| list.as_deref().unwrap_or_default().iter().map(RawContainer::units).collect();
        let (run, start): (Option<Vec<u32>>, Option<Vec<u32>>) = (of(&self.containers), of(&self.init_containers));
        // What starts before the rest runs alone.
        let run = run?.into_iter().try_fold(0_u32, u32::checked_add)?;
        Some(start?.into_iter().fold(run, u32::max))
    }
}

impl From<RawPod> for PodRow {
    fn from(mut raw: RawPod) -> Self {
        let wants_gpu = raw.wants_gpu();
        let spec = raw.spec.unwrap_or_default();
        let ended = matches!(raw.status.unwrap_or_default().phase.as_deref(), Some("Succeeded" | "Failed"));
        let of_daemon_set = raw.metadata.owner() == Some("DaemonSet");
        let runs = !ended && !of_daemon_set && !raw.metadata.is_leaving();
        let holds = runs && wants_gpu;
        let mirror = raw.metadata.annotations.as_ref().is_some_and(|annotations| annotations.mirror.is_some());
        let of_the_cluster = mirror || raw.metadata.namespace.as_deref() == Some("kube-system");
        let is_guest = runs && !holds && !of_the_cluster;
        let units = spec.units();
        let node = spec.node_name.filter(|name| !name.is_empty());
        let guest_on = node.clone().filter(|_| is_guest);
        let holds = node.filter(|_| holds);
        let claim = holds.as_ref().and_then(|_| Some(Claim { owner: raw.metadata.whose()?, units }));
        Self { meta: raw.metadata.thin(), holds, guest_on, claim }
    }
}

impl PodRow {
    /// `namespace/name`; `None` for a Pod without a name, which no API server sends.
    pub(super) fn key(&self) -> Option<String> {
        Some(format!("{}/{}", self.meta.namespace.as_ref()?, self.meta.name.as_ref()?))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};
    use stoker_core::template::{CLUSTER_LABEL, GROUP_LABEL};
    use stoker_core::verdict::{Judged, Reason, Verdict};

    use super::super::{HELD, SCALE_DOWN_DISABLED, VERDICT};
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
                { "type": told::CONDITION, "status": "False", "reason": "GpuBusy", "message": "GPU pods are bound to it",
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
        assert_eq!(row.borne, Borne::of(Some(&busy), since + SignedDuration::from_secs(1)));
        let kept = serde_json::to_value(&row.meta).unwrap();
        assert_eq!(kept, json!({ "name": "n1", "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn a_bare_node_is_read_too() {
        let row = node(json!({ "metadata": { "name": "n", "labels": null, "creationTimestamp": null } }));
        assert_eq!((row.created_at, row.ready_since, row.hold), (None, None, Hold::None));
        assert_eq!((row.provider_id, row.borne), (None, None));
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
        let mut waiting = gpu_pod();
        waiting["spec"]["nodeName"] = json!(null);
        assert_eq!(pod(waiting).claim, None);
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
            (
                "/spec/containers",
                json!([{ "name": "main", "resources": { "requests": { "cpu": "1", "nvidia.com/gpu": "0" } } }]),
            ),
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
}
