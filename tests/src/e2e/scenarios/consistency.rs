//! A rule that is wrong for one pool: the fault stays in that pool.

use std::time::Duration;

use anyhow::ensure;
use jiff::SignedDuration;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{Ask, eventually, holds};
use crate::e2e::files::Files;
use crate::e2e::scenarios::warm;

/// Two pools on spot, whose nodes have probes that hear of reclaims.
pub(super) const TWO_POOLS: Files = Files { more: OTHER, ..warm::SPOT };

const OTHER: &str = "- name: other
  workload: inference
  gpu: { models: [L4], count: 1, minMemoryGiB: 20 }
  where: { clouds: [aws], regions: [us-east-1], zones: [us-east-1a, us-east-1b] }
  capacity: { prefer: [spot] }
  limits: { maxNodes: 8 }
  evidence: probe
  stabilization: { scaleDown: 10s, minimumLife: 10s }
";

const IN_OTHER: Ask<'static> = Ask { pool: "other", ..ONE };

const SAID: &str = "Internal consistency check failed for pool small; scale-up is paused (decision d";

/// How soon what is wrong is to be seen.
const SEEN: Duration = Duration::from_secs(20);

/// A build with a mistake in what it decides for one pool buys for the other, empties the nodes of both that the cloud takes, and says what
/// is wrong. The build without it goes on from there.
pub(super) async fn fault_in_one_pool(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("a", ONE).await?;
    bench.cluster.gpu_pod("b", IN_OTHER).await?;
    let nodes = bench.cluster.bound(&["a", "b"], SCALED).await?;
    bench.kill_stoker().await?;
    bench.start_stoker_with("plan.wrong:small").await?;
    eventually("the fault in /readyz, stoker groups, the metric and an Event", SEEN, async || {
        let ready = bench.get("/readyz").await.unwrap_or_else(|answer| answer);
        let metrics = bench.get("/metrics").await.unwrap_or_default();
        let series = "stoker_consistency_fault{pool=\"small\",fault=\"bad-limits\"} 1";
        let groups = bench.groups().await?;
        let events = bench.cluster.events_of("Deployment", "stoker").await?;
        let told = events.iter().any(|(reason, note)| reason == "ConsistencyCheckFailed" && note.starts_with(SAID));
        let seen = (ready.contains(SAID), groups.contains(SAID), metrics.contains(series), told);
        Ok(if seen == (true, true, true, true) { Ok(()) } else { Err(format!("{seen:?}: {ready} {events:?}")) })
    })
    .await?;

    bench.cluster.gpu_pod("c", IN_OTHER).await?;
    bench.cluster.gpu_pod("d", ONE).await?;
    bench.cluster.bound(&["c"], SCALED).await?;
    bench.ensure_bought(3)?;
    for node in &nodes {
        bench.daemon()?.reclaim(node, SignedDuration::from_mins(2))?;
    }
    for pod in ["a", "b"] {
        eventually("emptied node", Duration::from_mins(1), async || {
            let there = bench.cluster.has_pod(pod).await?;
            Ok(if there { Err(format!("pod {pod} is still there")) } else { Ok(()) })
        })
        .await?;
    }
    holds("a pool that does not grow", Duration::from_secs(5), async || {
        let node = bench.cluster.node_of("d").await?;
        Ok(node.map_or(Ok(()), |node| Err(format!("d is on {node}"))))
    })
    .await?;
    bench.ensure_bought(3)?;

    bench.kill_stoker().await?;
    bench.start_stoker().await?;
    bench.cluster.bound(&["d"], SCALED).await?;
    let ready = bench.get("/readyz").await.unwrap_or_else(|answer| answer);
    ensure!(!ready.contains("consistency"), "{ready}");
    bench.ensure_bought(4)
}
