//! Nodes through a real Karpenter, whose KWOK provider makes Nodes without machines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use rand::{Rng as _, SeedableRng as _};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, ClusterName, InstanceType, Region, SupplierName, ZoneId};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_karpenter::Karpenter;
use stoker_plugin::check::{self, Rule, Verdict};
use stoker_plugin::dial::connect;
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
use crate::e2e::files::{CALM, Files, NodesFrom};
use crate::e2e::karpenter::{claims, give_back, node_classes};

pub(super) const FILES: Files = Files { nodes: NodesFrom::Karpenter, ..CALM };

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
    bench.karpenter()?.signal("STOP").await?;
    let class = classes.get("gpu").await?;
    classes.delete("gpu", &DeleteParams::default()).await?;
    bench.cluster.gpu_pod("a", ONE).await?;
    eventually("claim", SCALED, async || claims_are(1).await).await?;
    bench.karpenter()?.signal("CONT").await?;
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
    let verdicts = check::run(connect(&format!("unix://{}", socket.display()), None)?, plan).await.rules;
    // No cloud takes these back.
    let kept = |(rule, verdict): &(Rule, Verdict)| *verdict == Verdict::Kept || *rule == Rule::Notice;
    let broken: Vec<String> =
        verdicts.iter().filter(|one| !kept(one)).map(|(rule, verdict)| format!("{}: {verdict:?}", rule.as_str())).collect();
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    // What it made last it only asked to end.
    all_gone(bench).await
}

/// How often Karpenter is killed, unless the environment says otherwise.
const KILLS: &str = "STOKER_E2E_KARPENTER_KILLS";

/// Karpenter is killed again and again while nodes come: every pod gets its node, no claim too many is left, and all go again.
pub(super) async fn killed(bench: &mut Bench) -> anyhow::Result<()> {
    const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let kills = std::env::var(KILLS).map_or(Ok(10), |kills| kills.parse::<u32>()).context(KILLS)?;
    let mut chance = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    for kill in 0..kills {
        if let Some(pod) = PODS.get(usize::try_from(kill)?) {
            bench.cluster.gpu_pod(pod, ONE).await?;
        }
        sleep(Duration::from_millis(chance.random_range(200..4_000))).await;
        bench.karpenter()?.kill().await?;
        bench.karpenter()?.start_again()?;
    }
    let nodes: BTreeSet<String> = bench.cluster.bound(&PODS, SCALED * 2).await?.into_iter().collect();
    ensure!(nodes.len() == PODS.len(), "pods share nodes: {nodes:?}");
    let left = async || Ok::<_, anyhow::Error>(claims(&bench.cluster.client()).list(&ListParams::default()).await?.items.len());
    eventually("a claim for each pod", GONE, async || {
        let left = left().await?;
        Ok(if left == PODS.len() { Ok(()) } else { Err(format!("{left} claims for {} pods", PODS.len())) })
    })
    .await?;
    for pod in PODS {
        bench.cluster.remove(pod).await?;
    }
    all_gone(bench).await
}

/// A floor is held by claims of Stoker's own: it is there before any pod, and comes back when it is taken away.
pub(super) async fn floor(bench: &mut Bench) -> anyhow::Result<()> {
    let claims = claims(&bench.cluster.client());
    let one = async || {
        eventually("the floor's node", SCALED, async || {
            let names: Vec<String> = claims.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
            Ok(if names.len() == 1 { Ok(names) } else { Err(format!("{names:?}")) })
        })
        .await
    };
    let first = one().await?;
    bench.cluster.count(1, SCALED).await?;
    claims.delete(&first[0], &DeleteParams::default()).await?;
    eventually("another node in its place", SCALED * 2, async || {
        let again = claims.list(&ListParams::default()).await?;
        let stands = again.items.len() == 1 && again.iter().all(|claim| claim.name_any() != first[0]);
        Ok(if stands { Ok(()) } else { Err(format!("{} claims", again.items.len())) })
    })
    .await
}
