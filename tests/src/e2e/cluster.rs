//! What a test does to the cluster, and what it looks at, as its administrator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use stoker_core::catalogue::template::{CLUSTER_LABEL, POOL_LABEL};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::supplier::CARRIER_LABEL;
use tokio::time::{Instant, sleep};

/// The node without GPUs that is not ours.
pub const CPU_NODE: &str = "plain";
/// The probes' namespace, and what their account and pods are called.
const PROBES: &str = "stoker-probe";
/// How often a test looks.
const EVERY: Duration = Duration::from_millis(100);

/// Pods in the default namespace, and nodes.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

/// A pod to be made.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The pool it names.
    pub pool: &'a str,
    /// GPUs.
    pub gpus: u32,
    /// The zone it is bound to.
    pub zone: Option<&'a str>,
}

impl Cluster {
    /// The cluster of that kubeconfig.
    ///
    /// # Errors
    /// When it cannot be used.
    pub async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self { client: stoker_service::kube::client::connect(Some(kubeconfig)).await? })
    }

    /// The API server as its administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Makes a pod that asks for GPUs.
    pub async fn gpu_pod(&self, name: &str, ask: Ask<'_>) -> anyhow::Result<()> {
        let mut selector = json!({ POOL_LABEL: ask.pool });
        if let Some(zone) = ask.zone {
            selector["topology.kubernetes.io/zone"] = zone.into();
        }
        let tolerations = json!([{ "key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule" }]);
        self.pod(name, &json!({ "cpu": "1", "memory": "1Gi", GPU_RESOURCE: ask.gpus.to_string() }), &selector, &tolerations)
            .await
    }

    /// Makes a pod with one GPU for nodes of a `NodePool` of Karpenter's.
    pub async fn foreign_pod(&self, name: &str, node_pool: &str) -> anyhow::Result<()> {
        self.choosing_pod(name, &[("karpenter.sh/nodepool", node_pool)]).await
    }

    /// Makes a pod with one GPU that chooses its node by those labels alone.
    pub async fn choosing_pod(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<()> {
        let tolerations = json!([{ "key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule" }]);
        let amounts = json!({ "cpu": "1", "memory": "1Gi", GPU_RESOURCE: "1" });
        let selector: BTreeMap<_, _> = labels.iter().copied().collect();
        self.pod(name, &amounts, &json!(selector), &tolerations).await
    }

    /// Makes a pod that asks for so many of a resource of shared GPUs.
    pub async fn slice_pod(&self, name: &str, pool: &str, resource: &str, number: u32) -> anyhow::Result<()> {
        let tolerations = json!([{ "key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule" }]);
        let amounts = json!({ "cpu": "1", "memory": "1Gi", resource: number.to_string() });
        self.pod(name, &amounts, &json!({ POOL_LABEL: pool }), &tolerations).await
    }

    /// Makes a pod with one GPU that looks as if a controller would make it again.
    pub async fn job_pod(&self, name: &str, ask: Ask<'_>) -> anyhow::Result<()> {
        self.gpu_pod(name, ask).await?;
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "e2e", "controller": true });
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        self.pods().patch(name, &PatchParams::default(), &patch).await.with_context(|| format!("pod {name}"))?;
        Ok(())
    }

    /// Makes a pod without GPUs that asks for that much CPU.
    pub async fn cpu_pod(&self, name: &str, cpu: &str) -> anyhow::Result<()> {
        self.pod(name, &json!({ "cpu": cpu, "memory": "1Gi" }), &json!({}), &json!([])).await
    }

    async fn pod(&self, name: &str, amounts: &Value, selector: &Value, tolerations: &Value) -> anyhow::Result<()> {
        let pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeSelector": selector,
                "tolerations": tolerations,
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "work", "image": "none", "resources": { "requests": amounts, "limits": amounts } }],
            },
        }))?;
        self.pods().create(&PostParams::default(), &pod).await.with_context(|| format!("pod {name}"))?;
        Ok(())
    }

    /// Makes a pod with one GPU that is bound already, past the scheduler.
    pub async fn bound_pod(&self, name: &str, node: &str) -> anyhow::Result<()> {
        let amounts = json!({ "cpu": "1", "memory": "1Gi", GPU_RESOURCE: "1" });
        let pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": "work" } },
            "spec": { "nodeName": node, "containers": [{ "name": "work", "image": "none", "resources": { "limits": amounts } }] },
        }))?;
        self.pods().create(&PostParams::default(), &pod).await.with_context(|| format!("pod {name}"))?;
        Ok(())
    }

    /// The node that a pod is bound to.
    pub async fn node_of(&self, pod: &str) -> anyhow::Result<Option<String>> {
        let pod = self.pods().get_opt(pod).await?;
        Ok(pod.and_then(|pod| pod.spec?.node_name).filter(|node| !node.is_empty()))
    }

    /// The values of a taint that a pod tolerates by name.
    pub async fn tolerated(&self, pod: &str, taint: &str) -> anyhow::Result<Vec<String>> {
        let tolerations = self.pods().get(pod).await?.spec.and_then(|spec| spec.tolerations).unwrap_or_default();
        Ok(tolerations.into_iter().filter(|t| t.key.as_deref() == Some(taint)).filter_map(|t| t.value).collect())
    }

    /// Labels the pods' namespace, with the value `enabled`.
    pub async fn opt_in(&self, label: &str) -> anyhow::Result<()> {
        let labelled = Patch::Merge(json!({ "metadata": { "labels": { label: "enabled" } } }));
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.patch("default", &PatchParams::default(), &labelled).await.context("labelling the namespace")?;
        Ok(())
    }

    /// What Events say of a pod.
    pub async fn told(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let events = Api::<Event>::namespaced(self.client.clone(), "default").list(&ListParams::default()).await?;
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(pod));
        Ok(events.items.into_iter().filter(about).filter_map(|event| event.note).collect())
    }

    /// Reason and note of the Events about an object of any namespace.
    pub async fn events_of(&self, kind: &str, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await?;
        let is = |said: Option<&str>, wanted: &str| said == Some(wanted);
        let about = |event: &Event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|about| is(about.kind.as_deref(), kind) && is(about.name.as_deref(), name))
        };
        let told = |event: Event| Some((event.reason?, event.note?));
        Ok(events.items.into_iter().filter(about).filter_map(told).collect())
    }

    /// How many `CapacityBuffer` objects there are.
    pub async fn buffers(&self) -> anyhow::Result<usize> {
        let kind = GroupVersionKind::gvk("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer");
        let buffers = ApiResource::from_gvk_with_plural(&kind, "capacitybuffers");
        let buffers = Api::<DynamicObject>::all_with(self.client.clone(), &buffers);
        Ok(buffers.list(&ListParams::default()).await.context("listing CapacityBuffers")?.items.len())
    }

    /// Whether there is such a pod.
    pub async fn has_pod(&self, pod: &str) -> anyhow::Result<bool> {
        Ok(self.pods().get_opt(pod).await?.is_some())
    }

    /// Waits until every one of these pods is bound; their nodes, in the same order.
    pub async fn bound(&self, pods: &[&str], within: Duration) -> anyhow::Result<Vec<String>> {
        eventually(&format!("{} bound", pods.join(", ")), within, async || {
            let mut nodes = Vec::new();
            for pod in pods {
                match self.node_of(pod).await? {
                    Some(node) => nodes.push(node),
                    None => return Ok(Err(format!("{pod} waits"))),
                }
            }
            Ok(Ok(nodes))
        })
        .await
    }

    /// Has a pod end by itself, as a job does.
    pub async fn finish(&self, pod: &str) -> anyhow::Result<()> {
        let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
        self.pods().patch_status(pod, &PatchParams::default(), &done).await.with_context(|| format!("ending {pod}"))?;
        Ok(())
    }

    /// Deletes a pod.
    pub async fn remove(&self, pod: &str) -> anyhow::Result<()> {
        gone(self.pods().delete(pod, &DeleteParams::default().grace_period(0)).await)
    }

    /// Makes the probe's pod on a node, as its `DaemonSet` does.
    pub async fn probe_pod(&self, node: &str) -> anyhow::Result<Pod> {
        for namespace in [PROBES, "default"] {
            let account = serde_json::from_value(json!({ "metadata": { "name": PROBES } }))?;
            let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
            match accounts.create(&PostParams::default(), &account).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(error).context("the probe's account"),
            }
        }
        self.remove_probe_pod().await?;
        let pod = serde_json::from_value(json!({
            "metadata": { "name": PROBES },
            "spec": { "nodeName": node, "serviceAccountName": PROBES, "containers": [{ "name": "probe", "image": "none" }] },
        }))?;
        self.probe_pods().create(&PostParams::default(), &pod).await.context("the probe's pod")
    }

    /// Deletes the probe's pod.
    pub async fn remove_probe_pod(&self) -> anyhow::Result<()> {
        gone(self.probe_pods().delete(PROBES, &DeleteParams::default().grace_period(0)).await)
    }

    fn probe_pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), PROBES)
    }

    /// A token of the account `stoker-probe` of a namespace, bound to a pod as the kubelet asks for it, or to nothing.
    pub async fn token(&self, namespace: &str, audience: &str, pod: Option<&Pod>) -> anyhow::Result<String> {
        let bound_object_ref = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        });
        let audiences = Some(vec![audience.to_owned()]);
        let spec =
            TokenRequestSpec { audiences, bound_object_ref, expiration_seconds: Some(600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), namespace);
        let made = accounts.create_token_request(PROBES, &PostParams::default(), &request).await.context("a token")?;
        made.status.and_then(|status| status.token).context("a token request without an answer")
    }

    /// A node.
    pub async fn node(&self, name: &str) -> anyhow::Result<Option<Node>> {
        Ok(self.nodes().get_opt(name).await?)
    }

    /// The nodes that Stoker made.
    pub async fn ours(&self) -> anyhow::Result<Vec<Node>> {
        Ok(self.nodes().list(&ListParams::default().labels(CLUSTER_LABEL)).await?.items)
    }

    /// How many nodes of Stoker's are Ready.
    pub async fn ours_ready(&self) -> anyhow::Result<usize> {
        Ok(self.ours().await?.iter().filter(|node| is_ready(node)).count())
    }

    /// Waits until so many nodes of Stoker's are there.
    pub async fn count(&self, count: usize, within: Duration) -> anyhow::Result<Vec<Node>> {
        eventually(&format!("{count} nodes"), within, async || {
            let nodes = self.ours().await?;
            let seen = format!("{} nodes", nodes.len());
            Ok(if nodes.len() == count { Ok(nodes) } else { Err(seen) })
        })
        .await
    }

    /// The nodes of Stoker's that are closed to new pods.
    pub async fn ours_cordoned(&self) -> anyhow::Result<BTreeSet<String>> {
        let is_closed = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        Ok(self.ours().await?.iter().filter(|node| is_closed(node)).map(kube::ResourceExt::name_any).collect())
    }

    /// What the nodes of Stoker's call their machines.
    pub async fn ours_by_machine(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.ours().await?.into_iter().filter_map(|node| node.spec?.provider_id).collect())
    }

    /// The pods of the default namespace, by name.
    pub async fn pod_names(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.pods().list_metadata(&ListParams::default()).await?.items.iter().map(kube::ResourceExt::name_any).collect())
    }

    /// Sets an annotation on a node.
    pub async fn annotate(&self, node: &str, key: &str, value: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Takes an annotation off a node.
    pub async fn unannotate(&self, node: &str, key: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: null } } }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// As every scenario finds the cluster: one node without GPUs, and nothing else.
    pub async fn reset(&self) -> anyhow::Result<()> {
        self.pods().delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        let unfinished = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let claims = super::karpenter::claims(&self.client);
        // Without a Karpenter nobody ends what one had begun.
        for claim in claims.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            gone(claims.patch(&claim.name_any(), &PatchParams::default(), &unfinished).await)?;
            gone(claims.delete(&claim.name_any(), &DeleteParams::default()).await)?;
        }
        let not_ours = ListParams::default().labels(&format!("!{CARRIER_LABEL}"));
        for objects in [super::karpenter::node_pools(&self.client), super::karpenter::node_overlays(&self.client)] {
            objects.delete_collection(&DeleteParams::default(), &not_ours).await?;
        }
        for node in self.nodes().list(&ListParams::default()).await?.items {
            gone(self.nodes().patch(&node.name_any(), &PatchParams::default(), &unfinished).await)?;
            gone(self.nodes().delete(&node.name_any(), &DeleteParams::default()).await)?;
        }
        let node = serde_json::from_value(json!({
            "metadata": { "name": CPU_NODE, "labels": { "kubernetes.io/os": "linux", "kubernetes.io/hostname": CPU_NODE } },
            "spec": { "providerID": "elsewhere://plain" },
        }))?;
        self.nodes().create(&PostParams::default(), &node).await?;
        let amounts = json!({ "cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110" });
        self.nodes().patch_status(CPU_NODE, &PatchParams::default(), &kubelet_says(&amounts)).await?;
        Ok(())
    }
}

/// Whether a Node is Ready.
pub(super) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What a kubelet says of its node's status: Ready since now, with those amounts and all of them left to pods.
pub(super) fn kubelet_says(amounts: &Value) -> Patch<Value> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": now, "lastHeartbeatTime": now }]);
    Patch::Merge(json!({ "status": { "capacity": amounts, "allocatable": amounts, "conditions": ready } }))
}

fn gone<T>(result: kube::Result<T>) -> anyhow::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Looks again and again until it finds what it looks for; says at last what it saw instead.
pub async fn eventually<T: Debug>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Result<T, String>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + within;
    loop {
        match look().await {
            Ok(Ok(found)) => return Ok(found),
            seen if Instant::now() > end => match seen? {
                Ok(found) => return Ok(found),
                Err(seen) => bail!("no {what} within {} s: {seen}", within.as_secs()),
            },
            _ => sleep(EVERY).await,
        }
    }
}

/// Looks again and again, and fails as soon as what should hold does not.
pub async fn holds(
    what: &str,
    during: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Result<(), String>>,
) -> anyhow::Result<()> {
    let end = Instant::now() + during;
    while Instant::now() < end {
        if let Err(seen) = look().await? {
            bail!("not {what}: {seen}");
        }
        sleep(EVERY).await;
    }
    Ok(())
}
