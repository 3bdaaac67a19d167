//! Nodes through a real Karpenter, whose KWOK provider makes Nodes without machines.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, ClusterName, InstanceType, Region, SupplierName, ZoneId};
use stoker_core::catalogue::template::CLUSTER_LABEL;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::sharing::GPU_RESOURCE;
use stoker_core::policy::rules::karpenter::STEERED_LABEL;
use stoker_karpenter::Karpenter;
use stoker_plugin::check::{self, Rule, Verdict};
use stoker_plugin::client::connect;
use stoker_plugin::server::Served;
use stoker_proto::supplier::Scope;
use stoker_service::clock::Clock;
use stoker_service::failpoints::CLAIM_CREATED;
use stoker_service::suppliers::Supplier;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::{GONE, ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::eventually;
use crate::e2e::files::{CALM, Files};
use crate::e2e::karpenter::{claims, give_back, node_classes, node_pools};

/// What keeps Karpenter from emptying a Node.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

pub(super) const FILES: Files = Files { karpenter: true, ..CALM };

/// How long Karpenter may take to look at a carrier.
const CARRIER_FIT: Duration = Duration::from_secs(20);

/// How long the autoscaler may take to hear of a refusal.
const HEARD: Duration = Duration::from_mins(1);

/// GPU pods wait, claims are made and launched, the scheduler binds the pods, the pods end, and the claims go. Stoker is killed right
/// after it made the first claim.
pub(super) async fn come_and_go(bench: &mut Bench) -> anyhow::Result<()> {
    bench.kill_stoker().await?;
    bench.start_stoker_with(CLAIM_CREATED).await?;
    for pod in ["a", "b"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    eventually("crash after the first claim", SCALED, async || {
        Ok(if bench.stoker_runs() { Err("it runs".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.start_stoker().await?;
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    ensure!(nodes[0] != nodes[1], "two pods share the one GPU of {}", nodes[0]);
    let made = claims(&bench.cluster.client()).list(&ListParams::default()).await?.items;
    ensure!(made.len() == 2, "{} NodeClaims for the 2 that are needed", made.len());
    for claim in &made {
        let name = claim.name_any();
        ensure!(claim.labels().contains_key("karpenter.sh/nodepool"), "NodeClaim {name} has no NodePool");
    }
    bench.cluster.finish("a").await?;
    bench.cluster.remove("b").await?;
    bench.cluster.count(0, GONE).await?;
    all_gone(bench).await
}

/// Waits until no claim is left.
async fn all_gone(bench: &Bench) -> anyhow::Result<()> {
    eventually("end of the claims", GONE, async || {
        let left = claims(&bench.cluster.client()).list(&ListParams::default()).await?.items.len();
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} are left")) })
    })
    .await
}

/// Karpenter has no capacity: it deletes the claim, an Event says why, and the autoscaler hears the reason. Once there is some, the pod
/// gets its node.
pub(super) async fn refused(bench: &mut Bench) -> anyhow::Result<()> {
    let (classes, claims) = (node_classes(&bench.cluster.client()), claims(&bench.cluster.client()));
    let claims_are = async |wanted: usize| {
        let are = claims.list(&ListParams::default()).await?.items.len();
        Ok(if are == wanted { Ok(()) } else { Err(format!("{are} claims")) })
    };
    // It finds the claim and no class at one time: to it that is a lack of capacity.
    bench.karpenter()?.signal("-STOP").await?;
    let class = classes.get("gpu").await?;
    classes.delete("gpu", &DeleteParams::default()).await?;
    bench.cluster.gpu_pod("a", ONE).await?;
    eventually("claim", SCALED, async || claims_are(1).await).await?;
    bench.karpenter()?.signal("-CONT").await?;
    let gone = eventually("end of the claim", HEARD, async || claims_are(0).await).await;
    give_back(&classes, class).await?;
    gone?;
    eventually("refusal for lack of capacity", HEARD, async || {
        let groups = bench.groups().await?;
        Ok(if groups.contains("OUT_OF_CAPACITY") { Ok(()) } else { Err(groups) })
    })
    .await?;
    bench.cluster.bound(&["a"], SCALED * 2).await?;
    Ok(())
}

/// The rules that every supplier keeps, by the check of plugins: nodes through Karpenter are served as a plugin.
pub(super) async fn rules(bench: &mut Bench) -> anyhow::Result<()> {
    let cluster = ClusterName::new("check")?;
    let karpenter = Karpenter::start(SupplierName::new("karpenter")?, cluster.clone(), &bench.stoker_client().await?);
    let karpenter: Arc<dyn Supplier> = Arc::new(karpenter);
    eventually("fit carrier", CARRIER_FIT, async || {
        let facts = karpenter.market_facts(Wall(Timestamp::now())).await?;
        Ok(if facts.clouds.is_empty() { Err(karpenter.faults().join("; ")) } else { Ok(()) })
    })
    .await?;
    let place = Place {
        cloud: Cloud::new("aws")?,
        region: Region::new("us-east-1")?,
        zone: ZoneId::new("use1-az1")?,
        instance_type: InstanceType::new("g6.xlarge")?,
    };
    let scope = Scope { name: "here".to_owned(), cloud: "aws".to_owned(), regions: vec!["us-east-1".to_owned()] };
    let served = Served::new(karpenter, cluster.clone(), Clock::system(), vec![scope]);
    let socket = bench.dir().join("karpenter.sock");
    let path = socket.clone();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move { served.listen(&path, std::future::pending()).await }));
    eventually("socket", CARRIER_FIT, async || Ok(if socket.exists() { Ok(()) } else { Err("none yet".to_owned()) })).await?;
    let market = Market { place, capacity_type: CapacityType::OnDemand };
    let plan = check::Plan { cluster: cluster.to_string(), market, gone_within: GONE };
    let verdicts = check::run(connect(&format!("unix://{}", socket.display()))?, plan).await;
    // No cloud takes these back.
    let kept = |(rule, verdict): &(Rule, Verdict)| *verdict == Verdict::Kept || *rule == Rule::Notice;
    let broken: Vec<String> =
        verdicts.iter().filter(|one| !kept(one)).map(|(rule, verdict)| format!("{}: {verdict:?}", rule.as_str())).collect();
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    // What it made last it only asked to end.
    all_gone(bench).await
}

/// A quota of ten g6.xlarge, of which Karpenter's pool and Stoker share what there is.
pub(super) const STEERED: Files = Files {
    karpenter: true,
    more: "quotas: [{ name: L-DB2E81BA, cloud: aws, region: us-east-1, limit: 40 }]\nkarpenter: { steer: [limits, protect] }\n",
    ..CALM
};

/// How long a limit may take: they are written every half minute.
const STEERED_WITHIN: Duration = Duration::from_secs(45);

/// A `NodePool` of somebody else's is held to the quota together with Stoker's own nodes, its node in use is protected, and all of it is
/// given back.
pub(super) async fn steered(bench: &mut Bench) -> anyhow::Result<()> {
    let client = bench.cluster.client();
    let (pools, nodes) = (node_pools(&client), Api::<Node>::all(client.clone()));
    let before = make_pool(&pools).await?;
    let limit = async || {
        let pool = pools.get("theirs").await?;
        Ok::<_, anyhow::Error>(pool.data["spec"]["limits"]["cpu"].as_str().map(str::to_owned))
    };
    let limited = async |what: &str, right: &dyn Fn(u64) -> bool| {
        eventually(what, STEERED_WITHIN, async || {
            let now = limit().await?;
            let holds = now.as_deref().and_then(|now| now.parse().ok()).is_some_and(right);
            Ok(if holds { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .await
    };
    // Two nodes are promised, one of which Karpenter may have beyond its limit.
    limited("first limit", &|limit| limit == 4).await?;
    for pod in ["a", "b"] {
        bench.cluster.foreign_pod(pod, "theirs").await?;
    }
    let held = bench.cluster.bound(&["a", "b"], SCALED).await?;
    limited("limit for what runs and a promise", &|limit| limit == 12).await?;
    eventually("protection of the nodes in use", SCALED, async || {
        let mut bare = Vec::new();
        for name in &held {
            if nodes.get(name).await?.annotations().get(DO_NOT_DISRUPT).map(String::as_str) != Some("true") {
                bare.push(name.clone());
            }
        }
        Ok(if bare.is_empty() { Ok(()) } else { Err(format!("{bare:?} are not protected")) })
    })
    .await?;
    // Both doors at once ask for far more than there is.
    for pod in 0..8 {
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
    ensure!(
        (after.annotations(), after.labels()) == (before.annotations(), before.labels()),
        "{:?} and {:?} were {:?} and {:?}",
        after.annotations(),
        after.labels(),
        before.annotations(),
        before.labels()
    );
    for node in nodes.list(&ListParams::default()).await? {
        let left = node.annotations().keys().find(|key| *key == DO_NOT_DISRUPT || *key == "stoker.dev/protected");
        let ours = node.labels().contains_key(CLUSTER_LABEL);
        ensure!(ours || left.is_none(), "Node {} has {left:?} yet", node.name_any());
    }
    pools.delete("theirs", &DeleteParams::default()).await?;
    bench.start_stoker().await
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
async fn make_pool(pools: &Api<DynamicObject>) -> anyhow::Result<DynamicObject> {
    let one = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "theirs", "labels": { STEERED_LABEL: "true", "stoker.dev/cloud": "aws" } },
        "spec": {
            "limits": { "cpu": "400", "memory": "4Ti" },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gpu" },
                "taints": [{ "key": GPU_RESOURCE, "value": "true", "effect": "NoSchedule" }],
                "requirements": [
                    one("node.kubernetes.io/instance-type", "g6.xlarge"),
                    one("karpenter.sh/capacity-type", "on-demand"),
                    one("topology.kubernetes.io/region", "us-east-1"),
                ],
            } },
        },
    });
    Ok(pools.create(&PostParams::default(), &serde_json::from_value(pool)?).await?)
}
