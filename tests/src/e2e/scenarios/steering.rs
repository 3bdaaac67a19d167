//! A Karpenter next to Stoker that makes nodes of its own: its limits, its prices and its nodes in use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::karpenter::{RULES_LABEL, STEERED_LABEL};
use tokio::time::sleep;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};
use crate::e2e::files::{CALM, Files, NodesFrom};
use crate::e2e::karpenter::{claims, node_overlays, node_pools};

/// What keeps Karpenter from emptying a Node.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// A quota of ten g6.xlarge, of which Karpenter's pool and Stoker share what there is.
pub(super) const LIMITED: Files = Files {
    nodes: NodesFrom::Karpenter,
    small: "  stabilization: { scaleDown: 1s, minimumLife: 0s, maxRemovalsPerWindow: 50% }\n",
    more: "quotas: [{ name: L-DB2E81BA, cloud: aws, region: us-east-1, limit: 40 }]\nkarpenter: { steer: [limits, protect, windows] }\n",
    ..CALM
};

/// Pods that wait at each of both doors, for ten nodes.
const PODS_A_SIDE: usize = 500;

/// How long a limit may take: they are written every half minute.
const STEERED_WITHIN: Duration = Duration::from_secs(45);

/// A `NodePool` of somebody else's is held to the quota together with Stoker's own nodes, its node in use is protected, and all of it is
/// given back.
pub(super) async fn limited(bench: &mut Bench) -> anyhow::Result<()> {
    let client = bench.cluster.client();
    let (pools, nodes) = (node_pools(&client), Api::<Node>::all(client.clone()));
    let before = make_pool(&pools, "g6.xlarge").await?;
    let limit = async || {
        let pool = pools.get("theirs").await?;
        Ok::<_, anyhow::Error>(pool.data["spec"]["limits"]["cpu"].as_str().map(str::to_owned))
    };
    let is_limited = async |what: &str, right: &dyn Fn(u64) -> bool| {
        eventually(what, STEERED_WITHIN, async || {
            let now = limit().await?;
            let holds = now.as_deref().and_then(|now| now.parse().ok()).is_some_and(right);
            Ok(if holds { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .await
    };
    // Two nodes are promised, one of which Karpenter may have beyond its limit.
    is_limited("first limit", &|limit| limit == 8).await?;
    eventually("the window of the pool `small`", STEERED_WITHIN, async || {
        let disruption = pools.get("theirs").await?.data["spec"]["disruption"].clone();
        let budget = json!({ "nodes": "50%", "reasons": ["Empty", "Underutilized"] });
        let is_set = disruption["consolidateAfter"] == "1s" && disruption["budgets"] == json!([{ "nodes": "100%" }, budget]);
        Ok(if is_set { Ok(()) } else { Err(disruption.to_string()) })
    })
    .await?;
    for pod in ["a", "b"] {
        bench.cluster.foreign_pod(pod, "theirs").await?;
    }
    let held = bench.cluster.bound(&["a", "b"], SCALED).await?;
    ensure!(gpu_nodes(&nodes).await?.0 == 0, "the autoscaler bought a node for pods of Karpenter's");
    is_limited("limit for what runs and a promise", &|limit| limit == 16).await?;
    protected(&nodes, &held).await?;
    // Both doors at once ask for far more than there is.
    for pod in 0..PODS_A_SIDE {
        bench.cluster.foreign_pod(&format!("theirs-{pod}"), "theirs").await?;
        bench.cluster.gpu_pod(&format!("ours-{pod}"), ONE).await?;
    }
    eventually("all of the quota in use", SCALED * 3, async || {
        let (ours, theirs) = gpu_nodes(&nodes).await?;
        ensure!(ours + theirs <= 10, "{ours} nodes of Stoker's and {theirs} of Karpenter's under a quota of 10");
        Ok(if ours > 0 && theirs > 2 && ours + theirs >= 9 { Ok(()) } else { Err(format!("{ours} and {theirs}")) })
    })
    .await?;
    for _ in 0..100 {
        let (ours, theirs) = gpu_nodes(&nodes).await?;
        ensure!(ours + theirs <= 10, "{ours} nodes of Stoker's and {theirs} of Karpenter's under a quota of 10");
        sleep(Duration::from_millis(100)).await;
    }
    // Stoker goes, and what it wrote is given back.
    bench.kill_stoker().await?;
    bench.clean_karpenter().await?;
    let after = pools.get("theirs").await?;
    ensure!(after.data["spec"] == before.data["spec"], "spec is {} and was {}", after.data["spec"], before.data["spec"]);
    // Karpenter notes hashes of its own.
    let borne = |pool: &DynamicObject| {
        let others = pool.annotations().iter().filter(|(key, _)| !key.starts_with("karpenter.sh/"));
        (others.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>(), pool.labels().clone())
    };
    ensure!(borne(&after) == borne(&before), "{:?} were {:?}", borne(&after), borne(&before));
    for node in nodes.list(&ListParams::default()).await? {
        let left = node.annotations().keys().find(|key| *key == DO_NOT_DISRUPT || *key == "stoker.dev/protected");
        let ours = node.labels().contains_key(CLUSTER_LABEL);
        ensure!(ours || left.is_none(), "Node {} has {left:?} yet", node.name_any());
    }
    pools.delete("theirs", &DeleteParams::default()).await?;
    bench.start_stoker().await
}

/// Waits until all of these Nodes are protected.
async fn protected(nodes: &Api<Node>, names: &[String]) -> anyhow::Result<()> {
    eventually("protection of the nodes in use", SCALED, async || {
        let mut bare = Vec::new();
        for name in names {
            if nodes.get(name).await?.annotations().get(DO_NOT_DISRUPT).map(String::as_str) != Some("true") {
                bare.push(name.clone());
            }
        }
        Ok(if bare.is_empty() { Ok(()) } else { Err(format!("{bare:?} are not protected")) })
    })
    .await
}

/// How many nodes of Stoker's there are, and how many of the other pool.
async fn gpu_nodes(nodes: &Api<Node>) -> anyhow::Result<(usize, usize)> {
    let all = nodes.list(&ListParams::default()).await?.items;
    let ours = all.iter().filter(|node| node.labels().contains_key(CLUSTER_LABEL)).count();
    let theirs =
        all.iter().filter(|node| node.labels().get("karpenter.sh/nodepool").is_some_and(|pool| pool == "theirs")).count();
    Ok((ours, theirs))
}

/// A `NodePool` of one type that is opened to steering.
async fn make_pool(pools: &Api<DynamicObject>, instance_type: &str) -> anyhow::Result<DynamicObject> {
    let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "theirs", "labels": { STEERED_LABEL: "true", RULES_LABEL: "small", "stoker.dev/cloud": "aws" } },
        "spec": {
            "limits": { "cpu": "400", "memory": "4Ti" },
            "disruption": { "consolidateAfter": "5s", "budgets": [{ "nodes": "100%" }] },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gpu" },
                "taints": [{ "key": GPU_RESOURCE, "value": "true", "effect": "NoSchedule" }],
                "requirements": [
                    one("node.kubernetes.io/instance-type", instance_type),
                    one("karpenter.sh/capacity-type", "on-demand"),
                    one("topology.kubernetes.io/region", "us-east-1"),
                ],
            } },
        },
    });
    Ok(pools.create(&PostParams::default(), &serde_json::from_value(pool)?).await?)
}

pub(super) const PROTECTED: Files = Files { nodes: NodesFrom::Karpenter, more: "karpenter: { steer: [protect] }\n", ..CALM };

/// How long Karpenter may take to empty a node that nothing protects, and does not touch one that Stoker protects.
const CONSOLIDATED: Duration = Duration::from_secs(40);

/// Two nodes of Karpenter's are a quarter full: it would move the pod of one to the other. It does so once Stoker protects them no more.
pub(super) async fn busy(bench: &mut Bench) -> anyhow::Result<()> {
    let client = bench.cluster.client();
    let (pools, nodes) = (node_pools(&client), Api::<Node>::all(client.clone()));
    make_pool(&pools, "g6.12xlarge").await?;
    let pods: Vec<String> = (0..8).map(|pod| format!("pod-{pod}")).collect();
    for pod in &pods {
        bench.cluster.foreign_pod(pod, "theirs").await?;
    }
    let names: Vec<&str> = pods.iter().map(String::as_str).collect();
    let of_pods = bench.cluster.bound(&names, SCALED).await?;
    let held: Vec<String> = of_pods.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    ensure!(held.len() == 2, "8 pods of one GPU are on {held:?}, and not on two nodes of 4");
    protected(&nodes, &held).await?;
    let mut kept = BTreeSet::new();
    for (pod, node) in names.iter().zip(&of_pods) {
        if !kept.insert(node) {
            bench.cluster.remove(pod).await?;
        }
    }
    holds("both nodes in use", CONSOLIDATED, async || {
        let (_, theirs) = gpu_nodes(&nodes).await?;
        Ok(if theirs == 2 { Ok(()) } else { Err(format!("{theirs} nodes")) })
    })
    .await?;
    bench.change_policy(&Files { more: "", ..PROTECTED })?;
    eventually("consolidation of what nothing protects", CONSOLIDATED * 3, async || {
        let (_, theirs) = gpu_nodes(&nodes).await?;
        Ok(if theirs < 2 { Ok(()) } else { Err(format!("{theirs} nodes")) })
    })
    .await?;
    pools.delete("theirs", &DeleteParams::default()).await?;
    Ok(())
}

/// Five g6.xlarge are paid for, and Karpenter is told so as long as there is room for more.
pub(super) const PRICED: Files = Files {
    nodes: NodesFrom::Karpenter,
    more: "commitments:\n- { name: ri, kind: reserved-instance, cloud: aws, region: us-east-1, instanceType: g6.xlarge, nodes: 5, usdPerHour: 0.5 }\nkarpenter: { steer: [prices] }\n",
    ..CALM
};

/// The overlay of that type.
const OVERLAY: &str = "stoker-od-g6.xlarge";

/// A commitment lowers the price that Karpenter compares until it is nearly full, by nodes of both sides; then Karpenter's own price holds.
pub(super) async fn priced(bench: &mut Bench) -> anyhow::Result<()> {
    let client = bench.cluster.client();
    let (pools, overlays) = (node_pools(&client), node_overlays(&client));
    make_pool(&pools, "g6.xlarge").await?;
    let price = async |what: &str, wanted: bool| {
        eventually(what, STEERED_WITHIN, async || {
            let overlay = overlays.get_opt(OVERLAY).await?;
            let conditions = overlay.as_ref().and_then(|one| one.data["status"]["conditions"].as_array().cloned());
            let obeyed = conditions.unwrap_or_default().iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let holds = if wanted { obeyed } else { overlay.is_none() };
            Ok(if holds { Ok(()) } else { Err(format!("{:?}", overlay.map(|overlay| overlay.data))) })
        })
        .await
    };
    price("a price that Karpenter obeys", true).await?;
    // One after the other: a node that is there and not ready yet is none to an autoscaler, which then asks for one more.
    for pod in ["ours-0", "ours-1"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
        bench.cluster.bound(&[pod], SCALED).await?;
    }
    bench.cluster.foreign_pod("theirs-0", "theirs").await?;
    bench.cluster.bound(&["theirs-0"], SCALED).await?;
    let nodes = Api::<Node>::all(client.clone());
    ensure!(gpu_nodes(&nodes).await? == (2, 1), "each side makes nodes for its own pods alone");
    // Three of five are used: the price stands, and the claim was chosen by it.
    price("the same price", true).await?;
    let claim = theirs(&client).await?.into_iter().next().context("Karpenter made no claim")?;
    let by_overlay = claim.annotations().keys().any(|key| key.ends_with("price-overlay-applied"));
    ensure!(by_overlay, "NodeClaim {} was chosen by Karpenter's own price: {:?}", claim.name_any(), claim.annotations());
    // Four of five: one more would fit, and a price has no number to say that.
    bench.cluster.foreign_pod("theirs-1", "theirs").await?;
    price("the price taken back", false).await?;
    pools.delete("theirs", &DeleteParams::default()).await?;
    Ok(())
}

/// The pool `small` keeps a node warm, and so does Karpenter in a `NodePool` by its rules.
pub(super) const FLOOR: Files = Files {
    nodes: NodesFrom::Karpenter,
    small: "  stabilization: { scaleDown: 1s, minimumLife: 0s }\n  warmFloor: { nodes: 1 }\n",
    more: "karpenter: { steer: [floors] }\n",
    ..CALM
};

/// Karpenter keeps a free node by a buffer, refills it when a pod takes it, and lets it go when the floor is steered no more.
pub(super) async fn floor(bench: &mut Bench) -> anyhow::Result<()> {
    let client = bench.cluster.client();
    let (pools, nodes) = (node_pools(&client), Api::<Node>::all(client.clone()));
    make_pool(&pools, "g6.xlarge").await?;
    let theirs = async |what: &str, within: Duration, right: &dyn Fn(usize) -> bool| {
        eventually(what, within, async || {
            let (_, theirs) = gpu_nodes(&nodes).await?;
            Ok(if right(theirs) { Ok(()) } else { Err(format!("{theirs} nodes")) })
        })
        .await
    };
    theirs("a node that no pod has asked for", SCALED, &|nodes| nodes == 1).await?;
    // Far longer than an empty node stays by `consolidateAfter`.
    holds("the free node", Duration::from_secs(25), async || {
        let (_, theirs) = gpu_nodes(&nodes).await?;
        Ok(if theirs == 1 { Ok(()) } else { Err(format!("{theirs} nodes")) })
    })
    .await?;
    bench.cluster.foreign_pod("taker", "theirs").await?;
    bench.cluster.bound(&["taker"], SCALED).await?;
    theirs("another free node", SCALED, &|nodes| nodes == 2).await?;
    bench.change_policy(&Files { more: "", ..FLOOR })?;
    eventually("the end of the buffer", STEERED_WITHIN, async || {
        let left = bench.cluster.buffers().await?;
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} CapacityBuffers")) })
    })
    .await?;
    // Karpenter looks at empty nodes again when a pod or a node changes, not when a buffer goes: else after five minutes.
    bench.cluster.remove("taker").await?;
    theirs("the end of both nodes", SCALED * 2, &|nodes| nodes == 0).await?;
    pools.delete("theirs", &DeleteParams::default()).await?;
    Ok(())
}

/// The claims that Karpenter made by itself.
async fn theirs(client: &Client) -> anyhow::Result<Vec<DynamicObject>> {
    let made = claims(client).list(&ListParams::default().labels("karpenter.sh/nodepool=theirs")).await?;
    Ok(made.items)
}
