//! Either side dies in mid-flight: nothing is lost, and nothing bought twice.

use std::time::Duration;

use anyhow::ensure;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::holds;

/// How long it is watched that nothing more is bought.
const QUIET: Duration = Duration::from_secs(8);

const PODS: [&str; 3] = ["a", "b", "c"];

/// Three pods wait and their three machines are being made.
async fn under_way(bench: &mut Bench) -> anyhow::Result<()> {
    for pod in PODS {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    // At once, so that what is killed next is in the midst of it.
    bench.until_bought(1, SCALED).await
}

/// Every pod is bound, and so many machines were bought, now and later.
async fn settled(bench: &mut Bench, pods: &[&str]) -> anyhow::Result<()> {
    let mut nodes = bench.cluster.bound(pods, SCALED).await?;
    nodes.sort();
    nodes.dedup();
    ensure!(nodes.len() == pods.len(), "pods share nodes: {nodes:?}");
    let count = pods.len();
    holds("quiet", QUIET, async || Ok(bench.ensure_bought(count).map_err(|error| error.to_string()))).await?;
    bench.cluster.count(count, Duration::ZERO).await?;
    Ok(())
}

/// Stoker dies after it took the order and before the nodes are Ready, and comes back at once.
pub(super) async fn stoker(bench: &mut Bench) -> anyhow::Result<()> {
    under_way(bench).await?;
    bench.kill_stoker().await?;
    bench.start_stoker().await?;
    settled(bench, &PODS).await
}

/// The autoscaler dies with nodes in flight; the new one knows nothing of them.
pub(super) async fn autoscaler(bench: &mut Bench) -> anyhow::Result<()> {
    under_way(bench).await?;
    bench.until_bought(PODS.len(), SCALED).await?;
    bench.kill_autoscaler().await?;
    bench.start_autoscaler()?;
    settled(bench, &PODS).await
}

/// Stoker is away for a while; more pods come meanwhile.
pub(super) async fn away(bench: &mut Bench) -> anyhow::Result<()> {
    under_way(bench).await?;
    bench.kill_stoker().await?;
    bench.cluster.gpu_pod("d", ONE).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.start_stoker().await?;
    settled(bench, &["a", "b", "c", "d"]).await
}
