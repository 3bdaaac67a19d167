//! How far the token of Stoker's account reaches: what a feature writes is allowed, and what a
//! thief would write is refused, by the admission policy that is named or by RBAC.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::{Method, Request, header};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use stoker_core::base::ids::{ClusterName, LaunchKey, NodeName, ProviderId};
use stoker_core::catalogue::isolation::SHAPE_TAINT;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::plan::Evict;
use stoker_core::policy::rules::karpenter::STEERED_LABEL;
use stoker_core::state::node_status::{CONDITION, StatusUpdate};
use stoker_core::state::node_verdict::{Judged, Reason, Verdict};
use stoker_service::clock::Clock;
use stoker_service::controllers::tolerations::{OPENED, OPT_IN};
use stoker_service::kube::act::{About, KubeAct, Outcome, Severity};
use stoker_service::kube::tokens::BootTokens;
use stoker_service::kube::{SYSTEM_NAMESPACES, VERDICT};

use crate::e2e::bench::Bench;
use crate::e2e::cluster::{CPU_NODE, eventually};

/// Within what time the API server goes by another role, binding or label.
const TAKES_EFFECT: Duration = Duration::from_secs(20);
/// Nodes of Stoker's, by their label: of a real machine, and of a simulated one. The Stoker that
/// runs has another cluster name.
const REAL: &str = "rights-real";
const SIMULATED: &str = "rights-simulated";
/// A Node of Karpenter's.
const KARPENTERS: &str = "rights-karpenters";
/// The namespace in which isolation is set up step by step.
const ISOLATED: &str = "rights-isolated";
/// The policies.
const UPDATE: &str = "stoker-nodes-update";
const LIFECYCLE: &str = "stoker-nodes-lifecycle";
const REMOVAL: &str = "stoker-pods-removal";
const POD: &str = "stoker-pods-update";
const CLAIMS: &str = "stoker-nodeclaims";
const TOKENS: &str = "stoker-boot-tokens";
const NODE_POOLS: &str = "stoker-nodepools-update";
const OVERLAYS: &str = "stoker-nodeoverlays";

/// Marks in the API server's audit log what this scenario asks, and Stoker does not.
const NOT_STOKER: &str = "rights-scenario";

/// One account's way to the API server, request by request.
struct Account(Client);

impl Account {
    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
        let request = request.header(header::USER_AGENT, NOT_STOKER);
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        self.0.request(request).await
    }

    async fn merge(&self, path: &str, change: &Value) -> kube::Result<Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", change).await
    }

    async fn strategic(&self, path: &str, change: &Value) -> kube::Result<Value> {
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", change).await
    }

    async fn post(&self, path: &str, body: &Value) -> kube::Result<Value> {
        self.send(Method::POST, path, "application/json", body).await
    }

    async fn delete(&self, path: &str) -> kube::Result<Value> {
        self.send(Method::DELETE, path, "application/json", &json!({ "gracePeriodSeconds": 0 })).await
    }
}

/// That a write is refused with these words.
fn refused(what: &str, by: &str, answer: kube::Result<Value>) -> anyhow::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_forbidden() && status.message.contains(by) => Ok(()),
        Err(error) => bail!("{what} was refused otherwise than by {by}: {error}"),
        Ok(_) => bail!("{what} was allowed, and {by} should refuse it"),
    }
}

fn refused_by(policy: &str, what: &str, answer: kube::Result<Value>) -> anyhow::Result<()> {
    refused(what, &format!("ValidatingAdmissionPolicy '{policy}'"), answer)
}

/// Makes an object, and leaves one that is there.
async fn made(admin: &Account, path: &str, object: &Value) -> anyhow::Result<()> {
    match admin.post(path, object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn status(name: &str) -> String {
    format!("/api/v1/nodes/{name}/status")
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// A pod as the strictest profile admits it.
fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "nodeSelector": { "rights": "nowhere" },
            "terminationGracePeriodSeconds": 0,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "work",
                "image": "good",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

fn registered(name: &str, labels: &Value, provider: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels, "annotations": { "team": "x" } },
        "spec": { "providerID": provider, "taints": [{ "key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule" }] },
    })
}

/// Each write of each feature, and each that its right would allow but for a policy.
pub(super) async fn rights(bench: &mut Bench) -> anyhow::Result<()> {
    let (admin, stoker) = (Account(bench.cluster.client()), Account(bench.stoker_client().await?));
    let ours = json!({ CLUSTER_LABEL: "rights" });
    made(&admin, "/api/v1/nodes", &registered(REAL, &ours, "aws:///zone/i-1")).await?;
    let told = json!({ "status": {
        "capacity": { "cpu": "4" },
        "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
        "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }],
    }});
    admin.strategic(&status(REAL), &told).await?;
    nodes(&admin, &stoker).await?;
    removals(&admin, &stoker).await?;
    simulated(&stoker, &ours).await?;
    isolation(&admin, &stoker).await?;
    nodeclaims(&admin, &stoker).await?;
    boot_tokens(bench, &admin, &stoker).await?;
    steering(&admin, &stoker).await?;
    for name in [REAL, SIMULATED] {
        admin.delete(&node(name)).await?;
    }
    Ok(())
}

/// Holds, cordons, verdicts.
async fn nodes(admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    let act = KubeAct::new(&stoker.0, "default");
    let (name, machine) = (NodeName::new(REAL)?, ProviderId::new("aws:///zone/i-1")?);
    let now = Timestamp::now();
    let judged = Judged { verdict: Verdict::Unknown, why: Reason::NoPods, since: now };
    let tell = StatusUpdate { node: name.clone(), provider_id: Some(machine.clone()), verdict: Some(judged) };
    let back = StatusUpdate { verdict: None, ..tell.clone() };
    for (what, outcome) in [
        ("hold", act.hold(&name).await?),
        ("release", act.release(&name).await?),
        ("close", act.close(&name, &machine, Evict::All).await?),
        ("open", act.uncordon(&name, &machine).await?),
        ("tell", act.tell(&tell, now).await?),
        ("take back", act.tell(&back, now).await?),
    ] {
        ensure!(outcome == Outcome::Done, "{what}: {outcome:?}");
    }
    act.event(About::Node(&name), Severity::Normal, "Test", "note").await;
    ensure!(act.events_dropped() == 0, "an Event was refused");

    for (what, patch) in [
        ("a label", json!({ "metadata": { "labels": { "team": "y" } } })),
        ("giving Stoker's node up", json!({ "metadata": { "labels": { CLUSTER_LABEL: null } } })),
        ("an annotation of others", json!({ "metadata": { "annotations": { "team": "y" } } })),
        ("removing an annotation of others", json!({ "metadata": { "annotations": { "team": null } } })),
        ("a finalizer", json!({ "metadata": { "finalizers": ["example.com/keep"] } })),
        ("removing taints", json!({ "spec": { "taints": null } })),
        ("a taint", json!({ "spec": { "taints": [{ "key": "x", "effect": "NoExecute" }] } })),
        ("a range of pod addresses", json!({ "spec": { "podCIDR": "192.0.2.0/24", "podCIDRs": ["192.0.2.0/24"] } })),
    ] {
        refused_by(UPDATE, what, stoker.merge(&node(REAL), &patch).await)?;
    }
    for (what, patch) in [
        ("an address", json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.66" }] } })),
        ("capacity", json!({ "status": { "capacity": { "cpu": "64" } } })),
        ("a kubelet's port", json!({ "status": { "daemonEndpoints": { "kubeletEndpoint": { "Port": 66 } } } })),
        ("a real node's readiness", json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } })),
        ("a new condition", json!({ "status": { "conditions": [{ "type": "Other", "status": "True" }] } })),
        ("removing a condition", json!({ "status": { "conditions": [{ "type": "DiskPressure", "$patch": "delete" }] } })),
        ("a label by the status", json!({ "metadata": { "labels": { "team": "y" } } })),
        ("an annotation by the status", json!({ "metadata": { "annotations": { "team": "y" } } })),
    ] {
        refused_by(UPDATE, what, stoker.strategic(&status(REAL), &patch).await)?;
    }
    // What Stoker may do to its own nodes it may not do to others.
    for (what, patch) in [
        ("a cordon of another's node", json!({ "spec": { "unschedulable": true } })),
        ("taking another's node over", json!({ "metadata": { "labels": { CLUSTER_LABEL: "rights" } } })),
        ("a verdict on another's node", json!({ "metadata": { "annotations": { VERDICT: "idle" } } })),
    ] {
        refused_by(UPDATE, what, stoker.merge(&node(CPU_NODE), &patch).await)?;
    }
    let verdict = json!({ "status": { "conditions": [{ "type": CONDITION, "status": "True" }] } });
    let answer = stoker.strategic(&status(CPU_NODE), &verdict).await;
    refused_by(UPDATE, "a condition of another's node", answer)?;
    refused_by(LIFECYCLE, "deleting another's node", stoker.delete(&node(CPU_NODE)).await)?;
    // A whole object in place of a patch needs a verb that nobody gave.
    let whole = admin.send(Method::GET, &node(REAL), "application/json", &Value::Null).await?;
    let put = stoker.send(Method::PUT, &node(REAL), "application/json", &whole).await;
    refused("replacing a node", "cannot update resource \"nodes\"", put)
}

/// Pods are told to go, but for those of system namespaces.
async fn removals(admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    let act = KubeAct::new(&stoker.0, "default");
    let (name, machine) = (NodeName::new(REAL)?, ProviderId::new("aws:///zone/i-1")?);
    for pod_name in ["rights-evicted", "rights-deleted"] {
        made(admin, &pods("default"), &pod(pod_name, Some(REAL))).await?;
    }
    stoker.delete(&format!("{}/rights-deleted", pods("default"))).await?;
    for namespace in SYSTEM_NAMESPACES {
        let path = format!("{}/rights", pods(namespace));
        made(admin, &pods(namespace), &pod("rights", Some(REAL))).await?;
        refused_by(REMOVAL, &format!("deleting a pod of {namespace}"), stoker.delete(&path).await)?;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "rights", "namespace": namespace },
        });
        let answer = stoker.post(&format!("{path}/eviction"), &eviction).await;
        refused_by(REMOVAL, &format!("evicting a pod of {namespace}"), answer)?;
    }
    // The service does not even try.
    let emptied = act.evict_pods(&name, Evict::All, None).await?;
    ensure!(emptied.evicted == 1 && emptied.stuck.is_none(), "{emptied:?}");
    for namespace in SYSTEM_NAMESPACES {
        admin.delete(&format!("{}/rights", pods(namespace))).await?;
    }
    ensure!(act.delete_node(&name, &machine).await? == Outcome::Done, "deleting the Node of a machine that is gone");
    made(admin, "/api/v1/nodes", &registered(REAL, &json!({ CLUSTER_LABEL: "rights" }), "aws:///zone/i-1")).await
}

/// A rehearsal's nodes come and say that they are Ready.
async fn simulated(stoker: &Account, ours: &Value) -> anyhow::Result<()> {
    let nodes = "/api/v1/nodes";
    let mut addressed = registered(SIMULATED, ours, "sim:///zone/i-1");
    addressed["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "192.0.2.66" }]);
    for (what, object) in [
        ("a node without Stoker's label", registered(SIMULATED, &json!({}), "sim:///zone/i-1")),
        ("a node of a real machine", registered(SIMULATED, ours, "aws:///zone/i-2")),
        ("a node with an address", addressed),
    ] {
        refused_by(LIFECYCLE, what, stoker.post(nodes, &object).await)?;
    }
    stoker.post(nodes, &registered(SIMULATED, ours, "sim:///zone/i-1")).await?;
    for ready in ["False", "True"] {
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        stoker.strategic(&status(SIMULATED), &patch).await?;
    }
    let address = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.66" }] } });
    refused_by(UPDATE, "a simulated node's address", stoker.strategic(&status(SIMULATED), &address).await)
}

/// Tolerations, in a namespace that has the role and the label, and in no other.
async fn isolation(admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    let namespace = format!("/api/v1/namespaces/{ISOLATED}");
    let rbac = |namespace: &str, kind: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kind}");
    let name = "stoker-isolation";
    made(admin, "/api/v1/namespaces", &json!({ "metadata": { "name": ISOLATED } })).await?;
    made(admin, &pods(ISOLATED), &pod("work", None)).await?;
    let work = format!("{}/work", pods(ISOLATED));
    let shape = json!({ "key": SHAPE_TAINT, "operator": "Equal", "value": "g6.xlarge", "effect": "NoSchedule" });
    let found = admin.send(Method::GET, &work, "application/json", &Value::Null).await?;
    let had = found["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let with = |more: &[&Value]| had.iter().chain(more.iter().copied()).cloned().collect::<Vec<_>>();
    let all = json!({ "operator": "Exists" });
    let admitted = json!({
        "metadata": { "annotations": { OPENED: "g6.xlarge" } },
        "spec": { "tolerations": with(&[&shape]) },
    });
    let by_rbac = "cannot patch resource \"pods\"";
    refused("a toleration without the role", by_rbac, stoker.merge(&work, &admitted).await)?;

    // The role as it is shipped, which the namespace `default` has.
    for kind in ["roles", "rolebindings"] {
        let shipped = format!("{}/{name}", rbac("default", kind));
        let mut object = admin.send(Method::GET, &shipped, "application/json", &Value::Null).await?;
        object["metadata"] = json!({ "name": name });
        made(admin, &rbac(ISOLATED, kind), &object).await?;
    }
    eventually("refusal by the policy", TAKES_EFFECT, async || {
        let answer = stoker.merge(&work, &admitted).await;
        Ok(refused_by(POD, "a toleration without the label", answer).map_err(|error| error.to_string()))
    })
    .await?;
    admin.merge(&namespace, &json!({ "metadata": { "labels": { OPT_IN: "enabled" } } })).await?;
    eventually("toleration", TAKES_EFFECT, async || {
        Ok(stoker.merge(&work, &admitted).await.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    for (what, patch) in [
        ("an image", json!({ "spec": { "containers": [{ "name": "work", "image": "evil" }] } })),
        ("a deadline", json!({ "spec": { "activeDeadlineSeconds": 1 } })),
        ("a pod's label", json!({ "metadata": { "labels": { "app": "other" } } })),
        ("a pod's finalizer", json!({ "metadata": { "finalizers": ["example.com/keep"] } })),
        (
            "a pod's owner",
            json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": REAL, "uid": "x" },
        ] } }),
        ),
        ("an annotation of others", json!({ "metadata": { "annotations": { "team": "y" } } })),
        ("a toleration of everything", json!({ "spec": { "tolerations": with(&[&shape, &all]) } })),
    ] {
        let answer = stoker.strategic(&work, &patch).await;
        refused_by(POD, what, answer)?;
    }
    // As it was, for the next one.
    admin.merge(&namespace, &json!({ "metadata": { "labels": { OPT_IN: null } } })).await?;
    admin.delete(&format!("{}/{name}", rbac(ISOLATED, "rolebindings"))).await?;
    admin.delete(&work).await?;
    eventually("refusal by RBAC", TAKES_EFFECT, async || {
        let answer = stoker.merge(&work, &admitted).await;
        Ok(refused("a toleration without the role", by_rbac, answer).map_err(|error| error.to_string()))
    })
    .await
}

/// What makes another object of one.
type Change<'a> = &'a dyn Fn(&mut Value);

/// Machines through Karpenter: Stoker's own claims, each of one kind.
async fn nodeclaims(admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    const PATH: &str = "/apis/karpenter.sh/v1/nodeclaims";
    let claim = |name: &str, change: Change<'_>| {
        let pinned = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        let mut claim = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": { "name": name, "labels": { CLUSTER_LABEL: "rights", "karpenter.sh/nodepool": "stoker-gpu" } },
            "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gpu" },
                "requirements": [
                    pinned("node.kubernetes.io/instance-type", "g6.xlarge"),
                    pinned("topology.kubernetes.io/zone", "use1-az1"),
                    pinned("karpenter.sh/capacity-type", "spot"),
                ],
            },
        });
        change(&mut claim);
        claim
    };
    stoker.post(PATH, &claim("rights-own", &|_| {})).await?;
    let changes: [(&str, Change<'_>); 4] = [
        ("a claim without the cluster's label", &|claim| claim["metadata"]["labels"] = json!({})),
        ("a claim that another object owns", &|claim| {
            let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": REAL, "uid": "0" });
            claim["metadata"]["ownerReferences"] = json!([owner]);
        }),
        ("a claim of any type", &|claim| {
            claim["spec"]["requirements"].as_array_mut().into_iter().for_each(|list| drop(list.remove(0)));
        }),
        ("a claim of two zones", &|claim| claim["spec"]["requirements"][1]["values"] = json!(["use1-az1", "use1-az2"])),
    ];
    for (what, change) in changes {
        refused_by(CLAIMS, what, stoker.post(PATH, &claim("rights-other", change)).await)?;
    }
    admin.post(PATH, &claim("rights-foreign", &|claim| claim["metadata"]["labels"] = json!({}))).await?;
    refused_by(CLAIMS, "the end of somebody's claim", stoker.delete(&format!("{PATH}/rights-foreign")).await)?;
    refused("a change of a claim", "cannot patch", stoker.merge(&format!("{PATH}/rights-own"), &json!({})).await)?;
    stoker.delete(&format!("{PATH}/rights-own")).await?;
    admin.delete(&format!("{PATH}/rights-foreign")).await?;
    Ok(())
}

/// What is steered of Karpenter: limits of opened `NodePools`, prices by overlays of Stoker's own, and the protection of Nodes.
async fn steering(admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
    const PRICES: &str = "/apis/karpenter.sh/v1alpha1/nodeoverlays";
    let pool = |name: &str, labels: Value| {
        json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": name, "labels": labels },
            "spec": {
                "limits": { "cpu": "8", "memory": "1Ti" },
                "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "rights" },
                    "requirements": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }],
                } },
            },
        })
    };
    made(admin, POOLS, &pool("rights-opened", json!({ STEERED_LABEL: "true" }))).await?;
    made(admin, POOLS, &pool("rights-closed", json!({}))).await?;
    let opened = format!("{POOLS}/rights-opened");
    let marked = json!({ "metadata": { "annotations": { "stoker.dev/limits": "{}" } }, "spec": { "limits": { "cpu": "4" }, "disruption": { "consolidateAfter": "600s" } } });
    stoker.merge(&opened, &marked).await?;
    let budget = json!({ "nodes": "20%", "reasons": ["Empty", "Underutilized"] });
    let marks = json!({ "stoker.dev/weight": "{}", "stoker.dev/disruption-budgets": "{}" });
    let more =
        json!({ "metadata": { "annotations": marks }, "spec": { "weight": 100, "disruption": { "budgets": [budget] } } });
    stoker.merge(&opened, &more).await?;
    for (what, patch) in [
        ("a limit of memory", json!({ "spec": { "limits": { "memory": "2Ti" } } })),
        ("taking a limit of memory away", json!({ "spec": { "limits": null } })),
        ("a consolidation policy", json!({ "spec": { "disruption": { "consolidationPolicy": "WhenEmpty" } } })),
        ("another node class", json!({ "spec": { "template": { "spec": { "nodeClassRef": { "name": "x" } } } } })),
        ("another's annotation", json!({ "metadata": { "annotations": { "team": "y" } } })),
        ("a label", json!({ "metadata": { "labels": { "team": "y" } } })),
    ] {
        refused_by(NODE_POOLS, what, stoker.merge(&opened, &patch).await)?;
    }
    refused_by(NODE_POOLS, "limits of a closed one", stoker.merge(&format!("{POOLS}/rights-closed"), &marked).await)?;

    let overlay = |name: &str, change: Change<'_>| {
        let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
        let mut overlay = json!({
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": { "name": name, "labels": { "stoker.dev/owner": "stoker-karpenter" } },
            "spec": {
                "weight": 4000,
                "price": "0.000001",
                "requirements": [
                    one("karpenter.sh/nodepool", "rights-opened"),
                    one("node.kubernetes.io/instance-type", "none"),
                    one("karpenter.sh/capacity-type", "on-demand"),
                ],
            },
        });
        change(&mut overlay);
        overlay
    };
    stoker.post(PRICES, &overlay("rights-own", &|_| {})).await?;
    stoker.merge(&format!("{PRICES}/rights-own"), &json!({ "spec": { "price": "0.500000" } })).await?;
    let changes: [(&str, Change<'_>); 3] = [
        ("a price without the owner's label", &|overlay| overlay["metadata"]["labels"] = json!({})),
        ("a capacity", &|overlay| overlay["spec"]["capacity"] = json!({ "example.com/x": "1" })),
        ("a price of every capacity type", &|overlay| {
            overlay["spec"]["requirements"].as_array_mut().into_iter().for_each(|list| drop(list.pop()));
        }),
    ];
    for (what, change) in changes {
        refused_by(OVERLAYS, what, stoker.post(PRICES, &overlay("rights-other", change)).await)?;
    }
    admin.post(PRICES, &overlay("rights-foreign", &|overlay| overlay["metadata"]["labels"] = json!({}))).await?;
    refused_by(OVERLAYS, "the end of somebody's price", stoker.delete(&format!("{PRICES}/rights-foreign")).await)?;
    let taken = json!({ "metadata": { "labels": { "stoker.dev/owner": "stoker-karpenter" } } });
    refused_by(OVERLAYS, "taking a price over", stoker.merge(&format!("{PRICES}/rights-foreign"), &taken).await)?;

    made(admin, "/api/v1/nodes", &registered(KARPENTERS, &json!({ "karpenter.sh/nodepool": "x" }), "kwok://x")).await?;
    let guard =
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true", "stoker.dev/protected": "in-use" } } });
    stoker.merge(&node(KARPENTERS), &guard).await?;
    for (what, patch) in [
        ("a cordon of Karpenter's node", json!({ "spec": { "unschedulable": true } })),
        ("a verdict on Karpenter's node", json!({ "metadata": { "annotations": { VERDICT: "idle" } } })),
        ("a label of Karpenter's node", json!({ "metadata": { "labels": { "team": "y" } } })),
    ] {
        refused_by(UPDATE, what, stoker.merge(&node(KARPENTERS), &patch).await)?;
    }
    let verdict = json!({ "status": { "conditions": [{ "type": CONDITION, "status": "True" }] } });
    let unfit = |status: &str, reason: &str| json!({ "status": { "conditions": [{ "type": "AcceleratedHardwareReady", "status": status, "reason": reason }] } });
    stoker.strategic(&status(KARPENTERS), &unfit("False", "StokerGpuUnhealthy")).await?;
    let sound = stoker.strategic(&status(KARPENTERS), &unfit("True", "StokerGpuUnhealthy")).await;
    refused_by(UPDATE, "a node called sound", sound)?;
    admin.strategic(&status(KARPENTERS), &unfit("True", "NodeMonitoringAgent")).await?;
    let over = stoker.strategic(&status(KARPENTERS), &unfit("False", "StokerGpuUnhealthy")).await;
    refused_by(UPDATE, "a condition of an agent's", over)?;
    refused_by(UPDATE, "a condition of Karpenter's node", stoker.strategic(&status(KARPENTERS), &verdict).await)?;
    refused_by(LIFECYCLE, "deleting Karpenter's node", stoker.delete(&node(KARPENTERS)).await)?;

    stoker.delete(&format!("{PRICES}/rights-own")).await?;
    admin.delete(&format!("{PRICES}/rights-foreign")).await?;
    admin.delete(&node(KARPENTERS)).await?;
    for name in ["rights-opened", "rights-closed"] {
        admin.delete(&format!("{POOLS}/{name}")).await?;
    }
    Ok(())
}

/// Bootstrap tokens: made and deleted, never read, and good for joining alone.
async fn boot_tokens(bench: &Bench, admin: &Account, stoker: &Account) -> anyhow::Result<()> {
    const PATH: &str = "/api/v1/namespaces/kube-system/secrets";
    let key = LaunchKey::new("rights/g/0c4de2a1/1/1")?;
    let tokens = BootTokens::open(&stoker.0, ClusterName::new("rights")?, bench.dir(), Clock::system())?;
    let token = tokens.mint(&key).await?;
    ensure!(tokens.mint(&key).await? == token, "asked again, it is another token");
    let (id, _) = token.split_once('.').context("a token of two halves")?;
    let path = format!("{PATH}/bootstrap-token-{id}");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let who = Account(bench.client_of(&token).await?);
    eventually("a kubelet that is let in by its token", TAKES_EFFECT, async || {
        let answer = who.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
        let name = answer.map(|answer| answer["status"]["userInfo"]["username"].clone());
        Ok(match name {
            Ok(name) if name == format!("system:bootstrap:{id}") => Ok(()),
            other => Err(format!("{other:?}")),
        })
    })
    .await?;

    refused("reading a token", "cannot get", stoker.send(Method::GET, &path, "application/json", &Value::Null).await)?;
    let made = admin.send(Method::GET, &path, "application/json", &Value::Null).await?;
    let another = |change: Change<'_>| {
        let mut secret = json!({
            "metadata": { "name": "bootstrap-token-rights", "labels": { CLUSTER_LABEL: "rights" } },
            "type": "bootstrap.kubernetes.io/token", "data": made["data"],
        });
        secret["data"]["token-id"] = json!("cmlnaHRz");
        change(&mut secret);
        secret
    };
    let changes: [(&str, Change<'_>); 3] = [
        ("a Secret of another type", &|secret| secret["type"] = json!("Opaque")),
        ("a token without the cluster's label", &|secret| secret["metadata"]["labels"] = json!({})),
        // system:bootstrappers:admins
        ("a token of another group", &|secret| {
            secret["data"]["auth-extra-groups"] = json!("c3lzdGVtOmJvb3RzdHJhcHBlcnM6YWRtaW5z");
        }),
    ];
    for (what, change) in changes {
        refused_by(TOKENS, what, stoker.post(PATH, &another(change)).await)?;
    }
    admin.post(PATH, &json!({ "metadata": { "name": "rights-foreign" } })).await?;
    refused_by(TOKENS, "the end of somebody's Secret", stoker.delete(&format!("{PATH}/rights-foreign")).await)?;
    stoker.delete(&path).await?;
    admin.delete(&format!("{PATH}/rights-foreign")).await?;
    Ok(())
}
