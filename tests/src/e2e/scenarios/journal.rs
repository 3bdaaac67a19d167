//! The journal is lost, and then restored from a backup: no node ends for it, and none is bought
//! twice.

use std::time::Duration;

use anyhow::ensure;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{eventually, holds};

/// How long it is watched that nothing more is bought and nothing ends. Nodes without a pod go
/// sooner than this on these flags.
const QUIET: Duration = Duration::from_secs(45);

const PODS: [&str; 2] = ["a", "b"];

/// What was bought stays what was bought, and all of it runs.
async fn unchanged(bench: &Bench) -> anyhow::Result<()> {
    holds("an unchanged fleet", QUIET, async || {
        let ready = bench.cluster.ours_ready().await?;
        let bought = bench.bought()?.len();
        let count = PODS.len();
        Ok(if (ready, bought) == (count, count) { Ok(()) } else { Err(format!("{ready} Ready, {bought} bought")) })
    })
    .await
}

async fn cautious(bench: &Bench) -> anyhow::Result<()> {
    let said = bench.get("/readyz").await.map_err(anyhow::Error::msg)?;
    ensure!(said.contains("degraded  journal: it was lost or replaced"), "{said}");
    Ok(())
}

/// A backup is made while Stoker runs; the journal is lost; the backup is restored.
pub(super) async fn lost_and_restored(bench: &mut Bench) -> anyhow::Result<()> {
    for pod in PODS {
        bench.cluster.gpu_pod(pod, ONE).await?;
    }
    bench.cluster.bound(&PODS, SCALED).await?;
    bench.stoker_with_journal("backup").await?;
    bench.kill_stoker().await?;
    bench.lose_journal()?;
    bench.start_stoker().await?;
    cautious(bench).await?;
    eventually("the Event of a lost journal", Duration::from_secs(20), async || {
        let told = bench.cluster.events_of("Deployment", "stoker").await?;
        Ok(if told.iter().any(|(reason, _)| reason == "JournalLost") { Ok(()) } else { Err(format!("{told:?}")) })
    })
    .await?;
    // A node that nobody needs any more stays as well.
    bench.cluster.finish(PODS[1]).await?;
    unchanged(bench).await?;
    bench.kill_stoker().await?;
    bench.lose_journal()?;
    bench.stoker_with_journal("restore").await?;
    bench.start_stoker().await?;
    cautious(bench).await?;
    unchanged(bench).await
}
