//! Nodes are kept warm, judged by their probes, and let go when their window is over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use jiff::SignedDuration;
use kube::ResourceExt as _;
use nvidia_ml::scenario::Xid;
use stoker_service::kube::{SCALE_DOWN_DISABLED, VERDICT};
use stoker_sim::model::{CaClient as _, CaError, NodeRef};

use super::{GONE, ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};
use crate::e2e::files::{CALM, Files};

/// Windows of seconds, for nodes that are judged by their probes.
pub(super) const PROBED: Files =
    Files { probes: true, small: "  evidence: probe\n  stabilization: { scaleDown: 10s, minimumLife: 10s }\n", ..CALM };

/// Two warm nodes beside those at work.
pub(super) const FLOOR: Files = Files {
    small: "  evidence: probe\n  stabilization: { scaleDown: 10s, minimumLife: 10s }\n  warmFloor: { nodes: 2 }\n",
    ..PROBED
};

/// The same floor, kept by the objects that the autoscaler makes room for.
pub(super) const BUFFERED: Files = Files {
    small: "  evidence: probe\n  stabilization: { scaleDown: 10s, minimumLife: 10s }\n  warmFloor: { nodes: 2, mechanism: capacityBuffer }\n",
    flags: &["--capacity-buffer-controller-enabled=true", "--capacity-buffer-pod-injection-enabled=true"],
    ..PROBED
};

/// The same floor with an autoscaler that heeds no least size.
pub(super) const UNASKED: Files = Files { flags: &["--enforce-node-group-min-size=false"], ..FLOOR };

/// A floor waits for two minutes for the autoscaler before it is filled without it; a little less.
const NOT_YET: Duration = Duration::from_secs(100);

/// Spot only, so that a notice is of a spot machine.
pub(super) const SPOT: Files = Files { prefer: "spot", ..PROBED };

/// Nodes whose GPUs fail are emptied soon.
pub(super) const BREAKING: Files = Files {
    small: "  evidence: probe\n  stabilization: { scaleDown: 10s, minimumLife: 10s }\n  unhealthy: { action: drain, after: 1s }\n",
    ..PROBED
};

/// How long a new probe takes to begin and to tell, and the provider to judge.
const JUDGED: Duration = Duration::from_secs(40);

/// How long a node that worked takes to be free: a minute of quiet, and what the probe and the provider take to see it.
const FREED: Duration = Duration::from_secs(80);

/// The gRPC status of a call that cannot be followed as things stand.
const FAILED_PRECONDITION: i32 = 9;

/// A pod that finds a warm node begins at once.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Waits until a node is judged so.
async fn judged(bench: &Bench, node: &str, verdict: &str, within: Duration) -> anyhow::Result<()> {
    eventually(&format!("{node} judged {verdict}"), within, async || {
        let Some(found) = bench.cluster.node(node).await? else { return Ok(Err(format!("{node} is gone"))) };
        let said = found.annotations().get(VERDICT).cloned().unwrap_or_default();
        Ok(if said == verdict { Ok(()) } else { Err(format!("it is {said:?}")) })
    })
    .await
}

/// Waits until as many probes speak as there are nodes.
async fn heard(bench: &Bench, probes: usize) -> anyhow::Result<()> {
    eventually(&format!("{probes} probes that speak"), JUDGED, async || {
        let metrics = bench.get("/metrics").await.unwrap_or_default();
        let streams = metrics.lines().find_map(|line| line.strip_prefix("stoker_probe_streams ")).unwrap_or("no streams");
        Ok(if streams.trim() == probes.to_string() { Ok(()) } else { Err(streams.to_owned()) })
    })
    .await
}

async fn stays(bench: &Bench, node: &str, during: Duration) -> anyhow::Result<()> {
    holds(&format!("{node} kept"), during, async || {
        Ok(if bench.cluster.node(node).await?.is_some() { Ok(()) } else { Err("it is gone".to_owned()) })
    })
    .await
}

/// A floor of two comes up with no pod asking and stays; a pod takes one of them at once, and the floor is filled up again.
pub(super) async fn floor(bench: &mut Bench) -> anyhow::Result<()> {
    let nodes = bench.cluster.count(2, SCALED).await?;
    for node in &nodes {
        judged(bench, &node.name_any(), "warm", JUDGED).await?;
    }
    // Longer than the autoscaler and any window leave an idle node.
    holds("the two nodes of the floor", Duration::from_secs(25), async || {
        let nodes = bench.cluster.ours().await?.len();
        Ok(if nodes == 2 { Ok(()) } else { Err(format!("{nodes} nodes")) })
    })
    .await?;
    bench.cluster.gpu_pod("a", ONE).await?;
    let taken = bench.cluster.bound(&["a"], AT_ONCE).await?.remove(0);
    ensure!(nodes.iter().any(|node| node.name_any() == taken), "{taken} is none of the warm nodes");
    bench.cluster.count(3, SCALED).await?;
    // Either side goes in between, and nothing is bought twice.
    bench.kill_stoker().await?;
    bench.start_stoker().await?;
    bench.cluster.remove("a").await?;
    bench.cluster.count(2, FREED + GONE).await?;
    bench.ensure_bought(3)
}

/// A floor that no autoscaler fills is filled after a while, once, and the autoscaler takes the nodes for its groups' own.
pub(super) async fn unasked(bench: &mut Bench) -> anyhow::Result<()> {
    holds("no node before the autoscaler had its time", NOT_YET, async || {
        let nodes = bench.cluster.ours().await?.len();
        Ok(if nodes == 0 { Ok(()) } else { Err(format!("{nodes} nodes")) })
    })
    .await?;
    let nodes = bench.cluster.count(2, Duration::from_secs(20) + SCALED).await?;
    for node in &nodes {
        judged(bench, &node.name_any(), "warm", JUDGED).await?;
    }
    bench.cluster.gpu_pod("a", ONE).await?;
    let taken = bench.cluster.bound(&["a"], AT_ONCE).await?.remove(0);
    ensure!(nodes.iter().any(|node| node.name_any() == taken), "{taken} is none of the warm nodes");
    bench.ensure_bought(2)
}

/// A floor that the policy no longer has takes its buffer with it, and its nodes go.
pub(super) async fn buffered(bench: &mut Bench) -> anyhow::Result<()> {
    floor(bench).await?;
    ensure!(bench.cluster.buffers().await? == 1, "no CapacityBuffer keeps the floor");
    bench.change_policy(&PROBED)?;
    bench.cluster.count(0, FREED + GONE).await?;
    let left = bench.cluster.buffers().await?;
    ensure!(left == 0, "{left} CapacityBuffers are left of a floor that is no more");
    bench.ensure_bought(3)
}

/// Asks for a node to be deleted as the autoscaler would, were it not kept from it by the node's annotation: it is refused.
async fn is_refused(bench: &Bench, node: &str) -> anyhow::Result<()> {
    let found = bench.cluster.node(node).await?.with_context(|| format!("{node} is gone"))?;
    let provider_id = found.spec.and_then(|spec| spec.provider_id).with_context(|| format!("{node} has no provider id"))?;
    let asked = NodeRef { name: node.to_owned(), provider_id, labels: Arc::default(), annotations: Arc::default() };
    let mut door = bench.door()?;
    let said = |error: CaError| anyhow!("{}: {}", error.code, error.message);
    let group = door.node_group_for_node(&asked).await.map_err(said)?.with_context(|| format!("{node} is of no group"))?;
    let Err(error) = door.delete_nodes(&group, &[asked]).await else { bail!("{node} was deleted at its first asking") };
    ensure!(error.code == FAILED_PRECONDITION, "{}", said(error));
    Ok(())
}

/// A node whose GPU works is kept though it has no pod and the autoscaler wants it; when it has been quiet for its window, it goes.
pub(super) async fn work_without_pods(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("a", ONE).await?;
    let node = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    heard(bench, 1).await?;
    bench.daemon()?.work(&node, 80)?;
    judged(bench, &node, "busy", JUDGED).await?;
    bench.cluster.remove("a").await?;
    eventually("its pod gone", Duration::from_secs(30), async || {
        Ok(if bench.cluster.has_pod("a").await? { Err("it is still there".to_owned()) } else { Ok(()) })
    })
    .await?;
    is_refused(bench, &node).await?;
    stays(bench, &node, Duration::from_secs(20)).await?;
    // A probe that ends and comes back, and a provider that does, change nothing.
    bench.daemon()?.kill(&node, false).await?;
    bench.kill_stoker().await?;
    bench.start_stoker().await?;
    stays(bench, &node, Duration::from_secs(10)).await?;
    bench.daemon()?.work(&node, 0)?;
    bench.cluster.count(0, FREED + GONE).await?;
    bench.ensure_bought(1)
}

/// A node whose probe fell silent may be at work: it is kept, until the probe is back and says that it is not.
pub(super) async fn silent_probe(bench: &mut Bench) -> anyhow::Result<()> {
    for pod in ["a", "b"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    let [silent, other] = [&nodes[0], &nodes[1]];
    heard(bench, 2).await?;
    for node in &nodes {
        judged(bench, node, "busy", JUDGED).await?;
    }
    bench.daemon()?.kill(silent, true).await?;
    for pod in ["a", "b"] {
        bench.cluster.remove(pod).await?;
    }
    judged(bench, silent, "unknown", JUDGED).await?;
    // The one that is heard goes, the silent one does not.
    let left = bench.cluster.count(1, FREED + GONE).await?;
    ensure!(left[0].name_any() == *silent, "{} is left, and {other} was heard", left[0].name_any());
    let held = bench.cluster.node(silent).await?.context("the silent node is gone")?;
    ensure!(held.annotations().contains_key(SCALE_DOWN_DISABLED), "{silent} is not held: {:?}", held.annotations());
    stays(bench, silent, Duration::from_secs(15)).await
}

/// A GPU that fell off the bus takes no more pods; the one that it has is told to go, and gets another node.
pub(super) async fn broken(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.job_pod("a", ONE).await?;
    let node = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    heard(bench, 1).await?;
    judged(bench, &node, "busy", JUDGED).await?;
    bench.daemon()?.break_down(&node, Xid::on(0, 79))?;
    eventually("its pod gone", Duration::from_mins(1), async || {
        Ok(if bench.cluster.has_pod("a").await? { Err("it is still there".to_owned()) } else { Ok(()) })
    })
    .await?;
    // What a Job's controller does.
    bench.cluster.job_pod("b", ONE).await?;
    let next = bench.cluster.bound(&["b"], SCALED).await?.remove(0);
    ensure!(next != node, "the new pod is on the broken node {node}");
    eventually("the broken node gone", GONE, async || {
        Ok(if bench.cluster.node(&node).await?.is_some() { Err(format!("{node} is there")) } else { Ok(()) })
    })
    .await?;
    bench.ensure_bought(2)
}

/// The cloud says that it takes a spot machine back: its pod is told to go within two seconds of the probe's word, and the node is replaced.
pub(super) async fn spot_notice(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.job_pod("a", ONE).await?;
    let node = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    heard(bench, 1).await?;
    judged(bench, &node, "busy", JUDGED).await?;
    bench.daemon()?.reclaim(&node, SignedDuration::from_secs(60))?;
    // The probe looks every five seconds, as AWS recommends; two more until the eviction begins.
    eventually("its pod gone", Duration::from_secs(5 + 2 + 3), async || {
        Ok(if bench.cluster.has_pod("a").await? { Err("it is still there".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.cluster.job_pod("b", ONE).await?;
    let next = bench.cluster.bound(&["b"], SCALED).await?.remove(0);
    ensure!(next != node, "the new pod is on {node}, which is taken back");
    eventually("the node that is taken back gone", GONE, async || {
        Ok(if bench.cluster.node(&node).await?.is_some() { Err(format!("{node} is there")) } else { Ok(()) })
    })
    .await?;
    bench.ensure_bought(2)
}
