//! Nodes come for pods, stay while pods need them, and go.

use std::time::Duration;

use anyhow::ensure;
use kube::ResourceExt as _;
use stoker_service::kube::{HELD, SCALE_DOWN_DISABLED};

use super::{GONE, ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};

/// Within what time a node's annotation follows its pods.
const MARKED: Duration = Duration::from_secs(5);

/// How long what a user wrote must have stayed: longer than the service leaves a change alone that it has just made (5 s), twice.
const KEPT: Duration = Duration::from_secs(12);

/// GPU pods wait, nodes come, the scheduler binds them, the pods end, the nodes go.
pub(super) async fn come_and_go(bench: &mut Bench) -> anyhow::Result<()> {
    for pod in ["a", "b"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    ensure!(nodes[0] != nodes[1], "two pods share the one GPU of {}", nodes[0]);
    bench.ensure_bought(2)?;
    bench.cluster.finish("a").await?;
    bench.cluster.remove("b").await?;
    bench.cluster.count(0, GONE).await?;
    bench.ensure_bought(2)
}

/// A busy node carries our mark, an idle one loses it, and what the user wrote stays.
pub(super) async fn busy(bench: &mut Bench) -> anyhow::Result<()> {
    for pod in ["a", "b"] {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    let [ours, theirs] = [&nodes[0], &nodes[1]];
    for node in &nodes {
        eventually("mark on a busy node", MARKED, async || marks(bench, node, Some("true"), true).await).await?;
    }
    // The user takes the second one over: their word, without our mark.
    bench.cluster.annotate(theirs, SCALE_DOWN_DISABLED, "false").await?;
    bench.cluster.unannotate(theirs, HELD).await?;
    holds("the user's word", KEPT, async || marks(bench, theirs, Some("false"), false).await).await?;
    bench.cluster.annotate(theirs, SCALE_DOWN_DISABLED, "true").await?;
    for pod in ["a", "b"] {
        bench.cluster.remove(pod).await?;
    }
    eventually("idle node without mark", MARKED, async || {
        if bench.cluster.node(ours).await?.is_none() {
            return Ok(Ok(()));
        }
        marks(bench, ours, None, false).await
    })
    .await?;
    // The one that the user keeps is idle too, and outlives the other.
    let left = bench.cluster.count(1, GONE).await?;
    ensure!(left[0].name_any() == *theirs, "{} is left, and the user kept {theirs}", left[0].name_any());
    holds("the user's node", KEPT, async || marks(bench, theirs, Some("true"), false).await).await
}

async fn marks(bench: &Bench, node: &str, disabled: Option<&str>, held: bool) -> anyhow::Result<Result<(), String>> {
    let Some(found) = bench.cluster.node(node).await? else { return Ok(Err(format!("{node} is gone"))) };
    let seen = (found.annotations().get(SCALE_DOWN_DISABLED).map(String::as_str), found.annotations().contains_key(HELD));
    Ok(if seen == (disabled, held) { Ok(()) } else { Err(format!("{node} says {:?}", found.annotations())) })
}

/// A pool's least nodes come up with no pod asking, and stay.
pub(super) async fn floor(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.count(1, SCALED).await?;
    // Longer than the autoscaler leaves any idle node.
    holds("the one node of the floor", Duration::from_secs(25), async || {
        let nodes = bench.cluster.ours().await?.len();
        Ok(if nodes == 1 { Ok(()) } else { Err(format!("{nodes} nodes")) })
    })
    .await?;
    bench.ensure_bought(1)
}
