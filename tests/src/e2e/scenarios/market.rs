//! Markets without stock, and machines that the cloud takes back.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use stoker_core::catalogue::template::CAPACITY_TYPE_ANNOTATION;

use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::{Ask, eventually};
use crate::e2e::files::{CALM, Files};

/// Nothing of the cheapest shape is to be had in either zone.
pub(super) const NO_STOCK: Files =
    Files { world: "stockOuts:\n- { match: { instanceType: g6.xlarge }, from: 0s, for: 1h }\n", ..CALM };

/// Spot machines live for seconds: with this seed, whenever one is bought.
pub(super) const RECLAIM: Files = Files {
    prefer: "spot",
    seed: 334,
    world: "reclaims: { perHour: 60, noticeSeconds: 2, clouds: {}, spreadSeconds: 1, stockOutSeconds: 1 }\n",
    ..CALM
};

/// No spot may be bought, by a quota of nought.
pub(super) const NO_SPOT: Files = Files { more: QUOTA_OF_NOUGHT, ..BACK };

/// Checkpoints each ten seconds: a move to spot pays after some ten seconds of service.
const BACK: Files = Files { prefer: "spot, on-demand", spot: ", spot: { checkpoint: 10s, restart: 1s }", ..CALM };
const QUOTA_OF_NOUGHT: &str = "quotas:\n- { name: L-3819A6DF, cloud: aws, region: us-east-1, limit: 0 }\n";

/// Work that runs on demand for want of spot moves there when spot can be had: its node is closed and emptied, and goes.
pub(super) async fn back_to_spot(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.job_pod("first", ONE).await?;
    let left = bench.cluster.bound(&["first"], SCALED).await?.remove(0);
    ensure!(bought_as(bench, &left).await? == "on-demand", "{left} is no on-demand node");
    bench.change_policy(&BACK)?;
    eventually("emptied node", Duration::from_mins(1), async || {
        let there = bench.cluster.has_pod("first").await?;
        Ok(if there { Err(format!("its pod is still on {left}")) } else { Ok(()) })
    })
    .await?;
    // What a Job's controller does. The old node is closed by now, so the pod waits for a new one.
    bench.cluster.job_pod("second", ONE).await?;
    let node = bench.cluster.bound(&["second"], SCALED).await?.remove(0);
    ensure!(node != left && bought_as(bench, &node).await? == "spot", "{node} is no new spot node");
    eventually("node let go", Duration::from_secs(30), async || {
        let there = bench.cluster.node(&left).await?.is_some();
        Ok(if there { Err(format!("{left} is still there")) } else { Ok(()) })
    })
    .await?;
    bench.ensure_bought(2)
}

async fn bought_as(bench: &Bench, node: &str) -> anyhow::Result<String> {
    let node = bench.cluster.node(node).await?.with_context(|| format!("{node} is gone"))?;
    Ok(node.annotations().get(CAPACITY_TYPE_ANNOTATION).cloned().unwrap_or_default())
}

/// The cheapest shape is sold out: the autoscaler is turned to another group.
pub(super) async fn no_stock(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("a", ONE).await?;
    let name = bench.cluster.bound(&["a"], SCALED).await?.remove(0);
    let node = bench.cluster.node(&name).await?.with_context(|| format!("{name} is gone"))?;
    let shape = node.labels().get("node.kubernetes.io/instance-type").cloned().unwrap_or_default();
    ensure!(shape != "g6.xlarge", "{name} is a {shape}, of which there is none");
    bench.ensure_bought(1)
}

/// A spot machine is taken back: its Node goes, and the pod that its controller makes anew gets another.
pub(super) async fn reclaim(bench: &mut Bench) -> anyhow::Result<()> {
    bench.cluster.gpu_pod("first", ONE).await?;
    let lost = bench.cluster.bound(&["first"], SCALED).await?.remove(0);
    eventually("reclaimed node", Duration::from_secs(90), async || {
        let there = bench.cluster.node(&lost).await?.is_some();
        Ok(if there { Err(format!("{lost} is still there")) } else { Ok(()) })
    })
    .await?;
    // What a Job's controller does.
    eventually("pod of a lost node cleared away", Duration::from_secs(10), async || {
        let there = bench.cluster.has_pod("first").await?;
        Ok(if there { Err("it is still there".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.cluster.gpu_pod("second", Ask { ..ONE }).await?;
    let node = bench.cluster.bound(&["second"], SCALED).await?.remove(0);
    ensure!(node != lost, "the new pod is on the lost node {lost}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use stoker_core::base::ids::{ClusterName, LaunchKey, NodeGroupId, ZoneName};
    use stoker_core::facts::supply::LaunchRequest;
    use stoker_core::market::offer::{CapacityType, Market};
    use stoker_core::market::price::PriceBook;
    use stoker_service::price_tables;
    use stoker_sim::world::{World, WorldConfig};

    use super::*;

    /// How long machines of [`RECLAIM`] live, from whenever an autoscaler may buy them.
    fn lives(config: &WorldConfig, prices: &PriceBook) -> Vec<SignedDuration> {
        let start = Timestamp::UNIX_EPOCH;
        let mut world = World::new(config.clone(), prices, start).unwrap();
        let names = world.market_facts(start).zone_names;
        let name = |m: &Market| names[&(m.place.cloud.clone(), m.place.zone.clone())].clone();
        let markets: Vec<(Market, ZoneName)> = prices
            .entries()
            .map(|(market, _)| market.clone())
            .filter(|m| m.place.instance_type.as_str() == "g6.xlarge" && m.place.region.as_str() == "us-east-1")
            .filter(|m| m.capacity_type == CapacityType::Spot)
            .map(|m| (m.clone(), name(&m)))
            .filter(|(_, zone)| ["us-east-1a", "us-east-1b"].contains(&zone.as_str()))
            .collect();
        assert_eq!(markets.len(), 2, "{markets:?}");
        let cluster = ClusterName::new("e2e").unwrap();
        // At once, and after the 30 s that some releases hold GPU pods back.
        for second in (2..8).chain(31..37) {
            let at = start + SignedDuration::from_secs(second);
            world.advance(at);
            for (market, zone) in &markets {
                let request = LaunchRequest {
                    key: LaunchKey::new(format!("e2e/{zone}/{second}/1")).unwrap(),
                    group: NodeGroupId::new("g").unwrap(),
                    market: market.clone(),
                    zone_name: zone.clone(),
                    reservation: None,
                };
                world.launch(at, &cluster, &[request]);
            }
        }
        world.take_dirty().iter().map(|(_, row)| row.gone_at().unwrap().duration_since(row.launched_at)).collect()
    }

    #[test]
    fn spot_machines_live_for_seconds() {
        let prices = price_tables::prices(None, jiff::Timestamp::MAX).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("world.yaml");
        std::fs::write(&file, RECLAIM.world()).unwrap();
        let config = price_tables::world_config(Some(&file), &prices, Timestamp::UNIX_EPOCH).unwrap();
        let lives = lives(&config, &prices);
        assert_eq!(lives.len(), 24);
        let usable = SignedDuration::from_secs(7)..SignedDuration::from_secs(70);
        assert!(lives.iter().all(|life| usable.contains(life)), "{lives:?}");
    }
}
